/*
 * After a connection broke: a new one is made, as soon as a daemon listens again, and takes its
 * place. hello asks for the leases that the client has (several times, where they are more than a
 * message holds); those that the daemon does not grant are stale from then on. Then requests and
 * watches go out again. Whoever has the client's lock and is not hindered by a leader takes the
 * next step: a blocking call, gpubuf_dispatch, or the flusher's thread, so that leases are asked
 * for in time also where the program does not call the library.
 */
#ifndef GB_LIB_RESUME_H
#define GB_LIB_RESUME_H

#include "client/lib/wire/client.h"

/* Makes room for what a connection that breaks needs: when it does, memory may be short. */
int gb_resume_prepare(struct gpubuf_client *client);
/* The connection has broken: it is made anew, or lost for good. */
void gb_resume_break(struct gpubuf_client *client, const struct gb_error *why);
/* Where the link is not up: does what is due and can be done without waiting. For the leader, or
   while there is none. Returns for how long, in ms, there is nothing more to do, for poll, but at
   most `timeout_ms` (-1: never). */
int gb_resume_mend(struct gpubuf_client *client, int timeout_ms);
/* With the client, or when it is lost. */
void gb_resume_end(struct gpubuf_client *client);

#endif
