#include "daemon/serve/pause.h"

#include <poll.h>

#include "daemon/serve/session.h"

/* Those who have sent something, of those who were modest when they were last served. */
static unsigned find_ready(const struct gb_server *server, struct gb_session **sessions)
{
    struct pollfd polls[GB_PAUSE_SESSIONS];
    struct gb_session *asked[GB_PAUSE_SESSIONS];
    unsigned count = 0, ready = 0;

    GB_LIST_EACH(&server->modest, link) {
        struct gb_session *session = GB_CONTAINER(link, struct gb_session, modest);

        if (count == GB_PAUSE_SESSIONS)
            break;
        if (session->serving)
            continue;
        polls[count] = (struct pollfd){.fd = session->conn.fd, .events = POLLIN};
        asked[count++] = session;
    }
    if (count == 0 || poll(polls, count, 0) <= 0)
        return 0;
    for (unsigned i = 0; i < count; i++)
        if (polls[i].revents & POLLIN)
            sessions[ready++] = asked[i];
    return ready;
}

static void swap_desks(struct gb_server *server)
{
    struct gb_desk desk = server->desk;

    server->desk = server->spare_desk;
    server->spare_desk = desk;
}

static void serve_others(struct gb_server *server)
{
    struct gb_session *sessions[GB_PAUSE_SESSIONS];
    unsigned count = find_ready(server, sessions);
    uint64_t begun_ns = server->metrics.begun_ns;

    if (count == 0)
        return;
    server->pauses++;
    swap_desks(server);
    server->pausing = true;
    for (unsigned i = 0; i < count; i++) {
        if (sessions[i]->ended) /* in this pause; its memory is the loop's to free */
            continue;
        gb_list_remove(&sessions[i]->ready);
        gb_session_serve(sessions[i]);
    }
    server->pausing = false;
    swap_desks(server);
    server->metrics.begun_ns = begun_ns;
}

void gb_pause(struct gb_server *server)
{
    if (uv_hrtime() < server->pause_at_ns)
        return;
    serve_others(server);
    server->pause_at_ns = uv_hrtime() + server->pause_ns;
}
