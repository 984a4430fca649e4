/*
 * Follows the daemon: a thread with a connection of its own, which watches the objects and asks for
 * the figures once a second. It tells both to the ring and to the publisher, and
 * the figures to the history. If the daemon ends,
 * the thread tries to connect anew for as long as that takes.
 */
#ifndef GB_GATEWAY_FEED_H
#define GB_GATEWAY_FEED_H

#include <stdatomic.h>

#include "client/gateway/base/history.h"
#include "client/gateway/events/publish.h"
#include "client/gateway/events/ring.h"
#include "gpubuf.h"
#include "proto/base/errors.h"

struct gb_gateway_feed {
    const char *socket; /* the caller's; NULL: the default places */
    struct gb_gateway_ring *ring;
    struct gb_gateway_history *history;
    struct gb_gateway_publish *publish; /* NULL: nothing is published */
    atomic_bool up;                     /* the daemon is there, and answers */

    /* The thread's own. */
    pthread_t thread;
    int stop_fd;
    struct gpubuf_client *client;
    bool counting; /* `seq` is valid: the number of the last event told */
    uint64_t seq;
    bool asked;       /* the figures were asked for … */
    int64_t asked_ms; /* … at this time */
    bool complained;
    char instance[64];
    struct gb_pool pool;
};

/* Starts the thread. The ring, the history and the publisher outlive the feed. */
int gb_gateway_feed_start(struct gb_gateway_feed *feed, struct gb_error *error);
void gb_gateway_feed_stop(struct gb_gateway_feed *feed);

#endif
