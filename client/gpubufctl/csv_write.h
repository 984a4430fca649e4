/* Writing CSV (RFC 4180, but with LF): a null is an empty field, an empty string is "". */
#ifndef GB_CSV_WRITE_H
#define GB_CSV_WRITE_H

#include <stdio.h>

#include "series.h"
#include "term.h"

/* Appends a field, quoted where it must be to be read back as it is. */
void gb_csv_write_field(struct gb_writer *writer, const char *text, size_t length);

/* A column to write: its row i is element `first` + i * `step` of the series, so that arrays of two
   axes can be written as well. */
struct gb_csv_source {
    const char *name;
    const struct gb_series *series;
    uint64_t first, step;
};

/* Writes a header and all rows. Fails with the series' error if its memory makes no sense, or with
   GPUBUF_E_NO_MEMORY. Stops early, with 0, once the stream has an error. */
int gb_csv_write(FILE *file, const struct gb_csv_source *sources, size_t count, uint64_t rows,
                 struct gb_progress *progress, struct gb_error *error);

#endif
