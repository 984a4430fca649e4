/*
 * Watches: sessions that are told when objects come and go. An event is written once for all who
 * watch it; only those who may open the object are told.
 */
#ifndef GB_WATCH_H
#define GB_WATCH_H

#include "daemon/serve/session.h"

/* As struct gb_service has these. */
void gb_watches_event(struct gb_server *server, enum gb_event event, struct gb_object *object);
void gb_watches_pump(struct gb_session *session);
void gb_watches_end_session(struct gb_session *session);

#endif
