/*
 * Messages to the service manager: that we are ready, how it goes, that we stop; and, where it
 * wants a sign of life (WatchdogSec=), one as long as the loop turns and no device's driver hangs.
 * A daemon whose supervisor has ended goes on, says that nothing outlives it any more, and listens
 * in its own name, so that the kernel tells whoever looks for it. A job of a mover counts as
 * hanging when it has not gone on for longer than the loop itself may be silent. The loop's thread.
 */
#ifndef GB_HEARTBEAT_H
#define GB_HEARTBEAT_H

#include <uv.h>

#include "daemon/memory/device.h"
#include "daemon/survive/state.h"

struct gb_heartbeat {
    /* The objects that it tells of; set by the caller before it begins. */
    struct gb_device *const *devices;
    unsigned device_count;
    const uint64_t *session_count;

    struct gb_state *state;
    int listener_fd;

    struct gb_notify *notify;
    uv_timer_t timer;
    uv_poll_t channel; /* to a supervisor: its end */
    bool hanging;      /* told once each time */
    char status[160];  /* what was told last */
};

/* Says that the daemon is ready, listening on that socket, and beats from then on. */
void gb_heartbeat_begin(struct gb_heartbeat *heartbeat, struct gb_notify *notify, uv_loop_t *loop,
                        const char *socket);
/* Says that the daemon stops; that may take its time. The timer goes with the loop. */
void gb_heartbeat_stop(struct gb_heartbeat *heartbeat);

#endif
