/*
 * Placing ranges in the segments of one protection domain: a segregated fit over offsets, whose
 * records lie in the daemon's own memory, since the daemon never maps a segment. Free ranges are
 * listed in two levels of size classes: finding one takes two bit scans and a short descent
 * (O(log n) in the free ranges of one class). Knows neither sockets nor devices. Not thread-safe.
 *
 * Ranges start at multiples of GB_ARENA_GRANULE, and their bytes are rounded up to the granule.
 * Freed neighbours are merged at once. Among free ranges of about the best size, the one in the
 * oldest segment, at the lowest offset, is taken. So large holes are kept for large ranges, old
 * segments stay full, and new ones run empty and can be given back.
 */
#ifndef GB_ARENA_H
#define GB_ARENA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/list.h"

#define GB_ARENA_GRANULE 256u

struct gb_arena;       /* one domain's */
struct gb_arena_block; /* one segment in it */
struct gb_range;       /* one allocation */

struct gb_arena *gb_arena_new(void); /* NULL if memory is out */
/* Frees the arena with all blocks and ranges. NULL is fine. */
void gb_arena_free(struct gb_arena *arena);

/* Adds a segment of `bytes` (a multiple of the granule, above 0, at most 2^47). `owner` is handed
   back by gb_range_owner. NULL if memory is out. */
struct gb_arena_block *gb_arena_add(struct gb_arena *arena, uint64_t bytes, void *owner);
/* Takes an empty segment out (assert: no range is left in it). */
void gb_arena_remove(struct gb_arena *arena, struct gb_arena_block *block);
/* Closes a block: it gets no further ranges, since its segment is to be retired. Its ranges can
   still be freed, and the block removed. Takes time in proportion to the ranges of the block; does
   nothing the second time. */
void gb_arena_close(struct gb_arena *arena, struct gb_arena_block *block);

bool gb_arena_block_empty(const struct gb_arena_block *block);
uint64_t gb_arena_block_used(const struct gb_arena_block *block); /* bytes in ranges */

/* A range of at least `bytes` (> 0). 0 and *range; 1: no open block has a free range that large;
   GPUBUF_E_NO_MEMORY. Nothing is changed unless it returns 0. */
int gb_arena_alloc(struct gb_arena *arena, uint64_t bytes, struct gb_range **range);
/* Allocates the range of `bytes` (a multiple of the granule) at `offset` of an open block. The
   search begins at `after`, a range of the block that lies before it, or at the start (NULL). 0; 1:
   the range is not free; GPUBUF_E_NO_MEMORY. */
int gb_arena_alloc_at(struct gb_arena *arena, struct gb_arena_block *block, struct gb_range *after,
                      uint64_t offset, uint64_t bytes, struct gb_range **range);
void gb_range_free(struct gb_arena *arena, struct gb_range *range);

/* Widens a range by the free bytes beside it, up to the bounds of the aligned units that it
   touches. Before the range is freed, these units of the memory below can then be given back. */
void gb_range_widen(struct gb_arena *arena, struct gb_range *range, uint64_t unit);
/* Counts a range, once, among those that leave in the look of that number (above 0), and returns
   how large a hole it would leave together with those that were counted before. Changes nothing. */
uint64_t gb_range_leave(struct gb_range *range, uint64_t look);
uint64_t gb_range_offset(const struct gb_range *range);
uint64_t gb_range_bytes(const struct gb_range *range); /* rounded up to the granule */
void *gb_range_owner(const struct gb_range *range);    /* of its block */

struct gb_arena_stats {
    uint64_t blocks, bytes;             /* segments */
    uint64_t ranges, used;              /* allocations and the bytes that they occupy */
    uint64_t free_ranges, largest_free; /* of open blocks */
};
void gb_arena_stats(const struct gb_arena *arena, struct gb_arena_stats *stats);

#endif
