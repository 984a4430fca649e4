/* Layouts: reading and refusing, writing back, sizes that are too large or too small. The sizes of
   every dtype are tried by tests/integration/test_layouts.py. */
#include "tests/cases.h"

#include "layout_text.h"
#include "proto/base/limits.h"

/* ---- what is refused ---- */

#define KINDS "\"bytes\", \"array\", \"column\", \"table\" or \"bundle\""

static const struct {
    enum gb_layout_form form;
    const char *text, *message;
} refused[] = {
    {CREATE, "[]", ": expected an object, found an array"},
    {CREATE, "null", ": expected an object, found null"},
    {REPLY, "7", ": expected an object, found a number"},
    {CREATE, "{}", ".kind: missing"},
    {CREATE, "{\"bytes\":1}", ".kind: missing"},
    {CREATE, "{\"kind\":\"tensor\"}", ".kind: expected " KINDS ", found \"tensor\""},
    {CREATE, "{\"kind\":\"\"}", ".kind: expected " KINDS ", found \"\""},
    {CREATE, "{\"kind\":1}", ".kind: expected a string, found a number"},
    {CREATE, "{\"kind\":\"bytes\",\"kind\":\"bytes\",\"bytes\":1}", ".kind: occurs twice"},
    {CREATE, "{\"bytes\":1,\"kind\":\"bytes\",\"kind\":\"array\"}", ".kind: occurs twice"},
    /* bytes */
    {CREATE, "{\"kind\":\"bytes\"}", ".bytes: missing"},
    {CREATE, "{\"kind\":\"bytes\",\"bytes\":1,\"size\":1}", ".size: unknown member"},
    {CREATE, "{\"kind\":\"bytes\",\"bytes\":1,\"mask\":{}}", ".mask: unknown member"},
    {CREATE, "{\"kind\":\"bytes\",\"bytes\":4503599627370496}",
     ".bytes: expected an integer from 0 to " MAX ", found 4503599627370496"},
    {CREATE, "{\"kind\":\"bytes\",\"bytes\":9,\"data\":{\"bytes\":8}}",
     ".data.bytes: 8 is too small, 9 are needed"},
    {CREATE, "{\"kind\":\"bytes\",\"bytes\":9,\"data\":[]}",
     ".data: expected an object, found an array"},
    {CREATE, "{\"kind\":\"bytes\",\"bytes\":9,\"data\":{\"segment\":1,\"offset\":0,\"bytes\":9}}",
     ".data.segment: unknown member"},
    {REGISTER, "{\"kind\":\"bytes\",\"bytes\":9}", ".data: missing"},
    {REGISTER, "{\"kind\":\"bytes\",\"bytes\":9,\"data\":{\"bytes\":9,\"offset\":0}}",
     ".data.handle: missing"},
    {REGISTER, "{\"kind\":\"bytes\",\"bytes\":9,\"data\":{\"handle\":0,\"bytes\":9}}",
     ".data.offset: missing"},
    {REGISTER,
     "{\"kind\":\"bytes\",\"bytes\":9,\"data\":{\"handle\":0,\"offset\":4503599627370487,"
     "\"bytes\":9}}",
     ".data: it ends at 2^52 or later"},
    {REPLY, "{\"kind\":\"bytes\",\"bytes\":9,\"data\":{\"handle\":0,\"offset\":0,\"bytes\":9}}",
     ".data.segment: missing"},
    /* bundles */
    {CREATE, BUNDLE "99}", ".manifest_bytes: missing"},
    {CREATE, BUNDLE "99,\"manifest_bytes\":0}",
     ".manifest_bytes: expected an integer from 1 to " MAX ", found 0"},
    {CREATE, BUNDLE "99,\"manifest_bytes\":92}",
     ".manifest_bytes: 92, and 8 before it, are more than the bundle's 99 bytes"},
    {CREATE, BUNDLE "9,\"manifest_bytes\":" MAX "}",
     ".manifest_bytes: " MAX ", and 8 before it, are more than the bundle's 9 bytes"},
    {CREATE, BUNDLE "99,\"manifest_bytes\":9,\"data\":{\"bytes\":98}}",
     ".data.bytes: 98 is too small, 99 are needed"},
    {CREATE, BUNDLE "99,\"manifest_bytes\":9,\"tensors\":[]}", ".tensors: unknown member"},
    {CREATE, "{\"kind\":\"bytes\",\"bytes\":99,\"manifest_bytes\":9}",
     ".manifest_bytes: unknown member"},
    {REGISTER, BUNDLE "99,\"manifest_bytes\":9,\"data\":{\"handle\":0,\"offset\":4,\"bytes\":99}}",
     ".data.offset: 4 is not a multiple of 8"},
    /* arrays */
    {CREATE, "{\"kind\":\"array\",\"shape\":[1]}", ".dtype: missing"},
    {CREATE, "{\"kind\":\"array\",\"dtype\":\"int8\"}", ".shape: missing"},
    {CREATE, "{\"kind\":\"array\",\"dtype\":\"bool\",\"shape\":[1]}",
     ".dtype: bool is no dtype of arrays, for its elements are no whole bytes"},
    {CREATE, "{\"kind\":\"array\",\"dtype\":\"utf8\",\"shape\":[1]}",
     ".dtype: utf8 is no dtype of arrays, for its elements are no whole bytes"},
    {CREATE, ARRAY "7}", ".shape: expected an array, found a number"},
    {CREATE, ARRAY "[2,-3]}", ".shape[1]: expected an integer from 0 to " MAX ", found -3"},
    {CREATE, ARRAY "[9223372036854775808]}",
     ".shape[0]: expected an integer from 0 to " MAX ", found 9223372036854775808"},
    {CREATE, ARRAY "[1125899906842624]}", ".shape: the array has 2^52 bytes or more"},
    {CREATE, ARRAY "[67108864,67108864]}", ".shape: the array has 2^52 bytes or more"},
    {CREATE, ARRAY "[0,67108864,67108864]}", ".shape: the array has 2^52 bytes or more"},
    {CREATE, ARRAY "[" MAX "," MAX "," MAX "," MAX "]}",
     ".shape: the array has 2^52 bytes or more"},
    {CREATE, PACKED("4_e2m1fn") "[]}",
     ".shape: an array of float4_e2m1fn has an axis, for it is packed"},
    {CREATE, PACKED("4_e2m1fn") "[2,3]}",
     ".shape[1]: 3 packed elements of 4 bits are no whole bytes"},
    {CREATE, PACKED("6_e3m2fn") "[0,6]}",
     ".shape[1]: 6 packed elements of 6 bits are no whole bytes"},
    {CREATE, PACKED("4_e2m1fn") "[" MAX "]}",
     ".shape[0]: " MAX " packed elements of 4 bits are no whole bytes"},
    {CREATE, PACKED("4_e2m1fn") "[4,4503599627370494]}",
     ".shape: the array has 2^52 bytes or more"},
    {REPLY,
     PACKED("4_e2m1fn") "[2,4],\"strides\":[4,2],"
                        "\"data\":{\"segment\":1,\"offset\":0,\"bytes\":99}}",
     ".strides[1]: packed elements lie side by side"},
    {REPLY,
     PACKED("4_e2m1fn") "[2,4],\"strides\":[4,1],"
                        "\"data\":{\"segment\":1,\"offset\":0,\"bytes\":5}}",
     ".data.bytes: 5 is too small, 6 are needed"},
    {CREATE, COLUMN "\"float4_e2m1fn\",\"length\":4}",
     ".dtype: float4_e2m1fn is packed, and so the dtype of arrays alone"},
    {CREATE, ARRAY "[2,3],\"strides\":[4]}", ".strides: 1 strides for 2 axes"},
    {CREATE, ARRAY "[2,3],\"strides\":[4,8]}", ".strides: arrays are created in C order"},
    {CREATE, ARRAY "[2,3],\"strides\":[-12,4]}",
     ".strides[0]: expected an integer from 0 to " MAX ", found -12"},
    {CREATE, ARRAY "[2,3],\"strides\":[12,3]}",
     ".strides[1]: 3 is not a multiple of the element's 4 bytes"},
    {REPLY, ARRAY "[2,3],\"strides\":[16,4],\"data\":{\"segment\":1,\"offset\":0,\"bytes\":27}}",
     ".data.bytes: 27 is too small, 28 are needed"},
    {REPLY,
     ARRAY "[4503599627370494,2],\"strides\":[0,0],"
           "\"data\":{\"segment\":1,\"offset\":0,\"bytes\":4}}",
     ".shape: the array has 2^52 bytes or more"},
    {REPLY,
     ARRAY "[3],\"strides\":[4503599627370492],"
           "\"data\":{\"segment\":1,\"offset\":0,\"bytes\":4}}",
     ": shape and strides reach 2^52 bytes or more"},
    {CREATE, ARRAY "[9],\"mask\":{\"bytes\":1}}", ".mask.bytes: 1 is too small, 2 are needed"},
    {CREATE, ARRAY "[9],\"mask\":{},\"offset\":1}",
     ".offset: only arrays that were sliced under a mask have one"},
    {REPLY, ARRAY "[1],\"data\":{\"segment\":1,\"offset\":0,\"bytes\":4},\"offset\":1}",
     ".offset: only arrays that were sliced under a mask have one"},
    {REPLY,
     ARRAY "[8],\"data\":{\"segment\":1,\"offset\":0,\"bytes\":32},\"offset\":1,"
           "\"mask\":{\"segment\":1,\"offset\":0,\"bytes\":1}}",
     ".mask.bytes: 1 is too small, 2 are needed"},
    {REPLY,
     ARRAY "[8],\"data\":{\"segment\":1,\"offset\":0,\"bytes\":32},\"offset\":" MAX ","
           "\"mask\":{\"segment\":1,\"offset\":0,\"bytes\":1}}",
     ": offset and shape make 2^52 elements or more"},
    /* columns */
    {CREATE, COLUMN "\"int8\"}", ".length: missing"},
    {CREATE, "{\"kind\":\"column\",\"length\":1}", ".dtype: missing"},
    {CREATE, COLUMN "8,\"length\":1}", ".dtype: expected a string, found a number"},
    {CREATE, COLUMN "\"int33\",\"length\":1}", ".dtype: unknown dtype \"int33\""},
    {CREATE, COLUMN "\"int\\u00333\",\"length\":1}", ".dtype: unknown dtype \"int\\u00333\""},
    {CREATE, COLUMN "\"int8\",\"length\":1,\"name\":\"a\"}", ".name: unknown member"},
    {CREATE, COLUMN "\"int8\",\"length\":1,\"shape\":[1]}", ".shape: unknown member"},
    {CREATE, COLUMN "\"int8\",\"length\":" MAX ",\"offset\":" MAX "}",
     ": offset and length make 2^52 bytes or more"},
    {CREATE, COLUMN "\"int64\",\"length\":" MAX "}", ": offset and length make 2^52 bytes or more"},
    {CREATE, COLUMN "\"null\",\"length\":" MAX ",\"offset\":1}",
     ": offset and length make 2^52 bytes or more"},
    {CREATE, COLUMN "\"large_utf8\",\"length\":562949953421311,\"data\":{\"bytes\":1}}",
     ": offset and length make 2^52 bytes or more"},
    {CREATE, COLUMN "\"int16\",\"length\":3,\"data\":{\"bytes\":5}}",
     ".data.bytes: 5 is too small, 6 are needed"},
    {CREATE, COLUMN "\"int16\",\"length\":3,\"offsets\":{}}", ".offsets: dtype int16 has none"},
    {CREATE, COLUMN "\"int16\",\"length\":3,\"children\":[]}", ".children: dtype int16 has none"},
    {CREATE, COLUMN "\"null\",\"length\":3,\"data\":{}}", ".data: dtype null has none"},
    {CREATE, COLUMN "\"null\",\"length\":3,\"mask\":{}}", ".mask: dtype null has none"},
    {CREATE, COLUMN "\"utf8\",\"length\":3}",
     ".data.bytes: missing; the size of text follows from nothing else"},
    {CREATE, COLUMN "\"utf8\",\"length\":3,\"data\":{}}",
     ".data.bytes: missing; the size of text follows from nothing else"},
    {CREATE, COLUMN "\"utf8\",\"length\":3,\"data\":{\"bytes\":1},\"offsets\":{\"bytes\":15}}",
     ".offsets.bytes: 15 is too small, 16 are needed"},
    {REPLY, COLUMN "\"utf8\",\"length\":0,\"data\":{\"segment\":0,\"offset\":0,\"bytes\":0}}",
     ".offsets: missing"},
    {REPLY, COLUMN "\"int8\",\"length\":0}", ".data: missing"},
    {CREATE, COLUMN "\"int8\",\"length\":3,\"null_count\":1}",
     ".null_count: 1, but there is no mask"},
    {CREATE, COLUMN "\"int8\",\"length\":3,\"null_count\":4,\"mask\":{}}",
     ".null_count: 4 is more than the length, 3"},
    {CREATE, COLUMN "\"null\",\"length\":3,\"null_count\":4}",
     ".null_count: 4 is more than the length, 3"},
    {CREATE, COLUMN "\"int8\",\"length\":3,\"null_count\":-2,\"mask\":{}}",
     ".null_count: expected an integer from -1 to " MAX ", found -2"},
    {CREATE, COLUMN "\"list\",\"length\":3}", ".children: missing"},
    {CREATE, COLUMN "\"list\",\"length\":3,\"children\":[]}",
     ".children: 0 children, but dtype list has 1"},
    {CREATE, COLUMN "\"list\",\"length\":3,\"children\":[" INT8("a") "]}",
     ".children[0].name: unknown member"},
    {CREATE,
     COLUMN "\"list\",\"length\":3,\"data\":{},"
            "\"children\":[{\"dtype\":\"int8\",\"length\":1}]}",
     ".data: dtype list has none"},
    {CREATE,
     COLUMN "\"fixed_list(3)\",\"length\":3,\"offset\":1,"
            "\"children\":[{\"dtype\":\"int8\",\"length\":11}]}",
     ".children[0].length: 11 is too short, 12 are needed"},
    {CREATE,
     COLUMN "\"fixed_list(2147483647)\",\"length\":4194304,"
            "\"children\":[{\"dtype\":\"int8\",\"length\":11}]}",
     ".children: the lists have 2^52 elements or more"},
    {CREATE, COLUMN "\"struct\",\"length\":5,\"children\":[" INT8("a") "]}",
     ".children[0].length: 4 is too short, 5 are needed"},
    {CREATE, COLUMN "\"struct\",\"length\":4,\"children\":[" INT8("a") "," INT8("a") "]}",
     ".children[1].name: there is a column \"a\" already"},
    {CREATE, COLUMN "\"struct\",\"length\":4,\"children\":[{\"dtype\":\"int8\",\"length\":4}]}",
     ".children[0].name: missing"},
    {CREATE, COLUMN "\"dictionary\",\"length\":4}", ".children: missing"},
    {CREATE, COLUMN "\"dictionary\",\"length\":4,\"children\":[{\"dtype\":\"int8\",\"length\":4}]}",
     ".children: 1 children, but dtype dictionary has 2"},
    {CREATE,
     COLUMN "\"dictionary\",\"length\":4,\"children\":[{\"dtype\":\"date32\",\"length\":4},"
            "{\"dtype\":\"int8\",\"length\":1}]}",
     ".children[0].dtype: indices of a dictionary are integers, not date32"},
    {CREATE,
     COLUMN "\"dictionary\",\"length\":4,\"offset\":1,\"children\":["
            "{\"dtype\":\"int8\",\"length\":4},{\"dtype\":\"int8\",\"length\":1}]}",
     ".children[0].length: 4 is too short, 5 are needed"},
    {CREATE,
     COLUMN "\"dictionary\",\"length\":4,\"mask\":{},\"children\":["
            "{\"dtype\":\"int8\",\"length\":4},{\"dtype\":\"int8\",\"length\":1}]}",
     ".mask: dtype dictionary has none"},
    {CREATE,
     COLUMN "\"dictionary\",\"length\":4,\"null_count\":1,\"children\":["
            "{\"dtype\":\"int8\",\"length\":4},{\"dtype\":\"int8\",\"length\":1}]}",
     ".null_count: 1, but there is no mask"},
    {CREATE, COLUMN "\"int8\",\"length\":1,\"metadata\":[]}",
     ".metadata: expected an object, found an array"},
    {CREATE, COLUMN "\"int8\",\"length\":1,\"metadata\":{\"a\":1}}",
     ".metadata.a: expected a string, found a number"},
    {CREATE, COLUMN "\"int8\",\"length\":1,\"metadata\":{\"a\":\"\",\"b\":\"\",\"\\u0061\":\"\"}}",
     ".metadata: the key \"a\" is there twice"},
    {CREATE, "{\"kind\":\"table\",\"length\":0,\"columns\":[],\"metadata\":{\"a\":null}}",
     ".metadata.a: expected a string, found null"},
    {REGISTER,
     COLUMN "\"int8\",\"length\":0,\"data\":{\"handle\":0,\"offset\":0,\"bytes\":" MAX "},"
            "\"mask\":{\"handle\":0,\"offset\":0,\"bytes\":1}}",
     ": the buffers have 2^52 bytes or more in all"},
    /* tables */
    {CREATE, "{\"kind\":\"table\",\"length\":1}", ".columns: missing"},
    {CREATE, "{\"kind\":\"table\",\"columns\":[]}", ".length: missing"},
    {CREATE, TABLE "7]}", ".columns[0]: expected an object, found a number"},
    {CREATE, TABLE "{\"dtype\":\"int8\",\"length\":4}]}", ".columns[0].name: missing"},
    {CREATE, TABLE "{\"kind\":\"column\",\"name\":\"a\",\"dtype\":\"int8\",\"length\":4}]}",
     ".columns[0].kind: unknown member"},
    {CREATE, TABLE INT8("a") "," INT8("b") ",{\"name\":\"c\",\"dtype\":\"int33\",\"length\":4}]}",
     ".columns[2].dtype: unknown dtype \"int33\""},
    {CREATE, TABLE INT8("a") ",{\"name\":\"c\",\"dtype\":\"int8\",\"length\":3}]}",
     ".columns[1].length: 3, but the table has 4 rows"},
    {CREATE, TABLE INT8("a") "," INT8("b") "," INT8("a") "]}",
     ".columns[2].name: there is a column \"a\" already"},
    {CREATE, TABLE INT8("a") "," INT8("b") "," INT8("\\u0061") "]}",
     ".columns[2].name: there is a column \"a\" already"},
    {REPLY, TABLE INT8("a") "]}", ".columns[0].data: missing"},
};

TEST(test_refused)
{
    for (size_t i = 0; i < COUNT(refused); i++)
        assert_refused(refused[i].text, refused[i].form, INVALID, refused[i].message);
    gb_pool_reset(&pool);
}

TEST(test_long_texts_are_cut_in_messages)
{
    char text[1024], name[300];
    struct gb_error error;
    struct gb_layout layout;

    for (unsigned shift = 0; shift < 4; shift++) {
        memset(name, 'x', sizeof(name));
        for (unsigned i = shift; i + 4 < sizeof(name) - 1; i += 4)
            memcpy(name + i, "😀", 4);
        name[sizeof(name) - 1] = '\0';
        snprintf(text, sizeof(text), COLUMN "\"%s\",\"length\":1}", name);
        assert_int_equal(read_text(text, CREATE, &layout, &error), INVALID);
        assert_true(gb_utf8_valid(error.message, strlen(error.message)));
        assert_non_null(strstr(error.message, "…"));
    }
}

/* ---- limits ---- */

/* A table of `count` int8 columns, the last of them nested `nested` levels further. */
static char *many_columns(unsigned count, unsigned nested)
{
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    gb_write_text(&writer, TABLE);
    for (unsigned i = 0; i < count; i++) {
        bool last = i + 1 == count;
        gb_write_format(&writer, "%s{\"name\":\"%u\",\"length\":4,", i ? "," : "", i);
        for (unsigned n = 0; last && n < nested; n++)
            gb_write_text(&writer, "\"dtype\":\"list\",\"children\":[{\"length\":4,");
        gb_write_text(&writer, "\"dtype\":\"int8\"}");
        for (unsigned n = 0; last && n < nested; n++)
            gb_write_text(&writer, "]}");
    }
    gb_write_text(&writer, "]}");
    char *text = gb_writer_take(&writer, NULL);
    assert_non_null(text);
    return text;
}

static void assert_limit(const char *text, const char *limit, const char *message)
{
    struct gb_error error = {.limit = NULL};
    struct gb_layout layout;

    assert_int_equal(read_text(text, CREATE, &layout, &error), GPUBUF_E_LIMIT);
    assert_int_equal(error.code, GPUBUF_E_LIMIT);
    assert_string_equal(error.limit, limit);
    assert_string_equal(error.message, message);
    gb_pool_reset(&pool);
}

TEST(test_columns_limit)
{
    char *text = many_columns(4096, 0);

    assert_int_equal(read_good(text, CREATE).column.child_count, 4096);
    free(text);
    text = many_columns(4097, 0);
    assert_limit(text, "columns",
                 "params.layout.columns: 4097 columns; a layout has at most 4096, nested ones "
                 "included");
    free(text);
    text = many_columns(4095, 1);
    read_good(text, CREATE);
    free(text);
    text = many_columns(4096, 1);
    assert_limit(text, "columns",
                 "params.layout.columns[4095].children: 4097 columns; a layout has at most 4096, "
                 "nested ones included");
    free(text);
}

TEST(test_depth_limit)
{
    char *text = many_columns(1, GB_LIMIT(layout_depth) - 1);

    read_good(text, CREATE);
    free(text);
    text = many_columns(1, GB_LIMIT(layout_depth));
    assert_limit(text, "layout_depth",
                 "params.layout.columns[0].children[0].children[0].children[0].children[0]."
                 "children[0].children[0].children[0].children[0].children[0].children[0]."
                 "children[0].children[0]: "
                 "columns are nested more than 12 deep");
    free(text);
}

TEST(test_other_limits)
{
    struct gb_writer writer;

    for (unsigned count = 32; count <= 33; count++) {
        gb_writer_init(&writer, 0);
        gb_write_text(&writer, ARRAY "[1");
        for (unsigned i = 1; i < count; i++)
            gb_write_text(&writer, ",1");
        gb_write_text(&writer, "]}");
        char *text = gb_writer_take(&writer, NULL);
        if (count == 32)
            assert_int_equal(read_good(text, CREATE).ndim, 32);
        else
            assert_limit(text, "ndim", "params.layout.shape: 33 axes; at most 32 are allowed");
        free(text);
    }
    for (unsigned count = 256; count <= 257; count++) {
        gb_writer_init(&writer, 0);
        gb_write_text(&writer, COLUMN "\"int8\",\"length\":1,\"metadata\":{\"0\":\"\"");
        for (unsigned i = 1; i < count; i++)
            gb_write_format(&writer, ",\"%u\":\"\"", i);
        gb_write_text(&writer, "}}");
        char *text = gb_writer_take(&writer, NULL);
        if (count == 256)
            assert_int_equal(read_good(text, CREATE).column.metadata_count, 256);
        else
            assert_limit(text, "metadata_pairs",
                         "params.layout.metadata: 257 pairs; at most 256 are allowed");
        free(text);
    }
}

/* Of many columns, any two of one name are found. */
TEST(test_equal_names_among_many)
{
    static const unsigned counts[] = {2, 3, 8, 9, 10, 100};
    char text[8192];

    for (size_t c = 0; c < COUNT(counts); c++) {
        for (unsigned first = 0; first < counts[c]; first += 1 + counts[c] / 10) {
            for (unsigned second = first + 1; second < counts[c]; second += 1 + counts[c] / 10) {
                char message[128];
                int n = snprintf(text, sizeof(text), TABLE);

                for (unsigned i = 0; i < counts[c]; i++)
                    n += snprintf(text + n, sizeof(text) - (size_t)n, "%s" INT8("%u"), i ? "," : "",
                                  i == second ? first : i);
                snprintf(text + n, sizeof(text) - (size_t)n, "]}");
                snprintf(message, sizeof(message),
                         ".columns[%u].name: there is a column \"%u\" already", second, first);
                assert_refused(text, CREATE, INVALID, message);
                gb_pool_reset(&pool);
            }
        }
    }
}

/* ---- what is accepted ---- */

TEST(test_reply_ignores_unknown_members)
{
    static const char text[] =
        "{\"future\":[1,{}],\"kind\":\"table\",\"length\":1,\"x\":{},\"columns\":["
        "{\"name\":\"a\",\"kind\":\"x\",\"dtype\":\"int8\",\"length\":1,\"compressed\":null,"
        "\"data\":{\"segment\":3,\"offset\":7,\"bytes\":1,\"tier\":\"disk\"}}]}";
    struct gb_layout layout = read_good(text, REPLY);

    assert_written(&layout, REPLY,
                   "{\"kind\":\"table\",\"length\":1,\"columns\":[{\"name\":\"a\",\"dtype\":"
                   "\"int8\",\"length\":1,\"data\":{\"segment\":3,\"offset\":7,\"bytes\":1}}]}");
}

/* text -> what is written back */
static const struct {
    enum gb_layout_form form;
    const char *text, *written;
} accepted[] = {
    {CREATE, "{\"k\\u0069nd\":\"b\\u0079tes\",\"bytes\":5}",
     "{\"kind\":\"bytes\",\"bytes\":5,\"data\":{\"bytes\":5}}"},
    {CREATE, "{\"manifest_bytes\":2,\"kind\":\"bundle\",\"bytes\":10}",
     BUNDLE "10,\"manifest_bytes\":2,\"data\":{\"bytes\":10}}"},
    {REGISTER, BUNDLE "11,\"manifest_bytes\":2,\"data\":{\"handle\":1,\"offset\":8,\"bytes\":99}}",
     BUNDLE "11,\"manifest_bytes\":2,\"data\":{\"handle\":1,\"offset\":8,\"bytes\":99}}"},
    {CREATE, "{\"bytes\":0,\"data\":{\"bytes\":9},\"kind\":\"bytes\"}",
     "{\"kind\":\"bytes\",\"bytes\":0,\"data\":{\"bytes\":9}}"},
    {CREATE, COLUMN "\"in\\u00748\",\"length\":3}",
     "{\"kind\":\"column\",\"dtype\":\"int8\",\"length\":3,\"data\":{\"bytes\":3}}"},
    {CREATE, COLUMN "\"int8\",\"length\":3,\"null_count\":-1}",
     "{\"kind\":\"column\",\"dtype\":\"int8\",\"length\":3,\"data\":{\"bytes\":3}}"},
    {CREATE, COLUMN "\"int8\",\"length\":3,\"null_count\":-1,\"mask\":{\"bytes\":1},\"offset\":0}",
     "{\"kind\":\"column\",\"dtype\":\"int8\",\"length\":3,\"null_count\":-1,\"data\":{\"bytes\":3}"
     ","
     "\"mask\":{\"bytes\":1}}"},
    {CREATE, COLUMN "\"null\",\"length\":3,\"null_count\":3}",
     "{\"kind\":\"column\",\"dtype\":\"null\",\"length\":3,\"null_count\":3}"},
    {CREATE, COLUMN "\"struct\",\"length\":3}",
     "{\"kind\":\"column\",\"dtype\":\"struct\",\"length\":3}"},
    {CREATE, COLUMN "\"struct\",\"length\":3,\"children\":[],\"metadata\":{}}",
     "{\"kind\":\"column\",\"dtype\":\"struct\",\"length\":3}"},
    {CREATE,
     COLUMN "\"dictionary\",\"length\":2,\"null_count\":1,\"children\":["
            "{\"dtype\":\"uint16\",\"length\":2,\"null_count\":1,\"mask\":{}},"
            "{\"dtype\":\"utf8\",\"length\":1,\"data\":{\"bytes\":4}}]}",
     COLUMN "\"dictionary\",\"length\":2,\"null_count\":1,\"children\":["
            "{\"dtype\":\"uint16\",\"length\":2,\"null_count\":1,\"data\":{\"bytes\":4},"
            "\"mask\":{\"bytes\":64}},"
            "{\"dtype\":\"utf8\",\"length\":1,\"data\":{\"bytes\":4},\"offsets\":{\"bytes\":8}}]}"},
    {CREATE, COLUMN "\"int8\",\"length\":0,\"metadata\":{\"\":\"\\u00fc\",\"a\\n\":\"\\\"\"}}",
     COLUMN "\"int8\",\"length\":0,\"data\":{\"bytes\":0},"
            "\"metadata\":{\"\":\"ü\",\"a\\n\":\"\\\"\"}}"},
    {CREATE, "{\"kind\":\"table\",\"length\":7,\"columns\":[]}",
     "{\"kind\":\"table\",\"length\":7,\"columns\":[]}"},
    {CREATE, "{\"kind\":\"table\",\"metadata\":{\"k\":\"v\"},\"columns\":[],\"length\":7}",
     "{\"kind\":\"table\",\"length\":7,\"columns\":[],\"metadata\":{\"k\":\"v\"}}"},
    {CREATE, "{\"kind\":\"table\",\"length\":7,\"columns\":[],\"metadata\":{}}",
     "{\"kind\":\"table\",\"length\":7,\"columns\":[]}"},
    {CREATE, ARRAY "[]}", ARRAY "[],\"data\":{\"bytes\":4}}"},
    {CREATE, ARRAY "[],\"strides\":[],\"mask\":{}}",
     ARRAY "[],\"data\":{\"bytes\":4},\"mask\":{\"bytes\":64}}"},
    {CREATE, ARRAY "[3,0,5]}", ARRAY "[3,0,5],\"data\":{\"bytes\":0}}"},
    {CREATE, ARRAY "[3,0,5],\"strides\":[0,400,8]}", ARRAY "[3,0,5],\"data\":{\"bytes\":0}}"},
    {CREATE, ARRAY "[2,1,3],\"strides\":[12,800,4]}", ARRAY "[2,1,3],\"data\":{\"bytes\":24}}"},
    {REPLY,
     ARRAY "[2,1,3],\"strides\":[16,800,4],\"data\":{\"segment\":1,\"offset\":4,\"bytes\":28}}",
     ARRAY "[2,1,3],\"strides\":[16,800,4],\"data\":{\"segment\":1,\"offset\":4,\"bytes\":28}}"},
    {REPLY, ARRAY "[2,3],\"strides\":[0,0],\"data\":{\"segment\":1,\"offset\":4,\"bytes\":4}}",
     ARRAY "[2,3],\"strides\":[0,0],\"data\":{\"segment\":1,\"offset\":4,\"bytes\":4}}"},
    {CREATE, PACKED("4_e2m1fn") "[3,6],\"mask\":{}}",
     PACKED("4_e2m1fn") "[3,6],\"data\":{\"bytes\":9},\"mask\":{\"bytes\":64}}"},
    {CREATE, PACKED("4_e2m1fn") "[3,0]}", PACKED("4_e2m1fn") "[3,0],\"data\":{\"bytes\":0}}"},
    {CREATE, PACKED("4_e2m1fn") "[2,6],\"strides\":[3,1]}",
     PACKED("4_e2m1fn") "[2,6],\"data\":{\"bytes\":6}}"},
    {CREATE, PACKED("6_e2m3fn") "[5,8]}", PACKED("6_e2m3fn") "[5,8],\"data\":{\"bytes\":30}}"},
    {REPLY, /* rows of three bytes, five apart, at an odd byte */
     PACKED("6_e2m3fn") "[2,4],\"strides\":[5,1],"
                        "\"data\":{\"segment\":1,\"offset\":3,\"bytes\":8}}",
     PACKED("6_e2m3fn") "[2,4],\"strides\":[5,1],"
                        "\"data\":{\"segment\":1,\"offset\":3,\"bytes\":8}}"},
    {REGISTER,
     "{\"kind\":\"array\",\"dtype\":\"fixed_binary(3)\",\"shape\":[2],"
     "\"data\":{\"handle\":15,\"offset\":1,\"bytes\":6}}",
     "{\"kind\":\"array\",\"dtype\":\"fixed_binary(3)\",\"shape\":[2],"
     "\"data\":{\"handle\":15,\"offset\":1,\"bytes\":6}}"},
};

TEST(test_accepted)
{
    for (size_t i = 0; i < COUNT(accepted); i++) {
        struct gb_layout layout = read_good(accepted[i].text, accepted[i].form);
        assert_written(&layout, accepted[i].form, accepted[i].written);
    }
    gb_pool_reset(&pool);
}

TEST(test_c_order_strides)
{
    struct gb_layout layout = read_good(ARRAY "[3,0,5,2]}", CREATE);

    assert_int_equal(layout.strides[3], 4);
    assert_int_equal(layout.strides[2], 8);
    assert_int_equal(layout.strides[1], 40);
    assert_int_equal(layout.strides[0], 40); /* as numpy.empty((3, 0, 5, 2)) has them */
    assert_int_equal(layout.column.length, 0);
    layout = read_good(ARRAY "[3,5,2],\"mask\":{}}", CREATE);
    assert_int_equal(layout.strides[0], 40);
    assert_int_equal(layout.column.length, 30);
    assert_int_equal(layout.column.null_count, -1);
}

/* However a buffer in a reply is spelled, it is read as the same, or refused in the same words. */
TEST(test_spellings_of_a_buffer)
{
    static const char *const same[] = {
        "{\"segment\":3,\"offset\":16,\"bytes\":9}",
        "{\"bytes\":9,\"offset\":16,\"segment\":3}",
        "{ \"segment\" : 3, \"offset\":16,\"bytes\":9 }",
        "{\"segment\":3,\"offset\":16,\"bytes\":9,\"more\":[{}]}",
        "{\"more\":0,\"segment\":3,\"offset\":16,\"bytes\":9}",
        "{\"segment\":3,\"offset\":16,\"byt\\u0065s\":9}",
    };
    static const struct {
        const char *buffer, *message;
    } wrong[] = {
        {"{\"segment\":3,\"offset\":16,\"bytes\":4503599627370496}",
         ".bytes: expected an integer from 0 to " MAX ", found 4503599627370496"},
        {"{\"segment\":18446744073709551619,\"offset\":16,\"bytes\":9}",
         ".segment: expected an integer from 0 to " MAX ", found 18446744073709551619"},
        {"{\"segment\":3,\"offset\":-1,\"bytes\":9}",
         ".offset: expected an integer from 0 to " MAX ", found -1"},
        {"{\"segment\":3,\"offset\":16,\"bytes\":9.5}",
         ".bytes: expected an integer without fraction or exponent, found 9.5"},
        {"{\"segment\":3,\"offset\":16,\"bytes\":9,\"bytes\":9}", ".bytes: occurs twice"},
        {"{\"segment\":3,\"offset\":16,\"bytes\":8}", ".bytes: 8 is too small, 9 are needed"},
        {"{\"segment\":3,\"offset\":\"16\",\"bytes\":9}",
         ".offset: expected an integer, found a string"},
        {"{\"segment\":3,\"offset\":16}", ".bytes: missing"},
        {"{}", ".segment: missing"},
    };
    char text[256], message[256];

    for (size_t i = 0; i < COUNT(same); i++) {
        snprintf(text, sizeof(text), "{\"kind\":\"bytes\",\"bytes\":9,\"data\":%s}", same[i]);
        struct gb_layout layout = read_good(text, REPLY);
        assert_int_equal(layout.column.data.segment, 3);
        assert_int_equal(layout.column.data.offset, 16);
        assert_int_equal(layout.column.data.bytes, 9);
    }
    for (size_t i = 0; i < COUNT(wrong); i++) {
        snprintf(text, sizeof(text), "{\"kind\":\"bytes\",\"bytes\":9,\"data\":%s}",
                 wrong[i].buffer);
        snprintf(message, sizeof(message), ".data%s", wrong[i].message);
        assert_refused(text, REPLY, INVALID, message);
    }
}

/* ---- sizes ---- */

TEST(test_sizes_overflow)
{
    uint64_t data = 7, mask = 7, offsets = 7;
    struct gb_column column = {.length = UINT64_MAX, .offset = 1};

    for (unsigned type = 0; type < GB_TYPE_COUNT; type++) {
        column.dtype = (struct gb_dtype){.type = (enum gb_type)type, .size = INT32_MAX};
        column.length = UINT64_MAX;
        assert_false(gb_column_sizes(&column, &data, &mask, &offsets));
        column.length = (UINT64_C(1) << 52) - 1;
        assert_false(gb_column_sizes(&column, &data, &mask, &offsets));
    }
    column.dtype.type = GB_TYPE_FIXED_BINARY;
    column.length = UINT64_C(1) << 33; /* times 2^31 is 2^64 */
    assert_false(gb_column_sizes(&column, &data, &mask, &offsets));
    assert_true(data == 7 && mask == 7 && offsets == 7);
}

/* Every buffer one byte short, or one byte off its alignment, is refused by its path. */
TEST(test_buffers_short_or_unaligned)
{
    static const struct {
        const char *dtype;
        unsigned align, data, mask, offsets, offset_align; /* for 5 elements from 6 on */
    } rows[] = {
        {"bool", 1, 2, 2, 0, 0},
        {"int8", 1, 11, 2, 0, 0},
        {"float16", 2, 22, 2, 0, 0},
        {"int32", 4, 44, 2, 0, 0},
        {"float64", 8, 88, 2, 0, 0},
        {"complex128", 16, 176, 2, 0, 0},
        {"decimal128(9,2)", 16, 176, 2, 0, 0},
        {"fixed_binary(3)", 1, 33, 2, 0, 0},
        {"utf8", 1, 0, 2, 48, 4},
        {"large_binary", 1, 0, 2, 96, 8},
    };
    static const char *const keys[] = {
        [GB_LAYOUT_REGISTER] = "handle", [GB_LAYOUT_REPLY] = "segment"};

    for (size_t i = 0; i < COUNT(rows); i++) {
        for (enum gb_layout_form form = GB_LAYOUT_REGISTER; form <= GB_LAYOUT_REPLY; form++) {
            unsigned needs[] = {rows[i].data, rows[i].mask, rows[i].offsets};
            unsigned aligns[] = {rows[i].align, 1, rows[i].offset_align};
            const char *names[] = {"data", "mask", "offsets"};

            for (unsigned which = 0; which < 3; which++) {
                for (int change = -1; change <= 1; change++) { /* short, right, unaligned */
                    char text[512], message[256];
                    int n =
                        snprintf(text, sizeof(text),
                                 "{\"kind\":\"column\",\"dtype\":\"%s\",\"length\":5,\"offset\":6",
                                 rows[i].dtype);

                    if (!needs[which] || (change > 0 && aligns[which] < 2))
                        continue;
                    for (unsigned b = 0; b < 3; b++) {
                        bool here = b == which;
                        unsigned bytes = needs[b] - (here && change < 0);
                        unsigned place = 3 * aligns[b] + (here && change > 0);
                        if (b == 2 && !needs[b])
                            continue;
                        n += snprintf(text + n, sizeof(text) - (size_t)n,
                                      ",\"%s\":{\"%s\":1,\"offset\":%u,\"bytes\":%u}", names[b],
                                      keys[form], place, bytes);
                    }
                    snprintf(text + n, sizeof(text) - (size_t)n, "}");
                    if (change == 0) {
                        read_good(text, form);
                        continue;
                    }
                    if (change < 0)
                        snprintf(message, sizeof(message),
                                 ".%s.bytes: %u is too small, %u are needed", names[which],
                                 needs[which] - 1, needs[which]);
                    else
                        snprintf(message, sizeof(message), ".%s.offset: %u is not a multiple of %u",
                                 names[which], 3 * aligns[which] + 1, aligns[which]);
                    assert_refused(text, form, GPUBUF_E_INVALID, message);
                }
            }
        }
    }
    gb_pool_reset(&pool);
}

RUN_TESTS(NULL, end_pool)
