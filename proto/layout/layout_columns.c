/* Reading columns, and what hangs on them: buffers, names, metadata, children. */
#include <stdlib.h>
#include <string.h>

#include "proto/layout/layout_reader.h"

/* The members of a column. Only an outermost column has the first (kind), and only columns of
   tables and structs have the last (name): each place reads with its stretch of this table. */
static const struct gb_field column_fields[] = {
    GB_RAW(kind, GB_FIELD_ANY, GB_FIELD_REQUIRED, 0, 0),
    GB_RAW(dtype, GB_FIELD_ANY, GB_FIELD_REQUIRED, 0, 0),
    GB_RAW(length, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
    GB_RAW(offset, GB_FIELD_UINT, 0, 0, 0),
    GB_RAW(null_count, GB_FIELD_INT, 0, -1, GB_LIMIT(integer)),
    GB_RAW(data, GB_FIELD_OBJECT, 0, 0, 0),
    GB_RAW(mask, GB_FIELD_OBJECT, 0, 0, 0),
    GB_RAW(offsets, GB_FIELD_OBJECT, 0, 0, 0),
    GB_RAW(children, GB_FIELD_ARRAY, 0, 0, 0),
    GB_RAW(metadata, GB_FIELD_OBJECT, 0, 0, 0),
    GB_RAW(name, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, GB_LIMIT(name_bytes)),
};

static int refuse_member(struct gb_layout_reader *reader, struct gb_json value,
                         const struct gb_path *up, const char *member, const struct gb_dtype *dtype)
{
    struct gb_path path = {.up = up, .key = member};

    if (!value.text)
        return 0;
    return gb_fail_at(reader->error, &path, "dtype %s has none", gb_type_info(dtype->type)->name);
}

static int read_column_buffers(struct gb_layout_reader *reader, const struct gb_raw_layout *raw,
                               const struct gb_path *path, struct gb_column *column)
{
    const struct gb_type_info *info = gb_type_info(column->dtype.type);
    uint64_t data, mask, offsets;
    int r;

    if (!gb_column_sizes(column, &data, &mask, &offsets))
        return gb_fail_at(reader->error, path, "offset and length make 2^52 bytes or more");
    r = info->has_mask ? gb_layout_read_mask(reader, raw->mask, column->offset + column->length,
                                             mask, path, &column->mask)
                       : refuse_member(reader, raw->mask, path, "mask", &column->dtype);
    if (r < 0)
        return r;
    if (info->offset_bytes) {
        struct gb_buffer_need need = {"offsets", offsets, offsets, info->offset_bytes, false};
        r = gb_layout_read_buffer(reader, raw->offsets, &need, path, &column->offsets);
    } else {
        r = refuse_member(reader, raw->offsets, path, "offsets", &column->dtype);
    }
    if (r < 0)
        return r;
    if (info->has_data) {
        struct gb_buffer_need need = {"data", data, data, gb_layout_data_align(&column->dtype),
                                      info->offset_bytes != 0};
        return gb_layout_read_buffer(reader, raw->data, &need, path, &column->data);
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

/* Whether the hashes are different, found with a table of their low bits; false, too, if that would
   take many steps. `slots`: zeros, a power of two of them and at least twice as many as hashes. */
static bool are_different(const struct hashed_name *names, size_t count, uint64_t *slots,
                          size_t slot_count)
{
    size_t steps = 0, steps_max = 4 * count;

    for (size_t i = 0; i < count; i++) {
        uint64_t hash = names[i].hash | 1; /* 0 is an empty slot */
        size_t at = names[i].hash >> 1 & (slot_count - 1);
        while (slots[at] != 0) {
            if (slots[at] == hash || ++steps > steps_max)
                return false;
            at = (at + 1) & (slot_count - 1);
        }
        slots[at] = hash;
    }
    return true;
}

/*
 * Sets *twice to the index of a name that an earlier one equals, or to `count`. Name i is the
 * pointer at `first` + i * `stride`. Names whose hashes are different need no more. Others are
 * sorted, so that no choice of names makes this slow.
 */
static int find_twice(struct gb_layout_reader *reader, const char *const *first, size_t stride,
                      size_t count, size_t *twice)
{
    struct hashed_name few[8], *names = few;

    *twice = count;
    if (count < 2)
        return 0;
    if (count > GB_COUNT(few)) {
        names = gb_pool_calloc(reader->pool, count, sizeof(*names));
        if (!names)
            return gb_layout_no_memory(reader);
    }
    for (size_t i = 0; i < count; i++) {
        const char *name = *(const char *const *)(const void *)((const char *)first + i * stride);
        names[i] = (struct hashed_name){hash_name(name), name, i};
    }
    if (count > GB_COUNT(few)) {
        size_t slot_count = (size_t)1 << (65 - __builtin_clzll(count));
        uint64_t *slots = gb_pool_calloc(reader->pool, slot_count, sizeof(*slots));
        if (!slots)
            return gb_layout_no_memory(reader);
        if (are_different(names, count, slots, slot_count))
            return 0;
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

static int check_column_names(struct gb_layout_reader *reader, const struct gb_column *columns,
                              uint32_t count, const struct gb_path *path)
{
    size_t twice = count;
    int r = count == 0 ? 0 : find_twice(reader, &columns->name, sizeof(*columns), count, &twice);

    if (r < 0 || twice == count)
        return r;
    struct gb_path item = {.up = path, .index = twice};
    struct gb_path name = {.up = &item, .key = "name"};
    return gb_fail_at(reader->error, &name, "there is a column \"%s\" already",
                      columns[twice].name);
}

/* ---- metadata ---- */

int gb_layout_read_metadata(struct gb_layout_reader *reader, struct gb_json value,
                            const struct gb_path *up, struct gb_column *column)
{
    struct gb_path path = {.up = up, .key = "metadata"};
    size_t count = value.text ? gb_json_count(value) : 0, twice;
    struct gb_json_walk walk = gb_json_walk(value);
    struct gb_json key, item;
    struct gb_pair *pairs;

    if (count == 0)
        return 0;
    if (count > GB_LIMIT(metadata_pairs)) {
        gb_fail_at(reader->error, &path, "%zu pairs; at most %d are allowed", count,
                   (int)GB_LIMIT(metadata_pairs));
        return gb_layout_as_limit(reader, "metadata_pairs");
    }
    pairs = gb_pool_calloc(reader->pool, count, sizeof(*pairs));
    if (!pairs)
        return gb_layout_no_memory(reader);
    for (size_t i = 0; gb_json_next(&walk, &key, &item); i++) {
        struct gb_string text;
        int r = gb_json_string(key, 0, &path, reader->pool, &text, reader->error);
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

int gb_layout_read_columns(struct gb_layout_reader *reader, struct gb_json value,
                           enum gb_column_place place, unsigned depth, const struct gb_path *path,
                           struct gb_column *parent)
{
    size_t count = gb_json_count(value);
    struct gb_json_walk walk = gb_json_walk(value);
    struct gb_json key, item;
    struct gb_column *columns;

    if (count > GB_LIMIT(columns) - reader->columns) {
        gb_fail_at(reader->error, path,
                   "%zu columns; a layout has at most %d, nested ones included",
                   count + reader->columns, (int)GB_LIMIT(columns));
        return gb_layout_as_limit(reader, "columns");
    }
    reader->columns += (uint32_t)count;
    if (count == 0)
        return 0;
    columns = gb_pool_calloc(reader->pool, count, sizeof(*columns));
    if (!columns)
        return gb_layout_no_memory(reader);
    for (size_t i = 0; gb_json_next(&walk, &key, &item); i++) {
        struct gb_path step = {.up = path, .index = i};
        int r = gb_layout_read_column(reader, item, place, depth, &step, &columns[i]);
        if (r < 0)
            return r;
    }
    parent->children = columns;
    parent->child_count = (uint32_t)count;
    if (place == GB_PLACE_NAMED)
        return check_column_names(reader, columns, parent->child_count, path);
    return 0;
}

static bool is_integer(enum gb_type type)
{
    return type >= GB_TYPE_INT8 && type <= GB_TYPE_UINT64;
}

/* Whether number, lengths and types of the children are as the parent's dtype asks. */
static int check_children(struct gb_layout_reader *reader, const struct gb_column *column,
                          const struct gb_path *path)
{
    const struct gb_type_info *info = gb_type_info(column->dtype.type);
    uint64_t needed = 0;
    uint32_t bound = 0; /* how many of the children must have `needed` elements */

    if (info->children >= 0 && column->child_count != (uint32_t)info->children)
        return gb_fail_at(reader->error, path, "%u children, but dtype %s has %d",
                          column->child_count, info->name, info->children);
    if (column->dtype.type == GB_TYPE_DICTIONARY && !is_integer(column->children[0].dtype.type)) {
        struct gb_path item = {.up = path, .index = 0};
        struct gb_path dtype = {.up = &item, .key = "dtype"};
        return gb_fail_at(reader->error, &dtype, "indices of a dictionary are integers, not %s",
                          gb_type_info(column->children[0].dtype.type)->name);
    }
    if (column->dtype.type == GB_TYPE_MAP && (column->children[0].dtype.type != GB_TYPE_STRUCT ||
                                              column->children[0].child_count != 2)) {
        struct gb_path item = {.up = path, .index = 0};
        return gb_fail_at(reader->error, &item, "a map is of structs of two fields, key and value");
    }
    needed = column->offset + column->length;
    switch (column->dtype.type) {
    case GB_TYPE_FIXED_LIST:
        if (__builtin_mul_overflow(needed, column->dtype.size, &needed) || needed > GB_INTEGER_MAX)
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
                              GB_ULL(column->children[i].length), GB_ULL(needed));
    }
    return 0;
}

static int read_children(struct gb_layout_reader *reader, const struct gb_raw_layout *raw,
                         unsigned depth, const struct gb_path *up, struct gb_column *column)
{
    struct gb_path path = {.up = up, .key = "children"};
    bool named = column->dtype.type == GB_TYPE_STRUCT;
    int r;

    if (gb_type_info(column->dtype.type)->children == 0)
        return refuse_member(reader, raw->children, up, "children", &column->dtype);
    if (!raw->children.text && !named)
        return gb_fail_at(reader->error, &path, "missing");
    if (raw->children.text) {
        r = gb_layout_read_columns(reader, raw->children, named ? GB_PLACE_NAMED : GB_PLACE_UNNAMED,
                                   depth + 1, &path, column);
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

int gb_column_count_nulls(struct gb_column *column, int64_t count, const struct gb_path *path,
                          struct gb_error *error)
{
    if (count > 0 && (uint64_t)count > column->length)
        return gb_fail_at(error, path, "%lld is more than the length, %llu", (long long)count,
                          GB_ULL(column->length));
    if (count > 0 && !can_be_null(column))
        return gb_fail_at(error, path, "%lld, but there is no mask", (long long)count);
    column->null_count = can_be_null(column) ? count : 0;
    return 0;
}

static int read_null_count(struct gb_layout_reader *reader, int64_t count, const struct gb_path *up,
                           struct gb_column *column)
{
    struct gb_path path = {.up = up, .key = "null_count"};

    return gb_column_count_nulls(column, count, &path, reader->error);
}

int gb_layout_read_column(struct gb_layout_reader *reader, struct gb_json value,
                          enum gb_column_place place, unsigned depth, const struct gb_path *path,
                          struct gb_column *column)
{
    struct gb_raw_layout raw = {.null_count = 0};
    const struct gb_field *fields = column_fields + (place == GB_PLACE_OUTERMOST ? 0 : 1);
    const struct gb_field *end =
        column_fields + GB_COUNT(column_fields) - (place == GB_PLACE_NAMED ? 0 : 1);
    int r;

    if (depth > GB_LIMIT(layout_depth)) {
        gb_fail_at(reader->error, path, "columns are nested more than %d deep",
                   (int)GB_LIMIT(layout_depth));
        return gb_layout_as_limit(reader, "layout_depth");
    }
    r = gb_json_read(value, fields, (size_t)(end - fields), reader->unknown, path, reader->pool,
                     &raw, NULL, reader->error);
    if (r < 0)
        return r;
    r = gb_layout_read_dtype(reader, raw.dtype, path, &column->dtype);
    if (r < 0)
        return r;
    if (gb_dtype_packed(&column->dtype)) {
        struct gb_path dtype = {.up = path, .key = "dtype"};
        return gb_fail_at(reader->error, &dtype, "%s is packed, and so the dtype of arrays alone",
                          gb_type_info(column->dtype.type)->name);
    }
    column->name = raw.name.text;
    column->length = raw.length;
    column->offset = raw.offset;
    r = read_column_buffers(reader, &raw, path, column);
    if (r == 0)
        r = read_children(reader, &raw, depth, path, column);
    if (r == 0)
        r = read_null_count(reader, raw.null_count, path, column);
    if (r == 0)
        r = gb_layout_read_metadata(reader, raw.metadata, path, column);
    return r;
}
