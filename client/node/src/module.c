#include <stdlib.h>
#include <string.h>

#include "addon.h"

/* ---- objects ---- */

double gb_object_add(struct gb_addon *addon, struct gpubuf_object *object)
{
    size_t i = addon->object_free;
    while (i < addon->object_count && addon->objects[i])
        i++;
    if (i == addon->object_count) {
        size_t count = addon->object_count ? 2 * addon->object_count : 64;
        struct gpubuf_object **objects =
            realloc((void *)addon->objects, count * sizeof(*addon->objects));
        if (!objects) {
            gpubuf_release(object);
            return -1;
        }
        memset((void *)(objects + addon->object_count), 0,
               (count - addon->object_count) * sizeof(*objects));
        addon->objects = objects;
        addon->object_count = count;
    }
    addon->objects[i] = object;
    addon->object_free = i + 1;
    return (double)i;
}

struct gpubuf_object *gb_object_take(struct gb_addon *addon, size_t index)
{
    if (index >= addon->object_count)
        return NULL;
    struct gpubuf_object *object = addon->objects[index];
    addon->objects[index] = NULL;
    if (index < addon->object_free)
        addon->object_free = index;
    return object;
}

struct gpubuf_object *gb_object_at(struct gb_addon *addon, napi_value value, size_t *index)
{
    uint64_t i;
    if (!gb_read_index(addon->env, value, "the object", &i))
        return NULL;
    if (i >= addon->object_count || !addon->objects[i]) {
        (void)gb_throw(addon->env, GPUBUF_E_STALE, "the object has been released");
        return NULL;
    }
    if (index)
        *index = i;
    return addon->objects[i];
}

/* ---- completions ---- */

char *gb_copy(const char *text)
{
    return text ? strdup(text) : NULL;
}

static void completion_drop(struct gb_completion *completion)
{
    gpubuf_release(completion->object);
    if (completion->objects)
        gpubuf_release_many(completion->objects, completion->count);
    free((void *)completion->objects);
    free(completion->errors);
    free(completion->text);
    free(completion->info);
    gb_pinned_give(completion->block);
}

static bool make_room(struct gb_addon *addon)
{
    if (addon->completion_count < addon->completion_capacity)
        return true;
    size_t capacity = addon->completion_capacity ? 2 * addon->completion_capacity : 64;
    struct gb_completion *completions =
        realloc(addon->completions, capacity * sizeof(*completions));
    if (!completions)
        return false;
    addon->completions = completions;
    addon->completion_capacity = capacity;
    return true;
}

void gb_complete(struct gb_addon *addon, const struct gb_completion *completion)
{
    struct gb_completion one = *completion;
    pthread_mutex_lock(&addon->lock);
    bool added = !addon->closing && make_room(addon);
    if (added) {
        addon->completions[addon->completion_count++] = one;
        if (!pthread_equal(addon->thread, pthread_self()))
            (void)uv_async_send(&addon->from_elsewhere);
    }
    pthread_mutex_unlock(&addon->lock);
    if (!added)
        completion_drop(&one);
}

bool gb_has_completions(struct gb_addon *addon)
{
    pthread_mutex_lock(&addon->lock);
    bool has = addon->completion_count > 0;
    pthread_mutex_unlock(&addon->lock);
    return has;
}

static void set_number(napi_env env, napi_value object, const char *name, double number)
{
    (void)napi_set_named_property(env, object, name, gb_number(env, number));
}

static void set_text(napi_env env, napi_value object, const char *name, const char *text)
{
    (void)napi_set_named_property(env, object, name, gb_text(env, text));
}

/* As `stat` tells it, as far as an event of the library's does. */
static napi_value info_value(napi_env env, const struct gpubuf_info *info)
{
    napi_value object = NULL;
    if (napi_create_object(env, &object) != napi_ok)
        return NULL;
    char mode[8];
    (void)snprintf(mode, sizeof(mode), "%04o", info->mode & 07777);
    set_text(env, object, "name", info->name);
    set_number(env, object, "version", (double)info->version);
    set_text(env, object, "state", info->state);
    set_text(env, object, "tier", info->tier);
    set_text(env, object, "device", info->device);
    set_number(env, object, "bytes", (double)info->bytes);
    set_text(env, object, "mode", mode);
    set_number(env, object, "uid", info->uid);
    set_number(env, object, "gid", info->gid);
    set_number(env, object, "created_ms", (double)info->created_ms);
    set_number(env, object, "leases", (double)info->leases);
    set_number(env, object, "ttl_ms", (double)info->ttl_ms);
    napi_value pinned = NULL;
    (void)napi_get_boolean(env, info->pinned, &pinned);
    (void)napi_set_named_property(env, object, "pinned", pinned);
    return object;
}

static napi_value event_value(napi_env env, const struct gb_completion *event)
{
    napi_value pair = NULL, info = NULL;
    if (napi_create_array_with_length(env, 2, &pair) != napi_ok)
        return NULL;
    if (event->info)
        info = info_value(env, event->info);
    if (!info)
        (void)napi_get_null(env, &info);
    (void)napi_set_element(env, pair, 0, gb_text(env, event->text));
    (void)napi_set_element(env, pair, 1, info);
    return pair;
}

static napi_value many_value(struct gb_addon *addon, struct gb_completion *many)
{
    napi_env env = addon->env;
    napi_value array = NULL;
    if (napi_create_array_with_length(env, many->count, &array) != napi_ok)
        return NULL;
    for (size_t i = 0; i < many->count; i++) {
        double number = many->errors[i];
        if (many->objects[i]) {
            enum gpubuf_kind kind = gpubuf_kind(many->objects[i]);
            double index = gb_object_add(addon, many->objects[i]);
            many->objects[i] = NULL;
            number = index < 0 ? GPUBUF_E_NO_MEMORY : index * 4 + (double)kind;
        }
        (void)napi_set_element(env, array, (uint32_t)i, gb_number(env, number));
    }
    return array;
}

/* What goes along with the record of a completion; NULL: nothing. */
static napi_value extra_value(struct gb_addon *addon, struct gb_completion *completion)
{
    napi_env env = addon->env;
    napi_value value = NULL;
    if (completion->status < 0)
        return gb_text(env,
                       completion->text ? completion->text : gpubuf_strerror(completion->status));
    switch (completion->type) {
    case GB_DONE_MANY:
        return many_value(addon, completion);
    case GB_DONE_EVENT:
        return event_value(env, completion);
    case GB_DONE_TEXT:
    case GB_DONE_CLIENT:
        return gb_text(env, completion->text);
    case GB_DONE_BUFFER:
        if (completion->block) {
            value = gb_block_value(env, completion->block);
            completion->block = NULL;
            return value;
        }
        if (napi_get_reference_value(env, completion->reference, &value) != napi_ok)
            value = NULL;
        (void)napi_delete_reference(env, completion->reference);
        return value;
    default:
        return NULL;
    }
}

static void fill_record(struct gb_addon *addon, struct gb_completion *completion, double *record)
{
    record[0] = completion->id;
    record[1] = completion->status;
    record[2] = completion->value;
    record[3] = 0;
    if (completion->type == GB_DONE_OBJECT && completion->status >= 0) {
        record[3] = gpubuf_kind(completion->object);
        record[2] = gb_object_add(addon, completion->object);
        completion->object = NULL;
        if (record[2] < 0)
            record[1] = completion->status = GPUBUF_E_NO_MEMORY;
    }
}

/* One call for up to GB_RECORDS completions. */
static void deliver_some(struct gb_addon *addon, struct gb_completion *completions, size_t count,
                         bool from_loop)
{
    napi_env env = addon->env;
    napi_handle_scope scope;
    if (napi_open_handle_scope(env, &scope) != napi_ok)
        return;
    napi_value extras = NULL;
    for (size_t i = 0; i < count; i++) {
        fill_record(addon, &completions[i], addon->records + i * GB_RECORD_NUMBERS);
        napi_value extra = extra_value(addon, &completions[i]);
        if (extra && !extras)
            (void)napi_create_array_with_length(env, count, &extras);
        if (extra && extras)
            (void)napi_set_element(env, extras, (uint32_t)i, extra);
    }
    napi_value deliver, resource, arguments[2], result;
    if (!extras)
        (void)napi_get_undefined(env, &extras);
    arguments[0] = gb_number(env, (double)count);
    arguments[1] = extras;
    if (napi_get_reference_value(env, addon->deliver, &deliver) == napi_ok &&
        napi_get_reference_value(env, addon->name, &resource) == napi_ok) {
        if (from_loop)
            (void)napi_make_callback(env, addon->context, resource, deliver, 2, arguments, &result);
        else
            (void)napi_call_function(env, resource, deliver, 2, arguments, &result);
    }
    bool pending = false;
    napi_value error;
    if (from_loop && napi_is_exception_pending(env, &pending) == napi_ok && pending &&
        napi_get_and_clear_last_exception(env, &error) == napi_ok)
        (void)napi_fatal_exception(env, error);
    (void)napi_close_handle_scope(env, scope);
}

static void deliver(struct gb_addon *addon, bool from_loop)
{
    if (addon->delivering) /* the loop that is at it takes what has been added */
        return;
    addon->delivering = true;
    addon->references++; /* what is called may end the environment's part in it */
    while (gb_has_completions(addon) && !addon->closing) {
        /* More may be added meanwhile, so that these are taken off first. */
        pthread_mutex_lock(&addon->lock);
        struct gb_completion *completions = addon->completions;
        size_t count = addon->completion_count;
        addon->completions = NULL;
        addon->completion_count = addon->completion_capacity = 0;
        pthread_mutex_unlock(&addon->lock);
        for (size_t i = 0; i < count; i += GB_RECORDS) {
            size_t some = count - i < GB_RECORDS ? count - i : GB_RECORDS;
            if (!addon->closing)
                deliver_some(addon, completions + i, some, from_loop);
        }
        for (size_t i = 0; i < count; i++)
            completion_drop(&completions[i]);
        free(completions);
    }
    addon->delivering = false;
    gb_addon_release(addon);
}

void gb_deliver_from_loop(struct gb_addon *addon)
{
    deliver(addon, true);
}

void gb_deliver_from_call(struct gb_addon *addon)
{
    deliver(addon, false);
}

/* ---- the beginning and the end ---- */

void gb_addon_release(struct gb_addon *addon)
{
    if (--addon->references > 0)
        return;
    free((void *)addon->clients);
    free((void *)addon->objects);
    free(addon->completions);
    (void)pthread_mutex_destroy(&addon->lock);
    free(addon);
}

/* The environment ends: the process, or a worker. Poll handles have to be closed before libuv's loop
   is, which is why this may take a turn of it. */
static void on_environment_end(napi_async_cleanup_hook_handle hook, void *data)
{
    struct gb_addon *addon = data;
    pthread_mutex_lock(&addon->lock);
    addon->closing = true; /* what still comes is dropped */
    pthread_mutex_unlock(&addon->lock);
    addon->hook = hook;
    for (size_t i = 0; i < addon->client_count; i++) {
        if (addon->clients[i])
            gb_client_close(addon->clients[i]);
    }
    gb_turns_end(addon);
    for (size_t i = 0; i < addon->object_count; i++)
        gpubuf_release(gb_object_take(addon, i));
    for (size_t i = 0; i < addon->completion_count; i++)
        completion_drop(&addon->completions[i]);
    addon->completion_count = 0;
    gb_addon_release(addon); /* the environment's part in it */
}

/* start(deliver, records, bufferMax): what JavaScript has to offer. Whether there are external
   ArrayBuffers. */
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
#define ADD_ERROR(name, code, kind, text) set_text(env, codes, #code, kind);
    GPUBUF_ERROR_MAP(ADD_ERROR)
#undef ADD_ERROR
    return napi_set_named_property(env, exports, "kinds", codes) == napi_ok;
}

static napi_value init(napi_env env, napi_value exports)
{
    static const struct {
        const char *name;
        napi_callback function;
    } functions[] = {
        {"start", js_start},          {"connect", gb_js_connect},
        {"close", gb_js_close},       {"reference", gb_js_reference},
        {"open", gb_js_open},         {"openMany", gb_js_open_many},
        {"call", gb_js_call},         {"watch", gb_js_watch},
        {"unwatch", gb_js_unwatch},   {"cancel", gb_js_cancel},
        {"create", gb_js_create},     {"seal", gb_js_seal},
        {"describe", gb_js_describe}, {"release", gb_js_release},
        {"child", gb_js_child},       {"column", gb_js_column},
        {"slice", gb_js_slice},       {"nullCount", gb_js_null_count},
        {"memory", gb_js_memory},     {"copy", gb_js_copy},
        {"pointer", gb_js_pointer},   {"read", gb_js_read},
        {"write", gb_js_write},       {"ready", gb_js_ready},
    };
    struct gb_addon *addon = calloc(1, sizeof(*addon));
    if (!addon)
        return gb_throw_memory(env);
    addon->env = env;
    addon->thread = pthread_self();
    (void)pthread_mutex_init(&addon->lock, NULL);
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
    set_text(env, exports, "version", gpubuf_version());
    return add_errors(env, exports) ? exports : NULL;
}

#ifdef NODE_API_MODULE_GET_API_VERSION /* newer headers define it without declaring it */
NAPI_MODULE_EXPORT int32_t NODE_API_MODULE_GET_API_VERSION(void);
#endif

NAPI_MODULE_INIT()
{
    return init(env, exports);
}
