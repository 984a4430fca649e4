#include "client/lib/memory/window.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/lib/memory/gpu.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4 /* Linux 5.7; of shared memory 5.13 */
#endif

#define MIB (UINT64_C(1) << 20)

struct gb_view_window {
    _Atomic unsigned references; /* of its lease, and of its holders */
    char *address;
    uint64_t bytes;           /* that are shown */
    uint64_t reserved;        /* addresses, on a GPU */
    struct gb_gpu *gpu;       /* retained; NULL: the host */
    struct gb_imported shown; /* address NULL: nothing */
};

/* ---- the host ---- */

void *gb_window_reserve(uint64_t bytes)
{
    uint64_t unit = bytes >= 1024 * MIB ? 1024 * MIB : 2 * MIB;

    if (bytes > SIZE_MAX - unit)
        return NULL;
    char *all = mmap(NULL, (size_t)(bytes + unit), PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    uint64_t before = (unit - (uintptr_t)all % unit) % unit;
    if (before > 0)
        (void)munmap(all, (size_t)before);
    (void)munmap(all + before + bytes, (size_t)(unit - before));
    return all + before;
}

static uint64_t whole_pages(uint64_t bytes)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);

    return (bytes + page - 1) / page * page;
}

/* Moves the page tables of a mapping to another place. The mapping stays, and its pages are faulted
   in again where they are used there. */
static bool move(void *from, void *to, uint64_t bytes)
{
    return mremap(from, (size_t)bytes, (size_t)bytes,
                  MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) == to;
}

/* A kernel that cannot move page tables alone makes a second mapping. */
static int show_on_host(struct gb_view_window *window, const struct gb_imported *memory,
                        struct gb_error *error)
{
    if (window->shown.address)
        (void)move(window->address, window->shown.address, window->bytes);
    if (!move(memory->address, window->address, window->bytes) &&
        mremap(memory->address, 0, (size_t)window->bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
               window->address) != window->address)
        return gb_fail_errno(error, "mapping %" PRIu64 " bytes at %p", window->bytes,
                             (void *)window->address);
    return 0;
}

static int hide_on_host(struct gb_view_window *window, struct gb_error *error)
{
    int access = atomic_load(&window->references) > 1 ? PROT_READ : PROT_NONE;

    if (mmap(window->address, (size_t)window->bytes, access,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        return gb_fail_errno(error, "unmapping %" PRIu64 " bytes at %p", window->bytes,
                             (void *)window->address);
    return 0;
}

/* ---- a GPU, in its context ---- */

static CUdeviceptr device_address(const struct gb_view_window *window)
{
    return (CUdeviceptr)(uintptr_t)window->address;
}

/* Maps an allocation where nothing is. */
static CUresult put(struct gb_view_window *window, const struct gb_imported *memory)
{
    const struct gb_cuda *cuda = window->gpu->cuda;
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = window->gpu->ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READ,
    };
    CUresult result =
        cuda->cuMemMap(device_address(window), (size_t)memory->bytes, 0, memory->allocation, 0);

    if (result != CUDA_SUCCESS)
        return result;
    result = cuda->cuMemSetAccess(device_address(window), (size_t)memory->bytes, &access, 1);
    if (result != CUDA_SUCCESS)
        (void)cuda->cuMemUnmap(device_address(window), (size_t)memory->bytes);
    return result;
}

static int take_away(struct gb_view_window *window, struct gb_error *error)
{
    const struct gb_cuda *cuda = window->gpu->cuda;
    CUresult result = cuda->cuMemUnmap(device_address(window), (size_t)window->shown.bytes);

    if (result == CUDA_SUCCESS)
        return 0;
    return gb_cuda_fail(error, cuda, result, "unmapping %" PRIu64 " bytes on %s",
                        window->shown.bytes, window->gpu->id);
}

static int show_on_gpu(struct gb_view_window *window, const struct gb_imported *memory,
                       struct gb_error *error)
{
    const struct gb_cuda *cuda = window->gpu->cuda;

    if (memory->kind != GB_HANDLE_CUDA_FD || memory->gpu != window->gpu ||
        memory->bytes > window->reserved)
        return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                       "its memory is of another kind, on another device, or in a segment of "
                       "%" PRIu64 " bytes, and there is room for %" PRIu64,
                       memory->bytes, window->reserved);
    if (window->shown.address && take_away(window, error) < 0)
        return GPUBUF_E_DEVICE;
    CUresult result = put(window, memory);
    if (result == CUDA_SUCCESS)
        return 0;
    if (window->shown.address && put(window, &window->shown) != CUDA_SUCCESS)
        window->shown.address = NULL;
    return gb_cuda_fail(error, cuda, result, "mapping %" PRIu64 " bytes on %s", memory->bytes,
                        window->gpu->id);
}

/* An allocation is mapped as a whole, and a later one may lie in a segment that is larger. */
static int reserve_on_gpu(struct gb_view_window *window, const struct gb_imported *like,
                          struct gb_error *error)
{
    const struct gb_cuda *cuda = like->gpu->cuda;
    CUdeviceptr address = 0;

    if (like->kind != GB_HANDLE_CUDA_FD)
        return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                       "its memory is its producer's, by cudaMalloc, which cannot be mapped at "
                       "another address");
    int r = gb_gpu_enter(like->gpu, error);
    if (r < 0)
        return r;
    window->reserved = (like->bytes + like->bytes / 8 + 2 * MIB) / (2 * MIB) * (2 * MIB);
    CUresult result = cuda->cuMemAddressReserve(&address, (size_t)window->reserved, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        r = gb_cuda_fail(error, cuda, result, "reserving %" PRIu64 " bytes of addresses on %s",
                         window->reserved, like->gpu->id);
    else
        r = gb_gpu_retain(like->gpu, error);
    if (r < 0 && address)
        (void)cuda->cuMemAddressFree(address, (size_t)window->reserved);
    gb_gpu_leave(like->gpu);
    window->gpu = like->gpu;
    window->address = (void *)(uintptr_t)address;
    return r;
}

/* ---- both ---- */

int gb_window_open(const struct gb_imported *like, uint64_t bytes, struct gb_view_window **out,
                   struct gb_error *error)
{
    struct gb_view_window *window = calloc(1, sizeof(*window));
    int r = 0;

    if (!window)
        return gb_fail_memory(error);
    atomic_init(&window->references, 1);
    window->bytes = whole_pages(bytes);
    if (like->gpu)
        r = reserve_on_gpu(window, like, error);
    else if (!(window->address = gb_window_reserve(window->bytes)))
        r = gb_fail(error, GPUBUF_E_NO_MEMORY, "no room for %" PRIu64 " bytes of addresses", bytes);
    if (r < 0)
        free(window);
    else
        *out = window;
    return r;
}

void gb_window_hold(struct gb_view_window *window)
{
    (void)atomic_fetch_add(&window->references, 1);
}

void gb_window_release(struct gb_view_window *window)
{
    struct gb_error ignored;

    if (atomic_fetch_sub(&window->references, 1) > 1)
        return;
    if (window->gpu) {
        bool entered = gb_gpu_enter(window->gpu, &ignored) == 0;
        if (window->shown.address)
            (void)take_away(window, &ignored);
        (void)window->gpu->cuda->cuMemAddressFree(device_address(window), (size_t)window->reserved);
        if (entered)
            gb_gpu_leave(window->gpu);
        gb_gpu_release(window->gpu);
    } else {
        (void)munmap(window->address, (size_t)window->bytes);
    }
    free(window);
}

void gb_window_close(struct gb_view_window *window)
{
    struct gb_error ignored;

    if (atomic_load(&window->references) > 1)
        (void)hide_on_host(window, &ignored); /* and its memory ends */
    gb_window_release(window);
}

void *gb_window_address(const struct gb_view_window *window)
{
    return window->address;
}

uint64_t gb_window_bytes(const struct gb_view_window *window)
{
    return window->bytes;
}

bool gb_window_is_shown(const struct gb_view_window *window)
{
    return window->shown.address;
}

int gb_window_wait(const struct gb_view_window *window, void *const *streams, size_t count,
                   struct gb_error *error)
{
    struct gb_gpu *gpu = window->gpu;
    CUresult result = CUDA_SUCCESS;

    if (!gpu)
        return 0;
    int r = gb_gpu_enter(gpu, error);
    if (r < 0)
        return r;
    if (count == 0)
        result = gpu->cuda->cuCtxSynchronize();
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
        result = gpu->cuda->cuStreamSynchronize(streams[i] ? streams[i] : GB_CU_STREAM_LEGACY);
    if (result != CUDA_SUCCESS)
        r = gb_cuda_fail(error, gpu->cuda, result, "waiting for the work on %s", gpu->id);
    gb_gpu_leave(gpu);
    return r;
}

int gb_window_show(struct gb_view_window *window, const struct gb_imported *memory,
                   struct gb_error *error)
{
    int r;

    if (window->gpu) {
        r = gb_gpu_enter(window->gpu, error);
        if (r < 0)
            return r;
        r = show_on_gpu(window, memory, error);
        gb_gpu_leave(window->gpu);
    } else {
        r = show_on_host(window, memory, error);
    }
    if (r == 0)
        window->shown = *memory;
    return r;
}

int gb_window_hide(struct gb_view_window *window, struct gb_imported *was, struct gb_error *error)
{
    int r = 0;

    *was = window->shown;
    if (!window->shown.address)
        return 0;
    if (window->gpu) {
        r = gb_gpu_enter(window->gpu, error);
        if (r < 0)
            return r;
        r = take_away(window, error);
        gb_gpu_leave(window->gpu);
    } else {
        r = hide_on_host(window, error);
    }
    if (r == 0)
        window->shown.address = NULL;
    return r;
}
