/*
 * Leases: that somebody holds a version of an object, or writes one. While there is one the object and
 * its memory stay. A holder is whoever has leases and ends them all when it ends: a session, or the
 * time of grace after a crash. Not thread-safe: the loop's.
 */
#ifndef GB_LEASE_H
#define GB_LEASE_H

#include "daemon/objects/registry.h"

/* Who holds leases: a session. */
struct gb_holder {
    struct gb_link leases;
    struct gb_user *user; /* who is charged for them; referenced by the owner; NULL: nobody */
    bool keeps; /* it is nobody: what it holds stays, and it is in no count that is told */
    uint64_t count;
    uint64_t bytes[GB_DEVICES]; /* of its leases' objects, by the device's index */
};

struct gb_lease {
    struct gb_hash_link link; /* by id */
    struct gb_link of_object, of_holder;
    uint64_t id;
    struct gb_object *object;
    struct gb_holder *holder;
    bool write;
    uint64_t since_ms;
    struct gb_unsealed *unsealed; /* what is to be sealed; owned; NULL for read leases */
};

/* What a write lease carries until the seal. */
struct gb_unsealed {
    struct gb_pool pool; /* of the layout */
    struct gb_layout layout;
    bool replace;
};

struct gb_unsealed *gb_unsealed_new(bool replace);   /* NULL if memory is out */
void gb_unsealed_free(struct gb_unsealed *unsealed); /* NULL is fine */
void gb_holder_init(struct gb_holder *holder);
uint64_t gb_holder_bytes(const struct gb_holder *holder); /* on all devices */
/* NULL if memory is out. */
struct gb_lease *gb_lease_new(struct gb_registry *registry, struct gb_object *object,
                              struct gb_holder *holder, bool write, uint64_t now_ms);
struct gb_lease *gb_lease_find(const struct gb_registry *registry, uint64_t id,
                               const struct gb_holder *holder);
/* Ends a lease; an unsealed object is aborted, one without a name goes with its last lease. */
void gb_lease_end(struct gb_registry *registry, struct gb_lease *lease);
/* The write lease of a published object becomes a read lease. */
void gb_lease_sealed(struct gb_lease *lease);
/* Ends all leases of the holder; or at most so many, write leases only if `writes`, and returns how many. */
void gb_holder_end(struct gb_registry *registry, struct gb_holder *holder);
unsigned gb_holder_end_some(struct gb_registry *registry, struct gb_holder *holder, bool writes,
                            unsigned most);

#endif
