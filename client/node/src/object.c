#include "client/node/src/object.h"

#include <stdlib.h>
#include <string.h>

#include "client/node/src/table.h"
#include "client/node/src/values.h"

static void set(napi_env env, napi_value object, const char *name, napi_value value)
{
    if (value)
        (void)napi_set_named_property(env, object, name, value);
}

static napi_value axes(napi_env env, const struct gpubuf_object *object, bool strides)
{
    unsigned ndim = gpubuf_ndim(object);
    napi_value array = NULL;

    if (napi_create_array_with_length(env, ndim, &array) != napi_ok)
        return NULL;
    for (unsigned i = 0; i < ndim; i++) {
        double number =
            strides ? (double)gpubuf_strides(object)[i] : (double)gpubuf_shape(object)[i];
        (void)napi_set_element(env, array, i, gb_number(env, number));
    }
    return array;
}

static napi_value metadata(napi_env env, const struct gpubuf_object *object)
{
    const char *key, *text;
    napi_value pairs = NULL;

    for (size_t i = 0; gpubuf_metadata_at(object, i, &key, &text) == 0; i++) {
        napi_value pair = NULL;
        if ((!pairs && napi_create_array(env, &pairs) != napi_ok) ||
            napi_create_array_with_length(env, 2, &pair) != napi_ok)
            return NULL;
        (void)napi_set_element(env, pair, 0, gb_text(env, key));
        (void)napi_set_element(env, pair, 1, gb_text(env, text));
        (void)napi_set_element(env, pairs, (uint32_t)i, pair);
    }
    return pairs;
}

/* describe(object) */
napi_value gb_js_describe(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX], result = NULL;
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gpubuf_object *object = gb_object_at(addon, values[0], NULL);

    if (!object || napi_create_object(env, &result) != napi_ok)
        return NULL;
    enum gpubuf_kind kind = gpubuf_kind(object);
    set(env, result, "kind", gb_number(env, kind));
    set(env, result, "name", gb_text(env, gpubuf_name(object)));
    set(env, result, "version", gb_number(env, (double)gpubuf_object_version(object)));
    set(env, result, "label", gb_text(env, gpubuf_label(object)));
    set(env, result, "device", gb_text(env, gpubuf_device(object)));
    set(env, result, "ordinal", gb_number(env, gpubuf_device_ordinal(object)));
    set(env, result, "generation", gb_number(env, (double)gpubuf_generation(object)));
    set(env, result, "foreign", gb_flag(env, gpubuf_is_foreign(object)));
    set(env, result, "live", gb_flag(env, gpubuf_is_live(object)));
    set(env, result, "columnName", gb_text(env, gpubuf_column_name(object)));
    set(env, result, "dtype", gb_text(env, gpubuf_dtype(object)));
    set(env, result, "length", gb_number(env, (double)gpubuf_length(object)));
    set(env, result, "offset", gb_number(env, (double)gpubuf_offset(object)));
    set(env, result, "childCount", gb_number(env, (double)gpubuf_child_count(object)));
    set(env, result, "metadata", metadata(env, object));
    if (kind == GPUBUF_KIND_ARRAY) {
        set(env, result, "shape", axes(env, object, false));
        set(env, result, "strides", axes(env, object, true));
    }
    return result;
}

/* stale(object) */
napi_value gb_js_stale(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gpubuf_object *object = gb_object_at(addon, values[0], NULL);

    return object ? gb_flag(env, gpubuf_is_stale(object)) : NULL;
}

/* nullCount(object) */
napi_value gb_js_null_count(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gpubuf_object *object = gb_object_at(addon, values[0], NULL);

    return object ? gb_number(env, (double)gpubuf_null_count(object)) : NULL;
}

/* release(object, stream or undefined): with a stream, after the work queued on it */
napi_value gb_js_release(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    uint64_t index;
    void *stream;

    if (!gb_read_index(env, values[0], "the object", &index) ||
        !gb_read_stream(env, values[1], &stream))
        return NULL;
    struct gpubuf_object *object = gb_object_take(addon, index);
    if (gpubuf_release_on(object, stream) < 0) /* the stream has failed, and runs no work */
        gpubuf_release(object);
    return NULL;
}

napi_value gb_view_value(napi_env env, struct gb_addon *addon, int r, struct gpubuf_object *view,
                         const char *message)
{
    if (r < 0)
        return gb_throw(env, r, message);
    double index = gb_object_add(addon, view);
    return index < 0 ? gb_throw_memory(env) : gb_number(env, index);
}

/* child(object, i) */
napi_value gb_js_child(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gpubuf_object *object = gb_object_at(addon, values[0], NULL), *child = NULL;
    uint64_t i;

    if (!object || !gb_read_index(env, values[1], "the child's number", &i))
        return NULL;
    int r = gpubuf_child(object, i, &child);
    return gb_view_value(env, addon, r, child, gpubuf_object_errmsg(object));
}

/* column(object, name) */
napi_value gb_js_column(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gpubuf_object *object = gb_object_at(addon, values[0], NULL), *column = NULL;
    char *name;

    if (!object || !gb_read_text(env, values[1], "the column's name", &name))
        return NULL;
    int r = gpubuf_column(object, name, &column);
    free(name);
    return gb_view_value(env, addon, r, column, gpubuf_object_errmsg(object));
}

/* slice(object, offset, length) */
napi_value gb_js_slice(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gpubuf_object *object = gb_object_at(addon, values[0], NULL), *slice = NULL;
    uint64_t offset, length;

    if (!object || !gb_read_index(env, values[1], "the offset", &offset) ||
        !gb_read_index(env, values[2], "the length", &length))
        return NULL;
    int r = gpubuf_slice(object, offset, length, &slice);
    return gb_view_value(env, addon, r, slice, gpubuf_object_errmsg(object));
}
