/* Copies between objects and memory of the program's, on the host or on a GPU. Without the lock. */
#ifndef GB_LIB_COPY_H
#define GB_LIB_COPY_H

#include "client/lib/objects/lease.h"

/* After gb_buffer_write: waits until what it queued is in the object. Reports failures. */
int gb_finish_writing(const struct gb_holding *lease);

#endif
