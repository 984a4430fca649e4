/* Watches of a client, from the daemon's events to the program's callback. With the lock held. */
#ifndef GB_LIB_WATCH_H
#define GB_LIB_WATCH_H

#include "client/lib/wire/client.h"

/* The daemon reports an event: `params` of its notification. */
void gb_watcher_event(struct gpubuf_client *client, struct gb_json params);
/* The connection is lost for good. */
void gb_watcher_end_all(struct gpubuf_client *client);
/* The connection has broken: the daemon's numbers of the watches mean nothing any more. The
   connection has been made anew: watches again. */
void gb_watcher_break(struct gpubuf_client *client);
int gb_watcher_resume(struct gpubuf_client *client, struct gb_error *error);

#endif
