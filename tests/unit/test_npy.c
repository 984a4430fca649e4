/* Headers of .npy files: read strictly, and written so that they are read back. */
#include <stdio.h>
#include <string.h>

#include "tests/cases.h"

#include "client/gpubufctl/npy.h"

/* A file's start with this dictionary, in this version of the format. Returns its length. */
static size_t make(unsigned char *out, int version, const char *text)
{
    size_t length = strlen(text), prefix = version == 1 ? 10 : 12;

    memcpy(out, "\x93NUMPY", 6);
    out[6] = (unsigned char)version;
    out[7] = 0;
    out[8] = (unsigned char)(length & 0xff);
    out[9] = (unsigned char)(length >> 8);
    if (version > 1)
        out[10] = out[11] = 0;
    memcpy(out + prefix, text, length);
    return prefix + length;
}

static void read_good(const char *text, struct gb_npy *npy)
{
    unsigned char bytes[1024];
    struct gb_error error;

    for (int version = 1; version <= 3; version++) {
        size_t length = make(bytes, version, text);
        if (gb_npy_read(bytes, length, npy, &error) != 0)
            fail_msg("%s: %s", text, error.message);
        assert_int_equal(npy->header_bytes, length);
    }
}

static void read_bad(const char *text, const char *sentence)
{
    unsigned char bytes[1024];
    struct gb_npy npy;
    struct gb_error error;

    memset(&npy, 0x55, sizeof(npy));
    struct gb_npy before = npy;
    size_t length = make(bytes, 1, text);
    int code = gb_npy_read(bytes, length, &npy, &error);
    bool sound = strstr(text, "[('") || strstr(text, "<U5") || strstr(text, "M8[D]");
    assert_int_equal(code, sound ? GPUBUF_E_UNSUPPORTED : GPUBUF_E_INVALID);
    if (!strstr(error.message, sentence))
        fail_msg("%s: expected \"%s\", got \"%s\"", text, sentence, error.message);
    assert_memory_equal(&npy, &before, sizeof(npy));
}

TEST(test_plain)
{
    struct gb_npy npy;

    read_good("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }          \n", &npy);
    assert_int_equal(npy.dtype.type, GB_TYPE_FLOAT64);
    assert_false(npy.swap);
    assert_false(npy.fortran);
    assert_int_equal(npy.ndim, 2);
    assert_int_equal(npy.shape[0], 3);
    assert_int_equal(npy.shape[1], 4);
    assert_int_equal(npy.count, 12);
    assert_int_equal(npy.item_bytes, 8);
    assert_int_equal(npy.data_bytes, 96);
}

TEST(test_variants)
{
    struct gb_npy npy;

    read_good("{\"shape\":(5,),\"fortran_order\":True,\"descr\":\">i2\"}", &npy);
    assert_int_equal(npy.dtype.type, GB_TYPE_INT16);
    assert_true(npy.swap);
    assert_true(npy.fortran);
    assert_int_equal(npy.data_bytes, 10);
    read_good("{'descr': '|b1', 'fortran_order': False, 'shape': ()}", &npy);
    assert_int_equal(npy.dtype.type, GB_TYPE_BOOL8);
    assert_int_equal(npy.ndim, 0);
    assert_int_equal(npy.count, 1);
    read_good("{'descr': '<M8[us]', 'fortran_order': False, 'shape': (0, 4503599627370495)}", &npy);
    assert_int_equal(npy.dtype.type, GB_TYPE_TIMESTAMP);
    assert_int_equal(npy.dtype.unit, GB_UNIT_US);
    assert_int_equal(npy.count, 0);
    assert_int_equal(npy.data_bytes, 0);
    read_good("{'descr': '|S5', 'fortran_order': False, 'shape': (2L, 3L)}", &npy);
    assert_int_equal(npy.dtype.type, GB_TYPE_FIXED_BINARY);
    assert_int_equal(npy.item_bytes, 5);
    assert_int_equal(npy.data_bytes, 30);
}

TEST(test_broken_dictionaries)
{
    static const char *const cases[][2] = {
        {"", "expected '{'"},
        {"[]", "expected '{'"},
        {"{", "expected a key, or '}'"},
        {"{}", "lacks 'descr'"},
        {"{'descr': '<f8'}", "lacks 'fortran_order'"},
        {"{'descr': '<f8', 'fortran_order': False}", "lacks 'shape'"},
        {"{'descr': '<f8', 'descr': '<f8'}", "has 'descr' twice"},
        {"{'other': 1}", "unknown key 'other'"},
        {"{'descr' '<f8'}", "expected ':' after the key"},
        {"{'descr': '<f8}", "closing quote"},
        {"{'de\\x73cr': '<f8'}", "closing quote"},
        {"{'descr': <f8}", "expected a dtype"},
        {"{'descr': '<f8' 'shape': ()}", "expected ',' or '}'"},
        {"{'descr': '<f8', 'fortran_order': 0, 'shape': ()}", "expected True or False"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': 3}", "expected a shape"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (3)}", "a tuple"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (3 4)}", "',' or ')'"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (,)}", "a whole number"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}", "a whole number"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (1.5,)}", "',' or ')'"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (3,)} x", "only spaces after"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775808,)}", "too long"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999999,)}",
         "too long"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (4503599627370495, 2)}", "too large"},
        {"{'descr': '<i4', 'fortran_order': False, 'shape': (67108864, 67108864)}", "too large"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
         "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}",
         "more than 32 axes"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        read_bad(cases[i][0], cases[i][1]);
}

TEST(test_dtypes_that_have_no_counterpart)
{
    static const char *const cases[][2] = {
        {"'|O'", "Python objects"},
        {"[('a', '<i4'), ('b', '<f8')]", "structured"},
        {"'<U5'", "no counterpart"},
        {"'<f16'", "no counterpart"},
        {"'<c32'", "no counterpart"},
        {"''", "unknown"},
        {"'<M8[D]'", "no counterpart"},
        {"'|V8'", "no counterpart"},
        {"'float64'", "no counterpart"},
        {"'|S0'", "no counterpart"},
        {"'<f8<f8<f8<f8<f8<f8<f8<f8<f8<f8<f8<f8<f8<f8<f8'", "unknown"},
    };
    char text[256];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void)snprintf(text, sizeof(text), "{'descr': %s, 'fortran_order': False, 'shape': (1,)}",
                       cases[i][0]);
        read_bad(text, cases[i][1]);
    }
}

TEST(test_prefix)
{
    unsigned char bytes[64] = "\x93NUMPY\x01\x00";
    struct gb_error error;
    struct gb_npy npy;
    size_t header;

    assert_true(gb_npy_is(bytes, 6));
    assert_false(gb_npy_is(bytes, 5));
    assert_false(gb_npy_is("\x93NUMPX", 6));
    assert_int_equal(gb_npy_header_bytes("hello world!", 12, &header, &error), GPUBUF_E_INVALID);
    assert_non_null(strstr(error.message, "does not start with"));
    for (size_t length = 6; length < 10; length++) {
        assert_int_equal(gb_npy_header_bytes(bytes, length, &header, &error), GPUBUF_E_INVALID);
        assert_non_null(strstr(error.message, "cut short"));
    }
    bytes[8] = 118;
    assert_int_equal(gb_npy_header_bytes(bytes, 10, &header, &error), 0);
    assert_int_equal(header, 128);
    assert_int_equal(gb_npy_read(bytes, 64, &npy, &error), GPUBUF_E_INVALID);
    assert_non_null(strstr(error.message, "128 bytes, there are 64"));
    bytes[6] = 2;
    assert_int_equal(gb_npy_header_bytes(bytes, 12, &header, &error), 0);
    assert_int_equal(header, 130);
    bytes[11] = 0x80;
    assert_int_equal(gb_npy_header_bytes(bytes, 12, &header, &error), GPUBUF_E_INVALID);
    bytes[6] = 4;
    assert_int_equal(gb_npy_header_bytes(bytes, 12, &header, &error), GPUBUF_E_INVALID);
    assert_non_null(strstr(error.message, "version 4.0"));
    bytes[6] = 1;
    bytes[7] = 1;
    assert_int_equal(gb_npy_header_bytes(bytes, 12, &header, &error), GPUBUF_E_INVALID);
}

/* Cutting a good file anywhere before its header's end is noticed. */
TEST(test_every_cut)
{
    unsigned char bytes[256];
    struct gb_error error;
    struct gb_npy npy;

    size_t length =
        make(bytes, 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }    \n");
    for (size_t cut = 0; cut < length; cut++)
        assert_int_equal(gb_npy_read(bytes, cut, &npy, &error), GPUBUF_E_INVALID);
    assert_int_equal(gb_npy_read(bytes, length, &npy, &error), 0);
}

TEST(test_write_and_read_back)
{
    static const char *const dtypes[] = {
        "bool8",     "int8",       "int16",         "int32",       "int64",          "uint8",
        "uint16",    "uint32",     "uint64",        "float16",     "float32",        "float64",
        "complex64", "complex128", "timestamp[ns]", "duration[s]", "fixed_binary(7)"};
    static const uint64_t shape[GB_NPY_NDIM] = {3, 1, 2, 5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                                1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 7};
    struct gb_error error;

    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        for (unsigned ndim = 0; ndim <= GB_NPY_NDIM; ndim++) {
            char out[GB_NPY_WRITE_MAX], name[64];
            struct gb_dtype dtype;
            struct gb_npy npy;
            assert_true(gb_dtype_parse(dtypes[i], strlen(dtypes[i]), &dtype));
            size_t length = gb_npy_write(&dtype, shape, ndim, out);
            assert_true(length > 0 && length % 64 == 0);
            assert_int_equal(gb_npy_read(out, length, &npy, &error), 0);
            assert_int_equal(npy.header_bytes, length);
            gb_dtype_format(&npy.dtype, name, sizeof(name));
            assert_string_equal(name, dtypes[i]);
            assert_int_equal(npy.ndim, ndim);
            assert_memory_equal(npy.shape, shape, ndim * sizeof(shape[0]));
        }
    }
}

/* The widest header that there can be fits the space that callers give. */
TEST(test_write_the_widest)
{
    char out[GB_NPY_WRITE_MAX];
    uint64_t shape[GB_NPY_NDIM];
    struct gb_dtype dtype;

    for (unsigned i = 0; i < GB_NPY_NDIM; i++)
        shape[i] = UINT64_MAX;
    assert_true(gb_dtype_parse("timestamp[ns]", 13, &dtype));
    assert_true(gb_npy_write(&dtype, shape, GB_NPY_NDIM, out) <= sizeof(out));
    assert_int_equal(gb_npy_write(&dtype, shape, GB_NPY_NDIM + 1, out), 0);
    assert_true(gb_dtype_parse("utf8", 4, &dtype));
    assert_int_equal(gb_npy_write(&dtype, shape, 1, out), 0);
    assert_true(gb_dtype_parse("bfloat16", 8, &dtype));
    assert_int_equal(gb_npy_write(&dtype, shape, 1, out), 0);
}

TEST(test_swap)
{
    unsigned char data[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    static const unsigned char by_4[16] = {3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12};
    static const unsigned char by_8[16] = {4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11};
    struct gb_npy npy = {.dtype.type = GB_TYPE_INT32, .item_bytes = 4};

    gb_npy_swap(&npy, data, sizeof(data));
    assert_memory_equal(data, by_4, sizeof(data));
    npy.dtype.type = GB_TYPE_FLOAT64;
    npy.item_bytes = 8;
    gb_npy_swap(&npy, data, sizeof(data));
    assert_memory_equal(data, by_8, sizeof(data));
    npy.dtype.type = GB_TYPE_COMPLEX64; /* its halves, not the whole */
    gb_npy_swap(&npy, data, sizeof(data));
    npy.dtype.type = GB_TYPE_FLOAT32;
    npy.item_bytes = 4;
    gb_npy_swap(&npy, data, sizeof(data));
    assert_memory_equal(data, by_8, sizeof(data));
    npy.dtype.type = GB_TYPE_FIXED_BINARY;
    gb_npy_swap(&npy, data, sizeof(data));
    npy.dtype.type = GB_TYPE_INT8;
    npy.item_bytes = 1;
    gb_npy_swap(&npy, data, sizeof(data));
    assert_memory_equal(data, by_8, sizeof(data));
}

RUN_TESTS(NULL, NULL)
