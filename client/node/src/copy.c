#include "client/node/src/copy.h"

#include <stdlib.h>

#include "client/node/src/completion.h"
#include "client/node/src/deliver.h"
#include "client/node/src/memory.h"
#include "client/node/src/table.h"
#include "client/node/src/values.h"

struct part {
    struct gpubuf_object *object; /* a reference of its own */
    enum gpubuf_which which;
    uint64_t offset, bytes;
    char *data;
    napi_ref holder; /* the ArrayBuffer or view that `data` belongs to */
    bool own;        /* without one: copies into a block, which the work takes */
    struct gb_staging *block;
};

enum copy { COPY_READ, COPY_WRITE, COPY_NOTHING, COPY_SEAL };

/* Several copies in one direction. */
struct copying {
    struct gb_addon *addon;
    napi_async_work work;
    double id;
    enum copy what;
    void *stream;    /* the copies are queued on it; NULL: they are done at once */
    int64_t *counts; /* of a seal */
    uint64_t version;
    int status;
    char *message;
    size_t count;
    struct part parts[];
};

static void copying_free(napi_env env, struct copying *copying)
{
    for (size_t i = 0; i < copying->count; i++) {
        gpubuf_release(copying->parts[i].object);
        gb_staging_release(copying->parts[i].block);
        if (copying->parts[i].holder)
            (void)napi_delete_reference(env, copying->parts[i].holder);
    }
    free(copying->counts);
    free(copying->message);
    free(copying);
}

/* Copies one part, when the producer's work on a GPU is done. */
static int copy_part(struct copying *copying, struct part *part)
{
    if (copying->what == COPY_SEAL) {
        int r = gpubuf_seal_on(part->object, copying->counts, copying->stream);
        copying->version = r < 0 ? 0 : gpubuf_object_version(part->object);
        return r;
    }
    if (copying->what == COPY_WRITE)
        return part->bytes == 0 ? 0
                                : gpubuf_write(part->object, part->which, part->offset, part->data,
                                               part->bytes, copying->stream);
    int r = gpubuf_wait_ready(part->object, copying->stream);
    if (r < 0 || part->bytes == 0)
        return r;
    if (part->own) {
        r = gb_staging_acquire(part->object, part->bytes, &part->block);
        if (r < 0)
            return r;
        part->data = gb_staging_memory(part->block);
    }
    return gpubuf_read(part->object, part->which, part->offset, part->data, part->bytes, NULL);
}

static void copy_execute(napi_env env, void *data)
{
    struct copying *copying = data;

    (void)env;
    for (size_t i = 0; i < copying->count && copying->status == 0; i++) {
        struct part *part = &copying->parts[i];
        copying->status = copy_part(copying, part);
        if (copying->status < 0)
            copying->message = gb_copy(gpubuf_object_errmsg(part->object));
    }
}

static void copy_complete(napi_env env, napi_status status, void *data)
{
    struct copying *copying = data;
    struct gb_addon *addon = copying->addon;
    struct gb_completion completion = {
        .type = copying->what == COPY_READ ? GB_DONE_BUFFER : GB_DONE_PLAIN,
        .id = copying->id,
        .status = copying->status,
        .value = (double)copying->version,
        .text = gb_copy(copying->message),
    };

    (void)napi_delete_async_work(env, copying->work);
    if (status == napi_ok && copying->what == COPY_READ && copying->status == 0) {
        completion.reference = copying->parts[0].holder;
        completion.block = copying->parts[0].block;
        copying->parts[0].holder = NULL;
        copying->parts[0].block = NULL;
    }
    copying_free(env, copying);
    if (status == napi_ok) {
        gb_complete(addon, &completion);
        gb_deliver_from_call(addon);
    } else {
        gb_unreserve(addon);
        free(completion.text);
    }
    gb_addon_release(addon);
}

/* Queues the work, and takes it over. */
static napi_value copy_start(napi_env env, struct copying *copying)
{
    napi_value name;

    if (napi_create_string_utf8(env, "gpubufd.copy", NAPI_AUTO_LENGTH, &name) != napi_ok ||
        napi_create_async_work(env, NULL, name, copy_execute, copy_complete, copying,
                               &copying->work) != napi_ok) {
        copying_free(env, copying);
        return gb_throw_memory(env);
    }
    if (!gb_reserve(copying->addon)) {
        (void)napi_delete_async_work(env, copying->work);
        copying_free(env, copying);
        return gb_throw_memory(env);
    }
    copying->addon->references++;
    if (napi_queue_async_work(env, copying->work) != napi_ok) {
        (void)napi_delete_async_work(env, copying->work);
        gb_unreserve(copying->addon);
        gb_addon_release(copying->addon);
        copying_free(env, copying);
        return gb_throw(env, GPUBUF_E_INTERNAL, "cannot queue work");
    }
    return NULL;
}

static struct copying *copying_new(struct gb_addon *addon, napi_value id, enum copy what,
                                   size_t count)
{
    double number;

    if (!gb_read_number(addon->env, id, "the id", &number))
        return NULL;
    struct copying *copying = calloc(1, sizeof(*copying) + count * sizeof(struct part));
    if (!copying) {
        (void)gb_throw_memory(addon->env);
        return NULL;
    }
    copying->addon = addon;
    copying->id = number;
    copying->what = what;
    return copying;
}

/* read(object, id, which, from, bytes, ArrayBuffer or undefined): completes with the ArrayBuffer;
   or with a new one in pinned memory, for many bytes on a GPU. */
napi_value gb_js_read(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gpubuf_object *object = gb_object_at(addon, values[0], NULL);
    enum gpubuf_which which;
    struct gpubuf_memory memory;
    uint64_t from, bytes;
    void *data = NULL;
    size_t room = 0;

    if (!object || !gb_read_which(env, values[2], &which))
        return NULL;
    int r = gpubuf_memory(object, which, &memory);
    if (r < 0)
        return gb_throw(env, r, gpubuf_object_errmsg(object));
    if (!gb_read_range(env, values + 3, &memory, &from, &bytes))
        return NULL;
    bool given = !gb_is_absent(env, values[5]);
    if (given &&
        (napi_get_arraybuffer_info(env, values[5], &data, &room) != napi_ok || room < bytes))
        return gb_throw(env, GPUBUF_E_INVALID, "not an ArrayBuffer of that size");
    struct copying *copying = copying_new(addon, values[1], COPY_READ, 1);
    if (!copying)
        return NULL;
    copying->count = 1;
    copying->parts[0] = (struct part){
        .object = gpubuf_retain(object),
        .which = which,
        .offset = from,
        .bytes = bytes,
        .data = data,
        .own = !given,
    };
    if (given && napi_create_reference(env, values[5], 1, &copying->parts[0].holder) != napi_ok) {
        copying_free(env, copying);
        return gb_throw_memory(env);
    }
    return copy_start(env, copying);
}

/* ready(object, id, stream or undefined): completes when the producer's work on a GPU is done; or
   when the stream waits for that work. */
napi_value gb_js_ready(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gpubuf_object *object = gb_object_at(addon, values[0], NULL);
    void *stream;

    if (!object || !gb_read_stream(env, values[2], &stream))
        return NULL;
    struct copying *copying = copying_new(addon, values[1], COPY_NOTHING, 1);
    if (!copying)
        return NULL;
    copying->stream = stream;
    copying->count = 1;
    copying->parts[0] = (struct part){.object = gpubuf_retain(object)};
    return copy_start(env, copying);
}

napi_value gb_seal_on(struct gb_addon *addon, napi_value id, struct gpubuf_object *object,
                      int64_t *counts, void *stream)
{
    struct copying *copying = copying_new(addon, id, COPY_SEAL, 1);

    if (!copying) {
        free(counts);
        return NULL;
    }
    copying->counts = counts;
    copying->stream = stream;
    copying->count = 1;
    copying->parts[0] = (struct part){.object = gpubuf_retain(object)};
    return copy_start(addon->env, copying);
}

/* The bytes of a typed array, DataView or Buffer. */
static bool view_bytes(napi_env env, napi_value view, char **data, uint64_t *bytes)
{
    void *start = NULL;
    size_t length = 0;
    napi_typedarray_type type;
    static const uint8_t widths[] = {1, 1, 1, 2, 2, 4, 4, 4, 8, 8, 8};
    bool is_view = false;

    if (napi_is_dataview(env, view, &is_view) == napi_ok && is_view) {
        if (napi_get_dataview_info(env, view, &length, &start, NULL, NULL) != napi_ok)
            return false;
    } else if (napi_get_typedarray_info(env, view, &type, &length, &start, NULL, NULL) == napi_ok &&
               (size_t)type < sizeof(widths)) {
        length *= widths[type];
    } else {
        (void)napi_throw_type_error(env, NULL, "expected a typed array");
        return false;
    }
    *data = start;
    *bytes = length;
    return true;
}

static bool check_bytes(napi_env env, const struct part *part, uint64_t bytes)
{
    if (part->bytes == bytes)
        return true;
    (void)napi_throw_type_error(env, NULL, "a buffer was detached or resized before it was copied");
    return false;
}

/* One [object, which, offset, view, bytes] into a part; the view must have that length. */
static bool read_part(struct gb_addon *addon, napi_value item, struct part *part)
{
    napi_env env = addon->env;
    napi_value fields[5];
    uint64_t bytes;

    for (uint32_t i = 0; i < 5; i++) {
        if (napi_get_element(env, item, i, &fields[i]) != napi_ok)
            return false;
    }
    struct gpubuf_object *object = gb_object_at(addon, fields[0], NULL);
    if (!object || !gb_read_which(env, fields[1], &part->which) ||
        !gb_read_index(env, fields[2], "the offset", &part->offset) ||
        !gb_read_index(env, fields[4], "the length", &bytes) ||
        !view_bytes(env, fields[3], &part->data, &part->bytes) || !check_bytes(env, part, bytes) ||
        napi_create_reference(env, fields[3], 1, &part->holder) != napi_ok)
        return false;
    part->object = gpubuf_retain(object);
    return true;
}

/* write(id, parts, now, stream or undefined): copies into unsealed objects; `now`: before this
   returns, and without a completion. */
napi_value gb_js_write(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    uint32_t count = gb_array_length(env, values[1]);
    void *stream;

    if (!gb_read_stream(env, values[3], &stream))
        return NULL;
    struct copying *copying = copying_new(addon, values[0], COPY_WRITE, count);
    if (!copying)
        return NULL;
    copying->stream = stream;
    for (uint32_t i = 0; i < count; i++) {
        napi_value item;
        struct part *part = &copying->parts[i];
        bool good =
            napi_get_element(env, values[1], i, &item) == napi_ok && read_part(addon, item, part);
        copying->count = i + 1;
        if (!good) {
            copying_free(env, copying);
            return NULL;
        }
    }
    if (!gb_read_flag(env, values[2]))
        return copy_start(env, copying);
    copy_execute(env, copying);
    if (copying->status < 0)
        (void)gb_throw(env, copying->status, copying->message ? copying->message : "");
    copying_free(env, copying);
    return NULL;
}
