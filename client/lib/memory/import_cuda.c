/* Segments on GPUs: memory of cuMemCreate, whose handle is a descriptor, and memory of cuMemAlloc,
   whose handle is 64 bytes. */
#include "client/lib/memory/import_cuda.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "client/lib/memory/gpu.h"
#include "client/lib/memory/gpu_own.h"

static uint64_t hash_bytes(const void *bytes, size_t length)
{
    const unsigned char *byte = bytes;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < length; i++)
        hash = (hash ^ byte[i]) * UINT64_C(0x100000001b3);
    return hash;
}

int gb_cuda_identify(const struct gb_segment_info *segment, struct gb_memory_identity *identity,
                     struct gb_error *error)
{
    struct gb_gpu *gpu;
    struct gb_error why;
    int r = gb_gpu_find(segment->device, &gpu, &why);

    if (r == GPUBUF_E_DEVICE) { /* with the driver's name of it */
        if (error)
            *error = why;
        return r;
    }
    if (r < 0)
        return gb_fail(error, r, "segment %" PRIu64 " lies on %s: %s", segment->id, segment->device,
                       why.message);
    if (segment->bytes == 0 || segment->bytes > SIZE_MAX)
        return gb_fail(error, GPUBUF_E_PROTOCOL, "segment %" PRIu64 " has no size", segment->id);
    bool ipc = segment->handle.kind == GB_HANDLE_CUDA_IPC;
    identity->device = hash_bytes(segment->device, strlen(segment->device));
    identity->file = ipc ? hash_bytes(segment->handle.ipc, GB_IPC_BYTES) : 0;
    return 0;
}

/* ---- memory of cuMemCreate ---- */

static CUresult set_access(const struct gb_gpu *gpu, CUdeviceptr address, size_t bytes,
                           bool writable)
{
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu->ordinal},
        .flags = writable ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ,
    };

    return gpu->cuda->cuMemSetAccess(address, bytes, &access, 1);
}

/* Maps an imported allocation of `bytes` bytes at a new address. On failure *what says what
   failed. */
static CUresult place(const struct gb_gpu *gpu, CUmemGenericAllocationHandle allocation,
                      size_t bytes, bool writable, CUdeviceptr *out, const char **what)
{
    const struct gb_cuda *cuda = gpu->cuda;
    CUdeviceptr address = 0;

    *what = "reserving addresses for";
    CUresult result = cuda->cuMemAddressReserve(&address, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    *what = "mapping";
    result = cuda->cuMemMap(address, bytes, 0, allocation, 0);
    if (result == CUDA_SUCCESS) {
        *what = "setting the access to";
        result = set_access(gpu, address, bytes, writable);
        if (result == CUDA_SUCCESS) {
            *out = address;
            return CUDA_SUCCESS;
        }
        (void)cuda->cuMemUnmap(address, bytes);
    }
    (void)cuda->cuMemAddressFree(address, bytes);
    return result;
}

/* To be called in the GPU's context. The descriptor stays the caller's. */
static int map_fd(struct gb_gpu *gpu, const struct gb_segment_info *segment, int fd,
                  struct gb_imported *imported, struct gb_error *error)
{
    const struct gb_cuda *cuda = gpu->cuda;
    CUmemGenericAllocationHandle allocation;
    CUdeviceptr address = 0;
    const char *what = "importing";
    CUresult result = cuda->cuMemImportFromShareableHandle(
        &allocation, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);

    if (result == CUDA_SUCCESS) {
        result = place(gpu, allocation, (size_t)segment->bytes, segment->writable, &address, &what);
        if (result != CUDA_SUCCESS)
            (void)cuda->cuMemRelease(allocation);
    }
    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, cuda, result,
                            "%s segment %" PRIu64 " of %" PRIu64 " bytes on %s", what, segment->id,
                            segment->bytes, gpu->id);
    imported->address = (void *)(uintptr_t)address;
    imported->allocation = allocation;
    return 0;
}

static void unmap_fd(const struct gb_imported *imported)
{
    const struct gb_cuda *cuda = imported->gpu->cuda;
    CUdeviceptr address = (CUdeviceptr)(uintptr_t)imported->address;

    (void)cuda->cuMemUnmap(address, (size_t)imported->bytes);
    (void)cuda->cuMemAddressFree(address, (size_t)imported->bytes);
    (void)cuda->cuMemRelease(imported->allocation);
}

bool gb_cuda_set_writable(const struct gb_imported *imported, bool writable)
{
    struct gb_gpu *gpu = imported->gpu;
    struct gb_error ignored;

    if (imported->kind != GB_HANDLE_CUDA_FD || gb_gpu_enter(gpu, &ignored) < 0)
        return false;
    CUresult result = set_access(gpu, (CUdeviceptr)(uintptr_t)imported->address,
                                 (size_t)imported->bytes, writable);
    gb_gpu_leave(gpu);
    return result == CUDA_SUCCESS;
}

/* ---- memory of cuMemAlloc ---- */

/* Nobody but its producer vouches for the size of registered memory. */
static int check_size(const struct gb_segment_info *segment, uint64_t bytes, struct gb_error *error)
{
    if (bytes >= segment->bytes)
        return 0;
    return gb_fail(error, GPUBUF_E_DEVICE,
                   "segment %" PRIu64 " on %s has %" PRIu64 " bytes and not the %" PRIu64
                   " that the daemon reported",
                   segment->id, segment->device, bytes, segment->bytes);
}

static int open_ipc(struct gb_gpu *gpu, const struct gb_segment_info *segment,
                    struct gb_imported *imported, struct gb_error *error)
{
    const struct gb_cuda *cuda = gpu->cuda;
    CUipcMemHandle handle;
    CUdeviceptr address = 0, base = 0;
    size_t bytes = 0;

    memcpy(&handle, segment->handle.ipc, sizeof(handle));
    CUresult result =
        cuda->cuIpcOpenMemHandle(&address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, cuda, result, "opening the handle of segment %" PRIu64 " on %s",
                            segment->id, gpu->id);
    int r = 0;
    result = cuda->cuMemGetAddressRange(&base, &bytes, address);
    if (result != CUDA_SUCCESS)
        r = gb_cuda_fail(error, cuda, result, "asking for the size of segment %" PRIu64 " on %s",
                         segment->id, gpu->id);
    else
        r = check_size(segment, base + bytes - address, error);
    if (r < 0)
        (void)cuda->cuIpcCloseMemHandle(address);
    else
        imported->address = (void *)(uintptr_t)address;
    return r;
}

/* The driver does not open a handle in the process that made it. */
static int map_ipc(struct gb_gpu *gpu, const struct gb_segment_info *segment,
                   struct gb_imported *imported, struct gb_error *error)
{
    uint64_t bytes;

    imported->own = gb_gpu_own_find(segment->handle.ipc, &imported->address, &bytes);
    return imported->own ? check_size(segment, bytes, error)
                         : open_ipc(gpu, segment, imported, error);
}

/* ---- both ---- */

int gb_cuda_map(const struct gb_segment_info *segment, int fd, struct gb_imported *imported,
                struct gb_error *error)
{
    struct gb_gpu *gpu;
    int r = gb_gpu_find(segment->device, &gpu, error);

    if (r == 0)
        r = gb_gpu_enter(gpu, error);
    if (r < 0)
        return r;
    struct gb_imported made = {
        .kind = segment->handle.kind,
        .bytes = segment->bytes,
        .writable = segment->writable,
        .fd = -1,
        .gpu = gpu,
    };
    r = made.kind == GB_HANDLE_CUDA_FD ? map_fd(gpu, segment, fd, &made, error)
                                       : map_ipc(gpu, segment, &made, error);
    if (r == 0) {
        r = gb_gpu_retain(gpu, error); /* for as long as it is mapped */
        if (r == 0)
            *imported = made;
    }
    gb_gpu_leave(gpu);
    return r;
}

void gb_cuda_unmap(const struct gb_imported *imported)
{
    struct gb_gpu *gpu = imported->gpu;
    struct gb_error ignored;
    bool entered = gb_gpu_enter(gpu, &ignored) == 0;

    if (imported->kind == GB_HANDLE_CUDA_FD)
        unmap_fd(imported);
    else if (!imported->own)
        (void)gpu->cuda->cuIpcCloseMemHandle((CUdeviceptr)(uintptr_t)imported->address);
    if (entered)
        gb_gpu_leave(gpu);
    gb_gpu_release(gpu);
}

/* ---- host memory ---- */

static atomic_uint_least64_t registered; /* bytes, now */

uint64_t gb_cuda_registered(void)
{
    return registered;
}

int gb_cuda_register(const struct gb_imported *imported, struct gb_gpu **out,
                     struct gb_error *error)
{
    unsigned flags = CU_MEMHOSTREGISTER_PORTABLE;
    CUcontext current = NULL;
    CUdevice device = 0;
    struct gb_gpu *gpu;
    int r = gb_gpu_at(gb_gpu_driver(), 0, &gpu, error);

    if (r == 0 && gpu->cuda->cuCtxGetCurrent(&current) == CUDA_SUCCESS && current &&
        gpu->cuda->cuCtxGetDevice(&device) == CUDA_SUCCESS)
        r = gb_gpu_at(gpu->cuda->driver, (int)device, &gpu, error);
    if (r == 0)
        r = gb_gpu_enter(gpu, error);
    if (r < 0)
        return r;
    if (!imported->writable)
        flags |= CU_MEMHOSTREGISTER_READ_ONLY;
    CUresult result =
        gpu->cuda->cuMemHostRegister(imported->address, (size_t)imported->bytes, flags);
    if (result == CUDA_SUCCESS)
        r = gb_gpu_retain(gpu, error);
    else
        r = gb_cuda_fail(error, gpu->cuda, result, "pinning %" PRIu64 " bytes for %s",
                         imported->bytes, gpu->id);
    gb_gpu_leave(gpu);
    if (r == 0) {
        *out = gpu;
        registered += imported->bytes;
    }
    return r;
}

void gb_cuda_unregister(const struct gb_imported *imported, struct gb_gpu *gpu)
{
    if (gb_gpu_enter(gpu, NULL) == 0) {
        (void)gpu->cuda->cuMemHostUnregister(imported->address);
        gb_gpu_leave(gpu);
    }
    registered -= imported->bytes;
    gb_gpu_release(gpu);
}
