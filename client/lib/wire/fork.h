/*
 * A child of fork() inherits two things: the mappings, which it may still read, and copies of
 * the sockets, which it must not keep, since the daemon takes a session to last as long as its
 * connection does. A handler closes them in the child and starts a new generation, by which every
 * call on an inherited client is refused.
 */
#ifndef GB_LIB_FORK_H
#define GB_LIB_FORK_H

#include "client/lib/wire/client.h"

/* Has a child of fork close the client's socket. */
int gb_fork_watch(struct gpubuf_client *client);
/* Removes it and closes its connection, so that no fork sees it half closed. */
void gb_fork_unwatch(struct gpubuf_client *client);
/* The user who runs the daemon at a socket's other end, as the kernel says; -1: it does not. */
uid_t gb_socket_uid(int fd);
/* Connects a new socket and puts it in the place of the client's, under the same descriptor. 0 or
   an errno; EAGAIN: the daemon's queue is full; EACCES: it is another user's, which the client
   does not want. */
int gb_fork_reconnect(struct gpubuf_client *client);

#endif
