/* Reading layouts: from text into structs, refusing whatever a consumer could stumble over. */
#include "layout.h"

#include <stdlib.h>
#include <string.h>

#include "limits.h"

#define INTEGER_MAX ((uint64_t)GB_LIMIT(integer))

/* What stays the same from the outermost column to the innermost. */
struct reader {
    enum gb_layout_form form;
    enum gb_unknown unknown;
    struct gb_pool *pool;
    struct gb_error *error;
    uint32_t columns; /* read so far */
};

/* A layout's or column's members as they stand in the text. */
struct raw {
    struct gb_json kind, dtype, data, mask, offsets, shape, strides, columns, children, metadata;
    struct gb_string name;
    uint64_t bytes, length, offset;
    int64_t null_count;
};

#define REQUIRED GB_FIELD_REQUIRED
#define RAW(member, type, flags, min, max) GB_FIELD(struct raw, member, type, flags, min, max)

static const struct gb_field bytes_fields[] = {
    RAW(kind, GB_FIELD_ANY, REQUIRED, 0, 0),
    RAW(bytes, GB_FIELD_UINT, REQUIRED, 0, 0),
    RAW(data, GB_FIELD_OBJECT, 0, 0, 0),
};

static const struct gb_field array_fields[] = {
    RAW(kind, GB_FIELD_ANY, REQUIRED, 0, 0),   RAW(dtype, GB_FIELD_ANY, REQUIRED, 0, 0),
    RAW(shape, GB_FIELD_ARRAY, REQUIRED, 0, 0), RAW(data, GB_FIELD_OBJECT, 0, 0, 0),
    RAW(mask, GB_FIELD_OBJECT, 0, 0, 0),       RAW(strides, GB_FIELD_ARRAY, 0, 0, 0),
    RAW(offset, GB_FIELD_UINT, 0, 0, 0),
};

static const struct gb_field table_fields[] = {
    RAW(kind, GB_FIELD_ANY, REQUIRED, 0, 0),
    RAW(length, GB_FIELD_UINT, REQUIRED, 0, 0),
    RAW(columns, GB_FIELD_ARRAY, REQUIRED, 0, 0),
};

/* The members of a column, between the one that only an outermost column has and the one that only
   columns of tables and structs have: each is read with a stretch of the same table. */
static const struct gb_field column_fields[] = {
    RAW(kind, GB_FIELD_ANY, REQUIRED, 0, 0),
    RAW(dtype, GB_FIELD_ANY, REQUIRED, 0, 0),
    RAW(length, GB_FIELD_UINT, REQUIRED, 0, 0),
    RAW(data, GB_FIELD_OBJECT, 0, 0, 0),
    RAW(offset, GB_FIELD_UINT, 0, 0, 0),
    RAW(null_count, GB_FIELD_INT, 0, -1, GB_LIMIT(integer)),
    RAW(mask, GB_FIELD_OBJECT, 0, 0, 0),
    RAW(offsets, GB_FIELD_OBJECT, 0, 0, 0),
    RAW(children, GB_FIELD_ARRAY, 0, 0, 0),
    RAW(metadata, GB_FIELD_OBJECT, 0, 0, 0),
    RAW(name, GB_FIELD_STRING, REQUIRED, 0, GB_LIMIT(name_bytes)),
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int no_memory(struct reader *reader)
{
    return gb_fail(reader->error, GPUBUF_E_NO_MEMORY, "out of memory");
}

/* Turns the failure that gb_fail_at has just described into one of a limit. */
static int as_limit(struct reader *reader, const char *limit)
{
    if (reader->error) {
        reader->error->code = GPUBUF_E_LIMIT;
        reader->error->limit = limit;
    }
    return GPUBUF_E_LIMIT;
}

#define U(value) ((unsigned long long)(value))

/* ---- dtype ---- */

/* How much of a text to show in a message, not ending inside a character. */
static int shown(struct gb_json value)
{
    size_t length = value.length;

    if (length > 80) {
        length = 80;
        while (((unsigned char)value.text[length] & 0xc0) == 0x80)
            length--;
    }
    return (int)length;
}

static int read_dtype(struct reader *reader, struct gb_json value, const struct gb_path *up,
                      struct gb_dtype *dtype)
{
    struct gb_path path = {.up = up, .key = "dtype"};
    struct gb_string text;

    if (gb_json_type(value) == GB_JSON_STRING && !memchr(value.text, '\\', value.length)) {
        text = (struct gb_string){value.text + 1, value.length - 2};
    } else {
        int r = gb_json_string(value, 0, &path, reader->pool, &text, reader->error);
        if (r < 0)
            return r;
    }
    if (!gb_dtype_parse(text.text, text.length, dtype))
        return gb_fail_at(reader->error, &path, "unknown dtype %.*s%s", shown(value), value.text,
                          (size_t)shown(value) < value.length ? "…" : "");
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
    GB_FIELD(struct raw_buffer, handle, GB_FIELD_UINT, REQUIRED, 0, 0),
    GB_FIELD(struct raw_buffer, offset, GB_FIELD_UINT, REQUIRED, 0, 0),
    GB_FIELD(struct raw_buffer, bytes, GB_FIELD_UINT, REQUIRED, 0, 0),
};
static const struct gb_field reply_fields[] = {
    GB_FIELD(struct raw_buffer, segment, GB_FIELD_UINT, REQUIRED, 0, 0),
    GB_FIELD(struct raw_buffer, offset, GB_FIELD_UINT, REQUIRED, 0, 0),
    GB_FIELD(struct raw_buffer, bytes, GB_FIELD_UINT, REQUIRED, 0, 0),
};

static const struct {
    const struct gb_field *fields;
    size_t count;
} buffer_fields[] = {
    [GB_LAYOUT_CREATE] = {create_fields, COUNT(create_fields)},
    [GB_LAYOUT_REGISTER] = {register_fields, COUNT(register_fields)},
    [GB_LAYOUT_REPLY] = {reply_fields, COUNT(reply_fields)},
};

/* What a buffer must be. */
struct need {
    const char *member;
    uint64_t bytes; /* at least */
    uint64_t place; /* what `create` gives it if nothing is said */
    uint64_t align;
    bool size_unknown; /* only the caller can say how many bytes: the data of strings */
};

/* `value` may be absent: then the buffer is placed in `create`, and missing elsewhere. */
static int read_buffer(struct reader *reader, struct gb_json value, const struct need *need,
                       const struct gb_path *up, struct gb_buffer *buffer)
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
        return gb_fail_at(reader->error, &bytes, "missing; the size of text follows from nothing else");
    }
    if (raw.bytes < need->bytes) {
        struct gb_path bytes = {.up = &path, .key = "bytes"};
        return gb_fail_at(reader->error, &bytes, "%llu is too small, %llu are needed", U(raw.bytes),
                          U(need->bytes));
    }
    if (__builtin_add_overflow(raw.offset, raw.bytes, &end) || end > INTEGER_MAX)
        return gb_fail_at(reader->error, &path, "it ends at 2^52 or later");
    if (raw.offset % need->align != 0) {
        struct gb_path offset = {.up = &path, .key = "offset"};
        return gb_fail_at(reader->error, &offset, "%llu is not a multiple of %llu", U(raw.offset),
                          U(need->align));
    }
    buffer->present = true;
    buffer->segment = reader->form == GB_LAYOUT_REGISTER ? raw.handle : raw.segment;
    buffer->offset = raw.offset;
    buffer->bytes = raw.bytes;
    return 0;
}

static int read_mask(struct reader *reader, struct gb_json value, uint64_t bits, uint64_t padded,
                     const struct gb_path *path, struct gb_buffer *buffer)
{
    struct need need = {.member = "mask", .bytes = bits / 8 + (bits % 8 != 0), .align = 1};

    if (!value.text)
        return 0;
    need.place = padded;
    return read_buffer(reader, value, &need, path, buffer);
}

/* Elements of a whole number of bytes start at multiples of their size, other data anywhere. */
static uint64_t data_align(const struct gb_dtype *dtype)
{
    uint64_t bits = gb_dtype_bits(dtype);

    return dtype->type == GB_TYPE_FIXED_BINARY || bits < 8 ? 1 : bits / 8;
}

static int refuse_member(struct reader *reader, struct gb_json value, const struct gb_path *up,
                         const char *member, const struct gb_dtype *dtype)
{
    struct gb_path path = {.up = up, .key = member};

    if (!value.text)
        return 0;
    return gb_fail_at(reader->error, &path, "dtype %s has none", gb_type_info(dtype->type)->name);
}

static int read_column_buffers(struct reader *reader, const struct raw *raw,
                               const struct gb_path *path, struct gb_column *column)
{
    const struct gb_type_info *info = gb_type_info(column->dtype.type);
    uint64_t data, mask, offsets;
    int r;

    if (!gb_column_sizes(column, &data, &mask, &offsets))
        return gb_fail_at(reader->error, path, "offset and length make 2^52 bytes or more");
    r = info->has_mask
            ? read_mask(reader, raw->mask, column->offset + column->length, mask, path, &column->mask)
            : refuse_member(reader, raw->mask, path, "mask", &column->dtype);
    if (r < 0)
        return r;
    if (info->offset_bytes) {
        struct need need = {"offsets", offsets, offsets, info->offset_bytes, false};
        r = read_buffer(reader, raw->offsets, &need, path, &column->offsets);
    } else {
        r = refuse_member(reader, raw->offsets, path, "offsets", &column->dtype);
    }
    if (r < 0)
        return r;
    if (info->has_data) {
        struct need need = {"data", data, data, data_align(&column->dtype), info->offset_bytes != 0};
        return read_buffer(reader, raw->data, &need, path, &column->data);
    }
    return refuse_member(reader, raw->data, path, "data", &column->dtype);
}

/* ---- unique names ---- */

struct hashed_name {
    uint64_t hash;
    const char *name;
    size_t index;
};

static int compare_hashed(const void *a, const void *b)
{
    const struct hashed_name *left = a, *right = b;

    if (left->hash != right->hash)
        return left->hash < right->hash ? -1 : 1;
    return strcmp(left->name, right->name);
}

static uint64_t hash_name(const char *name)
{
    uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */

    while (*name)
        hash = (hash ^ (unsigned char)*name++) * 0x100000001b3;
    return hash;
}

/*
 * Sets *twice to the index of a name that an earlier one equals, or to `count`. Name i is the
 * pointer at `first` + i * `stride`. Sorted, not put into a hash table, so that nobody can choose
 * names that make it slow; the hash only spares comparisons of text.
 */
static int find_twice(struct reader *reader, const char *const *first, size_t stride, size_t count,
                      size_t *twice)
{
    struct hashed_name few[8], *names = few;

    *twice = count;
    if (count < 2)
        return 0;
    if (count > COUNT(few)) {
        names = gb_pool_calloc(reader->pool, count, sizeof(*names));
        if (!names)
            return no_memory(reader);
    }
    for (size_t i = 0; i < count; i++) {
        const char *name = *(const char *const *)(const void *)((const char *)first + i * stride);
        names[i] = (struct hashed_name){hash_name(name), name, i};
    }
    qsort(names, count, sizeof(*names), compare_hashed);
    for (size_t i = 1; i < count; i++) {
        if (compare_hashed(&names[i - 1], &names[i]) == 0) {
            size_t a = names[i - 1].index, b = names[i].index;
            *twice = a > b ? a : b;
            break;
        }
    }
    return 0;
}

static int check_column_names(struct reader *reader, const struct gb_column *columns,
                              uint32_t count, const struct gb_path *path)
{
    size_t twice = count;
    int r = count == 0 ? 0 : find_twice(reader, &columns->name, sizeof(*columns), count, &twice);

    if (r < 0 || twice == count)
        return r;
    struct gb_path item = {.up = path, .index = twice};
    struct gb_path name = {.up = &item, .key = "name"};
    return gb_fail_at(reader->error, &name, "there is a column \"%s\" already", columns[twice].name);
}

/* ---- metadata ---- */

static int read_metadata(struct reader *reader, struct gb_json value, const struct gb_path *up,
                         struct gb_column *column)
{
    struct gb_path path = {.up = up, .key = "metadata"};
    size_t count = gb_json_count(value), twice;
    struct gb_json_walk walk = gb_json_walk(value);
    struct gb_json key, item;
    struct gb_pair *pairs;

    if (count == 0)
        return 0;
    if (count > GB_LIMIT(metadata_pairs)) {
        gb_fail_at(reader->error, &path, "%zu pairs; at most %d are allowed", count,
                   (int)GB_LIMIT(metadata_pairs));
        return as_limit(reader, "metadata_pairs");
    }
    pairs = gb_pool_calloc(reader->pool, count, sizeof(*pairs));
    if (!pairs)
        return no_memory(reader);
    for (size_t i = 0; gb_json_next(&walk, &key, &item); i++) {
        struct gb_json quoted = {key.text - 1, key.length + 2};
        struct gb_string text;
        int r = gb_json_string(quoted, 0, &path, reader->pool, &text, reader->error);
        if (r < 0)
            return r;
        pairs[i].key = text.text;
        struct gb_path step = {.up = &path, .key = pairs[i].key};
        r = gb_json_string(item, 0, &step, reader->pool, &text, reader->error);
        if (r < 0)
            return r;
        pairs[i].value = text.text;
    }
    int r = find_twice(reader, &pairs->key, sizeof(*pairs), count, &twice);
    if (r < 0)
        return r;
    if (twice < count)
        return gb_fail_at(reader->error, &path, "the key \"%s\" is there twice", pairs[twice].key);
    column->metadata = pairs;
    column->metadata_count = (uint32_t)count;
    return 0;
}

/* ---- columns ---- */

/* Which columns: they differ in `kind` and `name`. */
enum place { PLACE_OUTERMOST, PLACE_NAMED, PLACE_UNNAMED };

static int read_column(struct reader *reader, struct gb_json value, enum place place,
                       unsigned depth, const struct gb_path *path, struct gb_column *column);

static int read_columns(struct reader *reader, struct gb_json value, enum place place,
                        unsigned depth, const struct gb_path *path, struct gb_column *parent)
{
    size_t count = gb_json_count(value);
    struct gb_json_walk walk = gb_json_walk(value);
    struct gb_json key, item;
    struct gb_column *columns;

    if (count > GB_LIMIT(columns) - reader->columns) {
        gb_fail_at(reader->error, path, "%zu columns; a layout has at most %d, nested ones included",
                   count + reader->columns, (int)GB_LIMIT(columns));
        return as_limit(reader, "columns");
    }
    reader->columns += (uint32_t)count;
    if (count == 0)
        return 0;
    columns = gb_pool_calloc(reader->pool, count, sizeof(*columns));
    if (!columns)
        return no_memory(reader);
    for (size_t i = 0; gb_json_next(&walk, &key, &item); i++) {
        struct gb_path step = {.up = path, .index = i};
        int r = read_column(reader, item, place, depth, &step, &columns[i]);
        if (r < 0)
            return r;
    }
    parent->children = columns;
    parent->child_count = (uint32_t)count;
    if (place == PLACE_NAMED)
        return check_column_names(reader, columns, parent->child_count, path);
    return 0;
}

static bool is_integer(enum gb_type type)
{
    return type >= GB_TYPE_INT8 && type <= GB_TYPE_UINT64;
}

/* Whether the children are as many, as long and of such types as the parent's dtype asks. */
static int check_children(struct reader *reader, const struct gb_column *column,
                          const struct gb_path *path)
{
    const struct gb_type_info *info = gb_type_info(column->dtype.type);
    uint64_t needed = 0;
    uint32_t bound = 0; /* how many of the children must have `needed` elements */

    if (info->children >= 0 && column->child_count != (uint32_t)info->children)
        return gb_fail_at(reader->error, path, "%u children, but dtype %s has %d", column->child_count,
                          info->name, info->children);
    if (column->dtype.type == GB_TYPE_DICTIONARY && !is_integer(column->children[0].dtype.type)) {
        struct gb_path item = {.up = path, .index = 0};
        struct gb_path dtype = {.up = &item, .key = "dtype"};
        return gb_fail_at(reader->error, &dtype, "indices of a dictionary are integers, not %s",
                          gb_type_info(column->children[0].dtype.type)->name);
    }
    needed = column->offset + column->length;
    switch (column->dtype.type) {
    case GB_TYPE_FIXED_LIST:
        if (__builtin_mul_overflow(needed, column->dtype.size, &needed) || needed > INTEGER_MAX)
            return gb_fail_at(reader->error, path, "the lists have 2^52 elements or more");
        bound = 1;
        break;
    case GB_TYPE_STRUCT:
        bound = column->child_count;
        break;
    case GB_TYPE_DICTIONARY:
        bound = 1;
        break;
    default:
        break;
    }
    for (uint32_t i = 0; i < bound; i++) {
        struct gb_path item = {.up = path, .index = i};
        struct gb_path length = {.up = &item, .key = "length"};
        if (column->children[i].length < needed)
            return gb_fail_at(reader->error, &length, "%llu is too short, %llu are needed",
                              U(column->children[i].length), U(needed));
    }
    return 0;
}

static int read_children(struct reader *reader, const struct raw *raw, unsigned depth,
                         const struct gb_path *up, struct gb_column *column)
{
    struct gb_path path = {.up = up, .key = "children"};
    bool named = column->dtype.type == GB_TYPE_STRUCT;
    int r;

    if (gb_type_info(column->dtype.type)->children == 0)
        return refuse_member(reader, raw->children, up, "children", &column->dtype);
    if (!raw->children.text && !named)
        return gb_fail_at(reader->error, &path, "missing");
    if (raw->children.text) {
        r = read_columns(reader, raw->children, named ? PLACE_NAMED : PLACE_UNNAMED, depth + 1, &path,
                         column);
        if (r < 0)
            return r;
    }
    return check_children(reader, column, &path);
}

/* Whether an element of the column can be null; a dictionary's mask is its indices'. */
static bool can_be_null(const struct gb_column *column)
{
    if (column->dtype.type == GB_TYPE_NULL)
        return true;
    if (column->dtype.type == GB_TYPE_DICTIONARY)
        return column->children[0].mask.present;
    return column->mask.present;
}

static int check_null_count(struct reader *reader, const struct gb_path *up,
                            struct gb_column *column)
{
    struct gb_path path = {.up = up, .key = "null_count"};

    if (column->null_count > 0 && (uint64_t)column->null_count > column->length)
        return gb_fail_at(reader->error, &path, "%lld is more than the length, %llu",
                          (long long)column->null_count, U(column->length));
    if (can_be_null(column))
        return 0;
    if (column->null_count > 0)
        return gb_fail_at(reader->error, &path, "%lld, but there is no mask",
                          (long long)column->null_count);
    column->null_count = 0;
    return 0;
}

static int read_column(struct reader *reader, struct gb_json value, enum place place,
                       unsigned depth, const struct gb_path *path, struct gb_column *column)
{
    struct raw raw = {.null_count = 0};
    const struct gb_field *fields = column_fields + (place == PLACE_OUTERMOST ? 0 : 1);
    const struct gb_field *end = column_fields + COUNT(column_fields) - (place == PLACE_NAMED ? 0 : 1);
    int r;

    if (depth > GB_LIMIT(layout_depth)) {
        gb_fail_at(reader->error, path, "columns are nested more than %d deep",
                   (int)GB_LIMIT(layout_depth));
        return as_limit(reader, "layout_depth");
    }
    r = gb_json_read(value, fields, (size_t)(end - fields), reader->unknown, path, reader->pool,
                     &raw, NULL, reader->error);
    if (r < 0)
        return r;
    r = read_dtype(reader, raw.dtype, path, &column->dtype);
    if (r < 0)
        return r;
    column->name = raw.name.text;
    column->length = raw.length;
    column->offset = raw.offset;
    column->null_count = raw.null_count;
    r = read_column_buffers(reader, &raw, path, column);
    if (r == 0)
        r = read_children(reader, &raw, depth, path, column);
    if (r == 0)
        r = check_null_count(reader, path, column);
    if (r == 0 && raw.metadata.text)
        r = read_metadata(reader, raw.metadata, path, column);
    return r;
}

/* ---- arrays ---- */

static int read_shape(struct reader *reader, struct gb_json value, const struct gb_path *up,
                      struct gb_layout *layout)
{
    struct gb_path path = {.up = up, .key = "shape"};
    size_t count = gb_json_count(value);
    struct gb_json_walk walk = gb_json_walk(value);
    struct gb_json key, item;

    if (count > GB_LIMIT(ndim)) {
        gb_fail_at(reader->error, &path, "%zu axes; at most %d are allowed", count,
                   (int)GB_LIMIT(ndim));
        return as_limit(reader, "ndim");
    }
    layout->ndim = (unsigned)count;
    layout->shape = gb_pool_calloc(reader->pool, count + 1, sizeof(*layout->shape));
    layout->strides = gb_pool_calloc(reader->pool, count + 1, sizeof(*layout->strides));
    if (!layout->shape || !layout->strides)
        return no_memory(reader);
    for (size_t i = 0; gb_json_next(&walk, &key, &item); i++) {
        struct gb_path step = {.up = &path, .index = i};
        int r = gb_json_uint(item, 0, INTEGER_MAX, &step, &layout->shape[i], reader->error);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Fills in C order's strides and the number of elements. An axis of 0 elements counts as 1 in the
   strides, as in NumPy, so that they are always in range. */
static int fill_strides(struct reader *reader, uint64_t size, const struct gb_path *up,
                        struct gb_layout *layout)
{
    struct gb_path path = {.up = up, .key = "shape"};
    uint64_t stride = size, extent;
    bool empty = false;

    for (unsigned i = layout->ndim; i-- > 0;) {
        layout->strides[i] = (int64_t)stride;
        extent = layout->shape[i];
        empty = empty || extent == 0;
        if (__builtin_mul_overflow(stride, extent ? extent : 1, &stride) || stride > INTEGER_MAX)
            return gb_fail_at(reader->error, &path, "the array has 2^52 bytes or more");
    }
    layout->column.length = empty ? 0 : stride / size;
    layout->c_order = true;
    return 0;
}

/* Reads strides over C order's. Those of axes with one element, or of no elements at all, tell
   nothing, and become C order's if the others are. */
static int read_strides(struct reader *reader, struct gb_json value, uint64_t size,
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
        int r = gb_json_uint(item, 0, INTEGER_MAX, &step, &stride, reader->error);
        if (r < 0)
            return r;
        if (stride % size != 0)
            return gb_fail_at(reader->error, &step, "%llu is not a multiple of the element's %llu bytes",
                              U(stride), U(size));
        given[i] = (int64_t)stride;
        if (given[i] != layout->strides[i] && layout->shape[i] != 1 && !empty)
            layout->c_order = false;
    }
    if (layout->c_order)
        return 0;
    if (reader->form == GB_LAYOUT_CREATE)
        return gb_fail_at(reader->error, &path, "arrays are created in C order");
    memcpy(layout->strides, given, layout->ndim * sizeof(given[0]));
    return 0;
}

/* Bytes from the first element's first to the last element's last. */
static bool array_span(const struct gb_layout *layout, uint64_t size, uint64_t *span)
{
    uint64_t total = size, axis;

    if (layout->column.length == 0) {
        *span = 0;
        return true;
    }
    for (unsigned i = 0; i < layout->ndim; i++) {
        if (__builtin_mul_overflow(layout->shape[i] - 1, (uint64_t)layout->strides[i], &axis) ||
            __builtin_add_overflow(total, axis, &total) || total > INTEGER_MAX)
            return false;
    }
    *span = total;
    return true;
}

static int read_array(struct reader *reader, struct gb_json value, const struct gb_path *path,
                      struct gb_layout *layout)
{
    struct raw raw = {.offset = 0};
    struct gb_column *column = &layout->column;
    struct need need = {.member = "data"};
    uint64_t size, bits, padded;
    int r = gb_json_read(value, array_fields, COUNT(array_fields), reader->unknown, path,
                         reader->pool, &raw, NULL, reader->error);

    if (r == 0)
        r = read_dtype(reader, raw.dtype, path, &column->dtype);
    if (r < 0)
        return r;
    if (!gb_type_info(column->dtype.type)->array) {
        struct gb_path dtype = {.up = path, .key = "dtype"};
        return gb_fail_at(reader->error, &dtype, "elements of an array have whole bytes, %s has not",
                          gb_type_info(column->dtype.type)->name);
    }
    size = gb_dtype_bits(&column->dtype) / 8;
    r = read_shape(reader, raw.shape, path, layout);
    if (r == 0)
        r = fill_strides(reader, size, path, layout);
    if (r == 0 && raw.strides.text)
        r = read_strides(reader, raw.strides, size, path, layout);
    if (r < 0)
        return r;
    if (!array_span(layout, size, &need.bytes))
        return gb_fail_at(reader->error, path, "shape and strides reach 2^52 bytes or more");
    need.place = need.bytes;
    need.align = data_align(&column->dtype);
    r = read_buffer(reader, raw.data, &need, path, &column->data);
    if (r < 0)
        return r;
    if (raw.offset > 0 && (!raw.mask.text || reader->form == GB_LAYOUT_CREATE)) {
        struct gb_path offset = {.up = path, .key = "offset"};
        return gb_fail_at(reader->error, &offset, "only arrays that were sliced under a mask have one");
    }
    if (!raw.mask.text)
        return 0;
    column->offset = raw.offset;
    column->null_count = -1;
    if (__builtin_add_overflow(column->offset, column->length, &bits) || bits > INTEGER_MAX)
        return gb_fail_at(reader->error, path, "offset and shape make 2^52 elements or more");
    padded = (bits / 8 + (bits % 8 != 0) + GB_MASK_PAD - 1) & ~(uint64_t)(GB_MASK_PAD - 1);
    return read_mask(reader, raw.mask, bits, padded, path, &column->mask);
}

/* ---- layouts ---- */

static int read_bytes(struct reader *reader, struct gb_json value, const struct gb_path *path,
                      struct gb_layout *layout)
{
    struct raw raw = {.bytes = 0};
    int r = gb_json_read(value, bytes_fields, COUNT(bytes_fields), reader->unknown, path,
                         reader->pool, &raw, NULL, reader->error);

    if (r < 0)
        return r;
    struct need need = {"data", raw.bytes, raw.bytes, 1, false};
    layout->bytes = layout->column.length = raw.bytes;
    layout->column.dtype.type = GB_TYPE_UINT8;
    return read_buffer(reader, raw.data, &need, path, &layout->column.data);
}

static int read_table(struct reader *reader, struct gb_json value, const struct gb_path *up,
                      struct gb_layout *layout)
{
    struct gb_path path = {.up = up, .key = "columns"};
    struct gb_column *table = &layout->column;
    struct raw raw = {.length = 0};
    int r = gb_json_read(value, table_fields, COUNT(table_fields), reader->unknown, up,
                         reader->pool, &raw, NULL, reader->error);

    if (r < 0)
        return r;
    table->dtype.type = GB_TYPE_STRUCT;
    table->length = raw.length;
    r = read_columns(reader, raw.columns, PLACE_NAMED, 1, &path, table);
    if (r < 0)
        return r;
    for (uint32_t i = 0; i < table->child_count; i++) {
        struct gb_path item = {.up = &path, .index = i};
        struct gb_path length = {.up = &item, .key = "length"};
        if (table->children[i].length != table->length)
            return gb_fail_at(reader->error, &length, "%llu, but the table has %llu rows",
                              U(table->children[i].length), U(table->length));
    }
    return 0;
}

/* The kind decides which members are known, so it is looked for first; where it is there twice,
   the reading through tables says so. */
static int find_kind(struct reader *reader, struct gb_json value, const struct gb_path *up,
                     enum gb_kind *kind)
{
    static const char *const kinds[] = {"\"bytes\"", "\"array\"", "\"column\"", "\"table\""};
    struct gb_path path = {.up = up, .key = "kind"};
    struct gb_json_walk walk = gb_json_walk(value);
    struct gb_json key, item;

    while (gb_json_next(&walk, &key, &item)) {
        if (key.length != 4 || memcmp(key.text, "kind", 4) != 0)
            continue;
        for (unsigned i = 0; i < COUNT(kinds); i++) {
            if (item.length == strlen(kinds[i]) && memcmp(item.text, kinds[i], item.length) == 0) {
                *kind = (enum gb_kind)i;
                return 0;
            }
        }
        return gb_fail_at(reader->error, &path,
                          "expected \"bytes\", \"array\", \"column\" or \"table\", not %.*s%s",
                          shown(item), item.text, (size_t)shown(item) < item.length ? "…" : "");
    }
    return gb_fail_at(reader->error, &path,
                      "missing; expected \"bytes\", \"array\", \"column\" or \"table\"");
}

int gb_layout_read(struct gb_json value, enum gb_layout_form form, const struct gb_path *path,
                   struct gb_pool *pool, struct gb_layout *layout, struct gb_error *error)
{
    struct reader reader = {.form = form, .pool = pool, .error = error};
    struct gb_layout read = {.kind = GB_KIND_BYTES};
    int r;

    reader.unknown = form == GB_LAYOUT_REPLY ? GB_UNKNOWN_IGNORE : GB_UNKNOWN_REFUSE;
    if (gb_json_type(value) != GB_JSON_OBJECT)
        return gb_fail_at(error, path, "expected an object, not %s",
                          gb_json_type_name(gb_json_type(value)));
    r = find_kind(&reader, value, path, &read.kind);
    if (r < 0)
        return r;
    switch (read.kind) {
    case GB_KIND_BYTES:
        r = read_bytes(&reader, value, path, &read);
        break;
    case GB_KIND_ARRAY:
        r = read_array(&reader, value, path, &read);
        break;
    case GB_KIND_COLUMN:
        reader.columns = 1;
        r = read_column(&reader, value, PLACE_OUTERMOST, 1, path, &read.column);
        break;
    case GB_KIND_TABLE:
        r = read_table(&reader, value, path, &read);
        break;
    }
    if (r == 0)
        *layout = read;
    return r;
}
