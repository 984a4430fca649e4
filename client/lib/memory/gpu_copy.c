#include "client/lib/memory/gpu_copy.h"

#include <inttypes.h>
#include <stdlib.h>

#define STAGE_BYTES ((uint64_t)4 << 20)

static CUresult copy(const struct gb_gpu *gpu, CUdeviceptr to, CUdeviceptr from, uint64_t bytes,
                     CUstream stream)
{
    return gpu->cuda->cuMemcpyAsync(to, from, (size_t)bytes, stream ? stream : GB_CU_STREAM_LEGACY);
}

/* Lets the GPU reach memory that is mapped for another one only, as all of cuMemMap's is at first.
   False: it cannot, the memory is not another one's, or that one may not do so either. */
static bool reach(const struct gb_gpu *gpu, CUdeviceptr pointer, CUmemAccess_flags flags)
{
    struct gb_gpu *owner = gb_gpu_of_pointer((const void *)(uintptr_t)pointer);
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = gpu->ordinal},
        .flags = flags,
    };
    CUdeviceptr base = 0;
    unsigned long long owners = 0;
    size_t bytes = 0;

    if (!owner || owner == gpu || gb_gpu_enter(owner, NULL) < 0)
        return false;
    CUresult result = owner->cuda->cuMemGetAddressRange(&base, &bytes, pointer);
    if (result == CUDA_SUCCESS)
        result = owner->cuda->cuMemGetAccess(
            &owners, &(CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = owner->ordinal},
            base);
    bool may = result == CUDA_SUCCESS && (owners & flags) == flags &&
               owner->cuda->cuMemSetAccess(base, bytes, &access, 1) == CUDA_SUCCESS;
    gb_gpu_leave(owner);
    return may;
}

/* One half of a staged copy. Pageable memory on its other side may be used again on return. */
static bool copy_part(struct gb_gpu *gpu, CUdeviceptr to, CUdeviceptr from, uint64_t bytes)
{
    if (gb_gpu_enter(gpu, NULL) < 0)
        return false;
    CUresult result = copy(gpu, to, from, bytes, NULL);
    gb_gpu_leave(gpu);
    return result == CUDA_SUCCESS;
}

/* Copies through the host, between two GPUs that do not reach each other's memory. False in any
   other case, or if that fails, too. */
static bool copy_staged(CUdeviceptr to, CUdeviceptr from, uint64_t bytes)
{
    struct gb_gpu *target = gb_gpu_of_pointer((const void *)(uintptr_t)to);
    struct gb_gpu *source = gb_gpu_of_pointer((const void *)(uintptr_t)from);

    if (!target || !source || target == source || gb_gpu_finish(source, NULL, NULL) < 0)
        return false;
    void *stage = malloc(STAGE_BYTES);
    bool good = stage != NULL;
    CUdeviceptr host = (CUdeviceptr)(uintptr_t)stage;
    for (uint64_t done = 0; good && done < bytes; done += STAGE_BYTES) {
        uint64_t part = bytes - done < STAGE_BYTES ? bytes - done : STAGE_BYTES;
        good =
            copy_part(source, host, from + done, part) && copy_part(target, to + done, host, part);
    }
    good = good && gb_gpu_finish(target, NULL, NULL) == 0;
    free(stage);
    return good;
}

int gb_gpu_copy(struct gb_gpu *gpu, void *to, const void *from, uint64_t bytes, CUstream stream,
                struct gb_error *error)
{
    if (bytes == 0)
        return 0;
    int r = gb_gpu_enter(gpu, error);
    if (r < 0)
        return r;
    CUdeviceptr target = (CUdeviceptr)(uintptr_t)to, source = (CUdeviceptr)(uintptr_t)from;
    CUresult result = copy(gpu, target, source, bytes, stream);
    if (result != CUDA_SUCCESS && (reach(gpu, source, CU_MEM_ACCESS_FLAGS_PROT_READ) ||
                                   reach(gpu, target, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)))
        result = copy(gpu, target, source, bytes, stream);
    gb_gpu_leave(gpu);
    if (result != CUDA_SUCCESS && !stream && copy_staged(target, source, bytes))
        return 0;
    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, gpu->cuda, result, "copying %" PRIu64 " bytes on %s", bytes,
                            gpu->id);
    return 0;
}

int gb_gpu_finish(struct gb_gpu *gpu, CUstream stream, struct gb_error *error)
{
    const struct gb_cuda *cuda;

    if (!gpu && !gb_gpu_is_ours())
        return gb_fail(error, GPUBUF_E_UNSUPPORTED,
                       "a stream cannot be used in a child of fork() of a process that used CUDA");
    int r = gpu ? gb_gpu_enter(gpu, error) : gb_cuda_load(gb_gpu_driver(), &cuda, error);
    if (r < 0)
        return r;
    if (gpu)
        cuda = gpu->cuda;
    CUresult result = cuda->cuStreamSynchronize(stream ? stream : GB_CU_STREAM_LEGACY);
    if (gpu)
        gb_gpu_leave(gpu);
    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, cuda, result, "waiting for a stream%s%s", gpu ? " of " : "",
                            gpu ? gpu->id : "");
    return 0;
}

int gb_gpu_finish_other(const struct gb_gpu *gpu, const void *data, struct gb_error *error)
{
    struct gb_gpu *other = gb_gpu_of_pointer(data);

    return other && other != gpu ? gb_gpu_finish(other, NULL, error) : 0;
}
