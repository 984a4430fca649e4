/*
 * CSV files with a header row, read into typed columns. Bytes are fed in as they come; the text of
 * each column is kept in one stretch, with a length per field, so that a file needs about its own
 * size plus four bytes a field. At the end each column gets the narrowest type that all its fields
 * have, and is written into memory that the caller provides.
 *
 * Types: bool (true and false, also capitalised), int64, uint64, float64 (NaN and inf in any case
 * included), else utf8 (large_utf8 beyond 2 GiB). No integer is rounded: one that has no exact
 * double is not taken for a float64, one beyond 64 bits is text, and so is a number that is
 * infinite as a double (1e400). Numbers with a leading "+" or with leading zeros, such as 007, are
 * text, as codes and telephone numbers are. An empty field is null; an empty quoted one ("") is an
 * empty string. A column of empty fields only is utf8.
 *
 * Rows end with LF, CRLF or CR. Lines that are empty are skipped, except in a file of one column,
 * where one is a null. A UTF-8 byte order mark at the start is skipped.
 */
#ifndef GB_CSV_TABLE_H
#define GB_CSV_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/errors.h"

enum gb_csv_type {
    GB_CSV_BOOL,
    GB_CSV_INT64,
    GB_CSV_UINT64,
    GB_CSV_FLOAT64,
    GB_CSV_UTF8,
    GB_CSV_LARGE_UTF8,
};

struct gb_csv_column {
    char *name;
    char *text; /* the fields' bytes, one after the other */
    uint64_t text_bytes, text_capacity;
    uint32_t *lengths; /* of each field; GB_CSV_NULL for a null */
    uint64_t rows_capacity;
    uint64_t rows;
    uint64_t nulls;
    unsigned candidates; /* bits 1 << enum gb_csv_type: what the fields so far may be */
};

#define GB_CSV_NULL UINT32_MAX

struct gb_csv_reader;

/* A file's columns. Zero-initialised it is empty. */
struct gb_csv_table {
    struct gb_csv_column *columns;
    size_t column_count;
    uint64_t rows;
};

void gb_csv_table_end(struct gb_csv_table *table);

/* `delimiter`: what stands between fields; 0: a comma. */
struct gb_csv_reader *gb_csv_reader_new(char delimiter);
void gb_csv_reader_free(struct gb_csv_reader *reader);

/* Takes the file's next bytes. GPUBUF_E_INVALID with the line ("line 12: 3 fields, expected 4");
   after a failure only gb_csv_reader_free may be called. */
int gb_csv_reader_feed(struct gb_csv_reader *reader, const void *bytes, size_t length,
                       struct gb_error *error);

/* The end of the file: moves what was read into *table. Same errors. */
int gb_csv_reader_finish(struct gb_csv_reader *reader, struct gb_csv_table *table,
                         struct gb_error *error);

enum gb_csv_type gb_csv_column_type(const struct gb_csv_column *column);
const char *gb_csv_type_name(enum gb_csv_type type); /* as the protocol calls it: "float64" */

/*
 * Writes a column as Arrow has it: `data` of rows elements (bool: bits; strings: text_bytes bytes),
 * `offsets` of rows + 1 (strings only), `mask` where the column has nulls (else NULL). Values under
 * nulls become zero.
 */
void gb_csv_column_write(const struct gb_csv_column *column, void *data, void *mask, void *offsets);

#endif
