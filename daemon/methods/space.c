#include "daemon/methods/space.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/methods/task.h"
#include "daemon/serve/departure.h"

/* Sessions that were asked for a retired segment are given this long to unmap it, even if the
   request does not want to wait for anybody's lease. */
#define RETIRE_GRACE_MS 200
/* How long the daemon's own work may take: a driver that makes memory, a tier that takes content. */
#define PATIENCE_MS 60000

/* Storages that leave a device in one try of a request. */
#define LEAVE_A_TRY 32

/* So that a full device does not make a request longer, however many sessions there are. */
#define SESSIONS_COMPARED 1024

/* ---- why there is none ---- */

/* The session with the most bytes of the device under leases, among the first SESSIONS_COMPARED;
   NULL if none has any. */
static const struct gb_session *holds_most(const struct gb_call *call,
                                           const struct gb_device *device)
{
    const struct gb_session *found = NULL;
    unsigned compared = 0;

    GB_LIST_EACH(&call->server->sessions, link) {
        const struct gb_session *session = GB_CONTAINER(link, struct gb_session, of_server);
        uint64_t bytes = session->holder.bytes[device->index];

        if (++compared > SESSIONS_COMPARED)
            break;
        if (bytes > (found ? found->holder.bytes[device->index] : 0))
            found = session;
    }
    return found;
}

static int no_space(struct gb_call *call, const struct gb_device *device, uint64_t bytes,
                    const char *more)
{
    const struct gb_session *session = holds_most(call, device);
    bool all = call->server->session_count <= SESSIONS_COMPARED;
    char who[200] = "";

    if (session)
        snprintf(who, sizeof(who),
                 "; session %" PRIu64 " (pid %d, uid %u%s%.64s) holds %s, %" PRIu64, session->id,
                 session->pid, session->user->uid, session->client ? ", " : "",
                 session->client ? session->client : "", all ? "most" : "much",
                 session->holder.bytes[device->index]);
    return gb_fail(&call->error, GPUBUF_E_NO_SPACE,
                   "%s has no room for %" PRIu64 " bytes: of %" PRIu64 ", %" PRIu64
                   " are free, %" PRIu64 " leased, %" PRIu64 " pinned or kept, %" PRIu64
                   " mapped by clients after their release%s%s",
                   device->id, bytes, device->capacity, gb_device_free_bytes(device),
                   device->leased, device->pinned, device->pinned_by_clients, who, more);
}

/* ---- making room ---- */

/* Bytes that will be free soon without more leaving. */
static uint64_t coming(const struct gb_device *device)
{
    bool asked = gb_now_ms() - device->retired_ms < RETIRE_GRACE_MS;

    return device->freeing + (asked ? device->pinned_by_clients : 0);
}

struct gb_demand gb_call_demand(const struct gb_call *call)
{
    struct gb_demand demand = {UINT64_MAX, UINT64_MAX, GB_TIERS,
                               .keeps = call->server->state.grace.count > 0};

    if (call->wait) {
        demand.since_ms = gb_wait_since(call->wait);
        demand.serial = gb_wait_serial(call->wait);
    }
    return demand;
}

/* Whether what may leave makes room for the request, of a domain (NULL: of none). Looked at once:
   what leaves then does not change it. */
static bool may_leave(struct gb_call *call, struct gb_device *device,
                      const struct gb_domain_key *key, uint64_t soon)
{
    enum gb_look look;

    if (call->looked)
        return true;
    if (!gb_device_may_fit(device, call->need))
        return false;
    look = gb_store_look(&call->server->store, device, key, call->need, soon);
    call->asked = look == GB_LOOK_MAPPED;
    call->looked = look == GB_LOOK_FITS;
    return call->looked;
}

/* Whether it is worth trying again after a try that found the device full. Where much has to leave, the
   request waits as for what is on its way, and goes on in the next turn. */
static bool make_room(struct gb_call *call, struct gb_device *device,
                      const struct gb_domain_key *key)
{
    struct gb_demand demand = gb_call_demand(call);
    uint64_t soon = coming(device);
    enum gb_room room;

    if (soon >= call->shortfall || !may_leave(call, device, key, soon))
        return false;
    if (call->left++ == LEAVE_A_TRY && !call->last_try) {
        call->lacks = GB_TIERS;
        call->comes = device->space_changed = true;
        call->stuck = false;
        return false;
    }
    room = gb_spill_make_room(&call->server->spill, device, call->shortfall - soon, &demand,
                              &call->error);
    call->lacks = demand.lacks;
    call->comes = room == GB_ROOM_COMES;
    call->stuck = room == GB_ROOM_STUCK;
    return room == GB_ROOM_MADE;
}

/* What to say after that: what the driver said, or who has the room. */
static int tell_full(struct gb_call *call, const struct gb_device *device, uint64_t bytes)
{
    if (call->stuck)
        return call->error.code;
    no_space(call, device, bytes, "");
    return GB_PLACE_FULL;
}

/* True, with the outcome, if what the request has waited for has failed or is not there yet. */
static bool still_making(struct gb_call *call, int *outcome)
{
    struct gb_making *making = call->wait ? gb_wait_making(call->wait) : NULL;

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

/* Whether older requests that wait come first; those that have waited are tried in their order. */
static bool must_queue(struct gb_call *call, const struct gb_device *device, uint64_t bytes)
{
    bool comes;

    call->need = call->shortfall = bytes;
    call->comes = call->stuck = call->looked = call->asked = false;
    call->lacks = GB_TIERS;
    if (call->wait || gb_waits_let_pass(device, bytes, &comes))
        return false;
    call->comes = comes;
    no_space(call, device, bytes, "; older requests wait for it");
    return true;
}

/* It got its room although older requests wait: see wait.h. */
static void note_passing(struct gb_call *call, struct gb_storage *storage)
{
    struct gb_device *device = storage->device;

    if (!gb_waits_older(device, call->wait))
        return;
    storage->passed = true;
    device->passed += storage->bytes;
}

int gb_call_place(struct gb_call *call, const struct gb_domain_key *key, uint64_t bytes,
                  struct gb_storage **storage)
{
    int r;

    if (still_making(call, &r))
        return r;
    if (must_queue(call, key->device, bytes))
        return GB_PLACE_FULL;
    do {
        r = gb_store_place(&call->server->store, key, call->session->user, bytes, storage,
                           &call->shortfall, &call->job, &call->error);
    } while (r == GB_PLACE_FULL && make_room(call, key->device, key));
    if (r == GB_PLACE_FULL)
        r = tell_full(call, key->device, bytes);
    if (r == GB_PLACE_OK)
        note_passing(call, *storage);
    return r;
}

int gb_call_adopt(struct gb_call *call, const struct gb_domain_key *key,
                  const struct gb_adoption *adoptions, unsigned count, struct gb_storage **storage)
{
    struct gb_making *making = call->wait ? gb_wait_making(call->wait) : NULL;
    int r;

    if (still_making(call, &r))
        return r;
    call->need = 0;
    call->comes = call->stuck = call->looked = call->asked = false;
    call->lacks = GB_TIERS;
    for (unsigned i = 0; i < count; i++)
        call->need += adoptions[i].handle.bytes;
    do {
        r = gb_store_adopt(&call->server->store, key, call->session->user, adoptions, count, making,
                           storage, &call->shortfall, &call->job, &call->error);
    } while (r == GB_PLACE_FULL && make_room(call, key->device, NULL));
    if (r == GB_PLACE_FULL)
        r = tell_full(call, key->device, call->need);
    return r;
}

/* ---- waiting ---- */

/* Puts the request aside, or leaves it there, until then. */
static int put_aside(struct gb_call *call, const struct gb_string *names, size_t count,
                     uint64_t until_ms)
{
    const struct gb_limits *limits = call->server->limits;
    /* A text that was read takes several times its room. */
    size_t length = call->message->length * (call->task ? 4 : 1);

    if (call->wait) {
        gb_wait_until(call->wait, until_ms);
        return GB_WAITS;
    }
    if (call->session->wait_count >= limits->session_waits)
        return gb_fail_limit(&call->error, "session_waits", (long long)limits->session_waits,
                             "waiting requests of a session");
    if (call->session->user->held_bytes + gb_wait_bytes(length, count) > limits->held_bytes)
        return gb_fail_limit(
            &call->error, "held_bytes", (long long)limits->held_bytes,
            "bytes of a user's messages that are not whole, wait, or are not read");
    if (gb_wait_new(call->session, call->task ? NULL : call->message->line, length, call->fds,
                    call->fd_count, names, count, gb_now_ms(), until_ms, &call->wait) < 0)
        return gb_call_no_memory(call);
    if (call->task) {
        gb_task_detach(call->task);
        gb_wait_keep_task(call->wait, call->task);
    }
    return GB_WAITS;
}

/* However long the request has waited for space before, the driver has its time. */
static int wait_driver(struct gb_call *call, struct gb_device *device)
{
    uint64_t now = gb_now_ms(), since = call->wait ? gb_wait_driver_since(call->wait) : 0;
    int r;

    if (since == 0 || call->job)
        since = now;
    if (now - since >= PATIENCE_MS)
        return gb_fail(&call->error, GPUBUF_E_DEVICE,
                       "the driver of %s has not answered within %d s", device->id,
                       PATIENCE_MS / 1000);
    r = put_aside(call, NULL, 0, since + PATIENCE_MS);
    if (r != GB_WAITS)
        return r;
    gb_wait_for_driver(call->wait, device, since);
    if (call->job)
        gb_making_attach(gb_wait_making(call->wait), call->job);
    return r;
}

/* What the user holds is on its way back: its driver has its time, and sessions that were asked to
   unmap theirs. It stands in nobody's way meanwhile. */
static int wait_quota(struct gb_call *call, struct gb_device *device, uint64_t wait_ms)
{
    uint64_t now = gb_now_ms(), since = call->wait ? gb_wait_since(call->wait) : now;
    uint64_t until = since + (wait_ms > RETIRE_GRACE_MS ? wait_ms : RETIRE_GRACE_MS);
    int r;

    if (call->session->user->freeing[device->index] > 0 && !call->last_try &&
        until < now + PATIENCE_MS)
        until = now + PATIENCE_MS;
    if (now >= until)
        return call->error.code;
    r = put_aside(call, NULL, 0, until);
    if (r == GB_WAITS)
        gb_wait_for_driver(call->wait, device, now);
    return r;
}

int gb_call_wait_space(struct gb_call *call, struct gb_device *device, int place, uint64_t wait_ms)
{
    const struct gb_state *state = &call->server->state;
    uint64_t now = gb_now_ms(), since = call->wait ? gb_wait_since(call->wait) : now;
    uint64_t until = since + wait_ms;
    bool driver = place == GB_PLACE_FULL && !call->comes && device->freeing >= call->shortfall;
    char why[sizeof(call->error.message)];
    int r;

    if (place == GB_PLACE_MAKING)
        return wait_driver(call, device);
    if (place == GB_PLACE_QUOTA)
        return wait_quota(call, device, wait_ms);
    /* The daemon's own work has its time, and so have sessions that were asked to unmap. */
    if (!call->last_try && (call->comes || driver) && until < now + PATIENCE_MS)
        until = now + PATIENCE_MS;
    else if ((coming(device) > 0 || call->asked) && until < since + RETIRE_GRACE_MS)
        until = since + RETIRE_GRACE_MS;
    /* Nothing is lost for want of what is only kept for those who may come back after a crash. */
    if (state->grace.bytes[device->index] > 0 && until < state->grace_until + RETIRE_GRACE_MS)
        until = state->grace_until + RETIRE_GRACE_MS;
    if (now < until) {
        r = put_aside(call, NULL, 0, until);
        if (r != GB_WAITS)
            return r;
        if (driver)
            gb_wait_for_driver(call->wait, device, now);
        else
            gb_wait_for_space(call->wait, device, call->need, call->comes, call->lacks);
        return r;
    }
    if (wait_ms == 0)
        return GPUBUF_E_NO_SPACE;
    memcpy(why, call->error.message, sizeof(why));
    return gb_fail(&call->error, GPUBUF_E_TIMEOUT, "after %" PRIu64 " ms: %.400s", wait_ms, why);
}

int gb_call_wait_names(struct gb_call *call, const struct gb_string *names, size_t count,
                       uint64_t wait_ms)
{
    uint64_t since = call->wait ? gb_wait_since(call->wait) : gb_now_ms();

    return put_aside(call, names, count, since + wait_ms);
}

/* ---- content that is in a tier below ---- */

int gb_call_wait_move(struct gb_call *call, struct gb_storage *storage,
                      const struct gb_string *name)
{
    int r;

    if (call->last_try)
        return gb_fail(&call->error, GPUBUF_E_TIMEOUT, "the content has not been moved within %d s",
                       PATIENCE_MS / 1000);
    r = put_aside(call, name, name ? 1 : 0, gb_now_ms() + PATIENCE_MS);
    if (r == GB_WAITS)
        gb_wait_for_storage(call->wait, storage);
    return r;
}

int gb_call_wait_tier(struct gb_call *call, struct gb_device *device, enum gb_tier_kind lacks)
{
    int r;

    if (call->last_try)
        return gb_fail(&call->error, GPUBUF_E_TIMEOUT, "the tier has had no room within %d s",
                       PATIENCE_MS / 1000);
    r = put_aside(call, NULL, 0, gb_now_ms() + PATIENCE_MS);
    if (r == GB_WAITS)
        gb_wait_for_tier(call->wait, device, lacks);
    return r;
}

int gb_call_move_failure(struct gb_call *call, struct gb_storage *storage)
{
    if (!storage->failure)
        return 0;
    if (call->wait) {
        gb_fail(&call->error, GPUBUF_E_DEVICE, "the content could not be moved: %.400s",
                storage->failure->message);
        call->error.cuda = storage->failure->cuda;
        return GPUBUF_E_DEVICE;
    }
    free(storage->failure); /* of an earlier request: this one tries again */
    storage->failure = NULL;
    return 0;
}

static int place_again(struct gb_call *call, struct gb_storage *storage)
{
    struct gb_device *device = storage->device;
    int r;

    if (still_making(call, &r))
        return r;
    if (must_queue(call, device, storage->size))
        return GB_PLACE_FULL;
    gb_recent_hold(&storage->recent); /* it is not to be lost for its own sake */
    do {
        r = gb_storage_place(&call->server->store, storage, &call->shortfall, &call->job,
                             &call->error);
    } while (r == GB_PLACE_FULL && make_room(call, device, &storage->key));
    gb_recent_drop_unused(&storage->recent);
    if (r == GB_PLACE_FULL)
        r = tell_full(call, device, storage->size);
    return r;
}

/* Begins to bring it back; GB_WAITS if there is no room yet. */
static int begin_restore(struct gb_call *call, struct gb_storage *storage, uint64_t wait_ms)
{
    int r = gb_call_check_lost(call, storage->device);

    gb_sessions_give_back(call->server, UINT64_MAX); /* there may be room */
    if (r == 0)
        r = gb_call_move_failure(call, storage);
    if (r == 0)
        r = place_again(call, storage);
    if (r > 0)
        return gb_call_wait_space(call, storage->device, r, wait_ms);
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
    if (r == 0)
        r = gb_call_wait_move(call, storage, name);
    if (r == GB_WAITS && gb_wait_hold(call->wait, storage) < 0) {
        gb_wait_keep_task(call->wait, NULL); /* it answers now */
        gb_wait_end(call->wait);
        call->wait = NULL;
        return gb_call_no_memory(call);
    }
    return r;
}
