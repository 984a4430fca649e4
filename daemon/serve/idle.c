#include "daemon/serve/idle.h"

#include <signal.h>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"
#include "daemon/config.h"

static void end_alone(struct gb_timer *timer)
{
    struct gb_server *server = GB_CONTAINER(timer, struct gb_server, alone);

    gb_log(GB_LOG_INFO, "stopping: no client connected for the time of --idle-exit",
           GB_LOG_NUMBER("idle_ms", server->config->idle_exit_ms),
           GB_LOG_NUMBER("objects", server->registry.objects));
    server->handles.stopped_by = SIGINT; /* for good: no new daemon takes the objects over */
    uv_stop(server->loop);
}

void gb_idle_watch(struct gb_server *server)
{
    uint64_t ms = server->config->idle_exit_ms;

    server->alone.fire = end_alone;
    if (ms == 0 || server->session_count > 0)
        gb_timer_cancel(&server->timers, &server->alone);
    else
        gb_timer_set(&server->timers, &server->alone, gb_now_ms() + ms);
}
