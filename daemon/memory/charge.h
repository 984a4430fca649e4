/*
 * Which user is charged with a storage's bytes. Each user has two accounts on each device, and its
 * quota of bytes bounds both.
 *
 * `bytes` are those of objects, wherever their content is. A storage counts for each user who has
 * an object of it that has a name or is being written. When nobody has such an object any more, it
 * counts for those who hold it open, since they are why it stays; and for its maker, if nobody does
 * that, either.
 *
 * `held` is memory of the device. A segment counts whole for the user of its domain, from the
 * moment when it is begun to be made until the driver has taken it back: with its free ranges, when
 * it is empty, and while sessions still map it. But a storage that does not count for its maker is
 * taken out there, and is held by those for whom it counts.
 *
 * A *stake* is what one user has of one storage. Pure; not thread-safe: the loop's.
 */
#ifndef GB_CHARGE_H
#define GB_CHARGE_H

#include "daemon/memory/user.h"

struct gb_storage;

struct gb_stake {
    struct gb_link of_storage;
    struct gb_user *user; /* with a reference */
    uint64_t names;       /* of the user's objects: those that have a name or are being written */
    uint64_t leases;      /* of the user's sessions */
};

/* For gb_storage_new: the maker's stake, which is part of the storage, and takes a reference. */
void gb_charge_init(struct gb_storage *storage, struct gb_user *maker);
/* To be called last. */
void gb_charge_end(struct gb_storage *storage);

/* Sets what it counts for; 0 when it has gone. */
void gb_charge_bytes(struct gb_storage *storage, uint64_t bytes);
/* Whenever `bytes`, what it occupies on its device, changes while somebody else than its maker may
   hold it: to be called before that, and after. */
void gb_charge_leave(struct gb_storage *storage);
void gb_charge_enter(struct gb_storage *storage);

/* Whether the user may have another object of it. GPUBUF_E_LIMIT. */
int gb_charge_may_name(const struct gb_storage *storage, const struct gb_user *user,
                       struct gb_error *error);
/* The user has an object of it, or a lease: GPUBUF_E_NO_MEMORY, and then nothing has changed. */
int gb_charge_name(struct gb_storage *storage, struct gb_user *user);
int gb_charge_lease(struct gb_storage *storage, struct gb_user *user);
/* The end of one. */
void gb_charge_unname(struct gb_storage *storage, const struct gb_user *user);
void gb_charge_release(struct gb_storage *storage, const struct gb_user *user);

#endif
