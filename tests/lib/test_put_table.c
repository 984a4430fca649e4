/* Columns and tables of plain C arrays, and the texts of columns. */
#include "objects.h"

static const struct gpubuf_create_options again = {.size = sizeof(again), .replace = true};

static struct gpubuf_object *open_column(const char *name, const char *column_name)
{
    struct gpubuf_object *table, *column;
    ok(client, gpubuf_open(client, name, NULL, &table));
    ok(client, gpubuf_column(table, column_name, &column));
    gpubuf_release(table);
    return column;
}

static void assert_text(const struct gpubuf_object *column, uint64_t i, const char *expected)
{
    uint64_t length = 99;
    const char *text = gpubuf_string_at(column, i, &length);
    assert_int_equal(length, expected ? strlen(expected) : 0);
    if (expected)
        assert_memory_equal(text, expected, length);
    else
        assert_null(text);
}

/* The example of the header. */
TEST(test_table)
{
    const char *city[] = {"Linz", NULL, "Größ", ""};
    const double degrees[] = {21.5, 19, 23.25, -1};
    const bool known[] = {true, false, true, true}, wet[] = {true, true, false, true};
    const int64_t seen[] = {1, 2, 3, 4};
    const struct gpubuf_values columns[] = {{"city", "utf8", city, NULL},
                                            {"degrees", "float64", degrees, known},
                                            {"wet", "bool", wet, NULL},
                                            {"seen", "timestamp[s,UTC]", seen, NULL},
                                            {"long", "large_utf8", city, known}};
    ok(client, gpubuf_put_table(client, "weather", columns, COUNT(columns), 4, &again));

    struct gpubuf_object *column = open_column("weather", "city");
    assert_int_equal(gpubuf_null_count(column), 1);
    for (uint64_t i = 0; i < 4; i++)
        assert_text(column, i, city[i]);
    assert_text(column, 4, NULL);
    assert_text(column, UINT64_MAX, NULL);
    assert_non_null(gpubuf_string_at(column, 3, NULL)); /* empty, not null */
    struct gpubuf_object *slice;
    ok(client, gpubuf_slice(column, 2, 2, &slice));
    assert_text(slice, 0, "Größ");
    assert_text(slice, 2, NULL);
    gpubuf_release(slice);
    gpubuf_release(column);

    column = open_column("weather", "degrees");
    assert_memory_equal(memory_of(column, GPUBUF_DATA, sizeof(degrees)), degrees, sizeof(degrees));
    assert_true(gpubuf_is_valid(column, 0) && !gpubuf_is_valid(column, 1));
    assert_int_equal(gpubuf_null_count(column), 1);
    assert_text(column, 0, NULL);
    gpubuf_release(column);

    column = open_column("weather", "wet");
    assert_int_equal(*(const unsigned char *)memory_of(column, GPUBUF_DATA, 1), 0x0b);
    assert_int_equal(gpubuf_null_count(column), 0);
    gpubuf_release(column);

    column = open_column("weather", "seen");
    assert_string_equal(gpubuf_dtype(column), "timestamp[s,UTC]");
    gpubuf_release(column);

    column = open_column("weather", "long");
    assert_text(column, 0, "Linz");
    assert_text(column, 1, NULL);
    gpubuf_release(column);
}

/* Texts that are longer than what is copied at a time, and more of them than go into it. */
TEST(test_many_texts)
{
    enum { ROWS = 3000 };
    static char texts[ROWS][9], large[10000];
    const char *values[ROWS + 1];
    bool valid[ROWS + 1];
    for (int i = 0; i < ROWS; i++) {
        (void)snprintf(texts[i], sizeof(texts[i]), "%d", i * i);
        values[i] = i % 7 == 3 ? large : texts[i];
        valid[i] = i % 5 != 0;
    }
    memset(large, 'x', sizeof(large) - 1);
    values[ROWS] = NULL;
    valid[ROWS] = true;
    const struct gpubuf_values column = {.dtype = "utf8", .values = values, .valid = valid};
    ok(client, gpubuf_put_column(client, "many", &column, ROWS + 1, &again));
    struct gpubuf_object *object;
    ok(client, gpubuf_open(client, "many", NULL, &object));
    assert_int_equal(gpubuf_null_count(object), ROWS / 5 + 1);
    for (uint64_t i = 0; i <= ROWS; i++)
        assert_text(object, i, valid[i] ? values[i] : NULL);
    gpubuf_release(object);
}

TEST(test_nothing)
{
    struct gpubuf_object *object;
    ok(client, gpubuf_put_table(client, "none", NULL, 0, 5, &again));
    ok(client, gpubuf_open(client, "none", NULL, &object));
    assert_int_equal(gpubuf_length(object), 5);
    assert_int_equal(gpubuf_child_count(object), 0);
    gpubuf_release(object);
    const struct gpubuf_values column = {.dtype = "utf8"};
    ok(client, gpubuf_put_column(client, "none", &column, 0, &again));
    ok(client, gpubuf_open(client, "none", NULL, &object));
    assert_text(object, 0, NULL);
    gpubuf_release(object);
}

/* Another process may have written any offsets. */
TEST(test_bad_offsets)
{
    const struct gpubuf_layout_spec layout = {
        .kind = GPUBUF_KIND_COLUMN, .column = {.dtype = "utf8", .length = 4, .data_bytes = 8}};
    const int32_t offsets[] = {-1, 3, 2, 9, 8};
    struct gpubuf_object *column;
    struct gpubuf_memory memory;
    ok(client, gpubuf_create(client, "bad", &layout, &again, &column));
    ok(client, gpubuf_memory(column, GPUBUF_OFFSETS, &memory));
    memcpy(memory.pointer, offsets, sizeof(offsets));
    ok(client, gpubuf_seal(column, NULL));
    for (uint64_t i = 0; i < 4; i++)
        assert_text(column, i, NULL);
    gpubuf_release(column);
}

TEST(test_refused)
{
    const int8_t data[2] = {1, 2};
    const char *texts[2] = {"a", "b"};
    const struct gpubuf_values nested[] = {{"a", "int8", data, NULL}, {"b", "list", data, NULL}};
    const struct gpubuf_values unknown = {"a", "int9", data, NULL}, none = {.name = "a"},
                               null = {"a", "int8", NULL, NULL},
                               packed = {"a", "float4_e2m1fn", data, NULL},
                               binary = {"a", "binary", texts, NULL},
                               nameless = {.dtype = "int8", .values = data};
    const struct gpubuf_values twice[] = {nested[0], nested[0]};
    fails(client, GPUBUF_E_UNSUPPORTED, gpubuf_put_table(client, "no", nested, 2, 2, NULL));
    fails(client, GPUBUF_E_UNSUPPORTED, gpubuf_put_column(client, "no", &binary, 2, NULL));
    fails(client, GPUBUF_E_UNSUPPORTED, gpubuf_put_column(client, "no", &packed, 2, NULL));
    fails(client, GPUBUF_E_INVALID, gpubuf_put_column(client, "no", &unknown, 2, NULL));
    fails(client, GPUBUF_E_INVALID, gpubuf_put_column(client, "no", &none, 2, NULL));
    fails(client, GPUBUF_E_INVALID, gpubuf_put_column(client, "no", &null, 2, NULL));
    fails(client, GPUBUF_E_INVALID, gpubuf_put_column(client, "no", NULL, 2, NULL));
    fails(client, GPUBUF_E_INVALID, gpubuf_put_table(client, "no", NULL, 1, 2, NULL));
    fails(client, GPUBUF_E_INVALID, gpubuf_put_table(client, "no", nested, SIZE_MAX, 2, NULL));
    fails(client, GPUBUF_E_INVALID, gpubuf_put_table(client, "no", &nameless, 1, 2, NULL));
    fails(client, GPUBUF_E_INVALID, gpubuf_put_table(client, "no", twice, 2, 2, NULL));
    fails(client, GPUBUF_E_INVALID, gpubuf_put_column(client, "no", nested, UINT64_MAX, NULL));
    ok(client, gpubuf_put_column(client, "there", nested, 2, NULL));
    fails(client, GPUBUF_E_EXISTS, gpubuf_put_column(client, "there", nested, 2, NULL));
    assert_int_equal(leases_of(client, "no"), -1);
}

/* Readers believe a count of nulls, so one that the mask does not bear out is found. */
TEST(test_null_counts)
{
    const struct gpubuf_column_spec item = {.dtype = "int8", .length = 10, .mask = true};
    const struct gpubuf_column_spec columns[] = {
        {.name = "x", .dtype = "int8", .length = 10, .null_count = -1, .mask = true},
        {.name = "fixed",
         .dtype = "fixed_list(1)",
         .length = 10,
         .children = &item,
         .child_count = 1}};
    const struct gpubuf_layout_spec layout = {
        .kind = GPUBUF_KIND_TABLE, .column = {.length = 10, .children = columns, .child_count = 2}};
    const int64_t wrong[] = {4, -1}, right[] = {1, -1};
    struct gpubuf_object *table, *x, *fixed, *inner;
    struct gpubuf_memory mask, inner_mask;
    ok(client, gpubuf_create(client, "nulls", &layout, &again, &table));
    ok(client, gpubuf_column(table, "x", &x));
    ok(client, gpubuf_column(table, "fixed", &fixed));
    ok(client, gpubuf_child(fixed, 0, &inner));
    ok(client, gpubuf_memory(x, GPUBUF_MASK, &mask));
    ok(client, gpubuf_memory(inner, GPUBUF_MASK, &inner_mask));
    memcpy(mask.pointer, "\xfe\x03", 2);
    memcpy(inner_mask.pointer, "\xff\x01", 2); /* one more than its spec said: 0 */
    fails(client, GPUBUF_E_INVALID, gpubuf_seal(table, wrong));
    assert_non_null(strstr(gpubuf_errmsg(client), "nulls, column x: its mask has 1 nulls"));
    fails(client, GPUBUF_E_INVALID, gpubuf_seal(table, right));
    assert_non_null(strstr(gpubuf_errmsg(client), "its mask has 1 nulls, and its null_count is 0"));
    memcpy(inner_mask.pointer, "\xff\x03", 2);
    fails(client, GPUBUF_E_INVALID, gpubuf_seal_async(table, wrong, NULL, NULL, NULL));
    ok(client, gpubuf_seal(table, right));
    assert_int_equal(gpubuf_null_count(x), 1);
    gpubuf_release(inner);
    gpubuf_release(fixed);
    gpubuf_release(x);
    gpubuf_release(table);
}

static uint64_t version_of(const char *name)
{
    struct gpubuf_info info;
    ok(client, gpubuf_stat(client, name, &info));
    return info.version;
}

TEST(test_version)
{
    const int64_t data[2] = {1, 2};
    const struct gpubuf_values column = {"a", "int64", data, NULL};
    const uint64_t shape = 2;
    uint64_t version = 0, older = 99;
    struct gpubuf_create_options options = {
        .size = sizeof(options), .replace = true, .version = &version};
    ok(client, gpubuf_put_table(client, "v", &column, 1, 2, &options));
    assert_int_equal(version, version_of("v"));
    ok(client, gpubuf_put_column(client, "v", &column, 2, &options));
    assert_int_equal(version, version_of("v"));
    ok(client, gpubuf_put_array(client, "v", "int64", 1, &shape, NULL, data, &options));
    assert_int_equal(version, version_of("v"));
    ok(client, gpubuf_put_bytes(client, "v", data, 3, &options));
    assert_int_equal(version, version_of("v"));

    options.version = &older;
    options.replace = false;
    fails(client, GPUBUF_E_EXISTS, gpubuf_put_bytes(client, "v", data, 3, &options));
    options.replace = true;
    options.size = offsetof(struct gpubuf_create_options, version); /* of an older header */
    ok(client, gpubuf_put_bytes(client, "v", data, 3, &options));
    assert_int_equal(older, 99);
}

RUN_TESTS(connect_group, disconnect_group)
