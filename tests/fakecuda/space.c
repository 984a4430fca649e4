/*
 * Device addresses come from one region that the process reserves at first need, apart from
 * everything else. They are handed out upwards and come around only when the region is used up, so
 * that a pointer to what was unmapped faults instead of reaching what came after it.
 */
#include "fake.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct fc_range *fc_ranges;

static uintptr_t region, region_end, cursor;
static uint64_t last_id;

uint64_t fc_next_id(void)
{
    return ++last_id;
}

static bool reserve_region(void)
{
    if (region)
        return true;
    /* The largest that is allowed: valgrind and sanitizers leave less room. */
    for (size_t bytes = (size_t)256 << 30; bytes >= (size_t)1 << 30; bytes /= 2) {
        void *memory =
            mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            continue;
        madvise(memory, bytes, MADV_DONTDUMP);
        region = ((uintptr_t)memory + FC_GRANULE - 1) & ~(FC_GRANULE - 1);
        region_end = ((uintptr_t)memory + bytes) & ~(FC_GRANULE - 1);
        cursor = region;
        return true;
    }
    return false;
}

bool fc_space_is_device(uintptr_t address)
{
    return address >= region && address < region_end;
}

/* The first room of `bytes` from `start` on; *after is where in the list it goes. */
static uintptr_t find_room(uintptr_t start, size_t bytes, size_t alignment,
                           struct fc_range ***after)
{
    struct fc_range **link = &fc_ranges;
    for (uintptr_t at = start;;) {
        at = (at + alignment - 1) & ~(alignment - 1);
        if (at > region_end || region_end - at < bytes)
            return 0;
        while (*link && (*link)->base + (*link)->bytes <= at)
            link = &(*link)->next;
        if (!*link || (*link)->base >= at + bytes) {
            *after = link;
            return at;
        }
        at = (*link)->base + (*link)->bytes;
    }
}

struct fc_range *fc_range_reserve(size_t bytes, size_t alignment, enum fc_range_kind kind)
{
    if (!reserve_region())
        return NULL;
    bytes = (bytes + FC_GRANULE - 1) & ~(FC_GRANULE - 1);
    if (alignment < FC_GRANULE)
        alignment = FC_GRANULE;
    struct fc_range **link = NULL;
    uintptr_t base = find_room(cursor, bytes, alignment, &link);
    if (!base)
        base = find_room(region, bytes, alignment, &link);
    struct fc_range *range = base ? calloc(1, sizeof(*range)) : NULL;
    if (!range)
        return NULL;
    range->base = base;
    range->bytes = bytes;
    range->kind = kind;
    range->fd = -1;
    range->next = *link;
    *link = range;
    cursor = base + bytes + FC_GRANULE; /* a gap, so that an access past the end faults */
    if (cursor >= region_end)
        cursor = region;
    return range;
}

void fc_range_free(struct fc_range *range)
{
    for (struct fc_range **link = &fc_ranges; *link; link = &(*link)->next) {
        if (*link != range)
            continue;
        *link = range->next;
        free(range);
        return;
    }
}

struct fc_range *fc_range_at(uintptr_t address)
{
    for (struct fc_range *range = fc_ranges; range && range->base <= address; range = range->next)
        if (address - range->base < range->bytes)
            return range;
    return NULL;
}

struct fc_mapping *fc_mapping_at(const struct fc_range *range, uintptr_t address)
{
    for (struct fc_mapping *at = range->mappings; at; at = at->next)
        if (address >= at->base && address - at->base < at->bytes)
            return at;
    return NULL;
}

CUresult fc_space_map(uintptr_t base, size_t bytes, int fd, int protection)
{
    int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    void *at = (void *)base;
    int bits = fd < 0 ? PROT_NONE : protection;
    /* cppcheck-suppress leakReturnValNotUsed */
    if (mmap(at, bytes, bits, flags | MAP_FIXED, fd, 0) == MAP_FAILED)
        return fd < 0 ? CUDA_ERROR_UNMAP_FAILED : CUDA_ERROR_MAP_FAILED;
    /* A forked child gets none of its parent's device memory. */
    madvise(at, bytes, fd < 0 ? MADV_DONTDUMP : MADV_DONTFORK);
    return CUDA_SUCCESS;
}

/* ---- what a pointer is ---- */

bool fc_space_allows(const struct fc_context *context, uintptr_t address, size_t bytes, bool write)
{
    const struct fc_range *range = fc_range_at(address);
    if (!range || bytes > range->base + range->bytes - address)
        return false;
    if (range->kind != FC_RESERVED)
        return (range->kind == FC_IMPORTED || context->device == range->device) &&
               address - range->base <= range->asked &&
               bytes <= range->asked - (address - range->base);
    unsigned int needed =
        write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
    while (bytes) { /* adjacent mappings count as one */
        const struct fc_mapping *mapping = fc_mapping_at(range, address);
        if (!mapping || (mapping->access[context->device] & needed) != needed)
            return false;
        size_t here = mapping->bytes - (address - mapping->base);
        if (here >= bytes)
            return true;
        address += here;
        bytes -= here;
    }
    return true;
}

/* The allocation behind a pointer, for its attributes. */
struct pointer {
    const struct fc_range *range;     /* of device memory */
    const struct fc_mapping *mapping; /* within it, by cuMemMap */
    const struct fc_host *host;
    int device;
    uint64_t buffer_id;
    struct fc_context *context;
};

static bool look_up(uintptr_t address, struct pointer *pointer)
{
    *pointer = (struct pointer){.host = fc_host_at(address)};
    if (pointer->host) {
        pointer->device = pointer->host->context->device;
        pointer->context = pointer->host->context;
        pointer->buffer_id = pointer->host->buffer_id;
        return true;
    }
    pointer->range = fc_range_at(address);
    if (!pointer->range)
        return false;
    if (pointer->range->kind == FC_RESERVED) {
        pointer->mapping = fc_mapping_at(pointer->range, address);
        if (!pointer->mapping)
            return false;
        pointer->device = pointer->mapping->memory->device;
        pointer->buffer_id = pointer->mapping->buffer_id;
        return true;
    }
    pointer->device = pointer->range->device;
    pointer->buffer_id = pointer->range->buffer_id;
    pointer->context = pointer->range->context;
    return address - pointer->range->base < pointer->range->asked;
}

static unsigned int access_of(const struct pointer *pointer)
{
    struct fc_context *context;
    if (!pointer->mapping)
        return CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (fc_context_current(&context) != CUDA_SUCCESS)
        return CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return pointer->mapping->access[context->device];
}

static uintptr_t start_of(const struct pointer *pointer, size_t *bytes)
{
    if (pointer->host) {
        *bytes = pointer->host->bytes;
        return pointer->host->base;
    }
    *bytes = pointer->mapping ? pointer->range->bytes : pointer->range->asked;
    return pointer->range->base;
}

/* Writes the attribute in its own width; booleans, by their documentation, take four bytes. */
static CUresult attribute(void *data, CUpointer_attribute which, uintptr_t address,
                          const struct pointer *pointer)
{
    const struct fc_range *range = pointer->range;
    struct fc_context *context;
    size_t bytes;
    switch (which) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        *(CUcontext *)data = (CUcontext)pointer->context;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *(unsigned int *)data = pointer->host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        if (fc_context_current(&context) != CUDA_SUCCESS)
            return CUDA_ERROR_INVALID_CONTEXT;
        *(CUdeviceptr *)data = address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        if (!pointer->host)
            return CUDA_ERROR_INVALID_VALUE;
        *(uintptr_t *)data = address;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        *(uint64_t *)data = pointer->buffer_id;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *(unsigned int *)data = 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        /* A hidden device is told as the first one. */
        *(int *)data = fc_ordinal(pointer->device) < 0 ? 0 : fc_ordinal(pointer->device);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        *(unsigned int *)data = range && range->kind == FC_ALLOCATED;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        *(CUdeviceptr *)data = start_of(pointer, &bytes);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        start_of(pointer, &bytes);
        *(size_t *)data = bytes;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MAPPED:
        *(unsigned int *)data = 1;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        *(uint64_t *)data = pointer->mapping ? pointer->mapping->memory->handle_types : 0;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        *(unsigned int *)data = pointer->mapping ? pointer->mapping->memory->rdma : range != NULL;
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        *(unsigned int *)data = access_of(pointer);
        return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        *(void **)data = NULL;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute which, CUdeviceptr pointer)
{
    FC_ENTER(cuPointerGetAttribute);
    FC_LOCKED;
    struct pointer found;
    if (!data || !look_up((uintptr_t)pointer, &found))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = attribute(data, which, (uintptr_t)pointer, &found);
    if (result == CUDA_SUCCESS)
        fc_pointer_override((int)which, data);
    return result;
}

/* An unknown pointer is no error here: its attributes are zero, and its ordinal -2. */
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                                CUdeviceptr pointer)
{
    FC_ENTER(cuPointerGetAttributes);
    FC_LOCKED;
    if (!count || !attributes || !data)
        return CUDA_ERROR_INVALID_VALUE;
    struct pointer found;
    bool known = look_up((uintptr_t)pointer, &found);
    for (unsigned int i = 0; i < count; i++) {
        if (known &&
            attribute(data[i], attributes[i], (uintptr_t)pointer, &found) == CUDA_SUCCESS) {
            fc_pointer_override((int)attributes[i], data[i]);
            continue;
        }
        switch (attributes[i]) {
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            *(int *)data[i] = -2;
            break;
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        case CU_POINTER_ATTRIBUTE_MAPPED:
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
            *(unsigned int *)data[i] = 0;
            break;
        default:
            memset(data[i], 0, 8);
        }
    }
    return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
    FC_ENTER(cuMemGetAddressRange);
    FC_LOCKED;
    struct fc_context *context;
    CUresult result = fc_context_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    struct pointer found;
    if (!look_up((uintptr_t)pointer, &found))
        return CUDA_ERROR_NOT_FOUND;
    size_t size;
    uintptr_t start = start_of(&found, &size);
    if (found.mapping) {
        start = found.mapping->base;
        size = found.mapping->bytes;
    }
    if (base)
        *base = start;
    if (bytes)
        *bytes = size;
    return CUDA_SUCCESS;
}
