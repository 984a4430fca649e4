/*
 * The same driver as HIP's runtime, libamdhip64.so: what HIP has otherwise than CUDA. All other
 * functions of the table are names that tests/build.mk gives the CUDA functions. It is stricter
 * than HIP where that is unlike CUDA in a way that code must not forget: memory is made on the
 * current device alone, imported only where one was set, and events are not shared.
 */
#include "fake.h"

#include <stdio.h>
#include <string.h>

static _Thread_local int current = -1; /* hipSetDevice was not called: device 0, without context */

#define HIP(name, parameters)                                                                      \
    FC_EXPORT CUresult name parameters;                                                            \
    CUresult name parameters

static CUcontext contexts[FC_DEVICES]; /* retained for good */

/* HIP opens all devices at the start. */
HIP(hipInit, (unsigned int flags))
{
    CUresult result = cuInit(flags);

    for (int i = 0; result == CUDA_SUCCESS && i < fc_settings.visible_count; i++)
        if (!contexts[i])
            (void)cuDevicePrimaryCtxRetain(&contexts[i], i);
    return result;
}

HIP(hipSetDevice, (int device))
{
    CUcontext context;

    if (device < 0 || device >= FC_DEVICES || !contexts[device])
        return CUDA_ERROR_INVALID_DEVICE;
    if (device == current)
        return CUDA_SUCCESS;
    if (current >= 0)
        (void)cuCtxPopCurrent_v2(&context);
    CUresult result = cuCtxPushCurrent_v2(contexts[device]);
    current = result == CUDA_SUCCESS ? device : -1;
    return result;
}

HIP(hipGetDevice, (int *device))
{
    *device = current < 0 ? 0 : current;
    return CUDA_SUCCESS;
}

HIP(hipDriverGetVersion, (int *version))
{
    CUresult result = cuDriverGetVersion(version);

    if (result == CUDA_SUCCESS && *version == 13000) /* not set by the test */
        *version = 70151234;
    return result;
}

/* Text, as AMD's. The first device's own number is unknown. */
HIP(hipDeviceGetUuid, (CUuuid * uuid, CUdevice device))
{
    char text[32];
    CUresult result = cuDeviceGetUuid_v2(uuid, device);

    if (result != CUDA_SUCCESS)
        return result;
    snprintf(text, sizeof(text), "fa4ecada%08x", (unsigned)uuid->bytes[15]);
    memcpy(uuid->bytes, text, sizeof(uuid->bytes));
    if (strcmp(fc_settings.name, "nameless") == 0)
        memcpy(uuid->bytes, "XX\0\0\0\0\0\0\0\0\0\0\0\0\0", sizeof(uuid->bytes));
    return CUDA_SUCCESS;
}

HIP(hipDeviceGetAttribute, (int *value, int attribute, int device))
{
    if (attribute == 16)
        return cuDeviceGetAttribute(value, CU_DEVICE_ATTRIBUTE_INTEGRATED, device);
    if (attribute == 89)
        return cuDeviceGetAttribute(value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                    device);
    return CUDA_ERROR_INVALID_VALUE;
}

HIP(hipPointerGetAttribute, (void *data, CUpointer_attribute attribute, CUdeviceptr pointer))
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return CUDA_ERROR_NOT_SUPPORTED;
    default:
        return cuPointerGetAttribute(data, attribute, pointer);
    }
}

HIP(hipMemcpyAsync,
    (CUdeviceptr target, CUdeviceptr source, size_t bytes, int kind, CUstream stream))
{
    return kind == 4 ? cuMemcpyAsync(target, source, bytes, stream) : CUDA_ERROR_INVALID_VALUE;
}

HIP(hipMemCreate, (CUmemGenericAllocationHandle * handle, size_t bytes,
                   const CUmemAllocationProp *properties, unsigned long long flags))
{
    if (!properties || properties->location.id != current)
        return CUDA_ERROR_INVALID_DEVICE;
    return cuMemCreate(handle, bytes, properties, flags);
}

HIP(hipMemImportFromShareableHandle,
    (CUmemGenericAllocationHandle * handle, void *shareable, CUmemAllocationHandleType type))
{
    if (!shareable || current < 0)
        return CUDA_ERROR_INVALID_VALUE;
    return cuMemImportFromShareableHandle(handle, shareable, type);
}

HIP(hipIpcGetEventHandle, (CUipcEventHandle * handle, CUevent event))
{
    (void)handle;
    (void)event;
    return CUDA_ERROR_NOT_SUPPORTED;
}
