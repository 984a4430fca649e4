/* Filling arrays. Without the lock. */
#ifndef GB_LIB_PUT_H
#define GB_LIB_PUT_H

#include "gpubuf.h"

/* Copies elements of the shape of an array that is being written into it; `strides` as in
   gpubuf_put_array. `data` lies on the array's device. gb_finish_writing waits for it. Reports
   failures. */
int gb_array_write(const struct gpubuf_object *object, const int64_t *strides, const void *data);

#endif
