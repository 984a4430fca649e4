/* The types of elements: spelling, widths, Arrow formats and NumPy typestrs, both ways. */
#include "tests/cases.h"

#include "proto/layout/dtype.h"

/* spelling, bits of an element, Arrow, NumPy, DLPack code (255: none) */
static const struct row {
    const char *name;
    uint64_t bits;
    const char *arrow, *numpy;
    unsigned dlpack;
} rows[] = {
    {"bool", 1, "b", NULL, 255},
    {"bool8", 8, NULL, "|b1", 6},
    {"int8", 8, "c", "|i1", 0},
    {"int16", 16, "s", "<i2", 0},
    {"int32", 32, "i", "<i4", 0},
    {"int64", 64, "l", "<i8", 0},
    {"uint8", 8, "C", "|u1", 1},
    {"uint16", 16, "S", "<u2", 1},
    {"uint32", 32, "I", "<u4", 1},
    {"uint64", 64, "L", "<u8", 1},
    {"float16", 16, "e", "<f2", 2},
    {"bfloat16", 16, NULL, NULL, 4},
    {"float32", 32, "f", "<f4", 2},
    {"float64", 64, "g", "<f8", 2},
    {"complex64", 64, NULL, "<c8", 5},
    {"complex128", 128, NULL, "<c16", 5},
    {"float8_e3m4", 8, NULL, NULL, 7},
    {"float8_e4m3", 8, NULL, NULL, 8},
    {"float8_e4m3b11fnuz", 8, NULL, NULL, 9},
    {"float8_e4m3fn", 8, NULL, NULL, 10},
    {"float8_e4m3fnuz", 8, NULL, NULL, 11},
    {"float8_e5m2", 8, NULL, NULL, 12},
    {"float8_e5m2fnuz", 8, NULL, NULL, 13},
    {"float8_e8m0fnu", 8, NULL, NULL, 14},
    {"float6_e2m3fn", 6, NULL, NULL, 15},
    {"float6_e3m2fn", 6, NULL, NULL, 16},
    {"float4_e2m1fn", 4, NULL, NULL, 17},
    {"utf8", 0, "u", NULL, 255},
    {"large_utf8", 0, "U", NULL, 255},
    {"binary", 0, "z", NULL, 255},
    {"large_binary", 0, "Z", NULL, 255},
    {"fixed_binary(1)", 8, "w:1", "|S1", 255},
    {"fixed_binary(5)", 40, "w:5", "|S5", 255},
    {"fixed_binary(10)", 80, "w:10", "|S10", 255},
    {"fixed_binary(2147483647)", 17179869176, "w:2147483647", "|S2147483647", 255},
    {"date32", 32, "tdD", NULL, 255},
    {"date64", 64, "tdm", NULL, 255},
    {"time32[s]", 32, "tts", NULL, 255},
    {"time32[ms]", 32, "ttm", NULL, 255},
    {"time64[us]", 64, "ttu", NULL, 255},
    {"time64[ns]", 64, "ttn", NULL, 255},
    {"timestamp[s]", 64, "tss:", "<M8[s]", 255},
    {"timestamp[ms]", 64, "tsm:", "<M8[ms]", 255},
    {"timestamp[us]", 64, "tsu:", "<M8[us]", 255},
    {"timestamp[ns]", 64, "tsn:", "<M8[ns]", 255},
    {"duration[s]", 64, "tDs", "<m8[s]", 255},
    {"duration[ms]", 64, "tDm", "<m8[ms]", 255},
    {"duration[us]", 64, "tDu", "<m8[us]", 255},
    {"duration[ns]", 64, "tDn", "<m8[ns]", 255},
    {"decimal128(1,0)", 128, "d:1,0", NULL, 255},
    {"decimal128(19,10)", 128, "d:19,10", NULL, 255},
    {"decimal128(38,38)", 128, "d:38,38", NULL, 255},
    {"decimal128(38,-38)", 128, "d:38,-38", NULL, 255},
    {"month_interval", 32, "tiM", NULL, 255},
    {"day_time_interval", 64, "tiD", NULL, 255},
    {"month_day_nano_interval", 128, "tin", NULL, 255},
    {"list", 0, "+l", NULL, 255},
    {"large_list", 0, "+L", NULL, 255},
    {"fixed_list(0)", 0, "+w:0", NULL, 255},
    {"fixed_list(3)", 0, "+w:3", NULL, 255},
    {"fixed_list(2147483647)", 0, "+w:2147483647", NULL, 255},
    {"map", 0, "+m", NULL, 255},
    {"struct", 0, "+s", NULL, 255},
    {"dictionary", 0, NULL, NULL, 255},
    {"null", 0, "n", NULL, 255},
};

/* Zones: NumPy has none, so they do not come back from there. */
static const struct row zoned[] = {
    {"timestamp[us,UTC]", 64, "tsu:UTC", "<M8[us]", 255},
    {"timestamp[ns,Europe/Vienna]", 64, "tsn:Europe/Vienna", "<M8[ns]", 255},
    {"timestamp[s,+05:30]", 64, "tss:+05:30", "<M8[s]", 255},
    {"timestamp[ms,America/Argentina/ComodRivadavia]", 64, "tsm:America/Argentina/ComodRivadavia",
     "<M8[ms]", 255},
    {"timestamp[ms,Etc/GMT-14_45678901234567890123456789]", 64,
     "tsm:Etc/GMT-14_45678901234567890123456789", "<M8[ms]", 255},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct gb_dtype parse(const char *text)
{
    struct gb_dtype dtype;

    if (!gb_dtype_parse(text, strlen(text), &dtype))
        fail_msg("%s is not understood", text);
    return dtype;
}

static void assert_spelling(const struct gb_dtype *dtype, const char *expected)
{
    char text[64];

    memset(text, 'x', sizeof(text));
    assert_int_equal(gb_dtype_format(dtype, text, sizeof(text)), strlen(expected));
    assert_string_equal(text, expected);
}

static void check_row(const struct row *row)
{
    struct gb_dtype dtype = parse(row->name), back;
    char text[64];

    assert_spelling(&dtype, row->name);
    assert_int_equal(gb_dtype_bits(&dtype), row->bits);
    assert_int_equal(gb_type_info(dtype.type)->dlpack_code, row->dlpack);

    assert_int_equal(gb_dtype_to_arrow(&dtype, text, sizeof(text)), row->arrow != NULL);
    if (row->arrow) {
        assert_string_equal(text, row->arrow);
        assert_true(gb_dtype_from_arrow(text, &back));
        assert_spelling(&back, row->name);
    }
    assert_int_equal(gb_dtype_to_numpy(&dtype, text, sizeof(text)), row->numpy != NULL);
    if (row->numpy)
        assert_string_equal(text, row->numpy);
}

TEST(test_rows)
{
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct gb_dtype back;

        check_row(&rows[i]);
        if (rows[i].numpy) {
            assert_true(gb_dtype_from_numpy(rows[i].numpy, strlen(rows[i].numpy), &back));
            assert_spelling(&back, rows[i].name);
        }
    }
    for (size_t i = 0; i < COUNT(zoned); i++)
        check_row(&zoned[i]);
}

/* Every type is in the table above, and what is said of it agrees with itself. */
TEST(test_every_type)
{
    bool seen[GB_TYPE_COUNT] = {false};

    for (size_t i = 0; i < COUNT(rows); i++)
        seen[parse(rows[i].name).type] = true;
    for (unsigned type = 0; type < GB_TYPE_COUNT; type++) {
        const struct gb_type_info *info = gb_type_info((enum gb_type)type);
        bool fixed = info->bits > 0 || type == GB_TYPE_FIXED_BINARY;

        assert_true(seen[type]);
        assert_int_equal(info->has_data, fixed || (info->offset_bytes > 0 && info->children == 0));
        bool interval = strstr(info->name, "interval") != NULL;
        assert_int_equal(info->array, fixed && type != GB_TYPE_BOOL && !interval);
        if (info->children != 0)
            assert_false(info->has_data);
        if (info->numpy || info->dlpack_code != 255)
            assert_true(info->array);
    }
}

/* Packed elements, counted one by one. */
TEST(test_packed)
{
    for (unsigned type = 0; type < GB_TYPE_COUNT; type++) {
        struct gb_dtype dtype = {.type = (enum gb_type)type, .size = 1};
        bool packed = strncmp(gb_type_info(dtype.type)->name, "float4_", 7) == 0 ||
                      strncmp(gb_type_info(dtype.type)->name, "float6_", 7) == 0;
        uint64_t bits = 0;

        assert_int_equal(gb_dtype_packed(&dtype), packed);
        assert_int_equal(gb_dtype_item(&dtype), packed ? 1 : gb_dtype_bits(&dtype) / 8);
        for (uint64_t count = 0; count < 30; count++, bits += gb_dtype_bits(&dtype)) {
            assert_int_equal(gb_dtype_fills(&dtype, count), !packed || bits % 8 == 0);
            assert_int_equal(gb_dtype_items(&dtype, count, false), count);
            if (gb_dtype_fills(&dtype, count))
                assert_int_equal(gb_dtype_items(&dtype, count, true), packed ? bits / 8 : count);
        }
    }
}

/* Beside those that test_one_spelling_each() makes. */
static const char *const bad[] = {
    " ",
    "x",
    "int33",
    "Int32",
    "int32\n",
    "int 32",
    "int32(4)",
    "float80",
    "double",
    "complex32",
    "bool1",
    "string",
    "large_string",
    "binary(3)",
    "fixed_binary()",
    "fixed_binary(-1)",
    "fixed_binary(01)",
    "fixed_binary[1]",
    "fixed_binary(4294967297)",
    "fixed_binary(18446744073709551617)",
    "fixed_binary(99999999999999999999999999999999999999)",
    "date16",
    "date32[D]",
    "time64[s]",
    "time32(s)",
    "timestamp[]",
    "timestamp[us,]",
    "timestamp[us, UTC]",
    "timestamp[us,a\\b]",
    "timestamp[,UTC]",
    "timestamp[us,a,b]",
    "timestamp(us)",
    "timestamp[us,1234567890123456789012345678901234567890]",
    "duration[]",
    "duration[h]",
    "decimal128()",
    "decimal128(10)",
    "decimal128(39,0)",
    "decimal128(38,39)",
    "decimal128(38,-39)",
    "decimal128(38,-0)",
    "decimal128(38,+1)",
    "decimal128(10,2,128)",
    "decimal256(50,2)",
    "decimal128(-1,0)",
    "list()",
    "list[int8]",
    "fixed_list()",
    "fixed_list(-1)",
    "struct{}",
    "dictionary(int8)",
    "month_interval[s]",
    "[",
    "[s]",
    "bool\xff",
    "\xc3\xbc",
};

TEST(test_bad_spellings)
{
    for (size_t i = 0; i < COUNT(bad); i++) {
        struct gb_dtype dtype, before;

        memset(&dtype, 0x5a, sizeof(dtype));
        before = dtype;
        if (gb_dtype_parse(bad[i], strlen(bad[i]), &dtype))
            fail_msg("\"%s\" is taken for a dtype", bad[i]);
        assert_memory_equal(&dtype, &before, sizeof(dtype));
    }
    struct gb_dtype dtype;
    assert_false(gb_dtype_parse("int8\0", 5, &dtype)); /* a NUL is a character like others */
    assert_false(gb_dtype_parse("\0int8", 5, &dtype));
}

/* Every prefix and every change of one character of a good spelling either is refused or is the one
   spelling of what it was taken for. */
TEST(test_one_spelling_each)
{
    static const char changes[] = "08-+,()[] smunxT\"/";

    for (size_t i = 0; i < COUNT(rows) + COUNT(zoned); i++) {
        const char *name = i < COUNT(rows) ? rows[i].name : zoned[i - COUNT(rows)].name;
        size_t length = strlen(name);
        struct gb_dtype dtype;
        char text[64];

        for (size_t at = 0; at <= length; at++) {
            for (size_t c = 0; c < sizeof(changes); c++) {
                memcpy(text, name, length + 1);
                text[at] = changes[c]; /* the last is a NUL: a prefix */
                size_t now =
                    at == length || changes[c] == '\0' ? at + (changes[c] != '\0') : length;
                text[now] = '\0';
                if (gb_dtype_parse(text, now, &dtype))
                    assert_spelling(&dtype, text);
            }
        }
    }
}

TEST(test_arrow_alone)
{
    static const char *const none[] = {
        "",         "B",          "x",        "cc",  "w",       "w:",      "w:0",
        "w:x",      "w:1,",       "d:",       "d:1", "d:1,",    "d:39,0",  "d:1,2,256",
        "d:1,2,64", "d:1,2,128,", "d:1,2,12", "t",   "td",      "tdX",     "tt",
        "ttx",      "tds",        "tsu",      "ts",  "tsx:UTC", "tsu;",    "tDx",
        "tD",       "ttss",       "ti",       "tix", "tiMx",    "tins",    "+",
        "+mx",      "+r",         "+w",       "+w:", "+w:-1",   "+ud:1",   "+us:1",
        "vu",       "vz",         "+vl",      "+lx", "n ",      "tsu:a b", "+s{}",
    };
    struct gb_dtype dtype;

    for (size_t i = 0; i < COUNT(none); i++) {
        if (gb_dtype_from_arrow(none[i], &dtype))
            fail_msg("\"%s\" is taken for an Arrow format", none[i]);
    }
    assert_true(gb_dtype_from_arrow("d:19,10,128", &dtype));
    assert_spelling(&dtype, "decimal128(19,10)");
}

TEST(test_numpy_alone)
{
    static const struct {
        const char *typestr, *name;
    } other[] = {
        {"=f8", "float64"},     {"<u1", "uint8"},           {"=u1", "uint8"},
        {"<b1", "bool8"},       {"=M8[s]", "timestamp[s]"}, {"<S7", "fixed_binary(7)"},
        {"=c16", "complex128"},
    };
    static const char *const none[] = {
        "",       "<",        "f8",      ">f8",           ">u1",    "|f8",    "|i4",
        "<f",     "<f9",      "<f16",    "<f88",          "<i3",    "<i16",   "<u",
        "<c4",    "<c32",     "<b2",     "<M8",           "<M8[]",  "<M8[D]", "<M8[2us]",
        "<M8[us", "<M8[us]x", "|M8[us]", "<M4[us]",       "<m8[Y]", "|S",     "|S0",
        "|S-1",   "|S05",     "|V5",     "<U5",           "|O",     "|O8",    "<f8 ",
        "!f8",    "|b",       "|b8",     "<S99999999999", "<t8",    "<V2",
    };
    struct gb_dtype dtype;

    for (size_t i = 0; i < COUNT(other); i++) {
        assert_true(gb_dtype_from_numpy(other[i].typestr, strlen(other[i].typestr), &dtype));
        assert_spelling(&dtype, other[i].name);
    }
    for (size_t i = 0; i < COUNT(none); i++) {
        if (gb_dtype_from_numpy(none[i], strlen(none[i]), &dtype))
            fail_msg("\"%s\" is taken for a typestr", none[i]);
    }
}

RUN_TESTS(NULL, NULL)
