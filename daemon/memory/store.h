/*
 * Where objects lie: the segments of domains, the storage of each object, and which session maps
 * which segment. Decides when a segment is made, kept for reuse, retired, destroyed. Knows devices
 * by their table of functions; knows no sockets. Not thread-safe: the loop's.
 */
#ifndef GB_STORE_H
#define GB_STORE_H

#include "daemon/base/size.h"
#include "daemon/base/walk.h"
#include "daemon/memory/arena.h"
#include "daemon/memory/device.h"
#include "daemon/memory/domain.h"
#include "daemon/memory/mover.h"
#include "daemon/memory/stake.h"
#include "daemon/memory/tier.h"
#include "daemon/memory/user.h"

enum gb_segment_kind { GB_SEGMENT_SHARED, GB_SEGMENT_OWN, GB_SEGMENT_ADOPTED };

struct gb_segment {
    struct gb_hash_link link; /* by id */
    struct gb_link place;     /* in the domain's `shared` or `spares`, or the device's `retiring` */
    struct gb_link empties;   /* in the store's list of empty segments, oldest first */
    uint64_t empty_since_ms;  /* while in that list; 0: not yet noted */
    uint64_t retired_ms; /* when the sessions that map it were asked to unmap it for good … */
    uint64_t asked_ms;   /* … or so that it could be emptied; 0: one that maps it was not asked */
    uint64_t tally, look;     /* of gb_store_look: bytes in it that may leave, as of this look */
    struct gb_link of_device; /* in its device's list of all segments */
    uint64_t id, bytes;
    enum gb_segment_kind kind;
    bool empty, retiring;
    struct gb_charge files; /* descriptors of the daemon */
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
    uint64_t offset, bytes;
};

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
    uint64_t references;     /* of objects, and of work on it */
    struct gb_recent recent;
    struct gb_link objects; /* of the registry's */
    uint64_t text;          /* bytes of the texts of these objects */
    uint64_t leases, pins;  /* of all its objects; leases in use; pins: `keep` too */
    uint64_t idle;          /* leases not in use, which must be recalled before it leaves */
    uint64_t needs;         /* named objects that must not be dropped, and parked leases */
    struct gb_domain_key key;
    struct gb_stake maker;  /* of the user that its segments are made for */
    struct gb_link stakes;  /* of all users who have objects of it, or leases: stake.h */
    uint64_t named, opened; /* of all stakes: objects that have a name or are written; leases */
    uint64_t charged;       /* bytes that it counts for, wherever it is: those asked for, rounded */
    uint64_t used_ms;       /* when it was last opened or released */
    struct gb_device *device; /* the key's */
    enum gb_share share;
    bool adopted;
    bool resident;
    uint64_t size;   /* bytes of content, which a copy has */
    uint64_t bytes;  /* that it occupies on its device; 0 while it is not resident */
    uint64_t *tally; /* counts `bytes` until nothing holds the storage; not ours; NULL: none */
    struct gb_copy *copies[GB_TIERS];
    struct gb_move *out, *in; /* moves to a tier below, and back, that are under way; or NULL */
    struct gb_move_failure *failure; /* of the last move: spill.h; owned; NULL: none */
    unsigned placement_count, placement_room;
    struct gb_placement placements[]; /* one, none (no bytes), or one for each registered handle */
};

/* Someone who maps segments: a session. */
struct gb_mapper {
    uint64_t id;
    struct gb_link mappings;
    uint64_t bytes; /* of the segments that it maps */
};

/* Access to a segment; each includes those before it. */
enum gb_access { GB_ACCESS_NONE, GB_ACCESS_READ, GB_ACCESS_WRITE };

/* The account that a mapper was given a segment's handle. */
struct gb_mapping {
    struct gb_hash_link link; /* by (mapper, segment) */
    struct gb_link of_mapper, of_segment;
    struct gb_mapper *mapper;
    struct gb_segment *segment;
    enum gb_access access; /* the widest that it was given */
};

struct gb_store {
    struct gb_users users;
    struct gb_hash_table domains, segments, mappings;
    struct gb_link empties; /* empty segments that are kept, oldest first */
    struct gb_link making;  /* struct gb_making_job: memory that is being made or adopted */
    struct gb_link walks;   /* struct gb_walk: over devices' segments, and mappings */
    uint64_t next_segment;
    uint64_t looks;           /* of gb_store_look so far */
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
       changed; NULL: there is no journal. */
    void (*on_segment)(void *arg, struct gb_segment *segment, bool made);
    void (*on_storage)(void *arg, struct gb_storage *storage);
    void *on_change_arg;
};

void gb_store_init(struct gb_store *store);
/* Gives every empty segment back. To be followed by the end of the devices' movers. */
void gb_store_clear(struct gb_store *store);
/* To be called after the end of every storage, mapper and job. */
void gb_store_end(struct gb_store *store);

struct gb_making_job; /* memory that a device is making, or adopting, on its mover's thread */

/* A request's part in such a job. Zeroed while it waits for none. */
struct gb_making {
    struct gb_making_job *job; /* under way, or done and its memory not yet taken */
    struct gb_segment *made;   /* for the request, and kept until its next try; NULL: none */
    int code;                  /* of a job that failed; 0: none has */
    struct gb_error error;
};

enum gb_place {
    GB_PLACE_OK = 0,
    GB_PLACE_FULL = 1,   /* no room now; `shortfall` says how many bytes are missing. Sessions may
                            have been asked to unmap empty segments */
    GB_PLACE_MAKING = 2, /* memory is being made: try again when the device's space has changed */
    GB_PLACE_QUOTA = 3,  /* the user holds too much, but some of that is being given back: try again
                            when the device's space has changed. *error is set, for the case that it
                            is not tried again */
};

/* One memory to adopt. The descriptor (-1: none) is duplicated, not taken. */
struct gb_adoption {
    struct gb_handle handle;
    int fd;
};

/* A storage that is looking for its place. */
struct gb_placing {
    struct gb_store *store;
    const struct gb_domain_key *key;
    struct gb_user *user;
    uint64_t bytes; /* of the content */
    /* To be placed is registered memory, that is adopted; count 0: not. */
    const struct gb_adoption *adoptions;
    unsigned count;
    struct gb_making *making; /* of the request, if it has waited; else NULL */
    /* One that has left its device, and comes back; or NULL, and on OK the one that was made, with
       one reference and no hold. */
    struct gb_storage *storage;
    uint64_t shortfall;        /* on FULL */
    struct gb_making_job *job; /* on MAKING: was begun, for gb_making_attach; NULL: an earlier job
                                  will do */
    struct gb_error *error;    /* the caller's */
};

/* Makes a storage and finds its place, or finds one for a storage that comes back, which the caller
   makes resident when the content is there, too. An enum gb_place, or GPUBUF_E_NO_SPACE (it can
   never fit), _LIMIT, _DEVICE, _NO_MEMORY. */
int gb_store_place(struct gb_placing *placing);
/* Whether content of `bytes` gets a segment of its own, and whether a storage has one. */
bool gb_key_gets_own(const struct gb_domain_key *key, uint64_t bytes);
bool gb_storage_is_own(const struct gb_storage *storage);
/* Adds the storage's bytes to its device's figures by leases and pins, or (`sign` -1) takes them
   away. */
void gb_storage_count_holds(const struct gb_storage *storage, int sign);
/* Takes the storage's bytes out of its tally. */
void gb_storage_untally(struct gb_storage *storage);
/* Gives a storage's room on its device back: its content is in a tier below, or lost. */
void gb_storage_vacate(struct gb_store *store, struct gb_storage *storage);

/* Has the request wait for a job, for which no other waits. */
void gb_making_attach(struct gb_making *making, struct gb_making_job *job);
/* Ends the wait. A segment that is made later serves the next object of its domain. */
void gb_making_end(struct gb_making *making);
/* The request has been tried again, so the segment that was made for it is not kept any longer. */
void gb_making_tried(struct gb_making *making);
/* Whether the job is still under way. */
bool gb_making_busy(const struct gb_making *making);

/* Whether all of its content is sealed by the kernel, so that nobody can change it. Asked before
   the seal of an object that is to be final, this finds out what its producer has sealed. */
bool gb_storage_is_final(const struct gb_storage *storage);

struct gb_storage *gb_storage_ref(struct gb_storage *storage);
/* The last reference frees the ranges and the copies. A segment that runs empty is kept or retired.
 */
void gb_storage_unref(struct gb_store *store, struct gb_storage *storage);

/* Gives empty segments of a device back until `bytes` of them are freed or retiring: first those
   that nobody maps, then those that sessions have to unmap; of each the oldest first. Returns the
   bytes freed at once. */
uint64_t gb_store_trim(struct gb_store *store, struct gb_device *device, uint64_t bytes);

/* Whether eviction would bring enough room. */
enum gb_look {
    GB_LOOK_FITS,   /* enough, as far as can be told */
    GB_LOOK_MAPPED, /* enough, if sessions unmap segments that would be empty: they were asked to */
    GB_LOOK_NOTHING /* too little: storages that stay lie in the same segments */
};

/*
 * Whether the eviction of all that may leave a device would make room for `bytes` more of a domain
 * (NULL: of none). `soon` bytes come free anyway; `below` is the room of the tiers for content that
 * must be kept. Looks at the segments of a limited number of storages; if there are more it takes
 * their bytes to be enough. Evict nothing if the answer is GB_LOOK_NOTHING.
 */
enum gb_look gb_store_look(struct gb_store *store, struct gb_device *device,
                           const struct gb_domain_key *key, uint64_t bytes, uint64_t soon,
                           uint64_t below);
/* Bytes of a device that are free, that come free soon, or that are in empty segments which nobody
   maps, also in those that are kept for a request. Counting stops at `enough`. */
uint64_t gb_store_near(const struct gb_store *store, const struct gb_device *device, uint64_t soon,
                       uint64_t enough);

/* Calls `overdue` for mappers that were asked `unmap_ms` ago to unmap a segment of the device and
   have not, if a request has lacked room since. Returns when to call it again; UINT64_MAX: not
   before a mapper is asked. */
uint64_t gb_store_press(struct gb_store *store, struct gb_device *device, uint64_t now_ms);

/* Gives segments back that have been empty for `retire_after_ms`, and notes the time for those that
   ran empty since the last call. Returns when to call it again; UINT64_MAX: not before a segment
   runs empty. */
uint64_t gb_store_retire_idle(struct gb_store *store, uint64_t now_ms);

struct gb_segment *gb_store_segment(const struct gb_store *store, uint64_t id);

/* ---- segments: among store.c, making.c and mapper.c ---- */

/* Makes a storage without placements, with a place for `room` of them, and without bytes that
   count. gb_storage_place_in() adds a placement: a range, or (NULL) the whole segment. */
struct gb_storage *gb_storage_new(struct gb_store *store, const struct gb_domain_key *key,
                                  struct gb_user *user, unsigned room);
void gb_storage_place_in(struct gb_storage *storage, struct gb_segment *segment,
                         struct gb_range *range);
/* Makes an empty segment of memory that was made or adopted, which it takes over. NULL if the
   daemon's own memory is out. */
struct gb_segment *gb_segment_new(struct gb_store *store, enum gb_segment_kind kind,
                                  const struct gb_domain_key *key, struct gb_user *user,
                                  uint64_t bytes, const struct gb_memory *memory);
/* Gives an empty segment back, at once if nobody maps it, else as soon as nobody does. Returns the
   bytes freed at once: none if the mover does it. */
uint64_t gb_segment_retire(struct gb_store *store, struct gb_segment *segment);
/* Counts the segment as mapped, or not any more. */
void gb_segment_mapped(struct gb_segment *segment, bool mapped);
/* The segment has one mapper less. If it is retiring and has none, it is destroyed. */
void gb_segment_unmapped(struct gb_store *store, struct gb_segment *segment);

/* Begins to make a segment for a domain on the device's mover; its bytes are charged at once.
   GB_PLACE_MAKING; GPUBUF_E_NO_MEMORY. */
int gb_making_begin(struct gb_placing *placing, enum gb_segment_kind kind, uint64_t bytes);
/* The bytes of another shared segment for a storage that the domain's segments have no room for. */
uint64_t gb_making_bytes(const struct gb_domain *domain, const struct gb_storage *storage);
/* Begins to make another shared segment ahead of need, after a storage got a place in one: if the
   device has a mover, and less than half the bytes of the domain's largest segment are free in all
   of them together. */
void gb_making_ahead(struct gb_store *store, const struct gb_domain *domain,
                     const struct gb_storage *storage);
/* Marks segments that are being made and that no request waits for, up to `bytes`, of one user
   (NULL: of all), to be given back once they are made. Returns their bytes. */
uint64_t gb_making_trim(struct gb_store *store, struct gb_device *device,
                        const struct gb_user *user, uint64_t bytes);
/* Begins to adopt memory on the device's mover. GB_PLACE_MAKING; GPUBUF_E_NO_MEMORY,
   GPUBUF_E_LIMIT. */
int gb_making_adopt(struct gb_placing *placing);
/* Has the device adopt each memory, all or none; the sentence of a failure names the handle. */
int gb_adopt_all(struct gb_device *device, const struct gb_adoption *adoptions, unsigned count,
                 struct gb_memory *memories, struct gb_error *error);
/* Gives the caller the memories that a finished job has adopted, as many as it has adoptions. */
void gb_making_take(struct gb_making *making, struct gb_memory *memories);
/* Gives back memory that became no segment, on the mover's thread if the device has one. */
void gb_memory_discard(struct gb_device *device, const struct gb_memory *memory);
/* How many segments are being made or adopted for a user. */
uint64_t gb_making_count(const struct gb_store *store, const struct gb_user *user);
/* Whether a shared segment of the domain that can hold the bytes is being made. */
bool gb_making_comes(const struct gb_store *store, const struct gb_domain_key *key, uint64_t bytes);

/* ---- which mapper maps which segment: mapper.c ---- */

void gb_mapper_init(struct gb_mapper *mapper, uint64_t id);
/* Notes that the mapper is given the segment with that access. GPUBUF_E_NO_MEMORY. */
int gb_mapper_add(struct gb_store *store, struct gb_mapper *mapper, struct gb_segment *segment,
                  enum gb_access access);
struct gb_mapping *gb_mapper_find(const struct gb_store *store, const struct gb_mapper *mapper,
                                  uint64_t segment);
/* The mapper has unmapped the segment. If it is retiring and nobody else maps it, it is destroyed.
 */
void gb_mapping_end(struct gb_store *store, struct gb_mapping *mapping);
/* Ends at most `most` of the mapper's mappings; returns how many. */
unsigned gb_mapper_end_some(struct gb_store *store, struct gb_mapper *mapper, unsigned most);

#endif
