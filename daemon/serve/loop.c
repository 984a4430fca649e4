#include "daemon/serve/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/failpoint.h"
#include "daemon/base/log.h"
#include "daemon/base/probes.h"
#include "daemon/config.h"
#include "daemon/memory/device_kinds.h"
#include "daemon/objects/lease.h"
#include "daemon/serve/closer.h"
#include "daemon/serve/departure.h"
#include "daemon/serve/wait.h"
#include "daemon/spill/tiers.h"

#define ACCEPT_BATCH 1 /* connections accepted at a time: answers come before more of them */

/* ---- time ---- */

static void fire_timers(struct gb_server *server)
{
    uint64_t now;

    gb_registry_sweep(&server->registry);
    if (!gb_deadlines_first(&server->timers) && !gb_deadlines_first(&server->registry.deadlines))
        return; /* spares a look at the clock */
    now = gb_now_ms();
    gb_timers_fire(&server->timers, now);
    gb_registry_expire(&server->registry, now);
}

static void on_timer(uv_timer_t *handle)
{
    struct gb_server *server = handle->data;

    server->timer_at = UINT64_MAX; /* it only wakes the loop: serve() looks at the clock */
}

static void on_idle(uv_idle_t *handle)
{
    (void)handle; /* an active idle handle keeps the loop from sleeping */
}

/* Before the loop sleeps: it must not sleep while there is work left, and not past the first
   deadline. */
static void on_prepare(uv_prepare_t *handle)
{
    struct gb_server *server = handle->data;
    const struct gb_deadline *timer = gb_deadlines_first(&server->timers);
    const struct gb_deadline *expiry = gb_deadlines_first(&server->registry.deadlines);
    uint64_t at = timer ? timer->at : UINT64_MAX, now;

    if (!gb_list_empty(&server->ready) || !gb_list_empty(&server->busy) ||
        !gb_list_empty(&server->leaving) || !gb_list_empty(&server->tasks) ||
        !gb_list_empty(&server->dirty) || !gb_list_empty(&server->registry.orphans) ||
        gb_waits_have_more(server))
        uv_idle_start(&server->go_on, on_idle);
    else
        uv_idle_stop(&server->go_on);
    if (expiry && expiry->at < at)
        at = expiry->at;
    if (server->retire_at < at)
        at = server->retire_at;
    if (server->flights.look_at < at)
        at = server->flights.look_at;
    if (gb_state_due(&server->state) < at)
        at = gb_state_due(&server->state);
    if (gb_spill_tells_at(&server->spill) < at)
        at = gb_spill_tells_at(&server->spill);
    if (at == UINT64_MAX || at == server->timer_at)
        return;
    now = gb_now_ms();
    uv_update_time(server->loop);
    uv_timer_start(&server->timer, on_timer, at > now ? at - now : 0, 0);
    server->timer_at = at;
}

/* The end of the time for holders to answer the last recall. After it, waiting requests are tried
   again, and find the leases of silent holders in use. */
static uint64_t recalls_due(struct gb_server *server, struct gb_device *device)
{
    const struct gb_registry *registry = &server->registry;
    uint64_t *recalled_ms = &server->registry.recalled_ms[device->index];
    uint64_t at = *recalled_ms ? *recalled_ms + registry->recall_ms : UINT64_MAX;

    if (at == UINT64_MAX || gb_now_ms() < at)
        return at;
    *recalled_ms = 0;
    gb_device_changed(device);
    return UINT64_MAX;
}

/* Gives segments back that have been empty for long, and ends sessions that do not unmap segments
   whose room is needed. */
static void retire_idle(struct gb_server *server)
{
    uint64_t at;

    server->retire_at = gb_list_empty(&server->store.empties)
                            ? UINT64_MAX
                            : gb_store_retire_idle(&server->store, gb_now_ms());
    for (unsigned i = 0; i < server->device_count; i++) {
        at = recalls_due(server, server->devices[i]);
        if (at < server->retire_at)
            server->retire_at = at;
        if (gb_list_empty(&server->devices[i]->retiring) && !server->devices[i]->asked_ms)
            continue;
        at = gb_store_press(&server->store, server->devices[i], gb_now_ms());
        if (at < server->retire_at)
            server->retire_at = at;
    }
}

/* ---- a turn of the loop ---- */

/* A lost device takes its objects along: their names end too, and watches are told. */
static void withdraw_lost(struct gb_server *server)
{
    for (unsigned i = 0; i < server->device_count; i++) {
        struct gb_device *device = server->devices[i];

        if (!device->lost || server->withdrawn & 1u << i)
            continue;
        server->withdrawn |= 1u << i;
        gb_device_changed(device); /* requests that wait for space must be answered */
        gb_log(GB_LOG_ERROR, "device lost", GB_LOG_TEXT("id", device->id));
        gb_registry_withdraw(&server->registry, device);
    }
}

/* Sends the output of as many sessions as there is time for; the others wait for the next turn. An
   event may be for thousands. For a single session the clock is not asked. */
static void flush_dirty(struct gb_server *server, size_t most, uint64_t slice_ns)
{
    uint64_t until = 0;

    while (!gb_list_empty(&server->dirty)) {
        struct gb_session *session = GB_CONTAINER(server->dirty.next, struct gb_session, dirty);

        if (until && uv_hrtime() >= until)
            return;
        gb_list_remove(&session->dirty);
        if (!until && !gb_list_empty(&server->dirty))
            until = uv_hrtime() + slice_ns;
        gb_session_flush(session, most);
    }
}

static void serve_next(struct gb_link *list)
{
    struct gb_session *session = GB_CONTAINER(list->next, struct gb_session, ready);

    gb_list_remove(&session->ready);
    gb_session_serve(session);
}

/* Serves one busy session of the user whose turn it is (round robin by users). So a session does
   not wait for all those of a user who has many. New sessions are busy, too. Draining sessions get
   every second turn of their user, so that many of them do not hold up one whose peer is there. */
static void serve_busy(struct gb_server *server)
{
    struct gb_served *user = GB_CONTAINER(server->busy.next, struct gb_served, turn);
    bool drains = gb_list_empty(&user->busy) || (user->drains && !gb_list_empty(&user->draining));
    struct gb_link *next = drains ? user->draining.next : user->busy.next;

    user->drains = !drains;
    gb_list_remove(next);
    gb_list_remove(&user->turn);
    if (gb_served_is_busy(user))
        gb_list_append(&server->busy, &user->turn);
    gb_session_serve(GB_CONTAINER(next, struct gb_session, ready));
}

/* Serves every ready session once, then as many busy ones as there is time for. */
static void serve_sessions(struct gb_server *server)
{
    struct gb_link turn;
    uint64_t until;

    /* Sessions that become ready meanwhile wait for the next turn. */
    gb_list_init(&turn);
    while (!gb_list_empty(&server->ready)) {
        struct gb_link *link = server->ready.next;

        gb_list_remove(link);
        gb_list_append(&turn, link);
    }
    while (!gb_list_empty(&turn))
        serve_next(&turn);
    if (gb_list_empty(&server->busy))
        return;
    until = uv_hrtime() + server->slice_ns / 4;
    do
        serve_busy(server);
    while (!gb_list_empty(&server->busy) && uv_hrtime() < until);
}

static void serve(struct gb_server *server)
{
    bool given_back;
    uint64_t until = 0;

    server->registry.now_ms = uv_now(server->loop);
    serve_sessions(server);
    if (!gb_list_empty(&server->tasks))
        server->service->go_on(server, uv_hrtime() + server->slice_ns / 2);
    fire_timers(server);
    withdraw_lost(server);
    if (server->flights.look_at != UINT64_MAX)
        gb_flights_tend(&server->flights, gb_now_ms());
    gb_state_tend(&server->state, gb_state_due(&server->state) == UINT64_MAX ? 0 : gb_now_ms());
    gb_sessions_go_on_told(server);
    /* A waiting request that is served may publish a name that another waits for, and a session
       that is ended frees room. Nothing else would wake the loop for those that wait. */
    if (gb_waits_have_more(server) || !gb_list_empty(&server->leaving))
        until = uv_hrtime() + server->slice_ns / 4;
    given_back = gb_list_empty(&server->leaving) ||
                 gb_sessions_give_back(server, uv_hrtime() + server->slice_ns / 2);
    do {
        if (given_back) /* else in the next turn: they may wait for what is given back */
            gb_waits_run(server, until);
        retire_idle(server);
        flush_dirty(server, GB_SESSION_SEND_BYTES, server->slice_ns / 2);
    } while (given_back && gb_waits_have_more(server) && uv_hrtime() < until);
    gb_spill_tend(&server->spill);
}

static void on_check(uv_check_t *handle)
{
    struct gb_server *server = handle->data;
    uint64_t begun = uv_hrtime();

    serve(server);
    gb_metrics_turn(&server->metrics, begun, uv_hrtime());
}

/* ---- accepting ---- */

/* Accepts a connection on the spare descriptor, says why, and hangs up: without a free descriptor
   the peer would wait for ever, and the loop would spin. */
static void turn_away(struct gb_server *server, int why)
{
    struct gb_writer *writer = &server->event_writer;
    struct gb_error error;
    int fd;

    gb_fail_limit(&error, "open_files", (long long)server->config->open_files,
                  "open files of the daemon");
    gb_writer_reset(writer);
    gb_rpc_write_error(writer, (struct gb_string){0}, &error);
    gb_log_limited(GB_LOG_WARNING, GB_NOBODY, "session turned away",
                   GB_LOG_TEXT("why", strerror(why)));
    server->metrics.turned_away++;
    if (server->spare_fd < 0)
        return;
    close(server->spare_fd);
    /* cppcheck-suppress nullPointer ; accept4 takes NULL */
    fd = accept4(server->listener.fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0 && !writer->failed)
        (void)!send(fd, writer->data, writer->length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (fd >= 0)
        gb_close_connection(server->closer, NULL, fd);
    server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void on_listen(uv_poll_t *handle, int status, int events)
{
    struct gb_server *server = handle->data;

    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        /* cppcheck-suppress nullPointer ; accept4 takes NULL */
        int fd = accept4(server->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        int why;

        if (fd >= 0) {
            gb_session_new(server, fd);
            continue;
        }
        why = errno;
        if (why == EMFILE || why == ENFILE || why == ENOMEM || why == ENOBUFS) {
            uint64_t before = server->session_count;

            gb_sessions_end_hung_up(server);
            if (server->session_count < before)
                continue; /* an ended session has left a descriptor */
            turn_away(server, why);
        }
        if (why != EINTR && why != ECONNABORTED)
            return;
    }
}

/* ---- beginning ---- */

static void on_event(void *arg, enum gb_event event, struct gb_object *object)
{
    struct gb_server *server = arg;

    server->seq++;
    server->service->event(server, event, object);
    GB_PROBE3(event, gb_event_kind(event), &object->name[0], server->seq);
}

/* Asks a session to unmap a segment. */
static void on_retire(void *arg, struct gb_mapper *mapper, const struct gb_segment *segment)
{
    struct gb_server *server = arg;
    struct gb_writer *writer = &server->event_writer;

    gb_waits_queue(server, segment->device)->retired_ms = gb_now_ms();
    gb_writer_reset(writer);
    gb_rpc_begin_notification(writer, "segments.retire", 0);
    gb_write_format(writer, "{\"segments\":[%llu]}", (unsigned long long)segment->id);
    gb_rpc_end(writer);
    gb_session_send(GB_CONTAINER(mapper, struct gb_session, mapper), writer, NULL, 0);
}

/* Asks a session to end a lease. If that is idle, it may also say that it is in use. */
static void on_recall(void *arg, struct gb_lease *lease)
{
    struct gb_server *server = arg;
    struct gb_writer *writer = &server->event_writer;
    struct gb_session *session = GB_CONTAINER(lease->holder, struct gb_session, holder);

    if (gb_session_has_ended(session))
        return; /* its leases are being ended */
    gb_writer_reset(writer);
    gb_rpc_begin_notification(writer, "leases.recall", 0);
    gb_write_format(writer, "{\"leases\":[%llu]}", (unsigned long long)lease->id);
    gb_rpc_end(writer);
    gb_session_send(session, writer, NULL, 0);
}

/* Ends a session that was asked to unmap a segment and has not in time. */
static void on_overdue(void *arg, struct gb_mapper *mapper)
{
    struct gb_server *server = arg;
    struct gb_session *session = GB_CONTAINER(mapper, struct gb_session, mapper);

    if (gb_session_has_ended(session) || session->end_reason)
        return; /* its mappings are being ended */
    server->metrics.sessions_ended++;
    gb_log_limited(GB_LOG_WARNING, session->user->uid,
                   "session ended: it does not unmap what others lack",
                   GB_LOG_NUMBER("session", session->id), GB_LOG_NUMBER("pid", session->pid),
                   GB_LOG_NUMBER("uid", session->user->uid));
    gb_session_doom(session, "it did not unmap what was asked for");
}

/* Ends a session that holds versions without a name, past the quota of its user. */
static void on_excess(void *arg, struct gb_holder *holder)
{
    struct gb_server *server = arg;
    struct gb_session *session = GB_CONTAINER(holder, struct gb_session, holder);

    if (gb_session_has_ended(session) || session->end_reason)
        return; /* its leases are being ended */
    server->metrics.sessions_ended++;
    gb_log_limited(GB_LOG_WARNING, session->user->uid,
                   "session ended: it holds deleted objects past its quota that others lack",
                   GB_LOG_NUMBER("session", session->id), GB_LOG_NUMBER("pid", session->pid),
                   GB_LOG_NUMBER("uid", session->user->uid));
    gb_session_doom(session, "it did not release what was asked for");
}

/* Closes a descriptor that was received and not adopted. */
static void on_drop(void *arg, struct gb_user *user, int fd)
{
    const struct gb_server *server = arg;

    gb_close_foreign(server->closer, user, fd);
}

static void on_go_on(struct gb_flight *flight)
{
    gb_session_flush(GB_CONTAINER(flight, struct gb_session, flight), GB_SESSION_SEND_BYTES);
}

static struct gb_session *session_of(const struct gb_provider *provider)
{
    return GB_CONTAINER(provider, struct gb_session, provider);
}

static bool is_there(const struct gb_provider *provider)
{
    const struct gb_session *session = session_of(provider);

    return session->state == GB_SESSION_OPEN && !session->end_reason;
}

static bool reads(const struct gb_provider *provider)
{
    return gb_conn_output_bytes(&session_of(provider)->conn) <= GB_SESSION_SEND_BYTES;
}

static void tell_provider(struct gb_provider *provider, const struct gb_writer *message)
{
    gb_session_send(session_of(provider), message, NULL, 0);
}

/* Wakes requests that wait for a storage's content: it has been moved, or has lost a name. */
static void wake_waits(void *arg, struct gb_storage *storage)
{
    gb_waits_wake(arg, storage);
}

static int make_devices(struct gb_server *server, struct gb_error *error)
{
    for (unsigned i = 0; i < server->config->device_count; i++) {
        const struct gb_device_spec *spec = &server->config->devices[i];
        struct gb_error why;

        if (gb_device_open(spec, server->devices, &server->device_count, &why) < 0)
            return gb_fail(error, why.code, "%s: %s", spec->text, why.message);
    }
    return 0;
}

static int start_movers(struct gb_server *server, struct gb_error *error)
{
    int r;

    for (unsigned i = 0; i < server->device_count; i++)
        if (server->devices[i]->can_block &&
            gb_mover_new(server->loop, &server->devices[i]->mover) < 0)
            return gb_fail(error, GPUBUF_E_SYSTEM, "cannot start a thread for %s",
                           server->devices[i]->id);
    r = gb_mover_new(server->loop, &server->worker);
    return r == 0 ? 0 : gb_fail(error, r, "cannot start a thread for long requests");
}

static int make_instance(struct gb_server *server, struct gb_error *error)
{
    unsigned char random[16];

    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return gb_fail_errno(error, "cannot draw a random identity");
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(server->instance + 2 * i, 3, "%02x", random[i]);
    return 0;
}

static bool make_workspace(struct gb_workspace *workspace)
{
    /* Twice the length of a line: an answer of many entries leaves the last out if it is too
       long. */
    gb_writer_init(&workspace->writer, 2 * GB_LIMIT(line_bytes));
    gb_writer_init(&workspace->list_writer, GB_LIMIT(line_bytes));
    workspace->scratch = malloc(GB_SCRATCH_BYTES);
    workspace->end_scratch = malloc(GB_SCRATCH_BYTES);
    return workspace->scratch && workspace->end_scratch;
}

static void end_workspace(struct gb_workspace *workspace)
{
    gb_pool_end(&workspace->pool);
    gb_writer_end(&workspace->writer);
    gb_writer_end(&workspace->list_writer);
    free(workspace->scratch);
    free(workspace->end_scratch);
}

/* A daemon that is started now has the tier again, and all that lies there. */
static void on_outage_over(void *arg)
{
    struct gb_server *server = arg;

    if (!gb_state_is_kept(&server->state))
        return;
    gb_log(GB_LOG_WARNING, "tier back: handing over");
    server->stopped_by = SIGHUP;
    uv_stop(server->loop);
}

int gb_server_init(struct gb_server *server, const struct gb_config *config,
                   const struct gb_service *service, struct gb_error *error)
{
    int r;

    memset(server, 0, sizeof(*server));
    server->config = config;
    server->limits = &config->limits;
    server->evict = config->drops ? GB_EVICT_DROP : GB_EVICT_SPILL;
    server->service = service;
    server->ends_fd = server->spare_fd = -1;
    server->next_session = server->next_watch = 1;
    server->started_ms = gb_now_ms();
    server->heartbeat.devices = server->devices;
    server->heartbeat.session_count = &server->session_count;
    server->retire_at = server->timer_at = UINT64_MAX;
    gb_flights_init(&server->flights);
    server->flights.go_on = on_go_on;
    server->flights.landed = gb_session_landed;
    gb_list_init(&server->walks);
    gb_list_init(&server->sessions);
    gb_list_init(&server->ready);
    gb_list_init(&server->busy);
    gb_list_init(&server->leaving);
    gb_list_init(&server->tasks);
    server->slice_ns = GB_SESSION_SLICE_NS;
    server->drain_ns = GB_SESSION_DRAIN_NS;
    gb_list_init(&server->dirty);
    gb_list_init(&server->untold);
    gb_list_init(&server->watches);
    gb_waits_init(&server->waits);
    gb_missings_init(&server->missings);
    server->missings.providers.registry = &server->registry;
    server->missings.providers.limits = server->limits;
    server->missings.providers.writer = &server->event_writer;
    server->missings.providers.is_there = is_there;
    server->missings.providers.reads = reads;
    server->missings.providers.tell = tell_provider;
    gb_writer_init(&server->event_writer, GB_LIMIT(line_bytes));
    gb_store_init(&server->store);
    server->store.users.record_bytes = sizeof(struct gb_served);
    server->store.retire_after_ms = config->retire_after_ms;
    server->store.unmap_ms = server->limits->unmap_ms;
    server->store.retire = on_retire;
    server->store.overdue = on_overdue;
    server->store.retire_arg = server;
    gb_users_stock(&server->store.users, config->open_files, config->stored_files,
                   config->sent_files);
    gb_registry_init(&server->registry, &server->store);
    server->registry.on_event = on_event;
    server->registry.on_event_arg = server;
    server->registry.on_unnamed = wake_waits;
    server->registry.on_unnamed_arg = server;
    server->registry.recall = on_recall;
    server->registry.overdue = on_excess;
    server->registry.recall_arg = server;
    server->registry.recall_ms = server->limits->recall_ms;
    server->store.drop = on_drop;
    server->store.drop_arg = server;
    server->counts = calloc(service->count, sizeof(*server->counts));
    if (!make_workspace(&server->workspace) || !server->counts ||
        !gb_metrics_init(&server->metrics, service->count))
        return gb_fail_memory(error);
    r = make_devices(server, error);
    if (r < 0)
        return r;
    server->heartbeat.device_count = server->device_count;
    r = gb_spill_init(&server->spill, &server->registry, &config->spill, server->devices,
                      server->device_count, error);
    if (r < 0)
        return r;
    server->spill.moved = wake_waits;
    server->spill.moved_arg = server;
    server->spill.outage.over = on_outage_over;
    r = gb_pulse_begin(&server->pulse, error);
    if (r < 0)
        return r;
    return gb_quotas_set(&server->store.users.quotas, &config->limits, config->quotas,
                         config->quota_count, server->devices, server->device_count, error);
}

static void on_signal(uv_signal_t *handle, int signum)
{
    struct gb_server *server = handle->data;

    if (signum == SIGHUP && !gb_state_is_kept(&server->state)) {
        gb_log(GB_LOG_WARNING, "not handed over",
               GB_LOG_TEXT("why", "no service manager keeps what a new daemon would need"));
        return;
    }
    if (signum == SIGHUP)
        gb_log(GB_LOG_INFO, "handing over");
    else
        gb_log(GB_LOG_INFO, "stopping", GB_LOG_TEXT("signal", strsignal(signum)));
    server->stopped_by = signum;
    uv_stop(server->loop);
}

/* Starts the loop's handles. Of these calls only those that poll or watch signals can fail. */
static int start_handles(struct gb_server *server, struct gb_error *error)
{
    static const int signals[3] = {SIGTERM, SIGINT, SIGHUP};
    uv_loop_t *loop = server->loop;
    int r = uv_poll_init(loop, &server->listen_poll, server->listener.fd);

    if (r < 0)
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot poll the socket: %s", uv_strerror(r));
    server->listen_poll.data = server;
    uv_poll_start(&server->listen_poll, UV_READABLE, on_listen);
    uv_check_init(loop, &server->serve_check);
    server->serve_check.data = server;
    uv_check_start(&server->serve_check, on_check);
    uv_prepare_init(loop, &server->timer_prepare);
    server->timer_prepare.data = server;
    uv_prepare_start(&server->timer_prepare, on_prepare);
    uv_idle_init(loop, &server->go_on);
    uv_timer_init(loop, &server->timer);
    server->timer.data = server;
    for (int i = 0; i < 3; i++) {
        uv_signal_init(loop, &server->signals[i]);
        server->signals[i].data = server;
        r = uv_signal_start(&server->signals[i], on_signal, signals[i]);
        if (r < 0)
            return gb_fail(error, GPUBUF_E_SYSTEM, "cannot watch signals: %s", uv_strerror(r));
    }
    return 0;
}

/* Listens on the socket that the service manager handed over, if it did; else on one of our own. */
static int open_listener(struct gb_server *server, struct gb_error *error)
{
    int fd = server->notify ? gb_notify_take(server->notify, GB_NOTIFY_SOCKET) : -1;

    if (fd < 0 && server->notify)
        fd = gb_notify_take(server->notify, "listen");
    if (fd >= 0)
        return gb_listener_adopt(&server->listener, fd, server->config->socket, error);
    return gb_listener_open(&server->listener, server->config->socket, server->config->mode, error);
}

/* After a crash the numbers of events leap, which tells clients that they have missed some. They
   begin at the time in microseconds, which is more than the events of any earlier daemon. */
static void go_on_counting(struct gb_server *server)
{
    if (server->state.grace_until == 0)
        return;
    server->metrics.crashes_survived = 1;
    server->seq = (uint64_t)gb_wall_ms() * 1000;
}

int gb_server_listen(struct gb_server *server, uv_loop_t *loop, struct gb_error *error)
{
    int r = make_instance(server, error);

    server->loop = loop;
    if (r == 0)
        r = open_listener(server, error);
    if (r < 0)
        return r;
    server->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    server->ends_fd = epoll_create1(EPOLL_CLOEXEC);
    if (server->spare_fd < 0 || server->ends_fd < 0)
        return gb_fail_errno(error, "cannot open descriptors");
    if (gb_closer_start(server->closer, loop) < 0)
        return gb_fail_errno(error, "cannot poll the closer");
    gb_closer_unlocks(server->closer, server->listener.lock_fd);
    if (server->listener.lock_fd >= 0) /* else the service manager listens, too */
        gb_closer_shuts(server->closer, server->listener.fd);
    if (server->spill.tiers[GB_TIER_DISK].dir)
        gb_closer_unlocks(server->closer, gb_spill_dir_lock(server->spill.tiers[GB_TIER_DISK].dir));
    r = start_handles(server, error);
    if (r == 0)
        r = start_movers(server, error);
    if (r == 0)
        r = gb_spill_start(&server->spill, loop, error);
    if (r == 0)
        r = gb_state_begin(&server->state, server->notify, &server->registry, &server->spill,
                           server->devices, server->device_count, server->config->grace_ms,
                           server->instance, gb_now_ms(), error);
    if (r == 0 && server->spill.tiers[GB_TIER_DISK].capacity > 0)
        r = gb_state_clean_disk(&server->state, error);
    if (r == 0)
        go_on_counting(server);
    return r;
}

/* ---- running and ending ---- */

/* Logs settings of tiers that are probably mistakes. */
static void say_tiers(const struct gb_server *server)
{
    bool host_is_used = server->spill.tiers[GB_TIER_HOST].capacity == 0;

    for (unsigned i = 0; i < server->device_count; i++) {
        const struct gb_device *device = server->devices[i];

        host_is_used |= gb_spill_has(&server->spill, device, GB_TIER_HOST);
        if (!device->lanes[GB_OUT] && !server->config->drops)
            gb_log(GB_LOG_INFO, "no tier", GB_LOG_TEXT("id", device->id),
                   GB_LOG_TEXT("why",
                               "what does not fit is refused with no_space; --tier gives it a "
                               "place, --evict drop has older objects dropped"));
    }
    if (!host_is_used)
        gb_log(GB_LOG_WARNING, "tier not used", GB_LOG_TEXT("tier", gb_tier_name(GB_TIER_HOST)),
               GB_LOG_TEXT("why",
                           "it takes what leaves a GPU, and no GPU is served; for the host's "
                           "objects there is --tier disk"));
}

static void say_listening(const struct gb_server *server)
{
    const struct gb_stock *stocks = server->store.users.stocks;
    uint64_t kept = stocks[GB_STOCK_KEPT].most;

    gb_log(GB_LOG_INFO, "listening", GB_LOG_TEXT("socket", server->listener.path),
           GB_LOG_TEXT("instance", server->instance), GB_LOG_NUMBER("pid", getpid()));
    for (unsigned i = 0; i < server->device_count; i++)
        gb_log(GB_LOG_INFO, "device", GB_LOG_TEXT("id", server->devices[i]->id),
               GB_LOG_NUMBER("capacity", server->devices[i]->capacity));
    say_tiers(server);
    if (server->config->open_files > 0)
        gb_log(GB_LOG_INFO, "descriptors", GB_LOG_NUMBER("limit", server->config->open_files),
               GB_LOG_NUMBER("users", stocks[GB_STOCK_OPEN].most),
               GB_LOG_NUMBER("in_flight", stocks[GB_STOCK_FLIGHT].most),
               GB_LOG_NUMBER("kept", kept == UINT64_MAX ? 0 : kept),
               GB_LOG_NUMBER("sessions", server->limits->sessions),
               GB_LOG_NUMBER("user_sessions", server->limits->user_sessions),
               GB_LOG_NUMBER("user_segments", server->limits->user_segments));
}

static void say_shutdown(struct gb_server *server, bool resume)
{
    struct gb_writer *writer = &server->event_writer;

    gb_writer_reset(writer);
    gb_rpc_begin_notification(writer, "shutdown", 0);
    gb_write_text(writer, resume ? "{\"reason\":\"the daemon hands over\",\"resume\":true}"
                                 : "{\"reason\":\"the daemon stops\",\"resume\":false}");
    gb_rpc_end(writer);
    GB_LIST_EACH(&server->sessions, link)
        gb_session_send(GB_CONTAINER(link, struct gb_session, of_server), writer, NULL, 0);
    flush_dirty(server, SIZE_MAX, INT64_MAX);
}

/* Accepts and closes the connections that still wait, if the socket is ours alone: else close() of
   the socket would close the descriptors that they have sent, which may block. */
static void refuse_waiting(struct gb_server *server)
{
    if (server->listener.lock_fd < 0)
        return;
    for (int i = 0; i < GB_LISTENER_BACKLOG; i++) {
        /* cppcheck-suppress nullPointer ; accept4 takes NULL */
        int fd = accept4(server->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd < 0 && errno == EAGAIN)
            return;
        if (fd >= 0)
            gb_close_connection(server->closer, NULL, fd);
    }
}

bool gb_server_run(struct gb_server *server)
{
    bool resume;

    say_listening(server);
    server->heartbeat.state = &server->state;
    server->heartbeat.listener_fd = server->listener.fd;
    if (server->notify)
        gb_heartbeat_begin(&server->heartbeat, server->notify, server->loop, server->listener.path);
    uv_run(server->loop, UV_RUN_DEFAULT);
    if (server->notify)
        gb_heartbeat_stop(&server->heartbeat);
    resume = gb_state_is_kept(&server->state) && server->stopped_by != SIGINT;
    GB_FAILPOINT(HAND_OVER_BEGIN);
    gb_state_hand_over(&server->state);
    say_shutdown(server, resume);
    GB_FAILPOINT(HAND_OVER_TOLD);
    gb_pulse_end(&server->pulse); /* before a client learns by the hang-up that its leases end */
    while (!gb_list_empty(&server->sessions))
        gb_session_end(GB_CONTAINER(server->sessions.next, struct gb_session, of_server),
                       "the daemon stops");
    refuse_waiting(server);
    return server->stopped_by == SIGHUP;
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

/* The movers finish their jobs before gb_store_end(), which asserts that nothing is left. */
static void end_store(struct gb_server *server)
{
    gb_mover_end(server->worker);
    server->worker = NULL;
    gb_flights_end(&server->flights);
    gb_sessions_give_back(server, UINT64_MAX);
    gb_state_end(&server->state);
    gb_spill_stop(&server->spill);
    gb_registry_end(&server->registry);
    gb_missings_end(&server->missings);
    gb_store_clear(&server->store);
    for (unsigned i = 0; i < server->device_count; i++) {
        gb_mover_end(server->devices[i]->mover);
        server->devices[i]->mover = NULL;
    }
    gb_closer_stop(server->closer);
    gb_store_end(&server->store);
    gb_spill_end(&server->spill);
    for (unsigned i = 0; i < server->device_count; i++)
        gb_device_free(server->devices[i]);
}

void gb_server_end(struct gb_server *server)
{
    gb_pulse_end(&server->pulse);
    end_store(server);
    if (server->loop) {
        uv_walk(server->loop, close_handle, NULL);
        uv_run(server->loop, UV_RUN_DEFAULT);
    }
    gb_listener_close(&server->listener);
    gb_deadlines_end(&server->timers);
    if (server->ends_fd >= 0)
        close(server->ends_fd);
    if (server->spare_fd >= 0)
        close(server->spare_fd);
    end_workspace(&server->workspace);
    gb_writer_end(&server->event_writer);
    gb_metrics_end(&server->metrics);
    free(server->counts);
}
