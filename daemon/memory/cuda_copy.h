/*
 * Copying between a GPU's segments and the daemon's own memory. Copying takes a context, and that
 * some hundred MiB of the GPU's memory: the first copy makes it, and it is kept. Segments that were
 * passed as descriptors are mapped through *windows*; those used last are kept. Two threads may
 * copy at once, one out of the device and one into it.
 */
#ifndef GB_CUDA_COPY_H
#define GB_CUDA_COPY_H

#include <uv.h>

#include "daemon/memory/device.h"
#include "proto/driver/cuda.h"

struct gb_cuda_copier {
    const struct gb_cuda *cuda;
    CUdevice device;
    uv_mutex_t lock; /* over all members below but `lanes`, which are of one direction each */
    CUcontext context;
    struct gb_link windows; /* the least recently used first */
    unsigned window_count;
    struct gb_cuda_lane {
        CUstream stream;
        CUevent done;
    } lanes[GB_DIRECTIONS];
};

/* The beginning of a GPU's struct gb_device, by which the copier's functions know it. */
struct gb_cuda_gpu {
    struct gb_device base;
    struct gb_cuda_copier copier;
};

int gb_cuda_copier_init(struct gb_cuda_copier *copier, const struct gb_cuda *cuda, CUdevice device);
void gb_cuda_copier_end(struct gb_cuda_copier *copier);
/* The descriptor is about to be closed: closes its window, which would keep the memory. */
void gb_cuda_copier_forget(struct gb_cuda_copier *copier, int fd);

/* Operations of struct gb_device_ops, of a GPU. */
int gb_cuda_copy(struct gb_device *gpu, enum gb_direction direction, const struct gb_memory *memory,
                 uint64_t segment_bytes, uint64_t offset, void *own, uint64_t bytes,
                 struct gb_error *error);
int gb_cuda_finish_copies(struct gb_device *gpu, enum gb_direction direction,
                          struct gb_error *error);
int gb_cuda_pin(struct gb_device *gpu, void *own, uint64_t bytes, struct gb_error *error);
void gb_cuda_unpin(struct gb_device *gpu, void *own);

#endif
