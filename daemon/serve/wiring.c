#include "daemon/serve/wiring.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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
#include "daemon/objects/orphan_writer.h"
#include "daemon/serve/closer.h"
#include "daemon/serve/departure.h"
#include "daemon/serve/idle.h"
#include "daemon/serve/loop.h"
#include "daemon/serve/wait.h"
#include "daemon/spill/tiers.h"
#include "daemon/store/store.h"

#define FILES_TO_COME 6 /* that gb_server_listen() opens: the socket, its lock, and others */
/* Beside the daemon's own. Of these the first user may take seven, and leaves the next one four: a
   session, a segment of host memory, and an answer need them. */
#define FILES_OF_TWO 17

/* ---- functions that are handed down ---- */

static void on_event(void *arg, enum gb_event event, struct gb_object *object)
{
    struct gb_server *server = arg;

    server->seq++;
    server->service->event(server, event, object);
    GB_PROBE3(event, gb_event_kind(event), &object->name[0], server->seq);
}

/* Asks a session to end its use of something. */
static void ask(struct gb_session *session, const char *method, const char *what, uint64_t id)
{
    struct gb_writer *writer = gb_shared_writer_acquire(&session->server->notices);

    gb_rpc_begin_notification(writer, method, 0);
    gb_write_format(writer, "{\"%s\":[%llu]}", what, (unsigned long long)id);
    gb_rpc_end(writer);
    gb_session_send(session, writer, NULL, 0);
    gb_shared_writer_return(writer);
}

static void on_retire(void *arg, struct gb_mapper *mapper, const struct gb_segment *segment)
{
    gb_waits_queue(arg, segment->device)->retired_ms = gb_now_ms();
    ask(GB_CONTAINER(mapper, struct gb_session, mapper), "segments.retire", "segments",
        segment->id);
}

/* If the lease is idle, the session may also say that it is in use. */
static void on_recall(void *arg, struct gb_lease *lease)
{
    struct gb_session *session = GB_CONTAINER(lease->holder, struct gb_session, holder);

    (void)arg;
    if (!lease->holder->orphan && !gb_session_has_ended(session))
        ask(session, "leases.recall", "leases", lease->id); /* else it ends by itself */
}

/* Ends a session that has not done in time what it was asked for; false if it is being ended. */
static bool end_session(struct gb_session *session, const char *why)
{
    if (gb_session_has_ended(session) || session->end_reason)
        return false;
    session->server->metrics.sessions_ended++;
    gb_session_doom(session, why);
    return true;
}

static void on_overdue(void *arg, struct gb_mapper *mapper)
{
    struct gb_session *session = GB_CONTAINER(mapper, struct gb_session, mapper);

    (void)arg;
    if (end_session(session, "it did not unmap what was asked for"))
        gb_log_limited(GB_LOG_WARNING, session->user->uid,
                       "session ended: it does not unmap what others lack",
                       GB_LOG_NUMBER("session", session->id), GB_LOG_NUMBER("pid", session->pid),
                       GB_LOG_NUMBER("uid", session->user->uid));
}

static void on_excess(void *arg, struct gb_lease *lease)
{
    struct gb_session *session = GB_CONTAINER(lease->holder, struct gb_session, holder);

    (void)arg;
    if (lease->holder->orphan) {
        if (!lease->write)
            gb_orphan_writer_end_lease(lease);
        return;
    }
    if (end_session(session, "it did not release what was asked for"))
        gb_log_limited(GB_LOG_WARNING, session->user->uid,
                       "session ended: it holds deleted objects past its quota that others lack",
                       GB_LOG_NUMBER("session", session->id), GB_LOG_NUMBER("pid", session->pid),
                       GB_LOG_NUMBER("uid", session->user->uid));
}

/* Closes a descriptor that was received and not adopted. */
static void on_drop(void *arg, struct gb_user *user, int fd)
{
    const struct gb_server *server = arg;

    gb_close_foreign(server->closer, user, fd);
}

static void on_resend(struct gb_flight *flight)
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

static void notify_provider(struct gb_provider *provider, const struct gb_writer *message)
{
    gb_session_send(session_of(provider), message, NULL, 0);
}

/* Wakes requests that wait for a storage's content: it has been moved, or has lost a name. */
static void wake_waits(void *arg, struct gb_storage *storage)
{
    gb_waits_wake(arg, storage);
}

/* ---- beginning ---- */

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
    gb_writer_init(&workspace->layout, 0);
    gb_writer_init(&workspace->text, 0);
    workspace->scratch = malloc(GB_SCRATCH_BYTES);
    workspace->end_scratch = malloc(GB_SCRATCH_BYTES);
    return workspace->scratch && workspace->end_scratch;
}

static void end_workspace(struct gb_workspace *workspace)
{
    gb_pool_end(&workspace->pool);
    gb_writer_end(&workspace->writer);
    gb_writer_end(&workspace->layout);
    gb_writer_end(&workspace->text);
    free(workspace->scratch);
    free(workspace->end_scratch);
}

/* A daemon that is started now has the tier again, and all that lies there. */
static void on_outage_over(void *arg)
{
    struct gb_server *server = arg;

    if (!gb_state_is_kept(&server->state))
        return;
    gb_log(GB_LOG_WARNING, "tier usable again: handing over");
    server->handles.stopped_by = SIGHUP;
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
    server->handles.ends_fd = server->handles.spare_fd = -1;
    server->next_session = server->watches.next = 1;
    server->started_ms = gb_now_ms();
    server->heartbeat.devices = server->devices;
    server->heartbeat.session_count = &server->session_count;
    server->turns.retire_at = server->handles.timer_at = UINT64_MAX;
    server->flights.check_at = UINT64_MAX;
    server->flights.resend = on_resend;
    server->flights.landed = gb_session_landed;
    server->turns.slice_ns = GB_SESSION_SLICE_NS;
    server->turns.drain_ns = GB_SESSION_DRAIN_NS;
    server->missings.providers.registry = &server->registry;
    /* A later daemon begins with higher numbers, so an answer to an earlier one meets no
       request. */
    server->missings.providers.last_request = (uint64_t)gb_wall_ms() << 10;
    server->missings.providers.limits = server->limits;
    server->missings.providers.notices = &server->notices;
    server->missings.providers.is_there = is_there;
    server->missings.providers.reads = reads;
    server->missings.providers.tell = notify_provider;
    gb_writer_init(&server->notices.writer, GB_LIMIT(line_bytes));
    gb_writer_init(&server->watches.text.writer, GB_LIMIT(line_bytes));
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
    if (!make_workspace(&server->workspace) || !gb_metrics_init(&server->metrics, service->count))
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

/* Listens on the socket that the service manager handed over, if it did; else on one of our own. */
static int open_listener(struct gb_server *server, struct gb_error *error)
{
    int fd = server->notify ? gb_notify_acquire_fd(server->notify, GB_NOTIFY_SOCKET) : -1;

    if (fd < 0 && server->notify)
        fd = gb_notify_acquire_fd(server->notify, "listen");
    if (fd >= 0)
        return gb_listener_adopt(&server->listener, fd, server->config->socket, error);
    return gb_listener_open(&server->listener, server->config->socket, server->config->mode, error);
}

/* After a crash the numbers of events leap, which tells clients that they have missed some, and
   those of sessions, by which a process that comes back names its former one. They begin at the
   time in microseconds, which is more than the events or sessions of any earlier daemon. */
static void continue_counting(struct gb_server *server)
{
    if (server->state.grace_until == 0)
        return;
    server->metrics.crashes_survived = 1;
    server->seq = server->next_session = (uint64_t)gb_wall_ms() * 1000;
}

/* How many descriptors the daemon has open, and will have before it serves anybody. Those that an
   earlier daemon left are not taken yet. -1, with errno. */
static int count_own(const struct gb_server *server)
{
    int own = open("/dev/null", O_RDONLY | O_CLOEXEC); /* the lowest number that is not taken */

    if (own < 0)
        return -1;
    close(own);
    for (unsigned i = 0; server->notify && i < server->notify->fd_count; i++)
        own -= server->notify->fds[i].fd >= 0;
    return own + FILES_TO_COME;
}

/* Does not begin with so few descriptors that one user could keep another from having any. A daemon
   that follows another begins in any case. */
static int reserve_files(struct gb_server *server, struct gb_error *error)
{
    int own = count_own(server);
    uint64_t most = server->config->open_files;
    uint64_t least = (uint64_t)own + FILES_OF_TWO;

    if (own < 0)
        return gb_fail_errno(error, "cannot open descriptors");
    gb_users_reserve(&server->store.users, (uint64_t)own);
    if (most == 0 || server->config->spill.follows || least <= most)
        return 0;
    return gb_fail(error, GPUBUF_E_INVALID,
                   "it may have %" PRIu64 " descriptors open, and needs %" PRIu64
                   " at least: raise RLIMIT_NOFILE (ulimit -n, LimitNOFILE=)",
                   most, least);
}

int gb_server_listen(struct gb_server *server, uv_loop_t *loop, struct gb_error *error)
{
    int r = reserve_files(server, error);

    server->loop = loop;
    if (r == 0)
        r = make_instance(server, error);
    if (r == 0)
        r = open_listener(server, error);
    if (r < 0)
        return r;
    server->handles.spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    server->handles.ends_fd = epoll_create1(EPOLL_CLOEXEC);
    server->registry.exits = epoll_create1(EPOLL_CLOEXEC);
    if (server->handles.spare_fd < 0 || server->handles.ends_fd < 0 || server->registry.exits < 0)
        return gb_fail_errno(error, "cannot open descriptors");
    if (gb_closer_start(server->closer, loop) < 0)
        return gb_fail_errno(error, "cannot poll the closer");
    gb_closer_unlocks(server->closer, server->listener.lock_fd);
    if (server->listener.lock_fd >= 0) /* else the service manager listens, too */
        gb_closer_shuts(server->closer, server->listener.fd);
    if (server->spill.tiers[GB_TIER_DISK].dir)
        gb_closer_unlocks(server->closer, gb_spill_dir_lock(server->spill.tiers[GB_TIER_DISK].dir));
    r = gb_loop_start(server, error);
    if (r == 0)
        r = start_movers(server, error);
    if (r == 0)
        r = gb_spill_start(&server->spill, loop, error);
    if (r == 0)
        r = gb_state_begin(&server->state, server->notify, &server->registry, &server->spill,
                           server->devices, server->device_count, server->config->grace_ms,
                           server->instance, gb_now_ms(), error);
    if (r == 0 && server->spill.tiers[GB_TIER_DISK].capacity > 0)
        r = gb_state_remove_stale_files(&server->state, error);
    /* No number is that of a session which left a writer. */
    gb_raise_to(&server->next_session, server->registry.last_session + 1);
    if (r == 0)
        continue_counting(server);
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
            gb_log(GB_LOG_INFO, "device without a tier", GB_LOG_TEXT("id", device->id),
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
    struct gb_writer *writer = gb_shared_writer_acquire(&server->notices);

    gb_rpc_begin_notification(writer, "shutdown", 0);
    gb_write_text(writer, resume ? "{\"reason\":\"the daemon hands over\",\"resume\":true}"
                                 : "{\"reason\":\"the daemon stops\",\"resume\":false}");
    gb_rpc_end(writer);
    GB_LIST_EACH(&server->sessions, struct gb_session, session, of_server)
        gb_session_send(session, writer, NULL, 0);
    gb_shared_writer_return(writer);
    gb_loop_flush(server, SIZE_MAX, INT64_MAX);
}

/* Accepts and closes the connections that still wait, if the socket is ours alone: else close() of
   the socket would close the descriptors that they have sent, which may block. */
static void refuse_waiting(struct gb_server *server)
{
    if (server->listener.lock_fd < 0)
        return;
    for (int i = 0; i <= GB_LISTENER_BACKLOG; i++) { /* the kernel takes one more */
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
    bool for_good, resume;

    say_listening(server);
    gb_idle_watch(server);
    server->heartbeat.state = &server->state;
    server->heartbeat.listener = &server->listener;
    if (server->notify)
        gb_heartbeat_begin(&server->heartbeat, server->notify, server->loop, server->listener.path);
    uv_run(server->loop, UV_RUN_DEFAULT);
    for_good = server->handles.stopped_by == SIGINT;
    if (server->notify)
        gb_notify_send_stopping(server->notify, for_good);
    resume = gb_state_is_kept(&server->state) && !for_good;
    GB_FAILPOINT(HAND_OVER_BEGIN);
    gb_state_hand_over(&server->state);
    say_shutdown(server, resume);
    GB_FAILPOINT(HAND_OVER_TOLD);
    gb_pulse_end(&server->pulse); /* before a client learns by the hang-up that its leases end */
    while (!gb_list_empty(&server->sessions))
        gb_session_end(GB_CONTAINER(server->sessions.next, struct gb_session, of_server),
                       "the daemon stops");
    refuse_waiting(server);
    return server->handles.stopped_by == SIGHUP;
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

/* The movers finish their jobs before gb_store_end(), which asserts that nothing is left. */
static void end_store(struct gb_server *server)
{
    gb_mover_end(server->worker);
    server->worker = NULL;
    gb_flights_end(&server->flights);
    gb_sessions_release_leases(server, UINT64_MAX);
    gb_state_end(&server->state);
    gb_orphan_writers_end(&server->registry);
    gb_spill_stop(&server->spill);
    gb_registry_end(&server->registry);
    gb_hash_end(&server->missings.table);
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
    if (server->handles.ends_fd >= 0)
        close(server->handles.ends_fd);
    if (server->registry.exits >= 0)
        close(server->registry.exits);
    if (server->handles.spare_fd >= 0)
        close(server->handles.spare_fd);
    end_workspace(&server->workspace);
    gb_writer_end(&server->notices.writer);
    gb_writer_end(&server->watches.text.writer);
    gb_metrics_end(&server->metrics);
}
