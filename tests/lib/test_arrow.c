/*
 * Arrow C Data in and out: what is put and exported again says the same, element by element,
 * however it was sliced, and the structs can be moved and released as the specification says.
 */
#include <inttypes.h>
#include <sys/stat.h>

#include "objects.h"

/* ---- arrays made by hand ---- */

#define NODES 64

static struct ArrowSchema schemas[NODES];
static struct ArrowArray arrays[NODES];
static struct ArrowSchema *schema_children[NODES][8];
static struct ArrowArray *array_children[NODES][8];
static const void *buffers[NODES][3];
static int node_count;

static void schema_done(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

static void array_done(struct ArrowArray *array)
{
    array->release = NULL;
}

/* A node with up to three buffers; children are added after it. */
static int node(const char *format, int64_t length, int64_t offset, int64_t null_count,
                int64_t buffer_count, const void *first, const void *second, const void *third)
{
    int n = node_count++;
    assert_true(n < NODES);
    buffers[n][0] = first;
    buffers[n][1] = second;
    buffers[n][2] = third;
    schemas[n] = (struct ArrowSchema){.format = format,
                                      .name = "",
                                      .flags = ARROW_FLAG_NULLABLE,
                                      .children = schema_children[n],
                                      .release = schema_done};
    arrays[n] = (struct ArrowArray){.length = length,
                                    .offset = offset,
                                    .null_count = null_count,
                                    .n_buffers = buffer_count,
                                    .buffers = buffers[n],
                                    .children = array_children[n],
                                    .release = array_done};
    return n;
}

static void add_child(int parent, int child, const char *name)
{
    schemas[child].name = name;
    schema_children[parent][schemas[parent].n_children++] = &schemas[child];
    array_children[parent][arrays[parent].n_children++] = &arrays[child];
}

static void add_dictionary(int parent, int dictionary)
{
    schemas[parent].dictionary = &schemas[dictionary];
    arrays[parent].dictionary = &arrays[dictionary];
}

/* ---- an element as text ---- */

struct text {
    char bytes[4096];
    size_t length;
};

static void append(struct text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void append(struct text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(text->bytes + text->length, sizeof(text->bytes) - text->length, format,
                      arguments);
    va_end(arguments);
    assert_true(n >= 0 && (size_t)n < sizeof(text->bytes) - text->length);
    text->length += (size_t)n;
}

static bool bit_at(const void *bits, int64_t i)
{
    return ((const unsigned char *)bits)[i / 8] >> (i % 8) & 1;
}

static void append_hex(struct text *text, const void *data, int64_t from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        append(text, "%02x", ((const unsigned char *)data)[from + i]);
}

static int64_t offset_in(const void *offsets, bool large, int64_t i)
{
    return large ? ((const int64_t *)offsets)[i] : ((const int32_t *)offsets)[i];
}

static int64_t fixed_size(const char *format)
{
    switch (format[0]) {
    case 'c':
    case 'C':
        return 1;
    case 's':
    case 'S':
    case 'e':
        return 2;
    case 'i':
    case 'I':
    case 'f':
        return 4;
    case 'd':
        return 16;
    case 'w':
        return atoi(format + 2);
    case 't':
        if (format[1] == 'i')
            return format[2] == 'M' ? 4 : format[2] == 'D' ? 8 : 16;
        if (format[1] == 'd')
            return format[2] == 'D' ? 4 : 8;
        return format[1] == 't' && (format[2] == 's' || format[2] == 'm') ? 4 : 8;
    default:
        return 8;
    }
}

/* Element i, where i counts from the array's own offset. */
static void describe(struct text *text, const struct ArrowSchema *schema,
                     const struct ArrowArray *array, int64_t i)
{
    const char *format = schema->format;
    assert_true(i >= 0 && i < array->length);
    int64_t at = array->offset + i;
    if (format[0] == 'n' || (array->buffers[0] && !bit_at(array->buffers[0], at))) {
        append(text, "null");
        return;
    }
    if (schema->dictionary) {
        int64_t index = 0; /* little-endian, and never negative here */
        memcpy(&index, (const char *)array->buffers[1] + at * fixed_size(format),
               (size_t)fixed_size(format));
        append(text, "#");
        describe(text, schema->dictionary, array->dictionary, index);
    } else if (format[0] == 'b') {
        append(text, "%d", bit_at(array->buffers[1], at));
    } else if (strchr("uUzZ", format[0])) {
        bool large = format[0] == 'U' || format[0] == 'Z';
        int64_t from = offset_in(array->buffers[1], large, at);
        append_hex(text, array->buffers[2], from,
                   offset_in(array->buffers[1], large, at + 1) - from);
    } else if (format[0] == '+' && strchr("lLm", format[1])) {
        bool large = format[1] == 'L';
        append(text, "[");
        for (int64_t e = offset_in(array->buffers[1], large, at);
             e < offset_in(array->buffers[1], large, at + 1); e++) {
            describe(text, schema->children[0], array->children[0], e);
            append(text, " ");
        }
        append(text, "]");
    } else if (format[0] == '+' && format[1] == 'w') {
        int64_t size = atoi(format + 3);
        append(text, "(");
        for (int64_t e = at * size; e < (at + 1) * size; e++) {
            describe(text, schema->children[0], array->children[0], e);
            append(text, " ");
        }
        append(text, ")");
    } else if (format[0] == '+') {
        append(text, "{");
        for (int64_t c = 0; c < schema->n_children; c++) {
            append(text, "%s=", schema->children[c]->name);
            describe(text, schema->children[c], array->children[c], at);
            append(text, " ");
        }
        append(text, "}");
    } else {
        append_hex(text, array->buffers[1], at * fixed_size(format), fixed_size(format));
    }
}

static void assert_same_schema(const struct ArrowSchema *a, const struct ArrowSchema *b)
{
    assert_string_equal(a->format, b->format);
    assert_int_equal(a->n_children, b->n_children);
    for (int64_t i = 0; i < a->n_children; i++) {
        if (strcmp(a->format, "+s") == 0)
            assert_string_equal(a->children[i]->name, b->children[i]->name);
        assert_same_schema(a->children[i], b->children[i]);
    }
    assert_int_equal(a->dictionary != NULL, b->dictionary != NULL);
    if (a->dictionary)
        assert_same_schema(a->dictionary, b->dictionary);
}

/* Elements of `array` from `skip` on are those of `expected` from `from` on. */
static void assert_same(const struct ArrowSchema *expected_schema,
                        const struct ArrowArray *expected, int64_t from,
                        const struct ArrowSchema *schema, const struct ArrowArray *array)
{
    assert_same_schema(expected_schema, schema);
    assert_true(array->null_count >= -1 && array->null_count <= array->length);
    int64_t nulls = 0;
    for (int64_t i = 0; i < array->length; i++) {
        struct text a = {.length = 0}, b = {.length = 0};
        describe(&a, expected_schema, expected, from + i);
        describe(&b, schema, array, i);
        assert_string_equal(a.bytes, b.bytes);
        nulls += strcmp(a.bytes, "null") == 0;
    }
    if (array->null_count >= 0)
        assert_int_equal(array->null_count, nulls);
}

static void check_object(struct gpubuf_object *object, int n, int64_t from)
{
    struct ArrowSchema schema;
    struct ArrowArray array;
    ok(client, gpubuf_export_arrow(object, &schema, &array));
    assert_int_equal(array.length, gpubuf_length(object));
    assert_same(&schemas[n], &arrays[n], from, &schema, &array);
    schema.release(&schema);
    array.release(&array);
    assert_null(schema.release);
    assert_null(array.release);
}

/* There and back, whole and in slices of slices. */
static void round_trip(int n, bool as_table)
{
    struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
    struct gpubuf_object *object, *slice, *part;
    ok(client, gpubuf_put_arrow(client, "arrow", &schemas[n], &arrays[n], as_table, &options));
    ok(client, gpubuf_open(client, "arrow", NULL, &object));
    assert_int_equal(gpubuf_kind(object), as_table ? GPUBUF_KIND_TABLE : GPUBUF_KIND_COLUMN);
    assert_int_equal(gpubuf_length(object), arrays[n].length);
    check_object(object, n, 0);
    uint64_t length = gpubuf_length(object);
    for (uint64_t from = 0; from <= length; from += 1 + length / 7) {
        ok(client, gpubuf_slice(object, from, length - from, &slice));
        check_object(slice, n, (int64_t)from);
        uint64_t half = (length - from) / 2;
        ok(client, gpubuf_slice(slice, half / 2, half, &part));
        gpubuf_release(slice);
        check_object(part, n, (int64_t)(from + half / 2));
        gpubuf_release(part);
    }
    /* A slice that was exported can be put again. */
    if (length > 4) {
        struct ArrowSchema schema;
        struct ArrowArray array;
        ok(client, gpubuf_slice(object, 3, length - 4, &slice));
        ok(client, gpubuf_export_arrow(slice, &schema, &array));
        gpubuf_release(slice);
        ok(client, gpubuf_put_arrow(client, "again", &schema, &array, as_table, &options));
        schema.release(&schema);
        array.release(&array);
        ok(client, gpubuf_open(client, "again", NULL, &slice));
        check_object(slice, n, 3);
        gpubuf_release(slice);
    }
    gpubuf_release(object);
}

#define LENGTH 200

static unsigned char mask[64], data[16 * (LENGTH + 64)];
static int32_t offsets[LENGTH + 64];
static int64_t large_offsets[LENGTH + 64];

static int prepare(void **state)
{
    node_count = 0;
    memset(schema_children, 0, sizeof(schema_children));
    memset(array_children, 0, sizeof(array_children));
    for (size_t i = 0; i < sizeof(mask); i++)
        mask[i] = (unsigned char)(i * 89 + 0x35);
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * 31 + i / 256);
    offsets[0] = 5;
    large_offsets[0] = 0;
    for (int i = 1; i < LENGTH + 64; i++) {
        offsets[i] = offsets[i - 1] + i * 7 % 5;
        large_offsets[i] = large_offsets[i - 1] + i * 3 % 4;
    }
    return 0;
}

TEST(test_fixed_width_types)
{
    static const char *const formats[] = {
        "b",          "c",   "C",   "s",   "S",   "i",      "I",       "l",
        "L",          "e",   "f",   "g",   "w:5", "d:10,2", "d:38,-4", "tdD",
        "tdm",        "tts", "ttm", "ttu", "ttn", "tss:",   "tsm:UTC", "tsu:Europe/Zurich",
        "tsn:+05:30", "tDs", "tDm", "tDu", "tDn", "tiM",    "tiD",     "tin"};
    static const int64_t starts[] = {0, 1, 8, 13};
    for (size_t f = 0; f < COUNT(formats); f++) {
        for (size_t s = 0; s < COUNT(starts); s++) {
            prepare(state);
            round_trip(node(formats[f], 100, starts[s], -1, 2, mask, data, NULL), false);
            round_trip(node(formats[f], 100, starts[s], 0, 2, NULL, data, NULL), false);
        }
    }
    prepare(state);
    round_trip(node("i", 0, 0, 0, 2, NULL, NULL, NULL), false);
    round_trip(node("n", 50, 3, 50, 0, NULL, NULL, NULL), false);
    round_trip(node("n", 50, 3, 50, 1, NULL, NULL, NULL), false); /* as some producers give it */
}

TEST(test_strings)
{
    static const char *const formats[] = {"u", "z", "U", "Z"};
    for (size_t f = 0; f < COUNT(formats); f++) {
        prepare(state);
        const void *places = f < 2 ? (const void *)offsets : (const void *)large_offsets;
        round_trip(node(formats[f], 150, 0, -1, 3, mask, places, data), false);
        round_trip(node(formats[f], 150, 9, 0, 3, NULL, places, data), false);
        round_trip(node(formats[f], 0, 0, 0, 3, NULL, NULL, NULL), false);
        round_trip(node(formats[f], 0, 7, 0, 3, NULL, places, data), false);
    }
    /* Nothing but empty strings has no data. */
    static const int32_t empty[] = {0, 0, 0, 0};
    prepare(state);
    round_trip(node("u", 3, 0, 0, 3, NULL, empty, NULL), false);
}

TEST(test_nested)
{
    prepare(state);
    /* list<struct<a: int16, b: utf8?>?>, all with offsets of their own */
    int list = node("+l", 60, 4, -1, 2, mask + 3, offsets, NULL);
    int structure = node("+s", 180, 2, -1, 1, mask + 11, NULL, NULL);
    int a = node("s", 190, 1, 0, 2, NULL, data, NULL);
    int b = node("u", 185, 6, -1, 3, mask + 1, offsets, data);
    add_child(structure, a, "a");
    add_child(structure, b, "b");
    add_child(list, structure, "element");
    round_trip(list, false);
    round_trip(structure, false);
    schemas[list].format = "+m"; /* a map lies as such a list does */
    round_trip(list, false);

    prepare(state);
    int large = node("+L", 80, 3, 0, 2, NULL, large_offsets, NULL);
    int fixed = node("+w:3", 190, 1, -1, 1, mask, NULL, NULL);
    int inner = node("i", 3 * 191 + 2, 2, -1, 2, mask, data, NULL);
    arrays[inner].length = 600;
    add_child(fixed, inner, "item");
    add_child(large, fixed, "item");
    arrays[fixed].length = 190;
    round_trip(large, false);
    arrays[fixed].length = 100;
    round_trip(fixed, false);

    prepare(state);
    int none = node("+w:0", 10, 0, 0, 1, NULL, NULL, NULL);
    add_child(none, node("l", 0, 0, 0, 2, NULL, NULL, NULL), "item");
    round_trip(none, false);
    int empty = node("+s", 17, 0, 0, 1, NULL, NULL, NULL);
    round_trip(empty, false);
}

TEST(test_dictionaries)
{
    prepare(state);
    static uint8_t indices[128];
    for (int i = 0; i < 128; i++)
        indices[i] = (uint8_t)(i * 5 % 23);
    int n = node("C", 100, 5, -1, 2, mask, indices, NULL);
    int values = node("u", 23, 3, -1, 3, mask + 7, offsets, data);
    add_dictionary(n, values);
    round_trip(n, false);

    prepare(state);
    n = node("C", 100, 5, 0, 2, NULL, indices, NULL);
    int structure = node("+s", 23, 1, 0, 1, NULL, NULL, NULL);
    add_child(structure, node("g", 30, 2, 0, 2, NULL, data, NULL), "g");
    add_dictionary(n, structure);
    int table = node("+s", 90, 4, 0, 1, NULL, NULL, NULL);
    add_child(table, n, "codes");
    round_trip(table, true);
}

TEST(test_tables)
{
    prepare(state);
    int table = node("+s", 70, 11, 0, 1, NULL, NULL, NULL);
    add_child(table, node("l", 100, 3, -1, 2, mask, data, NULL), "l");
    add_child(table, node("b", 90, 1, -1, 2, mask, data, NULL), "b");
    add_child(table, node("u", 81, 0, -1, 3, mask, offsets, data), "text");
    add_child(table, node("n", 81, 0, 81, 0, NULL, NULL, NULL), "n");
    round_trip(table, true);
    round_trip(table, false);

    /* A column of a slice, by itself. */
    struct gpubuf_object *object, *slice, *column;
    struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
    ok(client, gpubuf_put_arrow(client, "table", &schemas[table], &arrays[table], true, &options));
    ok(client, gpubuf_open(client, "table", NULL, &object));
    ok(client, gpubuf_slice(object, 20, 30, &slice));
    for (size_t c = 0; c < 4; c++) {
        ok(client, gpubuf_child(slice, c, &column));
        check_object(column, table + 1 + (int)c, 11 + 20);
        gpubuf_release(column);
    }
    gpubuf_release(slice);
    gpubuf_release(object);
}

TEST(test_metadata)
{
    prepare(state);
    const char encoded[] = "\3\0\0\0"
                           "\1\0\0\0"
                           "k"
                           "\5\0\0\0"
                           "value"
                           "\1\0\0\0"
                           "b"
                           "\2\0\0\0"
                           "\xff\0"
                           "\0\0\0\0"
                           "\0\0\0\0";
    int n = node("i", 3, 0, 0, 2, NULL, data, NULL);
    schemas[n].metadata = encoded;
    struct gpubuf_object *object;
    struct ArrowSchema schema;
    ok(client, gpubuf_put_arrow(client, "metadata", &schemas[n], &arrays[n], false, NULL));
    ok(client, gpubuf_open(client, "metadata", NULL, &object));
    assert_string_equal(gpubuf_metadata(object, "k"), "value");
    assert_null(gpubuf_metadata(object, "b")); /* not text */
    ok(client, gpubuf_export_arrow(object, &schema, NULL));
    const char expected[] = "\2\0\0\0"
                            "\1\0\0\0"
                            "k"
                            "\5\0\0\0"
                            "value"
                            "\0\0\0\0"
                            "\0\0\0\0";
    assert_memory_equal(schema.metadata, expected, sizeof(expected) - 1);
    schema.release(&schema);
    gpubuf_release(object);

    int table = node("+s", 3, 0, 0, 1, NULL, NULL, NULL);
    add_child(table, n, "x");
    schemas[table].metadata = encoded;
    ok(client, gpubuf_put_arrow(client, "noted", &schemas[table], &arrays[table], true, NULL));
    ok(client, gpubuf_open(client, "noted", NULL, &object));
    assert_string_equal(gpubuf_metadata(object, "k"), "value");
    ok(client, gpubuf_export_arrow(object, &schema, NULL));
    assert_memory_equal(schema.metadata, expected, sizeof(expected) - 1);
    schema.release(&schema);
    gpubuf_release(object);

    schemas[n].metadata = "\xff\xff\xff\x7f"; /* a count that nobody means */
    fails(client, GPUBUF_E_LIMIT,
          gpubuf_put_arrow(client, "refused", &schemas[n], &arrays[n], false, NULL));
    schemas[n].metadata = "\xff\xff\xff\xff";
    fails(client, GPUBUF_E_INVALID,
          gpubuf_put_arrow(client, "refused", &schemas[n], &arrays[n], false, NULL));
}

TEST(test_children_that_move)
{
    prepare(state);
    int table = node("+s", 50, 0, 0, 1, NULL, NULL, NULL);
    add_child(table, node("l", 50, 0, -1, 2, mask, data, NULL), "l");
    add_child(table, node("u", 50, 0, -1, 3, mask, offsets, data), "u");
    struct gpubuf_object *object;
    struct ArrowSchema schema, moved_schema;
    struct ArrowArray array, moved;
    struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
    ok(client, gpubuf_put_arrow(client, "moving", &schemas[table], &arrays[table], true, &options));
    ok(client, gpubuf_open(client, "moving", NULL, &object));
    ok(client, gpubuf_export_arrow(object, &schema, &array));
    gpubuf_release(object);
    assert_int_equal(leases_of(client, "moving"), 1);
    moved = *array.children[1];
    array.children[1]->release = NULL;
    moved_schema = *schema.children[1];
    schema.children[1]->release = NULL;
    schema.release(&schema);
    array.release(&array);
    assert_int_equal(leases_of(client, "moving"), 1);
    assert_string_equal(moved_schema.name, "u");
    assert_same(&schemas[table + 2], &arrays[table + 2], 0, &moved_schema, &moved);
    moved.release(&moved);
    moved_schema.release(&moved_schema);
    assert_int_equal(leases_of(client, "moving"), 0);
}

TEST(test_arrays_and_bytes)
{
    prepare(state);
    struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
    const uint64_t shape[] = {60};
    const uint64_t flat[] = {6, 10};
    struct gpubuf_object *object, *slice;
    struct ArrowSchema schema;
    struct ArrowArray array;
    ok(client, gpubuf_put_array(client, "array", "int32", 1, shape, NULL, data, &options));
    ok(client, gpubuf_open(client, "array", NULL, &object));
    ok(client, gpubuf_slice(object, 7, 20, &slice));
    check_object(slice, node("i", 60, 0, 0, 2, NULL, data, NULL), 7);
    gpubuf_release(slice);
    gpubuf_release(object);

    put_counting(client, "bytes", 100, 0);
    ok(client, gpubuf_open(client, "bytes", NULL, &object));
    ok(client, gpubuf_slice(object, 10, 20, &slice));
    ok(client, gpubuf_export_arrow(slice, &schema, &array));
    assert_string_equal(schema.format, "C");
    assert_int_equal(array.length, 20);
    assert_int_equal(((const unsigned char *)array.buffers[1])[array.offset], 10);
    schema.release(&schema);
    array.release(&array);
    gpubuf_release(slice);
    gpubuf_release(object);

    struct gpubuf_layout_spec layout = {
        .kind = GPUBUF_KIND_ARRAY, .dtype = "int16", .ndim = 1, .shape = shape, .mask = true};
    struct gpubuf_memory memory;
    ok(client, gpubuf_create(client, "array", &layout, &options, &object));
    ok(client, gpubuf_memory(object, GPUBUF_DATA, &memory));
    memcpy(memory.pointer, data, 120);
    ok(client, gpubuf_memory(object, GPUBUF_MASK, &memory));
    memcpy(memory.pointer, mask, 8);
    ok(client, gpubuf_seal(object, NULL));
    int n = node("s", 60, 0, -1, 2, mask, data, NULL);
    check_object(object, n, 0);
    ok(client, gpubuf_slice(object, 13, 30, &slice));
    check_object(slice, n, 13);
    gpubuf_release(slice);
    gpubuf_release(object);
    struct gpubuf_alias_options part = {
        .size = sizeof(part), .slice = true, .offset = 13, .length = 30};
    ok(client, gpubuf_alias(client, "array/part", "array", &part));
    ok(client, gpubuf_open(client, "array/part", NULL, &object));
    check_object(object, n, 13);
    gpubuf_release(object);

    static const char *const without[] = {"bool8", "bfloat16", "complex64", "float8_e4m3fn",
                                          "float4_e2m1fn"};
    for (size_t i = 0; i < COUNT(without); i++) {
        ok(client, gpubuf_put_array(client, "array", without[i], 1, shape, NULL, data, &options));
        ok(client, gpubuf_open(client, "array", NULL, &object));
        fails(client, GPUBUF_E_UNSUPPORTED, gpubuf_export_arrow(object, &schema, &array));
        assert_non_null(strstr(gpubuf_errmsg(client), without[i]));
        gpubuf_release(object);
    }
    ok(client, gpubuf_put_array(client, "array", "int8", 2, flat, NULL, data, &options));
    ok(client, gpubuf_open(client, "array", NULL, &object));
    fails(client, GPUBUF_E_UNSUPPORTED, gpubuf_export_arrow(object, &schema, &array));
    gpubuf_release(object);
}

/* Publishes a column of utf8 as `other`, with these offsets; its memory goes on being written. */
static struct gpubuf_object *put_text(struct gpubuf_client *other, const int32_t ends[4],
                                      bool finally)
{
    struct gpubuf_create_options options = {
        .size = sizeof(options), .mode = 0644, .replace = true, .final = finally};
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_COLUMN,
                                        .column = {.dtype = "utf8", .length = 3, .data_bytes = 9}};
    struct gpubuf_memory memory;
    struct gpubuf_object *made;

    ok(other, gpubuf_create(other, "text", &layout, &options, &made));
    ok(other, gpubuf_memory(made, GPUBUF_OFFSETS, &memory));
    memcpy(memory.pointer, ends, 4 * sizeof(*ends));
    ok(other, gpubuf_seal(made, NULL));
    return made;
}

/* Offsets of another user are copied and checked; if they are final they are checked where they
   lie. (tests/python/test_foreign_content.py has all the rest.) */
TEST(test_foreign)
{
    static const int32_t right[] = {0, 3, 3, 9}, wrong[] = {0, 3, 3, 10};
    struct gpubuf_client *other;
    struct gpubuf_object *object, *made;
    struct gpubuf_memory memory;
    struct ArrowArray array;

    if (geteuid() != 0)
        skip();
    char directory[128];
    snprintf(directory, sizeof(directory), "%s", daemon_socket());
    *strrchr(directory, '/') = '\0';
    assert_int_equal(chmod(directory, 0711), 0);
    assert_int_equal(seteuid(61803), 0);
    other = connect_client();
    assert_int_equal(seteuid(0), 0);
    for (int finally = 0; finally < 2; finally++) {
        made = put_text(other, wrong, finally);
        gpubuf_release(made);
        ok(client, gpubuf_open(client, "text", NULL, &object));
        assert_true(gpubuf_is_foreign(object));
        fails(client, GPUBUF_E_INVALID, gpubuf_export_arrow(object, NULL, &array));
        assert_non_null(
            strstr(gpubuf_errmsg(client), "offset 3 is 10, expected ascending ones up to 9"));
        gpubuf_release(object);

        made = put_text(other, right, finally);
        gpubuf_release(made);
        ok(client, gpubuf_open(client, "text", NULL, &object));
        ok(client, gpubuf_export_arrow(object, NULL, &array));
        ok(client, gpubuf_memory(object, GPUBUF_OFFSETS, &memory));
        assert_int_equal(array.buffers[1] == memory.pointer, finally);
        assert_memory_equal(array.buffers[1], right, sizeof(right));
        ok(client, gpubuf_memory(object, GPUBUF_DATA, &memory));
        assert_ptr_equal(array.buffers[2], memory.pointer);
        array.release(&array);
        gpubuf_release(object);
    }
    put_counting(client, "own", 100, 0);
    ok(client, gpubuf_open(client, "own", NULL, &object));
    assert_false(gpubuf_is_foreign(object));
    gpubuf_release(object);
    gpubuf_disconnect(other);
}

/* Structs that contradict themselves: refused, and nothing is published. */
TEST(test_bad_arrays)
{
    prepare(state);
    static const int32_t backwards[] = {0, 5, 3, 9}, negative[] = {-4, 0, 0, 1};
    const int bad[] = {
        node("i", -1, 0, 0, 2, NULL, data, NULL),
        node("i", 3, -1, 0, 2, NULL, data, NULL),
        node("i", 3, 0, -2, 2, NULL, data, NULL),
        node("i", 3, 0, 0, 3, NULL, data, NULL),
        node("i", 3, 0, 0, 2, NULL, NULL, NULL),
        node("i", 3, 0, 2, 2, NULL, data, NULL),
        node("i", INT64_MAX, INT64_MAX, 0, 2, NULL, data, NULL),
        node("u", 3, 0, 0, 3, NULL, backwards, data),
        node("u", 3, 0, 0, 3, NULL, negative, data),
        node("u", 3, 0, 0, 3, NULL, NULL, data),
        node("u", 3, 0, 0, 3, NULL, offsets, NULL),
        node("+l", 3, 0, 0, 2, NULL, offsets, NULL), /* no child */
    };
    for (size_t i = 0; i < COUNT(bad); i++)
        fails(client, GPUBUF_E_INVALID,
              gpubuf_put_arrow(client, "refused", &schemas[bad[i]], &arrays[bad[i]], false, NULL));
    static const char *const formats[] = {"+vl", "+ud:0", "vu", "+r", "", "x", "d:76,2,256"};
    for (size_t i = 0; i < COUNT(formats); i++) {
        int n = node(formats[i], 3, 0, 0, 2, NULL, data, NULL);
        fails(client, GPUBUF_E_UNSUPPORTED,
              gpubuf_put_arrow(client, "refused", &schemas[n], &arrays[n], false, NULL));
    }
    int parent = node("+s", 10, 0, 0, 1, NULL, NULL, NULL);
    int child = node("i", 9, 0, 0, 2, NULL, data, NULL);
    add_child(parent, child, "short");
    fails(client, GPUBUF_E_INVALID,
          gpubuf_put_arrow(client, "refused", &schemas[parent], &arrays[parent], true, NULL));
    arrays[child].length = 10;
    schemas[child].release = NULL;
    fails(client, GPUBUF_E_INVALID,
          gpubuf_put_arrow(client, "refused", &schemas[parent], &arrays[parent], true, NULL));
    schemas[child].release = schema_done;
    arrays[parent].n_children = 2;
    fails(client, GPUBUF_E_INVALID,
          gpubuf_put_arrow(client, "refused", &schemas[parent], &arrays[parent], true, NULL));
    arrays[parent].n_children = 1;
    buffers[parent][0] = mask;
    arrays[parent].null_count = -1;
    fails(client, GPUBUF_E_INVALID,
          gpubuf_put_arrow(client, "refused", &schemas[parent], &arrays[parent], true, NULL));
    fails(client, GPUBUF_E_INVALID,
          gpubuf_put_arrow(client, "refused", &schemas[child], &arrays[child], true, NULL));
    fails(client, GPUBUF_E_INVALID,
          gpubuf_put_arrow(client, "refused", NULL, &arrays[child], true, NULL));
    assert_int_equal(leases_of(client, "refused"), -1);
}

RUN_TESTS(connect_group, disconnect_group)
