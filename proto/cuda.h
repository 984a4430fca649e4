/*
 * The CUDA driver, loaded at run time from libcuda.so.1: one table of its functions, shared by the
 * daemon and the library. Nothing links against CUDA, so the same binary runs with and without a
 * GPU. Nothing is loaded before gb_cuda_load is called.
 *
 * Threads: gb_cuda_load may be called from any thread, and the driver's functions too; contexts
 * are current per thread. fork(): the driver is of no use in a child (CUDA_ERROR_NOT_INITIALIZED).
 *
 * The dynamic loader finds the library by its own rules alone: no variable of ours names it, since
 * a daemon must not load a file that a user points it to.
 */
#ifndef GB_CUDA_H
#define GB_CUDA_H

#include <stdbool.h>

#include "cuda_types.h"
#include "errors.h"

/* The oldest driver that can be used: CUDA 11.4 (drivers 470 and later). Rows of later versions are
   NULL where the driver lacks them. */
#define GB_CUDA_DRIVER_MIN 11040

/*
 * Every function used: X(name, suffix, version, parameters). The symbol is name##suffix. `version`
 * is that of the CUDA which introduced this form of the function; cuGetProcAddress asks for it.
 * (clang-format would take some of the parameters for products.)
 */
/* clang-format off */
#define GB_CUDA_FUNCTION_MAP(X)                                                                    \
    /* the driver and its devices */                                                               \
    X(cuInit, , 2000, (unsigned int flags))                                                        \
    X(cuDriverGetVersion, , 2020, (int *version))                                                  \
    X(cuGetErrorName, , 6000, (CUresult error, const char **text))                                 \
    X(cuGetErrorString, , 6000, (CUresult error, const char **text))                               \
    X(cuDeviceGetCount, , 2000, (int *count))                                                      \
    X(cuDeviceGet, , 2000, (CUdevice *device, int ordinal))                                        \
    X(cuDeviceGetName, , 2000, (char *name, int length, CUdevice device))                          \
    X(cuDeviceGetUuid, _v2, 11040, (CUuuid *uuid, CUdevice device))                                \
    X(cuDeviceTotalMem, _v2, 3020, (size_t *bytes, CUdevice device))                               \
    X(cuDeviceGetAttribute, , 2000, (int *value, CUdevice_attribute attribute, CUdevice device))   \
    X(cuDeviceGetPCIBusId, , 4010, (char *id, int length, CUdevice device))                        \
    X(cuDeviceCanAccessPeer, , 4000, (int *can, CUdevice device, CUdevice peer))                   \
    /* contexts */                                                                                 \
    X(cuDevicePrimaryCtxRetain, , 7000, (CUcontext *context, CUdevice device))                     \
    X(cuDevicePrimaryCtxRelease, _v2, 11000, (CUdevice device))                                    \
    X(cuDevicePrimaryCtxGetState, , 7000, (CUdevice device, unsigned int *flags, int *active))     \
    X(cuCtxPushCurrent, _v2, 4000, (CUcontext context))                                            \
    X(cuCtxPopCurrent, _v2, 4000, (CUcontext *context))                                            \
    X(cuCtxGetCurrent, , 4000, (CUcontext *context))                                               \
    X(cuCtxGetDevice, , 2000, (CUdevice *device))                                                  \
    X(cuCtxSynchronize, , 2000, (void))                                                            \
    X(cuCtxEnablePeerAccess, , 4000, (CUcontext peer, unsigned int flags))                         \
    /* memory of the legacy kind, and what any pointer is */                                       \
    X(cuMemGetInfo, _v2, 3020, (size_t *available, size_t *total))                                 \
    X(cuMemAlloc, _v2, 3020, (CUdeviceptr *pointer, size_t bytes))                                 \
    X(cuMemFree, _v2, 3020, (CUdeviceptr pointer))                                                 \
    X(cuMemGetAddressRange, _v2, 3020, (CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer))    \
    X(cuPointerGetAttribute, , 4000,                                                               \
      (void *data, CUpointer_attribute attribute, CUdeviceptr pointer))                            \
    X(cuPointerGetAttributes, , 7000,                                                              \
      (unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr pointer))     \
    X(cuMemHostAlloc, , 2020, (void **pointer, size_t bytes, unsigned int flags))                  \
    X(cuMemFreeHost, , 2000, (void *pointer))                                                      \
    X(cuMemHostRegister, _v2, 6050, (void *pointer, size_t bytes, unsigned int flags))             \
    X(cuMemHostUnregister, , 4000, (void *pointer))                                                \
    X(cuMemHostGetDevicePointer, _v2, 3020,                                                        \
      (CUdeviceptr *pointer, void *host, unsigned int flags))                                      \
    /* copies */                                                                                   \
    X(cuMemcpyHtoD, _v2, 3020, (CUdeviceptr target, const void *source, size_t bytes))             \
    X(cuMemcpyDtoH, _v2, 3020, (void *target, CUdeviceptr source, size_t bytes))                   \
    X(cuMemcpyDtoD, _v2, 3020, (CUdeviceptr target, CUdeviceptr source, size_t bytes))             \
    X(cuMemcpyHtoDAsync, _v2, 3020,                                                                \
      (CUdeviceptr target, const void *source, size_t bytes, CUstream stream))                     \
    X(cuMemcpyDtoHAsync, _v2, 3020,                                                                \
      (void *target, CUdeviceptr source, size_t bytes, CUstream stream))                           \
    X(cuMemcpyDtoDAsync, _v2, 3020,                                                                \
      (CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream))                     \
    X(cuMemcpyAsync, , 4000,                                                                       \
      (CUdeviceptr target, CUdeviceptr source, size_t bytes, CUstream stream))                     \
    X(cuMemsetD8Async, , 3020,                                                                     \
      (CUdeviceptr target, unsigned char value, size_t count, CUstream stream))                    \
    /* streams and events */                                                                       \
    X(cuStreamCreate, , 2000, (CUstream *stream, unsigned int flags))                              \
    X(cuStreamDestroy, _v2, 4000, (CUstream stream))                                               \
    X(cuStreamSynchronize, , 2000, (CUstream stream))                                              \
    X(cuStreamQuery, , 2000, (CUstream stream))                                                    \
    X(cuStreamWaitEvent, , 3020, (CUstream stream, CUevent event, unsigned int flags))             \
    /* (drivers before 11.7 lack the next two, or refuse them) */                                  \
    X(cuStreamWaitValue32, _v2, 11070,                                                             \
      (CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned int flags))                   \
    X(cuStreamWriteValue32, _v2, 11070,                                                            \
      (CUstream stream, CUdeviceptr word, cuuint32_t value, unsigned int flags))                   \
    X(cuLaunchHostFunc, , 10000, (CUstream stream, CUhostFn function, void *data))                 \
    X(cuEventCreate, , 2000, (CUevent *event, unsigned int flags))                                 \
    X(cuEventDestroy, _v2, 4000, (CUevent event))                                                  \
    X(cuEventRecord, , 2000, (CUevent event, CUstream stream))                                     \
    X(cuEventQuery, , 2000, (CUevent event))                                                       \
    X(cuEventSynchronize, , 2000, (CUevent event))                                                 \
    /* legacy handles between processes */                                                         \
    X(cuIpcGetMemHandle, , 4010, (CUipcMemHandle *handle, CUdeviceptr pointer))                    \
    X(cuIpcOpenMemHandle, _v2, 11000,                                                              \
      (CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags))                           \
    X(cuIpcCloseMemHandle, , 4010, (CUdeviceptr pointer))                                          \
    X(cuIpcGetEventHandle, , 4010, (CUipcEventHandle *handle, CUevent event))                      \
    X(cuIpcOpenEventHandle, , 4010, (CUevent *event, CUipcEventHandle handle))                     \
    /* virtual memory management */                                                                \
    X(cuMemGetAllocationGranularity, , 10020,                                                      \
      (size_t *granularity, const CUmemAllocationProp *properties,                                 \
       CUmemAllocationGranularity_flags option))                                                   \
    X(cuMemCreate, , 10020,                                                                        \
      (CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,  \
       unsigned long long flags))                                                                  \
    X(cuMemRelease, , 10020, (CUmemGenericAllocationHandle handle))                                \
    X(cuMemExportToShareableHandle, , 10020,                                                       \
      (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,       \
       unsigned long long flags))                                                                  \
    X(cuMemImportFromShareableHandle, , 10020,                                                     \
      (CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type))     \
    X(cuMemAddressReserve, , 10020,                                                                \
      (CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr address,                  \
       unsigned long long flags))                                                                  \
    X(cuMemAddressFree, , 10020, (CUdeviceptr pointer, size_t bytes))                              \
    X(cuMemMap, , 10020,                                                                           \
      (CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,      \
       unsigned long long flags))                                                                  \
    X(cuMemUnmap, , 10020, (CUdeviceptr pointer, size_t bytes))                                    \
    X(cuMemSetAccess, , 10020,                                                                     \
      (CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access, size_t count))            \
    X(cuMemGetAccess, , 10020,                                                                     \
      (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr pointer))             \
    X(cuMemGetAllocationPropertiesFromHandle, , 10020,                                             \
      (CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle))                      \
    X(cuMemRetainAllocationHandle, , 11000, (CUmemGenericAllocationHandle *handle, void *pointer))
/* clang-format on */

/* cuda->cuMemAlloc(…) calls the driver's cuMemAlloc_v2, and so on for every row above. */
struct gb_cuda {
    int driver_version; /* CUDA's: 13000 is 13.0 */
#define GB_CUDA_MEMBER(name, suffix, version, parameters) CUresult(*name) parameters;
    GB_CUDA_FUNCTION_MAP(GB_CUDA_MEMBER)
#undef GB_CUDA_MEMBER
};

/*
 * Gives the table of functions, static and never unloaded. Loads the driver on the first call of
 * the process; later calls give the same answer, also where it was a failure. Does not call cuInit.
 * GPUBUF_E_UNSUPPORTED: there is no driver, it is a stub, or it is too old.
 */
int gb_cuda_load(const struct gb_cuda **cuda, struct gb_error *error);

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
bool gb_cuda_is_loaded(void);

#define GB_CUDA_ID_BYTES 48

/* A device's name as nvidia-smi has it: "GPU-" and its UUID, or "MIG-" for an instance of one. */
CUresult gb_cuda_device_id(const struct gb_cuda *cuda, CUdevice device, char id[GB_CUDA_ID_BYTES]);

/* The driver's name of `result` ("CUDA_ERROR_OUT_OF_MEMORY"); never NULL. Static. */
const char *gb_cuda_error_name(const struct gb_cuda *cuda, CUresult result);

#endif
