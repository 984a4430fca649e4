/*
 * Copies, fills, and the kernels of fakecuda.h. All device work moves bytes by process_vm_readv on
 * the process itself: it honours the pages' protection, and says so instead of raising a signal, as
 * a GPU's memory unit would.
 */
#include "fake.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define CHUNK 65536

static CUresult move(uintptr_t target, uintptr_t source, size_t bytes)
{
    while (bytes) {
        struct iovec to = {(void *)target, bytes}, from = {(void *)source, bytes};
        /* Not the C library's function: a sanitizer would check the memory that it is given. */
        long moved = syscall(SYS_process_vm_readv, getpid(), &to, 1UL, &from, 1UL, 0UL);
        if (moved < 0 && errno == EINTR)
            continue;
        if (moved <= 0)
            return errno == EFAULT || moved == 0 ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_ERROR_UNKNOWN;
        target += (size_t)moved;
        source += (size_t)moved;
        bytes -= (size_t)moved;
    }
    return CUDA_SUCCESS;
}

static CUresult run_copy(struct fc_operation *operation)
{
    return move(operation->target, operation->source, operation->bytes);
}

static CUresult run_fill(struct fc_operation *operation)
{
    unsigned char chunk[CHUNK];
    memset(chunk, (int)operation->value, sizeof(chunk));
    CUresult result = CUDA_SUCCESS;
    for (size_t done = 0; done < operation->bytes && result == CUDA_SUCCESS; done += CHUNK) {
        size_t left = operation->bytes - done;
        result = move(operation->target + done, (uintptr_t)chunk, left < CHUNK ? left : CHUNK);
    }
    return result;
}

/* ---- copies ---- */

enum { DEVICE_TARGET = 1, DEVICE_SOURCE = 2 };

/* Is the address on the device's side: its memory, with the access needed, or pinned host memory?
   A copy may cross devices, whether or not they reach each other. */
static bool on_device(const struct fc_context *context, uintptr_t address, size_t bytes, bool write)
{
    const struct fc_host *host = fc_host_at(address);
    if (host)
        return bytes <= host->bytes - (address - host->base);
    const struct fc_range *range = fc_range_at(address);
    if (range && range->kind != FC_RESERVED)
        context = range->context;
    return fc_space_allows(context, address, bytes, write);
}

static bool is_pageable(uintptr_t address)
{
    return !fc_space_is_device(address) && !fc_host_at(address);
}

/*
 * As the driver does it: a pageable source has been read when this returns, and a pageable target
 * has been written; between pinned and device memory it is asynchronous. `wait`: the synchronous
 * kind, which nevertheless does not wait for a copy within device memory.
 */
static CUresult copy(uintptr_t target, uintptr_t source, size_t bytes, unsigned int sides,
                     CUstream handle, bool wait)
{
    struct fc_stream *stream;
    CUresult result = fc_stream_get(handle, &stream);
    if (result != CUDA_SUCCESS || !bytes)
        return result;
    bool to_device = sides & DEVICE_TARGET || fc_space_is_device(target);
    bool from_device = sides & DEVICE_SOURCE || fc_space_is_device(source);
    if (!target || !source || (to_device && !on_device(stream->context, target, bytes, true)) ||
        (from_device && !on_device(stream->context, source, bytes, false)))
        return CUDA_ERROR_INVALID_VALUE;
    struct fc_operation operation = {
        .run = run_copy, .target = target, .source = source, .bytes = bytes};
    if (is_pageable(source)) {
        operation.data = malloc(bytes);
        operation.owned = true;
        if (!operation.data)
            return CUDA_ERROR_OUT_OF_MEMORY;
        memcpy(operation.data, (const void *)source, bytes);
        operation.source = (uintptr_t)operation.data;
    }
    bool host = !to_device || !from_device;
    bool waits = is_pageable(target) || (wait && host);
    result = fc_stream_queue(stream, &operation);
    return result == CUDA_SUCCESS && waits ? fc_stream_drain(stream) : result;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr target, const void *source, size_t bytes)
{
    FC_ENTER(cuMemcpyHtoD);
    FC_LOCKED;
    return copy((uintptr_t)target, (uintptr_t)source, bytes, DEVICE_TARGET, NULL, true);
}

CUresult cuMemcpyDtoH_v2(void *target, CUdeviceptr source, size_t bytes)
{
    FC_ENTER(cuMemcpyDtoH);
    FC_LOCKED;
    return copy((uintptr_t)target, (uintptr_t)source, bytes, DEVICE_SOURCE, NULL, true);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr target, CUdeviceptr source, size_t bytes)
{
    FC_ENTER(cuMemcpyDtoD);
    FC_LOCKED;
    return copy((uintptr_t)target, (uintptr_t)source, bytes, DEVICE_TARGET | DEVICE_SOURCE, NULL,
                true);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void *source, size_t bytes, CUstream stream)
{
    FC_ENTER(cuMemcpyHtoDAsync);
    FC_LOCKED;
    return copy((uintptr_t)target, (uintptr_t)source, bytes, DEVICE_TARGET, stream, false);
}

CUresult cuMemcpyDtoHAsync_v2(void *target, CUdeviceptr source, size_t bytes, CUstream stream)
{
    FC_ENTER(cuMemcpyDtoHAsync);
    FC_LOCKED;
    return copy((uintptr_t)target, (uintptr_t)source, bytes, DEVICE_SOURCE, stream, false);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream)
{
    FC_ENTER(cuMemcpyDtoDAsync);
    FC_LOCKED;
    return copy((uintptr_t)target, (uintptr_t)source, bytes, DEVICE_TARGET | DEVICE_SOURCE, stream,
                false);
}

CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream)
{
    FC_ENTER(cuMemcpyAsync);
    FC_LOCKED;
    return copy((uintptr_t)target, (uintptr_t)source, bytes, 0, stream, false);
}

CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t bytes, CUstream handle)
{
    FC_ENTER(cuMemsetD8Async);
    FC_LOCKED;
    struct fc_stream *stream;
    CUresult result = fc_stream_get(handle, &stream);
    if (result != CUDA_SUCCESS || !bytes)
        return result;
    if (!on_device(stream->context, (uintptr_t)target, bytes, true))
        return CUDA_ERROR_INVALID_VALUE;
    struct fc_operation operation = {
        .run = run_fill, .target = (uintptr_t)target, .bytes = bytes, .value = value};
    return fc_stream_queue(stream, &operation);
}

/* ---- words that streams write and wait for ---- */

static CUresult run_write_word(struct fc_operation *operation)
{
    __atomic_store_n((uint32_t *)operation->target, operation->value, __ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}

static CUresult run_wait_word(struct fc_operation *operation)
{
    const uint32_t *word = (const uint32_t *)operation->target;
    const struct timespec rest = {.tv_nsec = 50000};
    while ((int32_t)(__atomic_load_n(word, __ATOMIC_SEQ_CST) - operation->value) < 0)
        nanosleep(&rest, NULL);
    return CUDA_SUCCESS;
}

static CUresult queue_word(CUstream handle, CUdeviceptr word, cuuint32_t value, unsigned int flags,
                           CUresult (*run)(struct fc_operation *operation))
{
    FC_LOCKED;
    struct fc_stream *stream;
    CUresult result = fc_stream_get(handle, &stream);
    if (result == CUDA_SUCCESS && (word % 4 || flags || !fc_host_at((uintptr_t)word)))
        result = CUDA_ERROR_INVALID_VALUE; /* the driver knows other flags, and device memory */
    if (result != CUDA_SUCCESS)
        return result;
    struct fc_operation operation = {.run = run, .target = (uintptr_t)word, .value = value};
    return fc_stream_queue(stream, &operation);
}

CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr word, cuuint32_t value,
                                 unsigned int flags)
{
    FC_ENTER(cuStreamWriteValue32);
    return queue_word(stream, word, value, flags, run_write_word);
}

CUresult cuStreamWaitValue32_v2(CUstream stream, CUdeviceptr word, cuuint32_t value,
                                unsigned int flags)
{
    FC_ENTER(cuStreamWaitValue32);
    return queue_word(stream, word, value, flags, run_wait_word);
}

/* ---- kernels ---- */

static bool kernel_may(const struct fc_operation *operation, uintptr_t address, bool write)
{
    FC_LOCKED;
    return fc_host_at(address) ||
           fc_space_allows(operation->stream->context, address, operation->bytes, write);
}

static CUresult run_kernel_fill(struct fc_operation *operation)
{
    return kernel_may(operation, operation->target, true) ? run_fill(operation)
                                                          : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static CUresult run_kernel_sum(struct fc_operation *operation)
{
    if (!kernel_may(operation, operation->source, false))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    unsigned char chunk[CHUNK];
    uint64_t sum = 0;
    for (size_t done = 0; done < operation->bytes; done += CHUNK) {
        size_t left = operation->bytes - done, here = left < CHUNK ? left : CHUNK;
        CUresult result = move((uintptr_t)chunk, operation->source + done, here);
        if (result != CUDA_SUCCESS)
            return result;
        for (size_t i = 0; i < here; i++)
            sum += chunk[i];
    }
    *(uint64_t *)operation->data = sum;
    return CUDA_SUCCESS;
}

static CUresult run_delay(struct fc_operation *operation)
{
    struct timespec rest = {operation->value / 1000, (long)(operation->value % 1000) * 1000000};
    nanosleep(&rest, NULL);
    return CUDA_SUCCESS;
}

static CUresult run_gate(struct fc_operation *operation)
{
    const struct timespec rest = {.tv_nsec = 200000};
    while (!__atomic_load_n((const int *)operation->data, __ATOMIC_ACQUIRE))
        nanosleep(&rest, NULL);
    return CUDA_SUCCESS;
}

static CUresult launch(CUstream handle, const struct fc_operation *operation)
{
    FC_LOCKED;
    struct fc_stream *stream;
    CUresult result = fc_stream_get(handle, &stream);
    return result == CUDA_SUCCESS ? fc_stream_queue(stream, operation) : result;
}

FC_EXPORT CUresult fakecuda_fill(CUdeviceptr target, unsigned char value, size_t bytes,
                                 CUstream stream)
{
    FC_ENTER(fakecuda_fill);
    struct fc_operation operation = {
        .run = run_kernel_fill, .target = (uintptr_t)target, .bytes = bytes, .value = value};
    return launch(stream, &operation);
}

FC_EXPORT CUresult fakecuda_sum(CUdeviceptr source, size_t bytes, uint64_t *sum, CUstream stream)
{
    FC_ENTER(fakecuda_sum);
    struct fc_operation operation = {
        .run = run_kernel_sum, .source = (uintptr_t)source, .bytes = bytes, .data = sum};
    return launch(stream, &operation);
}

FC_EXPORT CUresult fakecuda_delay(unsigned int milliseconds, CUstream stream)
{
    FC_ENTER(fakecuda_delay);
    struct fc_operation operation = {.run = run_delay, .value = milliseconds};
    return launch(stream, &operation);
}

FC_EXPORT CUresult fakecuda_wait(const int *gate, CUstream stream)
{
    FC_ENTER(fakecuda_wait);
    struct fc_operation operation = {.run = run_gate, .data = (void *)(uintptr_t)gate};
    return launch(stream, &operation);
}
