/* json: writing, its bound, what is read back, base64. */
#include <float.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>

#include "tests/cases.h"

#include "proto/wire/json.h"
#include "random.h"

static void assert_written(struct gb_writer *writer, const char *expected)
{
    size_t length = 0;
    char *text = gb_writer_take(writer, &length);
    assert_non_null(text);
    assert_string_equal(text, expected);
    assert_int_equal(length, strlen(expected));
    free(text);
    assert_null(writer->data);
    assert_int_equal(writer->length, 0);
}

TEST(test_integers)
{
    struct gb_writer writer;
    gb_writer_init(&writer, 0);
    uint64_t power = 1;
    for (unsigned digits = 1; digits <= 20; digits++, power *= 10) {
        const uint64_t values[] = {power - 1, power, power + 1, power * 9 / 5};
        for (size_t i = 0; i < 4; i++) {
            char expected[64];
            snprintf(expected, sizeof(expected), "%llu %lld", (unsigned long long)values[i],
                     (long long)values[i]);
            gb_write_uint(&writer, values[i]);
            gb_write_char(&writer, ' ');
            gb_write_int(&writer, (int64_t)values[i]);
            assert_written(&writer, expected);
        }
    }
    gb_write_uint(&writer, UINT64_MAX);
    assert_written(&writer, "18446744073709551615");
    gb_write_int(&writer, INT64_MIN);
    assert_written(&writer, "-9223372036854775808");
    gb_write_bool(&writer, true);
    gb_write_bool(&writer, false);
    assert_written(&writer, "truefalse");
}

TEST(test_patterns)
{
    const char *volatile none = NULL; /* the compiler warns of a NULL that it sees */
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    gb_write_pattern(&writer,
                     "{'name':%s,'none':%s,'part':%.*s,'n':[%" PRIu64 ",%" PRId64 ",%u,%d,%" PRIu32
                     "],'mode':'%04o','a':%i,'b':%i}",
                     "a\"\n", none, 2, "xyz", UINT64_MAX, INT64_MIN, 7u, -8, UINT32_MAX, 0644u,
                     true, 0);
    assert_written(&writer, "{\"name\":\"a\\\"\\n\",\"none\":null,\"part\":\"xy\","
                            "\"n\":[18446744073709551615,-9223372036854775808,7,-8,4294967295],"
                            "\"mode\":\"0644\",\"a\":true,\"b\":false}");
    gb_write_pattern(&writer, "null");
    assert_written(&writer, "null");
    gb_writer_end(&writer);
}

static void assert_double(double value)
{
    struct gb_writer writer;
    gb_writer_init(&writer, 0);
    gb_write_double(&writer, value);
    char *text = gb_writer_take(&writer, NULL);
    struct gb_pool pool = {0};
    struct gb_json checked;
    assert_int_equal(gb_json_check(text, strlen(text), &pool, &checked, NULL), 0);
    assert_int_equal(gb_json_type(checked), GB_JSON_NUMBER);
    gb_pool_end(&pool);
    double read = strtod(text, NULL);
    assert_memory_equal(&read, &value, sizeof(value));
    free(text);
}

TEST(test_doubles)
{
    static const struct {
        double value;
        const char *text;
    } known[] = {
        {0, "0"},           {-0.0, "-0"},
        {1, "1"},           {0.1, "0.1"},
        {-2.5, "-2.5"},     {1e100, "1e+100"},
        {NAN, "null"},      {-INFINITY, "null"},
        {INFINITY, "null"}, {1.0 / 3, "0.3333333333333333"},
    };
    struct gb_writer writer;
    gb_writer_init(&writer, 0);
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        gb_write_double(&writer, known[i].value);
        assert_written(&writer, known[i].text);
    }
    assert_double(DBL_MAX);
    assert_double(-DBL_MIN);
    assert_double(5e-324);
    struct test_random random = {.state = 3};
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = test_random_next(&random);
        double value;
        memcpy(&value, &bits, sizeof(value));
        if (isfinite(value))
            assert_double(value);
    }
}

/* Where the locale's decimal point is a comma, JSON's is not. Skipped without such a locale. */
TEST(test_doubles_in_a_locale)
{
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "ps_AF.UTF-8"};
    const char *found = NULL;
    for (size_t i = 0; found == NULL && i < 4; i++)
        found = setlocale(LC_NUMERIC, names[i]);
    if (found == NULL) {
        print_message("skipped: no locale with a decimal comma is installed\n");
        skip();
    }
    struct gb_writer writer;
    gb_writer_init(&writer, 0);
    gb_write_double(&writer, -2.5e-10);
    setlocale(LC_NUMERIC, "C");
    assert_written(&writer, "-2.5e-10");
}

TEST(test_strings)
{
    static const struct {
        const char *text;
        size_t length;
        const char *written;
    } strings[] = {
        {"", 0, "\"\""},
        {"plain", 5, "\"plain\""},
        {"a\"b\\c/d", 7, "\"a\\\"b\\\\c/d\""},
        {"\b\f\n\r\t\x01\x1f\x7f", 8, "\"\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\""},
        {"é水𝄞", 9, "\"é水𝄞\""},
        {"a\0b", 3, "\"a\\ufffdb\""},
        {"a\xff\xc3", 3, "\"a\\ufffd\\ufffd\""},
        {"\xed\xa0\x80", 3, "\"\\ufffd\\ufffd\\ufffd\""},
        {"a long run of plain text, then a \" and on", 41,
         "\"a long run of plain text, then a \\\" and on\""},
    };
    struct gb_writer writer;
    gb_writer_init(&writer, 0);
    for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
        gb_write_string(&writer, strings[i].text, strings[i].length);
        assert_written(&writer, strings[i].written);
    }
    gb_write_cstring(&writer, "c\n");
    assert_written(&writer, "\"c\\n\"");
}

TEST(test_growth_and_format)
{
    struct gb_writer writer;
    gb_writer_init(&writer, 0);
    char *expected = malloc(400001);
    for (int i = 0; i < 100000; i++) {
        memcpy(expected + (size_t)i * 4, "abc;", 4);
        gb_write_format(&writer, "%s%c", "abc", ';');
    }
    expected[400000] = '\0';
    assert_true(writer.capacity < 2 * 400001);
    assert_written(&writer, expected);
    free(expected);

    /* A format that fills the buffer to its last byte, and one more. */
    for (int width = 510; width <= 514; width++) {
        gb_write_format(&writer, "%*d", width, 7);
        assert_int_equal(writer.length, width);
        assert_false(writer.failed);
        gb_writer_end(&writer);
    }
    assert_written(&writer, "");
    GB_WRITE_LITERAL(&writer, "lit");
    gb_write_text(&writer, "eral");
    gb_write(&writer, NULL, 0);
    gb_writer_reset(&writer);
    gb_write_char(&writer, 'x');
    assert_written(&writer, "x");
}

TEST(test_bound)
{
    struct gb_writer writer;
    gb_writer_init(&writer, 10);
    gb_write_text(&writer, "0123456789");
    assert_false(writer.failed);
    gb_write_text(&writer, "");
    assert_false(writer.failed);
    gb_write_char(&writer, 'a');
    assert_true(writer.failed);
    assert_int_equal(writer.length, 10);
    gb_writer_reset(&writer);
    gb_write_text(&writer, "012345678901");
    gb_write_text(&writer, "a"); /* fits, but comes after what is missing */
    assert_true(writer.failed);
    assert_int_equal(writer.length, 0);
    assert_null(gb_writer_take(&writer, NULL));
    assert_false(writer.failed);
    gb_write_format(&writer, "%s", "0123456789");
    assert_written(&writer, "0123456789");
    gb_write_format(&writer, "%s", "0123456789a");
    assert_true(writer.failed);
    gb_writer_reset(&writer);
    gb_write_cstring(&writer, "12345678");
    assert_false(writer.failed);
    gb_writer_reset(&writer);
    gb_write_cstring(&writer, "123456789");
    assert_true(writer.failed);
    gb_writer_end(&writer);
}

/* ---- base64 ---- */

TEST(test_base64)
{
    /* RFC 4648, section 10, and the ends of the alphabet. */
    static const char *const vectors[][2] = {
        {"", ""},
        {"f", "Zg=="},
        {"fo", "Zm8="},
        {"foo", "Zm9v"},
        {"foob", "Zm9vYg=="},
        {"fooba", "Zm9vYmE="},
        {"foobar", "Zm9vYmFy"},
        {"\xfb\xff\xbf", "+/+/"},
    };
    for (size_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
        size_t length = strlen(vectors[i][0]);
        char text[16], bytes[16];
        size_t written = gb_base64_encode(vectors[i][0], length, text);
        assert_int_equal(written, strlen(vectors[i][1]));
        assert_memory_equal(text, vectors[i][1], written);
        assert_int_equal(gb_base64_decode(text, written, bytes, length), length);
        assert_memory_equal(bytes, vectors[i][0], length);
        if (length > 0)
            assert_int_equal(gb_base64_decode(text, written, bytes, length - 1), -1);
    }
    struct test_random random = {.state = 1};
    for (size_t length = 0; length < 200; length++) {
        unsigned char data[200], back[200];
        char text[268];
        for (size_t i = 0; i < length; i++)
            data[i] = (unsigned char)test_random_next(&random);
        size_t written = gb_base64_encode(data, length, text);
        assert_int_equal(gb_base64_decode(text, written, back, sizeof(back)), length);
        assert_memory_equal(data, back, length);
    }
    static const char *const bad[] = {
        "Z",    "Zg",   "Zg=",  "Z===", "====", "Zm9v=",          "Zg==Zg==", "Zh==",
        "Zm9=", "Z g=", "Zm-_", "=Zg=", "Zg=a", "Zm9vZ\xc3\xa9=", "\nZg==",   "Zg==\n"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char bytes[16];
        assert_int_equal(gb_base64_decode(bad[i], strlen(bad[i]), bytes, sizeof(bytes)), -1);
    }
}

RUN_TESTS(NULL, NULL)
