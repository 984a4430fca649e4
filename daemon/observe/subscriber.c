#include "daemon/observe/subscriber.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/observe/http_request.h"
#include "proto/json.h"

#define MOST 256 /* subscribers */
#define HANDSHAKE_MS 5000
#define STALLED_MS 60000       /* without having read anything while there was something */
#define QUEUE_BYTES (8u << 20) /* that one may be behind */
#define QUEUE_BLOCKS 128
#define WRITE_BLOCKS 32 /* in one write */

/* Messages as they go out: to everybody of one audience by one framing. */
struct block {
    unsigned references;
    unsigned count; /* messages */
    size_t length;
    char data[];
};

struct subscriber {
    union {
        uv_stream_t stream;
        uv_pipe_t pipe;
        uv_tcp_t tcp;
    } handle;
    struct gb_subscribers *all;
    struct gb_link of_all;
    enum gb_framing framing;
    enum gb_audience audience;
    bool subscribed, closing;
    char in[GB_HTTP_HEAD_BYTES]; /* the handshake; afterwards what is ignored */
    size_t in_length;
    uint64_t deadline_ms; /* 0: none */

    struct block *queue[QUEUE_BLOCKS]; /* a ring */
    unsigned first, queued, writing;   /* `writing` of the first are under way */
    size_t bytes;
    bool greeting; /* an answer to the handshake is under way */
    char greeting_text[256];
    uv_write_t write;
};

/* ---- blocks ---- */

static void block_unref(struct block *block)
{
    if (block && --block->references == 0)
        free(block);
}

static size_t head_of(enum gb_framing framing, uint64_t length, char head[GB_WS_HEAD_BYTES])
{
    size_t at = 0;

    if (framing == GB_FRAMING_WS)
        return gb_ws_head(GB_WS_BINARY, length, head);
    if (framing == GB_FRAMING_IPC)
        head[at++] = 1;
    for (int shift = 56; shift >= 0; shift -= 8)
        head[at++] = (char)(length >> shift);
    return at;
}

static struct block *block_new(const struct gb_batch *batch, enum gb_framing framing,
                               enum gb_audience audience)
{
    struct block *block =
        malloc(sizeof(*block) + batch->length + (size_t)batch->count * GB_WS_HEAD_BYTES);
    const struct gb_record *record = NULL;

    if (!block)
        return NULL;
    *block = (struct block){.references = 1};
    while ((record = gb_batch_next(batch, record))) {
        size_t length = (size_t)record->topic_bytes + 1 + record->json_bytes;

        if (!(record->audience & audience))
            continue;
        block->length += head_of(framing, length, block->data + block->length);
        memcpy(block->data + block->length, record->text, length);
        block->length += length;
        block->count++;
    }
    return block;
}

/* ---- ending ---- */

static void drop_first(struct subscriber *one, unsigned count)
{
    for (; count > 0; count--) {
        struct block *block = one->queue[one->first];

        one->bytes -= block->length;
        one->first = (one->first + 1) % QUEUE_BLOCKS;
        one->queued--;
        block_unref(block);
    }
}

static void on_closed(uv_handle_t *handle)
{
    struct subscriber *one = handle->data;

    drop_first(one, one->queued);
    gb_list_remove(&one->of_all);
    free(one);
}

static void subscriber_close(struct subscriber *one)
{
    if (one->closing)
        return;
    one->closing = true;
    one->all->count--;
    if (one->subscribed)
        atomic_fetch_sub(&one->all->outlet->takers, 1);
    uv_close((uv_handle_t *)&one->handle, on_closed);
}

void gb_subscribers_end(struct gb_subscribers *subscribers)
{
    GB_LIST_EACH(&subscribers->list, link)
        subscriber_close(GB_CONTAINER(link, struct subscriber, of_all));
}

/* ---- sending ---- */

static void send_queued(struct subscriber *one);

static void on_written(uv_write_t *request, int status)
{
    struct subscriber *one = request->data;

    if (one->greeting) {
        one->greeting = false;
    } else {
        for (unsigned i = 0; status == 0 && i < one->writing; i++)
            atomic_fetch_add(&one->all->sent, one->queue[(one->first + i) % QUEUE_BLOCKS]->count);
        drop_first(one, one->writing);
        one->writing = 0;
    }
    if (status < 0)
        subscriber_close(one);
    else if (!one->closing)
        send_queued(one);
}

/* All that there is, in one write. */
static void send_queued(struct subscriber *one)
{
    uv_buf_t buffers[WRITE_BLOCKS];
    unsigned count = one->queued < WRITE_BLOCKS ? one->queued : WRITE_BLOCKS;

    if (one->greeting || one->writing > 0)
        return;
    one->deadline_ms = 0;
    if (count == 0)
        return;
    for (unsigned i = 0; i < count; i++) {
        struct block *block = one->queue[(one->first + i) % QUEUE_BLOCKS];

        buffers[i] = uv_buf_init(block->data, (unsigned)block->length);
    }
    one->deadline_ms = uv_now(one->all->loop) + STALLED_MS;
    one->write.data = one;
    if (uv_write(&one->write, &one->handle.stream, buffers, count, on_written) < 0)
        subscriber_close(one);
    else
        one->writing = count;
}

static void tell(struct subscriber *one, struct block *block)
{
    if (!block || block->count == 0)
        return;
    if (one->queued == QUEUE_BLOCKS || one->bytes + block->length > QUEUE_BYTES) {
        atomic_fetch_add(&one->all->dropped, block->count);
        return;
    }
    block->references++;
    one->queue[(one->first + one->queued++) % QUEUE_BLOCKS] = block;
    one->bytes += block->length;
    send_queued(one);
}

void gb_subscribers_tell(struct gb_subscribers *subscribers, const struct gb_batch *batch)
{
    /* By framing; an audience has one transport or two, and none has two audiences. */
    struct block *blocks[GB_FRAMINGS] = {NULL};

    GB_LIST_EACH(&subscribers->list, link) {
        struct subscriber *one = GB_CONTAINER(link, struct subscriber, of_all);

        if (!one->subscribed || one->closing)
            continue;
        if (!blocks[one->framing])
            blocks[one->framing] = block_new(batch, one->framing, one->audience);
        tell(one, blocks[one->framing]);
    }
    for (unsigned i = 0; i < GB_FRAMINGS; i++)
        block_unref(blocks[i]);
}

/* ---- the handshake ---- */

static const char pub_greeting[8] = {0, 'S', 'P', 0, 0, 0x20, 0, 0};
static const char sub_greeting[8] = {0, 'S', 'P', 0, 0, 0x21, 0, 0};

static void greet(struct subscriber *one, const char *text, size_t length)
{
    uv_buf_t buffer;

    memcpy(one->greeting_text, text, length);
    buffer = uv_buf_init(one->greeting_text, (unsigned)length);
    one->write.data = one;
    one->greeting = true;
    if (uv_write(&one->write, &one->handle.stream, &buffer, 1, on_written) < 0) {
        one->greeting = false;
        subscriber_close(one);
    }
}

static void subscribe(struct subscriber *one)
{
    one->subscribed = true;
    one->deadline_ms = 0;
    one->in_length = 0;
    atomic_fetch_add(&one->all->outlet->takers, 1);
}

/* A page says from where it comes, and pages have the HTTP server. */
static void upgrade(struct subscriber *one)
{
    struct gb_http_request request;
    char accept[GB_WS_ACCEPT_BYTES];
    struct gb_writer writer;
    int n = gb_http_request_read(one->in, one->in_length, &request);

    if (n == 0)
        return;
    if (n < 0 || !request.upgrade || request.origin.text || request.websocket_key.length != 24 ||
        !gb_http_is(request.websocket_version, "13") ||
        !gb_http_is(request.websocket_protocol, "pub.sp.nanomsg.org")) {
        subscriber_close(one);
        return;
    }
    gb_ws_accept(request.websocket_key.text, request.websocket_key.length, accept);
    gb_writer_init(&writer, sizeof(one->greeting_text));
    gb_write_format(&writer,
                    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                    "Connection: Upgrade\r\nSec-WebSocket-Protocol: pub.sp.nanomsg.org\r\n"
                    "Sec-WebSocket-Accept: %.*s\r\n\r\n",
                    GB_WS_ACCEPT_BYTES, accept);
    if (writer.failed)
        subscriber_close(one);
    else
        greet(one, writer.data, writer.length);
    gb_writer_end(&writer);
    if (!one->closing)
        subscribe(one);
}

static void take_handshake(struct subscriber *one)
{
    if (one->framing == GB_FRAMING_WS) {
        upgrade(one);
        return;
    }
    if (one->in_length < sizeof(sub_greeting))
        return;
    if (one->in_length > sizeof(sub_greeting) || memcmp(one->in, sub_greeting, 8) != 0)
        subscriber_close(one);
    else
        subscribe(one);
}

/* A subscriber has nothing to say, but for the frames that keep a WebSocket alive. */
static void take_frames(struct subscriber *one)
{
    size_t at = 0;
    int n = 0;

    while (one->framing == GB_FRAMING_WS) {
        struct gb_ws_frame frame;

        n = gb_ws_read(one->in + at, one->in_length - at, &frame);
        if (n > 0 && frame.opcode == GB_WS_CLOSE)
            n = -1;
        if (n > 0 && frame.opcode == GB_WS_PING && !one->greeting && one->writing == 0) {
            char pong[GB_WS_HEAD_BYTES + 125];
            size_t head = gb_ws_head(GB_WS_PONG, frame.length, pong);

            memcpy(pong + head, frame.payload, frame.length);
            greet(one, pong, head + frame.length);
        }
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    if (n < 0 || one->framing != GB_FRAMING_WS) {
        subscriber_close(one);
        return;
    }
    memmove(one->in, one->in + at, one->in_length - at);
    one->in_length -= at;
}

static void on_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buffer)
{
    struct subscriber *one = handle->data;

    (void)suggested;
    *buffer = uv_buf_init(one->in + one->in_length, (unsigned)(sizeof(one->in) - one->in_length));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buffer)
{
    struct subscriber *one = stream->data;

    (void)buffer;
    if (n == 0)
        return;
    if (n > 0)
        one->in_length += (size_t)n;
    if (n < 0)
        subscriber_close(one);
    else if (one->subscribed)
        take_frames(one);
    else
        take_handshake(one);
}

/* ---- beginning ---- */

void gb_subscribers_init(struct gb_subscribers *subscribers, uv_loop_t *loop,
                         struct gb_outlet *outlet)
{
    memset(subscribers, 0, sizeof(*subscribers));
    subscribers->loop = loop;
    subscribers->outlet = outlet;
    gb_list_init(&subscribers->list);
}

static int open_stream(struct subscriber *one, int fd)
{
    int r;

    if (one->framing == GB_FRAMING_IPC) {
        uv_pipe_init(one->all->loop, &one->handle.pipe, 0);
        r = uv_pipe_open(&one->handle.pipe, fd);
    } else {
        uv_tcp_init(one->all->loop, &one->handle.tcp);
        r = uv_tcp_open(&one->handle.tcp, fd);
        if (r == 0)
            uv_tcp_nodelay(&one->handle.tcp, 1);
    }
    one->handle.stream.data = one;
    return r;
}

void gb_subscriber_new(struct gb_subscribers *subscribers, int fd, enum gb_framing framing,
                       enum gb_audience audience)
{
    struct subscriber *one = subscribers->count < MOST ? calloc(1, sizeof(*one)) : NULL;

    if (!one) {
        close(fd);
        return;
    }
    one->all = subscribers;
    one->framing = framing;
    one->audience = audience;
    one->deadline_ms = uv_now(subscribers->loop) + HANDSHAKE_MS;
    gb_list_append(&subscribers->list, &one->of_all);
    subscribers->count++;
    if (open_stream(one, fd) < 0) {
        close(fd);
        subscriber_close(one);
        return;
    }
    if (framing != GB_FRAMING_WS)
        greet(one, pub_greeting, sizeof(pub_greeting));
    if (!one->closing)
        uv_read_start(&one->handle.stream, on_room, on_read);
}

void gb_subscribers_check(struct gb_subscribers *subscribers, uint64_t now_ms)
{
    GB_LIST_EACH(&subscribers->list, link) {
        struct subscriber *one = GB_CONTAINER(link, struct subscriber, of_all);

        if (!one->closing && one->deadline_ms && one->deadline_ms <= now_ms)
            subscriber_close(one);
    }
}
