#include "daemon/spill/spill.h"

#include <assert.h>
#include <stdlib.h>

#include "daemon/base/clock.h"
#include "daemon/base/failpoint.h"
#include "daemon/base/log.h"
#include "daemon/base/probes.h"
#include "daemon/objects/text.h"
#include "daemon/spill/tiers.h"
#include "daemon/store/store.h"

/* Dropped objects are logged once in this time. */
#define TELL_MS 60000

/* ---- leaving ---- */

static struct gb_copy *best_copy(const struct gb_storage *storage)
{
    return storage->copies[GB_TIER_HOST] ? storage->copies[GB_TIER_HOST]
                                         : storage->copies[GB_TIER_DISK];
}

void gb_spill_drop(struct gb_spill *spill, struct gb_storage *storage)
{
    struct gb_losses *losses = &spill->losses;

    assert(!storage->needs);
    GB_LIST_EACH(&storage->objects, struct gb_object, object, of_storage)
        losses->objects += object->named;
    losses->bytes += storage->size;
    gb_registry_evict(spill->registry, storage);
}

uint64_t gb_spill_due(const struct gb_spill *spill)
{
    const struct gb_outage *outage = &spill->outage;
    uint64_t at = spill->losses.objects > 0 ? spill->losses.log_at : UINT64_MAX;

    return outage->lasts && !outage->checking && outage->check_at < at ? outage->check_at : at;
}

static void log_losses(struct gb_spill *spill, uint64_t now)
{
    struct gb_losses *losses = &spill->losses;

    gb_log(GB_LOG_INFO, "dropped",
           GB_LOG_TEXT("why", "there was no room, and they were published with evict=drop"),
           GB_LOG_NUMBER("objects", losses->objects), GB_LOG_NUMBER("bytes", losses->bytes));
    *losses = (struct gb_losses){.log_at = now + TELL_MS};
}

static void notify(struct gb_spill *spill, struct gb_storage *storage, enum gb_event event)
{
    struct gb_registry *registry = spill->registry;

    GB_LIST_EACH(&storage->objects, struct gb_object, object, of_storage) {
        if (object->current && registry->on_event)
            registry->on_event(registry->on_event_arg, event, object);
    }
}

bool gb_spill_vacate(struct gb_spill *spill, struct gb_storage *storage)
{
    struct gb_device *device = storage->key.device;

    GB_FAILPOINT(VACATE_BEGIN);
    if (gb_storage_relocate(storage, true, NULL) < 0)
        return false;
    device->so_far.spills++;
    device->so_far.spills_bytes += storage->bytes;
    /* Recorded first: a successor must not look for it in a segment that may be freed now. */
    storage->resident = storage->adopted = false;
    gb_storage_set_clean(storage);
    gb_storage_vacate(spill->registry->store, storage);
    GB_FAILPOINT(VACATE_DONE);
    notify(spill, storage, GB_EVENT_SPILLED);
    return true;
}

void gb_spill_forget(struct gb_copy *copy)
{
    struct gb_storage *storage = copy->storage;

    storage->copies[copy->tier->kind] = NULL;
    gb_storage_set_clean(storage); /* records it before the file is removed */
    gb_copy_free(copy);
    GB_FAILPOINT(FORGET_DONE);
}

/* Frees a copy that the caller holds, and drops the hold. */
static void give_up_copy(struct gb_copy *copy)
{
    gb_copy_free(copy);
    gb_copy_drop(copy);
}

/* ---- moves ---- */

static struct gb_move *move_new(struct gb_spill *spill, struct gb_storage *storage,
                                struct gb_copy *from, struct gb_copy *to,
                                void (*done)(struct gb_job *job))
{
    struct gb_move *move = calloc(1, sizeof(*move));

    if (!move)
        return NULL;
    move->owner = spill;
    move->storage = gb_storage_ref(storage);
    move->from = from;
    move->to = to;
    move->stop = &spill->stop;
    move->job = (struct gb_job){.work = gb_move_work, .done = done};
    if (from)
        gb_copy_hold(from);
    spill->moves++;
    return move;
}

static void keep_failure(struct gb_storage *storage, const struct gb_error *error, bool stuck)
{
    if (!storage->failure)
        storage->failure = calloc(1, sizeof(*storage->failure));
    if (!storage->failure)
        return;
    storage->failure->error = *error;
    if (stuck)
        storage->failure->stuck_ms = gb_now_ms();
}

static void note_failure(const struct gb_move *move)
{
    struct gb_tier *tier = move->to ? move->to->tier : move->from->tier;
    struct gb_spill *spill = move->owner;

    if (gb_device_cuda_lost(move->error.cuda))
        move->storage->key.device->lost = true;
    keep_failure(move->storage, &move->error, move->to && !move->from && !move->tier_failed);
    if (!move->tier_failed || atomic_load(move->stop))
        return;
    tier->failures++;
    if (move->to) {
        tier->failing_until = gb_now_ms() + GB_FAILING_MS;
        spill->faults[tier->kind] = move->error;
    }
    gb_log(GB_LOG_WARNING, "tier failed", GB_LOG_TEXT("tier", gb_tier_name(tier->kind)),
           GB_LOG_TEXT("why", move->error.message));
}

static void move_end(struct gb_move *move)
{
    struct gb_spill *spill = move->owner;
    struct gb_storage *storage = move->storage;

    spill->moves--;
    gb_spill_changed(spill);
    spill->moved(spill->moved_arg, storage);
    gb_storage_unref(spill->registry->store, storage);
    free(move);
}

/* Gives the copy that was written to its storage; the caller has it recorded. False if the move
   failed: the copy is given up. */
static bool take_copy(struct gb_move *move)
{
    struct gb_spill *spill = move->owner;
    struct gb_copy *to = move->to;
    struct gb_tier *tier = to->tier;

    if (move->result < 0) {
        note_failure(move);
        give_up_copy(to);
        return false;
    }
    if (move->storage->failure)
        move->storage->failure->stuck_ms = 0;
    tier->failing_until = 0;
    spill->faults[tier->kind].code = 0;
    tier->writes++;
    tier->written_bytes += to->bytes;
    tier->write_us += move->microseconds;
    GB_PROBE4(move, "spill", gb_tier_name(tier->kind), to->bytes, move->microseconds);
    move->storage->copies[tier->kind] = to;
    gb_copy_complete(to);
    return true;
}

static void on_copied_out(struct gb_job *job)
{
    struct gb_move *move = GB_CONTAINER(job, struct gb_move, job);
    struct gb_storage *storage = move->storage;
    bool copied, leaves;

    storage->out = NULL;
    storage->key.device->leaving -= move->bytes;
    copied = take_copy(move);
    GB_FAILPOINT(OUT_TAKEN);
    leaves = copied && move->leave && storage->resident && storage->recent.holds == 0 &&
             gb_list_empty(&storage->idles) && !gb_list_empty(&storage->objects);
    /* For a storage that leaves one record is enough: gb_spill_vacate() writes it. */
    if (copied && !(leaves && gb_spill_vacate(move->owner, storage)))
        gb_storage_set_clean(storage);
    move_end(move);
}

static void on_copied_down(struct gb_job *job)
{
    struct gb_move *move = GB_CONTAINER(job, struct gb_move, job);
    struct gb_spill *spill = move->owner;

    move->storage->out = NULL;
    spill->draining -= move->from->occupied;
    if (take_copy(move))
        gb_storage_set_clean(move->storage);
    GB_FAILPOINT(DOWN_TAKEN);
    gb_copy_drop(move->from);
    if (move->leave && move->result == 0 && move->storage->copies[GB_TIER_HOST] &&
        !move->storage->in)
        gb_spill_forget(move->storage->copies[GB_TIER_HOST]);
    move_end(move);
}

int gb_spill_copy(struct gb_spill *spill, struct gb_storage *storage, struct gb_copy *from,
                  struct gb_copy *to, bool leave)
{
    struct gb_move *move =
        move_new(spill, storage, from, to, from ? on_copied_down : on_copied_out);

    if (!move) {
        give_up_copy(to);
        return GPUBUF_E_NO_MEMORY;
    }
    to->owner = storage->number ? storage->number : GB_COPY_UNRECORDED | ++spill->unrecorded;
    move->leave = leave;
    storage->out = move;
    if (from) {
        spill->draining += from->occupied;
        gb_mover_submit(to->tier->mover, &move->job);
        return 0;
    }
    move->bytes = storage->bytes;
    storage->key.device->leaving += move->bytes;
    gb_mover_submit(storage->key.device->lanes[GB_OUT], &move->job);
    return 0;
}

uint64_t gb_spill_stuck_ms(const struct gb_storage *storage)
{
    return storage->failure ? storage->failure->stuck_ms : 0;
}

void gb_spill_run_due(struct gb_spill *spill)
{
    uint64_t now = spill->losses.objects > 0 ? gb_now_ms() : 0;

    if (spill->losses.objects > 0 && now >= spill->losses.log_at)
        log_losses(spill, now);
    gb_spill_check_outage(spill);
}

/* ---- coming back ---- */

static void count_restore(struct gb_move *move)
{
    struct gb_tier *tier = move->from->tier;

    tier->reads++;
    tier->read_bytes += move->from->bytes;
    tier->read_us += move->microseconds;
    GB_PROBE4(move, "restore", gb_tier_name(tier->kind), move->from->bytes, move->microseconds);
    move->storage->key.device->so_far.restores++;
    move->storage->key.device->so_far.restores_bytes += move->storage->size;
}

/* The storage could not be brought back. If the tier failed the copy is freed, as damaged; with the
   last copy the content is lost. */
static void give_up_restore(struct gb_move *move)
{
    struct gb_spill *spill = move->owner;
    struct gb_storage *storage = move->storage;

    note_failure(move);
    gb_storage_vacate(spill->registry->store, storage);
    if (!move->tier_failed) {
        gb_copy_drop(move->from);
        return;
    }
    storage->copies[move->from->tier->kind] = NULL;
    gb_storage_set_clean(storage);
    give_up_copy(move->from);
    if (best_copy(storage) || gb_list_empty(&storage->objects))
        return;
    GB_LIST_EACH(&storage->objects, struct gb_object, object, of_storage)
        gb_log(GB_LOG_ERROR, "object lost", GB_LOG_TEXT("name", object->name),
               GB_LOG_TEXT("why", move->error.message));
    gb_registry_lose(spill->registry, storage, GB_EVENT_WITHDRAWN);
}

static void on_restored(struct gb_job *job)
{
    struct gb_move *move = GB_CONTAINER(job, struct gb_move, job);
    struct gb_spill *spill = move->owner;
    struct gb_storage *storage = move->storage;

    storage->in = NULL;
    if (move->result == 0) {
        move->result = gb_storage_relocate(storage, false, &move->error);
        move->tier_failed = false;
    }
    if (move->result < 0) {
        give_up_restore(move);
        move_end(move);
        return;
    }
    count_restore(move);
    storage->resident = true;
    gb_copy_drop(move->from);
    gb_storage_set_clean(storage);
    GB_FAILPOINT(IN_DONE);
    if (!gb_list_empty(&storage->objects))
        gb_storage_enter(storage);
    notify(spill, storage, GB_EVENT_RESTORED);
    move_end(move);
}

int gb_spill_restore(struct gb_spill *spill, struct gb_storage *storage, struct gb_error *error)
{
    struct gb_copy *from = best_copy(storage);
    struct gb_move *move;

    assert(from && !storage->resident && !storage->in);
    move = move_new(spill, storage, from, NULL, on_restored);
    if (!move)
        return gb_fail_memory(error);
    storage->in = move;
    gb_mover_submit(storage->key.device->lanes[GB_IN], &move->job);
    return 0;
}
