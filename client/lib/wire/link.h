/* The end of a connection. With the client's lock held. */
#ifndef GB_LIB_LINK_H
#define GB_LIB_LINK_H

#include "client/lib/wire/client.h"

/* Marks the connection lost and ends everything. During a reconnect, a lack of memory does not lose
   the connection: there is another attempt. */
void gb_client_lose(struct gpubuf_client *client, const struct gb_error *why);
void gb_client_lose_for(struct gpubuf_client *client, int code, const char *why);

/* The connection is to break once the caller has handled what was received. */
void gb_client_doom(struct gpubuf_client *client, const struct gb_error *why);

#endif
