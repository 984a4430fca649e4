/*
 * Leases: that somebody holds a version of an object, or writes one. While there is one the object
 * and its memory stay. A holder is whoever has leases and ends them all when it ends: a session, or
 * the time of grace after a crash. Not thread-safe: the loop's.
 *
 * A lease may be *idle*: its holder keeps it without using it, to have it at hand. It is no hold
 * then: the object has its place in the order of eviction. But the memory stays until the lease
 * ends, so before the object leaves the lease is *recalled*: its holder is asked to end it, or to
 * say that it is in use again. One that says nothing for `recall_ms` uses it, and so it does all
 * that it keeps, until it says something.
 */
#ifndef GB_LEASE_H
#define GB_LEASE_H

#include "daemon/objects/page.h"
#include "daemon/objects/registry.h"
#include "proto/layout.h"

/* The most leases with a slot that an object has: all are cleared in the request that takes the
   name away. Others are as good, but cannot be kept. */
#define GB_OBJECT_SLOTS 128

/* A holder of leases: a session. */
struct gb_holder {
    struct gb_link leases;
    struct gb_user *user; /* who is charged for them; referenced by the owner; NULL: nobody */
    bool keeps; /* it is nobody: what it holds stays, and it is in no count that is told */
    uint64_t count, idle;       /* all; those that are idle */
    uint64_t bytes[GB_DEVICES]; /* of its leases' objects, by the device's index */
    struct gb_page *page;       /* owned; NULL: it keeps none */
    bool silent; /* it has not answered a recall, nor said anything of leases since */
};

struct gb_lease {
    struct gb_hash_link link; /* by id */
    struct gb_link of_object, of_holder;
    uint64_t id;
    struct gb_object *object;
    struct gb_holder *holder;
    bool write;
    unsigned
        slot; /* in the holder's page, from 1 on; 0: none. Those come first in the object's list */
    uint64_t since_ms;
    uint64_t idle_ms, recalled_ms; /* since when; 0: it is in use; it has not been recalled */
    struct gb_unsealed *unsealed;  /* what is to be sealed; owned; NULL for read leases */
};

/* The state that a write lease carries until the seal. */
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
/* A new read lease gets a slot, if there is one. */
void gb_lease_slot(struct gb_lease *lease);
/* Nobody uses it, but its holder keeps it; said again: it was used meanwhile, and is not any more.
   It must have a slot. One that can be of no use any more is recalled at once. */
void gb_lease_idle(struct gb_registry *registry, struct gb_lease *lease, uint64_t now_ms);
/* It is in use after all. Fine if it was all the time. */
void gb_lease_used(struct gb_registry *registry, struct gb_lease *lease);
/* Has the holders of a storage's idle leases give them back. Whether there are any to wait for,
   which is until `recall_ms` after `now_ms` at most. */
bool gb_storage_recall(struct gb_registry *registry, struct gb_storage *storage, uint64_t now_ms);
/* Ends a lease, which is a use if it was in use; an unsealed object is aborted, one without a name
   goes with its last lease. */
void gb_lease_end(struct gb_registry *registry, struct gb_lease *lease);
/* The write lease of a published object becomes a read lease. */
void gb_lease_sealed(struct gb_lease *lease);
/* Ends all leases of the holder; or at most `most`, write leases only if `writes`, and returns how
   many. */
void gb_holder_end(struct gb_registry *registry, struct gb_holder *holder);
unsigned gb_holder_end_some(struct gb_registry *registry, struct gb_holder *holder, bool writes,
                            unsigned most);

#endif
