/*
 * One machine that has connected to this one, and what it asks:
 *
 *     → {"method":"open","name","version"}  ← {"lease","content","mode","device","label"?,"layout"}
 *     → {"method":"read","lease","chunk"}   ← data
 *     → {"method":"lane","address"?}        ← {"address"}; without one no answer (lane.h)
 *     → {"method":"read",…,"tag"}           ← {"sum":"16 hexadecimal digits"}, once the chunk has
 *                                              gone by the lane
 *     → {"method":"word","name","version"}  ← {"described","content"} (word.h), no copy's
 *     → {"method":"release","lease"}        (no answer)
 *     (a lease that is asked for nothing for two minutes ends)
 *     or ← {"error":{"kind","message"}}: `open` with "busy", past what crowd.h says, or while
 *     this machine serves as many others as it may
 *     and while an answer takes long, each second, {} without a request
 *
 * On the loop's thread.
 */
#ifndef GB_PEER_SESSION_H
#define GB_PEER_SESSION_H

#include "client/peer/serve/serving.h"

/* A session on an accepted socket, which becomes the session's, also if this fails. */
struct gb_peer_session *gb_peer_session_new(const struct gb_peer_parts *parts, int fd,
                                            const struct gb_peer_session_events *events,
                                            void *user);
void gb_peer_session_close(struct gb_peer_session *session); /* without an event */

/* The state of a session's connection. */
enum gb_peer_session_holds {
    GB_PEER_SESSION_HALF,  /* a connection whose handshake is not done */
    GB_PEER_SESSION_OPEN,  /* a connection without a place */
    GB_PEER_SESSION_PLACE, /* one of the places of machines that are served */
};
enum gb_peer_session_holds gb_peer_session_holds(const struct gb_peer_session *session);
/* How long no request has been under way and no lease has been held, in milliseconds. */
uint64_t gb_peer_session_idle(const struct gb_peer_session *session);

/* Whether this machine has a lease on that version. */
bool gb_peer_session_reads(const struct gb_peer_session *session, uint64_t version);

/* To be called every second: ends a session that is stuck, and leases that are not used. */
void gb_peer_session_tick(struct gb_peer_session *session);

#endif
