/*
 * Which users are charged with a storage's bytes. Each user has two accounts on each device, and
 * its quota of bytes bounds both.
 *
 * The account `bytes` is of objects, wherever their content is. A storage counts
 * - for each user who has an object of it that has a name or is being written;
 * - if there is no such object, for the users who hold it open, since they are why it stays;
 * - if nobody holds it open, for its maker.
 *
 * The account `held` is of the device's memory. A segment counts whole for the user of its domain,
 * from the beginning of its making until the driver has taken it back: with its free ranges, when
 * it is empty, and while sessions still map it. But if a storage in it does not count for its
 * maker, its bytes move from there to the `held` of the users for whom it counts.
 *
 * A *stake* is what one user has of one storage. Pure; not thread-safe: the loop's.
 */
#ifndef GB_STAKE_H
#define GB_STAKE_H

#include "daemon/store/user.h"

struct gb_storage;

struct gb_stake {
    struct gb_link of_storage;
    struct gb_link of_user; /* while the user holds the storage open and it has no name */
    struct gb_storage *storage;
    struct gb_user *user; /* with a reference */
    uint32_t names;       /* of the user's objects: those that have a name or are being written */
    uint32_t leases;      /* of the user's sessions */
    struct gb_link lease_list;
};

/* For gb_storage_new: makes the maker's stake, which is part of the storage, and takes a reference
   to the maker. */
void gb_stake_init(struct gb_storage *storage, struct gb_user *maker);
/* For the end of the storage, after all its objects and leases. */
void gb_stake_end(struct gb_storage *storage);

/* Sets how many bytes the storage counts for. */
void gb_stake_bytes(struct gb_storage *storage, uint64_t bytes);
/* To be called before and after storage->bytes, which it occupies on its device, changes, if other
   users than its maker may be charged for it. */
void gb_stake_leave(struct gb_storage *storage);
void gb_stake_enter(struct gb_storage *storage);

/* Whether the user may have another object of the storage. GPUBUF_E_LIMIT. */
int gb_stake_may_name(const struct gb_storage *storage, const struct gb_user *user,
                      struct gb_error *error);
/* The user gets an object of the storage, or a lease on it, which is listed by that link.
   GPUBUF_E_NO_MEMORY: nothing changes. */
int gb_stake_name(struct gb_storage *storage, struct gb_user *user);
int gb_stake_lease(struct gb_storage *storage, struct gb_user *user, struct gb_link *of_stake);
/* The user has an object, or a lease, less. */
void gb_stake_unname(struct gb_storage *storage, const struct gb_user *user);
void gb_stake_release(struct gb_storage *storage, const struct gb_user *user,
                      struct gb_link *of_stake);

#endif
