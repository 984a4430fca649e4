/*
 * Memory of objects in JavaScript. Host memory: one external ArrayBuffer for each mapping, which holds
 * the mapping until it is collected, whatever becomes of the objects in it; made anew when it is next
 * needed. Copies, from a GPU and to either, are works of libuv's pool.
 */
#include <stdlib.h>
#include <string.h>

#include "addon.h"

/* An ArrayBuffer that lives, or is yet to be collected. */
struct gb_window {
    struct gb_window *next, **link;
    struct gb_addon *addon;
    struct gb_hold *hold;
    const void *key;
    char *start;
    uint64_t bytes;
    napi_ref buffer; /* weak */
};

static void window_free(struct gb_window *window)
{
    struct gb_addon *addon = window->addon;
    *window->link = window->next;
    if (window->next)
        window->next->link = window->link;
    gb_hold_drop(window->hold);
    free(window);
    gb_addon_release(addon);
}

static void on_collected(napi_env env, void *data, void *hint)
{
    struct gb_window *window = hint;
    (void)data;
    if (window->buffer)
        (void)napi_delete_reference(env, window->buffer);
    window_free(window);
}

static napi_value find_window(const struct gb_addon *addon, const void *key, const char *start,
                              uint64_t bytes)
{
    for (struct gb_window *window = addon->windows; window; window = window->next) {
        napi_value buffer = NULL;
        if (window->key == key && window->start == start && window->bytes == bytes &&
            window->buffer &&
            napi_get_reference_value(addon->env, window->buffer, &buffer) == napi_ok && buffer)
            return buffer;
    }
    return NULL;
}

/* Takes the hold over. NULL after an exception; *forbidden if the runtime has no such buffers. */
static napi_value new_window(struct gb_addon *addon, struct gb_hold *hold, char *start,
                             uint64_t bytes, bool *forbidden)
{
    struct gb_window *window = calloc(1, sizeof(*window));
    napi_value buffer = NULL;
    if (!window) {
        gb_hold_drop(hold);
        return gb_throw_memory(addon->env);
    }
    *window = (struct gb_window){.next = addon->windows,
                                 .link = &addon->windows,
                                 .addon = addon,
                                 .hold = hold,
                                 .key = gb_hold_key(hold),
                                 .start = start,
                                 .bytes = bytes};
    addon->references++;
    if (addon->windows)
        addon->windows->link = &window->next;
    addon->windows = window;
    napi_status status = napi_create_external_arraybuffer(addon->env, start, (size_t)bytes,
                                                          on_collected, window, &buffer);
    if (status != napi_ok) {
        *forbidden = status == napi_no_external_buffers_allowed;
        window_free(window);
        return NULL;
    }
    if (napi_create_reference(addon->env, buffer, 0, &window->buffer) != napi_ok)
        window->buffer = NULL; /* not found again, that is all */
    return buffer;
}

static napi_value copied(napi_env env, const char *from, uint64_t bytes)
{
    void *data = NULL;
    napi_value buffer = NULL;
    if (napi_create_arraybuffer(env, (size_t)bytes, &data, &buffer) != napi_ok)
        return NULL;
    if (bytes > 0)
        memcpy(data, from, (size_t)bytes);
    return buffer;
}

static napi_value pair(napi_env env, napi_value first, double second)
{
    napi_value array = NULL;
    if (!first || napi_create_array_with_length(env, 2, &array) != napi_ok)
        return NULL;
    (void)napi_set_element(env, array, 0, first);
    (void)napi_set_element(env, array, 1, gb_number(env, second));
    return array;
}

/* Whether to read a stretch of the buffer; true also where there is nothing to check. */
static bool read_range(napi_env env, const napi_value *values, const struct gpubuf_memory *memory,
                       uint64_t *from, uint64_t *bytes)
{
    if (!gb_read_index(env, values[0], "the offset", from) ||
        !gb_read_index(env, values[1], "the length", bytes))
        return false;
    if (*from > memory->bytes || *bytes > memory->bytes - *from) {
        (void)gb_throw(env, GPUBUF_E_INVALID,
                       "the object's buffer is shorter than its layout says");
        return false;
    }
    return true;
}

static bool read_which(napi_env env, napi_value value, enum gpubuf_which *which)
{
    double number;
    if (!gb_read_number(env, value, "the buffer's number", &number))
        return false;
    *which = number == 1 ? GPUBUF_MASK : number == 2 ? GPUBUF_OFFSETS : GPUBUF_DATA;
    return true;
}

/* memory(object, which, from, bytes, copy): [ArrayBuffer, where in it]; undefined if there is no
   such buffer. Of a host object. */
napi_value gb_js_memory(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gpubuf_object *object = gb_object_at(addon, values[0], NULL);
    enum gpubuf_which which;
    struct gpubuf_memory memory, mapping;
    uint64_t from, bytes;
    if (!object || !read_which(env, values[1], &which))
        return NULL;
    int r = gpubuf_memory(object, which, &memory);
    if (r < 0)
        return gb_throw(env, r, gpubuf_object_errmsg(object));
    if (r == 1 || !read_range(env, values + 2, &memory, &from, &bytes))
        return NULL;
    char *start = (char *)memory.pointer + from;
    struct gb_hold *hold = NULL;
    if (gb_read_flag(env, values[4]) || bytes == 0)
        return pair(env, copied(env, start, bytes), 0);
    r = gb_hold_mapping(object, which, &hold, &mapping);
    if (r < 0)
        return gb_throw(env, r, gpubuf_object_errmsg(object));
    if (r == 1)
        return gb_throw(env, GPUBUF_E_UNSUPPORTED, "the object is on a GPU");
    if ((double)mapping.bytes > addon->buffer_max) { /* only what was asked for, then */
        mapping.pointer = start;
        mapping.bytes = bytes;
    }
    if ((double)mapping.bytes > addon->buffer_max) {
        gb_hold_drop(hold);
        return gb_throw(env, GPUBUF_E_LIMIT,
                        "more bytes than an ArrayBuffer may have here; slice the object first");
    }
    napi_value buffer = find_window(addon, gb_hold_key(hold), mapping.pointer, mapping.bytes);
    double at = (double)(start - (char *)mapping.pointer);
    if (buffer) {
        gb_hold_drop(hold);
        return pair(env, buffer, at);
    }
    bool forbidden = false;
    buffer = new_window(addon, hold, mapping.pointer, mapping.bytes, &forbidden);
    if (!buffer && forbidden)
        return pair(env, copied(env, start, bytes), 0);
    return pair(env, buffer, at);
}

/* pointer(object, which): [BigInt, bytes]; undefined if there is no such buffer. */
napi_value gb_js_pointer(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX], pointer = NULL;
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gpubuf_object *object = gb_object_at(addon, values[0], NULL);
    enum gpubuf_which which;
    struct gpubuf_memory memory;
    if (!object || !read_which(env, values[1], &which))
        return NULL;
    int r = gpubuf_memory(object, which, &memory);
    if (r < 0)
        return gb_throw(env, r, gpubuf_object_errmsg(object));
    if (r == 1 ||
        napi_create_bigint_uint64(env, (uint64_t)(uintptr_t)memory.pointer, &pointer) != napi_ok)
        return NULL;
    return pair(env, pointer, (double)memory.bytes);
}

/* ---- copies ---- */

struct part {
    struct gpubuf_object *object; /* a reference of its own */
    enum gpubuf_which which;
    uint64_t offset, bytes;
    char *data;
    napi_ref holder; /* what `data` belongs to */
};

/* Several copies in one direction. */
struct copying {
    struct gb_addon *addon;
    napi_async_work work;
    double id;
    bool writing;
    int status;
    char *message;
    size_t count;
    struct part parts[];
};

static void copying_free(napi_env env, struct copying *copying)
{
    for (size_t i = 0; i < copying->count; i++) {
        gpubuf_release(copying->parts[i].object);
        if (copying->parts[i].holder)
            (void)napi_delete_reference(env, copying->parts[i].holder);
    }
    free(copying->message);
    free(copying);
}

static void copy_execute(napi_env env, void *data)
{
    struct copying *copying = data;
    (void)env;
    for (size_t i = 0; i < copying->count && copying->status == 0; i++) {
        struct part *part = &copying->parts[i];
        if (part->bytes == 0)
            continue;
        copying->status = copying->writing ? gpubuf_write(part->object, part->which, part->offset,
                                                          part->data, part->bytes, NULL)
                                           : gpubuf_read(part->object, part->which, part->offset,
                                                         part->data, part->bytes, NULL);
        if (copying->status < 0)
            copying->message = gb_copy(gpubuf_object_errmsg(part->object));
    }
}

static void copy_complete(napi_env env, napi_status status, void *data)
{
    struct copying *copying = data;
    struct gb_addon *addon = copying->addon;
    struct gb_completion completion = {
        .type = copying->writing ? GB_DONE_PLAIN : GB_DONE_BUFFER,
        .id = copying->id,
        .status = copying->status,
        .text = gb_copy(copying->message),
    };
    (void)napi_delete_async_work(env, copying->work);
    if (!copying->writing && copying->status == 0) {
        completion.reference = copying->parts[0].holder;
        copying->parts[0].holder = NULL;
    }
    copying_free(env, copying);
    if (status == napi_ok) {
        gb_complete(addon, &completion);
        gb_deliver_from_call(addon);
    } else {
        free(completion.text);
    }
    gb_addon_release(addon);
}

/* Sets it going; it is taken over. */
static napi_value copy_start(napi_env env, struct copying *copying)
{
    napi_value name;
    if (napi_create_string_utf8(env, "gpubufd.copy", NAPI_AUTO_LENGTH, &name) != napi_ok ||
        napi_create_async_work(env, NULL, name, copy_execute, copy_complete, copying,
                               &copying->work) != napi_ok) {
        copying_free(env, copying);
        return gb_throw_memory(env);
    }
    copying->addon->references++;
    if (napi_queue_async_work(env, copying->work) != napi_ok) {
        (void)napi_delete_async_work(env, copying->work);
        gb_addon_release(copying->addon);
        copying_free(env, copying);
        return gb_throw(env, GPUBUF_E_INTERNAL, "cannot queue work");
    }
    return NULL;
}

static struct copying *copying_new(struct gb_addon *addon, napi_value id, bool writing,
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
    copying->writing = writing;
    return copying;
}

/* read(object, id, which, from, bytes): completes with an ArrayBuffer. */
napi_value gb_js_read(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX], buffer;
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gpubuf_object *object = gb_object_at(addon, values[0], NULL);
    enum gpubuf_which which;
    struct gpubuf_memory memory;
    uint64_t from, bytes;
    void *data = NULL;
    if (!object || !read_which(env, values[2], &which))
        return NULL;
    int r = gpubuf_memory(object, which, &memory);
    if (r < 0)
        return gb_throw(env, r, gpubuf_object_errmsg(object));
    if (!read_range(env, values + 3, &memory, &from, &bytes))
        return NULL;
    if (napi_create_arraybuffer(env, (size_t)bytes, &data, &buffer) != napi_ok)
        return NULL; /* a RangeError is pending */
    struct copying *copying = copying_new(addon, values[1], false, 1);
    if (!copying)
        return NULL;
    copying->count = 1;
    copying->parts[0] = (struct part){
        .object = gpubuf_retain(object),
        .which = which,
        .offset = from,
        .bytes = bytes,
        .data = data,
    };
    if (napi_create_reference(env, buffer, 1, &copying->parts[0].holder) != napi_ok) {
        copying_free(env, copying);
        return gb_throw_memory(env);
    }
    return copy_start(env, copying);
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

/* One [object, which, offset, view] into a part. */
static bool read_part(struct gb_addon *addon, napi_value item, struct part *part)
{
    napi_env env = addon->env;
    napi_value fields[4];
    for (uint32_t i = 0; i < 4; i++) {
        if (napi_get_element(env, item, i, &fields[i]) != napi_ok)
            return false;
    }
    struct gpubuf_object *object = gb_object_at(addon, fields[0], NULL);
    if (!object || !read_which(env, fields[1], &part->which) ||
        !gb_read_index(env, fields[2], "the offset", &part->offset) ||
        !view_bytes(env, fields[3], &part->data, &part->bytes) ||
        napi_create_reference(env, fields[3], 1, &part->holder) != napi_ok)
        return false;
    part->object = gpubuf_retain(object);
    return true;
}

/* write(id, parts, now): copies into objects being written; `now`: before this returns, and there is
   no completion then. */
napi_value gb_js_write(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    uint32_t count = gb_array_length(env, values[1]);
    struct copying *copying = copying_new(addon, values[0], true, count);
    if (!copying)
        return NULL;
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
