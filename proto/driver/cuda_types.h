/*
 * The part of the CUDA driver's binary interface that gpubufd uses, declared here by itself: types
 * with the driver's own names, and the constants. So a build needs no CUDA Toolkit (which is not
 * free software, and which few build machines have), and one binary built anywhere serves GPUs
 * wherever libcuda.so.1 is found at run time.
 *
 * The driver keeps this interface stable: a changed function gets a new symbol (cuMemAlloc_v2) and
 * the old one stays. tests/unit/test_cuda_types.c compares every size, offset, constant and
 * function type below with the real <cuda.h> where one is installed. Only that test may include
 * both, and <cuda.h> first: the names below then stay the Toolkit's, and only the structs and the
 * table of constants are declared here.
 *
 * Only 64-bit platforms are covered, as by the driver itself.
 */
#ifndef GB_CUDA_TYPES_H
#define GB_CUDA_TYPES_H

#include <stddef.h>
#include <stdint.h>

/* Every constant used: X(name, value). */
#define GB_CUDA_CONSTANT_MAP(X)                                                                    \
    /* CUresult */                                                                                 \
    X(CUDA_SUCCESS, 0)                                                                             \
    X(CUDA_ERROR_INVALID_VALUE, 1)                                                                 \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2)                                                                 \
    X(CUDA_ERROR_NOT_INITIALIZED, 3)                                                               \
    X(CUDA_ERROR_DEINITIALIZED, 4)                                                                 \
    X(CUDA_ERROR_STUB_LIBRARY, 34)                                                                 \
    X(CUDA_ERROR_DEVICE_UNAVAILABLE, 46)                                                           \
    X(CUDA_ERROR_NO_DEVICE, 100)                                                                   \
    X(CUDA_ERROR_INVALID_DEVICE, 101)                                                              \
    X(CUDA_ERROR_INVALID_CONTEXT, 201)                                                             \
    X(CUDA_ERROR_MAP_FAILED, 205)                                                                  \
    X(CUDA_ERROR_UNMAP_FAILED, 206)                                                                \
    X(CUDA_ERROR_ALREADY_MAPPED, 208)                                                              \
    X(CUDA_ERROR_NOT_MAPPED, 211)                                                                  \
    X(CUDA_ERROR_ECC_UNCORRECTABLE, 214)                                                           \
    X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217)                                                     \
    X(CUDA_ERROR_OPERATING_SYSTEM, 304)                                                            \
    X(CUDA_ERROR_INVALID_HANDLE, 400)                                                              \
    X(CUDA_ERROR_ILLEGAL_STATE, 401)                                                               \
    X(CUDA_ERROR_NOT_FOUND, 500)                                                                   \
    X(CUDA_ERROR_NOT_READY, 600)                                                                   \
    X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                                             \
    X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)                                                 \
    X(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, 705)                                                     \
    X(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, 708)                                                      \
    X(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709)                                                        \
    X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)                                              \
    X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713)                                                  \
    X(CUDA_ERROR_LAUNCH_FAILED, 719)                                                               \
    X(CUDA_ERROR_NOT_PERMITTED, 800)                                                               \
    X(CUDA_ERROR_NOT_SUPPORTED, 801)                                                               \
    X(CUDA_ERROR_SYSTEM_NOT_READY, 802)                                                            \
    X(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)                                                      \
    X(CUDA_ERROR_UNKNOWN, 999)                                                                     \
    /* CUdevice_attribute */                                                                       \
    X(CU_DEVICE_ATTRIBUTE_INTEGRATED, 18)                                                          \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, 20)                                                        \
    X(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 40)                                                  \
    X(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 41)                                                  \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                            \
    X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                            \
    X(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)                                \
    X(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103)                        \
    X(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 110)                            \
    X(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 125)                                                \
    X(CU_DEVICE_ATTRIBUTE_MPS_ENABLED, 133)                                                        \
    /* CUpointer_attribute */                                                                      \
    X(CU_POINTER_ATTRIBUTE_CONTEXT, 1)                                                             \
    X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                                                         \
    X(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, 3)                                                      \
    X(CU_POINTER_ATTRIBUTE_HOST_POINTER, 4)                                                        \
    X(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 6)                                                         \
    X(CU_POINTER_ATTRIBUTE_BUFFER_ID, 7)                                                           \
    X(CU_POINTER_ATTRIBUTE_IS_MANAGED, 8)                                                          \
    X(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                                                      \
    X(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 10)                                         \
    X(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 11)                                                   \
    X(CU_POINTER_ATTRIBUTE_RANGE_SIZE, 12)                                                         \
    X(CU_POINTER_ATTRIBUTE_MAPPED, 13)                                                             \
    X(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 14)                                               \
    X(CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, 15)                                         \
    X(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, 16)                                                       \
    X(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, 17)                                                     \
    /* CUmemorytype */                                                                             \
    X(CU_MEMORYTYPE_HOST, 1)                                                                       \
    X(CU_MEMORYTYPE_DEVICE, 2)                                                                     \
    /* flags of contexts, streams, events, host memory and legacy handles */                       \
    X(CU_CTX_SCHED_BLOCKING_SYNC, 4)                                                               \
    X(CU_STREAM_DEFAULT, 0)                                                                        \
    X(CU_STREAM_NON_BLOCKING, 1)                                                                   \
    X(CU_EVENT_DEFAULT, 0)                                                                         \
    X(CU_EVENT_BLOCKING_SYNC, 1)                                                                   \
    X(CU_EVENT_DISABLE_TIMING, 2)                                                                  \
    X(CU_EVENT_INTERPROCESS, 4)                                                                    \
    X(CU_EVENT_WAIT_DEFAULT, 0)                                                                    \
    X(CU_MEMHOSTALLOC_PORTABLE, 1)                                                                 \
    X(CU_MEMHOSTALLOC_DEVICEMAP, 2)                                                                \
    X(CU_MEMHOSTALLOC_WRITECOMBINED, 4)                                                            \
    X(CU_MEMHOSTREGISTER_PORTABLE, 1)                                                              \
    X(CU_MEMHOSTREGISTER_DEVICEMAP, 2)                                                             \
    X(CU_MEMHOSTREGISTER_READ_ONLY, 8)                                                             \
    X(CU_STREAM_WAIT_VALUE_GEQ, 0)                                                                 \
    X(CU_STREAM_WRITE_VALUE_DEFAULT, 0)                                                            \
    X(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1)                                                       \
    /* virtual memory management */                                                                \
    X(CU_MEM_HANDLE_TYPE_NONE, 0)                                                                  \
    X(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)                                                 \
    X(CU_MEM_HANDLE_TYPE_FABRIC, 8)                                                                \
    X(CU_MEM_ACCESS_FLAGS_PROT_NONE, 0)                                                            \
    X(CU_MEM_ACCESS_FLAGS_PROT_READ, 1)                                                            \
    X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)                                                       \
    X(CU_MEM_LOCATION_TYPE_INVALID, 0)                                                             \
    X(CU_MEM_LOCATION_TYPE_DEVICE, 1)                                                              \
    X(CU_MEM_ALLOCATION_TYPE_INVALID, 0)                                                           \
    X(CU_MEM_ALLOCATION_TYPE_PINNED, 1)                                                            \
    X(CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0)                                                         \
    X(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, 1)                                                     \
    /* cuGetProcAddress */                                                                         \
    X(CU_GET_PROC_ADDRESS_DEFAULT, 0)

#define GB_CU_IPC_HANDLE_BYTES 64

/* The structs that the driver reads and writes; see the typedefs for the names to use. */

struct gb_cu_uuid {
    char bytes[16];
};

struct gb_cu_ipc_handle {
    char reserved[GB_CU_IPC_HANDLE_BYTES];
};

struct gb_cu_mem_location {
    unsigned int type; /* CU_MEM_LOCATION_TYPE_… */
    int id;            /* the ordinal, for a device */
};

struct gb_cu_mem_access {
    struct gb_cu_mem_location location;
    unsigned int flags; /* CU_MEM_ACCESS_FLAGS_… */
};

struct gb_cu_mem_prop {
    unsigned int type;                 /* CU_MEM_ALLOCATION_TYPE_… */
    unsigned int requestedHandleTypes; /* CU_MEM_HANDLE_TYPE_…, or-ed */
    struct gb_cu_mem_location location;
    void *win32HandleMetaData;
    struct {
        unsigned char compressionType;
        unsigned char gpuDirectRDMACapable;
        unsigned short usage;
        unsigned char reserved[4];
    } allocFlags;
};

#ifndef __cuda_cuda_h__ /* <cuda.h>'s own guard */

enum {
#define GB_CUDA_CONSTANT_ENUM(name, value) name = (value),
    GB_CUDA_CONSTANT_MAP(GB_CUDA_CONSTANT_ENUM)
#undef GB_CUDA_CONSTANT_ENUM
};

typedef unsigned int CUresult;
typedef int CUdevice;
typedef uint32_t cuuint32_t;
typedef uint64_t cuuint64_t;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;

typedef unsigned int CUdevice_attribute;
typedef unsigned int CUpointer_attribute;
typedef unsigned int CUmemorytype;
typedef unsigned int CUmemAllocationHandleType;
typedef unsigned int CUmemAllocationGranularity_flags;
typedef unsigned int CUmemAccess_flags;
typedef unsigned int CUmemLocationType;
typedef unsigned int CUmemAllocationType;
typedef unsigned int CUdriverProcAddressQueryResult;

typedef struct gb_cu_uuid CUuuid;
typedef struct gb_cu_ipc_handle CUipcMemHandle;
typedef struct gb_cu_ipc_handle CUipcEventHandle;
typedef struct gb_cu_mem_location CUmemLocation;
typedef struct gb_cu_mem_access CUmemAccessDesc;
typedef struct gb_cu_mem_prop CUmemAllocationProp;

#endif

/* The streams that exist without being created: the NULL one by name, and each thread's own. */
#define GB_CU_STREAM_LEGACY ((CUstream)(uintptr_t)1)
#define GB_CU_STREAM_PER_THREAD ((CUstream)(uintptr_t)2)

#endif
