/*
 * The tiers below the devices: pinned host memory, and files in a directory. Each has a budget, and
 * holds *copies*: the content of one storage, in one piece. Sealed content never changes, so a copy
 * stays good when its storage is restored, and the storage can then leave its device again at once.
 * A copy that is not the only place of its content is clean: freeing it loses nothing.
 *
 * A request that waits for room in a tier has a *bid* for it. Requests are served in the order of
 * their arrival: neither a later request nor background copying takes room from an older bid.
 *
 * Pure but for the host tier's memory and the removal of files; the loop's. move.h copies, evict.c
 * decides.
 */
#ifndef GB_TIER_H
#define GB_TIER_H

#include <stdatomic.h>

#include "daemon/memory/arena.h"
#include "daemon/memory/mover.h"
#include "daemon/memory/pinned.h"
#include "daemon/memory/recency.h"
#include "daemon/memory/spill_file.h"

enum gb_tier_kind { GB_TIER_HOST, GB_TIER_DISK, GB_TIERS };

struct gb_storage;

struct gb_tier {
    enum gb_tier_kind kind;
    uint64_t capacity; /* bytes; 0: there is no such tier */
    uint64_t used;     /* by copies, also by those being written or removed */
    uint64_t going;    /* of used: being removed */
    uint64_t copies;
    uint64_t failing_until; /* after a failure: not tried again before this time, in ms; else 0 */
    uint64_t writes, written_bytes, reads, read_bytes, failures; /* so far */
    uint64_t write_us, read_us;                                  /* time that these took */
    struct gb_recency recency; /* of whole copies; a copy is held while it is in use */
    struct gb_link bids;       /* struct gb_bid, the oldest first */

    struct gb_pinned *pinned; /* host */
    struct gb_arena *arena;   /* one block: over `pinned`; of the disk's pack */
    struct gb_arena_block *block;

    struct gb_spill_dir *dir; /* disk */
    struct gb_mover *mover;   /* disk: writes copies of the host tier, and removes files */
    uint64_t next_file;
    struct gb_job cleaning; /* disk: removing what an earlier daemon left, piece by piece */
    uint64_t *stale;        /* the files to be removed; owned; NULL: none is left */
    size_t stale_count, stale_found;
    bool stopping;
    void (*removed)(void *arg); /* told when a removal has made room */
    void *removed_arg;
    atomic_bool handed_over; /* disk: files belong to the successor, so the mover removes none */
};

struct gb_copy {
    struct gb_recent recent;
    struct gb_job job; /* removing its file */
    struct gb_tier *tier;
    struct gb_storage *storage; /* NULL: freed, and the copy is freed when its hold ends */
    uint64_t bytes;             /* of content */
    uint64_t occupied;          /* of the tier's budget */
    bool whole;                 /* all of the content is there */
    struct gb_range *range;     /* host, or in the disk's pack; NULL: it has a file of its own */
    uint64_t file;              /* disk: the number of its file, or its place in the pack */
    uint64_t owner; /* which a file's header has: the number of its storage in the journal, or,
                       without a journal, one of its own from GB_COPY_UNRECORDED on. The caller of
                       gb_copy_new() or gb_copy_restore() sets it */
};

#define GB_COPY_UNRECORDED (UINT64_C(1) << 63)

/* The bids of one request. Zeroed but for its serial before its first use. */
struct gb_bid {
    struct gb_link of_tiers[GB_TIERS];
    uint64_t serial; /* later requests have greater ones */
};

/* Bids for room in the tier `from` and in those below, where its content goes (GB_TIERS: in none).
   `tiers` are all of the daemon's. True if a bid was given up. */
bool gb_bid_set(struct gb_bid *bid, struct gb_tier *tiers, enum gb_tier_kind from);
/* Whether a request that is older than `serial` bids for room in the tier. */
bool gb_tier_has_older_bid(const struct gb_tier *tier, uint64_t serial);

/* "host", "disk": as replies say it. */
const char *gb_tier_name(enum gb_tier_kind kind);

/* Whether the tier exists and has not failed lately. */
bool gb_tier_works(const struct gb_tier *tier);
/* 0 if an earlier daemon left more than the budget. */
uint64_t gb_tier_free_bytes(const struct gb_tier *tier);

/* Copies of up to this many bytes are in the disk's pack. */
#define GB_PACKED_MAX (64u << 10)

/* Whether a copy of `bytes` fits into an empty tier. */
bool gb_tier_fits(const struct gb_tier *tier, uint64_t bytes);

/* The room that a copy of `bytes` occupies: of a disk, with its header. */
uint64_t gb_tier_occupies(const struct gb_tier *tier, uint64_t bytes);

/* Makes a copy with room in the tier, held until it is whole or given up. 0; 1: there is no room
   now; GPUBUF_E_NO_MEMORY. */
int gb_copy_new(struct gb_tier *tier, struct gb_storage *storage, uint64_t bytes,
                struct gb_copy **copy);
/* Restores a whole copy that an earlier daemon left, at the offset (host) or in the file (disk)
   `where`. `after` (may be NULL) is a copy that lies before it, which makes the search shorter. 0;
   GPUBUF_E_INVALID: it cannot be there; GPUBUF_E_NO_MEMORY. */
int gb_copy_restore(struct gb_tier *tier, struct gb_storage *storage, uint64_t bytes,
                    uint64_t where, const struct gb_copy *after, struct gb_copy **copy);
/* The offset (host), or the number of the file (disk). */
uint64_t gb_copy_where(const struct gb_copy *copy);
/* Makes a new copy whole, and drops its hold. */
void gb_copy_complete(struct gb_copy *copy);
/* A held copy is neither evicted nor freed. */
void gb_copy_hold(struct gb_copy *copy);
void gb_copy_drop(struct gb_copy *copy);
/* Frees the copy when nobody holds it. The room of a file is free when the file is removed. */
void gb_copy_free(struct gb_copy *copy);

/* Disk: removes the files of an earlier daemon in the background, but for `kept`, which is sorted
   here. New files get higher numbers than any of these. GPUBUF_E_SYSTEM, GPUBUF_E_NO_MEMORY. */
int gb_tier_clean(struct gb_tier *tier, uint64_t *kept, size_t count, struct gb_error *error);

/* The offset in the host tier. */
uint64_t gb_copy_offset(const struct gb_copy *copy);

#endif
