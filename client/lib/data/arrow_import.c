/*
 * Publishing Arrow C Data. An array is walked twice. The plan checks it and says what to create;
 * then its elements are copied. Only the elements that the array's offset and length show are
 * published, from offset 0: masks and booleans are shifted and offsets rebased where need be.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/objects/copy.h"
#include "client/lib/objects/object.h"
#include "client/lib/objects/seal.h"
#include "client/lib/wire/report.h"

/* The column that one Arrow node becomes. */
struct plan {
    struct gb_dtype dtype;
    const void *mask, *offsets, *data; /* NULL: none */
    uint64_t start, length;            /* of the source's buffers, in elements */
    uint64_t data_start, data_bytes;   /* of strings, in bytes; of lists, the child's elements */
    struct plan *children;
    size_t child_count;
};

struct planning {
    struct gb_pool pool;
    struct gpubuf_client *client;
    struct gb_error error;
};

#define FAIL(planning, ...) gb_fail(&(planning)->error, GPUBUF_E_INVALID, __VA_ARGS__)

static int out_of_memory(struct planning *planning)
{
    return gb_fail_memory(&planning->error);
}

/* ---- checking a node ---- */

static bool is_integer(enum gb_type type)
{
    return type >= GB_TYPE_INT8 && type <= GB_TYPE_UINT64;
}

static int64_t buffer_count(enum gb_type type)
{
    const struct gb_type_info *info = gb_type_info(type);

    return (type != GB_TYPE_NULL) + (info->offset_bytes > 0) + info->has_data;
}

static int check_node(struct planning *planning, const struct ArrowSchema *schema,
                      const struct ArrowArray *array, const struct gb_dtype *dtype)
{
    const char *format = schema->format;

    if (array->length < 0 || array->offset < 0 || array->null_count < -1 ||
        array->length > (int64_t)GB_LIMIT(integer) || array->offset > (int64_t)GB_LIMIT(integer))
        return FAIL(planning, "an array of format \"%s\" has an impossible length or offset",
                    format);
    int64_t buffers = buffer_count(dtype->type);
    /* Some producers still give arrays of nulls a validity bitmap. */
    if (array->n_buffers != buffers && !(dtype->type == GB_TYPE_NULL && array->n_buffers == 1))
        return FAIL(planning, "an array of format \"%s\" has %" PRId64 " buffers, not %" PRId64,
                    format, array->n_buffers, buffers);
    if (buffers > 0 && !array->buffers)
        return FAIL(planning, "an array of format \"%s\" has no buffers", format);
    int children = gb_type_info(dtype->type)->children;
    if (schema->n_children < 0 || schema->n_children != array->n_children ||
        (children >= 0 && schema->n_children != children))
        return FAIL(planning,
                    "an array of format \"%s\" has %" PRId64 " children, its schema %" PRId64,
                    format, array->n_children, schema->n_children);
    if (schema->n_children > 0 && (!schema->children || !array->children))
        return FAIL(planning, "an array of format \"%s\" has no children", format);
    if ((schema->dictionary != NULL) != (array->dictionary != NULL))
        return FAIL(planning, "only one of array and schema has a dictionary");
    return 0;
}

/* ---- what Arrow calls metadata ---- */

static bool take_int32(const char **at, int32_t *value)
{
    memcpy(value, *at, sizeof(*value));
    *at += sizeof(*value);
    return *value >= 0;
}

/* A string in the pool; *text is NULL if the protocol cannot carry it. */
static int take_text(struct planning *planning, const char **at, const char **text)
{
    int32_t length;

    if (!take_int32(at, &length))
        return FAIL(planning, "a schema's metadata has a negative length");
    *text = NULL;
    if (gb_utf8_valid(*at, (size_t)length)) {
        *text = gb_pool_strndup(&planning->pool, *at, (size_t)length);
        if (!*text)
            return out_of_memory(planning);
    }
    *at += length;
    return 0;
}

static int read_metadata(struct planning *planning, const char *at, const char *const **out)
{
    int32_t count;

    if (!at)
        return 0;
    if (!take_int32(&at, &count))
        return FAIL(planning, "a schema's metadata has a negative count");
    if (count > (int32_t)GB_LIMIT(metadata_pairs))
        return gb_fail_limit(&planning->error, "metadata_pairs", GB_LIMIT(metadata_pairs),
                             "metadata pairs of a column or table");
    const char **pairs =
        gb_pool_calloc(&planning->pool, (size_t)count * 2 + 1, sizeof(const char *));
    if (!pairs)
        return out_of_memory(planning);
    size_t used = 0;
    for (int32_t i = 0; i < count; i++) {
        const char *key, *value;
        int r = take_text(planning, &at, &key);
        if (r == 0)
            r = take_text(planning, &at, &value);
        if (r < 0)
            return r;
        if (key && value) {
            pairs[used++] = key;
            pairs[used++] = value;
        }
    }
    pairs[used] = NULL;
    *out = pairs;
    return 0;
}

/* ---- planning ---- */

static int64_t offset_at(const void *offsets, bool wide, uint64_t i)
{
    return wide ? ((const int64_t *)offsets)[i] : ((const int32_t *)offsets)[i];
}

static int plan_offsets(struct planning *planning, const struct ArrowArray *array,
                        struct plan *plan)
{
    plan->offsets = array->buffers[1];
    if (!plan->offsets) {
        if (plan->length > 0)
            return FAIL(planning, "an array has no offsets");
        return 0;
    }
    if (plan->length == 0) /* the offsets do not matter, and there may be none */
        return 0;
    bool wide = gb_type_info(plan->dtype.type)->offset_bytes == 8;
    int64_t first = offset_at(plan->offsets, wide, plan->start), last = first;
    for (uint64_t i = 1; i <= plan->length; i++) {
        int64_t next = offset_at(plan->offsets, wide, plan->start + i);
        if (next < last)
            return FAIL(planning, "an array's offsets go backwards at element %" PRIu64, i - 1);
        last = next;
    }
    if (first < 0 || last > (int64_t)GB_LIMIT(integer))
        return FAIL(planning, "an array's offsets are out of range");
    plan->data_start = (uint64_t)first;
    plan->data_bytes = (uint64_t)(last - first);
    return 0;
}

static int plan_buffers(struct planning *planning, const struct ArrowArray *array,
                        struct plan *plan, struct gpubuf_column_spec *spec)
{
    const struct gb_type_info *info = gb_type_info(plan->dtype.type);

    if (plan->dtype.type == GB_TYPE_NULL) {
        spec->null_count = (int64_t)plan->length;
        return 0;
    }
    const unsigned char *mask = array->buffers[0];
    if (!mask && array->null_count > 0)
        return FAIL(planning, "an array has %" PRId64 " nulls and no validity bitmap",
                    array->null_count);
    if (mask && array->null_count != 0 && plan->length > 0) {
        uint64_t valid = gb_count_bits(mask, plan->start, plan->length);
        spec->null_count = (int64_t)(plan->length - valid);
        spec->mask = spec->null_count > 0;
        plan->mask = spec->mask ? mask : NULL;
    }
    if (info->offset_bytes) {
        int r = plan_offsets(planning, array, plan);
        if (r < 0)
            return r;
    }
    if (!info->has_data)
        return 0;
    plan->data = array->buffers[info->offset_bytes ? 2 : 1];
    uint64_t needed = info->offset_bytes ? plan->data_bytes : plan->length;
    if (!plan->data && needed > 0)
        return FAIL(planning, "an array has no data");
    if (info->offset_bytes)
        spec->data_bytes = plan->data_bytes;
    return 0;
}

static int plan_node(struct planning *planning, const struct ArrowSchema *schema,
                     const struct ArrowArray *array, uint64_t skip, uint64_t length, unsigned depth,
                     struct plan *plan, struct gpubuf_column_spec *spec);

static int make_children(struct planning *planning, size_t count, struct plan *plan,
                         struct gpubuf_column_spec *spec, struct gpubuf_column_spec **specs)
{
    if (count > GB_LIMIT(columns))
        return FAIL(planning,
                    "a table has at most %d columns, not %zu: put the numbers as one array, "
                    "or columns as a bundle of arrays",
                    (int)GB_LIMIT(columns), count);
    plan->children = gb_pool_calloc(&planning->pool, count + 1, sizeof(*plan->children));
    *specs = gb_pool_calloc(&planning->pool, count + 1, sizeof(**specs));
    if (!plan->children || !*specs)
        return out_of_memory(planning);
    plan->child_count = spec->child_count = count;
    spec->children = *specs;
    return 0;
}

/* Plans the children: how many elements of each its parent skips, and how many it takes. */
static int plan_children(struct planning *planning, const struct ArrowSchema *schema,
                         const struct ArrowArray *array, unsigned depth, struct plan *plan,
                         struct gpubuf_column_spec *spec)
{
    struct gpubuf_column_spec *specs = NULL;
    uint64_t skip = plan->start, length = plan->length;

    if (plan->dtype.type == GB_TYPE_FIXED_LIST) {
        if (__builtin_mul_overflow(skip, plan->dtype.size, &skip) ||
            __builtin_mul_overflow(length, plan->dtype.size, &length))
            return FAIL(planning, "a list is too long");
    } else if (plan->dtype.type != GB_TYPE_STRUCT) {
        skip = plan->data_start;
        length = plan->data_bytes;
    }
    int r = make_children(planning, (size_t)schema->n_children, plan, spec, &specs);
    for (size_t i = 0; r == 0 && i < plan->child_count; i++) {
        if (!schema->children[i] || !array->children[i])
            return FAIL(planning, "a child is NULL");
        r = plan_node(planning, schema->children[i], array->children[i], skip, length, depth + 1,
                      &plan->children[i], &specs[i]);
    }
    return r;
}

/* Arrow's node is the indices, with a dictionary on the side. A layout has both as children. */
static int plan_dictionary(struct planning *planning, const struct ArrowSchema *schema,
                           const struct ArrowArray *array, unsigned depth, struct plan *plan,
                           struct gpubuf_column_spec *spec)
{
    struct plan indices = *plan;
    struct gpubuf_column_spec index_spec = {
        .dtype = spec->dtype,
        .length = plan->length,
    };

    if (!is_integer(indices.dtype.type))
        return FAIL(planning, "the indices of a dictionary are of format \"%s\"", schema->format);
    int r = plan_buffers(planning, array, &indices, &index_spec);
    if (r < 0)
        return r;

    struct gpubuf_column_spec *specs = NULL;
    plan->dtype = (struct gb_dtype){.type = GB_TYPE_DICTIONARY};
    spec->dtype = "dictionary";
    spec->null_count = index_spec.null_count;
    r = make_children(planning, 2, plan, spec, &specs);
    if (r < 0)
        return r;
    plan->children[0] = indices;
    specs[0] = index_spec;
    if (array->dictionary->length < 0)
        return FAIL(planning, "a dictionary has a negative length");
    return plan_node(planning, schema->dictionary, array->dictionary, 0,
                     (uint64_t)array->dictionary->length, depth + 1, &plan->children[1], &specs[1]);
}

/* Plans elements [skip, skip + length) of an array. */
static int plan_node(struct planning *planning, const struct ArrowSchema *schema,
                     const struct ArrowArray *array, uint64_t skip, uint64_t length, unsigned depth,
                     struct plan *plan, struct gpubuf_column_spec *spec)
{
    if (!schema->release || !array->release)
        return FAIL(planning, "the schema or array has been released");
    if (depth > GB_LIMIT(layout_depth))
        return FAIL(planning, "columns nested over %d deep", (int)GB_LIMIT(layout_depth));
    if (!schema->format || !gb_dtype_from_arrow(schema->format, &plan->dtype))
        return gb_fail(&planning->error, GPUBUF_E_UNSUPPORTED, "Arrow format \"%.64s\"",
                       schema->format ? schema->format : "");
    int r = check_node(planning, schema, array, &plan->dtype);
    if (r < 0)
        return r;
    if (skip > (uint64_t)array->length || length > (uint64_t)array->length - skip)
        return FAIL(planning, "a child of %" PRId64 " elements is shorter than its parent needs",
                    array->length);

    plan->start = (uint64_t)array->offset + skip;
    plan->length = length;
    char dtype[64];
    size_t dtype_length = gb_dtype_format(&plan->dtype, dtype, sizeof(dtype));
    spec->dtype = gb_pool_strndup(&planning->pool, dtype, dtype_length);
    if (!spec->dtype)
        return out_of_memory(planning);
    spec->name = schema->name ? schema->name : "";
    spec->length = length;
    r = read_metadata(planning, schema->metadata, &spec->metadata);
    if (r < 0)
        return r;
    if (schema->dictionary)
        return plan_dictionary(planning, schema, array, depth, plan, spec);
    r = plan_buffers(planning, array, plan, spec);
    if (r == 0 && schema->n_children > 0)
        r = plan_children(planning, schema, array, depth, plan, spec);
    return r;
}

/* ---- copying ---- */

#define CHUNK_BYTES 4096u

/* Offsets, made to count from the first element copied. */
static int copy_offsets(const struct gb_client_lease *lease, const struct gb_buffer *buffer,
                        const struct plan *plan)
{
    size_t width = gb_type_info(plan->dtype.type)->offset_bytes;
    char chunk[CHUNK_BYTES];
    uint64_t total = plan->length + 1;

    if (plan->offsets && plan->length > 0 && plan->data_start == 0)
        return gb_buffer_write(lease, buffer, 0, (const char *)plan->offsets + plan->start * width,
                               total * width);
    for (uint64_t done = 0; done < total;) {
        uint64_t count = sizeof(chunk) / width;
        if (count > total - done)
            count = total - done;
        for (uint64_t i = 0; i < count; i++) {
            int64_t value = plan->length == 0
                                ? 0
                                : offset_at(plan->offsets, width == 8, plan->start + done + i) -
                                      (int64_t)plan->data_start;
            int32_t narrow = (int32_t)value;
            memcpy(chunk + i * width, width == 8 ? (void *)&value : (void *)&narrow, width);
        }
        int r = gb_buffer_write(lease, buffer, done * width, chunk, count * width);
        if (r < 0)
            return r;
        done += count;
    }
    return 0;
}

static int copy_data(const struct gb_client_lease *lease, const struct gb_buffer *buffer,
                     const struct plan *plan)
{
    uint64_t bits = gb_dtype_bits(&plan->dtype);

    if (bits == 0)
        return gb_buffer_write(lease, buffer, 0, (const char *)plan->data + plan->data_start,
                               plan->data_bytes);
    if (bits % 8 != 0)
        return gb_buffer_write_bits(lease, buffer, plan->data, plan->start, plan->length);
    uint64_t size = bits / 8;
    return gb_buffer_write(lease, buffer, 0, (const char *)plan->data + plan->start * size,
                           plan->length * size);
}

/* `column` is the granted layout; gpubuf_create has checked that it matches the plan. */
static int copy_node(const struct gb_client_lease *lease, const struct gb_column *column,
                     const struct plan *plan)
{
    const struct gb_type_info *info = gb_type_info(plan->dtype.type);
    int r = 0;

    if (plan->mask)
        r = gb_buffer_write_bits(lease, &column->mask, plan->mask, plan->start, plan->length);
    if (r == 0 && info->offset_bytes)
        r = copy_offsets(lease, &column->offsets, plan);
    if (r == 0 && info->has_data && plan->data)
        r = copy_data(lease, &column->data, plan);
    for (size_t i = 0; r == 0 && i < plan->child_count; i++)
        r = copy_node(lease, &column->children[i], &plan->children[i]);
    return r;
}

/* ---- the public side ---- */

static int plan_layout(struct planning *planning, const struct ArrowSchema *schema,
                       const struct ArrowArray *array, bool as_table, struct plan *plan,
                       struct gpubuf_layout_spec *layout)
{
    if (!schema || !array)
        return FAIL(planning, "the schema or array is NULL");
    if (array->length < 0)
        return FAIL(planning, "the array has a negative length");
    /* A table has one level less than a struct column. */
    int r = plan_node(planning, schema, array, 0, (uint64_t)array->length, as_table ? 0 : 1, plan,
                      &layout->column);
    if (r < 0)
        return r;
    layout->kind = as_table ? GPUBUF_KIND_TABLE : GPUBUF_KIND_COLUMN;
    if (as_table && plan->dtype.type != GB_TYPE_STRUCT)
        return FAIL(planning, "only a struct array can become a table, not format \"%s\"",
                    schema->format);
    if (as_table && layout->column.mask)
        return FAIL(planning, "a struct array with nulls of its own cannot become a table");
    return 0;
}

int gpubuf_put_arrow(struct gpubuf_client *client, const char *name,
                     const struct ArrowSchema *schema, const struct ArrowArray *array,
                     bool as_table, const struct gpubuf_create_options *options)
{
    struct planning planning = {.client = client};
    struct plan plan = {.start = 0};
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_COLUMN};
    struct gpubuf_object *object = NULL;
    int r = plan_layout(&planning, schema, array, as_table, &plan, &layout);

    if (r < 0)
        (void)gb_report(client, &planning.error);
    else
        r = gpubuf_create(client, name, &layout, options, &object);
    if (r == 0)
        r = gb_end_put(object, options,
                       copy_node(object->lease, &object->lease->layout.column, &plan));
    gb_pool_end(&planning.pool);
    return r;
}
