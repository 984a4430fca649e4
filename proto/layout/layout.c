#include "proto/layout/layout.h"

#include <stdlib.h>
#include <string.h>

#include "proto/base/limits.h"
#include "proto/base/utf8.h"

#define INTEGER_MAX ((uint64_t)GB_LIMIT(integer))

/* ---- sizes ---- */

/* Sums and products; false if the result is above the largest integer of a message. */
static bool add(uint64_t a, uint64_t b, uint64_t *sum)
{
    return !__builtin_add_overflow(a, b, sum) && *sum <= INTEGER_MAX;
}

static bool multiply(uint64_t a, uint64_t b, uint64_t *product)
{
    return !__builtin_mul_overflow(a, b, product) && *product <= INTEGER_MAX;
}

/* `unit` is a power of two. */
static bool round_up(uint64_t value, uint64_t unit, uint64_t *rounded)
{
    if (!add(value, unit - 1, rounded))
        return false;
    *rounded &= ~(unit - 1);
    return true;
}

static bool data_size(const struct gb_column *column, uint64_t elements, uint64_t *bytes)
{
    uint64_t bits = gb_dtype_bits(&column->dtype);

    if (bits == 0) {
        *bytes = gb_type_info(column->dtype.type)->has_data ? column->data.bytes : 0;
        return true;
    }
    if (bits % 8 == 0)
        return multiply(elements, bits / 8, bytes);
    *bytes = elements / 8 * bits + (elements % 8 * bits + 7) / 8; /* bool, packed */
    return true;
}

bool gb_column_sizes(const struct gb_column *column, uint64_t *data, uint64_t *mask,
                     uint64_t *offsets)
{
    const struct gb_type_info *info = gb_type_info(column->dtype.type);
    uint64_t elements, data_bytes, mask_bytes = 0, offset_bytes = 0, integers;

    if (!add(column->offset, column->length, &elements) ||
        !data_size(column, elements, &data_bytes))
        return false;
    if (info->has_mask && !round_up(elements / 8 + (elements % 8 != 0), GB_MASK_PAD, &mask_bytes))
        return false;
    if (info->offset_bytes &&
        (!add(elements, 1, &integers) || !multiply(integers, info->offset_bytes, &offset_bytes)))
        return false;
    *data = data_bytes;
    *mask = mask_bytes;
    *offsets = offset_bytes;
    return true;
}

/* ---- buffers ---- */

static int each_of_column(struct gb_column *column,
                          int (*each)(struct gb_buffer *buffer, void *arg), void *arg)
{
    struct gb_buffer *buffers[] = {&column->mask, &column->offsets, &column->data};
    int r = 0;

    for (size_t i = 0; i < 3 && r == 0; i++) {
        if (buffers[i]->present)
            r = each(buffers[i], arg);
    }
    for (uint32_t i = 0; i < column->child_count && r == 0; i++)
        r = each_of_column(&column->children[i], each, arg);
    return r;
}

int gb_layout_each(struct gb_layout *layout, int (*each)(struct gb_buffer *buffer, void *arg),
                   void *arg)
{
    return each_of_column(&layout->column, each, arg);
}

/* The sizes of a request's handles. */
struct handles {
    const uint64_t *bytes;
    size_t count;
};

static int check_handle(const struct gb_buffer *buffer, const char *member,
                        const struct handles *handles, const struct gb_path *up,
                        struct gb_error *error)
{
    struct gb_path path = {.up = up, .key = member};
    uint64_t end = buffer->offset + buffer->bytes; /* below 2^52, as it was read */

    if (!buffer->present)
        return 0;
    if (buffer->segment >= handles->count)
        return gb_fail_at(error, &path, "there is no handle %llu, but only %zu",
                          (unsigned long long)buffer->segment, handles->count);
    if (end > handles->bytes[buffer->segment])
        return gb_fail_at(error, &path, "it ends at byte %llu, but handle %llu has %llu bytes",
                          (unsigned long long)end, (unsigned long long)buffer->segment,
                          (unsigned long long)handles->bytes[buffer->segment]);
    return 0;
}

static int check_handles_of(const struct gb_column *column, const char *children,
                            const struct handles *handles, const struct gb_path *path,
                            struct gb_error *error)
{
    struct gb_path list = {.up = path, .key = children};
    int r = check_handle(&column->mask, "mask", handles, path, error);

    if (r == 0)
        r = check_handle(&column->offsets, "offsets", handles, path, error);
    if (r == 0)
        r = check_handle(&column->data, "data", handles, path, error);
    for (uint32_t i = 0; i < column->child_count && r == 0; i++) {
        struct gb_path item = {.up = &list, .index = i};
        r = check_handles_of(&column->children[i], "children", handles, &item, error);
    }
    return r;
}

int gb_layout_check_handles(const struct gb_layout *layout, const uint64_t *bytes, size_t count,
                            const struct gb_path *path, struct gb_error *error)
{
    struct handles handles = {bytes, count};
    const char *children = layout->kind == GB_KIND_TABLE ? "columns" : "children";

    return check_handles_of(&layout->column, children, &handles, path, error);
}

static bool place(struct gb_buffer *buffer, uint64_t *cursor)
{
    buffer->offset = 0;
    if (buffer->bytes == 0)
        return true;
    return round_up(*cursor, GB_BUFFER_ALIGN, &buffer->offset) &&
           add(buffer->offset, buffer->bytes, cursor);
}

static bool place_column(struct gb_column *column, uint64_t *cursor)
{
    struct gb_buffer *mask = &column->mask;

    if (mask->present &&
        (!round_up(mask->bytes, GB_MASK_PAD, &mask->bytes) || !place(mask, cursor)))
        return false;
    if (column->offsets.present && !place(&column->offsets, cursor))
        return false;
    if (column->data.present && !place(&column->data, cursor))
        return false;
    for (uint32_t i = 0; i < column->child_count; i++) {
        if (!place_column(&column->children[i], cursor))
            return false;
    }
    return true;
}

int gb_layout_measure(struct gb_layout *layout, uint64_t *total, struct gb_error *error)
{
    uint64_t cursor = 0;

    if (!place_column(&layout->column, &cursor))
        return gb_fail(error, GPUBUF_E_INVALID, "the layout needs 2^52 bytes or more");
    *total = cursor;
    return 0;
}

/* ---- parts ---- */

uint64_t gb_layout_length(const struct gb_layout *layout)
{
    switch (layout->kind) {
    case GB_KIND_BYTES:
    case GB_KIND_BUNDLE:
        return layout->bytes;
    case GB_KIND_ARRAY:
        return layout->ndim ? layout->shape[0] : 1;
    case GB_KIND_COLUMN:
    case GB_KIND_TABLE:
        break;
    }
    return layout->column.length;
}

void gb_column_slice(struct gb_column *column, uint64_t offset, uint64_t length)
{
    if (length == 0)
        column->null_count = 0;
    else if (column->null_count == (int64_t)column->length)
        column->null_count = (int64_t)length; /* all are null */
    else if (column->null_count != 0 && length != column->length)
        column->null_count = -1;
    column->offset += offset;
    column->length = length;
}

uint64_t gb_layout_items(const struct gb_layout *layout, unsigned axis)
{
    return gb_dtype_items(&layout->column.dtype, layout->shape[axis], axis + 1 == layout->ndim);
}

/* Sets c_order, and C order's strides, if the strides differ from these only where that means
   nothing: at axes of one element, or in an array without elements. Reading decides it in the same
   way. Products are in range, since those of the whole array were. */
static void settle_strides(struct gb_layout *layout)
{
    uint64_t size = gb_dtype_item(&layout->column.dtype), stride = size;

    for (unsigned i = layout->ndim; i-- > 0;) {
        uint64_t extent = gb_layout_items(layout, i);
        if ((uint64_t)layout->strides[i] != stride && extent != 1 && layout->column.length > 0)
            return;
        stride *= extent ? extent : 1;
    }
    stride = size;
    for (unsigned i = layout->ndim; i-- > 0;) {
        layout->strides[i] = (int64_t)stride;
        uint64_t extent = gb_layout_items(layout, i);
        stride *= extent ? extent : 1;
    }
    layout->c_order = true;
}

/*
 * The mask's bits follow the elements in C order, so rows of the first axis have a stretch of bits.
 * It may begin inside a byte; column.offset says at which bit.
 */
static void slice_array(struct gb_layout *layout, uint64_t offset, uint64_t length)
{
    struct gb_column *column = &layout->column;
    uint64_t row = 1, elements, span = gb_dtype_item(&column->dtype);
    uint64_t start =
        gb_dtype_items(&column->dtype, offset, layout->ndim == 1) * (uint64_t)layout->strides[0];

    for (unsigned i = 1; i < layout->ndim; i++)
        row *= layout->shape[i];
    layout->shape[0] = length;
    elements = row * length;
    column->length = elements;
    settle_strides(layout);
    if (elements == 0) {
        column->data.bytes = column->mask.bytes = column->offset = 0;
        return;
    }
    for (unsigned i = 0; i < layout->ndim; i++)
        span += (gb_layout_items(layout, i) - 1) * (uint64_t)layout->strides[i];
    column->data.offset += start;
    column->data.bytes = span;
    if (column->mask.present) {
        uint64_t bit = column->offset + offset * row;
        column->mask.offset += bit / 8;
        column->offset = bit % 8;
        column->mask.bytes = (column->offset + elements + 7) / 8;
    }
}

int gb_layout_slice(struct gb_layout *layout, uint64_t offset, uint64_t length,
                    const struct gb_path *path, struct gb_error *error)
{
    static const char *const units[] = {"bytes", "rows of the first axis", "elements", "rows",
                                        "bytes"};
    uint64_t end, limit = gb_layout_length(layout);

    if (layout->kind == GB_KIND_ARRAY && layout->ndim == 0)
        return gb_fail_at(error, path, "an array of 0 axes cannot be sliced");
    if (!add(offset, length, &end) || end > limit)
        return gb_fail_at(error, path,
                          "offset %llu and length %llu go past the end: there are %llu %s",
                          (unsigned long long)offset, (unsigned long long)length,
                          (unsigned long long)limit, units[layout->kind]);
    if (layout->kind == GB_KIND_BUNDLE && length != limit)
        return gb_fail_at(error, path,
                          "offset %llu and length %llu: a bundle has one manifest for all of its "
                          "%llu bytes, and cannot be sliced",
                          (unsigned long long)offset, (unsigned long long)length,
                          (unsigned long long)limit);
    if (layout->kind == GB_KIND_ARRAY && layout->ndim == 1 &&
        !(gb_dtype_fills(&layout->column.dtype, offset) &&
          gb_dtype_fills(&layout->column.dtype, length)))
        return gb_fail_at(error, path,
                          "offset %llu and length %llu: elements of %s are packed, and a slice of "
                          "them begins and ends at whole bytes",
                          (unsigned long long)offset, (unsigned long long)length,
                          gb_type_info(layout->column.dtype.type)->name);
    switch (layout->kind) {
    case GB_KIND_BYTES:
        layout->bytes = layout->column.length = layout->column.data.bytes = length;
        layout->column.data.offset += offset;
        break;
    case GB_KIND_ARRAY:
        slice_array(layout, offset, length);
        break;
    case GB_KIND_TABLE:
        for (uint32_t i = 0; i < layout->column.child_count; i++)
            gb_column_slice(&layout->column.children[i], offset, length);
        layout->column.length = length;
        break;
    case GB_KIND_COLUMN:
        gb_column_slice(&layout->column, offset, length);
        break;
    case GB_KIND_BUNDLE: /* all of it */
        break;
    }
    return 0;
}

/* A table's column, for looking it up by name in a sorted array. */
struct named {
    const struct gb_column *column;
    bool taken;
};

static int compare_named(const void *a, const void *b)
{
    const struct named *left = a, *right = b;

    return strcmp(left->column->name, right->column->name);
}

static int select_column(struct named *sorted, size_t count, const char *name,
                         const struct gb_path *path, struct gb_column *column,
                         struct gb_error *error)
{
    struct gb_column wanted = {.name = name};
    struct named key = {.column = &wanted}, *found;

    found = bsearch(&key, sorted, count, sizeof(*sorted), compare_named);
    if (!found)
        return gb_fail_at(error, path, "no column \"%s\"", name);
    if (found->taken)
        return gb_fail_at(error, path, "column \"%s\" is named twice", name);
    found->taken = true;
    *column = *found->column;
    return 0;
}

int gb_layout_select(struct gb_layout *layout, const struct gb_string *names, size_t count,
                     const struct gb_path *path, struct gb_pool *pool, struct gb_error *error)
{
    struct gb_column *table = &layout->column, *chosen;
    struct named *sorted;

    if (layout->kind != GB_KIND_TABLE)
        return gb_fail_at(error, path, "only tables have columns to choose from");
    sorted = gb_pool_calloc(pool, (size_t)table->child_count + 1, sizeof(*sorted));
    chosen = gb_pool_calloc(pool, count + 1, sizeof(*chosen));
    if (!sorted || !chosen)
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "%s", gb_error_text(GPUBUF_E_NO_MEMORY));
    for (uint32_t i = 0; i < table->child_count; i++)
        sorted[i].column = &table->children[i];
    qsort(sorted, table->child_count, sizeof(*sorted), compare_named);
    for (size_t i = 0; i < count; i++) {
        struct gb_path step = {.up = path, .index = i};
        int r = select_column(sorted, table->child_count, names[i].text, &step, &chosen[i], error);
        if (r < 0)
            return r;
    }
    table->children = chosen;
    table->child_count = (uint32_t)count;
    return 0;
}

/* ---- names of objects ---- */

int gb_name_check(const char *name, size_t length, const struct gb_path *path,
                  struct gb_error *error)
{
    if (length == 0)
        return gb_fail_at(error, path, "a name must not be empty");
    if (length > GB_LIMIT(name_bytes))
        return gb_fail_at(error, path, "a name of %zu bytes; at most %d are allowed", length,
                          (int)GB_LIMIT(name_bytes));
    if (!gb_utf8_valid(name, length))
        return gb_fail_at(error, path, "the name is not UTF-8");
    if (!gb_utf8_is_plain(name, length))
        return gb_fail_at(error, path,
                          "the name has a control character, or one that turns the "
                          "direction of text or shows nothing");
    if (name[0] == '/' || name[length - 1] == '/')
        return gb_fail_at(error, path, "a name must not begin or end with '/'");
    if (memmem(name, length, "//", 2))
        return gb_fail_at(error, path, "the name has an empty part between two '/'");
    return 0;
}
