/*
 * Receiving: replies, which the type of their request reads, and notifications. With
 * the client's lock held.
 */
#ifndef GB_LIB_RECEIVE_H
#define GB_LIB_RECEIVE_H

#include "client/lib/wire/client.h"

/* Receives once (or, with `all`, what is there by now) and handles it. Returns how many
   messages. */
int gb_receive(struct gpubuf_client *client, bool all);

/*
 * Polls for an answer for a few microseconds, yielding the processor in between, and handles it.
 * Most answers come within the time that falling asleep and being woken would take, on both sides.
 * Where they do not (a long wait, a busy machine) this polls more and more seldom. False if nothing
 * came. For the leader; lets the lock go.
 */
bool gb_receive_soon(struct gpubuf_client *client);

#endif
