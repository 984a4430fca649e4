#include "client/lib/wire/link.h"

#include <sys/socket.h>

#include "client/lib/wire/loop.h"
#include "client/lib/wire/request.h"

void gb_client_doom(struct gpubuf_client *client, const struct gb_error *why)
{
    client->end.reason = *why;
    (void)shutdown(client->conn.fd, SHUT_RDWR); /* so that there is something to receive: its end */
}

void gb_client_lose(struct gpubuf_client *client, const struct gb_error *why)
{
    if (client->end.lost.code)
        return;
    if (client->link == GB_LINK_GREETING && why->code == GPUBUF_E_NO_MEMORY) {
        gb_client_doom(client, why);
        return;
    }
    client->end.lost = *why;
    client->hooks->lost(client);
    atomic_store(&client->ended, true);
    /* The descriptor stays until the program disconnects, since its event loop, or another thread's
       poll, may have it. */
    (void)shutdown(client->conn.fd, SHUT_RDWR);
    client->releases.count = 0;
    gb_request_end_all(client, why);
    gb_imports_abandon(&client->imports);
    gb_loop_wake(client);
    gb_client_changed(client);
}

void gb_client_lose_for(struct gpubuf_client *client, int code, const char *why)
{
    struct gb_error error;

    (void)gb_fail(&error, code, "%s", why);
    gb_client_lose(client, &error);
}
