#include "client/node/src/create.h"

#include <stdlib.h>
#include <string.h>

#include "client/node/src/request.h"
#include "client/node/src/values.h"

#define DEPTH_MAX 32 /* the daemon takes fewer and says so; this bounds the recursion */

/* All memory that a layout points to, freed together. */
struct piece {
    struct piece *next;
    void *memory;
};

struct reading {
    napi_env env;
    struct piece *pieces;
};

static void *keep(struct reading *reading, void *memory)
{
    struct piece *piece = memory ? malloc(sizeof(*piece)) : NULL;

    if (!piece) {
        free(memory);
        (void)gb_throw_memory(reading->env);
        return NULL;
    }
    *piece = (struct piece){reading->pieces, memory};
    reading->pieces = piece;
    return memory;
}

static void reading_end(struct reading *reading)
{
    while (reading->pieces) {
        struct piece *piece = reading->pieces;
        reading->pieces = piece->next;
        free(piece->memory);
        free(piece);
    }
}

/* Reads a string; leaves *text unchanged if the member is absent. */
static bool read_text(struct reading *reading, napi_value object, const char *name,
                      const char **text)
{
    char *copy;

    if (!gb_read_text(reading->env, gb_member(reading->env, object, name), name, &copy))
        return false;
    if (!copy)
        return true;
    *text = keep(reading, copy);
    return *text != NULL;
}

static bool read_index(const struct reading *reading, napi_value object, const char *name,
                       uint64_t *number)
{
    napi_value value = gb_member(reading->env, object, name);

    return gb_is_absent(reading->env, value) || gb_read_index(reading->env, value, name, number);
}

/* The null count; of a column with a mask and without `nullCount`, -1: not counted. */
static bool read_count(const struct reading *reading, napi_value object, bool mask, int64_t *count)
{
    double number = mask ? -1 : 0;
    napi_value value = gb_member(reading->env, object, "nullCount");

    if (!gb_is_absent(reading->env, value) &&
        !gb_read_number(reading->env, value, "nullCount", &number))
        return false;
    *count = number >= 0 && number < 9007199254740992.0 ? (int64_t)number : -1;
    return true;
}

static bool read_metadata(struct reading *reading, napi_value object, const char *const **metadata)
{
    napi_env env = reading->env;
    napi_value list = gb_member(env, object, "metadata");
    uint32_t count = gb_array_length(env, list);

    if (count == 0)
        return true;
    const char **texts = keep(reading, calloc((size_t)count + 1, sizeof(*texts)));
    if (!texts)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        napi_value item;
        char *copy;
        if (napi_get_element(env, list, i, &item) != napi_ok ||
            !gb_read_text(env, item, "metadata", &copy))
            return false;
        texts[i] = keep(reading, copy);
        if (!texts[i])
            return false;
    }
    *metadata = texts;
    return true;
}

static bool read_column(struct reading *reading, napi_value object,
                        struct gpubuf_column_spec *column, unsigned depth)
{
    napi_env env = reading->env;

    if (depth > DEPTH_MAX) {
        (void)napi_throw_range_error(env, NULL, "the layout is nested too deep");
        return false;
    }
    if (!read_text(reading, object, "name", &column->name) ||
        !read_text(reading, object, "dtype", &column->dtype) ||
        !read_index(reading, object, "length", &column->length) ||
        !read_index(reading, object, "offset", &column->offset) ||
        !read_index(reading, object, "dataBytes", &column->data_bytes) ||
        !read_metadata(reading, object, &column->metadata))
        return false;
    column->mask = gb_read_flag(env, gb_member(env, object, "mask"));
    if (!read_count(reading, object, column->mask, &column->null_count))
        return false;
    napi_value list = gb_member(env, object, "children");
    uint32_t count = gb_array_length(env, list);
    if (count == 0)
        return true;
    struct gpubuf_column_spec *children = keep(reading, calloc(count, sizeof(*children)));
    if (!children)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        napi_value item;
        if (napi_get_element(env, list, i, &item) != napi_ok ||
            !read_column(reading, item, &children[i], depth + 1))
            return false;
    }
    column->children = children;
    column->child_count = count;
    return true;
}

static bool read_layout(struct reading *reading, napi_value object,
                        struct gpubuf_layout_spec *layout)
{
    napi_env env = reading->env;
    uint64_t kind = 0;

    if (!read_index(reading, object, "kind", &kind) ||
        !read_index(reading, object, "bytes", &layout->bytes) ||
        !read_index(reading, object, "manifestBytes", &layout->manifest_bytes) ||
        !read_text(reading, object, "dtype", &layout->dtype))
        return false;
    layout->kind = (enum gpubuf_kind)(kind & 7); /* the library refuses others */
    layout->mask = gb_read_flag(env, gb_member(env, object, "mask"));
    napi_value shape = gb_member(env, object, "shape");
    uint32_t ndim = gb_array_length(env, shape);
    if (layout->kind == GPUBUF_KIND_ARRAY) {
        uint64_t *extents = keep(reading, calloc((size_t)ndim + 1, sizeof(*extents)));
        if (!extents)
            return false;
        for (uint32_t i = 0; i < ndim; i++) {
            napi_value item;
            if (napi_get_element(env, shape, i, &item) != napi_ok ||
                !gb_read_index(env, item, "shape", &extents[i]))
                return false;
        }
        layout->ndim = ndim;
        layout->shape = extents;
    }
    napi_value column = gb_member(env, object, "column");
    return gb_is_absent(env, column) || read_column(reading, column, &layout->column, 0);
}

static bool read_create_options(struct reading *reading, napi_value object,
                                struct gpubuf_create_options *options)
{
    napi_env env = reading->env;
    uint64_t mode = 0, ttl = 0, wait = 0, evict = 0, keep = 0, scope = 0;

    *options = (struct gpubuf_create_options){.size = sizeof(*options)};
    if (gb_is_absent(env, object))
        return true;
    if (!read_text(reading, object, "device", &options->device) ||
        !read_text(reading, object, "share", &options->share) ||
        !read_text(reading, object, "label", &options->label) ||
        !read_index(reading, object, "keep", &keep) ||
        !read_index(reading, object, "mode", &mode) || !read_index(reading, object, "ttl", &ttl) ||
        !read_index(reading, object, "timeout", &wait) ||
        !read_index(reading, object, "evict", &evict) ||
        !read_index(reading, object, "scope", &scope))
        return false;
    options->mode = mode <= 0777 ? (unsigned)mode : 01000; /* the library refuses that */
    options->replace = gb_read_flag(env, gb_member(env, object, "replace"));
    options->final = gb_read_flag(env, gb_member(env, object, "final"));
    options->live = gb_read_flag(env, gb_member(env, object, "live"));
    options->own = gb_read_flag(env, gb_member(env, object, "own"));
    options->ttl_ms = (int64_t)ttl;
    options->evict = (enum gpubuf_evict)evict;
    options->scope = (enum gpubuf_scope)scope;
    options->wait_ms = (int64_t)wait;
    options->keep = keep < UINT32_MAX ? (unsigned)keep : UINT32_MAX;
    return true;
}

/* create(client, id, name, layout, options) */
napi_value gb_js_create(napi_env env, napi_callback_info info)
{
    napi_value values[GB_ARGUMENTS_MAX], result = NULL;
    struct gb_addon *addon = gb_arguments(env, info, values);
    struct gb_node_client *client = gb_client_at(addon, values[0]);
    struct reading reading = {.env = env};
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES};
    struct gpubuf_create_options options;
    struct gb_pending *pending = NULL;
    char *name = NULL;

    if (client && gb_read_text(env, values[2], "the name", &name) &&
        read_layout(&reading, values[3], &layout) &&
        read_create_options(&reading, values[4], &options))
        pending = gb_pending_new(client, values[1]);
    if (pending) {
        uint64_t request = 0;
        int r = gpubuf_create_async(client->client, name, &layout, &options, gb_on_object, pending,
                                    &request);
        result = gb_begun(env, client, pending, r, request);
    }
    reading_end(&reading);
    free(name);
    return result;
}
