#include "daemon/serve/session.h"
#include "daemon/config.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/serve/closer.h"
#include "daemon/serve/departure.h"
#include "daemon/serve/idle.h"

static const char *const state_names[] = {"open", "hung up", "draining", "leaving", "closed"};

void gb_session_become(struct gb_session *session, enum gb_session_state state)
{
    gb_log(GB_LOG_DEBUG, "session state", GB_LOG_NUMBER("session", session->id),
           GB_LOG_TEXT("from", state_names[session->state]), GB_LOG_TEXT("to", state_names[state]));
    session->state = state;
}

static void note_hung_up(struct gb_session *session)
{
    if (session->state == GB_SESSION_OPEN)
        gb_session_become(session, GB_SESSION_HUNG_UP);
}

static void queue(struct gb_session *session)
{
    struct gb_server *server = session->server;
    struct gb_served *user = gb_served(session->user);

    if (gb_list_linked(&session->ready))
        return;
    gb_list_append(!session->busy                          ? &server->turns.ready
                   : session->state == GB_SESSION_DRAINING ? &user->draining
                                                           : &user->busy,
                   &session->ready);
    if (session->busy && !gb_list_linked(&user->turn))
        gb_list_append(&server->turns.busy, &user->turn);
}

static void on_poll(uv_poll_t *handle, int status, int events)
{
    struct gb_session *session = handle->data;

    if (status < 0) {
        /* The peer has hung up without reading everything; its input must still be served. After an
           error libuv stops polling, so nothing else would notice. */
        note_hung_up(session);
        session->poll_events = 0;
    } else if (gb_list_linked(&session->ready)) {
        /* The session is queued already. If many such sessions were polled on, the loop would do
           little else. */
        session->poll_events = 0;
        uv_poll_stop(handle);
    }
    queue(session);
}

/* Polls for input if it is wanted; and for room to write if there is output, or if something goes
   on only when the peer reads: telling a watch of existing objects, sending a provider `wanted`, or
   serving a throttled session. */
static void poll_for(struct gb_session *session)
{
    bool waits = !gb_list_linked(&session->flight.grounded) && !gb_list_linked(&session->untold) &&
                 (gb_conn_has_output(&session->conn) || session->watching.unsynced > 0 ||
                  gb_session_stalls(session) ||
                  (session->state == GB_SESSION_OPEN && gb_provider_lags(&session->provider)) ||
                  session->input == GB_INPUT_THROTTLED);
    bool listens = session->input == GB_INPUT_WANTED;
    int events = (listens ? UV_READABLE : 0) | (waits ? UV_WRITABLE : 0);

    if (gb_session_has_ended(session) || events == session->poll_events)
        return;
    session->poll_events = events;
    uv_poll_start(&session->poll, events, on_poll);
}

static void half_line_over(struct gb_timer *timer)
{
    struct gb_session *session = GB_CONTAINER(timer, struct gb_session, half_line);

    gb_metrics_limit(&session->server->metrics, "half_line_ms");
    gb_session_end(session, "a message did not arrive in time");
}

const char *gb_session_charge(struct gb_session *session)
{
    const struct gb_limits *limits = session->server->limits;
    const uint64_t *all = session->user->charges, *own = session->charge.amounts;
    const struct gb_frame *in = &session->conn.in;
    uint64_t bytes = in->partial_length - in->partial_start + gb_conn_output_bytes(&session->conn);
    uint64_t fds = in->fd_count;
    bool more_bytes = bytes > own[GB_HELD_BYTES], more_fds = fds > own[GB_HELD_FDS];

    gb_charge_set(&session->charge, GB_HELD_BYTES, bytes);
    gb_charge_set(&session->charge, GB_HELD_FDS, fds);
    gb_charge_set(&session->charge, GB_STOCK_OPEN, 1 + session->conn.out_fd_count);
    if (more_bytes && bytes > GB_SESSION_SPARED_BYTES && all[GB_HELD_BYTES] > limits->held_bytes)
        return "held_bytes";
    if (more_fds && all[GB_HELD_FDS] > limits->held_fds)
        return "held_fds";
    return more_fds && gb_users_are_short(session->user->users) ? "open_files" : NULL;
}

void gb_session_put_off(struct gb_session *session)
{
    gb_session_charge(session);
    poll_for(session);
    queue(session);
}

void gb_session_let_go(struct gb_session *session)
{
    session->input = GB_INPUT_KEPT;
    gb_session_put_off(session);
}

/* ---- beginning ---- */

static int read_credentials(struct gb_session *session, uid_t *uid)
{
    struct ucred credentials;
    socklen_t length = sizeof(credentials);

    if (getsockopt(session->conn.fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) < 0)
        return GPUBUF_E_SYSTEM;
    *uid = credentials.uid;
    session->gid = credentials.gid;
    session->pid = credentials.pid;
    return 0;
}

/* Tells the peer why its session is turned away: one line, in answer to no request. */
static void turn_away(struct gb_session *session, const struct gb_error *error)
{
    struct gb_writer *writer = gb_shared_writer_acquire(&session->server->notices);
    uid_t uid = session->user ? session->user->uid : GB_NOBODY;

    if (error->limit)
        gb_metrics_limit(&session->server->metrics, error->limit);
    gb_rpc_write_error(writer, (struct gb_string){0}, error);
    if (!writer->failed &&
        gb_conn_queue(&session->conn, writer->data, writer->length, NULL, 0) == 0)
        gb_conn_flush(&session->conn);
    gb_shared_writer_return(writer);
    gb_log_limited(GB_LOG_WARNING, uid, "session turned away", GB_LOG_TEXT("why", error->message),
                   GB_LOG_NUMBER("pid", session->pid), GB_LOG_NUMBER("uid", uid));
}

static int admit(struct gb_session *session, struct gb_error *error)
{
    struct gb_server *server = session->server;
    const struct gb_limits *limits = server->limits;
    uid_t uid;

    if (read_credentials(session, &uid) < 0)
        return gb_fail_errno(error, "cannot read who connects");
    session->user = gb_user_get(&server->store.users, uid);
    if (!session->user)
        return gb_fail_memory(error);
    if (server->session_count >= limits->sessions ||
        session->user->has[GB_QUOTA_SESSIONS] >= session->user->quota->most[GB_QUOTA_SESSIONS])
        gb_sessions_end_hung_up(server); /* which may leave room */
    if (server->session_count >= limits->sessions)
        return gb_fail_limit(error, "sessions", (long long)limits->sessions,
                             "sessions of the daemon");
    return gb_user_may_have(session->user, GB_QUOTA_SESSIONS, NULL, 1, error);
}

static void drop_fd(void *arg, int fd)
{
    const struct gb_session *session = arg;

    gb_close_foreign(session->server->closer, session->user, fd);
}

void gb_session_drop_fds(struct gb_session *session, const int *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (fds[i] >= 0)
            drop_fd(session, fds[i]);
}

/* Takes over the socket. A byte that is sent out of band is received in line: else the kernel would
   drop it and close its descriptors here, which may block. */
static void begin_conn(struct gb_session *session, int fd)
{
    int on = 1;

    gb_conn_init(&session->conn, fd);
    session->conn.limits_fds = true;
    session->conn.in.drop = drop_fd;
    session->conn.in.drop_arg = session;
    setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on));
}

static int watch_socket(struct gb_session *session, struct gb_error *error)
{
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = session};
    struct gb_server *server = session->server;

    if (epoll_ctl(server->handles.ends_fd, EPOLL_CTL_ADD, session->conn.fd, &event) < 0)
        return gb_fail_errno(error, "cannot poll the connection");
    if (uv_poll_init(server->loop, &session->poll, session->conn.fd) < 0) {
        epoll_ctl(server->handles.ends_fd, EPOLL_CTL_DEL, session->conn.fd, NULL);
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot poll the connection");
    }
    session->poll.data = session;
    return 0;
}

int gb_session_new(struct gb_server *server, int fd)
{
    struct gb_session *session = calloc(1, sizeof(*session));
    struct gb_error error;
    int r;

    if (!session) {
        gb_close_connection(server->closer, NULL, fd);
        return GPUBUF_E_NO_MEMORY;
    }
    session->server = server;
    session->group_count = -1;
    session->busy = true; /* until it is seen not to be */
    begin_conn(session, fd);
    r = admit(session, &error);
    if (r == 0)
        r = watch_socket(session, &error);
    if (r < 0) {
        turn_away(session, &error);
        gb_conn_reset(&session->conn);
        gb_close_connection(server->closer, session->user, fd);
        gb_user_unref(session->user);
        free(session);
        return r;
    }
    session->id = server->next_session++;
    session->user->has[GB_QUOTA_SESSIONS]++;
    session->charge.user = session->flight.charge.user = session->user;
    gb_charge_set(&session->charge, GB_STOCK_OPEN, 1);
    session->flight.fd = fd;
    session->half_line.fire = half_line_over;
    session->holder.user = gb_user_ref(session->user);
    session->holder.session = session->id;
    session->holder.pid = session->pid;
    session->mapper.id = session->id;
    session->provider = (struct gb_provider){
        .all = &server->missings.providers, .user = session->user, .gid = session->gid};
    gb_list_append(&server->sessions, &session->of_server);
    server->session_count++;
    gb_idle_watch(server);
    server->metrics.sessions++;
    poll_for(session);
    gb_log(GB_LOG_DEBUG, "session began", GB_LOG_NUMBER("session", session->id),
           GB_LOG_NUMBER("pid", session->pid), GB_LOG_NUMBER("uid", session->user->uid));
    return 0;
}

/* ---- sending ---- */

void gb_session_flush(struct gb_session *session, size_t most)
{
    unsigned fds;
    int r;

    if (gb_session_has_ended(session))
        return;
    if (session->end_reason) {
        gb_session_end(session, session->end_reason);
        return;
    }
    if (!gb_conn_has_output(&session->conn) || session->stopped_reading ||
        gb_list_linked(&session->untold))
        return;
    gb_list_remove(&session->flight.grounded);
    fds = session->conn.out_fd_count;
    session->conn.fds_allowed = fds > 0 ? gb_flight_allowed(&session->flight) : 0;
    r = gb_conn_flush_some(&session->conn, most);
    gb_flight_sent(&session->server->flights, &session->flight, fds - session->conn.out_fd_count);
    gb_session_charge(session);
    if (r == GB_CONN_FDS_WAIT)
        gb_flight_ground(&session->server->flights, &session->flight);
    if (r >= 0)
        poll_for(session);
    else if (r != GPUBUF_E_CLOSED)
        gb_session_end(session, "sending failed");
    else { /* its input must still be served */
        session->stopped_reading = true;
        note_hung_up(session);
    }
}

/* Notes why the session must end. */
static void doom(struct gb_session *session, const char *why)
{
    if (!session->end_reason)
        session->end_reason = why;
}

void gb_session_doom(struct gb_session *session, const char *why)
{
    doom(session, why);
    if (!gb_list_linked(&session->dirty))
        gb_list_append(&session->server->turns.dirty, &session->dirty);
}

/* Whether the message can be queued; else its descriptors are closed. */
static bool may_send(struct gb_session *session, const struct gb_writer *message, const int *fds,
                     unsigned count)
{
    if (message->failed)
        doom(session, "out of memory");
    if (!gb_session_has_ended(session) && !session->end_reason && !session->stopped_reading)
        return true;
    for (unsigned i = 0; i < count; i++)
        close(fds[i]);
    return false;
}

/* Charges for a message that was queued (`r` 0), and dooms the session if that failed or too much
   output is unread. */
static void note_queued(struct gb_session *session, int r)
{
    struct gb_server *server = session->server;

    if (r < 0) {
        doom(session, "out of memory");
    } else if (gb_conn_output_bytes(&session->conn) > server->limits->output_bytes) {
        gb_metrics_limit(&server->metrics, "output_bytes");
        doom(session, "it does not read what it is sent");
    } else if (gb_session_charge(session)) {
        gb_metrics_limit(&server->metrics, "held_bytes");
        doom(session, "its user's sessions do not read what they are sent");
    }
}

static void note_dirty(struct gb_session *session)
{
    if (!gb_session_has_ended(session) && !gb_list_linked(&session->dirty))
        gb_list_append(&session->server->turns.dirty, &session->dirty);
}

void gb_session_send(struct gb_session *session, const struct gb_writer *message, const int *fds,
                     unsigned count)
{
    if (may_send(session, message, fds, count))
        note_queued(session,
                    gb_conn_queue(&session->conn, message->data, message->length, fds, count));
    note_dirty(session);
}

void gb_session_answer(struct gb_session *session, struct gb_writer *message, const int *fds,
                       unsigned count)
{
    if (may_send(session, message, fds, count))
        note_queued(session, gb_conn_queue_written(&session->conn, message, fds, count));
    note_dirty(session);
}

void gb_session_delay_output(struct gb_session *session)
{
    struct gb_server *server = session->server;
    uint64_t notice = gb_state_unsent_notice(&server->state);

    if (notice == 0 || gb_state_has_sent(&server->state, notice) || gb_session_has_ended(session))
        return;
    session->unsent_notice = notice;
    gb_list_remove(&session->untold);
    gb_list_append(&server->turns.untold, &session->untold);
}

void gb_sessions_release_output(struct gb_server *server)
{
    while (!gb_list_empty(&server->turns.untold)) {
        struct gb_session *session =
            GB_CONTAINER(server->turns.untold.next, struct gb_session, untold);

        if (!gb_state_has_sent(&server->state, session->unsent_notice))
            return;
        gb_list_remove(&session->untold);
        note_dirty(session);
    }
}

/* ---- serving ---- */

static bool has_unread_output(const struct gb_session *session)
{
    return gb_conn_output_bytes(&session->conn) > GB_SESSION_THROTTLE_BYTES ||
           session->conn.out_fd_count > 0;
}

/* After a request was served: the state of the input, which says whether the next may be served. */
static enum gb_session_input next_input(struct gb_session *session)
{
    if (session->task)
        return GB_INPUT_HELD;
    if (!gb_session_has_ended(session) && has_unread_output(session)) {
        gb_session_flush(session, GB_SESSION_SEND_BYTES);
        if (!session->stopped_reading && has_unread_output(session))
            return GB_INPUT_THROTTLED;
    }
    return session->busy && gb_frame_has_line(&session->conn.in) ? GB_INPUT_KEPT : GB_INPUT_WANTED;
}

static bool may_continue(const struct gb_session *session)
{
    return !gb_session_has_ended(session) && !session->end_reason &&
           session->input == GB_INPUT_WANTED;
}

void gb_session_serve_lines(struct gb_session *session, uint64_t until)
{
    unsigned lines = 0;
    const char *line;
    size_t length;
    int r = 0;

    session->input = GB_INPUT_WANTED;
    session->busy = false;
    session->server->metrics.begun_ns = uv_hrtime();
    while (may_continue(session) && (r = gb_frame_next(&session->conn.in, &line, &length)) > 0) {
        gb_timer_cancel(&session->server->timers, &session->half_line); /* this line is whole */
        int served = session->server->service->serve(
            &(struct gb_entry){.session = session, .line = line, .length = length});

        if (served < 0) {
            gb_session_flush(session, SIZE_MAX);
            gb_session_end(session, served == GPUBUF_E_NO_MEMORY
                                        ? "out of memory"
                                        : "its messages and descriptors are out of step");
            return;
        }
        session->busy = uv_hrtime() >= until;
        session->input = next_input(session);
        lines++;
    }
    session->busy |= lines == 0 || lines > GB_SESSION_MODEST_LINES;
    if (gb_session_has_ended(session) || session->end_reason)
        return;
    if (r == GPUBUF_E_LIMIT)
        gb_metrics_limit(&session->server->metrics, "line_bytes");
    if (r < 0 || gb_frame_finish(&session->conn.in) < 0)
        gb_session_end(session, r == GPUBUF_E_LIMIT ? "a message was too long" : "out of memory");
    else if (session->conn.in.fd_count > 0 && session->input == GB_INPUT_WANTED &&
             !gb_frame_is_partial(&session->conn.in))
        gb_session_end(session, "descriptors came that no message brought");
}

/* Whether not too much is held for its user now; else ends the session. */
static bool keeps_to_limits(struct gb_session *session)
{
    const char *limit = gb_session_charge(session);

    if (!limit)
        return true;
    gb_metrics_limit(&session->server->metrics, limit);
    gb_session_end(session, "its user's sessions have too many incomplete messages");
    return false;
}

/* After serving: ends the session if too much is held for its user, and starts or cancels the timer
   of an incomplete line. */
static void watch_half_line(struct gb_session *session)
{
    struct gb_server *server = session->server;

    if (gb_session_has_ended(session) || session->end_reason || !keeps_to_limits(session))
        return;
    if (session->input != GB_INPUT_WANTED || !gb_frame_is_partial(&session->conn.in))
        gb_timer_cancel(&server->timers, &session->half_line);
    else if (!session->half_line.deadline.place &&
             !gb_timer_set(&server->timers, &session->half_line,
                           gb_now_ms() + server->limits->half_line_ms))
        gb_session_end(session, "out of memory");
}

static bool is_behind_with_closing(const struct gb_session *session)
{
    return gb_closer_is_behind(session->user, session->server->limits->held_fds);
}

/* Receives a piece, and more only if that was quick: many small messages take time to receive, and
   more of them come meanwhile. */
static ssize_t receive_some(struct gb_session *session, uint64_t begun)
{
    struct gb_server *server = session->server;
    char *scratch = server->workspace.scratch;
    ssize_t n = gb_conn_receive(&session->conn, scratch, GB_SESSION_PIECE_BYTES), more;

    if (n < GB_SESSION_PIECE_BYTES || is_behind_with_closing(session) ||
        session->conn.in.fd_count > 0 || uv_hrtime() - begun > server->turns.slice_ns / 5)
        return n;
    more = gb_conn_receive(&session->conn, scratch + n, GB_SCRATCH_BYTES - (size_t)n);
    if (more == 0 || more == GPUBUF_E_SYSTEM || more == GPUBUF_E_AGAIN)
        return n; /* the next receive tells the same */
    return more < 0 ? more : n + more;
}

bool gb_session_may_receive(struct gb_session *session, char *scratch)
{
    struct gb_server *server = session->server;

    if (!is_behind_with_closing(session) ||
        !gb_brings_descriptors(session->conn.fd, scratch, GB_SCRATCH_BYTES))
        return true;
    gb_metrics_limit(&server->metrics, "held_fds");
    gb_session_end(session, "what its user has sent cannot be closed");
    return false;
}

/* Receives once, unless received lines are kept. True if there is something to serve. */
static bool receive(struct gb_session *session, uint64_t begun)
{
    struct gb_server *server = session->server;
    ssize_t n;

    if (session->input == GB_INPUT_HELD ||
        (session->input == GB_INPUT_THROTTLED && has_unread_output(session)))
        return false;
    if (session->input != GB_INPUT_WANTED) {
        gb_frame_begin(&session->conn.in, NULL, 0);
        return true;
    }
    if (!gb_session_may_receive(session, server->workspace.scratch))
        return false;
    n = receive_some(session, begun);
    if (n > 0) {
        gb_frame_begin(&session->conn.in, server->workspace.scratch, (size_t)n);
        return session->conn.in.fd_count == 0 || keeps_to_limits(session);
    }
    if (n == 0 || n == GPUBUF_E_SYSTEM)
        note_hung_up(session);
    else if (n != GPUBUF_E_AGAIN)
        gb_session_end(session,
                       n == GPUBUF_E_LIMIT ? "too many descriptors" : "descriptors were lost");
    return false;
}

/* Ends sessions that have hung up since `begun`, then serves the input that was received. */
static void serve_received(struct gb_session *session, uint64_t begun)
{
    struct gb_server *server = session->server;
    uint64_t slice = session->busy ? server->turns.slice_ns / 2 : server->turns.slice_ns;
    uint64_t until = begun + slice;

    server->serving = session;
    /* A single session learns of its own end when it receives. */
    if (server->session_count > 1)
        gb_sessions_end_hung_up(server);
    gb_session_serve_lines(session, until);
    server->serving = NULL;
    watch_half_line(session);
}

void gb_session_serve(struct gb_session *session)
{
    uint64_t begun;

    if (session->state == GB_SESSION_DRAINING && session->input != GB_INPUT_HELD) {
        gb_sessions_end_hung_up(session->server);
        gb_session_drain(session);
        return;
    }
    gb_session_flush(session, GB_SESSION_SEND_BYTES);
    begun = uv_hrtime();
    if (!gb_session_has_ended(session) && receive(session, begun))
        serve_received(session, begun);
    if (gb_session_has_ended(session))
        return;
    if (session->input == GB_INPUT_KEPT)
        queue(session);
    session->server->service->send_existing(session);
    gb_provider_pump(&session->provider);
    gb_list_remove(&session->dirty);
    gb_session_flush(session, GB_SESSION_SEND_BYTES);
    if (gb_session_has_ended(session))
        return;
    poll_for(session);
    if (session->state == GB_SESSION_HUNG_UP)
        gb_session_see_off(session);
}

/* ---- rights ---- */

bool gb_session_is_admin(const struct gb_session *session)
{
    return session->user->uid == 0 || session->user->uid == geteuid();
}

static void read_groups(struct gb_session *session)
{
    socklen_t length = 0;

    session->group_count = 0;
#ifdef SO_PEERGROUPS
    if (getsockopt(session->conn.fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &length) == 0 ||
        errno != ERANGE || !(session->groups = malloc(length)))
        return;
    if (getsockopt(session->conn.fd, SOL_SOCKET, SO_PEERGROUPS, session->groups, &length) == 0)
        session->group_count = (int)(length / sizeof(gid_t));
#endif
}

static bool in_group(struct gb_session *session, gid_t gid)
{
    if (session->gid == gid)
        return true;
    if (session->group_count < 0)
        read_groups(session);
    for (int i = 0; i < session->group_count; i++)
        if (session->groups[i] == gid)
            return true;
    return false;
}

/* Root and the owner may do everything. For others it is as for files: the group's bits count for
   its members, the last bits for everybody else. */
static bool may(struct gb_session *session, uid_t uid, gid_t gid, unsigned mode, unsigned bit)
{
    if (session->user->uid == 0 || session->user->uid == uid)
        return true;
    if (in_group(session, gid))
        return mode & (bit << 3);
    return mode & bit;
}

bool gb_session_may_read(struct gb_session *session, const struct gb_object *object)
{
    return may(session, object->owner->uid, object->gid, object->mode, 4);
}

bool gb_session_may_read_of(struct gb_session *session, uid_t uid, gid_t gid, unsigned mode)
{
    return may(session, uid, gid, mode, 4);
}

bool gb_session_may_change(struct gb_session *session, const struct gb_object *object)
{
    return may(session, object->owner->uid, object->gid, object->mode, 2);
}

bool gb_session_may_provide(const struct gb_session *session, const char *prefix)
{
    return gb_session_is_admin(session) ||
           gb_config_may_provide(session->server->config, session->user->uid, prefix);
}
