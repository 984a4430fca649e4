/*
 * Rebuilding the store and the registry from what an earlier daemon left. The journal is read into
 * tables first, in which only the last word on each segment and storage is left; then segments get
 * their descriptors, storages their places, objects their names. An object whose memory is not there
 * (a descriptor or a device is missing) is lost, and told in the log; nothing else suffers.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server.h"
#include "state.h"

/* The last record of a segment or a storage. */
struct entry {
    struct gb_hash_link link;
    struct gb_link of_all;
    uint64_t number;
    const unsigned char *data; /* what follows the number; in `bytes` */
    size_t length;
    struct gb_segment *segment; /* once it is there */
    bool wanted;                /* of a segment: a storage lies in it */
    unsigned char bytes[];
};

struct table {
    struct gb_hash_table hash;
    struct gb_link all;
};

struct placement {
    uint64_t segment, offset, bytes;
    struct gb_range *range;
};

struct copy {
    bool there;
    uint64_t bytes, where;
    struct gb_copy *copy;
};

struct restored {
    struct entry *entry;
    uint64_t uid, charged, size, objects;
    struct gb_domain_key key;
    bool adopted, resident, lost;
    unsigned placement_count;
    struct placement *placements;
    struct copy copies[GB_TIERS];
    const unsigned char *rest; /* the objects */
    size_t rest_length;
    struct gb_storage *storage;
};

struct restoring {
    struct gb_state *state;
    struct gb_store *store;
    uint64_t now_ms;
    int64_t wall_ms;
    struct table segments, storages;
    uint64_t next_segment, next_version, next_number;
    struct restored *restored;
    size_t count;
    struct entry **by_id; /* segments */
    struct placement **places;
    struct restored **copied;
    size_t object_room;
};

/* ---- reading ---- */

struct cursor {
    const unsigned char *at;
    size_t left;
    bool failed; /* it ended too early: what was read is 0 */
};

static const unsigned char *take(struct cursor *cursor, size_t length)
{
    const unsigned char *at = cursor->at;

    if (length > cursor->left) {
        cursor->failed = true;
        return NULL;
    }
    cursor->at += length;
    cursor->left -= length;
    return at;
}

static unsigned take_u8(struct cursor *cursor)
{
    const unsigned char *byte = take(cursor, 1);

    return byte ? *byte : 0;
}

static uint64_t take_u64(struct cursor *cursor)
{
    const unsigned char *bytes = take(cursor, 8);
    uint64_t value = 0;

    for (int i = 7; bytes && i >= 0; i--)
        value = value << 8 | bytes[i];
    return value;
}

static const char *take_text(struct cursor *cursor, size_t *length)
{
    uint64_t said = take_u64(cursor);
    const unsigned char *text = take(cursor, said < SIZE_MAX ? (size_t)said : SIZE_MAX);

    *length = text ? (size_t)said : 0;
    return (const char *)text;
}

static struct gb_device *take_device(struct cursor *cursor, const struct gb_state *state)
{
    size_t length;
    const char *id = take_text(cursor, &length);

    for (unsigned i = 0; id && i < state->device_count; i++)
        if (strlen(state->devices[i]->id) == length &&
            memcmp(state->devices[i]->id, id, length) == 0)
            return state->devices[i];
    return NULL;
}

/* The device is NULL if there is none of that name any more. */
static struct gb_domain_key take_key(struct cursor *cursor, const struct gb_state *state)
{
    struct gb_domain_key key = {.device = take_device(cursor, state)};

    key.share = (enum gb_share)take_u8(cursor);
    key.uid = (uid_t)take_u64(cursor);
    key.gid = (gid_t)take_u64(cursor);
    key.mode = (unsigned)take_u64(cursor);
    return key;
}

static struct cursor cursor_of(const struct entry *entry)
{
    return (struct cursor){entry->data, entry->length, false};
}

/* ---- records into tables ---- */

static struct entry *find(const struct table *table, uint64_t number)
{
    for (struct gb_hash_link *link = gb_hash_first(&table->hash, gb_hash_id(number)); link;
         link = gb_hash_next(link)) {
        struct entry *entry = GB_CONTAINER(link, struct entry, link);

        if (entry->number == number)
            return entry;
    }
    return NULL;
}

static void drop(struct table *table, struct entry *entry)
{
    if (!entry)
        return;
    gb_hash_remove(&table->hash, &entry->link);
    gb_list_remove(&entry->of_all);
    free(entry);
}

static int enter(struct table *table, struct cursor *cursor, struct gb_error *error)
{
    uint64_t number = take_u64(cursor);
    struct entry *entry;

    drop(table, find(table, number));
    entry = malloc(sizeof(*entry) + cursor->left);
    if (!entry)
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
    *entry = (struct entry){.number = number, .length = cursor->left};
    memcpy(entry->bytes, cursor->at, cursor->left);
    entry->data = entry->bytes;
    if (gb_hash_insert(&table->hash, &entry->link, gb_hash_id(number))) {
        gb_list_append(&table->all, &entry->of_all);
        return 0;
    }
    free(entry);
    return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
}

static void raise_to(uint64_t *counter, uint64_t to)
{
    if (to > *counter)
        *counter = to;
}

static int read_record(const struct gb_journal_record *record, void *arg, struct gb_error *error)
{
    struct restoring *restoring = arg;
    struct cursor cursor = {record->data, record->length, false}, peek = cursor;
    uint64_t number = take_u64(&peek);
    int r = 0;

    switch (record->type) {
    case GB_RECORD_COUNTERS:
        raise_to(&restoring->next_segment, take_u64(&cursor));
        raise_to(&restoring->next_version, take_u64(&cursor));
        raise_to(&restoring->next_number, take_u64(&cursor));
        break;
    case GB_RECORD_SEGMENT:
        raise_to(&restoring->next_segment, number + 1);
        r = enter(&restoring->segments, &cursor, error);
        break;
    case GB_RECORD_SEGMENT_GONE:
        drop(&restoring->segments, find(&restoring->segments, take_u64(&cursor)));
        break;
    case GB_RECORD_STORAGE:
        raise_to(&restoring->next_number, number + 1);
        r = enter(&restoring->storages, &cursor, error);
        break;
    case GB_RECORD_STORAGE_GONE:
        drop(&restoring->storages, find(&restoring->storages, take_u64(&cursor)));
        break;
    default:
        return gb_fail(error, GPUBUF_E_INVALID, "a record of the unknown type %" PRIu32,
                       record->type);
    }
    if (peek.failed || cursor.failed)
        return gb_fail(error, GPUBUF_E_INVALID, "a record of type %" PRIu32 " is too short",
                       record->type);
    return r;
}

/* ---- storages, as they were said to be ---- */

static void read_storage(struct restoring *restoring, struct restored *restored)
{
    struct cursor cursor = cursor_of(restored->entry);

    restored->uid = take_u64(&cursor);
    restored->key = take_key(&cursor, restoring->state);
    restored->adopted = take_u8(&cursor);
    restored->resident = take_u8(&cursor);
    restored->charged = take_u64(&cursor);
    restored->size = take_u64(&cursor);
    restored->placement_count = take_u8(&cursor);
    restored->placements = calloc(restored->placement_count + 1u, sizeof(struct placement));
    for (unsigned i = 0; restored->placements && i < restored->placement_count; i++) {
        restored->placements[i].segment = take_u64(&cursor);
        restored->placements[i].offset = take_u64(&cursor);
        restored->placements[i].bytes = take_u64(&cursor);
    }
    for (int i = 0; i < GB_TIERS; i++) {
        restored->copies[i].there = take_u8(&cursor);
        if (!restored->copies[i].there)
            continue;
        restored->copies[i].bytes = take_u64(&cursor);
        restored->copies[i].where = take_u64(&cursor);
    }
    restored->objects = take_u64(&cursor);
    restored->rest = cursor.at;
    restored->rest_length = cursor.left;
    restored->lost = cursor.failed || !restored->placements || !restored->key.device;
}

static int read_storages(struct restoring *restoring, struct gb_error *error)
{
    size_t count = 0;

    restoring->restored = calloc(restoring->storages.hash.count + 1, sizeof(struct restored));
    if (!restoring->restored)
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
    GB_LIST_EACH(&restoring->storages.all, link)
        restoring->restored[count++].entry = GB_CONTAINER(link, struct entry, of_all);
    for (size_t i = 0; i < count; i++)
        read_storage(restoring, &restoring->restored[i]);
    restoring->count = count;
    return 0;
}

/* ---- segments ---- */

static int compare_entries(const void *a, const void *b)
{
    const struct entry *const *left = a, *const *right = b;

    return ((*left)->number > (*right)->number) - ((*left)->number < (*right)->number);
}

static int memory_of(const struct gb_device *device, enum gb_handle_kind kind, int fd,
                     struct gb_memory *memory, struct gb_error *error)
{
    if (kind == GB_HANDLE_MEMFD && strcmp(device->id, "host") == 0)
        return gb_device_host_restore(fd, memory, error);
    if (kind != GB_HANDLE_CUDA_FD)
        return gb_fail(error, GPUBUF_E_INVALID, "no memory of %s", device->id);
    *memory = (struct gb_memory){.kind = kind, .write_fd = fd, .read_fd = fd};
    return 0;
}

/* A segment that cannot be had again takes the objects in it along. */
static void restore_segment(struct restoring *restoring, struct entry *entry)
{
    struct gb_store *store = restoring->store;
    struct cursor cursor = cursor_of(entry);
    uint64_t bytes = take_u64(&cursor);
    enum gb_segment_kind kind = (enum gb_segment_kind)take_u8(&cursor);
    enum gb_handle_kind handle = (enum gb_handle_kind)take_u8(&cursor);
    uid_t uid = (uid_t)take_u64(&cursor);
    struct gb_domain_key key = take_key(&cursor, restoring->state);
    struct gb_user *user;
    struct gb_memory memory;
    struct gb_error why = {.message = "out of memory"};
    char name[24];
    int fd;

    gb_state_segment_name(entry->number, name);
    fd = gb_notify_take(restoring->state->notify, name);
    user = gb_user_get(&store->users, uid);
    if (fd < 0 || !key.device || cursor.failed || kind > GB_SEGMENT_ADOPTED || !user ||
        memory_of(key.device, handle, fd, &memory, &why) < 0) {
        gb_log(GB_LOG_ERROR, "segment lost", GB_LOG_NUMBER("segment", entry->number),
               GB_LOG_TEXT("why", fd < 0        ? "its descriptor was not handed over"
                                  : !key.device ? "its device is not served any more"
                                                : why.message));
        if (fd >= 0)
            close(fd);
        gb_user_unref(user);
        return;
    }
    store->next_segment = entry->number;
    entry->segment = gb_segment_new(store, kind, &key, user, bytes, &memory);
    gb_user_unref(user);
    if (!entry->segment)
        key.device->ops->destroy(key.device, &memory);
}

/* Nothing lies in it. The journal says so from its next writing on. */
static void drop_segment(struct restoring *restoring, const struct entry *entry)
{
    char name[24];
    int fd;

    gb_state_segment_name(entry->number, name);
    fd = gb_notify_take(restoring->state->notify, name);
    if (fd < 0)
        return;
    close(fd);
    gb_state_forget(restoring->state, name);
}

static int restore_segments(struct restoring *restoring, struct gb_error *error)
{
    size_t count = 0;

    for (size_t i = 0; i < restoring->count; i++)
        for (unsigned j = 0;
             !restoring->restored[i].lost && j < restoring->restored[i].placement_count; j++) {
            struct entry *entry =
                find(&restoring->segments, restoring->restored[i].placements[j].segment);

            if (entry)
                entry->wanted = true;
        }
    restoring->by_id = calloc(restoring->segments.hash.count + 1, sizeof(struct entry *));
    if (!restoring->by_id)
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
    GB_LIST_EACH(&restoring->segments.all, link) {
        struct entry *entry = GB_CONTAINER(link, struct entry, of_all);

        if (entry->wanted)
            restoring->by_id[count++] = entry;
        else
            drop_segment(restoring, entry);
    }
    qsort(restoring->by_id, count, sizeof(struct entry *), compare_entries);
    for (size_t i = 0; i < count; i++)
        restore_segment(restoring, restoring->by_id[i]);
    return 0;
}

/* ---- places ---- */

struct place {
    struct restored *restored;
    struct placement *placement;
};

static int compare_places(const void *a, const void *b)
{
    const struct placement *left = ((const struct place *)a)->placement;
    const struct placement *right = ((const struct place *)b)->placement;

    if (left->segment != right->segment)
        return left->segment < right->segment ? -1 : 1;
    return (left->offset > right->offset) - (left->offset < right->offset);
}

static bool take_place(struct restoring *restoring, const struct place *place,
                       const struct place *before)
{
    struct placement *placement = place->placement;
    const struct entry *entry = find(&restoring->segments, placement->segment);
    struct gb_segment *segment = entry ? entry->segment : NULL;
    struct gb_range *after = before && before->placement->segment == placement->segment
                                 ? before->placement->range
                                 : NULL;

    if (!segment)
        return false;
    if (segment->kind != GB_SEGMENT_SHARED)
        return placement->offset == 0;
    return gb_arena_take(segment->domain->arena, segment->block, after, placement->offset,
                         placement->bytes, &placement->range) == 0;
}

/* In the order of their offsets, so that each is found where the last one ends. */
static int take_places(struct restoring *restoring, struct gb_error *error)
{
    size_t count = 0, room = 0;
    struct place *places;
    const struct place *before = NULL;

    for (size_t i = 0; i < restoring->count; i++)
        room += restoring->restored[i].placement_count;
    places = calloc(room + 1, sizeof(*places));
    if (!places)
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < restoring->count; i++) {
        struct restored *restored = &restoring->restored[i];

        for (unsigned j = 0; !restored->lost && j < restored->placement_count; j++)
            places[count++] = (struct place){restored, &restored->placements[j]};
    }
    qsort(places, count, sizeof(*places), compare_places);
    for (size_t i = 0; i < count; i++) {
        if (!take_place(restoring, &places[i], before))
            places[i].restored->lost = true;
        else if (places[i].placement->range)
            before = &places[i];
    }
    free(places);
    return 0;
}

/* ---- copies ---- */

static int compare_copies(const void *a, const void *b)
{
    const struct restored *const *left = a, *const *right = b;
    uint64_t x = (*left)->copies[GB_TIER_HOST].where, y = (*right)->copies[GB_TIER_HOST].where;

    return (x > y) - (x < y);
}

static void restore_copy(struct restoring *restoring, struct restored *restored,
                         enum gb_tier_kind kind, const struct gb_copy *after)
{
    struct gb_tier *tier = &restoring->state->spill->tiers[kind];
    struct copy *copy = &restored->copies[kind];

    if (!tier->capacity ||
        gb_copy_restore(tier, restored->storage, copy->bytes, copy->where, after, &copy->copy) < 0)
        return;
    restored->storage->copies[kind] = copy->copy;
}

/* Whether the host tier's memory is the earlier daemon's. */
static bool restore_tier(struct restoring *restoring)
{
    struct gb_tier *tier = &restoring->state->spill->tiers[GB_TIER_HOST];
    int fd = gb_notify_take(restoring->state->notify, GB_STATE_TIER_NAME);
    struct gb_error why;

    if (fd < 0)
        return false;
    if (!tier->pinned || gb_pinned_restore(tier->pinned, fd, &why) < 0) {
        close(fd);
        return false;
    }
    restoring->state->tier_restored = true;
    return true;
}

static int restore_copies(struct restoring *restoring, struct gb_error *error)
{
    bool host = restore_tier(restoring);
    const struct gb_copy *after = NULL;
    size_t count = 0;

    restoring->copied = calloc(restoring->count + 1, sizeof(struct restored *));
    if (!restoring->copied)
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < restoring->count; i++) {
        struct restored *restored = &restoring->restored[i];

        if (restored->storage && restored->copies[GB_TIER_DISK].there)
            restore_copy(restoring, restored, GB_TIER_DISK, NULL);
        if (restored->storage && restored->copies[GB_TIER_HOST].there && host)
            restoring->copied[count++] = restored;
    }
    qsort(restoring->copied, count, sizeof(struct restored *), compare_copies);
    for (size_t i = 0; i < count; i++) {
        restore_copy(restoring, restoring->copied[i], GB_TIER_HOST, after);
        if (restoring->copied[i]->copies[GB_TIER_HOST].copy)
            after = restoring->copied[i]->copies[GB_TIER_HOST].copy;
    }
    return 0;
}

/* ---- storages ---- */

static void free_places(struct restoring *restoring, struct restored *restored)
{
    for (unsigned i = 0; i < restored->placement_count; i++) {
        const struct entry *entry = find(&restoring->segments, restored->placements[i].segment);

        if (restored->placements[i].range)
            gb_range_free(entry->segment->domain->arena, restored->placements[i].range);
        restored->placements[i].range = NULL;
    }
}

static void restore_storage(struct restoring *restoring, struct restored *restored)
{
    struct gb_user *user = gb_user_get(&restoring->store->users, (uid_t)restored->uid);
    struct gb_storage *storage;
    unsigned room = restored->placement_count ? restored->placement_count : 1;

    storage = user ? gb_storage_new(restoring->store, &restored->key, user, room) : NULL;
    gb_user_unref(user);
    if (!storage) {
        free_places(restoring, restored);
        return;
    }
    storage->adopted = restored->adopted;
    storage->size = restored->size;
    for (unsigned i = 0; i < restored->placement_count; i++)
        gb_storage_place_in(storage,
                            find(&restoring->segments, restored->placements[i].segment)->segment,
                            restored->placements[i].range);
    gb_storage_charge(storage, restored->charged);
    storage->resident = restored->resident;
    if (!restored->resident) {
        storage->device->spilled++;
        storage->device->spilled_bytes += storage->size;
    }
    storage->number = restored->entry->number;
    gb_list_append(&restoring->state->storages, &storage->of_state);
    restored->storage = storage;
}

static void restore_storages(struct restoring *restoring)
{
    for (size_t i = 0; i < restoring->count; i++) {
        struct restored *restored = &restoring->restored[i];

        if (restored->lost)
            free_places(restoring, restored);
        else
            restore_storage(restoring, restored);
    }
}

/* ---- objects ---- */

/* A lease for those who will come; until then the object keeps its place. */
static int hold(struct restoring *restoring, struct gb_object *object)
{
    struct gb_state *state = restoring->state;

    if (state->object_count == restoring->object_room) {
        size_t room = restoring->object_room ? restoring->object_room * 2 : 1024;
        struct gb_object **objects = realloc((void *)state->objects, room * sizeof(*objects));

        if (!objects)
            return GPUBUF_E_NO_MEMORY;
        state->objects = objects;
        restoring->object_room = room;
    }
    if (!gb_lease_new(state->registry, object, &state->grace, false, restoring->now_ms))
        return GPUBUF_E_NO_MEMORY;
    state->objects[state->object_count++] = object;
    return 0;
}

static char *copy_text(const char *text, size_t length)
{
    char *copy = malloc(length + 1);

    if (!copy)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

/* 0; GPUBUF_E_INVALID; GPUBUF_E_NO_MEMORY. */
static int restore_object(struct restoring *restoring, struct restored *restored,
                          struct cursor *cursor)
{
    uint64_t version = take_u64(cursor);
    bool named = take_u8(cursor), pinned = take_u8(cursor);
    enum gb_evict evict = (enum gb_evict)take_u8(cursor);
    bool by_session = take_u8(cursor);
    uid_t uid = (uid_t)take_u64(cursor);
    gid_t gid = (gid_t)take_u64(cursor);
    unsigned mode = (unsigned)take_u64(cursor);
    uint64_t bytes = take_u64(cursor);
    int64_t created_ms = (int64_t)take_u64(cursor), ttl_ms = (int64_t)take_u64(cursor);
    int64_t left = (int64_t)take_u64(cursor) - restoring->wall_ms;
    size_t name_length, text_length;
    const char *name = take_text(cursor, &name_length);
    uint64_t brief = take_u64(cursor);
    const char *text = take_text(cursor, &text_length);
    struct gb_user *user;
    struct gb_object *object;

    if (cursor->failed || brief > text_length || version == 0)
        return GPUBUF_E_INVALID;
    raise_to(&restoring->next_version, version + 1);
    if (!restored->storage) {
        restoring->state->lost += named;
        return 0;
    }
    user = gb_user_get(&restoring->store->users, uid);
    object = user ? gb_object_new(restoring->state->registry, name, name_length,
                                  gb_storage_ref(restored->storage), user)
                  : NULL;
    gb_user_unref(user);
    if (!object) {
        if (user)
            gb_storage_unref(restoring->store, restored->storage);
        return GPUBUF_E_NO_MEMORY;
    }
    object->version = version;
    object->evict = evict;
    object->by_session = by_session;
    object->gid = gid;
    object->mode = mode;
    object->bytes = bytes;
    object->created_ms = created_ms;
    object->ttl_ms = ttl_ms;
    object->text = copy_text(text, text_length);
    object->text_length = text_length;
    object->brief_length = brief;
    if (!object->text || hold(restoring, object) < 0) {
        gb_object_discard(restoring->state->registry, object);
        return GPUBUF_E_NO_MEMORY;
    }
    /* Without the wall's clock going wild it has no more left than at first. */
    if (left > ttl_ms)
        left = ttl_ms;
    return gb_registry_restore(restoring->state->registry, object, named, pinned,
                               restoring->now_ms + (left > 0 ? (uint64_t)left : 0));
}

/* The storage's first reference is given back: its objects keep it. */
static int restore_objects(struct restoring *restoring, struct gb_error *error)
{
    int r = 0;

    for (size_t i = 0; i < restoring->count; i++) {
        struct restored *restored = &restoring->restored[i];
        struct cursor cursor = {restored->rest, restored->rest_length, false};
        struct gb_storage *storage = restored->storage;

        if (storage && !storage->resident && !storage->copies[GB_TIER_HOST] &&
            !storage->copies[GB_TIER_DISK]) {
            gb_list_remove(&storage->of_state);
            gb_storage_unref(restoring->store, storage);
            restored->storage = storage = NULL;
        }
        if (storage) /* also where none of its objects has a name any more */
            gb_storage_set_clean(storage);
        for (uint64_t j = 0; r == 0 && j < restored->objects; j++)
            r = restore_object(restoring, restored, &cursor);
        if (r == GPUBUF_E_INVALID) {
            gb_log(GB_LOG_ERROR, "record malformed",
                   GB_LOG_NUMBER("storage", restored->entry->number));
            restoring->state->lost++;
            r = 0;
        }
        if (storage && gb_list_empty(&storage->objects))
            gb_list_remove(&storage->of_state);
        gb_storage_unref(restoring->store, storage);
        if (r < 0)
            return gb_fail(error, r, "out of memory");
    }
    return 0;
}

static int compare_objects(const void *a, const void *b)
{
    const struct gb_object *const *left = a, *const *right = b;

    return ((*left)->version > (*right)->version) - ((*left)->version < (*right)->version);
}

/* ---- all of it ---- */

/* Nothing of what was handed over is handed out again before the grace period is over. */
static void close_blocks(struct restoring *restoring)
{
    for (unsigned i = 0; i < restoring->state->device_count; i++)
        GB_LIST_EACH(&restoring->state->devices[i]->segment_list, link) {
            struct gb_segment *segment = GB_CONTAINER(link, struct gb_segment, of_device);

            if (segment->block)
                gb_arena_close(segment->domain->arena, segment->block);
        }
}

static int rebuild(struct restoring *restoring, struct gb_error *error)
{
    struct gb_state *state = restoring->state;
    int r = read_storages(restoring, error);

    if (r == 0)
        r = restore_segments(restoring, error);
    if (r == 0)
        r = take_places(restoring, error);
    if (r < 0)
        return r;
    restore_storages(restoring);
    r = restore_copies(restoring, error);
    if (r == 0)
        r = restore_objects(restoring, error);
    if (r < 0)
        return r;
    gb_state_attach(state);
    gb_store_clear(restoring->store); /* segments of which everything was lost */
    close_blocks(restoring);
    if (state->object_count > 0)
        qsort((void *)state->objects, state->object_count, sizeof(*state->objects),
              compare_objects);
    raise_to(&restoring->store->next_segment, restoring->next_segment);
    raise_to(&state->registry->next_version, restoring->next_version);
    raise_to(&state->next_number, restoring->next_number);
    return 0;
}

static void clear(struct table *table)
{
    GB_LIST_EACH(&table->all, link)
        free(GB_CONTAINER(link, struct entry, of_all));
    gb_hash_end(&table->hash);
}

static void end(struct restoring *restoring)
{
    for (size_t i = 0; i < restoring->count; i++)
        free(restoring->restored[i].placements);
    free(restoring->restored);
    free((void *)restoring->by_id);
    free((void *)restoring->copied);
    clear(&restoring->segments);
    clear(&restoring->storages);
}

int gb_state_restore(struct gb_state *state, int fd, uint64_t now_ms, struct gb_error *error)
{
    struct restoring restoring = {
        .state = state, .store = state->registry->store, .now_ms = now_ms, .wall_ms = gb_wall_ms()};
    uint64_t began = gb_now_ms();
    int r;

    gb_list_init(&restoring.segments.all);
    gb_list_init(&restoring.storages.all);
    r = gb_journal_open(&state->journal, fd, read_record, &restoring, error);

    if (r == 0)
        r = rebuild(&restoring, error);
    end(&restoring);
    if (r < 0)
        return r;
    state->grace_until = now_ms + state->grace_ms;
    gb_log(state->lost ? GB_LOG_ERROR : GB_LOG_INFO, "restored",
           GB_LOG_NUMBER("objects", state->object_count), GB_LOG_NUMBER("lost", state->lost),
           GB_LOG_NUMBER("segments", state->registry->store->segments.count),
           GB_LOG_NUMBER("ms", gb_now_ms() - began));
    return 0;
}
