/*
 * Where objects lie: protection domains, their segments, the storage of each object, and the
 * account of who maps which segment. Decides when a segment is made, kept for reuse, retired,
 * destroyed. Knows devices by their table of functions; knows no sockets. Not thread-safe: the
 * loop's.
 *
 * A *domain* is (device, share, uid, gid, mode); segments never mix or change domains, so memory
 * that a client is given was never seen by another domain: it is fresh from the device (zeros) or
 * was the domain's own. A domain's small objects share segments, placed by an arena; a large one
 * has a segment of its own, which goes to the domain's spares when it is freed. Registered memory
 * is a segment that belongs to no domain.
 */
#ifndef GB_STORE_H
#define GB_STORE_H

#include "arena.h"
#include "device.h"
#include "user.h"

struct gb_domain_key {
    struct gb_device *device;
    enum gb_share share;
    uid_t uid;
    gid_t gid;
    unsigned mode;
};

struct gb_domain {
    struct gb_hash_link link;
    struct gb_domain_key key;
    struct gb_arena *arena;
    struct gb_link shared; /* segments in the arena */
    struct gb_link spares; /* own segments without an object */
    uint64_t segments;     /* that belong to it, of all kinds */
    uint64_t next_bytes;   /* size of the next shared segment */
};

enum gb_segment_kind { GB_SEGMENT_SHARED, GB_SEGMENT_OWN, GB_SEGMENT_ADOPTED };

struct gb_segment {
    struct gb_hash_link link; /* by id */
    struct gb_link place;     /* in the domain's list of shared ones or spares */
    struct gb_link empties;   /* in the store's list of empty segments, oldest first */
    uint64_t id, bytes;
    enum gb_segment_kind kind;
    bool empty, retiring;
    struct gb_device *device;
    struct gb_domain *domain; /* NULL: adopted */
    struct gb_user *user;     /* who is charged for it */
    struct gb_memory memory;
    struct gb_arena_block *block; /* shared ones */
    struct gb_link mappings;      /* sessions that map it */
};

/* One stretch of a storage. */
struct gb_placement {
    struct gb_segment *segment;
    struct gb_range *range; /* NULL: the whole segment */
    uint64_t offset, bytes;
};

/* The memory of one object, or of several that are aliases of it. The unit of eviction. */
struct gb_storage {
    uint64_t references; /* objects */
    struct gb_recent recent;
    struct gb_link objects; /* of the registry's */
    uint64_t leases, pins;  /* of all its objects; pins: `keep` too */
    uint64_t bytes;         /* that it occupies */
    struct gb_device *device;
    enum gb_share share;
    bool adopted;
    unsigned placement_count;
    struct gb_placement placements[]; /* one, none (no bytes), or one for each registered handle */
};

/* Someone who maps segments: a session. */
struct gb_mapper {
    uint64_t id;
    struct gb_link mappings;
};

/* Who may write may read: a handle for writing is not followed by one for reading. */
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
    uint64_t next_segment;
    uint64_t user_segments; /* the limit */
    /* Told when a mapper should unmap a segment. */
    void (*retire)(void *arg, struct gb_mapper *mapper, const struct gb_segment *segment);
    void *retire_arg;
};

void gb_store_init(struct gb_store *store);
/* After every storage and mapper has gone. */
void gb_store_end(struct gb_store *store);

/*
 * Storage of `bytes` in a domain, with one reference and no hold. 0; 1: there is no room now,
 * nothing was changed but that empty segments may have been given back or asked back (*shortfall:
 * bytes missing); GPUBUF_E_NO_SPACE: it cannot ever fit; GPUBUF_E_LIMIT, _DEVICE, _NO_MEMORY.
 */
int gb_store_place(struct gb_store *store, const struct gb_domain_key *key, struct gb_user *user,
                   uint64_t bytes, struct gb_storage **storage, uint64_t *shortfall,
                   struct gb_error *error);

/* One memory to adopt. On success the descriptor has been duplicated, not taken. */
struct gb_adoption {
    int fd;
    uint64_t bytes;
};

/* Storage over registered memory; outcomes as gb_store_place. */
int gb_store_adopt(struct gb_store *store, struct gb_device *device, struct gb_user *user,
                   const struct gb_adoption *adoptions, unsigned count, struct gb_storage **storage,
                   uint64_t *shortfall, struct gb_error *error);

struct gb_storage *gb_storage_ref(struct gb_storage *storage);
/* The last reference frees the ranges; a segment that runs empty is kept, or retired. */
void gb_storage_unref(struct gb_store *store, struct gb_storage *storage);

/* Gives empty segments of a device back, oldest first, until `bytes` are freed; those still mapped
   are asked back and count later. Returns the bytes freed at once. */
uint64_t gb_store_trim(struct gb_store *store, struct gb_device *device, uint64_t bytes);

struct gb_segment *gb_store_segment(const struct gb_store *store, uint64_t id);

/* ---- who maps what ---- */

void gb_mapper_init(struct gb_mapper *mapper, uint64_t id);
/* Notes that the mapper is given the segment with that access. GPUBUF_E_NO_MEMORY. */
int gb_mapper_add(struct gb_store *store, struct gb_mapper *mapper, struct gb_segment *segment,
                  enum gb_access access);
struct gb_mapping *gb_mapper_find(const struct gb_store *store, const struct gb_mapper *mapper,
                                  uint64_t segment);
/* The mapper has unmapped it; the segment goes if it was only waiting for that. */
void gb_mapping_end(struct gb_store *store, struct gb_mapping *mapping);
void gb_mapper_end(struct gb_store *store, struct gb_mapper *mapper);

/* ---- sizes ---- */

uint64_t gb_store_largest_shared(const struct gb_device *device);
uint64_t gb_device_retained(const struct gb_device *device);
uint64_t gb_device_free_bytes(const struct gb_device *device);

#endif
