#include "daemon/objects/lease.h"
#include "daemon/objects/stream.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

uint64_t gb_holder_bytes(const struct gb_holder *holder)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < GB_DEVICES; i++)
        bytes += holder->bytes[i];
    return bytes;
}

/* By its own number a lease is found by its session; one of an orphan writer is not asked for by
   that, but by what it is on. */
static uint64_t key_of_orphan(uint64_t version)
{
    return version | UINT64_C(1) << 63;
}

static uint64_t key_of(const struct gb_lease *lease)
{
    return lease->holder->orphan ? key_of_orphan(lease->object->version) : lease->id;
}

/* Adds the lease to the figures of its holder and that one's user, or (`one` -1) takes it away. To
   be called before and after each change of what counts. */
static void count(const struct gb_lease *lease, int one)
{
    struct gb_holder *holder = lease->holder;
    uint64_t more = (uint64_t)one, bytes = lease->object->bytes;

    holder->count += more;
    holder->writes += lease->write ? more : 0;
    holder->idle += lease->idle_ms ? more : 0;
    holder->parked += lease->parked_ms ? more : 0;
    holder->bytes[lease->object->storage->key.device->index] += one > 0 ? bytes : -bytes;
    if (holder->user)
        holder->user->has[GB_QUOTA_LEASES] += more;
}

struct gb_lease *gb_lease_new(struct gb_registry *registry, struct gb_object *object,
                              struct gb_holder *holder, bool write, uint64_t now_ms)
{
    struct gb_lease *lease = calloc(1, sizeof(*lease));

    if (!lease)
        return NULL;
    lease->id = registry->next_lease;
    lease->object = object;
    lease->holder = holder;
    if (!gb_hash_insert(&registry->leases, &lease->link, key_of(lease))) {
        free(lease);
        return NULL;
    }
    if (holder->user && gb_stake_lease(object->storage, holder->user, &lease->of_stake) < 0) {
        gb_hash_remove(&registry->leases, &lease->link);
        free(lease);
        return NULL;
    }
    registry->next_lease++;
    lease->write = write;
    lease->since_ms = now_ms;
    gb_list_append(&object->leases, &lease->of_object);
    gb_list_append(&holder->leases, &lease->of_holder);
    count(lease, 1);
    gb_object_hold(object, now_ms);
    if (write && gb_object_is_live(object))
        gb_object_begin_writer(object, &lease->of_writing);
    return lease;
}

void gb_lease_claim(struct gb_lease *lease, bool anew)
{
    lease->exclusive = lease->object->live->claimed = true;
    lease->object->live->generation += anew;
    gb_storage_changed(lease->object->storage);
}

void gb_lease_move(struct gb_registry *registry, struct gb_lease *lease, struct gb_holder *to)
{
    gb_walks_leave(&registry->walks, &lease->of_holder);
    gb_list_remove(&lease->of_holder);
    gb_list_append(&to->leases, &lease->of_holder);
    count(lease, -1);
    lease->holder = to;
    count(lease, 1);
    gb_hash_remove(&registry->leases, &lease->link);
    gb_hash_insert(&registry->leases, &lease->link, key_of(lease)); /* there is room for it */
}

struct gb_lease *gb_lease_next_orphan(const struct gb_registry *registry, uint64_t version,
                                      const struct gb_lease *before)
{
    struct gb_hash_link *link = before ? gb_hash_next(&before->link)
                                       : gb_hash_first(&registry->leases, key_of_orphan(version));

    return link ? GB_CONTAINER(link, struct gb_lease, link) : NULL;
}

struct gb_lease *gb_lease_find(const struct gb_registry *registry, uint64_t id,
                               const struct gb_holder *holder)
{
    struct gb_hash_link *link = gb_hash_first(&registry->leases, id);
    struct gb_lease *lease = link ? GB_CONTAINER(link, struct gb_lease, link) : NULL;

    return lease && lease->holder == holder ? lease : NULL;
}

struct gb_unsealed *gb_unsealed_new(bool replace)
{
    struct gb_unsealed *unsealed = calloc(1, sizeof(*unsealed));

    if (unsealed)
        unsealed->replace = replace;
    return unsealed;
}

void gb_unsealed_free(struct gb_unsealed *unsealed)
{
    if (!unsealed)
        return;
    gb_pool_end(&unsealed->pool);
    free(unsealed);
}

void gb_lease_sealed(struct gb_registry *registry, struct gb_lease *lease)
{
    gb_unsealed_free(lease->unsealed);
    lease->unsealed = NULL;
    gb_object_charge_unsealed(lease->object, 0);
    count(lease, -1);
    lease->write = false;
    count(lease, 1);
}

void gb_object_clear_slots(struct gb_object *object)
{
    GB_LIST_EACH(&object->leases, struct gb_lease, lease, of_object) {
        if (!lease->slot)
            return;
        gb_page_clear(lease->holder->page, lease->slot);
    }
}

/* ---- leases that are cached ---- */

static void send_recall(struct gb_registry *registry, struct gb_lease *lease, uint64_t now_ms)
{
    lease->recalled_ms = now_ms ? now_ms : 1;
    if (lease->idle_ms) {
        gb_list_remove(&lease->of_idle);
        gb_list_append(&lease->object->storage->idles, &lease->of_idle);
    }
    registry->recall(registry->recall_arg, lease);
}

void gb_lease_idle(struct gb_registry *registry, struct gb_lease *lease, uint64_t now_ms)
{
    bool first = !lease->idle_ms;

    count(lease, -1);
    lease->idle_ms = now_ms ? now_ms : 1;
    count(lease, 1);
    lease->recalled_ms = 0;
    gb_list_remove(&lease->of_idle);
    gb_list_prepend(&lease->object->storage->idles, &lease->of_idle);
    gb_object_idle(registry, lease->object, first, now_ms);
    if (!lease->object->named)
        send_recall(registry, lease, now_ms);
}

void gb_lease_used(struct gb_registry *registry, struct gb_lease *lease)
{
    if (!lease->idle_ms)
        return;
    count(lease, -1);
    lease->idle_ms = lease->recalled_ms = 0;
    count(lease, 1);
    gb_list_remove(&lease->of_idle);
    gb_object_resume(registry, lease->object);
}

/* The lease with a slot that gives way to one of `user`: the oldest one of the user who has most of
   the object's slots, if these are two more than the user has, since one more would only change
   places. NULL: none does. */
static struct gb_lease *find_slot_to_free(struct gb_object *object, struct gb_user *user)
{
    struct gb_user *most = user;
    struct gb_lease *oldest = NULL;

    user->slots = 0;
    GB_LIST_EACH(&object->leases, struct gb_lease, lease, of_object) {
        if (!lease->slot)
            break;
        lease->holder->user->slots = 0;
    }
    GB_LIST_EACH(&object->leases, struct gb_lease, lease, of_object) {
        if (!lease->slot)
            break;
        if (++lease->holder->user->slots > most->slots)
            most = lease->holder->user;
    }
    GB_LIST_EACH(&object->leases, struct gb_lease, lease, of_object) {
        if (!lease->slot)
            break;
        if (lease->holder->user == most)
            oldest = lease;
    }
    return most->slots >= user->slots + 2 ? oldest : NULL;
}

/* The lease cannot be cached any more: if it is idle it counts as in use, and its holder is asked
   for it. */
static void lose_slot(struct gb_registry *registry, struct gb_lease *lease, uint64_t now_ms)
{
    struct gb_object *object = lease->object;

    gb_page_drop(lease->holder->page, lease->slot);
    lease->slot = 0;
    object->slots--;
    gb_list_remove(&lease->of_object);
    gb_list_append(&object->leases, &lease->of_object);
    if (!lease->idle_ms)
        return;
    gb_lease_used(registry, lease);
    send_recall(registry, lease, now_ms);
}

void gb_lease_uncache(struct gb_registry *registry, struct gb_lease *lease, uint64_t now_ms)
{
    gb_lease_used(registry, lease);
    if (lease->slot)
        lose_slot(registry, lease, now_ms);
}

void gb_lease_park(struct gb_registry *registry, struct gb_lease *lease, uint64_t now_ms)
{
    if (lease->parked_ms)
        return;
    gb_lease_uncache(registry, lease, now_ms);
    count(lease, -1);
    lease->parked_ms = now_ms ? now_ms : 1;
    count(lease, 1);
    gb_object_park(registry, lease->object, now_ms);
}

static bool has_slot(struct gb_object *object, const struct gb_holder *holder)
{
    GB_LIST_EACH(&object->leases, struct gb_lease, lease, of_object) {
        if (!lease->slot)
            break;
        if (lease->holder == holder)
            return true;
    }
    return false;
}

void gb_lease_slot(struct gb_registry *registry, struct gb_lease *lease, uint64_t now_ms)
{
    struct gb_object *object = lease->object;
    struct gb_holder *holder = lease->holder;
    struct gb_lease *other = NULL;

    if (!holder->page || !object->current || has_slot(object, holder))
        return;
    if (object->slots == GB_OBJECT_SLOTS && !(other = find_slot_to_free(object, holder->user)))
        return;
    lease->slot = gb_page_fill_slot(holder->page, lease->id);
    if (!lease->slot)
        return;
    object->slots++;
    gb_list_remove(&lease->of_object);
    gb_list_prepend(&object->leases, &lease->of_object);
    if (other)
        lose_slot(registry, other, now_ms);
}

/* Whether the holder of an idle lease was asked for it, and has time left to answer. */
static bool is_asked(const struct gb_registry *registry, const struct gb_lease *lease,
                     uint64_t now_ms)
{
    return lease->recalled_ms && !lease->holder->silent &&
           now_ms - lease->recalled_ms < registry->recall_ms;
}

/* Recalls an idle lease; if its holder was asked and has not answered it counts as in use. */
static void recall(struct gb_registry *registry, struct gb_lease *lease, uint64_t now_ms)
{
    lease->holder->silent |= lease->recalled_ms > 0;
    if (lease->holder->silent)
        gb_lease_used(registry, lease);
    else
        send_recall(registry, lease, now_ms);
}

/* The most leases that are recalled in one try of a request. */
#define RECALL_LIMIT 512u

bool gb_storage_recall(struct gb_registry *registry, struct gb_storage *storage, uint64_t now_ms,
                       unsigned *recalled)
{
    while (!gb_list_empty(&storage->idles)) {
        struct gb_lease *lease = GB_CONTAINER(storage->idles.next, struct gb_lease, of_idle);

        if (is_asked(registry, lease, now_ms)) { /* and so are those after it */
            registry->recalled_ms[storage->key.device->index] = now_ms;
            return true;
        }
        if (++*recalled > RECALL_LIMIT) {
            gb_device_changed(storage->key.device);
            return true;
        }
        recall(registry, lease, now_ms);
    }
    return false;
}

/* ---- versions without a name, which count for whoever holds them open ---- */

/* The most of a user's versions, and leases on them, that are looked at in one try of a request. */
#define LOOK_LIMIT 1024u

bool gb_user_recall(struct gb_registry *registry, const struct gb_user *user,
                    const struct gb_device *device, uint64_t now_ms)
{
    unsigned looked = 0, recalled = 0;
    bool waits = false;

    GB_LIST_EACH(&user->nameless_stakes[device->index], struct gb_stake, stake, of_user) {
        if (looked++ == LOOK_LIMIT)
            break;
        waits |= gb_storage_recall(registry, stake->storage, now_ms, &recalled);
    }
    return waits;
}

/* Asks for a user's leases on a storage, once; if its time is over, its sessions that have them are
   overdue. */
static void ask_stake_back(struct gb_registry *registry, struct gb_stake *stake, uint64_t now_ms,
                           unsigned *looked)
{
    uint64_t since = stake->user->asked_back_ms[stake->storage->key.device->index];
    bool over = now_ms - since >= registry->store->unmap_ms;
    struct gb_lease *left = NULL;

    GB_LIST_EACH(&stake->lease_list, struct gb_lease, lease, of_stake) {
        if (++*looked > LOOK_LIMIT)
            return;
        if (over && lease->holder->orphan && !lease->write)
            left = lease;
        else if (over)
            registry->overdue(registry->recall_arg, lease);
        else if (lease->recalled_ms < since)
            send_recall(registry, lease, now_ms);
    }
    if (left) /* with which the stake may end; one in a try */
        registry->overdue(registry->recall_arg, left);
}

static void ask_user_back(struct gb_registry *registry, struct gb_user *user,
                          struct gb_device *device, uint64_t now_ms)
{
    uint64_t excess = gb_user_excess(user, device), *since = &user->asked_back_ms[device->index];
    unsigned looked = 0;

    if (!*since)
        *since = now_ms ? now_ms : 1;
    /* Waiting requests are tried again when its time is over. */
    if (now_ms - *since < registry->store->unmap_ms &&
        (!device->asked_ms || *since < device->asked_ms))
        device->asked_ms = *since;
    GB_LIST_EACH(&user->nameless_stakes[device->index], struct gb_stake, stake, of_user) {
        uint64_t bytes = stake->storage->charged;

        if (excess == 0 || ++looked > LOOK_LIMIT)
            return;
        ask_stake_back(registry, stake, now_ms, &looked);
        excess -= bytes < excess ? bytes : excess;
    }
}

bool gb_users_end_overdue(struct gb_registry *registry, struct gb_device *device, uint64_t bytes,
                          uint64_t now_ms)
{
    const struct gb_users *users = &registry->store->users;
    uint64_t missing = gb_device_lacks(device, bytes);

    if (missing == 0 || missing > gb_users_excess(users, device))
        return false;
    GB_LIST_EACH(&users->past, struct gb_user, user, of_past) {
        uint64_t excess = gb_user_excess(user, device);

        if (excess > 0)
            ask_user_back(registry, user, device, now_ms);
        if (excess >= missing)
            break;
        missing -= excess;
    }
    return true;
}

bool gb_users_unpark(struct gb_registry *registry, struct gb_device *device,
                     const struct gb_storage *spared)
{
    const struct gb_link *past = &registry->store->users.past;
    unsigned looked = 0;

    if (registry->grace_count > 0)
        return false; /* in the grace period what was there stays */
    GB_LIST_EACH(past, const struct gb_user, user, of_past) {
        if (gb_user_excess(user, device) == 0)
            continue;
        GB_LIST_EACH(&user->nameless_stakes[device->index], struct gb_stake, stake, of_user) {
            GB_LIST_EACH(&stake->lease_list, struct gb_lease, lease, of_stake) {
                if (++looked > LOOK_LIMIT)
                    return false;
                if (!lease->parked_ms || stake->storage == spared)
                    continue;
                gb_lease_end(registry, lease); /* and with it, perhaps, the stake */
                gb_device_changed(device);
                return true;
            }
        }
    }
    return false;
}

/* ---- the end ---- */

void gb_lease_end(struct gb_registry *registry, struct gb_lease *lease)
{
    struct gb_object *object = lease->object;
    enum gb_lease_use use = lease->idle_ms     ? GB_LEASE_IDLE
                            : lease->parked_ms ? GB_LEASE_PARKED
                                               : GB_LEASE_USED;

    gb_list_remove(&lease->of_object);
    gb_list_remove(&lease->of_idle);
    gb_walks_leave(&registry->walks, &lease->of_holder);
    gb_list_remove(&lease->of_holder);
    gb_hash_remove(&registry->leases, &lease->link);
    count(lease, -1);
    if (lease->holder->user)
        gb_stake_release(object->storage, lease->holder->user, &lease->of_stake);
    gb_page_drop(lease->holder->page, lease->slot);
    object->slots -= lease->slot > 0;
    gb_unsealed_free(lease->unsealed);
    gb_stream_leave(lease);
    if (lease->exclusive)
        object->live->claimed = false;
    if (gb_list_linked(&lease->of_writing))
        gb_object_end_writer(registry, object, &lease->of_writing);
    free(lease);
    gb_object_drop(registry, object, use);
}

unsigned gb_holder_end_some(struct gb_registry *registry, struct gb_holder *holder, bool writes,
                            unsigned most)
{
    unsigned ended = 0;

    GB_LIST_EACH(&holder->leases, struct gb_lease, lease, of_holder) {
        if (ended == most)
            break;
        if ((lease->write || lease->part) && !writes)
            continue;
        gb_lease_end(registry, lease);
        ended++;
    }
    return ended;
}

void gb_holder_end(struct gb_registry *registry, struct gb_holder *holder)
{
    gb_holder_end_some(registry, holder, true, UINT_MAX);
}
