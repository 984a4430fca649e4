/* One connection of the HTTP server: requests in, replies and events out. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/observe/http_server.h"
#include "daemon/observe/websocket.h"

#define HEAD_MS 10000              /* a request may take to arrive */
#define IDLE_MS 60000              /* until the next one */
#define SEND_MS 30000              /* without progress */
#define SILENT_MS 1000             /* that a new one may take before it counts as idle */
#define PING_MS 30000              /* between pings */
#define DEAF_MS 90000              /* without an answer to them */
#define BODY_BYTES 1024            /* of the one form that there is */
#define LIVE_BYTES (4u << 20)      /* of events that a peer has not read yet; then it loses some */
#define MESSAGE_BYTES (512u << 10) /* of one message of gathered events */
#define GATHER_LEAST_MS 20
#define GATHER_MOST_MS 10000

struct gb_peer {
    uv_tcp_t tcp;
    struct gb_http *http;
    struct gb_link of_http;
    uint64_t idle_ms;     /* since when it has had nothing to do, if it has not */
    uint64_t deadline_ms; /* of the thread's loop; 0: none */
    char in[GB_HTTP_HEAD_BYTES + BODY_BYTES];
    size_t in_length;
    bool served;    /* a request, at least */
    bool answering; /* a request is being answered; what comes after it waits */
    bool keep_alive, head_only, chunked, http_1_0;
    bool closing, closed; /* uv_close was called; has finished */
    bool close_after;     /* what is being sent */
    unsigned sends;       /* under way */

    struct gb_query query;
    bool asking;   /* it is with the daemon's loop */
    bool has_more; /* it came back, and is not through */

    /* After an upgrade. */
    bool live;
    unsigned gather_ms;      /* 0: each event is a message of its own */
    uint64_t beat_ms;        /* when what was gathered is to be sent; 0: nothing was */
    uint64_t ping_ms;        /* when the next one is due */
    uint64_t heard_ms;       /* when it last sent something */
    struct gb_writer out;    /* frames to be sent */
    struct gb_writer events; /* gathered: `{…},{…}` */
};

/* ---- ending ---- */

static void peer_free(struct gb_peer *peer)
{
    gb_list_remove(&peer->of_http);
    gb_writer_end(&peer->query.writer);
    gb_writer_end(&peer->out);
    gb_writer_end(&peer->events);
    free(peer);
}

static void on_closed(uv_handle_t *handle)
{
    struct gb_peer *peer = handle->data;

    peer->closed = true;
    if (peer->asking)
        return;
    if (peer->has_more && !peer->http->ending) { /* what it holds on the daemon's loop */
        peer->query.cancelled = peer->asking = true;
        gb_http_ask(peer->http, &peer->query);
        return;
    }
    if (!peer->has_more)
        peer_free(peer);
}

static void peer_close(struct gb_peer *peer)
{
    struct gb_http *http = peer->http;

    if (peer->closing)
        return;
    peer->closing = true;
    http->peer_count--;
    atomic_fetch_sub(&http->counts.connections, 1);
    if (peer->live) {
        http->live_count--;
        atomic_fetch_sub(&http->counts.live, 1);
        atomic_fetch_sub(&http->outlet.takers, 1);
    }
    uv_close((uv_handle_t *)&peer->tcp, on_closed);
}

void gb_peers_close(struct gb_http *http)
{
    GB_LIST_EACH(&http->peers, link)
        peer_close(GB_CONTAINER(link, struct gb_peer, of_http));
}

void gb_peers_free(struct gb_http *http)
{
    GB_LIST_EACH(&http->peers, link) {
        struct gb_peer *peer = GB_CONTAINER(link, struct gb_peer, of_http);

        if (peer->has_more || peer->asking)
            gb_query_cancel(&peer->query);
        peer_free(peer);
    }
}

/* ---- sending ---- */

struct sending {
    uv_write_t request;
    struct gb_peer *peer;
    char *data; /* owned; NULL: the bytes live elsewhere */
};

static void after_sending(struct gb_peer *peer);

static void on_sent(uv_write_t *request, int status)
{
    struct sending *sending = request->data;
    struct gb_peer *peer = sending->peer;

    free(sending->data);
    free(sending);
    peer->sends--;
    if (status < 0)
        peer_close(peer);
    else if (!peer->closing)
        after_sending(peer);
}

/* Sends what was written, and after it `length` bytes that outlive the peer (may be NULL). */
static void send_text(struct gb_peer *peer, struct gb_writer *writer, const void *more,
                      size_t length)
{
    struct sending *sending = calloc(1, sizeof(*sending));
    size_t head_length = 0;
    char *head = gb_writer_take(writer, &head_length);
    uv_buf_t buffers[2];

    if (!sending || !head) {
        free(sending);
        free(head);
        peer_close(peer);
        return;
    }
    sending->request.data = sending;
    sending->peer = peer;
    sending->data = head;
    buffers[0] = uv_buf_init(head, (unsigned)head_length);
    buffers[1] = uv_buf_init((char *)(uintptr_t)more, (unsigned)length);
    peer->deadline_ms = uv_now(&peer->http->loop) + SEND_MS;
    if (uv_write(&sending->request, (uv_stream_t *)&peer->tcp, buffers, more ? 2 : 1, on_sent) <
        0) {
        free(head);
        free(sending);
        peer_close(peer);
        return;
    }
    peer->sends++;
}

static const char *reason(unsigned status)
{
    switch (status) {
    case 101:
        return "Switching Protocols";
    case 200:
        return "OK";
    case 303:
        return "See Other";
    case 304:
        return "Not Modified";
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 413:
        return "Content Too Large";
    case 421:
        return "Misdirected Request";
    case 426:
        return "Upgrade Required";
    case 431:
        return "Request Header Fields Too Large";
    case 501:
        return "Not Implemented";
    case 503:
        return "Service Unavailable";
    default:
        return "HTTP Version Not Supported";
    }
}

#define LENGTH_UNKNOWN UINT64_MAX

/* The head of a reply, open for more headers. */
static void write_head(struct gb_peer *peer, struct gb_writer *writer, unsigned status,
                       const char *type, uint64_t length)
{
    unsigned first = status / 100;

    if (first >= 2 && first <= 5)
        atomic_fetch_add(&peer->http->counts.requests[first - 2], 1);
    if (length == LENGTH_UNKNOWN) {
        peer->chunked = !peer->http_1_0;
        if (peer->http_1_0)
            peer->keep_alive = false;
    }
    gb_write_format(writer,
                    "HTTP/1.1 %u %s\r\n"
                    "Content-Security-Policy: default-src 'self'; frame-ancestors 'none'; "
                    "base-uri 'none'; form-action 'self'\r\n"
                    "Cross-Origin-Resource-Policy: same-origin\r\n"
                    "Referrer-Policy: same-origin\r\n"
                    "X-Content-Type-Options: nosniff\r\n",
                    status, reason(status));
    if (type)
        gb_write_format(writer, "Content-Type: %s\r\n", type);
    if (length != LENGTH_UNKNOWN)
        gb_write_format(writer, "Content-Length: %" PRIu64 "\r\n", length);
    else if (peer->chunked)
        GB_WRITE_LITERAL(writer, "Transfer-Encoding: chunked\r\n");
    if (!peer->keep_alive)
        GB_WRITE_LITERAL(writer, "Connection: close\r\n");
}

/* A whole reply of one sentence, or a small page. `more`: further headers. */
static void reply_text(struct gb_peer *peer, unsigned status, const char *type, const char *more,
                       const char *text)
{
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    write_head(peer, &writer, status, type, strlen(text));
    gb_write_text(&writer, more);
    GB_WRITE_LITERAL(&writer, "Cache-Control: no-store\r\n\r\n");
    if (!peer->head_only)
        gb_write_text(&writer, text);
    send_text(peer, &writer, NULL, 0);
}

static void refuse(struct gb_peer *peer, unsigned status, const char *text)
{
    reply_text(peer, status, "text/plain; charset=utf-8", "", text);
}

/* ---- queries ---- */

static void ask(struct gb_peer *peer)
{
    peer->asking = true;
    peer->deadline_ms = uv_now(&peer->http->loop) + SEND_MS;
    gb_writer_reset(&peer->query.writer);
    gb_http_ask(peer->http, &peer->query);
}

static void begin_query(struct gb_peer *peer, enum gb_query_kind kind)
{
    struct gb_query *query = &peer->query;
    struct gb_writer writer = query->writer;

    *query = (struct gb_query){.kind = kind, .sees_all = peer->http->token != NULL};
    query->writer = writer;
    peer->has_more = false;
}

/* "12" up to a bound; false if it is none. */
static bool read_number(const char *text, uint64_t most, uint64_t *number)
{
    *number = 0;
    for (; *text >= '0' && *text <= '9' && *number <= most; text++)
        *number = *number * 10 + (uint64_t)(*text - '0');
    return !*text && *number <= most;
}

static void ask_objects(struct gb_peer *peer, const struct gb_http_request *request)
{
    struct gb_query *query = &peer->query;
    char number[16];
    long after, limit;

    begin_query(peer, GB_QUERY_OBJECTS);
    query->limit = GB_QUERY_OBJECTS_MOST;
    after = gb_http_parameter(request->query, "after", query->after, sizeof(query->after));
    limit = gb_http_parameter(request->query, "limit", number, sizeof(number));
    if (after == -2) {
        refuse(peer, 400, "after: expected a name, percent-encoded, of at most 255 bytes\n");
        return;
    }
    if (limit == -2 || (limit >= 0 && (!read_number(number, GB_QUERY_OBJECTS_MOST, &query->limit) ||
                                       query->limit == 0))) {
        refuse(peer, 400, "limit: expected a number from 1 to 10000\n");
        return;
    }
    query->after_length = after > 0 ? (size_t)after : 0;
    ask(peer);
}

static const char *type_of(enum gb_query_kind kind)
{
    return kind == GB_QUERY_METRICS ? "text/plain; version=0.0.4; charset=utf-8"
                                    : "application/json; charset=utf-8";
}

/* Sends a slice: whole if it is the only one, else as a chunk. */
static void send_slice(struct gb_peer *peer)
{
    struct gb_query *query = &peer->query;
    bool first = !peer->has_more;
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    if (first) {
        write_head(peer, &writer, 200, type_of(query->kind),
                   query->done ? query->writer.length : LENGTH_UNKNOWN);
        GB_WRITE_LITERAL(&writer, "Cache-Control: no-store\r\n\r\n");
    }
    peer->has_more = !query->done;
    if (peer->head_only && first && peer->has_more) {
        peer->chunked = false; /* nothing follows, and what it holds is given back */
        query->cancelled = true;
    } else if (!peer->head_only) {
        if (peer->chunked)
            gb_write_format(&writer, "%zx\r\n", query->writer.length);
        gb_write(&writer, query->writer.data, query->writer.length);
        if (peer->chunked)
            gb_write_text(&writer, query->done ? "\r\n0\r\n\r\n" : "\r\n");
    }
    send_text(peer, &writer, NULL, 0);
}

void gb_peer_answer(struct gb_query *query)
{
    struct gb_peer *peer = GB_CONTAINER(query, struct gb_peer, query);

    peer->asking = false;
    if (query->cancelled && !peer->closing) { /* a HEAD that would have been long */
        peer->has_more = false;
        if (peer->sends == 0)
            after_sending(peer);
        return;
    }
    if (peer->closing) {
        peer->has_more = !query->done;
        if (peer->closed)
            on_closed((uv_handle_t *)&peer->tcp);
    } else if (query->writer.failed) {
        peer->has_more = !query->done;
        peer_close(peer);
    } else {
        send_slice(peer);
    }
}

/* ---- signing in ---- */

static const char sign_in[] =
    "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>gpubufd</title>\n"
    "<form method=\"post\" action=\"/login\">\n<p><label>Token of this daemon: "
    "<input name=\"token\" type=\"password\" autocomplete=\"current-password\" required autofocus>"
    "</label>\n<button>Sign in</button></p>\n</form>\n";

static bool authorized(const struct gb_http *http, const struct gb_http_request *request)
{
    struct gb_http_text given = request->authorization;

    if (!http->token)
        return true;
    if (given.length > 7 && gb_http_is_nocase((struct gb_http_text){given.text, 7}, "Bearer "))
        return gb_http_secret_same((struct gb_http_text){given.text + 7, given.length - 7},
                                   http->token, http->token_length);
    return gb_http_secret_same(gb_http_cookie(request->cookie, "gpubufd"), http->cookie,
                               sizeof(http->cookie) - 1);
}

static void ask_for_token(struct gb_peer *peer, const struct gb_http_request *request)
{
    if (request->method == GB_HTTP_GET && gb_http_is(request->path, "/"))
        reply_text(peer, 401, "text/html; charset=utf-8", "WWW-Authenticate: Bearer\r\n", sign_in);
    else
        reply_text(peer, 401, "text/plain; charset=utf-8", "WWW-Authenticate: Bearer\r\n",
                   "this daemon asks for its token: Authorization: Bearer TOKEN\n");
}

static void take_token(struct gb_peer *peer, const struct gb_http_request *request,
                       const char *body)
{
    struct gb_http_text form = {body, (size_t)request->content_length};
    char token[BODY_BYTES], more[160];
    long length = gb_http_parameter(form, "token", token, sizeof(token));

    if (length <= 0 || !peer->http->token ||
        !gb_http_secret_same((struct gb_http_text){token, (size_t)length}, peer->http->token,
                             peer->http->token_length)) {
        reply_text(peer, 401, "text/html; charset=utf-8", "WWW-Authenticate: Bearer\r\n", sign_in);
        return;
    }
    snprintf(more, sizeof(more),
             "Location: /\r\nSet-Cookie: gpubufd=%s; Path=/; HttpOnly; SameSite=Strict\r\n",
             peer->http->cookie);
    reply_text(peer, 303, NULL, more, "");
}

/* ---- requests ---- */

static void go_live(struct gb_peer *peer, const struct gb_http_request *request)
{
    struct gb_http *http = peer->http;
    struct gb_writer writer;
    char accept[GB_WS_ACCEPT_BYTES], number[16];
    uint64_t gather = 0;
    long n = gb_http_parameter(request->query, "gather", number, sizeof(number));

    if (!request->upgrade || request->websocket_key.length != 24 ||
        !gb_http_is(request->websocket_version, "13")) {
        reply_text(peer, 426, "text/plain; charset=utf-8",
                   "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n", "this is a WebSocket\n");
        return;
    }
    if (n == -2 ||
        (n >= 0 && (!read_number(number, GATHER_MOST_MS, &gather) || gather < GATHER_LEAST_MS))) {
        refuse(peer, 400, "gather: expected milliseconds, from 20 to 10000\n");
        return;
    }
    if (http->live_count >= http->most_peers / 2) {
        refuse(peer, 503, "too many pages are open\n");
        return;
    }
    gb_ws_accept(request->websocket_key.text, request->websocket_key.length, accept);
    gb_writer_init(&writer, 0);
    gb_write_format(&writer,
                    "HTTP/1.1 101 %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    "Sec-WebSocket-Accept: %.*s\r\n\r\n",
                    reason(101), GB_WS_ACCEPT_BYTES, accept);
    peer->live = true;
    peer->gather_ms = (unsigned)gather;
    peer->heard_ms = uv_now(&http->loop);
    peer->ping_ms = peer->heard_ms + PING_MS;
    http->live_count++;
    atomic_fetch_add(&http->counts.live, 1);
    atomic_fetch_add(&http->outlet.takers, 1);
    send_text(peer, &writer, NULL, 0);
}

static void get(struct gb_peer *peer, const struct gb_http_request *request)
{
    if (gb_http_is(request->path, "/metrics")) {
        begin_query(peer, GB_QUERY_METRICS);
        ask(peer);
    } else if (gb_http_is(request->path, "/api/snapshot")) {
        begin_query(peer, GB_QUERY_SNAPSHOT);
        ask(peer);
    } else if (gb_http_is(request->path, "/api/stats")) {
        begin_query(peer, GB_QUERY_STATS);
        ask(peer);
    } else if (gb_http_is(request->path, "/api/objects")) {
        ask_objects(peer, request);
    } else if (gb_http_is(request->path, "/api/live") && request->method == GB_HTTP_GET) {
        go_live(peer, request);
    } else {
        refuse(peer, 404, "there is nothing here\n");
    }
}

/* Answers one request, in full or by beginning to. */
static void handle(struct gb_peer *peer, const struct gb_http_request *request, const char *body)
{
    const struct gb_http *http = peer->http;
    bool posts = request->method == GB_HTTP_POST;

    peer->answering = true;
    peer->keep_alive = request->keep_alive;
    peer->head_only = request->method == GB_HTTP_HEAD;
    peer->http_1_0 = request->http_1_0;
    peer->chunked = false;
    if (!gb_http_host_known(request->host, http->port, http->names))
        refuse(peer, 421, "this server is not known by that Host; see --http-name\n");
    else if (request->origin.text && !gb_http_origin_same(request->origin, request->host))
        refuse(peer, 403, "requests of other sites' pages are refused\n");
    else if (posts && gb_http_is(request->path, "/login"))
        take_token(peer, request, body);
    else if (!authorized(http, request))
        ask_for_token(peer, request);
    else if (posts || request->method == GB_HTTP_OTHER)
        reply_text(peer, 405, "text/plain; charset=utf-8", "Allow: GET, HEAD\r\n",
                   "everything here is read-only\n");
    else
        get(peer, request);
}

/* A request that cannot be read ends the connection: where the next would begin is unknown. */
static void reject(struct gb_peer *peer, unsigned status)
{
    peer->answering = true;
    peer->keep_alive = peer->head_only = peer->chunked = false;
    refuse(peer, status, "the request cannot be read\n");
}

/* ---- WebSocket ---- */

static void flush_live(struct gb_peer *peer)
{
    if (peer->sends == 0 && peer->out.length > 0 && !peer->closing)
        send_text(peer, &peer->out, NULL, 0);
}

static void add_frame(struct gb_peer *peer, enum gb_ws_opcode opcode, const char *text,
                      size_t length)
{
    char head[GB_WS_HEAD_BYTES];

    gb_write(&peer->out, head, gb_ws_head(opcode, length, head));
    gb_write(&peer->out, text, length);
    if (peer->out.failed)
        peer_close(peer);
}

/* What was gathered becomes a message. */
static void end_gathering(struct gb_peer *peer)
{
    char head[GB_WS_HEAD_BYTES];

    peer->beat_ms = 0;
    if (peer->events.length == 0)
        return;
    gb_write(&peer->out, head, gb_ws_head(GB_WS_TEXT, peer->events.length + 2, head));
    gb_write_char(&peer->out, '[');
    gb_write(&peer->out, peer->events.data, peer->events.length);
    gb_write_char(&peer->out, ']');
    gb_writer_reset(&peer->events);
    if (peer->out.failed)
        peer_close(peer);
}

static void close_live(struct gb_peer *peer, unsigned code)
{
    char payload[2] = {(char)(code >> 8), (char)code};

    add_frame(peer, GB_WS_CLOSE, payload, 2);
    peer->close_after = true;
    flush_live(peer);
}

static void take_frame(struct gb_peer *peer, const struct gb_ws_frame *frame)
{
    if (frame->opcode == GB_WS_CLOSE)
        close_live(peer, 1000);
    else if (frame->opcode == GB_WS_PING && peer->out.length < LIVE_BYTES)
        add_frame(peer, GB_WS_PONG, frame->payload, frame->length);
}

static void read_frames(struct gb_peer *peer)
{
    size_t at = 0;

    while (!peer->closing && !peer->close_after) {
        struct gb_ws_frame frame;
        int n = gb_ws_read(peer->in + at, peer->in_length - at, &frame);

        if (n < 0)
            close_live(peer, (unsigned)-n);
        if (n <= 0)
            break;
        at += (size_t)n;
        take_frame(peer, &frame);
    }
    memmove(peer->in, peer->in + at, peer->in_length - at);
    peer->in_length -= at;
    peer->heard_ms = uv_now(&peer->http->loop);
    flush_live(peer);
}

static void tell(struct gb_peer *peer, const struct gb_record *record)
{
    const char *json = record->text + record->topic_bytes + 1;

    if (peer->out.length + peer->events.length + record->json_bytes > LIVE_BYTES) {
        atomic_fetch_add(&peer->http->counts.dropped, 1);
        return;
    }
    if (!peer->gather_ms) {
        add_frame(peer, GB_WS_TEXT, json, record->json_bytes);
        return;
    }
    if (peer->events.length > 0)
        gb_write_char(&peer->events, ',');
    else if (peer->beat_ms == 0)
        peer->beat_ms = uv_now(&peer->http->loop) + peer->gather_ms;
    gb_write(&peer->events, json, record->json_bytes);
    if (peer->events.failed)
        peer_close(peer);
    else if (peer->events.length > MESSAGE_BYTES)
        end_gathering(peer);
}

void gb_peers_tell(struct gb_http *http, const struct gb_batch *batch)
{
    unsigned audience = http->token ? GB_AUDIENCE_ALL : GB_AUDIENCE_PUBLIC;

    GB_LIST_EACH(&http->peers, link) {
        struct gb_peer *peer = GB_CONTAINER(link, struct gb_peer, of_http);

        if (!peer->live || peer->close_after)
            continue;
        for (const struct gb_record *record = gb_batch_next(batch, NULL); record && !peer->closing;
             record = gb_batch_next(batch, record))
            if (record->audience & audience)
                tell(peer, record);
        flush_live(peer);
    }
}

bool gb_peers_beat(struct gb_http *http, uint64_t now_ms)
{
    bool gathers = false;

    GB_LIST_EACH(&http->peers, link) {
        struct gb_peer *peer = GB_CONTAINER(link, struct gb_peer, of_http);

        if (peer->closing || peer->beat_ms == 0)
            continue;
        if (peer->beat_ms <= now_ms && peer->sends == 0) {
            end_gathering(peer);
            flush_live(peer);
        }
        gathers |= !peer->closing && peer->beat_ms != 0;
    }
    return gathers;
}

/* ---- receiving ---- */

/* Serves the request at the front of what came; false if it is not all there, or none can be served
   now. */
static bool serve_one(struct gb_peer *peer)
{
    struct gb_http_request request;
    size_t total;
    int n;

    if (peer->closing || peer->answering || peer->live)
        return false;
    n = gb_http_request_read(peer->in, peer->in_length, &request);
    if (n < 0)
        reject(peer, (unsigned)-n);
    if (n <= 0)
        return false;
    if (request.content_length > BODY_BYTES) {
        reject(peer, 413);
        return false;
    }
    total = (size_t)n + (size_t)request.content_length;
    if (peer->in_length < total)
        return false;
    handle(peer, &request, peer->in + n);
    memmove(peer->in, peer->in + total, peer->in_length - total);
    peer->in_length -= total;
    return true;
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer);

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    struct gb_peer *peer = handle->data;

    (void)suggested;
    *buffer =
        uv_buf_init(peer->in + peer->in_length, (unsigned)(sizeof(peer->in) - peer->in_length));
}

static void receive(struct gb_peer *peer)
{
    if (peer->closing)
        return;
    if (peer->live)
        read_frames(peer);
    else
        serve_one(peer);
    if (peer->closing)
        return;
    /* Not more than one request ahead; a full buffer is served first. */
    if ((peer->answering && !peer->live) || peer->in_length == sizeof(peer->in))
        uv_read_stop((uv_stream_t *)&peer->tcp);
    else
        uv_read_start((uv_stream_t *)&peer->tcp, on_room, on_read);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    struct gb_peer *peer = stream->data;

    (void)buffer;
    if (n < 0) {
        peer_close(peer);
        return;
    }
    if (n == 0)
        return;
    if (peer->in_length == 0 && !peer->answering)
        peer->deadline_ms = uv_now(&peer->http->loop) + HEAD_MS;
    peer->in_length += (size_t)n;
    receive(peer);
}

/* Nothing is under way: the next slice, the next request, the next events, or the end. */
static void after_sending(struct gb_peer *peer)
{
    if (peer->sends > 0 || peer->closing || peer->asking)
        return;
    if (peer->live) {
        peer->deadline_ms = 0;
        peer->answering = false;
        if (peer->close_after && peer->out.length == 0)
            peer_close(peer);
        else
            flush_live(peer);
        receive(peer);
        return;
    }
    if (peer->has_more) {
        ask(peer);
        return;
    }
    peer->answering = false;
    peer->served = true;
    if (!peer->keep_alive) {
        peer_close(peer);
        return;
    }
    peer->idle_ms = uv_now(&peer->http->loop);
    peer->deadline_ms = peer->idle_ms + IDLE_MS;
    receive(peer);
}

/* ---- accepting ---- */

/* Room for a new one: the connection that has been idle for longest goes. */
static void make_room(struct gb_http *http)
{
    uint64_t now = uv_now(&http->loop);
    struct gb_peer *oldest = NULL;

    GB_LIST_EACH(&http->peers, link) {
        struct gb_peer *peer = GB_CONTAINER(link, struct gb_peer, of_http);

        if (!peer->closing && !peer->answering && !peer->live && peer->in_length == 0 &&
            (peer->served || peer->idle_ms + SILENT_MS <= now) &&
            (!oldest || peer->idle_ms < oldest->idle_ms))
            oldest = peer;
    }
    if (oldest)
        peer_close(oldest);
}

void gb_peer_accept(struct gb_http *http)
{
    struct gb_peer *peer = calloc(1, sizeof(*peer));

    if (!peer)
        return; /* libuv tries again with the next connection */
    peer->http = http;
    uv_tcp_init(&http->loop, &peer->tcp);
    peer->tcp.data = peer;
    gb_writer_init(&peer->query.writer, 0);
    gb_writer_init(&peer->out, 0);
    gb_writer_init(&peer->events, 0);
    if (http->peer_count >= http->most_peers)
        make_room(http);
    gb_list_append(&http->peers, &peer->of_http);
    http->peer_count++;
    atomic_fetch_add(&http->counts.connections, 1);
    atomic_fetch_add(&http->counts.connections_total, 1);
    if (uv_accept((uv_stream_t *)&http->listener, (uv_stream_t *)&peer->tcp) < 0) {
        peer_close(peer);
        return;
    }
    uv_tcp_nodelay(&peer->tcp, 1);
    peer->idle_ms = uv_now(&http->loop);
    peer->deadline_ms = peer->idle_ms + HEAD_MS;
    if (http->peer_count > http->most_peers) {
        atomic_fetch_add(&http->counts.refused, 1);
        peer->answering = true;
        refuse(peer, 503, "too many connections\n");
        return;
    }
    receive(peer);
}

void gb_peers_check(struct gb_http *http, uint64_t now_ms)
{
    GB_LIST_EACH(&http->peers, link) {
        struct gb_peer *peer = GB_CONTAINER(link, struct gb_peer, of_http);

        if (peer->closing)
            continue;
        if ((peer->deadline_ms && peer->deadline_ms <= now_ms) ||
            (peer->live && peer->heard_ms + DEAF_MS <= now_ms)) {
            peer_close(peer);
        } else if (peer->live && peer->ping_ms <= now_ms && peer->sends == 0) {
            add_frame(peer, GB_WS_PING, "", 0);
            peer->ping_ms = now_ms + PING_MS;
            flush_live(peer);
        }
    }
}
