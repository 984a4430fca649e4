/*
 * Writing objects as JSON. Numbers have all their digits; nulls, NaN and infinities are written as
 * null; times are ISO 8601 and binaries hexadecimal, in strings.
 */
#ifndef GB_JSON_WRITE_H
#define GB_JSON_WRITE_H

#include "csv_write.h"

/* Writes an array of objects, one row on each line; with `lines` only the objects, without the
   brackets and commas of the array (JSON lines). Ends early as gb_csv_write does. */
void gb_json_write_rows(FILE *file, const struct gb_csv_source *sources, size_t count,
                        uint64_t rows, bool lines, struct gb_progress *progress);

/* Writes a column (`ndim` is 1) or an array as JSON arrays, one nested in the other for each axis;
   without axes as its one value. */
void gb_json_write_items(FILE *file, const struct gb_series *series, unsigned ndim,
                         struct gb_progress *progress);

#endif
