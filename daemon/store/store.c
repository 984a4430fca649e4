#include "daemon/store/store.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/base/failpoint.h"
#include "proto/base/limits.h"

#define MIB ((uint64_t)1 << 20)
#define FINAL_UNIT 4096

/* How many bytes of empty segments a device keeps, since making a segment takes time. The one that
   ran empty last is kept even if it is larger: the next version of a name goes into it. */
static uint64_t retained_limit(const struct gb_device *device)
{
    uint64_t limit = device->capacity / 4;

    return limit < 64 * MIB ? 64 * MIB : limit;
}

void gb_store_init(struct gb_store *store)
{
    memset(store, 0, sizeof(*store));
    gb_users_init(&store->users);
    store->next_segment = 1;
    store->retire_after_ms = UINT64_MAX;
}

/* ---- segments ---- */

struct gb_segment *gb_store_segment(const struct gb_store *store, uint64_t id)
{
    for (struct gb_hash_link *link = gb_hash_first(&store->segments, gb_hash_id(id)); link;
         link = gb_hash_next(link)) {
        struct gb_segment *segment = GB_CONTAINER(link, struct gb_segment, link);

        if (segment->id == id)
            return segment;
    }
    return NULL;
}

static struct gb_domain *domain_of(struct gb_store *store, enum gb_segment_kind kind,
                                   const struct gb_domain_key *key)
{
    return kind == GB_SEGMENT_ADOPTED ? NULL : gb_domain_get(&store->domains, key);
}

static void segment_become(struct gb_segment *segment, enum gb_memory_state state)
{
    gb_memory_become(&segment->state, state, segment->user, segment->device, segment->charged);
}

static void charge(struct gb_segment *segment, struct gb_user *user)
{
    struct gb_device *device = segment->device;
    const struct gb_memory *memory = &segment->memory;
    uint64_t files = 0u + (memory->write_fd >= 0) +
                     (memory->read_fd >= 0 && memory->read_fd != memory->write_fd);
    bool ours = segment->memory.kind != GB_HANDLE_CUDA_IPC || segment->memory.pointer;

    segment->charged = ours ? segment->bytes : 0;
    segment->user = gb_user_ref(user);
    user->has[GB_QUOTA_SEGMENTS]++;
    segment_become(segment, GB_MEMORY_MADE);
    segment->files.user = user;
    gb_charge_set(&segment->files, GB_STOCK_OPEN, files);
    gb_charge_set(&segment->files, GB_STOCK_KEPT, files > 0);
    device->segments++;
    device->so_far.segments_created++;
}

struct gb_segment *gb_segment_new(struct gb_store *store, enum gb_segment_kind kind,
                                  const struct gb_domain_key *key, struct gb_user *user,
                                  uint64_t bytes, const struct gb_memory *memory)
{
    struct gb_segment *segment = calloc(1, sizeof(*segment));
    struct gb_domain *domain = domain_of(store, kind, key);

    if (!segment || (!domain && kind != GB_SEGMENT_ADOPTED))
        goto failed;
    segment->id = store->next_segment;
    segment->store = store;
    segment->kind = kind;
    segment->bytes = bytes;
    segment->device = key->device;
    segment->domain = domain;
    segment->memory = *memory;
    segment->empty = true;
    if (kind == GB_SEGMENT_SHARED &&
        !(segment->block = gb_arena_add(domain->arena, bytes, segment)))
        goto failed;
    if (!gb_hash_insert(&store->segments, &segment->link, gb_hash_id(segment->id))) {
        if (segment->block)
            gb_arena_remove(domain->arena, segment->block);
        goto failed;
    }
    store->next_segment++;
    if (kind == GB_SEGMENT_SHARED)
        gb_list_append(&domain->shared, &segment->place);
    if (kind == GB_SEGMENT_OWN)
        gb_list_append(&domain->spares, &segment->place);
    gb_list_append(&store->empties, &segment->empties);
    if (domain)
        domain->segments++;
    gb_list_append(&segment->device->segment_list, &segment->of_device);
    charge(segment, user);
    GB_FAILPOINT(SEGMENT_MADE);
    if (store->on_segment)
        store->on_segment(store->on_change_arg, segment, true);
    return segment;

failed:
    if (domain)
        gb_domain_release(&store->domains, domain);
    free(segment);
    return NULL;
}

static void destroy_memory(struct gb_job *job)
{
    struct gb_segment *segment = GB_CONTAINER(job, struct gb_segment, job);

    segment->device->ops->destroy(segment->device, &segment->memory);
    GB_FAILPOINT(SEGMENT_DESTROYED);
}

static void end_segment(struct gb_job *job)
{
    struct gb_segment *segment = GB_CONTAINER(job, struct gb_segment, job);
    struct gb_device *device = segment->device;

    segment_become(segment, GB_MEMORY_NONE);
    device->segments--;
    device->so_far.segments_destroyed++;
    gb_device_changed(device);
    segment->user->has[GB_QUOTA_SEGMENTS]--;
    gb_charge_end(&segment->files);
    gb_user_unref(segment->user);
    free(segment);
}

/* Begins to destroy a segment. Its bytes are free when the driver has taken them back. */
static void segment_destroy(struct gb_store *store, struct gb_segment *segment)
{
    struct gb_domain *domain = segment->domain;

    assert(segment->empty && gb_list_empty(&segment->mappings));
    if (segment->kept)
        gb_making_tried(segment->kept);
    if (store->on_segment)
        store->on_segment(store->on_change_arg, segment, false);
    gb_list_remove(&segment->empties);
    gb_list_remove(&segment->place);
    gb_walks_leave(&store->walks, &segment->of_device);
    gb_list_remove(&segment->of_device);
    if (segment->block)
        gb_arena_remove(domain->arena, segment->block);
    gb_hash_remove(&store->segments, &segment->link);
    if (domain) {
        domain->segments--;
        gb_domain_release(&store->domains, domain);
    }
    segment_become(segment, GB_MEMORY_FREEING);
    segment->job = (struct gb_job){.work = destroy_memory, .done = end_segment};
    gb_mover_submit(segment->device->mover, &segment->job);
}

void gb_segment_mapped(struct gb_segment *segment, bool mapped)
{
    segment->device->mapped += mapped ? segment->charged : -segment->charged;
    if (segment->domain)
        segment->domain->mapped += mapped ? segment->charged : -segment->charged;
}

void gb_segment_unmapped(struct gb_store *store, struct gb_segment *segment)
{
    if (!segment->retiring && gb_list_empty(&segment->mappings)) {
        gb_segment_mapped(segment, false);
        gb_device_changed(segment->device);
    }
    if (segment->retiring && gb_list_empty(&segment->mappings))
        segment_destroy(store, segment);
}

uint64_t gb_segment_retire(struct gb_store *store, struct gb_segment *segment)
{
    uint64_t bytes = segment->device->mover ? 0 : segment->charged;

    if (gb_list_empty(&segment->mappings)) {
        segment_destroy(store, segment);
        return bytes;
    }
    if (segment->retiring)
        return 0;
    gb_segment_mapped(segment, false);
    segment->retiring = true;
    segment->retired_ms = gb_now_ms();
    segment_become(segment, GB_MEMORY_RETIRING);
    gb_list_remove(&segment->empties);
    gb_list_remove(&segment->place);
    gb_list_append(&segment->device->retiring, &segment->place);
    if (segment->block)
        gb_arena_close(segment->domain->arena, segment->block);
    GB_LIST_EACH(&segment->mappings, struct gb_mapping, mapping, of_segment) {
        store->retire(store->retire_arg, mapping->mapper, segment);
    }
    return 0;
}

/* gb_store_trim, of one user's segments (NULL: of all). */
static uint64_t trim(struct gb_store *store, struct gb_device *device, const struct gb_user *user,
                     uint64_t bytes)
{
    uint64_t freed = 0, going = gb_making_trim(store, device, user, bytes);

    for (int mapped = 0; mapped < 2; mapped++)
        GB_LIST_EACH(&store->empties, struct gb_segment, segment, empties) {
            if (going >= bytes)
                break;
            if (segment->device != device || segment->kept || (user && segment->user != user) ||
                gb_list_empty(&segment->mappings) == (mapped != 0))
                continue;
            going += segment->charged;
            freed += gb_segment_retire(store, segment);
        }
    return freed;
}

uint64_t gb_store_trim(struct gb_store *store, struct gb_device *device, uint64_t bytes)
{
    return trim(store, device, NULL, bytes);
}

uint64_t gb_store_retire_idle(struct gb_store *store, uint64_t now_ms)
{
    if (store->retire_after_ms == UINT64_MAX || gb_list_empty(&store->empties))
        return UINT64_MAX;
    /* Segments without a time ran empty last, and are at the end of the list. */
    for (struct gb_link *link = gb_list_last(&store->empties); link != &store->empties;
         link = link->prev) {
        struct gb_segment *segment = GB_CONTAINER(link, struct gb_segment, empties);

        if (segment->empty_since_ms)
            break;
        segment->empty_since_ms = now_ms;
    }
    GB_LIST_EACH(&store->empties, struct gb_segment, segment, empties) {
        if (now_ms - segment->empty_since_ms < store->retire_after_ms)
            return segment->empty_since_ms + store->retire_after_ms;
        gb_segment_retire(store, segment);
    }
    return UINT64_MAX;
}

/* Keeps a segment that ran empty for its domain's next object, for a time. If more is kept than the
   limit, the oldest others are given back. */
static void segment_emptied(struct gb_store *store, struct gb_segment *segment)
{
    struct gb_device *device = segment->device;
    uint64_t retained = gb_device_retained(device) - device->moving;
    uint64_t limit = retained_limit(device);

    segment->empty = true;
    if (segment->kind == GB_SEGMENT_ADOPTED) {
        gb_segment_retire(store, segment);
        return;
    }
    if (limit < segment->charged)
        limit = segment->charged;
    if (retained > limit) /* before this segment is in the list */
        trim(store, device, NULL, retained - limit);
    segment->empty_since_ms = 0;
    gb_list_append(&store->empties, &segment->empties);
    if (segment->kind == GB_SEGMENT_OWN)
        gb_list_append(&segment->domain->spares, &segment->place);
}

static void segment_taken(struct gb_segment *segment)
{
    if (segment->kept)
        gb_making_tried(segment->kept);
    segment->empty = false;
    gb_list_remove(&segment->empties);
    if (segment->kind == GB_SEGMENT_OWN)
        gb_list_remove(&segment->place);
}

void gb_store_clear(struct gb_store *store)
{
    GB_LIST_EACH(&store->empties, struct gb_segment, segment, empties)
        segment_destroy(store, segment);
}

void gb_store_end(struct gb_store *store)
{
    gb_store_clear(store); /* segments that the movers made last */
    assert(gb_list_empty(&store->making));
    assert(store->segments.count == 0 && store->mappings.count == 0 && store->domains.count == 0);
    gb_hash_end(&store->segments);
    gb_hash_end(&store->mappings);
    gb_hash_end(&store->domains);
    gb_users_end(&store->users);
}

/* ---- storage ---- */

struct gb_storage *gb_storage_new(struct gb_store *store, const struct gb_domain_key *key,
                                  struct gb_user *user, unsigned room)
{
    struct gb_storage *storage =
        calloc(1, sizeof(*storage) + room * sizeof(storage->placements[0]));

    if (!storage)
        return NULL;
    storage->store = store;
    storage->references = 1;
    storage->key = *key;
    gb_stake_init(storage, user);
    storage->resident = true;
    storage->placement_room = (uint16_t)room;
    return storage;
}

struct gb_storage *gb_storage_ref(struct gb_storage *storage)
{
    storage->references++;
    return storage;
}

static void placement_free(struct gb_store *store, struct gb_placement *placement)
{
    struct gb_segment *segment = placement->segment;

    segment->device->used -= gb_placement_bytes(placement);
    gb_device_changed(segment->device);
    if (placement->range)
        gb_range_free(segment->domain->arena, placement->range);
    if (!placement->range || gb_arena_block_empty(segment->block))
        segment_emptied(store, segment);
}

void gb_storage_count_away(const struct gb_storage *storage, int sign)
{
    storage->key.device->spilled += sign > 0 ? 1 : -UINT64_C(1);
    storage->key.device->spilled_bytes += sign > 0 ? storage->size : -storage->size;
}

void gb_storage_untally(struct gb_storage *storage)
{
    if (storage->tally)
        *storage->tally -= storage->bytes;
    storage->tally = NULL;
}

void gb_storage_unref(struct gb_store *store, struct gb_storage *storage)
{
    if (!storage || --storage->references > 0)
        return;
    gb_recent_leave(&storage->recent);
    gb_storage_untally(storage);
    for (unsigned i = 0; i < storage->placement_count; i++)
        placement_free(store, &storage->placements[i]);
    for (int i = 0; i < GB_TIERS; i++)
        if (storage->copies[i])
            gb_copy_free(storage->copies[i]);
    if (!storage->resident && !storage->placement_count)
        gb_storage_count_away(storage, -1);
    gb_stake_end(storage);
    free(storage->failure);
    free(storage);
}

void gb_storage_place_in(struct gb_storage *storage, struct gb_segment *segment,
                         struct gb_range *range)
{
    struct gb_placement *placement = &storage->placements[storage->placement_count++];

    placement->segment = segment;
    placement->range = range;
    storage->bytes += gb_placement_bytes(placement);
    segment->device->used += gb_placement_bytes(placement);
    if (segment->empty)
        segment_taken(segment);
}

/* Whether `bytes` of the budget are free. If not, `shortfall` bytes are missing, and empty segments
   of as many bytes are being given back, as far as there are any. */
static bool make_room(struct gb_placing *placing, uint64_t bytes)
{
    struct gb_device *device = placing->key->device;
    uint64_t free_bytes = gb_device_free_bytes(device);

    if (free_bytes < bytes && device->freeing < bytes - free_bytes)
        free_bytes += trim(placing->store, device, NULL, bytes - free_bytes - device->freeing);
    if (free_bytes >= bytes)
        return true;
    device->needed_ms = gb_now_ms();
    placing->shortfall = bytes - free_bytes;
    return false;
}

/* Whether the user's quota allows `bytes` more to be held. If not, gives empty segments of the user
   back first. 0, GB_PLACE_QUOTA, or GPUBUF_E_LIMIT. */
static int make_quota(const struct gb_placing *placing, uint64_t bytes)
{
    struct gb_device *device = placing->key->device;
    struct gb_user *user = placing->user;
    uint64_t quota = user->quota->bytes[device->index], *held = &user->held[device->index];
    uint64_t *freeing = &user->freeing[device->index], over;
    int r;

    if (*held <= quota && bytes <= quota - *held)
        return 0;
    over = *held + bytes - quota;
    if (*freeing < over)
        trim(placing->store, device, user, over - *freeing);
    r = gb_user_may_occupy(user, device, bytes, placing->error);
    if (r == 0 || *freeing + user->retiring[device->index] < *held + bytes - quota)
        return r;
    device->needed_ms = gb_now_ms();
    return GB_PLACE_QUOTA;
}

/* Whether some of the user's segments are being given back. */
static bool has_going(const struct gb_user *user)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < GB_DEVICES; i++)
        bytes += user->freeing[i] + user->retiring[i];
    return bytes > 0;
}

/* Whether the user may have `count` segments more. If not, gives empty ones of the user back first,
   of any device and domain. 0, GB_PLACE_QUOTA, or GPUBUF_E_LIMIT. */
static int make_segments_quota(const struct gb_placing *placing, uint64_t count)
{
    struct gb_store *store = placing->store;
    struct gb_user *user = placing->user;
    uint64_t going = 0, more = gb_making_count(store, user) + count;
    struct gb_error error;
    int r = gb_user_may_have(user, GB_QUOTA_SEGMENTS, NULL, more, &error);

    GB_LIST_EACH(&store->empties, struct gb_segment, segment, empties) {
        if (r == 0 || going == more)
            break;
        if (segment->user != user || segment->kept)
            continue;
        gb_segment_retire(store, segment);
        going++;
        r = gb_user_may_have(user, GB_QUOTA_SEGMENTS, NULL, more, &error);
    }
    if (r == 0)
        return 0;
    *placing->error = error;
    if (!has_going(user))
        return r;
    placing->key->device->needed_ms = gb_now_ms();
    return GB_PLACE_QUOTA;
}

/*
 * Makes an empty segment of `bytes` if the user's quota and the device's budget allow it, after
 * other empty segments were given back. Outcomes as gb_store_place. A storage that comes back to
 * its device may take its user past the quota: another user may want it, and it was charged before.
 */
static int make_segment(struct gb_placing *placing, enum gb_segment_kind kind, uint64_t bytes,
                        struct gb_segment **segment)
{
    struct gb_store *store = placing->store;
    struct gb_device *device = placing->key->device;
    struct gb_memory memory;
    int r = make_quota(placing, bytes);

    if (r == 0 || !placing->storage->resident)
        r = make_segments_quota(placing, 1);
    if (r != 0)
        return r;
    if (!make_room(placing, bytes))
        return GB_PLACE_FULL;
    if (device->mover)
        return gb_making_begin(placing, kind, bytes);
    r = device->ops->create(device, placing->key->share, bytes, &memory, placing->error);
    if (r < 0)
        return r;
    *segment = gb_segment_new(store, kind, placing->key, placing->user, bytes, &memory);
    if (*segment)
        return 0;
    device->ops->destroy(device, &memory);
    return gb_fail_memory(placing->error);
}

uint64_t gb_store_reachable_bytes(const struct gb_store *store, const struct gb_device *device,
                                  uint64_t soon, uint64_t enough)
{
    uint64_t near = gb_device_free_bytes(device) + soon;

    GB_LIST_EACH(&store->empties, const struct gb_segment, segment, empties) {
        if (near >= enough)
            break;
        if (segment->device == device && gb_list_empty(&segment->mappings))
            near += segment->charged;
    }
    return near;
}

/* The smallest spare that has room for the bytes and wastes at most `waste` of them. */
static struct gb_segment *find_spare(struct gb_domain *domain, uint64_t bytes, uint64_t waste)
{
    struct gb_segment *best = NULL;

    GB_LIST_EACH(&domain->spares, struct gb_segment, segment, place) {
        if (segment->bytes >= bytes && segment->bytes - bytes <= waste &&
            (!best || segment->bytes < best->bytes))
            best = segment;
    }
    return best;
}

/* Finds a place in the domain's segments: in a spare, or, unless room for another segment is near,
   in a hole of a shared segment. 1: there is none. */
static int place_in_own(struct gb_domain *domain, uint64_t bytes, bool near,
                        struct gb_storage *storage)
{
    bool own = storage->key.own; /* of that size, so that all versions fit in one window */
    struct gb_segment *spare = find_spare(domain, bytes, own ? 0 : near ? bytes / 8 : UINT64_MAX);
    struct gb_range *range = NULL;
    int r = 0;

    if (!spare)
        r = near || own ? 1 : gb_arena_alloc(domain->arena, storage->size, &range);
    if (r == 0)
        gb_storage_place_in(storage, spare ? spare : gb_range_owner(range), range);
    return r;
}

static int place_own(struct gb_placing *placing)
{
    struct gb_storage *storage = placing->storage;
    struct gb_device *device = placing->key->device;
    uint64_t rounded = gb_round_up(storage->size, device->granularity);
    bool near =
        gb_store_reachable_bytes(placing->store, device, device->freeing, rounded) >= rounded;
    struct gb_domain *domain = gb_domain_get(&placing->store->domains, placing->key);
    struct gb_segment *segment;
    int r;

    if (!domain)
        return gb_fail_memory(placing->error);
    r = place_in_own(domain, rounded, near, storage);
    gb_domain_release(&placing->store->domains, domain);
    if (r < 0)
        return gb_fail_memory(placing->error);
    if (r == 0)
        return 0;
    r = make_segment(placing, GB_SEGMENT_OWN, rounded, &segment);
    if (r == 0)
        gb_storage_place_in(storage, segment, NULL);
    return r;
}

/* Makes another shared segment of `bytes` for the domain, unless one is being made. */
static int grow_shared(struct gb_placing *placing, uint64_t bytes)
{
    struct gb_segment *segment;

    placing->job = NULL;
    if (gb_making_comes(placing->store, placing->key, placing->storage->size))
        return GB_PLACE_MAKING;
    return make_segment(placing, GB_SEGMENT_SHARED, bytes, &segment);
}

static int place_shared(struct gb_placing *placing)
{
    struct gb_store *store = placing->store;
    struct gb_storage *storage = placing->storage;

    for (int attempt = 0; attempt < 2; attempt++) {
        struct gb_domain *domain = gb_domain_get(&store->domains, placing->key);
        struct gb_range *range;
        uint64_t bytes;
        int r;

        if (!domain)
            return gb_fail_memory(placing->error);
        r = gb_arena_alloc(domain->arena, storage->size, &range);
        if (r == 0) {
            gb_storage_place_in(storage, gb_range_owner(range), range);
            gb_making_ahead(store, domain, storage);
            return 0;
        }
        bytes = gb_making_bytes(domain, storage);
        gb_domain_release(&store->domains, domain);
        if (r < 0)
            return gb_fail_memory(placing->error);
        r = grow_shared(placing, bytes);
        if (r != 0)
            return r;
    }
    return gb_fail(placing->error, GPUBUF_E_INTERNAL,
                   "a new segment has no room for what it was made for");
}

bool gb_key_gets_own(const struct gb_domain_key *key, uint64_t bytes)
{
    return key->own || gb_store_gets_own(key->device, bytes);
}

bool gb_storage_is_own(const struct gb_storage *storage)
{
    return storage->placement_count == 1 && !storage->placements[0].range;
}

/* Finds room for the content of a storage without placements. */
static int place_content(struct gb_placing *placing)
{
    uint64_t size = placing->storage->size;

    if (size == 0)
        return 0;
    return gb_key_gets_own(placing->key, size) ? place_own(placing) : place_shared(placing);
}

void gb_storage_count_holds(const struct gb_storage *storage, int sign)
{
    struct gb_device *device = storage->key.device;
    uint64_t bytes = sign > 0 ? storage->bytes : -storage->bytes;

    if (storage->leases > 0)
        device->leased += bytes;
    if (storage->pins > 0)
        device->pinned += bytes;
    if (storage->pins > 0 && storage->leases > 0)
        device->pinned_leased += bytes;
}

void gb_storage_vacate(struct gb_store *store, struct gb_storage *storage)
{
    gb_recent_leave(&storage->recent);
    gb_storage_untally(storage);
    gb_storage_count_holds(storage, -1);
    gb_stake_leave(storage);
    for (unsigned i = 0; i < storage->placement_count; i++)
        placement_free(store, &storage->placements[i]);
    storage->placement_count = 0;
    storage->bytes = 0;
    gb_stake_enter(storage);
    storage->resident = false;
    storage->adopted = false; /* restored content lies in the daemon's own memory */
    gb_storage_count_away(storage, 1);
}

/* Makes a storage of adopted memory; gives the memory up if that fails. */
static int place_adopted(struct gb_placing *placing, const struct gb_adoption *adoptions,
                         unsigned count, struct gb_memory *memories)
{
    struct gb_store *store = placing->store;
    struct gb_storage *storage = gb_storage_new(store, placing->key, placing->user, count);

    if (storage)
        storage->adopted = true;
    for (unsigned i = 0; i < count; i++) {
        struct gb_segment *segment =
            storage ? gb_segment_new(store, GB_SEGMENT_ADOPTED, placing->key, placing->user,
                                     adoptions[i].handle.bytes, &memories[i])
                    : NULL;

        if (segment) {
            gb_storage_place_in(storage, segment, NULL);
            storage->size = gb_content_next(storage->size) + segment->bytes;
            continue;
        }
        gb_memory_discard(placing->key->device, &memories[i]);
        gb_storage_unref(store, storage);
        storage = NULL;
    }
    if (!storage)
        return gb_fail_memory(placing->error);
    storage->key.share = memories[0].kind == GB_HANDLE_CUDA_IPC ? GB_SHARE_IPC : GB_SHARE_FD;
    storage->key.share = storage->key.share;
    gb_stake_bytes(storage, storage->bytes);
    placing->storage = storage;
    return 0;
}

/* Whether the user's quota and the device's budget allow the adoption. Outcomes as
   gb_store_place. */
static int check_adoption(struct gb_placing *placing, const struct gb_adoption *adoptions,
                          unsigned count)
{
    struct gb_device *device = placing->key->device;
    uint64_t total = 0;
    int r;

    for (unsigned i = 0; i < count; i++) {
        uint64_t bytes =
            adoptions[i].handle.kind == GB_HANDLE_CUDA_IPC ? 0 : adoptions[i].handle.bytes;

        if (__builtin_add_overflow(total, bytes, &total) || total > device->capacity)
            return gb_fail(placing->error, GPUBUF_E_NO_SPACE,
                           "the registered memory exceeds the capacity of %s, %" PRIu64 " bytes",
                           device->id, device->capacity);
    }
    r = gb_user_may_have(placing->user, GB_QUOTA_BYTES, device, total, placing->error);
    if (r == 0)
        r = make_quota(placing, total);
    if (r == 0)
        r = make_segments_quota(placing, count);
    if (r == 0 && !make_room(placing, total))
        r = GB_PLACE_FULL;
    return r;
}

/* Makes memory that only this object ever has, since its producer seals it against writing. */
static int place_final(struct gb_placing *placing)
{
    struct gb_device *device = placing->key->device;
    const struct gb_adoption own = {
        .handle = {.kind = GB_HANDLE_MEMFD, .bytes = gb_round_up(placing->bytes, FINAL_UNIT)}};
    struct gb_memory memory;
    int r = check_adoption(placing, &own, 1);

    if (r == 0)
        r = device->ops->create_final(device, own.handle.bytes, &memory, placing->error);
    return r != 0 ? r : place_adopted(placing, &own, 1, &memory);
}

static int place_registered(struct gb_placing *placing)
{
    struct gb_device *device = placing->key->device;
    struct gb_memory memories[GB_LIMIT(fds)];
    int r = check_adoption(placing, placing->adoptions, placing->count);

    if (r != 0)
        return r;
    if (placing->making && placing->making->job)
        gb_making_move_memories(placing->making, memories);
    else if (device->mover)
        return gb_making_adopt(placing);
    else
        r = gb_adopt_all(device, placing->adoptions, placing->count, memories, placing->error);
    return r < 0 ? r : place_adopted(placing, placing->adoptions, placing->count, memories);
}

/* Places a storage that has left its device. */
static int come_back(struct gb_placing *placing)
{
    struct gb_storage *storage = placing->storage;
    int r;

    placing->key = &storage->key;
    placing->user = storage->maker.user;
    gb_stake_leave(storage);
    r = place_content(placing);
    gb_stake_enter(storage);
    if (r != 0)
        return r;
    gb_storage_count_away(storage, -1);
    gb_storage_count_holds(storage, 1); /* pins; leases of clients that come back after a crash */
    return 0;
}

static int place_new(struct gb_placing *placing)
{
    const struct gb_device *device = placing->key->device;
    bool own = gb_key_gets_own(placing->key, placing->bytes);
    uint64_t rounded = gb_round_up(placing->bytes, own ? device->granularity : GB_ARENA_GRANULE);
    uint64_t most = device->capacity / device->granularity * device->granularity;
    struct gb_storage *storage;
    int r;

    if (placing->bytes > most)
        return gb_fail(placing->error, GPUBUF_E_NO_SPACE,
                       "%" PRIu64 " bytes can never fit: the capacity of %s is %" PRIu64 " bytes",
                       placing->bytes, device->id, most);
    if (placing->key->final && placing->bytes > 0)
        return place_final(placing);
    r = gb_user_may_have(placing->user, GB_QUOTA_BYTES, device, rounded, placing->error);
    if (r < 0)
        return r;
    storage = gb_storage_new(placing->store, placing->key, placing->user, 1);
    if (!storage)
        return gb_fail_memory(placing->error);
    storage->size = placing->bytes;
    placing->storage = storage;
    r = place_content(placing);
    if (r != 0) {
        gb_storage_unref(placing->store, storage);
        placing->storage = NULL;
        return r;
    }
    if (own && storage->placements[0].range) /* placed in a hole of a shared segment */
        rounded = storage->bytes;
    gb_stake_bytes(storage, rounded);
    return 0;
}

int gb_store_place(struct gb_placing *placing)
{
    if (placing->storage)
        return come_back(placing);
    return placing->count > 0 ? place_registered(placing) : place_new(placing);
}

bool gb_storage_is_final(const struct gb_storage *storage)
{
    bool final = storage->adopted && storage->key.device->ops->is_final;

    for (unsigned i = 0; final && i < storage->placement_count; i++) {
        struct gb_memory *memory = &storage->placements[i].segment->memory;

        final = memory->final || (storage->key.final && storage->key.device->ops->is_final(memory));
    }
    return final;
}
