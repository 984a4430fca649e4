/*
 * Writing objects as JSON. Numbers have all their digits; what is no finite number is null, as a
 * null is; times are ISO 8601 and binaries hexadecimal, in strings.
 */
#ifndef GB_JSON_WRITE_H
#define GB_JSON_WRITE_H

#include "csv_write.h"

/* An array of objects, a row a line; or, if `lines`, without what makes an array of them. Fails and
   ends early as gb_csv_write does. */
int gb_json_write_rows(FILE *file, const struct gb_csv_source *sources, size_t count, uint64_t rows,
                       bool lines, struct gb_progress *progress, struct gb_error *error);

/* A column (`ndim` is 1) or an array, as arrays along its axes; without axes the one value. */
int gb_json_write_items(FILE *file, const struct gb_series *series, unsigned ndim,
                        struct gb_progress *progress, struct gb_error *error);

#endif
