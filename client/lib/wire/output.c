#include "client/lib/wire/output.h"

void gb_flush(struct gpubuf_client *client)
{
    if (client->end.lost.code || client->end.write_failed || !gb_conn_has_output(&client->conn))
        return;
    /* The daemon's last messages (replies, the reason) are still to be read, so the connection is
       only lost when reading ends. */
    if (gb_conn_flush(&client->conn) < 0)
        client->end.write_failed = true;
}

struct gb_writer *gb_notice_begin(struct gpubuf_client *client, const char *method)
{
    gb_writer_reset(&client->notice);
    gb_rpc_begin_notification(&client->notice, method, 0);
    return &client->notice;
}

bool gb_notice_queue(struct gpubuf_client *client)
{
    gb_rpc_end(&client->notice);
    return !client->notice.failed &&
           gb_conn_queue(&client->conn, client->notice.data, client->notice.length, NULL, 0) == 0;
}
