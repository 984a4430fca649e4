#include "client/node/src/provide.h"

#include <stdlib.h>
#include <string.h>

#include "client/node/src/client.h"
#include "client/node/src/completion.h"
#include "client/node/src/values.h"
#include "client/node/src/watch.h"

static void on_wanted(struct gpubuf_client *client, const struct gpubuf_wanted *wanted, void *arg)
{
    const struct gb_watching *mine = arg;

    (void)client;
    (void)gb_complete_event(mine->client->addon,
                            &(struct gb_completion){
                                .type = GB_DONE_WANTED,
                                .id = mine->id,
                                .value = (double)wanted->request,
                                .text = wanted->ended ? NULL : gb_copy(wanted->name),
                                .uid = wanted->uid,
                                .gid = wanted->gid,
                            });
}

static void on_provided(struct gpubuf_client *client, int status, const char *text, size_t length,
                        void *arg)
{
    (void)text;
    (void)length;
    gb_watching_answered(client, status, 0, arg);
}

static int begin_provide(struct gpubuf_client *client, const char *prefix, struct gb_watching *mine,
                         uint64_t *request)
{
    return gpubuf_provide_async(client, prefix, on_wanted, on_provided, mine, request);
}

/* provide(client, id, prefix): a plain completion says whether the daemon has agreed; wanted names
   have the same id, and may come before that. */
napi_value gb_js_provide(napi_env env, napi_callback_info info)
{
    return gb_watching_begin(env, info, begin_provide);
}

/* provideEnd(client, prefix). The watching is freed with the client: a provider has its own. */
napi_value gb_js_provide_end(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gb_node_client *client = gb_client_at(addon, values[0]);
    char *prefix = NULL;

    if (!client || !gb_read_text(env, values[1], "the prefix", &prefix))
        return NULL;
    (void)gpubuf_provide_end(client->client, prefix);
    free(prefix);
    gb_client_poll(client);
    return NULL;
}

/* decline(client, request, error, message) */
napi_value gb_js_decline(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gb_node_client *client = gb_client_at(addon, values[0]);
    char *message = NULL;
    uint64_t request;
    double error;

    if (!client || !gb_read_index(env, values[1], "the request", &request) ||
        !gb_read_number(env, values[2], "the error", &error) ||
        !gb_read_text(env, values[3], "the message", &message))
        return NULL;
    int r = gpubuf_decline(client->client, request, (int)error, message);
    free(message);
    gb_client_poll(client);
    return r < 0 ? gb_throw(env, r, gpubuf_errmsg(client->client)) : NULL;
}
