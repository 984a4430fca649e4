/* The Arrow C Data interface, outwards. Without the lock. */
#ifndef GB_LIB_ARROW_EXPORT_H
#define GB_LIB_ARROW_EXPORT_H

#include "gpubuf.h"

/* As gpubuf_export_arrow wherever the object is: buffers are pointers into its memory there. */
int gb_export_arrow(struct gpubuf_object *object, struct ArrowSchema *schema,
                    struct ArrowArray *array);

#endif
