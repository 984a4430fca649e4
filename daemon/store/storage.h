/* The storages of objects, and the segments in which they lie. store.h decides where. */
#ifndef GB_STORAGE_H
#define GB_STORAGE_H

#include "daemon/base/size.h"
#include "daemon/base/walk.h"
#include "daemon/memory/arena.h"
#include "daemon/memory/device.h"
#include "daemon/memory/mover.h"
#include "daemon/memory/tier.h"
#include "daemon/store/domain.h"
#include "daemon/store/stake.h"
#include "daemon/store/user.h"

struct gb_making;
struct gb_mapper;

enum gb_segment_kind { GB_SEGMENT_SHARED, GB_SEGMENT_OWN, GB_SEGMENT_ADOPTED };

struct gb_segment {
    struct gb_hash_link link; /* by id */
    struct gb_link place;     /* in the domain's `shared` or `spares`, or the device's `retiring` */
    struct gb_link empties;   /* in the store's list of empty segments, oldest first */
    uint64_t empty_since_ms;  /* while in that list; 0: not yet noted */
    uint64_t retired_ms; /* when the sessions that map it were asked to unmap it for good … */
    uint64_t asked_ms;   /* … or so that it could be emptied; 0: one that maps it was not asked */
    uint64_t tally, forecast; /* of evict.c: bytes in it that may leave, as of this forecast */
    struct gb_link of_device; /* in its device's list of all segments */
    uint64_t id, bytes;
    enum gb_segment_kind kind;
    bool empty, retiring;
    enum gb_memory_state state; /* of its `charged` bytes */
    struct gb_charge files;     /* descriptors of the daemon */
    uint64_t charged;       /* to its device's budget: its bytes, or 0 if its producer keeps them */
    struct gb_job job;      /* giving it back */
    struct gb_making *kept; /* of the request that it is kept for, for its next try; NULL: none */
    struct gb_store *store;
    struct gb_device *device;
    struct gb_domain *domain; /* NULL: adopted */
    struct gb_user *user;     /* is charged for it */
    struct gb_memory memory;
    struct gb_arena_block *block; /* shared ones */
    struct gb_link mappings;      /* sessions that map it */
};

/* The offset at which a handle's memory begins in the content of a registered object, after `bytes`
   of earlier handles. It is a multiple of the granule, so that buffers stay aligned. */
static inline uint64_t gb_content_next(uint64_t bytes)
{
    return (bytes + GB_ARENA_GRANULE - 1) & ~(uint64_t)(GB_ARENA_GRANULE - 1);
}

/* One stretch of a storage. */
struct gb_placement {
    struct gb_segment *segment;
    struct gb_range *range; /* NULL: the whole segment */
};

static inline uint64_t gb_placement_offset(const struct gb_placement *placement)
{
    return placement->range ? gb_range_offset(placement->range) : 0;
}

/* The bytes that it takes of its device. */
static inline uint64_t gb_placement_bytes(const struct gb_placement *placement)
{
    return placement->range ? gb_range_bytes(placement->range) : placement->segment->charged;
}

struct gb_move;

/*
 * The memory of one object, or of several that are aliases of it. The unit of eviction. It is
 * *resident* while it lies in segments of its device; its content may also, or only, be in copies
 * in the tiers below.
 */
struct gb_storage {
    struct gb_store *store;
    struct gb_link of_state; /* while the journal has the storage */
    uint64_t number;         /* its number in the journal; 0: the journal does not have it */
    struct gb_recent recent;
    struct gb_link objects; /* of the registry's */
    uint64_t text;          /* bytes of the texts of these objects */
    struct gb_link idles;   /* leases not in use, which must be recalled before it leaves */
    uint32_t references;    /* of objects, and of work on it */
    uint32_t leases, pins;  /* of all its objects; leases in use; pins: `keep` too */
    uint32_t needs;         /* named objects that must not be dropped, and parked leases */
    struct gb_domain_key key;
    struct gb_stake maker;  /* of the user that its segments are made for */
    struct gb_link stakes;  /* of all users who have objects of it, or leases: stake.h */
    uint32_t named, opened; /* of all stakes: objects that have a name or are written; leases */
    uint64_t charged;       /* bytes that it counts for, wherever it is: those asked for, rounded */
    uint64_t used_ms;       /* when it was last opened or released */
    uint64_t size;          /* bytes of content, which a copy has */
    uint64_t bytes;         /* that it occupies on its device; 0 while it is not resident */
    uint64_t *tally; /* counts `bytes` until nothing holds the storage; not ours; NULL: none */
    struct gb_copy *copies[GB_TIERS];
    struct gb_move *out, *in; /* moves to a tier below, and back, that are under way; or NULL */
    struct gb_move_failure *failure; /* of the last move: spill.h; owned; NULL: none */
    bool adopted, resident;
    uint16_t placement_count, placement_room;
    struct gb_placement placements[]; /* one, none (no bytes), or one for each registered handle */
};

struct gb_store {
    struct gb_users users;
    struct gb_hash_table domains, segments, mappings;
    struct gb_link empties; /* empty segments that are kept, oldest first */
    struct gb_link making;  /* struct gb_making_job: memory that is being made or adopted */
    struct gb_link walks;   /* struct gb_walk: over devices' segments, and mappings */
    uint64_t next_segment;
    uint64_t forecasts;       /* of evict.c so far */
    uint64_t retire_after_ms; /* that a segment may be empty; UINT64_MAX: for ever */
    uint64_t unmap_ms;        /* that a mapper may take to unmap a segment whose room is needed */
    /* Called when a mapper should unmap a segment. */
    void (*retire)(void *arg, struct gb_mapper *mapper, const struct gb_segment *segment);
    /* Called when the mapper has not done so in time. */
    void (*overdue)(void *arg, struct gb_mapper *mapper);
    void *retire_arg;
    /* Closes a descriptor that the user has sent, which may block; NULL: close() does. */
    void (*drop)(void *arg, struct gb_user *user, int fd);
    void *drop_arg;
    /* Called for the journal when a segment was made, before it is freed, and when a storage has
       changed; and for what else the service manager is to keep, with a number of the segments',
       until it is not any more (fd -1). NULL: there is no journal. */
    void (*on_segment)(void *arg, struct gb_segment *segment, bool made);
    void (*on_storage)(void *arg, struct gb_storage *storage);
    void (*on_page)(void *arg, uint64_t id, int fd);
    void *on_change_arg;
    bool handed_over; /* that is the successor's: what clients share with it stays as it is */
};

/* Makes a storage without placements, with a place for `room` of them, and without bytes that
   count. gb_storage_place_in() adds a placement: a range, or (NULL) the whole segment. */
struct gb_storage *gb_storage_new(struct gb_store *store, const struct gb_domain_key *key,
                                  struct gb_user *user, unsigned room);
void gb_storage_place_in(struct gb_storage *storage, struct gb_segment *segment,
                         struct gb_range *range);
/* Whether all of its content is sealed by the kernel, so that nobody can change it. Asked before
   the seal of an object that is to be final, this finds out what its producer has sealed. */
bool gb_storage_is_final(const struct gb_storage *storage);

struct gb_storage *gb_storage_ref(struct gb_storage *storage);
/* The last reference frees the ranges and the copies. A segment that runs empty is kept or retired.
 */
void gb_storage_unref(struct gb_store *store, struct gb_storage *storage);

/* Whether content of `bytes` gets a segment of its own, and whether a storage has one. */
bool gb_key_gets_own(const struct gb_domain_key *key, uint64_t bytes);
bool gb_storage_is_own(const struct gb_storage *storage);
/* Adds the storage's bytes to its device's figures by leases and pins, or (`sign` -1) takes them
   away. */
void gb_storage_count_holds(const struct gb_storage *storage, int sign);
/* Counts the storage as away, with its content in tiers only, or (`sign` -1) not any more. */
void gb_storage_count_away(const struct gb_storage *storage, int sign);
/* Takes the storage's bytes out of its tally. */
void gb_storage_untally(struct gb_storage *storage);
#endif
