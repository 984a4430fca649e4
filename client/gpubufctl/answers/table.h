/* A table of JSON objects, a line each, by a list that says what its columns show. */
#ifndef GB_TABLE_H
#define GB_TABLE_H

#include <cjson/cJSON.h>

#include "client/gpubufctl/cli/cli.h"
#include "client/gpubufctl/output/grid.h"

enum gb_cell {
    GB_CELL_TEXT,
    GB_CELL_USER,   /* the name of a uid; all that follow are on the right */
    GB_CELL_NUMBER, /* such as an id; 0 is "-" */
    GB_CELL_COUNT,
    GB_CELL_SIZE,
    GB_CELL_AGE,  /* a span in milliseconds */
    GB_CELL_SINCE /* how long ago that was, in milliseconds since 1970; 0: nothing */
};

struct gb_table_column {
    const char *title, *key; /* the member of the object that it shows */
    enum gb_cell cell;
    enum gb_style style;
    bool flexible;                                          /* as in grid.h */
    unsigned char leaves;                                   /* as in grid.h */
    unsigned char least;                                    /* the narrowest screen that shows it */
    bool hidden;                                            /* not shown at all */
    void (*add)(struct gb_grid *grid, const cJSON *object); /* adds its cell; NULL: as above */
};

/* Writes the first `most` objects of a list, within `width` columns. */
void gb_table_write(struct gb_writer *out, const struct gb_table_column *columns, size_t count,
                    const cJSON *list, size_t most, unsigned width, bool color);
/* Prints all of them. */
void gb_table_print(const struct gb_cli *cli, const struct gb_table_column *columns, size_t count,
                    const cJSON *list);

/* Of an entry of `list`: "sealed", "live" or "stream". */
const char *gb_kind_of(const cJSON *object);
/* Writes "live" or "stream: frame 11, 2 readers", and a space; nothing of a sealed object. */
void gb_kind_write(struct gb_writer *out, const cJSON *object);

#define GB_TABLE(columns) (columns), sizeof(columns) / sizeof(*(columns))

#endif
