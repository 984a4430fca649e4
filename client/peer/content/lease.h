/*
 * A lease that another machine has on an object here and its content. A lease is
 * reference-counted: queued chunks hold it after it is given back. On the loop's thread.
 */
#ifndef GB_PEER_LEASE_H
#define GB_PEER_LEASE_H

#include "client/peer/content/content.h"
#include "client/peer/link/outbox.h"
#include "proto/base/list.h"

struct gb_peer_lease {
    struct gb_link of_session;
    uint64_t id;
    uint64_t used; /* when it was last asked for anything, by the loop's clock */
    unsigned uses;
    struct gb_peer_figures *figures; /* count the bytes sent */
    struct gpubuf_object *object;
    struct gb_peer_content content;
    char *layout; /* form CREATE, a JSON text */
};

/* Takes a reference to the object of its own. `described` is the layout that `stat` told. NULL:
   *error says why. */
struct gb_peer_lease *gb_peer_lease_new(struct gpubuf_object *object, struct gb_layout *described,
                                        struct gb_error *error);
struct gb_peer_lease *gb_peer_lease_use(struct gb_peer_lease *lease);
void gb_peer_lease_drop(struct gb_peer_lease *lease);

/* A chunk, in its own memory or in *block, and its sum. The caller gives the block back; it may be
   NULL. Any thread. */
int gb_peer_lease_chunk(struct gb_peer_lease *lease, uint64_t chunk, struct gb_staging **block,
                        const void **bytes, uint64_t *sum, struct gb_error *error);

#endif
