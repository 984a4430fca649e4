/* Writing JSON into a bounded, growing buffer; base64. */
#include "proto/wire/json.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/base/limits.h"
#include "proto/base/utf8.h"
#include "proto/wire/json_chars.h"

#define CAPACITY_MIN ((size_t)512)

void gb_writer_init(struct gb_writer *writer, size_t bound)
{
    *writer = (struct gb_writer){.bound = bound};
}

void gb_writer_reset(struct gb_writer *writer)
{
    writer->length = 0;
    writer->failed = false;
}

void gb_writer_end(struct gb_writer *writer)
{
    free(writer->data);
    *writer = (struct gb_writer){.bound = writer->bound};
}

static bool set_failed(struct gb_writer *writer)
{
    writer->failed = true;
    return false;
}

/* Makes room for `needed` bytes in all, without regard to the bound. */
static bool grow(struct gb_writer *writer, size_t needed)
{
    if (needed > SIZE_MAX / 2)
        return set_failed(writer);
    size_t capacity = writer->capacity < CAPACITY_MIN ? CAPACITY_MIN : writer->capacity;
    while (capacity < needed)
        capacity *= 2;
    if (capacity > GB_LONG_BYTES && capacity < writer->bound)
        capacity = writer->bound;
    char *data = realloc(writer->data, capacity);
    if (!data)
        return set_failed(writer);
    writer->data = data;
    writer->capacity = capacity;
    return true;
}

/* Room for `length` more bytes within the bound; false once writing has failed. */
static inline bool reserve(struct gb_writer *writer, size_t length)
{
    if (writer->failed)
        return false;
    size_t needed;
    if (__builtin_add_overflow(writer->length, length, &needed) ||
        (writer->bound != 0 && needed > writer->bound))
        return set_failed(writer);
    return (writer->data && needed <= writer->capacity) || grow(writer, needed);
}

char *gb_writer_take(struct gb_writer *writer, size_t *length)
{
    char *data = NULL;

    if (!writer->failed &&
        (writer->length < writer->capacity || grow(writer, writer->length + 1))) {
        data = writer->data;
        data[writer->length] = '\0';
        if (length)
            *length = writer->length;
        writer->data = NULL;
    }
    gb_writer_end(writer);
    return data;
}

void gb_write(struct gb_writer *writer, const char *text, size_t length)
{
    if (length == 0 || !reserve(writer, length))
        return;
    memcpy(writer->data + writer->length, text, length);
    writer->length += length;
}

void gb_write_text(struct gb_writer *writer, const char *text)
{
    gb_write(writer, text, strlen(text));
}

void gb_write_char(struct gb_writer *writer, char c)
{
    if (!reserve(writer, 1))
        return;
    writer->data[writer->length++] = c;
}

/* ---- numbers ---- */

void gb_write_uint(struct gb_writer *writer, uint64_t value)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324"
                                "25262728293031323334353637383940414243444546474849"
                                "50515253545556575859606162636465666768697071727374"
                                "75767778798081828384858687888990919293949596979899";
    char digits[20];
    char *p = digits + sizeof(digits);

    while (value >= 100) {
        p -= 2;
        memcpy(p, pairs + value % 100 * 2, 2);
        value /= 100;
    }
    if (value >= 10) {
        p -= 2;
        memcpy(p, pairs + value * 2, 2);
    } else {
        *--p = (char)('0' + value);
    }
    gb_write(writer, p, (size_t)(digits + sizeof(digits) - p));
}

void gb_write_int(struct gb_writer *writer, int64_t value)
{
    if (value >= 0) {
        gb_write_uint(writer, (uint64_t)value);
    } else {
        gb_write_char(writer, '-');
        gb_write_uint(writer, 0 - (uint64_t)value);
    }
}

void gb_write_bool(struct gb_writer *writer, bool value)
{
    if (value)
        GB_WRITE_LITERAL(writer, "true");
    else
        GB_WRITE_LITERAL(writer, "false");
}

void gb_write_double(struct gb_writer *writer, double value)
{
    if (!isfinite(value)) {
        GB_WRITE_LITERAL(writer, "null");
        return;
    }
    /* The shortest text that reads back as the same number. */
    char text[40];
    for (int precision = 15; precision <= 17; precision++) {
        snprintf(text, sizeof(text), "%.*g", precision, value);
        if (!(strtod(text, NULL) < value) && !(strtod(text, NULL) > value))
            break;
    }
    /* The locale's decimal point may be another character, even one of several bytes. */
    for (const char *p = text; *p != '\0'; p++) {
        if (gb_is_digit(*p) || *p == '-' || *p == '+' || *p == 'e')
            gb_write_char(writer, *p);
        else if (!gb_utf8_is_continuation(*p))
            gb_write_char(writer, '.');
    }
}

/* ---- strings ---- */

/* Writes the escape of a byte that is not plain and not part of a character of several bytes. */
static void write_escape(struct gb_writer *writer, char c)
{
    static const char short_form[] = {
        ['\b'] = 'b', ['\f'] = 'f', ['\n'] = 'n',  ['\r'] = 'r',
        ['\t'] = 't', ['"'] = '"',  ['\\'] = '\\',
    };
    static const char hex[] = "0123456789abcdef";
    unsigned char byte = (unsigned char)c;

    if (byte == 0 || byte >= 0x80) {
        GB_WRITE_LITERAL(writer, "\\ufffd"); /* NUL, or not UTF-8: "replacement character" */
    } else if (byte < sizeof(short_form) && short_form[byte] != 0) {
        gb_write(writer, (char[]){'\\', short_form[byte]}, 2);
    } else {
        gb_write(writer, (char[]){'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15]}, 6);
    }
}

void gb_write_string(struct gb_writer *writer, const char *text, size_t length)
{
    const char *end = text + length;

    gb_write_char(writer, '"');
    for (const char *p = text; p < end && !writer->failed;) {
        const char *special = gb_skip_plain(p, end);
        gb_write(writer, p, (size_t)(special - p));
        p = special;
        if (p == end)
            break;
        size_t bytes = gb_utf8_character(p, (size_t)(end - p));
        if (bytes > 1) {
            gb_write(writer, p, bytes);
            p += bytes;
        } else if (*p == 0x7f) {
            gb_write_char(writer, *p++);
        } else {
            write_escape(writer, *p++);
        }
    }
    gb_write_char(writer, '"');
}

void gb_write_cstring(struct gb_writer *writer, const char *text)
{
    gb_write_string(writer, text, strlen(text));
}

void gb_write_format(struct gb_writer *writer, const char *format, ...)
{
    va_list arguments, again;

    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    /* vsnprintf's NUL takes room, but is not part of the text. */
    if (length < 0) {
        set_failed(writer);
    } else if (reserve(writer, (size_t)length) &&
               (writer->length + (size_t)length < writer->capacity ||
                grow(writer, writer->length + (size_t)length + 1))) {
        vsnprintf(writer->data + writer->length, (size_t)length + 1, format, again);
        writer->length += (size_t)length;
    }
    va_end(again);
    va_end(arguments);
}

/* ---- by a pattern ---- */

/* Writes one argument by a conversion such as "%04o" or "%lu". */
static void write_argument(struct gb_writer *writer, const char *pattern, va_list *arguments)
{
    char last = pattern[strlen(pattern) - 1];
    unsigned longs = 0;

    for (const char *p = pattern; *p; p++)
        longs += *p == 'l' || *p == 'z' || *p == 'j';
    if (last == 'i')
        gb_write_bool(writer, va_arg(*arguments, int));
    else if (longs) /* as wide as int64_t, whichever it is */
        gb_write_format(writer, pattern, va_arg(*arguments, uint64_t));
    else
        gb_write_format(writer, pattern, va_arg(*arguments, unsigned));
}

void gb_write_pattern_v(struct gb_writer *writer, const char *pattern, va_list *arguments)
{
    while (*pattern) {
        size_t plain = strcspn(pattern, "'%"), length;
        char conversion[16];
        const char *text;

        gb_write(writer, pattern, plain);
        pattern += plain;
        if (*pattern == '\'')
            gb_write_char(writer, '"');
        pattern += *pattern == '\'';
        if (*pattern != '%')
            continue;
        length = strcspn(pattern, "sdiuxo") + 1;
        if (strncmp(pattern, "%.*s", 4) == 0) {
            int bytes = va_arg(*arguments, int);
            gb_write_string(writer, va_arg(*arguments, const char *), (size_t)bytes);
        } else if (pattern[1] == 's') {
            text = va_arg(*arguments, const char *);
            if (text)
                gb_write_cstring(writer, text);
            else
                GB_WRITE_LITERAL(writer, "null");
        } else {
            snprintf(conversion, sizeof(conversion), "%.*s", (int)length, pattern);
            write_argument(writer, conversion, arguments);
        }
        pattern += length;
    }
}

void gb_write_pattern(struct gb_writer *writer, const char *pattern, ...)
{
    va_list arguments;

    va_start(arguments, pattern);
    gb_write_pattern_v(writer, pattern, &arguments);
    va_end(arguments);
}

/* ---- base64 ---- */

static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

size_t gb_base64_encode(const void *data, size_t length, char *out)
{
    const unsigned char *p = data;
    char *start = out;

    for (; length >= 3; length -= 3, p += 3) {
        *out++ = base64[p[0] >> 2];
        *out++ = base64[(p[0] & 3) << 4 | p[1] >> 4];
        *out++ = base64[(p[1] & 15) << 2 | p[2] >> 6];
        *out++ = base64[p[2] & 63];
    }
    if (length > 0) {
        unsigned second = length == 2 ? p[1] : 0;
        *out++ = base64[p[0] >> 2];
        *out++ = base64[(p[0] & 3u) << 4 | second >> 4];
        *out++ = length == 2 ? base64[(second & 15) << 2] : '=';
        *out++ = '=';
    }
    return (size_t)(out - start);
}

void gb_write_base64(struct gb_writer *writer, const void *data, size_t length)
{
    const unsigned char *bytes = data;
    char text[64];

    gb_write_char(writer, '"');
    for (size_t piece; length > 0; length -= piece, bytes += piece) {
        piece = length < 48 ? length : 48; /* without padding, but for the last one */
        gb_write(writer, text, gb_base64_encode(bytes, piece, text));
    }
    gb_write_char(writer, '"');
}

static int sextet(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (gb_is_digit(c))
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

long gb_base64_decode(const char *text, size_t length, void *out, size_t capacity)
{
    if (length % 4 != 0)
        return -1;
    size_t padding = 0;
    while (padding < 2 && padding < length && text[length - 1 - padding] == '=')
        padding++;
    size_t bytes = length / 4 * 3 - padding;
    if (bytes > capacity)
        return -1;

    unsigned char *to = out;
    uint32_t bits = 0;
    unsigned count = 0; /* of bits not yet written */
    for (size_t i = 0; i < length - padding; i++) {
        int value = sextet(text[i]);
        if (value < 0)
            return -1;
        bits = bits << 6 | (uint32_t)value;
        count += 6;
        if (count >= 8) {
            count -= 8;
            *to++ = (unsigned char)(bits >> count);
        }
    }
    /* Strict: the unused bits must be zero, so that each value has one spelling. */
    if ((bits & ((1u << count) - 1)) != 0)
        return -1;
    return (long)bytes;
}
