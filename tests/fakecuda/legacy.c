#include "fake.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- device memory ---- */

CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    FC_ENTER(cuMemGetInfo);
    FC_LOCKED;
    struct fc_context *context;
    size_t used;
    CUresult result = fc_context_current(&context);
    if (result == CUDA_SUCCESS && (!available || !total))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = fc_store_used(context->device, &used);
    if (result == CUDA_SUCCESS) {
        *total = fc_settings.memory;
        *available = fc_settings.memory - used;
    }
    return result;
}

static size_t page_up(size_t bytes)
{
    return (bytes + 4095) & ~(size_t)4095;
}

/* Maps a file, which it takes over, in a range of its own. */
static CUresult place(enum fc_range_kind kind, struct fc_context *context, int fd, int device,
                      size_t bytes, uint64_t id, struct fc_range **out)
{
    struct fc_range *range = fc_range_reserve(bytes, FC_GRANULE, kind);
    CUresult result = range ? fc_space_map(range->base, page_up(bytes), fd, PROT_READ | PROT_WRITE)
                            : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        if (range)
            fc_range_free(range);
        close(fd);
        return result;
    }
    range->context = context;
    range->fd = fd;
    range->device = device;
    range->asked = bytes;
    range->id = id;
    range->buffer_id = fc_next_id();
    *out = range;
    return CUDA_SUCCESS;
}

static void take_away(struct fc_range *range)
{
    fc_space_map(range->base, page_up(range->asked), -1, PROT_NONE);
    close(range->fd);
    fc_range_free(range);
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    FC_ENTER(cuMemAlloc);
    FC_LOCKED;
    struct fc_context *context;
    CUresult result = fc_context_current(&context);
    if (result == CUDA_SUCCESS && (!pointer || !bytes))
        result = CUDA_ERROR_INVALID_VALUE;
    uint64_t id;
    int fd = -1;
    if (result == CUDA_SUCCESS)
        result = fc_store_create('l', context->device, bytes, true, &id, &fd);
    if (result != CUDA_SUCCESS)
        return result;
    struct fc_range *range;
    result = place(FC_ALLOCATED, context, fd, context->device, bytes, id, &range);
    if (result == CUDA_SUCCESS)
        *pointer = range->base;
    return result;
}

/* Waits for the context's work, as the driver's function does. */
CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    FC_ENTER(cuMemFree);
    FC_LOCKED;
    if (!pointer)
        return CUDA_SUCCESS;
    struct fc_context *context;
    CUresult result = fc_context_current(&context);
    if (result == CUDA_SUCCESS)
        result = fc_context_drain(context);
    if (result != CUDA_SUCCESS)
        return result;
    struct fc_range *range = fc_range_at((uintptr_t)pointer);
    if (!range || range->kind != FC_ALLOCATED || range->base != pointer)
        return CUDA_ERROR_INVALID_VALUE;
    take_away(range);
    return CUDA_SUCCESS;
}

/* ---- handles ---- */

struct memory_handle {
    char magic[8];
    uint64_t id, bytes;
    int32_t device, pid;
    uint64_t check;
    unsigned char zero[GB_CU_IPC_HANDLE_BYTES - 40];
};
_Static_assert(sizeof(struct memory_handle) == sizeof(CUipcMemHandle), "a handle has 64 bytes");

static const char memory_magic[8] = "fakeMEMh";

static uint64_t check_of(const struct memory_handle *handle)
{
    uint64_t hash = 0xcbf29ce484222325;
    const unsigned char *bytes = (const unsigned char *)handle;
    for (size_t i = 0; i < offsetof(struct memory_handle, check); i++)
        hash = (hash ^ bytes[i]) * 0x100000001b3;
    return hash;
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    FC_ENTER(cuIpcGetMemHandle);
    FC_LOCKED;
    struct fc_context *context;
    CUresult result = fc_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    const struct fc_range *range = fc_range_at((uintptr_t)pointer);
    if (!handle || !range || range->kind != FC_ALLOCATED || pointer - range->base >= range->asked)
        return CUDA_ERROR_INVALID_VALUE;
    struct memory_handle bytes = {
        .id = range->id, .bytes = range->asked, .device = range->device, .pid = getpid()};
    memcpy(bytes.magic, memory_magic, sizeof(bytes.magic));
    bytes.check = check_of(&bytes);
    memcpy(handle, &bytes, sizeof(bytes));
    return CUDA_SUCCESS;
}

static struct fc_range *opened_range(const CUipcMemHandle *handle)
{
    for (struct fc_range *range = fc_ranges; range; range = range->next)
        if (range->kind == FC_IMPORTED && !memcmp(&range->handle, handle, sizeof(*handle)))
            return range;
    return NULL;
}

static CUresult open_handle(struct fc_context *context, const CUipcMemHandle *handle,
                            struct fc_range **out)
{
    struct memory_handle bytes;
    memcpy(&bytes, handle, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes.zero); i++)
        if (bytes.zero[i])
            return CUDA_ERROR_INVALID_VALUE;
    if (memcmp(bytes.magic, memory_magic, sizeof(bytes.magic)) || bytes.check != check_of(&bytes))
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes.pid == getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    if ((*out = opened_range(handle)))
        return CUDA_SUCCESS;
    if (bytes.device != context->device && !fc_settings.peer)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    int fd = -1;
    CUresult result = fc_store_open('l', bytes.device, bytes.bytes, bytes.id, &fd);
    if (result == CUDA_ERROR_INVALID_VALUE && kill(bytes.pid, 0) < 0 && errno == ESRCH)
        return CUDA_ERROR_INVALID_HANDLE; /* not that it was freed: its exporter has ended */
    if (result != CUDA_SUCCESS)
        return result;
    result = place(FC_IMPORTED, context, fd, bytes.device, bytes.bytes, bytes.id, out);
    if (result == CUDA_SUCCESS)
        (*out)->handle = *handle;
    return result;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags)
{
    FC_ENTER(cuIpcOpenMemHandle);
    FC_LOCKED;
    struct fc_context *context;
    CUresult result = fc_context_current(&context);
    if (result == CUDA_SUCCESS && (!pointer || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
        result = CUDA_ERROR_INVALID_VALUE;
    struct fc_range *range = NULL;
    if (result == CUDA_SUCCESS)
        result = open_handle(context, &handle, &range);
    if (result != CUDA_SUCCESS)
        return result;
    range->opened++;
    *pointer = range->base;
    return CUDA_SUCCESS;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    FC_ENTER(cuIpcCloseMemHandle);
    FC_LOCKED;
    struct fc_context *context;
    CUresult result = fc_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct fc_range *range = fc_range_at((uintptr_t)pointer);
    if (!range || range->kind != FC_IMPORTED || range->base != pointer)
        return CUDA_ERROR_INVALID_VALUE;
    if (--range->opened == 0)
        take_away(range);
    return CUDA_SUCCESS;
}

/* ---- host memory ---- */

static struct fc_host *hosts;

struct fc_host *fc_host_at(uintptr_t address)
{
    for (struct fc_host *host = hosts; host; host = host->next)
        if (address >= host->base && address - host->base < host->bytes)
            return host;
    return NULL;
}

static CUresult add_host(struct fc_context *context, void *pointer, size_t bytes, bool registered)
{
    struct fc_host *host = calloc(1, sizeof(*host));
    if (!host)
        return CUDA_ERROR_OUT_OF_MEMORY;
    host->base = (uintptr_t)pointer;
    host->bytes = bytes;
    host->registered = registered;
    host->context = context;
    host->buffer_id = fc_next_id();
    host->next = hosts;
    hosts = host;
    return CUDA_SUCCESS;
}

static void remove_host(struct fc_host *host)
{
    for (struct fc_host **link = &hosts; *link; link = &(*link)->next) {
        if (*link != host)
            continue;
        *link = host->next;
        break;
    }
    if (!host->registered)
        munmap((void *)host->base, page_up(host->bytes));
    free(host);
}

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    FC_ENTER(cuMemHostAlloc);
    FC_LOCKED;
    struct fc_context *context;
    CUresult result = fc_context_current(&context);
    if (result == CUDA_SUCCESS && (!pointer || flags > 7))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    if (!bytes) {
        *pointer = NULL;
        return CUDA_SUCCESS;
    }
    void *memory =
        mmap(NULL, page_up(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = add_host(context, memory, bytes, false);
    if (result == CUDA_SUCCESS)
        *pointer = memory;
    else
        munmap(memory, page_up(bytes));
    return result;
}

CUresult cuMemFreeHost(void *pointer)
{
    FC_ENTER(cuMemFreeHost);
    FC_LOCKED;
    if (!pointer)
        return CUDA_SUCCESS;
    struct fc_host *host = fc_host_at((uintptr_t)pointer);
    if (!host || host->registered || host->base != (uintptr_t)pointer)
        return CUDA_ERROR_INVALID_VALUE;
    fc_context_drain(host->context);
    remove_host(host);
    return CUDA_SUCCESS;
}

/* Brings the pages in, as pinning would, which fails where they may not be written (or read). */
static bool populate(void *pointer, size_t bytes, bool only_read)
{
#if defined(MADV_POPULATE_READ) && defined(MADV_POPULATE_WRITE)
    uintptr_t first = (uintptr_t)pointer & ~(uintptr_t)4095;
    size_t length = page_up((uintptr_t)pointer + bytes) - first;
    bool readable = madvise((void *)first, length, MADV_POPULATE_READ) == 0;
    if (!readable && errno == EINVAL)
        return true; /* a kernel before 5.14 cannot tell */
    return readable && (only_read || madvise((void *)first, length, MADV_POPULATE_WRITE) == 0);
#else
    (void)pointer, (void)bytes, (void)only_read;
    return true;
#endif
}

CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags)
{
    FC_ENTER(cuMemHostRegister);
    FC_LOCKED;
    struct fc_context *context;
    CUresult result = fc_context_current(&context);
    if (result == CUDA_SUCCESS &&
        (!pointer || !bytes || flags > 15 || bytes > UINTPTR_MAX - (uintptr_t)pointer))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    uintptr_t base = (uintptr_t)pointer;
    for (const struct fc_host *host = hosts; host; host = host->next)
        if (base < host->base + host->bytes && host->base < base + bytes)
            return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    if (!populate(pointer, bytes, flags & CU_MEMHOSTREGISTER_READ_ONLY))
        return CUDA_ERROR_INVALID_VALUE;
    return add_host(context, pointer, bytes, true);
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pointer, void *host, unsigned int flags)
{
    FC_ENTER(cuMemHostGetDevicePointer);
    FC_LOCKED;
    struct fc_context *context;
    CUresult result = fc_context_current(&context);
    if (result == CUDA_SUCCESS && (!pointer || flags || !fc_host_at((uintptr_t)host)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *pointer = (CUdeviceptr)(uintptr_t)host;
    return result;
}

CUresult cuMemHostUnregister(void *pointer)
{
    FC_ENTER(cuMemHostUnregister);
    FC_LOCKED;
    struct fc_host *host = fc_host_at((uintptr_t)pointer);
    if (!host || !host->registered)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (host->base != (uintptr_t)pointer)
        return CUDA_ERROR_INVALID_VALUE;
    fc_context_drain(host->context);
    remove_host(host);
    return CUDA_SUCCESS;
}

void fc_context_end_memory(struct fc_context *context)
{
    for (struct fc_range *range = fc_ranges, *next; range; range = next) {
        next = range->next;
        if (range->kind != FC_RESERVED && range->context == context)
            take_away(range);
    }
    for (struct fc_host *host = hosts, *next; host; host = next) {
        next = host->next;
        if (host->context == context)
            remove_host(host);
    }
}
