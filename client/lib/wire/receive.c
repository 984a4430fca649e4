#include "client/lib/wire/receive.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "client/lib/base/clock.h"
#include "client/lib/wire/link.h"
#include "client/lib/wire/release.h"
#include "client/lib/wire/request.h"

#define RECEIVES_MAX 64    /* in one gpubuf_dispatch, so that it returns even under a flood */
#define LOOK_US 30         /* how long to poll for an answer before sleeping */
#define LOOK_MISSES_MAX 10 /* at most 1023 times in a row without polling */

static void handle_reply(struct gpubuf_client *client, const struct gb_rpc_message *message,
                         int *fds)
{
    struct gb_request *request = gb_request_find(client, message->id);

    if (!request || request->ended) {
        gb_client_lose_for(client, GPUBUF_E_PROTOCOL,
                           "the daemon answered a request that was not made");
        return;
    }

    struct gb_error error = {.code = 0}, refused;
    struct gb_reply reply = {
        .result = message->result, .fds = fds, .fd_count = (unsigned)message->fds};
    int status = 0;
    if (message->error.text) {
        status = gb_rpc_read_error(message->error, &client->pool, &refused);
        if (status >= 0)
            status =
                gb_fail(&refused, GPUBUF_E_PROTOCOL, "the daemon sent an error without a code");
        refused.code = status;
        reply.refused = &refused;
        reply.error = message->error;
        error = refused;
    }

    request->again = false;
    if (request->type->reply && status != GPUBUF_E_PROTOCOL)
        status = request->type->reply(request, &reply, &error);
    if (client->end.lost.code || request->again)
        return;
    gb_request_end(request, status, &error);
    if (status == GPUBUF_E_PROTOCOL)
        gb_client_lose(client, &error);
}

static void handle_retire(struct gpubuf_client *client, struct gb_json params)
{
    struct gb_json segments = {NULL, 0};
    static const struct gb_field fields[] = {
        {.name = "segments", .type = GB_FIELD_ARRAY, .flags = GB_FIELD_REQUIRED},
    };
    struct gb_path path = {.key = "params"};
    struct gb_error error;

    if (gb_json_read(params, fields, 1, GB_UNKNOWN_IGNORE, &path, &client->pool, &segments, NULL,
                     &error) < 0) {
        gb_client_lose_for(client, GPUBUF_E_PROTOCOL,
                           "the daemon sent a malformed segments.retire");
        return;
    }

    struct gb_json_walk walk = gb_json_walk(segments);
    struct gb_json key, item;
    while (gb_json_next(&walk, &key, &item)) {
        uint64_t segment;
        if (gb_json_uint(item, 0, GB_LIMIT(integer), &path, &segment, &error) < 0)
            continue;
        gb_imports_retire(&client->imports, segment);
        client->hooks->retire(client, segment);
    }
    gb_flush_releases(client);
}

/* The connection ends when the daemon closes it; until then it may still answer. */
static void handle_shutdown(struct gpubuf_client *client, struct gb_json params)
{
    struct farewell {
        struct gb_string reason;
        bool resume;
    } farewell = {{NULL, 0}, false};
    static const struct gb_field fields[] = {
        GB_FIELD(struct farewell, reason, GB_FIELD_STRING, 0, 0, 0),
        GB_FIELD(struct farewell, resume, GB_FIELD_BOOL, 0, 0, 0),
    };
    if (gb_json_read(params, fields, 2, GB_UNKNOWN_IGNORE, NULL, &client->pool, &farewell, NULL,
                     NULL) < 0 ||
        !farewell.reason.text)
        farewell.reason.text = "no reason given";
    if (!farewell.resume)
        (void)gb_fail(&client->end.farewell, GPUBUF_E_CLOSED, "%s", farewell.reason.text);
}

/* An error that answers no request is said in place of a session: the daemon hangs up after it. */
static void handle_refusal(struct gpubuf_client *client, const struct gb_rpc_message *message)
{
    struct gb_error why;
    int code = gb_rpc_read_error(message->error, &client->pool, &why);

    if (code < 0) {
        why.code = code;
        gb_client_doom(client, &why);
    }
}

static void handle_notification(struct gpubuf_client *client, const struct gb_rpc_message *message)
{
    struct gb_json params = message->params;

    if (!message->method.text || !params.text || gb_json_type(params) != GB_JSON_OBJECT)
        return;
    if (strcmp(message->method.text, "event") == 0)
        client->hooks->event(client, params);
    else if (strcmp(message->method.text, "wanted") == 0)
        client->hooks->wanted(client, params, false);
    else if (strcmp(message->method.text, "unwanted") == 0)
        client->hooks->wanted(client, params, true);
    else if (strcmp(message->method.text, "segments.retire") == 0)
        handle_retire(client, params);
    else if (strcmp(message->method.text, "leases.recall") == 0)
        client->hooks->recall(client, params);
    else if (strcmp(message->method.text, "shutdown") == 0)
        handle_shutdown(client, params);
    /* Later versions may have other notifications. */
}

static void handle_line(struct gpubuf_client *client, const char *line, size_t length)
{
    struct gb_rpc_message message;
    struct gb_error error;
    int fds[GB_LIMIT(fds)];

    gb_pool_reset(&client->pool);
    if (gb_rpc_read_message(line, length, &client->pool, &message, &error) < 0) {
        if (error.code != GPUBUF_E_NO_MEMORY)
            error.code = GPUBUF_E_PROTOCOL;
        gb_client_lose(client, &error);
        return;
    }
    if (message.fds > GB_LIMIT(fds) ||
        gb_frame_take_fds(&client->conn.in, fds, (unsigned)message.fds) < 0) {
        gb_client_lose_for(client, GPUBUF_E_PROTOCOL,
                           "the daemon sent fewer descriptors than it announced");
        return;
    }

    if (message.id)
        handle_reply(client, &message, fds);
    else if (message.error.text)
        handle_refusal(client, &message);
    else
        handle_notification(client, &message);
    for (unsigned i = 0; i < message.fds; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

/*
 * Whether the bytes just received are one more part of a long line; they then stay where they are.
 * An answer about a thousand objects has some hundred KiB and comes in several parts. So it is put
 * together in the receive buffer itself, and not copied.
 */
static bool is_part(struct gpubuf_client *client, size_t received)
{
    const char *part = client->input + client->input_part;

    if (gb_frame_is_partial(&client->conn.in) || memchr(part, '\n', received) ||
        client->input_part + received == GB_INPUT_BYTES)
        return false;
    client->input_part += received;
    return true;
}

/* Receives once; only the leader may without the lock. */
static ssize_t receive(struct gpubuf_client *client)
{
    return gb_conn_receive(&client->conn, client->input + client->input_part,
                           GB_INPUT_BYTES - client->input_part);
}

/* Handles the bytes received, or the reason why there are none. Returns the number of messages, or
   GPUBUF_E_AGAIN if nothing is there. */
static int handle_received(struct gpubuf_client *client, ssize_t received)
{
    struct gb_conn *conn = &client->conn;

    if (received == GPUBUF_E_AGAIN)
        return GPUBUF_E_AGAIN;
    if (client->end.reason.code) {
        struct gb_error why = client->end.reason;
        client->hooks->broken(client, &why);
        return 0;
    }
    if (received == 0) {
        struct gb_error error;
        (void)gb_fail(&error, GPUBUF_E_CLOSED, "the daemon has closed the connection%s%s",
                      client->end.farewell.code ? ": " : "", client->end.farewell.message);
        client->hooks->broken(client, &error);
        return 0;
    }
    if (received == GPUBUF_E_PROTOCOL || received == GPUBUF_E_LIMIT) {
        gb_client_lose_for(client, GPUBUF_E_PROTOCOL,
                           "descriptors from the daemon were lost or too many");
        return 0;
    }
    if (received < 0) {
        struct gb_error error;
        (void)gb_fail_errno(&error, "the connection to the daemon failed");
        error.code = received == GPUBUF_E_NO_MEMORY ? GPUBUF_E_NO_MEMORY : GPUBUF_E_CLOSED;
        gb_client_lose(client, &error);
        return 0;
    }

    if (is_part(client, (size_t)received))
        return 0;

    int handled = 0, r;
    const char *line;
    size_t length;
    gb_frame_begin(&conn->in, client->input, client->input_part + (size_t)received);
    client->input_part = 0;
    while ((r = gb_frame_next(&conn->in, &line, &length)) == 1 && !client->end.lost.code) {
        handle_line(client, line, length);
        handled++;
        if (client->end.reason.code)
            return handled;
    }
    if (r == 0)
        r = gb_frame_finish(&conn->in);
    if (r == GPUBUF_E_NO_MEMORY)
        gb_client_lose_for(client, GPUBUF_E_NO_MEMORY, "out of memory");
    else if (r < 0)
        gb_client_lose_for(client, GPUBUF_E_PROTOCOL, "the daemon sent a line that is too long");
    /* Descriptors come with the first byte of their message, so none may be left over. */
    else if (conn->in.fd_count > 0 && !gb_frame_is_partial(&conn->in))
        gb_client_lose_for(client, GPUBUF_E_PROTOCOL,
                           "the daemon sent more descriptors than it announced");
    return handled;
}

int gb_receive(struct gpubuf_client *client, bool all)
{
    int handled = 0;

    for (int i = 0; i < (all ? RECEIVES_MAX : 1) && !client->end.lost.code; i++) {
        if (client->link == GB_LINK_DOWN)
            break;
        int r = handle_received(client, receive(client));
        if (r == GPUBUF_E_AGAIN)
            break;
        handled += r;
        if (client->conn.drained)
            break; /* the next poll reports later input */
    }
    return handled;
}

bool gb_receive_soon(struct gpubuf_client *client)
{
    if (client->polling.pause > 0) {
        client->polling.pause--;
        return false;
    }
    pthread_mutex_unlock(&client->lock);
    int64_t until = gb_now_us() + LOOK_US;
    ssize_t received;
    while ((received = receive(client)) == GPUBUF_E_AGAIN && gb_now_us() < until)
        (void)sched_yield();
    pthread_mutex_lock(&client->lock);
    if (received == GPUBUF_E_AGAIN) {
        client->polling.misses += client->polling.misses < LOOK_MISSES_MAX;
        client->polling.pause = (1u << client->polling.misses) - 1;
        return false;
    }
    client->polling.misses = 0;
    if (!client->end.lost.code)
        (void)handle_received(client, received);
    return true;
}
