#include <inttypes.h>

#include "gpu.h"

int gb_gpu_copy(struct gb_gpu *gpu, void *to, const void *from, uint64_t bytes, CUstream stream,
                struct gb_error *error)
{
    if (bytes == 0)
        return 0;
    int r = gb_gpu_enter(gpu, error);
    if (r < 0)
        return r;
    CUresult result =
        gpu->cuda->cuMemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from,
                                 (size_t)bytes, stream ? stream : GB_CU_STREAM_LEGACY);
    gb_gpu_leave(gpu);
    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, gpu->cuda, result, "copying %" PRIu64 " bytes on %s", bytes,
                            gpu->id);
    return 0;
}

int gb_gpu_finish(struct gb_gpu *gpu, CUstream stream, struct gb_error *error)
{
    const struct gb_cuda *cuda;
    int r = gpu ? gb_gpu_enter(gpu, error) : gb_cuda_load(&cuda, error);
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
