/*
 * GPUs as this process sees them: which are visible, and their primary contexts.
 * Nothing here loads the driver before an object on a GPU is there, or a stream or device pointer
 * is given.
 *
 * The state belongs to the process. A lock of its own guards it, the innermost of the library's
 * locks. The driver is called with that lock held only where a context or an event is made or
 * ended. The lock is not held across a fork, and need not be: a child of a process that used CUDA
 * cannot use the driver, and is refused before any lock is taken.
 *
 * At exit the driver may end before a program's last release. So no function here that gives
 * something back can fail: CUDA_ERROR_DEINITIALIZED is ignored.
 */
#ifndef GB_LIB_GPU_H
#define GB_LIB_GPU_H

#include <stdbool.h>

#include "proto/driver/cuda.h"
#include "proto/wire/handle.h"

/* One visible device; static once it is known. */
struct gb_gpu {
    const struct gb_cuda *cuda;
    CUdevice device;
    int ordinal;
    char id[GB_CUDA_ID_BYTES]; /* "GPU-…", "MIG-…", "HIP-…" */
    CUcontext context;         /* the primary one, while there are users */
    size_t users;              /* what is mapped, calls under way, events in use */
    /* Destroys the events kept in the context before the context is released, with the lock held;
       or NULL. */
    void (*forget)(struct gb_gpu *gpu);
};

/*
 * The device of that name. GPUBUF_E_UNSUPPORTED: no driver, the device is not visible to this
 * process, or CUDA was in use before a fork; GPUBUF_E_DEVICE; GPUBUF_E_NO_MEMORY.
 */
int gb_gpu_find(const char *id, struct gb_gpu **gpu, struct gb_error *error);
/* The device of a driver whose ordinal this is; same errors. */
int gb_gpu_at(enum gb_driver driver, int ordinal, struct gb_gpu **gpu, struct gb_error *error);

/* The driver that the process uses already; CUDA's where that is both or none. */
enum gb_driver gb_gpu_driver(void);

/* False in a child of fork of a process that used CUDA. */
bool gb_gpu_is_ours(void);

/*
 * The GPU that a pointer's memory is on, NULL for host memory of any kind. Loads no driver: while
 * none is loaded, all memory is the host's.
 */
struct gb_gpu *gb_gpu_of_pointer(const void *pointer);

/* Keeps the primary context. GPUBUF_E_DEVICE. */
int gb_gpu_retain(struct gb_gpu *gpu, struct gb_error *error);
void gb_gpu_release(struct gb_gpu *gpu);

/* Retains the primary context and makes it current in this thread until gb_gpu_leave, which brings
   back the context that was current before. GPUBUF_E_DEVICE. */
int gb_gpu_enter(struct gb_gpu *gpu, struct gb_error *error);
void gb_gpu_leave(struct gb_gpu *gpu);

/* ---- for events, with the lock held ---- */

void gb_gpu_lock(void);
void gb_gpu_unlock(void);
void gb_gpu_release_locked(struct gb_gpu *gpu);

#endif
