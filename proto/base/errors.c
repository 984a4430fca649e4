#define GB_ERRORS_DEFINED_HERE
#include "proto/base/errors.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/base/utf8.h"

/* Leaves out what is left of characters that a precision, or the end, has split, and puts a
   question mark for a byte that begins no character. Returns the new length. */
static size_t make_utf8(char *text, size_t length)
{
    size_t kept = 0;

    for (size_t i = 0; i < length;) {
        size_t bytes = gb_utf8_character(text + i, length - i);

        if (bytes > 0) {
            memmove(text + kept, text + i, bytes);
            kept += bytes;
            i += bytes;
            continue;
        }
        if (!gb_utf8_begins_character(text[i++]))
            text[kept++] = '?';
        else
            while (i < length && gb_utf8_is_continuation(text[i]))
                i++;
    }
    text[kept] = '\0';
    return kept;
}

/* Formats into `text`, cut between characters if it is too long. Returns its length. */
__attribute__((format(printf, 3, 0))) static size_t format_message(char *text, size_t size,
                                                                   const char *format,
                                                                   va_list arguments)
{
    int length = vsnprintf(text, size, format, arguments);

    if (length < 0) {
        text[0] = '\0';
        return 0;
    }
    return make_utf8(text, (size_t)length < size ? (size_t)length : size - 1);
}

/* The arguments of a message may point into *error, so it is formatted elsewhere first. */
static int fill(struct gb_error *error, int code, const char *message, size_t length)
{
    error->code = code;
    memcpy(error->message, message, length + 1);
    error->name[0] = '\0';
    error->limit = NULL;
    error->cuda = NULL;
    return code;
}

int gb_fail(struct gb_error *error, int code, const char *format, ...)
{
    if (!error)
        return code;
    char message[sizeof(error->message)];
    va_list arguments;
    va_start(arguments, format);
    size_t length = format_message(message, sizeof(message), format, arguments);
    va_end(arguments);
    return fill(error, code, message, length);
}

int gb_fail_memory(struct gb_error *error)
{
    return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
}

int gb_fail_errno(struct gb_error *error, const char *format, ...)
{
    if (!error)
        return GPUBUF_E_SYSTEM;
    int saved = errno;
    char what[sizeof(error->message)];
    va_list arguments;
    va_start(arguments, format);
    format_message(what, sizeof(what), format, arguments);
    va_end(arguments);
    char reason[128];
    int code =
        gb_fail(error, GPUBUF_E_SYSTEM, "%s: %s", what, strerror_r(saved, reason, sizeof(reason)));
    errno = saved;
    return code;
}

int gb_fail_limit(struct gb_error *error, const char *limit, long long value, const char *text)
{
    int code = gb_fail(error, GPUBUF_E_LIMIT, "%s (the limit %s is %lld)", text, limit, value);

    if (error)
        error->limit = limit;
    return code;
}

const char *gb_error_kind(int code)
{
    switch (code) {
#define KIND(name, code_, kind, text)                                                              \
    case code_:                                                                                    \
        return kind;
        GPUBUF_ERROR_MAP(KIND)
#undef KIND
    default:
        return "unknown";
    }
}

const char *gb_error_text(int code)
{
    switch (code) {
#define TEXT(name, code_, kind, text)                                                              \
    case code_:                                                                                    \
        return text;
        GPUBUF_ERROR_MAP(TEXT)
#undef TEXT
    case 0:
        return "no error";
    default:
        return "an unknown error";
    }
}

int gb_error_from_kind(const char *kind, size_t length)
{
    static const struct {
        const char *kind;
        size_t length;
        int code;
    } kinds[] = {
#define ENTRY(name, code_, kind_, text) {kind_, sizeof(kind_) - 1, code_},
        GPUBUF_ERROR_MAP(ENTRY)
#undef ENTRY
    };
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (kinds[i].length == length && memcmp(kinds[i].kind, kind, length) == 0)
            return kinds[i].code;
    }
    return 0;
}
