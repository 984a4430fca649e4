/* The answers: the page, the API, metrics, events. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gateway/base/clock.h"
#include "client/gateway/http/api.h"
#include "client/gateway/http/compress.h"
#include "client/gateway/http/page.h"
#include "client/gateway/http/peer.h"
#include "client/gateway/http/server.h"

#define SLICE_BYTES (64u << 10)    /* sent by libmicrohttpd at a time */
#define MESSAGE_BYTES (512u << 10) /* of one message of gathered events */
/* After this time without an event a comment is sent, to keep the connection alive. */
#define BREATH_MS 5000
#define GATHER_LEAST_MS 20
#define GATHER_MOST_MS 10000
#define COMPRESS_LEAST 1400 /* bytes: what fits into a packet is sent as it is */

#define JSON_TYPE "application/json; charset=utf-8"
#define TEXT_TYPE "text/plain; charset=utf-8"

/* ---- replies ---- */

struct gb_gateway_connection *gb_gateway_connection_of(struct MHD_Connection *peer)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(peer, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}

static enum MHD_Result send_response(struct gb_gateway_door *door, struct MHD_Connection *peer,
                                     unsigned status, struct MHD_Response *response,
                                     const char *type)
{
    static const char *const always[][2] = {
        {"Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; "
                                    "base-uri 'none'; form-action 'self'"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Referrer-Policy", "same-origin"},
        {"X-Content-Type-Options", "nosniff"},
    };
    struct gb_gateway_connection *connection = gb_gateway_connection_of(peer);
    enum MHD_Result result;

    if (!response)
        return MHD_NO;
    if (connection)
        connection->status = status;
    for (size_t i = 0; i < sizeof(always) / sizeof(always[0]); i++)
        MHD_add_response_header(response, always[i][0], always[i][1]);
    if (type)
        MHD_add_response_header(response, "Content-Type", type);
    if (!MHD_get_response_header(response, "Cache-Control"))
        MHD_add_response_header(response, "Cache-Control", "no-store");
    if (status >= 200 && status < 600)
        atomic_fetch_add(&door->http->responses[status / 100 - 2], 1);
    result = MHD_queue_response(peer, status, response);
    MHD_destroy_response(response);
    return result;
}

static struct MHD_Response *copied(const char *text)
{
    return MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text,
                                           MHD_RESPMEM_MUST_COPY);
}

enum MHD_Result gb_gateway_respond_text(struct gb_gateway_door *door, struct MHD_Connection *peer,
                                        unsigned status, const char *text)
{
    struct MHD_Response *response = copied(text);

    if (response && status == 405)
        MHD_add_response_header(response, "Allow", "GET, HEAD");
    return send_response(door, peer, status, response, TEXT_TYPE);
}

static enum MHD_Result respond_error(struct gb_gateway_door *door, struct MHD_Connection *peer,
                                     const struct gb_error *error)
{
    char text[sizeof(error->message) + 64];

    snprintf(text, sizeof(text), "the daemon does not answer: %s\n", error->message);
    return gb_gateway_respond_text(door, peer, 503, text);
}

static bool takes_gzip(struct MHD_Connection *peer)
{
    return gb_gateway_http_accepts(gb_gateway_header(peer, "Accept-Encoding"), "gzip");
}

static void mark_gzip(struct MHD_Response *response)
{
    MHD_add_response_header(response, "Content-Encoding", "gzip");
}

/* A response of the bytes, as gzip if the client takes that. NULL: memory is out. */
static struct MHD_Response *packed(struct MHD_Connection *peer, const char *data, size_t length)
{
    struct gb_gateway_compress *compress =
        length >= COMPRESS_LEAST && takes_gzip(peer) ? gb_gateway_compress_new() : NULL;
    struct MHD_Response *response;
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    if (compress && gb_gateway_compress_add(compress, data, length, true, &writer)) {
        response =
            MHD_create_response_from_buffer(writer.length, writer.data, MHD_RESPMEM_MUST_COPY);
        if (response)
            mark_gzip(response);
    } else {
        response =
            MHD_create_response_from_buffer(length, (void *)(uintptr_t)data, MHD_RESPMEM_MUST_COPY);
    }
    if (response)
        MHD_add_response_header(response, "Vary", "Accept-Encoding");
    gb_writer_end(&writer);
    gb_gateway_compress_free(compress);
    return response;
}

/* Answers with the written text, which is taken over; or, if `r` is a failure, with the error. */
static enum MHD_Result respond_written(struct gb_gateway_door *door, struct MHD_Connection *peer,
                                       int r, struct gb_writer *writer, const char *type,
                                       const struct gb_error *error)
{
    struct MHD_Response *response =
        r < 0 || writer->failed ? NULL : packed(peer, writer->data, writer->length);

    gb_writer_end(writer);
    return r < 0 ? respond_error(door, peer, error)
                 : send_response(door, peer, 200, response, type);
}

struct gb_gateway_http_text gb_gateway_header(struct MHD_Connection *peer, const char *name)
{
    const char *value = NULL;
    size_t length = 0;

    if (MHD_lookup_connection_value_n(peer, MHD_HEADER_KIND, name, strlen(name), &value, &length) !=
        MHD_YES)
        return (struct gb_gateway_http_text){0};
    return (struct gb_gateway_http_text){value, length};
}

/* ---- the page ---- */

/* A file of the page; NULL: there is none at that path. */
static const struct gb_gateway_page_file *find_file(struct gb_gateway_http_text path)
{
    for (size_t i = 0; i < gb_gateway_page_file_count; i++)
        if (gb_gateway_http_is(path, gb_gateway_page_files[i].path))
            return &gb_gateway_page_files[i];
    return NULL;
}

bool gb_gateway_respond_file(struct gb_gateway_door *door, struct MHD_Connection *peer,
                             struct gb_gateway_http_text path, enum MHD_Result *result)
{
    const struct gb_gateway_page_file *file = find_file(path);
    struct MHD_Response *response;
    bool same;

    if (!file)
        return false;
    same = gb_gateway_http_names_tag(gb_gateway_header(peer, "If-None-Match"), file->etag);
    response = packed(peer, (const char *)file->data, same ? 0 : file->length);
    if (response) {
        MHD_add_response_header(response, "ETag", file->etag);
        MHD_add_response_header(response, "Cache-Control", "no-cache");
    }
    *result = send_response(door, peer, same ? 304 : 200, response, file->type);
    return true;
}

enum MHD_Result gb_gateway_respond_form(struct gb_gateway_door *door, struct MHD_Connection *peer,
                                        unsigned status)
{
    static const char path[] = "/sign-in.html";
    const struct gb_gateway_page_file *file =
        find_file((struct gb_gateway_http_text){path, sizeof(path) - 1});
    struct MHD_Response *response = MHD_create_response_from_buffer(
        file->length, (void *)(uintptr_t)file->data, MHD_RESPMEM_PERSISTENT);

    if (response)
        MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
    return send_response(door, peer, status, response, file->type);
}

enum MHD_Result gb_gateway_respond_signed_in(struct gb_gateway_door *door,
                                             struct MHD_Connection *peer, const char *cookie)
{
    struct MHD_Response *response = copied("");
    char header[128];

    snprintf(header, sizeof(header), "gpubufd=%s; HttpOnly; SameSite=Strict; Path=/", cookie);
    if (response) {
        MHD_add_response_header(response, "Location", "/");
        MHD_add_response_header(response, "Set-Cookie", header);
    }
    return send_response(door, peer, 303, response, NULL);
}

/* ---- metrics ---- */

static void write_metric(struct gb_writer *writer, const char *name, const char *type,
                         const char *help, uint64_t value)
{
    gb_write_format(writer, "# HELP %s %s\n# TYPE %s %s\n%s %" PRIu64 "\n", name, help, name, type,
                    name, value);
}

/* The gateway's own metrics. */
static void write_own(struct gb_gateway_http *http, struct gb_writer *writer)
{
    static const char *const classes[] = {"2xx", "3xx", "4xx", "5xx"};
    static const char responses[] = "gpubufd_http_responses_total";
    uint64_t connections = 0, streams = 0, total = 0, refused = 0;
    struct gb_gateway_publish_counts events;

    for (unsigned i = 0; i < http->door_count; i++) {
        struct gb_gateway_connections *of_door = &http->doors[i].connections;

        pthread_mutex_lock(&of_door->lock);
        connections += of_door->count;
        streams += of_door->streams;
        total += of_door->total;
        refused += of_door->refused;
        pthread_mutex_unlock(&of_door->lock);
    }
    gb_gateway_publish_count(http->publish, &events);
    write_metric(writer, "gpubufd_events_dropped_total", "counter",
                 "Events that pages lost since they did not keep up.", atomic_load(&http->lost));
    write_metric(writer, "gpubufd_event_subscribers", "gauge", "Subscribers to events by NNG.",
                 events.subscribers);
    write_metric(writer, "gpubufd_event_subscribers_refused_total", "counter",
                 "Subscribers that were refused since there were too many.", events.refused);
    write_metric(writer, "gpubufd_event_subscribers_ended_total", "counter",
                 "Subscribers that were ended since they took nothing for a minute.", events.ended);
    write_metric(writer, "gpubufd_events_published_total", "counter",
                 "Messages sent, counted for each subscriber.", events.sent);
    write_metric(writer, "gpubufd_event_listeners_renewed_total", "counter",
                 "Times that a listener for subscribers did not answer and was made anew.",
                 events.renewed);
    write_metric(writer, "gpubufd_http_connections", "gauge", "Connections to the HTTP server.",
                 connections);
    write_metric(writer, "gpubufd_http_live_connections", "gauge",
                 "Of them, those that get events.", streams);
    write_metric(writer, "gpubufd_http_connections_accepted_total", "counter",
                 "Connections to the HTTP server that began.", total);
    write_metric(writer, "gpubufd_http_connections_refused_total", "counter",
                 "Connections that were refused since there were too many.", refused);
    gb_write_format(writer, "# HELP %s Replies of the HTTP server, by the class of their status.\n",
                    responses);
    gb_write_format(writer, "# TYPE %s counter\n", responses);
    for (unsigned i = 0; i < 4; i++)
        gb_write_format(writer, "%s{code=\"%s\"} %" PRIuFAST64 "\n", responses, classes[i],
                        atomic_load(&http->responses[i]));
}

/* Writes the daemon's metrics. Requests that arrive while an answer is on its way share the next
   one: a crowd costs the daemon little, and nobody gets figures from before its request. */
static int write_daemons(struct gb_gateway_http *http, struct gb_writer *writer,
                         struct gb_error *error)
{
    uint_fast64_t arrived = atomic_load(&http->metrics_begun);
    int r = 0;

    pthread_mutex_lock(&http->metrics_lock);
    if (http->metrics_of <= arrived) {
        http->metrics_of = atomic_fetch_add(&http->metrics_begun, 1) + 1;
        gb_writer_reset(&http->metrics);
        r = gb_gateway_api_metrics(&http->ask, &http->metrics, error);
        if (r < 0)
            http->metrics_of = 0;
    }
    if (r == 0)
        gb_write(writer, http->metrics.data, http->metrics.length);
    pthread_mutex_unlock(&http->metrics_lock);
    return r;
}

static enum MHD_Result respond_metrics(struct gb_gateway_door *door, struct MHD_Connection *peer)
{
    struct gb_writer writer;
    struct gb_error error;
    int r;

    gb_writer_init(&writer, 0);
    r = write_daemons(door->http, &writer, &error);
    write_own(door->http, &writer);
    if (door->http->options->peer_socket)
        gb_gateway_peer_metrics(door->http->options->peer_socket, &writer);
    return respond_written(door, peer, r, &writer, "text/plain; version=0.0.4; charset=utf-8",
                           &error);
}

/* ---- the API ---- */

static enum gb_gateway_audience audience_of(const struct gb_gateway_door *door)
{
    return door->http->options->token_file || door->path ? GB_GATEWAY_AUDIENCE_ALL
                                                         : GB_GATEWAY_AUDIENCE_PUBLIC;
}

typedef int (*answer_fn)(struct gb_gateway_ask *ask, struct gb_writer *writer,
                         struct gb_error *error);

static enum MHD_Result respond_json(struct gb_gateway_door *door, struct MHD_Connection *peer,
                                    answer_fn answer)
{
    struct gb_writer writer;
    struct gb_error error;
    int r;

    gb_writer_init(&writer, 0);
    r = answer(&door->http->ask, &writer, &error);
    return respond_written(door, peer, r, &writer, JSON_TYPE, &error);
}

static enum MHD_Result respond_history(struct gb_gateway_door *door, struct MHD_Connection *peer)
{
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    gb_gateway_history_write(door->http->feed->history, &writer, gb_gateway_wall_ms());
    return respond_written(door, peer, 0, &writer, JSON_TYPE, NULL);
}

/* Reads a decimal number up to `most`. False: it is none. */
static bool read_number(const char *text, uint64_t most, uint64_t *number)
{
    *number = 0;
    if (!*text)
        return false;
    for (; *text >= '0' && *text <= '9' && *number <= most; text++)
        *number = *number * 10 + (uint64_t)(*text - '0');
    return !*text && *number <= most;
}

struct listing {
    struct gb_gateway_objects objects;
    struct gb_writer writer;              /* the present slice */
    struct gb_writer text;                /* the same before it was compressed */
    struct gb_gateway_compress *compress; /* NULL: it is sent as it is */
    size_t sent;                          /* bytes of it */
};

static void listing_free(void *arg)
{
    struct listing *listing = arg;

    gb_pool_end(&listing->objects.pool);
    gb_writer_end(&listing->writer);
    gb_writer_end(&listing->text);
    gb_gateway_compress_free(listing->compress);
    free(listing);
}

/* Makes the next slice. */
static int make_slice(struct listing *listing, struct gb_error *error)
{
    struct gb_writer *text = listing->compress ? &listing->text : &listing->writer;
    int r;

    gb_writer_reset(text);
    r = gb_gateway_api_objects(&listing->objects, text, error);
    if (r < 0 || !listing->compress)
        return r;
    gb_writer_reset(&listing->writer);
    if (text->failed || !gb_gateway_compress_add(listing->compress, text->data, text->length,
                                                 listing->objects.done, &listing->writer))
        return gb_fail_memory(error);
    return 0;
}

static ssize_t send_slice(char *buffer, size_t size, const char *data, size_t length, size_t *sent)
{
    size_t n = length - *sent < size ? length - *sent : size;

    memcpy(buffer, data + *sent, n);
    *sent += n;
    return (ssize_t)n;
}

static ssize_t read_listing(void *arg, uint64_t place, char *buffer, size_t size)
{
    struct listing *listing = arg;
    struct gb_error error;

    while (listing->sent == listing->writer.length) {
        if (listing->objects.done)
            return MHD_CONTENT_READER_END_OF_STREAM;
        listing->sent = 0;
        if (make_slice(listing, &error) < 0 || listing->writer.failed)
            return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    return send_slice(buffer, size, listing->writer.data, listing->writer.length, &listing->sent);
}

static enum MHD_Result respond_objects(struct gb_gateway_door *door, struct MHD_Connection *peer,
                                       const struct gb_gateway_request *request, bool head_only)
{
    struct listing *listing = calloc(1, sizeof(*listing));
    struct MHD_Response *response;
    struct gb_error error;
    char number[16];
    long after, limit;

    if (!listing)
        return MHD_NO;
    gb_writer_init(&listing->writer, 0);
    gb_writer_init(&listing->text, 0);
    listing->objects.ask = &door->http->ask;
    listing->objects.audience = audience_of(door);
    listing->objects.limit = GB_GATEWAY_OBJECTS_MOST;
    after = gb_gateway_http_parameter(request->query, "after", listing->objects.after,
                                      sizeof(listing->objects.after));
    limit = gb_gateway_http_parameter(request->query, "limit", number, sizeof(number));
    if (after == -2 || (after > 0 && !gb_utf8_valid(listing->objects.after, (size_t)after))) {
        listing_free(listing);
        return gb_gateway_respond_text(
            door, peer, 400, "after: expected a name, percent-encoded, of at most 255 bytes\n");
    }
    if (limit == -2 ||
        (limit >= 0 && (!read_number(number, GB_GATEWAY_OBJECTS_MOST, &listing->objects.limit) ||
                        listing->objects.limit == 0))) {
        listing_free(listing);
        return gb_gateway_respond_text(door, peer, 400,
                                       "limit: expected a number from 1 to 10000\n");
    }
    if (head_only) { /* libmicrohttpd 0.9.75 would send the chunks' end */
        listing_free(listing);
        return send_response(door, peer, 200, copied(""), JSON_TYPE);
    }
    /* The first slice is made before the status is sent: a failure can still be answered with
       503. */
    if (takes_gzip(peer))
        listing->compress = gb_gateway_compress_new();
    if (make_slice(listing, &error) < 0) {
        listing_free(listing);
        return respond_error(door, peer, &error);
    }
    response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, SLICE_BYTES, read_listing,
                                                 listing, listing_free);
    if (response && listing->compress)
        mark_gzip(response);
    if (response)
        MHD_add_response_header(response, "Vary", "Accept-Encoding");
    return send_response(door, peer, 200, response, JSON_TYPE);
}

static enum MHD_Result respond_holders(struct gb_gateway_door *door, struct MHD_Connection *peer,
                                       const struct gb_gateway_request *request)
{
    struct gb_writer writer;
    struct gb_error error;
    char name[256];
    long length = gb_gateway_http_parameter(request->query, "name", name, sizeof(name));
    int r;

    if (length <= 0 || !gb_utf8_valid(name, (size_t)length))
        return gb_gateway_respond_text(
            door, peer, 400, "name: expected a name, percent-encoded, of at most 255 bytes\n");
    gb_writer_init(&writer, 0);
    r = gb_gateway_api_holders(&door->http->ask, name, audience_of(door), &writer, &error);
    return respond_written(door, peer, r, &writer, JSON_TYPE, &error);
}

/* ---- events ---- */

struct stream {
    struct gb_gateway_http *http;
    enum gb_gateway_audience audience;
    unsigned gather_ms; /* 0: each event is a message */
    unsigned era;       /* of the token that was given; a new token ends the stream */
    uint64_t place;     /* in the ring */
    struct gb_writer writer;
    size_t sent, gathered;
    uint64_t last; /* the number of the last event gathered */
};

static void stream_free(void *arg)
{
    struct stream *stream = arg;

    gb_writer_end(&stream->writer);
    free(stream);
}

/* Adds a message to the stream, or an element to the gathered message. False: it is full. */
static bool add_told(void *arg, const struct gb_gateway_told *told)
{
    struct stream *stream = arg;
    struct gb_writer *writer = &stream->writer;

    if (writer->length > MESSAGE_BYTES)
        return false;
    if (stream->gather_ms)
        gb_write_text(writer, stream->gathered++ > 0 ? "," : "data: [");
    else
        GB_WRITE_LITERAL(writer, "data: ");
    gb_write(writer, told->text[stream->audience], told->length[stream->audience]);
    stream->last = told->seq;
    if (!stream->gather_ms)
        gb_write_format(writer, "\nid: %" PRIu64 "\n\n", told->seq);
    return true;
}

/* Writes the next messages to the writer. False: the gateway stops. */
static bool gather(struct stream *stream)
{
    struct gb_gateway_ring *ring = stream->http->ring;
    uint64_t lost;

    gb_writer_reset(&stream->writer);
    stream->sent = stream->gathered = 0;
    if (!gb_gateway_ring_wait(ring, stream->place, (unsigned)gb_gateway_deadline_ms(BREATH_MS)))
        return false;
    lost = gb_gateway_ring_read(ring, &stream->place, add_told, stream);
    atomic_fetch_add(&stream->http->lost, lost);
    if (stream->gathered > 0)
        gb_write_format(&stream->writer, "]\nid: %" PRIu64 "\n\n", stream->last);
    if (stream->writer.length == 0)
        GB_WRITE_LITERAL(&stream->writer, ":\n\n");
    return true;
}

static ssize_t read_stream(void *arg, uint64_t place, char *buffer, size_t size)
{
    struct stream *stream = arg;

    if (stream->sent == stream->writer.length) {
        if (stream->era != atomic_load(&stream->http->era))
            return MHD_CONTENT_READER_END_OF_STREAM;
        /* Events that come during this sleep are sent together. */
        if (place > 0 && stream->gather_ms &&
            !gb_gateway_ring_sleep(stream->http->ring, stream->gather_ms))
            return MHD_CONTENT_READER_END_OF_STREAM;
        if (!gather(stream) || stream->era != atomic_load(&stream->http->era))
            return MHD_CONTENT_READER_END_OF_STREAM;
        if (stream->writer.failed)
            return MHD_CONTENT_READER_END_WITH_ERROR;
    }
    return send_slice(buffer, size, stream->writer.data, stream->writer.length, &stream->sent);
}

/* The number of the last event that the client has: from the header, which browsers send when they
   reconnect, or from the query, which the page uses. UINT64_MAX: it has none. */
static uint64_t known_events(struct MHD_Connection *peer, const struct gb_gateway_request *request)
{
    struct gb_gateway_http_text header = gb_gateway_header(peer, "Last-Event-ID");
    char number[24];
    uint64_t seq;
    long n = gb_gateway_http_parameter(request->query, "after", number, sizeof(number));

    if (header.text && header.length < sizeof(number)) {
        memcpy(number, header.text, header.length);
        number[header.length] = '\0';
        n = 0;
    }
    return n >= 0 && read_number(number, (uint64_t)1 << 53, &seq) ? seq : UINT64_MAX;
}

static enum MHD_Result respond_events(struct gb_gateway_door *door, struct MHD_Connection *peer,
                                      const struct gb_gateway_request *request)
{
    uint64_t gather_ms = 0;
    struct stream *stream;
    char number[24];
    long n = gb_gateway_http_parameter(request->query, "gather", number, sizeof(number));

    if (n == -2 || (n >= 0 && (!read_number(number, GATHER_MOST_MS, &gather_ms) ||
                               gather_ms < GATHER_LEAST_MS)))
        return gb_gateway_respond_text(door, peer, 400,
                                       "gather: expected milliseconds, from 20 to 10000\n");
    if (!gb_gateway_connection_stream(&door->connections, request->connection))
        return gb_gateway_respond_text(door, peer, 503, "too many pages are open\n");
    stream = calloc(1, sizeof(*stream));
    if (!stream)
        return MHD_NO;
    stream->http = door->http;
    stream->audience = audience_of(door);
    stream->gather_ms = (unsigned)gather_ms;
    stream->era = request->era;
    stream->place = gb_gateway_ring_place(door->http->ring, known_events(peer, request));
    gb_writer_init(&stream->writer, 0);
    return send_response(door, peer, 200,
                         MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, SLICE_BYTES,
                                                           read_stream, stream, stream_free),
                         "text/event-stream");
}

/* ---- */

enum MHD_Result gb_gateway_respond(struct gb_gateway_door *door, struct MHD_Connection *peer,
                                   struct gb_gateway_request *request, const char *method)
{
    enum MHD_Result result;

    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return gb_gateway_respond_text(door, peer, 405, "everything here is read-only\n");
    if (gb_gateway_http_is(request->path, "/metrics"))
        return respond_metrics(door, peer);
    if (gb_gateway_http_is(request->path, "/api/snapshot"))
        return respond_json(door, peer, gb_gateway_api_snapshot);
    if (gb_gateway_http_is(request->path, "/api/stats"))
        return respond_json(door, peer, gb_gateway_api_stats);
    if (gb_gateway_http_is(request->path, "/api/history"))
        return respond_history(door, peer);
    if (gb_gateway_http_is(request->path, "/api/objects"))
        return respond_objects(door, peer, request, strcmp(method, "HEAD") == 0);
    if (gb_gateway_http_is(request->path, "/api/holders"))
        return respond_holders(door, peer, request);
    if (gb_gateway_http_is(request->path, "/api/events") && strcmp(method, "GET") == 0)
        return respond_events(door, peer, request);
    if (gb_gateway_respond_file(door, peer, request->path, &result))
        return result;
    return gb_gateway_respond_text(door, peer, 404, "there is nothing here\n");
}
