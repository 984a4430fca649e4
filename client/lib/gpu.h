/*
 * GPUs as this process sees them: which are visible, their primary contexts, events, and copies.
 * Nothing here loads the driver before an object on a GPU is there, or a stream or device pointer is
 * given.
 *
 * State is the process', guarded by one lock of its own, innermost of the library's. The driver is
 * called with that lock held only where a context or an event is made or ended. It is not held
 * across a fork, and need not be: a child of a process that used CUDA is refused before any lock is
 * taken, since the driver is of no use there.
 *
 * At exit the driver may be gone before a program's last release: CUDA_ERROR_DEINITIALIZED from what
 * gives back is nothing to speak of, and no function here that ends something can fail.
 */
#ifndef GB_LIB_GPU_H
#define GB_LIB_GPU_H

#include <stdatomic.h>
#include <stdbool.h>

#include "proto/cuda.h"
#include "proto/handle.h"

/* ---- gpu.c: devices and their contexts ---- */

/* One visible device; static once it is known. */
struct gb_gpu {
    const struct gb_cuda *cuda;
    CUdevice device;
    int ordinal;
    char id[GB_CUDA_ID_BYTES]; /* "GPU-…", "MIG-…" */
    CUcontext context;         /* the primary one, while there are users */
    size_t users;              /* what is mapped, calls under way, events in use */
};

/*
 * The device of that name. GPUBUF_E_UNSUPPORTED: no driver, the device is not visible to this
 * process, or CUDA was in use before a fork; GPUBUF_E_DEVICE; GPUBUF_E_NO_MEMORY.
 */
int gb_gpu_find(const char *id, struct gb_gpu **gpu, struct gb_error *error);
/* The device whose ordinal this is; same errors. */
int gb_gpu_at(int ordinal, struct gb_gpu **gpu, struct gb_error *error);

/* False in a child of fork of a process that used CUDA. */
bool gb_gpu_is_ours(void);

/*
 * The GPU that a pointer's memory is on, NULL for host memory of any kind. Loads no driver: where
 * there is none yet, all memory is the host's.
 */
struct gb_gpu *gb_gpu_of_pointer(const void *pointer);

/* Keeps the primary context. GPUBUF_E_DEVICE. */
int gb_gpu_retain(struct gb_gpu *gpu, struct gb_error *error);
void gb_gpu_release(struct gb_gpu *gpu);

/* Retains the primary context and makes it current in this thread, until it is left again; the
   context that was current before is so again then. GPUBUF_E_DEVICE. */
int gb_gpu_enter(struct gb_gpu *gpu, struct gb_error *error);
void gb_gpu_leave(struct gb_gpu *gpu);

/* ---- gpu_event.c: events, counted and used again ---- */

struct gb_event {
    struct gb_event *chain;     /* those with a handle, in their bucket */
    struct gb_event *next_idle; /* oldest first */
    struct gb_gpu *gpu;         /* a user of it while there are references */
    CUevent event;
    unsigned char handle[GB_IPC_BYTES];
    bool shared;   /* has a handle */
    bool imported; /* made by another process */
    size_t references;
};

/*
 * Records the work queued on `stream` so far in an event that nobody uses; `shared`: one with a
 * handle for other processes. To be given back by gb_event_drop. GPUBUF_E_DEVICE, _NO_MEMORY.
 */
int gb_event_record(struct gb_gpu *gpu, CUstream stream, bool shared, struct gb_event **event,
                    struct gb_error *error);
/* The event of a handle: of this very process, or opened, once however often it is asked for. */
int gb_event_open(struct gb_gpu *gpu, const unsigned char handle[GB_IPC_BYTES],
                  struct gb_event **event, struct gb_error *error);
struct gb_event *gb_event_ref(struct gb_event *event);
void gb_event_drop(struct gb_event *event); /* NULL is fine */

/* 1: it has passed; 0: not yet; GPUBUF_E_DEVICE: the work came to grief. */
int gb_event_query(const struct gb_event *event, struct gb_error *error);
/* Waits until it has passed. For events of this process. */
int gb_event_wait(const struct gb_event *event, struct gb_error *error);
/* Makes a stream wait. */
int gb_event_stream_wait(const struct gb_event *event, CUstream stream, struct gb_error *error);

/* ---- the same, for gpu.c alone, with the lock held: destroys the idle events of a device ---- */
void gb_events_forget(struct gb_gpu *gpu);

void gb_gpu_lock(void);
void gb_gpu_unlock(void);
/* As retain and release, with the lock held. */
int gb_gpu_retain_locked(struct gb_gpu *gpu, struct gb_error *error);
void gb_gpu_release_locked(struct gb_gpu *gpu);

/* ---- gpu_copy.c ---- */

/*
 * Queues a copy between any two places, of which `gpu` can reach that on the device; what
 * is read from pageable memory has been read when this returns. NULL stream: the legacy default
 * stream, so that it comes after what the program has queued there; between GPUs that do not reach
 * each other's memory the copy then goes through the host.
 */
int gb_gpu_copy(struct gb_gpu *gpu, void *to, const void *from, uint64_t bytes, CUstream stream,
                struct gb_error *error);
/* Waits for a stream; NULL: the legacy default stream of `gpu`. `gpu` may be NULL for a stream of
   the program's, whose context must be current if it is a default stream. */
int gb_gpu_finish(struct gb_gpu *gpu, CUstream stream, struct gb_error *error);
/* Where `data` is memory of another GPU: waits for its legacy default stream, after which nothing on
   `gpu` would come by itself. */
int gb_gpu_finish_other(const struct gb_gpu *gpu, const void *data, struct gb_error *error);

/* ---- gpu_register.c: what this process has registered by legacy handle ---- */

/* Where the memory of a handle lies that a client of this process registered. */
bool gb_gpu_own_find(const unsigned char handle[GB_IPC_BYTES], void **base, uint64_t *bytes);
/* A client, by its serial, has ended: what it registered is withdrawn. */
void gb_gpu_own_forget(uint64_t client);

#endif
