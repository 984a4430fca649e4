/*
 * A line of text for a terminal, put together piece by piece and never wider than allowed: what
 * does not fit is left out, or goes on in the next line. Also draws bars.
 */
#ifndef GB_LINE_H
#define GB_LINE_H

#include "client/gpubufctl/output/term.h"

struct gb_line {
    struct gb_writer *out;
    unsigned width, used; /* columns */
    unsigned indent;      /* words that do not fit go on here in the next line; 0: they are cut */
    bool color;
};

/* `width` 0: no bound. */
struct gb_line gb_line(struct gb_writer *out, unsigned width, bool color);
/* As wide as the terminal, and with an indent: a line breaks before a word that has a space before
   it in its own piece. A word that no line has room for is written whole. */
struct gb_line gb_line_wrapped(struct gb_writer *out, unsigned indent, bool color);
void gb_line_text(struct gb_line *line, enum gb_style style, const char *text);
void gb_line_format(struct gb_line *line, enum gb_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Spaces up to a column. */
void gb_line_to(struct gb_line *line, unsigned column);
/* Ends it, and begins another like it. */
void gb_line_end(struct gb_line *line);

/* A part of a bar. */
struct gb_bar_part {
    uint64_t amount;
    const char *mark, *ascii; /* a character, one column wide; `ascii` if UTF-8 cannot be shown */
    enum gb_style style;
};

/* A bar of `width` columns. Each part takes its share of the sum, and at least one column if it is
   not 0 and there is room. */
void gb_line_bar(struct gb_line *line, const struct gb_bar_part *parts, size_t count,
                 unsigned width);

#endif
