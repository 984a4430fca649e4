#include "client/gpubufctl/cli/parse.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client/gpubufctl/output/end.h"
#include "proto/base/limits.h"

#define LARGEST ((uint64_t)GB_LIMIT(integer))

/* Digits at *text, at least one; moves *text past them. False on overflow past 2^52 - 1. */
static bool read_digits(const char **text, uint64_t *out)
{
    const char *p = *text;
    uint64_t value = 0;

    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++) {
        value = value * 10 + (uint64_t)(*p - '0');
        if (value > LARGEST)
            return false;
    }
    *out = value;
    *text = p;
    return true;
}

int gb_parse_count(const char *text, int64_t *out, struct gb_error *error)
{
    const char *p = text;
    uint64_t value;

    if (!read_digits(&p, &value) || *p)
        return gb_fail(error, GPUBUF_E_INVALID, "\"%.80s\" is not a whole number below 2^52", text);
    *out = (int64_t)value;
    return 0;
}

int gb_parse_version(const char *text, int64_t *out, struct gb_error *error)
{
    int r = gb_parse_count(text, out, error);

    return r == 0 && *out == 0 ? gb_fail(error, GPUBUF_E_INVALID, "versions count from 1") : r;
}

/* A decimal number such as 12 or 1.5 at *text; moves past it. No sign, exponent or hex digits, no
   inf or nan. */
static bool read_decimal(const char **text, double *out)
{
    size_t length = strspn(*text, "0123456789.");
    char copy[32];
    char *end;

    if (length == 0 || length >= sizeof(copy))
        return false;
    memcpy(copy, *text, length);
    copy[length] = '\0';
    *out = strtod(copy, &end);
    if (*end || end == copy)
        return false;
    *text += length;
    return true;
}

int gb_parse_bytes(const char *text, int64_t *out, struct gb_error *error)
{
    static const char units[] = "KMGTP";
    const char *p = text;
    double value;

    if (!read_decimal(&p, &value))
        goto wrong;
    if (*p) {
        const char upper = (char)(*p >= 'a' && *p <= 'z' ? *p - 32 : *p);
        const char *unit = upper == 'B' ? NULL : strchr(units, upper);
        if (unit) {
            value = ldexp(value, 10 * (int)(unit - units + 1));
            p++;
            if (strcmp(p, "iB") == 0)
                p += 2;
        }
        if (*p == 'B')
            p++;
    }
    if (*p || value > (double)LARGEST || value != floor(value))
        goto wrong;
    *out = (int64_t)value;
    return 0;
wrong:
    return gb_fail(error, GPUBUF_E_INVALID,
                   "\"%.80s\" is not a size; write bytes, or 64K, 512M, 1.5G (powers of 1024)",
                   text);
}

int gb_parse_duration(const char *text, int64_t *out_ms, struct gb_error *error)
{
    static const struct {
        const char *unit;
        double ms;
    } units[] = {{"", 1e3},    {"s", 1e3},   {"ms", 1},    {"m", 6e4},
                 {"min", 6e4}, {"h", 3.6e6}, {"d", 8.64e7}};
    const char *p = text;
    double value;

    if (read_decimal(&p, &value)) {
        for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
            if (strcmp(p, units[i].unit) != 0)
                continue;
            double ms = value * units[i].ms;
            if (ms > (double)LARGEST)
                break;
            *out_ms = (int64_t)ceil(ms);
            return 0;
        }
    }
    return gb_fail(error, GPUBUF_E_INVALID,
                   "\"%.80s\" is not a span of time; write seconds, or 500ms, 90s, 5m, 2h, 1d",
                   text);
}

bool gb_ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), tail = strlen(end);

    return length >= tail && strcasecmp(text + length - tail, end) == 0;
}

int gb_parse_mode(const char *text, int64_t *out, struct gb_error *error)
{
    size_t length = strlen(text);
    int64_t value = 0;

    if (length >= 3 && length <= 4 && strspn(text, "01234567") == length) {
        for (const char *p = text; *p; p++)
            value = value * 8 + (*p - '0');
        if ((value & ~0666) == 0 && value != 0) {
            *out = value;
            return 0;
        }
    }
    return gb_fail(error, GPUBUF_E_INVALID,
                   "\"%.80s\" is not a mode; write three octal digits, such as 640: for owner, "
                   "group and others, 4 to open, 2 to replace and delete, 6 both",
                   text);
}

int gb_parse_shape(const char *text, uint64_t *shape, unsigned *ndim, struct gb_error *error)
{
    const char *p = text;
    unsigned count = 0;

    while (*p) {
        if (count == GB_PARSE_NDIM)
            return gb_fail(error, GPUBUF_E_INVALID, "the shape has more than %d axes",
                           GB_PARSE_NDIM);
        const char *start = p;
        uint64_t extent;
        if (!read_digits(&p, &extent) || (*p && *p != ',' && *p != 'x') || (*p == 'x' && !p[1])) {
            if (*start >= '0' && *start <= '9' && p == start)
                return gb_fail(error, GPUBUF_E_INVALID,
                               "shape \"%.80s\": an extent is too large; at most 2^52 - 1", text);
            return gb_fail(error, GPUBUF_E_INVALID,
                           "\"%.80s\" is not a shape; write extents with commas, such as 3,4",
                           text);
        }
        shape[count++] = extent;
        if (*p)
            p++;
    }
    *ndim = count;
    return 0;
}

static bool read_bound(const char **text, bool *has, int64_t *out)
{
    const char *p = *text;
    bool negative = *p == '-';
    uint64_t value;

    *has = false;
    if (!negative && (*p < '0' || *p > '9'))
        return true;
    if (negative)
        p++;
    if (!read_digits(&p, &value))
        return false;
    *out = negative ? -(int64_t)value : (int64_t)value;
    *has = true;
    *text = p;
    return true;
}

int gb_parse_slice(const char *text, struct gb_slice_text *out, struct gb_error *error)
{
    struct gb_slice_text slice = {0};
    const char *p = text;

    if (!read_bound(&p, &slice.has_start, &slice.start) || *p++ != ':' ||
        !read_bound(&p, &slice.has_stop, &slice.stop) || *p)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "\"%.80s\" is not a slice; write A:B, A: or :B (B not included, negative "
                       "numbers count from the end)",
                       text);
    *out = slice;
    return 0;
}

static uint64_t clip(bool has, int64_t bound, uint64_t missing, uint64_t length)
{
    if (!has)
        return missing;
    if (bound < 0) {
        uint64_t back = (uint64_t)-bound;
        return back > length ? 0 : length - back;
    }
    return (uint64_t)bound > length ? length : (uint64_t)bound;
}

void gb_slice_resolve(const struct gb_slice_text *slice, uint64_t length, uint64_t *offset,
                      uint64_t *count)
{
    uint64_t start = clip(slice->has_start, slice->start, 0, length);
    uint64_t stop = clip(slice->has_stop, slice->stop, length, length);

    *offset = start;
    *count = stop > start ? stop - start : 0;
}

const char **gb_parse_list(const char *text)
{
    size_t length = strlen(text), count = 0;
    const char **names = gb_new((length + 2) * sizeof(*names) + length + 1, 1);
    char *out = (char *)(names + length + 2);
    names[count++] = out;
    for (const char *p = text; *p; p++) {
        if (*p == '\\' && (p[1] == ',' || p[1] == '\\')) {
            *out++ = *++p;
        } else if (*p == ',') {
            *out++ = '\0';
            names[count++] = out;
        } else {
            *out++ = *p;
        }
    }
    *out = '\0';
    names[count] = NULL;
    return names;
}
