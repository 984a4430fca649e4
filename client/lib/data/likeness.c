#include "client/lib/data/likeness.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES 160

static int differs(struct gb_error *error, const char *name, const char *what, const char *is,
                   const char *was)
{
    return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                   "it has another layout: %s of \"%.200s\" is %s, and was %s", what,
                   name ? name : "the content", is, was);
}

static int differs_in(struct gb_error *error, const char *name, const char *what, uint64_t is,
                      uint64_t was)
{
    char one[24], other[24];

    (void)snprintf(one, sizeof(one), "%" PRIu64, is);
    (void)snprintf(other, sizeof(other), "%" PRIu64, was);
    return differs(error, name, what, one, other);
}

/* ---- columns ---- */

static int compare_buffers(const char *name, const char *what, const struct gb_buffer *was,
                           const struct gb_buffer *there, struct gb_error *error)
{
    if (was->present != there->present)
        return differs(error, name, what, there->present ? "there" : "missing",
                       was->present ? "there" : "missing");
    if (was->present && was->bytes != there->bytes)
        return differs_in(error, name, what, there->bytes, was->bytes);
    if (was->present && was->bytes > 0 && was->offset != there->offset)
        return differs_in(error, name, "the place", there->offset, was->offset);
    return 0;
}

static int compare_columns(const struct gb_column *was, const struct gb_column *there,
                           const char *name, struct gb_error *error)
{
    char types[2][TEXT_BYTES] = {"", ""};
    int r = 0;

    name = there->name ? there->name : name;
    (void)gb_dtype_format(&was->dtype, types[0], TEXT_BYTES);
    (void)gb_dtype_format(&there->dtype, types[1], TEXT_BYTES);
    if (was->name && there->name && strcmp(was->name, there->name) != 0)
        return differs(error, there->name, "the name", there->name, was->name);
    if (strcmp(types[0], types[1]) != 0)
        return differs(error, name, "the dtype", types[1], types[0]);
    if (was->length != there->length)
        return differs_in(error, name, "the length", there->length, was->length);
    if (was->offset != there->offset)
        return differs_in(error, name, "the offset", there->offset, was->offset);
    if (was->child_count != there->child_count)
        return differs_in(error, name, "the number of columns", there->child_count,
                          was->child_count);
    r = compare_buffers(name, "the data", &was->data, &there->data, error);
    if (r == 0)
        r = compare_buffers(name, "the mask", &was->mask, &there->mask, error);
    if (r == 0)
        r = compare_buffers(name, "the offsets", &was->offsets, &there->offsets, error);
    for (uint32_t i = 0; r == 0 && i < was->child_count; i++)
        r = compare_columns(&was->children[i], &there->children[i], name, error);
    return r;
}

/* ---- arrays ---- */

static void write_shape(char *text, unsigned ndim, const uint64_t *shape)
{
    size_t length = (size_t)snprintf(text, TEXT_BYTES, "[");

    for (unsigned i = 0; i < ndim && length < TEXT_BYTES; i++)
        length += (size_t)snprintf(text + length, TEXT_BYTES - length, "%s%" PRIu64, i ? "," : "",
                                   shape[i]);
    if (length < TEXT_BYTES)
        (void)snprintf(text + length, TEXT_BYTES - length, "]");
}

static int compare_shapes(const char *name, unsigned was_ndim, const uint64_t *was, unsigned ndim,
                          const uint64_t *there, struct gb_error *error)
{
    char texts[2][TEXT_BYTES];

    if (was_ndim == ndim && (ndim == 0 || memcmp(was, there, ndim * sizeof(*was)) == 0))
        return 0;
    write_shape(texts[0], was_ndim, was);
    write_shape(texts[1], ndim, there);
    return differs(error, name, "the shape", texts[1], texts[0]);
}

/* ---- bundles ---- */

static int compare_tensors(const struct gpubuf_tensor *was, const struct gpubuf_tensor *there,
                           struct gb_error *error)
{
    if (strcmp(was->name, there->name) != 0)
        return differs(error, there->name, "the name", there->name, was->name);
    if (strcmp(was->dtype, there->dtype) != 0)
        return differs(error, there->name, "the dtype", there->dtype, was->dtype);
    int r = compare_shapes(there->name, was->ndim, was->shape, there->ndim, there->shape, error);
    if (r == 0 && was->offset != there->offset)
        r = differs_in(error, there->name, "the place", there->offset, was->offset);
    return r;
}

static int compare_bundles(const struct gb_likeness *was, const struct gb_likeness *there,
                           struct gb_error *error)
{
    int r = 0;

    if (was->head_bytes == there->head_bytes &&
        memcmp(was->head, there->head, (size_t)was->head_bytes) == 0)
        return 0;
    if (was->manifest.tensor_count != there->manifest.tensor_count)
        return differs_in(error, NULL, "the number of arrays", there->manifest.tensor_count,
                          was->manifest.tensor_count);
    for (size_t i = 0; r == 0 && i < was->manifest.tensor_count; i++)
        r = compare_tensors(&was->manifest.tensors[i], &there->manifest.tensors[i], error);
    return r;
}

/* ---- all ---- */

int gb_likeness_compare(const struct gb_likeness *was, const struct gb_likeness *there,
                        struct gb_error *error)
{
    static const char *const kinds[] = {"bytes", "an array", "a column", "a table", "a bundle"};
    const struct gb_layout *from = was->layout, *to = there->layout;

    if (from->kind != to->kind)
        return differs(error, NULL, "the kind", kinds[to->kind], kinds[from->kind]);
    if (from->kind == GB_KIND_BUNDLE) {
        int r = compare_bundles(was, there, error);
        if (r < 0)
            return r;
    }
    if (from->kind == GB_KIND_ARRAY) {
        int r = compare_shapes(NULL, from->ndim, from->shape, to->ndim, to->shape, error);
        if (r < 0)
            return r;
    }
    int r = compare_columns(&from->column, &to->column, NULL, error);
    if (r == 0 && from->kind == GB_KIND_ARRAY && from->ndim > 0 &&
        memcmp(from->strides, to->strides, from->ndim * sizeof(*from->strides)) != 0)
        r = differs(error, NULL, "the order", "another", "another");
    return r;
}

void gb_likeness_end(struct gb_likeness *likeness)
{
    if (likeness->head)
        gb_manifest_end(&likeness->manifest);
    free(likeness->head);
    *likeness = (struct gb_likeness){0};
}

static void give_counts(struct gb_column *column, const struct gb_column *from)
{
    column->null_count = from->null_count;
    for (uint32_t i = 0; i < column->child_count; i++)
        give_counts(&column->children[i], &from->children[i]);
}

void gb_likeness_counts(struct gb_layout *layout, const struct gb_layout *from)
{
    give_counts(&layout->column, &from->column);
}
