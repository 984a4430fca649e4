/* Copies on GPUs, and waiting for them. No state; any thread. */
#ifndef GB_LIB_GPU_COPY_H
#define GB_LIB_GPU_COPY_H

#include "client/lib/memory/gpu.h"

/*
 * Queues a copy between any two places; `gpu` has to reach the one on the device; what
 * is read from pageable memory has been read when this returns. NULL stream: the legacy default
 * stream, so that it comes after what the program has queued there; between GPUs that do not reach
 * each other's memory the copy then goes through the host.
 */
int gb_gpu_copy(struct gb_gpu *gpu, void *to, const void *from, uint64_t bytes, CUstream stream,
                struct gb_error *error);
/* Waits for a stream; NULL: the legacy default stream of `gpu`. `gpu` may be NULL for a stream of
   the program's, whose context must be current if it is a default stream. */
int gb_gpu_finish(struct gb_gpu *gpu, CUstream stream, struct gb_error *error);
/* Where `data` is memory of another GPU: waits for its legacy default stream, after which nothing
   on `gpu` would come by itself. */
int gb_gpu_finish_other(const struct gb_gpu *gpu, const void *data, struct gb_error *error);

#endif
