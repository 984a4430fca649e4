#include "daemon/serve/wait.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/serve/session.h"

/* Has the request tried again in its user's turn, in the order of arrival: one that was tried a
   moment ago, and waits for something else now, does not come behind later ones that were not. */
static void wake(struct gb_wait *wait)
{
    struct gb_served *user = gb_served(wait->session->user);
    struct gb_link *after = gb_list_last(&user->woken);

    if (gb_list_linked(&wait->woken) || wait->over)
        return;
    while (after != &user->woken &&
           GB_CONTAINER(after, struct gb_wait, woken)->queued.bid.serial > wait->queued.bid.serial)
        after = after->prev;
    gb_list_prepend(after, &wait->woken);
    if (!gb_list_linked(&user->waking))
        gb_list_append(&wait->session->server->waits.waking, &user->waking);
}

static void unwake(struct gb_wait *wait)
{
    struct gb_served *user = gb_served(wait->session->user);

    gb_list_remove(&wait->woken);
    if (gb_list_empty(&user->woken))
        gb_list_remove(&user->waking);
}

/* True if it was answered; it is freed then. */
static bool retry(struct gb_wait *wait)
{
    struct gb_entry entry = {.session = wait->session, .wait = wait, .last_try = wait->late};

    unwake(wait);
    wait->late = false;
    return wait->session->server->service->serve(&entry) != GB_WAITS;
}

static void time_is_up(struct gb_timer *timer)
{
    struct gb_wait *wait = GB_CONTAINER(timer, struct gb_wait, timer);

    wait->late = true;
    wake(wait);
}

/* Enters the wait for each name. The items lie in the wait's pool, the names in struct
   gb_missing. */
static int keep_names(struct gb_wait *wait, const struct gb_string *names, size_t count, bool asks)
{
    wait->awaited = gb_pool_calloc(&wait->pool, count, sizeof(*wait->awaited));
    if (!wait->awaited)
        return GPUBUF_E_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        struct gb_awaited *awaited = &wait->awaited[i];

        *awaited = (struct gb_awaited){.by = &wait->session->provider, .wait = wait, .asks = asks};
        if (gb_missing_await(&wait->session->server->missings, awaited, names[i].text,
                             names[i].length) < 0)
            return GPUBUF_E_NO_MEMORY;
        wait->awaited_count++;
    }
    return 0;
}

const struct gb_missing *gb_wait_missing(const struct gb_wait *wait, size_t i)
{
    return wait && i < wait->awaited_count ? wait->awaited[i].missing : NULL;
}

uint64_t gb_wait_bytes(size_t length, size_t count)
{
    return sizeof(struct gb_wait) + 2 * length +
           count * (sizeof(struct gb_awaited) + sizeof(struct gb_missing));
}

int gb_wait_for_names(struct gb_wait *wait, const struct gb_string *names, size_t count, bool asks)
{
    uint64_t more = gb_wait_bytes(0, count) - gb_wait_bytes(0, 0);

    if (count == 0 || wait->awaited_count > 0)
        return 0;
    gb_charge_set(&wait->charge, GB_HELD_BYTES, wait->charge.amounts[GB_HELD_BYTES] + more);
    return keep_names(wait, names, count, asks);
}

struct gb_wait *gb_wait_new(struct gb_session *session, const char *line, size_t length)
{
    struct gb_wait *wait = calloc(1, sizeof(*wait));

    if (!wait)
        return NULL;
    wait->session = session;
    wait->since_ms = gb_now_ms();
    wait->queued.bid.serial = ++session->server->waits.made;
    wait->begun_ns = session->server->metrics.begun_ns;
    wait->timer.fire = time_is_up;
    wait->length = length;
    wait->charge.user = session->user;
    gb_charge_set(&wait->charge, GB_HELD_BYTES, gb_wait_bytes(length, 0));
    gb_list_append(&session->waits, &wait->of_session);
    session->wait_count++;
    gb_charge_set(&wait->charge, GB_HELD_WAITS, 1);
    if (!line || (wait->line = gb_pool_strndup(&wait->pool, line, length)))
        return wait;
    gb_wait_end(wait);
    return NULL;
}

void gb_wait_take_fds(struct gb_wait *wait, const int *fds, unsigned count)
{
    if (count > 0)
        memcpy(wait->fds, fds, count * sizeof(*fds));
    wait->fd_count = count;
    gb_charge_set(&wait->charge, GB_HELD_FDS, count);
}

/* The list of requests that need that storage, and others. */
static struct gb_link *watching(struct gb_server *server, const struct gb_storage *storage)
{
    return &server->waits.watching[gb_hash_id((uintptr_t)storage) % GB_WATCHING];
}

static bool waits_to_write(const struct gb_wait *wait, const struct gb_storage *storage)
{
    return wait->storage == storage && wait->waits_for == FOR_WRITER;
}

/* Wakes the first request that waits to write the object, which stays in the list until it is
   answered: nobody overtakes it meanwhile. */
static void wake_writer(struct gb_server *server, const struct gb_storage *storage)
{
    GB_LIST_EACH(watching(server, storage), struct gb_wait, wait, watching) {
        if (waits_to_write(wait, storage)) {
            wake(wait);
            return;
        }
    }
}

/* Waits for nothing but names any more. */
static void leave(struct gb_wait *wait)
{
    bool writes = wait->waits_for == FOR_WRITER && gb_list_linked(&wait->watching);

    gb_list_remove(&wait->watching);
    if (writes)
        wake_writer(wait->session->server, wait->storage);
    gb_queue_leave(&wait->session->server->spill, &wait->queued);
    wait->waits_for = FOR_NOTHING;
    wait->driver_since = 0;
}

static void drop_held(struct gb_wait *wait)
{
    struct gb_store *store = &wait->session->server->store;

    for (size_t i = 0; i < wait->held_count; i++) {
        gb_recent_drop(&wait->held[i]->recent);
        gb_device_changed(wait->held[i]->key.device);
        gb_storage_unref(store, wait->held[i]);
    }
    free(wait->held);
    wait->held = NULL;
    wait->held_count = 0;
}

/* Ends all of a wait but its names: it is not tried again. */
static void stop(struct gb_wait *wait)
{
    struct gb_server *server = wait->session->server;

    gb_timer_cancel(&server->timers, &wait->timer);
    gb_making_end(&wait->making);
    gb_list_remove(&wait->of_session);
    leave(wait);
    drop_held(wait);
    unwake(wait);
    wait->session->wait_count--;
    gb_charge_end(&wait->charge);
    gb_session_drop_fds(wait->session, wait->fds, wait->fd_count);
    server->service->end_task(wait->task);
    wait->over = true;
}

/* Leaves at most that many names; returns how many. */
static unsigned leave_names(struct gb_wait *wait, unsigned most)
{
    struct gb_missings *missings = &wait->session->server->missings;
    unsigned count = 0;

    while (wait->awaited_count > 0 && count < most) {
        gb_missing_leave(missings, &wait->awaited[--wait->awaited_count]);
        count++;
    }
    return count;
}

static void wait_free(struct gb_wait *wait)
{
    gb_pool_end(&wait->pool);
    free(wait);
}

void gb_wait_end(struct gb_wait *wait)
{
    stop(wait);
    leave_names(wait, UINT_MAX);
    wait_free(wait);
}

void gb_wait_for_device(struct gb_wait *wait, struct gb_device *device, uint64_t need,
                        bool arriving, enum gb_tier_kind full_tier)
{
    struct gb_server *server = wait->session->server;

    if (wait->queued.device != device) {
        leave(wait);
        drop_held(wait); /* it may wait for as long as others hold leases */
    }
    gb_queue_enter(gb_waits_queue(server, device), &server->spill, &wait->queued, device, need,
                   arriving, full_tier);
    wait->waits_for = FOR_DEVICE;
    wait->driver_since = 0;
}

bool gb_wait_comes(const struct gb_wait *wait)
{
    return wait->waits_for != FOR_NOTHING && (wait->queued.need == 0 || wait->queued.arriving);
}

void gb_wait_for_move(struct gb_wait *wait, struct gb_storage *storage)
{
    leave(wait);
    wait->waits_for = FOR_MOVE;
    gb_wait_watch(wait, storage);
}

void gb_wait_for_names_only(struct gb_wait *wait)
{
    leave(wait);
    drop_held(wait);
    gb_making_end(&wait->making);
}

void gb_wait_watch(struct gb_wait *wait, struct gb_storage *storage)
{
    wait->storage = storage;
    gb_list_remove(&wait->watching);
    gb_list_append(watching(wait->session->server, storage), &wait->watching);
    unwake(wait); /* it has just been tried */
}

/* Most requests belong behind all others, so the search for its place begins at the end. */
void gb_wait_to_write(struct gb_wait *wait, struct gb_storage *storage, bool claims)
{
    struct gb_link *list = watching(wait->session->server, storage), *after = gb_list_last(list);

    if (waits_to_write(wait, storage) && gb_list_linked(&wait->watching)) {
        unwake(wait);
        return;
    }
    gb_wait_for_names_only(wait);
    while (after != list) {
        const struct gb_wait *other = GB_CONTAINER(after, struct gb_wait, watching);

        if (waits_to_write(other, storage) && other->queued.bid.serial < wait->queued.bid.serial)
            break;
        after = after->prev;
    }
    wait->storage = storage;
    wait->waits_for = FOR_WRITER;
    wait->claims = claims;
    gb_list_prepend(after, &wait->watching);
    unwake(wait);
}

const struct gb_wait *gb_wait_to_write_before(struct gb_server *server,
                                              const struct gb_storage *storage,
                                              const struct gb_wait *wait, bool claims)
{
    GB_LIST_EACH(watching(server, storage), struct gb_wait, other, watching) {
        if (!waits_to_write(other, storage))
            continue;
        if (wait && other->queued.bid.serial >= wait->queued.bid.serial)
            return NULL;
        if (claims || other->claims)
            return other;
    }
    return NULL;
}

int gb_wait_hold(struct gb_wait *wait, struct gb_storage *storage)
{
    struct gb_storage **held;

    for (size_t i = 0; i < wait->held_count; i++)
        if (wait->held[i] == storage)
            return 0;
    held = realloc(wait->held, (wait->held_count + 1) * sizeof(struct gb_storage *));
    if (!held)
        return GPUBUF_E_NO_MEMORY;
    wait->held = held;
    held[wait->held_count++] = gb_storage_ref(storage);
    gb_recent_hold(&storage->recent);
    return 0;
}

const struct gb_error *gb_wait_failure(const struct gb_wait *wait)
{
    for (size_t i = 0; i < wait->held_count; i++)
        if (wait->held[i]->failure && gb_list_empty(&wait->held[i]->objects))
            return &wait->held[i]->failure->error;
    return NULL;
}

bool gb_wait_until(struct gb_wait *wait, uint64_t until_ms)
{
    return gb_timer_set(&wait->session->server->timers, &wait->timer, until_ms);
}

struct gb_queue *gb_waits_queue(struct gb_server *server, const struct gb_device *device)
{
    return &server->waits.queues[device->index];
}

/* Whether the storage's object is live and has its name. */
static bool is_written(const struct gb_storage *storage)
{
    const struct gb_object *object =
        GB_LIST_FIRST(&storage->objects, const struct gb_object, of_storage);

    return storage->key.live && object && object->current;
}

void gb_waits_wake(struct gb_server *server, struct gb_storage *storage)
{
    if (is_written(storage)) {
        wake_writer(server, storage);
        return;
    }
    GB_LIST_EACH(watching(server, storage), struct gb_wait, wait, watching) {
        if (wait->storage != storage)
            continue;
        gb_list_remove(&wait->watching);
        wake(wait);
    }
}

/* Wakes requests that wait for a name which has appeared or was declined. A request with several
   such names is tried once. */
static void wake_some(struct gb_server *server, uint64_t until)
{
    struct gb_wait *wait;

    while ((wait = gb_missing_next(&server->missings))) {
        wake(wait);
        if (uv_hrtime() >= until)
            return;
    }
}

/* Tries a request. True if it was answered; else memory that was made for it is kept no longer. */
static bool try(struct gb_queued *queued)
{
    struct gb_wait *wait = GB_CONTAINER(queued, struct gb_wait, queued);

    if (retry(wait))
        return true;
    gb_making_tried(&wait->making);
    return false;
}

/* Goes on with a device's round. The requests for which memory was made are first: it is kept for
   them until then, and an older request that needs more could not have it. */
static void run_queue(struct gb_server *server, struct gb_device *device, uint64_t until)
{
    struct gb_queue *queue = gb_waits_queue(server, device);

    if (!gb_queue_has_more(queue, device))
        return;
    GB_LIST_EACH(&queue->waits, struct gb_wait, wait, queued.link)
        if (wait->making.made)
            try(&wait->queued);
    gb_queue_run(queue, &server->spill, device, until, try);
}

bool gb_waits_have_more(const struct gb_server *server)
{
    if (!gb_list_empty(&server->waits.waking) || !gb_list_empty(&server->missings.woken) ||
        gb_providers_have_more(&server->missings.providers))
        return true;
    for (unsigned i = 0; i < server->device_count; i++)
        if (!gb_list_empty(&server->waits.queues[i].waits) &&
            gb_queue_has_more(&server->waits.queues[i], server->devices[i]))
            return true;
    return false;
}

void gb_waits_run(struct gb_server *server, uint64_t until)
{
    wake_some(server, until);
    while (!gb_list_empty(&server->waits.waking)) {
        struct gb_served *user = GB_CONTAINER(server->waits.waking.next, struct gb_served, waking);

        gb_list_remove(&user->waking);
        gb_list_append(&server->waits.waking, &user->waking);
        retry(GB_CONTAINER(user->woken.next, struct gb_wait, woken));
        if (uv_hrtime() >= until)
            break;
    }
    for (unsigned i = 0; i < server->device_count; i++)
        run_queue(server, server->devices[i], until);
    gb_providers_run(&server->missings.providers, until);
}

void gb_waits_end_session(struct gb_session *session)
{
    GB_LIST_EACH(&session->waits, struct gb_wait, wait, of_session) {
        stop(wait);
        gb_list_append(&session->over, &wait->of_session);
    }
}

unsigned gb_waits_leave_some(struct gb_session *session, unsigned most)
{
    unsigned count = 0;

    /* The last ones first: a provider is asked for the first, and would be for others in their
       places. */
    while (!gb_list_empty(&session->over) && count < most) {
        struct gb_wait *wait = GB_CONTAINER(session->over.prev, struct gb_wait, of_session);

        count += leave_names(wait, most - count);
        if (wait->awaited_count > 0)
            break;
        gb_list_remove(&wait->of_session);
        wait_free(wait);
    }
    return count;
}
