/* Manifests: what is refused and how. fuzz_manifest.c has the rest. */
#include "tests/cases.h"

#include "client/lib/data/manifest.h"

#include "failing.h"

#include "proto/base/pool.c"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MAX "4503599627370495" /* 2^52 - 1 */

/* Reads exactly `text`, in memory that ends where it does, with `bytes` of data behind it. */
static int read_text(const char *text, size_t length, uint64_t data, struct gb_manifest *manifest,
                     struct gb_error *error)
{
    char *copy = malloc(length + !length);
    assert_non_null(copy);
    memcpy(copy, text, length);
    int r = gb_manifest_read(copy, length, 8 + length + data, manifest, error);
    memset(copy, 'x', length); /* nothing of it is kept */
    free(copy);
    return r;
}

static void bad(const char *text, uint64_t data, const char *message)
{
    struct gb_error error = {.code = 0};
    struct gb_manifest manifest, before;

    memset(&manifest, 0x5a, sizeof(manifest));
    before = manifest;
    assert_int_equal(read_text(text, strlen(text), data, &manifest, &error), GPUBUF_E_INVALID);
    if (strcmp(error.message, message) != 0)
        fail_msg("%s:\n  %s\nexpected:\n  %s", text, error.message, message);
    assert_int_equal(error.code, GPUBUF_E_INVALID);
    assert_memory_equal(&manifest, &before, sizeof(manifest));
    assert_int_equal(read_text(text, strlen(text), data, &manifest, NULL), GPUBUF_E_INVALID);
}

#define T(name, dtype, shape, places)                                                              \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" places "}"

TEST(test_refused)
{
    static const struct {
        const char *text, *message;
        uint64_t data;
    } rows[] = {
        {"[]", "the manifest is no object that begins with '{' at its first byte", 0},
        {" {}", "the manifest is no object that begins with '{' at its first byte", 0},
        {"{} x", "the manifest is not JSON: byte 3: expected nothing after the value", 0},
        {"{\"a\":}", "the manifest is not JSON: byte 5: expected a value", 0},
        {"{\"a\":1}", "tensor \"a\": expected an object, found a number", 0},
        {"{\"a\\n\":1}", "tensor \"a\\n\": expected an object, found a number", 0},
        {"{\"a\\u0000\":{}}", "tensor \"a\\u0000\": \\u0000 is not accepted in a string", 0},
        {"{\"a\":{}}", "tensor \"a\": dtype: missing", 0},
        {"{\"a\":{\"dtype\":\"F32\"}}", "tensor \"a\": shape: missing", 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", "tensor \"a\": data_offsets: missing", 0},
        {"{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", "tensor \"a\": dtype: occurs twice", 0},
        {"{" T("a", "f32", "[]", "[0,4]") "}", "tensor \"a\": dtype: unknown dtype \"f32\"", 4},
        {"{" T("a", "F32", "7", "[0,4]") "}",
         "tensor \"a\": shape: expected an array, found a number", 4},
        {"{" T("a", "F32", "[1,-1]", "[0,4]") "}",
         "tensor \"a\": shape[1]: expected an integer from 0 to " MAX ", found -1", 4},
        {"{" T("a", "F32", "[1.0]", "[0,4]") "}",
         "tensor \"a\": shape[0]: expected an integer without fraction or exponent, found 1.0", 4},
        {"{" T("a", "I8", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
               "[0,1]") "}",
         "tensor \"a\": shape: 33 axes; at most 32 are allowed", 1},
        {"{" T("a", "I8", "[" MAX ",2]", "[0,1]") "}",
         "tensor \"a\": shape: the array has 2^52 bytes or more", 1},
        {"{" T("a", "F64", "[4294967296,4294967296,4294967296]", "[0,1]") "}",
         "tensor \"a\": shape: the array has 2^52 bytes or more", 1},
        {"{" T("a", "F4", "[3]", "[0,2]") "}",
         "tensor \"a\": shape: its elements of 4 bits are no whole bytes", 2},
        {"{" T("a", "F32", "[1]", "[0]") "}",
         "tensor \"a\": data_offsets: expected 2 integers, found 1", 4},
        {"{" T("a", "F32", "[1]", "[0,4,8]") "}",
         "tensor \"a\": data_offsets: expected 2 integers, found 3", 4},
        {"{" T("a", "F32", "[1]", "[4,0]") "}",
         "tensor \"a\": data_offsets: it begins at 4, behind its end at 0", 4},
        {"{" T("a", "F32", "[1]", "[0,5]") "}",
         "tensor \"a\": data_offsets: it ends at byte 5 of the data, which has 4", 4},
        {"{" T("a", "F32", "[1]", "[0,18446744073709551615]") "}",
         "tensor \"a\": data_offsets[1]: expected an integer from 0 to " MAX
         ", found 18446744073709551615",
         4},
        {"{" T("a", "F32", "[2]", "[0,4]") "}",
         "tensor \"a\": data_offsets: 4 bytes, but its dtype and shape make 8", 4},
        {"{" T("a", "I8", "[4]", "[0,4]") "," T("b", "I8", "[4]", "[2,6]") "}",
         "tensor \"b\": its data begins at byte 2, inside that of \"a\", which ends at 4", 6},
        {"{" T("b", "I8", "[4]", "[4,8]") "," T("a", "I8", "[2]", "[0,2]") "}",
         "tensor \"b\": its data begins at byte 4, and bytes from 2 to there are no tensor's", 8},
        {"{" T("a", "I8", "[4]", "[0,4]") "," T("e", "I8", "[0]", "[2,2]") "}",
         "tensor \"e\": its data begins at byte 2, inside that of \"a\", which ends at 4", 4},
        {"{" T("a", "I8", "[4]", "[0,4]") "}", "the data has 6 bytes, but the tensors only 4", 6},
        {"{}", "the data has 1 bytes, but the tensors only 0", 1},
        {"{" T("a", "I8", "[1]", "[0,1]") "," T("\\u0061", "I8", "[1]", "[1,2]") "}",
         "tensor \"a\" is there twice", 2},
        {"{\"__metadata__\":1}", "__metadata__: expected an object, found a number", 0},
        {"{\"__metadata__\":{\"a\":1}}", "__metadata__.a: expected a string, found a number", 0},
        {"{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", "__metadata__: the key \"a\" is there twice",
         0},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", "__metadata__: occurs twice", 0},
    };

    for (size_t i = 0; i < COUNT(rows); i++)
        bad(rows[i].text, rows[i].data, rows[i].message);
}

TEST(test_sizes)
{
    struct gb_manifest manifest;
    struct gb_error error;

    bad("", 9, "a manifest of 0 bytes; it has from 1 to 100000000");
    assert_int_equal(gb_manifest_read("{}", 2, 9, &manifest, &error), GPUBUF_E_INVALID);
    assert_string_equal(error.message,
                        "a bundle of 9 bytes has no room for a manifest of 2, and 8 before it");
    assert_int_equal(gb_manifest_read("{}", 2, UINT64_MAX, &manifest, &error), GPUBUF_E_INVALID);
    assert_int_equal(gb_manifest_read("{}", UINT64_MAX, 10, &manifest, &error), GPUBUF_E_INVALID);
    assert_int_equal(gb_manifest_read("{}", 100000001, 200000000, &manifest, &error),
                     GPUBUF_E_INVALID);
}

TEST(test_plans_refused)
{
    static const uint64_t shape[] = {1, 3}, large[] = {UINT64_C(1) << 51};
    static const struct {
        struct gpubuf_tensor_spec spec[2];
        const char *message;
    } rows[] = {
        {{{NULL, "int8", 0, NULL}}, "the name of a tensor is UTF-8, and not \"__metadata__\""},
        {{{"\xff", "int8", 0, NULL}}, "the name of a tensor is UTF-8, and not \"__metadata__\""},
        {{{"__metadata__", "int8", 0, NULL}},
         "the name of a tensor is UTF-8, and not \"__metadata__\""},
        {{{"a", NULL, 0, NULL}}, "tensor \"a\": unknown dtype \"\""},
        {{{"a", "F32", 0, NULL}}, "tensor \"a\": unknown dtype \"F32\""},
        {{{"a", "complex128", 0, NULL}}, "tensor \"a\": safetensors has no complex128"},
        {{{"a", "utf8", 0, NULL}}, "tensor \"a\": safetensors has no utf8"},
        {{{"a", "int8", 33, shape}}, "tensor \"a\": its shape has at most 32 axes"},
        {{{"a", "int8", 2, NULL}}, "tensor \"a\": its shape has at most 32 axes"},
        {{{"a", "float4_e2m1fn", 2, shape}},
         "tensor \"a\": shape: its elements of 4 bits are no whole bytes"},
        {{{"a", "float64", 1, large}}, "tensor \"a\": shape: the array has 2^52 bytes or more"},
        {{{"a", "int8", 1, large}, {"b", "int8", 1, large}},
         "a bundle of 4503599627370752 bytes has no room for a manifest of 248, and 8 before it"},
        {{{"a", "int8", 0, NULL}, {"a", "int8", 0, NULL}}, "tensor \"a\" is there twice"},
    };
    static const char *const metadata[] = {"key", NULL};
    struct gb_manifest manifest;
    struct gb_error error;

    for (size_t i = 0; i < COUNT(rows); i++) {
        struct gb_writer head = {.data = NULL};
        size_t count = rows[i].spec[1].name ? 2 : 1;
        assert_int_equal(gb_manifest_plan(rows[i].spec, count, NULL, &head, &manifest, &error),
                         GPUBUF_E_INVALID);
        assert_string_equal(error.message, rows[i].message);
        gb_writer_end(&head);
    }
    struct gb_writer head = {.data = NULL};
    assert_int_equal(gb_manifest_plan(NULL, 0, metadata, &head, &manifest, &error),
                     GPUBUF_E_INVALID);
    gb_writer_end(&head);
}

/* So many that the memory is of huge pages; shapes that two, one and no tensor before have. */
TEST(test_many)
{
    enum { MANY = 20000 };
    static const uint64_t shapes[][2] = {{1, 2}, {2, 1}};
    static struct gpubuf_tensor_spec specs[MANY];
    static char names[MANY][64];
    struct gb_writer head = {.data = NULL};
    struct gb_manifest manifest;
    struct gb_error error;
    uint64_t at = 0;

    for (unsigned i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof(names[i]), "model.layers.%u.experts.%u.down.weight", i / 384, i);
        specs[i] = (struct gpubuf_tensor_spec){names[i], "int8", i % 3 ? 2 : i % 2, shapes[i % 2]};
    }
    assert_int_equal(gb_manifest_plan(specs, MANY, NULL, &head, &manifest, &error), 0);
    assert_int_equal(manifest.tensor_count, MANY);
    for (unsigned i = 0; i < MANY; i++) {
        const struct gpubuf_tensor *tensor = &manifest.tensors[i];
        assert_string_equal(tensor->name, names[i]);
        assert_int_equal(gb_manifest_find(manifest.tensor_names, MANY, names[i]), i);
        assert_int_equal(tensor->ndim, specs[i].ndim);
        assert_memory_equal(tensor->shape, shapes[i % 2], tensor->ndim * sizeof(uint64_t));
        assert_null(tensor->pointer);
        at += tensor->bytes;
    }
    assert_int_equal(at + head.length, manifest.bytes);
    gb_manifest_end(&manifest);
    gb_writer_end(&head);
}

/* Each allocation of a pool fails in turn; nothing is left. */
TEST(test_no_memory)
{
    static const char text[] = "{\"__metadata__\":{\"k\":\"v\"}," T("a", "I8", "[1]", "[0,1]") "}";
    static const struct gpubuf_tensor_spec spec = {"a", "int8", 0, NULL};
    struct gb_manifest manifest, before;
    struct gb_error error;
    long blocks = failing_blocks;
    size_t n = 0;
    int r;

    memset(&manifest, 0x5a, sizeof(manifest));
    before = manifest;
    do {
        failing_from(++n, 1);
        r = gb_manifest_read(text, strlen(text), 8 + strlen(text) + 1, &manifest, &error);
        if (r < 0) {
            assert_int_equal(r, GPUBUF_E_NO_MEMORY);
            assert_int_equal(error.code, r);
            assert_memory_equal(&manifest, &before, sizeof(manifest));
            assert_int_equal(failing_blocks, blocks);
        }
    } while (r < 0);
    assert_true(n > 2); /* the tape, what is kept, and then none failed */
    gb_manifest_end(&manifest);
    assert_int_equal(failing_blocks, blocks);
    for (n = 1, r = -1; r < 0; n++) {
        struct gb_writer head = {.data = NULL};
        failing_from(n, 1);
        r = gb_manifest_plan(&spec, 1, NULL, &head, &manifest, &error);
        if (r < 0)
            assert_int_equal(r, GPUBUF_E_NO_MEMORY);
        else
            gb_manifest_end(&manifest);
        gb_writer_end(&head);
        assert_int_equal(failing_blocks, blocks);
    }
    failing_from(0, 0);
}

RUN_TESTS(NULL, NULL)
