#include "daemon/serve/departure.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include "daemon/base/log.h"
#include "daemon/base/walk.h"
#include "daemon/objects/orphan_writer.h"
#include "daemon/serve/closer.h"
#include "daemon/serve/idle.h"
#include "daemon/serve/wait.h"

/* ---- the end ---- */

/* Frees a session, if the loop has closed its handle, no lease or mapping is left, and its socket
   is closed. */
static void free_session(struct gb_session *session)
{
    if (session->state != GB_SESSION_CLOSED || gb_list_linked(&session->leaving) ||
        session->conn.fd >= 0)
        return;
    free(session->groups);
    free(session->client);
    free(session);
}

static void on_closed(uv_handle_t *handle)
{
    struct gb_session *session = handle->data;

    gb_session_become(session, GB_SESSION_CLOSED);
    free_session(session);
}

/* Withdraws objects that end with their producer's session. */
static void withdraw_produced(struct gb_session *session)
{
    GB_LIST_EACH(&session->produced, struct gb_object, object, produced.link) {
        gb_list_remove(&object->produced.link);
        if (object->named)
            gb_registry_unname(&session->server->registry, object, GB_EVENT_WITHDRAWN);
    }
}

/* Gives up its turn, and its user's if no other session of the user waits for one. */
static void leave_turn(struct gb_session *session)
{
    struct gb_served *user = gb_served(session->user);

    gb_list_remove(&session->ready);
    if (!gb_served_is_busy(user))
        gb_list_remove(&user->turn);
}

static void begin_leaving(struct gb_session *session)
{
    if (!gb_list_linked(&session->leaving))
        gb_list_append(&session->server->turns.leaving, &session->leaving);
}

/* Ends some leases and mappings of a session that has ended, and leaves some of the names that it
   waited for; of one that drains, read leases, mappings and names only. True if none is left. */
static bool release_some(struct gb_session *session)
{
    struct gb_server *server = session->server;
    unsigned most = GB_SESSION_LEAVES_ITEMS;

    most -= gb_waits_leave_some(session, most);
    most -= gb_holder_end_some(&server->registry, &session->holder, gb_session_has_ended(session),
                               most);
    most -= gb_mapper_end_some(&server->store, &session->mapper, most);
    if (most == 0)
        return false;
    gb_list_remove(&session->leaving);
    if (gb_session_has_ended(session)) {
        gb_user_unref(session->holder.user);
        session->holder.user = NULL;
        gb_page_free(session->holder.page);
        session->holder.page = NULL;
    }
    free_session(session);
    return true;
}

bool gb_sessions_release_leases(struct gb_server *server, uint64_t until)
{
    GB_LIST_EACH(&server->turns.leaving, struct gb_session, session, leaving) {
        if (session == server->serving)
            continue; /* its request uses them */
        while (!release_some(session))
            if (until != UINT64_MAX && uv_hrtime() >= until)
                return false;
    }
    return true;
}

static void close_socket(struct gb_session *session)
{
    gb_close_connection(session->server->closer, session->user, session->conn.fd);
    session->conn.fd = -1;
    gb_charge_end(&session->charge);
    gb_user_unref(session->user);
    session->user = NULL;
}

void gb_session_landed(struct gb_flight *flight)
{
    struct gb_session *session = GB_CONTAINER(flight, struct gb_session, flight);

    close_socket(session);
    free_session(session);
}

/* Its process may still write. */
static void leave_orphan(struct gb_session *session)
{
    if (!session->orphan)
        return;
    gb_orphan_writer_follow(session->orphan, &session->holder, session->client);
    session->orphan = NULL;
    session->client = NULL;
    session->holder.client = NULL;
}

void gb_session_end(struct gb_session *session, const char *why)
{
    struct gb_server *server = session->server;

    if (gb_session_has_ended(session))
        return;
    gb_session_become(session, GB_SESSION_LEAVING);
    gb_log(GB_LOG_DEBUG, "session ended", GB_LOG_NUMBER("session", session->id),
           GB_LOG_NUMBER("pid", session->pid), GB_LOG_TEXT("why", why),
           GB_LOG_NUMBER("leases", session->holder.count));
    gb_waits_end_session(session);
    session->server->service->end_tasks(session);
    session->server->service->end_watches(session);
    gb_provider_end(&session->provider);
    withdraw_produced(session);
    leave_orphan(session);
    gb_timer_cancel(&server->timers, &session->half_line);
    gb_walks_leave(&server->walks, &session->of_server);
    gb_list_remove(&session->of_server);
    leave_turn(session);
    gb_list_remove(&session->dirty);
    gb_list_remove(&session->untold);
    server->session_count--;
    gb_idle_watch(server);
    session->user->has[GB_QUOTA_SESSIONS]--;
    gb_charge_set(&session->charge, GB_HELD_BYTES, 0);
    gb_charge_set(&session->charge, GB_HELD_FDS, 0);
    gb_charge_set(&session->charge, GB_STOCK_OPEN, 1); /* the socket */
    uv_poll_stop(&session->poll);
    uv_close((uv_handle_t *)&session->poll, on_closed);
    gb_conn_reset(&session->conn);
    /* The socket may stay open for long, so it leaves both epoll sets before that. */
    epoll_ctl(server->handles.ends_fd, EPOLL_CTL_DEL, session->conn.fd, NULL);
    if (gb_flight_end(&server->flights, &session->flight))
        close_socket(session);
    begin_leaving(session);
    release_some(session);
}

/* ---- after the peer has hung up ---- */

/* Whether its input may finish something that others wait for. */
static bool has_unfinished(const struct gb_session *session)
{
    return session->holder.writes > 0 || !gb_list_empty(&session->produced);
}

/* Whether what is left of its input is short enough to be served at once. */
static bool has_little_input(const struct gb_session *session)
{
    const struct gb_frame *in = &session->conn.in;
    int unread = 0;

    return ioctl(session->conn.fd, FIONREAD, &unread) == 0 &&
           in->partial_length - in->partial_start + (size_t)unread <= GB_SESSION_LAST_BYTES;
}

/* Has the session drain: the rest of its input is served in later slices. Its read leases are ended
   meanwhile, also those that its input opens: nobody will read. */
static void put_off_rest(struct gb_session *session)
{
    if (session->state != GB_SESSION_DRAINING)
        gb_session_become(session, GB_SESSION_DRAINING);
    session->busy = true;
    leave_turn(session); /* it may be queued among sessions that have not hung up */
    gb_waits_end_session(session);
    session->server->service->end_watches(session);
    begin_leaving(session);
    if (session->input == GB_INPUT_HELD)
        return; /* gb_session_let_go() queues it when its request is done */
    session->input = GB_INPUT_KEPT;
    gb_session_put_off(session);
}

/* Receives and serves input until none is left or the time is over. It receives in pieces, since
   many small messages take time to receive. Sends replies as far as the socket takes them: a peer
   that has only closed its sending side still reads. True if nothing is left. */
static bool drain_until(struct gb_session *session, uint64_t until)
{
    struct gb_conn *conn = &session->conn;
    char *scratch = session->server->workspace.end_scratch;
    bool received;
    ssize_t n = 1;

    do {
        received = session->input == GB_INPUT_WANTED;
        if (received && !gb_session_may_receive(session, scratch))
            return true; /* it has ended */
        if (received)
            n = gb_conn_receive(conn, scratch, GB_SESSION_PIECE_BYTES);
        gb_frame_begin(&conn->in, scratch, received && n > 0 ? (size_t)n : 0);
        do {
            gb_session_serve_lines(session, until);
            gb_session_flush(session, SIZE_MAX);
        } while (!gb_session_has_ended(session) && session->input == GB_INPUT_THROTTLED &&
                 uv_hrtime() < until);
    } while (!gb_session_has_ended(session) && session->input == GB_INPUT_WANTED && n > 0 &&
             (!received || uv_hrtime() < until));
    return session->input == GB_INPUT_WANTED && n <= 0;
}

void gb_session_drain(struct gb_session *session)
{
    struct gb_server *server = session->server;
    struct gb_session *before = server->serving;
    bool all;
    uint64_t ns =
        session->state == GB_SESSION_DRAINING ? server->turns.slice_ns / 2 : server->turns.drain_ns;

    server->serving = session;
    all = drain_until(session, uv_hrtime() + ns);
    server->serving = before;
    if (gb_session_has_ended(session))
        return;
    if (all)
        gb_session_end(session, "the peer hung up");
    else
        put_off_rest(session);
}

void gb_session_see_off(struct gb_session *session)
{
    if (session->state == GB_SESSION_OPEN)
        gb_session_become(session, GB_SESSION_HUNG_UP);
    /* gb_session_serve() sees off the session that is being served; one that drains ends by
       itself. */
    if (session == session->server->serving || session->state != GB_SESSION_HUNG_UP)
        return;
    if (session->input != GB_INPUT_HELD && (has_little_input(session) || has_unfinished(session)))
        gb_session_drain(session);
    else
        put_off_rest(session);
}

void gb_sessions_end_hung_up(struct gb_server *server)
{
    struct epoll_event events[64];
    int count;

    do {
        count = epoll_wait(server->handles.ends_fd, events, 64, 0);
        for (int i = 0; i < count; i++) /* no session is freed before the loop's next turn */
            gb_session_see_off(events[i].data.ptr);
    } while (count == 64);
}
