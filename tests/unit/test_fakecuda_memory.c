/* The fake driver within one process: allocations, addresses, access, pointers, host memory. */
#include "fakecuda.h"

static void needs_initialisation(int socket)
{
    (void)socket;
    int count;
    CUcontext context = (CUcontext)&count;
    CUmemAllocationProp properties = exportable(0);
    CUmemGenericAllocationHandle handle;
    GIVES(CUDA_ERROR_NOT_INITIALIZED, cu->cuDeviceGetCount(&count));
    GIVES(CUDA_ERROR_NOT_INITIALIZED, cu->cuMemCreate(&handle, 2 * MB, &properties, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuInit(1));
    OK(cu->cuInit(0));
    OK(cu->cuInit(0));
    OK(cu->cuDeviceGetCount(&count));
    CHECK(count == 2);
    OK(cu->cuCtxGetCurrent(&context));
    CHECK(!context);
}

static void needs_a_context(int socket)
{
    (void)socket;
    size_t bytes;
    CUdeviceptr pointer;
    CUstream stream;
    CUevent event;
    CUcontext context;
    CUdevice device;
    void *memory;
    OK(cu->cuInit(0));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cu->cuMemGetInfo(&bytes, &bytes));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cu->cuMemAlloc(&pointer, 4096));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cu->cuStreamCreate(&stream, 0));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cu->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cu->cuMemHostAlloc(&memory, 4096, 0));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cu->cuMemcpyHtoD(4096, &bytes, 8));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cu->cuCtxSynchronize());
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cu->cuCtxGetDevice(&device));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cu->cuCtxPopCurrent(&context));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cu->cuStreamSynchronize(NULL));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cu->cuDevicePrimaryCtxRelease(0));
    OK(cu->cuMemFree(0));
    OK(cu->cuMemFreeHost(NULL));
    /* Memory by cuMemCreate does not. */
    CUdeviceptr mapped = map(create(1, 2 * MB), 2 * MB, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    host(mapped)[5] = 5;
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cu->cuMemGetAddressRange(&pointer, &bytes, mapped));
}

static void contexts(int socket)
{
    (void)socket;
    CUcontext one, other, again;
    CUdevice device;
    unsigned int flags;
    int active;
    OK(cu->cuInit(0));
    GIVES(CUDA_ERROR_INVALID_DEVICE, cu->cuDevicePrimaryCtxRetain(&one, 2));
    OK(cu->cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(!active);
    OK(cu->cuDevicePrimaryCtxRetain(&one, 0));
    OK(cu->cuDevicePrimaryCtxRetain(&other, 1));
    OK(cu->cuDevicePrimaryCtxGetState(0, &flags, &active));
    CHECK(active);
    OK(cu->cuCtxPushCurrent(one));
    OK(cu->cuCtxPushCurrent(other));
    OK(cu->cuCtxGetDevice(&device));
    CHECK(device == 1);
    OK(cu->cuCtxPopCurrent(&again));
    CHECK(again == other);
    OK(cu->cuCtxGetDevice(&device));
    CHECK(device == 0);
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuCtxPushCurrent(NULL));
    /* Counted; destroyed by the last release; the same one again when retained anew. */
    OK(cu->cuDevicePrimaryCtxRetain(&again, 0));
    CHECK(again == one);
    OK(cu->cuDevicePrimaryCtxRelease(0));
    OK(cu->cuCtxSynchronize());
    OK(cu->cuDevicePrimaryCtxRelease(0));
    GIVES(CUDA_ERROR_CONTEXT_IS_DESTROYED, cu->cuCtxSynchronize());
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cu->cuDevicePrimaryCtxRelease(0));
    OK(cu->cuDevicePrimaryCtxRetain(&again, 0));
    CHECK(again == one);
    OK(cu->cuCtxSynchronize());
}

static void *has_no_context(void *result)
{
    *(CUresult *)result = cu->cuCtxSynchronize();
    return NULL;
}

static void contexts_are_of_a_thread(int socket)
{
    (void)socket;
    pthread_t thread;
    CUresult result;
    begin(0);
    CHECK(pthread_create(&thread, NULL, has_no_context, &result) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(result == CUDA_ERROR_INVALID_CONTEXT);
}

static void context_takes_its_memory_along(int socket)
{
    (void)socket;
    CUdeviceptr pointer;
    void *pinned;
    CUstream stream;
    begin(0);
    size_t before = free_memory();
    OK(cu->cuMemAlloc(&pointer, 4 * MB));
    OK(cu->cuMemHostAlloc(&pinned, 4096, 0));
    OK(cu->cuStreamCreate(&stream, 0));
    OK(cu->cuMemsetD8Async(pointer, 1, 4 * MB, stream));
    OK(cu->cuDevicePrimaryCtxRelease(0));
    CUcontext context;
    OK(cu->cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(free_memory() == before);
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemFree(pointer));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemFreeHost(pinned));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cu->cuStreamQuery(stream));
}

/* ---- cuMemCreate and addresses ---- */

static void create_refuses(int socket)
{
    (void)socket;
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp good = exportable(0), bad;
    size_t granularity;
    OK(cu->cuInit(0));
    OK(cu->cuMemGetAllocationGranularity(&granularity, &good, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(granularity == 2 * MB);
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemCreate(&handle, 0, &good, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemCreate(&handle, MB, &good, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemCreate(&handle, 2 * MB, &good, 1));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cu->cuMemCreate(&handle, MB * MB, &good, 0));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cu->cuMemCreate(&handle, 258 * MB, &good, 0));
    bad = exportable(2);
    GIVES(CUDA_ERROR_INVALID_DEVICE, cu->cuMemCreate(&handle, 2 * MB, &bad, 0));
    bad = good;
    bad.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemCreate(&handle, 2 * MB, &bad, 0));
    bad = good;
    bad.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemCreate(&handle, 2 * MB, &bad, 0));
    bad = good;
    bad.requestedHandleTypes = 2;
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemCreate(&handle, 2 * MB, &bad, 0));
}

static void handles_are_counted(int socket)
{
    (void)socket;
    begin(0);
    size_t before = free_memory();
    CUmemGenericAllocationHandle handle = create(0, 4 * MB), again;
    CHECK(free_memory() == before - 4 * MB);
    CUdeviceptr pointer = map(handle, 4 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(cu->cuMemRetainAllocationHandle(&again, host(pointer) + 100));
    CHECK(again == handle);
    OK(cu->cuMemRelease(handle));
    OK(cu->cuMemRelease(handle));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemRelease(handle));
    /* The mapping keeps it. */
    fill_pattern(pointer, 4 * MB);
    CHECK(has_pattern(pointer, 4 * MB));
    CHECK(free_memory() == before - 4 * MB);
    unmap(pointer, 4 * MB);
    CHECK(free_memory() == before);
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemRetainAllocationHandle(&again, host(pointer)));
}

static void addresses(int socket)
{
    (void)socket;
    CUdeviceptr pointer, aligned;
    OK(cu->cuInit(0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemAddressReserve(&pointer, 0, 0, 0, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemAddressReserve(&pointer, MB, 0, 0, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemAddressReserve(&pointer, 4 * MB, 3 * MB, 0, 0));
    OK(cu->cuMemAddressReserve(&aligned, 4 * MB, 64 * MB, 0, 0));
    CHECK(aligned % (64 * MB) == 0);
    OK(cu->cuMemAddressReserve(&pointer, 8 * MB, 0, 0, 0));
    CUmemGenericAllocationHandle handle = create(0, 4 * MB), other = create(0, 4 * MB);

    GIVES(CUDA_ERROR_NOT_SUPPORTED, cu->cuMemMap(pointer, 8 * MB, 0, handle, 0));
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cu->cuMemMap(pointer, 2 * MB, 0, handle, 0));
    GIVES(CUDA_ERROR_NOT_SUPPORTED, cu->cuMemMap(pointer, 2 * MB, 2 * MB, handle, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemMap(pointer + 4096, 4 * MB, 0, handle, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemMap(pointer + 6 * MB, 4 * MB, 0, handle, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemMap(0x10000000, 4 * MB, 0, handle, 0));
    OK(cu->cuMemMap(pointer, 4 * MB, 0, handle, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemMap(pointer, 4 * MB, 0, other, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemMap(pointer + 2 * MB, 4 * MB, 0, other, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemAddressFree(pointer, 8 * MB));

    unsigned int both = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    GIVES(CUDA_ERROR_INVALID_VALUE, set_access(pointer, 8 * MB, 0, both));
    GIVES(CUDA_ERROR_INVALID_VALUE, set_access(pointer, 2 * MB, 0, both));
    GIVES(CUDA_ERROR_INVALID_VALUE, set_access(pointer + 4 * MB, 4 * MB, 0, both));
    GIVES(CUDA_ERROR_INVALID_VALUE, set_access(pointer, 4 * MB, 2, both));
    GIVES(CUDA_ERROR_INVALID_VALUE, set_access(pointer, 4 * MB, 0, 2));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemSetAccess(pointer, 4 * MB, NULL, 0));
    OK(set_access(pointer, 4 * MB, 0, both));

    /* Two side by side in one reservation, then both away at once. */
    OK(cu->cuMemMap(pointer + 4 * MB, 4 * MB, 0, other, 0));
    OK(set_access(pointer, 8 * MB, 0, both));
    fill_pattern(pointer, 8 * MB);
    CHECK(has_pattern(pointer, 8 * MB));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemUnmap(pointer, 2 * MB));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemUnmap(pointer + 2 * MB, 4 * MB));
    OK(cu->cuMemUnmap(pointer, 8 * MB));
    OK(cu->cuMemUnmap(pointer, 8 * MB));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemAddressFree(pointer, 4 * MB));
    OK(cu->cuMemAddressFree(pointer, 8 * MB));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemAddressFree(pointer, 8 * MB));
    OK(cu->cuMemAddressFree(aligned, 4 * MB));
}

static void addresses_run_out_and_around(int socket)
{
    (void)socket;
    OK(cu->cuInit(0));
    CUdeviceptr pointer, last = 0;
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cu->cuMemAddressReserve(&pointer, (size_t)1 << 45, 0, 0, 0));
    bool around = false;
    for (int i = 0; i < 600 && !around; i++) {
        OK(cu->cuMemAddressReserve(&pointer, (size_t)512 * MB, 0, 0, 0));
        CHECK(pointer != last); /* not what was freed just now */
        around = pointer < last;
        last = pointer;
        OK(cu->cuMemAddressFree(pointer, (size_t)512 * MB));
    }
    CHECK(around);
}

static CUdeviceptr volatile touched;

static void writes_read_only(int socket)
{
    (void)socket;
    OK(cu->cuInit(0));
    touched = map(create(0, 2 * MB), 2 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    CHECK(host(touched)[0] == 0);
    signal(SIGSEGV, SIG_DFL); /* not a sanitizer's report */
    host(touched)[0] = 1;
}

static void reads_without_access(int socket)
{
    (void)socket;
    CUdeviceptr pointer;
    OK(cu->cuInit(0));
    OK(cu->cuMemAddressReserve(&pointer, 2 * MB, 0, 0, 0));
    OK(cu->cuMemMap(pointer, 2 * MB, 0, create(0, 2 * MB), 0));
    touched = pointer;
    signal(SIGSEGV, SIG_DFL);
    _exit(*(volatile unsigned char *)host(touched));
}

static void reads_unmapped(int socket)
{
    (void)socket;
    OK(cu->cuInit(0));
    touched = map(create(0, 2 * MB), 2 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    unmap(touched, 2 * MB);
    map(create(0, 2 * MB), 2 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    signal(SIGSEGV, SIG_DFL);
    _exit(*(volatile unsigned char *)host(touched));
}

static void test_the_mmu_enforces_access(void **state)
{
    (void)state;
    void (*const bodies[])(int) = {writes_read_only, reads_without_access, reads_unmapped};
    for (size_t i = 0; i < sizeof(bodies) / sizeof(*bodies); i++) {
        int status;
        struct child child = start(bodies[i]);
        close(child.socket);
        assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
}

static void copies_respect_access(int socket)
{
    (void)socket;
    unsigned char bytes[256] = {1, 2, 3};
    begin(0);
    CUmemGenericAllocationHandle handle = create(0, 2 * MB);
    CUdeviceptr only_read = map(handle, 2 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    CUdeviceptr both = map(handle, 2 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUdeviceptr beyond = only_read + 2 * MB - 16;
    CUstream stream;
    OK(cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));

    OK(cu->cuMemcpyHtoD(both, bytes, sizeof(bytes)));
    CHECK(host(only_read)[2] == 3); /* one memory */
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemcpyHtoD(only_read, bytes, 16));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemcpyHtoDAsync(only_read, bytes, 16, stream));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemsetD8Async(only_read, 1, 16, stream));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemcpyDtoD(only_read, both, 16));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemcpyDtoDAsync(only_read, both, 16, stream));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemcpyAsync(only_read, both, 16, stream));
    OK(cu->cuMemcpyDtoH(bytes, only_read, sizeof(bytes)));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemcpyDtoH(bytes, beyond, sizeof(bytes)));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemcpyDtoH(bytes, 0x123456789000, 16));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemcpyHtoD(both, NULL, 16));
    OK(cu->cuMemcpyHtoD(0, bytes, 0));
    OK(set_access(both, 2 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemcpyDtoH(bytes, both, 16));
    OK(cu->cuStreamSynchronize(stream));
    OK(cu->cuCtxSynchronize()); /* none of it harmed the context */
    CHECK(host(only_read)[0] == 1);

    unsigned long long flags;
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    OK(cu->cuMemGetAccess(&flags, &location, only_read + 100));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READ);
    OK(cu->cuMemGetAccess(&flags, &location, both));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE);
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemGetAccess(&flags, &location, 4096));
}

/* ---- cuMemAlloc ---- */

static void allocations(int socket)
{
    (void)socket;
    CUdeviceptr pointer, other;
    begin(0);
    size_t before = free_memory();
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemAlloc(&pointer, 0));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cu->cuMemAlloc(&pointer, 300 * MB));
    OK(cu->cuMemAlloc(&pointer, 3 * MB));
    CHECK(before - free_memory() == 4 * MB);
    OK(cu->cuMemAlloc(&other, 1000));
    CHECK(pointer % 256 == 0 && other % 256 == 0);
    fill_pattern(pointer, 3 * MB);
    CHECK(has_pattern(pointer, 3 * MB));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemFree(pointer + 256));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemFree(0x123456789000));
    OK(cu->cuMemFree(pointer));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemFree(pointer));
    OK(cu->cuMemFree(other));
    CHECK(free_memory() == before);
    CUdeviceptr mapped = map(create(0, 2 * MB), 2 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemFree(mapped));
}

/* ---- what a pointer is ---- */

static void pointer_attributes(int socket)
{
    (void)socket;
    begin(1);
    CUdeviceptr allocated, base, start;
    size_t bytes = 0;
    OK(cu->cuMemAlloc(&allocated, 5000));
    CUdeviceptr reserved;
    OK(cu->cuMemAddressReserve(&reserved, 8 * MB, 0, 0, 0));
    OK(cu->cuMemMap(reserved, 2 * MB, 0, create(1, 2 * MB), 0));
    OK(set_access(reserved, 2 * MB, 1, CU_MEM_ACCESS_FLAGS_PROT_READ));

    OK(cu->cuMemGetAddressRange(&base, &bytes, allocated + 4999));
    CHECK(base == allocated && bytes == 5000);
    GIVES(CUDA_ERROR_NOT_FOUND, cu->cuMemGetAddressRange(&base, &bytes, allocated + 5000));
    OK(cu->cuMemGetAddressRange(&base, &bytes, reserved + 100));
    CHECK(base == reserved && bytes == 2 * MB);
    GIVES(CUDA_ERROR_NOT_FOUND, cu->cuMemGetAddressRange(&base, &bytes, reserved + 3 * MB));
    GIVES(CUDA_ERROR_NOT_FOUND,
          cu->cuMemGetAddressRange(&base, &bytes, (CUdeviceptr)(uintptr_t)&bytes));

    unsigned int type = 0, flags = 0;
    int device = 0;
    uint64_t one = 0, other = 0, types = 0;
    unsigned int legacy = 2; /* a boolean takes as much */
    OK(cu->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reserved + 9));
    CHECK(type == CU_MEMORYTYPE_DEVICE);
    OK(cu->cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, reserved));
    CHECK(device == 1);
    OK(cu->cuPointerGetAttribute(&flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, reserved));
    CHECK(flags == CU_MEM_ACCESS_FLAGS_PROT_READ);
    OK(cu->cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, reserved + 9));
    OK(cu->cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, reserved + 9));
    CHECK(start == reserved && bytes == 8 * MB); /* of the reservation, unlike the range above */
    OK(cu->cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, reserved));
    CHECK(types == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    OK(cu->cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                 reserved));
    CHECK(legacy == 0);
    OK(cu->cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                 allocated));
    CHECK(legacy == 1);
    OK(cu->cuPointerGetAttribute(&one, CU_POINTER_ATTRIBUTE_BUFFER_ID, allocated));
    OK(cu->cuMemFree(allocated));
    OK(cu->cuMemAlloc(&allocated, 5000));
    OK(cu->cuPointerGetAttribute(&other, CU_POINTER_ATTRIBUTE_BUFFER_ID, allocated));
    CHECK(one != other);
    GIVES(CUDA_ERROR_INVALID_VALUE,
          cu->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reserved + 3 * MB));
    GIVES(CUDA_ERROR_INVALID_VALUE,
          cu->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    (CUdeviceptr)(uintptr_t)&type));
    void *address;
    GIVES(CUDA_ERROR_INVALID_VALUE,
          cu->cuPointerGetAttribute(&address, CU_POINTER_ATTRIBUTE_HOST_POINTER, allocated));

    /* Several at once: nothing known is no error. */
    CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                    CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    void *results[] = {&type, &one, &device};
    OK(cu->cuPointerGetAttributes(3, wanted, results, (CUdeviceptr)(uintptr_t)&type));
    CHECK(type == 0 && one == 0 && device == -2);
    OK(cu->cuPointerGetAttributes(3, wanted, results, allocated + 1));
    CHECK(type == CU_MEMORYTYPE_DEVICE && one == other && device == 1);
}

static void host_memory(int socket)
{
    (void)socket;
    void *pinned, *none = &pinned;
    begin(0);
    OK(cu->cuMemHostAlloc(&none, 0, 0));
    CHECK(!none);
    OK(cu->cuMemHostAlloc(&pinned, MB, CU_MEMHOSTALLOC_PORTABLE));
    memset(pinned, 1, MB);
    unsigned int type;
    CUdeviceptr inside = (CUdeviceptr)(uintptr_t)pinned + 100, seen;
    OK(cu->cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside));
    CHECK(type == CU_MEMORYTYPE_HOST);
    OK(cu->cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside));
    CHECK(seen == inside);
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemFreeHost((char *)pinned + 16));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemFreeHost(&type));
    OK(cu->cuMemFreeHost(pinned));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemFreeHost(pinned));

    char *own = aligned_alloc(4096, MB);
    CHECK(own);
    OK(cu->cuMemHostRegister(own, MB, 0));
    GIVES(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cu->cuMemHostRegister(own, MB, 0));
    GIVES(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cu->cuMemHostRegister(own + 4096, 4096, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemHostUnregister(own + 4096));
    OK(cu->cuMemHostUnregister(own));
    GIVES(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cu->cuMemHostUnregister(own));
    OK(cu->cuMemHostRegister(own + 100, 1000, 0));
    OK(cu->cuMemHostUnregister(own + 100));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemHostRegister(own, 0, 0));
    free(own);

    int fd = memfd_create("read-only", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)MB) == 0);
    void *read_only = mmap(NULL, MB, PROT_READ, MAP_SHARED, fd, 0);
    CHECK(read_only != MAP_FAILED);
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemHostRegister(read_only, MB, 0));
    OK(cu->cuMemHostRegister(read_only, MB, CU_MEMHOSTREGISTER_READ_ONLY));
    OK(cu->cuMemHostUnregister(read_only));
    munmap(read_only, MB);
    close(fd);
}

static void *allocate_and_free(void *argument)
{
    CUcontext context;
    (void)argument;
    OK(cu->cuDevicePrimaryCtxRetain(&context, 0));
    OK(cu->cuCtxPushCurrent(context));
    CUstream stream;
    OK(cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < 30; i++) {
        CUmemGenericAllocationHandle handle = create(0, 2 * MB);
        CUdeviceptr pointer = map(handle, 2 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), other;
        OK(cu->cuMemAlloc(&other, 4096));
        OK(cu->cuMemsetD8Async(pointer, (unsigned char)i, 4096, stream));
        OK(cu->cuMemcpyDtoDAsync(other, pointer, 4096, stream));
        OK(cu->cuStreamSynchronize(stream));
        unsigned char byte = 255;
        OK(cu->cuMemcpyDtoH(&byte, other + 4095, 1));
        CHECK(byte == i);
        OK(cu->cuMemFree(other));
        unmap(pointer, 2 * MB);
        OK(cu->cuMemRelease(handle));
    }
    OK(cu->cuStreamDestroy(stream));
    OK(cu->cuDevicePrimaryCtxRelease(0));
    return NULL;
}

static void allocates_in_threads(int socket)
{
    (void)socket;
    pthread_t threads[4];
    begin(0);
    size_t before = free_memory();
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, allocate_and_free, NULL) == 0);
    for (size_t i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(free_memory() == before);
}

#define IN_CHILD(body)                                                                             \
    static void test_##body(void **state)                                                          \
    {                                                                                              \
        (void)state;                                                                               \
        run(body);                                                                                 \
    }
IN_CHILD(needs_initialisation)
IN_CHILD(needs_a_context)
IN_CHILD(contexts)
IN_CHILD(contexts_are_of_a_thread)
IN_CHILD(context_takes_its_memory_along)
IN_CHILD(create_refuses)
IN_CHILD(handles_are_counted)
IN_CHILD(addresses)
IN_CHILD(addresses_run_out_and_around)
IN_CHILD(copies_respect_access)
IN_CHILD(allocations)
IN_CHILD(pointer_attributes)
IN_CHILD(host_memory)
IN_CHILD(allocates_in_threads)

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_needs_initialisation),
        TEST(test_needs_a_context),
        TEST(test_contexts),
        TEST(test_contexts_are_of_a_thread),
        TEST(test_context_takes_its_memory_along),
        TEST(test_create_refuses),
        TEST(test_handles_are_counted),
        TEST(test_addresses),
        TEST(test_addresses_run_out_and_around),
        TEST(test_the_mmu_enforces_access),
        TEST(test_copies_respect_access),
        TEST(test_allocations),
        TEST(test_pointer_attributes),
        TEST(test_host_memory),
        TEST(test_allocates_in_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
