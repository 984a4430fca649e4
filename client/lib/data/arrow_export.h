/* The Arrow C Data interface, outwards. Without the lock. */
#ifndef GB_LIB_ARROW_EXPORT_H
#define GB_LIB_ARROW_EXPORT_H

#include "gpubuf.h"

/* As gpubuf_export_arrow wherever the object is: buffers are pointers into its memory there. */
int gb_export_arrow(struct gpubuf_object *object, struct ArrowSchema *schema,
                    struct ArrowArray *array);

/* Checks offsets and codes of another user's content that was copied into an object being written,
   so that they can be followed as this user's own. GPUBUF_E_INVALID, which is reported. */
int gb_check_copied(struct gpubuf_object *object);

#endif
