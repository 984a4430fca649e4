/* Writing CSV (RFC 4180, but with LF): a null is an empty field, an empty string is "". */
#ifndef GB_CSV_WRITE_H
#define GB_CSV_WRITE_H

#include <stdio.h>

#include "client/gpubufctl/data/series.h"
#include "client/gpubufctl/output/term.h"

/* Appends a field, quoted where it must be to be read back as it is. */
void gb_csv_write_field(struct gb_writer *writer, const char *text, size_t length);

/* A column to write: its row i is element `first` + i * `step` of the series, so that arrays of two
   axes can be written as well. */
struct gb_csv_source {
    const char *name;
    const struct gb_series *series;
    uint64_t first, step;
};

/* Writes a header and all rows. Stops early once the stream has an error. */
void gb_csv_write(FILE *file, const struct gb_csv_source *sources, size_t count, uint64_t rows,
                  struct gb_progress *progress);
/* Writes the text gathered so far, and empties it. False: the stream has an error. */
bool gb_text_flush(FILE *file, struct gb_writer *text);

#endif
