/*
 * Files of JSON lines, an object a line, read into the columns of csv_table.h: a column for each
 * member that any of the lines has, in the order in which they first appear. A member that is
 * missing in a line is a null in that row, and so is a JSON null. Empty lines are skipped. Types
 * are found as for CSV, but text stays text, also where all of it looks like numbers.
 */
#ifndef GB_JSON_TABLE_H
#define GB_JSON_TABLE_H

#include "csv_table.h"

struct gb_json_lines;

struct gb_json_lines *gb_json_lines_new(void);
void gb_json_lines_free(struct gb_json_lines *lines);

/* Takes the file's next bytes; `last`: there are no more. GPUBUF_E_INVALID with the place ("line
   12, byte 7: …"); after a failure only gb_json_lines_free may be called. */
int gb_json_lines_feed(struct gb_json_lines *lines, const char *bytes, size_t length, bool last,
                       struct gb_error *error);

/* The table that was read; it stays the reader's. */
struct gb_csv_table *gb_json_lines_table(struct gb_json_lines *lines);

/* Settles the types that gb_csv_column_force has not. GPUBUF_E_INVALID for a column that has text
   in one line and numbers in another. */
int gb_json_lines_settle(struct gb_json_lines *lines, struct gb_error *error);

#endif
