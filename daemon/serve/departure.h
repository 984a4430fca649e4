/*
 * How sessions end: a session whose peer has hung up is ended before any request is served that was
 * sent later; its leases and mappings are ended at once or in slices of time. The loop's.
 */
#ifndef GB_DEPARTURE_H
#define GB_DEPARTURE_H

#include "daemon/serve/session.h"

/* Ends the session. A long list of leases and mappings is left to gb_sessions_release_leases(); the
   loop frees the session's memory. Idempotent. */
void gb_session_end(struct gb_session *session, const char *why);
/* Ends leases and mappings of ended and draining sessions, until that time of uv_hrtime()
   (UINT64_MAX: all of them). Whether none is left. */
bool gb_sessions_release_leases(struct gb_server *server, uint64_t until);
/* Sees off every session whose peer has hung up, but for the one that is being served. */
void gb_sessions_end_hung_up(struct gb_server *server);
/* The peer has hung up: serves the session's input and ends it; or has it drain, if that is too
   much at once. */
void gb_session_see_off(struct gb_session *session);
/* Serves a slice of a draining session's input. */
void gb_session_drain(struct gb_session *session);
/* The peer of an ended session has received all descriptors: closes the session's socket. */
void gb_session_landed(struct gb_flight *flight);

#endif
