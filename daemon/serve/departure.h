/*
 * How sessions end: those whose peers have hung up are ended before any request is served that was
 * sent later, and what they held goes back, at once or in slices of time. The loop's.
 */
#ifndef GB_DEPARTURE_H
#define GB_DEPARTURE_H

#include "daemon/serve/session.h"

/* Gives back all that it held, though not all of it at once; its memory is freed by the loop.
   Idempotent. */
void gb_session_end(struct gb_session *session, const char *why);
/* Gives back what ended sessions held, as long as there is time (`until`: of uv_hrtime();
   UINT64_MAX: all of it). Whether that was all. */
bool gb_sessions_give_back(struct gb_server *server, uint64_t until);
/* Sees off every session whose peer has hung up, but for the one that is being served. */
void gb_sessions_end_hung_up(struct gb_server *server);
/* Serves what a session whose peer has hung up has sent, and ends it, or lets it drain. */
void gb_session_see_off(struct gb_session *session);
/* Serves a slice of what a draining session sent. */
void gb_session_drain(struct gb_session *session);
/* An ended session's output has been received: closes its socket. */
void gb_session_landed(struct gb_flight *flight);

#endif
