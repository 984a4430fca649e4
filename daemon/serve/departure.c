#include "daemon/serve/departure.h"

#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include "daemon/base/walk.h"
#include "daemon/methods/watch.h"

/* ---- the end ---- */

/* When the loop has forgotten it, and nothing of what it held is left. */
static void free_session(struct gb_session *session)
{
    if (!session->closed || gb_list_linked(&session->leaving))
        return;
    free(session->groups);
    free(session->client);
    free(session);
}

static void on_closed(uv_handle_t *handle)
{
    struct gb_session *session = handle->data;

    session->closed = true;
    free_session(session);
}

/* Memory that stays its producer's goes with it. */
static void withdraw_produced(struct gb_session *session)
{
    GB_LIST_EACH(&session->produced, link) {
        struct gb_object *object = GB_CONTAINER(link, struct gb_object, of_producer);

        gb_list_remove(&object->of_producer);
        if (object->named)
            gb_registry_unname(&session->server->registry, object, GB_EVENT_WITHDRAWN);
    }
}

static void leave(struct gb_session *session)
{
    if (!gb_list_linked(&session->leaving))
        gb_list_append(&session->server->leaving, &session->leaving);
}

/* Some of what a session held that has ended, or is late and has no use for what it may read. True if that
   was the last. */
static bool give_back_some(struct gb_session *session)
{
    struct gb_server *server = session->server;
    unsigned most = GB_SESSION_LEAVES_ITEMS;

    most -= gb_holder_end_some(&server->registry, &session->holder, session->ended, most);
    most -= gb_mapper_end_some(&server->store, &session->mapper, most);
    if (most == 0)
        return false;
    gb_list_remove(&session->leaving);
    free_session(session);
    return true;
}

void gb_sessions_give_back(struct gb_server *server, uint64_t until)
{
    GB_LIST_EACH(&server->leaving, link) {
        struct gb_session *session = GB_CONTAINER(link, struct gb_session, leaving);

        if (session->serving)
            continue; /* it is using them */
        while (!give_back_some(session))
            if (until != UINT64_MAX && uv_hrtime() >= until)
                return;
    }
}

void gb_session_end(struct gb_session *session, const char *why)
{
    struct gb_server *server = session->server;

    if (session->ended)
        return;
    session->ended = true;
    gb_log(GB_LOG_DEBUG, "session ended", GB_LOG_NUMBER("session", session->id),
           GB_LOG_NUMBER("pid", session->pid), GB_LOG_TEXT("why", why),
           GB_LOG_NUMBER("leases", session->holder.count));
    gb_waits_end_session(session);
    gb_watches_end_session(session);
    withdraw_produced(session);
    gb_timer_cancel(&server->timers, &session->half_line);
    gb_walks_leave(&server->walks, &session->of_server);
    gb_list_remove(&session->of_server);
    gb_list_remove(&session->ready);
    gb_list_remove(&session->dirty);
    gb_list_remove(&session->modest);
    gb_list_remove(&session->gone);
    server->session_count--;
    session->user->sessions--;
    session->user->held_bytes -= session->held_bytes;
    session->user->held_fds -= session->held_fds;
    gb_user_unref(session->user);
    session->user = NULL;
    uv_poll_stop(&session->poll);
    uv_close((uv_handle_t *)&session->poll,
             on_closed);         /* now: the descriptor may be another's soon */
    gb_conn_end(&session->conn); /* leaves ends_fd by itself: it is the last descriptor */
    leave(session);
    give_back_some(session);
}

/* ---- who has hung up ---- */

/* Whether little is left to be served before it ends. */
static bool ends_briefly(const struct gb_session *session)
{
    const struct gb_frame *in = &session->conn.in;
    int unread = 0;

    return ioctl(session->conn.fd, FIONREAD, &unread) == 0 &&
           in->partial_length - in->partial_start + (size_t)unread <= GB_SESSION_LAST_BYTES;
}

static void note_gone(struct gb_session *session)
{
    session->hung_up = true;
    if (!gb_list_linked(&session->gone))
        gb_list_append(&session->server->gone, &session->gone);
}

/* What it may still be about to finish: others wait for that. */
static bool has_unfinished(const struct gb_session *session)
{
    return session->unsealed > 0 || !gb_list_empty(&session->produced);
}

static bool holds_reads(const struct gb_session *session)
{
    return session->holder.count > session->unsealed || !gb_list_empty(&session->mapper.mappings) ||
           !gb_list_empty(&session->watches) || !gb_list_empty(&session->waits);
}

bool gb_session_lingers(const struct gb_session *session)
{
    if (!session->hung_up)
        return false;
    return has_unfinished(session) ||
           ((session->serving || !session->late) && holds_reads(session));
}

/* The rest of what it sent is served later, in slices, like what others send. What it may only read it has
   no use for. */
static void make_late(struct gb_session *session)
{
    session->late = session->behind = session->busy = true;
    session->throttled = false;
    gb_list_remove(&session->modest);
    gb_waits_end_session(session);
    gb_watches_end_session(session);
    leave(session);
    gb_session_put_off(session);
}

/* Receives and serves what has come until that is over, or the time. */
static void drain_until(struct gb_session *session, uint64_t until)
{
    struct gb_server *server = session->server;
    ssize_t n = 1;

    if (!server->pausing)
        server->pause_at_ns = uv_hrtime() + server->pause_ns;
    do {
        if (!session->behind)
            n = gb_conn_receive(&session->conn, server->desk.end_scratch, GB_SCRATCH_BYTES);
        gb_frame_begin(&session->conn.in, server->desk.end_scratch,
                       !session->behind && n > 0 ? (size_t)n : 0);
        do {
            session->throttled = false;
            gb_session_serve_lines(session, until);
            gb_session_flush(session, SIZE_MAX);
        } while (!session->ended && session->throttled && !session->deaf && !session->behind);
    } while (n > 0 && !session->ended && !session->behind);
}

/* A peer that has only closed its sending side still gets its replies, as far as its socket takes
   them now. */
static void drain(struct gb_session *session)
{
    struct gb_server *server = session->server;
    uint64_t ns = session->late ? server->slice_ns / 2 : server->drain_ns;

    session->hung_up = session->serving = true;
    drain_until(session, uv_hrtime() + ns);
    session->serving = false;
    if (session->ended)
        return;
    if (session->behind)
        make_late(session);
    else
        gb_session_end(session, "the peer hung up");
}

/* Ends it, at once or later. False if neither can be. */
static bool try_to_end(struct gb_session *session)
{
    bool pausing = session->server->pausing;

    if (session->serving || session->late) /* it goes on, and ends then */
        return !pausing || !gb_session_lingers(session);
    if (ends_briefly(session) || (has_unfinished(session) && !pausing))
        drain(session);
    else if (has_unfinished(session))
        return false;
    else
        make_late(session);
    return true;
}

bool gb_session_see_off(struct gb_session *session)
{
    if (try_to_end(session))
        return true;
    note_gone(session);
    return false;
}

bool gb_sessions_end_hung_up(struct gb_server *server)
{
    struct epoll_event events[64];
    int count;

    do {
        count = epoll_wait(server->ends_fd, events, 64, 0);
        for (int i = 0; i < count; i++)
            note_gone(events[i].data.ptr);
    } while (count == 64);
    while (!gb_list_empty(&server->gone)) {
        struct gb_session *session = GB_CONTAINER(server->gone.next, struct gb_session, gone);

        gb_list_remove(&session->gone);
        if (!gb_session_see_off(session))
            return false;
    }
    return true;
}

void gb_session_serve_late(struct gb_session *session)
{
    gb_sessions_end_hung_up(session->server);
    drain(session);
}
