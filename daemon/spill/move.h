/*
 * One copy of a storage's content: out of its device to a tier below, from the host tier down to
 * the disk, or back into the device. A mover's thread does it in chunks. If one end is a file, the
 * device copies one chunk while the file is read or written with another. Knows neither names nor
 * policy.
 */
#ifndef GB_MOVE_H
#define GB_MOVE_H

#include <stdatomic.h>

#include "daemon/store/storage.h"

struct gb_move {
    struct gb_job job;          /* its `done` is the owner's */
    struct gb_storage *storage; /* with a reference */
    struct gb_copy *from, *to;  /* held; from NULL: out of the device, to NULL: into it */
    bool leave;                 /* afterwards the storage leaves the place it was copied from */
    uint64_t bytes;             /* that the device counts as leaving */
    const atomic_bool *stop;    /* set when the daemon ends: give up */
    void *owner;

    int result;
    bool tier_failed; /* the tier failed, not the device */
    struct gb_error error;
    uint64_t microseconds;
};

/* The bytes of a chunk between a device and a file. A lane's stage has room for two. */
#define GB_STAGE_BYTES ((uint64_t)8 << 20)

/* The job's `work`. */
void gb_move_work(struct gb_job *job);
/* Frees the stage of a lane, after its thread has ended. */
void gb_move_end_lane(struct gb_device *device, enum gb_direction direction);

#endif
