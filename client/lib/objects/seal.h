/* Sealing, for functions that create and seal in one call. Without the lock. */
#ifndef GB_LIB_SEAL_H
#define GB_LIB_SEAL_H

#include "gpubuf.h"

/* The end of a put; `r` < 0 if it has failed already. Waits until what was written is in the
   object, then seals it and ends the lease in one go; or aborts it. Takes the object over. Writes
   the version where the program's `options` (may be NULL) want it. Returns `r` if that is a failure
   already; reports others. */
int gb_end_put(struct gpubuf_object *object, const struct gpubuf_create_options *options, int r);

#endif
