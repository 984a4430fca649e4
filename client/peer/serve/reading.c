#include "client/peer/serve/reading.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEASE_MS = 120000 /* without a question; memory for a copy may take a machine half of it */
};

/* A chunk on the lane. */
struct passage {
    struct gb_peer_session *session;
    struct gb_peer_lease *lease;
    uint64_t request, sum;
    struct gb_staging *block; /* NULL: the chunk is sent from its own memory */
};

struct gb_peer_lease *gb_peer_session_lease(const struct gb_peer_session *session, uint64_t id)
{
    GB_LIST_EACH(&session->leases, struct gb_peer_lease, lease, of_session)
        if (lease->id == id)
            return lease;
    return NULL;
}

static void end_lease(struct gb_peer_session *session, struct gb_peer_lease *lease)
{
    gb_list_remove(&lease->of_session);
    session->lease_count--;
    gb_peer_lease_drop(lease);
}

void gb_peer_session_end_idle(struct gb_peer_session *session, uint64_t now)
{
    GB_LIST_EACH(&session->leases, struct gb_peer_lease, lease, of_session) {
        if (lease->uses > 1) /* a chunk is on its way */
            lease->used = now;
        if (now - lease->used >= LEASE_MS)
            end_lease(session, lease);
    }
}

static int fill(struct gb_peer_source *source, const void **memory, uint64_t *sum,
                struct gb_error *error)
{
    return gb_peer_lease_chunk(source->user, source->chunk, &source->block, memory, sum, error);
}

static void sent(const struct gb_peer_source *source, bool filled)
{
    struct gb_peer_lease *lease = source->user;

    lease->figures->served_bytes += filled ? source->bytes : 0;
    gb_staging_release(source->block);
    gb_peer_lease_drop(lease);
}

static void send_sum(struct gb_peer_session *session, uint64_t request, uint64_t sum)
{
    char text[40];
    int length = snprintf(text, sizeof(text), "{\"sum\":\"%016" PRIx64 "\"}", sum);

    gb_peer_link_send(session->link, request, text, (size_t)length);
}

static void on_passed(void *user, int status, const struct gb_error *error)
{
    struct passage *passage = user;
    struct gb_peer_session *session = passage->session;

    if (session->link && status == 0)
        send_sum(session, passage->request, passage->sum);
    else if (session->link)
        gb_peer_link_send_error(session->link, passage->request, error);
    gb_peer_lease_drop(passage->lease);
    gb_staging_release(passage->block);
    free(passage);
    session->passing--;
    gb_peer_session_finish(session);
}

/* Sends the chunk of a passage by the lane. */
static int pass(struct passage *passage, const struct gb_peer_session_params *params,
                struct gb_error *error)
{
    struct gb_peer_session *session = passage->session;
    char *end = NULL;
    uint64_t tag = strtoull(params->tag.text, &end, 16);
    uint64_t length = gb_peer_content_chunk_bytes(passage->lease->content.bytes, params->chunk);
    const void *bytes;

    if (!session->lane)
        return gb_fail(error, GPUBUF_E_UNAVAILABLE, "there is no lane");
    if (params->tag.length != 16 || *end)
        return gb_fail(error, GPUBUF_E_INVALID, "its tag is no number");
    int r = gb_peer_lease_chunk(passage->lease, params->chunk, &passage->block, &bytes,
                                &passage->sum, error);
    if (r == 0 && !gb_peer_lane_send(session->lane, tag, bytes, length, on_passed, passage))
        r = gb_fail_memory(error);
    if (r == 0)
        passage->lease->figures->served_bytes += length;
    return r;
}

static void pass_chunk(struct gb_peer_session *session, uint64_t id, struct gb_peer_lease *lease,
                       const struct gb_peer_session_params *params)
{
    struct passage *passage = calloc(1, sizeof(*passage));
    struct gb_error error;

    if (!passage) {
        gb_peer_session_refuse_memory(session, id);
        return;
    }
    *passage =
        (struct passage){.session = session, .lease = gb_peer_lease_use(lease), .request = id};
    gb_peer_session_begin(session);
    session->passing++;
    int r = pass(passage, params, &error);
    if (r < 0)
        on_passed(passage, r, &error);
}

static int open_lane(struct gb_peer_session *session, const char *address, struct gb_error *error)
{
    const struct gb_peer_parts *parts = session->parts;

    if (!parts->ucx)
        return gb_fail(error, GPUBUF_E_UNSUPPORTED, "this machine has no such lane");
    session->lane = gb_peer_lane_new(parts->ucx, parts->loop, error);
    return session->lane ? gb_peer_lane_connect(session->lane, address, error) : error->code;
}

void gb_peer_session_change_lane(struct gb_peer_session *session, uint64_t id,
                                 const struct gb_peer_session_params *params)
{
    struct gb_writer writer;
    struct gb_error error;

    gb_peer_session_close_lane(session);
    if (!params->address.text)
        return;
    if (open_lane(session, params->address.text, &error) < 0) {
        gb_peer_session_close_lane(session);
        gb_peer_link_send_error(session->link, id, &error);
        return;
    }
    gb_writer_init(&writer, 0);
    gb_write_char(&writer, '{');
    gb_peer_lane_write(session->lane, &writer);
    gb_write_char(&writer, '}');
    gb_peer_session_send(session, id, &writer);
}

void gb_peer_session_use_lease(struct gb_peer_session *session, uint64_t id,
                               const struct gb_peer_session_params *params)
{
    struct gb_peer_lease *lease = gb_peer_session_lease(session, params->lease);
    struct gb_error error;

    if (strcmp(params->method.text, "release") == 0) {
        if (lease)
            end_lease(session, lease);
        return;
    }
    if (!lease) {
        lease = session->events.lease(session, params->lease, session->user);
        session->side = session->side || lease;
    }
    if (lease)
        lease->used = session->answered = uv_now(session->parts->loop);
    if (!lease) {
        (void)gb_fail(&error, GPUBUF_E_STALE, "there is no lease %" PRIu64, params->lease);
        gb_peer_link_send_error(session->link, id, &error);
    } else if (params->chunk >= gb_peer_content_chunks(lease->content.bytes)) {
        (void)gb_fail(&error, GPUBUF_E_INVALID, "there is no chunk %" PRIu64, params->chunk);
        gb_peer_link_send_error(session->link, id, &error);
    } else if (params->tag.text) {
        pass_chunk(session, id, lease, params);
    } else {
        struct gb_peer_source source = {
            fill,
            sent,
            gb_peer_lease_use(lease),
            params->chunk,
            gb_peer_content_chunk_bytes(lease->content.bytes, params->chunk),
            NULL};
        gb_peer_link_send_chunk(session->link, id, &source);
    }
}
