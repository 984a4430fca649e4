#include "client/node/src/request.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/objects/open.h"
#include "client/node/src/completion.h"
#include "client/node/src/copy.h"
#include "client/node/src/deliver.h"
#include "client/node/src/table.h"
#include "client/node/src/values.h"

struct gb_pending {
    struct gb_node_client *client; /* it outlives its requests */
    double id;                     /* JavaScript's */
};

struct gb_pending *gb_pending_new(struct gb_node_client *client, napi_value id)
{
    napi_env env = client->addon->env;
    double number;

    if (!gb_read_number(env, id, "the id", &number))
        return NULL;
    struct gb_pending *pending = malloc(sizeof(*pending));
    if (!pending || !gb_reserve(client->addon)) {
        free(pending);
        (void)gb_throw_memory(env);
        return NULL;
    }
    *pending = (struct gb_pending){client, number};
    return pending;
}

/* Ends one whose request has not begun. */
static void pending_free(struct gb_pending *pending)
{
    if (pending)
        gb_unreserve(pending->client->addon);
    free(pending);
}

/* The end of a request. */
static void pending_complete(struct gb_pending *pending, const struct gb_completion *completion)
{
    pending->client->expected--;
    gb_complete(pending->client->addon, completion);
    free(pending);
}

napi_value gb_begun(napi_env env, struct gb_node_client *client, struct gb_pending *pending, int r,
                    uint64_t request)
{
    if (r < 0) {
        pending_free(pending);
        return gb_throw(env, r, gpubuf_errmsg(client->client));
    }
    client->expected += pending != NULL;
    gb_client_poll(client);
    return gb_number(env, (double)request);
}

static char *failure_text(const struct gpubuf_client *client, int status)
{
    return status < 0 ? gb_copy(gpubuf_errmsg(client)) : NULL;
}

void gb_on_object(struct gpubuf_client *client, int status, struct gpubuf_object *object, void *arg)
{
    struct gb_pending *pending = arg;

    pending_complete(pending, &(struct gb_completion){
                                  .type = GB_DONE_OBJECT,
                                  .id = pending->id,
                                  .status = status,
                                  .object = object,
                                  .text = failure_text(client, status),
                              });
}

/* ---- open ---- */

static bool read_open_options(napi_env env, napi_value version, napi_value wait,
                              struct gpubuf_open_options *options)
{
    uint64_t wait_ms;

    *options = (struct gpubuf_open_options){.size = sizeof(*options)};
    if (!gb_read_index(env, version, "the version", &options->version) ||
        !gb_read_index(env, wait, "the timeout", &wait_ms))
        return false;
    options->wait_ms = (int64_t)wait_ms;
    return true;
}

/* Reads a name or a label. The array has about twice the room of a valid one, so that a truncated
   string is still too long for the library. False after throwing. */
static bool read_short(napi_env env, napi_value value, const char *what, char text[512])
{
    size_t length;
    char message[64];

    if (napi_get_value_string_utf8(env, value, text, 512, &length) != napi_ok)
        (void)snprintf(message, sizeof(message), "%s is not a string", what);
    else if (strlen(text) != length)
        (void)snprintf(message, sizeof(message), "%s has a NUL inside", what);
    else
        return true;
    (void)napi_throw_type_error(env, NULL, message);
    return false;
}

/* open(client, id, name, version, waitMs, label, write, exclusive) */
napi_value gb_js_open(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gb_node_client *client = gb_client_at(addon, values[0]);
    struct gpubuf_open_options options;
    char name[512], label[512];

    if (!client || !read_open_options(env, values[3], values[4], &options) ||
        !read_short(env, values[2], "the name", name))
        return NULL;
    if (!gb_is_absent(env, values[5])) {
        if (!read_short(env, values[5], "the label", label))
            return NULL;
        options.label = label;
    }
    options.write = gb_read_flag(env, values[6]);
    options.exclusive = gb_read_flag(env, values[7]);
    struct gb_pending *pending = gb_pending_new(client, values[1]);
    if (!pending)
        return NULL;
    uint64_t request = 0;
    int r = gpubuf_open_async(client->client, name, &options, gb_on_object, pending, &request);
    return gb_begun(env, client, pending, r, request);
}

/* openCached(client, name): the object's index times 8, plus its kind, if a cached lease holds what
   the name means, and in the first record that lease's number; else -1 */
napi_value gb_js_open_cached(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gb_node_client *client = gb_client_at(addon, values[0]);
    char name[512];

    if (!client || !read_short(env, values[1], "the name", name))
        return NULL;
    uint64_t lease = 0;
    struct gpubuf_object *object = gb_open_cached(client->client, name, &lease);
    addon->records[0] = (double)lease;
    return gb_number(env, object ? gb_object_number(addon, object) : -1);
}

static void on_objects(struct gpubuf_client *client, int status,
                       struct gpubuf_object *const *objects, const int *errors, size_t count,
                       void *arg)
{
    struct gb_pending *pending = arg;
    struct gb_completion completion = {
        .type = GB_DONE_MANY,
        .id = pending->id,
        .status = status,
        .text = failure_text(client, status),
    };

    if (status >= 0) {
        completion.count = count;
        completion.objects = malloc(count * sizeof(*objects));
        completion.errors = malloc(count * sizeof(*errors));
        if (completion.objects && completion.errors) {
            memcpy((void *)completion.objects, (const void *)objects, count * sizeof(*objects));
            memcpy(completion.errors, errors, count * sizeof(*errors));
        } else {
            free((void *)completion.objects);
            free(completion.errors);
            completion.objects = NULL;
            completion.errors = NULL;
            completion.status = GPUBUF_E_NO_MEMORY;
            gpubuf_release_many(objects, count);
        }
    }
    pending_complete(pending, &completion);
}

/* openMany(client, id, names, waitMs) */
napi_value gb_js_open_many(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX], zero = gb_number(env, 0);
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gb_node_client *client = gb_client_at(addon, values[0]);
    struct gpubuf_open_options options;

    if (!client || !read_open_options(env, zero, values[3], &options))
        return NULL;
    uint32_t count = gb_array_length(env, values[2]);
    char **names = calloc((size_t)count + 1, sizeof(*names));
    struct gb_pending *pending = names ? gb_pending_new(client, values[1]) : NULL;
    napi_value result = NULL;
    uint32_t i = 0;
    if (!names)
        (void)gb_throw_memory(env);
    for (; pending && i < count; i++) {
        napi_value name;
        if (napi_get_element(env, values[2], i, &name) != napi_ok ||
            !gb_read_text(env, name, "a name", &names[i]))
            break;
    }
    if (pending && i < count) {
        pending_free(pending);
    } else if (pending) {
        uint64_t request = 0;
        int r = gpubuf_open_many_async(client->client, (const char *const *)names, count, &options,
                                       on_objects, pending, &request);
        result = gb_begun(env, client, pending, r, request);
    }
    for (uint32_t k = 0; names && k < count; k++)
        free(names[k]);
    free((void *)names);
    return result;
}

/* ---- any method ---- */

static void on_result(struct gpubuf_client *client, int status, const char *result, size_t length,
                      void *arg)
{
    struct gb_pending *pending = arg;

    (void)length;
    pending_complete(pending,
                     &(struct gb_completion){
                         .type = GB_DONE_TEXT,
                         .id = pending->id,
                         .status = status,
                         .text = status < 0 ? failure_text(client, status) : gb_copy(result),
                     });
}

/* call(client, id, method, params as JSON) */
napi_value gb_js_call(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX], result = NULL;
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gb_node_client *client = gb_client_at(addon, values[0]);
    char *method = NULL, *params = NULL;
    struct gb_pending *pending = NULL;

    if (client && gb_read_text(env, values[2], "the method", &method) &&
        gb_read_text(env, values[3], "the params", &params))
        pending = gb_pending_new(client, values[1]);
    if (pending) {
        uint64_t request = 0;
        int r = gpubuf_call_async(client->client, method, params, on_result, pending, &request);
        result = gb_begun(env, client, pending, r, request);
    }
    free(method);
    free(params);
    return result;
}

/* cancel(client, request): its completion is delivered before this returns. */
napi_value gb_js_cancel(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX], result = NULL;
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gb_node_client *client = gb_client_at(addon, values[0]);
    uint64_t request;

    if (!client || !gb_read_index(env, values[1], "the request", &request))
        return NULL;
    bool canceled = gpubuf_cancel(client->client, request) == 0;
    gb_client_poll(client);
    gb_deliver_from_call(addon);
    (void)napi_get_boolean(env, canceled, &result);
    return result;
}

/* ---- seal ---- */

static void on_sealed(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                      void *arg)
{
    struct gb_pending *pending = arg;

    pending_complete(pending, &(struct gb_completion){
                                  .type = GB_DONE_PLAIN,
                                  .id = pending->id,
                                  .status = status,
                                  .value = status < 0 ? 0 : (double)gpubuf_object_version(object),
                                  .text = failure_text(client, status),
                              });
    gpubuf_release(object); /* JavaScript has its own reference */
}

/* False after an exception. */
static bool set_label(napi_env env, struct gpubuf_object *object, napi_value text, napi_value keep)
{
    char label[512];
    double number;
    bool absent = gb_is_absent(env, text);

    if ((!absent && !read_short(env, text, "the label", label)) ||
        !gb_read_number(env, keep, "keep", &number))
        return false;
    if (absent && number < 0)
        return true;
    int r = gpubuf_set_label(object, absent ? NULL : label, number > 8 ? 9 : (int)number);
    if (r < 0)
        (void)gb_throw(env, r, gpubuf_object_errmsg(object));
    return r >= 0;
}

/* seal(client, id, object, null counts or undefined, label or undefined, keep or -1, stream or
   undefined) */
napi_value gb_js_seal(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX], result = NULL;
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gb_node_client *client = gb_client_at(addon, values[0]);
    struct gpubuf_object *object = client ? gb_object_at(addon, values[2], NULL) : NULL;
    void *stream;

    if (!object || !gb_read_stream(env, values[6], &stream))
        return NULL;
    uint32_t count = gb_array_length(env, values[3]);
    size_t expected = gpubuf_kind(object) == GPUBUF_KIND_TABLE ? gpubuf_child_count(object) : 1;
    int64_t *counts = NULL;
    if (count > 0 && count != expected) {
        (void)napi_throw_type_error(env, NULL, "nullCounts has not one entry for each column");
        return NULL;
    }
    if (count > 0 && !(counts = calloc(count, sizeof(*counts))))
        return gb_throw_memory(env);
    uint32_t i = 0;
    for (; i < count; i++) {
        napi_value item;
        double number;
        if (napi_get_element(env, values[3], i, &item) != napi_ok ||
            !gb_read_number(env, item, "a null count", &number))
            break;
        counts[i] = number >= 0 && number < 9007199254740992.0 ? (int64_t)number : -1;
    }
    bool good = i == count && set_label(env, object, values[4], values[5]);
    if (good && stream)
        return gb_seal_on(addon, values[1], object, counts, stream);
    struct gb_pending *pending = good ? gb_pending_new(client, values[1]) : NULL;
    if (pending) {
        uint64_t request = 0;
        int r = gpubuf_seal_async(object, counts, on_sealed, pending, &request);
        result = gb_begun(env, client, pending, r, request);
    }
    free(counts);
    return result;
}
