#include "client/lib/memory/gpu_word.h"

/* The current context is the GPU's. */
static void register_page(struct gb_gpu_page *page, struct gb_gpu *gpu, void *host, size_t bytes,
                          bool only_read)
{
    const struct gb_cuda *cuda = gpu->cuda;
    unsigned flags = CU_MEMHOSTREGISTER_DEVICEMAP | (only_read ? CU_MEMHOSTREGISTER_READ_ONLY : 0);

    if (gb_gpu_retain(gpu, NULL) < 0)
        return;
    page->gpu = gpu;
    page->host = host;
    if (!cuda->cuStreamWaitValue32 || !cuda->cuStreamWriteValue32 ||
        cuda->cuMemHostRegister(host, bytes, flags) != CUDA_SUCCESS)
        return;
    if (cuda->cuMemHostGetDevicePointer(&page->device, host, 0) == CUDA_SUCCESS)
        return;
    page->device = 0;
    (void)cuda->cuMemHostUnregister(host);
}

static CUdeviceptr address_of(const struct gb_gpu_page *page, const _Atomic uint32_t *word)
{
    return page->device + (CUdeviceptr)((const char *)word - (const char *)page->host);
}

bool gb_gpu_write_word(struct gb_gpu_page *page, struct gb_gpu *gpu, void *host, size_t bytes,
                       const _Atomic uint32_t *word, uint32_t value, CUstream stream)
{
    if (gb_gpu_enter(gpu, NULL) < 0)
        return false;
    if (!page->gpu)
        register_page(page, gpu, host, bytes, false);
    bool good = page->device && gpu->cuda->cuStreamWriteValue32(
                                    stream ? stream : GB_CU_STREAM_LEGACY, address_of(page, word),
                                    value, CU_STREAM_WRITE_VALUE_DEFAULT) == CUDA_SUCCESS;
    gb_gpu_leave(gpu);
    return good;
}

bool gb_gpu_wait_word(struct gb_gpu_page *page, struct gb_gpu *gpu, const void *host, size_t bytes,
                      const _Atomic uint32_t *word, uint32_t value, CUstream stream)
{
    if (gb_gpu_enter(gpu, NULL) < 0)
        return false;
    if (!page->gpu)
        register_page(page, gpu, (void *)(uintptr_t)host, bytes, true);
    bool good = page->device && gpu->cuda->cuStreamWaitValue32(
                                    stream ? stream : GB_CU_STREAM_LEGACY, address_of(page, word),
                                    value, CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS;
    gb_gpu_leave(gpu);
    return good;
}

void gb_gpu_end_page(struct gb_gpu_page *page)
{
    struct gb_gpu *gpu = page->gpu;

    if (!gpu)
        return;
    if (page->device && gb_gpu_enter(gpu, NULL) == 0) {
        (void)gpu->cuda->cuCtxSynchronize();
        (void)gpu->cuda->cuMemHostUnregister(page->host);
        gb_gpu_leave(gpu);
    }
    gb_gpu_release(gpu);
    *page = (struct gb_gpu_page){.gpu = NULL};
}
