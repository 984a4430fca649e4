/*
 * Where objects lie: the segments of domains, the storage of each object, and the account of who
 * maps which segment. Decides when a segment is made, kept for reuse, retired, destroyed. Knows
 * devices by their table of functions; knows no sockets. Not thread-safe: the loop's.
 */
#ifndef GB_STORE_H
#define GB_STORE_H

#include "daemon/base/size.h"
#include "daemon/base/walk.h"
#include "daemon/memory/arena.h"
#include "daemon/memory/charge.h"
#include "daemon/memory/device.h"
#include "daemon/memory/domain.h"
#include "daemon/memory/mover.h"
#include "daemon/memory/tier.h"
#include "daemon/memory/user.h"

enum gb_segment_kind { GB_SEGMENT_SHARED, GB_SEGMENT_OWN, GB_SEGMENT_ADOPTED };

struct gb_segment {
    struct gb_hash_link link; /* by id */
    struct gb_link place; /* in the domain's list of shared ones or spares; in the device's of those
                                 that are retiring */
    struct gb_link empties;  /* in the store's list of empty segments, oldest first */
    uint64_t empty_since_ms; /* there; 0: not yet noted */
    uint64_t retired_ms;     /* when those who map it were asked to unmap it for good … */
    uint64_t asked_ms;    /* … or so that it could be emptied; 0: those who map it now were not */
    uint64_t tally, look; /* of gb_store_look: bytes in it that may leave, as of this look */
    struct gb_link of_device; /* in its device's list of all of them */
    uint64_t id, bytes;
    enum gb_segment_kind kind;
    bool empty, retiring;
    unsigned files; /* descriptors of the daemon */
    uint64_t
        charged; /* of its device's budget: its bytes, or 0 for memory that stays its producer's */
    struct gb_job job;      /* giving it back */
    struct gb_making *kept; /* whom it was made for, and is not given back before; NULL: nobody */
    struct gb_store *store;
    struct gb_device *device;
    struct gb_domain *domain; /* NULL: adopted */
    struct gb_user *user;     /* who is charged for it */
    struct gb_memory memory;
    struct gb_arena_block *block; /* shared ones */
    struct gb_link mappings;      /* sessions that map it */
};

/* Where in the content of registered memory the next handle's begins, behind `bytes` of those
   before it: buffers are to be aligned there as well. */
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
    struct gb_link of_state; /* while the journal has it, as … */
    uint64_t number;         /* … this; 0: it has not */
    uint64_t references;     /* objects, and who works on it */
    struct gb_recent recent;
    struct gb_link objects; /* of the registry's */
    uint64_t text;          /* bytes of what is told of them */
    uint64_t leases, pins;  /* of all its objects; leases that are in use; pins: `keep` too */
    uint64_t idle;          /* leases that are not, and have to be recalled before it leaves */
    uint64_t needs;         /* named objects that are not to be dropped */
    struct gb_domain_key key;
    struct gb_stake maker;  /* of whoever made it: the user that its segments are made for */
    struct gb_link stakes;  /* of all who have objects of it, or leases: charge.h */
    uint64_t named, opened; /* by all of them: objects that have a name or are written; leases */
    uint64_t charged;       /* what it counts for: what was asked for, rounded up, wherever it is */
    uint64_t used_ms;       /* when it was last opened or given back */
    struct gb_device *device; /* the key's */
    enum gb_share share;
    bool adopted;
    bool resident;
    bool overtook;  /* it got its room before older requests did, and is held since */
    uint64_t size;  /* bytes of content: what a copy holds */
    uint64_t bytes; /* that it occupies on its device; 0 while it is not there */
    struct gb_copy *copies[GB_TIERS];
    struct gb_move *out, *in; /* under way: to a tier below, back from there */
    struct gb_link waits;     /* requests that wait for the end of these */
    struct gb_error *failure; /* why the last of them failed, for requests that wait; owned; NULL */
    uint64_t stuck_ms;        /* when its driver last could not copy it out; 0: it could */
    unsigned placement_count, placement_room;
    struct gb_placement placements[]; /* one, none (no bytes), or one for each registered handle */
};

/* Someone who maps segments: a session. */
struct gb_mapper {
    uint64_t id;
    struct gb_link mappings;
    uint64_t bytes; /* of the segments that it maps */
};

/* A session that may write may read: a handle for writing is not followed by one for reading. */
enum gb_access { GB_ACCESS_NONE, GB_ACCESS_READ, GB_ACCESS_WRITE };

/* That a mapper was given a segment's handle. */
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
    struct gb_link making;  /* struct gb_making_job: segments on their way */
    struct gb_link walks;   /* struct gb_walk: over devices' segments, and mappings */
    uint64_t next_segment;
    uint64_t looks;           /* of gb_store_look so far */
    uint64_t retire_after_ms; /* that a segment may be empty; UINT64_MAX: as long as it likes */
    uint64_t unmap_ms;        /* that a mapper may take to unmap what is to go and is needed */
    /* Told when a mapper should unmap a segment. */
    void (*retire)(void *arg, struct gb_mapper *mapper, const struct gb_segment *segment);
    /* Told when it has not done so in time. */
    void (*overdue)(void *arg, struct gb_mapper *mapper);
    void *retire_arg;
    /* Closes a descriptor that was received for a user, which may block; NULL: close() does. */
    void (*drop)(void *arg, struct gb_user *user, int fd);
    void *drop_arg;
    /* Told of what a successor has to know, when it has changed; NULL: there is none. A segment is
       told once it is made, and before it goes. */
    void (*on_segment)(void *arg, struct gb_segment *segment, bool made);
    void (*on_storage)(void *arg, struct gb_storage *storage);
    void *on_change_arg;
};

void gb_store_init(struct gb_store *store);
/* Gives every empty segment back. To be followed by the end of the devices' movers. */
void gb_store_clear(struct gb_store *store);
/* After every storage and mapper and job has gone. */
void gb_store_end(struct gb_store *store);

struct gb_making_job; /* memory that a device is making, or adopting, on its mover's thread */

/* Somebody who waits for such a job. Zeroed: for none. */
struct gb_making {
    struct gb_making_job *job; /* under way, or done and its memory not yet taken */
    struct gb_segment *made;   /* for it, and kept until it has been tried again; NULL: none */
    int code;                  /* of a job that failed; 0: none has */
    struct gb_error error;
};

enum gb_place {
    GB_PLACE_OK = 0,
    GB_PLACE_FULL = 1,   /* no room now; *shortfall says how many bytes are missing. Empty segments
                            may have been given back or asked back */
    GB_PLACE_MAKING = 2, /* memory is on its way: try again when the device's space has changed */
    GB_PLACE_QUOTA = 3,  /* the user holds too much, but some of that is on its way back: try again
                            when the device's space has changed. *error is as if it were not */
};

/*
 * Storage of `bytes` in a domain, with one reference and no hold: an enum gb_place, or
 * GPUBUF_E_NO_SPACE (it cannot ever fit), _LIMIT, _DEVICE, _NO_MEMORY. On MAKING *job is what was
 * begun, for gb_making_attach, or NULL if something begun before will do.
 */
int gb_store_place(struct gb_store *store, const struct gb_domain_key *key, struct gb_user *user,
                   uint64_t bytes, struct gb_storage **storage, uint64_t *shortfall,
                   struct gb_making_job **job, struct gb_error *error);

/* One memory to adopt. The descriptor (-1: none) is duplicated, not taken. */
struct gb_adoption {
    struct gb_handle handle;
    int fd;
};

/* Storage over registered memory; outcomes as gb_store_place. `making` (NULL on the first try) is
   what the request waited with: memory that it has adopted meanwhile is taken from there. */
int gb_store_adopt(struct gb_store *store, const struct gb_domain_key *key, struct gb_user *user,
                   const struct gb_adoption *adoptions, unsigned count, struct gb_making *making,
                   struct gb_storage **storage, uint64_t *shortfall, struct gb_making_job **job,
                   struct gb_error *error);

/* Finds room on its device for a storage that has left it; outcomes as gb_store_place. It is not
   resident before its content is there too. */
int gb_storage_place(struct gb_store *store, struct gb_storage *storage, uint64_t *shortfall,
                     struct gb_making_job **job, struct gb_error *error);
/* Gives that room back: its content is in a tier below, or lost. */
void gb_storage_vacate(struct gb_store *store, struct gb_storage *storage);

/* Waits for a job; it must not be waited for yet. */
void gb_making_attach(struct gb_making *making, struct gb_making_job *job);
/* Waits no more: a segment that comes later serves its domain's next object. */
void gb_making_end(struct gb_making *making);
/* It has been tried with what was made for it: that is anybody's now. */
void gb_making_tried(struct gb_making *making);
/* Whether what it waits for is not there yet. */
bool gb_making_busy(const struct gb_making *making);

/* Whether the kernel holds all of its content, so that nobody can change it; of a new one that
   is to be so, asked before its seal, this is where that is noted. */
bool gb_storage_is_final(const struct gb_storage *storage);

struct gb_storage *gb_storage_ref(struct gb_storage *storage);
/* The last reference frees the ranges and the copies; a segment that runs empty is kept, or
 * retired.
 */
void gb_storage_unref(struct gb_store *store, struct gb_storage *storage);

/* Gives empty segments of a device back until `bytes` are on their way: those that nobody maps,
   then those that have to be asked back, which count later; the oldest first. Returns the bytes
   freed at once. */
uint64_t gb_store_trim(struct gb_store *store, struct gb_device *device, uint64_t bytes);

/* The room that leaving would bring. */
enum gb_look {
    GB_LOOK_FITS,   /* enough, as far as can be told */
    GB_LOOK_MAPPED, /* enough, if sessions unmap what would be empty then: they were asked to */
    GB_LOOK_NOTHING /* too little, since what stays lies in the same segments */
};

/*
 * Whether what may leave a device would make room for `bytes` more of a domain (NULL: of none),
 * with `soon` bytes that come free anyway and where tiers have room for `below` bytes of what is
 * needed: looks at the segments that would be left behind. Nothing should leave if not. At most a
 * fixed number of storages is looked at; beyond that their bytes are.
 */
enum gb_look gb_store_look(struct gb_store *store, struct gb_device *device,
                           const struct gb_domain_key *key, uint64_t bytes, uint64_t soon,
                           uint64_t below);
/* Bytes of a device that are free, that come free soon, or that are in empty segments which nobody
   maps, whoever they are kept for; at least `enough` is as good as more. */
uint64_t gb_store_near(const struct gb_store *store, const struct gb_device *device, uint64_t soon,
                       uint64_t enough);

/* Tells of those who were asked to unmap a segment of the device `unmap_ms` ago and have not, if a
   request has lacked room since. Returns when to call it again; UINT64_MAX: not before that. */
uint64_t gb_store_press(struct gb_store *store, struct gb_device *device, uint64_t now_ms);

/* Gives back what has been empty for `retire_after_ms`, and notes the time for what has run empty
   since the last call. Returns when to call it again; UINT64_MAX: not before a segment runs
   empty. */
uint64_t gb_store_retire_idle(struct gb_store *store, uint64_t now_ms);

struct gb_segment *gb_store_segment(const struct gb_store *store, uint64_t id);

/* ---- segments: among store.c, making.c and mapper.c ---- */

/* A storage of no placements, for `room` of them, which counts for nothing yet; a range (NULL: the
   whole segment) becomes one. */
struct gb_storage *gb_storage_new(struct gb_store *store, const struct gb_domain_key *key,
                                  struct gb_user *user, unsigned room);
void gb_storage_place_in(struct gb_storage *storage, struct gb_segment *segment,
                         struct gb_range *range);
/* Enters memory that was made or adopted, as an empty segment, and takes it. NULL if memory is out.
 */
struct gb_segment *gb_segment_new(struct gb_store *store, enum gb_segment_kind kind,
                                  const struct gb_domain_key *key, struct gb_user *user,
                                  uint64_t bytes, const struct gb_memory *memory);
/* Gives an empty segment back, at once if nobody maps it, else as soon as nobody does. Returns the
   bytes freed at once: none if the mover does it. */
uint64_t gb_segment_retire(struct gb_store *store, struct gb_segment *segment);
/* It has got its first mapper, or is not counted as mapped any more. */
void gb_segment_mapped(struct gb_segment *segment, bool mapped);
/* A mapper less; a segment that was only waiting for that goes. */
void gb_segment_unmapped(struct gb_store *store, struct gb_segment *segment);

/* Begins to make a segment for a domain on the device's mover; its bytes are charged at once. */
int gb_making_begin(struct gb_store *store, const struct gb_domain_key *key,
                    enum gb_segment_kind kind, struct gb_user *user, uint64_t bytes,
                    struct gb_making_job **job, struct gb_error *error);
/* How large a shared segment the domain gets for a storage that its others have no room for. */
uint64_t gb_making_bytes(const struct gb_domain *domain, const struct gb_storage *storage);
/* Begins to make another one ahead of need, after a storage got a place in one: where making takes
   its time, and less than half of the domain's largest is free in all of them together. */
void gb_making_ahead(struct gb_store *store, const struct gb_domain *domain,
                     const struct gb_storage *storage);
/* Marks segments that are being made and that nobody waits for, up to `bytes`, of one user (NULL:
   of all), to be given back once they are made. Returns how many. */
uint64_t gb_making_trim(struct gb_store *store, struct gb_device *device,
                        const struct gb_user *user, uint64_t bytes);
/* Begins to adopt. */
int gb_making_adopt(struct gb_store *store, struct gb_device *device, struct gb_user *user,
                    const struct gb_adoption *adoptions, unsigned count, struct gb_making_job **job,
                    struct gb_error *error);
/* Has the device adopt each memory, all or none; a failure says which handle it was. */
int gb_adopt_all(struct gb_device *device, const struct gb_adoption *adoptions, unsigned count,
                 struct gb_memory *memories, struct gb_error *error);
/* The memory that an adopting job has brought: `count` of them are the caller's now. */
void gb_making_take(struct gb_making *making, struct gb_memory *memories);
/* Gives back memory that became no segment, on the mover's thread if the device has one. */
void gb_memory_discard(struct gb_device *device, const struct gb_memory *memory);
/* How many segments are being made or adopted for a user. */
uint64_t gb_making_count(const struct gb_store *store, const struct gb_user *user);
/* Whether a shared segment that would hold the bytes is on its way to the domain. */
bool gb_making_comes(const struct gb_store *store, const struct gb_domain_key *key, uint64_t bytes);

/* ---- who maps what: mapper.c ---- */

void gb_mapper_init(struct gb_mapper *mapper, uint64_t id);
/* Notes that the mapper is given the segment with that access. GPUBUF_E_NO_MEMORY. */
int gb_mapper_add(struct gb_store *store, struct gb_mapper *mapper, struct gb_segment *segment,
                  enum gb_access access);
struct gb_mapping *gb_mapper_find(const struct gb_store *store, const struct gb_mapper *mapper,
                                  uint64_t segment);
/* The mapper has unmapped it; the segment goes if it was only waiting for that. */
void gb_mapping_end(struct gb_store *store, struct gb_mapping *mapping);
/* Ends at most `most` of the mapper's mappings; returns how many. */
unsigned gb_mapper_end_some(struct gb_store *store, struct gb_mapper *mapper, unsigned most);

#endif
