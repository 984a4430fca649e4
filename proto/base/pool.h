/*
 * A pool of memory that is freed as a whole: what one message is decoded into. Not thread-safe; one
 * owner. Pointers stay valid until reset or end.
 */
#ifndef GB_POOL_H
#define GB_POOL_H

#include <stddef.h>

struct gb_pool_chunk;

struct gb_pool {
    struct gb_pool_chunk *chunks; /* newest first */
    char *next, *end;             /* free room in the newest */
};

/* A zeroed struct gb_pool is an empty pool. */
/* Makes an empty pool that first hands out `memory`, which stays the caller's and must outlive what
   is taken from it. `memory` is aligned as malloc's is. */
void gb_pool_lend(struct gb_pool *pool, void *memory, size_t size);
/* `size` bytes aligned to 16, not cleared; NULL if memory is out. */
void *gb_pool_alloc(struct gb_pool *pool, size_t size);
/* `count` zeroed elements; NULL if memory is out or the product overflows. */
void *gb_pool_calloc(struct gb_pool *pool, size_t count, size_t size);
/* Shrinks the piece of `had` bytes at `memory` to `size` if it is the one taken last. */
void gb_pool_shrink(struct gb_pool *pool, void *memory, size_t had, size_t size);
/* A NUL-terminated copy. */
char *gb_pool_strndup(struct gb_pool *pool, const char *text, size_t length);
/* Bytes handed out, headers included; lent memory does not count. */
size_t gb_pool_used(const struct gb_pool *pool);
/* Forgets everything; keeps at most one chunk (64 KiB) for the next use. */
void gb_pool_reset(struct gb_pool *pool);
/* Frees everything; the pool is empty and usable again. */
void gb_pool_end(struct gb_pool *pool);

#endif
