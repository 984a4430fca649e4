#include "client/node/src/memory.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/objects/hold.h"
#include "client/node/src/table.h"
#include "client/node/src/values.h"

/* An ArrayBuffer over shared memory, until its finaliser has run. */
struct gb_window {
    struct gb_window *next, **link; /* `link` is NULL once it is out of the list */
    struct gb_addon *addon;
    struct gb_hold *hold;
    const void *key;
    char *start;
    uint64_t bytes;
    napi_ref buffer; /* weak */
    bool creating, collected;
};

/* Releases the memory; the struct itself stays. */
static void window_end(struct gb_window *window)
{
    *window->link = window->next;
    if (window->next)
        window->next->link = window->link;
    window->link = NULL;
    gb_hold_drop(window->hold);
}

static void window_free(struct gb_window *window)
{
    struct gb_addon *addon = window->addon;

    free(window);
    gb_addon_release(addon);
}

static void on_collected(napi_env env, void *data, void *hint)
{
    struct gb_window *window = hint;

    (void)data;
    window->collected = true;
    if (window->creating) /* the creation has failed: new_window() ends the window */
        return;
    if (window->buffer)
        (void)napi_delete_reference(env, window->buffer);
    if (window->link)
        window_end(window);
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

/* An ArrayBuffer; takes the hold over. NULL after an exception. */
static napi_value new_window(struct gb_addon *addon, struct gb_hold *hold, char *start,
                             uint64_t bytes)
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
                                 .bytes = bytes,
                                 .creating = true};
    addon->references++;
    if (addon->windows)
        addon->windows->link = &window->next;
    addon->windows = window;
    napi_status status = napi_create_external_arraybuffer(addon->env, start, (size_t)bytes,
                                                          on_collected, window, &buffer);
    window->creating = false;
    if (status != napi_ok) {
        window_end(window);
        /* Some versions of Node run the finaliser after a failure, some do not: if it has not run
           by now, it may run later. */
        if (window->collected)
            window_free(window);
        return gb_throw(addon->env, GPUBUF_E_LIMIT, "Node gave no ArrayBuffer over shared memory");
    }
    if (napi_create_reference(addon->env, buffer, 0, &window->buffer) != napi_ok)
        window->buffer = NULL; /* find_window() does not find it, and makes another */
    return buffer;
}

static void on_probe_collected(napi_env env, void *data, void *hint)
{
    (void)env;
    (void)hint;
    free(data);
}

bool gb_has_external(napi_env env)
{
    napi_value buffer;
    void *probe = malloc(1); /* of its own, since no two may be over the same address */
    napi_status status =
        probe ? napi_create_external_arraybuffer(env, probe, 1, on_probe_collected, NULL, &buffer)
              : napi_generic_failure;

    if (status == napi_no_external_buffers_allowed)
        free(probe);
    return status == napi_ok;
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

bool gb_check_range(napi_env env, const struct gpubuf_memory *memory, uint64_t from, uint64_t bytes)
{
    if (from <= memory->bytes && bytes <= memory->bytes - from)
        return true;
    (void)gb_throw(env, GPUBUF_E_INVALID, "the object's buffer is shorter than its layout says");
    return false;
}

bool gb_read_range(napi_env env, const napi_value *values, const struct gpubuf_memory *memory,
                   uint64_t *from, uint64_t *bytes)
{
    if (!gb_read_index(env, values[0], "the offset", from) ||
        !gb_read_index(env, values[1], "the length", bytes))
        return false;
    return gb_check_range(env, memory, *from, *bytes);
}

bool gb_read_which(napi_env env, napi_value value, enum gpubuf_which *which)
{
    double number;

    if (!gb_read_number(env, value, "the buffer's number", &number))
        return false;
    *which = number == 1 ? GPUBUF_MASK : number == 2 ? GPUBUF_OFFSETS : GPUBUF_DATA;
    return true;
}

/* The buffer of a host object. 1: it has no such buffer; negative after throwing. */
static int host_buffer(struct gb_addon *addon, const napi_value *values,
                       struct gpubuf_object **object, enum gpubuf_which *which,
                       struct gpubuf_memory *memory)
{
    napi_env env = addon->env;

    *object = gb_object_at(addon, values[0], NULL);
    if (!*object || !gb_read_which(env, values[1], which))
        return -1;
    int r = gpubuf_memory(*object, *which, memory);
    if (r < 0) {
        (void)gb_throw(env, r, gpubuf_object_errmsg(*object));
    } else if (strcmp(gpubuf_device(*object), "host") != 0) {
        (void)gb_throw(env, GPUBUF_E_UNSUPPORTED, "the object is on a GPU");
        r = -1;
    }
    return r;
}

/* memory(object, which, from, bytes): [ArrayBuffer, offset in it]; undefined if there is no such
   buffer. For a host object, and at least one byte. */
napi_value gb_js_memory(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gpubuf_object *object;
    enum gpubuf_which which;
    struct gpubuf_memory memory, mapping;
    uint64_t from, bytes;

    if (host_buffer(addon, values, &object, &which, &memory) != 0 ||
        !gb_read_range(env, values + 2, &memory, &from, &bytes))
        return NULL;
    char *start = (char *)memory.pointer + from;
    struct gb_hold *hold = NULL;
    int r = gb_hold_mapping(object, which, &hold, &mapping);
    if (r < 0)
        return gb_throw(env, r, gpubuf_object_errmsg(object));
    if (r == 1)
        return NULL;
    if ((double)mapping.bytes > addon->buffer_max) { /* then only the requested stretch */
        mapping.pointer = start;
        mapping.bytes = bytes;
    }
    if ((double)mapping.bytes > addon->buffer_max) {
        gb_hold_drop(hold);
        return gb_throw(env, GPUBUF_E_LIMIT,
                        "the object has more bytes than an ArrayBuffer over shared memory may have "
                        "in this version of Node: slice the object, or open it with copy: true");
    }
    napi_value buffer = find_window(addon, gb_hold_key(hold), mapping.pointer, mapping.bytes);
    if (buffer)
        gb_hold_drop(hold);
    else
        buffer = new_window(addon, hold, mapping.pointer, mapping.bytes);
    return pair(env, buffer, (double)(start - (char *)mapping.pointer));
}

/* copy(object, which, from, ArrayBuffer): fills the ArrayBuffer, and returns it; undefined if the
   host object has no such buffer. */
napi_value gb_js_copy(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gpubuf_object *object;
    enum gpubuf_which which;
    struct gpubuf_memory memory;
    uint64_t from;
    void *data = NULL;
    size_t bytes = 0;

    if (host_buffer(addon, values, &object, &which, &memory) != 0)
        return NULL;
    if (napi_get_arraybuffer_info(env, values[3], &data, &bytes) != napi_ok)
        return gb_throw(env, GPUBUF_E_INVALID, "not an ArrayBuffer");
    if (!gb_read_index(env, values[2], "the offset", &from) ||
        !gb_check_range(env, &memory, from, bytes))
        return NULL;
    if (bytes > 0)
        memcpy(data, (const char *)memory.pointer + from, bytes);
    return values[3];
}

/* detach(ArrayBuffer): what lies over it has no elements any more. */
napi_value gb_js_detach(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX], buffer;
    const struct gb_addon *addon = gb_arguments(env, info, values);

    for (struct gb_window *window = addon->windows; window; window = window->next) {
        bool same = false;
        if (window->buffer && napi_get_reference_value(env, window->buffer, &buffer) == napi_ok &&
            buffer && napi_strict_equals(env, buffer, values[0], &same) == napi_ok && same) {
            (void)napi_delete_reference(env, window->buffer);
            window->buffer = NULL; /* find_window() makes another */
            break;
        }
    }
    (void)napi_detach_arraybuffer(env, values[0]);
    return NULL;
}

/* pointer(object, which): [BigInt, bytes]; undefined if there is no such buffer. */
napi_value gb_js_pointer(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX], pointer = NULL;
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gpubuf_object *object = gb_object_at(addon, values[0], NULL);
    enum gpubuf_which which;
    struct gpubuf_memory memory;

    if (!object || !gb_read_which(env, values[1], &which))
        return NULL;
    int r = gpubuf_memory(object, which, &memory);
    if (r < 0)
        return gb_throw(env, r, gpubuf_object_errmsg(object));
    if (r == 1 ||
        napi_create_bigint_uint64(env, (uint64_t)(uintptr_t)memory.pointer, &pointer) != napi_ok)
        return NULL;
    return pair(env, pointer, (double)memory.bytes);
}
