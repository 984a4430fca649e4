/*
 * The tiers below the devices: pinned host memory, and files in a directory. Each has a budget, and
 * holds *copies*: the content of one storage, in one piece. Sealed content never changes, so a copy
 * stays good when its storage is restored, and the storage can then leave its device again at once.
 * A copy that is not the only place of its content is clean: it can go without a loss.
 *
 * Requests that wait for room in a tier have a *claim* on it, and are served in the order of their
 * arrival: nobody who came later, and nothing in the background, takes what was made free for them.
 *
 * Pure but for the host tier's memory and the removal of files; the loop's. move.h copies, spill.h
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
    uint64_t used;     /* in copies, those on their way in or out too */
    uint64_t going;    /* of used: being removed */
    uint64_t copies;
    uint64_t failing_until; /* it failed lately: not tried again before, in ms; 0: it did not */
    uint64_t writes, written_bytes, reads, read_bytes, failures; /* so far */
    uint64_t write_us, read_us;                                  /* that these took */
    struct gb_recency recency; /* of what is whole; held: in use */
    struct gb_link claims;     /* struct gb_claim, the oldest first */

    struct gb_pinned *pinned; /* host */
    struct gb_arena *arena;   /* one block: over `pinned`; of the disk's pack */
    struct gb_arena_block *block;

    struct gb_spill_dir *dir; /* disk */
    struct gb_mover *mover;   /* disk: what writes from the host tier, and removes */
    uint64_t next_file;
    struct gb_job cleaning; /* disk: removing what an earlier daemon left, piece by piece */
    uint64_t *stale;        /* those files; owned; NULL: no more */
    size_t stale_count, stale_found;
    bool stopping;
    void (*removed)(void *arg); /* told when a removal has made room */
    void *removed_arg;
    atomic_bool handed_over; /* disk: what goes is the successor's, and stays; the mover asks */
};

struct gb_copy {
    struct gb_recent recent;
    struct gb_job job; /* removing its file */
    struct gb_tier *tier;
    struct gb_storage *storage; /* NULL: that is gone, and it goes too when its hold ends */
    uint64_t bytes;             /* of content */
    uint64_t occupied;          /* of the tier's budget */
    bool whole;                 /* all of the content is there */
    struct gb_range *range;     /* host; disk: in the pack, NULL: it has a file of its own */
    uint64_t file;              /* disk: its own, or the place in the pack */
    uint64_t owner; /* the storage's number, which a file tells; 0: it has none. The caller's
                                   of gb_copy_new() and gb_copy_restore() to set */
};

/* Of one request. Zeroed but for its serial before its first use. */
struct gb_claim {
    struct gb_link of_tiers[GB_TIERS];
    uint64_t serial; /* those of later requests are greater */
};

/* Has it claim room in the tier `from` and in those below, where content of that one goes, of all
   of a daemon's (GB_TIERS: in none). True if it gave up a claim. */
bool gb_claim_set(struct gb_claim *claim, struct gb_tier *tiers, enum gb_tier_kind from);
/* Whether a request that is older than the one of `serial` claims room in it. */
bool gb_tier_claimed(const struct gb_tier *tier, uint64_t serial);

/* "host", "disk": as replies say it. */
const char *gb_tier_name(enum gb_tier_kind kind);

/* Whether it can be written to at present. */
bool gb_tier_works(const struct gb_tier *tier);
/* None where an earlier daemon left more than there may be now. */
uint64_t gb_tier_free_bytes(const struct gb_tier *tier);

/* Copies up to this are in the disk's pack. */
#define GB_PACKED_MAX (64u << 10)

/* Whether a copy of `bytes` fits into an empty tier. */
bool gb_tier_fits(const struct gb_tier *tier, uint64_t bytes);

/* The room that a copy of `bytes` occupies: of a disk, with its header. */
uint64_t gb_tier_occupies(const struct gb_tier *tier, uint64_t bytes);

/* Room for a copy, which is held until it is whole or given up. 0; 1: there is no room now;
   GPUBUF_E_NO_MEMORY. */
int gb_copy_new(struct gb_tier *tier, struct gb_storage *storage, uint64_t bytes,
                struct gb_copy **copy);
/* A whole copy that a daemon before left, at that offset (host) or in that file (disk). In the host
   tier it is looked for from `after` on, one that lies before it (may be NULL). 0;
   GPUBUF_E_INVALID: it is not there; GPUBUF_E_NO_MEMORY. */
int gb_copy_restore(struct gb_tier *tier, struct gb_storage *storage, uint64_t bytes,
                    uint64_t where, const struct gb_copy *after, struct gb_copy **copy);
/* The offset, or the file. */
uint64_t gb_copy_where(const struct gb_copy *copy);
/* It is whole: the hold ends. */
void gb_copy_complete(struct gb_copy *copy);
/* While it is held it stays. */
void gb_copy_hold(struct gb_copy *copy);
void gb_copy_drop(struct gb_copy *copy);
/* Gives its room back, a file's when it has been removed; at the end of its hold if it is held. */
void gb_copy_free(struct gb_copy *copy);

/* Disk: removes in the background what an earlier daemon left, but for `kept`, which is sorted
   here. New files get numbers that none of those has. GPUBUF_E_SYSTEM, GPUBUF_E_NO_MEMORY. */
int gb_tier_clean(struct gb_tier *tier, uint64_t *kept, size_t count, struct gb_error *error);

/* Where it is in the host tier. */
uint64_t gb_copy_offset(const struct gb_copy *copy);

#endif
