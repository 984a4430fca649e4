/* json: reading through tables: values, every refusal and its sentence, every allocation failed. */
#include "tests/cases.h"

#include "failing.h"

#include "proto/base/limits.h"
#include "proto/base/pool.c"
#include "proto/wire/json.h"

struct thing {
    struct gb_string name;
    uint64_t count, any_count;
    int64_t shift, any_shift;
    bool on;
    struct gb_json object, list, what;
};

static const struct gb_field fields[] = {
    GB_FIELD(struct thing, name, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 8),
    GB_FIELD(struct thing, count, GB_FIELD_UINT, 0, 2, 10),
    GB_FIELD(struct thing, any_count, GB_FIELD_UINT, 0, 0, 0),
    GB_FIELD(struct thing, shift, GB_FIELD_INT, 0, -3, 3),
    GB_FIELD(struct thing, any_shift, GB_FIELD_INT, 0, 0, 0),
    GB_FIELD(struct thing, on, GB_FIELD_BOOL, 0, 0, 0),
    GB_FIELD(struct thing, object, GB_FIELD_OBJECT, 0, 0, 0),
    GB_FIELD(struct thing, list, GB_FIELD_ARRAY, 0, 0, 3),
    GB_FIELD(struct thing, what, GB_FIELD_ANY, 0, 0, 0),
};
enum { FIELDS = sizeof(fields) / sizeof(fields[0]) };

static const struct gb_path params_path = {.key = "params"};

/* The structs that a test reads into. The text lies in a block of exactly its size. */
struct reading {
    char *text;
    struct gb_pool pool;
    struct thing thing;
    uint64_t present;
    struct gb_error error;
};

static struct gb_json checked(struct reading *reading, const char *text)
{
    size_t length = strlen(text);
    free(reading->text);
    reading->text = malloc(length);
    assert_non_null(reading->text);
    memcpy(reading->text, text, length);
    struct gb_json value;
    struct gb_error error;
    if (gb_json_check(reading->text, length, &reading->pool, &value, &error) < 0)
        fail_msg("%s: %s", text, error.message);
    return value;
}

static int read_thing(struct reading *reading, const char *text, enum gb_unknown unknown)
{
    return gb_json_read(checked(reading, text), fields, FIELDS, unknown, &params_path,
                        &reading->pool, &reading->thing, &reading->present, &reading->error);
}

static void reading_end(struct reading *reading)
{
    free(reading->text);
    gb_pool_end(&reading->pool);
    *reading = (struct reading){0};
}

static void assert_span(struct gb_json span, const char *expected)
{
    assert_non_null(span.text);
    assert_int_equal(gb_json_length(span), strlen(expected));
    assert_memory_equal(span.text, expected, strlen(expected));
}

static void assert_string(struct gb_string string, const char *expected)
{
    assert_non_null(string.text);
    assert_string_equal(string.text, expected);
    assert_int_equal(string.length, strlen(expected));
}

TEST(test_all_types)
{
    struct reading r = {0};
    assert_int_equal(read_thing(&r,
                                "{\"name\":\"price\",\"count\":10,\"any_count\":4503599627370495,"
                                "\"shift\":-3,\"any_shift\":-4503599627370495,\"on\":true,"
                                "\"object\":{\"a\":1},\"list\":[1,[2,3],4],\"what\":null}",
                                GB_UNKNOWN_REFUSE),
                     0);
    assert_int_equal(r.present, (1 << FIELDS) - 1);
    assert_string(r.thing.name, "price");
    assert_int_equal(r.thing.count, 10);
    assert_int_equal(r.thing.any_count, 4503599627370495);
    assert_int_equal(r.thing.shift, -3);
    assert_true(r.thing.any_shift == -4503599627370495);
    assert_true(r.thing.on);
    assert_span(r.thing.object, "{\"a\":1}");
    assert_span(r.thing.list, "[1,[2,3],4]");
    assert_span(r.thing.what, "null");
    reading_end(&r);
}

TEST(test_any_order_and_absent)
{
    struct reading r = {.thing = {.count = 77, .on = true}};
    assert_int_equal(read_thing(&r, " { \"what\" : \"x\" , \"shift\" : 0 ,\n\"name\" : \"\" } ",
                                GB_UNKNOWN_REFUSE),
                     0);
    assert_int_equal(r.present, 1 << 8 | 1 << 3 | 1 << 0);
    assert_string(r.thing.name, "");
    assert_span(r.thing.what, "\"x\"");
    assert_int_equal(r.thing.count, 77);
    assert_true(r.thing.on);
    assert_null(r.thing.list.text);
    reading_end(&r);

    /* An absent object reads as an empty one does. */
    assert_int_equal(gb_json_read((struct gb_json){0}, fields, FIELDS, GB_UNKNOWN_REFUSE,
                                  &params_path, &r.pool, &r.thing, NULL, &r.error),
                     GPUBUF_E_INVALID);
    assert_string_equal(r.error.message, "params.name: missing");
    assert_int_equal(gb_json_read((struct gb_json){0}, fields + 1, FIELDS - 1, GB_UNKNOWN_REFUSE,
                                  &params_path, &r.pool, &r.thing, &r.present, &r.error),
                     0);
    assert_int_equal(r.present, 0);
}

TEST(test_refusals)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"[]", "params: expected an object, found an array"},
        {"3", "params: expected an object, found a number"},
        {"{}", "params.name: missing"},
        {"{\"count\":3}", "params.name: missing"},
        {"{\"nam\":\"a\"}", "params.nam: unknown member"},
        {"{\"names\":\"a\"}", "params.names: unknown member"},
        {"{\"Name\":\"a\"}", "params.Name: unknown member"},
        {"{\"\":\"a\"}", "params.: unknown member"},
        {"{\"x\\u0079\":1}", "params.xy: unknown member"},
        {"{\"name\":\"a\",\"name\":\"a\"}", "params.name: occurs twice"},
        {"{\"name\":\"a\",\"on\":true,\"n\\u0061me\":\"a\"}", "params.name: occurs twice"},
        {"{\"name\":4}", "params.name: expected a string, found a number"},
        {"{\"name\":null}", "params.name: expected a string, found null"},
        {"{\"name\":\"123456789\"}", "params.name: expected a string of at most 8 bytes, found 9"},
        {"{\"name\":\"\\u6c34\\u6c34\\u6c34\"}",
         "params.name: expected a string of at most 8 bytes, found 9"},
        {"{\"count\":1}", "params.count: expected an integer from 2 to 10, found 1"},
        {"{\"count\":11}", "params.count: expected an integer from 2 to 10, found 11"},
        {"{\"count\":-5}", "params.count: expected an integer from 2 to 10, found -5"},
        {"{\"count\":\"5\"}", "params.count: expected an integer, found a string"},
        {"{\"count\":5.0}",
         "params.count: expected an integer without fraction or exponent, found 5.0"},
        {"{\"count\":5e0}",
         "params.count: expected an integer without fraction or exponent, found 5e0"},
        {"{\"any_count\":4503599627370496}",
         "params.any_count: expected an integer from 0 to 4503599627370495, found "
         "4503599627370496"},
        {"{\"any_count\":18446744073709551616}",
         "params.any_count: expected an integer from 0 to 4503599627370495, found "
         "18446744073709551616"},
        {"{\"any_count\":12345678901234567890123456789012345}",
         "params.any_count: expected an integer from 0 to 4503599627370495, found "
         "12345678901234567890123456789012…"},
        {"{\"shift\":4}", "params.shift: expected an integer from -3 to 3, found 4"},
        {"{\"shift\":true}", "params.shift: expected an integer, found a boolean"},
        {"{\"any_shift\":-4503599627370496}",
         "params.any_shift: expected an integer from -4503599627370495 to 4503599627370495, found "
         "-4503599627370496"},
        {"{\"on\":1}", "params.on: expected true or false, found a number"},
        {"{\"object\":[]}", "params.object: expected an object, found an array"},
        {"{\"list\":{}}", "params.list: expected an array, found an object"},
        {"{\"list\":[1,2,3,4]}", "params.list: expected at most 3 elements"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct reading r = {0};
        assert_int_equal(read_thing(&r, bad[i].text, GB_UNKNOWN_REFUSE), GPUBUF_E_INVALID);
        assert_int_equal(r.error.code, GPUBUF_E_INVALID);
        assert_string_equal(r.error.message, bad[i].message);
        assert_int_equal(r.present, 0);
        reading_end(&r);
    }
}

TEST(test_unknown_ignored)
{
    struct reading r = {0};
    assert_int_equal(read_thing(&r,
                                "{\"x\":{\"name\":1},\"x\":2,\"\\u0078\":3,\"n\\u0061me\":\"ok\","
                                "\"count\":2}",
                                GB_UNKNOWN_IGNORE),
                     0);
    assert_string(r.thing.name, "ok");
    assert_int_equal(r.thing.count, 2);
    /* A known member is not to be there twice all the same. */
    assert_int_equal(read_thing(&r, "{\"x\":1,\"name\":\"a\",\"name\":\"a\"}", GB_UNKNOWN_IGNORE),
                     GPUBUF_E_INVALID);
    reading_end(&r);
}

TEST(test_integers)
{
    struct reading r = {0};
    uint64_t u = 99;
    int64_t n = 99;
    struct {
        const char *text;
        bool is_uint, is_int;
        uint64_t u;
        int64_t n;
    } numbers[] = {
        {"0", true, true, 0, 0},
        {"-0", true, true, 0, 0},
        {"999999999999999999", true, true, 999999999999999999, 999999999999999999},
        {"1000000000000000000", true, true, 1000000000000000000, 1000000000000000000},
        {"9223372036854775807", true, true, INT64_MAX, INT64_MAX},
        {"9223372036854775808", true, false, UINT64_C(1) << 63, 0},
        {"18446744073709551615", true, false, UINT64_MAX, 0},
        {"18446744073709551616", false, false, 0, 0},
        {"184467440737095516150", false, false, 0, 0},
        {"-1", false, true, 0, -1},
        {"-9223372036854775808", false, true, 0, INT64_MIN},
        {"-9223372036854775809", false, false, 0, 0},
        {"1.0", false, false, 0, 0},
        {"1e3", false, false, 0, 0},
        {"1000000000000000000.5", false, false, 0, 0},
        {"\"1\"", false, false, 0, 0},
    };
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        struct gb_json value = checked(&r, numbers[i].text);
        u = 99;
        n = 99;
        int rc = gb_json_uint(value, 0, UINT64_MAX, NULL, &u, &r.error);
        assert_int_equal(rc, numbers[i].is_uint ? 0 : GPUBUF_E_INVALID);
        assert_true(u == (numbers[i].is_uint ? numbers[i].u : 99));
        rc = gb_json_int(value, INT64_MIN, INT64_MAX, NULL, &n, &r.error);
        assert_int_equal(rc, numbers[i].is_int ? 0 : GPUBUF_E_INVALID);
        assert_true(n == (numbers[i].is_int ? numbers[i].n : 99));
    }
    assert_int_equal(gb_json_uint((struct gb_json){0}, 0, 1, NULL, &u, &r.error), GPUBUF_E_INVALID);
    assert_string_equal(r.error.message, "expected an integer, found nothing");
    reading_end(&r);
}

TEST(test_strings)
{
    static const struct {
        const char *text, *meaning;
    } strings[] = {
        {"\"\"", ""},
        {"\"plain and longer than a step of the scanner\"",
         "plain and longer than a step of the scanner"},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t"},
        {"\"\\u0001\\u007f\\u0080\\u07FF\\u0800\\uffff\"",
         "\x01\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf"},
        {"\"\\ud800\\udc00\\uDBFF\\uDFFF\"", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"},
        {"\"é\\n水\"", "é\n水"},
    };
    struct reading r = {0};
    struct gb_string string;
    for (size_t i = 0; i < sizeof(strings) / sizeof(strings[0]); i++) {
        struct gb_json value = checked(&r, strings[i].text);
        assert_int_equal(gb_json_string(value, 0, NULL, &r.pool, &string, &r.error), 0);
        assert_string(string, strings[i].meaning);
    }
    string = (struct gb_string){0};
    assert_int_equal(gb_json_string(checked(&r, "[\"a\"]"), 0, NULL, &r.pool, &string, &r.error),
                     GPUBUF_E_INVALID);
    assert_string_equal(r.error.message, "expected a string, found an array");
    assert_int_equal(gb_json_string((struct gb_json){0}, 0, NULL, &r.pool, &string, NULL),
                     GPUBUF_E_INVALID);
    assert_null(string.text);
    reading_end(&r);
}

/* ---- every allocation failed ---- */

static int read_much(struct reading *r, char *text)
{
    struct gb_json value;
    int checked = gb_json_check(text, strlen(text), &r->pool, &value, &r->error);
    if (checked < 0)
        return checked;
    for (int i = 0; i < 9; i++) {
        int rc = gb_json_read(value, fields, FIELDS, GB_UNKNOWN_IGNORE, &params_path, &r->pool,
                              &r->thing, &r->present, &r->error);
        if (rc < 0)
            return rc;
        struct gb_string string;
        rc = gb_json_string(r->thing.what, 0, NULL, &r->pool, &string, &r->error);
        if (rc < 0)
            return rc;
    }
    return 0;
}

TEST(test_no_memory)
{
    enum { LONG = 70000 };
    char *text = malloc(LONG + 64);
    static const char head[] = "{\"\\u0078\":1,\"name\":\"a\",\"what\":\"";
    size_t start = sizeof(head) - 1;
    memcpy(text, head, start);
    memset(text + start, 'w', LONG);
    memcpy(text + start + LONG, "\"}", 3);
    long before = failing_blocks;

    for (size_t n = 1;; n++) {
        struct reading r = {0};
        failing_from(n, 1);
        int rc = read_much(&r, text);
        size_t calls = failing_calls;
        failing_from(0, 0);
        if (rc == 0)
            assert_true(calls < n && n > 3);
        else
            assert_int_equal(rc, GPUBUF_E_NO_MEMORY);
        if (rc < 0)
            assert_string_equal(r.error.message, "the process is out of memory");
        assert_int_equal(rc < 0 ? read_much(&r, text) : 0, 0); /* the pool is still good */
        reading_end(&r);
        assert_int_equal(failing_blocks, before);
        if (rc == 0)
            break;
    }
    free(text);

    struct reading r = {0};
    struct gb_json value = checked(&r, "{\"oddly named\":1}");
    struct gb_pool empty = {0};
    failing_from(1, 1);
    assert_int_equal(
        gb_json_read(value, fields, FIELDS, GB_UNKNOWN_REFUSE, NULL, &empty, &r.thing, NULL, NULL),
        GPUBUF_E_NO_MEMORY);
    failing_from(0, 0);
    reading_end(&r);
}

RUN_TESTS(NULL, NULL)
