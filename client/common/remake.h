/*
 * Shared by the command line and the peer, which make an object anew somewhere else: the bytes of
 * its buffers that it shows, and the specification that `create` takes of its layout.
 *
 * Any thread that may use the object.
 */
#ifndef GB_REMAKE_H
#define GB_REMAKE_H

#include "gpubuf.h"
#include "proto/errors.h"
#include "proto/layout.h"

/* Bytes of a buffer, as they are to be elsewhere. */
struct gb_stretch {
    struct gpubuf_object *object; /* borrowed */
    enum gpubuf_which which;
    uint64_t from, bytes; /* of the buffer */
    unsigned shift;       /* bits of its first byte that are left out */
    unsigned width;       /* of its integers in bytes; 0: the buffer has none */
    uint64_t base;        /* to be subtracted from the integers */
};

typedef int gb_each_stretch(void *user, const struct gb_stretch *stretch, struct gb_error *error);

/* Fails with what the library said of the object. */
int gb_fail_library(const struct gpubuf_object *object, int code, struct gb_error *error);

/*
 * Calls `each` for the mask, offsets and data of a column, then for its children's, until one does
 * not return 0. With `narrows` the column is first cut to what it shows: from an element on whose
 * bits begin a byte, or, where it has children, from its first one on; the buffers in `column` get
 * their sizes. GPUBUF_E_INVALID for memory that makes no sense; else the library's code.
 */
int gb_column_stretches(struct gpubuf_object *object, struct gb_column *column, bool narrows,
                        gb_each_stretch *each, void *user, struct gb_error *error);

/* Those of an array in C order, its mask from its first element on; the array's column is cut to
   them. */
int gb_array_stretches(struct gpubuf_object *object, struct gb_column *column,
                       struct gb_stretch *mask, struct gb_stretch *data, struct gb_error *error);

/* Moves the bits down by `shift`, into `length` bytes; there is one more. */
void gb_shift_bits(unsigned char *bytes, uint64_t length, unsigned shift);
/* Takes `base` from the integers of the width. */
void gb_rebase(void *bytes, uint64_t length, unsigned width, uint64_t base);

/* The specification that `create` takes, of a layout of form CREATE. Its text lies in the pool or
   in the layout. False: out of memory. */
bool gb_layout_spec(const struct gb_layout *layout, struct gb_pool *pool,
                    struct gpubuf_layout_spec *spec);

#endif
