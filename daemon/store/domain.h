/*
 * Protection domains: which memory may be given to whom.
 *
 * A *domain* is (device, share, uid, gid, mode, live). A segment belongs to one domain for all its
 * life. So the memory of a new object is fresh from the device (zeros), or had content of the same
 * domain before. A domain's small objects share segments, placed by an arena. A large object has a
 * segment of its own, which becomes one of the domain's spares when the object is freed.
 * Registered memory is a segment that belongs to no domain.
 *
 * Not thread-safe: the loop's.
 */
#ifndef GB_DOMAIN_H
#define GB_DOMAIN_H

#include <sys/types.h>

#include "daemon/base/hash.h"
#include "daemon/memory/arena.h"
#include "daemon/memory/device.h"
#include "proto/base/list.h"

struct gb_domain_key {
    struct gb_device *device;
    enum gb_share share;
    uid_t uid;
    gid_t gid;
    unsigned mode;
    bool
        own; /* a segment of its own, so that views can show it; it is of the domain all the same */
    bool live;  /* its content changes, and others may write it (registry.h) */
    bool final; /* its producer seals it against writing: it gets memory of its own, no domain */
};

struct gb_domain {
    struct gb_hash_link link;
    struct gb_domain_key key;
    struct gb_arena *arena;
    struct gb_link shared; /* segments in the arena */
    struct gb_link spares; /* own segments without an object */
    uint64_t segments;     /* that belong to it, of all kinds */
    uint64_t mapped;       /* bytes of those that a session maps, but for retiring ones */
};

bool gb_domain_key_same(const struct gb_domain_key *a, const struct gb_domain_key *b);
/* The domain of that key in the store's table, if need be a new one. NULL if memory is out. */
struct gb_domain *gb_domain_get(struct gb_hash_table *domains, const struct gb_domain_key *key);
/* Frees the domain if no segment belongs to it. */
void gb_domain_release(struct gb_hash_table *domains, struct gb_domain *domain);

#endif
