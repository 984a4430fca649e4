/*
 * Layouts for tests: comparing them, and making random ones that are valid by construction.
 */
#ifndef GB_TEST_LAYOUTS_H
#define GB_TEST_LAYOUTS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/layout.h"
#include "random.h"

/* ---- comparing ---- */

static inline bool buffers_equal(const struct gb_buffer *a, const struct gb_buffer *b)
{
    if (!a->present || !b->present)
        return a->present == b->present;
    return a->segment == b->segment && a->offset == b->offset && a->bytes == b->bytes;
}

static inline bool texts_equal(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static inline bool dtypes_equal(const struct gb_dtype *a, const struct gb_dtype *b)
{
    return a->type == b->type && a->unit == b->unit && a->size == b->size &&
           a->precision == b->precision && a->scale == b->scale && strcmp(a->zone, b->zone) == 0;
}

static inline bool columns_equal(const struct gb_column *a, const struct gb_column *b)
{
    if (!texts_equal(a->name, b->name) || !dtypes_equal(&a->dtype, &b->dtype) ||
        a->length != b->length || a->offset != b->offset || a->null_count != b->null_count ||
        !buffers_equal(&a->data, &b->data) || !buffers_equal(&a->mask, &b->mask) ||
        !buffers_equal(&a->offsets, &b->offsets) || a->child_count != b->child_count ||
        a->metadata_count != b->metadata_count)
        return false;
    for (uint32_t i = 0; i < a->metadata_count; i++) {
        if (!texts_equal(a->metadata[i].key, b->metadata[i].key) ||
            !texts_equal(a->metadata[i].value, b->metadata[i].value))
            return false;
    }
    for (uint32_t i = 0; i < a->child_count; i++) {
        if (!columns_equal(&a->children[i], &b->children[i]))
            return false;
    }
    return true;
}

static inline bool layouts_equal(const struct gb_layout *a, const struct gb_layout *b)
{
    if (a->kind != b->kind || a->bytes != b->bytes || a->manifest_bytes != b->manifest_bytes ||
        a->ndim != b->ndim || a->c_order != b->c_order)
        return false;
    for (unsigned i = 0; i < a->ndim; i++) {
        if (a->shape[i] != b->shape[i] || a->strides[i] != b->strides[i])
            return false;
    }
    return columns_equal(&a->column, &b->column);
}

/* ---- making ---- */

struct maker {
    struct test_random random;
    enum gb_layout_form form;
    struct gb_pool *pool;
};

static inline void *make_memory(struct maker *maker, size_t count, size_t size)
{
    void *memory = gb_pool_calloc(maker->pool, count, size);

    if (!memory)
        abort();
    return memory;
}

static inline unsigned below(struct maker *maker, unsigned count)
{
    return test_random_below(&maker->random, count);
}

/* Makes a buffer of at least `bytes`, sometimes more, with a place if the form has places. */
static inline void make_buffer(struct maker *maker, uint64_t bytes, uint64_t align,
                               struct gb_buffer *buffer)
{
    buffer->present = true;
    buffer->bytes = bytes + (below(maker, 3) ? 0 : below(maker, 1000));
    if (maker->form != GB_LAYOUT_CREATE) {
        buffer->segment = below(maker, 5);
        buffer->offset = (below(maker, 4) ? (uint64_t)below(maker, 1u << 20) : 0) * align;
    }
}

static inline struct gb_dtype make_dtype(struct maker *maker, bool nested)
{
    struct gb_dtype dtype = {.type = GB_TYPE_COUNT};
    static const char *const zones[] = {"", "UTC", "+05:30", "America/Argentina/ComodRivadavia"};

    do {
        dtype.type = (enum gb_type)below(maker, GB_TYPE_COUNT);
    } while (!nested && gb_type_info(dtype.type)->children != 0);
    switch (dtype.type) {
    case GB_TYPE_FIXED_BINARY:
        dtype.size = 1 + below(maker, 20);
        break;
    case GB_TYPE_FIXED_LIST:
        dtype.size = below(maker, 4);
        break;
    case GB_TYPE_TIME32:
        dtype.unit = below(maker, 2) ? GB_UNIT_S : GB_UNIT_MS;
        break;
    case GB_TYPE_TIME64:
        dtype.unit = below(maker, 2) ? GB_UNIT_US : GB_UNIT_NS;
        break;
    case GB_TYPE_TIMESTAMP:
        snprintf(dtype.zone, sizeof(dtype.zone), "%s", zones[below(maker, 4)]);
        dtype.unit = (enum gb_unit)(GB_UNIT_S + below(maker, 4));
        break;
    case GB_TYPE_DURATION:
        dtype.unit = (enum gb_unit)(GB_UNIT_S + below(maker, 4));
        break;
    case GB_TYPE_DECIMAL128:
        dtype.precision = (uint8_t)(1 + below(maker, 38));
        dtype.scale = (int8_t)((int)below(maker, 77) - 38);
        break;
    default:
        break;
    }
    return dtype;
}

static inline uint64_t element_align(const struct gb_dtype *dtype)
{
    uint64_t bits = gb_dtype_bits(dtype);
    return dtype->type == GB_TYPE_FIXED_BINARY || bits < 8 ? 1 : bits / 8;
}

static inline char *make_text(struct maker *maker, const char *prefix, unsigned number)
{
    static const char *const decoration[] = {"", "\"", "ü", "\n", "\\", " ", "\x7f", "😀"};
    char text[64];
    int length =
        snprintf(text, sizeof(text), "%s%u%s", prefix, number, decoration[below(maker, 8)]);

    char *copy = gb_pool_strndup(maker->pool, text, (size_t)length);
    if (!copy)
        abort();
    return copy;
}

static inline void make_column(struct maker *maker, unsigned depth, uint64_t length,
                               struct gb_column *column);

/* Makes the child of a map: structs of two fields. */
static inline void make_entries(struct maker *maker, unsigned depth, struct gb_column *entries)
{
    entries->dtype.type = GB_TYPE_STRUCT;
    entries->length = below(maker, 20);
    entries->child_count = 2;
    entries->children = make_memory(maker, 2, sizeof(*entries->children));
    for (unsigned i = 0; i < 2; i++) {
        make_column(maker, depth, entries->length + below(maker, 3), &entries->children[i]);
        entries->children[i].name = make_text(maker, "field ", i);
    }
}

static inline void make_children(struct maker *maker, unsigned depth, struct gb_column *column)
{
    int wanted = gb_type_info(column->dtype.type)->children;
    uint64_t elements = column->offset + column->length;

    column->child_count = wanted < 0 ? below(maker, 4) : (uint32_t)wanted;
    column->children = make_memory(maker, column->child_count + 1, sizeof(*column->children));
    for (uint32_t i = 0; i < column->child_count; i++) {
        struct gb_column *child = &column->children[i];
        uint64_t length = below(maker, 20);

        if (column->dtype.type == GB_TYPE_MAP) {
            make_entries(maker, depth - 1, child);
            continue;
        }
        if (column->dtype.type == GB_TYPE_FIXED_LIST)
            length += elements * column->dtype.size;
        else if (column->dtype.type == GB_TYPE_STRUCT || i == 0)
            length += elements;
        do {
            memset(child, 0, sizeof(*child));
            make_column(maker, depth, length, child);
        } while (column->dtype.type == GB_TYPE_DICTIONARY && i == 0 &&
                 (child->dtype.type < GB_TYPE_INT8 || child->dtype.type > GB_TYPE_UINT64));
        if (column->dtype.type == GB_TYPE_STRUCT)
            child->name = make_text(maker, "field ", i);
    }
}

/* Fills in a zeroed column. */
static inline void make_column(struct maker *maker, unsigned depth, uint64_t length,
                               struct gb_column *column)
{
    uint64_t data, mask, offsets;

    column->dtype = make_dtype(maker, depth > 1);
    while (gb_dtype_packed(&column->dtype) || /* only arrays may have such a type */
           (column->dtype.type == GB_TYPE_MAP && depth < 3))
        column->dtype = make_dtype(maker, depth > 1);
    const struct gb_type_info *info = gb_type_info(column->dtype.type);
    column->length = length;
    column->offset = below(maker, 2) ? below(maker, 20) : 0;
    column->data.bytes = info->offset_bytes ? below(maker, 1000) : 0;
    if (!gb_column_sizes(column, &data, &mask, &offsets))
        abort();
    if (info->has_data)
        make_buffer(maker, data, element_align(&column->dtype), &column->data);
    if (info->has_mask && below(maker, 2)) {
        make_buffer(maker, (column->offset + length + 7) / 8, 1, &column->mask);
        column->null_count = (int64_t)below(maker, (unsigned)length + 2) - 1;
    }
    if (info->offset_bytes)
        make_buffer(maker, offsets, info->offset_bytes, &column->offsets);
    if (info->children != 0)
        make_children(maker, depth - 1, column);
    if (column->dtype.type == GB_TYPE_NULL ||
        (column->dtype.type == GB_TYPE_DICTIONARY && column->children[0].mask.present))
        column->null_count = (int64_t)below(maker, (unsigned)length + 2) - 1;
    column->metadata_count = below(maker, 4) ? 0 : below(maker, 20);
    column->metadata = make_memory(maker, column->metadata_count + 1, sizeof(*column->metadata));
    for (uint32_t i = 0; i < column->metadata_count; i++) {
        column->metadata[i].key = make_text(maker, "", i);
        column->metadata[i].value = make_text(maker, "value", i);
    }
}

static inline void make_array(struct maker *maker, struct gb_layout *layout)
{
    struct gb_column *column = &layout->column;
    uint64_t size, stride, span;
    bool padded = maker->form != GB_LAYOUT_CREATE && below(maker, 2);

    do {
        column->dtype = make_dtype(maker, false);
    } while (!gb_type_info(column->dtype.type)->array);
    bool packed = gb_dtype_packed(&column->dtype);
    size = span = stride = gb_dtype_item(&column->dtype);
    layout->ndim = packed ? 1 + below(maker, 4) : below(maker, 5);
    layout->shape = make_memory(maker, layout->ndim + 1, sizeof(*layout->shape));
    layout->strides = make_memory(maker, layout->ndim + 1, sizeof(*layout->strides));
    layout->c_order = true;
    column->length = 1;
    for (unsigned i = layout->ndim; i-- > 0;) {
        bool last = i + 1 == layout->ndim;
        layout->shape[i] = packed && last ? 4 * (1 + below(maker, 3)) : 2 + below(maker, 5);
        uint64_t items = gb_dtype_items(&column->dtype, layout->shape[i], last);
        if (padded && !(packed && last) && below(maker, 2)) {
            stride += size * (1 + below(maker, 3));
            layout->c_order = false;
        }
        layout->strides[i] = (int64_t)stride;
        span += (items - 1) * stride;
        stride *= items;
        column->length *= layout->shape[i];
    }
    make_buffer(maker, span, element_align(&column->dtype), &column->data);
    if (below(maker, 2)) {
        if (maker->form != GB_LAYOUT_CREATE)
            column->offset = below(maker, 8);
        column->null_count = -1;
        make_buffer(maker, (column->offset + column->length + 7) / 8, 1, &column->mask);
    }
}

static inline void make_layout(struct maker *maker, struct gb_layout *layout)
{
    struct gb_column *column = &layout->column;

    memset(layout, 0, sizeof(*layout));
    layout->kind = (enum gb_kind)below(maker, 5);
    switch (layout->kind) {
    case GB_KIND_BYTES:
        layout->bytes = column->length = below(maker, 100);
        column->dtype.type = GB_TYPE_UINT8;
        make_buffer(maker, layout->bytes, 1, &column->data);
        break;
    case GB_KIND_BUNDLE:
        layout->manifest_bytes = 1 + below(maker, 100);
        layout->bytes = column->length =
            GB_BUNDLE_PREFIX + layout->manifest_bytes + below(maker, 100);
        column->dtype.type = GB_TYPE_UINT8;
        make_buffer(maker, layout->bytes, GB_BUNDLE_ALIGN, &column->data);
        break;
    case GB_KIND_ARRAY:
        make_array(maker, layout);
        break;
    case GB_KIND_COLUMN:
        make_column(maker, 1 + below(maker, 6), below(maker, 20), column);
        break;
    case GB_KIND_TABLE:
        column->dtype.type = GB_TYPE_STRUCT;
        column->length = below(maker, 20);
        column->child_count = below(maker, 20);
        column->children = make_memory(maker, column->child_count + 1, sizeof(*column->children));
        for (uint32_t i = 0; i < column->child_count; i++) {
            make_column(maker, 1 + below(maker, 4), column->length, &column->children[i]);
            column->children[i].name = make_text(maker, "column ", i);
        }
        break;
    }
}

#endif
