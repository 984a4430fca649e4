#include "client/gpubufctl/output/end.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/gpubufctl/output/term.h"

static bool as_json;
static char about[512];
static void (*volatile undo)(void);

void gb_cli_json_errors(bool json)
{
    as_json = json;
}

void gb_cli_undo(void (*function)(void))
{
    undo = function;
}

_Noreturn void gb_cli_end(enum gb_status status)
{
    void (*last)(void) = undo;

    undo = NULL;
    if (last)
        last();
    (void)fflush(stdout);
    _exit(status);
}

void gb_cli_say(const char *kind, const char *sentence)
{
    struct gb_writer out, clean;

    gb_progress_wipe();
    gb_writer_init(&out, 0);
    gb_writer_init(&clean, 0);
    gb_text_clean(&clean, sentence, strlen(sentence)); /* what is no UTF-8 is no JSON */
    if (as_json) {
        gb_write_format(&out, "{\"error\":{\"kind\":\"%s\",\"message\":", kind);
        gb_write_string(&out, clean.length ? clean.data : "", clean.length);
        GB_WRITE_LITERAL(&out, "}}\n");
    } else {
        GB_WRITE_LITERAL(&out, "gpubufctl: ");
        gb_write(&out, clean.data, clean.length);
        GB_WRITE_LITERAL(&out, "\n");
    }
    if (out.failed || clean.failed)
        fputs("gpubufctl: out of memory\n", stderr);
    else
        fwrite(out.data, 1, out.length, stderr);
    gb_writer_end(&out);
    gb_writer_end(&clean);
}

enum gb_status gb_cli_status_of(int code)
{
    switch (code) {
    case GPUBUF_E_CONNECT:
    case GPUBUF_E_CLOSED:
    case GPUBUF_E_PROTOCOL:
        return GB_STATUS_NO_DAEMON;
    case GPUBUF_E_TIMEOUT:
        return GB_STATUS_TIMEOUT;
    default:
        return GB_STATUS_FAILED;
    }
}

#define FORMAT(text, format)                                                                       \
    do {                                                                                           \
        va_list arguments;                                                                         \
        va_start(arguments, format);                                                               \
        (void)vsnprintf((text), sizeof(text), (format), arguments);                                \
        va_end(arguments);                                                                         \
    } while (0)

_Noreturn void gb_cli_fail(enum gb_status status, const char *format, ...)
{
    static const char *const kinds[] = {"ok", "failed", "usage", "no_daemon", "timeout"};
    char text[2048];

    FORMAT(text, format);
    gb_cli_say(kinds[status], text);
    gb_cli_end(status);
}

void gb_cli_about(const char *format, ...)
{
    FORMAT(about, format);
}

_Noreturn void gb_cli_end_by(const struct gb_error *error)
{
    if (*about && error->code != GPUBUF_E_SYSTEM)
        gb_cli_fail(GB_STATUS_FAILED, "%s: %s", about, error->message);
    gb_cli_say(gpubuf_errkind(error->code), error->message);
    gb_cli_end(gb_cli_status_of(error->code));
}

_Noreturn void gb_cli_refuse(int code, const char *format, ...)
{
    struct gb_error error = {.code = code};

    FORMAT(error.message, format);
    gb_cli_end_by(&error);
}

/* ---- memory ---- */

_Noreturn void gb_out_of_memory(void)
{
    gb_cli_fail(GB_STATUS_FAILED, "out of memory");
}

static void *have(void *memory)
{
    if (!memory)
        gb_out_of_memory();
    return memory;
}

void *gb_new(size_t count, size_t size)
{
    return have(calloc(count ? count : 1, size ? size : 1));
}

void *gb_grow(void *memory, size_t count, size_t size)
{
    return have(reallocarray(memory, count ? count : 1, size));
}

char *gb_text(const char *format, ...)
{
    va_list arguments;
    char *text;

    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    return have(length < 0 ? NULL : text);
}

char *gb_copy(const char *text, size_t length)
{
    return have(strndup(text, length));
}

const char *gb_writer_text(struct gb_writer *writer)
{
    gb_write_char(writer, '\0');
    have(writer->failed ? NULL : writer->data);
    writer->length--;
    return writer->data;
}
