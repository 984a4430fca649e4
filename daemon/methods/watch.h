/*
 * Watches: sessions get events when objects come, go or move. The text about an object is written
 * once for all watches, when that happens. Sessions are told in the turns of their users, a slice
 * at a time: no user's watches delay others. A watch gets events only of objects that its session
 * may open.
 */
#ifndef GB_WATCH_H
#define GB_WATCH_H

#include "daemon/serve/session.h"

/* The functions of struct gb_service. */
void gb_watches_event(struct gb_server *server, enum gb_event event, struct gb_object *object);
void gb_watches_send_news(struct gb_served *user, uint64_t until);
void gb_watches_pump(struct gb_session *session);
void gb_watches_end_session(struct gb_session *session);

#endif
