#include "client/peer/local/local.h"

#include <poll.h>

static void dispatch(struct gb_peer_local *local)
{
    if (gpubuf_dispatch(local->client) < 0)
        local->lost(local->user);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    dispatch(poll->data);
}

/* The events to poll for may have changed in the callbacks of this turn. */
static void on_prepare(uv_prepare_t *prepare)
{
    struct gb_peer_local *local = prepare->data;
    short wanted = gpubuf_events(local->client);
    int events = (wanted & POLLIN ? UV_READABLE : 0) | (wanted & POLLOUT ? UV_WRITABLE : 0);

    if (events == local->events)
        return;
    local->events = events;
    (void)uv_poll_start(&local->poll, events, on_poll);
}

int gb_peer_local_start(struct gb_peer_local *local, uv_loop_t *loop)
{
    int r = uv_poll_init(loop, &local->poll, gpubuf_fd(local->client));

    if (r < 0)
        return r;
    (void)uv_prepare_init(loop, &local->prepare); /* cannot fail */
    local->poll.data = local->prepare.data = local;
    return uv_prepare_start(&local->prepare, on_prepare);
}

void gb_peer_local_stop(struct gb_peer_local *local)
{
    uv_close((uv_handle_t *)&local->poll, NULL);
    uv_close((uv_handle_t *)&local->prepare, NULL);
}
