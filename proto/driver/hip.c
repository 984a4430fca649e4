/*
 * HIP's runtime behind the table of cuda.h, where it is unlike CUDA. Contexts: HIP has none of its
 * own, but each thread has a current device. Here a context is a device's ordinal plus one, and the
 * device that was current before a push is current again after the pop (hipCtxPopCurrent does not
 * do that).
 */
#include "proto/driver/cuda.h"

#define NESTED 16
#define MEMCPY_DEFAULT 4 /* hipMemcpyDefault */
/* hipDeviceAttribute… */
#define ATTRIBUTE_INTEGRATED 16
#define ATTRIBUTE_VIRTUAL_MEMORY 89

/* A function of the table as HIP declares it. */
#define AS(type, function) ((type)(void (*)(void))(function))

typedef CUresult (*set_device)(int device);
typedef CUresult (*memcpy_async)(CUdeviceptr, CUdeviceptr, size_t, int kind, CUstream);

static struct gb_cuda hip; /* as it was loaded */

static _Thread_local int former[NESTED]; /* the devices that were current before the pushes */
static _Thread_local unsigned depth;

/* ---- contexts ---- */

static CUcontext context_of(CUdevice device)
{
    return (CUcontext)(uintptr_t)(device + 1);
}

static CUdevice device_of(CUcontext context)
{
    return (CUdevice)(uintptr_t)context - 1;
}

static CUresult retain(CUcontext *context, CUdevice device)
{
    *context = context_of(device);
    return CUDA_SUCCESS;
}

static CUresult release(CUdevice device)
{
    return CUDA_SUCCESS;
}

static CUresult get_current(CUcontext *context)
{
    CUdevice device = 0;
    CUresult result = hip.cuCtxGetDevice(&device);

    *context = result == CUDA_SUCCESS ? context_of(device) : NULL;
    return result;
}

static CUresult push(CUcontext context)
{
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;

    if (depth < NESTED)
        result = hip.cuCtxGetDevice(&former[depth]);
    if (result == CUDA_SUCCESS)
        result = AS(set_device, hip.cuCtxPushCurrent)(device_of(context));
    if (result == CUDA_SUCCESS)
        depth++;
    return result;
}

static CUresult pop(CUcontext *context)
{
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    (void)get_current(context);
    return AS(set_device, hip.cuCtxPushCurrent)(former[--depth]);
}

/* ---- what a device can, and what memory is ---- */

/* Attributes that are not asked for here are 0: what they allow is then not used. */
static CUresult get_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
        return hip.cuDeviceGetAttribute(value, ATTRIBUTE_INTEGRATED, device);
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        return hip.cuDeviceGetAttribute(value, ATTRIBUTE_VIRTUAL_MEMORY, device);
    default:
        *value = 0;
        return CUDA_SUCCESS;
    }
}

/* HIP does not say how memory may be shared: by legacy handle, unless hipMemMap has put it there.
   That is not shared: some versions do not count what hipMemRetainAllocationHandle gives. */
static CUresult get_attributes(unsigned int count, CUpointer_attribute *attributes, void **data,
                               CUdeviceptr pointer)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    unsigned long long access = 0;
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; result == CUDA_SUCCESS && i < count; i++) {
        switch (attributes[i]) {
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            break;
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
            (void)hip.cuPointerGetAttribute(&location.id, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                            pointer);
            *(int *)data[i] = hip.cuMemGetAccess(&access, &location, pointer) != CUDA_SUCCESS;
            break;
        default:
            result = hip.cuPointerGetAttribute(data[i], attributes[i], pointer);
        }
    }
    return result;
}

/* ---- memory ---- */

/* Some versions make it on the current device, whatever the properties say. */
static CUresult create(CUmemGenericAllocationHandle *handle, size_t bytes,
                       const CUmemAllocationProp *properties, unsigned long long flags)
{
    CUcontext context;
    CUresult result = push(context_of(properties->location.id));

    if (result != CUDA_SUCCESS)
        return result;
    result = hip.cuMemCreate(handle, bytes, properties, flags);
    (void)pop(&context);
    return result;
}

static CUresult copy(CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream)
{
    return AS(memcpy_async, hip.cuMemcpyAsync)(target, source, bytes, MEMCPY_DEFAULT, stream);
}

void gb_hip_adapt(struct gb_cuda *table)
{
    hip = *table;
    table->cuDevicePrimaryCtxRetain = retain;
    table->cuDevicePrimaryCtxRelease = release;
    table->cuCtxPushCurrent = push;
    table->cuCtxPopCurrent = pop;
    table->cuCtxGetCurrent = get_current;
    table->cuDeviceGetAttribute = get_attribute;
    table->cuPointerGetAttributes = get_attributes;
    table->cuMemCreate = create;
    table->cuMemcpyAsync = copy;
    /* A wait takes a mask, too, and memory of hipMallocSignalMemory: callers wait instead. */
    table->cuStreamWaitValue32 = NULL;
    table->cuStreamWriteValue32 = NULL;
}
