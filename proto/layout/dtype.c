#include "proto/layout/dtype.h"

#include <stdio.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "shared memory is described as little-endian here"
#endif

/* DLDataTypeCode of dlpack.h. */
enum {
    DL_INT = 0,
    DL_UINT = 1,
    DL_FLOAT = 2,
    DL_BFLOAT = 4,
    DL_COMPLEX = 5,
    DL_BOOL = 6,
    DL_FLOAT8_E3M4 = 7,
    DL_FLOAT8_E4M3 = 8,
    DL_FLOAT8_E4M3B11FNUZ = 9,
    DL_FLOAT8_E4M3FN = 10,
    DL_FLOAT8_E4M3FNUZ = 11,
    DL_FLOAT8_E5M2 = 12,
    DL_FLOAT8_E5M2FNUZ = 13,
    DL_FLOAT8_E8M0FNU = 14,
    DL_FLOAT6_E2M3FN = 15,
    DL_FLOAT6_E3M2FN = 16,
    DL_FLOAT4_E2M1FN = 17,
    DL_NONE = 255,
};

/* clang-format off */
static const struct gb_type_info types[GB_TYPE_COUNT] = {
    /* name, bits, bytes of an offset, data, mask, children, Arrow, NumPy, DLPack, array,
       safetensors */
    [GB_TYPE_BOOL] = {"bool", 1, 0, true, true, 0, "b", NULL, DL_NONE, false, NULL},
    [GB_TYPE_BOOL8] = {"bool8", 8, 0, true, true, 0, NULL, "|b1", DL_BOOL, true, "BOOL"},
    [GB_TYPE_INT8] = {"int8", 8, 0, true, true, 0, "c", "|i1", DL_INT, true, "I8"},
    [GB_TYPE_INT16] = {"int16", 16, 0, true, true, 0, "s", "<i2", DL_INT, true, "I16"},
    [GB_TYPE_INT32] = {"int32", 32, 0, true, true, 0, "i", "<i4", DL_INT, true, "I32"},
    [GB_TYPE_INT64] = {"int64", 64, 0, true, true, 0, "l", "<i8", DL_INT, true, "I64"},
    [GB_TYPE_UINT8] = {"uint8", 8, 0, true, true, 0, "C", "|u1", DL_UINT, true, "U8"},
    [GB_TYPE_UINT16] = {"uint16", 16, 0, true, true, 0, "S", "<u2", DL_UINT, true, "U16"},
    [GB_TYPE_UINT32] = {"uint32", 32, 0, true, true, 0, "I", "<u4", DL_UINT, true, "U32"},
    [GB_TYPE_UINT64] = {"uint64", 64, 0, true, true, 0, "L", "<u8", DL_UINT, true, "U64"},
    [GB_TYPE_FLOAT16] = {"float16", 16, 0, true, true, 0, "e", "<f2", DL_FLOAT, true, "F16"},
    [GB_TYPE_BFLOAT16] = {"bfloat16", 16, 0, true, true, 0, NULL, NULL, DL_BFLOAT, true, "BF16"},
    [GB_TYPE_FLOAT32] = {"float32", 32, 0, true, true, 0, "f", "<f4", DL_FLOAT, true, "F32"},
    [GB_TYPE_FLOAT64] = {"float64", 64, 0, true, true, 0, "g", "<f8", DL_FLOAT, true, "F64"},
    [GB_TYPE_COMPLEX64] = {"complex64", 64, 0, true, true, 0, NULL, "<c8", DL_COMPLEX, true, "C64"},
    [GB_TYPE_COMPLEX128] =
        {"complex128", 128, 0, true, true, 0, NULL, "<c16", DL_COMPLEX, true, NULL},
    [GB_TYPE_FLOAT8_E3M4] =
        {"float8_e3m4", 8, 0, true, true, 0, NULL, NULL, DL_FLOAT8_E3M4, true, NULL},
    [GB_TYPE_FLOAT8_E4M3] =
        {"float8_e4m3", 8, 0, true, true, 0, NULL, NULL, DL_FLOAT8_E4M3, true, NULL},
    [GB_TYPE_FLOAT8_E4M3B11FNUZ] =
        {"float8_e4m3b11fnuz", 8, 0, true, true, 0, NULL, NULL, DL_FLOAT8_E4M3B11FNUZ, true, NULL},
    [GB_TYPE_FLOAT8_E4M3FN] =
        {"float8_e4m3fn", 8, 0, true, true, 0, NULL, NULL, DL_FLOAT8_E4M3FN, true, "F8_E4M3"},
    [GB_TYPE_FLOAT8_E4M3FNUZ] =
        {"float8_e4m3fnuz", 8, 0, true, true, 0, NULL, NULL,
         DL_FLOAT8_E4M3FNUZ, true, "F8_E4M3FNUZ"},
    [GB_TYPE_FLOAT8_E5M2] =
        {"float8_e5m2", 8, 0, true, true, 0, NULL, NULL, DL_FLOAT8_E5M2, true, "F8_E5M2"},
    [GB_TYPE_FLOAT8_E5M2FNUZ] =
        {"float8_e5m2fnuz", 8, 0, true, true, 0, NULL, NULL,
         DL_FLOAT8_E5M2FNUZ, true, "F8_E5M2FNUZ"},
    [GB_TYPE_FLOAT8_E8M0FNU] =
        {"float8_e8m0fnu", 8, 0, true, true, 0, NULL, NULL, DL_FLOAT8_E8M0FNU, true, "F8_E8M0"},
    [GB_TYPE_FLOAT6_E2M3FN] =
        {"float6_e2m3fn", 6, 0, true, true, 0, NULL, NULL, DL_FLOAT6_E2M3FN, true, "F6_E2M3"},
    [GB_TYPE_FLOAT6_E3M2FN] =
        {"float6_e3m2fn", 6, 0, true, true, 0, NULL, NULL, DL_FLOAT6_E3M2FN, true, "F6_E3M2"},
    [GB_TYPE_FLOAT4_E2M1FN] =
        {"float4_e2m1fn", 4, 0, true, true, 0, NULL, NULL, DL_FLOAT4_E2M1FN, true, "F4"},
    [GB_TYPE_UTF8] = {"utf8", 0, 4, true, true, 0, "u", NULL, DL_NONE, false, NULL},
    [GB_TYPE_LARGE_UTF8] = {"large_utf8", 0, 8, true, true, 0, "U", NULL, DL_NONE, false, NULL},
    [GB_TYPE_BINARY] = {"binary", 0, 4, true, true, 0, "z", NULL, DL_NONE, false, NULL},
    [GB_TYPE_LARGE_BINARY] = {"large_binary", 0, 8, true, true, 0, "Z", NULL, DL_NONE, false, NULL},
    [GB_TYPE_FIXED_BINARY] = {"fixed_binary", 0, 0, true, true, 0, "w:", "|S", DL_NONE, true, NULL},
    [GB_TYPE_DATE32] = {"date32", 32, 0, true, true, 0, "tdD", NULL, DL_NONE, true, NULL},
    [GB_TYPE_DATE64] = {"date64", 64, 0, true, true, 0, "tdm", NULL, DL_NONE, true, NULL},
    [GB_TYPE_TIME32] = {"time32", 32, 0, true, true, 0, "tt", NULL, DL_NONE, true, NULL},
    [GB_TYPE_TIME64] = {"time64", 64, 0, true, true, 0, "tt", NULL, DL_NONE, true, NULL},
    [GB_TYPE_TIMESTAMP] = {"timestamp", 64, 0, true, true, 0, "ts", "<M8", DL_NONE, true, NULL},
    [GB_TYPE_DURATION] = {"duration", 64, 0, true, true, 0, "tD", "<m8", DL_NONE, true, NULL},
    [GB_TYPE_DECIMAL128] = {"decimal128", 128, 0, true, true, 0, "d:", NULL, DL_NONE, true, NULL},
    [GB_TYPE_MONTH_INTERVAL] =
        {"month_interval", 32, 0, true, true, 0, "tiM", NULL, DL_NONE, false, NULL},
    [GB_TYPE_DAY_TIME_INTERVAL] =
        {"day_time_interval", 64, 0, true, true, 0, "tiD", NULL, DL_NONE, false, NULL},
    [GB_TYPE_MONTH_DAY_NANO_INTERVAL] =
        {"month_day_nano_interval", 128, 0, true, true, 0, "tin", NULL, DL_NONE, false, NULL},
    [GB_TYPE_LIST] = {"list", 0, 4, false, true, 1, "+l", NULL, DL_NONE, false, NULL},
    [GB_TYPE_LARGE_LIST] = {"large_list", 0, 8, false, true, 1, "+L", NULL, DL_NONE, false, NULL},
    [GB_TYPE_FIXED_LIST] = {"fixed_list", 0, 0, false, true, 1, "+w:", NULL, DL_NONE, false, NULL},
    [GB_TYPE_MAP] = {"map", 0, 4, false, true, 1, "+m", NULL, DL_NONE, false, NULL},
    [GB_TYPE_STRUCT] = {"struct", 0, 0, false, true, -1, "+s", NULL, DL_NONE, false, NULL},
    [GB_TYPE_DICTIONARY] = {"dictionary", 0, 0, false, false, 2, NULL, NULL, DL_NONE, false, NULL},
    [GB_TYPE_NULL] = {"null", 0, 0, false, false, 0, "n", NULL, DL_NONE, false, NULL},
};
/* clang-format on */

static const char *const unit_names[] = {"", "s", "ms", "us", "ns"};
static const char unit_letters[] = "\0smun"; /* Arrow's; the index is an enum gb_unit */

const struct gb_type_info *gb_type_info(enum gb_type type)
{
    return &types[type];
}

/* ---- a cursor over text ---- */

struct cursor {
    const char *at, *end;
};

static bool consume(struct cursor *cursor, const char *text)
{
    size_t length = strlen(text);

    if ((size_t)(cursor->end - cursor->at) < length || memcmp(cursor->at, text, length) != 0)
        return false;
    cursor->at += length;
    return true;
}

static bool at_end(const struct cursor *cursor)
{
    return cursor->at == cursor->end;
}

/* Decimal digits without a leading zero, the value at most `max`. */
static bool take_number(struct cursor *cursor, uint32_t max, uint32_t *value)
{
    const char *start = cursor->at;
    uint64_t number = 0;

    while (cursor->at < cursor->end && *cursor->at >= '0' && *cursor->at <= '9') {
        number = number * 10 + (uint64_t)(*cursor->at++ - '0');
        if (number > max)
            return false;
    }
    if (cursor->at == start || (*start == '0' && cursor->at - start > 1))
        return false;
    *value = (uint32_t)number;
    return true;
}

/* "p,s" of a decimal. */
static bool take_decimal(struct cursor *cursor, struct gb_dtype *dtype)
{
    uint32_t precision, scale;

    if (!take_number(cursor, 38, &precision) || precision == 0 || !consume(cursor, ","))
        return false;
    bool negative = consume(cursor, "-");
    if (!take_number(cursor, 38, &scale) || (negative && scale == 0))
        return false;
    dtype->precision = (uint8_t)precision;
    dtype->scale = (int8_t)(negative ? -(int)scale : (int)scale);
    return true;
}

static bool take_size(struct cursor *cursor, struct gb_dtype *dtype)
{
    return take_number(cursor, INT32_MAX, &dtype->size) &&
           (dtype->size > 0 || dtype->type == GB_TYPE_FIXED_LIST);
}

static bool unit_allowed(enum gb_type type, enum gb_unit unit)
{
    switch (type) {
    case GB_TYPE_TIME32:
        return unit == GB_UNIT_S || unit == GB_UNIT_MS;
    case GB_TYPE_TIME64:
        return unit == GB_UNIT_US || unit == GB_UNIT_NS;
    default:
        return unit != GB_UNIT_NONE;
    }
}

static bool take_unit(struct cursor *cursor, struct gb_dtype *dtype)
{
    for (unsigned unit = GB_UNIT_S; unit <= GB_UNIT_NS; unit++) {
        if (consume(cursor, unit_names[unit])) {
            dtype->unit = (enum gb_unit)unit;
            return unit_allowed(dtype->type, dtype->unit);
        }
    }
    return false;
}

/* The characters of time zones' names and of offsets such as "+05:30". */
static bool is_zone_char(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("_+-/:.", c));
}

/* One or more characters of a time zone's name. */
static bool take_zone(struct cursor *cursor, struct gb_dtype *dtype)
{
    size_t length = 0;

    while (cursor->at < cursor->end && is_zone_char(*cursor->at)) {
        if (length + 1 == sizeof(dtype->zone))
            return false;
        dtype->zone[length++] = *cursor->at++;
    }
    dtype->zone[length] = '\0';
    return length > 0;
}

/* ---- the protocol's spelling ---- */

static bool find_name(const char *text, size_t length, enum gb_type *type)
{
    for (unsigned i = 0; i < GB_TYPE_COUNT; i++) {
        const char *name = types[i].name;
        if (name[0] == text[0] && strlen(name) == length && memcmp(name, text, length) == 0) {
            *type = (enum gb_type)i;
            return true;
        }
    }
    return false;
}

static bool take_parameters(struct cursor *cursor, struct gb_dtype *dtype)
{
    switch (dtype->type) {
    case GB_TYPE_FIXED_BINARY:
    case GB_TYPE_FIXED_LIST:
        return consume(cursor, "(") && take_size(cursor, dtype) && consume(cursor, ")");
    case GB_TYPE_DECIMAL128:
        return consume(cursor, "(") && take_decimal(cursor, dtype) && consume(cursor, ")");
    case GB_TYPE_TIME32:
    case GB_TYPE_TIME64:
    case GB_TYPE_DURATION:
        return consume(cursor, "[") && take_unit(cursor, dtype) && consume(cursor, "]");
    case GB_TYPE_TIMESTAMP:
        if (!consume(cursor, "[") || !take_unit(cursor, dtype))
            return false;
        if (consume(cursor, ",") && !take_zone(cursor, dtype))
            return false;
        return consume(cursor, "]");
    default:
        return true;
    }
}

bool gb_dtype_parse(const char *text, size_t length, struct gb_dtype *dtype)
{
    struct gb_dtype parsed = {.unit = GB_UNIT_NONE};
    struct cursor cursor = {text, text + length};

    while (cursor.at < cursor.end && *cursor.at != '(' && *cursor.at != '[')
        cursor.at++;
    if (cursor.at == text || !find_name(text, (size_t)(cursor.at - text), &parsed.type))
        return false;
    if (!take_parameters(&cursor, &parsed) || !at_end(&cursor))
        return false;
    *dtype = parsed;
    return true;
}

size_t gb_dtype_format(const struct gb_dtype *dtype, char *buffer, size_t size)
{
    const char *name = types[dtype->type].name;
    const char *unit = unit_names[dtype->unit];
    int length;

    switch (dtype->type) {
    case GB_TYPE_FIXED_BINARY:
    case GB_TYPE_FIXED_LIST:
        length = snprintf(buffer, size, "%s(%u)", name, dtype->size);
        break;
    case GB_TYPE_DECIMAL128:
        length = snprintf(buffer, size, "%s(%d,%d)", name, dtype->precision, dtype->scale);
        break;
    case GB_TYPE_TIME32:
    case GB_TYPE_TIME64:
    case GB_TYPE_DURATION:
    case GB_TYPE_TIMESTAMP:
        length = snprintf(buffer, size, "%s[%s%s%s]", name, unit, dtype->zone[0] ? "," : "",
                          dtype->zone);
        break;
    default: /* not by snprintf, since wide tables have thousands of these */
        length = (int)strlen(name);
        if (size > 0) {
            size_t copied = (size_t)length < size ? (size_t)length : size - 1;
            memcpy(buffer, name, copied);
            buffer[copied] = '\0';
        }
        break;
    }
    return (size_t)length;
}

uint64_t gb_dtype_bits(const struct gb_dtype *dtype)
{
    if (dtype->type == GB_TYPE_FIXED_BINARY)
        return (uint64_t)dtype->size * 8;
    return types[dtype->type].bits;
}

bool gb_dtype_packed(const struct gb_dtype *dtype)
{
    return types[dtype->type].array && types[dtype->type].bits % 8 != 0;
}

bool gb_dtype_fills(const struct gb_dtype *dtype, uint64_t count)
{
    return !gb_dtype_packed(dtype) || count % 8 * types[dtype->type].bits % 8 == 0;
}

uint64_t gb_dtype_item(const struct gb_dtype *dtype)
{
    return gb_dtype_packed(dtype) ? 1 : gb_dtype_bits(dtype) / 8;
}

uint64_t gb_dtype_items(const struct gb_dtype *dtype, uint64_t count, bool last)
{
    return last && gb_dtype_packed(dtype) ? count * types[dtype->type].bits / 8 : count;
}

/* ---- Arrow ---- */

bool gb_dtype_to_arrow(const struct gb_dtype *dtype, char *buffer, size_t size)
{
    const char *format = types[dtype->type].arrow;
    char unit = unit_letters[dtype->unit];

    if (!format)
        return false;
    switch (dtype->type) {
    case GB_TYPE_FIXED_BINARY:
    case GB_TYPE_FIXED_LIST:
        snprintf(buffer, size, "%s%u", format, dtype->size);
        break;
    case GB_TYPE_DECIMAL128:
        snprintf(buffer, size, "%s%d,%d", format, dtype->precision, dtype->scale);
        break;
    case GB_TYPE_TIME32:
    case GB_TYPE_TIME64:
    case GB_TYPE_DURATION:
        snprintf(buffer, size, "%s%c", format, unit);
        break;
    case GB_TYPE_TIMESTAMP:
        snprintf(buffer, size, "%s%c:%s", format, unit, dtype->zone);
        break;
    default:
        snprintf(buffer, size, "%s", format);
        break;
    }
    return true;
}

/* The part after types[dtype->type].arrow in a format string. */
static bool take_arrow_parameters(struct cursor *cursor, struct gb_dtype *dtype)
{
    const char *letter;

    switch (dtype->type) {
    case GB_TYPE_FIXED_BINARY:
    case GB_TYPE_FIXED_LIST:
        return take_size(cursor, dtype);
    case GB_TYPE_DECIMAL128:
        if (!take_decimal(cursor, dtype))
            return false;
        consume(cursor, ",128"); /* the width may be said */
        return true;
    case GB_TYPE_TIME32:
    case GB_TYPE_TIME64:
    case GB_TYPE_DURATION:
    case GB_TYPE_TIMESTAMP:
        if (at_end(cursor))
            return false;
        letter = strchr(unit_letters + 1, *cursor->at++);
        if (!letter)
            return false;
        dtype->unit = (enum gb_unit)(letter - unit_letters);
        if (!unit_allowed(dtype->type, dtype->unit))
            return false;
        if (dtype->type != GB_TYPE_TIMESTAMP)
            return true;
        return consume(cursor, ":") && (at_end(cursor) || take_zone(cursor, dtype));
    default:
        return true;
    }
}

bool gb_dtype_from_arrow(const char *format, struct gb_dtype *dtype)
{
    for (unsigned i = 0; i < GB_TYPE_COUNT; i++) {
        if (!types[i].arrow || types[i].arrow[0] != format[0])
            continue;
        struct gb_dtype parsed = {.type = (enum gb_type)i};
        struct cursor cursor = {format, format + strlen(format)};

        if (consume(&cursor, types[i].arrow) && take_arrow_parameters(&cursor, &parsed) &&
            at_end(&cursor)) {
            *dtype = parsed;
            return true;
        }
    }
    return false;
}

/* ---- NumPy ---- */

bool gb_dtype_to_numpy(const struct gb_dtype *dtype, char *buffer, size_t size)
{
    const char *typestr = types[dtype->type].numpy;

    if (!typestr)
        return false;
    switch (dtype->type) {
    case GB_TYPE_FIXED_BINARY:
        snprintf(buffer, size, "%s%u", typestr, dtype->size);
        break;
    case GB_TYPE_TIMESTAMP:
    case GB_TYPE_DURATION:
        snprintf(buffer, size, "%s[%s]", typestr, unit_names[dtype->unit]);
        break;
    default:
        snprintf(buffer, size, "%s", typestr);
        break;
    }
    return true;
}

static bool take_numpy_parameters(struct cursor *cursor, struct gb_dtype *dtype)
{
    switch (dtype->type) {
    case GB_TYPE_FIXED_BINARY:
        return take_size(cursor, dtype);
    case GB_TYPE_TIMESTAMP:
    case GB_TYPE_DURATION:
        return consume(cursor, "[") && take_unit(cursor, dtype) && consume(cursor, "]");
    default:
        return true;
    }
}

bool gb_dtype_from_numpy(const char *typestr, size_t length, struct gb_dtype *dtype)
{
    for (unsigned i = 0; i < GB_TYPE_COUNT && length > 0; i++) {
        const char *numpy = types[i].numpy;
        struct gb_dtype parsed = {.type = (enum gb_type)i};
        struct cursor cursor = {typestr + 1, typestr + length};

        /* '=' is native; single bytes have no order, and some write '<' for them. */
        if (!numpy ||
            (typestr[0] == '|' ? numpy[0] != '|' : typestr[0] != '<' && typestr[0] != '='))
            continue;
        if (consume(&cursor, numpy + 1) && take_numpy_parameters(&cursor, &parsed) &&
            at_end(&cursor)) {
            *dtype = parsed;
            return true;
        }
    }
    return false;
}
