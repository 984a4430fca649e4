/* Layouts: the sizes of buffers of every dtype, and their alignment. */
#include "tests/cases.h"

#include "layout_text.h"

/* dtype, bits of an element, bytes of an offset, children: said a second time, by hand */
static const struct size_row {
    const char *dtype;
    unsigned bits, offset_bytes;
    const char *children; /* the JSON of them for up to 18 elements */
    bool mask, text;
} size_rows[] = {
    {"bool", 1, 0, NULL, true, false},
    {"bool8", 8, 0, NULL, true, false},
    {"int8", 8, 0, NULL, true, false},
    {"int16", 16, 0, NULL, true, false},
    {"int32", 32, 0, NULL, true, false},
    {"int64", 64, 0, NULL, true, false},
    {"uint8", 8, 0, NULL, true, false},
    {"uint16", 16, 0, NULL, true, false},
    {"uint32", 32, 0, NULL, true, false},
    {"uint64", 64, 0, NULL, true, false},
    {"float16", 16, 0, NULL, true, false},
    {"bfloat16", 16, 0, NULL, true, false},
    {"float32", 32, 0, NULL, true, false},
    {"float64", 64, 0, NULL, true, false},
    {"complex64", 64, 0, NULL, true, false},
    {"complex128", 128, 0, NULL, true, false},
    {"float8_e3m4", 8, 0, NULL, true, false},
    {"float8_e4m3", 8, 0, NULL, true, false},
    {"float8_e4m3b11fnuz", 8, 0, NULL, true, false},
    {"float8_e4m3fn", 8, 0, NULL, true, false},
    {"float8_e4m3fnuz", 8, 0, NULL, true, false},
    {"float8_e5m2", 8, 0, NULL, true, false},
    {"float8_e5m2fnuz", 8, 0, NULL, true, false},
    {"float8_e8m0fnu", 8, 0, NULL, true, false},
    {"utf8", 0, 4, NULL, true, true},
    {"large_utf8", 0, 8, NULL, true, true},
    {"binary", 0, 4, NULL, true, true},
    {"large_binary", 0, 8, NULL, true, true},
    {"fixed_binary(1)", 8, 0, NULL, true, false},
    {"fixed_binary(7)", 56, 0, NULL, true, false},
    {"date32", 32, 0, NULL, true, false},
    {"date64", 64, 0, NULL, true, false},
    {"time32[ms]", 32, 0, NULL, true, false},
    {"time64[ns]", 64, 0, NULL, true, false},
    {"timestamp[us,UTC]", 64, 0, NULL, true, false},
    {"duration[s]", 64, 0, NULL, true, false},
    {"decimal128(38,10)", 128, 0, NULL, true, false},
    {"month_interval", 32, 0, NULL, true, false},
    {"day_time_interval", 64, 0, NULL, true, false},
    {"month_day_nano_interval", 128, 0, NULL, true, false},
    {"list", 0, 4, "{\"dtype\":\"int8\",\"length\":0}", true, false},
    {"large_list", 0, 8, "{\"dtype\":\"int8\",\"length\":1}", true, false},
    {"fixed_list(3)", 0, 0, "{\"dtype\":\"int8\",\"length\":54}", true, false},
    {"fixed_list(0)", 0, 0, "{\"dtype\":\"int8\",\"length\":0}", true, false},
    {"map", 0, 4,
     "{\"dtype\":\"struct\",\"length\":0,\"children\":[{\"name\":\"k\",\"dtype\":\"int8\","
     "\"length\":0},"
     "{\"name\":\"v\",\"dtype\":\"int8\",\"length\":0}]}",
     true, false},
    {"struct", 0, 0, "{\"name\":\"a\",\"dtype\":\"int8\",\"length\":18}", true, false},
    {"dictionary", 0, 0, "{\"dtype\":\"int8\",\"length\":18},{\"dtype\":\"date32\",\"length\":2}",
     false, false},
    {"null", 0, 0, NULL, false, false},
};

/* Bytes that hold `count` things of `bits` bits, counted one by one. */
static uint64_t slow_bytes(uint64_t count, unsigned bits)
{
    uint64_t total = 0, bytes = 0;

    for (uint64_t i = 0; i < count; i++)
        total += bits;
    while (bytes * 8 < total)
        bytes++;
    return bytes;
}

static uint64_t slow_padded(uint64_t bytes)
{
    while (bytes % 64 != 0)
        bytes++;
    return bytes;
}

static void check_sizes(const struct size_row *row, unsigned length, unsigned offset, bool mask)
{
    uint64_t data, mask_bytes, offsets, elements = (uint64_t)length + offset;
    char text[512];
    int n = snprintf(text, sizeof(text),
                     "{\"kind\":\"column\",\"dtype\":\"%s\",\"length\":%u,\"offset\":%u",
                     row->dtype, length, offset);

    if (row->text)
        n += snprintf(text + n, sizeof(text) - (size_t)n, ",\"data\":{\"bytes\":33}");
    if (row->children)
        n += snprintf(text + n, sizeof(text) - (size_t)n, ",\"children\":[%s]", row->children);
    snprintf(text + n, sizeof(text) - (size_t)n, "%s}", mask ? ",\"mask\":{}" : "");

    struct gb_layout layout = read_good(text, GB_LAYOUT_CREATE);
    struct gb_column *column = &layout.column;
    assert_int_equal(column->length, length);
    assert_int_equal(column->offset, offset);
    assert_int_equal(column->data.present, row->bits > 0 || row->text);
    assert_int_equal(column->offsets.present, row->offset_bytes > 0);
    assert_int_equal(column->mask.present, mask);
    assert_int_equal(column->data.bytes, row->text ? 33 : slow_bytes(elements, row->bits));
    if (row->offset_bytes)
        assert_int_equal(column->offsets.bytes, slow_bytes(elements + 1, row->offset_bytes * 8));
    if (mask)
        assert_int_equal(column->mask.bytes, slow_padded(slow_bytes(elements, 1)));

    assert_true(gb_column_sizes(column, &data, &mask_bytes, &offsets));
    assert_int_equal(data, column->data.bytes);
    assert_int_equal(offsets, column->offsets.bytes);
    assert_int_equal(mask_bytes, row->mask ? slow_padded(slow_bytes(elements, 1)) : 0);
    gb_pool_reset(&pool);
}

TEST(test_sizes)
{
    bool seen[GB_TYPE_COUNT] = {false};

    for (size_t i = 0; i < COUNT(size_rows); i++) {
        struct gb_dtype dtype;

        assert_true(gb_dtype_parse(size_rows[i].dtype, strlen(size_rows[i].dtype), &dtype));
        seen[dtype.type] = true;
        for (unsigned length = 0; length <= 9; length++) {
            for (unsigned offset = 0; offset <= 9; offset++) {
                for (unsigned mask = 0; mask < (size_rows[i].mask ? 2 : 1); mask++)
                    check_sizes(&size_rows[i], length, offset, mask);
            }
        }
    }
    for (unsigned type = 0; type < GB_TYPE_COUNT; type++) {
        struct gb_dtype dtype = {.type = (enum gb_type)type};
        assert_int_equal(seen[type], !gb_dtype_packed(&dtype)); /* those are no columns */
    }
}

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
                                 "params.layout.%s.bytes: %u is too small, %u are needed",
                                 names[which], needs[which] - 1, needs[which]);
                    else
                        snprintf(message, sizeof(message),
                                 "params.layout.%s.offset: %u is not a multiple of %u",
                                 names[which], 3 * aligns[which] + 1, aligns[which]);
                    assert_refused(text, form, GPUBUF_E_INVALID, message);
                }
            }
        }
    }
    gb_pool_reset(&pool);
}

RUN_TESTS(NULL, end_pool)
