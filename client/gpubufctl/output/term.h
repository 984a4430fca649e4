/*
 * The terminal: its width, colours, how wide text is on it, and a progress bar. Standard output is
 * for results and standard error for the bar, so whether it is a terminal is asked of each of them
 * separately.
 */
#ifndef GB_TERM_H
#define GB_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/wire/json.h"

/* As the words of --color, counted from 1. */
enum gb_color { GB_COLOR_UNSET, GB_COLOR_AUTO, GB_COLOR_ALWAYS, GB_COLOR_NEVER };

/* Makes characters' widths known (LC_CTYPE in UTF-8; numbers stay in the C locale). Call once. */
void gb_term_init(void);

/* Whether standard output takes UTF-8: unless it is a terminal whose locale says otherwise. */
bool gb_term_utf8(void);
/* The sign for text that was cut off, one column wide: "…", or "~" where that cannot be
   shown. */
const char *gb_term_ellipsis(void);

/* Whether to colour standard output: as asked, else if it is a terminal, NO_COLOR is unset or empty
   and TERM is not "dumb". */
bool gb_term_color(enum gb_color choice);

/* Columns of standard output: the terminal's, else $COLUMNS, else 0 (no limit). */
unsigned gb_term_width(void);

/* Rows of the terminal that standard output is; 0: it is none, or none that can be cleared. */
unsigned gb_term_rows(void);

enum gb_style {
    GB_STYLE_NONE,
    GB_STYLE_BOLD,
    GB_STYLE_DIM,
    GB_STYLE_GREEN,
    GB_STYLE_YELLOW,
    GB_STYLE_RED,
    GB_STYLE_BLUE
};

/* The escape that starts a style, and the one that ends any; "" without colours. Static. */
const char *gb_style_on(bool color, enum gb_style style);
const char *gb_style_off(bool color, enum gb_style style);

/* Columns that UTF-8 text takes on a terminal. */
unsigned gb_text_width(const char *text, size_t length);

/* The longest start of the text that takes at most `width` columns, in bytes. */
size_t gb_text_fit(const char *text, size_t length, unsigned width);

/* Appends the text, with an escape such as \n, \t or \x1b for every character that would move the
   cursor and every byte that is not UTF-8. */
void gb_text_clean(struct gb_writer *writer, const char *text, size_t length);

/* Appends JSON with the like, which can be in its strings only, as \u009b: it has the same value.
   JSON itself escapes what is below a space. */
void gb_text_clean_json(struct gb_writer *writer, const char *json, size_t length);

/* A bar on standard error for work that takes over a second; nothing if that is no terminal. */
struct gb_progress {
    const char *what; /* "put movies"; must outlive the bar */
    uint64_t total;   /* bytes; 0: unknown */
    uint64_t start_ms, drawn_ms;
    bool active;
};

void gb_progress_begin(struct gb_progress *progress, const char *what, uint64_t total);
void gb_progress_update(struct gb_progress *progress, uint64_t done);
void gb_progress_end(struct gb_progress *progress); /* wipes the bar */
void gb_progress_wipe(void);                        /* whichever bar is there */
/* Writes ", 29.1 GB/s" for these bytes since the beginning; nothing for fewer than 100 MB. */
void gb_progress_rate(const struct gb_progress *progress, uint64_t bytes, struct gb_writer *text);

uint64_t gb_term_clock_ms(void); /* monotonic */

#endif
