/* Leases out of replies. With the client's lock held. */
#ifndef GB_LIB_GRANTS_H
#define GB_LIB_GRANTS_H

#include "client/lib/wire/request.h"

struct gb_failed_segment;

struct gb_grants {
    struct gpubuf_client *client;
    bool writable;
    bool dropped; /* an import was dropped since the request was sent */
    struct gb_failed_segment *failed;
};

#define GB_AGAIN 1 /* ask again: the reply relies on a segment that was unmapped meanwhile */

/*
 * Takes in the `segments` of a reply that grants at most `leases` leases. `drops` is
 * client->imports.drops from when the request was sent. Segments that cannot be mapped only fail
 * the leases that need them. GPUBUF_E_PROTOCOL; GPUBUF_E_NO_MEMORY, and then the connection has
 * been given up, since the daemon's account could not be kept.
 */
int gb_grants_begin(struct gb_grants *grants, struct gpubuf_client *client,
                    const struct gb_reply *reply, struct gb_json segments, size_t leases,
                    bool writable, uint64_t drops, struct gb_error *error);

/*
 * Makes a lease of an `object`. 0 and *out, GB_AGAIN, or a failure. Without success the lease has
 * been given back. GPUBUF_E_PROTOCOL, GPUBUF_E_NO_MEMORY, or why a segment could not be mapped.
 */
int gb_grants_make_lease(struct gb_grants *grants, uint64_t lease, struct gb_json object,
                         struct gpubuf_object **out, struct gb_error *error);
/* As that, for an open. `slot` is the lease's slot in the page, from 1 on; 0: none. */
int gb_grants_make_cached_lease(struct gb_grants *grants, uint64_t lease, uint64_t slot,
                                struct gb_json object, struct gpubuf_object **out,
                                struct gb_error *error);

/* Keeps the cache within its bounds. */
void gb_grants_end(struct gb_grants *grants);

#endif
