#include "client/gateway/http/connections.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "client/gateway/base/clock.h"

#define CLOCK_MS 200
#define REFUSED_MOST 224 /* that wait for their request; below RESERVE of http.c */
#define FRESH_MS 50    /* for a new connection's request to arrive, before it gives way to others */
#define UNREAD_MS 1000 /* for input that has arrived to be read, likewise */

/* The descriptor stays libmicrohttpd's: its thread sees the end and closes it. */
static void shut(struct gb_gateway_connection *connection)
{
    connection->shut = true;
    shutdown(connection->fd, SHUT_RDWR);
}

/* ---- time ---- */

static bool is_late(const struct gb_gateway_connection *connection, int64_t now)
{
    int64_t age = now - connection->since_ms;

    if (connection->refused)
        return age >= gb_gateway_deadline_ms(GB_GATEWAY_REFUSED_MS);
    switch (connection->state) {
    case GB_GATEWAY_CONNECTION_HALF:
        return age >= gb_gateway_deadline_ms(GB_GATEWAY_HALF_MS);
    case GB_GATEWAY_CONNECTION_IDLE:
        return age >= gb_gateway_deadline_ms(GB_GATEWAY_IDLE_MS);
    default:
        return !connection->streams && age >= gb_gateway_deadline_ms(GB_GATEWAY_SERVING_MS);
    }
}

static void *watch_clock(void *arg)
{
    struct gb_gateway_connections *connections = arg;

    pthread_mutex_lock(&connections->lock);
    while (!connections->stopped) {
        int64_t now = gb_gateway_clock_ms();

        for (struct gb_gateway_connection *one = connections->all; one; one = one->next)
            if (!one->shut && is_late(one, now))
                shut(one);
        gb_gateway_condition_wait(&connections->stop, &connections->lock, now + CLOCK_MS);
    }
    pthread_mutex_unlock(&connections->lock);
    return NULL;
}

int gb_gateway_connections_start(struct gb_gateway_connections *connections, unsigned most)
{
    *connections = (struct gb_gateway_connections){.most = most};
    pthread_mutex_init(&connections->lock, NULL);
    gb_gateway_condition_init(&connections->stop);
    connections->started = pthread_create(&connections->clock, NULL, watch_clock, connections) == 0;
    return connections->started ? 0 : -1;
}

void gb_gateway_connections_end(struct gb_gateway_connections *connections)
{
    if (!connections->started)
        return;
    pthread_mutex_lock(&connections->lock);
    connections->stopped = true;
    pthread_cond_signal(&connections->stop);
    pthread_mutex_unlock(&connections->lock);
    pthread_join(connections->clock, NULL);
    pthread_cond_destroy(&connections->stop);
    pthread_mutex_destroy(&connections->lock);
    connections->started = false;
}

/* ---- room ---- */

static bool same_address(const struct gb_gateway_connection *one,
                         const struct gb_gateway_connection *other)
{
    return one->has_address && other->has_address &&
           memcmp(&one->address, &other->address, sizeof(one->address)) == 0;
}

/* Counts the connections, without those that are shut or refused; with `peer`, of its address
   only. */
static unsigned counted(const struct gb_gateway_connections *connections,
                        const struct gb_gateway_connection *peer)
{
    unsigned count = 0;

    for (const struct gb_gateway_connection *one = connections->all; one; one = one->next)
        count += !one->shut && !one->refused && (!peer || same_address(one, peer));
    return count;
}

/* Unread input may be a whole request by the time that the connection's thread reads it. */
static bool has_unread(const struct gb_gateway_connection *connection)
{
    int bytes = 0;

    return ioctl(connection->fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

/* A half request gives way once it has had its time to arrive and to be read. */
static bool may_give_way(const struct gb_gateway_connection *connection, int64_t now)
{
    int64_t age = now - connection->since_ms;

    return !connection->shut && !connection->refused &&
           connection->state != GB_GATEWAY_CONNECTION_SERVING &&
           (connection->state != GB_GATEWAY_CONNECTION_HALF ||
            age >= (has_unread(connection) ? UNREAD_MS : FRESH_MS));
}

static bool goes_before(const struct gb_gateway_connection *one,
                        const struct gb_gateway_connection *other)
{
    bool unread = has_unread(one);

    if (unread != has_unread(other))
        return !unread;
    return one->state < other->state ||
           (one->state == other->state && one->since_ms <= other->since_ms);
}

/* Shuts a connection for the new one; with `peer`, one from its address. False: there is none to
   shut. */
static bool make_room(struct gb_gateway_connections *connections,
                      const struct gb_gateway_connection *added,
                      const struct gb_gateway_connection *peer)
{
    struct gb_gateway_connection *victim = NULL;
    int64_t now = gb_gateway_clock_ms();

    for (struct gb_gateway_connection *one = connections->all; one; one = one->next)
        if (one != added && may_give_way(one, now) && (!peer || same_address(one, peer)) &&
            (!victim || goes_before(one, victim)))
            victim = one;
    if (!victim)
        return false;
    shut(victim);
    return true;
}

/* Refused connections that have asked nothing yet must not pile up: the oldest is shut, first one
   without unread input. */
static void bound_refused(struct gb_gateway_connections *connections)
{
    struct gb_gateway_connection *victim = NULL;
    unsigned waiting = 0;

    for (struct gb_gateway_connection *one = connections->all; one; one = one->next) {
        if (one->shut || !one->refused || one->state == GB_GATEWAY_CONNECTION_SERVING)
            continue;
        waiting++;
        if (!victim || has_unread(victim) || !has_unread(one))
            victim = one;
    }
    if (waiting > REFUSED_MOST)
        shut(victim);
}

static void set_address(struct gb_gateway_connection *connection, const struct sockaddr *peer)
{
    connection->has_address = true;
    if (peer && peer->sa_family == AF_INET6) {
        const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)peer)->sin6_addr;

        /* In an IPv6 network a machine can have any number of addresses. */
        memcpy(&connection->address, six, IN6_IS_ADDR_V4MAPPED(six) ? 16 : 8);
    } else if (peer && peer->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)peer;

        memcpy(&connection->address, &four->sin_addr, sizeof(four->sin_addr));
    } else {
        connection->has_address = false;
    }
}

struct gb_gateway_connection *gb_gateway_connection_begin(
    struct gb_gateway_connections *connections, int fd, const struct sockaddr *peer)
{
    struct gb_gateway_connection *added = calloc(1, sizeof(*added));
    unsigned each = connections->most - (connections->most + 7) / 8;

    if (!added)
        return NULL;
    added->fd = fd;
    added->since_ms = gb_gateway_clock_ms();
    set_address(added, peer);
    pthread_mutex_lock(&connections->lock);
    added->next = connections->all;
    added->link = &connections->all;
    if (added->next)
        added->next->link = &added->next;
    connections->all = added;
    connections->count++;
    connections->total++;
    if ((added->has_address && counted(connections, added) > each &&
         !make_room(connections, added, added)) ||
        (counted(connections, NULL) > connections->most && !make_room(connections, added, NULL))) {
        added->refused = true;
        connections->refused++;
        bound_refused(connections);
    }
    pthread_mutex_unlock(&connections->lock);
    return added;
}

void gb_gateway_connection_end(struct gb_gateway_connections *connections,
                               struct gb_gateway_connection *connection)
{
    pthread_mutex_lock(&connections->lock);
    *connection->link = connection->next;
    if (connection->next)
        connection->next->link = connection->link;
    connections->count--;
    connections->streams -= connection->streams;
    pthread_mutex_unlock(&connections->lock);
    free(connection);
}

bool gb_gateway_connection_serve(struct gb_gateway_connections *connections,
                                 struct gb_gateway_connection *connection)
{
    bool refused;

    pthread_mutex_lock(&connections->lock);
    connection->state = GB_GATEWAY_CONNECTION_SERVING;
    connection->since_ms = gb_gateway_clock_ms();
    refused = connection->refused;
    pthread_mutex_unlock(&connections->lock);
    return !refused;
}

void gb_gateway_connection_idle(struct gb_gateway_connections *connections,
                                struct gb_gateway_connection *connection)
{
    pthread_mutex_lock(&connections->lock);
    connection->state = GB_GATEWAY_CONNECTION_IDLE;
    connection->since_ms = gb_gateway_clock_ms();
    connections->streams -= connection->streams;
    connection->streams = false;
    pthread_mutex_unlock(&connections->lock);
}

bool gb_gateway_connection_stream(struct gb_gateway_connections *connections,
                                  struct gb_gateway_connection *connection)
{
    bool may;

    pthread_mutex_lock(&connections->lock);
    may = connections->streams < connections->most / 2;
    connection->streams = may;
    connections->streams += may;
    pthread_mutex_unlock(&connections->lock);
    return may;
}
