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

/* The bytes of a buffer that a column shows. */
struct gb_stretch {
    uint64_t from, bytes;
    uint64_t base;  /* to be subtracted from the buffer's integers */
    unsigned width; /* of these integers in bytes; 0: the buffer has none */
};

/* Fails with what the library said of the object. */
int gb_fail_library(const struct gpubuf_object *object, int code, struct gb_error *error);

/*
 * Cuts a column to what it shows: from an element on whose bits begin a byte, or, where it has
 * children, from its first one on. `stretches`, by enum gpubuf_which, are those of its buffers, and
 * the buffers in `column` get their sizes. GPUBUF_E_INVALID for memory that makes no sense; else
 * the library's code.
 */
int gb_narrow(struct gpubuf_object *object, struct gb_column *column,
              struct gb_stretch stretches[3], struct gb_error *error);

/* The specification that `create` takes, of a layout of form CREATE. Its text lies in the pool or
   in the layout. False: out of memory. */
bool gb_layout_spec(const struct gb_layout *layout, struct gb_pool *pool,
                    struct gpubuf_layout_spec *spec);

#endif
