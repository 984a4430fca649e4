/*
 * Bytes and arrays, there and back through a real daemon, and the views of them; versions, layouts
 * that are refused, and copies of what is put. test_columns.c has columns and tables.
 */
#include "objects.h"

static bool writable(struct gpubuf_object *object)
{
    struct gpubuf_memory memory;
    ok(client, gpubuf_memory(object, GPUBUF_DATA, &memory));
    return memory.writable;
}

TEST(test_bytes_there_and_back)
{
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

TEST(test_arrays_there_and_back)
{
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
TEST(test_packed_arrays)
{
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

TEST(test_strided_sources)
{
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

TEST(test_masked_array)
{
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

TEST(test_unsealed_is_aborted)
{
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

TEST(test_bad_layouts)
{
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
TEST(test_puts_side_by_side)
{
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
TEST(test_puts_and_file_sizes)
{
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
TEST(test_large_puts)
{
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

RUN_TESTS(connect_group, disconnect_group)
