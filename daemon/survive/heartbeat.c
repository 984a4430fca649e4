#include "daemon/survive/heartbeat.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/failpoint.h"
#include "daemon/base/log.h"
#include "daemon/memory/mover.h"

#define READY_WAIT_MS 5000

static uint64_t stuck_ms(const struct gb_device *device)
{
    uint64_t longest = gb_mover_stuck_ms(device->mover);

    for (int i = 0; i < GB_DIRECTIONS; i++) {
        uint64_t ms = gb_mover_stuck_ms(device->lanes[i]);

        if (ms > longest)
            longest = ms;
    }
    return longest;
}

/* The first device whose driver hangs; NULL: none. */
static struct gb_device *hanging_device(const struct gb_heartbeat *heartbeat, uint64_t *busy_ms)
{
    for (unsigned i = 0; i < heartbeat->device_count; i++) {
        *busy_ms = stuck_ms(heartbeat->devices[i]);
        if (*busy_ms > heartbeat->notify->watchdog_ms)
            return heartbeat->devices[i];
    }
    return NULL;
}

static void send_status(struct gb_heartbeat *heartbeat)
{
    uint64_t objects = 0, used = 0, capacity = 0;
    char status[sizeof(heartbeat->status)];

    for (unsigned i = 0; i < heartbeat->device_count; i++) {
        capacity += heartbeat->devices[i]->capacity;
        used += heartbeat->devices[i]->used;
        objects += heartbeat->devices[i]->objects;
    }
    snprintf(status, sizeof(status),
             "%" PRIu64 " objects, %" PRIu64 " sessions, %" PRIu64 " of %" PRIu64 " MiB used",
             objects, *heartbeat->session_count, used >> 20, capacity >> 20);
    if (strcmp(status, heartbeat->status) == 0 || heartbeat->notify->queue)
        return;
    if (gb_notify_send_status(heartbeat->notify, "%s", status) == 0)
        memcpy(heartbeat->status, status, sizeof(status));
}

static void on_beat(uv_timer_t *timer)
{
    struct gb_heartbeat *heartbeat = timer->data;
    uint64_t busy_ms = 0;
    const struct gb_device *device = hanging_device(heartbeat, &busy_ms);

    if (device) {
        if (!heartbeat->hanging)
            gb_log(GB_LOG_ERROR, "driver hangs", GB_LOG_TEXT("id", device->id),
                   GB_LOG_NUMBER("busy_ms", busy_ms));
        heartbeat->hanging = true;
        return;
    }
    if (heartbeat->hanging)
        gb_log(GB_LOG_WARNING, "driver responds again");
    heartbeat->hanging = false;
    gb_notify_send_watchdog(heartbeat->notify);
    send_status(heartbeat);
}

static void on_channel(uv_poll_t *poll, int status, int events)
{
    struct gb_heartbeat *heartbeat = poll->data;

    if (status == 0 && !(events & UV_DISCONNECT))
        return;
    uv_poll_stop(poll);
    uv_timer_stop(&heartbeat->timer);
    gb_log(GB_LOG_ERROR, "supervisor ended: no daemon will be started after this one",
           GB_LOG_NUMBER("pid", getpid()));
    gb_state_abandon(heartbeat->state, "its supervisor has ended");
    gb_listener_take_over(heartbeat->listener);
}

/* Watches the connection to a supervisor. A service manager has none: its socket has a name. */
static void watch_channel(struct gb_heartbeat *heartbeat, uv_loop_t *loop)
{
    if (heartbeat->notify->socket < 0 || heartbeat->notify->address_length > 0 ||
        uv_poll_init(loop, &heartbeat->channel, heartbeat->notify->socket) < 0)
        return;
    heartbeat->channel.data = heartbeat;
    uv_poll_start(&heartbeat->channel, UV_DISCONNECT, on_channel);
}

void gb_heartbeat_begin(struct gb_heartbeat *heartbeat, struct gb_notify *notify, uv_loop_t *loop,
                        const char *socket)
{
    uint64_t interval = notify->watchdog_ms / 3; /* one beat may be lost */

    gb_notify_close_unused(notify); /* descriptors that nothing was restored from */
    GB_FAILPOINT(DROP_DONE);
    heartbeat->notify = notify;
    uv_timer_init(loop, &heartbeat->timer);
    heartbeat->timer.data = heartbeat;
    (void)gb_notify_send_status(notify, "listening on %s", socket);
    gb_notify_send_ready(notify);
    if (!gb_notify_wait_sent(notify, READY_WAIT_MS)) /* nobody is served yet */
        gb_log(GB_LOG_WARNING, "service manager not reached",
               GB_LOG_TEXT("why", strerror(notify->error)));
    GB_FAILPOINT(READY_DONE);
    watch_channel(heartbeat, loop);
    if (notify->watchdog_ms)
        uv_timer_start(&heartbeat->timer, on_beat, interval, interval > 0 ? interval : 1);
}
