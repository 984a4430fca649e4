/*
 * An event counts how often it was recorded and up to which of these the work before it is done.
 * Both counts are in shared memory where the event is interprocess, and are waited for by futex.
 */
#include "fake.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct state {
    _Atomic uint32_t recorded, completed;
    _Atomic int32_t recorder; /* the process that recorded last */
    _Atomic uint64_t ns;      /* when it was last reached */
};

struct fc_event {
    struct fc_context *context;
    unsigned int flags;
    bool imported;
    int references;
    uint64_t id;
    int fd; /* -1: not interprocess, and `state` is `own` */
    struct state *state, own;
    struct fc_event *next;
};

static struct fc_event *events;

static struct fc_event *event_of(CUevent handle)
{
    for (struct fc_event *event = events; event; event = event->next)
        if ((CUevent)event == handle)
            return event;
    return NULL;
}

void fc_event_put(struct fc_event *event)
{
    if (!event || --event->references)
        return;
    if (event->fd >= 0) {
        munmap(event->state, sizeof(*event->state));
        close(event->fd);
    }
    free(event);
}

/* ---- counts; these are called without the lock ---- */

static bool reached(const struct state *state, uint32_t sequence)
{
    return (int32_t)(atomic_load(&state->completed) - sequence) >= 0;
}

static void complete(struct state *state, uint32_t sequence)
{
    uint32_t now = atomic_load(&state->completed);
    while ((int32_t)(now - sequence) < 0 &&
           !atomic_compare_exchange_weak(&state->completed, &now, sequence))
        continue;
    syscall(SYS_futex, &state->completed, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Waits for ever if the process that recorded the event is killed before it is reached, as the real
   driver does. */
static void wait_for(struct state *state, uint32_t sequence)
{
    for (;;) {
        uint32_t now = atomic_load(&state->completed);
        if ((int32_t)(now - sequence) >= 0)
            return;
        syscall(SYS_futex, &state->completed, FUTEX_WAIT, now, NULL, NULL, 0);
    }
}

/* Work that another process recorded and has not reached comes first (`value`). */
static CUresult run_complete(struct fc_operation *operation)
{
    struct timespec now;
    if (operation->value)
        wait_for(operation->event->state, (uint32_t)operation->sequence - 1);
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    atomic_store(&operation->event->state->ns,
                 (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
    complete(operation->event->state, (uint32_t)operation->sequence);
    return CUDA_SUCCESS;
}

static CUresult run_wait(struct fc_operation *operation)
{
    wait_for(operation->event->state, (uint32_t)operation->sequence);
    return CUDA_SUCCESS;
}

/* ---- the driver's functions ---- */

static struct fc_event *make_event(struct fc_context *context, unsigned int flags)
{
    struct fc_event *event = calloc(1, sizeof(*event));
    if (!event)
        return NULL;
    event->context = context;
    event->flags = flags;
    event->references = 1;
    event->fd = -1;
    event->state = &event->own;
    return event;
}

static bool share_state(struct fc_event *event, int fd)
{
    void *shared = mmap(NULL, sizeof(*event->state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED)
        return false;
    event->state = shared;
    event->fd = fd;
    return true;
}

static CUevent add_event(struct fc_event *event)
{
    event->next = events;
    events = event;
    return (CUevent)event;
}

CUresult cuEventCreate(CUevent *handle, unsigned int flags)
{
    FC_ENTER(cuEventCreate);
    FC_LOCKED;
    struct fc_context *context;
    CUresult result = fc_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    bool shared = flags & CU_EVENT_INTERPROCESS;
    if (!handle || flags > 7 || (shared && !(flags & CU_EVENT_DISABLE_TIMING)))
        return CUDA_ERROR_INVALID_VALUE;
    struct fc_event *event = make_event(context, flags);
    if (!event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (shared) {
        int fd = -1;
        result = fc_store_create('e', context->device, 0, false, &event->id, &fd);
        if (result == CUDA_SUCCESS && !share_state(event, fd)) {
            close(fd);
            result = CUDA_ERROR_OUT_OF_MEMORY;
        }
        if (result != CUDA_SUCCESS) {
            free(event);
            return result;
        }
    }
    *handle = add_event(event);
    return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent handle)
{
    FC_ENTER(cuEventDestroy);
    FC_LOCKED;
    for (struct fc_event **link = &events; *link; link = &(*link)->next) {
        struct fc_event *event = *link;
        if ((CUevent)event != handle)
            continue;
        *link = event->next;
        fc_event_put(event);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventRecord(CUevent handle, CUstream stream_handle)
{
    FC_ENTER(cuEventRecord);
    FC_LOCKED;
    struct fc_event *event = event_of(handle);
    struct fc_stream *stream;
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = fc_stream_get(stream_handle, &stream);
    if (result == CUDA_SUCCESS && stream->context != event->context)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result != CUDA_SUCCESS)
        return result;
    int32_t before = atomic_exchange(&event->state->recorder, getpid());
    uint32_t sequence = atomic_fetch_add(&event->state->recorded, 1) + 1;
    struct fc_operation operation = {.run = run_complete,
                                     .event = event,
                                     .sequence = sequence,
                                     .value = before && before != getpid()};
    event->references += 2; /* one is for the operation */
    result = fc_stream_queue(stream, &operation);
    if (result != CUDA_SUCCESS)
        complete(event->state, sequence);
    fc_event_put(event);
    return result;
}

CUresult cuStreamWaitEvent(CUstream stream_handle, CUevent handle, unsigned int flags)
{
    FC_ENTER(cuStreamWaitEvent);
    FC_LOCKED;
    struct fc_event *event = event_of(handle);
    struct fc_stream *stream;
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = fc_stream_get(stream_handle, &stream);
    if (result == CUDA_SUCCESS && flags)
        result = CUDA_ERROR_INVALID_VALUE;
    uint32_t sequence = atomic_load(&event->state->recorded);
    if (result != CUDA_SUCCESS || reached(event->state, sequence))
        return result;
    struct fc_operation operation = {.run = run_wait, .event = event, .sequence = sequence};
    event->references++;
    return fc_stream_queue(stream, &operation);
}

CUresult cuEventQuery(CUevent handle)
{
    FC_ENTER(cuEventQuery);
    FC_LOCKED;
    const struct fc_event *event = event_of(handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult result = fc_context_check(event->context);
    if (result == CUDA_SUCCESS && !reached(event->state, atomic_load(&event->state->recorded)))
        result = CUDA_ERROR_NOT_READY;
    return result;
}

CUresult cuEventSynchronize(CUevent handle)
{
    FC_ENTER(cuEventSynchronize);
    FC_LOCKED;
    struct fc_event *event = event_of(handle);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    uint32_t sequence = atomic_load(&event->state->recorded);
    event->references++;
    pthread_mutex_unlock(&fc_lock);
    wait_for(event->state, sequence);
    pthread_mutex_lock(&fc_lock);
    CUresult result = fc_context_check(event->context);
    fc_event_put(event);
    return result;
}

static CUresult check_timed(const struct fc_event *event)
{
    if (!event || event->flags & CU_EVENT_DISABLE_TIMING || !atomic_load(&event->state->recorded))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!reached(event->state, atomic_load(&event->state->recorded)))
        return CUDA_ERROR_NOT_READY;
    return fc_context_check(event->context);
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent begin_handle, CUevent end_handle)
{
    FC_ENTER(cuEventElapsedTime);
    FC_LOCKED;
    const struct fc_event *begin = event_of(begin_handle), *end = event_of(end_handle);
    CUresult result = check_timed(begin);
    if (result == CUDA_SUCCESS)
        result = check_timed(end);
    if (result == CUDA_SUCCESS && !milliseconds)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    int64_t passed = (int64_t)(atomic_load(&end->state->ns) - atomic_load(&begin->state->ns));
    *milliseconds = (float)passed / 1e6f;
    return CUDA_SUCCESS;
}

/* ---- between processes ---- */

struct event_handle {
    char magic[8];
    uint64_t id;
    int32_t device, pid;
    unsigned char zero[GB_CU_IPC_HANDLE_BYTES - 24];
};
_Static_assert(sizeof(struct event_handle) == sizeof(CUipcEventHandle), "a handle has 64 bytes");

static const char event_magic[8] = "fakeEVNT";

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event_handle)
{
    FC_ENTER(cuIpcGetEventHandle);
    FC_LOCKED;
    struct fc_context *context;
    CUresult result = fc_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    const struct fc_event *event = event_of(event_handle);
    if (!event || event->fd < 0 || event->imported)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    struct event_handle bytes = {
        .id = event->id, .device = event->context->device, .pid = getpid()};
    memcpy(bytes.magic, event_magic, sizeof(bytes.magic));
    memcpy(handle, &bytes, sizeof(bytes));
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *event_handle, CUipcEventHandle handle)
{
    FC_ENTER(cuIpcOpenEventHandle);
    FC_LOCKED;
    struct fc_context *context;
    CUresult result = fc_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!event_handle)
        return CUDA_ERROR_INVALID_VALUE;
    struct event_handle bytes;
    memcpy(&bytes, &handle, sizeof(bytes));
    if (memcmp(bytes.magic, event_magic, sizeof(bytes.magic)))
        return CUDA_ERROR_MAP_FAILED;
    if (bytes.pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    int fd = -1;
    if (fc_store_open('e', bytes.device, 0, bytes.id, &fd) != CUDA_SUCCESS)
        return CUDA_ERROR_MAP_FAILED;
    struct fc_event *event = make_event(context, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS);
    if (!event || !share_state(event, fd)) {
        free(event);
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    event->imported = true;
    event->id = bytes.id;
    *event_handle = add_event(event);
    return CUDA_SUCCESS;
}
