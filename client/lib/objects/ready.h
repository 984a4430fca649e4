/* When an object's content is there: an event, which passes when its producer's work is done. */
#ifndef GB_LIB_READY_H
#define GB_LIB_READY_H

#include <stdatomic.h>
#include <stdbool.h>

#include "proto/wire/handle.h"

struct gb_gpu_event;

/* Kept by the leases on the object. */
struct gb_ready {
    unsigned char handle[GB_IPC_BYTES];
    struct gb_gpu_event *event; /* NULL: not opened yet; set once, under the client's lock */
    _Atomic bool passed;
};

/* Takes the event over. NULL: out of memory. */
struct gb_ready *gb_ready_new(const unsigned char handle[GB_IPC_BYTES], struct gb_gpu_event *event);
/* Drops the event. NULL is fine. Not in a child of fork, where it is only to be freed. */
void gb_ready_free(struct gb_ready *ready);

#endif
