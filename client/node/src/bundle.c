#include "client/node/src/bundle.h"

#include "client/node/src/object.h"
#include "client/node/src/table.h"
#include "client/node/src/values.h"

/* The manifest, or NULL after an exception. One on a GPU is copied here, in this thread. */
static struct gpubuf_bundle *bundle_at(struct gb_addon *addon, napi_value value)
{
    size_t i;
    struct gpubuf_object *object = gb_object_at(addon, value, &i);

    if (!object)
        return NULL;
    struct gb_slot *slot = &addon->objects[i];
    if (slot->bundle)
        return slot->bundle;
    int r = gpubuf_bundle_open(object, &slot->bundle);
    if (r < 0)
        (void)gb_throw(addon->env, r, gpubuf_object_errmsg(object));
    return r < 0 ? NULL : slot->bundle;
}

/* { dtype, shape, offset, byteLength } */
static napi_value tensor_value(napi_env env, const struct gpubuf_tensor *tensor)
{
    napi_value value = NULL, shape = NULL;

    if (napi_create_object(env, &value) != napi_ok ||
        napi_create_array_with_length(env, tensor->ndim, &shape) != napi_ok)
        return NULL;
    for (unsigned i = 0; i < tensor->ndim; i++)
        (void)napi_set_element(env, shape, i, gb_number(env, (double)tensor->shape[i]));
    gb_set_text(env, value, "dtype", tensor->dtype);
    (void)napi_set_named_property(env, value, "shape", shape);
    gb_set_number(env, value, "offset", (double)tensor->offset);
    gb_set_number(env, value, "byteLength", (double)tensor->bytes);
    return value;
}

/* [key, value] */
static napi_value entry_value(napi_env env, const char *key, napi_value value)
{
    napi_value pair = NULL;

    if (!value || napi_create_array_with_length(env, 2, &pair) != napi_ok)
        return NULL;
    (void)napi_set_element(env, pair, 0, gb_text(env, key));
    (void)napi_set_element(env, pair, 1, value);
    return pair;
}

/* manifest(object): [tensors, metadata], each an array of [name, value] in the manifest's order */
napi_value gb_js_manifest(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX], both = NULL, tensors = NULL, metadata = NULL;
    struct gb_addon *addon = gb_arguments(env, info, values);
    const struct gpubuf_bundle *bundle = bundle_at(addon, values[0]);
    const char *key, *text;

    if (!bundle || napi_create_array_with_length(env, 2, &both) != napi_ok ||
        napi_create_array_with_length(env, gpubuf_bundle_count(bundle), &tensors) != napi_ok ||
        napi_create_array(env, &metadata) != napi_ok)
        return NULL;
    for (uint32_t i = 0; i < gpubuf_bundle_count(bundle); i++) {
        const struct gpubuf_tensor *tensor = gpubuf_bundle_at(bundle, i);
        napi_value pair = entry_value(env, tensor->name, tensor_value(env, tensor));
        if (!pair || napi_set_element(env, tensors, i, pair) != napi_ok)
            return NULL;
    }
    for (uint32_t i = 0; gpubuf_bundle_metadata_at(bundle, i, &key, &text) == 0; i++) {
        napi_value pair = entry_value(env, key, gb_text(env, text));
        if (!pair || napi_set_element(env, metadata, i, pair) != napi_ok)
            return NULL;
    }
    (void)napi_set_element(env, both, 0, tensors);
    (void)napi_set_element(env, both, 1, metadata);
    return both;
}

/* tensor(object, i): the index of a view */
napi_value gb_js_tensor(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX];
    struct gb_addon *addon = gb_arguments(env, info, values);
    const struct gpubuf_object *object = gb_object_at(addon, values[0], NULL);
    const struct gpubuf_bundle *bundle = object ? bundle_at(addon, values[0]) : NULL;
    struct gpubuf_object *array = NULL;
    uint64_t i;

    if (!bundle || !gb_read_index(env, values[1], "the tensor", &i))
        return NULL;
    int r = gpubuf_bundle_array(bundle, i, &array);
    return gb_view_value(env, addon, r, array, gpubuf_object_errmsg(object));
}
