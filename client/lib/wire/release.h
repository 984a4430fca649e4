/*
 * Notices that the daemon has yet to get: leases that have ended, and segments that are no longer
 * mapped. They go out with the next message, or when the code that ended a lease sends them. With
 * the client's lock held.
 */
#ifndef GB_LIB_RELEASE_H
#define GB_LIB_RELEASE_H

#include "client/lib/wire/client.h"

/* Queues notifications of leases that ended and of segments unmapped. */
void gb_queue_releases(struct gpubuf_client *client);
/* Only of segments. False if memory is out: then no request that may be granted a lease must be
   sent, since the daemon would still take the segments for mapped. */
bool gb_queue_unmaps(struct gpubuf_client *client);
/* Queues both, and sends what the socket takes. */
void gb_flush_releases(struct gpubuf_client *client);

/* Room for `more` leases among those that have ended. */
int gb_reserve_releases(struct gpubuf_client *client, size_t more);
/* Notes that a lease has ended; there must be room. */
void gb_push_release(struct gpubuf_client *client, uint64_t lease);
/* Notes that a cached lease is not used; or, with `used`, that it is used again. There must be room
   for one more. */
void gb_push_cached(struct gpubuf_client *client, uint64_t lease, bool used);

#endif
