/*
 * Columns and tables of every dtype, there and back through a real daemon, and the views of them.
 */
#include "objects.h"

TEST(test_columns_of_every_dtype)
{
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

TEST(test_tables_and_metadata)
{
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

/* Some of a table's columns, in another order, of a slice, exported and outliving what they
   are of. */
TEST(test_selections)
{
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
TEST(test_nested_columns)
{
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

TEST(test_aliases)
{
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

RUN_TESTS(connect_group, disconnect_group)
