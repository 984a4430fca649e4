/*
 * Content that another user made, for Arrow's readers. Bitmaps, offsets and codes of dictionaries
 * say how much is read, and where, so they must be right, and stay so. They are copied as long as
 * somebody may write them, and checked in the copy. Elements are not: whatever their
 * bytes are, they lie within the object. Without the lock.
 */
#ifndef GB_LIB_ARROW_CHECK_H
#define GB_LIB_ARROW_CHECK_H

#include "client/lib/objects/object.h"

/* A part of a column that was checked. Buffers begin with its element number `first`, counted from
   the column's own buffers. */
struct gb_arrow_checked {
    uint64_t first;                     /* a multiple of 64, so that all stay aligned */
    const void *mask, *offsets, *codes; /* NULL: there are none, or they lie in the object */
    int64_t null_count;
    bool narrows; /* whether less of its children than all is needed: */
    uint64_t child_first, child_length;
    void *copy; /* the caller's to free; or NULL */
};

/* Whether another user made the object, which is on the host. */
bool gb_arrow_must_check(const struct gpubuf_object *object);

/*
 * Checks `length` elements from number `offset` of the column's buffers on. `values`: the column is
 * the codes of a dictionary of these. GPUBUF_E_INVALID, which is reported; GPUBUF_E_NO_MEMORY,
 * which is not.
 */
int gb_arrow_check(const struct gpubuf_object *object, const struct gb_column *column,
                   uint64_t offset, uint64_t length, const struct gb_column *values,
                   struct gb_arrow_checked *checked);

#endif
