/*
 * Watches: sessions that are told when objects come and go. An event is written once for all who
 * watch it; only those who may open the object are told.
 */
#ifndef GB_WATCH_H
#define GB_WATCH_H

#include "daemon/serve/session.h"

/* The registry's on_event: `arg` is the server. */
void gb_watches_event(void *arg, enum gb_event event, struct gb_object *object);
/* Goes on telling the session's new watches what exists, as far as it reads what it is told. */
void gb_watches_pump(struct gb_session *session);
/* "sealed", … Static. */
const char *gb_event_kind(enum gb_event event);
void gb_watches_end_session(struct gb_session *session);

#endif
