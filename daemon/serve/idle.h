/* --idle-exit: the daemon ends when nobody has been connected for a time. */
#ifndef GB_IDLE_H
#define GB_IDLE_H

#include "daemon/serve/server.h"

/* Called at the start, and whenever the number of sessions has changed. */
void gb_idle_watch(struct gb_server *server);

#endif
