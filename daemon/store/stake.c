#include "daemon/store/stake.h"

#include <assert.h>
#include <stdlib.h>

#include "daemon/store/storage.h"

static struct gb_stake *find(const struct gb_storage *storage, const struct gb_user *user)
{
    GB_LIST_EACH(&storage->stakes, struct gb_stake, stake, of_storage)
        if (stake->user == user)
            return stake;
    return NULL;
}

static struct gb_stake *get(struct gb_storage *storage, struct gb_user *user)
{
    struct gb_stake *stake = find(storage, user);

    if (stake)
        return stake;
    stake = calloc(1, sizeof(*stake));
    if (!stake)
        return NULL;
    stake->user = gb_user_ref(user);
    stake->storage = storage;
    gb_list_append(&storage->stakes, &stake->of_storage);
    return stake;
}

/* Frees a stake without names and leases, unless it is the maker's. */
static void put(struct gb_storage *storage, struct gb_stake *stake)
{
    if (stake->names > 0 || stake->leases > 0 || stake == &storage->maker)
        return;
    assert(!gb_list_linked(&stake->of_user));
    gb_list_remove(&stake->of_storage);
    gb_user_unref(stake->user);
    free(stake);
}

static bool counts_for(const struct gb_storage *storage, const struct gb_stake *stake)
{
    if (storage->named > 0)
        return stake->names > 0;
    if (storage->opened > 0)
        return stake->leases > 0;
    return stake == &storage->maker;
}

static void add(uint64_t *account, uint64_t bytes, bool entered)
{
    if (entered) {
        *account += bytes;
        return;
    }
    assert(*account >= bytes);
    *account -= bytes;
}

/* Lists the storage with each user who holds it open, as long as it has no name, and notes who is
   past its quota now. */
static void list(struct gb_storage *storage)
{
    GB_LIST_EACH(&storage->stakes, struct gb_stake, stake, of_storage) {
        if (storage->named > 0 || stake->leases == 0) {
            gb_list_remove(&stake->of_user);
        } else if (!gb_list_linked(&stake->of_user)) {
            gb_list_append(&stake->user->nameless_stakes[storage->key.device->index],
                           &stake->of_user);
            gb_device_changed(storage->key.device); /* requests that wait may ask for it */
        }
        gb_user_note_excess(stake->user, storage->key.device);
    }
}

/* Enters the storage in the accounts of all for whom it counts, or takes it out of them. */
static void count(struct gb_storage *storage, bool entered)
{
    bool makers = counts_for(storage, &storage->maker);
    unsigned i = storage->key.device->index;

    GB_LIST_EACH(&storage->stakes, struct gb_stake, stake, of_storage) {
        if (!counts_for(storage, stake))
            continue;
        add(&stake->user->bytes[i], storage->charged, entered);
        if (storage->named == 0)
            add(&stake->user->nameless[i], storage->charged, entered);
        if (!makers)
            add(&stake->user->held[i], storage->bytes, entered);
    }
    for (unsigned j = 0; !makers && j < storage->placement_count; j++)
        add(&storage->placements[j].segment->user->held[i],
            gb_placement_bytes(&storage->placements[j]), !entered);
    if (entered)
        list(storage);
}

void gb_stake_init(struct gb_storage *storage, struct gb_user *maker)
{
    storage->maker = (struct gb_stake){.user = gb_user_ref(maker), .storage = storage};
    gb_list_append(&storage->stakes, &storage->maker.of_storage);
}

void gb_stake_end(struct gb_storage *storage)
{
    count(storage, false);
    gb_user_note_excess(storage->maker.user, storage->key.device);
    gb_list_remove(&storage->maker.of_storage);
    assert(gb_list_empty(&storage->stakes));
    gb_user_unref(storage->maker.user);
}

void gb_stake_bytes(struct gb_storage *storage, uint64_t bytes)
{
    count(storage, false);
    storage->charged = bytes;
    count(storage, true);
}

void gb_stake_leave(struct gb_storage *storage)
{
    count(storage, false);
}

void gb_stake_enter(struct gb_storage *storage)
{
    count(storage, true);
}

int gb_stake_may_name(const struct gb_storage *storage, const struct gb_user *user,
                      struct gb_error *error)
{
    const struct gb_stake *stake = find(storage, user);

    if (stake && counts_for(storage, stake))
        return 0;
    return gb_user_may_have(user, GB_QUOTA_BYTES, storage->key.device, storage->charged, error);
}

int gb_stake_name(struct gb_storage *storage, struct gb_user *user)
{
    struct gb_stake *stake = get(storage, user);

    if (!stake)
        return GPUBUF_E_NO_MEMORY;
    count(storage, false);
    stake->names++;
    storage->named++;
    count(storage, true);
    return 0;
}

void gb_stake_unname(struct gb_storage *storage, const struct gb_user *user)
{
    struct gb_stake *stake = find(storage, user);

    count(storage, false);
    stake->names--;
    storage->named--;
    count(storage, true);
    put(storage, stake);
}

/* While an object of the storage has a name, leases do not change for whom the storage counts. */
static void count_leases(struct gb_storage *storage, bool entered)
{
    if (storage->named == 0)
        count(storage, entered);
}

int gb_stake_lease(struct gb_storage *storage, struct gb_user *user, struct gb_link *of_stake)
{
    struct gb_stake *stake = get(storage, user);

    if (!stake)
        return GPUBUF_E_NO_MEMORY;
    gb_list_append(&stake->lease_list, of_stake);
    count_leases(storage, false);
    stake->leases++;
    storage->opened++;
    count_leases(storage, true);
    return 0;
}

void gb_stake_release(struct gb_storage *storage, const struct gb_user *user,
                      struct gb_link *of_stake)
{
    struct gb_stake *stake = find(storage, user);

    gb_list_remove(of_stake);
    count_leases(storage, false);
    stake->leases--;
    storage->opened--;
    count_leases(storage, true);
    put(storage, stake);
}
