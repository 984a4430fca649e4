/* The screen of `top`, as lines of text. Pure. */
#ifndef GB_TOP_VIEW_H
#define GB_TOP_VIEW_H

#include "memory.h"
#include "term.h"

enum gb_top_list { GB_TOP_OBJECTS, GB_TOP_SESSIONS, GB_TOP_USERS, GB_TOP_LISTS };

struct gb_top_view {
    const struct gb_inventory *memory;
    enum gb_top_list list;
    enum gb_inventory_order order;
    bool reverse;         /* the order is reversed */
    const char *filter;   /* only objects with this text in their names are shown; "": all */
    bool typing;          /* the filter is being typed */
    bool help;            /* the keys are told in the place of the list */
    size_t first;         /* the row of the list that is shown first */
    unsigned width, rows; /* of the screen; rows 0: no end, all lists one below the other */
    bool color;
    const char *notice; /* "" or what is wrong, shown on top */
    const char *clock;  /* "12:03:11", or "" */
    /* Set by drawing. */
    size_t list_length; /* rows that the list has */
    size_t list_rows;   /* rows of it that fit */
};

/* `first` is brought into range. */
void gb_top_draw(struct gb_top_view *view, struct gb_writer *out);

#endif
