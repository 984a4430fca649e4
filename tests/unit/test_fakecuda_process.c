/*
 * The fake driver between processes: descriptors, legacy handles, and who holds how much memory
 * whatever becomes of them.
 */
#include "fakecuda.h"

#include <sys/stat.h>

/* ---- descriptors ---- */

static void exports(int socket)
{
    OK(cu->cuInit(0));
    CUmemGenericAllocationHandle handle = create(0, 4 * MB);
    CUdeviceptr pointer = map(handle, 4 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    fill_pattern(pointer, 4 * MB);
    int fd = export_fd(handle);
    CHECK(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    tell_fd(socket, fd);
    close(fd);
    stay(socket);
}

static void imports(int socket)
{
    int fd = hear_fd(socket);
    begin(0);
    CUmemGenericAllocationHandle handle = import_fd(fd), again = import_fd(fd);
    CHECK(handle != again);
    close(fd); /* not needed any more */
    CUmemAllocationProp properties;
    OK(cu->cuMemGetAllocationPropertiesFromHandle(&properties, handle));
    CHECK(properties.location.id == 0 && properties.requestedHandleTypes == 0);
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemExportToShareableHandle(
                                        &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CUdeviceptr reader = map(handle, 4 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    OK(cu->cuMemRelease(handle));
    CHECK(has_pattern(reader, 4 * MB));
    /* The descriptor carries no access of its own: whoever has it may map it for writing. */
    CUdeviceptr writer = map(again, 4 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    host(writer)[1] = 77;
    CHECK(host(reader)[1] == 77);
    stay(socket);
}

static void test_memory_outlives_its_creator(void **state)
{
    (void)state;
    size_t before = free_on(0);
    struct child creator = start(exports);
    int fd = hear_fd(creator.socket); /* parked with a process that knows nothing of CUDA */
    await(creator.socket);
    assert_true(free_on(0) == before - 4 * MB);
    kill_child(creator);
    assert_true(free_on(0) == before - 4 * MB);

    struct child reader = start(imports);
    tell_fd(reader.socket, fd);
    await(reader.socket);
    close(fd);
    assert_true(free_on(0) == before - 4 * MB - 8 * MB); /* its mapping, and its context */
    kill_child(reader);
    assert_true(free_on(0) == before);
}

static void test_unread_messages_hold_memory(void **state)
{
    (void)state;
    size_t before = free_on(0);
    struct child creator = start(exports);
    /* The descriptor is in the socket's queue, and nowhere else. */
    char byte;
    assert_int_equal(recv(creator.socket, &byte, 1, MSG_PEEK), 1);
    kill(creator.pid, SIGKILL);
    assert_int_equal(waitpid(creator.pid, NULL, 0), creator.pid);
    assert_true(free_on(0) == before - 4 * MB);
    close(creator.socket);
    assert_true(free_on(0) == before);
}

static void refuses_strangers(int socket)
{
    (void)socket;
    OK(cu->cuInit(0));
    char path[128];
    snprintf(path, sizeof(path), "%s/v-0-2097152-0000000000000001", devices_directory);
    int fds[] = {
        memfd_create("v-0-2097152-0000000000000001", MFD_CLOEXEC | MFD_ALLOW_SEALING),
        open("/dev/null", O_RDWR | O_CLOEXEC),
        -1,
        999,
        /* not even in the right place: removed again at the next look, since nobody locks it */
        open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600),
    };
    CHECK(ftruncate(fds[0], 2097152) == 0);
    unlink(path);
    CUmemGenericAllocationHandle handle;
    for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++)
        GIVES(CUDA_ERROR_UNKNOWN,
              cu->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fds[i],
                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    int fd = export_fd(create(0, 2 * MB));
    GIVES(CUDA_ERROR_NOT_SUPPORTED,
          cu->cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, 2));
    import_fd(fd);

    CUmemAllocationProp properties = exportable(0);
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    OK(cu->cuMemCreate(&handle, 2 * MB, &properties, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemExportToShareableHandle(
                                        &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
}

/* ---- accounts ---- */

static void takes(int socket)
{
    int megabytes;
    hear(socket, &megabytes, sizeof(megabytes));
    OK(cu->cuInit(0));
    CUmemAllocationProp properties = exportable(0);
    CUmemGenericAllocationHandle handle;
    CUresult result = cu->cuMemCreate(&handle, (size_t)megabytes * MB, &properties, 0);
    tell(socket, &result, sizeof(result));
    stay(socket);
}

static CUresult take(struct child *child, int megabytes)
{
    CUresult result;
    *child = start(takes);
    tell(child->socket, &megabytes, sizeof(megabytes));
    hear(child->socket, &result, sizeof(result));
    await(child->socket);
    return result;
}

static void test_processes_share_one_capacity(void **state)
{
    (void)state;
    setenv("FAKECUDA_CONTEXT", "0", 1);
    struct child one, other, third;
    assert_true(free_on(0) == 256 * MB);
    assert_int_equal(take(&one, 200), CUDA_SUCCESS);
    assert_int_equal(take(&other, 58), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(take(&third, 56), CUDA_SUCCESS); /* to the last byte */
    assert_true(free_on(0) == 0);
    assert_true(free_on(1) == 256 * MB);
    kill_child(other);
    kill_child(one);
    assert_true(free_on(0) == 200 * MB);
    assert_int_equal(take(&one, 200), CUDA_SUCCESS);
    kill_child(one);
    kill_child(third);
    assert_true(free_on(0) == 256 * MB);
}

static void has_a_context(int socket)
{
    begin(0);
    stay(socket);
}

static void has_none(int socket)
{
    OK(cu->cuInit(0));
    size_t bytes;
    char name[64];
    OK(cu->cuDeviceTotalMem(&bytes, 0));
    OK(cu->cuDeviceGetName(name, sizeof(name), 0));
    CUmemGenericAllocationHandle handle = create(0, 2 * MB);
    close(export_fd(handle));
    map(handle, 2 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    stay(socket);
}

static void test_a_context_costs_memory(void **state)
{
    (void)state;
    setenv("FAKECUDA_CONTEXT", "10M", 1);
    size_t before = free_on(0);
    assert_true(before == 246 * MB);
    struct child with = start(has_a_context), without = start(has_none);
    await(with.socket);
    await(without.socket);
    assert_true(free_on(0) == before - 10 * MB - 2 * MB);
    kill_child(with);
    assert_true(free_on(0) == before - 2 * MB);
    kill_child(without);
    assert_true(free_on(0) == before);
}

/* Allocates, maps, frees, records, without an end. */
static void is_busy(int socket)
{
    step(socket);
    begin(0);
    CUstream stream;
    OK(cu->cuStreamCreate(&stream, 0));
    for (unsigned int i = 0;; i++) {
        CUmemAllocationProp properties = exportable(0);
        CUmemGenericAllocationHandle handle;
        CUdeviceptr pointer, other;
        CUipcMemHandle ipc;
        OK(cu->cuMemCreate(&handle, 2 * MB << i % 3, &properties, 0));
        size_t bytes = 2 * MB << i % 3;
        pointer = map(handle, bytes, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        int fd = export_fd(handle);
        OK(cu->cuMemAlloc(&other, 1000));
        OK(cu->cuIpcGetMemHandle(&ipc, other));
        OK(cu->cuMemcpyDtoDAsync(other, pointer, 1000, stream));
        OK(cu->cuMemRelease(handle));
        OK(cu->cuMemFree(other));
        unmap(pointer, bytes);
        close(fd);
    }
}

static void test_every_kill_gives_all_back(void **state)
{
    (void)state;
    size_t before = free_on(0);
    unsigned int random = 12345;
    for (int round = 0; round < 60; round++) {
        struct child children[2] = {start(is_busy), start(is_busy)};
        for (int i = 0; i < 2; i++)
            await(children[i].socket);
        random = random * 1103515245 + 12345;
        struct timespec rest = {.tv_nsec = (random >> 8) % 8000000};
        nanosleep(&rest, NULL); /* the moment is what varies; nothing depends on it */
        for (int i = 0; i < 2; i++)
            kill_child(children[i]);
        assert_true(free_on(0) == before);
    }
}

/* ---- legacy handles ---- */

static void gives_handles(int socket)
{
    begin(0);
    CUdeviceptr pointer, mapped, opened;
    CUipcMemHandle handle, again;
    OK(cu->cuMemAlloc(&pointer, 4 * MB));
    fill_pattern(pointer, 4 * MB);
    OK(cu->cuIpcGetMemHandle(&handle, pointer));
    OK(cu->cuIpcGetMemHandle(&again, pointer + 12345));
    CHECK(!memcmp(&handle, &again, sizeof(handle)));
    GIVES(CUDA_ERROR_INVALID_CONTEXT, cu->cuIpcOpenMemHandle(&opened, handle, 1));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuIpcOpenMemHandle(&opened, handle, 0));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuIpcCloseMemHandle(pointer));
    mapped = map(create(0, 2 * MB), 2 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuIpcGetMemHandle(&again, mapped));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuIpcGetMemHandle(&again, (CUdeviceptr)(uintptr_t)&handle));
    tell(socket, &handle, sizeof(handle));
    await(socket);
    OK(cu->cuMemFree(pointer));
    stay(socket);
}

static CUipcMemHandle given;

static void opens_handles(int socket)
{
    CUdeviceptr one, other;
    CUipcMemHandle again;
    begin(0);
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuIpcOpenMemHandle(&one, given, 0));
    OK(cu->cuIpcOpenMemHandle(&one, given, 1));
    OK(cu->cuIpcOpenMemHandle(&other, given, 1));
    CHECK(one == other && has_pattern(one, 4 * MB));
    host(one)[3] = 33;
    OK(cu->cuIpcCloseMemHandle(one));
    CHECK(host(one)[3] == 33);
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuIpcGetMemHandle(&again, one));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemFree(one));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuIpcCloseMemHandle(one + 256));
    unsigned int legacy = 1;
    OK(cu->cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, one));
    CHECK(legacy == 0);
    step(socket);
    await(socket); /* the exporter has freed it */
    CHECK(host(one)[3] == 33);
    OK(cu->cuIpcOpenMemHandle(&other, given, 1)); /* it is open here, so that is enough */
    CHECK(one == other);
    OK(cu->cuIpcCloseMemHandle(one));
    step(socket);
    await(socket); /* and is dead */
    CHECK(host(one)[3] == 33);
    OK(cu->cuIpcCloseMemHandle(one));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuIpcCloseMemHandle(one));
    unsigned char byte;
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemcpyDtoH(&byte, one, 1));
    GIVES(CUDA_ERROR_INVALID_HANDLE, cu->cuIpcOpenMemHandle(&other, given, 1));
    stay(socket);
}

static void opens_forged_handles(int socket)
{
    (void)socket;
    CUdeviceptr pointer;
    begin(0);
    for (size_t i = 0; i < sizeof(given); i++) {
        CUipcMemHandle forged = given;
        forged.reserved[i] = (char)(forged.reserved[i] ^ 0x55);
        GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuIpcOpenMemHandle(&pointer, forged, 1));
    }
    CUipcMemHandle zero = {{0}};
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuIpcOpenMemHandle(&pointer, zero, 1));
}

static void opens_freed_handle(int socket)
{
    (void)socket;
    CUdeviceptr pointer;
    begin(0);
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuIpcOpenMemHandle(&pointer, given, 1));
}

static void test_legacy_handles(void **state)
{
    (void)state;
    size_t before = free_on(0);
    struct child exporter = start(gives_handles);
    hear(exporter.socket, &given, sizeof(given));
    run(opens_forged_handles);
    struct child importer = start(opens_handles);
    await(importer.socket);
    step(exporter.socket);
    await(exporter.socket);
    run(opens_freed_handle);
    step(importer.socket);
    await(importer.socket);
    /* Held by the importer alone: 4 MiB, its context, and what the exporter has. */
    assert_true(free_on(0) == before - 4 * MB - 8 * MB - (8 + 2) * MB);
    kill_child(exporter);
    step(importer.socket);
    await(importer.socket);
    assert_true(free_on(0) == before - 8 * MB);
    kill_child(importer);
    assert_true(free_on(0) == before);
}

/* ---- devices that differ from process to process ---- */

static void exports_second_device(int socket)
{
    OK(cu->cuInit(0));
    CUmemGenericAllocationHandle handle = create(1, 2 * MB);
    host(map(handle, 2 * MB, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE))[0] = 42;
    tell_fd(socket, export_fd(handle));
    stay(socket);
}

static int given_fd;

static void sees_it_as_first(int socket)
{
    (void)socket;
    begin(0);
    CUmemGenericAllocationHandle handle = import_fd(given_fd);
    CUmemAllocationProp properties;
    OK(cu->cuMemGetAllocationPropertiesFromHandle(&properties, handle));
    CHECK(properties.location.id == 0);
    CHECK(host(map(handle, 2 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READ))[0] == 42);
}

/* Memory of a device that is hidden comes in all the same, as a peer's of no number. */
static void does_not_see_it(int socket)
{
    (void)socket;
    begin(0);
    CUmemGenericAllocationHandle handle = import_fd(given_fd);
    CUmemAllocationProp properties;
    int device = -1;
    OK(cu->cuMemGetAllocationPropertiesFromHandle(&properties, handle));
    CHECK(properties.location.id == -2);
    CUdeviceptr pointer = map(handle, 2 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    GIVES(CUDA_ERROR_INVALID_VALUE, set_access(pointer, 2 * MB, 1, CU_MEM_ACCESS_FLAGS_PROT_READ));
    CHECK(host(pointer)[0] == 42);
    OK(cu->cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer));
    CHECK(device == 0);
}

/* Reads it from the other device: only with access of its own, and only if they are peers. */
static void reads_across(int socket)
{
    (void)socket;
    begin(0);
    CUmemGenericAllocationHandle handle = import_fd(given_fd);
    CUdeviceptr pointer;
    unsigned char byte = 0;
    OK(cu->cuMemAddressReserve(&pointer, 2 * MB, 0, 0, 0));
    OK(cu->cuMemMap(pointer, 2 * MB, 0, handle, 0));
    OK(set_access(pointer, 2 * MB, 1, CU_MEM_ACCESS_FLAGS_PROT_READ));
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuMemcpyDtoH(&byte, pointer, 1));
    OK(set_access(pointer, 2 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
    OK(cu->cuMemcpyDtoH(&byte, pointer, 1));
    CHECK(byte == 42);
}

static void cannot_read_across(int socket)
{
    (void)socket;
    int can = 1;
    begin(0);
    OK(cu->cuDeviceCanAccessPeer(&can, 0, 1));
    CHECK(!can);
    CUmemGenericAllocationHandle handle = import_fd(given_fd);
    CUdeviceptr pointer;
    OK(cu->cuMemAddressReserve(&pointer, 2 * MB, 0, 0, 0));
    OK(cu->cuMemMap(pointer, 2 * MB, 0, handle, 0));
    GIVES(CUDA_ERROR_INVALID_DEVICE, set_access(pointer, 2 * MB, 0, CU_MEM_ACCESS_FLAGS_PROT_READ));
    OK(set_access(pointer, 2 * MB, 1, CU_MEM_ACCESS_FLAGS_PROT_READ));
}

static void test_devices_differ(void **state)
{
    (void)state;
    struct child exporter = start(exports_second_device);
    given_fd = hear_fd(exporter.socket);
    run(reads_across);
    setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
    run(sees_it_as_first);
    setenv("CUDA_VISIBLE_DEVICES", "0", 1);
    run(does_not_see_it);
    unsetenv("CUDA_VISIBLE_DEVICES");
    setenv("FAKECUDA_PEER", "0", 1);
    run(cannot_read_across);
    kill_child(exporter);
    close(given_fd);
}

/* ---- fork ---- */

static void forks(int socket)
{
    (void)socket;
    begin(0);
    CUmemGenericAllocationHandle handle = create(0, 2 * MB);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int count;
        CUmemAllocationProp properties = exportable(0);
        GIVES(CUDA_ERROR_NOT_INITIALIZED, cu->cuDeviceGetCount(&count));
        GIVES(CUDA_ERROR_NOT_INITIALIZED, cu->cuInit(0));
        GIVES(CUDA_ERROR_NOT_INITIALIZED, cu->cuMemCreate(&handle, 2 * MB, &properties, 0));
        GIVES(CUDA_ERROR_NOT_INITIALIZED, cu->cuMemRelease(handle));
        OK(cu->cuDriverGetVersion(&count));
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    OK(cu->cuMemRelease(handle));
}

static void test_a_forked_child_has_no_driver(void **state)
{
    (void)state;
    run(forks);
}

static void test_refuses_strangers_test(void **state)
{
    (void)state;
    run(refuses_strangers);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_memory_outlives_its_creator),
        TEST(test_unread_messages_hold_memory),
        TEST(test_refuses_strangers_test),
        TEST(test_processes_share_one_capacity),
        TEST(test_a_context_costs_memory),
        TEST(test_every_kill_gives_all_back),
        TEST(test_legacy_handles),
        TEST(test_devices_differ),
        TEST(test_a_forked_child_has_no_driver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
