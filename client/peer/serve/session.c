#include "client/peer/serve/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/peer/base/seldom.h"
#include "client/peer/options.h"
#include "client/peer/serve/crowd.h"
#include "client/peer/serve/reading.h"
#include "proto/wire/handle.h"

enum {
    LEASES_MOST = 256,
    WAITS_MOST = 8,     /* in threads of the pool: chunks and sums keep the others */
    ANSWER_MS = 60000,  /* for the daemon's answer, while the other machine is told to wait */
    LANE_MS = 10000,    /* for a lane to send something, else it is closed */
    STUCK_MS = 60000,   /* a machine that takes nothing for this long is gone */
    GREETING_MS = 10000 /* for a handshake, and for news of a machine that has joined */
};

/* A request that waits for the daemon, or for a thread. */
struct request {
    struct gb_peer_session *session;
    uint64_t id;
    uint64_t version; /* that `open` asks for; 0: any */
    bool word;        /* the origin's word is wanted, not a lease */
    struct gb_peer_lease *lease;
    uv_work_t work;
    int status;
    struct gb_error error;
    struct gb_peer_described described;
    struct gb_layout layout;
    struct gb_pool pool; /* of the description */
};

/* ---- life ---- */

static void end(struct gb_peer_session *session)
{
    session->link = NULL;
    gb_peer_session_close_lane(session);
    GB_LIST_EACH(&session->leases, struct gb_peer_lease, lease, of_session) {
        gb_list_remove(&lease->of_session);
        gb_peer_lease_drop(lease);
    }
    gb_peer_session_drop(session);
}

void gb_peer_session_close(struct gb_peer_session *session)
{
    struct gb_peer_link *link = session->link;

    gb_peer_link_close(link);
    end(session);
}

static void say_connected(const struct gb_peer_session *session)
{

    gb_peer_log_seldom(GB_LOG_INFO, uv_now(session->parts->loop), session->node, NULL,
                       "a machine has connected",
                       GB_LOG_TEXT("machine", gb_peer_link_text(session->link)));
}

static void say_ended(const struct gb_peer_session *session, const char *why)
{

    gb_peer_log_seldom(GB_LOG_WARNING, uv_now(session->parts->loop), session->node, why,
                       "connection ended", GB_LOG_TEXT("machine", gb_peer_link_text(session->link)),
                       GB_LOG_TEXT("why", why));
}

static void on_closed(struct gb_peer_link *link, const struct gb_error *why, void *user)
{
    struct gb_peer_session *session = user;

    const char *sentence = why->message + strlen(gb_peer_link_text(link)); /* ": why" */

    if (!session->side)
        say_ended(session, sentence + strspn(sentence, ": "));
    session->events.closed(session, session->user);
    end(session);
}

/* ---- requests that wait ---- */

/* NULL: memory is out, which has been answered. */
static struct request *new_request(struct gb_peer_session *session, uint64_t id)
{
    struct request *request = calloc(1, sizeof(*request));

    if (!request) {
        gb_peer_session_refuse_memory(session, id);
        return NULL;
    }
    request->session = session;
    request->id = id;
    gb_peer_session_begin(session);
    return request;
}

static void end_request(struct request *request)
{
    gb_peer_lease_drop(request->lease);
    gb_pool_end(&request->pool);
    gb_peer_session_finish(request->session);
    free(request);
}

static void refuse(struct request *request, const struct gb_error *error)
{
    if (request->session->link)
        gb_peer_link_send_error(request->session->link, request->id, error);
    end_request(request);
}

static void refuse_library(struct request *request, int status)
{
    const char *sentence = gpubuf_errmsg(request->session->parts->client);
    struct gb_error error;

    (void)gb_fail(&error, status, "%s", sentence[0] ? sentence : gpubuf_strerror(status));
    refuse(request, &error);
}

/* ---- the first half of open ---- */

/* NULL: the object is this machine's own. */
static const struct gb_peer_copy *copy_of(const struct gb_peer_session *session,
                                          const struct gb_peer_described *described)
{
    const struct gb_peer_copy *copy =
        gb_peer_copies_find(session->parts->copies, described->name.text);

    return copy && copy->version == described->version ? copy : NULL;
}

/* Reads the daemon's description of the object. False: the request has been refused. */
static bool describe(struct request *request, int status, const char *result, size_t length)
{
    struct gb_peer_described *described = &request->described;
    struct gb_error error;

    if (status == 0)
        status = gb_peer_described_answer(result, length, &request->pool, described, &error);
    else
        (void)gb_fail(&error, status, "%s", gpubuf_errmsg(request->session->parts->client));
    if (status == 0 && !gb_peer_described_shared(described, request->session->parts->copies))
        status = gb_fail(&error, GPUBUF_E_NOT_FOUND, "there is no object \"%s\" for other machines",
                         described->name.text);
    if (status == 0 && request->version && request->version != described->version)
        status = gb_fail(&error, GPUBUF_E_STALE, "version %" PRIu64 " of %s is no more",
                         request->version, described->name.text);
    if (status < 0)
        refuse(request, &error);
    return status == 0;
}

/* ---- open ---- */

/* True: enough machines are fetching the object, or this one has enough leases, and the request has
   been refused. */
static bool crowded(struct request *request)
{
    const struct gb_peer_session *session = request->session;
    const struct gb_peer_described *described = &request->described;
    unsigned readers = session->events.readers(described->version, session->user);
    struct gb_error error;

    if (session->lease_count >= LEASES_MOST)
        (void)gb_fail(&error, GPUBUF_E_LIMIT, "this machine has %d leases at a time at most",
                      LEASES_MOST);
    else if (gb_peer_session_reads(session, described->version) ||
             gb_peer_crowd_takes(readers, described->bytes))
        return false;
    else
        (void)gb_fail(&error, GPUBUF_E_BUSY, "%u machines are fetching %s from it", readers,
                      described->name.text);
    refuse(request, &error);
    return true;
}

static void on_word(void *user, const struct gb_peer_word *word, const struct gb_error *error)
{
    struct request *request = user;
    struct gb_writer writer;

    if (error) {
        refuse(request, error);
        return;
    }
    gb_writer_init(&writer, 0);
    gb_peer_word_write(&writer, word);
    gb_peer_session_send(request->session, request->id, &writer);
    end_request(request);
}

static void grant(struct request *request)
{
    struct gb_peer_session *session = request->session;
    const struct gb_peer_described *described = &request->described;
    struct gb_peer_lease *lease = request->lease;
    struct gb_writer writer;

    if (!session->link) {
        end_request(request);
        return;
    }
    if (request->word) {
        gb_peer_words_want(session->parts->words, described, lease, on_word, request);
        return;
    }
    if (crowded(request)) /* others asked at the same moment */
        return;
    if (!copy_of(session, described)) /* others will fetch it from the machine that asks */
        gb_peer_words_want(session->parts->words, described, lease, NULL, NULL);
    lease->id = ++session->parts->figures->leases;
    lease->used = uv_now(session->parts->loop);
    gb_list_append(&session->leases, &lease->of_session);
    session->lease_count++;
    gb_writer_init(&writer, GB_LIMIT(line_bytes));
    gb_write_pattern(&writer, "{'lease':%" PRIu64 ",'device':%s,'mode':%u,'content':%" PRIu64,
                     lease->id, gb_is_host(described->device.text) ? "host" : "gpu",
                     gb_peer_described_mode(described), lease->content.bytes);
    if (described->label.text)
        gb_write_pattern(&writer, ",'label':%s", described->label.text);
    GB_WRITE_LITERAL(&writer, ",\"layout\":");
    gb_write_text(&writer, lease->layout);
    gb_write_char(&writer, '}');
    gb_peer_session_send(session, request->id, &writer);
    request->lease = NULL;
    end_request(request);
}

/* Waits, in a thread of the pool, for work on a GPU that still writes the object. */
static void wait_ready(uv_work_t *work)
{
    struct request *request = work->data;

    request->status = gpubuf_wait_ready(request->lease->object, NULL);
    if (request->status < 0)
        (void)gb_fail(&request->error, request->status, "%s",
                      gpubuf_object_errmsg(request->lease->object));
}

static void on_ready(uv_work_t *work, int status)
{
    struct request *request = work->data;

    request->lease->figures->waits--;
    if (status < 0)
        request->status = gb_fail(&request->error, GPUBUF_E_CANCELED, "canceled");
    if (request->status < 0)
        refuse(request, &request->error);
    else
        grant(request);
}

static void on_opened(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                      void *arg)
{
    struct request *request = arg;
    struct gb_error error;

    if (status < 0) {
        refuse_library(request, status);
        return;
    }
    request->lease = gb_peer_lease_new(object, &request->layout, &error);
    gpubuf_release(object);
    if (!request->lease) {
        refuse(request, &error);
        return;
    }
    struct gb_peer_figures *figures = request->session->parts->figures;
    request->lease->figures = figures;
    request->work.data = request;
    if (!request->described.ready.text) {
        grant(request);
    } else if (figures->waits == WAITS_MOST) {
        (void)gb_fail(&error, GPUBUF_E_BUSY, "it waits for %d other objects to be complete",
                      WAITS_MOST);
        refuse(request, &error);
    } else {
        figures->waits++;
        (void)uv_queue_work(request->session->parts->loop, &request->work, wait_ready,
                            on_ready); /* cannot fail */
    }
}

static void on_described(struct gpubuf_client *client, int status, const char *result,
                         size_t length, void *arg)
{
    struct request *request = arg;
    struct gpubuf_open_options options = {.size = sizeof(options)};
    struct gb_path path = {.key = "layout"};
    struct gb_error error;
    char *copy = result ? gb_pool_strndup(&request->pool, result, length) : NULL;

    if (status == 0 && !copy)
        status = GPUBUF_E_NO_MEMORY;
    if (!describe(request, status, copy, length) || (!request->word && crowded(request)))
        return;
    status = request->word && copy_of(request->session, &request->described)
                 ? gb_fail(&error, GPUBUF_E_NOT_FOUND, "it has a copy of another machine's")
                 : gb_layout_read(request->described.layout, GB_LAYOUT_REPLY, &path, &request->pool,
                                  &request->layout, &error);
    if (status < 0) {
        refuse(request, &error);
        return;
    }
    options.version = request->described.version;
    status =
        gpubuf_open_async(client, request->described.name.text, &options, on_opened, request, NULL);
    if (status < 0)
        refuse_library(request, status);
}

static void stat_name(struct gb_peer_session *session, uint64_t id,
                      const struct gb_peer_session_params *params)
{
    struct request *request = new_request(session, id);

    if (!request)
        return;
    request->version = params->version;
    request->word = strcmp(params->method.text, "word") == 0;
    int r = gb_peer_described_ask(session->parts->client, params->name.text, on_described, request);
    if (r < 0)
        refuse_library(request, r);
}

/* ---- requests ---- */

static int read_params(const char *text, size_t length, struct gb_pool *pool,
                       struct gb_peer_session_params *params, struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct gb_peer_session_params, method, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 16),
        GB_FIELD(struct gb_peer_session_params, name, GB_FIELD_STRING, 0, 0, GB_LIMIT(name_bytes)),
        GB_FIELD(struct gb_peer_session_params, tag, GB_FIELD_STRING, 0, 0, 16),
        GB_FIELD(struct gb_peer_session_params, address, GB_FIELD_STRING, 0, 0,
                 GB_PEER_LANE_ADDRESS_MOST),
        GB_FIELD(struct gb_peer_session_params, version, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct gb_peer_session_params, lease, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct gb_peer_session_params, chunk, GB_FIELD_UINT, 0, 0, 0),
    };

    *params = (struct gb_peer_session_params){0};
    return gb_json_read_text(text, length, fields, sizeof(fields) / sizeof(fields[0]), "request",
                             pool, params, error);
}

/* False: there is no place for this machine, and the request has been refused. */
static bool is_placed(struct gb_peer_session *session, uint64_t id)
{
    struct gb_error error;

    session->placed = session->placed || session->events.place(session->user);
    if (session->placed)
        return true;
    (void)gb_fail(&error, GPUBUF_E_BUSY, "it serves %u machines, as many as it may (connections)",
                  session->parts->options->connections);
    gb_peer_link_send_error(session->link, id, &error);
    session->answered = uv_now(session->parts->loop);
    return false;
}

static void on_control(struct gb_peer_link *link, uint64_t id, const char *text, size_t length,
                       void *user)
{
    struct gb_peer_session *session = user;
    struct gb_pool pool = {0};
    struct gb_peer_session_params params;
    struct gb_error error;

    int r = read_params(text, length, &pool, &params, &error);
    const char *method = r == 0 ? params.method.text : "";
    if (r < 0) {
        gb_peer_link_send_error(link, id, &error);
    } else if (strcmp(method, "read") == 0 || strcmp(method, "release") == 0) {
        gb_peer_session_use_lease(session, id, &params);
    } else if (strcmp(method, "lane") == 0) {
        gb_peer_session_change_lane(session, id, &params);
    } else if ((strcmp(method, "open") == 0 || strcmp(method, "word") == 0) && params.name.text) {
        if (is_placed(session, id))
            stat_name(session, id, &params);
    } else {
        (void)gb_fail(&error, GPUBUF_E_METHOD, "there is no such request");
        gb_peer_link_send_error(link, id, &error);
    }
    gb_pool_end(&pool);
}

static bool is_known(const struct gb_peer_session *session)
{
    struct gb_peer_directory *directory = session->parts->directory;

    return directory->methods->knows(directory, session->node);
}

/* A machine that has joined may come here before etcd's news of it does. */
static bool on_open(struct gb_peer_link *link, const char *node, void *user)
{
    struct gb_peer_session *session = user;

    if (!session->events.open(session, node, session->user))
        return false;
    snprintf(session->node, sizeof(session->node), "%s", node);
    session->unknown = !is_known(session);
    session->came = session->answered = uv_now(session->parts->loop);
    if (!session->unknown) {
        say_connected(session);
        return true;
    }
    gb_peer_log_seldom(GB_LOG_INFO, uv_now(session->parts->loop), node, NULL,
                       "a machine waits: it is not known here yet",
                       GB_LOG_TEXT("machine", gb_peer_link_text(link)));
    gb_peer_link_pause(link, true);
    return true;
}

/* ---- beginnings ---- */

struct gb_peer_session *gb_peer_session_new(const struct gb_peer_parts *parts, int fd,
                                            const struct gb_peer_session_events *events, void *user)
{
    static const struct gb_peer_link_events link_events = {
        .open = on_open,
        .control = on_control,
        .closed = on_closed,
    };
    struct gb_peer_session *session = calloc(1, sizeof(*session));
    struct gb_peer_link *link =
        gb_peer_link_accept(parts->loop, parts->tls, fd, &link_events, session);

    if (!session || !link) {
        gb_peer_link_close(link);
        free(session);
        return NULL;
    }
    *session = (struct gb_peer_session){
        .parts = parts, .events = *events, .user = user, .link = link, .uses = 1};
    return session;
}

enum gb_peer_session_holds gb_peer_session_holds(const struct gb_peer_session *session)
{
    return session->placed                       ? GB_PEER_SESSION_PLACE
           : gb_peer_link_is_open(session->link) ? GB_PEER_SESSION_OPEN
                                                 : GB_PEER_SESSION_HALF;
}

uint64_t gb_peer_session_idle(const struct gb_peer_session *session)
{
    bool idle = !session->busy && gb_list_empty(&session->leases);

    return idle ? uv_now(session->parts->loop) - session->answered : 0;
}

bool gb_peer_session_reads(const struct gb_peer_session *session, uint64_t version)
{
    GB_LIST_EACH(&session->leases, const struct gb_peer_lease, lease, of_session)
        if (gpubuf_object_version(lease->object) == version)
            return true;
    return false;
}

/* Closes a lane that sends nothing. Its chunks may keep the link paused, so that the other side
   cannot say that it has given the lane up. */
static void check_lane(struct gb_peer_session *session)
{

    if (!session->passing || uv_now(session->parts->loop) - session->answered < LANE_MS)
        return;
    gb_peer_log_seldom(GB_LOG_WARNING, uv_now(session->parts->loop), session->node, NULL,
                       "UCX sends nothing",
                       GB_LOG_TEXT("machine", gb_peer_link_text(session->link)));
    gb_peer_session_close_lane(session);
}

static void let_in(struct gb_peer_session *session)
{
    session->unknown = false;
    gb_peer_link_pause(session->link, false);
    say_connected(session);
}

void gb_peer_session_tick(struct gb_peer_session *session)
{
    uint64_t most = gb_peer_link_is_open(session->link) ? STUCK_MS : GREETING_MS;
    uint64_t now = uv_now(session->parts->loop);
    const char *why = "it takes nothing";

    check_lane(session);
    gb_peer_session_end_idle(session, now);
    if (session->unknown && is_known(session))
        let_in(session);
    if (!session->placed && !session->unknown && gb_peer_link_is_open(session->link) &&
        gb_peer_session_idle(session) >= GREETING_MS) {
        why = "it asks for nothing";
    } else if (session->unknown && now - session->came >= GREETING_MS) {
        why = "it is none of the machines that are known here";
    } else if (gb_peer_link_stuck(session->link) < most) {
        if (session->unknown || (session->busy && now - session->answered < ANSWER_MS))
            gb_peer_link_send(session->link, GB_PEER_REQUEST_WAIT, "{}", 2);
        return;
    }
    say_ended(session, why);
    session->events.closed(session, session->user);
    gb_peer_session_close(session);
}
