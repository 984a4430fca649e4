/* Publishing columns and tables of plain C arrays. They are measured, created, and copied through a
   small window, so text need not be gathered before it goes into host memory or onto a GPU. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/objects/copy.h"
#include "client/lib/objects/object.h"
#include "client/lib/objects/seal.h"
#include "client/lib/wire/report.h"

/* Bytes on their way into a buffer, one after the other. */
struct window {
    const struct gb_client_lease *lease;
    const struct gb_buffer *buffer;
    uint64_t at;
    size_t held;
    unsigned char bytes[4096];
};

static int flush(struct window *window)
{
    int r = window->held == 0 ? 0
                              : gb_buffer_write(window->lease, window->buffer, window->at,
                                                window->bytes, window->held);

    window->at += window->held;
    window->held = 0;
    return r;
}

static int add(struct window *window, const void *data, size_t length)
{
    if (length > sizeof(window->bytes) - window->held) {
        int r = flush(window);
        if (r < 0)
            return r;
    }
    if (length > sizeof(window->bytes)) {
        int r = gb_buffer_write(window->lease, window->buffer, window->at, data, length);
        window->at += length;
        return r;
    }
    memcpy(window->bytes + window->held, data, length);
    window->held += length;
    return 0;
}

/* ---- measuring ---- */

static bool is_string(enum gb_type type)
{
    return type == GB_TYPE_UTF8 || type == GB_TYPE_LARGE_UTF8;
}

/* The text of element i; NULL: it is null. */
static const char *string_of(const struct gpubuf_values *column, uint64_t i)
{
    return column->valid && !column->valid[i] ? NULL : ((const char *const *)column->values)[i];
}

static bool is_null(const struct gpubuf_values *column, enum gb_type type, uint64_t i)
{
    return is_string(type) ? !string_of(column, i) : column->valid && !column->valid[i];
}

static int measure(const struct gpubuf_client *client, const struct gpubuf_values *column,
                   uint64_t length, struct gpubuf_column_spec *spec)
{
    const char *text = column->dtype ? column->dtype : "";
    struct gb_dtype dtype;

    if (!gb_dtype_parse(text, strlen(text), &dtype))
        return gb_report_text(client, GPUBUF_E_INVALID, "unknown dtype \"%s\"", text);
    bool string = is_string(dtype.type), bits = dtype.type == GB_TYPE_BOOL;
    if (!string && !bits && (gb_dtype_bits(&dtype) == 0 || gb_dtype_packed(&dtype)))
        return gb_report_text(client, GPUBUF_E_UNSUPPORTED,
                              "columns of %s are not made of plain arrays: use gpubuf_put_arrow",
                              text);
    if (!column->values && length > 0)
        return gb_report_text(client, GPUBUF_E_INVALID, "the values of a column of %s are NULL",
                              text);
    *spec =
        (struct gpubuf_column_spec){.name = column->name, .dtype = column->dtype, .length = length};
    for (uint64_t i = 0; (string || column->valid) && i < length; i++) {
        if (is_null(column, dtype.type, i))
            spec->null_count++;
        else if (string)
            spec->data_bytes += strlen(string_of(column, i));
    }
    spec->mask = spec->null_count > 0;
    if (dtype.type == GB_TYPE_UTF8 && spec->data_bytes > INT32_MAX)
        return gb_report_text(client, GPUBUF_E_INVALID,
                              "%" PRIu64 " bytes of text are too many for utf8: take large_utf8",
                              spec->data_bytes);
    return 0;
}

/* ---- copying ---- */

/* The validity bitmap, or the values of `bool`. */
static int copy_bits(struct window *window, const struct gpubuf_values *column, enum gb_type type,
                     uint64_t length, bool values)
{
    int r = 0;

    for (uint64_t i = 0; r == 0 && i < length; i += 8) {
        unsigned char byte = 0;
        for (unsigned bit = 0; bit < 8 && i + bit < length; bit++) {
            bool set =
                values ? ((const bool *)column->values)[i + bit] : !is_null(column, type, i + bit);
            byte = (unsigned char)(byte | set << bit);
        }
        r = add(window, &byte, 1);
    }
    return r < 0 ? r : flush(window);
}

static int copy_offsets(struct window *window, const struct gpubuf_values *column,
                        const struct gb_dtype *dtype, uint64_t length)
{
    size_t width = gb_type_info(dtype->type)->offset_bytes;
    int64_t at = 0;
    int r = 0;

    for (uint64_t i = 0; r == 0 && i <= length; i++) {
        int32_t narrow = (int32_t)at;
        r = add(window, width == 8 ? (void *)&at : (void *)&narrow, width);
        const char *text = i < length ? string_of(column, i) : NULL;
        at += text ? (int64_t)strlen(text) : 0;
    }
    return r < 0 ? r : flush(window);
}

static int copy_text(struct window *window, const struct gpubuf_values *column, uint64_t length)
{
    int r = 0;

    for (uint64_t i = 0; r == 0 && i < length; i++) {
        const char *text = string_of(column, i);
        r = text ? add(window, text, strlen(text)) : 0;
    }
    return r < 0 ? r : flush(window);
}

static int copy_column(const struct gb_client_lease *lease, const struct gb_column *made,
                       const struct gpubuf_values *column, uint64_t length)
{
    enum gb_type type = made->dtype.type;
    int r = 0;

    if (made->mask.present) {
        struct window mask = {.lease = lease, .buffer = &made->mask};
        r = copy_bits(&mask, column, type, length, false);
    }
    struct window data = {.lease = lease, .buffer = &made->data};
    if (r == 0 && is_string(type)) {
        struct window offsets = {.lease = lease, .buffer = &made->offsets};
        r = copy_offsets(&offsets, column, &made->dtype, length);
        return r < 0 ? r : copy_text(&data, column, length);
    }
    if (r == 0 && type == GB_TYPE_BOOL)
        return copy_bits(&data, column, type, length, true);
    if (r == 0 && length > 0)
        r = gb_buffer_write(lease, &made->data, 0, column->values,
                            gb_dtype_bits(&made->dtype) / 8 * length);
    return r;
}

/* ---- the public side ---- */

static int put(struct gpubuf_client *client, const char *name,
               const struct gpubuf_layout_spec *layout, const struct gpubuf_values *columns,
               size_t count, const struct gpubuf_create_options *options)
{
    struct gpubuf_object *object = NULL;
    int r = gpubuf_create(client, name, layout, options, &object);

    if (r < 0)
        return r;
    const struct gb_column *made = &object->lease->layout.column;
    if (layout->kind == GPUBUF_KIND_TABLE)
        made = made->children;
    for (size_t i = 0; r == 0 && i < count; i++)
        r = copy_column(object->lease, &made[i], &columns[i], layout->column.length);
    return gb_end_put(object, options, r);
}

int gpubuf_put_table(struct gpubuf_client *client, const char *name,
                     const struct gpubuf_values *columns, size_t count, uint64_t length,
                     const struct gpubuf_create_options *options)
{
    if (count > GB_LIMIT(columns) || (count && !columns))
        return gb_report_text(client, GPUBUF_E_INVALID, "a table has at most %d columns",
                              (int)GB_LIMIT(columns));
    struct gpubuf_column_spec *specs = calloc(count + 1, sizeof(*specs));
    if (!specs)
        return gb_report_memory(client);
    int r = 0;
    for (size_t i = 0; r == 0 && i < count; i++)
        r = measure(client, &columns[i], length, &specs[i]);
    struct gpubuf_layout_spec layout = {
        .kind = GPUBUF_KIND_TABLE,
        .column = {.length = length, .children = specs, .child_count = count}};
    if (r == 0)
        r = put(client, name, &layout, columns, count, options);
    free(specs);
    return r;
}

int gpubuf_put_column(struct gpubuf_client *client, const char *name,
                      const struct gpubuf_values *column, uint64_t length,
                      const struct gpubuf_create_options *options)
{
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_COLUMN};

    if (!column)
        return gb_report_text(client, GPUBUF_E_INVALID, "the column is NULL");
    int r = measure(client, column, length, &layout.column);
    return r < 0 ? r : put(client, name, &layout, column, 1, options);
}
