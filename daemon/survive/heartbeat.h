/*
 * Messages to the service manager: that the daemon is ready, its status, that it stops. If the
 * manager wants signs of life (WatchdogSec=) it gets them as long as the loop turns and no device's
 * driver hangs: a job of a mover hangs if it makes no progress for longer than the loop itself may
 * be silent.
 *
 * When its supervisor ends the daemon continues. It logs that nothing will outlive it, and takes
 * the socket over. The loop's thread.
 */
#ifndef GB_HEARTBEAT_H
#define GB_HEARTBEAT_H

#include <uv.h>

#include "daemon/base/listener.h"
#include "daemon/memory/device.h"
#include "daemon/survive/state.h"

struct gb_heartbeat {
    /* For the status line; set by the caller before gb_heartbeat_begin(). */
    struct gb_device *const *devices;
    unsigned device_count;
    const uint64_t *session_count;

    struct gb_state *state;
    struct gb_listener *listener;

    struct gb_notify *notify;
    uv_timer_t timer;
    uv_poll_t channel; /* watches for the supervisor's end */
    bool hanging;      /* a driver hangs, which is logged once each time */
    char status[160];  /* the last status line */
};

/* Tells the manager that the daemon is ready, listening on that socket, and begins to beat. The
   timer ends with the loop. */
void gb_heartbeat_begin(struct gb_heartbeat *heartbeat, struct gb_notify *notify, uv_loop_t *loop,
                        const char *socket);
#endif
