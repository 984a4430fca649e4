#define _XOPEN_SOURCE_EXTENDED 1
#include "client/gpubufctl/output/term.h"

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

#include "client/gpubufctl/output/format.h"

static bool takes_utf8;

void gb_term_init(void)
{
    bool locale_is_utf8 = setlocale(LC_CTYPE, "") && strcmp(nl_langinfo(CODESET), "UTF-8") == 0;

    if (!locale_is_utf8)
        (void)setlocale(LC_CTYPE, "C.UTF-8");
    takes_utf8 = locale_is_utf8 || isatty(STDOUT_FILENO) != 1;
    /* Plain digits for programs, and for terminals that may not show the narrow space. */
    gb_format_plain(!locale_is_utf8 || isatty(STDOUT_FILENO) != 1);
}

bool gb_term_utf8(void)
{
    return takes_utf8;
}

const char *gb_term_ellipsis(void)
{
    return takes_utf8 ? "…" : "~";
}

bool gb_term_color(enum gb_color choice)
{
    if (choice > GB_COLOR_AUTO)
        return choice == GB_COLOR_ALWAYS;
    const char *no_color = getenv("NO_COLOR");
    const char *term = getenv("TERM");
    if ((no_color && no_color[0]) || (term && strcmp(term, "dumb") == 0))
        return false;
    return isatty(STDOUT_FILENO) == 1;
}

unsigned gb_term_width(void)
{
    struct winsize size;

    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col;
    const char *columns = getenv("COLUMNS");
    if (!columns)
        return 0;
    char *end;
    unsigned long width = strtoul(columns, &end, 10);
    return *end || end == columns || width > 10000 ? 0 : (unsigned)width;
}

unsigned gb_term_rows(void)
{
    const char *term = getenv("TERM");
    struct winsize size;

    if (!term || !*term || strcmp(term, "dumb") == 0 || isatty(STDOUT_FILENO) != 1)
        return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

const char *gb_style_on(bool color, enum gb_style style)
{
    static const char *const escapes[] = {
        [GB_STYLE_NONE] = "",          [GB_STYLE_BOLD] = "\033[1m",    [GB_STYLE_DIM] = "\033[2m",
        [GB_STYLE_GREEN] = "\033[32m", [GB_STYLE_YELLOW] = "\033[33m", [GB_STYLE_RED] = "\033[31m",
        [GB_STYLE_BLUE] = "\033[34m",
    };
    return color ? escapes[style] : "";
}

const char *gb_style_off(bool color, enum gb_style style)
{
    return color && style != GB_STYLE_NONE ? "\033[0m" : "";
}

/* ---- text ---------------------------------------------------------------------------------- */

/* Decodes one character. Returns its length in bytes, 0 if it is not UTF-8. */
static size_t decode(const char *text, size_t length, uint32_t *out)
{
    unsigned char lead = (unsigned char)text[0];
    size_t size = lead < 0x80 ? 1 : lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;

    if (lead == 0 || size > length || !gb_utf8_valid(text, size))
        return 0;
    static const unsigned char masks[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t value = lead & masks[size];
    for (size_t i = 1; i < size; i++)
        value = value << 6 | ((unsigned char)text[i] & 0x3f);
    *out = value;
    return size;
}

static unsigned width_of(uint32_t character)
{
    int width = wcwidth((wchar_t)character);

    return width < 0 ? 1 : (unsigned)width;
}

unsigned gb_text_width(const char *text, size_t length)
{
    unsigned width = 0;

    for (size_t i = 0; i < length;) {
        uint32_t character = '?';
        size_t size = decode(text + i, length - i, &character);
        width += width_of(character);
        i += size ? size : 1;
    }
    return width;
}

size_t gb_text_fit(const char *text, size_t length, unsigned width)
{
    unsigned used = 0;
    size_t i = 0;

    while (i < length) {
        uint32_t character = '?';
        size_t size = decode(text + i, length - i, &character);
        used += width_of(character);
        if (used > width)
            break;
        i += size ? size : 1;
    }
    return i;
}

/* Whether it is a control character or one that changes the direction of text. */
static bool is_unsafe(uint32_t character)
{
    return character < 0x20 || (character >= 0x7f && character < 0xa0) ||
           (character >= 0x202a && character <= 0x202e) ||
           (character >= 0x2066 && character <= 0x2069) || character == 0x2028 ||
           character == 0x2029;
}

void gb_text_clean(struct gb_writer *writer, const char *text, size_t length)
{
    for (size_t i = 0; i < length;) {
        uint32_t character = 0;
        size_t size = decode(text + i, length - i, &character);
        if (size && !is_unsafe(character)) {
            gb_write(writer, text + i, size);
            i += size;
            continue;
        }
        unsigned char byte = (unsigned char)text[i];
        if (byte == '\n')
            GB_WRITE_LITERAL(writer, "\\n");
        else if (byte == '\r')
            GB_WRITE_LITERAL(writer, "\\r");
        else if (byte == '\t')
            GB_WRITE_LITERAL(writer, "\\t");
        else if (size > 1)
            gb_write_format(writer, "\\u%04x", (unsigned)character);
        else
            gb_write_format(writer, "\\x%02x", byte);
        i += size ? size : 1;
    }
}

void gb_text_clean_json(struct gb_writer *writer, const char *json, size_t length)
{
    size_t written = 0;

    for (size_t i = 0; i < length;) {
        uint32_t character = 0;
        size_t size = (unsigned char)json[i] < 0x7f ? 1 : decode(json + i, length - i, &character);
        if (is_unsafe(character) && character) {
            gb_write(writer, json + written, i - written);
            gb_write_format(writer, "\\u%04x", (unsigned)character);
            written = i + size;
        }
        i += size ? size : 1;
    }
    gb_write(writer, json + written, length - written);
}

/* ---- progress ------------------------------------------------------------------------------ */

enum { PROGRESS_AFTER_MS = 1000, PROGRESS_EVERY_MS = 100, PROGRESS_CELLS = 24 };

static bool bar_is_there;

uint64_t gb_term_clock_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void gb_progress_begin(struct gb_progress *progress, const char *what, uint64_t total)
{
    *progress = (struct gb_progress){
        .what = what,
        .total = total,
        .start_ms = gb_term_clock_ms(),
        .active = isatty(STDERR_FILENO) == 1,
    };
}

void gb_progress_update(struct gb_progress *progress, uint64_t done)
{
    if (!progress->active)
        return;
    uint64_t now = gb_term_clock_ms();
    uint64_t elapsed = now - progress->start_ms;
    if (elapsed < PROGRESS_AFTER_MS || now - progress->drawn_ms < PROGRESS_EVERY_MS)
        return;
    progress->drawn_ms = now;
    bar_is_there = true;

    const struct gb_short size = gb_size(done);
    const struct gb_short rate = gb_size((uint64_t)((double)done * 1000.0 / (double)elapsed));
    if (progress->total == 0) {
        fprintf(stderr, "\r\033[K%s  %s  %s/s", progress->what, size.text, rate.text);
        fflush(stderr);
        return;
    }
    double share = (double)done / (double)progress->total;
    if (share > 1)
        share = 1;
    int full = (int)(share * PROGRESS_CELLS);
    fprintf(stderr, "\r\033[K%s  ", progress->what);
    for (int i = 0; i < PROGRESS_CELLS; i++)
        fputs(i < full ? "█" : "░", stderr);
    fprintf(stderr, " %3d %%  %s  %s/s", (int)(share * 100), size.text, rate.text);
    fflush(stderr);
}

void gb_progress_rate(const struct gb_progress *progress, uint64_t bytes, struct gb_writer *text)
{
    const uint64_t least = 100000000;
    uint64_t elapsed = gb_term_clock_ms() - progress->start_ms;

    if (bytes >= least)
        gb_write_format(text, ", %.1f GB/s", (double)bytes / 1e6 / (double)(elapsed ? elapsed : 1));
}

void gb_progress_wipe(void)
{
    if (bar_is_there)
        fputs("\r\033[K", stderr);
    bar_is_there = false;
}

void gb_progress_end(struct gb_progress *progress)
{
    gb_progress_wipe();
    progress->active = false;
}
