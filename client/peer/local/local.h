/*
 * This machine's daemon, on the loop: libgpubuf's client is polled there, and its callbacks run
 * there. The client reconnects by itself, however long that takes.
 */
#ifndef GB_PEER_LOCAL_H
#define GB_PEER_LOCAL_H

#include <uv.h>

#include "gpubuf.h"

struct gb_peer_local {
    struct gpubuf_client *client;
    uv_poll_t poll;
    uv_prepare_t prepare;
    int events;               /* polled for */
    void (*lost)(void *user); /* the daemon has ended for good */
    void *user;
};

/* The client stays the caller's. 0 or libuv's error. */
int gb_peer_local_start(struct gb_peer_local *local, uv_loop_t *loop);
void gb_peer_local_stop(struct gb_peer_local *local); /* the handles are closed in later turns */

#endif
