/*
 * Idle events are kept and reused, the longest unused first, since events are scarce in the driver
 * and cost time to make. Another process may still have the handle of an event that is reused. It
 * then waits for the later work as well, which is more than it needs but never less. Opened events
 * are kept too, since the same few are opened again.
 *
 * Idle events do not retain a context. They are destroyed when nothing else retains it.
 */
#include "client/lib/memory/gpu_event.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS 64u
#define IDLE_OPENED_MAX 64u
#define FLAGS_PLAIN CU_EVENT_DISABLE_TIMING
#define FLAGS_SHARED (CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS)

/* All under the lock of gpu.h. */
static struct gb_gpu_event *buckets[BUCKETS];         /* those with a handle */
static struct gb_gpu_event *idle, **idle_end = &idle; /* of all kinds */
static unsigned idle_opened;

static struct gb_gpu_event **bucket_of(const unsigned char *handle)
{
    uint64_t hash = 0;

    for (size_t i = 0; i < GB_IPC_BYTES; i++)
        hash = (hash ^ handle[i]) * UINT64_C(0x100000001b3);
    return &buckets[(hash ^ hash >> 32) % BUCKETS];
}

static void idle_add(struct gb_gpu_event *event)
{
    event->next_idle = NULL;
    *idle_end = event;
    idle_end = &event->next_idle;
    idle_opened += event->imported;
}

/* Takes off the list what *link points to. */
static struct gb_gpu_event *idle_take(struct gb_gpu_event **link)
{
    struct gb_gpu_event *event = *link;

    *link = event->next_idle;
    if (idle_end == &event->next_idle)
        idle_end = link;
    idle_opened -= event->imported;
    return event;
}

static struct gb_gpu_event **idle_link(const struct gb_gpu_event *event)
{
    struct gb_gpu_event **link = &idle;

    while (*link != event)
        link = &(*link)->next_idle;
    return link;
}

/* The event's context is retained, unless the driver has ended. */
static void destroy(struct gb_gpu_event *event)
{
    if (event->shared) {
        struct gb_gpu_event **link = bucket_of(event->handle);
        while (*link != event)
            link = &(*link)->chain;
        *link = event->chain;
    }
    (void)event->gpu->cuda->cuEventDestroy(event->event);
    free(event);
}

/* The GPU's context is about to be released: destroys its idle events. */
static void forget(struct gb_gpu *gpu)
{
    struct gb_gpu_event **link = &idle;

    while (*link) {
        if ((*link)->gpu == gpu)
            destroy(idle_take(link));
        else
            link = &(*link)->next_idle;
    }
}

static void trim_opened(void)
{
    struct gb_gpu_event **link = &idle;

    while (idle_opened > IDLE_OPENED_MAX) {
        if ((*link)->imported)
            destroy(idle_take(link));
        else
            link = &(*link)->next_idle;
    }
}

/* ---- making ---- */

/* Makes an event in the current context: a new one, or the one that the handle (may be NULL)
   names. */
static CUresult make(struct gb_gpu *gpu, bool shared, const unsigned char *handle,
                     struct gb_gpu_event **out)
{
    struct gb_gpu_event *event = calloc(1, sizeof(*event));

    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const struct gb_cuda *cuda = gpu->cuda;
    CUipcEventHandle bytes;
    CUresult result;
    if (handle) {
        memcpy(&bytes, handle, sizeof(bytes));
        result = cuda->cuIpcOpenEventHandle(&event->event, bytes);
    } else {
        result = cuda->cuEventCreate(&event->event, shared ? FLAGS_SHARED : FLAGS_PLAIN);
        if (result == CUDA_SUCCESS && shared) {
            result = cuda->cuIpcGetEventHandle(&bytes, event->event);
            if (result != CUDA_SUCCESS)
                (void)cuda->cuEventDestroy(event->event);
        }
    }
    if (result != CUDA_SUCCESS) {
        free(event);
        return result;
    }

    gpu->forget = forget;
    event->gpu = gpu;
    event->shared = shared;
    event->imported = handle != NULL;
    if (shared) {
        memcpy(event->handle, &bytes, sizeof(event->handle));
        struct gb_gpu_event **bucket = bucket_of(event->handle);
        event->chain = *bucket;
        *bucket = event;
    }
    *out = event;
    return CUDA_SUCCESS;
}

static struct gb_gpu_event *take_idle(const struct gb_gpu *gpu, bool shared)
{
    for (struct gb_gpu_event **link = &idle; *link; link = &(*link)->next_idle) {
        const struct gb_gpu_event *event = *link;
        if (event->gpu == gpu && event->shared == shared && !event->imported)
            return idle_take(link);
    }
    return NULL;
}

int gb_gpu_event_record(struct gb_gpu *gpu, CUstream stream, bool shared, struct gb_gpu_event **out,
                        struct gb_error *error)
{
    int r = gb_gpu_enter(gpu, error);

    if (r < 0)
        return r;
    CUresult result = CUDA_SUCCESS;
    gb_gpu_lock();
    struct gb_gpu_event *event = take_idle(gpu, shared);
    if (!event)
        result = make(gpu, shared, NULL, &event);
    if (event) {
        event->references = 1;
        gpu->users++; /* the context is there: it was entered */
    }
    gb_gpu_unlock();

    if (result == CUDA_SUCCESS) {
        result = gpu->cuda->cuEventRecord(event->event, stream);
        if (result != CUDA_SUCCESS)
            gb_gpu_event_drop(event);
    }
    gb_gpu_leave(gpu);
    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, gpu->cuda, result, "recording an event on %s", gpu->id);
    *out = event;
    return 0;
}

static struct gb_gpu_event *find(const unsigned char *handle)
{
    struct gb_gpu_event *event = *bucket_of(handle);

    while (event && memcmp(event->handle, handle, GB_IPC_BYTES) != 0)
        event = event->chain;
    return event;
}

int gb_gpu_event_open(struct gb_gpu *gpu, const unsigned char handle[GB_IPC_BYTES],
                      struct gb_gpu_event **out, struct gb_error *error)
{
    int r = gb_gpu_enter(gpu, error);

    if (r < 0)
        return r;
    CUresult result = CUDA_SUCCESS;
    gb_gpu_lock();
    struct gb_gpu_event *event = find(handle);
    if (!event)
        result = make(gpu, true, handle, &event);
    else if (event->references == 0)
        (void)idle_take(idle_link(event));
    if (event && event->references++ == 0)
        event->gpu->users++; /* an idle event's context is there, too */
    gb_gpu_unlock();
    gb_gpu_leave(gpu);
    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, gpu->cuda, result,
                            "opening the event of a producer's work on %s", gpu->id);
    *out = event;
    return 0;
}

struct gb_gpu_event *gb_gpu_event_ref(struct gb_gpu_event *event)
{
    gb_gpu_lock();
    event->references++;
    gb_gpu_unlock();
    return event;
}

void gb_gpu_event_drop(struct gb_gpu_event *event)
{
    if (!event)
        return;
    gb_gpu_lock();
    if (--event->references == 0) {
        struct gb_gpu *gpu = event->gpu;
        idle_add(event);
        trim_opened();
        gb_gpu_release_locked(gpu);
    }
    gb_gpu_unlock();
}

/* ---- using ---- */

int gb_gpu_event_query(const struct gb_gpu_event *event, struct gb_error *error)
{
    const struct gb_cuda *cuda = event->gpu->cuda;
    CUresult result = cuda->cuEventQuery(event->event);

    if (result == CUDA_SUCCESS)
        return 1;
    if (result == CUDA_ERROR_NOT_READY)
        return 0;
    return gb_cuda_fail(error, cuda, result, "asking whether work on %s is done", event->gpu->id);
}

int gb_gpu_event_wait(const struct gb_gpu_event *event, struct gb_error *error)
{
    const struct gb_cuda *cuda = event->gpu->cuda;
    CUresult result = cuda->cuEventSynchronize(event->event);

    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, cuda, result, "waiting for work on %s", event->gpu->id);
    return 0;
}

int gb_event_stream_wait(const struct gb_gpu_event *event, CUstream stream, struct gb_error *error)
{
    struct gb_gpu *gpu = event->gpu;
    int r = gb_gpu_enter(gpu, error);

    if (r < 0)
        return r;
    CUresult result = gpu->cuda->cuStreamWaitEvent(stream, event->event, CU_EVENT_WAIT_DEFAULT);
    gb_gpu_leave(gpu);
    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, gpu->cuda, result, "making a stream of %s wait", gpu->id);
    return 0;
}
