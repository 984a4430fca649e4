/* The places that a fetch gets its object from. On the loop's thread. */
#ifndef GB_PEER_SOURCES_H
#define GB_PEER_SOURCES_H

#include "client/peer/fetch/fetching.h"

/* Looks for places, at once or after a pause, as the last error says, and opens the object. */
void gb_peer_fetch_find(struct gb_peer_fetch *fetch);
/* The machine is asked no more, or not before the others. */
void gb_peer_fetch_leave(struct gb_peer_fetch *fetch, const char *node,
                         const struct gb_error *error);
bool gb_peer_fetch_is_origin(const struct gb_peer_fetch *fetch,
                             const struct gb_peer_remote *remote);

#endif
