/*
 * Rebuilds the store and the registry from an earlier daemon's journal, which replay.h has read and
 * checked, and descriptors: segments get their descriptors, storages their places, objects their
 * names. An object is lost if its memory is not there (a descriptor or a device is missing, or
 * another object has its place) or its record is ignored; the log says so, and nothing else is
 * lost by that. While memory or descriptors are out it cannot be told: then the start fails, what
 * is kept stays, and the manager starts the next daemon. Afterwards the journal has just what was
 * restored. So an object that was lost stays lost, and a successor that finds the same journal and
 * descriptors restores the same objects.
 */
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/failpoint.h"
#include "daemon/base/failure.h"
#include "daemon/base/log.h"
#include "daemon/objects/orphan_writer.h"
#include "daemon/objects/stream.h"
#include "daemon/objects/text.h"
#include "daemon/spill/tiers.h"
#include "daemon/store/store.h"
#include "daemon/survive/replay.h"
#include "daemon/survive/state.h"

struct restoring {
    struct gb_state *state;
    struct gb_store *store;
    uint64_t now_ms;
    int64_t wall_ms;
    struct gb_replay replay;
    size_t ranges; /* that objects without a name hold */
};

/* As qsort(); what is in order already, as most of a journal is, is left as it is. */
static void sort(void *items, size_t count, size_t size, int (*compare)(const void *, const void *))
{
    char *at = items;

    for (size_t i = 1; i < count; i++, at += size)
        if (compare(at, at + size) > 0) {
            qsort(items, count, size, compare);
            return;
        }
}

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* ---- segments ---- */

static void log_lost(const struct gb_replayed_segment *replayed, const char *why)
{
    gb_log(GB_LOG_ERROR, "segment lost", GB_LOG_NUMBER("segment", replayed->id),
           GB_LOG_TEXT("why", why));
}

/* Makes a segment of its descriptor, which is taken over in any case. NULL, and why, on
   failure. */
static struct gb_segment *make_segment(struct gb_store *store,
                                       const struct gb_replayed_segment *replayed, int fd,
                                       struct gb_error *why)
{
    struct gb_device *device = replayed->key.device;
    struct gb_user *user = gb_user_get(&store->users, replayed->uid);
    struct gb_segment *segment;
    struct gb_memory memory;

    gb_fail_memory(why); /* the driver's error goes over it */
    if (!user ||
        device->ops->restore(device, replayed->handle, fd, replayed->bytes, &memory, why) < 0) {
        close(fd);
        gb_user_unref(user);
        return NULL;
    }
    store->next_segment = replayed->id;
    segment = gb_segment_new(store, replayed->kind, &replayed->key, user, replayed->bytes, &memory);
    gb_user_unref(user);
    if (segment)
        return segment;
    gb_fail_memory(why);
    device->ops->destroy(device, &memory);
    return NULL;
}

/* Restores a segment if a storage lies in it. If it has no memory its objects are lost. */
static int restore_segment(struct restoring *restoring, struct gb_replayed_segment *replayed,
                           struct gb_error *error)
{
    struct gb_error why = {.code = GPUBUF_E_INVALID};
    char name[24];
    int fd;

    gb_notify_extend(restoring->state->notify);
    gb_state_segment_fd_name(replayed->id, name);
    fd = gb_notify_acquire_fd(restoring->state->notify, name);
    if (replayed->wanted && fd >= 0)
        replayed->segment = make_segment(restoring->store, replayed, fd, &why);
    else if (fd >= 0)
        close(fd);
    if (replayed->segment)
        return 0;
    if (gb_is_passing(why.code))
        return gb_fail(error, why.code, "segment %" PRIu64 ": %s", replayed->id, why.message);
    if (replayed->disbelieved) /* replay.c has logged it */
        ;
    else if (!replayed->key.device)
        log_lost(replayed, "its device is not served any more");
    else if (replayed->wanted)
        log_lost(replayed, fd < 0 ? "its descriptor was not handed over" : why.message);
    gb_state_record_segment_freed(restoring->state, replayed->id);
    return 0;
}

static int restore_segments(struct restoring *restoring, struct gb_error *error)
{
    struct gb_replay *replay = &restoring->replay;
    int r = 0;

    for (size_t i = 0; i < replay->storage_count; i++) {
        const struct gb_replayed_storage *storage = &replay->storages[i];

        if (storage->fleeting)
            continue;
        for (unsigned j = 0; !storage->lost && j < storage->placement_count; j++)
            gb_replay_segment(replay, storage->placements[j].segment)->wanted = true;
    }
    for (size_t i = 0; r == 0 && i < replay->segment_count; i++)
        r = restore_segment(restoring, &replay->segments[i], error);
    return r;
}

/* Of the storages that ended with the daemon only ranges of shared segments matter, since those
   could be handed out again; segments of their own are not. All others count as lost. */
static void pass_fleeting(struct gb_replay *replay)
{
    for (size_t i = 0; i < replay->storage_count; i++) {
        struct gb_replayed_storage *storage = &replay->storages[i];
        const struct gb_replayed_segment *segment =
            storage->lost || storage->placement_count != 1
                ? NULL
                : gb_replay_segment(replay, storage->placements[0].segment);

        if (storage->fleeting)
            storage->lost = !segment || !segment->segment || segment->kind != GB_SEGMENT_SHARED;
    }
}

/* ---- places ---- */

/* A place that a record claims: a storage's placement in a segment, or its copy in a tier. */
struct place {
    struct gb_replayed_storage *storage;
    struct gb_replayed_placement *placement; /* NULL: a copy */
    uint64_t segment, offset, end;
    bool beaten; /* another storage has the place */
};

/* By segment and offset, then by the age of the record: storages lie in that order in their
   array. */
static int compare_places(const void *a, const void *b)
{
    const struct place *left = a, *right = b;
    int r = compare(left->segment, right->segment);

    if (r == 0)
        r = compare(left->offset, right->offset);
    return r ? r : (left->storage > right->storage) - (left->storage < right->storage);
}

/* Of two storages with the same place the one that was recorded later has it. But one that ended
   with the daemon never takes another's place. */
static bool beats(const struct place *place, const struct place *other)
{
    if (place->storage->fleeting != other->storage->fleeting)
        return other->storage->fleeting;
    return place->storage > other->storage;
}

/* Sorts the places, and marks those that are beaten. */
static void resolve_places(struct place *places, size_t count)
{
    struct place *last = NULL;

    sort(places, count, sizeof(*places), compare_places);
    for (size_t i = 0; i < count; i++) {
        struct place *place = &places[i];

        if (last && last->segment == place->segment && place->offset < last->end) {
            place->beaten = !beats(place, last);
            last->beaten = !place->beaten;
        }
        if (!place->beaten)
            last = place;
    }
}

/* The end of a place, rounded up to the granule; a place of 0 bytes takes one granule. */
static uint64_t end_of(uint64_t offset, uint64_t bytes)
{
    return offset + gb_round_up(bytes ? bytes : 1, GB_ARENA_GRANULE);
}

/* 0; 1: it cannot be had; GPUBUF_E_NO_MEMORY. */
static int reserve_place(struct restoring *restoring, const struct place *place,
                         const struct place *before)
{
    struct gb_replayed_placement *placement = place->placement;
    struct gb_replayed_segment *replayed =
        gb_replay_segment(&restoring->replay, placement->segment);
    struct gb_segment *segment = replayed->segment;
    bool whole = replayed->kind != GB_SEGMENT_SHARED;
    struct gb_range *after = before && before->placement->segment == placement->segment
                                 ? before->placement->range
                                 : NULL;

    if (!segment || (whole && replayed->taken))
        return 1;
    if (whole) {
        replayed->taken = true;
        return 0;
    }
    return gb_arena_alloc_at(segment->domain->arena, segment->block, after, placement->offset,
                             placement->bytes, &placement->range);
}

static struct place place_of(const struct gb_replay *replay, struct gb_replayed_storage *storage,
                             unsigned i)
{
    struct gb_replayed_placement *placement = &storage->placements[i];
    bool whole = gb_replay_segment(replay, placement->segment)->kind != GB_SEGMENT_SHARED;

    return (struct place){.storage = storage,
                          .placement = placement,
                          .segment = placement->segment,
                          .offset = whole ? 0 : placement->offset,
                          .end = whole ? UINT64_MAX : end_of(placement->offset, placement->bytes)};
}

/* Takes all places, in the order of their offsets, so that the arena finds each after the last. */
static int reserve_places(struct restoring *restoring, struct gb_error *error)
{
    struct gb_replay *replay = &restoring->replay;
    size_t count = 0, room = 0;
    struct place *places;
    const struct place *before = NULL;
    int r = 0;

    for (size_t i = 0; i < replay->storage_count; i++)
        room += replay->storages[i].placement_count;
    places = calloc(room + 1, sizeof(*places));
    if (!places)
        return gb_fail_memory(error);
    for (size_t i = 0; i < replay->storage_count; i++) {
        struct gb_replayed_storage *replayed = &replay->storages[i];

        for (unsigned j = 0; !replayed->lost && j < replayed->placement_count; j++)
            places[count++] = place_of(replay, replayed, j);
    }
    resolve_places(places, count);
    for (size_t i = 0; r >= 0 && i < count; i++) {
        r = places[i].beaten ? 1 : reserve_place(restoring, &places[i], before);
        if (r != 0)
            places[i].storage->lost = true;
        else if (places[i].placement->range)
            before = &places[i];
    }
    free(places);
    return r < 0 ? gb_fail_memory(error) : 0;
}

/* ---- copies ---- */

static int restore_copy(struct restoring *restoring, struct gb_replayed_storage *replayed,
                        enum gb_tier_kind kind, const struct gb_copy *after)
{
    struct gb_tier *tier = &restoring->state->spill->tiers[kind];
    struct gb_replayed_copy *copy = &replayed->copies[kind];
    int r = tier->capacity ? gb_copy_restore(tier, replayed->storage, copy->bytes, copy->where,
                                             after, &copy->copy)
                           : GPUBUF_E_INVALID;

    if (r < 0)
        return gb_is_passing(r) ? r : 0;
    copy->copy->owner = replayed->number;
    replayed->storage->copies[kind] = copy->copy;
    return 0;
}

/* Takes the earlier daemon's memory of the host tier: 1. 0: there is none, or it is of no use. */
static int restore_tier(struct restoring *restoring, struct gb_error *error)
{
    struct gb_tier *tier = &restoring->state->spill->tiers[GB_TIER_HOST];
    int fd = gb_notify_acquire_fd(restoring->state->notify, GB_STATE_TIER_NAME);
    int r;

    if (fd < 0)
        return 0;
    r = tier->pinned ? gb_pinned_restore(tier->pinned, fd, error) : GPUBUF_E_INVALID;
    if (r < 0)
        close(fd);
    if (gb_is_passing(r))
        return r;
    if (r < 0) /* the new memory gets the name */
        gb_state_unstore_fd(restoring->state, GB_STATE_TIER_NAME);
    restoring->state->tier_restored = r == 0;
    return r == 0;
}

/* Restores the copies of one tier. The place of a copy that has a file of its own is the file's
   number. */
static int restore_copies_in(struct restoring *restoring, enum gb_tier_kind kind,
                             struct gb_error *error)
{
    struct gb_replay *replay = &restoring->replay;
    const struct gb_tier *tier = &restoring->state->spill->tiers[kind];
    struct place *places = calloc(replay->storage_count + 1, sizeof(*places));
    const struct gb_copy *after = NULL;
    bool files = kind == GB_TIER_DISK;
    size_t count = 0;
    int r = 0;

    if (!places)
        return gb_fail_memory(error);
    for (size_t i = 0; i < replay->storage_count; i++) {
        struct gb_replayed_storage *replayed = &replay->storages[i];
        const struct gb_replayed_copy *copy = &replayed->copies[kind];

        if (replayed->storage && !replayed->fleeting && copy->there)
            places[count++] =
                (struct place){.storage = replayed,
                               .offset = copy->where,
                               .end = copy->where + (files && copy->where < GB_PACK_BASE
                                                         ? 1
                                                         : gb_tier_occupies(tier, copy->bytes))};
    }
    resolve_places(places, count);
    for (size_t i = 0; r == 0 && i < count; i++) {
        if (places[i].beaten)
            continue;
        r = restore_copy(restoring, places[i].storage, kind, after);
        if (places[i].storage->copies[kind].copy)
            after = places[i].storage->copies[kind].copy;
    }
    free(places);
    return r < 0 ? gb_fail_memory(error) : 0;
}

/* Whether a storage lies in that tier and nowhere else. */
static bool lies_only_in(const struct gb_replayed_storage *replayed, enum gb_tier_kind kind)
{
    return !replayed->disbelieved && !replayed->resident && replayed->copies[kind].there &&
           !replayed->copies[!kind].there;
}

/* Takes the disk tier for out of order if objects should lie there, and no daemon has ever had the
   directory: another one is there in its place. */
static void check_directory(struct restoring *restoring)
{
    struct gb_spill *spill = restoring->state->spill;
    const struct gb_spill_dir *dir = spill->tiers[GB_TIER_DISK].dir;
    struct gb_replay *replay = &restoring->replay;
    struct gb_error why;

    if (!spill->tiers[GB_TIER_DISK].capacity || !gb_spill_dir_is_new(dir))
        return;
    for (size_t i = 0; i < replay->storage_count; i++)
        if (lies_only_in(&replay->storages[i], GB_TIER_DISK)) {
            gb_fail(
                &why, GPUBUF_E_SYSTEM,
                "objects lie in the tier's directory, and no daemon has had %s before: mount "
                "the former one there; to give these objects up, make a file gpubufd.lock in it",
                spill->outage.settings->dir);
            gb_spill_dir_leave(dir);
            gb_spill_begin_outage(spill, &why);
            return;
        }
}

static int restore_copies(struct restoring *restoring, struct gb_error *error)
{
    int host = restore_tier(restoring, error), r;

    if (host < 0)
        return host;
    check_directory(restoring);
    r = restore_copies_in(restoring, GB_TIER_DISK, error);
    return r == 0 && host ? restore_copies_in(restoring, GB_TIER_HOST, error) : r;
}

/* ---- storages ---- */

static struct gb_segment *segment_of(const struct restoring *restoring,
                                     const struct gb_replayed_placement *placement)
{
    return gb_replay_segment(&restoring->replay, placement->segment)->segment;
}

static void free_places(struct restoring *restoring, struct gb_replayed_storage *replayed)
{
    for (unsigned i = 0; i < replayed->placement_count; i++) {
        struct gb_replayed_placement *placement = &replayed->placements[i];

        if (placement->range)
            gb_range_free(segment_of(restoring, placement)->domain->arena, placement->range);
        placement->range = NULL;
    }
}

static int restore_storage(struct restoring *restoring, struct gb_replayed_storage *replayed)
{
    struct gb_user *user = gb_user_get(&restoring->store->users, replayed->uid);
    struct gb_storage *storage;
    unsigned room = replayed->placement_count ? replayed->placement_count : 1;

    gb_notify_extend(restoring->state->notify);
    storage = user ? gb_storage_new(restoring->store, &replayed->key, user, room) : NULL;
    gb_user_unref(user);
    if (!storage) {
        free_places(restoring, replayed);
        return GPUBUF_E_NO_MEMORY;
    }
    storage->adopted = replayed->adopted;
    storage->size = replayed->size;
    for (unsigned i = 0; i < replayed->placement_count; i++)
        gb_storage_place_in(storage, segment_of(restoring, &replayed->placements[i]),
                            replayed->placements[i].range);
    gb_stake_bytes(storage, replayed->fleeting ? 0 : replayed->charged);
    storage->resident = replayed->resident;
    if (!replayed->resident)
        gb_storage_count_away(storage, 1);
    storage->number = replayed->number;
    gb_list_append(&restoring->state->storages, &storage->of_state);
    replayed->storage = storage;
    return 0;
}

/* Storages keep the places that were taken for them; after a failure, before (`r`) or here, the
   rest are freed. */
static int restore_storages(struct restoring *restoring, int r, struct gb_error *error)
{
    struct gb_replay *replay = &restoring->replay;

    for (size_t i = 0; i < replay->storage_count; i++) {
        struct gb_replayed_storage *replayed = &replay->storages[i];

        if (replayed->lost || r < 0)
            free_places(restoring, replayed);
        else
            r = restore_storage(restoring, replayed);
    }
    return r < 0 ? gb_fail_memory(error) : 0;
}

/* ---- objects ---- */

static char *copy_text(const char *text, size_t length)
{
    char *copy = malloc(length + 1);

    if (!copy)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

/* Makes an object of its record; it has no name yet. NULL if memory is out. */
static struct gb_object *make_object(struct restoring *restoring,
                                     const struct gb_replayed_object *replayed,
                                     struct gb_storage *storage)
{
    struct gb_registry *registry = restoring->state->registry;
    struct gb_user *user = gb_user_get(&restoring->store->users, replayed->uid);
    struct gb_object *object =
        user ? gb_object_new(registry, replayed->name, replayed->name_length, storage, user) : NULL;
    char *text;

    gb_user_unref(user);
    if (!object)
        return NULL;
    gb_storage_ref(storage);
    object->version = replayed->version;
    object->line = replayed->line;
    object->evict = replayed->evict;
    object->by_session = replayed->by_session;
    object->gid = replayed->gid;
    object->mode = replayed->mode;
    object->bytes = replayed->bytes;
    object->created_ms = replayed->created_ms;
    object->ttl_ms = replayed->ttl_ms;
    text = copy_text(replayed->text, replayed->text_length);
    if (text)
        gb_object_set_text(object, text, replayed->text_length, replayed->brief_length);
    object->first = (struct gb_first){replayed->first_segment, replayed->first_offset};
    if (object->live)
        object->live->generation = replayed->generation;
    if (text && gb_state_keep_object(restoring->state, object, restoring->now_ms) == 0)
        return object;
    gb_object_discard(registry, object);
    return NULL;
}

/* A page of a stream, as the manager has handed it over. */
static struct gb_stream_page acquire_page(struct restoring *restoring, uint64_t id)
{
    struct gb_stream_page page = {id, -1};
    char name[24];

    gb_state_segment_fd_name(id, name);
    if (id)
        page.fd = gb_notify_acquire_fd(restoring->state->notify, name);
    return page;
}

static int restore_stream(struct restoring *restoring, const struct gb_replayed_object *replayed,
                          struct gb_object *object)
{
    const struct gb_stream_page roster = acquire_page(restoring, replayed->roster);
    const struct gb_stream_page front = acquire_page(restoring, replayed->front);

    return replayed->roster ? gb_stream_restore(object, &roster, &front, replayed->torn) : 0;
}

/* Those who wrote the object, or took part in its stream, may do so still: its clients come back
   for their leases. */
static int restore_leases(struct restoring *restoring, const struct gb_replayed_object *replayed,
                          struct gb_object *object)
{
    int r = restore_stream(restoring, replayed, object);

    for (uint64_t i = 0; i < replayed->lease_count && r == 0; i++) {
        struct gb_live_lease former = gb_replay_lease(replayed, i);
        struct gb_lease *lease = NULL;

        r = gb_orphan_writer_restore(restoring->state->registry, &former, object, restoring->now_ms,
                                     &lease);
        /* Pages of a torn stream stay with those that nobody takes, which the manager forgets. */
        if (lease && !(object->live->stream && object->live->stream->torn))
            r = gb_stream_restore_part(lease, &former, acquire_page(restoring, former.page).fd);
    }
    return r;
}

static int restore_object(struct restoring *restoring, const struct gb_replayed_object *replayed,
                          struct gb_storage *storage)
{
    struct gb_object *object = make_object(restoring, replayed, storage);
    int64_t left = replayed->expires_ms - restoring->wall_ms;

    if (!object || restore_leases(restoring, replayed, object) < 0)
        return GPUBUF_E_NO_MEMORY;
    /* More than the whole time to live can only be left if the wall clock was set back. */
    if (left > replayed->ttl_ms)
        left = replayed->ttl_ms;
    return gb_registry_restore(restoring->state->registry, object, replayed->named,
                               replayed->pinned,
                               restoring->now_ms + (left > 0 ? (uint64_t)left : 0));
}

/* Holds the range of a storage that ended with the daemon until the grace period is over, by an
   object without a name: its producer may still write to it. */
static int hold_range(struct restoring *restoring, struct gb_storage *storage)
{
    struct gb_state *state = restoring->state;
    struct gb_object *object = gb_object_new(state->registry, "", 0, storage, storage->maker.user);

    if (!object)
        return GPUBUF_E_NO_MEMORY;
    gb_storage_ref(storage);
    object->bytes = storage->size;
    if (gb_state_keep_object(state, object, restoring->now_ms) == 0) {
        restoring->ranges++;
        return 0;
    }
    gb_object_discard(state->registry, object);
    return GPUBUF_E_NO_MEMORY;
}

/* Holds what is left of a restored segment in the same way. NULL if memory is out. */
static struct gb_storage *hold_rest(struct restoring *restoring, struct gb_segment *segment,
                                    uint64_t bytes)
{
    struct gb_arena *arena = segment->domain->arena;
    struct gb_storage *storage =
        gb_storage_new(restoring->store, &segment->domain->key, segment->user, 1);
    struct gb_range *range;

    if (!storage || gb_arena_alloc(arena, bytes, &range) != 0) {
        gb_storage_unref(restoring->store, storage);
        return NULL;
    }
    storage->size = bytes;
    storage->resident = true;
    gb_storage_place_in(storage, gb_range_owner(range), range);
    if (hold_range(restoring, storage) == 0)
        return storage;
    gb_storage_unref(restoring->store, storage);
    return NULL;
}

/* Holds all that is free in restored segments, since a record of what lay there may be lost. It is
   recorded, so that a successor holds it, too. */
static int hold_torn(struct restoring *restoring, struct gb_error *error)
{
    struct gb_replay *replay = &restoring->replay;
    struct gb_arena_stats stats;

    for (size_t i = 0; replay->torn && i < replay->segment_count; i++) {
        struct gb_segment *segment = replay->segments[i].segment;

        while (segment && segment->kind == GB_SEGMENT_SHARED &&
               (gb_arena_stats(segment->domain->arena, &stats), stats.largest_free > 0)) {
            struct gb_storage *storage = hold_rest(restoring, segment, stats.largest_free);

            if (!storage)
                return gb_fail_memory(error);
            restoring->store->on_storage(restoring->store->on_change_arg, storage);
            gb_storage_unref(restoring->store, storage);
        }
    }
    return 0;
}

/* The restored storage; NULL, and its objects are counted as lost, if its content is nowhere. */
static struct gb_storage *release_if_lost(struct restoring *restoring,
                                          struct gb_replayed_storage *replayed)
{
    struct gb_storage *storage = replayed->storage;

    if (storage && !storage->resident && !storage->copies[GB_TIER_HOST] &&
        !storage->copies[GB_TIER_DISK]) {
        gb_list_remove(&storage->of_state);
        gb_storage_unref(restoring->store, storage);
        replayed->storage = storage = NULL;
    }
    for (uint64_t i = 0; !storage && i < replayed->object_count; i++)
        restoring->state->lost += replayed->objects[i].named;
    return storage;
}

/* Restores the objects, unless `r` says that something has failed before. They keep their storages:
   the first reference to each is dropped in any case. */
static int restore_objects(struct restoring *restoring, int r, struct gb_error *error)
{
    struct gb_replay *replay = &restoring->replay;
    struct gb_names *names = &restoring->state->registry->names;
    size_t count = 0;

    for (size_t i = 0; i < replay->storage_count; i++)
        count += replay->storages[i].object_count;
    gb_hash_reserve(&names->table, count);
    names->unordered = true;
    for (size_t i = 0; i < replay->storage_count; i++) {
        struct gb_replayed_storage *replayed = &replay->storages[i];
        struct gb_storage *storage =
            replayed->fleeting || r < 0 ? replayed->storage : release_if_lost(restoring, replayed);

        gb_notify_extend(restoring->state->notify);
        if (storage && replayed->fleeting && r == 0)
            r = hold_range(restoring, storage);
        else if (storage && r == 0) /* even if none of its objects has a name any more */
            gb_storage_set_clean(storage);
        for (uint64_t j = 0; storage && !replayed->fleeting && r == 0 && j < replayed->object_count;
             j++)
            r = restore_object(restoring, &replayed->objects[j], storage);
        if (storage && gb_list_empty(&storage->objects))
            gb_list_remove(&storage->of_state);
        gb_storage_unref(restoring->store, storage);
    }
    return r < 0 || !gb_names_order(names) ? gb_fail_memory(error) : 0;
}

/* ---- objects that ended with the earlier daemon ---- */

static int withdraw(struct restoring *restoring, const struct gb_replayed_storage *storage,
                    const struct gb_replayed_object *object)
{
    struct gb_state *state = restoring->state;
    struct gb_writer *writer = &state->writer;
    size_t note = gb_text_note(object->text, object->text_length);
    const struct gb_traits traits = {.share = storage->key.share,
                                     .bytes = object->bytes,
                                     .mode = object->mode,
                                     .uid = object->uid,
                                     .gid = object->gid,
                                     .created_ms = object->created_ms,
                                     .evict = object->evict,
                                     .by_session = object->by_session};
    struct gb_withdrawn *withdrawn;

    gb_writer_reset(writer);
    gb_write(writer, object->name, object->name_length);
    gb_write(writer, object->text + note, object->text_length - note);
    gb_traits_write(writer, &traits);
    withdrawn = writer->failed ? NULL : malloc(sizeof(*withdrawn) + writer->length);
    if (!withdrawn)
        return GPUBUF_E_NO_MEMORY;
    *withdrawn = (struct gb_withdrawn){.number = storage->number,
                                       .version = object->version,
                                       .uid = object->uid,
                                       .gid = object->gid,
                                       .mode = object->mode,
                                       .name_length = object->name_length,
                                       .text_length = writer->length - object->name_length};
    memcpy(withdrawn->name, writer->data, writer->length);
    state->withdrawn[state->withdrawn_count++] = withdrawn;
    return 0;
}

static int restore_fleeting(struct restoring *restoring, struct gb_error *error)
{
    const struct gb_replay *replay = &restoring->replay;
    struct gb_state *state = restoring->state;
    size_t room = 0;
    int r = 0;

    for (size_t i = 0; i < replay->storage_count; i++)
        room += replay->storages[i].fleeting ? replay->storages[i].object_count : 0;
    state->withdrawn = calloc(room + 1, sizeof(*state->withdrawn));
    for (size_t i = 0; state->withdrawn && i < replay->storage_count; i++) {
        const struct gb_replayed_storage *replayed = &replay->storages[i];

        for (uint64_t j = 0; replayed->fleeting && r == 0 && j < replayed->object_count; j++)
            r = withdraw(restoring, replayed, &replayed->objects[j]);
    }
    return state->withdrawn && r == 0 ? 0 : gb_fail_memory(error);
}

static int compare_objects(const void *a, const void *b)
{
    const struct gb_object *const *left = a, *const *right = b;

    return compare((*left)->version, (*right)->version);
}

/* ---- all of it ---- */

static bool is_live_as_recorded(const struct gb_replayed_object *recorded,
                                const struct gb_object *object)
{
    const struct gb_live *live = object->live;
    const struct gb_stream *stream = live ? live->stream : NULL;

    if (!live)
        return true;
    return recorded->lease_count == live->writers + gb_stream_readers(stream) &&
           recorded->torn == (stream && stream->torn) &&
           (recorded->roster != 0) == (stream != NULL);
}

/* Whether the restored storage is as its record says. It is not if a copy could not be restored; or
   if the daemon died before an object lost its name to a later version, so that two records had the
   name; or if some that had leases on a live one have ended. */
static bool is_as_recorded(const struct gb_replayed_storage *replayed)
{
    const struct gb_replayed_object *recorded = replayed->objects;

    if (replayed->amended)
        return false;
    for (int i = 0; i < GB_TIERS; i++)
        if (replayed->copies[i].there && !replayed->storage->copies[i])
            return false;
    GB_LIST_EACH(&replayed->storage->objects, struct gb_object, object, of_storage) {
        if (object->named != recorded->named || !is_live_as_recorded(recorded, object))
            return false;
        recorded++;
    }
    return true;
}

/* Whether the storage is lost only because this daemon has no disk tier: a later one that has the
   tier can restore it. */
static bool is_on_disk_only(const struct gb_state *state,
                            const struct gb_replayed_storage *replayed)
{
    return !replayed->storage && !replayed->disbelieved && !replayed->resident &&
           replayed->copies[GB_TIER_DISK].there && !state->spill->tiers[GB_TIER_DISK].capacity;
}

/* Has the storage's record go into new journals, too. */
static int keep_away(struct restoring *restoring, const struct gb_replayed_storage *replayed)
{
    size_t length;
    const void *record = gb_replay_record(&restoring->replay, replayed->number, &length);

    restoring->state->spill->outage.owed = true;
    return gb_state_add_away(restoring->state, replayed->number, record, length);
}

/* Clears those that have ended from streams. */
static void end_parts(struct gb_storage *storage)
{
    GB_LIST_EACH(&storage->objects, struct gb_object, object, of_storage)
        gb_stream_restored(object);
}

/* Records which storages are lost, and those that are not as their records say. */
static int note_storages(struct restoring *restoring, struct gb_error *error)
{
    struct gb_state *state = restoring->state;
    struct gb_store *store = restoring->store;

    for (size_t i = 0; i < restoring->replay.storage_count; i++) {
        const struct gb_replayed_storage *replayed = &restoring->replay.storages[i];

        gb_notify_extend(state->notify);
        if (is_on_disk_only(state, replayed)) {
            if (keep_away(restoring, replayed) < 0)
                return gb_fail_memory(error);
            continue;
        }
        if (replayed->fleeting && (replayed->storage || replayed->object_count > 0))
            continue; /* its record is still needed */
        if (!replayed->storage) {
            gb_state_record_storage_freed(state, replayed->number);
            continue;
        }
        end_parts(replayed->storage);
        if (!is_as_recorded(replayed))
            store->on_storage(store->on_change_arg, replayed->storage);
    }
    return 0;
}

static int rebuild(struct restoring *restoring, struct gb_error *error)
{
    struct gb_state *state = restoring->state;
    const struct gb_replay *replay = &restoring->replay;
    int r;

    GB_FAILPOINT(RESTORE_READ);
    r = restore_segments(restoring, error);
    if (r < 0)
        return r;
    pass_fleeting(&restoring->replay);
    GB_FAILPOINT(RESTORE_SEGMENTS);
    r = reserve_places(restoring, error);
    r = restore_storages(restoring, r, error);
    if (r == 0)
        r = restore_copies(restoring, error);
    r = restore_objects(restoring, r, error);
    if (r == 0)
        r = restore_fleeting(restoring, error);
    if (r < 0)
        return r;
    gb_raise_to(&restoring->store->next_segment, replay->next_segment);
    gb_raise_to(&state->registry->next_version, replay->next_version);
    gb_raise_to(&state->next_number, replay->next_number);
    gb_state_record_changes(state);
    state->lost += replay->lost;
    state->disbelieved = replay->disbelieved > 0;
    r = note_storages(restoring, error);
    if (r == 0)
        r = hold_torn(restoring, error);
    if (r < 0)
        return r;
    gb_store_clear(restoring->store); /* frees segments in which nothing was restored */
    sort((void *)state->objects, state->object_count, sizeof(*state->objects), compare_objects);
    for (size_t i = 0; i < state->object_count; i++)
        gb_registry_restore_held(state->registry, state->objects[i]);
    GB_FAILPOINT(RESTORE_DONE);
    return 0;
}

int gb_state_restore(struct gb_state *state, int fd, uint64_t now_ms, struct gb_error *error)
{
    struct restoring restoring = {
        .state = state, .store = state->registry->store, .now_ms = now_ms, .wall_ms = gb_wall_ms()};
    uint64_t began = gb_now_ms();
    int r = gb_replay_read(&restoring.replay, &state->journal, fd, state->notify, state->devices,
                           state->device_count, error);

    if (r == 0)
        r = rebuild(&restoring, error);
    gb_replay_end(&restoring.replay);
    if (r < 0)
        return r;
    (void)malloc_trim(0); /* the replay took half as much again as stays */
    state->grace_until = now_ms + state->grace_ms;
    gb_log(state->lost ? GB_LOG_ERROR : GB_LOG_INFO, "objects restored",
           GB_LOG_NUMBER("objects", state->object_count - restoring.ranges),
           GB_LOG_NUMBER("lost", state->lost), GB_LOG_NUMBER("withdrawn", state->withdrawn_count),
           GB_LOG_NUMBER("segments", state->registry->store->segments.count),
           GB_LOG_NUMBER("ms", gb_now_ms() - began));
    return 0;
}
