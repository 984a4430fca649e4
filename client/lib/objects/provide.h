/* Names that a client provides, from the daemon's `wanted` to the program's callback. With the lock
   held. */
#ifndef GB_LIB_PROVIDE_H
#define GB_LIB_PROVIDE_H

#include "client/lib/wire/client.h"

/* The daemon wants a name, or does not any more (`ended`): `params` of its notification. */
void gb_provide_wanted(struct gpubuf_client *client, struct gb_json params, bool ended);
/* The connection is lost for good. */
void gb_provide_end_all(struct gpubuf_client *client);
/* The connection has been made anew: registers the client's prefixes again, and tells the program
   that all earlier requests are over. */
int gb_provide_resume(struct gpubuf_client *client, struct gb_error *error);

#endif
