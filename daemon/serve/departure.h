/* Between session.c (serving a session) and departure.c (those whose peers have hung up). */
#ifndef GB_DEPARTURE_H
#define GB_DEPARTURE_H

#include "daemon/serve/session.h"

/* ---- session.c ---- */

/* Serves the lines at hand. While the peer does not read its replies, and when its time is over, the
   rest is kept for later. `until`: of uv_hrtime(). */
void gb_session_serve_lines(struct gb_session *session, uint64_t until);
/* What it has sent is kept; it goes on in its next turn. */
void gb_session_put_off(struct gb_session *session);

/* ---- departure.c ---- */

/* Ends one whose peer has hung up, at once or later. False if neither can be, in a pause, since it holds
   what nobody is to see: it is tried again. */
bool gb_session_see_off(struct gb_session *session);
/* A slice of what one sent that is late. */
void gb_session_serve_late(struct gb_session *session);

#endif
