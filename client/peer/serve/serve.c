#include "client/peer/serve/serve.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/peer/base/seldom.h"
#include "client/peer/options.h"
#include "client/peer/serve/reading.h"
#include "client/peer/serve/session.h"

enum {
    NODE_CONNECTIONS = 15, /* a machine has five, and twice as many from before it crashed */
    BACKLOG = 1024,        /* a whole cluster may connect at once */
    ACCEPT_MOST = 16,
    TICK_MS = 1000,
    CONNECTIONS_MOST = 4096,
    /* A connection takes none of the places of machines before it is of use. So strangers take none
       from them, and give way to each other. */
    HALF_MOST = 1024,       /* whose handshake is not done: a whole cluster may come at once */
    HALF_ADDRESS_MOST = 32, /* of these, from one address */
    WAITING_MOST = 256,     /* without a place */
    IDLE_MS = 10000,        /* after which a machine gives its place to one that has none */
    ALL_MOST = CONNECTIONS_MOST + HALF_MOST + WAITING_MOST
};

struct connection {
    struct gb_peer_session *session;
    struct in6_addr from;
    uint64_t number; /* in the order in which they came */
    bool further;    /* its machine had another one when it shook hands */
};

struct gb_peer_serve {
    const struct gb_peer_parts *parts;
    uv_poll_t poll;
    uv_timer_t tick;
    unsigned handles;
    int fd;
    uint16_t port;
    struct connection all[ALL_MOST];
    unsigned count;
    uint64_t last;
};

/* ---- sessions ---- */

static void take_out(struct gb_peer_serve *serve, unsigned i)
{
    serve->all[i] = serve->all[--serve->count];
}

static unsigned count_holding(const struct gb_peer_serve *serve, enum gb_peer_session_holds holds)
{
    unsigned count = 0;

    for (unsigned i = 0; i < serve->count; i++)
        count += gb_peer_session_holds(serve->all[i].session) == holds;
    return count;
}

/* Closes a connection for a newer one, but never `but`: of those that hold no more than this, and
   come `from` there (NULL: anywhere). Those that have said something and those that have said
   nothing are two groups, and the oldest of the larger one gives way. So neither strangers who say
   nothing nor those who begin a handshake take the place of one that has just come. */
static void close_oldest(struct gb_peer_serve *serve, enum gb_peer_session_holds holds,
                         const struct in6_addr *from, const struct gb_peer_session *but)
{
    unsigned oldest[2] = {ALL_MOST, ALL_MOST}, counts[2] = {0};

    for (unsigned i = 0; i < serve->count; i++) {
        const struct connection *one = &serve->all[i];
        if (one->session == but || gb_peer_session_holds(one->session) != holds ||
            (from && memcmp(&one->from, from, sizeof(*from)) != 0))
            continue;
        bool spoke = gb_peer_link_spoke(one->session->link);
        if (counts[spoke]++ == 0 || one->number < serve->all[oldest[spoke]].number)
            oldest[spoke] = i;
    }
    unsigned best = oldest[counts[true] > counts[false]];
    if (best == ALL_MOST)
        return;
    struct gb_peer_session *session = serve->all[best].session;
    gb_peer_log_seldom(
        GB_LOG_WARNING, uv_now(serve->parts->loop), NULL, NULL,
        "connection closed, too many are open",
        GB_LOG_TEXT("holds", holds == GB_PEER_SESSION_HALF ? "half a handshake" : "no place"));
    take_out(serve, best);
    gb_peer_session_close(session);
}

/* Makes room for one more that has not shaken hands. */
static void make_room(struct gb_peer_serve *serve, const struct in6_addr *from)
{
    unsigned half = 0, same = 0;

    for (unsigned i = 0; i < serve->count; i++) {
        if (gb_peer_session_holds(serve->all[i].session) != GB_PEER_SESSION_HALF)
            continue;
        half++;
        same += memcmp(&serve->all[i].from, from, sizeof(*from)) == 0;
    }
    if (same >= HALF_ADDRESS_MOST)
        close_oldest(serve, GB_PEER_SESSION_HALF, from, NULL);
    else if (half >= HALF_MOST)
        close_oldest(serve, GB_PEER_SESSION_HALF, NULL, NULL);
}

static bool on_open(struct gb_peer_session *session, const char *node, void *user)
{
    struct gb_peer_serve *serve = user;
    unsigned count = 0;

    for (unsigned i = 0; i < serve->count; i++)
        if (serve->all[i].session != session && strcmp(serve->all[i].session->node, node) == 0)
            count++;
    if (count >= NODE_CONNECTIONS)
        return false;
    for (unsigned i = 0; i < serve->count; i++)
        if (serve->all[i].session == session)
            serve->all[i].further = count > 0;
    if (count_holding(serve, GB_PEER_SESSION_OPEN) > WAITING_MOST)
        close_oldest(serve, GB_PEER_SESSION_OPEN, NULL, session);
    return true;
}

static bool on_place(void *user)
{
    struct gb_peer_serve *serve = user;
    unsigned placed = count_holding(serve, GB_PEER_SESSION_PLACE), longest = serve->count;
    uint64_t most = IDLE_MS;

    if (placed < serve->parts->options->connections)
        return true;
    for (unsigned i = 0; i < serve->count; i++) {
        uint64_t idle = gb_peer_session_idle(serve->all[i].session);
        if (gb_peer_session_holds(serve->all[i].session) != GB_PEER_SESSION_PLACE || idle < most)
            continue;
        most = idle;
        longest = i;
    }
    if (longest == serve->count)
        return false;
    struct gb_peer_session *session = serve->all[longest].session;
    take_out(serve, longest);
    gb_peer_session_close(session);
    return true;
}

static struct gb_peer_lease *on_lease(struct gb_peer_session *session, uint64_t id, void *user)
{
    const struct gb_peer_serve *serve = user;
    struct gb_peer_lease *lease = NULL;

    for (unsigned i = 0; i < serve->count && !lease; i++)
        if (strcmp(serve->all[i].session->node, session->node) == 0)
            lease = gb_peer_session_lease(serve->all[i].session, id);
    return lease;
}

static void on_closed(struct gb_peer_session *session, void *user)
{
    struct gb_peer_serve *serve = user;

    for (unsigned i = 0; i < serve->count; i++)
        if (serve->all[i].session == session) {
            take_out(serve, i);
            break;
        }
}

/* Machines, not connections: else one could keep all others from an object. */
static unsigned count_readers(uint64_t version, void *user)
{
    const struct gb_peer_serve *serve = user;
    unsigned count = 0;

    for (unsigned i = 0; i < serve->count; i++)
        count += !serve->all[i].further && gb_peer_session_reads(serve->all[i].session, version);
    return count;
}

static void on_connection(uv_poll_t *poll, int status, int events);

static void on_tick(uv_timer_t *timer)
{
    struct gb_peer_serve *serve = timer->data;

    (void)uv_poll_start(&serve->poll, UV_READABLE, on_connection); /* if it was stopped */
    for (unsigned i = serve->count; i-- > 0;) /* the last one takes the place of one that ends */
        gb_peer_session_tick(serve->all[i].session);
}

/* As IPv6 has it. */
static struct in6_addr address_of(const struct sockaddr_storage *name)
{
    struct in6_addr from = {.s6_addr = {[10] = 0xff, [11] = 0xff}};

    if (name->ss_family == AF_INET6)
        from = ((const struct sockaddr_in6 *)name)->sin6_addr;
    else if (name->ss_family == AF_INET)
        memcpy(&from.s6_addr[12], &((const struct sockaddr_in *)name)->sin_addr, 4);
    return from;
}

static void on_connection(uv_poll_t *poll, int status, int events)
{
    static const struct gb_peer_session_events session_events = {on_open, on_closed, on_place,
                                                                 on_lease, count_readers};
    struct gb_peer_serve *serve = poll->data;

    for (int i = 0; i < ACCEPT_MOST; i++) {
        struct sockaddr_storage name = {0};
        socklen_t length = sizeof(name);
        int fd =
            accept4(serve->fd, (struct sockaddr *)&name, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            /* No descriptors or no memory: the waiting connection would wake the loop again at
               once. */
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                (void)uv_poll_stop(poll);
            return;
        }
        struct in6_addr from = address_of(&name);
        make_room(serve, &from);
        struct gb_peer_session *session =
            gb_peer_session_new(serve->parts, fd, &session_events, serve);
        if (session)
            serve->all[serve->count++] = (struct connection){session, from, ++serve->last, false};
    }
}

/* ---- listening ---- */

static int resolve(const char *listen, struct addrinfo **addresses, struct gb_error *error)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    const char *colon = strrchr(listen, ':');
    char host[GB_PEER_HOST_BYTES];

    if (!colon || (size_t)(colon - listen) >= sizeof(host))
        return gb_fail(error, GPUBUF_E_INVALID, "\"%s\": expected ADDRESS:PORT", listen);
    size_t length = (size_t)(colon - listen);
    bool brackets = length >= 2 && listen[0] == '[' && colon[-1] == ']';
    snprintf(host, sizeof(host), "%.*s", (int)(brackets ? length - 2 : length),
             listen + (brackets ? 1 : 0));
    int r = getaddrinfo(host[0] ? host : NULL, colon + 1, &hints, addresses);
    return r == 0 ? 0
                  : gb_fail(error, GPUBUF_E_INVALID, "cannot listen at %s: %s", listen,
                            gai_strerror(r));
}

static int open_socket(struct gb_peer_serve *serve, const char *listen_at, struct gb_error *error)
{
    struct sockaddr_storage name = {0};
    socklen_t length = sizeof(name);
    struct addrinfo *address;
    int one = 1;

    int r = resolve(listen_at, &address, error);
    if (r < 0)
        return r;
    serve->fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (serve->fd < 0 || setsockopt(serve->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        bind(serve->fd, address->ai_addr, address->ai_addrlen) < 0 ||
        listen(serve->fd, BACKLOG) < 0 ||
        getsockname(serve->fd, (struct sockaddr *)&name, &length) < 0)
        r = gb_fail_errno(error, "cannot listen at %s", listen_at);
    freeaddrinfo(address);
    serve->port = ntohs(name.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&name)->sin6_port
                                                   : ((struct sockaddr_in *)&name)->sin_port);
    return r;
}

int gb_peer_serve_new(struct gb_peer_serve **result, const struct gb_peer_parts *parts,
                      struct gb_error *error)
{
    struct gb_peer_serve *serve = calloc(1, sizeof(*serve));

    if (!serve)
        return gb_fail_memory(error);
    serve->parts = parts;
    serve->fd = -1;
    int r = open_socket(serve, parts->options->listen, error);
    if (r == 0 && uv_poll_init_socket(parts->loop, &serve->poll, serve->fd) != 0)
        r = gb_fail(error, GPUBUF_E_SYSTEM, "cannot listen at %s", parts->options->listen);
    if (r < 0) {
        if (serve->fd >= 0)
            close(serve->fd);
        free(serve);
        return r;
    }
    (void)uv_timer_init(parts->loop, &serve->tick); /* cannot fail */
    serve->poll.data = serve->tick.data = serve;
    serve->handles = 2;
    (void)uv_poll_start(&serve->poll, UV_READABLE, on_connection);
    (void)uv_timer_start(&serve->tick, on_tick, TICK_MS, TICK_MS);
    *result = serve;
    return 0;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct gb_peer_serve *serve = handle->data;

    if (--serve->handles > 0)
        return;
    close(serve->fd);
    free(serve);
}

void gb_peer_serve_close(struct gb_peer_serve *serve)
{
    while (serve->count > 0)
        gb_peer_session_close(serve->all[--serve->count].session);
    uv_close((uv_handle_t *)&serve->poll, on_handle_closed);
    uv_close((uv_handle_t *)&serve->tick, on_handle_closed);
}

uint16_t gb_peer_serve_port(const struct gb_peer_serve *serve)
{
    return serve->port;
}

unsigned gb_peer_serve_connected(const struct gb_peer_serve *serve)
{
    return serve->count - count_holding(serve, GB_PEER_SESSION_HALF);
}
