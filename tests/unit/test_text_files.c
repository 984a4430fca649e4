/* JSON lines, and text of other encodings: in one piece and cut at every place. */
#include <stdlib.h>
#include <string.h>

#include "tests/cases.h"

#include "client/gpubufctl/decode.h"
#include "client/gpubufctl/json_table.h"

static const size_t steps[] = {1, 2, 3, 4, 5, 7, 11, 64, 4096};
#define STEPS (sizeof(steps) / sizeof(steps[0]))

/* Reads `text` in pieces of `step` bytes. */
static int read_lines(const char *text, size_t step, struct gb_json_lines **lines,
                      struct gb_error *error)
{
    size_t length = strlen(text), at = 0;
    int code = 0;

    assert_int_equal(gb_json_lines_new(lines, error), 0);
    do {
        size_t count = length - at < step ? length - at : step;
        bool last = at + count == length;
        code = gb_json_lines_feed(*lines, text + at, count, last, error);
        at += count;
    } while (code == 0 && at < length);
    return code == 0 ? gb_json_lines_settle(*lines, error) : code;
}

TEST(test_lines)
{
    static const char text[] = "\xef\xbb\xbf{\"a\": 1, \"t\": \"x\\u00e4\"}\r\n\n"
                               "{\"t\": null, \"b\": true, \"a\": -2}\n  {\"c\":1.5}";
    for (size_t i = 0; i < STEPS; i++) {
        struct gb_json_lines *lines;
        struct gb_error error;
        if (read_lines(text, steps[i], &lines, &error) != 0)
            fail_msg("in pieces of %zu: %s", steps[i], error.message);
        const struct gb_csv_table *table = gb_json_lines_table(lines);
        static const struct {
            const char *name;
            enum gb_csv_type type;
            uint64_t nulls;
        } expected[] = {{"a", GB_CSV_INT64, 1},
                        {"t", GB_CSV_UTF8, 2},
                        {"b", GB_CSV_BOOL, 2},
                        {"c", GB_CSV_FLOAT64, 2}};
        assert_int_equal(table->rows, 3);
        assert_int_equal(table->column_count, 4);
        for (size_t k = 0; k < 4; k++) {
            assert_string_equal(table->columns[k].name, expected[k].name);
            assert_int_equal(gb_csv_column_type(&table->columns[k]), expected[k].type);
            assert_int_equal(table->columns[k].nulls, expected[k].nulls);
            assert_int_equal(table->columns[k].rows, 3);
        }
        assert_int_equal(table->columns[1].text_bytes, 3);
        assert_memory_equal(table->columns[1].text, "x\xc3\xa4", 3);
        gb_json_lines_free(lines);
    }
}

TEST(test_bad_lines)
{
    static const char *const cases[][2] = {
        {"{\"a\":1}\n{\"a\":}\n", "line 2, byte 5"},
        {"{\"a\":1}\r\n\r\n[]\n", "line 3: an array"},
        {"{\"a\":1,\"a\":1}", "line 1: a: occurs twice"},
        {"{\"a\":1}\n{\"a\":\"1\"}", "line 2, \"a\": a string, where lines before have a number"},
        {"{\"a\":{}}", "line 1: a: an object"},
        {"\n\n", "no columns"},
        {"", "no columns"},
    };

    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++)
        for (size_t i = 0; i < STEPS; i++) {
            struct gb_json_lines *lines;
            struct gb_error error;
            assert_int_equal(read_lines(cases[k][0], steps[i], &lines, &error), GPUBUF_E_INVALID);
            if (!strstr(error.message, cases[k][1]))
                fail_msg("%s: %s", cases[k][0], error.message);
            gb_json_lines_free(lines);
        }
}

/* ---- encodings ---- */

struct taken {
    char text[256];
    size_t length;
    unsigned ends;
};

static int take(void *arg, const char *bytes, size_t length, bool last, struct gb_error *error)
{
    struct taken *taken = arg;

    (void)error;
    assert_int_equal(taken->ends, 0);
    assert_true(taken->length + length <= sizeof(taken->text));
    memcpy(taken->text + taken->length, bytes, length);
    taken->length += length;
    taken->ends += last;
    return 0;
}

static int decode(const char *encoding, const char *bytes, size_t length, size_t step,
                  struct taken *taken, struct gb_error *error)
{
    struct gb_decoder *decoder;
    size_t at = 0;
    int code = 0;

    *taken = (struct taken){.length = 0};
    assert_int_equal(gb_decoder_new(&decoder, encoding, error), 0);
    do {
        size_t count = length - at < step ? length - at : step;
        code =
            gb_decoder_feed(decoder, bytes + at, count, at + count == length, take, taken, error);
        at += count;
    } while (code == 0 && at < length);
    gb_decoder_free(decoder);
    return code;
}

TEST(test_encodings)
{
    static const struct {
        const char *encoding, *bytes;
        size_t length;
        const char *text;
    } cases[] = {
        {"latin1", "K\xf6ln\n\xe9", 6, "K\xc3\xb6ln\n\xc3\xa9"},
        {"utf-16le", "a\0\xac\x20=\xd8\0\xde", 8, "a\xe2\x82\xac\xf0\x9f\x98\x80"},
        {"utf-16", "\xfe\xff\0a\0\n", 6, "a\n"},
        {"utf-8", "\xe2\x82\xac", 3, "\xe2\x82\xac"},
        {"gb18030", "\x95\x32\x82\x36", 4, "\xf0\xa0\x80\x80"},
        {"latin1", "", 0, ""},
    };

    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++)
        for (size_t i = 0; i < STEPS; i++) {
            struct taken taken;
            struct gb_error error;
            assert_int_equal(decode(cases[k].encoding, cases[k].bytes, cases[k].length, steps[i],
                                    &taken, &error),
                             0);
            assert_int_equal(taken.length, strlen(cases[k].text));
            assert_memory_equal(taken.text, cases[k].text, taken.length);
            assert_int_equal(taken.ends, 1);
        }
}

TEST(test_bytes_that_are_none)
{
    static const struct {
        const char *encoding, *bytes;
        size_t length;
        const char *sentence;
    } cases[] = {
        {"ascii", "ab\nc\xe9", 5, "line 2, byte 4: not ascii text"},
        {"utf-8", "a\n\n\xe2\x82", 5, "line 3, byte 3: a character of utf-8 that does not end"},
        {"utf-16le",
         "a\0\n\0\0\xde"
         "b\0",
         8, "line 2, byte 4: not utf-16le text"},
        {"utf-16le", "a\0b", 3, "line 1, byte 2: a character of utf-16le that does not end"},
    };

    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++)
        for (size_t i = 0; i < STEPS; i++) {
            struct taken taken;
            struct gb_error error;
            assert_int_equal(decode(cases[k].encoding, cases[k].bytes, cases[k].length, steps[i],
                                    &taken, &error),
                             GPUBUF_E_INVALID);
            assert_string_equal(error.message, cases[k].sentence);
        }
    struct gb_decoder *decoder;
    struct gb_error error;
    assert_int_equal(gb_decoder_new(&decoder, "klingon", &error), GPUBUF_E_INVALID);
}

RUN_TESTS(NULL, NULL)
