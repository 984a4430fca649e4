/* Entering a client for a call of the program's, and leaving it: locked and counted in between. */
#ifndef GB_LIB_ENTER_H
#define GB_LIB_ENTER_H

#include "client/lib/wire/client.h"

/* Locks the client for a call. GPUBUF_E_FORKED, GPUBUF_E_INVALID (NULL), or why the connection is
   lost; then it is reported and not locked. A blocking call is refused inside a callback. */
int gb_enter(struct gpubuf_client *client);
int gb_enter_lost(struct gpubuf_client *client); /* also if the connection is lost */
int gb_enter_blocking(struct gpubuf_client *client);
void gb_leave(struct gpubuf_client *client);

#endif
