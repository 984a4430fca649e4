/*
 * For bindings to languages whose programs begin many requests before they let their event loop go
 * on. The requests wait until the binding sends them together, before its loop waits. They are also
 * sent by gpubuf_dispatch and blocking calls, and when there are 2 KiB of them.
 *
 * The shared library does not export these functions: they are for bindings that are linked with
 * these sources. Any thread.
 */
#ifndef GB_LIB_GATHER_H
#define GB_LIB_GATHER_H

#include "gpubuf.h"

/* From now on, for as long as the client lives. */
void gb_gather_requests(struct gpubuf_client *client);
/* Sends what waits, as far as the socket takes it. */
void gb_send_gathered(struct gpubuf_client *client);

/* How many connections the client has had: one more each time that one was made anew. */
uint64_t gb_connections(const struct gpubuf_client *client);

#endif
