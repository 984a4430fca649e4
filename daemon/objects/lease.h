/*
 * Leases: a holder reads or writes a version of an object. While an object has a lease, it and its
 * memory stay. A holder has leases, and ends them all when it ends: it is a session. Not
 * thread-safe: the loop's.
 *
 * A lease may be *idle*: its holder caches it without using it, to have it at hand. An idle lease
 * is no hold: the object has its place in the order of eviction. But the memory stays until the
 * lease ends. So before the object leaves, the lease is *recalled*: its holder is asked to end it,
 * or to say that it is in use again. A holder that says nothing for `recall_ms` is *silent*: until
 * it says something of leases, all that it caches count as in use.
 *
 * Or it may be *parked*: a right to the content and not to memory. It is no hold either, and is not
 * recalled: the object may leave its device for a tier, and is not dropped, named or not. On a
 * version without a name it ends where room is lacking and its user is past its quota.
 */
#ifndef GB_LEASE_H
#define GB_LEASE_H

#include "daemon/objects/page.h"
#include "daemon/objects/registry.h"
#include "proto/layout/layout.h"

/* The most leases with a slot that an object has, since the request that takes its name away clears
   all slots. A holder has one at most, and of several users none keeps another from having one.
   Further leases have no slot, and cannot be cached. */
#define GB_OBJECT_SLOTS 128

struct gb_part;

/* A holder of leases: a session. */
struct gb_holder {
    struct gb_link leases;
    struct gb_user *user; /* is charged for them; referenced by the owner; NULL: nobody is */
    uint64_t session;     /* its holder's session, for lists; 0: none */
    pid_t pid;            /* its process, and when that was started; 0: it writes nothing live */
    uint64_t started;     /* (base/process.h) */
    const char *client;   /* the name that it gave; the owner's; NULL: none */
    bool orphan;          /* its session has ended: orphan_writer.h */
    uint64_t count, writes, idle, parked; /* all leases; of them for writing; idle; parked */
    uint64_t bytes[GB_DEVICES];           /* of its leases' objects, by the device's index */
    struct gb_page *page;                 /* owned; NULL: it caches no leases */
    bool silent; /* it has not answered a recall, nor said anything of leases since */
};

struct gb_lease {
    struct gb_hash_link link; /* by id; of an orphan writer, by the object's version */
    struct gb_link of_object, of_holder;
    struct gb_link of_idle;    /* of its storage, while it is idle: those not recalled yet first */
    struct gb_link of_writing; /* of a live object that it is for writing */
    struct gb_link of_stake;   /* of its user in the object's storage */
    uint64_t id;
    struct gb_object *object;
    struct gb_holder *holder;
    bool write;
    bool exclusive; /* and nobody else writes */
    bool asked;     /* an orphan writer's: its process has come back for it */
    unsigned slot;  /* in the holder's page, from 1 on; 0: none. In the object's list leases with a
                      slot come first */
    uint64_t since_ms;
    uint64_t idle_ms;             /* since when it is idle; 0: it is in use */
    uint64_t parked_ms;           /* since when it is parked; 0: it is not */
    uint64_t recalled_ms;         /* when it was asked for; 0: it was not */
    struct gb_unsealed *unsealed; /* owned; NULL for read leases */
    struct gb_part *part;         /* in the stream of its object; owned; NULL: none */
};

/* A lease on a live object, as a successor must know it: one for writing, or a reader's that takes
   part in a stream. */
struct gb_live_lease {
    pid_t pid;
    uint64_t started, session;
    uid_t uid;
    bool write, exclusive;
    bool joined;                  /* it takes part */
    unsigned reader, join_number; /* as struct gb_part has them; of a writer no reader */
    uint64_t page;                /* of a reader: by which the manager keeps its page */
};

/* The state that a write lease carries until the seal. */
struct gb_unsealed {
    struct gb_pool pool; /* of the layout */
    struct gb_layout layout;
    bool replace;
};

struct gb_unsealed *gb_unsealed_new(bool replace);        /* NULL if memory is out */
void gb_unsealed_free(struct gb_unsealed *unsealed);      /* NULL is fine */
uint64_t gb_holder_bytes(const struct gb_holder *holder); /* on all devices */
/* NULL if memory is out. */
struct gb_lease *gb_lease_new(struct gb_registry *registry, struct gb_object *object,
                              struct gb_holder *holder, bool write, uint64_t now_ms);
/* Makes a lease for writing the only one of a live object; `anew`: by a new generation. */
void gb_lease_claim(struct gb_lease *lease, bool anew);
/* Gives a lease that has no slot to another holder of the same user. */
void gb_lease_move(struct gb_registry *registry, struct gb_lease *lease, struct gb_holder *to);
/* Walks over the leases that orphan writers have on the object of that version: the one after
   `before` (NULL: the first); NULL: there is none. */
struct gb_lease *gb_lease_next_orphan(const struct gb_registry *registry, uint64_t version,
                                      const struct gb_lease *before);
struct gb_lease *gb_lease_find(const struct gb_registry *registry, uint64_t id,
                               const struct gb_holder *holder);
/* Gives a new read lease a slot, if one is free or a user who has more of the object's gives way,
   and the holder has none of the object's yet. */
void gb_lease_slot(struct gb_registry *registry, struct gb_lease *lease, uint64_t now_ms);
/* Makes a lease idle; it must have a slot. A lease that is idle already was used in between. If its
   object has no name any more, the lease is recalled at once. */
void gb_lease_idle(struct gb_registry *registry, struct gb_lease *lease, uint64_t now_ms);
/* The lease is in use again. Does nothing if it is not idle. */
void gb_lease_used(struct gb_registry *registry, struct gb_lease *lease);
/* The lease is in use, and loses its slot: it cannot be idle again. */
void gb_lease_uncache(struct gb_registry *registry, struct gb_lease *lease, uint64_t now_ms);
/* Parks a read lease, which loses its slot. */
void gb_lease_park(struct gb_registry *registry, struct gb_lease *lease, uint64_t now_ms);
/* Recalls a storage's idle leases, of all storages of one try not more than 512, which `recalled`
   counts. Returns whether to wait: for their holders, which takes until `recall_ms` after `now_ms`
   at most, or for the next turn, in which the others are recalled. */
bool gb_storage_recall(struct gb_registry *registry, struct gb_storage *storage, uint64_t now_ms,
                       unsigned *recalled);
/* Recalls the idle leases on versions of the device without a name that the user holds: they count
   for it. Returns the same. */
bool gb_user_recall(struct gb_registry *registry, const struct gb_user *user,
                    const struct gb_device *device, uint64_t now_ms);
/* Asks users who are past their quota by versions without a name for their leases on these, used or
   not, if that could make room for `bytes` on the device. `unmap_ms` later such a user is overdue:
   its sessions with such leases end, until it is within its quota. Returns whether there are any
   such users. */
bool gb_users_end_overdue(struct gb_registry *registry, struct gb_device *device, uint64_t bytes,
                          uint64_t now_ms);
/* Ends a parked lease on a version of the device without a name, of a user whom such versions take
   past its quota; not in the grace period, and not on `spared`, for which the room is wanted (NULL:
   on any). To be called where neither the device nor a tier has room. False: there is none. */
bool gb_users_unpark(struct gb_registry *registry, struct gb_device *device,
                     const struct gb_storage *spared);
/* Ends a lease. The end of a lease in use counts as a use of its object. An unsealed object is
   aborted; an object without a name is freed with its last lease. */
void gb_lease_end(struct gb_registry *registry, struct gb_lease *lease);
/* The write lease of a published object becomes a read lease. */
void gb_lease_sealed(struct gb_registry *registry, struct gb_lease *lease);
/* The first ends all leases of the holder. The second ends at most `most`, write leases and those
   that take part in a stream only if `writes`, and returns how many. */
void gb_holder_end(struct gb_registry *registry, struct gb_holder *holder);
unsigned gb_holder_end_some(struct gb_registry *registry, struct gb_holder *holder, bool writes,
                            unsigned most);

#endif
