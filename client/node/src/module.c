/* The beginning and the end of an environment, and the functions for JavaScript. */
#include <stdlib.h>

#include "client/node/src/bundle.h"
#include "client/node/src/client.h"
#include "client/node/src/completion.h"
#include "client/node/src/copy.h"
#include "client/node/src/create.h"
#include "client/node/src/deliver.h"
#include "client/node/src/job.h"
#include "client/node/src/memory.h"
#include "client/node/src/object.h"
#include "client/node/src/provide.h"
#include "client/node/src/request.h"
#include "client/node/src/stream.h"
#include "client/node/src/table.h"
#include "client/node/src/turn.h"
#include "client/node/src/values.h"
#include "client/node/src/view.h"
#include "client/node/src/watch.h"
#include "proto/layout/dtype.h"

/* The environment, the process's or a worker's, ends. This may take a turn of libuv's loop, since
   poll handles must be closed before the loop. */
static void on_environment_end(napi_async_cleanup_hook_handle hook, void *data)
{
    struct gb_addon *addon = data;

    pthread_mutex_lock(&addon->lock);
    addon->closing = true; /* completions are dropped from now on */
    pthread_mutex_unlock(&addon->lock);
    addon->hook = hook;
    /* Before the connections end: else claims stay this process's, which may go on. */
    gb_streams_end(addon);
    for (size_t i = 0; i < addon->object_count; i++)
        gpubuf_release(gb_object_take(addon, i));
    for (size_t i = 0; i < addon->client_count; i++) {
        if (addon->clients[i])
            gb_client_close(addon->clients[i]);
    }
    gb_jobs_end(addon);
    gb_turns_end(addon);
    for (size_t i = 0; i < addon->completion_count; i++)
        gb_completion_drop(&addon->completions[i]);
    addon->completion_count = 0;
    gb_addon_release(addon); /* the environment's reference */
}

/* start(deliver, records, bufferMax): the function that takes completions, its array for records,
   and the limit of an ArrayBuffer. Returns whether there are external ArrayBuffers. */
static napi_value js_start(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX], resource, name;
    struct gb_addon *addon = gb_arguments(env, info, values);
    size_t length = 0;
    void *data = NULL;
    napi_typedarray_type type;

    if (!addon || addon->deliver)
        return gb_throw(env, GPUBUF_E_INTERNAL, "started already");
    if (napi_get_typedarray_info(env, values[1], &type, &length, &data, NULL, NULL) != napi_ok ||
        type != napi_float64_array || length < (size_t)GB_RECORDS * GB_RECORD_NUMBERS)
        return gb_throw(env, GPUBUF_E_INTERNAL, "the records are too short");
    if (!gb_read_number(env, values[2], "the limit", &addon->buffer_max))
        return NULL;
    if (napi_create_object(env, &resource) != napi_ok ||
        napi_create_string_utf8(env, "gpubufd", NAPI_AUTO_LENGTH, &name) != napi_ok ||
        napi_async_init(env, resource, name, &addon->context) != napi_ok ||
        napi_create_reference(env, resource, 1, &addon->name) != napi_ok ||
        napi_create_reference(env, values[1], 1, &addon->records_reference) != napi_ok ||
        napi_create_reference(env, values[0], 1, &addon->deliver) != napi_ok)
        return gb_throw(env, GPUBUF_E_INTERNAL, "cannot start");
    addon->records = data;
    napi_value external = NULL;
    (void)napi_get_boolean(env, gb_has_external(env), &external);
    return external;
}

static bool add_errors(napi_env env, napi_value exports)
{
    napi_value codes;

    if (napi_create_object(env, &codes) != napi_ok)
        return false;
#define ADD_ERROR(name, code, kind, text) gb_set_text(env, codes, #code, kind);
    GPUBUF_ERROR_MAP(ADD_ERROR)
#undef ADD_ERROR
    return napi_set_named_property(env, exports, "kinds", codes) == napi_ok;
}

/* dtypes: the protocol's table, { name: { bits, offsetBytes, code } }; `code` is DLPack's. */
static bool add_dtypes(napi_env env, napi_value exports)
{
    napi_value dtypes, row;

    if (napi_create_object(env, &dtypes) != napi_ok)
        return false;
    for (int type = 0; type < GB_TYPE_COUNT; type++) {
        const struct gb_type_info *info = gb_type_info((enum gb_type)type);

        if (napi_create_object(env, &row) != napi_ok)
            return false;
        gb_set_number(env, row, "bits", info->bits);
        gb_set_number(env, row, "offsetBytes", info->offset_bytes);
        gb_set_number(env, row, "code", info->dlpack_code);
        if (napi_set_named_property(env, dtypes, info->name, row) != napi_ok)
            return false;
    }
    return napi_set_named_property(env, exports, "dtypes", dtypes) == napi_ok;
}

static napi_value init(napi_env env, napi_value exports)
{
    static const struct {
        const char *name;
        napi_callback function;
    } functions[] = {
        {"start", js_start},
        {"connect", gb_js_connect},
        {"close", gb_js_close},
        {"reference", gb_js_reference},
        {"open", gb_js_open},
        {"openCached", gb_js_open_cached},
        {"openMany", gb_js_open_many},
        {"call", gb_js_call},
        {"watch", gb_js_watch},
        {"unwatch", gb_js_unwatch},
        {"cancel", gb_js_cancel},
        {"create", gb_js_create},
        {"seal", gb_js_seal},
        {"describe", gb_js_describe},
        {"stale", gb_js_stale},
        {"release", gb_js_release},
        {"child", gb_js_child},
        {"column", gb_js_column},
        {"slice", gb_js_slice},
        {"nullCount", gb_js_null_count},
        {"memory", gb_js_memory},
        {"copy", gb_js_copy},
        {"pointer", gb_js_pointer},
        {"read", gb_js_read},
        {"write", gb_js_write},
        {"ready", gb_js_ready},
        {"manifest", gb_js_manifest},
        {"tensor", gb_js_tensor},
        {"provide", gb_js_provide},
        {"provideEnd", gb_js_provide_end},
        {"decline", gb_js_decline},
        {"detach", gb_js_detach},
        {"edit", gb_js_edit},
        {"follow", gb_js_follow},
        {"show", gb_js_show},
        {"unfollow", gb_js_unfollow},
        {"stream", gb_js_stream},
        {"streamNow", gb_js_stream_now},
        {"streamWait", gb_js_stream_wait},
        {"streamStop", gb_js_stream_stop},
        {"streamPass", gb_js_stream_pass},
        {"streamOrder", gb_js_stream_order},
        {"streamClose", gb_js_stream_close},
    };
    struct gb_addon *addon = calloc(1, sizeof(*addon));
    if (!addon)
        return gb_throw_memory(env);
    addon->env = env;
    addon->thread = pthread_self();
    (void)pthread_mutex_init(&addon->lock, NULL);
    (void)pthread_mutex_init(&addon->jobs.lock, NULL);
    (void)pthread_cond_init(&addon->jobs.changed, NULL);
    addon->references = 1;
    if (napi_get_uv_event_loop(env, &addon->loop) != napi_ok ||
        napi_add_async_cleanup_hook(env, on_environment_end, addon, NULL) != napi_ok) {
        free(addon);
        return gb_throw(env, GPUBUF_E_INTERNAL, "cannot attach to the event loop");
    }
    gb_turns_begin(addon);
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        napi_value function;
        if (napi_create_function(env, functions[i].name, NAPI_AUTO_LENGTH, functions[i].function,
                                 addon, &function) != napi_ok ||
            napi_set_named_property(env, exports, functions[i].name, function) != napi_ok)
            return NULL;
    }
    gb_set_text(env, exports, "version", gpubuf_version());
    return add_errors(env, exports) && add_dtypes(env, exports) ? exports : NULL;
}

#ifdef NODE_API_MODULE_GET_API_VERSION /* newer headers define it without declaring it */
NAPI_MODULE_EXPORT int32_t NODE_API_MODULE_GET_API_VERSION(void);
#endif

NAPI_MODULE_INIT()
{
    return init(env, exports);
}
