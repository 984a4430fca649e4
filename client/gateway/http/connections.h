/*
 * The connections, and how long each may stay in its state. Any thread.
 *
 *   HALF ── the request is all there ──► SERVING ── answered ──► IDLE ── the next is ──► SERVING
 *
 * Each state has its time, after which the connection is shut down; libmicrohttpd then closes it.
 * If there are too many connections, one is closed for the new one: the oldest half request, once
 * it has had 50 ms to arrive, else the longest idle one. A connection with unread input is closed
 * only if all have some. At most seven eighths come from one address (of IPv6, one network), so
 * that one peer cannot keep the others out. If all others are being served, the new connection is
 * refused: it has a second to ask for metrics all the same.
 */
#ifndef GB_GATEWAY_CONNECTIONS_H
#define GB_GATEWAY_CONNECTIONS_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define GB_GATEWAY_HALF_MS 10000     /* for a request to arrive */
#define GB_GATEWAY_IDLE_MS 60000     /* for the next request to arrive */
#define GB_GATEWAY_SERVING_MS 120000 /* for an answer to be sent, unless it streams */
#define GB_GATEWAY_REFUSED_MS 1000   /* for the request of a refused connection */

enum gb_gateway_connection_state {
    GB_GATEWAY_CONNECTION_HALF,
    GB_GATEWAY_CONNECTION_SERVING,
    GB_GATEWAY_CONNECTION_IDLE
};

struct gb_gateway_connection {
    struct gb_gateway_connection *next, **link;
    int fd; /* libmicrohttpd's */
    struct in6_addr address;
    bool has_address; /* not on a unix socket */
    enum gb_gateway_connection_state state;
    int64_t since_ms;
    bool refused, streams, shut;
    unsigned status; /* of the last answer; 0: none. Of the thread that serves it */
};

struct gb_gateway_connections {
    pthread_mutex_t lock;
    struct gb_gateway_connection *all;
    unsigned count, most, streams;
    uint64_t total, refused;
    pthread_t clock;
    pthread_cond_t stop;
    bool started, stopped;
};

int gb_gateway_connections_start(struct gb_gateway_connections *connections, unsigned most);
void gb_gateway_connections_end(struct gb_gateway_connections *connections);
/* NULL if memory is out. */
struct gb_gateway_connection *gb_gateway_connection_begin(
    struct gb_gateway_connections *connections, int fd, const struct sockaddr *peer);
void gb_gateway_connection_end(struct gb_gateway_connections *connections,
                               struct gb_gateway_connection *connection);
/* A request has arrived. False: it is to be refused, unless it asks for metrics or health. */
bool gb_gateway_connection_serve(struct gb_gateway_connections *connections,
                                 struct gb_gateway_connection *connection);
void gb_gateway_connection_idle(struct gb_gateway_connections *connections,
                                struct gb_gateway_connection *connection);
/* The answer will go on as long as it is read. False: half of all connections do that already. */
bool gb_gateway_connection_stream(struct gb_gateway_connections *connections,
                                  struct gb_gateway_connection *connection);

#endif
