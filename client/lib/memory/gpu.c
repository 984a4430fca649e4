#include "client/lib/memory/gpu.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/base/process.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The generation of the process that uses a GPU; 0: none has yet. Read before the lock is taken,
   which in a child of fork may be held for ever. */
static _Atomic unsigned owner;

/* Of each driver, under the lock; a table does not change once it is there. */
static struct gb_gpu *gpus[GB_DRIVERS];
static _Atomic int gpu_count[GB_DRIVERS]; /* 0: not started */

void gb_gpu_lock(void)
{
    pthread_mutex_lock(&lock);
}

void gb_gpu_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* ---- starting ---- */

bool gb_gpu_is_ours(void)
{
    unsigned by = atomic_load(&owner);

    return by == 0 || by == gb_generation();
}

static int claim(struct gb_error *error)
{
    unsigned none = 0;

    if (atomic_compare_exchange_strong(&owner, &none, gb_generation()) || gb_gpu_is_ours())
        return 0;
    return gb_fail(
        error, GPUBUF_E_UNSUPPORTED,
        "CUDA was in use before fork() and cannot be used in the child; start the process "
        "by exec (in Python: multiprocessing's \"spawn\")");
}

static int read_devices(const struct gb_cuda *cuda, int count, struct gb_gpu *list,
                        struct gb_error *error)
{
    for (int i = 0; i < count; i++) {
        struct gb_gpu *gpu = &list[i];
        gpu->cuda = cuda;
        gpu->ordinal = i;
        CUresult result = cuda->cuDeviceGet(&gpu->device, i);
        if (result == CUDA_SUCCESS)
            result = gb_cuda_device_id(cuda, gpu->device, gpu->id);
        if (result != CUDA_SUCCESS)
            return gb_cuda_fail(error, cuda, result, "looking at GPU %d", i);
    }
    return 0;
}

/* With the lock held. A failure is tried again the next time. */
static int start(enum gb_driver driver, struct gb_error *error)
{
    const struct gb_driver_names *names = &gb_driver_names[driver];
    const struct gb_cuda *cuda;
    int r = gb_cuda_load(driver, &cuda, error);

    if (r < 0)
        return r;
    CUresult result = cuda->cuInit(0);
    if (result == CUDA_ERROR_NOT_INITIALIZED)
        return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                       "the CUDA driver was in use before fork() and cannot be used in the child; "
                       "start the process by exec (in Python: multiprocessing's \"spawn\")");
    int count = 0;
    if (result == CUDA_SUCCESS)
        result = cuda->cuDeviceGetCount(&count);
    if (result == CUDA_ERROR_NO_DEVICE || (result == CUDA_SUCCESS && count == 0))
        return gb_fail(error, GPUBUF_E_UNSUPPORTED, "no GPU is visible to this process (see %s)",
                       names->visible);
    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, cuda, result, "starting the %s driver", names->name);

    struct gb_gpu *list = calloc((size_t)count, sizeof(*list));
    if (!list)
        return gb_fail_memory(error);
    r = read_devices(cuda, count, list, error);
    if (r < 0) {
        free(list);
        return r;
    }
    /* At exit the driver ends before this library does. The library's thread must have stopped by
       then: this runs before the functions that the driver has registered. */
    if (!gb_process_stop_at_exit()) {
        free(list);
        return gb_fail_memory(error);
    }
    gpus[driver] = list;
    atomic_store(&gpu_count[driver], count);
    return 0;
}

static int begin(enum gb_driver driver, struct gb_error *error)
{
    int r = claim(error);

    if (r < 0 || atomic_load(&gpu_count[driver]) > 0)
        return r;
    gb_gpu_lock();
    if (atomic_load(&gpu_count[driver]) == 0)
        r = start(driver, error);
    gb_gpu_unlock();
    return r;
}

/* ---- finding ---- */

static int hidden(enum gb_driver driver, const char *id, struct gb_error *error)
{
    const char *variable = gb_driver_names[driver].visible, *visible = getenv(variable);

    if (visible)
        return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                       "%s is not visible to this process: %s=%.200s leaves it out", id, variable,
                       visible);
    return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                   "%s is not visible to this process, whose driver shows %d (%s "
                   "is not set; a container may leave GPUs out)",
                   id, atomic_load(&gpu_count[driver]), variable);
}

int gb_gpu_find(const char *id, struct gb_gpu **gpu, struct gb_error *error)
{
    enum gb_driver driver = gb_driver_of(id);
    int r = begin(driver, error);

    if (r < 0)
        return r;
    int count = atomic_load(&gpu_count[driver]);
    for (int i = 0; i < count; i++) {
        if (strcmp(gpus[driver][i].id, id) == 0) {
            *gpu = &gpus[driver][i];
            return 0;
        }
    }
    return hidden(driver, id, error);
}

int gb_gpu_at(enum gb_driver driver, int ordinal, struct gb_gpu **gpu, struct gb_error *error)
{
    int r = begin(driver, error);

    if (r < 0)
        return r;
    if (ordinal < 0 || ordinal >= atomic_load(&gpu_count[driver]))
        return gb_fail(error, GPUBUF_E_UNSUPPORTED, "there is no GPU %d in this process", ordinal);
    *gpu = &gpus[driver][ordinal];
    return 0;
}

enum gb_driver gb_gpu_driver(void)
{
    return gb_cuda_is_loaded(GB_HIP) && !gb_cuda_is_loaded(GB_CUDA) ? GB_HIP : GB_CUDA;
}

static struct gb_gpu *find_by_pointer(enum gb_driver driver, const void *pointer)
{
    struct gb_error ignored;
    const struct gb_cuda *cuda;

    if (!gb_cuda_is_loaded(driver) || gb_cuda_load(driver, &cuda, &ignored) < 0)
        return NULL;

    /* Fails for memory that the driver does not know, and where nobody has called cuInit. */
    unsigned type = 0;
    int ordinal = -1;
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)pointer;
    struct gb_gpu *gpu = NULL;
    if (cuda->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) ==
            CUDA_SUCCESS &&
        type == CU_MEMORYTYPE_DEVICE &&
        cuda->cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) ==
            CUDA_SUCCESS &&
        gb_gpu_at(driver, ordinal, &gpu, &ignored) == 0)
        return gpu;
    return NULL;
}

struct gb_gpu *gb_gpu_of_pointer(const void *pointer)
{
    if (!pointer || !gb_gpu_is_ours())
        return NULL;
    struct gb_gpu *gpu = find_by_pointer(GB_CUDA, pointer);
    return gpu ? gpu : find_by_pointer(GB_HIP, pointer);
}

/* ---- contexts ---- */

static int retain_locked(struct gb_gpu *gpu, struct gb_error *error)
{
    if (gpu->users == 0) {
        CUresult result = gpu->cuda->cuDevicePrimaryCtxRetain(&gpu->context, gpu->device);
        if (result != CUDA_SUCCESS)
            return gb_cuda_fail(error, gpu->cuda, result, "retaining the primary context of %s",
                                gpu->id);
    }
    gpu->users++;
    return 0;
}

void gb_gpu_release_locked(struct gb_gpu *gpu)
{
    if (--gpu->users > 0)
        return;
    if (gpu->forget)
        gpu->forget(gpu);
    (void)gpu->cuda->cuDevicePrimaryCtxRelease(gpu->device);
    gpu->context = NULL;
}

int gb_gpu_retain(struct gb_gpu *gpu, struct gb_error *error)
{
    gb_gpu_lock();
    int r = retain_locked(gpu, error);
    gb_gpu_unlock();
    return r;
}

void gb_gpu_release(struct gb_gpu *gpu)
{
    gb_gpu_lock();
    gb_gpu_release_locked(gpu);
    gb_gpu_unlock();
}

int gb_gpu_enter(struct gb_gpu *gpu, struct gb_error *error)
{
    int r = gb_gpu_retain(gpu, error);

    if (r < 0)
        return r;
    CUresult result = gpu->cuda->cuCtxPushCurrent(gpu->context);
    if (result != CUDA_SUCCESS) {
        gb_gpu_release(gpu);
        return gb_cuda_fail(error, gpu->cuda, result, "entering the primary context of %s",
                            gpu->id);
    }
    return 0;
}

void gb_gpu_leave(struct gb_gpu *gpu)
{
    CUcontext context;

    (void)gpu->cuda->cuCtxPopCurrent(&context);
    gb_gpu_release(gpu);
}
