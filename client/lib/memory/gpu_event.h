/*
 * Events of GPUs, reference-counted and reused. The state belongs to the process, under the lock of
 * gpu.h. Any thread.
 */
#ifndef GB_LIB_GPU_EVENT_H
#define GB_LIB_GPU_EVENT_H

#include "client/lib/memory/gpu.h"

struct gb_gpu_event {
    struct gb_gpu_event *chain;     /* those with a handle, in their bucket */
    struct gb_gpu_event *next_idle; /* oldest first */
    struct gb_gpu *gpu;             /* the event is a user of it while it has references */
    CUevent event;
    unsigned char handle[GB_IPC_BYTES];
    bool shared;   /* has a handle */
    bool imported; /* made by another process */
    size_t references;
};

/*
 * Records the work queued on `stream` so far in an idle event; `shared`: in one with a handle for
 * other processes. The caller gives the event back with gb_gpu_event_drop. GPUBUF_E_DEVICE,
 * _NO_MEMORY.
 */
int gb_gpu_event_record(struct gb_gpu *gpu, CUstream stream, bool shared,
                        struct gb_gpu_event **event, struct gb_error *error);
/* The event with that handle: this process' own, or one that is opened, once for all who ask. */
int gb_gpu_event_open(struct gb_gpu *gpu, const unsigned char handle[GB_IPC_BYTES],
                      struct gb_gpu_event **event, struct gb_error *error);
struct gb_gpu_event *gb_gpu_event_ref(struct gb_gpu_event *event);
void gb_gpu_event_drop(struct gb_gpu_event *event); /* NULL is fine */

/* 1: it has passed; 0: not yet; GPUBUF_E_DEVICE: the work failed. */
int gb_gpu_event_query(const struct gb_gpu_event *event, struct gb_error *error);
/* Waits until it has passed. For events of this process. */
int gb_gpu_event_wait(const struct gb_gpu_event *event, struct gb_error *error);
/* Makes a stream wait. */
int gb_event_stream_wait(const struct gb_gpu_event *event, CUstream stream, struct gb_error *error);

#endif
