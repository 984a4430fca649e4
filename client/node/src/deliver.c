#include "client/node/src/deliver.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/node/src/completion.h"
#include "client/node/src/table.h"
#include "client/node/src/values.h"

/* The members of `stat` that an event of the library has. */
static napi_value info_value(napi_env env, const struct gpubuf_info *info)
{
    napi_value object = NULL;

    if (napi_create_object(env, &object) != napi_ok)
        return NULL;
    char mode[8];
    (void)snprintf(mode, sizeof(mode), "%04o", info->mode & 07777);
    gb_set_text(env, object, "name", info->name);
    gb_set_number(env, object, "version", (double)info->version);
    gb_set_text(env, object, "state", info->state);
    gb_set_text(env, object, "tier", info->tier);
    gb_set_text(env, object, "device", info->device);
    gb_set_number(env, object, "bytes", (double)info->bytes);
    gb_set_text(env, object, "mode", mode);
    gb_set_number(env, object, "uid", info->uid);
    gb_set_number(env, object, "gid", info->gid);
    gb_set_number(env, object, "created_ms", (double)info->created_ms);
    gb_set_number(env, object, "leases", (double)info->leases);
    gb_set_number(env, object, "ttl_ms", (double)info->ttl_ms);
    if (*info->label)
        gb_set_text(env, object, "label", info->label);
    if (info->keep)
        gb_set_number(env, object, "keep", info->keep);
    if (info->scope == GPUBUF_SCOPE_CLUSTER)
        gb_set_text(env, object, "scope", "cluster");
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

static napi_value wanted_value(napi_env env, const struct gb_completion *wanted)
{
    napi_value triple = NULL, name = NULL;

    if (napi_create_array_with_length(env, 3, &triple) != napi_ok)
        return NULL;
    if (wanted->text)
        name = gb_text(env, wanted->text);
    else
        (void)napi_get_null(env, &name);
    (void)napi_set_element(env, triple, 0, name);
    (void)napi_set_element(env, triple, 1, gb_number(env, wanted->uid));
    (void)napi_set_element(env, triple, 2, gb_number(env, wanted->gid));
    return triple;
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
            number = gb_object_number(addon, many->objects[i]);
            many->objects[i] = NULL;
            if (number < 0)
                number = GPUBUF_E_NO_MEMORY;
        }
        (void)napi_set_element(env, array, (uint32_t)i, gb_number(env, number));
    }
    return array;
}

static void on_block_collected(napi_env env, void *data, void *hint)
{
    (void)env;
    (void)data;
    gb_staging_release(hint);
}

/* An ArrayBuffer over a block, which is taken over; NULL after an exception. */
static napi_value block_value(napi_env env, struct gb_staging *block)
{
    napi_value buffer = NULL;

    if (napi_create_external_arraybuffer(env, gb_staging_memory(block),
                                         (size_t)gb_staging_bytes(block), on_block_collected, block,
                                         &buffer) != napi_ok)
        return NULL; /* the finaliser gives the block back; it leaks if Node does not run that */
    return buffer;
}

/* The value of a completion that its record has no room for; NULL: none. */
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
    case GB_DONE_WANTED:
        return wanted_value(env, completion);
    case GB_DONE_TEXT:
    case GB_DONE_CLIENT:
        return gb_text(env, completion->text);
    case GB_DONE_BUFFER:
        if (completion->block) {
            value = block_value(env, completion->block);
            completion->block = NULL;
            return value;
        }
        if (napi_get_reference_value(env, completion->reference, &value) != napi_ok)
            value = NULL;
        (void)napi_delete_reference(env, completion->reference);
        return value;
    case GB_DONE_JOB:
        return completion->job->settle ? completion->job->settle(completion->job) : NULL;
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
    if (addon->delivering) /* the running loop delivers the new completions, too */
        return;
    addon->delivering = true;
    addon->references++; /* a callback may drop the environment's reference */
    struct gb_completion completions[GB_RECORDS];
    size_t count;
    while (!addon->closing && (count = gb_take_completions(addon, completions, GB_RECORDS)) > 0) {
        deliver_some(addon, completions, count, from_loop); /* callbacks may add completions */
        for (size_t i = 0; i < count; i++)
            gb_completion_drop(&completions[i]);
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
