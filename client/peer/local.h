/*
 * This machine's daemon, on the loop: the client of libgpubuf is polled there, and its callbacks
 * run there. It connects anew by itself as long as it takes.
 */
#ifndef GB_LOCAL_H
#define GB_LOCAL_H

#include <uv.h>

#include "gpubuf.h"

struct gb_local {
    struct gpubuf_client *client;
    uv_poll_t poll;
    uv_prepare_t prepare;
    int events;               /* that are polled for */
    void (*lost)(void *user); /* the daemon has said that it is over for good */
    void *user;
};

/* The client stays the caller's. 0 or libuv's error. */
int gb_local_start(struct gb_local *local, uv_loop_t *loop);
/* Of a sentence for the daemon: one of the system, TLS or etcd need not be UTF-8, or was cut inside
   a character, and gpubuf_decline takes nothing else. */
void gb_local_make_utf8(char *text);
void gb_local_stop(struct gb_local *local); /* the handles are closed in later turns */

#endif
