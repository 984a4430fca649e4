/* Layouts: placing their buffers, slicing them, choosing columns; and the names of objects. */
#include "tests/cases.h"

#include "layout_text.h"

/* ---- placing ---- */

TEST(test_measure_overflow)
{
    /* As they are the buffers fit; where each begins at a multiple of 64 they do not. */
    struct gb_layout layout = read_good(TABLE "{\"name\":\"a\",\"dtype\":\"binary\",\"length\":4,"
                                              "\"data\":{\"bytes\":4503599627370455}}]}",
                                        CREATE);
    struct gb_error error;
    uint64_t total = 7;

    assert_int_equal(gb_layout_measure(&layout, &total, &error), INVALID);
    assert_string_equal(error.message, "the layout needs 2^52 bytes or more");
    assert_int_equal(total, 7);
    layout = read_good("{\"kind\":\"bytes\",\"bytes\":" MAX "}", CREATE);
    assert_int_equal(gb_layout_measure(&layout, &total, &error), 0);
    assert_int_equal(total, (UINT64_C(1) << 52) - 1);
}

/* Buffers begin at multiples of 256 bytes, and a mask is padded to one of 64. */
TEST(test_measure_places_each)
{
    struct gb_layout layout = read_good(TABLE "{\"name\":\"a\",\"dtype\":\"utf8\",\"length\":4,"
                                              "\"mask\":{\"bytes\":65},\"data\":{\"bytes\":3}}]}",
                                        CREATE);
    const struct gb_column *column = &layout.column.children[0];
    struct gb_error error;
    uint64_t total;

    assert_int_equal(gb_layout_measure(&layout, &total, &error), 0);
    assert_int_equal(column->mask.bytes, 128);
    assert_int_equal(column->mask.offset, 0);
    assert_int_equal(column->offsets.offset, 256);
    assert_int_equal(column->data.offset, 512);
    assert_int_equal(total, 515);
}

TEST(test_check_handles)
{
    static const char text[] = TABLE "{\"name\":\"a\",\"dtype\":\"list\",\"length\":4,"
                                     "\"offsets\":{\"handle\":0,\"offset\":0,\"bytes\":20},"
                                     "\"children\":[{\"dtype\":\"int8\",\"length\":9,"
                                     "\"data\":{\"handle\":1,\"offset\":10,\"bytes\":9}}]},"
                                     "{\"name\":\"b\",\"dtype\":\"int8\",\"length\":4,"
                                     "\"mask\":{\"handle\":1,\"offset\":20,\"bytes\":1},"
                                     "\"data\":{\"handle\":0,\"offset\":20,\"bytes\":4}}]}";
    static const struct {
        uint64_t bytes[2];
        size_t count;
        const char *message;
    } rows[] = {
        {{24, 21}, 2, NULL},
        {{19, 21},
         2,
         "params.layout.columns[0].offsets: it ends at byte 20, but handle 0 has 19 bytes"},
        {{24, 18},
         2,
         "params.layout.columns[0].children[0].data: it ends at byte 19, but handle 1 has 18 "
         "bytes"},
        {{24, 20},
         2,
         "params.layout.columns[1].mask: it ends at byte 21, but handle 1 has 20 bytes"},
        {{23, 21},
         2,
         "params.layout.columns[1].data: it ends at byte 24, but handle 0 has 23 bytes"},
        {{24}, 1, "params.layout.columns[0].children[0].data: there is no handle 1, but only 1"},
        {{0}, 0, "params.layout.columns[0].offsets: there is no handle 0, but only 0"},
    };
    struct gb_layout layout = read_good(text, REGISTER);

    for (size_t i = 0; i < COUNT(rows); i++) {
        struct gb_error error = {.message = ""};
        int r = gb_layout_check_handles(&layout, rows[i].bytes, rows[i].count, &at_layout, &error);
        assert_int_equal(r, rows[i].message ? INVALID : 0);
        assert_string_equal(error.message, rows[i].message ? rows[i].message : "");
    }
}

/* ---- slices ---- */

static const char *const sliceable[] = {
    "{\"kind\":\"bytes\",\"bytes\":6,\"data\":{\"segment\":1,\"offset\":100,\"bytes\":6}}",
    COLUMN "\"int32\",\"length\":6,\"offset\":3,\"null_count\":2,"
           "\"data\":{\"segment\":1,\"offset\":0,\"bytes\":36},"
           "\"mask\":{\"segment\":1,\"offset\":64,\"bytes\":2}}",
    COLUMN "\"int32\",\"length\":6,\"null_count\":6,"
           "\"data\":{\"segment\":1,\"offset\":0,\"bytes\":24},"
           "\"mask\":{\"segment\":1,\"offset\":64,\"bytes\":1}}",
    COLUMN "\"null\",\"length\":6,\"null_count\":-1}",
    COLUMN "\"struct\",\"length\":6,\"children\":[{\"name\":\"a\",\"dtype\":\"int8\",\"length\":6,"
           "\"data\":{\"segment\":1,\"offset\":0,\"bytes\":6}}]}",
    "{\"kind\":\"table\",\"length\":6,\"columns\":["
    "{\"name\":\"a\",\"dtype\":\"int8\",\"length\":6,\"data\":{\"segment\":1,\"offset\":0,"
    "\"bytes\":6}},"
    "{\"name\":\"b\",\"dtype\":\"bool\",\"length\":6,\"offset\":9,\"null_count\":-1,"
    "\"data\":{\"segment\":1,\"offset\":8,\"bytes\":2},"
    "\"mask\":{\"segment\":1,\"offset\":10,\"bytes\":2}}]}",
    ARRAY "[6],\"data\":{\"segment\":1,\"offset\":40,\"bytes\":24}}",
    ARRAY "[6,3],\"data\":{\"segment\":1,\"offset\":40,\"bytes\":72},"
          "\"mask\":{\"segment\":1,\"offset\":7,\"bytes\":3}}",
    ARRAY
    "[6,3],\"strides\":[4,32],\"offset\":5,\"data\":{\"segment\":1,\"offset\":0,\"bytes\":88},"
    "\"mask\":{\"segment\":1,\"offset\":7,\"bytes\":3}}",
    ARRAY "[6,0],\"data\":{\"segment\":1,\"offset\":0,\"bytes\":0}}",
};

static struct gb_layout sliced(const char *text, uint64_t offset, uint64_t length)
{
    struct gb_layout layout = read_good(text, REPLY);

    assert_int_equal(gb_layout_slice(&layout, offset, length, NULL, NULL), 0);
    return layout;
}

/* Where an array's element lies: its byte, and its bit in the mask. */
struct spot {
    uint64_t byte, bit;
};

static struct spot spot_of(const struct gb_layout *layout, uint64_t index)
{
    struct spot spot = {layout->column.data.offset,
                        layout->column.mask.offset * 8 + layout->column.offset + index};

    for (unsigned i = layout->ndim; i-- > 0;) {
        spot.byte += index % layout->shape[i] * (uint64_t)layout->strides[i];
        index /= layout->shape[i];
    }
    return spot;
}

static int assert_inside(struct gb_buffer *part, void *arg)
{
    const struct gb_buffer *whole = arg;

    if (part->bytes > 0) {
        assert_true(part->offset >= whole->offset);
        assert_true(part->offset + part->bytes <= whole->offset + whole->bytes);
    }
    return 0;
}

static void check_array_slice(const char *text, const struct gb_layout *slice, uint64_t offset)
{
    struct gb_layout whole = read_good(text, REPLY);
    uint64_t row = 1;

    for (unsigned i = 1; i < whole.ndim; i++)
        row *= whole.shape[i];
    assert_inside((struct gb_buffer *)&slice->column.data, &whole.column.data);
    assert_inside((struct gb_buffer *)&slice->column.mask, &whole.column.mask);
    for (uint64_t i = 0; i < slice->column.length; i++) {
        struct spot here = spot_of(slice, i), there = spot_of(&whole, offset * row + i);
        assert_int_equal(here.byte, there.byte);
        assert_true(here.byte + 4 <= slice->column.data.offset + slice->column.data.bytes);
        if (slice->column.mask.present) {
            uint64_t end = (slice->column.mask.offset + slice->column.mask.bytes) * 8;
            assert_int_equal(here.bit, there.bit);
            assert_true(here.bit < end);
        }
    }
}

TEST(test_slices)
{
    for (size_t i = 0; i < COUNT(sliceable); i++) {
        for (uint64_t offset = 0; offset <= 6; offset++) {
            for (uint64_t length = 0; offset + length <= 6; length++) {
                struct gb_layout slice = sliced(sliceable[i], offset, length);

                assert_int_equal(gb_layout_length(&slice), length);
                if (slice.kind == GB_KIND_ARRAY)
                    check_array_slice(sliceable[i], &slice, offset);
                char *text = written(&slice, REPLY);
                struct gb_layout back = read_good(text, REPLY);
                if (!layouts_equal(&slice, &back))
                    fail_msg("%s is read back as something else", text);
                free(text);
                gb_pool_reset(&pool);
            }
        }
    }
}

TEST(test_sliced_null_counts)
{
    assert_int_equal(sliced(sliceable[1], 0, 6).column.null_count, 2);
    assert_int_equal(sliced(sliceable[1], 0, 5).column.null_count, -1);
    assert_int_equal(sliced(sliceable[1], 3, 0).column.null_count, 0);
    assert_int_equal(sliced(sliceable[1], 2, 3).column.offset, 5);
    assert_int_equal(sliced(sliceable[2], 2, 3).column.null_count, 3);
    assert_int_equal(sliced(sliceable[3], 0, 6).column.null_count, -1);
    assert_int_equal(sliced(sliceable[4], 2, 3).column.null_count, 0);
    assert_int_equal(sliced(sliceable[4], 2, 3).column.children[0].length, 6);
}

/* Along the packed axis at whole bytes alone, along others anywhere. */
TEST(test_packed_slices)
{
    static const char line[] = PACKED("4_e2m1fn") "[12],\"data\":{\"segment\":1,\"offset\":7,"
                                                  "\"bytes\":6}}";
    static const char rows[] =
        PACKED("6_e2m3fn") "[5,4],\"offset\":3,\"data\":{\"segment\":1,\"offset\":7,\"bytes\":15},"
                           "\"mask\":{\"segment\":1,\"offset\":64,\"bytes\":3}}";
    struct gb_path path = {.key = "slice"};
    struct gb_error error;

    for (uint64_t offset = 0; offset <= 12; offset++) {
        for (uint64_t length = 0; offset + length <= 12; length++) {
            struct gb_layout layout = read_good(line, REPLY);
            int r = gb_layout_slice(&layout, offset, length, &path, &error);

            assert_int_equal(r, offset % 2 == 0 && length % 2 == 0 ? 0 : INVALID);
            if (r < 0)
                continue;
            assert_int_equal(layout.shape[0], length);
            assert_int_equal(layout.column.data.bytes, length / 2);
            if (length > 0)
                assert_int_equal(layout.column.data.offset, 7 + offset / 2);
        }
    }
    struct gb_layout layout = read_good(line, REPLY);
    assert_int_equal(gb_layout_slice(&layout, 2, 3, &path, &error), INVALID);
    assert_string_equal(error.message,
                        "slice: offset 2 and length 3: elements of float4_e2m1fn are packed, and a "
                        "slice of them begins and ends at whole bytes");
    layout = sliced(rows, 3, 1);
    assert_int_equal(layout.column.data.offset, 7 + 3 * 3);
    assert_int_equal(layout.column.data.bytes, 3);
    assert_int_equal(layout.column.mask.offset, 64 + 1);
    assert_int_equal(layout.column.offset, 15 % 8);
    gb_pool_reset(&pool);
}

TEST(test_slices_past_the_end)
{
    static const struct {
        uint64_t offset, length;
    } rows[] = {{0, 7},
                {7, 0},
                {6, 1},
                {1, 6},
                {UINT64_MAX, 1},
                {1, UINT64_MAX},
                {UINT64_MAX, UINT64_MAX},
                {2, UINT64_MAX - 1}};
    struct gb_path path = {.up = &params, .key = "slice"};
    struct gb_error error;

    for (size_t i = 0; i < COUNT(sliceable); i++) {
        for (size_t row = 0; row < COUNT(rows); row++) {
            struct gb_layout layout = read_good(sliceable[i], REPLY);
            struct gb_layout same = read_good(sliceable[i], REPLY);

            assert_int_equal(
                gb_layout_slice(&layout, rows[row].offset, rows[row].length, &path, &error),
                INVALID);
            assert_true(layouts_equal(&layout, &same));
        }
        gb_pool_reset(&pool);
    }
    struct gb_layout layout = read_good(sliceable[5], REPLY);
    assert_int_equal(gb_layout_slice(&layout, 5, 2, &path, &error), INVALID);
    assert_string_equal(error.message, "params.slice: offset 5 and length 2 go past the end: "
                                       "there are 6 rows");
    layout = read_good(BUNDLE "20,\"manifest_bytes\":2}", CREATE);
    assert_int_equal(gb_layout_slice(&layout, 10, 8, &path, &error), INVALID);
    assert_string_equal(error.message, "params.slice: offset 10 and length 8: a bundle has one "
                                       "manifest for all of its 20 bytes, and cannot be sliced");
    assert_int_equal(gb_layout_slice(&layout, 0, 20, &path, &error), 0);
    assert_int_equal(layout.column.data.bytes, 20);
    layout = read_good(ARRAY "[]}", CREATE);
    assert_int_equal(gb_layout_slice(&layout, 0, 1, &path, &error), INVALID);
    assert_string_equal(error.message, "params.slice: an array of 0 axes cannot be sliced");
    assert_int_equal(gb_layout_length(&layout), 1);
}

/* ---- choosing columns ---- */

static int choose(struct gb_layout *layout, const char *names, struct gb_error *error)
{
    struct gb_path path = {.up = &params, .key = "columns"};
    struct gb_string strings[8];
    size_t count = strlen(names);

    for (size_t i = 0; i < count; i++) /* names of one letter each */
        strings[i] = (struct gb_string){gb_pool_strndup(&pool, names + i, 1), 1};
    return gb_layout_select(layout, strings, count, &path, &pool, error);
}

TEST(test_select)
{
    static const char text[] = TABLE INT8("d") "," INT8("a") "," INT8("c") "," INT8("b") "]}";
    static const char *const good[] = {"", "a", "d", "ab", "ba", "dacb", "abcd", "cd"};
    struct gb_error error;

    for (size_t i = 0; i < COUNT(good); i++) {
        struct gb_layout layout = read_good(text, CREATE);
        assert_int_equal(choose(&layout, good[i], &error), 0);
        assert_int_equal(layout.column.child_count, strlen(good[i]));
        assert_int_equal(layout.column.length, 4);
        for (uint32_t c = 0; c < layout.column.child_count; c++)
            assert_int_equal(layout.column.children[c].name[0], good[i][c]);
    }
    struct gb_layout layout = read_good(text, CREATE), same = read_good(text, CREATE);
    assert_int_equal(choose(&layout, "ax", &error), INVALID);
    assert_string_equal(error.message, "params.columns[1]: no column \"x\"");
    assert_int_equal(choose(&layout, "aba", &error), INVALID);
    assert_string_equal(error.message, "params.columns[2]: column \"a\" is named twice");
    assert_true(layouts_equal(&layout, &same));
    layout = read_good("{\"kind\":\"bytes\",\"bytes\":1}", CREATE);
    assert_int_equal(choose(&layout, "a", &error), INVALID);
    assert_string_equal(error.message, "params.columns: only tables have columns to choose from");
    layout = read_good("{\"kind\":\"table\",\"length\":0,\"columns\":[]}", CREATE);
    assert_int_equal(choose(&layout, "", &error), 0);
    assert_int_equal(choose(&layout, "a", &error), INVALID);
}

/* ---- names ---- */

#define DECEPTIVE                                                                                  \
    "params.name: the name has a control character, or one that turns the direction of text or "   \
    "shows nothing"

TEST(test_names)
{
    static const char *const good[] = {
        "a",        "sales/price", "a/b/c/d", "ü",    "US Gross", ".", "..",
        "\xc2\xa0", "日本/語",     "-",       "a\\b", "\"",       "~",
    };
    static const struct {
        const char *name, *message;
    } bad_names[] = {
        {"", "params.name: a name must not be empty"},
        {"/", "params.name: a name must not begin or end with '/'"},
        {"/a", "params.name: a name must not begin or end with '/'"},
        {"a/", "params.name: a name must not begin or end with '/'"},
        {"a//b", "params.name: the name has an empty part between two '/'"},
        {"a\nb", DECEPTIVE},
        {"\x1f", DECEPTIVE},
        {"a\x7f", DECEPTIVE},
        {"\xc2\x80", DECEPTIVE},
        {"\xc2\x9f", DECEPTIVE},
        {"a\xd8\x9c", DECEPTIVE},           /* Arabic letter mark */
        {"\xe2\x80\x8e", DECEPTIVE},        /* left to right */
        {"\xe2\x80\xa8z", DECEPTIVE},       /* line separator */
        {"exe.\xe2\x80\xaegpj", DECEPTIVE}, /* right to left from here on */
        {"\xe2\x81\xa9", DECEPTIVE},        /* end of an isolate */
        {"\xff", "params.name: the name is not UTF-8"},
        {"a\xc3", "params.name: the name is not UTF-8"},
        {"\xed\xa0\x80", "params.name: the name is not UTF-8"},
    };
    struct gb_path path = {.up = &params, .key = "name"};
    struct gb_error error;
    char name[257];

    for (size_t i = 0; i < COUNT(good); i++)
        assert_int_equal(gb_name_check(good[i], strlen(good[i]), &path, &error), 0);
    for (size_t i = 0; i < COUNT(bad_names); i++) {
        assert_int_equal(gb_name_check(bad_names[i].name, strlen(bad_names[i].name), &path, &error),
                         INVALID);
        assert_string_equal(error.message, bad_names[i].message);
    }
    memset(name, 'n', sizeof(name));
    assert_int_equal(gb_name_check(name, 255, &path, &error), 0);
    assert_int_equal(gb_name_check(name, 256, &path, &error), INVALID);
    assert_string_equal(error.message, "params.name: a name of 256 bytes; at most 255 are allowed");
    assert_int_equal(gb_name_check("a\0b", 3, &path, &error), INVALID);
}

RUN_TESTS(NULL, end_pool)
