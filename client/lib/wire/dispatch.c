/* The calls for a program with an event loop of its own. */
#include "client/lib/wire/enter.h"
#include "client/lib/wire/gather.h"
#include "client/lib/wire/loop.h"
#include "client/lib/wire/output.h"
#include "client/lib/wire/receive.h"
#include "client/lib/wire/release.h"
#include "client/lib/wire/report.h"
#include "client/lib/wire/request.h"

void gb_gather_requests(struct gpubuf_client *client)
{
    pthread_mutex_lock(&client->lock);
    client->requests.gather = true;
    pthread_mutex_unlock(&client->lock);
}

uint64_t gb_connections(const struct gpubuf_client *client)
{
    return atomic_load(&client->connections);
}

void gb_send_gathered(struct gpubuf_client *client)
{
    pthread_mutex_lock(&client->lock);
    gb_flush(client);
    pthread_mutex_unlock(&client->lock);
}

/* Sends and receives what can be; returns how many messages came. */
static int exchange(struct gpubuf_client *client)
{
    int handled = 0;

    if (client->link != GB_LINK_UP && !client->polling.leader)
        (void)client->hooks->mend(client, -1);
    gb_flush_releases(client);
    /* A leader, in a blocking call, is woken by the same input and handles it. If the input were
       received here, the leader would continue polling. */
    if (!client->polling.leader)
        handled = gb_receive(client, true);
    gb_flush(client);
    return handled;
}

int gpubuf_dispatch(struct gpubuf_client *client)
{
    int handled = gb_enter_lost(client);

    if (handled < 0)
        return handled;
    gb_loop_clear(client);
    if (!client->end.lost.code)
        handled = exchange(client);
    /* A callback may open a cached lease, and so on for ever: the next dispatch, for which the
       program's loop is woken, continues. If descriptors have run out nothing would wake it. */
    gb_deliver(client, client->loop.set < 0);
    if (client->end.lost.code)
        handled = gb_report(client, &client->end.lost);
    gb_leave(client);
    return handled;
}

int gpubuf_cancel(struct gpubuf_client *client, uint64_t id)
{
    int r = gb_enter(client);

    if (r < 0)
        return r;
    struct gb_request *request = gb_request_find(client, id);
    if (!request || request->waited || request->canceled) {
        r = gb_report_text(client, GPUBUF_E_NOT_FOUND, "no such request is under way");
        gb_leave(client);
        return r;
    }

    if (request->ended) {
        gb_unqueue_delivery(client, &request->delivery);
        if (request->type->discard)
            request->type->discard(request);
        gb_request_remove(request);
        gb_flush_releases(client);
    }
    /* Another thread may receive the reply while the callback runs. */
    request->canceled = request->held = true;
    struct gb_error why;
    (void)gb_fail(&why, GPUBUF_E_CANCELED, "the request was canceled");
    gb_request_run_callback(request, why.code, &why);
    request->held = false;
    if (request->ended)
        request->type->free(request);
    gb_leave(client);
    return 0;
}
