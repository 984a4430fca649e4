#include "client/peer/link/link.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/peer/link/dial.h"
#include "proto/base/limits.h"

enum {
    TURN_BYTES =
        4 << 20,    /* read or written in one turn of the loop, so that all links get their turn */
    ACK_MS = 20000, /* a machine that acknowledges nothing for this long is gone */
    IDLE_S = 10,    /* of silence; then the kernel probes the machine, and again every PROBE_S */
    PROBE_S = 5,
    QUEUE_MOST = 64,        /* answers queued; then the server reads no more requests */
    CARRY_LEAST = 64 << 10, /* bytes of a chunk that is worth a thread */
};

enum state { DIALING, GREETING, OPEN, ENDED };

/* Why a call of OpenSSL failed. */
struct failure {
    int why, number; /* SSL_ERROR_..., errno; `why` 0: it did not fail */
    bool eof;
    char reason[200];
};

struct gb_peer_link {
    uv_loop_t *loop;
    const struct gb_peer_tls *tls;
    struct gb_peer_link_events events;
    void *user;
    enum state state;
    char node[GB_PEER_NODE_BYTES]; /* expected at the other end; "": any */
    char text[GB_PEER_NODE_BYTES + GB_PEER_HOST_BYTES + 16];
    uint64_t came, went; /* when the last byte did, by the loop's clock */
    struct gb_peer_dial *dial;
    int fd;
    SSL *ssl;
    uv_poll_t poll;
    uv_idle_t more;   /* runs while there is something left to do */
    unsigned handles; /* not closed yet */
    bool polling, idling, paused, server;
    bool wants_write; /* for reading, or for the handshake, to go on */
    bool starved;     /* memory was out: the link is to end */

    unsigned char head[GB_PEER_HEAD_BYTES]; /* being received */
    size_t got;                             /* of the head, then of what follows */
    bool headed;
    struct gb_peer_head now;
    struct gb_peer_room room;
    char *control;

    struct gb_peer_outbox outbox;

    bool carrying;     /* a thread has `ssl`, `got`, the room and the outbox's first item */
    atomic_bool ended; /* it is to come back */
    uv_sem_t carried;  /* posted as the last thing that it does */
    uv_work_t work;
    bool came_some, went_some, starving; /* what it did */
    struct failure failure;
    struct gb_error landed; /* code 0: fine */
};

static void run(struct gb_peer_link *link);

/* The side that asks always reads. So the two never wait for each other. */
static bool reads(const struct gb_peer_link *link)
{
    return !link->paused && !(link->server && link->outbox.count >= QUEUE_MOST);
}

/* ---- the end ---- */

static void on_closed(uv_handle_t *handle)
{
    struct gb_peer_link *link = handle->data;

    if (--link->handles > 0)
        return;
    SSL_free(link->ssl);
    if (link->fd >= 0)
        close(link->fd);
    uv_sem_destroy(&link->carried);
    free(link->control);
    free(link);
}

/* Waits for the thread, for the time of a copy or of a call of OpenSSL. on_carried is called in any
   case. */
static void stop_carrying(struct gb_peer_link *link)
{
    link->ended = true;
    if (link->carrying && uv_cancel((uv_req_t *)&link->work) != 0)
        uv_sem_wait(&link->carried);
}

void gb_peer_link_close(struct gb_peer_link *link)
{
    if (!link || link->state == ENDED)
        return;
    stop_carrying(link);
    if (link->state == OPEN)
        (void)SSL_shutdown(link->ssl); /* a hint: we do not wait for the answer */
    ERR_clear_error();
    link->state = ENDED;
    gb_peer_outbox_end(&link->outbox);
    gb_peer_dial_stop(link->dial);
    if (link->polling)
        uv_close((uv_handle_t *)&link->poll, on_closed);
    uv_close((uv_handle_t *)&link->more, on_closed);
}

static void end(struct gb_peer_link *link, const struct gb_error *why)
{
    if (link->state == ENDED)
        return;
    link->events.closed(link, why, link->user);
    gb_peer_link_close(link);
}

/* Ends the link. `code` is GPUBUF_E_PROTOCOL if the other side broke the protocol. */
static void end_because(struct gb_peer_link *link, int code, const char *why)
{
    struct gb_error error;

    (void)gb_fail(&error, code, "%s: %s", link->text, why);
    end(link, &error);
}

static void end_errno(struct gb_peer_link *link, int number)
{
    end_because(link, GPUBUF_E_CLOSED, number ? strerror(number) : "the connection was closed");
}

/* The other side may have said why it hangs up, by an alert that was not read yet when a write
   failed. */
static int last_word(struct gb_peer_link *link)
{
    char byte;
    size_t count;

    return SSL_get_error(link->ssl, SSL_read_ex(link->ssl, &byte, 1, &count) == 1);
}

/* After a failed call of OpenSSL, in the same thread. */
static void explain(struct gb_peer_link *link, int result, struct failure *failure)
{
    *failure = (struct failure){.number = errno, .why = SSL_get_error(link->ssl, result)};
    if (failure->why == SSL_ERROR_SYSCALL && link->state == OPEN) {
        ERR_clear_error();
        failure->why = last_word(link) == SSL_ERROR_SSL ? SSL_ERROR_SSL : failure->why;
    }
    failure->eof = ERR_GET_REASON(ERR_peek_error()) == SSL_R_UNEXPECTED_EOF_WHILE_READING;
    if (failure->why == SSL_ERROR_SSL)
        gb_peer_tls_reason(link->ssl, failure->reason, sizeof(failure->reason));
}

static bool is_fatal(const struct failure *failure)
{
    return failure->why && failure->why != SSL_ERROR_WANT_READ &&
           failure->why != SSL_ERROR_WANT_WRITE;
}

/* True if the call is to be repeated later; else the link has ended. */
static bool again(struct gb_peer_link *link, const struct failure *failure, const char *what)
{
    char text[256];

    if (failure->why == SSL_ERROR_WANT_WRITE)
        link->wants_write = true;
    if (!is_fatal(failure))
        return true;
    if (failure->why == SSL_ERROR_ZERO_RETURN || failure->why == SSL_ERROR_SYSCALL) {
        end_errno(link, failure->why == SSL_ERROR_SYSCALL ? failure->number : 0);
        return false;
    }
    snprintf(text, sizeof(text), "%s%s", what, failure->reason);
    end_because(link, failure->eof ? GPUBUF_E_CLOSED : GPUBUF_E_DENIED, text);
    return false;
}

/* ---- turns ---- */

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct gb_peer_link *link = poll->data;
    int number = 0;
    socklen_t length = sizeof(number);

    /* Bytes may have come before the error, such as the alert of TLS that explains it. */
    run(link);
    if (status >= 0 || link->state == ENDED)
        return;
    /* libuv's code is always EBADF; the socket has the real error. */
    (void)getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &number, &length);
    end_errno(link, number);
}

static void on_more(uv_idle_t *idle)
{
    run(idle->data);
}

/* Has the link go on in the next turn. */
static void schedule(struct gb_peer_link *link)
{
    if (!link->idling && link->state != ENDED)
        link->idling = uv_idle_start(&link->more, on_more) == 0;
}

static void unschedule(struct gb_peer_link *link)
{
    if (link->idling)
        (void)uv_idle_stop(&link->more);
    link->idling = false;
}

static void watch(struct gb_peer_link *link)
{
    (void)uv_poll_start(
        &link->poll,
        (reads(link) ? UV_READABLE : 0) |
            (link->wants_write || (link->state == OPEN && link->outbox.count) ? UV_WRITABLE : 0),
        on_poll);
}

/* ---- sending ---- */

/* To be called before output is queued: the time of gb_peer_link_stuck begins. */
static void begin_send(struct gb_peer_link *link)
{
    if (!link->outbox.count && link->state == OPEN)
        link->went = uv_now(link->loop);
    schedule(link);
}

void gb_peer_link_send(struct gb_peer_link *link, uint64_t request, const char *text, size_t length)
{
    if (link->state == ENDED)
        return;
    begin_send(link);
    if (!gb_peer_outbox_text(&link->outbox, request, text, length))
        link->starved = true;
}

void gb_peer_link_send_chunk(struct gb_peer_link *link, uint64_t request,
                             const struct gb_peer_source *source)
{
    if (link->state == ENDED) {
        source->done(source, false);
        return;
    }
    begin_send(link);
    if (!gb_peer_outbox_chunk(&link->outbox, request, source))
        link->starved = true;
}

void gb_peer_link_send_error(struct gb_peer_link *link, uint64_t request,
                             const struct gb_error *error)
{
    if (link->state == ENDED)
        return;
    begin_send(link);
    if (!gb_peer_outbox_error(&link->outbox, request, error))
        link->starved = true;
}

/* The calls of OpenSSL below are made by the loop's thread, or by the one that carries. */

static size_t put(struct gb_peer_link *link, const void *bytes, size_t length)
{
    size_t count = 0;

    ERR_clear_error();
    errno = 0;
    if (SSL_write_ex(link->ssl, bytes, length, &count) != 1)
        explain(link, 0, &link->failure);
    return count;
}

static size_t read_bytes(struct gb_peer_link *link, unsigned char *to, size_t length)
{
    size_t count = 0;

    ERR_clear_error();
    errno = 0;
    if (SSL_read_ex(link->ssl, to, length, &count) != 1)
        explain(link, 0, &link->failure);
    return count;
}

/* Positive: bytes; 0: not now; negative: the link has ended. */
static long write_some(struct gb_peer_link *link)
{
    const void *bytes;
    size_t length;

    if (!gb_peer_outbox_next(&link->outbox, &bytes, &length)) {
        end_errno(link, ENOMEM);
        return -1;
    }
    size_t count = put(link, bytes, length);
    if (count == 0)
        return again(link, &link->failure, "") ? 0 : -1;
    link->went = uv_now(link->loop);
    if (gb_peer_outbox_sent(&link->outbox, count))
        gb_peer_outbox_drop(&link->outbox);
    return (long)count;
}

/* ---- receiving ---- */

static bool begin_frame(struct gb_peer_link *link)
{
    struct gb_peer_head *now = &link->now;
    bool fine = gb_peer_head_read(link->head, now) && now->length > 0;

    link->headed = true;
    link->got = 0;
    link->room = (struct gb_peer_room){0};
    if (fine && now->kind == 'c' && now->length <= GB_LIMIT(line_bytes)) {
        link->control = malloc(now->length + 1);
        link->room = (struct gb_peer_room){.memory = link->control, .bytes = now->length};
        if (!link->control)
            end_errno(link, ENOMEM);
        return link->control != NULL;
    }
    if (fine && now->kind == 'd' && link->events.room)
        link->room = link->events.room(link, now->request, link->user);
    if (link->state == ENDED)
        return false;
    if (link->room.memory && link->room.bytes == now->length)
        return true;
    end_because(link, GPUBUF_E_PROTOCOL,
                now->kind == 'c'   ? "it sent a message longer than one may be"
                : now->kind == 'd' ? "it sent data that nobody asked for"
                                   : "it sent something that is no frame");
    return false;
}

static void land(struct gb_peer_link *link)
{
    link->landed.code = 0;
    if (link->room.land)
        link->landed.code = link->room.land(link->room.user, link->now.sum, &link->landed);
}

static void finish_frame(struct gb_peer_link *link)
{
    char *text = link->control;

    link->headed = false;
    link->got = 0;
    link->control = NULL;
    if (link->now.kind == 'd') {
        link->events.data(link, link->now.request, link->landed.code < 0 ? &link->landed : NULL,
                          link->user);
    } else {
        text[link->now.length] = '\0';
        link->events.control(link, link->now.request, text, link->now.length, link->user);
    }
    free(text);
}

/* Positive: bytes; 0: not now; negative: the link has ended. */
static long read_some(struct gb_peer_link *link)
{
    unsigned char *to = link->headed ? link->room.memory : link->head;
    size_t left = (link->headed ? link->room.bytes : GB_PEER_HEAD_BYTES) - link->got;
    size_t count = read_bytes(link, to + link->got, left);

    if (count == 0)
        return again(link, &link->failure, "") ? 0 : -1;
    link->got += count;
    link->came = uv_now(link->loop);
    if (count < left)
        return (long)count;
    if (link->headed) {
        land(link);
        finish_frame(link);
    } else if (!begin_frame(link)) {
        return -1;
    }
    return link->state == ENDED ? -1 : (long)count;
}

/* ---- large chunks, in a thread ---- */

static bool receives_much(const struct gb_peer_link *link)
{
    return link->headed && link->now.kind == 'd' && link->room.bytes >= CARRY_LEAST;
}

static bool sends_much(const struct gb_peer_link *link)
{
    return gb_peer_outbox_chunk_bytes(&link->outbox) >= CARRY_LEAST;
}

/* In a thread of the pool: moves the chunk that is being received, and the one that is being sent,
   as far as they go. */
static void carry(uv_work_t *work)
{
    struct gb_peer_link *link = work->data;
    unsigned char *room = link->room.memory;
    const void *bytes;
    size_t length, count = 1;

    link->failure.why = 0;
    link->came_some = link->went_some = link->starving = false;
    while (count > 0 && !link->ended && receives_much(link) && link->got < link->room.bytes) {
        count = read_bytes(link, room + link->got, link->room.bytes - link->got);
        link->got += count;
        link->came_some = link->came_some || count > 0;
    }
    if (receives_much(link) && link->got == link->room.bytes)
        land(link);
    for (bool all = is_fatal(&link->failure); !all && !link->ended && sends_much(link);) {
        link->starving = !gb_peer_outbox_next(&link->outbox, &bytes, &length);
        count = link->starving ? 0 : put(link, bytes, length);
        if (count == 0)
            break;
        all = gb_peer_outbox_sent(&link->outbox, count);
        link->went_some = true;
    }
    uv_sem_post(&link->carried);
}

static void on_carried(uv_work_t *work, int status)
{
    struct gb_peer_link *link = work->data;

    link->carrying = false;
    if (link->state == ENDED || status < 0) { /* the thread has been waited for */
        on_closed((uv_handle_t *)&link->more);
        return;
    }
    uv_sem_wait(&link->carried);
    link->handles--;
    link->came = link->came_some ? uv_now(link->loop) : link->came;
    link->went = link->went_some ? uv_now(link->loop) : link->went;
    if (sends_much(link) && gb_peer_outbox_sent(&link->outbox, 0))
        gb_peer_outbox_drop(&link->outbox);
    if (receives_much(link) && link->got == link->room.bytes)
        finish_frame(link);
    if (link->state == ENDED)
        return;
    link->wants_write = false;
    if (link->starving)
        end_errno(link, ENOMEM);
    else if (!link->failure.why)
        run(link);
    else if (again(link, &link->failure, ""))
        watch(link);
}

void gb_peer_link_pause(struct gb_peer_link *link, bool paused)
{
    if (link->paused && !paused)
        schedule(link); /* OpenSSL may have read more already */
    link->paused = paused;
}

/* ---- the handshake ---- */

static void greet(struct gb_peer_link *link)
{
    const unsigned char *protocol;
    char node[GB_PEER_NODE_BYTES], text[sizeof(link->text)];
    struct gb_error error;
    unsigned length;

    ERR_clear_error();
    errno = 0;
    int r = SSL_do_handshake(link->ssl);
    if (r != 1) {
        explain(link, r, &link->failure);
        (void)again(link, &link->failure, "no TLS connection: ");
        return;
    }
    SSL_get0_alpn_selected(link->ssl, &protocol, &length);
    if (length == 0) {
        end_because(link, GPUBUF_E_PROTOCOL, "it is no peer");
        return;
    }
    r = gb_peer_tls_node(link->ssl, node, &error);
    if (r == 0 && link->node[0] && strcmp(link->node, node) != 0)
        r = gb_fail(&error, GPUBUF_E_DENIED, "its certificate is that of %s", node);
    if (r < 0) {
        end_because(link, r, error.message);
        return;
    }
    if (!link->node[0]) {
        snprintf(text, sizeof(text), "%s (%.*s)", node, GB_PEER_HOST_BYTES, link->text);
        strcpy(link->text, text);
    }
    link->state = OPEN;
    link->came = link->went = uv_now(link->loop);
    if (!link->events.open(link, node, link->user))
        end_because(link, GPUBUF_E_DENIED, "it is none of the machines that are known here");
}

/* ---- a turn ---- */

/* Reads and writes until neither goes on, or the turn is over. Returns what is left of the turn.
   Requests are read before a chunk is sent, so that there is always a next one. */
static long move(struct gb_peer_link *link)
{
    bool readable = true, writable = true;
    long budget = TURN_BYTES;

    while (budget > 0) {
        bool may_read = readable && reads(link) && !receives_much(link);
        long got = may_read ? read_some(link) : 0;
        bool may_write = got >= 0 && writable && link->outbox.count && !sends_much(link);
        long written = may_write ? write_some(link) : 0;
        if (got < 0 || written < 0)
            return 0;
        readable = readable && (!may_read || got > 0);
        writable = writable && (!may_write || written > 0);
        if (!may_read && !may_write)
            break;
        budget -= got + written;
    }
    return budget;
}

static void begin_carry(struct gb_peer_link *link)
{
    (void)uv_poll_stop(&link->poll);
    link->work.data = link;
    link->carrying = true;
    link->handles++;
    (void)uv_queue_work(link->loop, &link->work, carry, on_carried); /* cannot fail */
}

static void run(struct gb_peer_link *link)
{
    long budget = TURN_BYTES;

    if (link->carrying) {
        unschedule(link);
        return;
    }
    link->wants_write = false;
    if (link->starved)
        end_errno(link, ENOMEM);
    if (link->state == DIALING)
        unschedule(link);
    if (link->state == GREETING)
        greet(link);
    if (link->state == OPEN)
        budget = move(link);
    if (link->state == DIALING || link->state == ENDED)
        return;
    if (link->state == GREETING || budget > 0)
        unschedule(link);
    else
        schedule(link);
    if (link->state == OPEN && (receives_much(link) || sends_much(link)))
        begin_carry(link);
    else
        watch(link);
}

/* ---- beginnings ---- */

static bool greet_at(struct gb_peer_link *link, int fd, bool server)
{
    int one = 1, ms = ACK_MS, idle = IDLE_S, probe = PROBE_S;

    link->fd = fd;
    link->server = server;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &probe, sizeof(probe));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
    link->ssl = gb_peer_tls_new(link->tls, fd, server);
    if (!link->ssl || uv_poll_init_socket(link->loop, &link->poll, fd) != 0)
        return false;
    link->poll.data = link;
    link->handles++;
    link->polling = true;
    link->state = GREETING;
    schedule(link);
    return true;
}

static struct gb_peer_link *new_link(uv_loop_t *loop, const struct gb_peer_tls *tls,
                                     const struct gb_peer_link_events *events, void *user)
{
    struct gb_peer_link *link = calloc(1, sizeof(*link));

    if (!link)
        return NULL;
    *link = (struct gb_peer_link){.loop = loop,
                                  .tls = tls,
                                  .events = *events,
                                  .user = user,
                                  .fd = -1,
                                  .came = uv_now(loop),
                                  .went = uv_now(loop),
                                  .handles = 1};
    if (uv_sem_init(&link->carried, 0) != 0) {
        free(link);
        return NULL;
    }
    (void)uv_idle_init(loop, &link->more); /* cannot fail */
    link->more.data = link;
    return link;
}

static void on_dialed(void *user, int fd, const char *why)
{
    struct gb_peer_link *link = user;

    link->dial = NULL;
    if (fd < 0)
        end_because(link, GPUBUF_E_CLOSED, why);
    else if (!greet_at(link, fd, false))
        end_errno(link, ENOMEM);
}

struct gb_peer_link *gb_peer_link_connect(uv_loop_t *loop, const struct gb_peer_tls *tls,
                                          const char *node, const char *host, uint16_t port,
                                          const struct gb_peer_link_events *events, void *user)
{
    struct gb_peer_link *link = new_link(loop, tls, events, user);

    if (!link)
        return NULL;
    snprintf(link->node, sizeof(link->node), "%s", node);
    snprintf(link->text, sizeof(link->text), "%s (%s:%u)", node, host, port);
    link->dial = gb_peer_dial(loop, host, port, on_dialed, link);
    if (link->dial)
        return link;
    gb_peer_link_close(link);
    return NULL;
}

static void name_other(struct gb_peer_link *link, int fd)
{
    struct sockaddr_storage address = {0};
    socklen_t length = sizeof(address);

    if (getpeername(fd, (struct sockaddr *)&address, &length) < 0 ||
        uv_ip_name((struct sockaddr *)&address, link->text, GB_PEER_HOST_BYTES) != 0)
        strcpy(link->text, "somebody");
}

struct gb_peer_link *gb_peer_link_accept(uv_loop_t *loop, const struct gb_peer_tls *tls, int fd,
                                         const struct gb_peer_link_events *events, void *user)
{
    struct gb_peer_link *link = new_link(loop, tls, events, user);

    if (!link) {
        close(fd);
        return NULL;
    }
    name_other(link, fd);
    if (greet_at(link, fd, true))
        return link;
    gb_peer_link_close(link);
    return NULL;
}

/* ---- what is known of it ---- */

uint64_t gb_peer_link_silent(const struct gb_peer_link *link)
{
    return uv_now(link->loop) - link->came;
}

uint64_t gb_peer_link_stuck(const struct gb_peer_link *link)
{
    return link->outbox.count || link->state != OPEN ? uv_now(link->loop) - link->went : 0;
}

bool gb_peer_link_is_open(const struct gb_peer_link *link)
{
    return link->state == OPEN;
}

bool gb_peer_link_spoke(const struct gb_peer_link *link)
{
    return link->state == OPEN || BIO_number_read(SSL_get_rbio(link->ssl)) > 0;
}

const char *gb_peer_link_text(const struct gb_peer_link *link)
{
    return link->text;
}
