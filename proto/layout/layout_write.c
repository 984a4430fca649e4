#include "proto/layout/layout.h"

static void write_buffer(struct gb_writer *writer, const char *member, size_t length,
                         const struct gb_buffer *buffer, enum gb_layout_form form)
{
    if (!buffer->present)
        return;
    gb_write(writer, member, length);
    if (form == GB_LAYOUT_CREATE) {
        GB_WRITE_LITERAL(writer, "{\"bytes\":");
    } else {
        if (form == GB_LAYOUT_REGISTER)
            GB_WRITE_UINT(writer, "{\"handle\":", buffer->segment);
        else
            GB_WRITE_UINT(writer, "{\"segment\":", buffer->segment);
        GB_WRITE_UINT(writer, ",\"offset\":", buffer->offset);
        GB_WRITE_LITERAL(writer, ",\"bytes\":");
    }
    gb_write_uint(writer, buffer->bytes);
    gb_write_char(writer, '}');
}

#define WRITE_BUFFER(writer, column, member, form)                                                 \
    write_buffer((writer), ",\"" #member "\":", sizeof(",\"" #member "\":") - 1,                   \
                 &(column)->member, (form))

/* Nothing in a dtype needs escaping, not even a time zone. */
static void write_dtype(struct gb_writer *writer, const struct gb_dtype *dtype)
{
    char text[64];
    size_t length = gb_dtype_format(dtype, text, sizeof(text));

    GB_WRITE_LITERAL(writer, "\"dtype\":\"");
    gb_write(writer, text, length);
    gb_write_char(writer, '"');
}

static void write_metadata(struct gb_writer *writer, const struct gb_column *column)
{
    if (column->metadata_count == 0)
        return;
    GB_WRITE_LITERAL(writer, ",\"metadata\":{");
    for (uint32_t i = 0; i < column->metadata_count; i++) {
        if (i > 0)
            gb_write_char(writer, ',');
        gb_write_cstring(writer, column->metadata[i].key);
        gb_write_char(writer, ':');
        gb_write_cstring(writer, column->metadata[i].value);
    }
    gb_write_char(writer, '}');
}

static void write_columns(struct gb_writer *writer, const struct gb_column *columns, uint32_t count,
                          enum gb_layout_form form);

/* The members of a column, the first without a comma. */
static void write_column(struct gb_writer *writer, const struct gb_column *column,
                         enum gb_layout_form form)
{
    write_dtype(writer, &column->dtype);
    GB_WRITE_UINT(writer, ",\"length\":", column->length);
    if (column->offset != 0) {
        GB_WRITE_UINT(writer, ",\"offset\":", column->offset);
    }
    if (column->null_count != 0) {
        GB_WRITE_LITERAL(writer, ",\"null_count\":");
        gb_write_int(writer, column->null_count);
    }
    WRITE_BUFFER(writer, column, data, form);
    WRITE_BUFFER(writer, column, mask, form);
    WRITE_BUFFER(writer, column, offsets, form);
    if (column->child_count > 0) {
        GB_WRITE_LITERAL(writer, ",\"children\":");
        write_columns(writer, column->children, column->child_count, form);
    }
    write_metadata(writer, column);
}

static void write_columns(struct gb_writer *writer, const struct gb_column *columns, uint32_t count,
                          enum gb_layout_form form)
{
    gb_write_char(writer, '[');
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0)
            gb_write_char(writer, ',');
        gb_write_char(writer, '{');
        if (columns[i].name) {
            GB_WRITE_LITERAL(writer, "\"name\":");
            gb_write_cstring(writer, columns[i].name);
            gb_write_char(writer, ',');
        }
        write_column(writer, &columns[i], form);
        gb_write_char(writer, '}');
    }
    gb_write_char(writer, ']');
}

static void write_array(struct gb_writer *writer, const struct gb_layout *layout,
                        enum gb_layout_form form)
{
    const struct gb_column *column = &layout->column;

    write_dtype(writer, &column->dtype);
    GB_WRITE_LITERAL(writer, ",\"shape\":[");
    for (unsigned i = 0; i < layout->ndim; i++) {
        if (i > 0)
            gb_write_char(writer, ',');
        gb_write_uint(writer, layout->shape[i]);
    }
    gb_write_char(writer, ']');
    if (!layout->c_order) {
        GB_WRITE_LITERAL(writer, ",\"strides\":[");
        for (unsigned i = 0; i < layout->ndim; i++) {
            if (i > 0)
                gb_write_char(writer, ',');
            gb_write_int(writer, layout->strides[i]);
        }
        gb_write_char(writer, ']');
    }
    if (column->offset != 0) {
        GB_WRITE_UINT(writer, ",\"offset\":", column->offset);
    }
    WRITE_BUFFER(writer, column, data, form);
    WRITE_BUFFER(writer, column, mask, form);
}

void gb_layout_write(struct gb_writer *writer, const struct gb_layout *layout,
                     enum gb_layout_form form)
{
    const struct gb_column *column = &layout->column;

    switch (layout->kind) {
    case GB_KIND_BYTES:
        GB_WRITE_UINT(writer, "{\"kind\":\"bytes\",\"bytes\":", layout->bytes);
        WRITE_BUFFER(writer, column, data, form);
        write_metadata(writer, column);
        break;
    case GB_KIND_BUNDLE:
        GB_WRITE_UINT(writer, "{\"kind\":\"bundle\",\"bytes\":", layout->bytes);
        GB_WRITE_UINT(writer, ",\"manifest_bytes\":", layout->manifest_bytes);
        WRITE_BUFFER(writer, column, data, form);
        break;
    case GB_KIND_ARRAY:
        GB_WRITE_LITERAL(writer, "{\"kind\":\"array\",");
        write_array(writer, layout, form);
        write_metadata(writer, column);
        break;
    case GB_KIND_COLUMN:
        GB_WRITE_LITERAL(writer, "{\"kind\":\"column\",");
        write_column(writer, column, form);
        break;
    case GB_KIND_TABLE:
        GB_WRITE_UINT(writer, "{\"kind\":\"table\",\"length\":", column->length);
        GB_WRITE_LITERAL(writer, ",\"columns\":");
        write_columns(writer, column->children, column->child_count, form);
        write_metadata(writer, column);
        break;
    }
    gb_write_char(writer, '}');
}
