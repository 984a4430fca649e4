/*
 * The drivers of GPUs, loaded at run time: CUDA's libcuda.so.1 and HIP's libamdhip64.so, by one
 * table of functions, shared by the daemon and the library. HIP has nearly all of CUDA's functions
 * with the same parameters and numbers; hip.c has the others. The names here are CUDA's. Nothing
 * links against a driver, so the same binary runs with and without a GPU. Nothing is loaded before
 * gb_cuda_load is called.
 *
 * Threads: gb_cuda_load may be called from any thread, and the driver's functions too; contexts
 * are current per thread. fork(): a driver is of no use in a child (CUDA_ERROR_NOT_INITIALIZED;
 * HIP does not notice).
 *
 * The dynamic loader finds the library by its own rules alone: no variable of ours names it, since
 * a daemon must not load a file that a user points it to.
 */
#ifndef GB_CUDA_H
#define GB_CUDA_H

#include <stdbool.h>

#include "proto/base/errors.h"
#include "proto/driver/cuda_types.h"

/* The oldest driver that can be used: CUDA 11.4 (drivers 470 and later). Rows of later versions are
   NULL where the driver lacks them. */
#define GB_CUDA_DRIVER_MIN 11040
/* HIP 7.1: from then on hipMemImportFromShareableHandle takes a descriptor as cuMem… does. */
#define GB_HIP_DRIVER_MIN 7010

enum gb_driver { GB_CUDA, GB_HIP, GB_DRIVERS };

/*
 * Every function used: X(name, suffix, version, hip, parameters). The symbol is name##suffix, in
 * HIP `hip`. `version` is that of the CUDA which introduced this form of the function;
 * cuGetProcAddress asks for it.
 * (clang-format would take some of the parameters for products.)
 */
/* clang-format off */
#define GB_CUDA_FUNCTION_MAP(X)                                                                    \
    /* the driver and its devices */                                                               \
    X(cuInit, , 2000, hipInit, (unsigned int flags))                                               \
    X(cuDriverGetVersion, , 2020, hipDriverGetVersion, (int *version))                             \
    X(cuGetErrorName, , 6000, hipDrvGetErrorName, (CUresult error, const char **text))             \
    X(cuGetErrorString, , 6000, hipDrvGetErrorString, (CUresult error, const char **text))         \
    X(cuDeviceGetCount, , 2000, hipGetDeviceCount, (int *count))                                   \
    X(cuDeviceGet, , 2000, hipDeviceGet, (CUdevice *device, int ordinal))                          \
    X(cuDeviceGetName, , 2000, hipDeviceGetName, (char *name, int length, CUdevice device))        \
    X(cuDeviceGetUuid, _v2, 11040, hipDeviceGetUuid, (CUuuid *uuid, CUdevice device))              \
    X(cuDeviceTotalMem, _v2, 3020, hipDeviceTotalMem, (size_t *bytes, CUdevice device))            \
    X(cuDeviceGetAttribute, , 2000, hipDeviceGetAttribute,                                         \
      (int *value, CUdevice_attribute attribute, CUdevice device))                                 \
    X(cuDeviceGetPCIBusId, , 4010, hipDeviceGetPCIBusId, (char *id, int length, CUdevice device))  \
    X(cuDeviceCanAccessPeer, , 4000, hipDeviceCanAccessPeer,                                       \
      (int *can, CUdevice device, CUdevice peer))                                                  \
    /* contexts */                                                                                 \
    X(cuDevicePrimaryCtxRetain, , 7000, hipSetDevice, (CUcontext *context, CUdevice device))       \
    X(cuDevicePrimaryCtxRelease, _v2, 11000, hipSetDevice, (CUdevice device))                      \
    X(cuDevicePrimaryCtxGetState, , 7000, hipDevicePrimaryCtxGetState,                             \
      (CUdevice device, unsigned int *flags, int *active))                                         \
    X(cuCtxPushCurrent, _v2, 4000, hipSetDevice, (CUcontext context))                              \
    X(cuCtxPopCurrent, _v2, 4000, hipSetDevice, (CUcontext *context))                              \
    X(cuCtxGetCurrent, , 4000, hipGetDevice, (CUcontext *context))                                 \
    X(cuCtxGetDevice, , 2000, hipGetDevice, (CUdevice *device))                                    \
    X(cuCtxSynchronize, , 2000, hipDeviceSynchronize, (void))                                      \
    /* memory of the legacy kind, and what any pointer is */                                       \
    X(cuMemGetInfo, _v2, 3020, hipMemGetInfo, (size_t *available, size_t *total))                  \
    X(cuMemAlloc, _v2, 3020, hipMalloc, (CUdeviceptr *pointer, size_t bytes))                      \
    X(cuMemFree, _v2, 3020, hipFree, (CUdeviceptr pointer))                                        \
    X(cuMemGetAddressRange, _v2, 3020, hipMemGetAddressRange,                                      \
      (CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer))                                     \
    X(cuPointerGetAttribute, , 4000, hipPointerGetAttribute,                                       \
      (void *data, CUpointer_attribute attribute, CUdeviceptr pointer))                            \
    X(cuPointerGetAttributes, , 7000, hipDrvPointerGetAttributes,                                  \
      (unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr pointer))     \
    X(cuMemHostAlloc, , 2020, hipHostMalloc, (void **pointer, size_t bytes, unsigned int flags))   \
    X(cuMemFreeHost, , 2000, hipHostFree, (void *pointer))                                         \
    X(cuMemHostRegister, _v2, 6050, hipHostRegister,                                               \
      (void *pointer, size_t bytes, unsigned int flags))                                           \
    X(cuMemHostUnregister, , 4000, hipHostUnregister, (void *pointer))                             \
    X(cuMemHostGetDevicePointer, _v2, 3020, hipHostGetDevicePointer,                               \
      (CUdeviceptr *pointer, void *host, unsigned int flags))                                      \
    /* copies */                                                                                   \
    X(cuMemcpyHtoD, _v2, 3020, hipMemcpyHtoD,                                                      \
      (CUdeviceptr target, const void *source, size_t bytes))                                      \
    X(cuMemcpyDtoH, _v2, 3020, hipMemcpyDtoH, (void *target, CUdeviceptr source, size_t bytes))    \
    X(cuMemcpyDtoD, _v2, 3020, hipMemcpyDtoD,                                                      \
      (CUdeviceptr target, CUdeviceptr source, size_t bytes))                                      \
    X(cuMemcpyHtoDAsync, _v2, 3020, hipMemcpyHtoDAsync,                                            \
      (CUdeviceptr target, const void *source, size_t bytes, CUstream stream))                     \
    X(cuMemcpyDtoHAsync, _v2, 3020, hipMemcpyDtoHAsync,                                            \
      (void *target, CUdeviceptr source, size_t bytes, CUstream stream))                           \
    X(cuMemcpyDtoDAsync, _v2, 3020, hipMemcpyDtoDAsync,                                            \
      (CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream))                     \
    X(cuMemcpyAsync, , 4000, hipMemcpyAsync,                                                       \
      (CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream))                     \
    X(cuMemsetD8Async, , 3020, hipMemsetD8Async,                                                   \
      (CUdeviceptr target, unsigned char value, size_t count, CUstream stream))                    \
    /* streams and events */                                                                       \
    X(cuStreamCreate, , 2000, hipStreamCreateWithFlags, (CUstream *stream, unsigned int flags))    \
    X(cuStreamDestroy, _v2, 4000, hipStreamDestroy, (CUstream stream))                             \
    X(cuStreamSynchronize, , 2000, hipStreamSynchronize, (CUstream stream))                        \
    X(cuStreamQuery, , 2000, hipStreamQuery, (CUstream stream))                                    \
    X(cuStreamWaitEvent, , 3020, hipStreamWaitEvent,                                               \
      (CUstream stream, CUevent event, unsigned int flags))                                        \
    /* (drivers before 11.7 lack the next two, or refuse them) */                                  \
    X(cuStreamWaitValue32, _v2, 11070, hipStreamWaitValue32,                                       \
      (CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned int flags))                   \
    X(cuStreamWriteValue32, _v2, 11070, hipStreamWriteValue32,                                     \
      (CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned int flags))                   \
    X(cuEventCreate, , 2000, hipEventCreateWithFlags, (CUevent *event, unsigned int flags))        \
    X(cuEventDestroy, _v2, 4000, hipEventDestroy, (CUevent event))                                 \
    X(cuEventRecord, , 2000, hipEventRecord, (CUevent event, CUstream stream))                     \
    X(cuEventQuery, , 2000, hipEventQuery, (CUevent event))                                        \
    X(cuEventSynchronize, , 2000, hipEventSynchronize, (CUevent event))                            \
    /* legacy handles between processes */                                                         \
    X(cuIpcGetMemHandle, , 4010, hipIpcGetMemHandle,                                               \
      (CUipcMemHandle *handle, CUdeviceptr pointer))                                               \
    X(cuIpcOpenMemHandle, _v2, 11000, hipIpcOpenMemHandle,                                         \
      (CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags))                           \
    X(cuIpcCloseMemHandle, , 4010, hipIpcCloseMemHandle, (CUdeviceptr pointer))                    \
    X(cuIpcGetEventHandle, , 4010, hipIpcGetEventHandle,                                           \
      (CUipcEventHandle *handle, CUevent event))                                                   \
    X(cuIpcOpenEventHandle, , 4010, hipIpcOpenEventHandle,                                         \
      (CUevent *event, CUipcEventHandle handle))                                                   \
    /* virtual memory management */                                                                \
    X(cuMemGetAllocationGranularity, , 10020, hipMemGetAllocationGranularity,                      \
      (size_t *granularity, const CUmemAllocationProp *properties,                                 \
       CUmemAllocationGranularity_flags option))                                                   \
    X(cuMemCreate, , 10020, hipMemCreate,                                                          \
      (CUmemGenericAllocationHandle *handle, size_t bytes,                                         \
       const CUmemAllocationProp *properties, unsigned long long flags))                           \
    X(cuMemRelease, , 10020, hipMemRelease, (CUmemGenericAllocationHandle handle))                 \
    X(cuMemExportToShareableHandle, , 10020, hipMemExportToShareableHandle,                        \
      (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,       \
       unsigned long long flags))                                                                  \
    X(cuMemImportFromShareableHandle, , 10020, hipMemImportFromShareableHandle,                    \
      (CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type))     \
    X(cuMemAddressReserve, , 10020, hipMemAddressReserve,                                          \
      (CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr address,                  \
       unsigned long long flags))                                                                  \
    X(cuMemAddressFree, , 10020, hipMemAddressFree, (CUdeviceptr pointer, size_t bytes))           \
    X(cuMemMap, , 10020, hipMemMap,                                                                \
      (CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,      \
       unsigned long long flags))                                                                  \
    X(cuMemUnmap, , 10020, hipMemUnmap, (CUdeviceptr pointer, size_t bytes))                       \
    X(cuMemSetAccess, , 10020, hipMemSetAccess,                                                    \
      (CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access, size_t count))            \
    X(cuMemGetAccess, , 10020, hipMemGetAccess,                                                    \
      (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr pointer))             \
    X(cuMemGetAllocationPropertiesFromHandle, , 10020, hipMemGetAllocationPropertiesFromHandle,    \
      (CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle))                      \
    X(cuMemRetainAllocationHandle, , 11000, hipMemRetainAllocationHandle,                          \
      (CUmemGenericAllocationHandle *handle, void *pointer))
/* clang-format on */

/* cuda->cuMemAlloc(…) calls the driver's cuMemAlloc_v2, and so on for every row above. */
struct gb_cuda {
    enum gb_driver driver;
    int driver_version; /* as CUDA tells it: 13000 is 13.0 */
#define GB_CUDA_MEMBER(name, suffix, version, hip, parameters) CUresult(*name) parameters;
    GB_CUDA_FUNCTION_MAP(GB_CUDA_MEMBER)
#undef GB_CUDA_MEMBER
};

/* "CUDA" and "HIP"; "cuda" and "hip", as devices are named; the variable that hides devices. */
struct gb_driver_names {
    const char *name, *kind, *visible;
};
extern const struct gb_driver_names gb_driver_names[GB_DRIVERS];

/* The driver of a device's id or alias: HIP's for "HIP-…" and "hip:…", else CUDA's. */
enum gb_driver gb_driver_of(const char *device);

/*
 * Gives a driver's table of functions, static and never unloaded. Loads the driver on the first
 * call of the process; later calls give the same answer, also where it was a failure. Does not call
 * cuInit. GPUBUF_E_UNSUPPORTED: there is no driver, it is a stub, or it is too old.
 */
int gb_cuda_load(enum gb_driver driver, const struct gb_cuda **cuda, struct gb_error *error);

/* Puts what HIP has otherwise in place of functions of a table that was loaded from HIP. */
void gb_hip_adapt(struct gb_cuda *table);

/*
 * Fills *error for a driver call that failed while `what` was being done ("mapping segment 7"):
 * error->cuda is the driver's name of `result`, which the sentence has too. Returns
 * GPUBUF_E_DEVICE. `error` may be NULL.
 */
int gb_cuda_fail(struct gb_error *error, const struct gb_cuda *cuda, CUresult result,
                 const char *format, ...) __attribute__((format(printf, 4, 5)));

/*
 * Whether the process has loaded the driver, through us or otherwise. Without it no pointer of the
 * process is to a GPU's memory. Loads nothing.
 */
bool gb_cuda_is_loaded(enum gb_driver driver);

#define GB_CUDA_ID_BYTES 48

/* A device's name as nvidia-smi has it: "GPU-" and its UUID, or "MIG-" for an instance of one. Of
   AMD's "HIP-" and what rocminfo shows after "GPU-", or the PCI address where it shows "XX". */
CUresult gb_cuda_device_id(const struct gb_cuda *cuda, CUdevice device, char id[GB_CUDA_ID_BYTES]);

/* The driver's name of `result` ("CUDA_ERROR_OUT_OF_MEMORY"); never NULL. Static. */
const char *gb_cuda_error_name(const struct gb_cuda *cuda, CUresult result);

#endif
