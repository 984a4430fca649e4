#include "client/lib/wire/enter.h"

#include "client/lib/wire/callback.h"
#include "client/lib/wire/report.h"

int gb_enter_lost(struct gpubuf_client *client)
{
    if (!client)
        return gb_report_text(NULL, GPUBUF_E_INVALID, "the client is NULL");
    if (gb_is_forked(client))
        return gb_report_text(client, GPUBUF_E_FORKED,
                              "the connection belongs to the parent process; connect anew");
    gb_client_retain(client);
    pthread_mutex_lock(&client->lock);
    (void)gb_poll_gpus(client);
    return 0;
}

int gb_enter(struct gpubuf_client *client)
{
    int r = gb_enter_lost(client);

    if (r < 0 || !client->end.lost.code)
        return r;
    r = gb_report(client, &client->end.lost);
    gb_leave(client);
    return r;
}

int gb_enter_blocking(struct gpubuf_client *client)
{
    if (client && gb_in_callback(client))
        return gb_report_text(client, GPUBUF_E_BUSY,
                              "a callback must not make a blocking call on its own client");
    return gb_enter(client);
}

void gb_leave(struct gpubuf_client *client)
{
    pthread_mutex_unlock(&client->lock);
    gb_client_release(client);
}
