/* Opening a part of an object, for the commands that show or write one. */
#ifndef GB_VIEW_H
#define GB_VIEW_H

#include "client/gpubufctl/cli/cli.h"
#include "proto/wire/json.h"

/*
 * The part that gb_view_open opens: a column, or an array of a bundle, and a slice; each may be
 * NULL for the whole.
 */
struct gb_view_options {
    const char *column, *slice;
    const char *label;
    int64_t version, wait_ms;
};
/* Opens `name`, narrowed as the options say. The object is to be released. */
struct gpubuf_object *gb_view_open(struct gb_cli *cli, const char *name,
                                   const struct gb_view_options *options);

/* "table, 3201 rows × 16 columns"; "array of float64, 3 × 4". */
void gb_describe(struct gpubuf_object *object, struct gb_writer *writer);

#endif
