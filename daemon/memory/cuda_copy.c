#include "daemon/memory/cuda_copy.h"

#include <sched.h>
#include <stdlib.h>

#include "daemon/base/clock.h"

#define WINDOWS 64u
/* How long a thread polls for the end of a copy before it sleeps: 128 MiB at the speed of PCIe 5.
 */
#define POLL_US 2500

/* A segment as the daemon has mapped it. */
struct window {
    struct gb_link link;
    int fd;
    CUdeviceptr address;
    uint64_t bytes;
    bool busy[GB_DIRECTIONS]; /* until the direction's next settle */
};

int gb_cuda_copier_init(struct gb_cuda_copier *copier, const struct gb_cuda *cuda, CUdevice device)
{
    copier->cuda = cuda;
    copier->device = device;
    return uv_mutex_init(&copier->lock) == 0 ? 0 : GPUBUF_E_NO_MEMORY;
}

static void window_close(struct gb_cuda_copier *copier, struct window *window)
{
    copier->cuda->cuMemUnmap(window->address, window->bytes);
    copier->cuda->cuMemAddressFree(window->address, window->bytes);
    gb_list_remove(&window->link);
    copier->window_count--;
    free(window);
}

void gb_cuda_copier_end(struct gb_cuda_copier *copier)
{
    const struct gb_cuda *cuda = copier->cuda;
    CUcontext former;

    GB_LIST_EACH(&copier->windows, struct window, window, link)
        window_close(copier, window);
    if (copier->context && cuda->cuCtxPushCurrent(copier->context) == CUDA_SUCCESS) {
        for (int i = 0; i < GB_DIRECTIONS; i++) {
            cuda->cuEventDestroy(copier->lanes[i].done);
            cuda->cuStreamDestroy(copier->lanes[i].stream);
        }
        cuda->cuCtxPopCurrent(&former);
    }
    if (copier->context)
        cuda->cuDevicePrimaryCtxRelease(copier->device);
    uv_mutex_destroy(&copier->lock);
}

/* ---- the context ---- */

static CUresult make_lanes(struct gb_cuda_copier *copier)
{
    const struct gb_cuda *cuda = copier->cuda;
    CUresult result = CUDA_SUCCESS;

    for (int i = 0; i < GB_DIRECTIONS && result == CUDA_SUCCESS; i++) {
        result = cuda->cuStreamCreate(&copier->lanes[i].stream, CU_STREAM_NON_BLOCKING);
        if (result == CUDA_SUCCESS)
            result = cuda->cuEventCreate(&copier->lanes[i].done,
                                         CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
    }
    return result;
}

/* Makes the context with its streams and events, or none of them. The lock is held. */
static CUresult make_context(struct gb_cuda_copier *copier)
{
    const struct gb_cuda *cuda = copier->cuda;
    CUcontext context, former;
    CUresult result = cuda->cuDevicePrimaryCtxRetain(&context, copier->device);

    if (result != CUDA_SUCCESS)
        return result;
    result = cuda->cuCtxPushCurrent(context);
    if (result == CUDA_SUCCESS) {
        result = make_lanes(copier);
        cuda->cuCtxPopCurrent(&former);
    }
    if (result == CUDA_SUCCESS)
        copier->context = context;
    else
        cuda->cuDevicePrimaryCtxRelease(copier->device); /* which ends the streams made so far */
    return result;
}

static int enter(struct gb_cuda_copier *copier, struct gb_error *error)
{
    CUresult result = CUDA_SUCCESS;

    uv_mutex_lock(&copier->lock);
    if (!copier->context)
        result = make_context(copier);
    uv_mutex_unlock(&copier->lock);
    if (result == CUDA_SUCCESS)
        result = copier->cuda->cuCtxPushCurrent(copier->context);
    if (result == CUDA_SUCCESS)
        return 0;
    return gb_cuda_fail(error, copier->cuda, result, "making a context for spilling");
}

static void leave_context(struct gb_cuda_copier *copier)
{
    CUcontext context;

    copier->cuda->cuCtxPopCurrent(&context);
}

/* ---- windows ---- */

static struct window *window_find(const struct gb_cuda_copier *copier, int fd)
{
    GB_LIST_EACH(&copier->windows, struct window, window, link) {
        if (window->fd == fd)
            return window;
    }
    return NULL;
}

/* Closes idle windows, the least recently used first, until there is a place for another. */
static void make_place(struct gb_cuda_copier *copier)
{
    GB_LIST_EACH(&copier->windows, struct window, window, link) {
        if (copier->window_count < WINDOWS)
            return;
        if (!window->busy[GB_OUT] && !window->busy[GB_IN])
            window_close(copier, window);
    }
}

static CUresult map(struct gb_cuda_copier *copier, struct window *window)
{
    const struct gb_cuda *cuda = copier->cuda;
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = copier->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    CUmemGenericAllocationHandle handle;
    CUresult result = cuda->cuMemImportFromShareableHandle(
        &handle, (void *)(uintptr_t)window->fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

    if (result != CUDA_SUCCESS)
        return result;
    result = cuda->cuMemAddressReserve(&window->address, window->bytes, 0, 0, 0);
    if (result == CUDA_SUCCESS) {
        result = cuda->cuMemMap(window->address, window->bytes, 0, handle, 0);
        if (result == CUDA_SUCCESS) {
            result = cuda->cuMemSetAccess(window->address, window->bytes, &access, 1);
            if (result != CUDA_SUCCESS)
                cuda->cuMemUnmap(window->address, window->bytes);
        }
        if (result != CUDA_SUCCESS)
            cuda->cuMemAddressFree(window->address, window->bytes);
    }
    cuda->cuMemRelease(handle); /* the mapping keeps the memory */
    return result;
}

static struct window *window_new(struct gb_cuda_copier *copier, int fd, uint64_t bytes,
                                 CUresult *result)
{
    struct window *window = calloc(1, sizeof(*window));

    *result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!window)
        return NULL;
    make_place(copier);
    window->fd = fd;
    window->bytes = bytes;
    *result = map(copier, window);
    if (*result != CUDA_SUCCESS) {
        free(window);
        return NULL;
    }
    copier->window_count++;
    return window;
}

/* Gives the address of the segment, which the direction may use until it settles. */
static CUresult acquire_window(struct gb_cuda_copier *copier, enum gb_direction direction,
                               const struct gb_memory *memory, uint64_t bytes, CUdeviceptr *address)
{
    CUresult result = CUDA_SUCCESS;
    struct window *window;

    if (memory->kind == GB_HANDLE_CUDA_IPC) {
        *address = memory->pointer;
        return CUDA_SUCCESS;
    }
    uv_mutex_lock(&copier->lock);
    window = window_find(copier, memory->write_fd);
    if (!window)
        window = window_new(copier, memory->write_fd, bytes, &result);
    if (window) {
        window->busy[direction] = true;
        gb_list_remove(&window->link);
        gb_list_append(&copier->windows, &window->link);
        *address = window->address;
    }
    uv_mutex_unlock(&copier->lock);
    return result;
}

void gb_cuda_copier_forget(struct gb_cuda_copier *copier, int fd)
{
    struct window *window;

    uv_mutex_lock(&copier->lock);
    window = window_find(copier, fd);
    if (window)
        window_close(copier, window);
    uv_mutex_unlock(&copier->lock);
}

/* ---- copies ---- */

static struct gb_cuda_copier *copier_of(struct gb_device *gpu)
{
    return &((struct gb_cuda_gpu *)gpu)->copier;
}

int gb_cuda_copy(struct gb_device *gpu, enum gb_direction direction, const struct gb_memory *memory,
                 uint64_t segment_bytes, uint64_t offset, void *own, uint64_t bytes,
                 struct gb_error *error)
{
    struct gb_cuda_copier *copier = copier_of(gpu);
    const struct gb_cuda *cuda = copier->cuda;
    CUstream stream;
    CUdeviceptr address = 0;
    CUresult result;
    int r = enter(copier, error);

    if (r < 0)
        return r;
    stream = copier->lanes[direction].stream;
    result = acquire_window(copier, direction, memory, segment_bytes, &address);
    if (result == CUDA_SUCCESS)
        result = direction == GB_OUT
                     ? cuda->cuMemcpyDtoHAsync(own, address + offset, bytes, stream)
                     : cuda->cuMemcpyHtoDAsync(address + offset, own, bytes, stream);
    leave_context(copier);
    if (result == CUDA_SUCCESS)
        return 0;
    return gb_cuda_fail(error, cuda, result, "copying %s the device",
                        direction == GB_OUT ? "out of" : "into");
}

static void end_use(struct gb_cuda_copier *copier, enum gb_direction direction)
{
    uv_mutex_lock(&copier->lock);
    GB_LIST_EACH(&copier->windows, struct window, window, link)
        window->busy[direction] = false;
    uv_mutex_unlock(&copier->lock);
}

/* Waits for the end of all copies of the lane. Sleeping until an interrupt takes longer than a
   short copy, so this polls first. */
static CUresult await(const struct gb_cuda *cuda, const struct gb_cuda_lane *lane)
{
    CUresult result = cuda->cuEventRecord(lane->done, lane->stream);
    uint64_t until = gb_now_us() + POLL_US;

    if (result != CUDA_SUCCESS)
        return result;
    while ((result = cuda->cuEventQuery(lane->done)) == CUDA_ERROR_NOT_READY && gb_now_us() < until)
        sched_yield();
    return result == CUDA_ERROR_NOT_READY ? cuda->cuEventSynchronize(lane->done) : result;
}

int gb_cuda_finish_copies(struct gb_device *gpu, enum gb_direction direction,
                          struct gb_error *error)
{
    struct gb_cuda_copier *copier = copier_of(gpu);
    const struct gb_cuda *cuda = copier->cuda;
    CUresult result;
    int r = enter(copier, error);

    if (r == 0) {
        result = await(cuda, &copier->lanes[direction]);
        leave_context(copier);
        if (result != CUDA_SUCCESS)
            r = gb_cuda_fail(error, cuda, result, "copying %s the device",
                             direction == GB_OUT ? "out of" : "into");
    }
    end_use(copier, direction);
    return r;
}

int gb_cuda_pin(struct gb_device *gpu, void *own, uint64_t bytes, struct gb_error *error)
{
    struct gb_cuda_copier *copier = copier_of(gpu);
    CUresult result;
    int r = enter(copier, error);

    if (r < 0)
        return r;
    result = copier->cuda->cuMemHostRegister(own, bytes, CU_MEMHOSTREGISTER_PORTABLE);
    leave_context(copier);
    if (result == CUDA_SUCCESS)
        return 0;
    return gb_cuda_fail(error, copier->cuda, result, "pinning %llu bytes",
                        (unsigned long long)bytes);
}

void gb_cuda_unpin(struct gb_device *gpu, void *own)
{
    struct gb_cuda_copier *copier = copier_of(gpu);
    struct gb_error error;

    if (enter(copier, &error) < 0)
        return;
    copier->cuda->cuMemHostUnregister(own);
    leave_context(copier);
}
