/* Between session.c (serving a session) and departure.c (those whose peers have hung up). */
#ifndef GB_DEPARTURE_H
#define GB_DEPARTURE_H

#include "daemon/serve/session.h"

/* ---- session.c ---- */

/* Changes its state, and logs that. */
void gb_session_become(struct gb_session *session, enum gb_session_state state);
/* Serves the lines at hand. While the peer does not read its replies, and when its time is over, the
   rest is kept for later: see session->input. `until`: of uv_hrtime(). */
void gb_session_serve_lines(struct gb_session *session, uint64_t until);
/* What it has sent is kept; it goes on in its next turn. */
void gb_session_put_off(struct gb_session *session);

/* ---- departure.c ---- */

/* Serves what a session whose peer has hung up has sent, and ends it, or lets it drain. */
void gb_session_see_off(struct gb_session *session);
/* Serves a slice of what a draining session sent. */
void gb_session_drain(struct gb_session *session);

#endif
