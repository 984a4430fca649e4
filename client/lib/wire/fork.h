/*
 * A child of fork() inherits two things: the mappings, which it may go on reading, and copies of
 * the sockets, which it must not keep, since the daemon takes a session to last as long as its
 * connection does. A handler closes them in the child and starts a new generation, by which every
 * call on an inherited client is refused.
 */
#ifndef GB_LIB_FORK_H
#define GB_LIB_FORK_H

#include "client/lib/wire/client.h"

/* Adds a client to those whose sockets a child of fork closes. */
int gb_fork_watch(struct gpubuf_client *client);
/* Removes it and closes its connection, so that no fork sees it half closed. */
void gb_fork_unwatch(struct gpubuf_client *client);
/* Connects a new socket and puts it in the place of the client's, under the same descriptor. 0 or
   an errno; EAGAIN: the daemon's queue is full. */
int gb_fork_reconnect(struct gpubuf_client *client);

#endif
