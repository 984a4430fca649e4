/* The fake driver's streams, events and kernels: what is asynchronous, and in which order. */
#include "fakecuda.h"

#include <dlfcn.h>

/* The kernels of fakecuda.h. */
static CUresult (*kernel_fill)(CUdeviceptr, unsigned char, size_t, CUstream);
static CUresult (*kernel_sum)(CUdeviceptr, size_t, uint64_t *, CUstream);
static CUresult (*hold)(const int *, CUstream);

static void find_kernels(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    CHECK(library);
    void *symbols[] = {dlsym(library, "fakecuda_fill"), dlsym(library, "fakecuda_sum"),
                       dlsym(library, "fakecuda_wait")};
    CHECK(symbols[0] && symbols[1] && symbols[2]);
    memcpy(&kernel_fill, &symbols[0], sizeof(void *));
    memcpy(&kernel_sum, &symbols[1], sizeof(void *));
    memcpy(&hold, &symbols[2], sizeof(void *));
}

static CUdeviceptr allocate(size_t bytes)
{
    CUdeviceptr pointer;
    OK(cu->cuMemAlloc(&pointer, bytes));
    return pointer;
}

static CUstream stream_of(unsigned int flags)
{
    CUstream stream;
    OK(cu->cuStreamCreate(&stream, flags));
    return stream;
}

static CUevent event_of(void)
{
    CUevent event;
    OK(cu->cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    return event;
}

static void release(int *gate)
{
    __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
}

/* ---- streams ---- */

static void streams_are_asynchronous(int socket)
{
    begin(0);
    find_kernels();
    int gate = 0;
    CUdeviceptr one = allocate(MB), other = allocate(MB);
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING), beside = stream_of(CU_STREAM_NON_BLOCKING);
    OK(cu->cuStreamQuery(stream));
    OK(hold(&gate, stream));
    OK(cu->cuMemsetD8Async(one, 1, MB, stream));
    OK(cu->cuMemcpyDtoDAsync(other, one, MB, stream));
    GIVES(CUDA_ERROR_NOT_READY, cu->cuStreamQuery(stream));
    /* Another stream does not wait for it. */
    OK(cu->cuMemsetD8Async(other, 9, MB, beside));
    OK(cu->cuStreamSynchronize(beside));
    CHECK(host(one)[0] == 0 && host(other)[0] == 9);
    GIVES(CUDA_ERROR_NOT_READY, cu->cuStreamQuery(stream));
    release(&gate);
    OK(cu->cuStreamSynchronize(stream));
    OK(cu->cuStreamQuery(stream));
    CHECK(host(one)[MB - 1] == 1 && host(other)[MB - 1] == 1);
}

static void pinned_memory_is_read_late(int socket)
{
    begin(0);
    find_kernels();
    int gate = 0;
    unsigned char pageable[64] = {1}, *pinned;
    CUdeviceptr target = allocate(4096);
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
    OK(cu->cuMemHostAlloc((void **)&pinned, 4096, 0));
    pinned[0] = 1;
    OK(hold(&gate, stream));
    OK(cu->cuMemcpyHtoDAsync(target, pinned, 64, stream));
    OK(cu->cuMemcpyHtoDAsync(target + 1024, pageable, 64, stream));
    OK(cu->cuMemcpyDtoHAsync(pinned + 1024, target, 64, stream)); /* does not wait either */
    pinned[0] = 2;   /* too early: who does this has a bug, and sees it */
    pageable[0] = 2; /* allowed */
    release(&gate);
    OK(cu->cuStreamSynchronize(stream));
    CHECK(host(target)[0] == 2 && host(target)[1024] == 1 && pinned[1024] == 2);
    /* Into pageable memory the copy is done when the call returns. */
    OK(cu->cuMemsetD8Async(target, 7, 64, stream));
    OK(cu->cuMemcpyDtoHAsync(pageable, target, 64, stream));
    CHECK(pageable[0] == 7);
}

static void null_stream_orders_itself(int socket)
{
    begin(0);
    find_kernels();
    int gate = 0;
    unsigned char byte = 0;
    CUdeviceptr memory = allocate(4096);
    CUstream blocking = stream_of(CU_STREAM_DEFAULT), free_one = stream_of(CU_STREAM_NON_BLOCKING);
    OK(hold(&gate, NULL));
    OK(cu->cuMemsetD8Async(memory, 1, 4096, blocking));
    OK(cu->cuMemsetD8Async(memory + 1, 2, 1, free_one));
    OK(cu->cuStreamSynchronize(free_one));
    CHECK(host(memory)[1] == 2 && host(memory)[0] == 0);
    GIVES(CUDA_ERROR_NOT_READY, cu->cuStreamQuery(blocking));
    release(&gate);
    OK(cu->cuStreamSynchronize(blocking));
    CHECK(host(memory)[0] == 1);
    /* The other way about: a plain copy waits for the blocking stream. */
    for (int i = 0; i < 200; i++) {
        OK(cu->cuMemsetD8Async(memory, (unsigned char)i, 4096, blocking));
        OK(cu->cuMemcpyDtoH(&byte, memory + 4095, 1));
        CHECK(byte == i);
    }
    OK(cu->cuMemcpyDtoD(memory, memory + 2048, 16)); /* need not be over yet */
    OK(cu->cuStreamSynchronize(NULL));
    OK(cu->cuStreamSynchronize(GB_CU_STREAM_LEGACY));
    OK(cu->cuStreamSynchronize(GB_CU_STREAM_PER_THREAD));
}

static void stream_handles(int socket)
{
    begin(0);
    find_kernels();
    CUstream stream;
    int gate = 0;
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuStreamCreate(&stream, 0x80));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cu->cuStreamDestroy(NULL));
    CUdeviceptr memory = allocate(4096);
    stream = stream_of(0);
    OK(hold(&gate, stream));
    OK(cu->cuMemsetD8Async(memory, 5, 4096, stream));
    OK(cu->cuStreamDestroy(stream)); /* at once; its work is done all the same */
    GIVES(CUDA_ERROR_INVALID_HANDLE, cu->cuStreamQuery(stream));
    CHECK(host(memory)[0] == 0);
    release(&gate);
    OK(cu->cuCtxSynchronize());
    CHECK(host(memory)[0] == 5);
    /* A stream knows its context. */
    CUcontext context;
    stream = stream_of(0);
    OK(cu->cuCtxPopCurrent(&context));
    OK(cu->cuMemsetD8Async(memory, 6, 4096, stream));
    OK(cu->cuStreamSynchronize(stream));
    CHECK(host(memory)[0] == 6);
}

static void append(void *data)
{
    char *text = data;
    text[strlen(text)] = (char)('a' + strlen(text));
}

static void host_functions_run_in_order(int socket)
{
    char text[8] = "";
    begin(0);
    CUstream stream = stream_of(0);
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuLaunchHostFunc(stream, NULL, NULL));
    for (int i = 0; i < 5; i++)
        OK(cu->cuLaunchHostFunc(stream, append, text));
    OK(cu->cuStreamSynchronize(stream));
    CHECK(!strcmp(text, "abcde"));
}

/* Without a synchronisation the result is not there yet. */
static void delayed_work_is_late(int socket)
{
    begin(0);
    CUdeviceptr memory = allocate(4096);
    CUstream stream = stream_of(CU_STREAM_NON_BLOCKING);
    double asked = now();
    OK(cu->cuMemsetD8Async(memory, 5, 4096, stream));
    unsigned char seen = host(memory)[0];
    CHECK(seen == 0 || now() - asked >= 0.2);
    OK(cu->cuStreamSynchronize(stream));
    CHECK(host(memory)[0] == 5 && now() - asked >= 0.2);
}

TEST_WITH(test_stream_delay, set_up, tear_down)
{
    setenv("FAKECUDA_STREAM_DELAY", "200", 1);
    run(delayed_work_is_late);
}

/* ---- events ---- */

static void events(int socket)
{
    begin(0);
    find_kernels();
    int gate = 0;
    CUevent event = event_of(), bad;
    CUdeviceptr memory = allocate(4096);
    CUstream first = stream_of(CU_STREAM_NON_BLOCKING), second = stream_of(CU_STREAM_NON_BLOCKING);
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuEventCreate(&bad, 0x80));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuEventCreate(&bad, CU_EVENT_INTERPROCESS));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cu->cuEventQuery(NULL));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cu->cuStreamWaitEvent(first, NULL, 0));
    OK(cu->cuEventQuery(event)); /* never recorded */
    OK(cu->cuEventSynchronize(event));
    OK(cu->cuStreamWaitEvent(second, event, 0));

    OK(hold(&gate, first));
    OK(cu->cuMemsetD8Async(memory, 1, 4096, first));
    OK(cu->cuEventRecord(event, first));
    GIVES(CUDA_ERROR_NOT_READY, cu->cuEventQuery(event));
    OK(cu->cuStreamWaitEvent(second, event, 0));
    OK(cu->cuMemcpyDtoDAsync(memory + 2048, memory, 16, second));
    GIVES(CUDA_ERROR_NOT_READY, cu->cuStreamQuery(second));
    OK(cu->cuEventDestroy(event)); /* what was queued still knows it */
    GIVES(CUDA_ERROR_INVALID_HANDLE, cu->cuEventQuery(event));
    release(&gate);
    OK(cu->cuStreamSynchronize(second));
    CHECK(host(memory)[2048] == 1);
}

/* A wait is for what was recorded when it was called, not for what came later. */
static void events_recorded_anew(int socket)
{
    begin(0);
    find_kernels();
    int gate = 0;
    CUevent event = event_of();
    CUstream first = stream_of(CU_STREAM_NON_BLOCKING), second = stream_of(CU_STREAM_NON_BLOCKING);
    OK(cu->cuEventRecord(event, first));
    OK(cu->cuStreamWaitEvent(second, event, 0));
    OK(hold(&gate, first));
    OK(cu->cuEventRecord(event, first));
    OK(cu->cuStreamSynchronize(second));
    GIVES(CUDA_ERROR_NOT_READY, cu->cuEventQuery(event));
    release(&gate);
    OK(cu->cuEventSynchronize(event));
    OK(cu->cuEventQuery(event));
}

static void records_for_others(int socket)
{
    begin(0);
    find_kernels();
    int gate = 0;
    CUevent event, plain = event_of(), own;
    CUipcEventHandle handle;
    CUstream stream = stream_of(0);
    OK(cu->cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cu->cuIpcGetEventHandle(&handle, plain));
    OK(cu->cuIpcGetEventHandle(&handle, event));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cu->cuIpcOpenEventHandle(&own, handle));
    CUmemGenericAllocationHandle memory = create(0, 2 * MB);
    CUdeviceptr pointer = map(memory, 2 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    OK(hold(&gate, stream));
    OK(kernel_fill(pointer, 8, 2 * MB, stream));
    OK(cu->cuEventRecord(event, stream));
    tell(socket, &handle, sizeof(handle));
    tell_fd(socket, export_fd(memory));
    await(socket);
    release(&gate);
    stay(socket);
}

static CUipcEventHandle given;
static int given_fd;

static void waits_for_another(int socket)
{
    begin(0);
    find_kernels();
    CUevent event, again, bad;
    CUipcEventHandle handle;
    uint64_t sum = 0;
    CUstream stream = stream_of(0);
    OK(cu->cuIpcOpenEventHandle(&event, given));
    OK(cu->cuIpcOpenEventHandle(&again, given));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cu->cuIpcGetEventHandle(&handle, event));
    memset(&handle, 0x5a, sizeof(handle));
    GIVES(CUDA_ERROR_MAP_FAILED, cu->cuIpcOpenEventHandle(&bad, handle));
    memset(&handle, 0, sizeof(handle));
    GIVES(CUDA_ERROR_MAP_FAILED, cu->cuIpcOpenEventHandle(&bad, handle));
    CUdeviceptr pointer = map(import_fd(given_fd), 2 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    GIVES(CUDA_ERROR_NOT_READY, cu->cuEventQuery(event));
    OK(cu->cuStreamWaitEvent(stream, event, 0));
    OK(kernel_sum(pointer, 2 * MB, &sum, stream));
    GIVES(CUDA_ERROR_NOT_READY, cu->cuStreamQuery(stream));
    step(socket);
    char killed;
    hear(socket, &killed, 1);
    if (killed) {
        /* Its work will never be done, so this waits for ever, and so does who records it anew. */
        const struct timespec while_ = {.tv_nsec = 100000000};
        CUstream other = stream_of(CU_STREAM_NON_BLOCKING);
        nanosleep(&while_, NULL);
        GIVES(CUDA_ERROR_NOT_READY, cu->cuStreamQuery(stream));
        OK(cu->cuEventRecord(again, other));
        nanosleep(&while_, NULL);
        GIVES(CUDA_ERROR_NOT_READY, cu->cuStreamQuery(other));
        GIVES(CUDA_ERROR_NOT_READY, cu->cuEventQuery(event));
        return;
    }
    OK(cu->cuStreamSynchronize(stream));
    CHECK(sum == 8 * 2 * MB);
    OK(cu->cuEventQuery(event));
    OK(cu->cuEventDestroy(event));
}

TEST_WITH(test_events_order_processes, set_up, tear_down)
{
    for (char killed = 0; killed < 2; killed++) {
        struct child producer = start(records_for_others);
        hear(producer.socket, &given, sizeof(given));
        given_fd = hear_fd(producer.socket);
        struct child consumer = start(waits_for_another);
        await(consumer.socket);
        if (killed)
            kill_child(producer);
        else
            step(producer.socket);
        tell(consumer.socket, &killed, 1);
        ends_well(consumer);
        if (!killed)
            kill_child(producer);
        close(given_fd);
    }
}

/* ---- kernels that go wrong ---- */

static void kernel_faults(int socket)
{
    begin(0);
    find_kernels();
    uint64_t sum = 0;
    unsigned char byte = 0;
    CUdeviceptr unused;
    CUcontext context;
    CUmemGenericAllocationHandle handle = create(0, 2 * MB);
    CUdeviceptr writer = map(handle, 2 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUdeviceptr reader = map(handle, 2 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    CUstream stream = stream_of(0);
    OK(kernel_fill(writer, 3, 2 * MB, stream));
    OK(kernel_sum(reader, 2 * MB, &sum, stream));
    OK(cu->cuStreamSynchronize(stream));
    CHECK(sum == 3 * 2 * MB);

    OK(kernel_fill(reader, 4, 2 * MB, stream)); /* queued like any other */
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cu->cuStreamSynchronize(stream));
    CHECK(host(writer)[0] == 3);
    /* The context is dead from now on, the data unharmed, and what needs no context goes on. */
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cu->cuMemcpyDtoH(&byte, reader, 1));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cu->cuMemAlloc(&unused, 4096));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cu->cuCtxSynchronize());
    CUmemGenericAllocationHandle another = create(0, 2 * MB);
    close(export_fd(another));
    OK(cu->cuMemRelease(another));

    OK(cu->cuDevicePrimaryCtxRelease(0));
    OK(cu->cuDevicePrimaryCtxRetain(&context, 0));
    OK(cu->cuMemcpyDtoH(&byte, reader, 1));
    CHECK(byte == 3);
    OK(kernel_sum(0x123456789000, 16, &sum, NULL));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cu->cuCtxSynchronize());
}

/* Unmapping under a copy that is still to run makes the copy fault, rather than wait. */
static void unmapping_too_early(int socket)
{
    begin(0);
    find_kernels();
    int gate = 0;
    CUmemGenericAllocationHandle handle = create(0, 2 * MB);
    CUdeviceptr pointer = map(handle, 2 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    CUdeviceptr target = allocate(4096);
    CUstream stream = stream_of(0);
    OK(hold(&gate, stream));
    OK(cu->cuMemcpyDtoDAsync(target, pointer, 4096, stream));
    unmap(pointer, 2 * MB);
    release(&gate);
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cu->cuStreamSynchronize(stream));
}

static void peers(int socket)
{
    CUcontext first, second;
    uint64_t sum = 1;
    OK(cu->cuInit(0));
    OK(cu->cuDevicePrimaryCtxRetain(&second, 1));
    OK(cu->cuCtxPushCurrent(second));
    CUdeviceptr there = allocate(4096);
    find_kernels();
    OK(kernel_fill(there, 1, 4096, NULL));
    OK(cu->cuCtxSynchronize());
    OK(cu->cuDevicePrimaryCtxRetain(&first, 0));
    OK(cu->cuCtxPushCurrent(first));
    CUdeviceptr here = allocate(4096);
    OK(cu->cuMemcpyDtoD(here, there, 4096)); /* copies need no peers */
    OK(cu->cuCtxSynchronize());
    CHECK(host(here)[4095] == 1);
    GIVES(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cu->cuCtxEnablePeerAccess(first, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuCtxEnablePeerAccess(second, 1));
    OK(cu->cuCtxEnablePeerAccess(second, 0));
    GIVES(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cu->cuCtxEnablePeerAccess(second, 0));
    OK(kernel_sum(there, 4096, &sum, NULL));
    OK(cu->cuCtxSynchronize());
    CHECK(sum == 4096);
}

static void not_peers(int socket)
{
    CUcontext first, second;
    uint64_t sum = 1;
    OK(cu->cuInit(0));
    find_kernels();
    OK(cu->cuDevicePrimaryCtxRetain(&first, 0));
    OK(cu->cuDevicePrimaryCtxRetain(&second, 1));
    OK(cu->cuCtxPushCurrent(second));
    CUdeviceptr there = allocate(4096);
    OK(cu->cuCtxPushCurrent(first));
    GIVES(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, cu->cuCtxEnablePeerAccess(second, 0));
    OK(kernel_sum(there, 4096, &sum, NULL));
    GIVES(CUDA_ERROR_ILLEGAL_ADDRESS, cu->cuCtxSynchronize());
    CUcontext popped;
    OK(cu->cuCtxPopCurrent(&popped));
    OK(cu->cuCtxSynchronize()); /* the other context is well */
}

TEST_WITH(test_without_peers, set_up, tear_down)
{
    setenv("FAKECUDA_PEER", "0", 1);
    run(not_peers);
}

#define IN_CHILD(body)                                                                             \
    TEST_WITH(test_##body, set_up, tear_down)                                                      \
    {                                                                                              \
        run(body);                                                                                 \
    }
IN_CHILD(streams_are_asynchronous)
IN_CHILD(pinned_memory_is_read_late)
IN_CHILD(null_stream_orders_itself)
IN_CHILD(stream_handles)
IN_CHILD(host_functions_run_in_order)
IN_CHILD(events)
IN_CHILD(events_recorded_anew)
IN_CHILD(kernel_faults)
IN_CHILD(unmapping_too_early)
IN_CHILD(peers)

RUN_TESTS(NULL, NULL)
