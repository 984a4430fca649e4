/* Sealing, for what creates and seals in one call. Without the lock. */
#ifndef GB_LIB_SEAL_H
#define GB_LIB_SEAL_H

#include "gpubuf.h"

/* Seals and ends the lease in one go; for what is put. Reports failures. */
int gb_seal_and_release(struct gpubuf_object *object);

#endif
