#include "client/peer/fetch/remote.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "client/peer/base/figures.h"
#include "client/peer/base/seldom.h"
#include "client/peer/content/content.h"
#include "client/peer/content/granted.h"
#include "proto/base/list.h"
#include "proto/wire/json.h"

enum {
    REMOTES_MOST = 4096,
    AGAIN_MS = 250,
    AGAIN_MOST_MS = 4000,
    TICK_MS = 100,
    SIDES = 4,              /* links beside the first */
    SIDES_AFTER = 16,       /* chunks in a row that are worth more than one */
    SIDES_IDLE_MS = 5000,   /* without a chunk; then they are closed */
    LARGE_LEAST = 65536,    /* bytes of a chunk that has no part of the first link */
    LANE_AGAIN_MS = 60000,  /* until another lane is tried */
    ANSWER_MOST_MS = 600000 /* for an answer, while other messages come: else a fetch could last for
                               ever */
};

/* A request under way. */
struct ask {
    struct gb_link of_remote;
    uint64_t id;
    uint64_t since; /* by the loop's clock */
    gb_peer_answered_cb answered;
    gb_peer_land_cb land;
    gb_peer_chunk_cb read;
    void *user;
    struct gb_peer_link *link; /* that it was sent on */
    uint64_t lease, chunk;     /* of a read */
    struct gb_peer_room room;
    struct gb_peer_remote
        *by; /* its lane brings the chunk, and the answer tells the sum; NULL: the link
                             does */
    bool came, told;
    uint64_t sum;
};

struct gb_peer_remote {
    struct gb_link of_all;
    struct gb_peer_remotes *remotes;
    char node[GB_PEER_NODE_BYTES], host[GB_PEER_HOST_BYTES];
    char text[GB_PEER_NODE_BYTES + GB_PEER_HOST_BYTES + 16];
    uint16_t port;
    struct gb_peer_link *link;         /* NULL: none now */
    struct gb_peer_link *sides[SIDES]; /* NULL: none */
    bool alone;                        /* there are to be no side links */
    unsigned row;                      /* chunks that were asked for with others under way */
    uint64_t read;                     /* when the last one was */
    struct gb_peer_lane *lane;         /* beside the link; NULL: none */
    bool lane_ready;                   /* the other side has made its end */
    uint64_t lane_again;               /* when another lane may be tried */
    uint64_t lane_moved;               /* when it last brought something */
    uint64_t epoch, last;              /* of the requests' ids */
    struct gb_link asks;               /* struct ask: under way, in order */
    struct gb_link failed;             /* struct ask: answered in the next turn */
    uint64_t again;                    /* when the machine may be tried again */
    unsigned again_ms, holds;
    struct gb_error why; /* why it was not reached last time */
};

struct gb_peer_remotes {
    const struct gb_peer_parts *parts;
    unsigned patience_ms, count;
    struct gb_link all; /* struct gb_peer_remote */
    uv_timer_t tick, soon;
    unsigned handles;
    bool closing;
    struct gb_pool pool;
};

/* ---- answers ---- */

static void answer(struct ask *ask, int status, const char *text, size_t length,
                   const struct gb_error *error)
{
    gb_list_remove(&ask->of_remote);
    if (ask->read)
        ask->read(ask->user, status, ask->chunk, error);
    else if (ask->answered)
        ask->answered(ask->user, status, text, length, error);
    free(ask);
}

/* Not those that are asked meanwhile. */
static void fail_all(struct gb_link *list, const struct gb_error *error)
{
    struct gb_link asks = {NULL};
    struct ask *ask;

    gb_list_move(list, &asks);
    while ((ask = GB_LIST_FIRST(&asks, struct ask, of_remote)))
        answer(ask, error->code, NULL, 0, error);
}

static struct ask *find_ask(const struct gb_peer_remote *remote, uint64_t id)
{
    GB_LIST_EACH(&remote->asks, struct ask, ask, of_remote)
        if (ask->id == id)
            return ask;
    return NULL;
}

struct failure {
    struct gb_string kind, message;
};

/* 0, or the error that an answer tells. */
static int check(struct gb_peer_remote *remote, const char *text, size_t length,
                 struct gb_error *error)
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
    struct gb_json told = {0};

    gb_pool_reset(pool);
    if (gb_json_read_text(text, length, outer, 1, "answer", pool, &told, error) < 0)
        return GPUBUF_E_PROTOCOL;
    if (!told.text)
        return 0;
    if (gb_json_read(told, inner, 2, GB_UNKNOWN_IGNORE, &path, pool, &failure, NULL, error) < 0)
        return GPUBUF_E_PROTOCOL;
    int code = gb_error_from_kind(failure.kind.text, failure.kind.length);
    return gb_fail(error, code ? code : GPUBUF_E_INTERNAL, "%s: %s", remote->text,
                   failure.message.text);
}

/* ---- the lane ---- */

/* Logs it, and counts a failure unless the other machine merely has no UCX. */
static void say_failed(struct gb_peer_remote *remote, int status, const char *why)
{

    gb_peer_log_seldom(GB_LOG_WARNING, uv_now(remote->remotes->parts->loop), remote->node, NULL,
                       "UCX not used", GB_LOG_TEXT("machine", remote->text),
                       GB_LOG_TEXT("why", why));
    if (status != GPUBUF_E_UNSUPPORTED && status != GPUBUF_E_METHOD)
        remote->remotes->parts->figures->lane_failures++;
}

/* The requests for chunks that it was to bring stay under way. */
static void drop_lane(struct gb_peer_remote *remote)
{
    struct gb_peer_lane *lane = remote->lane;

    remote->lane = NULL;
    remote->lane_ready = false;
    gb_peer_lane_close(lane);
}

static bool ask_read(struct gb_peer_remote *remote, const struct ask *values);

/* In any thread. */
static int land(void *user, uint64_t sum, struct gb_error *error)
{
    const struct ask *ask = user;

    if (gb_peer_content_sum(ask->room.memory, ask->room.bytes) != sum)
        return gb_fail(error, GPUBUF_E_PROTOCOL,
                       "chunk %" PRIu64 " has another checksum than it was sent with", ask->chunk);
    return ask->land(ask->user, error);
}

/* Gives up a lane: its chunks are asked for anew, to come over the link. The answers to the former
   requests are ignored. */
static void leave_lane(struct gb_peer_remote *remote, int status, const char *why)
{
    static const char bye[] = "{\"method\":\"lane\"}";

    say_failed(remote, status, why);
    drop_lane(remote);
    remote->lane_again = uv_now(remote->remotes->parts->loop) + LANE_AGAIN_MS;
    gb_peer_link_send(remote->link, 0, bye, sizeof(bye) - 1);
    /* Those that are asked for anew come at the end, and are by no lane. */
    GB_LIST_EACH(&remote->asks, struct ask, ask, of_remote) {
        struct ask values = *ask;
        if (!ask->by)
            continue;
        values.by = NULL;
        values.link = NULL;
        values.came = values.told = false;
        ask->by = NULL;
        if (!ask_read(remote, &values))
            continue; /* memory is out: the answer will make no sense, and end the link */
        ask->read = NULL;
        ask->room = (struct gb_peer_room){0};
        ask->since = uv_now(remote->remotes->parts->loop);
        if (ask->told) {
            gb_list_remove(&ask->of_remote);
            free(ask);
        }
    }
}

static void on_lane(void *user, int status, const char *result, size_t length,
                    const struct gb_error *error)
{
    struct gb_peer_remote *remote = user;
    struct gb_string address = {0};
    struct gb_error why;

    if (!remote->lane) /* it went with its link */
        return;
    remote->lane_moved = uv_now(remote->remotes->parts->loop);
    if (status == 0) {
        status = gb_peer_granted_address(result, length, &remote->remotes->pool, &address, &why);
        if (status == 0)
            status = gb_peer_lane_connect(remote->lane, address.text, &why);
        error = &why;
    }
    remote->lane_ready = status == 0;
    if (status == 0) {
        gb_peer_log_seldom(GB_LOG_INFO, uv_now(remote->remotes->parts->loop), remote->node, NULL,
                           "chunks come by UCX", GB_LOG_TEXT("machine", remote->text));
        return;
    }
    leave_lane(remote, status, error->message);
    if (status == GPUBUF_E_UNSUPPORTED || status == GPUBUF_E_METHOD)
        remote->lane_again = UINT64_MAX; /* as long as this link */
}

/* Makes a lane, if it is time, and tells the other side. No chunk waits for the lane. */
static void make_lane(struct gb_peer_remote *remote)
{
    struct gb_peer_remotes *remotes = remote->remotes;
    struct gb_writer writer;
    struct gb_error error;

    if (!remotes->parts->ucx || remote->lane || !gb_peer_link_is_open(remote->link) ||
        uv_now(remotes->parts->loop) < remote->lane_again)
        return;
    remote->lane_again = uv_now(remotes->parts->loop) + LANE_AGAIN_MS;
    remote->lane = gb_peer_lane_new(remotes->parts->ucx, remotes->parts->loop, &error);
    if (!remote->lane) {
        say_failed(remote, error.code, error.message);
        return;
    }
    gb_writer_init(&writer, 0);
    GB_WRITE_LITERAL(&writer, "{\"method\":\"lane\",");
    gb_peer_lane_write(remote->lane, &writer);
    gb_write_char(&writer, '}');
    if (writer.failed || !gb_peer_remote_ask(remote, writer.data, writer.length, on_lane, remote))
        drop_lane(remote);
    gb_writer_end(&writer);
}

/* Answers a request once both the chunk and its sum are here. */
static void finish_by_lane(struct gb_peer_remote *remote, struct ask *ask)
{
    struct gb_error error;

    if (!ask->came || !ask->told)
        return;
    if (land(ask, ask->sum, &error) < 0) {
        leave_lane(remote, error.code, error.message);
        return;
    }
    remote->lane_moved = uv_now(remote->remotes->parts->loop);
    answer(ask, 0, NULL, 0, NULL);
}

static void on_came(void *user, int status, const struct gb_error *error)
{
    struct ask *ask = user;
    struct gb_peer_remote *remote = ask->by;

    if (!remote->lane) /* it is being given up */
        return;
    ask->came = status == 0;
    if (status < 0)
        leave_lane(remote, status, error->message);
    else
        finish_by_lane(remote, ask);
}

static void on_told(struct gb_peer_remote *remote, struct ask *ask, int status, const char *text,
                    size_t length, const struct gb_error *error)
{
    struct gb_error why;

    if (status == 0) {
        status = gb_peer_granted_sum(text, length, &remote->remotes->pool, &ask->sum, &why);
        error = &why;
    }
    ask->told = true;
    if (status < 0)
        leave_lane(remote, status, error->message);
    else
        finish_by_lane(remote, ask);
}

/* ---- the link ---- */

/* Writes what asks for a chunk. */
static int write_read(char *text, size_t size, const struct ask *ask, const char *tag)
{
    return snprintf(text, size,
                    "{\"method\":\"read\",\"lease\":%" PRIu64 ",\"chunk\":%" PRIu64 "%s}",
                    ask->lease, ask->chunk, tag);
}

static void close_sides(struct gb_peer_remote *remote)
{
    for (int i = 0; i < SIDES; i++) {
        gb_peer_link_close(remote->sides[i]);
        remote->sides[i] = NULL;
    }
    remote->row = 0;
}

/* Their chunks are asked for anew. */
static void leave_sides(struct gb_peer_remote *remote)
{
    char text[128];

    close_sides(remote);
    GB_LIST_EACH(&remote->asks, struct ask, ask, of_remote) {
        if (ask->link == remote->link)
            continue;
        ask->link = remote->link;
        ask->since = uv_now(remote->remotes->parts->loop);
        int length = write_read(text, sizeof(text), ask, "");
        gb_peer_link_send(remote->link, ask->id, text, (size_t)length);
    }
}

static void on_side_closed(struct gb_peer_link *link, const struct gb_error *why, void *user)
{
    struct gb_peer_remote *remote = user;

    for (int i = 0; i < SIDES; i++)
        if (remote->sides[i] == link)
            remote->sides[i] = NULL;
    remote->alone = true;
    leave_sides(remote);
}

/* The link has ended: the requests fail, and the machine is not tried again for a moment. */
static void lose(struct gb_peer_remote *remote, bool served, const struct gb_error *why)
{
    struct gb_error error = *why;

    remote->link = NULL;
    close_sides(remote); /* they write to the memory of requests */
    drop_lane(remote);
    remote->why = *why;
    remote->again_ms = served ? AGAIN_MS : 2 * remote->again_ms;
    if (remote->again_ms > AGAIN_MOST_MS || remote->again_ms == 0)
        remote->again_ms = remote->again_ms ? AGAIN_MOST_MS : AGAIN_MS;
    remote->again = uv_now(remote->remotes->parts->loop) + remote->again_ms;
    fail_all(&remote->asks, &error);
}

static void on_closed(struct gb_peer_link *link, const struct gb_error *why, void *user)
{
    lose(user, gb_peer_link_is_open(link), why);
}

/* The other side broke the protocol: ends the link. */
static void refuse(struct gb_peer_remote *remote, const char *what)
{
    struct gb_peer_link *link = remote->link;
    struct gb_error error;

    (void)gb_fail(&error, GPUBUF_E_PROTOCOL, "%s: %s", remote->text, what);
    bool served = gb_peer_link_is_open(link);
    gb_peer_link_close(link); /* it writes to the memory of requests */
    lose(remote, served, &error);
}

static bool on_open(struct gb_peer_link *link, const char *node, void *user)
{
    struct gb_peer_remote *remote = user;

    remote->again_ms = 0;
    remote->lane_again = 0;
    remote->alone = false;
    return true;
}

static bool on_side_open(struct gb_peer_link *link, const char *node, void *user)
{
    return true;
}

static void on_control(struct gb_peer_link *link, uint64_t request, const char *text, size_t length,
                       void *user)
{
    struct gb_peer_remote *remote = user;
    struct gb_error error;

    if (request == GB_PEER_REQUEST_WAIT)
        return;
    int status = check(remote, text, length, &error);
    struct ask *asked = find_ask(remote, request);
    if (asked && asked->by) {
        on_told(remote, asked, status, text, length, &error);
        return;
    }
    if (asked && asked->link == link && link != remote->link && status < 0) {
        remote->alone = true; /* the first link may have the chunk, or tell why not */
        leave_sides(remote);
        return;
    }
    if (!asked || asked->link != link || status == GPUBUF_E_PROTOCOL ||
        (asked->read && status == 0)) {
        refuse(remote, "it sent an answer that makes no sense");
        return;
    }
    answer(asked, status, text, length, status < 0 ? &error : NULL);
}

static struct gb_peer_room on_room(struct gb_peer_link *link, uint64_t request, void *user)
{
    struct gb_peer_remote *remote = user;

    struct ask *ask = find_ask(remote, request);

    return ask && !ask->by && ask->link == link ? ask->room : (struct gb_peer_room){0};
}

static void on_data(struct gb_peer_link *link, uint64_t request, const struct gb_error *why,
                    void *user)
{
    struct gb_peer_remote *remote = user;
    struct ask *ask = find_ask(remote, request);
    struct gb_error error;
    int status = 0;

    if (!ask)
        return;
    if (why)
        status = gb_fail(&error, why->code, "%s: %s", remote->text, why->message);
    answer(ask, status, NULL, 0, status < 0 ? &error : NULL);
}

static const struct gb_peer_link_events events = {
    .open = on_open,
    .control = on_control,
    .room = on_room,
    .data = on_data,
    .closed = on_closed,
};
static const struct gb_peer_link_events side_events = {
    .open = on_side_open,
    .control = on_control,
    .room = on_room,
    .data = on_data,
    .closed = on_side_closed,
};

/* ---- time ---- */

static void on_soon(uv_timer_t *timer)
{
    struct gb_peer_remotes *remotes = timer->data;

    GB_LIST_EACH(&remotes->all, struct gb_peer_remote, remote, of_all) {
        struct gb_error error = remote->why;
        fail_all(&remote->failed, &error);
    }
}

/* UCX does not tell of a lane that cannot connect or stands still: gives it up after a while. */
static void check_lane(struct gb_peer_remote *remote)
{
    uint64_t now = uv_now(remote->remotes->parts->loop), patience = remote->remotes->patience_ms;

    GB_LIST_EACH(&remote->asks, const struct ask, ask, of_remote) {
        if (!ask->by)
            continue;
        if (now - ask->since > patience && now - remote->lane_moved > patience)
            leave_lane(remote, GPUBUF_E_TIMEOUT, "nothing comes that way");
        return;
    }
}

/* Whether the machine is to be kept. One that was not reached is kept for twice the time in which
   it is not tried. */
static bool is_of_use(const struct gb_peer_remote *remote)
{
    return remote->link || !gb_list_empty(&remote->asks) || !gb_list_empty(&remote->failed) ||
           remote->holds > 0 ||
           uv_now(remote->remotes->parts->loop) < remote->again + remote->again_ms;
}

static void free_unused(struct gb_peer_remotes *remotes)
{
    GB_LIST_EACH(&remotes->all, struct gb_peer_remote, remote, of_all) {
        if (is_of_use(remote))
            continue;
        gb_list_remove(&remote->of_all);
        remotes->count--;
        free(remote);
    }
}

static bool is_late(const struct gb_peer_remote *remote, const struct ask *ask)
{
    uint64_t now = uv_now(remote->remotes->parts->loop), patience = remote->remotes->patience_ms;
    uint64_t silent = gb_peer_link_silent(ask->link), waited = now - ask->since;
    uint64_t still = now - remote->lane_moved; /* it may be at work after all sums were told */

    if (ask->link == remote->link && still < silent)
        silent = still;
    return waited > ANSWER_MOST_MS || (silent > patience && waited > patience);
}

static void check_links(struct gb_peer_remote *remote)
{
    if (gb_list_empty(&remote->asks) &&
        uv_now(remote->remotes->parts->loop) - remote->read > SIDES_IDLE_MS)
        close_sides(remote);
    GB_LIST_EACH(&remote->asks, const struct ask, ask, of_remote) {
        if (!is_late(remote, ask))
            continue;
        remote->alone = remote->alone || ask->link != remote->link;
        if (ask->link == remote->link)
            refuse(remote, "it does not answer");
        else
            leave_sides(remote);
        return;
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct gb_peer_remotes *remotes = timer->data;

    free_unused(remotes);
    GB_LIST_EACH(&remotes->all, struct gb_peer_remote, remote, of_all) {
        if (!remote->link)
            continue;
        check_lane(remote);
        check_links(remote);
    }
}

/* ---- asking ---- */

static bool connect_to(struct gb_peer_remote *remote)
{
    struct gb_peer_remotes *remotes = remote->remotes;

    if (remote->link)
        return true;
    if (uv_now(remotes->parts->loop) < remote->again)
        return false;
    remote->link = gb_peer_link_connect(remotes->parts->loop, remotes->parts->tls, remote->node,
                                        remote->host, remote->port, &events, remote);
    if (!remote->link)
        (void)gb_fail_memory(&remote->why);
    else
        remote->epoch++;
    return remote->link != NULL;
}

/* NULL: out of memory, or the remotes are being closed. */
static struct ask *ask_remote(struct gb_peer_remote *remote, const struct ask *values,
                              const char *text, size_t length)
{
    struct ask *ask = malloc(sizeof(*ask));
    struct gb_link *list = &remote->failed;

    if (!ask || remote->remotes->closing) {
        free(ask);
        return NULL;
    }
    *ask = *values;
    ask->of_remote = (struct gb_link){NULL, NULL};
    ask->id = ++remote->last;
    ask->since = uv_now(remote->remotes->parts->loop);
    ask->room.user = ask;
    if (connect_to(remote)) {
        if (!ask->link)
            ask->link = remote->link;
        gb_peer_link_send(ask->link, ask->id, text, length);
        list = &remote->asks;
    } else {
        (void)uv_timer_start(&remote->remotes->soon, on_soon, 0, 0);
    }
    gb_list_append(list, &ask->of_remote);
    return ask;
}

bool gb_peer_remote_ask(struct gb_peer_remote *remote, const char *text, size_t length,
                        gb_peer_answered_cb callback, void *user)
{
    return ask_remote(remote, &(struct ask){.answered = callback, .user = user}, text, length) !=
           NULL;
}

/* Asks for a chunk, by the lane or over the link. */
static bool ask_read(struct gb_peer_remote *remote, const struct ask *values)
{
    char text[128], tag[32] = "";
    struct ask *ask;
    uint64_t number = 0;

    if (values->by && getrandom(&number, sizeof(number), 0) != sizeof(number))
        return false;
    if (values->by)
        snprintf(tag, sizeof(tag), ",\"tag\":\"%016" PRIx64 "\"", number);
    int length = write_read(text, sizeof(text), values, tag);
    ask = ask_remote(remote, values, text, (size_t)length);
    if (!ask || !tag[0])
        return ask != NULL;
    /* The request is queued, not sent yet. If memory is out nothing is received, and the lane is
       given up later. */
    (void)gb_peer_lane_receive(remote->lane, number, ask->room.memory, ask->room.bytes, on_came,
                               ask);
    return true;
}

/* The link for a chunk. A large one goes by the side link with the fewest requests under way: the
   first link is left to what is small, which would wait as long as the large one takes. One side
   link is used before it is open; more are made if that is worth it. */
static struct gb_peer_link *pick_link(struct gb_peer_remote *remote, uint64_t bytes)
{
    struct gb_peer_remotes *remotes = remote->remotes;
    unsigned counts[SIDES] = {0}, best = 0;

    if (!remote->link || remote->alone || bytes < LARGE_LEAST)
        return remote->link;
    remote->row = gb_list_empty(&remote->asks) ? 0 : remote->row + 1;
    remote->read = uv_now(remotes->parts->loop);
    for (int i = 0; i < SIDES && (i == 0 || remote->row > SIDES_AFTER); i++)
        if (!remote->sides[i])
            remote->sides[i] =
                gb_peer_link_connect(remotes->parts->loop, remotes->parts->tls, remote->node,
                                     remote->host, remote->port, &side_events, remote);
    GB_LIST_EACH(&remote->asks, const struct ask, ask, of_remote)
        for (unsigned i = 0; i < SIDES; i++)
            counts[i] += ask->link == remote->sides[i];
    for (unsigned i = 1; i < SIDES; i++)
        if (remote->sides[i] && gb_peer_link_is_open(remote->sides[i]) && counts[i] < counts[best])
            best = i;
    return remote->sides[best] ? remote->sides[best] : remote->link;
}

bool gb_peer_remote_read(struct gb_peer_remote *remote, uint64_t lease, uint64_t chunk,
                         void *memory, uint64_t bytes, gb_peer_land_cb on_landed,
                         gb_peer_chunk_cb callback, void *user)
{
    struct ask values = {.land = on_landed,
                         .read = callback,
                         .user = user,
                         .lease = lease,
                         .chunk = chunk,
                         .room = {memory, bytes, land, NULL}};

    if (bytes >= LARGE_LEAST && remote->link)
        make_lane(remote);
    if (bytes >= LARGE_LEAST && remote->lane_ready)
        values.by = remote;
    else
        values.link = pick_link(remote, bytes);
    return ask_read(remote, &values);
}

void gb_peer_remote_release(struct gb_peer_remote *remote, uint64_t lease)
{
    char text[64];
    int length =
        snprintf(text, sizeof(text), "{\"method\":\"release\",\"lease\":%" PRIu64 "}", lease);

    if (remote->link)
        gb_peer_link_send(remote->link, 0, text, (size_t)length);
}

/* ---- machines ---- */

struct gb_peer_remote *gb_peer_remotes_get(struct gb_peer_remotes *remotes, const char *node,
                                           const char *host, uint16_t port)
{
    struct gb_peer_remote *made;

    GB_LIST_EACH(&remotes->all, struct gb_peer_remote, remote, of_all)
        if (remote->port == port && strcmp(remote->node, node) == 0 &&
            strcmp(remote->host, host) == 0)
            return remote;
    made = remotes->count < REMOTES_MOST ? calloc(1, sizeof(*made)) : NULL;
    if (!made)
        return NULL;
    made->remotes = remotes;
    made->port = port;
    snprintf(made->node, sizeof(made->node), "%s", node);
    snprintf(made->host, sizeof(made->host), "%s", host);
    snprintf(made->text, sizeof(made->text), "%s (%s:%u)", node, host, port);
    gb_list_prepend(&remotes->all, &made->of_all);
    remotes->count++;
    return made;
}

void gb_peer_remote_hold(struct gb_peer_remote *remote)
{
    remote->holds++;
}

void gb_peer_remote_drop(struct gb_peer_remote *remote)
{
    remote->holds--;
}

unsigned gb_peer_remotes_connected(const struct gb_peer_remotes *remotes)
{
    unsigned count = 0;

    GB_LIST_EACH(&remotes->all, const struct gb_peer_remote, remote, of_all)
        count += remote->link && gb_peer_link_is_open(remote->link);
    return count;
}

uint64_t gb_peer_remote_epoch(const struct gb_peer_remote *remote)
{
    return remote->link ? remote->epoch : 0;
}

const char *gb_peer_remote_text(const struct gb_peer_remote *remote)
{
    return remote->text;
}

const char *gb_peer_remote_node(const struct gb_peer_remote *remote)
{
    return remote->node;
}

struct gb_peer_remotes *gb_peer_remotes_new(const struct gb_peer_parts *parts, unsigned patience_ms)
{
    struct gb_peer_remotes *remotes = calloc(1, sizeof(*remotes));

    if (!remotes)
        return NULL;
    *remotes = (struct gb_peer_remotes){.parts = parts, .patience_ms = patience_ms, .handles = 2};
    (void)uv_timer_init(parts->loop, &remotes->tick); /* cannot fail */
    (void)uv_timer_init(parts->loop, &remotes->soon);
    remotes->tick.data = remotes->soon.data = remotes;
    (void)uv_timer_start(&remotes->tick, on_tick, TICK_MS, TICK_MS);
    return remotes;
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct gb_peer_remotes *remotes = handle->data;

    if (--remotes->handles > 0)
        return;
    GB_LIST_EACH(&remotes->all, struct gb_peer_remote, remote, of_all)
        free(remote);
    gb_pool_end(&remotes->pool);
    free(remotes);
}

void gb_peer_remotes_close(struct gb_peer_remotes *remotes)
{
    struct gb_error error;

    (void)gb_fail(&error, GPUBUF_E_CANCELED, "the peer stops");
    remotes->closing = true;
    GB_LIST_EACH(&remotes->all, struct gb_peer_remote, remote, of_all) {
        struct gb_peer_link *link = remote->link;
        remote->link = NULL;
        gb_peer_link_close(link);
        close_sides(remote);
        drop_lane(remote);
        fail_all(&remote->asks, &error);
        fail_all(&remote->failed, &error);
    }
    uv_close((uv_handle_t *)&remotes->tick, on_timer_closed);
    uv_close((uv_handle_t *)&remotes->soon, on_timer_closed);
}
