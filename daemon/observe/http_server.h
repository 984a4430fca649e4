/* Between http.c (the thread, the queues between the two loops) and http_peer.c (a connection). */
#ifndef GB_HTTP_SERVER_H
#define GB_HTTP_SERVER_H

#include <uv.h>

#include "daemon/observe/http.h"
#include "daemon/observe/http_request.h"
#include "daemon/observe/report.h"

#define GB_HTTP_LISTENERS 4

struct gb_http {
    /* Set before the thread starts. */
    struct gb_server *server; /* looked into on the loop's thread only */
    struct gb_publisher *publisher;
    const char *const *names; /* hosts that we are known as besides addresses; ended by NULL */
    char *token;              /* NULL: none is asked for */
    size_t token_length;
    char cookie[33]; /* what a browser has instead of the token */
    unsigned port;
    uint64_t most_peers;

    uv_async_t *wanted; /* of the daemon's loop: `queries` has some; freed when it is closed */
    uv_async_t wake;    /* of ours: `answers` or the outlet has some, or `stop` */
    uv_mutex_t lock;
    struct gb_link queries, answers; /* guarded by the lock */
    bool stop;                       /* guarded */
    struct gb_outlet outlet;

    /* The thread's own. */
    uv_loop_t loop;
    uv_thread_t thread;
    bool loop_made, started;
    uv_tcp_t listener;
    uv_timer_t clock; /* for deadlines */
    uv_timer_t beat;  /* while a live peer gathers events */
    struct gb_link peers;
    unsigned peer_count, live_count;
    bool ending;

    struct {
        atomic_uint_fast64_t connections, live, connections_total, refused, requests[4], dropped;
    } counts;
};

/* Sends a query on its way to the daemon's loop. */
void gb_http_ask(struct gb_http *http, struct gb_query *query);

/* ---- http_peer.c ---- */

struct gb_peer;

/* A connection to be accepted. */
void gb_peer_accept(struct gb_http *http);
/* A slice has come back. */
void gb_peer_answer(struct gb_query *query);
/* Deals a batch of events out to those who listen. */
void gb_peers_tell(struct gb_http *http, const struct gb_batch *batch);
/* Ends those whose time is over. */
void gb_peers_check(struct gb_http *http, uint64_t now_ms);
/* Sends what has been gathered; true if something is still being gathered. */
bool gb_peers_beat(struct gb_http *http, uint64_t now_ms);
void gb_peers_close(struct gb_http *http);
/* Frees what is left when the thread has ended. */
void gb_peers_free(struct gb_http *http);

#endif
