/* The work of the library's thread for one client, done once a millisecond. Without its lock. */
#ifndef GB_LIB_DUE_H
#define GB_LIB_DUE_H

#include "client/lib/wire/client.h"

/* Sends what has waited for a tick, and takes the next step of a reconnect. Returns whether the
   client is still to be looked after; clears *down if there is anything else to do but to
   connect. */
bool gb_client_run_due(struct gpubuf_client *client, bool *down);

#endif
