#include "client/lib/session/due.h"

#include <poll.h>

#include "client/lib/objects/cached.h"
#include "client/lib/session/resume.h"
#include "client/lib/wire/flusher.h"
#include "client/lib/wire/loop.h"
#include "client/lib/wire/output.h"
#include "client/lib/wire/receive.h"
#include "client/lib/wire/release.h"

/* The flusher lets a client go after this many ticks with nothing to send; or after one, if it only
   looked at its cached leases. */
#define QUIET_TICKS_MAX 32

/* Takes the next step of a reconnect, and receives. The program runs its own callbacks. */
static void resume(struct gpubuf_client *client)
{
    if (client->polling.leader)
        return;
    (void)gb_resume_mend(client, -1);
    (void)gb_receive(client, true);
    gb_flush(client);
    if (client->deliveries.first)
        gb_loop_wake(client);
}

/* Whether the client's socket has that event: the connection's end, or input. */
static bool meets(const struct gpubuf_client *client, short event)
{
    struct pollfd socket = {.fd = client->conn.fd, .events = event};

    return poll(&socket, 1, 0) > 0;
}

/* Receives what came, and the connection's end, after which the link is down. While another thread
   leads, that one receives; it may leave with its answer before it meets the end, which stays noted
   in `hung_up`. */
static void receive_the_rest(struct gpubuf_client *client)
{
    client->end.hung_up =
        !client->end.lost.code && client->link == GB_LINK_UP && meets(client, POLLRDHUP);
    if (client->end.lost.code || client->link != GB_LINK_UP || client->polling.leader)
        return;
    (void)gb_receive(client, true);
    if (client->deliveries.first)
        gb_loop_wake(client);
}

bool gb_client_run_due(struct gpubuf_client *client, bool *down)
{
    pthread_mutex_lock(&client->lock);
    bool caches = gb_cached_begun(client);
    if (client->link != GB_LINK_UP)
        resume(client);
    else if (client->end.hung_up || (caches && !client->polling.leader && meets(client, POLLIN)))
        receive_the_rest(client);
    if (caches && client->link == GB_LINK_UP && !client->end.lost.code)
        gb_cached_sweep(client);
    bool working = gb_poll_gpus(client);
    bool waiting = client->link == GB_LINK_UP &&
                   (client->releases.count > 0 || client->imports.unmap_count > 0 ||
                    (gb_conn_has_output(&client->conn) && !client->end.write_failed));
    if (waiting && client->flush.overdue) {
        gb_flush_releases(client);
    } else {
        client->flush.overdue = waiting;
    }
    bool resuming = client->link != GB_LINK_UP || client->end.hung_up;
    client->flush.quiet_ticks = waiting || working || resuming ? 0 : client->flush.quiet_ticks + 1;
    bool engaged = (!client->end.lost.code || working) &&
                   client->flush.quiet_ticks < (client->flush.brief ? 1 : QUIET_TICKS_MAX);
    *down = *down && client->link == GB_LINK_DOWN && !working;
    client->flush.engaged = engaged;
    if (!engaged && caches)
        gb_flusher_listen(client);
    pthread_mutex_unlock(&client->lock);
    return engaged;
}
