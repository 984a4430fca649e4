/* The picture of `top`, as lines of text. Pure. */
#ifndef GB_TOP_VIEW_H
#define GB_TOP_VIEW_H

#include "client/gpubufctl/answers/memory.h"
#include "client/gpubufctl/output/term.h"

struct gb_top_view {
    const struct gb_inventory *memory;
    enum gb_inventory_order order;
    unsigned width, rows; /* of the terminal; rows 0: no end */
    size_t list_rows;     /* without an end: how many rows of each list */
    bool color;
    const char *notice; /* "" or what is wrong, shown on top */
    const char *clock;  /* "12:03:11", or "" */
};

/* Draws devices and tiers, then objects, sessions and users, as many of them as there is room for.
   The last line has no newline where the rows are counted. */
void gb_top_draw(const struct gb_top_view *view, struct gb_writer *out);

#endif
