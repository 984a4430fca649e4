/*
 * Makes a TCP connection to a host and port. The host's addresses are tried in turn. On the loop's
 * thread.
 */
#ifndef GB_PEER_DIAL_H
#define GB_PEER_DIAL_H

#include <stdint.h>
#include <uv.h>

struct gb_peer_dial;

/* `fd` is the connected socket, which the callee closes; or -1, and `why` says why not. Never
   called before gb_peer_dial returns. The dial is freed after the call. */
typedef void (*gb_peer_dialed_cb)(void *user, int fd, const char *why);

/* NULL: out of memory. */
struct gb_peer_dial *gb_peer_dial(uv_loop_t *loop, const char *host, uint16_t port,
                                  gb_peer_dialed_cb callback, void *user);
void gb_peer_dial_stop(struct gb_peer_dial *dial); /* the callback is not called; NULL is fine */

#endif
