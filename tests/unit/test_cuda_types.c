/*
 * proto/driver/cuda_types.h and the table of functions against the Toolkit's <cuda.h>, at compile
 * time, where that is installed. Elsewhere there is nothing to compare with, and the test says so.
 */
#include "tests/cases.h"

#if defined(__has_include)
#if __has_include(<cuda.h>)
#include <cuda.h>
#elif __has_include("/usr/local/cuda/include/cuda.h")
#include "/usr/local/cuda/include/cuda.h"
#endif
#endif

#include "proto/driver/cuda.h"

#ifdef __cuda_cuda_h__

#define CONSTANT(name, value)                                                                      \
    _Static_assert((long long)(name) == (value), #name " is not what the driver calls so");
GB_CUDA_CONSTANT_MAP(CONSTANT)

#define SAME_SIZE(ours, theirs)                                                                    \
    _Static_assert(sizeof(ours) == sizeof(theirs) && _Alignof(ours) == _Alignof(theirs), #theirs)
#define SAME_PLACE(ours, theirs, member)                                                           \
    _Static_assert(offsetof(ours, member) == offsetof(theirs, member) &&                           \
                       sizeof(((ours *)0)->member) == sizeof(((theirs *)0)->member),               \
                   #theirs "." #member)

SAME_SIZE(struct gb_cu_uuid, CUuuid);
SAME_SIZE(struct gb_cu_ipc_handle, CUipcMemHandle);
SAME_SIZE(struct gb_cu_ipc_handle, CUipcEventHandle);
SAME_SIZE(struct gb_cu_mem_location, CUmemLocation);
SAME_PLACE(struct gb_cu_mem_location, CUmemLocation, type);
SAME_PLACE(struct gb_cu_mem_location, CUmemLocation, id);
SAME_SIZE(struct gb_cu_mem_access, CUmemAccessDesc);
SAME_PLACE(struct gb_cu_mem_access, CUmemAccessDesc, location);
SAME_PLACE(struct gb_cu_mem_access, CUmemAccessDesc, flags);
SAME_SIZE(struct gb_cu_mem_prop, CUmemAllocationProp);
SAME_PLACE(struct gb_cu_mem_prop, CUmemAllocationProp, type);
SAME_PLACE(struct gb_cu_mem_prop, CUmemAllocationProp, requestedHandleTypes);
SAME_PLACE(struct gb_cu_mem_prop, CUmemAllocationProp, location);
SAME_PLACE(struct gb_cu_mem_prop, CUmemAllocationProp, win32HandleMetaData);
SAME_PLACE(struct gb_cu_mem_prop, CUmemAllocationProp, allocFlags);
SAME_PLACE(struct gb_cu_mem_prop, CUmemAllocationProp, allocFlags.compressionType);
SAME_PLACE(struct gb_cu_mem_prop, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
SAME_PLACE(struct gb_cu_mem_prop, CUmemAllocationProp, allocFlags.usage);
SAME_PLACE(struct gb_cu_mem_prop, CUmemAllocationProp, allocFlags.reserved);

/* Types that are named alike but declared by us: what they would be without <cuda.h>. */
SAME_SIZE(unsigned int, CUresult);
SAME_SIZE(int, CUdevice);
SAME_SIZE(uint32_t, cuuint32_t);
SAME_SIZE(uint64_t, cuuint64_t);
SAME_SIZE(unsigned long long, CUdeviceptr);
SAME_SIZE(unsigned long long, CUmemGenericAllocationHandle);
SAME_SIZE(unsigned int, CUdevice_attribute);
SAME_SIZE(unsigned int, CUpointer_attribute);
SAME_SIZE(unsigned int, CUmemorytype);
SAME_SIZE(unsigned int, CUmemAllocationHandleType);
SAME_SIZE(unsigned int, CUmemAllocationGranularity_flags);
SAME_SIZE(unsigned int, CUmemAccess_flags);
SAME_SIZE(unsigned int, CUmemLocationType);
SAME_SIZE(unsigned int, CUmemAllocationType);
SAME_SIZE(unsigned int, CUdriverProcAddressQueryResult);
_Static_assert(CU_IPC_HANDLE_SIZE == GB_CU_IPC_HANDLE_BYTES, "CU_IPC_HANDLE_SIZE");

/* Here the table's member has <cuda.h>'s types, so it must be that very function's. cuda.h may map
   a name to a newer form: then the suffix alone tells which is meant. */
#define FUNCTION(name, suffix, version, hip, parameters)                                           \
    _Static_assert(                                                                                \
        __builtin_types_compatible_p(__typeof__(&name##suffix), CUresult(*) parameters),           \
        #name #suffix " has other parameters");
GB_CUDA_FUNCTION_MAP(FUNCTION)

TEST(test_agrees_with_the_toolkit)
{
    assert_true(GB_CU_STREAM_LEGACY == CU_STREAM_LEGACY);
    assert_true(GB_CU_STREAM_PER_THREAD == CU_STREAM_PER_THREAD);
}

#else

TEST(test_agrees_with_the_toolkit)
{
    print_message("skipped: the CUDA Toolkit's cuda.h is not installed\n");
    skip();
}

#endif

RUN_TESTS(NULL, NULL)
