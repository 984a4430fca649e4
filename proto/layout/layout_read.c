/* Reading layouts: from text into structs, with every check that layout.h lists. */
#include <string.h>

#include "proto/layout/layout_reader.h"

static const struct gb_field bytes_fields[] = {
    GB_RAW(kind, GB_FIELD_ANY, GB_FIELD_REQUIRED, 0, 0),
    GB_RAW(bytes, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
    GB_RAW(data, GB_FIELD_OBJECT, 0, 0, 0),
    GB_RAW(metadata, GB_FIELD_OBJECT, 0, 0, 0),
};

static const struct gb_field bundle_fields[] = {
    GB_RAW(kind, GB_FIELD_ANY, GB_FIELD_REQUIRED, 0, 0),
    GB_RAW(bytes, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
    GB_RAW(manifest_bytes, GB_FIELD_UINT, GB_FIELD_REQUIRED, 1, GB_LIMIT(integer)),
    GB_RAW(data, GB_FIELD_OBJECT, 0, 0, 0),
};

static const struct gb_field array_fields[] = {
    GB_RAW(kind, GB_FIELD_ANY, GB_FIELD_REQUIRED, 0, 0),
    GB_RAW(dtype, GB_FIELD_ANY, GB_FIELD_REQUIRED, 0, 0),
    GB_RAW(shape, GB_FIELD_ARRAY, GB_FIELD_REQUIRED, 0, 0),
    GB_RAW(strides, GB_FIELD_ARRAY, 0, 0, 0),
    GB_RAW(offset, GB_FIELD_UINT, 0, 0, 0),
    GB_RAW(data, GB_FIELD_OBJECT, 0, 0, 0),
    GB_RAW(mask, GB_FIELD_OBJECT, 0, 0, 0),
    GB_RAW(metadata, GB_FIELD_OBJECT, 0, 0, 0),
};

static const struct gb_field table_fields[] = {
    GB_RAW(kind, GB_FIELD_ANY, GB_FIELD_REQUIRED, 0, 0),
    GB_RAW(length, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
    GB_RAW(columns, GB_FIELD_ARRAY, GB_FIELD_REQUIRED, 0, 0),
    GB_RAW(metadata, GB_FIELD_OBJECT, 0, 0, 0),
};

int gb_layout_no_memory(struct gb_layout_reader *reader)
{
    return gb_fail(reader->error, GPUBUF_E_NO_MEMORY, "%s", gb_error_text(GPUBUF_E_NO_MEMORY));
}

int gb_layout_as_limit(struct gb_layout_reader *reader, const char *limit)
{
    if (reader->error) {
        reader->error->code = GPUBUF_E_LIMIT;
        reader->error->limit = limit;
    }
    return GPUBUF_E_LIMIT;
}

/* ---- dtype ---- */

/* How many bytes of a value to show in a message; never part of a character. */
static int shown(struct gb_json value)
{
    size_t length = gb_json_length(value);

    if (length > 80) {
        length = 80;
        while (((unsigned char)value.text[length] & 0xc0) == 0x80)
            length--;
    }
    return (int)length;
}

/* Reads a string that is looked at only once: it is neither copied nor terminated, unless it has
   escapes. */
static int read_text(struct gb_layout_reader *reader, struct gb_json value,
                     const struct gb_path *path, struct gb_string *text)
{
    if (gb_json_type(value) == GB_JSON_STRING && !value.token->escaped) {
        *text = (struct gb_string){value.text + 1, gb_json_length(value) - 2};
        return 0;
    }
    return gb_json_string(value, 0, path, reader->pool, text, reader->error);
}

int gb_layout_read_dtype(struct gb_layout_reader *reader, struct gb_json value,
                         const struct gb_path *up, struct gb_dtype *dtype)
{
    struct gb_path path = {.up = up, .key = "dtype"};
    struct gb_string text;
    int r = read_text(reader, value, &path, &text);

    if (r < 0)
        return r;
    if (!gb_dtype_parse(text.text, text.length, dtype))
        return gb_fail_at(reader->error, &path, "unknown dtype %.*s%s", shown(value), value.text,
                          (size_t)shown(value) < gb_json_length(value) ? "…" : "");
    return 0;
}

/* ---- buffers ---- */

struct raw_buffer {
    uint64_t segment, handle, offset, bytes;
};

static const struct gb_field create_fields[] = {
    GB_FIELD(struct raw_buffer, bytes, GB_FIELD_UINT, 0, 0, 0),
};
static const struct gb_field register_fields[] = {
    GB_FIELD(struct raw_buffer, handle, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
    GB_FIELD(struct raw_buffer, offset, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
    GB_FIELD(struct raw_buffer, bytes, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
};
static const struct gb_field reply_fields[] = {
    GB_FIELD(struct raw_buffer, segment, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
    GB_FIELD(struct raw_buffer, offset, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
    GB_FIELD(struct raw_buffer, bytes, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
};

static const struct {
    const struct gb_field *fields;
    size_t count;
} buffer_fields[] = {
    [GB_LAYOUT_CREATE] = {create_fields, GB_COUNT(create_fields)},
    [GB_LAYOUT_REGISTER] = {register_fields, GB_COUNT(register_fields)},
    [GB_LAYOUT_REPLY] = {reply_fields, GB_COUNT(reply_fields)},
};

int gb_layout_read_buffer(struct gb_layout_reader *reader, struct gb_json value,
                          const struct gb_buffer_need *need, const struct gb_path *up,
                          struct gb_buffer *buffer)
{
    struct gb_path path = {.up = up, .key = need->member};
    struct raw_buffer raw = {.bytes = need->place};
    uint64_t end, present = 0;
    bool create = reader->form == GB_LAYOUT_CREATE;

    if (value.text) {
        int r = gb_json_read(value, buffer_fields[reader->form].fields,
                             buffer_fields[reader->form].count, reader->unknown, &path,
                             reader->pool, &raw, &present, reader->error);
        if (r < 0)
            return r;
    } else if (!create) {
        return gb_fail_at(reader->error, &path, "missing");
    }
    if (create && need->size_unknown && !present) {
        struct gb_path bytes = {.up = &path, .key = "bytes"};
        return gb_fail_at(reader->error, &bytes,
                          "missing; the size of text follows from nothing else");
    }
    if (raw.bytes < need->bytes) {
        struct gb_path bytes = {.up = &path, .key = "bytes"};
        return gb_fail_at(reader->error, &bytes, "%llu is too small, %llu are needed",
                          GB_ULL(raw.bytes), GB_ULL(need->bytes));
    }
    if (__builtin_add_overflow(raw.offset, raw.bytes, &end) || end > GB_INTEGER_MAX)
        return gb_fail_at(reader->error, &path, "it ends at 2^52 or later");
    if (raw.offset % need->align != 0) {
        struct gb_path offset = {.up = &path, .key = "offset"};
        return gb_fail_at(reader->error, &offset, "%llu is not a multiple of %llu",
                          GB_ULL(raw.offset), GB_ULL(need->align));
    }
    buffer->present = true;
    buffer->segment = reader->form == GB_LAYOUT_REGISTER ? raw.handle : raw.segment;
    buffer->offset = raw.offset;
    buffer->bytes = raw.bytes;
    return 0;
}

int gb_layout_read_mask(struct gb_layout_reader *reader, struct gb_json value, uint64_t bits,
                        uint64_t padded, const struct gb_path *path, struct gb_buffer *buffer)
{
    struct gb_buffer_need need = {
        .member = "mask", .bytes = bits / 8 + (bits % 8 != 0), .align = 1};

    if (!value.text)
        return 0;
    need.place = padded;
    return gb_layout_read_buffer(reader, value, &need, path, buffer);
}

uint64_t gb_layout_data_align(const struct gb_dtype *dtype)
{
    uint64_t bits = gb_dtype_bits(dtype);

    return dtype->type == GB_TYPE_FIXED_BINARY || bits < 8 ? 1 : bits / 8;
}

/* ---- arrays ---- */

static int read_shape(struct gb_layout_reader *reader, struct gb_json value,
                      const struct gb_path *up, struct gb_layout *layout)
{
    struct gb_path path = {.up = up, .key = "shape"};
    size_t count = gb_json_count(value);
    struct gb_json_walk walk = gb_json_walk(value);
    struct gb_json key, item;

    if (count > GB_LIMIT(ndim)) {
        gb_fail_at(reader->error, &path, "%zu axes; at most %d are allowed", count,
                   (int)GB_LIMIT(ndim));
        return gb_layout_as_limit(reader, "ndim");
    }
    layout->ndim = (unsigned)count;
    layout->shape = gb_pool_calloc(reader->pool, count + 1, sizeof(*layout->shape));
    layout->strides = gb_pool_calloc(reader->pool, count + 1, sizeof(*layout->strides));
    if (!layout->shape || !layout->strides)
        return gb_layout_no_memory(reader);
    for (size_t i = 0; gb_json_next(&walk, &key, &item); i++) {
        struct gb_path step = {.up = &path, .index = i};
        int r = gb_json_uint(item, 0, GB_INTEGER_MAX, &step, &layout->shape[i], reader->error);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Packed elements fill whole bytes along the last axis, so the array needs an axis. */
static int check_packed(struct gb_layout_reader *reader, const struct gb_path *up,
                        const struct gb_layout *layout)
{
    const struct gb_dtype *dtype = &layout->column.dtype;
    struct gb_path path = {.up = up, .key = "shape"};

    if (!gb_dtype_packed(dtype))
        return 0;
    if (layout->ndim == 0)
        return gb_fail_at(reader->error, &path, "an array of %s has an axis, for it is packed",
                          gb_type_info(dtype->type)->name);
    struct gb_path step = {.up = &path, .index = layout->ndim - 1};
    uint64_t extent = layout->shape[layout->ndim - 1];
    if (!gb_dtype_fills(dtype, extent))
        return gb_fail_at(reader->error, &step,
                          "%llu packed elements of %d bits are no whole bytes", GB_ULL(extent),
                          (int)gb_dtype_bits(dtype));
    return 0;
}

/* Fills in C order's strides and the number of elements. As in NumPy, an axis of 0 elements counts
   as one of 1 here. */
static int fill_strides(struct gb_layout_reader *reader, uint64_t size, const struct gb_path *up,
                        struct gb_layout *layout)
{
    struct gb_path path = {.up = up, .key = "shape"};
    uint64_t stride = size, extent;
    bool empty = false;

    for (unsigned i = layout->ndim; i-- > 0;) {
        layout->strides[i] = (int64_t)stride;
        extent = gb_layout_items(layout, i);
        empty = empty || extent == 0;
        if (__builtin_mul_overflow(stride, extent ? extent : 1, &stride) || stride > GB_INTEGER_MAX)
            return gb_fail_at(reader->error, &path, "the array has 2^52 bytes or more");
    }
    layout->column.length = empty ? 0 : stride / size;
    if (gb_dtype_packed(&layout->column.dtype)) /* whole bytes: nothing is lost, or too large */
        layout->column.length = layout->column.length * 8 / gb_dtype_bits(&layout->column.dtype);
    layout->c_order = true;
    return 0;
}

/* Reads strides in place of C order's. Those of axes with one element, or of an array without
   elements, mean nothing: where all others are C order's, these become so, too. */
static int read_strides(struct gb_layout_reader *reader, struct gb_json value, uint64_t size,
                        const struct gb_path *up, struct gb_layout *layout)
{
    struct gb_path path = {.up = up, .key = "strides"};
    struct gb_json_walk walk = gb_json_walk(value);
    struct gb_json key, item;
    int64_t given[GB_LIMIT(ndim)];
    bool empty = layout->column.length == 0;

    if (gb_json_count(value) != layout->ndim)
        return gb_fail_at(reader->error, &path, "%zu strides for %u axes", gb_json_count(value),
                          layout->ndim);
    for (unsigned i = 0; gb_json_next(&walk, &key, &item); i++) {
        struct gb_path step = {.up = &path, .index = i};
        uint64_t stride = 0;
        int r = gb_json_uint(item, 0, GB_INTEGER_MAX, &step, &stride, reader->error);
        if (r < 0)
            return r;
        if (stride % size != 0)
            return gb_fail_at(reader->error, &step,
                              "%llu is not a multiple of the element's %llu bytes", GB_ULL(stride),
                              GB_ULL(size));
        given[i] = (int64_t)stride;
        if (given[i] == layout->strides[i] || gb_layout_items(layout, i) == 1 || empty)
            continue;
        if (i + 1 == layout->ndim && gb_dtype_packed(&layout->column.dtype))
            return gb_fail_at(reader->error, &step, "packed elements lie side by side");
        layout->c_order = false;
    }
    if (layout->c_order)
        return 0;
    if (reader->form == GB_LAYOUT_CREATE)
        return gb_fail_at(reader->error, &path, "arrays are created in C order");
    memcpy(layout->strides, given, layout->ndim * sizeof(given[0]));
    return 0;
}

/* Bytes from the beginning of the first element to the end of the last. */
static bool array_span(const struct gb_layout *layout, uint64_t size, uint64_t *span)
{
    uint64_t total = size, axis;

    if (layout->column.length == 0) {
        *span = 0;
        return true;
    }
    for (unsigned i = 0; i < layout->ndim; i++) {
        if (__builtin_mul_overflow(gb_layout_items(layout, i) - 1, (uint64_t)layout->strides[i],
                                   &axis) ||
            __builtin_add_overflow(total, axis, &total) || total > GB_INTEGER_MAX)
            return false;
    }
    *span = total;
    return true;
}

static int read_array(struct gb_layout_reader *reader, struct gb_json value,
                      const struct gb_path *path, struct gb_layout *layout)
{
    struct gb_raw_layout raw = {.offset = 0};
    struct gb_column *column = &layout->column;
    struct gb_buffer_need need = {.member = "data"};
    uint64_t size, bits, padded;
    int r = gb_json_read(value, array_fields, GB_COUNT(array_fields), reader->unknown, path,
                         reader->pool, &raw, NULL, reader->error);

    if (r == 0)
        r = gb_layout_read_dtype(reader, raw.dtype, path, &column->dtype);
    if (r < 0)
        return r;
    if (!gb_type_info(column->dtype.type)->array) {
        struct gb_path dtype = {.up = path, .key = "dtype"};
        return gb_fail_at(reader->error, &dtype,
                          "%s is no dtype of arrays, for its elements are no whole bytes",
                          gb_type_info(column->dtype.type)->name);
    }
    size = gb_dtype_item(&column->dtype);
    r = read_shape(reader, raw.shape, path, layout);
    if (r == 0)
        r = check_packed(reader, path, layout);
    if (r == 0)
        r = fill_strides(reader, size, path, layout);
    if (r == 0 && raw.strides.text)
        r = read_strides(reader, raw.strides, size, path, layout);
    if (r < 0)
        return r;
    if (!array_span(layout, size, &need.bytes))
        return gb_fail_at(reader->error, path, "shape and strides reach 2^52 bytes or more");
    need.place = need.bytes;
    need.align = gb_layout_data_align(&column->dtype);
    r = gb_layout_read_buffer(reader, raw.data, &need, path, &column->data);
    if (r == 0)
        r = gb_layout_read_metadata(reader, raw.metadata, path, column);
    if (r < 0)
        return r;
    if (raw.offset > 0 && (!raw.mask.text || reader->form == GB_LAYOUT_CREATE)) {
        struct gb_path offset = {.up = path, .key = "offset"};
        return gb_fail_at(reader->error, &offset,
                          "only arrays that were sliced under a mask have one");
    }
    if (!raw.mask.text)
        return 0;
    column->offset = raw.offset;
    column->null_count = -1;
    if (__builtin_add_overflow(column->offset, column->length, &bits) || bits > GB_INTEGER_MAX)
        return gb_fail_at(reader->error, path, "offset and shape make 2^52 elements or more");
    padded = (bits / 8 + (bits % 8 != 0) + GB_MASK_PAD - 1) & ~(uint64_t)(GB_MASK_PAD - 1);
    return gb_layout_read_mask(reader, raw.mask, bits, padded, path, &column->mask);
}

/* ---- layouts ---- */

/* Reads bytes, or a bundle. A bundle's elements are aligned if the bundle is. Its manifest is not
   read. */
static int read_bytes(struct gb_layout_reader *reader, struct gb_json value,
                      const struct gb_path *path, struct gb_layout *layout)
{
    bool bundle = layout->kind == GB_KIND_BUNDLE;
    struct gb_path manifest = {.up = path, .key = "manifest_bytes"};
    struct gb_raw_layout raw = {.bytes = 0};
    int r = gb_json_read(value, bundle ? bundle_fields : bytes_fields,
                         bundle ? GB_COUNT(bundle_fields) : GB_COUNT(bytes_fields), reader->unknown,
                         path, reader->pool, &raw, NULL, reader->error);

    if (r < 0)
        return r;
    if (bundle && GB_BUNDLE_PREFIX + raw.manifest_bytes > raw.bytes)
        return gb_fail_at(reader->error, &manifest,
                          "%llu, and %u before it, are more than the bundle's %llu bytes",
                          GB_ULL(raw.manifest_bytes), GB_BUNDLE_PREFIX, GB_ULL(raw.bytes));
    struct gb_buffer_need need = {"data", raw.bytes, raw.bytes, bundle ? GB_BUNDLE_ALIGN : 1,
                                  false};
    layout->bytes = layout->column.length = raw.bytes;
    layout->manifest_bytes = raw.manifest_bytes;
    layout->column.dtype.type = GB_TYPE_UINT8;
    r = gb_layout_read_metadata(reader, raw.metadata, path, &layout->column);
    return r < 0 ? r : gb_layout_read_buffer(reader, raw.data, &need, path, &layout->column.data);
}

static int read_table(struct gb_layout_reader *reader, struct gb_json value,
                      const struct gb_path *up, struct gb_layout *layout)
{
    struct gb_path path = {.up = up, .key = "columns"};
    struct gb_column *table = &layout->column;
    struct gb_raw_layout raw = {.length = 0};
    int r = gb_json_read(value, table_fields, GB_COUNT(table_fields), reader->unknown, up,
                         reader->pool, &raw, NULL, reader->error);

    if (r < 0)
        return r;
    table->dtype.type = GB_TYPE_STRUCT;
    table->length = raw.length;
    r = gb_layout_read_columns(reader, raw.columns, GB_PLACE_NAMED, 1, &path, table);
    if (r == 0)
        r = gb_layout_read_metadata(reader, raw.metadata, up, table);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < table->child_count; i++) {
        struct gb_path item = {.up = &path, .index = i};
        struct gb_path length = {.up = &item, .key = "length"};
        if (table->children[i].length != table->length)
            return gb_fail_at(reader->error, &length, "%llu, but the table has %llu rows",
                              GB_ULL(table->children[i].length), GB_ULL(table->length));
    }
    return 0;
}

static const struct gb_field kind_field = {
    "kind", GB_FIELD_ANY, GB_FIELD_REQUIRED, offsetof(struct gb_raw_layout, kind), 0, 0};

/* Reads the kind before all other members, since it decides which ones are known. Usually it stands
   first. */
static int read_kind(struct gb_layout_reader *reader, struct gb_json value,
                     const struct gb_path *up, enum gb_kind *kind)
{
    static const char *const kinds[] = {"bytes", "array", "column", "table", "bundle"};
    struct gb_path path = {.up = up, .key = "kind"};
    struct gb_raw_layout raw = {.kind = {NULL, 0}};
    struct gb_json_walk walk = gb_json_walk(value);
    struct gb_json key;
    struct gb_string text = {NULL, 0};
    int r = 0;

    if (!gb_json_next(&walk, &key, &raw.kind) || !gb_json_is(key, "kind"))
        r = gb_json_read(value, &kind_field, 1, GB_UNKNOWN_IGNORE, up, reader->pool, &raw, NULL,
                         reader->error);
    if (r == 0)
        r = read_text(reader, raw.kind, &path, &text);
    if (r < 0)
        return r;
    for (unsigned i = 0; i < GB_COUNT(kinds); i++) {
        if (text.length == strlen(kinds[i]) && memcmp(text.text, kinds[i], text.length) == 0) {
            *kind = (enum gb_kind)i;
            return 0;
        }
    }
    return gb_fail_at(reader->error, &path,
                      "expected \"bytes\", \"array\", \"column\", \"table\" or \"bundle\", "
                      "found %.*s%s",
                      shown(raw.kind), raw.kind.text,
                      (size_t)shown(raw.kind) < gb_json_length(raw.kind) ? "…" : "");
}

static int add_bytes(struct gb_buffer *buffer, void *arg)
{
    uint64_t *total = arg;

    return __builtin_add_overflow(*total, buffer->bytes, total) || *total > GB_INTEGER_MAX;
}

/* Registered buffers may overlap, so each may be in range while their sum is not. */
static int check_total(struct gb_layout *layout, const struct gb_path *path, struct gb_error *error)
{
    uint64_t total = 0;

    if (gb_layout_each(layout, add_bytes, &total) == 0)
        return 0;
    return gb_fail_at(error, path, "the buffers have 2^52 bytes or more in all");
}

int gb_layout_read(struct gb_json value, enum gb_layout_form form, const struct gb_path *path,
                   struct gb_pool *pool, struct gb_layout *layout, struct gb_error *error)
{
    struct gb_layout_reader reader = {
        .form = form,
        .unknown = form == GB_LAYOUT_REPLY ? GB_UNKNOWN_IGNORE : GB_UNKNOWN_REFUSE,
        .pool = pool,
        .error = error,
    };
    struct gb_layout read = {.kind = GB_KIND_BYTES};
    int r;

    if (!value.text || gb_json_type(value) != GB_JSON_OBJECT)
        return gb_fail_at(error, path, "expected an object, found %s",
                          value.text ? gb_json_type_name(gb_json_type(value)) : "nothing");
    r = read_kind(&reader, value, path, &read.kind);
    if (r < 0)
        return r;
    switch (read.kind) {
    case GB_KIND_BYTES:
    case GB_KIND_BUNDLE:
        r = read_bytes(&reader, value, path, &read);
        break;
    case GB_KIND_ARRAY:
        r = read_array(&reader, value, path, &read);
        break;
    case GB_KIND_COLUMN:
        reader.columns = 1;
        r = gb_layout_read_column(&reader, value, GB_PLACE_OUTERMOST, 1, path, &read.column);
        break;
    case GB_KIND_TABLE:
        r = read_table(&reader, value, path, &read);
        break;
    }
    if (r == 0)
        r = check_total(&read, path, error);
    if (r == 0)
        *layout = read;
    return r;
}

int gb_layout_parse(const char *text, size_t length, const struct gb_path *path,
                    struct gb_pool *pool, struct gb_layout *layout, struct gb_error *error)
{
    struct gb_json value;
    int r = gb_json_check(text, length, pool, &value, error);

    if (r < 0)
        return r;
    return gb_layout_read(value, GB_LAYOUT_REPLY, path, pool, layout, error);
}
