#include "client/gpubufctl/output/format.h"

#include <inttypes.h>
#include <math.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

__extension__ typedef unsigned __int128 uint128;

/* ---- for people ----------------------------------------------------------------------------- */

static struct gb_short said(const char *format, ...) __attribute__((format(printf, 1, 2)));

static struct gb_short said(const char *format, ...)
{
    struct gb_short out;
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(out.text, sizeof(out.text), format, arguments);
    va_end(arguments);
    return out;
}

struct gb_short gb_size(uint64_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned unit = 0;
    double value = (double)bytes;

    if (bytes < 1024)
        return said("%" PRIu64 " B", bytes);
    while (value >= 1023.5 && unit < 6) {
        value /= 1024;
        unit++;
    }
    return said("%.*f %s", value < 9.95 ? 1 : 0, value, units[unit]);
}

static bool plain_counts;

void gb_format_plain(bool plain)
{
    plain_counts = plain;
}

struct gb_short gb_count(uint64_t count)
{
    struct gb_short digits = said("%" PRIu64, count), out = {""};
    size_t length = strlen(digits.text);

    if (length < 5 || plain_counts)
        return digits;
    for (size_t i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            strcat(out.text, "\u202f");
        strncat(out.text, &digits.text[i], 1);
    }
    return out;
}

struct gb_short gb_age(int64_t ms)
{
    if (ms < 9950)
        return said("%.1f s", (double)(ms < 0 ? 0 : ms) / 1e3);
    if (ms < 120000)
        return said("%" PRId64 " s", ms / 1000);
    if (ms < 120 * 60000)
        return said("%" PRId64 " min", ms / 60000);
    if (ms < 48 * 3600000LL)
        return said("%" PRId64 " h", ms / 3600000);
    return said("%" PRId64 " d", ms / 86400000);
}

static struct gb_short local(int64_t seconds, const char *format)
{
    const time_t when = (time_t)seconds;
    struct gb_short out = {""};
    struct tm broken;

    if (localtime_r(&when, &broken))
        (void)strftime(out.text, sizeof(out.text), format, &broken);
    return out;
}

struct gb_short gb_clock(int64_t seconds)
{
    return local(seconds, "%H:%M:%S");
}

struct gb_short gb_local_time(int64_t ms)
{
    struct gb_short out = local(ms / 1000, "%Y-%m-%d %H:%M:%S %z");

    return out.text[0] ? out : said("%" PRId64 " ms", ms);
}

struct gb_short gb_user(int64_t uid)
{
    char buffer[4096];
    struct passwd entry, *found = NULL;

    if (uid >= 0 && getpwuid_r((uid_t)uid, &entry, buffer, sizeof(buffer), &found) == 0 && found)
        return said("%s", found->pw_name);
    return said("%" PRId64, uid);
}

/* ---- floating point ------------------------------------------------------------------------- */

/* Writes few digits of a number below 10^16 without an exponent, and adds ".0" to what looks like
   an integer. */
static size_t finish_float(char *out)
{
    double value = strtod(out, NULL);

    if (strchr(out, 'e') && fabs(value) >= 1 && fabs(value) < 1e16)
        (void)snprintf(out, GB_FORMAT_MAX - 2, "%.0f", value);
    size_t length = strlen(out);
    if (strpbrk(out, ".eni"))
        return length;
    memcpy(out + length, ".0", 3);
    return length + 2;
}

static size_t format_special(double value, char *out)
{
    return (size_t)sprintf(out, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
}

size_t gb_format_float64(double value, char *out)
{
    if (!isfinite(value))
        return format_special(value, out);
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(out, GB_FORMAT_MAX - 2, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            break;
    }
    return finish_float(out);
}

size_t gb_format_float32(float value, char *out)
{
    if (!isfinite(value))
        return format_special((double)value, out);
    for (int digits = 6; digits <= 9; digits++) {
        (void)snprintf(out, GB_FORMAT_MAX - 2, "%.*g", digits, (double)value);
        if (strtof(out, NULL) == value)
            break;
    }
    return finish_float(out);
}

double gb_float16_value(uint16_t bits)
{
    int exponent = bits >> 10 & 0x1f;
    int mantissa = bits & 0x3ff;
    double value;

    if (exponent == 0x1f)
        value = mantissa ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        value = ldexp(mantissa, -24);
    else
        value = ldexp(mantissa | 0x400, exponent - 25);
    return bits & 0x8000 ? -value : value;
}

/* The halfway points between a finite 16-bit float and its neighbours tell which decimals read back
   as it: `low` and `high` enclose them. */
static size_t format_between(double low, double value, double high, char *out)
{
    for (int digits = 1; digits <= 9; digits++) {
        (void)snprintf(out, GB_FORMAT_MAX - 2, "%.*g", digits, value);
        double back = strtod(out, NULL);
        if (back > low && back < high)
            break;
    }
    return finish_float(out);
}

static size_t format_short_float(uint16_t bits, double (*value_of)(uint16_t), char *out)
{
    double value = value_of(bits);

    if (!isfinite(value) || (bits & 0x7fff) == 0)
        return isfinite(value) ? (size_t)sprintf(out, "%s", bits ? "-0.0" : "0.0")
                               : format_special(value, out);
    double inner = value_of((uint16_t)(bits - 1));
    double outer = value_of((uint16_t)(bits + 1));
    if (!isfinite(outer)) /* for the largest, as far up as the next smaller one is down */
        outer = value + (value - inner);
    double a = (inner + value) / 2, b = (value + outer) / 2;
    return format_between(a < b ? a : b, value, a < b ? b : a, out);
}

size_t gb_format_float16(uint16_t bits, char *out)
{
    return format_short_float(bits, gb_float16_value, out);
}

static double bfloat16_value(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &wide, sizeof(value));
    return (double)value;
}

size_t gb_format_bfloat16(uint16_t bits, char *out)
{
    return format_short_float(bits, bfloat16_value, out);
}

/* The special values, by the names' endings: fn: no infinities; fnuz: neither, nor a negative zero,
   whose bits are NaN. */
enum specials { IEEE, ALL_ONES, UZ, NONE };

static const struct small_float {
    enum gb_type type;
    int exponent_bits, mantissa_bits, bias;
    enum specials specials;
} small_floats[] = {
    {GB_TYPE_FLOAT8_E3M4, 3, 4, 3, IEEE},       {GB_TYPE_FLOAT8_E4M3, 4, 3, 7, IEEE},
    {GB_TYPE_FLOAT8_E4M3B11FNUZ, 4, 3, 11, UZ}, {GB_TYPE_FLOAT8_E4M3FN, 4, 3, 7, ALL_ONES},
    {GB_TYPE_FLOAT8_E4M3FNUZ, 4, 3, 8, UZ},     {GB_TYPE_FLOAT8_E5M2, 5, 2, 15, IEEE},
    {GB_TYPE_FLOAT8_E5M2FNUZ, 5, 2, 16, UZ},    {GB_TYPE_FLOAT6_E2M3FN, 2, 3, 1, NONE},
    {GB_TYPE_FLOAT6_E3M2FN, 3, 2, 3, NONE},     {GB_TYPE_FLOAT4_E2M1FN, 2, 1, 1, NONE},
};

static double value_of_small(const struct small_float *small, unsigned bits)
{
    unsigned sign = 1u << (small->exponent_bits + small->mantissa_bits);
    unsigned magnitude = bits & (sign - 1), top = (1u << small->exponent_bits) - 1;
    unsigned exponent = magnitude >> small->mantissa_bits;
    unsigned mantissa = magnitude & ((1u << small->mantissa_bits) - 1);
    bool nan = small->specials == UZ && bits == sign;
    double value;

    nan = nan || (small->specials == ALL_ONES && magnitude == sign - 1);
    nan = nan || (small->specials == IEEE && exponent == top && mantissa != 0);
    if (nan)
        return (double)NAN;
    if (small->specials == IEEE && exponent == top)
        value = (double)INFINITY;
    else if (exponent == 0)
        value = ldexp(mantissa, 1 - small->bias - small->mantissa_bits);
    else
        value = ldexp(mantissa | 1u << small->mantissa_bits,
                      (int)exponent - small->bias - small->mantissa_bits);
    return bits & sign ? -value : value;
}

double gb_small_float_value(enum gb_type type, uint8_t bits)
{
    if (type == GB_TYPE_FLOAT8_E8M0FNU)
        return bits == 0xff ? (double)NAN : ldexp(1, bits - 127);
    for (size_t i = 0; i < sizeof(small_floats) / sizeof(small_floats[0]); i++) {
        if (small_floats[i].type == type)
            return value_of_small(&small_floats[i], bits);
    }
    return (double)NAN; /* none of them */
}

/* Formatted as a float of 32 bits, which has the same value exactly. */
size_t gb_format_small_float(enum gb_type type, uint8_t bits, char *out)
{
    return gb_format_float32((float)gb_small_float_value(type, bits), out);
}

/* ---- dates and times ------------------------------------------------------------------------ */

static int64_t floor_div(int64_t value, int64_t by, int64_t *rest)
{
    int64_t quotient = value / by;

    *rest = value % by;
    if (*rest < 0) {
        *rest += by;
        quotient--;
    }
    return quotient;
}

static int64_t per_second(enum gb_unit unit)
{
    switch (unit) {
    case GB_UNIT_MS:
        return 1000;
    case GB_UNIT_US:
        return 1000000;
    case GB_UNIT_NS:
        return 1000000000;
    default:
        return 1;
    }
}

static int fraction_digits(enum gb_unit unit)
{
    return unit == GB_UNIT_MS ? 3 : unit == GB_UNIT_US ? 6 : unit == GB_UNIT_NS ? 9 : 0;
}

size_t gb_format_date(int64_t days, char *out)
{
    /* Eras of 400 years, and years that begin in March, so that leap days come last. */
    int64_t day_of_era, from_march = 719468, rest;
    int64_t era = floor_div(days, 146097, &rest); /* first, so that adding cannot overflow */
    day_of_era = rest + from_march;
    era += day_of_era / 146097;
    day_of_era %= 146097;
    int64_t year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
    int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    int month_from_march = (int)((5 * day_of_year + 2) / 153);
    int day = (int)(day_of_year - (153 * month_from_march + 2) / 5) + 1;
    int month = month_from_march < 10 ? month_from_march + 3 : month_from_march - 9;
    int64_t year = year_of_era + era * 400 + (month <= 2);

    const char *pattern =
        year >= 0 && year <= 9999 ? "%04" PRId64 "-%02d-%02d" : "%+05" PRId64 "-%02d-%02d";
    return (size_t)snprintf(out, GB_FORMAT_MAX, pattern, year, month, day);
}

static size_t format_fraction(int64_t fraction, enum gb_unit unit, char *out)
{
    if (fraction == 0) {
        *out = '\0';
        return 0;
    }
    return (size_t)sprintf(out, ".%0*" PRId64, fraction_digits(unit), fraction);
}

static size_t format_clock(int64_t second_of_day, char *out)
{
    return (size_t)sprintf(out, "%02d:%02d:%02d", (int)(second_of_day / 3600),
                           (int)(second_of_day / 60 % 60), (int)(second_of_day % 60));
}

size_t gb_format_time(int64_t value, enum gb_unit unit, char *out)
{
    int64_t fraction;
    int64_t second = floor_div(value, per_second(unit), &fraction);

    if (second < 0 || second >= 86400) /* not a time of day: written as a plain number */
        return (size_t)sprintf(out, "%" PRId64, value);
    size_t used = format_clock(second, out);
    return used + format_fraction(fraction, unit, out + used);
}

size_t gb_format_timestamp(int64_t value, enum gb_unit unit, bool utc, char *out)
{
    int64_t fraction, second;

    if (value == INT64_MIN) /* NumPy's "not a time" */
        return (size_t)sprintf(out, "NaT");
    int64_t day = floor_div(floor_div(value, per_second(unit), &fraction), 86400, &second);
    size_t used = gb_format_date(day, out);
    out[used++] = 'T';
    used += format_clock(second, out + used);
    used += format_fraction(fraction, unit, out + used);
    if (utc) {
        out[used++] = 'Z';
        out[used] = '\0';
    }
    return used;
}

size_t gb_format_duration(int64_t value, enum gb_unit unit, char *out)
{
    if (value == INT64_MIN)
        return (size_t)sprintf(out, "NaT");
    int64_t scale = per_second(unit);
    int64_t whole = value < 0 ? -(value / scale) : value / scale;
    int64_t fraction = value < 0 ? -(value % scale) : value % scale;
    size_t used = (size_t)sprintf(out, "%sPT%" PRId64, value < 0 ? "-" : "", whole);
    used += format_fraction(fraction, unit, out + used);
    out[used++] = 'S';
    out[used] = '\0';
    return used;
}

size_t gb_format_interval(enum gb_type type, const void *bytes, char *out)
{
    int32_t parts[2] = {0, 0}; /* months and days; of day_time_interval days and milliseconds */
    int64_t nanoseconds = 0;
    size_t used = 0;

    memcpy(parts, bytes, type == GB_TYPE_MONTH_INTERVAL ? sizeof(parts[0]) : sizeof(parts));
    if (type == GB_TYPE_MONTH_DAY_NANO_INTERVAL)
        memcpy(&nanoseconds, (const char *)bytes + sizeof(parts), sizeof(nanoseconds));
    bool day_time = type == GB_TYPE_DAY_TIME_INTERVAL;
    int32_t months = day_time ? 0 : parts[0], days = parts[!day_time];
    int64_t fine = day_time ? parts[1] : nanoseconds;
    int64_t scale = day_time ? 1000 : 1000000000;
    out[used++] = 'P';
    if (months)
        used += (size_t)sprintf(out + used, "%" PRId32 "M", months);
    if (days || (!months && !fine))
        used += (size_t)sprintf(out + used, "%" PRId32 "D", days);
    if (fine) {
        int64_t rest = fine % scale;
        used += (size_t)sprintf(out + used, "T%s%" PRId64, fine < 0 ? "-" : "",
                                fine < 0 ? -(fine / scale) : fine / scale);
        used += format_fraction(rest < 0 ? -rest : rest, day_time ? GB_UNIT_MS : GB_UNIT_NS,
                                out + used);
        out[used++] = 'S';
    }
    out[used] = '\0';
    return used;
}

size_t gb_format_decimal128(const void *bytes, int scale, char *out)
{
    uint128 value;
    char digits[48];
    size_t count = 0, used = 0;

    memcpy(&value, bytes, sizeof(value));
    bool negative = value >> 127 != 0;
    if (negative)
        value = ~value + 1;
    do {
        digits[count++] = (char)('0' + (int)(value % 10));
        value /= 10;
    } while (value != 0);
    if (negative)
        out[used++] = '-';
    while (scale > 0 && count <= (size_t)scale) /* a digit before the point */
        digits[count++] = '0';
    while (count > 0) {
        if (scale > 0 && count == (size_t)scale)
            out[used++] = '.';
        out[used++] = digits[--count];
    }
    for (int i = scale; i < 0 && !(used == 1 && out[0] == '0'); i++)
        out[used++] = '0';
    out[used] = '\0';
    return used;
}
