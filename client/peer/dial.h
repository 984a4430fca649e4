/*
 * A TCP connection to be made to a host and port: its addresses are tried in turn. On the loop's
 * thread.
 */
#ifndef GB_DIAL_H
#define GB_DIAL_H

#include <stdint.h>
#include <uv.h>

struct gb_dial;

/* The connected socket, which is the callee's to close; or -1, and why not. Never called before
   gb_dial returns; after it the dial is no more. */
typedef void (*gb_dialed_cb)(void *user, int fd, const char *why);

/* NULL: out of memory. */
struct gb_dial *gb_dial(uv_loop_t *loop, const char *host, uint16_t port, gb_dialed_cb callback,
                        void *user);
void gb_dial_stop(struct gb_dial *dial); /* without a call; NULL is fine */

#endif
