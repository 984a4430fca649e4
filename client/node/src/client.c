/* Connections. A thread of libuv's pool makes them, since connecting waits; then the loop polls
   them. */
#include "client/node/src/client.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/objects/pinned.h"
#include "client/lib/wire/gather.h"
#include "client/node/src/completion.h"
#include "client/node/src/deliver.h"
#include "client/node/src/values.h"
#include "client/node/src/watching.h"

struct connecting {
    struct gb_addon *addon;
    napi_async_work work;
    double id;
    char *path, *name;
    double timeout_ms, cache_bytes, resume_ms; /* resume_ms 0: not at all */
    double cache_leases;
    struct gpubuf_client *client;
    int status;
    char *message;
};

struct gb_node_client *gb_client_at(struct gb_addon *addon, napi_value value)
{
    uint64_t i;

    if (!gb_read_index(addon->env, value, "the client", &i))
        return NULL;
    if (i >= addon->client_count || !addon->clients[i]) {
        (void)gb_throw(addon->env, GPUBUF_E_CLOSED, "the client is closed");
        return NULL;
    }
    return addon->clients[i];
}

/* ---- polling ---- */

static void on_poll(uv_poll_t *poll, int status, int events);

static int uv_events(short events)
{
    return (events & POLLIN ? UV_READABLE : 0) | (events & POLLOUT ? UV_WRITABLE : 0);
}

void gb_client_poll(struct gb_node_client *client)
{
    struct gb_addon *addon = client->addon;

    client->gathered = true;
    if (!uv_is_active((uv_handle_t *)&addon->before_wait))
        (void)uv_prepare_start(&addon->before_wait, addon->turn);
}

/* The events to poll for may have changed. */
static void poll_anew(struct gb_node_client *client)
{
    int events = uv_events(gpubuf_events(client->client));

    if (client->events == 0 || events == client->events)
        return;
    if (uv_poll_start(&client->poll, events, on_poll) == 0)
        client->events = events;
}

void gb_client_send(struct gb_node_client *client)
{
    if (!client->client || !client->gathered)
        return;
    client->gathered = false;
    gb_send_gathered(client->client);
    poll_anew(client);
}

bool gb_client_receive(struct gb_node_client *client)
{
    struct gb_addon *addon = client->addon;
    int r = gpubuf_dispatch(client->client);
    uint64_t connections = gb_connections(client->client);

    if (connections != client->connections)
        (void)gb_complete_event(addon, &(struct gb_completion){
                                           .type = GB_DONE_CLIENT,
                                           .id = client->id,
                                           .text = gb_copy(gpubuf_instance(client->client)),
                                       });
    client->connections = connections;
    if (r == 0 && !gb_has_completions(addon))
        return false;
    if (r < 0 && !client->lost) {
        (void)uv_poll_stop(&client->poll);
        client->events = 0;
        client->lost = true;
        gb_complete(addon, &(struct gb_completion){
                               .type = GB_DONE_LOST,
                               .id = client->id,
                               .status = r,
                               .text = gb_copy(gpubuf_errmsg(client->client)),
                           });
    }
    gb_deliver_from_loop(addon); /* may close the client */
    return true;
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct gb_node_client *client = poll->data;
    struct gb_addon *addon = client->addon;
    size_t index = client->index;

    (void)status;
    (void)events;
    if (!client->client)
        return;
    (void)gb_client_receive(client);
    if (!addon->closing && addon->clients[index] == client && !client->gathered)
        poll_anew(client);
}

static void on_poll_closed(uv_handle_t *handle)
{
    struct gb_node_client *client = handle->data;
    struct gb_addon *addon = client->addon;

    free(client);
    gb_handle_closed(addon);
}

void gb_client_close(struct gb_node_client *client)
{
    struct gpubuf_client *inner = client->client;

    client->addon->clients[client->index] = NULL;
    client->client = NULL;
    if (!client->lost)
        gb_unreserve(client->addon);
    (void)uv_poll_stop(&client->poll); /* before the descriptor is closed */
    gb_send_gathered(inner);           /* the daemon still serves these requests */
    gpubuf_disconnect(inner);
    gb_watches_free(client);
    gb_staging_trim(); /* pinned memory keeps the GPU's context */
    uv_close((uv_handle_t *)&client->poll, on_poll_closed);
}

/* ---- connecting ---- */

static void connecting_free(struct connecting *connecting)
{
    free(connecting->path);
    free(connecting->name);
    free(connecting->message);
    free(connecting);
}

static void connect_execute(napi_env env, void *data)
{
    struct connecting *connecting = data;
    struct gpubuf_connect_options options = {
        .size = sizeof(options),
        .path = connecting->path,
        .client_name = connecting->name,
        .timeout_ms = (int)connecting->timeout_ms,
        .cache_bytes = (uint64_t)connecting->cache_bytes,
        .resume_ms = connecting->resume_ms > 0 ? (int)connecting->resume_ms : GPUBUF_NO_RESUME,
        .cache_leases =
            connecting->cache_leases > 0 ? (int)connecting->cache_leases : GPUBUF_NO_CACHE,
    };

    (void)env;
    connecting->status = gpubuf_connect(&connecting->client, &options);
    if (connecting->status < 0)
        connecting->message = gb_copy(gpubuf_errmsg(NULL));
}

/* Gives a connected client an index in the table and a poll handle; NULL without memory. */
static struct gb_node_client *adopt(struct gb_addon *addon, struct gpubuf_client *inner)
{
    size_t i = 0;

    while (i < addon->client_count && addon->clients[i])
        i++;
    if (i == addon->client_count) {
        struct gb_node_client **clients =
            realloc((void *)addon->clients, (i + 1) * sizeof(*addon->clients));
        if (!clients)
            return NULL;
        clients[i] = NULL;
        addon->clients = clients;
        addon->client_count = i + 1;
    }
    struct gb_node_client *client = calloc(1, sizeof(*client));
    if (!client || !gb_reserve(addon)) { /* for the loss of the connection */
        free(client);
        return NULL;
    }
    if (uv_poll_init(addon->loop, &client->poll, gpubuf_fd(inner)) != 0) {
        gb_unreserve(addon);
        free(client);
        return NULL;
    }
    client->addon = addon;
    client->client = inner;
    client->index = i;
    client->poll.data = client;
    addon->handles++;
    addon->references++;
    addon->clients[i] = client;
    client->connections = gb_connections(inner);
    gb_gather_requests(inner);
    client->events = uv_events(gpubuf_events(inner));
    (void)uv_poll_start(&client->poll, client->events, on_poll);
    uv_unref((uv_handle_t *)&client->poll);
    return client;
}

static void connect_complete(napi_env env, napi_status status, void *data)
{
    struct connecting *connecting = data;
    struct gb_addon *addon = connecting->addon;

    (void)napi_delete_async_work(env, connecting->work);
    if (status != napi_ok || addon->closing) {
        gb_unreserve(addon);
        gpubuf_disconnect(connecting->client);
        connecting_free(connecting);
        gb_addon_release(addon);
        return;
    }
    struct gb_completion completion = {
        .type = GB_DONE_CLIENT, .id = connecting->id, .status = connecting->status};
    if (connecting->status >= 0) {
        struct gb_node_client *client = adopt(addon, connecting->client);
        if (client) {
            client->id = connecting->id;
            completion.value = (double)client->index;
            completion.text = gb_copy(gpubuf_instance(connecting->client));
        } else {
            gpubuf_disconnect(connecting->client);
            completion.status = GPUBUF_E_NO_MEMORY;
        }
    } else {
        completion.text = gb_copy(connecting->message);
    }
    connecting_free(connecting);
    gb_complete(addon, &completion);
    gb_deliver_from_call(addon); /* a work's completion is a callback already */
    gb_addon_release(addon);
}

/* connect(id, path, name, timeoutMs, cacheBytes, resumeMs, cacheLeases) */
napi_value gb_js_connect(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX], name;
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct connecting *connecting = calloc(1, sizeof(*connecting));

    if (!connecting)
        return gb_throw_memory(env);
    connecting->addon = addon;
    if (!gb_read_number(env, values[0], "the id", &connecting->id) ||
        !gb_read_text(env, values[1], "the path", &connecting->path) ||
        !gb_read_text(env, values[2], "the client's name", &connecting->name) ||
        !gb_read_number(env, values[3], "the timeout", &connecting->timeout_ms) ||
        !gb_read_number(env, values[4], "cacheBytes", &connecting->cache_bytes) ||
        !gb_read_number(env, values[5], "the time to resume", &connecting->resume_ms) ||
        !gb_read_number(env, values[6], "cacheLeases", &connecting->cache_leases)) {
        connecting_free(connecting);
        return NULL;
    }
    if (napi_create_string_utf8(env, "gpubufd.connect", NAPI_AUTO_LENGTH, &name) != napi_ok ||
        napi_create_async_work(env, NULL, name, connect_execute, connect_complete, connecting,
                               &connecting->work) != napi_ok) {
        connecting_free(connecting);
        return gb_throw_memory(env);
    }
    if (!gb_reserve(addon)) {
        (void)napi_delete_async_work(env, connecting->work);
        connecting_free(connecting);
        return gb_throw_memory(env);
    }
    addon->references++;
    if (napi_queue_async_work(env, connecting->work) != napi_ok) {
        gb_unreserve(addon);
        (void)napi_delete_async_work(env, connecting->work);
        connecting_free(connecting);
        gb_addon_release(addon);
        return gb_throw(env, GPUBUF_E_INTERNAL, "cannot queue work");
    }
    return NULL;
}

/* close(client): requests under way end before this returns. */
napi_value gb_js_close(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gb_node_client *client = gb_client_at(addon, values[0]);

    if (!client)
        return NULL;
    gb_client_close(client);
    gb_deliver_from_call(addon);
    return NULL;
}

/* reference(client, whether): whether its requests under way keep the process alive */
napi_value gb_js_reference(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gb_node_client *client = gb_client_at(addon, values[0]);

    if (!client)
        return NULL;
    bool wanted = gb_read_flag(env, values[1]);
    if (wanted && !client->referenced)
        uv_ref((uv_handle_t *)&client->poll);
    else if (!wanted && client->referenced)
        uv_unref((uv_handle_t *)&client->poll);
    client->referenced = wanted;
    return NULL;
}
