#include "daemon/methods/space.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/methods/task.h"
#include "daemon/serve/departure.h"

/* How long a request waits for the daemon's own work: for a driver that makes memory, or a tier
   that takes content. */
#define PATIENCE_MS 60000

/* ---- making room ---- */

/* Whether the request has waited for nothing but the daemon's own work, and its time is up. */
static bool is_in_vain(const struct gb_call *call)
{
    return call->last_try && gb_wait_comes(call->wait);
}

void gb_call_demand(struct gb_call *call, struct gb_demand *demand)
{
    demand->queue = gb_waits_queue(call->server, demand->device);
    demand->queued = call->wait ? &call->wait->queued : NULL;
    demand->since_ms = call->wait ? call->wait->since_ms : UINT64_MAX;
    demand->may_not_drop = call->server->registry.grace_count > 0;
    demand->last = is_in_vain(call);
    demand->left = &call->left;
    demand->forecast = GB_FORECAST_NOTHING;
    demand->room = GB_STAYS;
    demand->full_tier = GB_TIERS;
}

/* True, with the outcome, if the memory that is made for the request is not there yet, or that has
   failed. */
static bool still_making(struct gb_call *call, int *outcome)
{
    struct gb_making *making = call->wait ? &call->wait->making : NULL;

    if (!making)
        return false;
    if (making->code < 0) {
        call->error = making->error;
        *outcome = making->code;
        return true;
    }
    *outcome = GB_PLACE_MAKING;
    return gb_making_busy(making);
}

/* Whether the request must wait behind older ones, if it is new or its room was arriving. Another
   that has waited is tried in its turn; no bytes and registered memory take no room from others. */
static bool must_queue(struct gb_call *call, struct gb_demand *demand)
{
    const struct gb_queued *queued = demand->queued;
    bool in_turn = queued && !(queued->need > 0 && queued->arriving), arriving;

    if (in_turn || demand->placing.count > 0 || demand->need == 0 ||
        gb_queue_may_overtake(demand->queue, queued, demand->need, &arriving))
        return false;
    demand->placing.shortfall = demand->need;
    demand->room = arriving ? GB_LEAVES : GB_STAYS;
    gb_call_no_space(call, demand, "; older requests wait for it");
    return true;
}

int gb_call_quota_outcome(struct gb_call *call, struct gb_device *device, int r)
{
    if (r != GPUBUF_E_LIMIT || !call->error.limit || strcmp(call->error.limit, "user_bytes") != 0)
        return r;
    return gb_user_recall(&call->server->registry, call->session->user, device, gb_now_ms())
               ? GB_PLACE_QUOTA
               : r;
}

static void begin_demand(struct gb_call *call, struct gb_demand *demand)
{
    struct gb_placing *placing = &demand->placing;

    if (placing->storage)
        placing->key = &placing->storage->key;
    placing->store = &call->server->store;
    placing->user = call->session->user;
    placing->making = call->wait ? &call->wait->making : NULL;
    placing->error = &call->error;
    demand->device = placing->key->device;
    demand->need = placing->key->own ? gb_round_up(placing->bytes, demand->device->granularity)
                                     : placing->bytes;
    for (unsigned i = 0; i < placing->count; i++)
        demand->need += placing->adoptions[i].handle.bytes;
    demand->reserve = placing->storage ? 0 : demand->need;
    gb_call_demand(call, demand);
}

int gb_call_place(struct gb_call *call, struct gb_demand *demand)
{
    struct gb_placing *placing = &demand->placing;
    struct gb_storage *back = placing->storage;
    int r;

    begin_demand(call, demand);
    if (still_making(call, &r))
        return r;
    if (must_queue(call, demand))
        return GB_PLACE_FULL;
    if (back)
        gb_recent_hold(&back->recent); /* or it could be dropped to make room for itself */
    do
        r = gb_store_place(placing);
    while (r == GB_PLACE_FULL && gb_evict_for(&call->server->spill, demand));
    if (back)
        gb_recent_drop_unused(&back->recent);
    if (r == GB_PLACE_FULL && demand->room < 0)
        r = demand->room;
    else if (r == GB_PLACE_FULL)
        gb_call_no_space(call, demand, "");
    if (r == GB_PLACE_OK && !back && placing->count == 0)
        gb_queue_note_passing(demand->queue, demand->queued, placing->storage);
    return gb_call_quota_outcome(call, demand->device, r);
}

/* ---- waiting ---- */

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* When the request was first tried. */
static uint64_t since_of(const struct gb_call *call)
{
    return call->wait ? call->wait->since_ms : gb_now_ms();
}

/* Whether a request of `length` bytes may wait, for `count` names. GPUBUF_E_LIMIT. */
static int check_limits(struct gb_call *call, size_t length, size_t count)
{
    const struct gb_limits *limits = call->server->limits;
    const struct gb_user *user = call->session->user;

    if (call->session->wait_count >= limits->session_waits)
        return gb_fail_limit(&call->error, "session_waits", (long long)limits->session_waits,
                             "waiting requests of a session");
    if (user->charges[GB_HELD_WAITS] >= limits->user_waits)
        return gb_fail_limit(&call->error, "user_waits", (long long)limits->user_waits,
                             "waiting requests of a user");
    if (user->charges[GB_HELD_BYTES] + gb_wait_bytes(length, count) > limits->held_bytes)
        return gb_fail_limit(
            &call->error, "held_bytes", (long long)limits->held_bytes,
            "bytes of a user's messages that are not whole, wait, or are not read");
    return 0;
}

/* Puts the request aside until then; or, if it waits already, moves the end of its wait. */
static int put_aside(struct gb_call *call, const struct gb_string *names, size_t count,
                     uint64_t until_ms)
{
    /* A message that was read takes several times the memory of its text. */
    size_t length = call->message->length * (call->task ? 4 : 1);
    struct gb_wait *wait = call->wait;

    if (call->answers)
        return gb_fail(&call->error, GPUBUF_E_NO_SPACE,
                       "the device has no room for all of them at once");
    if (!wait && check_limits(call, length, count) < 0)
        return call->error.code;
    if (!wait)
        wait = gb_wait_new(call->session, call->task ? NULL : call->message->line, length);
    if (!wait || gb_wait_for_names(wait, names, count, call->asks) < 0 ||
        !gb_wait_until(wait, until_ms)) {
        if (wait && !call->wait)
            gb_wait_end(wait);
        return gb_call_no_memory(call);
    }
    if (call->wait)
        return GB_WAITS;
    gb_wait_take_fds(wait, call->fds, call->fd_count);
    call->wait = wait;
    wait->task = call->task;
    gb_task_detach(call->task);
    return GB_WAITS;
}

/* Waits for the driver to make memory. It has PATIENCE_MS, however long the request has waited for
   space before. */
static int wait_driver(struct gb_call *call, const struct gb_demand *demand)
{
    struct gb_device *device = demand->device;
    struct gb_making_job *job = demand->placing.job;
    uint64_t now = gb_now_ms(), since = call->wait ? call->wait->driver_since : 0;
    int r;

    if (since == 0 || job)
        since = now;
    if (now - since >= PATIENCE_MS)
        return gb_fail(&call->error, GPUBUF_E_DEVICE,
                       "the driver of %s has not answered within %d s", device->id,
                       PATIENCE_MS / 1000);
    r = put_aside(call, NULL, 0, since + PATIENCE_MS);
    if (r != GB_WAITS)
        return r;
    gb_wait_for_device(call->wait, device, 0, false, GB_TIERS);
    call->wait->driver_since = since;
    if (job)
        gb_making_attach(&call->wait->making, job);
    return r;
}

/* Waits for memory of the user that is being given back: PATIENCE_MS for the driver,
   GB_UNMAP_GRACE_MS for sessions that were asked to unmap. Meanwhile it does not hold up other
   requests. */
static int wait_quota(struct gb_call *call, struct gb_device *device, uint64_t wait_ms)
{
    uint64_t now = gb_now_ms();
    uint64_t until = since_of(call) + later(wait_ms, GB_UNMAP_GRACE_MS);
    int r;

    if (call->session->user->freeing[device->index] > 0 && !call->last_try)
        until = later(until, now + PATIENCE_MS);
    if (now >= until)
        return call->error.code;
    r = put_aside(call, NULL, 0, until);
    if (r == GB_WAITS)
        gb_wait_for_device(call->wait, device, 0, false, GB_TIERS);
    return r;
}

/* The bytes that the request needs on the device at a time: those that it lacks, and its content
   that lies there and may leave. Younger requests must not take that either, or it would have to
   come back for ever. If all of it can never fit, the bytes that it lacks. */
static uint64_t all_bytes(const struct gb_call *call, const struct gb_demand *demand)
{
    const struct gb_device *device = demand->device;
    uint64_t bytes = demand->need;

    for (size_t i = 0; i < call->there_count; i++)
        if (call->there[i]->key.device == device &&
            call->there[i]->leases + call->there[i]->pins == 0)
            bytes += call->there[i]->bytes;
    return bytes <= device->capacity ? bytes : demand->need;
}

/* Until when a request waits for space that may wait until `until`: at least PATIENCE_MS for the
   daemon's own work (`works`), GB_UNMAP_GRACE_MS for sessions that were asked to unmap. If it
   trusts them it is tried again after that, even if it may wait longer. No request fails for want
   of memory that the grace period holds. */
static uint64_t waits_until(const struct gb_call *call, const struct gb_demand *demand, bool works,
                            uint64_t until)
{
    const struct gb_state *state = &call->server->state;
    uint64_t trusts = gb_evict_trusts_until(demand);

    if (works)
        until = later(until, demand->last ? 0 : gb_now_ms() + PATIENCE_MS);
    else if (trusts)
        until = trusts;
    else if (demand->forecast == GB_FORECAST_MAPPED)
        until = later(until, since_of(call) + GB_UNMAP_GRACE_MS);
    return call->server->registry.grace_bytes[demand->device->index] > 0
               ? later(until, state->grace_until + GB_UNMAP_GRACE_MS)
               : until;
}

int gb_call_wait_space(struct gb_call *call, const struct gb_demand *demand, int place,
                       uint64_t wait_ms)
{
    struct gb_device *device = demand->device;
    bool arriving = gb_demand_arrives(demand);
    bool driver = !arriving && device->freeing >= demand->placing.shortfall;
    char why[sizeof(call->error.message)];
    uint64_t until;
    int r;

    if (place == GB_PLACE_MAKING)
        return wait_driver(call, demand);
    if (place == GB_PLACE_QUOTA)
        return wait_quota(call, device, wait_ms);
    until = waits_until(call, demand, arriving || driver, since_of(call) + wait_ms);
    if (gb_now_ms() < until && !call->answers) {
        r = put_aside(call, NULL, 0, until);
        if (r == GB_WAITS)
            gb_wait_for_device(call->wait, device, driver ? 0 : all_bytes(call, demand), arriving,
                               driver ? GB_TIERS : demand->full_tier);
        return r;
    }
    if (wait_ms == 0)
        return GPUBUF_E_NO_SPACE;
    memcpy(why, call->error.message, sizeof(why));
    return gb_fail(&call->error, GPUBUF_E_TIMEOUT, "after %" PRIu64 " ms: %.470s", wait_ms, why);
}

int gb_call_wait_names(struct gb_call *call, const struct gb_string *names, size_t count,
                       uint64_t wait_ms)
{
    int r = put_aside(call, names, count, since_of(call) + wait_ms);

    if (r == GB_WAITS)
        gb_wait_for_names_only(call->wait);
    return r;
}

int gb_call_wait_writer(struct gb_call *call, struct gb_object *object, bool claims,
                        uint64_t wait_ms)
{
    int r = put_aside(call, NULL, 0, since_of(call) + wait_ms);

    if (r == GB_WAITS)
        gb_wait_to_write(call->wait, object->storage, claims);
    return r;
}

/* ---- content in a tier ---- */

/* Waits for the daemon's own work, and for the name (NULL: none). */
static int wait_work(struct gb_call *call, const struct gb_string *name, const char *failure)
{
    if (is_in_vain(call))
        return gb_fail(&call->error, GPUBUF_E_TIMEOUT, "%s within %d s", failure,
                       PATIENCE_MS / 1000);
    return put_aside(call, name, name ? 1 : 0, gb_now_ms() + PATIENCE_MS);
}

int gb_call_wait_move(struct gb_call *call, struct gb_storage *storage,
                      const struct gb_string *name)
{
    int r = wait_work(call, name, "the content has not been moved");

    if (r == GB_WAITS)
        gb_wait_for_move(call->wait, storage);
    return r;
}

int gb_call_wait_tier(struct gb_call *call, struct gb_device *device, enum gb_tier_kind full_tier)
{
    int r = wait_work(call, NULL, "the tier has had no room");

    if (r == GB_WAITS)
        gb_wait_for_device(call->wait, device, 0, false, full_tier);
    return r;
}

int gb_call_move_failure(struct gb_call *call, struct gb_storage *storage)
{
    if (!storage->failure)
        return 0;
    if (call->wait) {
        gb_fail(&call->error, GPUBUF_E_DEVICE, "the content could not be moved: %.400s",
                storage->failure->error.message);
        call->error.cuda = storage->failure->error.cuda;
        return GPUBUF_E_DEVICE;
    }
    free(storage->failure); /* of an earlier request: this one tries again */
    storage->failure = NULL;
    return 0;
}

/* Begins to restore a storage, which others may wait for, too; GB_WAITS if there is no room yet. */
static int begin_restore(struct gb_call *call, struct gb_storage *storage, uint64_t wait_ms)
{
    struct gb_demand demand = {.placing = {.storage = storage, .bytes = storage->size}};
    int r = gb_call_check_lost(call, storage->key.device);

    gb_sessions_release_leases(call->server, UINT64_MAX); /* there may be room */
    if (r == 0)
        r = gb_call_move_failure(call, storage);
    if (r == 0)
        r = gb_call_place(call, &demand);
    if (r > 0) {
        r = gb_call_wait_space(call, &demand, r, wait_ms);
        if (r == GB_WAITS)
            gb_wait_watch(call->wait, storage);
        return r;
    }
    if (r == 0 && (r = gb_spill_restore(&call->server->spill, storage, &call->error)) < 0)
        gb_storage_vacate(&call->server->store, storage);
    return r;
}

int gb_call_restore(struct gb_call *call, struct gb_object *object, const struct gb_string *name,
                    uint64_t wait_ms)
{
    struct gb_storage *storage = object->storage;
    int r = 0;

    if (storage->resident)
        return 0;
    if (!storage->in)
        r = begin_restore(call, storage, wait_ms);
    if (r != 0)
        return r;
    r = gb_call_wait_move(call, storage, name);
    if (r == GB_WAITS)
        gb_wait_hold(call->wait, storage); /* on failure it may leave before the request is tried */
    return r;
}
