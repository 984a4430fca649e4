/*
 * What the service manager hears of us: that we are ready, how it goes, that we stop; and, where it
 * wants a sign of life (WatchdogSec=), one as long as the loop turns and no device's driver hangs.
 * A job of a mover counts as hanging when it has not gone on for longer than the loop itself may be
 * silent.
 * The loop's thread.
 */
#ifndef GB_HEARTBEAT_H
#define GB_HEARTBEAT_H

#include <uv.h>

#include "daemon/survive/notify.h"

struct gb_server;

struct gb_heartbeat {
    struct gb_server *server;
    struct gb_notify *notify;
    uv_timer_t timer;
    bool hanging;     /* told once each time */
    char status[160]; /* what was told last */
};

/* Says that the server is ready, and beats from then on. Without a manager this does nothing. */
void gb_heartbeat_begin(struct gb_heartbeat *heartbeat, struct gb_server *server,
                        struct gb_notify *notify);
/* Says that the server stops; that may take its time. The timer goes with the loop. */
void gb_heartbeat_stop(struct gb_heartbeat *heartbeat);

#endif
