/* errors: sentences, their cut, kinds and codes. */
#include "tests/cases.h"

#include "proto/base/errors.h"
#include "proto/base/limits.h"
#include "proto/wire/json.h"

TEST(test_fill)
{
    struct gb_error error = {.name = "old", .limit = "old", .cuda = "old"};
    assert_int_equal(gb_fail(&error, GPUBUF_E_STALE, "lease %d is no more", 7), GPUBUF_E_STALE);
    assert_int_equal(error.code, GPUBUF_E_STALE);
    assert_string_equal(error.message, "lease 7 is no more");
    assert_string_equal(error.name, "");
    assert_null(error.limit);
    assert_null(error.cuda);
    assert_int_equal(gb_fail(NULL, GPUBUF_E_STALE, "%d", 7), GPUBUF_E_STALE);
    /* An error may be wrapped into itself. */
    memcpy(error.name, "sales", sizeof("sales"));
    gb_fail(&error, GPUBUF_E_BUSY, "%s: %s", error.name, error.message);
    assert_string_equal(error.message, "sales: lease 7 is no more");
}

/* A message that is too long is cut between characters, wherever the cut falls. */
TEST(test_cut)
{
    static const char *const characters[] = {"x", "é", "水", "𝄞"};
    struct gb_error error;
    for (size_t kind = 0; kind < 4; kind++) {
        size_t bytes = strlen(characters[kind]);
        for (size_t shift = 0; shift < 4; shift++) {
            char text[sizeof(error.message) + 200];
            memset(text, '-', shift);
            size_t filled = shift;
            for (; filled < sizeof(error.message) + 100; filled += bytes)
                memcpy(text + filled, characters[kind], bytes);
            text[filled] = '\0';
            gb_fail(&error, GPUBUF_E_BUSY, "%s", text);
            size_t length = strlen(error.message);
            assert_in_range(length, sizeof(error.message) - bytes, sizeof(error.message) - 1);
            assert_memory_equal(error.message, text, length);
            assert_true(gb_utf8_valid(error.message, length));
        }
    }
    char exact[sizeof(error.message)];
    memset(exact, 'e', sizeof(exact) - 3);
    memcpy(exact + sizeof(exact) - 3, "é", sizeof("é"));
    gb_fail(&error, GPUBUF_E_BUSY, "%s", exact);
    assert_string_equal(error.message, exact);
    gb_fail(&error, GPUBUF_E_BUSY, "\"%.2s\" and \"%.3s\", \"%.3s\"", "xé", "水", "𝄞");
    assert_string_equal(error.message, "\"x\" and \"水\", \"\"");
    gb_fail(&error, GPUBUF_E_BUSY, "%s", "http://h\xff:1 \x80 \xc0");
    assert_string_equal(error.message, "http://h?:1 ? ?");
}

TEST(test_errno)
{
    struct gb_error error;
    errno = ENOENT;
    assert_int_equal(gb_fail_errno(&error, "cannot open %s", "x"), GPUBUF_E_SYSTEM);
    assert_string_equal(error.message, "cannot open x: No such file or directory");
    assert_int_equal(errno, ENOENT);
    assert_int_equal(gb_fail_errno(NULL, "x"), GPUBUF_E_SYSTEM);
}

TEST(test_limit)
{
    struct gb_error error;
    assert_int_equal(GB_FAIL_LIMIT(&error, names, "too many names"), GPUBUF_E_LIMIT);
    assert_string_equal(error.message, "too many names (the limit names is 64)");
    assert_string_equal(error.limit, "names");
    assert_int_equal(GB_FAIL_LIMIT(NULL, names, "too many names"), GPUBUF_E_LIMIT);
}

TEST(test_kinds)
{
    static const int codes[] = {
#define CODE(name, code, kind, text) code,
        GPUBUF_ERROR_MAP(CODE)
#undef CODE
    };
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        const char *kind = gb_error_kind(codes[i]);
        assert_int_equal(gb_error_from_kind(kind, strlen(kind)), codes[i]);
        assert_int_equal(gb_error_from_kind(kind, strlen(kind) - 1), 0);
        assert_string_not_equal(gb_error_text(codes[i]), gb_error_text(12345));
    }
    assert_string_equal(gb_error_kind(GPUBUF_E_NOT_FOUND), "not_found");
    assert_string_equal(gb_error_kind(12345), "unknown");
    assert_string_equal(gb_error_kind(0), "unknown");
    assert_string_equal(gb_error_text(0), "no error");
    assert_int_equal(gb_error_from_kind("unknown", 7), 0);
    assert_int_equal(gb_error_from_kind("", 0), 0);
}

RUN_TESTS(NULL, NULL)
