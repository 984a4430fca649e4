/*
 * The descriptor that a program polls in its own event loop: an epoll set, which stays the same
 * when the connection is made anew, and which the library's other threads can wake. It is made when
 * it is first asked for. With the client's lock held.
 */
#ifndef GB_LIB_LOOP_H
#define GB_LIB_LOOP_H

#include "client/lib/wire/client.h"

/* The connection has another socket, or (-1) none for now. */
void gb_loop_watch(struct gpubuf_client *client, int fd);
/* Wakes the program's loop: there is something to dispatch that another thread has received. */
void gb_loop_wake(struct gpubuf_client *client);
/* Ends the wake-up, in dispatch. */
void gb_loop_clear(struct gpubuf_client *client);
/* Closes it; in a child of fork as well. */
void gb_loop_end(struct gpubuf_client *client);

#endif
