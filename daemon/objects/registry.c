#include "daemon/objects/registry.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/failpoint.h"
#include "daemon/objects/stream.h"

void gb_registry_init(struct gb_registry *registry, struct gb_store *store)
{
    memset(registry, 0, sizeof(*registry));
    registry->store = store;
    registry->next_version = registry->next_lease = 1;
    registry->exits = -1;
    registry->watch_at = UINT64_MAX;
}

void gb_registry_end(struct gb_registry *registry)
{
    struct gb_name *name;

    registry->on_event = NULL;
    while ((name = gb_names_any(&registry->names)))
        gb_registry_unname(registry, GB_CONTAINER(name, struct gb_object, index), GB_EVENT_DELETED);
    gb_registry_sweep(registry);
    assert(registry->leases.count == 0 && registry->objects == 0 && registry->writers.count == 0);
    gb_names_end(&registry->names);
    gb_hash_end(&registry->leases);
    gb_hash_end(&registry->writers);
    gb_hash_end(&registry->orphan_writers);
    gb_deadlines_end(&registry->deadlines);
}

const char *gb_event_kind(enum gb_event event)
{
    static const char *const kinds[GB_EVENTS] = {
        [GB_EVENT_SEALED] = "sealed",     [GB_EVENT_DELETED] = "deleted",
        [GB_EVENT_EVICTED] = "evicted",   [GB_EVENT_SPILLED] = "spilled",
        [GB_EVENT_RESTORED] = "restored", [GB_EVENT_WITHDRAWN] = "withdrawn",
        [GB_EVENT_PARKED] = "parked",     [GB_EVENT_RESUMED] = "resumed",
    };

    return kinds[event];
}

void gb_storage_changed(struct gb_storage *storage)
{
    if (storage->store->on_storage)
        storage->store->on_storage(storage->store->on_change_arg, storage);
}

/* ---- objects ---- */

struct gb_object *gb_object_new(struct gb_registry *registry, const char *name, size_t name_length,
                                struct gb_storage *storage, struct gb_user *owner)
{
    struct gb_object *object = calloc(1, sizeof(*object) + name_length + 1);

    if (object && storage->key.live)
        object->live = calloc(1, sizeof(*object->live));
    if (!object || (storage->key.live && !object->live) || gb_stake_name(storage, owner) < 0) {
        if (object)
            free(object->live);
        free(object);
        return NULL;
    }
    object->charged = true;
    memcpy(object->name, name, name_length);
    object->name_length = (uint32_t)name_length;
    object->index.text = object->name;
    object->index.length = name_length;
    object->storage = storage;
    object->owner = gb_user_ref(owner);
    owner->has[GB_QUOTA_OBJECTS]++;
    owner->has[GB_QUOTA_TEXT] += name_length;
    gb_list_init(&object->of_name);
    gb_list_append(&storage->objects, &object->of_storage);
    storage->text += name_length;
    registry->objects++;
    storage->key.device->objects++;
    return object;
}

/* From now on the storage does not count for the owner on behalf of this object. */
static void end_charge(struct gb_object *object)
{
    if (object->charged)
        gb_stake_unname(object->storage, object->owner);
    object->charged = false;
}

void gb_object_discard(struct gb_registry *registry, struct gb_object *object)
{
    assert(!object->named && object->lease_count == 0);
    gb_deadlines_remove(&registry->deadlines, &object->deadline);
    gb_list_remove(&object->of_storage);
    gb_list_remove(&object->of_name);
    object->storage->text -= object->name_length + object->text_length;
    gb_list_remove(&object->produced.link);
    end_charge(object);
    gb_storage_changed(object->storage);
    if (object->live)
        gb_stream_free(registry->store, object->live->stream);
    registry->objects--;
    object->storage->key.device->objects--;
    gb_storage_unref(registry->store, object->storage);
    object->owner->has[GB_QUOTA_OBJECTS]--;
    object->owner->has[GB_QUOTA_TEXT] -=
        object->name_length + object->text_length + object->unsealed_bytes;
    gb_user_unref(object->owner);
    free(object->ready);
    free(object->live);
    free(object->text);
    free(object);
}

void gb_object_charge_unsealed(struct gb_object *object, size_t bytes)
{
    object->owner->has[GB_QUOTA_TEXT] += bytes - object->unsealed_bytes;
    object->unsealed_bytes = (uint32_t)bytes;
}

struct gb_object *gb_registry_find(const struct gb_registry *registry, const char *name,
                                   size_t length)
{
    struct gb_name *index = gb_names_find(&registry->names, name, length);

    return index ? GB_CONTAINER(index, struct gb_object, index) : NULL;
}

struct gb_object *gb_object_older(const struct gb_object *object)
{
    struct gb_object *next = GB_CONTAINER(object->of_name.next, struct gb_object, of_name);

    return next->current ? NULL : next;
}

/* ---- holds, which keep a storage from being evicted ---- */

static void end_hold(struct gb_storage *storage)
{
    gb_device_changed(storage->key.device); /* it may be evicted now */
    if (storage->recent.holds == 0)
        gb_storage_untally(storage);
}

uint64_t gb_registry_lease_count(const struct gb_registry *registry)
{
    return registry->leases.count - registry->idle_count - registry->parked_count;
}

uint64_t gb_object_lease_count(const struct gb_object *object)
{
    return object->lease_count - object->kept - object->idle_count - object->parked_count;
}

/* `count`: the storage's leases or pins. */
static void hold(struct gb_storage *storage, uint32_t *count)
{
    gb_storage_count_holds(storage, -1);
    ++*count;
    gb_storage_count_holds(storage, 1);
    gb_recent_hold(&storage->recent);
}

static void drop(struct gb_storage *storage, uint32_t *count)
{
    gb_storage_count_holds(storage, -1);
    --*count;
    gb_storage_count_holds(storage, 1);
    gb_recent_drop(&storage->recent);
    end_hold(storage);
}

static void drop_lease(struct gb_storage *storage, uint64_t now_ms)
{
    storage->used_ms = now_ms;
    drop(storage, &storage->leases);
}

void gb_object_hold(struct gb_object *object, uint64_t now_ms)
{
    object->lease_count++;
    object->storage->used_ms = now_ms;
    hold(object->storage, &object->storage->leases);
}

static void count_idle(struct gb_registry *registry, struct gb_object *object, int more)
{
    object->idle_count += (uint32_t)more;
    registry->idle_count += (uint64_t)more;
}

void gb_object_idle(struct gb_registry *registry, struct gb_object *object, bool first,
                    uint64_t now_ms)
{
    struct gb_storage *storage = object->storage;

    if (first) {
        count_idle(registry, object, 1);
        drop_lease(storage, now_ms);
        return;
    }
    storage->used_ms = now_ms;
    gb_recent_touch(&storage->recent);
}

void gb_object_resume(struct gb_registry *registry, struct gb_object *object)
{
    count_idle(registry, object, -1);
    hold(object->storage, &object->storage->leases);
    gb_device_changed(object->storage->key.device); /* waiting requests must look for other room */
}

static void count_parked(struct gb_registry *registry, struct gb_object *object, int more)
{
    object->parked_count += (uint32_t)more;
    registry->parked_count += (uint64_t)more;
}

/* Content that is not complete yet can neither be spilled nor dropped. */
static void set_unsettled(struct gb_object *object, bool unsettled)
{
    if (object->unsettled == unsettled)
        return;
    object->unsettled = unsettled;
    if (unsettled)
        gb_recent_hold(&object->storage->recent);
    else
        gb_recent_drop(&object->storage->recent);
}

/* A storage that has a copy is clean, and so is a copy that is not the only place of its content.
   If no object of the storage is needed, all of them are. */
void gb_storage_set_clean(struct gb_storage *storage)
{
    unsigned places = storage->resident;

    for (int i = 0; i < GB_TIERS; i++)
        places += storage->copies[i] != NULL;
    for (int i = 0; i < GB_TIERS; i++)
        if (storage->copies[i])
            gb_recent_set(&storage->copies[i]->recent, places > 1 || !storage->needs,
                          storage->needs > 0);
    gb_recent_set(&storage->recent, places > 1 || !storage->needs, storage->needs > 0);
    gb_storage_changed(storage);
}

bool gb_storage_can_spill(const struct gb_storage *storage)
{
    return !(storage->adopted && storage->key.share == GB_SHARE_IPC) && storage->size > 0 &&
           !storage->key.live && !gb_storage_is_final(storage);
}

/* Whether there is a tier to which its content can be copied from its device. */
static bool has_tier(const struct gb_storage *storage)
{
    return storage->key.device->lanes[GB_OUT] && gb_storage_can_spill(storage);
}

static bool has_copy(const struct gb_storage *storage)
{
    return storage->copies[GB_TIER_HOST] || storage->copies[GB_TIER_DISK];
}

const char *gb_object_prospect(const struct gb_object *object)
{
    const struct gb_storage *storage = object->storage;

    if (storage->pins > 0 || storage->size == 0)
        return "stays";
    if (!storage->needs && !(storage->resident && has_copy(storage)) &&
        (object->named || object->evict == GB_EVICT_DROP))
        return "drops";
    return storage->resident && has_tier(storage) ? "spills" : "stays";
}

void gb_storage_enter(struct gb_storage *storage)
{
    struct gb_device *device = storage->key.device;
    struct gb_recency *order =
        storage->needs > 0 && !has_tier(storage) ? &device->stay : &device->recency;

    /* A storage that is coming back is entered when its content is there. One without bytes makes
       no room by leaving. */
    if (storage->resident && storage->bytes > 0 && storage->recent.in != order)
        gb_recent_enter(order, &storage->recent, storage->bytes);
}

/* From now on the name means the object. False if memory is out; never if the name had another
   object before. */
static bool enter_index(struct gb_registry *registry, struct gb_object *object)
{
    if (!gb_names_insert(&registry->names, &object->index))
        return false;
    object->current = true;
    registry->private_names += !(object->mode & 4);
    return true;
}

static void notify_unnamed(struct gb_registry *registry, struct gb_object *object)
{
    if (registry->on_unnamed)
        registry->on_unnamed(registry->on_unnamed_arg, object->storage);
}

void gb_object_begin_writer(struct gb_object *object, struct gb_link *of_writing)
{
    gb_list_append(&object->live->writing, of_writing);
    object->live->writers++;
    gb_storage_changed(object->storage); /* a successor must know who writes */
}

void gb_object_end_writer(struct gb_registry *registry, struct gb_object *object,
                          struct gb_link *of_writing)
{
    gb_list_remove(of_writing);
    object->live->writers--;
    gb_storage_changed(object->storage);
    notify_unnamed(registry, object);
}

static void leave_index(struct gb_registry *registry, struct gb_object *object)
{
    gb_names_remove(&registry->names, &object->index);
    object->current = false;
    notify_unnamed(registry, object);
    registry->private_names -= !(object->mode & 4);
}

/* Does what follows from having a name: the storage gets its place in the order of eviction, and is
   held for evict=keep or while the content is not complete. */
static void gain_name(struct gb_object *object)
{
    struct gb_storage *storage = object->storage;

    object->named = true;
    storage->needs += object->evict != GB_EVICT_DROP;
    gb_storage_set_clean(storage);
    if (object->evict == GB_EVICT_KEEP)
        hold(storage, &storage->pins);
    set_unsettled(object, object->ready != NULL);
    gb_storage_enter(storage);
}

/* An object that must not be dropped has lost its name, or a parked lease has ended: if it was the
   last such one, the storage is clean now, unless it is about to be freed. */
static void lose_need(struct gb_object *object)
{
    struct gb_storage *storage = object->storage;

    if (--storage->needs > 0 ||
        (!object->named && storage->references == 1 && object->lease_count == 0))
        return;
    gb_storage_set_clean(storage);
    if (storage->recent.in)
        gb_storage_enter(storage);
}

void gb_object_park(struct gb_registry *registry, struct gb_object *object, uint64_t now_ms)
{
    count_parked(registry, object, 1);
    object->storage->needs++;
    gb_storage_set_clean(object->storage);
    gb_storage_enter(object->storage);
    drop_lease(object->storage, now_ms);
    if (object->named)
        gb_registry_announce(registry, GB_EVENT_PARKED, object);
}

void gb_object_drop(struct gb_registry *registry, struct gb_object *object, enum gb_lease_use use)
{
    object->lease_count--;
    if (use == GB_LEASE_USED) {
        drop_lease(object->storage, registry->now_ms);
    } else if (use == GB_LEASE_IDLE) {
        count_idle(registry, object, -1);
        end_hold(object->storage);
    } else {
        count_parked(registry, object, -1);
        lose_need(object);
        end_hold(object->storage);
    }
    if (!object->named && object->lease_count == 0)
        gb_object_discard(registry, object);
}

/* Counts an object that the grace period begins (1) or ends (-1) to hold. */
static void count_kept(struct gb_registry *registry, struct gb_object *object, int more)
{
    object->kept = more > 0;
    registry->grace_count += (uint64_t)more;
    registry->grace_bytes[object->storage->key.device->index] +=
        more > 0 ? object->bytes : -object->bytes;
}

void gb_object_keep(struct gb_registry *registry, struct gb_object *object, uint64_t now_ms)
{
    count_kept(registry, object, 1);
    gb_object_hold(object, now_ms);
}

void gb_object_unkeep(struct gb_registry *registry, struct gb_object *object)
{
    count_kept(registry, object, -1);
    gb_object_drop(registry, object, GB_LEASE_USED);
}

/* Puts a version without a name, which leases keep, at the end of the ring of its name. */
static void join_held(struct gb_registry *registry, struct gb_object *object)
{
    struct gb_object *current = gb_registry_find(registry, object->name, object->name_length);

    gb_list_remove(&object->of_name);
    if (current)
        gb_list_append(&current->of_name, &object->of_name);
}

/* Takes the name from an object. Without a lease the object is freed: at once, or, if `later`, by
   gb_registry_sweep(). */
static void lose_name(struct gb_registry *registry, struct gb_object *object, bool later)
{
    object->named = false;
    notify_unnamed(registry, object);
    end_charge(object);
    gb_deadlines_remove(&registry->deadlines, &object->deadline);
    gb_object_pin(object, false);
    set_unsettled(object, false);
    if (object->evict == GB_EVICT_KEEP)
        drop(object->storage, &object->storage->pins);
    if (object->evict != GB_EVICT_DROP)
        lose_need(object);
    if (object->lease_count == 0 && !later) {
        gb_object_discard(registry, object);
        return;
    }
    gb_list_remove(&object->of_name);
    if (object->lease_count == 0)
        gb_list_append(&registry->orphans, &object->of_name);
    else
        join_held(registry, object);
    gb_storage_changed(object->storage);
}

/* Has the name keep at most `keep` older versions. The oldest loses its name first, so that after a
   crash in between the name still means the same. */
static void keep_older(struct gb_registry *registry, struct gb_object *current, unsigned keep,
                       bool later)
{
    for (;;) {
        struct gb_object *object = current, *older;
        unsigned count = 0;

        while ((older = gb_object_older(object)) && older->named) {
            object = older;
            count++;
        }
        if (count <= keep)
            return;
        lose_name(registry, object, later);
        GB_FAILPOINT(OLDER_GONE);
    }
}

void gb_registry_announce(struct gb_registry *registry, enum gb_event event,
                          struct gb_object *object)
{
    if (registry->on_event)
        registry->on_event(registry->on_event_arg, event, object);
}

/* Takes the current version out of the index. The newest older version, if the name keeps one,
   becomes current. */
static void leave_to_older(struct gb_registry *registry, struct gb_object *object)
{
    struct gb_object *older = gb_object_older(object);

    leave_index(registry, object);
    if (older && older->named) {
        enter_index(registry, older); /* an index that had a name before has room for one */
        gb_registry_announce(registry, GB_EVENT_SEALED, older);
    }
}

void gb_registry_unname(struct gb_registry *registry, struct gb_object *object, enum gb_event event)
{
    if (object->current) {
        if (event != GB_EVENT_WITHDRAWN)
            keep_older(registry, object, 0, event == GB_EVENT_EVICTED);
        gb_object_clear_slots(object);
        gb_registry_announce(registry, event, object);
        leave_to_older(registry, object);
    }
    lose_name(registry, object, false);
    GB_FAILPOINT(UNNAME_DONE);
}

/* Puts the new current version before the former one in the ring of the name. The former one loses
   its pin, which was meant for the name. */
static void follow(struct gb_registry *registry, struct gb_object *object, struct gb_object *former)
{
    gb_list_append(&former->of_name, &object->of_name);
    gb_object_pin(former, false);
    keep_older(registry, object, object->keep, false);
}

int gb_registry_publish(struct gb_registry *registry, struct gb_object *object, bool replace,
                        uint64_t now_ms, struct gb_error *error)
{
    struct gb_object *former = gb_registry_find(registry, object->name, object->name_length);

    if (former && !replace) {
        int code = gb_fail(error, GPUBUF_E_EXISTS, "\"%s\" exists; set replace to take its name",
                           object->name);

        if (error)
            memcpy(error->name, object->name, object->name_length + 1);
        return code;
    }
    if (object->ttl_ms > 0 && !gb_deadlines_add(&registry->deadlines, &object->deadline,
                                                now_ms + (uint64_t)object->ttl_ms))
        return gb_fail_memory(error);
    GB_FAILPOINT(PUBLISH_BEGIN);
    if (former)
        leave_index(registry, former);
    if (!enter_index(registry, object)) {
        assert(!former); /* an index that had a name before has room for one */
        gb_deadlines_remove(&registry->deadlines, &object->deadline);
        return gb_fail_memory(error);
    }
    object->version = registry->next_version++;
    object->line = former ? former->line : object->version;
    if (!object->storage->used_ms)
        object->storage->used_ms = now_ms; /* registered memory, which had no writer's lease */
    if (former)
        gb_object_clear_slots(former);
    gain_name(object);
    GB_FAILPOINT(PUBLISH_NAMED);
    if (former)
        follow(registry, object, former);
    GB_FAILPOINT(PUBLISH_DONE);
    gb_registry_announce(registry, GB_EVENT_SEALED, object);
    return 0;
}

/* Puts a restored older version into the ring, before the first one that is older or has no
   name. */
static void join_older(struct gb_object *current, struct gb_object *object)
{
    struct gb_object *older = gb_object_older(current);

    while (older && older->named && older->version > object->version)
        older = gb_object_older(older);
    gb_list_append(older ? &older->of_name : &current->of_name, &object->of_name);
}

int gb_registry_restore(struct gb_registry *registry, struct gb_object *object, bool named,
                        bool pinned, uint64_t expires_ms)
{
    struct gb_object *former = gb_registry_find(registry, object->name, object->name_length);
    bool older = former && former->version > object->version;

    if (!named) {
        end_charge(object);
        return 0;
    }
    if (object->ttl_ms > 0 &&
        !gb_deadlines_add(&registry->deadlines, &object->deadline, expires_ms))
        return GPUBUF_E_NO_MEMORY;
    if (older) {
        join_older(former, object);
        gain_name(object);
        keep_older(registry, former, former->keep, false);
        return 0;
    }
    if (former)
        leave_index(registry, former);
    if (!enter_index(registry, object)) {
        gb_deadlines_remove(&registry->deadlines, &object->deadline);
        return GPUBUF_E_NO_MEMORY;
    }
    gain_name(object);
    gb_object_pin(object, pinned);
    if (former)
        follow(registry, object, former);
    return 0;
}

void gb_registry_restore_held(struct gb_registry *registry, struct gb_object *object)
{
    const struct gb_object *current =
        object->named ? NULL : gb_registry_find(registry, object->name, object->name_length);

    if (current && current->line == object->line)
        join_held(registry, object);
}

void gb_object_settle(struct gb_object *object)
{
    GB_LIST_EACH(&object->storage->objects, struct gb_object, other, of_storage) {
        if (!other->ready)
            continue;
        free(other->ready);
        other->ready = NULL;
        set_unsettled(other, false);
        gb_list_remove(&other->produced.link);
    }
    gb_storage_changed(object->storage);
}

void gb_object_pin(struct gb_object *object, bool pin)
{
    if (object->pinned == pin)
        return;
    object->pinned = pin;
    if (pin)
        hold(object->storage, &object->storage->pins);
    else
        drop(object->storage, &object->storage->pins);
    gb_storage_changed(object->storage);
}

int gb_object_expire(struct gb_registry *registry, struct gb_object *object, uint64_t ttl_ms,
                     struct gb_error *error)
{
    if (ttl_ms == 0)
        gb_deadlines_remove(&registry->deadlines, &object->deadline);
    else if (!gb_deadlines_add(&registry->deadlines, &object->deadline, registry->now_ms + ttl_ms))
        return gb_fail_memory(error);
    object->ttl_ms = (int64_t)ttl_ms;
    gb_storage_changed(object->storage);
    return 0;
}

void gb_registry_evict(struct gb_registry *registry, struct gb_storage *storage)
{
    storage->key.device->so_far.evictions++;
    storage->key.device->so_far.evicted_bytes += storage->resident ? storage->bytes : storage->size;
    gb_registry_lose(registry, storage, GB_EVENT_EVICTED);
}

void gb_registry_lose(struct gb_registry *registry, struct gb_storage *storage, enum gb_event event)
{
    gb_storage_ref(storage);
    /* A current version takes older ones along, so older ones of this storage lose their names
       first. */
    for (int current = 0; current < 2; current++)
        GB_LIST_EACH(&storage->objects, struct gb_object, object, of_storage) {
            if (object->named && object->current == current)
                gb_registry_unname(registry, object, event);
            else if (!object->named && object->lease_count == 0)
                gb_object_discard(registry, object); /* an orphan */
        }
    gb_storage_unref(registry->store, storage);
}

void gb_registry_sweep(struct gb_registry *registry)
{
    GB_LIST_EACH(&registry->orphans, struct gb_object, object, of_name)
        gb_object_discard(registry, object);
}

/* The newest older version of the name that is on the device; NULL: none. */
static struct gb_object *older_on(const struct gb_object *current, const struct gb_device *device)
{
    struct gb_object *older = gb_object_older(current);

    while (older && older->named && older->storage->key.device != device)
        older = gb_object_older(older);
    return older && older->named ? older : NULL;
}

void gb_registry_withdraw(struct gb_registry *registry, const struct gb_device *device)
{
    struct gb_name *name = gb_names_lower(&registry->names, "", 0, false), *next;

    for (; name; name = next) {
        struct gb_object *object = GB_CONTAINER(name, struct gb_object, index), *older;

        next = gb_names_next(name);
        while ((older = older_on(object, device)))
            gb_registry_unname(registry, older, GB_EVENT_WITHDRAWN);
        if (object->storage->key.device == device)
            gb_registry_unname(registry, object, GB_EVENT_WITHDRAWN);
    }
}

bool gb_registry_expire_next(struct gb_registry *registry, uint64_t now_ms)
{
    struct gb_deadline *first = gb_deadlines_first(&registry->deadlines);

    if (!first || first->at > now_ms)
        return false;
    gb_registry_unname(registry, GB_CONTAINER(first, struct gb_object, deadline), GB_EVENT_DELETED);
    return true;
}
