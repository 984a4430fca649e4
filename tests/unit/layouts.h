/*
 * Whether two layouts are the same, for tests.
 */
#ifndef GB_TEST_LAYOUTS_H
#define GB_TEST_LAYOUTS_H

#include <string.h>

#include "proto/layout/layout.h"

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

#endif
