#include "daemon/spill/spill.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

#include "daemon/base/clock.h"
#include "daemon/base/failpoint.h"
#include "daemon/base/log.h"
#include "daemon/base/probes.h"
#include "daemon/objects/lease.h"
#include "daemon/objects/text.h"
#include "daemon/spill/tiers.h"
#include "daemon/store/store.h"

/* A tier that failed is left alone for a while. */
#define FAILING_MS 5000
/* Copies of one device that are made in the background at a time. */
#define BACKGROUND_MOVES 4
/* The most storages whose idle leases are recalled together, and which part of the device their
   bytes are. A holder answers within a millisecond or so; recalling some ahead spares later
   requests that wait. */
#define RECALL_AHEAD 32
#define RECALL_PART 16
/* How many copies are looked at for one that can be freed, and how many storages for one that a
   tier has room for. */
#define LOOK_AT 64
/* Dropped objects are logged once in this time. */
#define TELL_MS 60000

/* LATER: not before something that is under way has ended. NO_MEMORY: the daemon's own memory is
   out, and nothing is dropped for that. */
enum begun { STARTED, LATER, IMPOSSIBLE, NO_MEMORY };

/* ---- leaving ---- */

static struct gb_storage *storage_of(struct gb_recent *recent)
{
    return GB_CONTAINER(recent, struct gb_storage, recent);
}

static struct gb_copy *best_copy(const struct gb_storage *storage)
{
    return storage->copies[GB_TIER_HOST] ? storage->copies[GB_TIER_HOST]
                                         : storage->copies[GB_TIER_DISK];
}

/* Drops the storage's objects, if none is needed: the content is lost. */
static void drop(struct gb_spill *spill, struct gb_storage *storage)
{
    struct gb_losses *losses = &spill->losses;

    assert(!storage->needs);
    GB_LIST_EACH(&storage->objects, struct gb_object, object, of_storage)
        losses->objects += object->named;
    losses->bytes += storage->size;
    gb_registry_evict(spill->registry, storage);
}

uint64_t gb_spill_tells_at(const struct gb_spill *spill)
{
    const struct gb_outage *outage = &spill->outage;
    uint64_t at = spill->losses.objects > 0 ? spill->losses.tell_at : UINT64_MAX;

    return outage->lasts && !outage->looking && outage->look_at < at ? outage->look_at : at;
}

static void log_losses(struct gb_spill *spill, uint64_t now)
{
    struct gb_losses *losses = &spill->losses;

    gb_log(GB_LOG_INFO, "dropped",
           GB_LOG_TEXT("why", "there was no room, and they were published with evict=drop"),
           GB_LOG_NUMBER("objects", losses->objects), GB_LOG_NUMBER("bytes", losses->bytes));
    *losses = (struct gb_losses){.tell_at = now + TELL_MS};
}

static void notify(struct gb_spill *spill, struct gb_storage *storage, enum gb_event event)
{
    struct gb_registry *registry = spill->registry;

    GB_LIST_EACH(&storage->objects, struct gb_object, object, of_storage) {
        if (object->current && registry->on_event)
            registry->on_event(registry->on_event_arg, event, object);
    }
}

/* Takes a storage off its device; its content is below. False if memory is out. */
static bool vacate(struct gb_spill *spill, struct gb_storage *storage)
{
    struct gb_device *device = storage->device;

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

static void forget_copy(struct gb_copy *copy)
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

    if (gb_device_cuda_lost(move->error.cuda))
        move->storage->device->lost = true;
    keep_failure(move->storage, &move->error, move->to && !move->from && !move->tier_failed);
    if (!move->tier_failed || atomic_load(move->stop))
        return;
    tier->failures++;
    if (move->to)
        tier->failing_until = gb_now_ms() + FAILING_MS;
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
    struct gb_copy *to = move->to;
    struct gb_tier *tier = to->tier;

    if (move->result < 0) {
        note_failure(move);
        give_up_copy(to);
        return false;
    }
    if (move->storage->failure)
        move->storage->failure->stuck_ms = 0;
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
    storage->device->leaving -= move->bytes;
    copied = take_copy(move);
    GB_FAILPOINT(OUT_TAKEN);
    leaves = copied && move->leave && storage->resident && storage->recent.holds == 0 &&
             gb_list_empty(&storage->idles) && !gb_list_empty(&storage->objects);
    /* For a storage that leaves one record is enough: vacate() writes it. */
    if (copied && !(leaves && vacate(move->owner, storage)))
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
        forget_copy(move->storage->copies[GB_TIER_HOST]);
    move_end(move);
}

static void submit_out(struct gb_storage *storage, struct gb_move *move)
{
    storage->out = move;
    move->bytes = storage->bytes;
    storage->device->leaving += move->bytes;
    gb_mover_submit(storage->device->lanes[GB_OUT], &move->job);
}

/* ---- room in a tier ---- */

static enum begun begin_down(struct gb_spill *spill, struct gb_copy *from, struct gb_demand *demand,
                             bool leave);

/* Whether the storage leaves the device, or the host tier, later than `wanting` does. */
static bool is_later(const struct gb_storage *storage, const struct gb_storage *wanting)
{
    const struct gb_copy *copy = storage->copies[GB_TIER_HOST];
    const struct gb_copy *first = wanting->copies[GB_TIER_HOST];

    if (storage->resident != wanting->resident)
        return false;
    if (storage->resident)
        return storage->device == wanting->device && storage->recent.used > wanting->recent.used;
    return copy && first && copy->recent.used > first->recent.used;
}

/* Whether the copy is the only place of its content. */
static bool is_last(const struct gb_copy *copy)
{
    const struct gb_storage *storage = copy->storage;

    return !storage->resident && !storage->copies[!copy->tier->kind];
}

/*
 * Whether a copy can be freed for a copy of `wanting`.
 * - In the background (no `demand`) only if it would not be made again before that: else the two
 *   could take each other's place for ever. So its storage is resident, and leaves later or is held
 *   there; or it is in the host tier, and the content is below as well.
 * - For a request it is enough that no needed content is lost, and that the copy is not needed
 *   sooner. But of two storages in the host tier, the one that was copied to the disk first keeps
 *   its copy there.
 */
static bool is_needless(const struct gb_copy *copy, const struct gb_storage *wanting,
                        struct gb_demand *demand)
{
    const struct gb_storage *storage = copy->storage;

    if (storage->out || storage->in)
        return false;
    if (is_last(copy))
        return demand && !demand->keeps && storage->recent.holds == 0 && storage != wanting;
    if ((storage->resident && storage->recent.holds > 0) || is_later(storage, wanting))
        return true;
    if (!storage->resident && !wanting->resident)
        return copy->tier->kind == GB_TIER_HOST;
    if (demand)
        return !storage->resident || !wanting->resident || storage->device != wanting->device;
    return !storage->resident && copy->tier->kind == GB_TIER_HOST;
}

static struct gb_copy *find_needless(const struct gb_tier *tier, const struct gb_storage *wanting,
                                     struct gb_demand *demand)
{
    unsigned looked = 0;

    GB_LIST_EACH(&tier->recency.clean, struct gb_copy, copy, recent.link) {
        if (is_needless(copy, wanting, demand))
            return copy;
        if (++looked == LOOK_AT)
            break;
    }
    return NULL;
}

/* Copies content of the host tier that is nowhere else to the disk. LATER: as much as is wanted is
   on its way. */
static enum begun drain(struct gb_spill *spill, uint64_t bytes, struct gb_demand *demand)
{
    struct gb_recent *oldest;

    while (spill->draining < bytes &&
           (oldest = gb_recency_oldest_dirty(&spill->tiers[GB_TIER_HOST].recency))) {
        enum begun begun =
            begin_down(spill, GB_CONTAINER(oldest, struct gb_copy, recent), demand, false);

        if (begun == IMPOSSIBLE || begun == NO_MEMORY)
            return spill->draining > 0 ? LATER : begun;
        if (begun == LATER)
            return LATER;
    }
    return spill->draining > 0 ? LATER : IMPOSSIBLE;
}

/* Whether there would be room for a copy if all clean copies were freed. */
static bool may_fit(const struct gb_tier *tier, uint64_t bytes)
{
    return gb_tier_free_bytes(tier) + tier->recency.clean_bytes >= bytes;
}

static enum begun try_copy(struct gb_spill *spill, struct gb_tier *tier, struct gb_storage *storage,
                           struct gb_demand *demand, struct gb_copy **copy)
{
    if (!gb_tier_works(tier) || !gb_tier_fits(tier, storage->size))
        return IMPOSSIBLE;
    if (gb_tier_claimed(tier, demand ? demand->serial : UINT64_MAX))
        return LATER;
    for (;;) {
        int r = gb_copy_new(tier, storage, storage->size, copy);
        struct gb_copy *needless;
        enum begun begun;

        if (r == 0) {
            (*copy)->owner =
                storage->number ? storage->number : GB_COPY_UNRECORDED | ++spill->unrecorded;
            return STARTED;
        }
        if (r < 0)
            return NO_MEMORY;
        if (tier->going > 0)
            return LATER;
        needless = may_fit(tier, storage->size) ? find_needless(tier, storage, demand) : NULL;
        if (needless) {
            if (is_last(needless))
                drop(spill, needless->storage);
            else
                forget_copy(needless);
            continue;
        }
        begun = tier->kind == GB_TIER_HOST ? drain(spill, storage->size, demand) : IMPOSSIBLE;
        if (begun == LATER || begun == NO_MEMORY)
            return begun;
        return demand && tier->used > 0 && spill->moves > 0 ? LATER : IMPOSSIBLE;
    }
}

/*
 * Makes a copy with room in a tier, if need be by freeing others. With a `demand` (NULL: this is
 * the background) objects that are not needed may be dropped for it.
 */
static enum begun make_copy(struct gb_spill *spill, struct gb_tier *tier,
                            struct gb_storage *storage, struct gb_demand *demand,
                            struct gb_copy **copy)
{
    enum begun begun = try_copy(spill, tier, storage, demand, copy);

    if (begun == LATER && demand && tier->kind < demand->full_tier)
        demand->full_tier = tier->kind;
    return begun;
}

/* Makes a copy in a tier and a move to it, to be submitted; `from` NULL: out of the device. */
static enum begun begin_copy(struct gb_spill *spill, struct gb_storage *storage,
                             struct gb_copy *from, struct gb_tier *tier, struct gb_demand *demand,
                             bool leave, void (*done)(struct gb_job *job), struct gb_move **move)
{
    struct gb_copy *to;
    enum begun begun = make_copy(spill, tier, storage, demand, &to);

    if (begun != STARTED)
        return begun;
    *move = move_new(spill, storage, from, to, done);
    if (!*move) {
        give_up_copy(to);
        return NO_MEMORY;
    }
    (*move)->leave = leave;
    return STARTED;
}

static enum begun begin_down(struct gb_spill *spill, struct gb_copy *from, struct gb_demand *demand,
                             bool leave)
{
    struct gb_storage *storage = from->storage;
    struct gb_tier *disk = &spill->tiers[GB_TIER_DISK];
    struct gb_move *move;
    enum begun begun;

    if (storage->out)
        return LATER;
    begun = begin_copy(spill, storage, from, disk, demand, leave, on_copied_down, &move);
    if (begun != STARTED)
        return begun;
    storage->out = move;
    spill->draining += from->occupied;
    gb_mover_submit(disk->mover, &move->job);
    return STARTED;
}

/* Begins to copy a resident storage to a tier. */
static enum begun begin_out_to(struct gb_spill *spill, struct gb_storage *storage,
                               enum gb_tier_kind kind, struct gb_demand *demand, bool leave)
{
    struct gb_move *move;
    enum begun begun =
        begin_copy(spill, storage, NULL, &spill->tiers[kind], demand, leave, on_copied_out, &move);

    if (begun == STARTED)
        submit_out(storage, move);
    return begun;
}

static uint64_t stuck_ms(const struct gb_storage *storage)
{
    return storage->failure ? storage->failure->stuck_ms : 0;
}

/* Whether its driver failed to copy it out lately, so that the background leaves it alone. */
static bool is_stuck(const struct gb_storage *storage)
{
    return stuck_ms(storage) > 0 && gb_now_ms() - stuck_ms(storage) < FAILING_MS;
}

static enum begun begin_out(struct gb_spill *spill, struct gb_storage *storage,
                            struct gb_demand *demand, bool leave)
{
    enum begun begun = IMPOSSIBLE;

    if (!demand && is_stuck(storage))
        return IMPOSSIBLE;
    for (int kind = 0; begun == IMPOSSIBLE && kind < GB_TIERS; kind++)
        if (gb_spill_has(spill, storage->device, (enum gb_tier_kind)kind))
            begun = begin_out_to(spill, storage, (enum gb_tier_kind)kind, demand, leave);
    return begun;
}

/* ---- room on a device ---- */

/* Begins to copy dirty storages, the least recently used first, until `bytes` are on their way. For
   a request those that no tier has room for are passed over. The ones after these leave as soon as
   they are copied, since else their copies could be freed for the ones before. IMPOSSIBLE: nothing
   is on its way. */
static enum begun copy_ahead(struct gb_spill *spill, struct gb_device *device, uint64_t bytes,
                             struct gb_demand *demand)
{
    uint64_t coming = 0;
    unsigned moves = 0, skipped = 0;

    GB_LIST_EACH(&device->recency.dirty, struct gb_storage, storage, recent.link) {
        enum begun begun = storage->out ? STARTED : begin_out(spill, storage, demand, skipped > 0);

        if (begun == LATER)
            return LATER;
        if (begun == NO_MEMORY)
            return coming > 0 ? STARTED : NO_MEMORY;
        if (begun == IMPOSSIBLE && demand && ++skipped < LOOK_AT)
            continue;
        if (begun == IMPOSSIBLE)
            break;
        coming += storage->bytes;
        if (coming >= bytes || (!demand && ++moves == BACKGROUND_MOVES))
            break;
    }
    return coming > 0 ? STARTED : IMPOSSIBLE;
}

static enum gb_room fail_stuck(const struct gb_storage *storage, struct gb_error *error)
{
    const struct gb_error *why = &storage->failure->error;

    gb_fail(error, GPUBUF_E_DEVICE, "no room can be made on %s: %.400s", storage->device->id,
            why->message);
    if (error)
        error->cuda = why->cuda;
    return GB_ROOM_STUCK;
}

/* The storage that leaves next: the least recently used; but if the tiers could not take that and
   keep the reserve, the least recently used of those that may be dropped. */
static struct gb_recent *next_to_leave(const struct gb_spill *spill, const struct gb_device *device,
                                       const struct gb_demand *demand)
{
    struct gb_recent *oldest = gb_recency_oldest(&device->recency);
    unsigned looked = 0;

    if (!oldest || !oldest->needed || demand->reserve == 0 ||
        oldest->bytes <= gb_spill_room_below(spill, device, demand->reserve))
        return oldest;
    GB_LIST_EACH(&device->recency.clean, struct gb_recent, recent, link) {
        if (!recent->needed)
            return recent;
        if (++looked == LOOK_AT)
            break;
    }
    return oldest;
}

/*
 * Recalls the idle leases of the storage that leaves next, and those of storages that leave after
 * it, for as many bytes as are wanted and soon will be. A storage that turns out to be in use,
 * since a holder says so or does not answer, is taken off the list, and another one leaves.
 */
static enum gb_room recall(struct gb_spill *spill, struct gb_storage *storage, uint64_t bytes)
{
    const struct gb_link *list =
        storage->recent.clean ? &storage->device->recency.clean : &storage->device->recency.dirty;
    uint64_t now = gb_now_ms(), coming = 0;
    unsigned looked = 0, recalled = 0;
    bool waits = gb_storage_recall(spill->registry, storage, now, &recalled);

    if (bytes < storage->device->capacity / RECALL_PART)
        bytes = storage->device->capacity / RECALL_PART;
    GB_LIST_EACH(list, struct gb_storage, other, recent.link) {
        if (coming >= bytes || ++looked > RECALL_AHEAD)
            break;
        coming += other->bytes;
        if (other != storage)
            (void)gb_storage_recall(spill->registry, other, now, &recalled);
    }
    return waits ? GB_ROOM_ARRIVING : GB_ROOM_MADE;
}

enum gb_room gb_spill_make_room(struct gb_spill *spill, struct gb_device *device, uint64_t bytes,
                                struct gb_demand *demand, struct gb_error *error)
{
    struct gb_recent *oldest = next_to_leave(spill, device, demand);
    struct gb_storage *storage;
    enum begun begun;

    if (oldest && !oldest->clean) {
        storage = storage_of(oldest);
        if (storage->out)
            return GB_ROOM_ARRIVING;
        if (stuck_ms(storage) >= demand->since_ms)
            return fail_stuck(storage, error);
        begun = copy_ahead(spill, device, bytes, demand);
        if (begun != IMPOSSIBLE)
            return begun == NO_MEMORY ? GB_ROOM_NONE : GB_ROOM_ARRIVING;
        oldest = gb_recency_oldest_clean(&device->recency); /* no tier takes the older dirty ones */
    }
    if (!oldest)
        return GB_ROOM_NONE;
    storage = storage_of(oldest);
    if (storage->out)
        return GB_ROOM_ARRIVING;
    if (!gb_list_empty(&storage->idles))
        return recall(spill, storage, bytes);
    if (best_copy(storage))
        return vacate(spill, storage) ? GB_ROOM_MADE : GB_ROOM_NONE;
    if (demand->keeps)
        return GB_ROOM_NONE;
    drop(spill, storage);
    return GB_ROOM_MADE;
}

static uint64_t above(uint64_t bytes, uint64_t capacity, unsigned percent)
{
    uint64_t mark = capacity / 100 * percent + capacity % 100 * percent / 100;

    return bytes > mark ? bytes - mark : 0;
}

static void tend_device(struct gb_spill *spill, struct gb_device *device)
{
    uint64_t stays = device->used + device->pinned_by_clients - device->recency.clean_bytes;
    uint64_t need;

    if (above(stays, device->capacity, spill->high))
        spill->above_high[device->index] = true;
    if (!spill->above_high[device->index])
        return;
    need = above(stays, device->capacity, spill->low);
    if (need == 0 || copy_ahead(spill, device, need, NULL) >= IMPOSSIBLE)
        spill->above_high[device->index] = false;
}

static void tend_host_tier(struct gb_spill *spill)
{
    struct gb_tier *host = &spill->tiers[GB_TIER_HOST];
    uint64_t stays = host->used - host->recency.clean_bytes;

    if (!above(stays, host->capacity, spill->high) || spill->draining > 0)
        return;
    if (gb_tier_works(&spill->tiers[GB_TIER_DISK]))
        drain(spill, above(stays, host->capacity, spill->low), NULL);
}

void gb_spill_tend(struct gb_spill *spill)
{
    uint64_t now = spill->losses.objects > 0 ? gb_now_ms() : 0;

    if (spill->losses.objects > 0 && now >= spill->losses.tell_at)
        log_losses(spill, now);
    gb_spill_tend_outage(spill);
    for (unsigned i = 0; i < spill->device_count; i++)
        if (spill->devices[i]->lanes[GB_OUT] && !spill->devices[i]->lost)
            tend_device(spill, spill->devices[i]);
    if (spill->tiers[GB_TIER_HOST].capacity > 0)
        tend_host_tier(spill);
}

/* ---- coming back ---- */

static void count_restore(struct gb_move *move)
{
    struct gb_tier *tier = move->from->tier;

    tier->reads++;
    tier->read_bytes += move->from->bytes;
    tier->read_us += move->microseconds;
    GB_PROBE4(move, "restore", gb_tier_name(tier->kind), move->from->bytes, move->microseconds);
    move->storage->device->so_far.restores++;
    move->storage->device->so_far.restores_bytes += move->storage->size;
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
    gb_mover_submit(storage->device->lanes[GB_IN], &move->job);
    return 0;
}

/* ---- leaving on request ---- */

static int outcome_of(enum begun begun, const struct gb_tier *tier, struct gb_error *error)
{
    if (begun == NO_MEMORY)
        return gb_fail_memory(error);
    if (begun != IMPOSSIBLE)
        return begun == STARTED ? GB_MOVING : GB_MOVE_FULL;
    return gb_fail(error, GPUBUF_E_NO_SPACE,
                   "the %s tier has no room: of %" PRIu64 " bytes, %" PRIu64 " are in use%s",
                   gb_tier_name(tier->kind), tier->capacity, tier->used,
                   tier->failing_until ? ", and it failed lately" : "");
}

/* gb_spill_out() of a resident storage: leaves the device, for the tier `kind`. */
static int leave_for(struct gb_spill *spill, struct gb_storage *storage, enum gb_tier_kind kind,
                     struct gb_demand *demand, struct gb_error *error)
{
    if (storage->share == GB_SHARE_IPC && storage->adopted)
        return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                       "the memory is its producer's, and stays where it is");
    if (storage->size == 0)
        return gb_fail(error, GPUBUF_E_UNSUPPORTED, "the object has no bytes");
    if (storage->key.live)
        return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                       "the object is live, and stays on its device: a copy would not be written");
    if (gb_storage_is_final(storage))
        return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                       "the object is final, and stays in the memory that the kernel holds");
    if (!storage->copies[kind])
        return outcome_of(begin_out_to(spill, storage, kind, demand, true), &spill->tiers[kind],
                          error);
    if (vacate(spill, storage))
        return GB_MOVED;
    return gb_fail_memory(error);
}

int gb_spill_out(struct gb_spill *spill, struct gb_storage *storage, enum gb_tier_kind kind,
                 struct gb_demand *demand, struct gb_error *error)
{
    struct gb_copy *host;

    if (storage->out || storage->in)
        return GB_MOVING;
    if (storage->resident) {
        int r = leave_for(spill, storage, kind, demand, error);

        if (r != GB_MOVED)
            return r;
    }
    host = storage->copies[GB_TIER_HOST];
    if (kind == GB_TIER_HOST || !host)
        return GB_MOVED;
    if (!storage->copies[GB_TIER_DISK])
        return outcome_of(begin_down(spill, host, demand, true), &spill->tiers[GB_TIER_DISK],
                          error);
    forget_copy(host);
    return GB_MOVED;
}
