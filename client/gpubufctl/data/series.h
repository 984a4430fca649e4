/*
 * A series reads the elements of an object one by one: those of a column, of an array in C order,
 * or bytes. For an object on a GPU it reads a copy on the host. It checks every offset and index
 * found in shared memory against the buffers, since the publisher may have written anything there;
 * memory that makes no sense ends the program (end.h).
 *
 * It borrows the object's memory: the object must be held as long as the series. Not thread-safe.
 */
#ifndef GB_SERIES_H
#define GB_SERIES_H

#include "gpubuf.h"
#include "proto/layout/dtype.h"
#include "proto/wire/json.h"

struct gb_series {
    const char *name; /* the column's; NULL if it has none */
    struct gb_dtype dtype;
    const struct gb_type_info *info;
    uint64_t length; /* elements */
    uint64_t offset; /* of element 0 in the mask and, but for arrays, in the other buffers */
    int64_t null_count;
    const unsigned char *data, *mask, *offsets; /* NULL where there is none */
    uint64_t data_bytes;
    /* Of an element. 0 if it has no whole number of bytes; 1 if elements are packed
       (gb_series_packed reads them). */
    uint64_t item_bytes;
    void *copies[3]; /* of an object on a GPU: what `data`, `mask` and `offsets` point to */

    unsigned ndim;         /* arrays; 0 for others */
    const uint64_t *shape; /* NULL for what is no array */
    const int64_t *strides;
    bool c_order; /* elements lie one after the other */
    bool json;    /* NaN and infinities are written as null; set in the children as well */

    struct gb_series *children;
    size_t child_count;
    struct gpubuf_object *held; /* if set, released with the series */
};

/* `object` is no table. The series is to be ended with gb_series_end. */
void gb_series_init(struct gb_series *series, struct gpubuf_object *object);
void gb_series_end(struct gb_series *series);

bool gb_series_valid(const struct gb_series *series, uint64_t i); /* not null */

/* Where element i lies, for a type of whole bytes; for packed elements where byte i lies. */
const unsigned char *gb_series_item(const struct gb_series *series, uint64_t i);

/* The bytes of string or binary i. */
const char *gb_series_bytes(const struct gb_series *series, uint64_t i, size_t *length);

uint8_t gb_series_packed(const struct gb_series *series, uint64_t i); /* the bits of a packed one */

bool gb_series_bit(const struct gb_series *series, uint64_t i); /* of a bit-packed bool */

/* How many elements are null: the known count, or counted. */
uint64_t gb_series_nulls(const struct gb_series *series);

/*
 * Appends element i, which is not null, as text: strings as they are, binaries in hex, times in ISO
 * 8601, lists and structs in the manner of JSON. It ends early once the writer has failed: lists of
 * overlapping lists can make a text of any length.
 */
void gb_series_write(const struct gb_series *series, uint64_t i, struct gb_writer *writer);

/* After gb_series_as_json, gb_series_write_json appends element i as JSON, with null for a number
   that JSON does not have. */
void gb_series_as_json(struct gb_series *series);
void gb_series_write_json(const struct gb_series *series, uint64_t i, struct gb_writer *writer);

/* Whether its values are best aligned to the right. */
bool gb_series_is_number(const struct gb_series *series);

#endif
