#include "daemon/methods/space.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/methods/task.h"
#include "daemon/serve/departure.h"
#include "daemon/spill/tiers.h"

/* How long a request waits for sessions that were asked to unmap a segment, even if its wait_ms is
   0. */
#define RETIRE_GRACE_MS 200
/* How long a request waits for the daemon's own work: for a driver that makes memory, or a tier
   that takes content. */
#define PATIENCE_MS 60000

/* The most storages that leave a device in one try of a request. */
#define LEAVE_A_TRY 32

/* The most sessions that are compared for the sentence of an error, since that takes time. */
#define SESSIONS_COMPARED 1024

/* ---- sentences about a full device ---- */

/* The session with the most bytes of the device under leases, among the first SESSIONS_COMPARED;
   NULL if none has any. */
static const struct gb_session *holds_most(const struct gb_call *call,
                                           const struct gb_device *device)
{
    const struct gb_session *found = NULL;
    unsigned compared = 0;

    GB_LIST_EACH(&call->server->sessions, const struct gb_session, session, of_server) {
        uint64_t bytes = session->holder.bytes[device->index];

        if (++compared > SESSIONS_COMPARED)
            break;
        if (bytes > (found ? found->holder.bytes[device->index] : 0))
            found = session;
    }
    return found;
}

/* Adds a figure to the list, unless it is 0. */
static void tell_figure(struct gb_writer *writer, uint64_t bytes, const char *what)
{
    if (bytes > 0)
        gb_write_format(writer, ", %" PRIu64 " %s", bytes, what);
}

/* Tells where all of the device's capacity is: the figures add up to it. */
static void tell_account(struct gb_writer *writer, const struct gb_device *device)
{
    uint64_t pinned = device->pinned - device->pinned_leased;
    uint64_t held =
        device->used - device->leased - pinned - device->recency.bytes - device->stay.bytes;
    uint64_t over = device->allocated > device->capacity ? device->allocated - device->capacity : 0;

    gb_write_format(writer, "of %" PRIu64, device->capacity);
    if (over > 0) /* an earlier daemon had more */
        gb_write_format(writer, " and %" PRIu64 " above it", over);
    gb_write_format(writer,
                    ", %" PRIu64 " are free, %" PRIu64 " leased, %" PRIu64 " pinned or kept",
                    gb_device_free_bytes(device), device->leased, pinned);
    tell_figure(writer, held, "not ready or coming back for a request");
    tell_figure(writer, device->stay.bytes, "not to be dropped and with no tier to go to");
    tell_figure(writer, device->recency.bytes, "of objects that may leave");
    tell_figure(writer, device->moving, "being made or given back");
    tell_figure(writer, gb_device_retained(device) - device->moving, "free but split");
    tell_figure(writer, device->pinned_by_clients, "mapped by clients after their release");
}

/* Tells how much room the tiers have, and why it does not do. */
static void tell_tiers(const struct gb_call *call, const struct gb_search *search,
                       struct gb_writer *writer)
{
    const struct gb_spill *spill = &call->server->spill;
    uint64_t reserve = search->placing.storage ? 0 : search->need, least;
    uint64_t room = gb_spill_room(spill, search->device, reserve, &least);

    gb_write_format(writer, "; the tiers have room for %" PRIu64 " bytes", room);
    if (room < least)
        gb_write_format(writer,
                        ", and a new object of this size is refused below %" PRIu64
                        ", so that others can come back",
                        least);
    if (spill->tiers[GB_TIER_HOST].failing_until || spill->tiers[GB_TIER_DISK].failing_until)
        gb_write_text(writer, "; a tier failed lately");
}

/* Tells why objects that nobody holds do not leave, and what can be done about it. */
static void tell_remedy(const struct gb_call *call, const struct gb_search *search,
                        struct gb_writer *writer)
{
    const struct gb_device *device = search->device;

    if (device->recency.needed_bytes > 0 && search->room != GB_ROOM_ARRIVING &&
        gb_device_lacks(device, search->need) == 0)
        tell_tiers(call, search, writer);
    else if (device->stay.bytes == 0)
        return;
    else
        gb_write_text(writer, "; there is no tier to spill to");
    gb_write_text(writer, ": delete objects, give gpubufd a (larger) --tier, or have them dropped "
                          "(evict=drop, --evict drop)");
}

static void tell_holder(const struct gb_call *call, struct gb_writer *writer,
                        const struct gb_device *device)
{
    const struct gb_session *session = holds_most(call, device);
    bool all = call->server->session_count <= SESSIONS_COMPARED;

    if (session)
        gb_write_format(writer, "; session %" PRIu64 " (pid %d, uid %u%s%.64s) holds %s, %" PRIu64,
                        session->id, session->pid, session->user->uid, session->client ? ", " : "",
                        session->client ? session->client : "", all ? "most" : "much",
                        session->holder.bytes[device->index]);
}

static int no_space(struct gb_call *call, const struct gb_search *search, const char *more)
{
    const struct gb_device *device = search->device;
    struct gb_writer writer;
    int r;

    gb_writer_init(&writer, 0);
    gb_write_format(&writer, "%s has no room for %" PRIu64 " bytes: ", device->id, search->need);
    tell_account(&writer, device);
    tell_remedy(call, search, &writer);
    tell_holder(call, &writer, device);
    gb_write_text(&writer, more);
    r = writer.failed
            ? gb_call_no_memory(call)
            : gb_fail(&call->error, GPUBUF_E_NO_SPACE, "%.*s", (int)writer.length, writer.data);
    gb_writer_end(&writer);
    return r;
}

/* ---- making room ---- */

/* Until when the request counts on segments that sessions were asked to unmap; after that, objects
   are evicted for it instead. 0: it does not count on any. */
static uint64_t trusts_until(const struct gb_call *call, const struct gb_device *device)
{
    uint64_t now = gb_now_ms();
    uint64_t until = (call->wait ? call->wait->since_ms : now) + RETIRE_GRACE_MS;
    bool asked = device->pinned_by_clients > 0 &&
                 now - gb_waits_queue(call->server, device)->retired_ms < RETIRE_GRACE_MS;

    return asked && now < until ? until : 0;
}

/* Bytes that will be free soon without another eviction. */
static uint64_t coming(const struct gb_call *call, const struct gb_device *device)
{
    return device->freeing + (trusts_until(call, device) ? device->pinned_by_clients : 0);
}

/* Whether the request has waited for nothing but the daemon's own work, and its time is up. */
static bool is_in_vain(const struct gb_call *call)
{
    return call->last_try && gb_wait_comes(call->wait);
}

struct gb_demand gb_call_demand(const struct gb_call *call, uint64_t reserve)
{
    struct gb_demand demand = {.since_ms = UINT64_MAX,
                               .serial = UINT64_MAX,
                               .reserve = reserve,
                               .full_tier = GB_TIERS,
                               .keeps = call->server->state.grace.count > 0};

    if (call->wait) {
        demand.since_ms = call->wait->since_ms;
        demand.serial = call->wait->claim.serial;
    }
    return demand;
}

/* Whether eviction would make room for the request. Looked at once in a try: evicting the first
   storages does not change it. */
static bool may_leave(struct gb_call *call, struct gb_search *search, uint64_t soon,
                      uint64_t reserve)
{
    struct gb_device *device = search->device;
    const struct gb_domain_key *key = search->placing.count > 0 ? NULL : search->placing.key;

    if (search->look == GB_LOOK_FITS)
        return true;
    search->look = gb_store_look(&call->server->store, device, key, search->need, soon,
                                 gb_spill_room_below(&call->server->spill, device, reserve));
    return search->look == GB_LOOK_FITS;
}

/* Has users who are past their quota by versions without a name give way: a parked lease on one of
   these ends, else they are asked for the others. True: a lease has ended. */
static bool press_users(struct gb_call *call, struct gb_search *search, uint64_t reserve)
{
    struct gb_registry *registry = &call->server->registry;
    struct gb_device *device = search->device;
    uint64_t below = gb_spill_room_below(&call->server->spill, device, reserve);
    uint64_t stuck = gb_recency_stuck(&device->recency, below);
    uint64_t excess = gb_users_excess(&registry->store->users, device);

    if (search->look == GB_LOOK_MAPPED)
        return false;
    if (excess >= gb_device_lacks(device, search->need) &&
        gb_users_unpark(registry, device, search->placing.storage))
        return true;
    if (gb_users_press(registry, device, search->need + stuck, gb_now_ms()))
        search->look = GB_LOOK_MAPPED;
    return false;
}

/* Makes room after a try that found the device full. True: try again. If many storages have to
   leave, the request is put aside as if room were arriving, and goes on in the next turn. */
static bool make_room(struct gb_call *call, struct gb_search *search)
{
    bool comes_back = search->placing.storage != NULL;
    struct gb_demand demand = gb_call_demand(call, comes_back ? 0 : search->need);
    uint64_t soon = coming(call, search->device), shortfall = search->placing.shortfall;
    bool fits;

    if (soon >= shortfall)
        return false;
    fits = may_leave(call, search, soon, demand.reserve);
    if (call->left++ == LEAVE_A_TRY && !is_in_vain(call)) {
        search->full_tier = GB_TIERS;
        search->room = GB_ROOM_ARRIVING;
        gb_device_changed(search->device);
        return false;
    }
    search->room = fits ? gb_spill_make_room(&call->server->spill, search->device, shortfall - soon,
                                             &demand, &call->error)
                        : GB_ROOM_NONE;
    search->full_tier = demand.full_tier;
    return search->room == GB_ROOM_MADE ||
           (search->room == GB_ROOM_NONE && press_users(call, search, demand.reserve));
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
   that has waited is tried in its turn, and registered memory takes no room from others. */
static bool must_queue(struct gb_call *call, struct gb_search *search)
{
    bool arriving;

    if ((call->wait && !call->wait->arriving) || search->placing.count > 0 ||
        gb_waits_let_pass(call->server, search->device, call->wait, search->need, &arriving))
        return false;
    search->placing.shortfall = search->need;
    search->room = arriving ? GB_ROOM_ARRIVING : GB_ROOM_NONE;
    no_space(call, search, "; older requests wait for it");
    return true;
}

/* Notes that the storage got its room although older requests wait (wait.h). */
static void note_passing(struct gb_call *call, struct gb_storage *storage)
{
    if (!gb_waits_older(call->server, storage->device, call->wait))
        return;
    storage->tally = &gb_waits_queue(call->server, storage->device)->overtaken;
    *storage->tally += storage->bytes;
}

int gb_call_spare(struct gb_call *call, struct gb_device *device, int r)
{
    if (r != GPUBUF_E_LIMIT || !call->error.limit || strcmp(call->error.limit, "user_bytes") != 0)
        return r;
    return gb_user_recall(&call->server->registry, call->session->user, device, gb_now_ms())
               ? GB_PLACE_QUOTA
               : r;
}

static void begin_search(struct gb_call *call, struct gb_search *search)
{
    struct gb_placing *placing = &search->placing;

    if (placing->storage)
        placing->key = &placing->storage->key;
    placing->store = &call->server->store;
    placing->user = call->session->user;
    placing->making = call->wait ? &call->wait->making : NULL;
    placing->error = &call->error;
    search->device = placing->key->device;
    search->need = placing->key->own ? gb_round_up(placing->bytes, search->device->granularity)
                                     : placing->bytes;
    for (unsigned i = 0; i < placing->count; i++)
        search->need += placing->adoptions[i].handle.bytes;
    search->look = GB_LOOK_NOTHING;
    search->room = GB_ROOM_NONE;
    search->full_tier = GB_TIERS;
}

int gb_call_place(struct gb_call *call, struct gb_search *search)
{
    struct gb_placing *placing = &search->placing;
    struct gb_storage *back = placing->storage;
    int r;

    begin_search(call, search);
    if (still_making(call, &r))
        return r;
    if (must_queue(call, search))
        return GB_PLACE_FULL;
    if (back)
        gb_recent_hold(&back->recent); /* or it could be dropped to make room for itself */
    do
        r = gb_store_place(placing);
    while (r == GB_PLACE_FULL && make_room(call, search));
    if (back)
        gb_recent_drop_unused(&back->recent);
    if (r == GB_PLACE_FULL && search->room == GB_ROOM_STUCK)
        r = call->error.code;
    else if (r == GB_PLACE_FULL)
        no_space(call, search, "");
    if (r == GB_PLACE_OK && !back && placing->count == 0)
        note_passing(call, placing->storage);
    return gb_call_spare(call, search->device, r);
}

/* ---- waiting ---- */

/* Puts the request aside until then; or, if it waits already, moves the end of its wait. */
static int put_aside(struct gb_call *call, const struct gb_string *names, size_t count,
                     uint64_t until_ms)
{
    const struct gb_limits *limits = call->server->limits;
    /* A message that was read takes several times the memory of its text. */
    size_t length = call->message->length * (call->task ? 4 : 1);

    if (call->answers)
        return gb_fail(&call->error, GPUBUF_E_NO_SPACE,
                       "the device has no room for all of them at once");
    if (call->wait) {
        if (gb_wait_for_names(call->wait, names, count, call->asks) < 0)
            return gb_call_no_memory(call);
        gb_wait_until(call->wait, until_ms);
        return GB_WAITS;
    }
    if (call->session->wait_count >= limits->session_waits)
        return gb_fail_limit(&call->error, "session_waits", (long long)limits->session_waits,
                             "waiting requests of a session");
    if (call->session->user->waits >= limits->user_waits)
        return gb_fail_limit(&call->error, "user_waits", (long long)limits->user_waits,
                             "waiting requests of a user");
    if (call->session->user->charges[GB_HELD_BYTES] + gb_wait_bytes(length, count) >
        limits->held_bytes)
        return gb_fail_limit(
            &call->error, "held_bytes", (long long)limits->held_bytes,
            "bytes of a user's messages that are not whole, wait, or are not read");
    if (gb_wait_new(call->session, call->task ? NULL : call->message->line, length, call->fds,
                    call->fd_count, names, count, call->asks, gb_now_ms(), until_ms,
                    &call->wait) < 0)
        return gb_call_no_memory(call);
    if (call->task) {
        gb_task_detach(call->task);
        call->wait->task = call->task;
    }
    return GB_WAITS;
}

/* Waits for the driver to make memory. It has PATIENCE_MS, however long the request has waited for
   space before. */
static int wait_driver(struct gb_call *call, const struct gb_search *search)
{
    struct gb_device *device = search->device;
    struct gb_making_job *job = search->placing.job;
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
    gb_wait_for_driver(call->wait, device, since);
    if (job)
        gb_making_attach(&call->wait->making, job);
    return r;
}

/* Waits for memory of the user that is being given back: PATIENCE_MS for the driver,
   RETIRE_GRACE_MS for sessions that were asked to unmap. Meanwhile it does not hold up other
   requests. */
static int wait_quota(struct gb_call *call, struct gb_device *device, uint64_t wait_ms)
{
    uint64_t now = gb_now_ms(), since = call->wait ? call->wait->since_ms : now;
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

/* The bytes that the request needs on the device at a time: those that it lacks, and its content
   that lies there and may leave. Younger requests must not take that either, or it would have to
   come back for ever. If all of it can never fit, the bytes that it lacks. */
static uint64_t all_bytes(const struct gb_call *call, const struct gb_search *search)
{
    const struct gb_device *device = search->device;
    uint64_t bytes = search->need;

    for (size_t i = 0; i < call->there_count; i++)
        if (call->there[i]->device == device && call->there[i]->leases + call->there[i]->pins == 0)
            bytes += call->there[i]->bytes;
    return bytes <= device->capacity ? bytes : search->need;
}

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Until when a request waits for space that may wait until `until`: at least PATIENCE_MS for the
   daemon's own work (`works`), RETIRE_GRACE_MS for sessions that were asked to unmap. If it trusts
   them it is tried again after that, even if it may wait longer. No request fails for want of
   memory that the grace period holds. */
static uint64_t waits_until(const struct gb_call *call, const struct gb_search *search, bool works,
                            uint64_t since, uint64_t until)
{
    const struct gb_state *state = &call->server->state;
    uint64_t trusts = trusts_until(call, search->device);
    uint64_t least =
        state->grace.bytes[search->device->index] > 0 ? state->grace_until + RETIRE_GRACE_MS : 0;

    if (works)
        return later(later(until, is_in_vain(call) ? 0 : gb_now_ms() + PATIENCE_MS), least);
    if (trusts)
        return later(trusts, least);
    if (search->look == GB_LOOK_MAPPED)
        return later(later(until, since + RETIRE_GRACE_MS), least);
    return later(until, least);
}

int gb_call_wait_space(struct gb_call *call, const struct gb_search *search, int place,
                       uint64_t wait_ms)
{
    struct gb_device *device = search->device;
    uint64_t now = gb_now_ms(), since = call->wait ? call->wait->since_ms : now, until;
    bool arriving = search->room == GB_ROOM_ARRIVING;
    bool driver = !arriving && device->freeing >= search->placing.shortfall;
    char why[sizeof(call->error.message)];
    int r;

    if (place == GB_PLACE_MAKING)
        return wait_driver(call, search);
    if (place == GB_PLACE_QUOTA)
        return wait_quota(call, device, wait_ms);
    until = waits_until(call, search, arriving || driver, since, since + wait_ms);
    if (now < until && !call->answers) {
        r = put_aside(call, NULL, 0, until);
        if (r == GB_WAITS && driver)
            gb_wait_for_driver(call->wait, device, now);
        else if (r == GB_WAITS)
            gb_wait_for_space(call->wait, device, all_bytes(call, search), arriving,
                              search->full_tier);
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
    uint64_t since = call->wait ? call->wait->since_ms : gb_now_ms();
    int r = put_aside(call, names, count, since + wait_ms);

    if (r == GB_WAITS)
        gb_wait_for_names_only(call->wait);
    return r;
}

int gb_call_wait_writer(struct gb_call *call, struct gb_object *object, bool claims,
                        uint64_t wait_ms)
{
    uint64_t since = call->wait ? call->wait->since_ms : gb_now_ms();
    int r = put_aside(call, NULL, 0, since + wait_ms);

    if (r == GB_WAITS)
        gb_wait_to_write(call->wait, object->storage, claims);
    return r;
}

/* ---- content in a tier ---- */

int gb_call_wait_move(struct gb_call *call, struct gb_storage *storage,
                      const struct gb_string *name)
{
    int r;

    if (is_in_vain(call))
        return gb_fail(&call->error, GPUBUF_E_TIMEOUT, "the content has not been moved within %d s",
                       PATIENCE_MS / 1000);
    r = put_aside(call, name, name ? 1 : 0, gb_now_ms() + PATIENCE_MS);
    if (r == GB_WAITS)
        gb_wait_for_move(call->wait, storage);
    return r;
}

int gb_call_wait_tier(struct gb_call *call, struct gb_device *device, enum gb_tier_kind full_tier)
{
    int r;

    if (is_in_vain(call))
        return gb_fail(&call->error, GPUBUF_E_TIMEOUT, "the tier has had no room within %d s",
                       PATIENCE_MS / 1000);
    r = put_aside(call, NULL, 0, gb_now_ms() + PATIENCE_MS);
    if (r == GB_WAITS)
        gb_wait_for_tier(call->wait, device, full_tier);
    return r;
}

int gb_call_wait_recall(struct gb_call *call, struct gb_device *device)
{
    int r = put_aside(call, NULL, 0, gb_now_ms() + PATIENCE_MS);

    if (r == GB_WAITS)
        gb_wait_for_tier(call->wait, device, GB_TIERS);
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
    struct gb_search search = {.placing = {.storage = storage, .bytes = storage->size}};
    int r = gb_call_check_lost(call, storage->device);

    gb_sessions_give_back(call->server, UINT64_MAX); /* there may be room */
    if (r == 0)
        r = gb_call_move_failure(call, storage);
    if (r == 0)
        r = gb_call_place(call, &search);
    if (r > 0) {
        r = gb_call_wait_space(call, &search, r, wait_ms);
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
