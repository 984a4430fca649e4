/*
 * Shared by the command line and the peer, which make an object anew elsewhere: the bytes of its
 * buffers that the object or view shows, and the specification of its layout for `create`.
 *
 * To be called in any thread that may use the object.
 */
#ifndef GB_REMAKE_H
#define GB_REMAKE_H

#include "gpubuf.h"
#include "proto/base/errors.h"
#include "proto/layout/layout.h"

/* A stretch of a buffer's bytes, and how they change on their way to the new object. */
struct gb_stretch {
    struct gpubuf_object *object; /* borrowed */
    enum gpubuf_which which;
    uint64_t from, bytes; /* where in the buffer */
    unsigned shift;       /* bits of its first byte that are left out */
    unsigned width;       /* of its integers, in bytes; 0: the buffer has none */
    uint64_t base;        /* to be subtracted from the integers */
};

typedef int gb_each_stretch(void *user, const struct gb_stretch *stretch, struct gb_error *error);

/* Fails with what the library said of the object. */
int gb_fail_library(const struct gpubuf_object *object, int code, struct gb_error *error);

/*
 * Calls `each` for the mask, offsets and data of a column, then for those of its children, until a
 * call does not return 0. With `narrows` the column is first cut to the elements that it shows. The
 * cut begins at a multiple of 8 elements, where a byte of the mask begins; a column with children
 * keeps the beginning of its buffers. The buffers in `column` get their new sizes. GPUBUF_E_INVALID
 * for memory that makes no sense; else the library's code.
 */
int gb_column_stretches(struct gpubuf_object *object, struct gb_column *column, bool narrows,
                        gb_each_stretch *each, void *user, struct gb_error *error);

/* The stretches of an array in C order; the mask's begins with the byte that has the first
   element's bit. `column` is cut to them. */
int gb_array_stretches(struct gpubuf_object *object, struct gb_column *column,
                       struct gb_stretch *mask, struct gb_stretch *data, struct gb_error *error);

/* Moves the bits of `length` bytes down by `shift`. One more byte is read. */
void gb_shift_bits(unsigned char *bytes, uint64_t length, unsigned shift);
/* Subtracts `base` from each integer of `width` bytes. */
void gb_rebase(void *bytes, uint64_t length, unsigned width, uint64_t base);

/* Fills in the specification for `create` from a layout of form CREATE. Its strings lie in the pool
   or in the layout. False: out of memory. */
bool gb_layout_spec(const struct gb_layout *layout, struct gb_pool *pool,
                    struct gpubuf_layout_spec *spec);

#endif
