#include "client/peer/remote.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/peer/content.h"
#include "proto/json.h"

enum {
    REMOTES_MOST = 4096,
    AGAIN_MS = 250,
    AGAIN_MOST_MS = 4000,
    TICK_MS = 100,
    ANSWER_MOST_MS = 600000 /* then what else comes is of no use: it would keep a fetch for ever */
};

/* A request under way. */
struct ask {
    struct ask *next;
    uint64_t id;
    uint64_t since; /* by the loop's clock */
    gb_answered_cb answered;
    gb_chunk_cb read;
    void *user;
    uint64_t chunk; /* of a read */
    struct gb_room room;
};

struct gb_remote {
    struct gb_remote *next;
    struct gb_remotes *remotes;
    char node[GB_NODE_BYTES], host[GB_HOST_BYTES];
    char text[GB_NODE_BYTES + GB_HOST_BYTES + 16];
    uint16_t port;
    struct gb_link *link; /* NULL: none now */
    uint64_t epoch, last; /* of the requests' ids */
    struct ask *asks;     /* in order, under way */
    struct ask *failed;   /* to be told so in the next turn */
    uint64_t again;       /* when it may be tried again */
    unsigned again_ms;
    struct gb_error why; /* it was not reached last time */
};

struct gb_remotes {
    uv_loop_t *loop;
    const struct gb_tls *tls;
    unsigned patience_ms, count;
    struct gb_remote *first;
    uv_timer_t tick, soon;
    unsigned handles;
    bool closing;
    struct gb_pool pool;
};

/* ---- answers ---- */

static void answer(struct ask *ask, int status, const char *text, size_t length, uint64_t sum,
                   const struct gb_error *error)
{
    if (ask->read)
        ask->read(ask->user, status, ask->chunk, sum, error);
    else if (ask->answered)
        ask->answered(ask->user, status, text, length, error);
    free(ask);
}

static void fail_all(struct ask **list, const struct gb_error *error)
{
    struct ask *asks = *list;

    *list = NULL;
    while (asks) {
        struct ask *ask = asks;
        asks = ask->next;
        answer(ask, error->code, NULL, 0, 0, error);
    }
}

static const struct ask *find_ask(const struct gb_remote *remote, uint64_t id)
{
    const struct ask *ask = remote->asks;

    while (ask && ask->id != id)
        ask = ask->next;
    return ask;
}

/* The one of that id, no longer under way. */
static struct ask *take_ask(struct gb_remote *remote, uint64_t id)
{
    for (struct ask **place = &remote->asks; *place; place = &(*place)->next) {
        struct ask *ask = *place;
        if (ask->id == id) {
            *place = ask->next;
            return ask;
        }
    }
    return NULL;
}

struct failure {
    struct gb_string kind, message;
};

/* 0, or what an answer tells that went wrong. */
static int check(struct gb_remote *remote, const char *text, size_t length, struct gb_error *error)
{
    static const struct gb_field outer[] = {
        {.name = "error", .type = GB_FIELD_OBJECT},
    };
    static const struct gb_field inner[] = {
        GB_FIELD(struct failure, kind, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 32),
        GB_FIELD(struct failure, message, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 1024),
    };
    struct gb_pool *pool = &remote->remotes->pool;
    struct gb_path path = {.key = "answer"};
    struct failure failure = {0};
    struct gb_json value, told = {0};

    gb_pool_reset(pool);
    if (gb_json_check(text, length, pool, &value, error) < 0 ||
        gb_json_read(value, outer, 1, GB_UNKNOWN_IGNORE, &path, pool, &told, NULL, error) < 0)
        return GPUBUF_E_PROTOCOL;
    if (!told.text)
        return 0;
    if (gb_json_read(told, inner, 2, GB_UNKNOWN_IGNORE, &path, pool, &failure, NULL, error) < 0)
        return GPUBUF_E_PROTOCOL;
    int code = gb_error_from_kind(failure.kind.text, failure.kind.length);
    return gb_fail(error, code ? code : GPUBUF_E_INTERNAL, "%s: %s", remote->text,
                   failure.message.text);
}

/* ---- the link ---- */

/* Its requests fail, and it is not tried again for a moment. */
static void lose(struct gb_remote *remote, const struct gb_error *why)
{
    struct gb_error error = *why;
    bool served = remote->link && gb_link_is_open(remote->link);

    remote->link = NULL;
    remote->why = *why;
    remote->why.code = error.code = GPUBUF_E_CLOSED;
    remote->again_ms = served ? AGAIN_MS : 2 * remote->again_ms;
    if (remote->again_ms > AGAIN_MOST_MS || remote->again_ms == 0)
        remote->again_ms = remote->again_ms ? AGAIN_MOST_MS : AGAIN_MS;
    remote->again = uv_now(remote->remotes->loop) + remote->again_ms;
    fail_all(&remote->asks, &error);
}

static void on_closed(struct gb_link *link, const struct gb_error *why, void *user)
{
    (void)link;
    lose(user, why);
}

/* The other side did what it should not. */
static void refuse(struct gb_remote *remote, const char *what)
{
    struct gb_link *link = remote->link;
    struct gb_error error;

    (void)gb_fail(&error, GPUBUF_E_PROTOCOL, "%s: %s", remote->text, what);
    lose(remote, &error);
    gb_link_close(link);
}

static bool on_open(struct gb_link *link, const char *node, void *user)
{
    struct gb_remote *remote = user;

    (void)link;
    (void)node;
    remote->again_ms = 0;
    return true;
}

static void on_control(struct gb_link *link, uint64_t request, const char *text, size_t length,
                       void *user)
{
    struct gb_remote *remote = user;
    struct gb_error error;

    (void)link;
    if (request == GB_REQUEST_WAIT)
        return;
    int status = check(remote, text, length, &error);
    const struct ask *asked = find_ask(remote, request);
    if (!asked || status == GPUBUF_E_PROTOCOL || (asked->read && status == 0)) {
        refuse(remote, "it sent an answer that makes no sense");
        return;
    }
    struct ask *ask = take_ask(remote, request);
    answer(ask, status, text, length, 0, status < 0 ? &error : NULL);
}

static struct gb_room on_room(struct gb_link *link, uint64_t request, void *user)
{
    struct gb_remote *remote = user;

    const struct ask *ask = find_ask(remote, request);

    (void)link;
    return ask ? ask->room : (struct gb_room){0};
}

static void on_data(struct gb_link *link, uint64_t request, uint64_t sum, void *user)
{
    struct gb_remote *remote = user;
    struct ask *ask = take_ask(remote, request);
    struct gb_error error;
    int status = 0;

    (void)link;
    if (!ask)
        return;
    if (gb_content_sum(ask->room.memory, ask->room.bytes) != sum)
        status = gb_fail(&error, GPUBUF_E_PROTOCOL,
                         "%s: chunk %" PRIu64 " has another checksum than it was sent with",
                         remote->text, ask->chunk);
    answer(ask, status, NULL, 0, sum, status < 0 ? &error : NULL);
}

static const struct gb_link_events events = {
    .open = on_open,
    .control = on_control,
    .room = on_room,
    .data = on_data,
    .closed = on_closed,
};

/* ---- time ---- */

static void on_soon(uv_timer_t *timer)
{
    struct gb_remotes *remotes = timer->data;

    for (struct gb_remote *remote = remotes->first; remote; remote = remote->next) {
        struct gb_error error = remote->why;
        fail_all(&remote->failed, &error);
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct gb_remotes *remotes = timer->data;

    for (struct gb_remote *remote = remotes->first; remote; remote = remote->next) {
        if (!remote->link || !remote->asks)
            continue;
        uint64_t silent = gb_link_silent(remote->link);
        uint64_t waited = uv_now(remotes->loop) - remote->asks->since;
        if (waited > ANSWER_MOST_MS ||
            (silent > remotes->patience_ms && waited > remotes->patience_ms))
            refuse(remote, "it does not answer");
    }
}

/* ---- asking ---- */

static bool connect_to(struct gb_remote *remote)
{
    struct gb_remotes *remotes = remote->remotes;

    if (remote->link)
        return true;
    if (uv_now(remotes->loop) < remote->again)
        return false;
    remote->link = gb_link_connect(remotes->loop, remotes->tls, remote->node, remote->host,
                                   remote->port, &events, remote);
    if (!remote->link)
        (void)gb_fail(&remote->why, GPUBUF_E_NO_MEMORY, "out of memory");
    else
        remote->epoch++;
    return remote->link != NULL;
}

static bool ask_remote(struct gb_remote *remote, const struct ask *values, const char *text,
                       size_t length)
{
    struct ask *ask = malloc(sizeof(*ask)), **place = &remote->failed;

    if (!ask || remote->remotes->closing) {
        free(ask);
        return false;
    }
    *ask = *values;
    ask->next = NULL;
    ask->id = ++remote->last;
    ask->since = uv_now(remote->remotes->loop);
    if (connect_to(remote)) {
        gb_link_send(remote->link, ask->id, text, length);
        place = &remote->asks;
    } else {
        (void)uv_timer_start(&remote->remotes->soon, on_soon, 0, 0);
    }
    while (*place)
        place = &(*place)->next;
    *place = ask;
    return true;
}

bool gb_remote_ask(struct gb_remote *remote, const char *text, size_t length,
                   gb_answered_cb callback, void *user)
{
    return ask_remote(remote, &(struct ask){.answered = callback, .user = user}, text, length);
}

bool gb_remote_read(struct gb_remote *remote, uint64_t lease, uint64_t chunk, void *memory,
                    uint64_t bytes, gb_chunk_cb callback, void *user)
{
    char text[96];
    int length =
        snprintf(text, sizeof(text),
                 "{\"method\":\"read\",\"lease\":%" PRIu64 ",\"chunk\":%" PRIu64 "}", lease, chunk);

    return ask_remote(
        remote,
        &(struct ask){.read = callback, .user = user, .chunk = chunk, .room = {memory, bytes}},
        text, (size_t)length);
}

void gb_remote_release(struct gb_remote *remote, uint64_t lease)
{
    char text[64];
    int length =
        snprintf(text, sizeof(text), "{\"method\":\"release\",\"lease\":%" PRIu64 "}", lease);

    if (remote->link)
        gb_link_send(remote->link, 0, text, (size_t)length);
}

/* ---- machines ---- */

struct gb_remote *gb_remotes_get(struct gb_remotes *remotes, const char *node, const char *host,
                                 uint16_t port)
{
    struct gb_remote *remote;

    for (remote = remotes->first; remote; remote = remote->next)
        if (remote->port == port && strcmp(remote->node, node) == 0 &&
            strcmp(remote->host, host) == 0)
            return remote;
    remote = remotes->count < REMOTES_MOST ? calloc(1, sizeof(*remote)) : NULL;
    if (!remote)
        return NULL;
    remote->remotes = remotes;
    remote->port = port;
    snprintf(remote->node, sizeof(remote->node), "%s", node);
    snprintf(remote->host, sizeof(remote->host), "%s", host);
    snprintf(remote->text, sizeof(remote->text), "%s (%s:%u)", node, host, port);
    remote->next = remotes->first;
    remotes->first = remote;
    remotes->count++;
    return remote;
}

unsigned gb_remotes_connected(const struct gb_remotes *remotes)
{
    unsigned count = 0;

    for (const struct gb_remote *remote = remotes->first; remote; remote = remote->next)
        count += remote->link && gb_link_is_open(remote->link);
    return count;
}

uint64_t gb_remote_epoch(const struct gb_remote *remote)
{
    return remote->link ? remote->epoch : 0;
}

const char *gb_remote_text(const struct gb_remote *remote)
{
    return remote->text;
}

const char *gb_remote_node(const struct gb_remote *remote)
{
    return remote->node;
}

struct gb_remotes *gb_remotes_new(uv_loop_t *loop, const struct gb_tls *tls, unsigned patience_ms)
{
    struct gb_remotes *remotes = calloc(1, sizeof(*remotes));

    if (!remotes)
        return NULL;
    *remotes =
        (struct gb_remotes){.loop = loop, .tls = tls, .patience_ms = patience_ms, .handles = 2};
    (void)uv_timer_init(loop, &remotes->tick); /* cannot fail */
    (void)uv_timer_init(loop, &remotes->soon);
    remotes->tick.data = remotes->soon.data = remotes;
    (void)uv_timer_start(&remotes->tick, on_tick, TICK_MS, TICK_MS);
    return remotes;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct gb_remotes *remotes = handle->data;

    if (--remotes->handles > 0)
        return;
    while (remotes->first) {
        struct gb_remote *remote = remotes->first;
        remotes->first = remote->next;
        free(remote);
    }
    gb_pool_end(&remotes->pool);
    free(remotes);
}

void gb_remotes_close(struct gb_remotes *remotes)
{
    struct gb_error error;

    (void)gb_fail(&error, GPUBUF_E_CANCELED, "the peer stops");
    remotes->closing = true;
    for (struct gb_remote *remote = remotes->first; remote; remote = remote->next) {
        struct gb_link *link = remote->link;
        remote->link = NULL;
        fail_all(&remote->asks, &error);
        fail_all(&remote->failed, &error);
        gb_link_close(link);
    }
    uv_close((uv_handle_t *)&remotes->tick, on_timer_closed);
    uv_close((uv_handle_t *)&remotes->soon, on_timer_closed);
}
