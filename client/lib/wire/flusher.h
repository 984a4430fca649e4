/*
 * Messages that may wait a moment but not for ever. A lease that has ended is told to the daemon by
 * a message of its own, which costs more than the rest of a round trip that follows it, since it
 * wakes the daemon once more; held back, it travels with the next request for nothing. But a
 * program that falls idle must not keep memory pinned. So where a client is busy its releases are
 * held back, and one thread of the process sees to it that none waits longer than two milliseconds.
 * The thread is started when it is first needed, and sleeps while no client is busy. It also looks
 * after what clients wait for on GPUs, and after clients with leases whose connection breaks: while
 * they sleep, it sleeps on their sockets' ends. `tend` knows the work that there is for a client
 * (client.h).
 */
#ifndef GB_LIB_FLUSHER_H
#define GB_LIB_FLUSHER_H

#include "client/lib/wire/client.h"

/* Has the thread look after a client, whose lock is held. False if there is no thread: what is to
   be sent must be sent now. */
bool gb_flusher_engage(struct gpubuf_client *client);

/* Has the thread look out for the end of a client's connection, whose lock is held. Idempotent;
   where there is no thread the next call finds out. */
void gb_flusher_keep(struct gpubuf_client *client);
/* It disconnects. Without its lock. */
void gb_flusher_forget(struct gpubuf_client *client);

/* Ends the thread for good; from then on everything is sent at once. For the end of the process. */
void gb_flusher_stop(void);

/* For pthread_atfork. The child has no thread until it needs one. */
void gb_flusher_before_fork(void);
void gb_flusher_in_parent(void);
void gb_flusher_in_child(void);

/* A client that keeps leases, which the flusher is about to let go: what the daemon says from now
   on has it look after the client again, at once. */
void gb_flusher_listen(struct gpubuf_client *client);

#endif
