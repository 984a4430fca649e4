#include "client/peer/serve/serving.h"

#include <stdlib.h>

enum { BUSY_MOST = 64 }; /* requests under way; further ones are not read */

void gb_peer_session_drop(struct gb_peer_session *session)
{
    if (--session->uses > 0)
        return;
    free(session);
}

void gb_peer_session_begin(struct gb_peer_session *session)
{
    session->uses++;
    if (session->busy == 0)
        session->answered = uv_now(session->parts->loop);
    if (++session->busy == BUSY_MOST)
        gb_peer_link_pause(session->link, true);
}

void gb_peer_session_finish(struct gb_peer_session *session)
{
    if (session->busy-- == BUSY_MOST && session->link)
        gb_peer_link_pause(session->link, false);
    if (session->link)
        session->answered = uv_now(session->parts->loop);
    gb_peer_session_drop(session);
}

void gb_peer_session_close_lane(struct gb_peer_session *session)
{
    struct gb_peer_lane *lane = session->lane;

    session->lane = NULL;
    gb_peer_lane_close(lane);
}

void gb_peer_session_refuse_memory(struct gb_peer_session *session, uint64_t id)
{
    struct gb_error error;

    (void)gb_fail_memory(&error);
    gb_peer_link_send_error(session->link, id, &error);
}

void gb_peer_session_send(struct gb_peer_session *session, uint64_t request,
                          struct gb_writer *writer)
{
    struct gb_error error;

    if (!session->link) {
        gb_writer_end(writer);
        return;
    }
    if (writer->failed) {
        (void)gb_fail_memory(&error);
        gb_peer_link_send_error(session->link, request, &error);
    } else {
        gb_peer_link_send(session->link, request, writer->data, writer->length);
    }
    gb_writer_end(writer);
}
