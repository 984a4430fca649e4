/*
 * Tests' wishes to the fake driver: failures, delays, devices that are hidden or lost. And
 * loading a driver (proto/cuda.c), with the fake as the driver.
 */
#include "fakecuda.h"

#include <dlfcn.h>

/* ---- proto/cuda.c ---- */

static void loads(int socket)
{
    (void)socket;
    const struct gb_cuda *again = NULL;
    struct gb_error error = {.code = 1};
    CHECK(gb_cuda_load(&again, &error) == 0 && again == cu && error.code == 1);
    CHECK(gb_cuda_load(&again, NULL) == 0);
    CHECK(cu->driver_version == 13000);
#define IS_SET(name, suffix, version, parameters) CHECK(cu->name != NULL);
    GB_CUDA_FUNCTION_MAP(IS_SET)
#undef IS_SET
}

static void describes_failures(int socket)
{
    (void)socket;
    struct gb_error error;
    CHECK(gb_cuda_fail(&error, cu, CUDA_ERROR_OUT_OF_MEMORY, "creating a segment of %d MiB", 7) ==
          GPUBUF_E_DEVICE);
    CHECK(error.code == GPUBUF_E_DEVICE);
    CHECK(!strcmp(error.cuda, "CUDA_ERROR_OUT_OF_MEMORY"));
    CHECK(!strcmp(error.message,
                  "creating a segment of 7 MiB failed: CUDA_ERROR_OUT_OF_MEMORY (2): "
                  "out of memory"));
    CHECK(gb_cuda_fail(&error, cu, 12345, "this") == GPUBUF_E_DEVICE);
    CHECK(strstr(error.message, "this failed: ") && strstr(error.message, "(12345)"));
    CHECK(error.cuda);
    CHECK(gb_cuda_fail(NULL, cu, CUDA_ERROR_UNKNOWN, "that") == GPUBUF_E_DEVICE);
    CHECK(!strcmp(gb_cuda_error_name(cu, CUDA_SUCCESS), "CUDA_SUCCESS"));
}

/* Loads in a child, which the helpers' start() does not expect to fail. */
static void load_fails(const char *wanted)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct gb_error error = {0};
        const struct gb_cuda *table = NULL;
        CHECK(gb_cuda_load(&table, &error) == GPUBUF_E_UNSUPPORTED && !table);
        CHECK(error.code == GPUBUF_E_UNSUPPORTED);
        if (!strstr(error.message, wanted)) {
            fprintf(stderr, "\"%s\" lacks \"%s\"\n", error.message, wanted);
            _exit(1);
        }
        CHECK(gb_cuda_load(&table, NULL) == GPUBUF_E_UNSUPPORTED); /* the same again */
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_refuses_a_driver(void **state)
{
    (void)state;
    setenv("FAKECUDA_VERSION", "11030", 1);
    load_fails("too old: it speaks CUDA 11.3, and 11.4 is needed");
    unsetenv("FAKECUDA_VERSION");
    setenv("FAKECUDA_FAIL", "cuDriverGetVersion:*:34", 1);
    load_fails("stub");
    setenv("FAKECUDA_FAIL", "cuDriverGetVersion:*:999", 1);
    load_fails("(error 999)");
}

/* The driver's own look-up and the plain symbols are two ways to the same table. */
static void test_takes_either_way(void **state)
{
    (void)state;
    run(loads);
    setenv("FAKECUDA_FAIL", "cuGetProcAddress_v2:*:500,cuGetProcAddress:*:500", 1);
    run(loads);
}

static void test_describes_failures(void **state)
{
    (void)state;
    run(describes_failures);
}

/* ---- CUDA_VISIBLE_DEVICES ---- */

static const char *expected; /* the devices in order, a digit each; or '!' and an error's number */

static void sees_devices(int socket)
{
    (void)socket;
    CUresult result = cu->cuInit(0);
    int count;
    if (*expected == '!') {
        CHECK(result == (CUresult)atoi(expected + 1));
        GIVES(CUDA_ERROR_NOT_INITIALIZED, cu->cuDeviceGetCount(&count));
        return;
    }
    OK(result);
    OK(cu->cuDeviceGetCount(&count));
    CHECK(count == (int)strlen(expected));
    for (int i = 0; i < count; i++) {
        CUuuid uuid;
        CUdevice device;
        OK(cu->cuDeviceGet(&device, i));
        OK(cu->cuDeviceGetUuid(&uuid, device));
        CHECK(!memcmp(uuid.bytes, "\xfa\x4e\xca\xda\0\0\x40\0\x80\0\0\0\0\0\0", 15));
        CHECK(uuid.bytes[15] == expected[i] - '0');
    }
    CUdevice device;
    GIVES(CUDA_ERROR_INVALID_DEVICE, cu->cuDeviceGet(&device, count));
    GIVES(CUDA_ERROR_INVALID_DEVICE, cu->cuDeviceGet(&device, -1));
}

static void test_visible_devices(void **state)
{
    (void)state;
    static const struct {
        const char *visible, *expected;
    } cases[] = {
        {NULL, "012"},
        {"", "!100"},
        {"-1", "!100"},
        {"9,0", "!100"},
        {"2", "2"},
        {"2,0", "20"},
        {"1,2,0", "120"},
        {"0,9,1", "0"},
        {"0,-1,1", "0"},
        {"0,0", "!101"},
        {"00", "0"},
        {"0x", "0"},
        {"none", "!100"},
        {"GPU-fa4ecada-0000-4000-8000-000000000001", "1"},
        {"GPU-fa4ecada-0000-4000-8000-000000000002,0", "20"},
        {"GPU-fa4ecada", "!100"}, /* the start of more than one */
        {"GPU-00000000-0000-0000-0000-000000000000", "!100"},
        {"MIG-fa4e0319-0000-4000-8000-000000000002", "2"},
    };
    setenv("FAKECUDA_DEVICES", "3", 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        if (cases[i].visible)
            setenv("CUDA_VISIBLE_DEVICES", cases[i].visible, 1);
        expected = cases[i].expected;
        print_message("CUDA_VISIBLE_DEVICES=%s\n", cases[i].visible ? cases[i].visible : "(unset)");
        run(sees_devices);
    }
}

static void describes_devices(int socket)
{
    (void)socket;
    char name[64], bus[32], other[32];
    size_t bytes;
    int value;
    OK(cu->cuInit(0));
    OK(cu->cuDeviceGetName(name, sizeof(name), 0));
    CHECK(!strcmp(name, "Something"));
    OK(cu->cuDeviceGetName(name, 4, 0));
    CHECK(!strcmp(name, "Som"));
    OK(cu->cuDeviceTotalMem(&bytes, 1));
    CHECK(bytes == (size_t)3 << 30);
    OK(cu->cuDeviceGetPCIBusId(bus, sizeof(bus), 0));
    OK(cu->cuDeviceGetPCIBusId(other, sizeof(other), 1));
    CHECK(strcmp(bus, other) != 0);
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuDeviceGetPCIBusId(bus, 4, 0));
    CUdevice_attribute fd = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
    OK(cu->cuDeviceGetAttribute(&value, fd, 0));
    CHECK(value == 0);
    OK(cu->cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
                                0));
    CHECK(value == 1);
    GIVES(CUDA_ERROR_INVALID_VALUE, cu->cuDeviceGetAttribute(&value, 9999, 0));
    GIVES(CUDA_ERROR_INVALID_DEVICE, cu->cuDeviceGetAttribute(&value, fd, 9));
    OK(cu->cuDeviceCanAccessPeer(&value, 0, 1));
    CHECK(value == 1);
    OK(cu->cuDeviceCanAccessPeer(&value, 0, 0));
    CHECK(value == 0);
}

static void test_device_settings(void **state)
{
    (void)state;
    setenv("FAKECUDA_NAME", "Something", 1);
    setenv("FAKECUDA_MEMORY", "3G", 1);
    setenv("FAKECUDA_ATTRIBUTE", "103:0", 1);
    run(describes_devices);
}

/* ---- failures on demand ---- */

static void fails_as_told(int socket)
{
    (void)socket;
    CUmemAllocationProp properties = exportable(0);
    CUmemGenericAllocationHandle handle, kept;
    CUdeviceptr pointer;
    GIVES(CUDA_ERROR_UNKNOWN, cu->cuInit(0));
    GIVES(CUDA_ERROR_UNKNOWN, cu->cuInit(0));
    OK(cu->cuInit(0)); /* the driver was not ready before */
    OK(cu->cuMemCreate(&kept, 2 * MB, &properties, 0));
    OK(cu->cuMemCreate(&handle, 2 * MB, &properties, 0));
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cu->cuMemCreate(&handle, 2 * MB, &properties, 0));
    OK(cu->cuMemCreate(&handle, 2 * MB, &properties, 0));
    OK(cu->cuMemAddressReserve(&pointer, 2 * MB, 0, 0, 0));
    for (int i = 0; i < 5; i++)
        GIVES(CUDA_ERROR_NOT_PERMITTED, cu->cuMemMap(pointer, 2 * MB, 0, kept, 0));
    OK(cu->cuMemAddressFree(pointer, 2 * MB)); /* nothing is half done */
}

static char switch_path[128];

static void fails_while_switched(int socket)
{
    CUdeviceptr pointer;
    begin(0);
    OK(cu->cuMemAlloc(&pointer, 4096));
    step(socket);
    await(socket);
    GIVES(CUDA_ERROR_OUT_OF_MEMORY, cu->cuMemAlloc(&pointer, 4096));
    step(socket);
    await(socket);
    OK(cu->cuMemAlloc(&pointer, 4096));
}

static void make_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void test_failures(void **state)
{
    (void)state;
    setenv("FAKECUDA_FAIL", "cuInit:1-2:999,cuMemCreate:3:2,cuMemMap:*:800", 1);
    run(fails_as_told);

    char rule[192];
    snprintf(switch_path, sizeof(switch_path), "%s/switch", devices_directory);
    snprintf(rule, sizeof(rule), "cuMemAlloc:*:2@%s", switch_path);
    setenv("FAKECUDA_FAIL", rule, 1);
    struct child child = start(fails_while_switched);
    await(child.socket);
    make_file(switch_path);
    step(child.socket);
    await(child.socket);
    assert_int_equal(unlink(switch_path), 0);
    step(child.socket);
    ends_well(child);
}

static void is_slow(int socket)
{
    (void)socket;
    OK(cu->cuInit(0));
    double start = now();
    create(0, 2 * MB);
    CHECK(now() - start >= 0.05);
}

static void test_delays(void **state)
{
    (void)state;
    setenv("FAKECUDA_DELAY", "cuMemCreate:50", 1);
    run(is_slow);
}

static void loses_a_device(int socket)
{
    unsigned char byte;
    CUdevice device;
    CUdeviceptr pointer;
    CUcontext other;
    CUmemAllocationProp properties = exportable(1);
    CUmemGenericAllocationHandle handle;
    begin(1);
    OK(cu->cuMemAlloc(&pointer, 4096));
    CUmemGenericAllocationHandle held = create(1, 2 * MB);
    step(socket);
    await(socket);
    GIVES(CUDA_ERROR_LAUNCH_FAILED, cu->cuDeviceGet(&device, 1));
    GIVES(CUDA_ERROR_LAUNCH_FAILED, cu->cuMemCreate(&handle, 2 * MB, &properties, 0));
    GIVES(CUDA_ERROR_LAUNCH_FAILED, cu->cuMemcpyDtoH(&byte, pointer, 1));
    GIVES(CUDA_ERROR_LAUNCH_FAILED, cu->cuCtxSynchronize());
    GIVES(CUDA_ERROR_LAUNCH_FAILED, cu->cuDevicePrimaryCtxRetain(&other, 1));
    int fd;
    GIVES(CUDA_ERROR_LAUNCH_FAILED,
          cu->cuMemExportToShareableHandle(&fd, held, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    OK(cu->cuMemRelease(held)); /* giving back works */
    /* The other device goes on. */
    OK(cu->cuDeviceGet(&device, 0));
    OK(cu->cuMemRelease(create(0, 2 * MB)));
    OK(cu->cuDevicePrimaryCtxRetain(&other, 0));
    OK(cu->cuCtxPushCurrent(other));
    OK(cu->cuCtxSynchronize());
}

static void test_lost_devices(void **state)
{
    (void)state;
    char rule[192];
    snprintf(switch_path, sizeof(switch_path), "%s/lost", devices_directory);
    snprintf(rule, sizeof(rule), "1:%s:719", switch_path);
    setenv("FAKECUDA_LOST", rule, 1);
    struct child child = start(loses_a_device);
    await(child.socket);
    make_file(switch_path);
    step(child.socket);
    ends_well(child);
}

/* ---- what was called ---- */

static void is_counted(int socket)
{
    (void)socket;
    OK(cu->cuInit(0));
    OK(cu->cuMemRelease(create(0, 2 * MB)));
    OK(cu->cuMemRelease(create(0, 2 * MB)));
    uint64_t (*calls)(const char *);
    void *symbol = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), "fakecuda_calls");
    CHECK(symbol);
    memcpy(&calls, &symbol, sizeof(symbol));
    CHECK(calls("cuMemCreate") == 2 && calls("cuMemRelease") == 2 && calls("cuMemMap") == 0);
}

static void test_calls_are_counted(void **state)
{
    (void)state;
    char path[128], line[128];
    snprintf(path, sizeof(path), "%s/trace", devices_directory);
    setenv("FAKECUDA_TRACE", path, 1);
    run(is_counted);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    int created = 0;
    while (fgets(line, sizeof(line), file))
        created += strstr(line, " cuMemCreate\n") != NULL;
    fclose(file);
    assert_int_equal(created, 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_takes_either_way), TEST(test_refuses_a_driver), TEST(test_describes_failures),
        TEST(test_visible_devices),  TEST(test_device_settings),  TEST(test_failures),
        TEST(test_delays),           TEST(test_lost_devices),     TEST(test_calls_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
