/*
 * Messages that may wait a moment but not for ever. An ended lease is reported to the daemon by a
 * message. Sent by itself it costs more than a whole round trip, since it wakes the daemon once
 * more; held back, it travels with the next request for nothing. But a program that falls idle must
 * not keep memory pinned. So a busy client's releases are held back, and one thread of the process,
 * the flusher, sees to it that none waits longer than two milliseconds. The thread is started when
 * it is first needed, and sleeps while no client is busy. It also polls the events of GPUs that
 * clients wait for. While clients with leases are idle, it sleeps on their sockets, and reconnects
 * a client whose connection breaks. The hook `tend` (client.h) does the work for one client.
 */
#ifndef GB_LIB_FLUSHER_H
#define GB_LIB_FLUSHER_H

#include "client/lib/wire/client.h"

/* How often the thread looks at clients with cached leases that are idle otherwise. */
#define GB_FLUSHER_SWEEP_MS 500

/* Has the thread look after a client, whose lock is held. False if there is no thread: what is to
   be sent must be sent now. */
bool gb_flusher_engage(struct gpubuf_client *client);

/* Has the thread look out for the end of a client's connection, whose lock is held. Idempotent.
   Without a thread, the program's next call finds out. */
void gb_flusher_watch(struct gpubuf_client *client);
/* The client disconnects. Without its lock. */
void gb_flusher_forget(struct gpubuf_client *client);

/* Ends the thread for good; from then on everything is sent at once. For the end of the process. */
void gb_flusher_stop(void);

/* For pthread_atfork. The child has no thread until it needs one. */
void gb_flusher_before_fork(void);
void gb_flusher_in_parent(void);
void gb_flusher_in_child(void);

/* For a client that caches leases, before the flusher stops looking after it: any message of the
   daemon has the flusher look after the client again, at once. */
void gb_flusher_listen(struct gpubuf_client *client);

#endif
