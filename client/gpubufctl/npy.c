#include "npy.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/limits.h"

static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

bool gb_npy_is(const void *bytes, size_t length)
{
    return length >= sizeof(magic) && memcmp(bytes, magic, sizeof(magic)) == 0;
}

int gb_npy_header_bytes(const void *bytes, size_t length, size_t *header, struct gb_error *error)
{
    const unsigned char *p = bytes;

    if (!gb_npy_is(bytes, length))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "not an .npy file: it does not start with \"\\x93NUMPY\"");
    if (length < GB_NPY_PREFIX)
        return gb_fail(error, GPUBUF_E_INVALID, "the .npy header is cut short after %zu bytes",
                       length);
    if (p[6] < 1 || p[6] > 3 || p[7] != 0)
        return gb_fail(error, GPUBUF_E_INVALID,
                       ".npy version %u.%u is unknown; expected 1.0, 2.0 or 3.0", p[6], p[7]);

    size_t prefix = p[6] == 1 ? 10 : 12;
    if (length < prefix)
        return gb_fail(error, GPUBUF_E_INVALID, "the .npy header is cut short after %zu bytes",
                       length);
    size_t text = (size_t)p[8] | (size_t)p[9] << 8;
    if (p[6] != 1)
        text |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (text > GB_NPY_HEADER_MAX)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "the .npy header says that it has %zu bytes; at most %u are read", text,
                       GB_NPY_HEADER_MAX);
    *header = prefix + text;
    return 0;
}

/* ---- the dictionary, a literal of Python ---- */

struct reader {
    const char *start, *next, *end;
    struct gb_error *error;
};

static int wrong(struct reader *reader, const char *expected)
{
    return gb_fail(reader->error, GPUBUF_E_INVALID,
                   "the .npy header is broken at byte %td: expected %s",
                   reader->next - reader->start, expected);
}

static void skip_space(struct reader *reader)
{
    while (reader->next < reader->end &&
           (*reader->next == ' ' || *reader->next == '\t' || *reader->next == '\n'))
        reader->next++;
}

static bool take(struct reader *reader, char c)
{
    skip_space(reader);
    if (reader->next == reader->end || *reader->next != c)
        return false;
    reader->next++;
    return true;
}

static bool take_word(struct reader *reader, const char *word)
{
    size_t length = strlen(word);

    skip_space(reader);
    if ((size_t)(reader->end - reader->next) < length || memcmp(reader->next, word, length) != 0)
        return false;
    reader->next += length;
    return true;
}

static int read_quoted(struct reader *reader, const char *expected, const char **text,
                       size_t *length)
{
    skip_space(reader);
    if (reader->next == reader->end || (*reader->next != '\'' && *reader->next != '"'))
        return wrong(reader, expected);
    char quote = *reader->next;
    const char *p = reader->next + 1;
    while (p < reader->end && *p != quote && *p != '\\' && (unsigned char)*p >= 0x20)
        p++;
    if (p == reader->end || *p != quote) {
        reader->next = p;
        return wrong(reader, "the string's closing quote");
    }
    *text = reader->next + 1;
    *length = (size_t)(p - *text);
    reader->next = p + 1;
    return 0;
}

static int read_dtype(struct reader *reader, struct gb_npy *npy)
{
    char typestr[40];
    const char *text;
    size_t length;

    skip_space(reader);
    if (reader->next < reader->end && *reader->next == '[')
        return gb_fail(reader->error, GPUBUF_E_UNSUPPORTED,
                       "the array has a structured dtype; put its fields one by one, or as .csv");
    int status = read_quoted(reader, "a dtype such as '<f8'", &text, &length);
    if (status != 0)
        return status;

    if (length == 0 || length >= sizeof(typestr))
        return gb_fail(reader->error, GPUBUF_E_INVALID, "dtype '%.*s' is unknown",
                       (int)(length < 80 ? length : 80), text);
    memcpy(typestr, text, length);
    typestr[length] = '\0';
    npy->swap = typestr[0] == '>';
    if (npy->swap)
        typestr[0] = '<';
    if (strstr(typestr, "O"))
        return gb_fail(reader->error, GPUBUF_E_INVALID,
                       "dtype '%.*s' holds Python objects, which cannot be shared", (int)length,
                       text);
    if (!gb_dtype_from_numpy(typestr, length, &npy->dtype) || !gb_type_info(npy->dtype.type)->array)
        return gb_fail(reader->error,
                       typestr[1] && strchr("UMm", typestr[1]) ? GPUBUF_E_UNSUPPORTED
                                                               : GPUBUF_E_INVALID,
                       "dtype '%.*s' has no counterpart here; expected numbers, bool, "
                       "datetime64 or timedelta64 in s, ms, us or ns, or bytes such as 'S8'",
                       (int)length, text);
    npy->item_bytes = gb_dtype_bits(&npy->dtype) / 8;
    return 0;
}

static int read_shape(struct reader *reader, struct gb_npy *npy)
{
    bool comma = true;

    if (!take(reader, '('))
        return wrong(reader, "a shape such as (3, 4)");
    npy->ndim = 0;
    while (!take(reader, ')')) {
        if (!comma)
            return wrong(reader, "',' or ')' in the shape");
        if (npy->ndim == GB_NPY_NDIM)
            return gb_fail(reader->error, GPUBUF_E_INVALID, "the array has more than %d axes",
                           GB_NPY_NDIM);
        skip_space(reader);
        const char *start = reader->next;
        uint64_t extent = 0;
        while (reader->next < reader->end && *reader->next >= '0' && *reader->next <= '9') {
            extent = extent * 10 + (uint64_t)(*reader->next++ - '0');
            if (extent > (uint64_t)GB_LIMIT(integer))
                return gb_fail(reader->error, GPUBUF_E_INVALID,
                               "axis %u of the shape is too long; at most 2^52 - 1 elements",
                               npy->ndim);
        }
        if (reader->next == start)
            return wrong(reader, "a whole number in the shape");
        if (reader->next < reader->end && *reader->next == 'L') /* as Python 2 wrote it */
            reader->next++;
        npy->shape[npy->ndim++] = extent;
        comma = take(reader, ',');
    }
    if (npy->ndim == 1 && !comma)
        return wrong(reader, "a tuple: (3,), not (3)");
    return 0;
}

static int read_order(struct reader *reader, struct gb_npy *npy)
{
    if (take_word(reader, "True"))
        npy->fortran = true;
    else if (take_word(reader, "False"))
        npy->fortran = false;
    else
        return wrong(reader, "True or False for fortran_order");
    return 0;
}

static int read_member(struct reader *reader, struct gb_npy *npy, unsigned *seen)
{
    static const struct {
        const char *key;
        int (*read)(struct reader *, struct gb_npy *);
    } members[] = {{"descr", read_dtype}, {"fortran_order", read_order}, {"shape", read_shape}};
    const char *key;
    size_t length;

    int status = read_quoted(reader, "a key, or '}'", &key, &length);
    if (status != 0)
        return status;
    for (unsigned i = 0; i < 3; i++) {
        if (length != strlen(members[i].key) || memcmp(key, members[i].key, length) != 0)
            continue;
        if (*seen & 1u << i)
            return gb_fail(reader->error, GPUBUF_E_INVALID, "the .npy header has '%s' twice",
                           members[i].key);
        *seen |= 1u << i;
        if (!take(reader, ':'))
            return wrong(reader, "':' after the key");
        return members[i].read(reader, npy);
    }
    return gb_fail(reader->error, GPUBUF_E_INVALID,
                   "the .npy header has an unknown key '%.*s'; expected 'descr', "
                   "'fortran_order' and 'shape'",
                   (int)(length < 80 ? length : 80), key);
}

static int count_elements(struct gb_npy *npy, struct gb_error *error)
{
    uint64_t bytes = npy->item_bytes;
    bool empty = false;

    npy->count = 1;
    for (unsigned i = 0; i < npy->ndim; i++)
        empty = empty || npy->shape[i] == 0;
    for (unsigned i = 0; i < npy->ndim && !empty; i++) {
        if (__builtin_mul_overflow(bytes, npy->shape[i], &bytes) ||
            bytes > (uint64_t)GB_LIMIT(integer))
            return gb_fail(error, GPUBUF_E_INVALID,
                           "the array's shape is too large: over 2^52 - 1 bytes in all");
        npy->count *= npy->shape[i];
    }
    if (empty)
        npy->count = 0;
    npy->data_bytes = empty ? 0 : bytes;
    return 0;
}

int gb_npy_read(const void *bytes, size_t length, struct gb_npy *npy, struct gb_error *error)
{
    struct gb_npy result = {0};
    size_t header;
    unsigned seen = 0;

    int status = gb_npy_header_bytes(bytes, length, &header, error);
    if (status != 0)
        return status;
    if (length < header)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "the .npy header is cut short: it says %zu bytes, there are %zu", header,
                       length);

    const char *text = bytes;
    struct reader reader = {
        .start = text,
        .next = text + (text[6] == 1 ? 10 : 12),
        .end = text + header,
        .error = error,
    };
    if (!take(&reader, '{'))
        return wrong(&reader, "'{'");
    bool comma = true;
    while (!take(&reader, '}')) {
        if (!comma)
            return wrong(&reader, "',' or '}'");
        status = read_member(&reader, &result, &seen);
        if (status != 0)
            return status;
        comma = take(&reader, ',');
    }
    skip_space(&reader);
    if (reader.next != reader.end)
        return wrong(&reader, "only spaces after '}'");
    if (seen != 7)
        return gb_fail(error, GPUBUF_E_INVALID, "the .npy header lacks '%s'",
                       !(seen & 1)   ? "descr"
                       : !(seen & 2) ? "fortran_order"
                                     : "shape");
    status = count_elements(&result, error);
    if (status != 0)
        return status;
    result.header_bytes = header;
    *npy = result;
    return 0;
}

void gb_npy_swap(const struct gb_npy *npy, void *data, uint64_t bytes)
{
    enum gb_type type = npy->dtype.type;
    uint64_t width = npy->item_bytes;

    if (type == GB_TYPE_FIXED_BINARY)
        return;
    if (type == GB_TYPE_COMPLEX64 || type == GB_TYPE_COMPLEX128)
        width /= 2;
    if (width < 2)
        return;
    unsigned char *p = data;
    for (uint64_t i = 0; i + width <= bytes; i += width) {
        for (uint64_t a = i, b = i + width - 1; a < b; a++, b--) {
            unsigned char held = p[a];
            p[a] = p[b];
            p[b] = held;
        }
    }
}

size_t gb_npy_write(const struct gb_dtype *dtype, const uint64_t *shape, unsigned ndim, char *out)
{
    char typestr[64];
    char text[GB_NPY_WRITE_MAX];
    size_t size = sizeof(text);

    if (ndim > GB_NPY_NDIM || !gb_dtype_to_numpy(dtype, typestr, sizeof(typestr)))
        return 0;
    size_t used =
        (size_t)snprintf(text, size, "{'descr': '%s', 'fortran_order': False, 'shape': (", typestr);
    for (unsigned i = 0; i < ndim; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRIu64 "%s", i ? ", " : "",
                                 shape[i], ndim == 1 ? "," : "");
    used += (size_t)snprintf(text + used, size - used, "), }");

    size_t whole = (10 + used + 1 + 63) / 64 * 64;
    memcpy(out, magic, sizeof(magic));
    out[6] = 1;
    out[7] = 0;
    out[8] = (char)((whole - 10) & 0xff);
    out[9] = (char)((whole - 10) >> 8);
    memcpy(out + 10, text, used);
    memset(out + 10 + used, ' ', whole - 10 - used);
    out[whole - 1] = '\n';
    return whole;
}
