/* json: what is accepted, what the refusal says, paths. fuzz_json.c compares what is
   read with what cJSON reads. */
#include "tests/cases.h"

#include "proto/base/limits.h"
#include "proto/wire/json.h"

/* A copy in a block of exactly its size, so that the sanitizer sees every byte read too far. */
static char *exact(const char *text, size_t length)
{
    char *copy = malloc(length > 0 ? length : 1);
    assert_non_null(copy);
    memcpy(copy, text, length);
    return copy;
}

static void assert_span(struct gb_json span, const char *expected)
{
    assert_non_null(span.text);
    assert_int_equal(gb_json_length(span), strlen(expected));
    assert_memory_equal(span.text, expected, strlen(expected));
}

/* ---- checking ---- */

static int check(const char *text, size_t length, struct gb_error *error)
{
    char *copy = exact(text, length);
    struct gb_pool pool = {0};
    struct gb_json value;
    int rc = gb_json_check(copy, length, &pool, &value, error);
    if (rc == 0) {
        assert_in_range(value.text - copy, 0, length - 1);
        assert_in_range(gb_json_length(value), 1, length - (size_t)(value.text - copy));
    }
    gb_pool_end(&pool);
    free(copy);
    return rc;
}

TEST(test_accepts)
{
    static const char *const good[] = {
        "{}",
        "[]",
        " \t\r\n[ ] ",
        "0",
        "-0",
        "-0.0e+00",
        "1E5",
        "123456789012345678901234567890.5e-300",
        "true",
        "false",
        "null",
        "\"\"",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uD834\\udd1e\"",
        "\"\x7f\"",
        "\"é水𝄞\"",
        "{\"\":{\"\":[{}]},\"\":0}",
        "[1,[2,{\"a\":[]}],\"]\",{\"}\":\"{\"}]",
        "{ \"a\" : 1 , \"b\" : [ 1 , 2 ] }",
    };
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct gb_error error = {0};
        int rc = check(good[i], strlen(good[i]), &error);
        if (rc != 0)
            fail_msg("%s: %s", good[i], error.message);
    }
    char *text = exact("  {\"a\":1} \r", 11);
    struct gb_pool pool = {0};
    struct gb_json value;
    assert_int_equal(gb_json_check(text, 11, &pool, &value, NULL), 0);
    assert_span(value, "{\"a\":1}");
    gb_pool_end(&pool);
    free(text);
}

TEST(test_refuses)
{
    static const struct {
        const char *text, *message;
    } bad[] = {
        {"", "byte 0: expected a value"},
        {"  ", "byte 2: expected a value"},
        {"{", "byte 1: expected a member's name in quotes"},
        {"{,}", "byte 1: expected a member's name in quotes"},
        {"{a:1}", "byte 1: expected a member's name in quotes"},
        {"{\"a\"}", "byte 4: expected ':' after a member's name"},
        {"{\"a\" 1}", "byte 5: expected ':' after a member's name"},
        {"{\"a\":}", "byte 5: expected a value"},
        {"{\"a\":", "byte 5: expected a value"},
        {"{\"a\":1", "byte 6: the object is not closed"},
        {"{\"a\":1,}", "byte 7: expected a member's name in quotes"},
        {"{\"a\":1]", "byte 6: expected ',' or '}' after a member"},
        {"{\"a\":1 \"b\":2}", "byte 7: expected ',' or '}' after a member"},
        {"[", "byte 1: expected a value"},
        {"[1", "byte 2: the array is not closed"},
        {"[1,]", "byte 3: expected a value"},
        {"[,1]", "byte 1: expected a value"},
        {"[1}", "byte 2: expected ',' or ']' after an element"},
        {"[1 2]", "byte 3: expected ',' or ']' after an element"},
        {"{}}", "byte 2: expected nothing after the value"},
        {"1 1", "byte 2: expected nothing after the value"},
        {"\"a", "byte 2: the string is not closed"},
        {"\"\\", "byte 2: the string is not closed"},
        {"\"a\\\"", "byte 4: the string is not closed"},
        {"\"\\x\"", "byte 1: unknown escape in a string"},
        {"\"\\u12g4\"", "byte 1: expected four hexadecimal digits after \\u"},
        {"\"\\u12", "byte 1: expected four hexadecimal digits after \\u"},
        {"\"\\ud800\"", "byte 1: half of a surrogate pair in a string"},
        {"\"\\ud800\\u0041\"", "byte 1: half of a surrogate pair in a string"},
        {"\"\\ud800\\ud800\"", "byte 1: half of a surrogate pair in a string"},
        {"\"\\udc00\"", "byte 1: half of a surrogate pair in a string"},
        {"\"\\udbff\\", "byte 1: half of a surrogate pair in a string"},
        {"\"a\tb\"", "byte 2: control character in a string; it must be escaped"},
        {"\"0123456789abcdef\x1f\"", "byte 17: control character in a string; it must be escaped"},
        {"\"\xff\"", "byte 1: not UTF-8"},
        {"\"\xc3", "byte 1: not UTF-8"},
        {"01", "byte 0: a number may not start with 0"},
        {"-01", "byte 1: a number may not start with 0"},
        {"-", "byte 1: expected a digit"},
        {"-a", "byte 1: expected a digit"},
        {"+1", "byte 0: expected a value"},
        {".5", "byte 0: expected a value"},
        {"1.", "byte 2: expected a digit after the decimal point"},
        {"1.e5", "byte 2: expected a digit after the decimal point"},
        {"1e", "byte 2: expected a digit in the exponent"},
        {"1e+", "byte 3: expected a digit in the exponent"},
        {"0x10", "byte 1: expected nothing after the value"},
        {"tru", "byte 0: expected a value"},
        {"nul", "byte 0: expected a value"},
        {"truee", "byte 4: expected nothing after the value"},
        {"NaN", "byte 0: expected a value"},
        {"'a'", "byte 0: expected a value"},
        {"\xef\xbb\xbf{}", "byte 0: expected a value"},
        {"[1]//", "byte 3: expected nothing after the value"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct gb_error error = {0};
        assert_int_equal(check(bad[i].text, strlen(bad[i].text), &error), GPUBUF_E_PARSE);
        assert_int_equal(error.code, GPUBUF_E_PARSE);
        assert_string_equal(error.message, bad[i].message);
        assert_int_equal(check(bad[i].text, strlen(bad[i].text), NULL), GPUBUF_E_PARSE);
    }
    /* NUL is no character of JSON, in a string or out of it. */
    assert_int_equal(check("[1\0]", 4, NULL), GPUBUF_E_PARSE);
    assert_int_equal(check("\"\0\"", 3, NULL), GPUBUF_E_PARSE);
    assert_int_equal(check("\"\\\0\"", 4, NULL), GPUBUF_E_PARSE);
}

/* Every beginning of a text that is good and has no shorter good beginning is refused. */
TEST(test_refuses_every_beginning)
{
    static const char text[] = "{\"a\\u00e9\":[true,false,null,-1.5e+3,\"\\ud834\\udd1e é𝄞\",{}],"
                               "\"b\":{\"c\":\"0123456789abcdef0123456789\"}}";
    assert_int_equal(check(text, sizeof(text) - 1, NULL), 0);
    for (size_t length = 0; length < sizeof(text) - 1; length++)
        assert_int_equal(check(text, length, NULL), GPUBUF_E_PARSE);
}

TEST(test_depth)
{
    enum { DEPTH = GB_LIMIT(depth) };
    char text[2 * (DEPTH + 1)];
    memset(text, '[', DEPTH);
    memset(text + DEPTH, ']', DEPTH);
    assert_int_equal(check(text, 2 * DEPTH, NULL), 0);

    struct gb_error error;
    memset(text, '[', DEPTH + 1);
    memset(text + DEPTH + 1, ']', DEPTH + 1);
    assert_int_equal(check(text, sizeof(text), &error), GPUBUF_E_PARSE);
    assert_string_equal(error.message, "byte 32: nested too deep");
    /* Depth is what is open, not what has been. */
    static const char flat[] = "[[],[],{},[[]],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],"
                               "[],[],[],[],[],[],[],[],[],[],[],[],[],[],{\"a\":[]}]";
    assert_int_equal(check(flat, sizeof(flat) - 1, NULL), 0);
}

/* Decodes by the definition: the number, then whether it is one and its form the shortest. */
static bool model_utf8(const unsigned char *s, size_t length)
{
    for (size_t i = 0; i < length;) {
        unsigned lead = s[i];
        size_t bytes = lead < 0x80       ? 1
                       : lead >> 5 == 6  ? 2
                       : lead >> 4 == 14 ? 3
                       : lead >> 3 == 30 ? 4
                                         : 0;
        if (bytes == 0 || i + bytes > length || lead == 0)
            return false;
        unsigned long code = bytes == 1 ? lead : lead & (0x7fu >> bytes);
        for (size_t k = 1; k < bytes; k++) {
            if (s[i + k] >> 6 != 2)
                return false;
            code = code << 6 | (s[i + k] & 0x3f);
        }
        static const unsigned long least[] = {0, 0, 0x80, 0x800, 0x10000};
        if (code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff))
            return false;
        i += bytes;
    }
    return true;
}

TEST(test_utf8)
{
    static const unsigned char edges[] = {0x00, 0x01, 0x1f, 0x41, 0x7f, 0x80, 0x8f, 0x90,
                                          0x9f, 0xa0, 0xbf, 0xc0, 0xc2, 0xe0, 0xf0, 0xff};
    for (unsigned lead = 0; lead < 256; lead++) {
        for (unsigned i = 0; i < sizeof(edges); i++) {
            for (unsigned j = 0; j < sizeof(edges); j++) {
                for (unsigned k = 0; k < sizeof(edges); k++) {
                    const unsigned char s[] = {(unsigned char)lead, edges[i], edges[j], edges[k]};
                    for (size_t length = 1; length <= 4; length++)
                        assert_int_equal(gb_utf8_valid((const char *)s, length),
                                         model_utf8(s, length));
                }
            }
        }
    }
    assert_true(gb_utf8_valid("", 0));
    static const char mixed[] = "a\nb\"c\\d é水𝄞 and on for a while";
    assert_true(gb_utf8_valid(mixed, sizeof(mixed) - 1));
    assert_false(gb_utf8_valid("0123456789abcdef\xff", 17));
}

/* ---- walking ---- */

TEST(test_walk_of_scalars)
{
    static const char *const scalars[] = {"1", "\"[1]\"", "true", "null"};
    struct gb_pool pool = {0};
    struct gb_json key, item, value;
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(gb_json_check(scalars[i], strlen(scalars[i]), &pool, &value, NULL), 0);
        struct gb_json_walk walk = gb_json_walk(value);
        assert_false(gb_json_next(&walk, &key, &item));
        assert_int_equal(gb_json_count(value), 0);
    }
    assert_int_equal(gb_json_count((struct gb_json){0}), 0);
    gb_pool_end(&pool);
}

/* The texts with the most tokens for their length, whole and broken off everywhere: the sanitizer
   sees a token that the tape has no room for. */
TEST(test_many_tokens)
{
    enum { LENGTH = 2001 };
    static const char *const pieces[] = {"1,", "[],", "\"\",", "[[[[[1]]]]],"};
    char text[LENGTH];
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        text[0] = '[';
        for (size_t at = 1; at < LENGTH; at++)
            text[at] = pieces[i][(at - 1) % strlen(pieces[i])];
        for (size_t length = 1; length < LENGTH; length++) {
            /* Where a piece ends its comma may be the bracket that closes all. */
            bool whole = length > 1 && (length - 1) % strlen(pieces[i]) == 0;
            assert_int_equal(check(text, length, NULL), GPUBUF_E_PARSE);
            if (!whole)
                continue;
            text[length - 1] = ']';
            assert_int_equal(check(text, length, NULL), 0);
            text[length - 1] = ',';
        }
    }
}

/* ---- paths ---- */

TEST(test_paths)
{
    const struct gb_path params = {.key = "params"};
    const struct gb_path columns = {.up = &params, .key = "columns"};
    const struct gb_path second = {.up = &columns, .index = 2};
    const struct gb_path dtype = {.up = &second, .key = "dtype"};
    char text[64];
    assert_string_equal(gb_path_text(&dtype, text, sizeof(text)), "params.columns[2].dtype");
    assert_string_equal(gb_path_text(&second, text, sizeof(text)), "params.columns[2]");
    assert_string_equal(gb_path_text(&params, text, sizeof(text)), "params");
    assert_string_equal(gb_path_text(NULL, text, sizeof(text)), "");

    /* Every size, in a block of exactly that: whole, or the end of it after "…". */
    const char whole[] = "params.columns[2].dtype";
    for (size_t size = 1; size <= sizeof(whole) + 1; size++) {
        char *buffer = malloc(size);
        gb_path_text(&dtype, buffer, size);
        size_t length = strlen(buffer);
        assert_true(length < size);
        if (size >= sizeof(whole)) {
            assert_string_equal(buffer, whole);
        } else if (size > 4) {
            assert_int_equal(length, size - 1);
            assert_memory_equal(buffer, "…", 3);
            assert_string_equal(buffer + 3, whole + sizeof(whole) - 1 - (length - 3));
        }
        free(buffer);
    }
    const struct gb_path accents = {.key = "éééééééé"};
    assert_string_equal(gb_path_text(&accents, text, 9), "…éé");
    assert_string_equal(gb_path_text(&accents, text, 8), "…éé");

    struct gb_error error;
    assert_int_equal(gb_fail_at(&error, &second, "is %d", 7), GPUBUF_E_INVALID);
    assert_string_equal(error.message, "params.columns[2]: is 7");
    assert_int_equal(gb_fail_at(&error, NULL, "is %d", 7), GPUBUF_E_INVALID);
    assert_string_equal(error.message, "is 7");
    assert_int_equal(gb_fail_at(NULL, &second, "is %d", 7), GPUBUF_E_INVALID);
}

RUN_TESTS(NULL, NULL)
