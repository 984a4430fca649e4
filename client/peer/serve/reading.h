/*
 * The requests of another machine that use a lease: chunks, over the link and by a lane, and the
 * lease's end. On the loop's thread.
 */
#ifndef GB_PEER_READING_H
#define GB_PEER_READING_H

#include "client/peer/serve/serving.h"

/* NULL: the session has no such lease. */
struct gb_peer_lease *gb_peer_session_lease(const struct gb_peer_session *session, uint64_t id);
/* read, release. Chunks may be read over any connection of the machine that has the lease. */
void gb_peer_session_use_lease(struct gb_peer_session *session, uint64_t id,
                               const struct gb_peer_session_params *params);
/* Ends leases that the machine has asked nothing of for two minutes. */
void gb_peer_session_end_idle(struct gb_peer_session *session, uint64_t now);
/* Replaces the lane, or closes it if the request has no address. */
void gb_peer_session_change_lane(struct gb_peer_session *session, uint64_t id,
                                 const struct gb_peer_session_params *params);

#endif
