/* Values as text, and what people type as values. */
#include <math.h>

#include "tests/cases.h"

#include "client/gpubufctl/cli/parse.h"
#include "client/gpubufctl/output/format.h"
#include "client/gpubufctl/output/term.h"

static char text[GB_FORMAT_MAX];

TEST(test_sizes)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},           {1023, "1023 B"},        {1024, "1.0 KiB"},      {10137, "9.9 KiB"},
        {10240, "10 KiB"},    {1047552, "1023 KiB"},   {1048063, "1023 KiB"},  {1048064, "1.0 MiB"},
        {1048576, "1.0 MiB"}, {5ull << 30, "5.0 GiB"}, {UINT64_MAX, "16 EiB"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_string_equal(gb_size(cases[i].bytes).text, cases[i].text);
}

TEST(test_counts_and_ages)
{
    assert_string_equal(gb_count(9999).text, "9999");
    assert_string_equal(gb_count(10000).text, "10\u202f000");
    assert_string_equal(gb_count(UINT64_MAX).text,
                        "18\u202f446\u202f744\u202f073\u202f709\u202f551\u202f615");
    assert_string_equal(gb_age(-5).text, "0.0 s");
    assert_string_equal(gb_age(1500).text, "1.5 s");
    assert_string_equal(gb_age(90000).text, "90 s");
    assert_string_equal(gb_age(300000).text, "5 min");
    assert_string_equal(gb_age(3 * 3600000).text, "3 h");
    assert_string_equal(gb_age(86400000LL * 12).text, "12 d");
}

static void check_double(double value, const char *expected)
{
    size_t length = gb_format_float64(value, text);
    assert_int_equal(length, strlen(text));
    assert_string_equal(text, expected);
}

TEST(test_doubles)
{
    check_double(0, "0.0");
    check_double(-0.0, "-0.0");
    check_double(1, "1.0");
    check_double(0.1, "0.1");
    check_double(0.1 + 0.2, "0.30000000000000004");
    check_double(1e22, "1e+22");
    check_double(123456789012345680.0, "1.2345678901234568e+17");
    check_double(5e-324, "4.94065645841247e-324");
    check_double(1.7976931348623157e308, "1.7976931348623157e+308");
    check_double(strtod("nan", NULL), "nan");
    check_double(strtod("inf", NULL), "inf");
    check_double(strtod("-inf", NULL), "-inf");

    uint64_t bits = 88172645463325252ull;
    for (int i = 0; i < 100000; i++) {
        double value;
        bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
        memcpy(&value, &bits, sizeof(value));
        if (value != value)
            continue;
        gb_format_float64(value, text);
        assert_true(strtod(text, NULL) == value);
    }
}

TEST(test_floats)
{
    gb_format_float32(0.1f, text);
    assert_string_equal(text, "0.1");
    gb_format_float32(16777216.0f, text);
    assert_string_equal(text, "16777216.0");
    uint32_t bits = 1;
    for (int i = 0; i < 100000; i++) {
        float value;
        bits = bits * 1664525u + 1013904223u;
        memcpy(&value, &bits, sizeof(value));
        if (value != value)
            continue;
        gb_format_float32(value, text);
        assert_true(strtof(text, NULL) == value);
    }
}

/* The 16-bit float nearest to a number, found among all of them. `first` is where bits are 0. */
static uint16_t nearest(double value, double (*value_of)(uint16_t), uint16_t infinity)
{
    uint16_t low = 0, high = (uint16_t)(infinity - 1), sign = value < 0 ? 0x8000 : 0;

    if (value < 0)
        value = -value;
    while (low < high) { /* the largest that is at most `value` */
        uint16_t middle = (uint16_t)((low + high + 1) / 2);
        if (value_of(middle) <= value)
            low = middle;
        else
            high = (uint16_t)(middle - 1);
    }
    if (low + 1 < infinity && value_of((uint16_t)(low + 1)) - value < value - value_of(low))
        low++;
    return low | sign;
}

static double bfloat16_value(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &wide, sizeof(value));
    return (double)value;
}

/*
 * Every code of every small float. The codes of a sign go up by steps: the first two runs of
 * 2^mantissa codes have the smallest value as theirs, each later run twice that of the one before.
 * So the table needs the smallest value alone; the largest, from the specifications, checks it.
 */
TEST(test_small_floats)
{
    enum { NONE = 256 };
    static const struct {
        enum gb_type type;
        unsigned bits, mantissa, most; /* of an element; of its mantissa; the largest's code */
        double smallest, largest;
        unsigned infinity, first_nan, zero_nan; /* codes; of the sign alone: NaN or -0 */
    } rows[] = {
        {GB_TYPE_FLOAT8_E3M4, 8, 4, 0x6f, 0x1p-6, 15.5, 0x70, 0x71, false},
        {GB_TYPE_FLOAT8_E4M3, 8, 3, 0x77, 0x1p-9, 240, 0x78, 0x79, false},
        {GB_TYPE_FLOAT8_E4M3B11FNUZ, 8, 3, 0x7f, 0x1p-13, 30, NONE, NONE, true},
        {GB_TYPE_FLOAT8_E4M3FN, 8, 3, 0x7e, 0x1p-9, 448, NONE, 0x7f, false},
        {GB_TYPE_FLOAT8_E4M3FNUZ, 8, 3, 0x7f, 0x1p-10, 240, NONE, NONE, true},
        {GB_TYPE_FLOAT8_E5M2, 8, 2, 0x7b, 0x1p-16, 57344, 0x7c, 0x7d, false},
        {GB_TYPE_FLOAT8_E5M2FNUZ, 8, 2, 0x7f, 0x1p-17, 57344, NONE, NONE, true},
        {GB_TYPE_FLOAT6_E2M3FN, 6, 3, 0x1f, 0x1p-3, 7.5, NONE, NONE, false},
        {GB_TYPE_FLOAT6_E3M2FN, 6, 2, 0x1f, 0x1p-4, 28, NONE, NONE, false},
        {GB_TYPE_FLOAT4_E2M1FN, 4, 1, 0x7, 0.5, 6, NONE, NONE, false},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        unsigned sign = 1u << (rows[i].bits - 1), run = 1u << rows[i].mantissa;
        double expected = 0, step = rows[i].smallest;

        for (unsigned bits = 0; bits < sign; bits++) {
            double value = gb_small_float_value(rows[i].type, (uint8_t)bits);
            double negative = gb_small_float_value(rows[i].type, (uint8_t)(bits | sign));

            expected += bits == 0 ? 0 : step;
            if (bits >= 2 * run && bits % run == 0)
                step *= 2;
            gb_format_small_float(rows[i].type, (uint8_t)bits, text);
            if (bits >= rows[i].first_nan) {
                assert_true(isnan(value) && isnan(negative));
                assert_string_equal(text, "nan");
            } else if (bits == rows[i].infinity) {
                assert_true(value == (double)INFINITY && negative == (double)-INFINITY);
                assert_string_equal(text, "inf");
            } else {
                assert_true(value == expected && !signbit(value));
                assert_true((double)strtof(text, NULL) == value);
                if (bits == 0 && rows[i].zero_nan)
                    assert_true(isnan(negative));
                else
                    assert_true(negative == -expected && signbit(negative));
            }
            if (bits == rows[i].most)
                assert_true(value == rows[i].largest);
        }
    }
}

/* No sign, no mantissa, no zero: powers of two alone, and one NaN. */
TEST(test_float8_e8m0fnu)
{
    for (unsigned bits = 0; bits < 255; bits++) {
        double expected = ldexp(1, (int)bits - 127);

        assert_true(gb_small_float_value(GB_TYPE_FLOAT8_E8M0FNU, (uint8_t)bits) == expected);
        gb_format_small_float(GB_TYPE_FLOAT8_E8M0FNU, (uint8_t)bits, text);
        assert_true((double)strtof(text, NULL) == expected);
    }
    assert_true(isnan(gb_small_float_value(GB_TYPE_FLOAT8_E8M0FNU, 255)));
}

TEST(test_every_short_float)
{
    for (uint32_t bits = 0; bits <= UINT16_MAX; bits++) {
        uint16_t magnitude = bits & 0x7fff;
        if (magnitude < 0x7c00) {
            gb_format_float16((uint16_t)bits, text);
            assert_int_equal(
                nearest(strtod(text, NULL), gb_float16_value, 0x7c00) | (bits & 0x8000), bits);
        }
        if (magnitude < 0x7f80) {
            gb_format_bfloat16((uint16_t)bits, text);
            assert_int_equal(nearest(strtod(text, NULL), bfloat16_value, 0x7f80) | (bits & 0x8000),
                             bits);
        }
    }
    gb_format_float16(0x3c00, text);
    assert_string_equal(text, "1.0");
    gb_format_float16(0x2e66, text);
    assert_string_equal(text, "0.1");
    gb_format_float16(0x7bff, text);
    assert_string_equal(text, "65500.0");
    gb_format_float16(0x8000, text);
    assert_string_equal(text, "-0.0");
    gb_format_float16(0x7c00, text);
    assert_string_equal(text, "inf");
    gb_format_float16(0xfc00, text);
    assert_string_equal(text, "-inf");
    gb_format_float16(0x7e00, text);
    assert_string_equal(text, "nan");
    gb_format_bfloat16(0x3f80, text);
    assert_string_equal(text, "1.0");
}

static void check_date(int64_t days, const char *expected)
{
    gb_format_date(days, text);
    assert_string_equal(text, expected);
}

TEST(test_dates)
{
    check_date(0, "1970-01-01");
    check_date(-1, "1969-12-31");
    check_date(11016, "2000-02-29");
    check_date(11017, "2000-03-01");
    check_date(47540, "2100-02-28");
    check_date(47541, "2100-03-01");
    check_date(-719528, "0000-01-01");
    check_date(-719529, "-0001-12-31");
    check_date(2932896, "9999-12-31");
    check_date(2932897, "+10000-01-01");
    gb_format_date(INT64_MAX, text); /* no overflow */
    gb_format_date(INT64_MIN, text);

    /* Every day of 800 years follows the one before it. */
    int year = 1600, month = 1, day = 1;
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    for (int64_t i = -135140; year < 2400; i++) {
        char expected[64];
        (void)snprintf(expected, sizeof(expected), "%04d-%02d-%02d", year, month, day);
        check_date(i, expected);
        bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        if (++day > lengths[month - 1] + (leap && month == 2)) {
            day = 1;
            month++;
        }
        if (month > 12) {
            month = 1;
            year++;
        }
    }
}

TEST(test_times)
{
    gb_format_time(0, GB_UNIT_S, text);
    assert_string_equal(text, "00:00:00");
    gb_format_time(86399999, GB_UNIT_MS, text);
    assert_string_equal(text, "23:59:59.999");
    gb_format_time(1, GB_UNIT_NS, text);
    assert_string_equal(text, "00:00:00.000000001");
    gb_format_time(-1, GB_UNIT_S, text);
    assert_string_equal(text, "-1");
    gb_format_timestamp(1325376000, GB_UNIT_S, false, text);
    assert_string_equal(text, "2012-01-01T00:00:00");
    gb_format_timestamp(1325376000123456, GB_UNIT_US, true, text);
    assert_string_equal(text, "2012-01-01T00:00:00.123456Z");
    gb_format_timestamp(-1, GB_UNIT_MS, false, text);
    assert_string_equal(text, "1969-12-31T23:59:59.999");
    gb_format_timestamp(INT64_MIN, GB_UNIT_NS, true, text);
    assert_string_equal(text, "NaT");
    gb_format_timestamp(INT64_MAX, GB_UNIT_S, true, text);
    gb_format_timestamp(INT64_MIN + 1, GB_UNIT_S, true, text);
    gb_format_duration(1500, GB_UNIT_MS, text);
    assert_string_equal(text, "PT1.500S");
    gb_format_duration(-90, GB_UNIT_S, text);
    assert_string_equal(text, "-PT90S");
    gb_format_duration(INT64_MIN + 1, GB_UNIT_NS, text);
    assert_string_equal(text, "-PT9223372036.854775807S");
}

static void check_decimal(int64_t high, uint64_t low, int scale, const char *expected)
{
    uint64_t words[2] = {low, (uint64_t)high};

    size_t length = gb_format_decimal128(words, scale, text);
    assert_int_equal(length, strlen(text));
    assert_string_equal(text, expected);
}

TEST(test_decimals)
{
    check_decimal(0, 0, 0, "0");
    check_decimal(0, 12345, 2, "123.45");
    check_decimal(0, 5, 2, "0.05");
    check_decimal(0, 0, 3, "0.000");
    check_decimal(-1, (uint64_t)-5, 2, "-0.05");
    check_decimal(0, 12, -3, "12000");
    check_decimal(0, 0, -3, "0");
    check_decimal(INT64_MIN, 0, 0, "-170141183460469231731687303715884105728");
    check_decimal(INT64_MAX, UINT64_MAX, 38, "1.70141183460469231731687303715884105727");
    check_decimal(INT64_MIN, 0, -38,
                  "-17014118346046923173168730371588410572800000000000000000000000000000000000000");
}

/* ---- what people type ---- */

TEST(test_parsing_numbers)
{
    struct gb_error error;
    int64_t value, ms, mode;

    assert_int_equal(gb_parse_count("4503599627370495", &value, &error), 0);
    assert_true(value == 4503599627370495);
    static const char *const counts[] = {
        "", "-1", "1x", "4503599627370496", "0x1", " 1", "99999999999999999999"};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        assert_int_equal(gb_parse_count(counts[i], &value, &error), GPUBUF_E_INVALID);

    assert_int_equal(gb_parse_version("1", &value, &error), 0);
    assert_int_equal(gb_parse_version("0", &value, &error), GPUBUF_E_INVALID);

    assert_int_equal(gb_parse_bytes("1.5G", &value, &error), 0);
    assert_true(value == 1610612736);
    assert_int_equal(gb_parse_bytes("64KiB", &value, &error), 0);
    assert_true(value == 65536);
    assert_int_equal(gb_parse_bytes("12b", &value, &error), GPUBUF_E_INVALID);
    assert_int_equal(gb_parse_bytes("12B", &value, &error), 0);
    static const char *const sizes[] = {"",         "K",   "-1",  "1.1", "1X",
                                        "9999999P", "nan", "1e9", "0x1"};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        assert_int_equal(gb_parse_bytes(sizes[i], &value, &error), GPUBUF_E_INVALID);

    static const struct {
        const char *typed;
        int64_t ms;
    } spans[] = {{"90", 90000},    {"1.5s", 1500},  {"500ms", 500},   {"5m", 300000},
                 {"5min", 300000}, {"2h", 7200000}, {"1d", 86400000}, {"0", 0}};
    for (size_t i = 0; i < sizeof(spans) / sizeof(spans[0]); i++) {
        assert_int_equal(gb_parse_duration(spans[i].typed, &ms, &error), 0);
        assert_true(ms == spans[i].ms);
    }
    assert_int_equal(gb_parse_duration("5 minutes", &ms, &error), GPUBUF_E_INVALID);
    assert_int_equal(gb_parse_duration("-5s", &ms, &error), GPUBUF_E_INVALID);
    assert_int_equal(gb_parse_duration("99999999999d", &ms, &error), GPUBUF_E_INVALID);

    assert_int_equal(gb_parse_mode("640", &mode, &error), 0);
    assert_int_equal(mode, 0640);
    assert_int_equal(gb_parse_mode("0664", &mode, &error), 0);
    static const char *const modes[] = {"", "6", "64", "888", "777", "0o640", "000", "06400"};
    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++)
        assert_int_equal(gb_parse_mode(modes[i], &mode, &error), GPUBUF_E_INVALID);
}

TEST(test_parsing_shapes)
{
    struct gb_error error;
    uint64_t shape[GB_PARSE_NDIM];
    unsigned ndim;

    assert_int_equal(gb_parse_shape("3,4", shape, &ndim, &error), 0);
    assert_true(ndim == 2 && shape[0] == 3 && shape[1] == 4);
    assert_int_equal(gb_parse_shape("3x4x5", shape, &ndim, &error), 0);
    assert_true(ndim == 3 && shape[2] == 5);
    assert_int_equal(gb_parse_shape("7,", shape, &ndim, &error), 0);
    assert_int_equal(ndim, 1);
    assert_int_equal(gb_parse_shape("", shape, &ndim, &error), 0);
    assert_int_equal(ndim, 0);
    static const char *const wrong[] = {
        ",", "3,,4", "a", "-3", "3 4", "3x", "3.5", "9223372036854775808", "1,9223372036854775808"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(gb_parse_shape(wrong[i], shape, &ndim, &error), GPUBUF_E_INVALID);
    assert_non_null(strstr(error.message, "too large"));
    char many[128] = "";
    for (int i = 0; i < GB_PARSE_NDIM + 1; i++)
        strcat(many, "1,");
    assert_int_equal(gb_parse_shape(many, shape, &ndim, &error), GPUBUF_E_INVALID);
}

static void check_slice(const char *typed, uint64_t length, uint64_t offset, uint64_t count)
{
    struct gb_slice_text slice;
    struct gb_error error;
    uint64_t got_offset, got_count;

    assert_int_equal(gb_parse_slice(typed, &slice, &error), 0);
    gb_slice_resolve(&slice, length, &got_offset, &got_count);
    assert_int_equal(got_offset, offset);
    assert_int_equal(got_count, count);
}

TEST(test_slices)
{
    struct gb_slice_text slice;
    struct gb_error error;

    check_slice("2:5", 10, 2, 3);
    check_slice(":", 10, 0, 10);
    check_slice("7:", 10, 7, 3);
    check_slice(":3", 10, 0, 3);
    check_slice("-3:", 10, 7, 3);
    check_slice(":-3", 10, 0, 7);
    check_slice("-100:100", 10, 0, 10);
    check_slice("8:2", 10, 8, 0);
    check_slice("20:30", 10, 10, 0);
    check_slice("0:1", 0, 0, 0);
    static const char *const wrong[] = {
        "", "5", "a:b", "1:2:3", "1.5:2", "--1:", "4503599627370496:"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(gb_parse_slice(wrong[i], &slice, &error), GPUBUF_E_INVALID);
}

/* ---- text on a terminal ---- */

static void check_clean(const char *dirty, size_t length, const char *expected)
{
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    gb_text_clean(&writer, dirty, length);
    gb_write_char(&writer, '\0');
    assert_string_equal(writer.data, expected);
    gb_writer_end(&writer);
}

TEST(test_terminal_text)
{
    gb_term_init();
    check_clean("plain \xc3\xbc", 8, "plain \xc3\xbc");
    check_clean("a\nb\tc\rd", 7, "a\\nb\\tc\\rd");
    check_clean("\x1b[31m", 5, "\\x1b[31m");
    check_clean("\xff\xfe", 2, "\\xff\\xfe");
    check_clean("a\0b", 3, "a\\x00b");
    check_clean("\xc2\x9b"
                "2J",
                4, "\\u009b2J");
    check_clean("\xe2\x80\xae", 3, "\\u202e");
    assert_int_equal(gb_text_width("abc", 3), 3);
    assert_int_equal(gb_text_width("\xc3\xbc", 2), 1);
    assert_int_equal(gb_text_width("日本", 6), 4);
    assert_int_equal(gb_text_width("e\xcc\x81", 3), 1); /* a combining accent */
    assert_int_equal(gb_text_fit("日本", 6, 3), 3);
    assert_int_equal(gb_text_fit("abc", 3, 10), 3);
    assert_int_equal(gb_text_fit("abc", 3, 0), 0);
}

RUN_TESTS(NULL, NULL)
