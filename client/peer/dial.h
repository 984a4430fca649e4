/*
 * Makes a TCP connection to a host and port. The host's addresses are tried in turn. On the loop's
 * thread.
 */
#ifndef GB_DIAL_H
#define GB_DIAL_H

#include <stdint.h>
#include <uv.h>

struct gb_dial;

/* `fd` is the connected socket, which the callee closes; or -1, and `why` says why not. Never
   called before gb_dial returns. The dial is freed after the call. */
typedef void (*gb_dialed_cb)(void *user, int fd, const char *why);

/* NULL: out of memory. */
struct gb_dial *gb_dial(uv_loop_t *loop, const char *host, uint16_t port, gb_dialed_cb callback,
                        void *user);
void gb_dial_stop(struct gb_dial *dial); /* the callback is not called; NULL is fine */

#endif
