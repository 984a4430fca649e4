/*
 * A table of text: columns aligned by what characters take on a terminal, long
 * cells cut with "…", and columns shrunk or left out where the terminal is too narrow. Cells are
 * copied and cleaned of control characters.
 */
#ifndef GB_GRID_H
#define GB_GRID_H

#include <stdbool.h>
#include <stddef.h>

#include "client/gpubufctl/output/term.h"

struct gb_grid_column {
    bool right;      /* numbers */
    bool flexible;   /* may be cut if there is no room */
    unsigned leaves; /* left out before anything is cut, the highest first; 0: never */
    unsigned width;  /* of the widest cell */
};

struct gb_grid_cell {
    char *text;
    size_t length;
    unsigned width;
    enum gb_style style;
};

struct gb_grid {
    size_t column_count;
    struct gb_grid_column *columns;
    struct gb_grid_cell *cells; /* row after row */
    size_t count, capacity;
    unsigned longest; /* cells are cut at this width; 0: not */
};

void gb_grid_init(struct gb_grid *grid, size_t columns);
void gb_grid_end(struct gb_grid *grid);

/* Adds the next cell, from left to right, row after row. */
void gb_grid_add(struct gb_grid *grid, const char *text, size_t length, enum gb_style style);
void gb_grid_text(struct gb_grid *grid, const char *text, enum gb_style style);
void gb_grid_format(struct gb_grid *grid, enum gb_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Writes it within `width` columns (0: as wide as it is), `indent` spaces in front. With `drop`,
 * columns that do not fit are left out from the right (at least one stays), else columns with
 * `leaves` set are left out, and then flexible columns are cut. A column without any text takes no
 * room. Returns the number of columns that were written.
 */
size_t gb_grid_write(const struct gb_grid *grid, struct gb_writer *writer, unsigned width,
                     unsigned indent, bool color, bool drop);
/* On standard output; ends the grid. */
size_t gb_grid_print(struct gb_grid *grid, unsigned width, unsigned indent, bool color, bool drop);

#endif
