#include "fake.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct fc_memory *memories;
/* Far from small numbers and from pointers, so that none of these is taken for a handle by
   mistake. */
static uint64_t last_handle = 0xfa4e00000000;

static struct fc_memory *memory_of(CUmemGenericAllocationHandle handle)
{
    for (struct fc_memory *memory = memories; memory; memory = memory->next)
        if (memory->handle == handle && memory->references)
            return memory;
    return NULL;
}

static struct fc_memory *add_memory(int fd, int device, size_t bytes, uint64_t id)
{
    struct fc_memory *memory = calloc(1, sizeof(*memory));
    if (!memory)
        return NULL;
    memory->handle = ++last_handle;
    memory->fd = fd;
    memory->device = device;
    memory->bytes = bytes;
    memory->id = id;
    memory->references = 1;
    memory->next = memories;
    memories = memory;
    return memory;
}

/* Frees memory that neither a handle nor a mapping needs. */
static void drop_unused(struct fc_memory *memory)
{
    if (memory->references || memory->mappings)
        return;
    for (struct fc_memory **link = &memories; *link; link = &(*link)->next) {
        if (*link != memory)
            continue;
        *link = memory->next;
        break;
    }
    close(memory->fd);
    free(memory);
}

/* ---- allocations ---- */

static CUresult check_properties(const CUmemAllocationProp *properties)
{
    if (!properties || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        properties->requestedHandleTypes & ~(unsigned)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* The real one does not look at the device's number either. */
CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
                                       CUmemAllocationGranularity_flags option)
{
    FC_ENTER(cuMemGetAllocationGranularity);
    CUresult result = check_properties(properties);
    if (result == CUDA_SUCCESS && (!granularity || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *granularity = FC_GRANULE;
    return result;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes,
                     const CUmemAllocationProp *properties, unsigned long long flags)
{
    FC_ENTER(cuMemCreate);
    FC_LOCKED;
    CUresult result = check_properties(properties);
    if (result != CUDA_SUCCESS)
        return result;
    int device = fc_physical(properties->location.id);
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!handle || !bytes || bytes % FC_GRANULE || flags)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t id;
    int fd = -1;
    result = fc_lost(device);
    if (result == CUDA_SUCCESS)
        result = fc_store_create('v', device, bytes, false, &id, &fd);
    if (result != CUDA_SUCCESS)
        return result;
    struct fc_memory *memory = add_memory(fd, device, bytes, id);
    if (!memory) {
        close(fd);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memory->handle_types = properties->requestedHandleTypes;
    memory->rdma = properties->allocFlags.gpuDirectRDMACapable;
    *handle = memory->handle;
    return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    FC_ENTER(cuMemRelease);
    FC_LOCKED;
    struct fc_memory *memory = memory_of(handle);
    if (!memory)
        return CUDA_ERROR_INVALID_VALUE;
    memory->references--;
    drop_unused(memory);
    return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *properties,
                                                CUmemGenericAllocationHandle handle)
{
    FC_ENTER(cuMemGetAllocationPropertiesFromHandle);
    FC_LOCKED;
    const struct fc_memory *memory = memory_of(handle);
    if (!memory || !properties)
        return CUDA_ERROR_INVALID_VALUE;
    int ordinal = fc_ordinal(memory->device);
    *properties = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = memory->handle_types,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal < 0 ? -2 : ordinal},
        .allocFlags = {.gpuDirectRDMACapable = memory->rdma},
    };
    return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *pointer)
{
    FC_ENTER(cuMemRetainAllocationHandle);
    FC_LOCKED;
    const struct fc_range *range = fc_range_at((uintptr_t)pointer);
    struct fc_mapping *mapping = range ? fc_mapping_at(range, (uintptr_t)pointer) : NULL;
    if (!mapping || !handle)
        return CUDA_ERROR_INVALID_VALUE;
    mapping->memory->references++;
    *handle = mapping->memory->handle;
    return CUDA_SUCCESS;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags)
{
    FC_ENTER(cuMemExportToShareableHandle);
    FC_LOCKED;
    const struct fc_memory *memory = memory_of(handle);
    if (!memory || !shareable || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        !(memory->handle_types & type))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = fc_lost(memory->device);
    if (result != CUDA_SUCCESS)
        return result;
    int fd = fcntl(memory->fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    memcpy(shareable, &fd, sizeof(fd));
    return CUDA_SUCCESS;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable,
                                        CUmemAllocationHandleType type)
{
    FC_ENTER(cuMemImportFromShareableHandle);
    FC_LOCKED;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    int device, fd = -1;
    size_t bytes;
    uint64_t id;
    CUresult result = fc_store_adopt((int)(intptr_t)shareable, &device, &bytes, &id, &fd);
    if (result != CUDA_SUCCESS)
        return result;
    result = fc_lost(device); /* a device that is hidden from the process is fine here */
    struct fc_memory *memory = NULL;
    if (result == CUDA_SUCCESS && !(memory = add_memory(fd, device, bytes, id)))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!memory) {
        close(fd);
        return result;
    }
    *handle = memory->handle;
    return CUDA_SUCCESS;
}

/* ---- addresses ---- */

CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment,
                             CUdeviceptr address, unsigned long long flags)
{
    (void)address; /* only a hint, which is not followed */
    FC_ENTER(cuMemAddressReserve);
    FC_LOCKED;
    if (!pointer || !bytes || bytes % FC_GRANULE || alignment & (alignment - 1) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    struct fc_range *range = fc_range_reserve(bytes, alignment, FC_RESERVED);
    if (!range)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *pointer = range->base;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
    FC_ENTER(cuMemAddressFree);
    FC_LOCKED;
    struct fc_range *range = fc_range_at((uintptr_t)pointer);
    if (!range || range->kind != FC_RESERVED || range->base != pointer || range->bytes != bytes ||
        range->mappings)
        return CUDA_ERROR_INVALID_VALUE;
    fc_range_free(range);
    return CUDA_SUCCESS;
}

/* The reservation that has all of these bytes; NULL if none has. */
static struct fc_range *reservation(CUdeviceptr pointer, size_t bytes)
{
    struct fc_range *range = fc_range_at((uintptr_t)pointer);
    if (!range || range->kind != FC_RESERVED || !bytes || pointer % FC_GRANULE ||
        bytes % FC_GRANULE || bytes > range->base + range->bytes - pointer)
        return NULL;
    return range;
}

static bool overlaps(const struct fc_mapping *mapping, CUdeviceptr pointer, size_t bytes)
{
    return mapping->base < pointer + bytes && pointer < mapping->base + mapping->bytes;
}

static bool lies_in(const struct fc_mapping *mapping, CUdeviceptr pointer, size_t bytes)
{
    return mapping->base >= pointer && mapping->base + mapping->bytes <= pointer + bytes;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    FC_ENTER(cuMemMap);
    FC_LOCKED;
    struct fc_memory *memory = memory_of(handle);
    struct fc_range *range = reservation(pointer, bytes);
    if (!memory || !range || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes != memory->bytes || offset)
        return CUDA_ERROR_NOT_SUPPORTED;
    for (const struct fc_mapping *at = range->mappings; at; at = at->next)
        if (overlaps(at, pointer, bytes))
            return CUDA_ERROR_INVALID_VALUE;
    CUresult result = fc_lost(memory->device);
    struct fc_mapping *mapping = result == CUDA_SUCCESS ? calloc(1, sizeof(*mapping)) : NULL;
    if (result == CUDA_SUCCESS)
        result = mapping ? fc_space_map((uintptr_t)pointer, bytes, memory->fd, PROT_NONE)
                         : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(mapping);
        return result;
    }
    mapping->base = (uintptr_t)pointer;
    mapping->bytes = bytes;
    mapping->memory = memory;
    mapping->buffer_id = fc_next_id();
    mapping->next = range->mappings;
    range->mappings = mapping;
    memory->mappings++;
    return CUDA_SUCCESS;
}

/* Takes away every mapping in the range, which may have gaps but may not cut one. */
CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    FC_ENTER(cuMemUnmap);
    FC_LOCKED;
    struct fc_range *range = reservation(pointer, bytes);
    if (!range)
        return CUDA_ERROR_INVALID_VALUE;
    for (const struct fc_mapping *at = range->mappings; at; at = at->next)
        if (overlaps(at, pointer, bytes) && !lies_in(at, pointer, bytes))
            return CUDA_ERROR_INVALID_VALUE;
    CUresult result = fc_space_map((uintptr_t)pointer, bytes, -1, PROT_NONE);
    if (result != CUDA_SUCCESS)
        return result;
    for (struct fc_mapping **link = &range->mappings; *link;) {
        struct fc_mapping *mapping = *link;
        if (!lies_in(mapping, pointer, bytes)) {
            link = &mapping->next;
            continue;
        }
        *link = mapping->next;
        mapping->memory->mappings--;
        drop_unused(mapping->memory);
        free(mapping);
    }
    return CUDA_SUCCESS;
}

/* ---- access ---- */

static CUresult check_access(const CUmemAccessDesc *access, const struct fc_memory *memory)
{
    int device = fc_physical(access->location.id);
    if (access->location.type != CU_MEM_LOCATION_TYPE_DEVICE || device < 0 ||
        access->flags > CU_MEM_ACCESS_FLAGS_PROT_READWRITE || access->flags == 2)
        return CUDA_ERROR_INVALID_VALUE;
    if (device != memory->device && !fc_settings.peer)
        return CUDA_ERROR_INVALID_DEVICE;
    return fc_lost(memory->device);
}

/* The process may do whatever any device may: the devices' work is done in it. */
static CUresult protect(const struct fc_mapping *mapping)
{
    int protection = PROT_NONE;
    for (int i = 0; i < FC_DEVICES; i++) {
        if (mapping->access[i] & CU_MEM_ACCESS_FLAGS_PROT_READ)
            protection |= PROT_READ;
        if (mapping->access[i] == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            protection |= PROT_WRITE;
    }
    return mprotect((void *)mapping->base, mapping->bytes, protection) < 0
               ? CUDA_ERROR_OUT_OF_MEMORY
               : CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access,
                        size_t count)
{
    FC_ENTER(cuMemSetAccess);
    FC_LOCKED;
    struct fc_range *range = reservation(pointer, bytes);
    if (!range || !access || !count)
        return CUDA_ERROR_INVALID_VALUE;
    size_t covered = 0;
    for (const struct fc_mapping *at = range->mappings; at; at = at->next) {
        if (!overlaps(at, pointer, bytes))
            continue;
        if (!lies_in(at, pointer, bytes))
            return CUDA_ERROR_INVALID_VALUE;
        covered += at->bytes;
        for (size_t i = 0; i < count; i++) {
            CUresult result = check_access(&access[i], at->memory);
            if (result != CUDA_SUCCESS)
                return result;
        }
    }
    if (covered != bytes)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    for (struct fc_mapping *at = range->mappings; at && result == CUDA_SUCCESS; at = at->next) {
        if (!lies_in(at, pointer, bytes))
            continue;
        for (size_t i = 0; i < count; i++)
            at->access[fc_physical(access[i].location.id)] = (unsigned char)access[i].flags;
        result = protect(at);
    }
    return result;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location,
                        CUdeviceptr pointer)
{
    FC_ENTER(cuMemGetAccess);
    FC_LOCKED;
    const struct fc_range *range = fc_range_at((uintptr_t)pointer);
    const struct fc_mapping *mapping = range ? fc_mapping_at(range, (uintptr_t)pointer) : NULL;
    if (!mapping || !flags || !location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    int device = fc_physical(location->id);
    if (device < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = mapping->access[device];
    return CUDA_SUCCESS;
}
