#include "daemon/serve/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/config.h"
#include "daemon/objects/orphan_writer.h"
#include "daemon/serve/closer.h"
#include "daemon/serve/departure.h"
#include "daemon/serve/wait.h"
#include "daemon/store/store.h"

#define ACCEPT_BATCH 1 /* connections accepted at a time: answers come before more of them */

/* ---- time ---- */

/* Thousands of them may be due at once: they have a slice of time, and the rest the next turn. */
static void fire_timers(struct gb_server *server)
{
    uint64_t now, until;
    bool more;

    gb_registry_sweep(&server->registry);
    if (!gb_deadlines_first(&server->timers) && !gb_deadlines_first(&server->registry.deadlines) &&
        server->registry.watch_at == UINT64_MAX)
        return; /* spares a look at the clock */
    now = gb_now_ms();
    if (now >= server->registry.watch_at)
        gb_orphan_writers_watch(&server->registry, now);
    until = uv_hrtime() + server->turns.slice_ns / 4;
    do {
        more = gb_timers_fire_next(&server->timers, now);
        more |= gb_registry_expire_next(&server->registry, now);
    } while (more && uv_hrtime() < until);
}

static void on_timer(uv_timer_t *handle)
{
    struct gb_server *server = handle->data;

    server->handles.timer_at = UINT64_MAX; /* it only wakes the loop: serve() looks at the clock */
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

    if (!gb_list_empty(&server->turns.ready) || !gb_list_empty(&server->turns.busy) ||
        !gb_list_empty(&server->turns.leaving) || !gb_list_empty(&server->turns.tasks) ||
        !gb_list_empty(&server->turns.dirty) || !gb_list_empty(&server->registry.orphans) ||
        gb_waits_have_more(server))
        uv_idle_start(&server->handles.more_work, on_idle);
    else
        uv_idle_stop(&server->handles.more_work);
    if (expiry && expiry->at < at)
        at = expiry->at;
    if (server->turns.retire_at < at)
        at = server->turns.retire_at;
    if (server->registry.watch_at < at)
        at = server->registry.watch_at;
    if (server->flights.check_at < at)
        at = server->flights.check_at;
    if (gb_state_due(&server->state) < at)
        at = gb_state_due(&server->state);
    if (gb_spill_due(&server->spill) < at)
        at = gb_spill_due(&server->spill);
    if (at == UINT64_MAX || at == server->handles.timer_at)
        return;
    now = gb_now_ms();
    uv_update_time(server->loop);
    uv_timer_start(&server->handles.timer, on_timer, at > now ? at - now : 0, 0);
    server->handles.timer_at = at;
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

    server->turns.retire_at = gb_list_empty(&server->store.empties)
                                  ? UINT64_MAX
                                  : gb_store_retire_idle(&server->store, gb_now_ms());
    for (unsigned i = 0; i < server->device_count; i++) {
        at = recalls_due(server, server->devices[i]);
        if (at < server->turns.retire_at)
            server->turns.retire_at = at;
        if (gb_list_empty(&server->devices[i]->retiring) && !server->devices[i]->asked_ms)
            continue;
        at = gb_mappers_end_overdue(&server->store, server->devices[i], gb_now_ms());
        if (at < server->turns.retire_at)
            server->turns.retire_at = at;
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

/* An event may be for thousands. For a single session the clock is not asked. */
void gb_loop_flush(struct gb_server *server, size_t most, uint64_t slice_ns)
{
    uint64_t until = 0;

    while (!gb_list_empty(&server->turns.dirty)) {
        struct gb_session *session =
            GB_CONTAINER(server->turns.dirty.next, struct gb_session, dirty);

        if (until && uv_hrtime() >= until)
            return;
        gb_list_remove(&session->dirty);
        if (!until && !gb_list_empty(&server->turns.dirty))
            until = uv_hrtime() + slice_ns;
        gb_session_flush(session, most);
    }
}

/* Whether the user's watches are far behind. It gets no more of its requests served then, which may
   be why they are. */
static bool is_watch_behind(const struct gb_server *server, const struct gb_served *user)
{
    const struct gb_session *first =
        GB_LIST_FIRST(&user->untold, struct gb_session, watching.of_user);

    return first && server->seq - first->watching.seq > GB_TOLD_LATE;
}

static void serve_next(struct gb_server *server, struct gb_link *list)
{
    struct gb_session *session = GB_CONTAINER(list->next, struct gb_session, ready);

    gb_list_remove(&session->ready);
    if (!is_watch_behind(server, gb_served(session->user))) {
        gb_session_serve(session);
        return;
    }
    session->busy = true;
    gb_session_put_off(session);
}

/* Serves one busy session of the user whose turn it is (round robin by users), and tells its
   watches. So a session does not wait for all those of a user who has many. New sessions are busy,
   too. Draining sessions get every second turn of their user, so that many of them do not hold up
   one whose peer is there. */
static void serve_busy(struct gb_server *server)
{
    struct gb_served *user = GB_CONTAINER(server->turns.busy.next, struct gb_served, turn);
    bool late = is_watch_behind(server, user);
    bool drains = gb_list_empty(&user->busy) || (user->drains && !gb_list_empty(&user->draining));
    struct gb_link *list = drains ? &user->draining : &user->busy, *next = NULL;

    if (!gb_list_empty(&user->untold))
        server->service->send_news(user, uv_hrtime() + server->turns.slice_ns / (late ? 2 : 4));
    if (!late && !gb_list_empty(list)) {
        next = list->next;
        user->drains = !drains;
        gb_list_remove(next);
    }
    gb_list_remove(&user->turn);
    if (gb_served_is_busy(user))
        gb_list_append(&server->turns.busy, &user->turn);
    if (next)
        gb_session_serve(GB_CONTAINER(next, struct gb_session, ready));
}

/* Serves every ready session once, then as many busy ones as there is time for. */
static void serve_sessions(struct gb_server *server)
{
    struct gb_link turn = {NULL};
    uint64_t until;

    /* Sessions that become ready meanwhile wait for the next turn. */
    gb_list_move(&server->turns.ready, &turn);
    while (!gb_list_empty(&turn))
        serve_next(server, &turn);
    if (gb_list_empty(&server->turns.busy))
        return;
    until = uv_hrtime() + server->turns.slice_ns / 4;
    do
        serve_busy(server);
    while (!gb_list_empty(&server->turns.busy) && uv_hrtime() < until);
}

static void serve(struct gb_server *server)
{
    bool released;
    uint64_t until = 0;

    server->registry.now_ms = uv_now(server->loop);
    serve_sessions(server);
    if (!gb_list_empty(&server->turns.tasks))
        server->service->run_tasks(server, uv_hrtime() + server->turns.slice_ns / 2);
    fire_timers(server);
    withdraw_lost(server);
    if (server->flights.check_at != UINT64_MAX)
        gb_flights_check(&server->flights, gb_now_ms());
    gb_state_run_due(&server->state, gb_state_due(&server->state) == UINT64_MAX ? 0 : gb_now_ms());
    gb_sessions_release_output(server);
    /* A waiting request that is served may publish a name that another waits for, and a session
       that is ended frees room. Nothing else would wake the loop for those that wait. */
    if (gb_waits_have_more(server) || !gb_list_empty(&server->turns.leaving))
        until = uv_hrtime() + server->turns.slice_ns / 4;
    released = gb_list_empty(&server->turns.leaving) ||
               gb_sessions_release_leases(server, uv_hrtime() + server->turns.slice_ns / 2);
    do {
        if (released) /* else in the next turn: they may wait for what is given back */
            gb_waits_run(server, until);
        retire_idle(server);
        gb_loop_flush(server, GB_SESSION_SEND_BYTES, server->turns.slice_ns / 2);
    } while (released && gb_waits_have_more(server) && uv_hrtime() < until);
    gb_spill_run_due(&server->spill);
    gb_evict_ahead(&server->spill);
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
    struct gb_writer *writer;
    struct gb_error error;
    int fd;

    gb_log_limited(GB_LOG_WARNING, GB_NOBODY, "session turned away",
                   GB_LOG_TEXT("why", strerror(why)));
    server->metrics.turned_away++;
    if (server->handles.spare_fd < 0)
        return;
    gb_fail_limit(&error, "open_files", (long long)server->config->open_files,
                  "open files of the daemon");
    writer = gb_shared_writer_acquire(&server->notices);
    gb_rpc_write_error(writer, (struct gb_string){0}, &error);
    close(server->handles.spare_fd);
    /* cppcheck-suppress nullPointer ; accept4 takes NULL */
    fd = accept4(server->listener.fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0 && !writer->failed)
        (void)!send(fd, writer->data, writer->length, MSG_DONTWAIT | MSG_NOSIGNAL);
    gb_shared_writer_return(writer);
    if (fd >= 0)
        gb_close_connection(server->closer, NULL, fd);
    server->handles.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void on_listen(uv_poll_t *handle, int status, int events)
{
    struct gb_server *server = handle->data;

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

static void on_signal(uv_signal_t *handle, int signum)
{
    struct gb_server *server = handle->data;

    if (signum == SIGHUP && !gb_state_is_kept(&server->state)) {
        gb_log(GB_LOG_WARNING, "handover refused",
               GB_LOG_TEXT("why", "no service manager keeps what a new daemon would need"));
        return;
    }
    if (signum == SIGHUP)
        gb_log(GB_LOG_INFO, "handing over");
    else
        gb_log(GB_LOG_INFO, "stopping", GB_LOG_TEXT("signal", strsignal(signum)));
    server->handles.stopped_by = signum;
    uv_stop(server->loop);
}

/* Of these calls only those that poll or watch signals can fail. */
static void on_exits(uv_poll_t *handle, int status, int events)
{
    struct gb_server *server = handle->data;

    gb_orphan_writers_end_exited(&server->registry);
}

int gb_loop_start(struct gb_server *server, struct gb_error *error)
{
    static const int signals[3] = {SIGTERM, SIGINT, SIGHUP};
    uv_loop_t *loop = server->loop;
    int r = uv_poll_init(loop, &server->handles.listen, server->listener.fd);

    if (r < 0)
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot poll the socket: %s", uv_strerror(r));
    server->handles.listen.data = server;
    uv_poll_start(&server->handles.listen, UV_READABLE, on_listen);
    r = uv_poll_init(loop, &server->handles.exits, server->registry.exits);
    if (r < 0)
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot poll for ended writers: %s", uv_strerror(r));
    server->handles.exits.data = server;
    uv_poll_start(&server->handles.exits, UV_READABLE, on_exits);
    uv_check_init(loop, &server->handles.check);
    server->handles.check.data = server;
    uv_check_start(&server->handles.check, on_check);
    uv_prepare_init(loop, &server->handles.prepare);
    server->handles.prepare.data = server;
    uv_prepare_start(&server->handles.prepare, on_prepare);
    uv_idle_init(loop, &server->handles.more_work);
    uv_timer_init(loop, &server->handles.timer);
    server->handles.timer.data = server;
    for (int i = 0; i < 3; i++) {
        uv_signal_init(loop, &server->handles.signals[i]);
        server->handles.signals[i].data = server;
        r = uv_signal_start(&server->handles.signals[i], on_signal, signals[i]);
        if (r < 0)
            return gb_fail(error, GPUBUF_E_SYSTEM, "cannot watch signals: %s", uv_strerror(r));
    }
    return 0;
}
