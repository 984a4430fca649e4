/*
 * After a connection broke: a new one is made, as soon as a daemon listens again, and takes its
 * place. hello asks for the leases that the client has (several times, where they are more than a
 * message holds); those that the daemon does not grant are stale from then on. Then requests and
 * watches go out again. The next step is taken by the leader, or, while there is none, by any
 * thread that has the client's lock: in a blocking call, in gpubuf_dispatch, or in the flusher. So
 * leases are asked for in time even if the program does not call the library.
 */
#ifndef GB_LIB_RESUME_H
#define GB_LIB_RESUME_H

#include "client/lib/wire/client.h"

/* Allocates what a connection that breaks will need: memory may be short then. */
int gb_resume_prepare(struct gpubuf_client *client);
/* The connection has broken: it is made anew, or lost for good. */
void gb_resume_break(struct gpubuf_client *client, const struct gb_error *why);
/* While the link is not up: does what is due and can be done without waiting. For the leader, or
   while there is none. Returns for how long, in ms, there is nothing more to do, for poll, but at
   most `timeout_ms` (-1: never). */
int gb_resume_mend(struct gpubuf_client *client, int timeout_ms);
/* At the end of the client, or when its connection is lost. */
void gb_resume_end(struct gpubuf_client *client);

#endif
