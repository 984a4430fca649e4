/* Copies on GPUs, and waiting for them. No state; any thread. */
#ifndef GB_LIB_GPU_COPY_H
#define GB_LIB_GPU_COPY_H

#include "client/lib/memory/gpu.h"

/*
 * Queues a copy between any two places. `gpu` must reach the device memory among them. Pageable
 * memory that is the source has been read when this returns. NULL stream: the legacy default
 * stream, after the work that the program has queued there; between GPUs that do not reach each
 * other's memory the copy then goes through the host.
 */
int gb_gpu_copy(struct gb_gpu *gpu, void *to, const void *from, uint64_t bytes, CUstream stream,
                struct gb_error *error);
/* Waits for a stream; NULL: the legacy default stream of `gpu`. `gpu` may be NULL for a stream of
   the program's, whose context must be current if it is a default stream. */
int gb_gpu_finish(struct gb_gpu *gpu, CUstream stream, struct gb_error *error);
/* If `data` is memory of another GPU, waits for that GPU's legacy default stream: work on `gpu`
   does not wait for that stream by itself. */
int gb_gpu_finish_other(const struct gb_gpu *gpu, const void *data, struct gb_error *error);

#endif
