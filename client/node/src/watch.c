#include "client/node/src/watch.h"

#include <stdlib.h>

#include "client/node/src/client.h"
#include "client/node/src/completion.h"
#include "client/node/src/request.h"
#include "client/node/src/values.h"

napi_value gb_watching_begin(napi_env env, napi_callback_info info, gb_watching_begin_fn *begin)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gb_node_client *client = gb_client_at(addon, values[0]);
    char *prefix = NULL;
    double id;

    if (!client || !gb_read_number(env, values[1], "the id", &id) ||
        !gb_read_text(env, values[2], "the prefix", &prefix))
        return NULL;
    struct gb_watching *watch = calloc(1, sizeof(*watch));
    uint64_t request = 0;
    int r = GPUBUF_E_NO_MEMORY;
    if (watch && gb_reserve(addon)) {
        *watch = (struct gb_watching){.client = client, .id = id};
        gb_watching_add(watch);
        r = begin(client->client, prefix, watch, &request);
        if (r < 0) {
            gb_unreserve(addon);
            gb_watching_remove(watch);
        }
    } else {
        free(watch);
    }
    free(prefix);
    return gb_begun(env, client, NULL, r, request);
}

static void on_event(struct gpubuf_client *client, const char *kind, const struct gpubuf_info *info,
                     void *arg)
{
    struct gb_watching *watch = arg;

    (void)client;
    struct gb_completion event = {
        .type = GB_DONE_EVENT,
        .id = watch->id,
        .value = (double)watch->lost,
        .text = gb_copy(kind),
    };
    if (info) {
        event.info = malloc(sizeof(*info));
        if (event.info)
            *event.info = *info;
    }
    bool told = event.text && (event.info || !info);
    if (told)
        told = gb_complete_event(watch->client->addon, &event);
    else
        gb_completion_drop(&event);
    watch->lost = told ? 0 : watch->lost + 1;
}

static void on_watch(struct gpubuf_client *client, int status, uint64_t number, void *arg)
{
    gb_watching_answered(client, status, number, arg);
}

static int begin_watch(struct gpubuf_client *client, const char *prefix, struct gb_watching *watch,
                       uint64_t *request)
{
    return gpubuf_watch_async(client, prefix, on_event, on_watch, watch, request);
}

/* watch(client, id, prefix): the completion brings the watch's number; events have the same id. */
napi_value gb_js_watch(napi_env env, napi_callback_info info)
{
    return gb_watching_begin(env, info, begin_watch);
}

/* unwatch(client, number) */
napi_value gb_js_unwatch(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gb_node_client *client = gb_client_at(addon, values[0]);
    uint64_t number;

    if (!client || !gb_read_index(env, values[1], "the watch", &number))
        return NULL;
    (void)gpubuf_unwatch(client->client, number); /* the daemon may have ended it already */
    struct gb_watching *watch = number ? gb_watching_find(client, number) : NULL;
    if (watch)
        gb_watching_remove(watch);
    gb_client_poll(client);
    return NULL;
}
