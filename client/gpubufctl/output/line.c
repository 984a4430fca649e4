#include "client/gpubufctl/output/line.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/gpubufctl/output/end.h"

enum { PARTS_MAX = 8 };

struct gb_line gb_line(struct gb_writer *out, unsigned width, bool color)
{
    return (struct gb_line){.out = out, .width = width, .color = color};
}

struct gb_line gb_line_wrapped(struct gb_writer *out, unsigned indent, bool color)
{
    return (struct gb_line){.out = out, .width = gb_term_width(), .indent = indent, .color = color};
}

static void write_words(struct gb_line *line, const char *text)
{
    bool wide = line->width > 2 * line->indent;

    while (*text) {
        size_t spaces = strspn(text, " "), length = spaces + strcspn(text + spaces, " ");

        if (wide && spaces > 0 && line->used > line->indent &&
            line->used + gb_text_width(text, length) > line->width) {
            gb_line_end(line);
            gb_line_to(line, line->indent);
            text += spaces;
            length -= spaces;
        }
        gb_write(line->out, text, length);
        line->used += gb_text_width(text, length);
        text += length;
    }
}

void gb_line_text(struct gb_line *line, enum gb_style style, const char *text)
{
    struct gb_writer clean;

    if (!*text)
        return;
    gb_writer_init(&clean, 0);
    gb_text_clean(&clean, text, strlen(text));
    (void)gb_writer_text(&clean);
    size_t length = clean.length;
    gb_write_text(line->out, gb_style_on(line->color, style));
    if (line->indent) {
        write_words(line, clean.data);
    } else {
        if (line->width)
            length = gb_text_fit(clean.data, length, line->width - line->used);
        gb_write(line->out, clean.data, length);
        line->used += gb_text_width(clean.data, length);
    }
    gb_write_text(line->out, gb_style_off(line->color, style));
    gb_writer_end(&clean);
}

void gb_line_format(struct gb_line *line, enum gb_style style, const char *format, ...)
{
    char text[512];
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    gb_line_text(line, style, text);
}

void gb_line_to(struct gb_line *line, unsigned column)
{
    if (line->width && column > line->width)
        column = line->width;
    for (; line->used < column; line->used++)
        gb_write_char(line->out, ' ');
}

void gb_line_end(struct gb_line *line)
{
    gb_write_char(line->out, '\n');
    line->used = 0;
}

/* ---- bars ---- */

/* Sets how many columns each part gets: by its share, and the columns left over go to the largest
   remainders. */
static void share_out(const struct gb_bar_part *parts, size_t count, unsigned width,
                      unsigned *columns)
{
    double remainders[PARTS_MAX], sum = 0;
    unsigned given = 0;

    for (size_t i = 0; i < count; i++)
        sum += (double)parts[i].amount;
    for (size_t i = 0; i < count; i++) {
        double exact = sum > 0 ? (double)parts[i].amount / sum * width : 0;

        columns[i] = (unsigned)exact;
        remainders[i] = exact - columns[i];
        if (columns[i] == 0 && parts[i].amount > 0) {
            columns[i] = 1;
            remainders[i] = -1;
        }
        given += columns[i];
    }
    while (given != width && sum > 0) {
        size_t best = count;

        for (size_t i = 0; i < count; i++)
            if (given < width ? best == count || remainders[i] > remainders[best]
                              : columns[i] > 0 && (best == count || columns[i] > columns[best]))
                best = i;
        if (given < width) {
            columns[best]++;
            remainders[best] -= 1;
            given++;
        } else {
            columns[best]--;
            given--;
        }
    }
}

void gb_line_bar(struct gb_line *line, const struct gb_bar_part *parts, size_t count,
                 unsigned width)
{
    unsigned columns[PARTS_MAX];

    if (count > PARTS_MAX)
        count = PARTS_MAX;
    if (line->width && width > line->width - line->used)
        width = line->width - line->used;
    share_out(parts, count, width, columns);
    for (size_t i = 0; i < count; i++) {
        if (columns[i] == 0)
            continue;
        gb_write_text(line->out, gb_style_on(line->color, parts[i].style));
        for (unsigned k = 0; k < columns[i]; k++)
            gb_write_text(line->out, gb_term_utf8() ? parts[i].mark : parts[i].ascii);
        gb_write_text(line->out, gb_style_off(line->color, parts[i].style));
        line->used += columns[i];
    }
}
