/*
 * Objects of every kind and dtype, there and back through a real daemon, and the views of them.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "harness.h"

static struct gpubuf_client *client;

static int connect_group(void **state)
{
    if (start_daemon(state) < 0)
        return -1;
    client = connect_client();
    return 0;
}

static int disconnect_group(void **state)
{
    gpubuf_disconnect(client);
    client = NULL;
    return stop_daemon(state);
}

static void *memory_of(struct gpubuf_object *object, enum gpubuf_which which, uint64_t bytes)
{
    struct gpubuf_memory memory;
    ok(client, gpubuf_memory(object, which, &memory));
    assert_true(memory.bytes >= bytes);
    assert_non_null(memory.pointer);
    return memory.pointer;
}

static bool writable(struct gpubuf_object *object)
{
    struct gpubuf_memory memory;
    ok(client, gpubuf_memory(object, GPUBUF_DATA, &memory));
    return memory.writable;
}

static void test_bytes_there_and_back(void **state)
{
    (void)state;
    struct gpubuf_object *object, *slice, *part;
    struct gpubuf_memory memory;
    put_counting(client, "bytes", 1000, 3);
    ok(client, gpubuf_open(client, "bytes", NULL, &object));
    assert_int_equal(gpubuf_kind(object), GPUBUF_KIND_BYTES);
    assert_string_equal(gpubuf_name(object), "bytes");
    assert_string_equal(gpubuf_device(object), "host");
    assert_string_equal(gpubuf_dtype(object), "");
    assert_null(gpubuf_column_name(object));
    assert_true(gpubuf_object_version(object) >= 1);
    assert_int_equal(gpubuf_length(object), 1000);
    assert_int_equal(gpubuf_ndim(object), 1);
    assert_int_equal(gpubuf_shape(object)[0], 1000);
    assert_int_equal(gpubuf_strides(object)[0], 1);
    assert_int_equal(gpubuf_null_count(object), 0);
    assert_int_equal(gpubuf_child_count(object), 0);
    const unsigned char *data = memory_of(object, GPUBUF_DATA, 1000);
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(data[i], (unsigned char)(3 + i));
    assert_false(writable(object));
    assert_int_equal(gpubuf_memory(object, GPUBUF_MASK, &memory), 1);
    assert_null(memory.pointer);

    ok(client, gpubuf_slice(object, 10, 100, &slice));
    ok(client, gpubuf_slice(slice, 5, 20, &part));
    gpubuf_release(object);
    gpubuf_release(slice);
    ok(client, gpubuf_memory(part, GPUBUF_DATA, &memory));
    assert_int_equal(memory.bytes, 20);
    assert_int_equal(*(unsigned char *)memory.pointer, 18);
    assert_true(gpubuf_is_valid(part, 19));
    assert_false(gpubuf_is_valid(part, 20));
    fails(client, GPUBUF_E_INVALID, gpubuf_slice(part, 1, 20, &slice));
    fails(client, GPUBUF_E_INVALID, gpubuf_slice(part, 21, 0, &slice));
    fails(client, GPUBUF_E_INVALID, gpubuf_slice(part, 1, UINT64_MAX, &slice));
    ok(client, gpubuf_slice(part, 20, 0, &slice));
    ok(client, gpubuf_memory(slice, GPUBUF_DATA, &memory));
    assert_int_equal(memory.bytes, 0);
    assert_non_null(memory.pointer);
    gpubuf_release(slice);
    assert_int_equal(leases_of(client, "bytes"), 1);
    gpubuf_release(part);
    assert_int_equal(leases_of(client, "bytes"), 0);

    ok(client, gpubuf_put_bytes(client, "empty", NULL, 0, NULL));
    ok(client, gpubuf_open(client, "empty", NULL, &object));
    assert_int_equal(gpubuf_length(object), 0);
    ok(client, gpubuf_memory(object, GPUBUF_DATA, &memory));
    gpubuf_release(object);
}

static void test_arrays_there_and_back(void **state)
{
    (void)state;
    static const struct {
        const char *dtype;
        size_t size;
    } types[] = {
        {"bool8", 1},         {"int8", 1},
        {"int16", 2},         {"int32", 4},
        {"int64", 8},         {"uint8", 1},
        {"uint16", 2},        {"uint32", 4},
        {"uint64", 8},        {"float16", 2},
        {"bfloat16", 2},      {"float32", 4},
        {"float64", 8},       {"complex64", 8},
        {"float8_e4m3fn", 1}, {"float8_e8m0fnu", 1},
        {"complex128", 16},   {"fixed_binary(3)", 3},
        {"date32", 4},        {"date64", 8},
        {"time32[ms]", 4},    {"time64[ns]", 8},
        {"timestamp[us]", 8}, {"timestamp[ns,Europe/Zurich]", 8},
        {"duration[s]", 8},   {"decimal128(38,-2)", 16},
    };
    const uint64_t shape[] = {5, 3, 2};
    unsigned char data[30 * 16];
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * 7);
    for (size_t i = 0; i < COUNT(types); i++) {
        struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
        struct gpubuf_object *array, *slice, *part;
        size_t size = types[i].size;
        ok(client,
           gpubuf_put_array(client, "array", types[i].dtype, 3, shape, NULL, data, &options));
        ok(client, gpubuf_open(client, "array", NULL, &array));
        assert_int_equal(gpubuf_kind(array), GPUBUF_KIND_ARRAY);
        assert_string_equal(gpubuf_dtype(array), types[i].dtype);
        assert_int_equal(gpubuf_ndim(array), 3);
        assert_int_equal(gpubuf_length(array), 5);
        assert_memory_equal(gpubuf_shape(array), shape, sizeof(shape));
        assert_int_equal(gpubuf_strides(array)[0], 6 * size);
        assert_int_equal(gpubuf_strides(array)[2], size);
        assert_memory_equal(memory_of(array, GPUBUF_DATA, 30 * size), data, 30 * size);
        ok(client, gpubuf_slice(array, 1, 4, &slice));
        ok(client, gpubuf_slice(slice, 2, 1, &part));
        assert_int_equal(gpubuf_shape(part)[0], 1);
        assert_int_equal(gpubuf_shape(part)[1], 3);
        struct gpubuf_memory memory;
        ok(client, gpubuf_memory(part, GPUBUF_DATA, &memory));
        assert_int_equal(memory.bytes, 6 * size);
        assert_memory_equal(memory.pointer, data + 18 * size, 6 * size);
        assert_true(gpubuf_is_valid(part, 5));
        assert_false(gpubuf_is_valid(part, 6));
        gpubuf_release(slice);
        gpubuf_release(array);
        gpubuf_release(part);
    }
}

/* Packed floats: extents are elements, strides and sizes bytes; rows are cut anywhere, the packed
   axis at whole bytes. */
static void test_packed_arrays(void **state)
{
    (void)state;
    static const uint64_t shape[] = {3, 8};
    static const unsigned char padded[] = {1, 2, 3, 4, 99, 5, 6, 7, 8, 99, 9, 10, 11, 12};
    static const unsigned char dense[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    static const uint64_t odd = 7, even = 24;
    const int64_t strides[] = {5, 1};
    struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
    struct gpubuf_object *array, *slice;
    struct gpubuf_memory memory;
    ok(client,
       gpubuf_put_array(client, "packed", "float4_e2m1fn", 2, shape, strides, padded, &options));
    ok(client, gpubuf_open(client, "packed", NULL, &array));
    assert_memory_equal(gpubuf_shape(array), shape, sizeof(shape));
    assert_int_equal(gpubuf_strides(array)[0], 4);
    assert_int_equal(gpubuf_strides(array)[1], 1);
    ok(client, gpubuf_memory(array, GPUBUF_DATA, &memory));
    assert_int_equal(memory.bytes, sizeof(dense));
    assert_memory_equal(memory.pointer, dense, sizeof(dense));
    ok(client, gpubuf_slice(array, 1, 1, &slice));
    ok(client, gpubuf_memory(slice, GPUBUF_DATA, &memory));
    assert_int_equal(memory.bytes, 4);
    assert_memory_equal(memory.pointer, dense + 4, 4);
    gpubuf_release(slice);
    gpubuf_release(array);

    assert_int_equal(
        gpubuf_put_array(client, "packed", "float4_e2m1fn", 1, &odd, NULL, dense, &options),
        GPUBUF_E_INVALID);
    ok(client,
       gpubuf_put_array(client, "packed", "float4_e2m1fn", 1, &even, NULL, dense, &options));
    ok(client, gpubuf_open(client, "packed", NULL, &array));
    ok(client, gpubuf_slice(array, 6, 4, &slice));
    ok(client, gpubuf_memory(slice, GPUBUF_DATA, &memory));
    assert_int_equal(memory.bytes, 2);
    assert_memory_equal(memory.pointer, dense + 3, 2);
    gpubuf_release(slice);
    assert_int_equal(gpubuf_slice(array, 5, 2, &slice), GPUBUF_E_INVALID);
    assert_int_equal(gpubuf_slice(array, 6, 1, &slice), GPUBUF_E_INVALID);
    gpubuf_release(array);
}

static void test_strided_sources(void **state)
{
    (void)state;
    struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
    int32_t data[4][6];
    for (int i = 0; i < 24; i++)
        data[i / 6][i % 6] = i;
    const struct {
        unsigned ndim;
        uint64_t shape[3];
        int64_t strides[3];
        const int32_t *from;
    } cases[] = {
        {2, {4, 3}, {24, 8}, &data[0][0]},        /* every other column */
        {2, {6, 4}, {4, 24}, &data[0][0]},        /* transposed */
        {2, {4, 6}, {-24, 4}, &data[3][0]},       /* upside down */
        {1, {5}, {0}, &data[1][1]},               /* broadcast */
        {2, {2, 6}, {48, 4}, &data[0][0]},        /* every other row */
        {3, {2, 2, 6}, {48, 24, 4}, &data[0][0]}, /* C order in disguise */
        {2, {1, 6}, {999, 4}, &data[2][0]},       /* the stride of one element does not matter */
        {2, {0, 6}, {24, 4}, NULL},
    };
    for (size_t c = 0; c < COUNT(cases); c++) {
        struct gpubuf_object *array;
        ok(client, gpubuf_put_array(client, "strided", "int32", cases[c].ndim, cases[c].shape,
                                    cases[c].strides, cases[c].from, &options));
        ok(client, gpubuf_open(client, "strided", NULL, &array));
        struct gpubuf_memory memory;
        ok(client, gpubuf_memory(array, GPUBUF_DATA, &memory));
        uint64_t total = 1;
        for (unsigned i = 0; i < cases[c].ndim; i++)
            total *= cases[c].shape[i];
        assert_int_equal(memory.bytes, total * 4);
        for (uint64_t i = 0; i < total; i++) {
            uint64_t rest = i;
            const char *from = (const char *)cases[c].from;
            for (unsigned axis = cases[c].ndim; axis-- > 0; rest /= cases[c].shape[axis])
                from += cases[c].strides[axis] * (int64_t)(rest % cases[c].shape[axis]);
            int32_t expected;
            memcpy(&expected, from, 4);
            assert_int_equal(((const int32_t *)memory.pointer)[i], expected);
        }
        gpubuf_release(array);
    }

    double scalar = 2.5;
    struct gpubuf_object *array, *slice;
    ok(client, gpubuf_put_array(client, "scalar", "float64", 0, NULL, NULL, &scalar, &options));
    ok(client, gpubuf_open(client, "scalar", NULL, &array));
    assert_int_equal(gpubuf_ndim(array), 0);
    assert_int_equal(gpubuf_length(array), 1);
    assert_memory_equal(memory_of(array, GPUBUF_DATA, 8), &scalar, 8);
    fails(client, GPUBUF_E_INVALID, gpubuf_slice(array, 0, 1, &slice));
    gpubuf_release(array);
}

static void test_masked_array(void **state)
{
    (void)state;
    const uint64_t shape[] = {5, 3};
    struct gpubuf_layout_spec layout = {
        .kind = GPUBUF_KIND_ARRAY, .dtype = "int16", .ndim = 2, .shape = shape, .mask = true};
    struct gpubuf_object *array, *slice, *part;
    ok(client, gpubuf_create(client, "masked", &layout, NULL, &array));
    assert_true(writable(array));
    int16_t *data = memory_of(array, GPUBUF_DATA, 30);
    unsigned char *mask = memory_of(array, GPUBUF_MASK, 2);
    for (int i = 0; i < 15; i++)
        data[i] = (int16_t)i;
    mask[0] = 0xb5;
    mask[1] = 0x2a;
    ok(client, gpubuf_seal(array, NULL));
    assert_false(writable(array));
    assert_int_equal(gpubuf_null_count(array), -1);
    for (int pass = 0; pass < 2; pass++) {
        ok(client, gpubuf_slice(array, 1, 4, &slice));
        ok(client, gpubuf_slice(slice, 2, 2, &part));
        assert_int_equal(gpubuf_offset(part), 9);
        for (unsigned i = 0; i < 6; i++)
            assert_int_equal(gpubuf_is_valid(part, i), (0x2ab5 >> (9 + i)) & 1);
        assert_int_equal(*(int16_t *)memory_of(part, GPUBUF_DATA, 12), 9);
        gpubuf_release(part);
        gpubuf_release(slice);
        gpubuf_release(array);
        if (pass == 0)
            ok(client, gpubuf_open(client, "masked", NULL, &array));
    }

    /* The same through a name for a part of it. */
    struct gpubuf_alias_options options = {
        .size = sizeof(options), .slice = true, .offset = 3, .length = 2};
    ok(client, gpubuf_alias(client, "masked/part", "masked", &options));
    ok(client, gpubuf_open(client, "masked/part", NULL, &array));
    assert_int_equal(gpubuf_length(array), 2);
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(gpubuf_is_valid(array, i), (0x2ab5 >> (9 + i)) & 1);
    assert_int_equal(*(int16_t *)memory_of(array, GPUBUF_DATA, 12), 9);
    gpubuf_release(array);
}

static void test_columns_of_every_dtype(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"bool",
                                         "bool8",
                                         "int8",
                                         "uint64",
                                         "float16",
                                         "bfloat16",
                                         "float64",
                                         "complex128",
                                         "fixed_binary(7)",
                                         "date32",
                                         "time32[s]",
                                         "time64[us]",
                                         "timestamp[ms]",
                                         "timestamp[us,UTC]",
                                         "duration[ns]",
                                         "decimal128(10,3)"};
    struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
    for (size_t i = 0; i < COUNT(dtypes); i++) {
        struct gpubuf_layout_spec layout = {
            .kind = GPUBUF_KIND_COLUMN,
            .column = {
                .dtype = dtypes[i], .length = 100, .offset = 3, .mask = true, .null_count = -1}};
        struct gpubuf_object *column, *slice, *part;
        ok(client, gpubuf_create(client, "column", &layout, &options, &column));
        assert_int_equal(gpubuf_object_version(column), 0);
        unsigned char *mask = memory_of(column, GPUBUF_MASK, 13);
        struct gpubuf_memory data;
        ok(client, gpubuf_memory(column, GPUBUF_DATA, &data));
        assert_true(data.writable && data.bytes >= 13);
        memset(data.pointer, 0x5a, data.bytes);
        for (int b = 0; b < 13; b++)
            mask[b] = (unsigned char)(b * 37 + 1);
        int64_t nulls = 0;
        for (unsigned e = 3; e < 103; e++)
            nulls += !(mask[e / 8] >> (e % 8) & 1);
        ok(client, gpubuf_seal(column, &nulls));
        assert_int_equal(gpubuf_null_count(column), nulls);
        gpubuf_release(column);

        ok(client, gpubuf_open(client, "column", NULL, &column));
        assert_int_equal(gpubuf_kind(column), GPUBUF_KIND_COLUMN);
        assert_string_equal(gpubuf_dtype(column), dtypes[i]);
        assert_int_equal(gpubuf_null_count(column), nulls);
        assert_int_equal(gpubuf_offset(column), 3);
        ok(client, gpubuf_slice(column, 10, 50, &slice));
        ok(client, gpubuf_slice(slice, 5, 20, &part));
        assert_int_equal(gpubuf_offset(part), 18);
        assert_int_equal(gpubuf_null_count(part), -1);
        for (unsigned e = 0; e < 20; e++)
            assert_int_equal(gpubuf_is_valid(part, e),
                             (((18 + e) / 8 * 37 + 1) >> (18 + e) % 8) & 1);
        gpubuf_release(slice);
        ok(client, gpubuf_slice(column, 0, 100, &slice));
        assert_int_equal(gpubuf_null_count(slice), nulls);
        gpubuf_release(slice);
        ok(client, gpubuf_slice(column, 100, 0, &slice));
        assert_int_equal(gpubuf_null_count(slice), 0);
        gpubuf_release(slice);
        gpubuf_release(part);
        gpubuf_release(column);
    }
}

static void test_tables_and_metadata(void **state)
{
    (void)state;
    const char *const metadata[] = {"unit", "m", "note", "a \"quoted\" ü", NULL};
    const struct gpubuf_column_spec columns[] = {
        {.name = "id", .dtype = "int64", .length = 6},
        {.name = "größe",
         .dtype = "float64",
         .length = 6,
         .mask = true,
         .null_count = -1,
         .metadata = metadata},
        {.name = "text", .dtype = "utf8", .length = 6, .data_bytes = 11},
        {.name = "nothing", .dtype = "null", .length = 6},
    };
    struct gpubuf_layout_spec layout = {
        .kind = GPUBUF_KIND_TABLE,
        .column = {
            .length = 6, .children = columns, .child_count = COUNT(columns), .metadata = metadata}};
    struct gpubuf_object *table, *column, *slice, *again;
    ok(client, gpubuf_create(client, "table", &layout, NULL, &table));
    ok(client, gpubuf_child(table, 0, &column));
    for (int i = 0; i < 6; i++)
        ((int64_t *)memory_of(column, GPUBUF_DATA, 48))[i] = i * 10;
    gpubuf_release(column);
    ok(client, gpubuf_column(table, "größe", &column));
    *(unsigned char *)memory_of(column, GPUBUF_MASK, 1) = 0x2d;
    gpubuf_release(column);
    ok(client, gpubuf_column(table, "text", &column));
    memcpy(memory_of(column, GPUBUF_DATA, 11), "onetwothree", 11);
    const int32_t offsets[] = {0, 3, 3, 6, 6, 11, 11};
    memcpy(memory_of(column, GPUBUF_OFFSETS, sizeof(offsets)), offsets, sizeof(offsets));
    fails(client, GPUBUF_E_INVALID, gpubuf_seal(column, NULL));
    gpubuf_release(column);
    const int64_t too_many[] = {-1, 7, -1, -1}, nulls[] = {-1, 2, -1, -1};
    fails(client, GPUBUF_E_INVALID, gpubuf_seal(table, too_many));
    ok(client, gpubuf_seal(table, nulls));
    fails(client, GPUBUF_E_BUSY, gpubuf_seal(table, NULL));
    gpubuf_release(table);

    ok(client, gpubuf_open(client, "table", NULL, &table));
    assert_int_equal(gpubuf_kind(table), GPUBUF_KIND_TABLE);
    assert_int_equal(gpubuf_ndim(table), 0);
    assert_int_equal(gpubuf_child_count(table), 4);
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_column(table, "ID", &column));
    fails(client, GPUBUF_E_INVALID, gpubuf_child(table, 4, &column));
    ok(client, gpubuf_slice(table, 1, 5, &slice));
    ok(client, gpubuf_slice(slice, 1, 3, &again));
    gpubuf_release(slice);
    gpubuf_release(table);
    assert_string_equal(gpubuf_metadata(again, "unit"), "m");
    assert_int_equal(gpubuf_length(again), 3);
    assert_int_equal(gpubuf_offset(again), 0);
    ok(client, gpubuf_column(again, "id", &column));
    assert_string_equal(gpubuf_column_name(column), "id");
    assert_int_equal(gpubuf_offset(column), 2);
    assert_int_equal(gpubuf_length(column), 3);
    assert_int_equal(((int64_t *)memory_of(column, GPUBUF_DATA, 48))[gpubuf_offset(column)], 20);
    assert_int_equal(gpubuf_null_count(column), 0);
    gpubuf_release(column);
    ok(client, gpubuf_column(again, "größe", &column));
    assert_int_equal(gpubuf_null_count(column), -1);
    assert_true(gpubuf_is_valid(column, 0) && gpubuf_is_valid(column, 1));
    assert_false(gpubuf_is_valid(column, 2));
    assert_string_equal(gpubuf_metadata(column, "note"), "a \"quoted\" ü");
    assert_null(gpubuf_metadata(column, "absent"));
    const char *key, *value;
    assert_int_equal(gpubuf_metadata_at(column, 0, &key, &value), 0);
    assert_string_equal(key, "unit");
    assert_string_equal(value, "m");
    assert_int_equal(gpubuf_metadata_at(column, 2, &key, &value), 1);
    gpubuf_release(column);
    ok(client, gpubuf_column(again, "nothing", &column));
    assert_int_equal(gpubuf_null_count(column), 3);
    assert_false(gpubuf_is_valid(column, 0));
    gpubuf_release(column);
    gpubuf_release(again);
}

/* Some of a table's columns, in another order, of a slice, exported and outliving what they are of. */
static void test_selections(void **state)
{
    (void)state;
    struct gpubuf_column_spec columns[] = {
        {.name = "a", .dtype = "int32", .length = 4},
        {.name = "b", .dtype = "int64", .length = 4, .mask = true, .null_count = -1},
        {.name = "c", .dtype = "int8", .length = 4},
    };
    struct gpubuf_layout_spec layout = {
        .kind = GPUBUF_KIND_TABLE,
        .column = {.length = 4, .children = columns, .child_count = COUNT(columns)}};
    const char *const all[] = {"c", "b", "a", "c"}, *const other[] = {"c", "d"};
    struct gpubuf_object *table, *slice, *view, *again, *column;
    ok(client, gpubuf_create(client, "select", &layout, NULL, &table));
    fails(client, GPUBUF_E_BUSY, gpubuf_select(table, all, 2, &view));
    ok(client, gpubuf_column(table, "b", &column));
    *(unsigned char *)memory_of(column, GPUBUF_MASK, 1) = 0x0b;
    ((int64_t *)memory_of(column, GPUBUF_DATA, 32))[3] = 33;
    gpubuf_release(column);
    ok(client, gpubuf_seal(table, NULL));

    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_select(table, other, 2, &view));
    fails(client, GPUBUF_E_INVALID, gpubuf_select(table, all, 4, &view));
    ok(client, gpubuf_slice(table, 2, 2, &slice));
    ok(client, gpubuf_select(slice, all, 2, &view));
    gpubuf_release(table);
    gpubuf_release(slice);
    assert_int_equal(gpubuf_kind(view), GPUBUF_KIND_TABLE);
    assert_int_equal(gpubuf_length(view), 2);
    assert_int_equal(gpubuf_child_count(view), 2);
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_column(view, "a", &column));
    ok(client, gpubuf_select(view, all + 1, 1, &again));
    ok(client, gpubuf_slice(again, 1, 1, &slice));
    gpubuf_release(again);
    ok(client, gpubuf_child(slice, 0, &column));
    fails(client, GPUBUF_E_INVALID, gpubuf_select(column, all, 1, &again));

    struct ArrowSchema schema;
    struct ArrowArray array;
    ok(client, gpubuf_export_arrow(view, &schema, &array));
    gpubuf_release(view);
    assert_int_equal(schema.n_children, 2);
    assert_string_equal(schema.children[0]->name, "c");
    assert_int_equal(array.children[1]->offset, 2);
    assert_int_equal(array.children[1]->null_count, -1);
    assert_int_equal(((const int64_t *)array.children[1]->buffers[1])[3], 33);
    schema.release(&schema);
    array.release(&array);

    gpubuf_release(slice);
    assert_string_equal(gpubuf_column_name(column), "b");
    assert_int_equal(gpubuf_offset(column), 3);
    assert_true(gpubuf_is_valid(column, 0));
    assert_int_equal(leases_of(client, "select"), 1);
    gpubuf_release(column);
    assert_int_equal(leases_of(client, "select"), 0);

    ok(client, gpubuf_open(client, "select", NULL, &table));
    ok(client, gpubuf_select(table, NULL, 0, &view));
    assert_int_equal(gpubuf_child_count(view), 0);
    assert_int_equal(gpubuf_length(view), 4);
    gpubuf_release(table);
    gpubuf_release(view);
    ok(client, gpubuf_put_bytes(client, "plain", "x", 1, NULL));
    ok(client, gpubuf_open(client, "plain", NULL, &table));
    fails(client, GPUBUF_E_INVALID, gpubuf_select(table, all, 1, &view));
    gpubuf_release(table);
}

/* list<struct<x: int32, f: fixed_list(2) of int8>> and a dictionary, children of slices of slices
 */
static void test_nested_columns(void **state)
{
    (void)state;
    const struct gpubuf_column_spec item = {.dtype = "int8", .length = 20};
    const struct gpubuf_column_spec fields[] = {
        {.name = "x", .dtype = "int32", .length = 10},
        {.name = "f", .dtype = "fixed_list(2)", .length = 10, .children = &item, .child_count = 1},
    };
    const struct gpubuf_column_spec structure = {.dtype = "struct",
                                                 .length = 10,
                                                 .children = fields,
                                                 .child_count = 2,
                                                 .mask = true,
                                                 .null_count = -1};
    const struct gpubuf_column_spec dictionary[] = {
        {.dtype = "int8", .length = 4, .mask = true, .null_count = -1},
        {.dtype = "utf8", .length = 2, .data_bytes = 6},
    };
    const struct gpubuf_column_spec columns[] = {
        {.name = "list", .dtype = "list", .length = 4, .children = &structure, .child_count = 1},
        {.name = "dictionary",
         .dtype = "dictionary",
         .length = 4,
         .children = dictionary,
         .child_count = 2,
         .null_count = -1},
    };
    struct gpubuf_layout_spec layout = {
        .kind = GPUBUF_KIND_TABLE, .column = {.length = 4, .children = columns, .child_count = 2}};
    struct gpubuf_object *table, *slice, *list, *structs, *part, *child, *inner;
    ok(client, gpubuf_create(client, "nested", &layout, NULL, &table));
    ok(client, gpubuf_column(table, "list", &list));
    const int32_t offsets[] = {0, 2, 5, 5, 10};
    memcpy(memory_of(list, GPUBUF_OFFSETS, 20), offsets, 20);
    ok(client, gpubuf_child(list, 0, &structs));
    memcpy(memory_of(structs, GPUBUF_MASK, 2), "\xfb\x03", 2);
    ok(client, gpubuf_column(structs, "x", &child));
    for (int i = 0; i < 10; i++)
        ((int32_t *)memory_of(child, GPUBUF_DATA, 40))[i] = 100 + i;
    gpubuf_release(child);
    gpubuf_release(structs);
    gpubuf_release(list);
    ok(client, gpubuf_column(table, "dictionary", &list));
    ok(client, gpubuf_child(list, 0, &child));
    memcpy(memory_of(child, GPUBUF_DATA, 4), "\0\1\1\0", 4);
    *(unsigned char *)memory_of(child, GPUBUF_MASK, 1) = 0x0d;
    gpubuf_release(child);
    gpubuf_release(list);
    ok(client, gpubuf_seal(table, NULL));

    ok(client, gpubuf_slice(table, 1, 3, &slice));
    ok(client, gpubuf_column(slice, "list", &list));
    assert_int_equal(gpubuf_offset(list), 1);
    ok(client, gpubuf_child(list, 0, &structs));
    assert_int_equal(gpubuf_length(structs), 10); /* whole */
    ok(client, gpubuf_slice(structs, 2, 6, &part));
    ok(client, gpubuf_slice(part, 1, 4, &inner));
    ok(client, gpubuf_column(inner, "x", &child));
    assert_int_equal(gpubuf_offset(child), 3);
    assert_int_equal(gpubuf_length(child), 4);
    assert_int_equal(((int32_t *)memory_of(child, GPUBUF_DATA, 40))[3], 103);
    gpubuf_release(child);
    assert_false(gpubuf_is_valid(part, 0));
    assert_true(gpubuf_is_valid(part, 1));
    ok(client, gpubuf_column(inner, "f", &child));
    gpubuf_release(inner);
    ok(client, gpubuf_child(child, 0, &inner));
    assert_int_equal(gpubuf_offset(inner), 6);
    assert_int_equal(gpubuf_length(inner), 8);
    struct gpubuf_object *const all[] = {inner, child, part, structs, list, NULL};
    gpubuf_release_many(all, COUNT(all));

    ok(client, gpubuf_column(slice, "dictionary", &list));
    assert_false(gpubuf_is_valid(list, 0));
    assert_true(gpubuf_is_valid(list, 1));
    ok(client, gpubuf_child(list, 0, &child));
    assert_int_equal(gpubuf_offset(child), 1);
    assert_int_equal(gpubuf_length(child), 3);
    gpubuf_release(child);
    ok(client, gpubuf_child(list, 1, &child));
    assert_int_equal(gpubuf_length(child), 2);
    gpubuf_release(child);
    gpubuf_release(list);
    gpubuf_release(slice);
    gpubuf_release(table);
}

static void test_aliases(void **state)
{
    (void)state;
    const struct gpubuf_column_spec columns[] = {
        {.name = "a", .dtype = "int32", .length = 100},
        {.name = "b", .dtype = "int32", .length = 100},
        {.name = "c", .dtype = "int32", .length = 100},
    };
    struct gpubuf_layout_spec layout = {
        .kind = GPUBUF_KIND_TABLE,
        .column = {.length = 100, .children = columns, .child_count = 3}};
    struct gpubuf_object *table, *column;
    ok(client, gpubuf_create(client, "whole", &layout, NULL, &table));
    for (size_t c = 0; c < 3; c++) {
        ok(client, gpubuf_child(table, c, &column));
        for (int i = 0; i < 100; i++)
            ((int32_t *)memory_of(column, GPUBUF_DATA, 400))[i] = (int32_t)c * 1000 + i;
        gpubuf_release(column);
    }
    ok(client, gpubuf_seal(table, NULL));
    gpubuf_release(table);
    const char *const wanted[] = {"c", "a", NULL}, *const absent[] = {"d", NULL};
    struct gpubuf_alias_options options = {
        .size = sizeof(options), .slice = true, .offset = 40, .length = 5, .columns = wanted};
    ok(client, gpubuf_alias(client, "part", "whole", &options));
    fails(client, GPUBUF_E_EXISTS, gpubuf_alias(client, "part", "whole", &options));
    options.columns = absent;
    fails(client, GPUBUF_E_INVALID, gpubuf_alias(client, "other", "whole", &options));
    ok(client, gpubuf_delete(client, "whole"));
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_open(client, "whole", NULL, &table));
    ok(client, gpubuf_open(client, "part", NULL, &table));
    assert_int_equal(gpubuf_child_count(table), 2);
    ok(client, gpubuf_child(table, 0, &column));
    assert_string_equal(gpubuf_column_name(column), "c");
    assert_int_equal(((int32_t *)memory_of(column, GPUBUF_DATA, 0))[gpubuf_offset(column) + 4],
                     2044);
    gpubuf_release(column);
    gpubuf_release(table);
}

static void test_versions_and_replacing(void **state)
{
    (void)state;
    struct gpubuf_object *old, *new, *none;
    put_counting(client, "version", 64, 1);
    ok(client, gpubuf_open(client, "version", NULL, &old));
    put_counting(client, "version", 64, 2);
    ok(client, gpubuf_open(client, "version", NULL, &new));
    assert_true(gpubuf_object_version(new) > gpubuf_object_version(old));
    assert_int_equal(*(unsigned char *)memory_of(old, GPUBUF_DATA, 64), 1);
    assert_int_equal(*(unsigned char *)memory_of(new, GPUBUF_DATA, 64), 2);
    struct gpubuf_open_options options = {.size = sizeof(options),
                                          .version = gpubuf_object_version(new) + 1000};
    fails(client, GPUBUF_E_STALE, gpubuf_open(client, "version", &options, &none));
    fails(client, GPUBUF_E_EXISTS, gpubuf_put_bytes(client, "version", "x", 1, NULL));
    gpubuf_release(old);
    gpubuf_release(new);
}

static void test_unsealed_is_aborted(void **state)
{
    (void)state;
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = 1 << 20};
    struct gpubuf_object *object, *view;
    uint64_t unsealed = stat_value(client, "leases");
    ok(client, gpubuf_create(client, "unsealed", &layout, NULL, &object));
    ok(client, gpubuf_slice(object, 0, 10, &view));
    assert_int_equal(stat_value(client, "leases"), unsealed + 1);
    gpubuf_release(object);
    assert_int_equal(stat_value(client, "leases"), unsealed + 1);
    gpubuf_release(view);
    assert_int_equal(stat_value(client, "leases"), unsealed);
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_open(client, "unsealed", NULL, &object));
}

static void test_bad_layouts(void **state)
{
    (void)state;
    const uint64_t huge[] = {UINT64_C(1) << 40, UINT64_C(1) << 40};
    const struct gpubuf_column_spec nameless = {.dtype = "int8", .length = 1};
    const char *const odd[] = {"key", NULL};
    const struct gpubuf_layout_spec layouts[] = {
        {.kind = GPUBUF_KIND_ARRAY, .dtype = "int33", .ndim = 2, .shape = huge},
        {.kind = GPUBUF_KIND_ARRAY, .dtype = NULL, .ndim = 2, .shape = huge},
        {.kind = GPUBUF_KIND_ARRAY, .dtype = "int32", .ndim = 2, .shape = huge},
        {.kind = GPUBUF_KIND_ARRAY, .dtype = "int32", .ndim = 2, .shape = NULL},
        {.kind = GPUBUF_KIND_ARRAY, .dtype = "int32", .ndim = 33, .shape = huge},
        {.kind = (enum gpubuf_kind)9},
        {.kind = GPUBUF_KIND_TABLE,
         .column = {.length = 1, .children = &nameless, .child_count = 1}},
        {.kind = GPUBUF_KIND_COLUMN, .column = {.dtype = "int8", .length = 1, .child_count = 3}},
        {.kind = GPUBUF_KIND_COLUMN, .column = {.dtype = "int8", .length = 1, .metadata = odd}},
        {.kind = GPUBUF_KIND_COLUMN, .column = {.dtype = "list", .length = 1}},
    };
    struct gpubuf_object *object = NULL;
    for (size_t i = 0; i < COUNT(layouts); i++) {
        fails(client, GPUBUF_E_INVALID, gpubuf_create(client, "bad", &layouts[i], NULL, &object));
        assert_null(object);
        assert_true(strlen(gpubuf_errmsg(client)) > 10);
    }
    struct gpubuf_layout_spec fine = {.kind = GPUBUF_KIND_BYTES, .bytes = 1};
    static const char *const names[] = {"", "/a", "a/", "a//b", "a\tb", "\xff", NULL};
    for (size_t i = 0; i < COUNT(names); i++)
        fails(client, GPUBUF_E_INVALID, gpubuf_create(client, names[i], &fine, NULL, &object));
    struct gpubuf_create_options options = {.size = 0};
    fails(client, GPUBUF_E_INVALID, gpubuf_create(client, "bad", &fine, &options, &object));
    options = (struct gpubuf_create_options){.size = sizeof(options), .device = "cuda:77"};
    assert_true(gpubuf_create(client, "bad", &fine, &options, &object) < 0);
    fine.bytes = UINT64_C(1) << 40;
    fails(client, GPUBUF_E_NO_SPACE, gpubuf_create(client, "bad", &fine, NULL, &object));
    assert_null(object);
}

static void check_all(const char *name, size_t bytes, unsigned char value)
{
    struct gpubuf_object *object;
    ok(client, gpubuf_open(client, name, NULL, &object));
    const unsigned char *data = memory_of(object, GPUBUF_DATA, bytes);
    for (size_t i = 0; i < bytes; i++)
        assert_int_equal(data[i], value);
    gpubuf_release(object);
}

/* Side by side, about the sizes from which on a copy goes another way, and again into memory that
   was written before: each time only what was put changes. */
static void test_puts_side_by_side(void **state)
{
    (void)state;
    static const size_t sizes[] = {65535, 1, 65536, 65537, 200001, 131072, 700, 300000};
    struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
    unsigned char values[COUNT(sizes)], *data = malloc(300000);
    char name[32];
    assert_non_null(data);
    for (unsigned pass = 0; pass < 6; pass++) {
        for (unsigned i = 0; i < COUNT(sizes); i++) {
            unsigned at = (i * 5 + pass) % COUNT(sizes);
            snprintf(name, sizeof(name), "side/%u", at);
            values[at] = (unsigned char)(pass * COUNT(sizes) + i + 1);
            memset(data, values[at], sizes[at]);
            ok(client, gpubuf_put_bytes(client, name, data, sizes[at], &options));
        }
        for (unsigned i = 0; i < COUNT(sizes); i++) {
            snprintf(name, sizeof(name), "side/%u", i);
            check_all(name, sizes[i], values[i]);
        }
    }
    for (unsigned i = 0; i < COUNT(sizes); i++) {
        snprintf(name, sizeof(name), "side/%u", i);
        ok(client, gpubuf_delete(client, name));
    }
    free(data);
}

/* A limit on the files that a program may write is none on the memory that it shares. */
static void test_puts_and_file_sizes(void **state)
{
    (void)state;
    struct rlimit before, limit;
    unsigned char *data = malloc(3000000);
    assert_non_null(data);
    memset(data, 9, 3000000);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    int r = gpubuf_put_bytes(client, "limited", data, 3000000, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    ok(client, r);
    check_all("limited", 3000000, 9);
    ok(client, gpubuf_delete(client, "limited"));
    free(data);
}

/* Large enough for the copy to go by granules, twice, so that both ways of copying are taken. */
static void test_large_puts(void **state)
{
    (void)state;
    struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
    size_t words = (40u << 20) / 8 + 3;
    uint64_t *data = malloc(words * 8);
    assert_non_null(data);
    for (unsigned pass = 0; pass < 4; pass++) {
        struct gpubuf_object *object;
        for (size_t i = 0; i < words; i++)
            data[i] = i * 0x9e3779b97f4a7c15 + pass;
        ok(client, gpubuf_put_bytes(client, "large", data, words * 8, &options));
        ok(client, gpubuf_open(client, "large", NULL, &object));
        assert_true(memcmp(memory_of(object, GPUBUF_DATA, words * 8), data, words * 8) == 0);
        gpubuf_release(object);
    }
    ok(client, gpubuf_delete(client, "large"));
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes_there_and_back),
        cmocka_unit_test(test_arrays_there_and_back),
        cmocka_unit_test(test_packed_arrays),
        cmocka_unit_test(test_strided_sources),
        cmocka_unit_test(test_masked_array),
        cmocka_unit_test(test_columns_of_every_dtype),
        cmocka_unit_test(test_tables_and_metadata),
        cmocka_unit_test(test_selections),
        cmocka_unit_test(test_nested_columns),
        cmocka_unit_test(test_aliases),
        cmocka_unit_test(test_versions_and_replacing),
        cmocka_unit_test(test_unsealed_is_aborted),
        cmocka_unit_test(test_bad_layouts),
        cmocka_unit_test(test_puts_side_by_side),
        cmocka_unit_test(test_puts_and_file_sizes),
        cmocka_unit_test(test_large_puts),
    };
    return cmocka_run_group_tests_name("objects", tests, connect_group, disconnect_group);
}
