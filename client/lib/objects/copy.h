/* Copies between objects and memory of the program's, on the host or on a GPU. Without the lock. */
#ifndef GB_LIB_COPY_H
#define GB_LIB_COPY_H

#include "client/lib/objects/lease.h"

/* Finds a stretch of a buffer that may be written. Reports GPUBUF_E_INVALID: past the end, or no
   such buffer; GPUBUF_E_STALE, GPUBUF_E_BUSY: it can no longer be written. */
int gb_writable(const struct gpubuf_object *object, enum gpubuf_which which, uint64_t offset,
                uint64_t bytes, char **place);

/* After gb_buffer_write: waits until what it queued is in the object. Reports failures. */
int gb_finish_writing(const struct gb_client_lease *lease);

#endif
