/*
 * One copy of a storage's content: out of its device to a tier below, from the host tier down to
 * the disk, or back into the device. The work is done on a mover's thread, in chunks; two are on
 * their way at once where one end is a file. Knows neither names nor policy.
 */
#ifndef GB_MOVE_H
#define GB_MOVE_H

#include <stdatomic.h>

#include "daemon/memory/store.h"

struct gb_move {
    struct gb_job job;          /* its `done` is the owner's */
    struct gb_storage *storage; /* with a reference */
    struct gb_copy *from, *to;  /* held; from NULL: out of the device, to NULL: into it */
    bool leave;                 /* the storage is to be only there when it is done */
    uint64_t bytes;             /* that the device counts as leaving */
    const atomic_bool *stop;    /* the daemon ends: give up */
    void *owner;

    int result;
    bool tier_failed; /* it was the tier that failed, not the device */
    struct gb_error error;
    uint64_t microseconds;
};

/* Memory of a direction of a device's, that what comes from or goes to a file passes through. */
#define GB_STAGE_BYTES ((uint64_t)8 << 20)

/* The job's `work`. */
void gb_move_work(struct gb_job *job);
/* Frees what a lane kept, after its thread has ended. */
void gb_move_end_lane(struct gb_device *device, enum gb_direction direction);

#endif
