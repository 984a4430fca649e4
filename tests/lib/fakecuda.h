/*
 * Children of a test that use the fake driver. CUDA cannot be used after fork(), so all calls of it
 * are made in children that are forked before; the test's own process only gives orders and
 * watches. A child that finds something wrong says so and exits with 1.
 */
#ifndef GB_TEST_FAKECUDA_H
#define GB_TEST_FAKECUDA_H

#include "tests/cases.h"

#include "proto/driver/cuda.h"
#include "tests/fakecuda/fakecuda.h"

#define MB ((size_t)1 << 20)

#ifndef TEST_DRIVER
#define TEST_DRIVER GB_CUDA
#endif

/* In a child: the driver's functions. */
static const struct gb_cuda *cu;

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* The call must return `wanted`. */
#define GIVES(wanted, call)                                                                        \
    do {                                                                                           \
        CUresult got_ = (call);                                                                    \
        if (got_ != (wanted)) {                                                                    \
            fprintf(stderr, "%s:%d: %s: %s instead of %s\n", __FILE__, __LINE__, #call,            \
                    gb_cuda_error_name(cu, got_), #wanted);                                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define OK(call) GIVES(CUDA_SUCCESS, call)

/* ---- a directory of devices of its own, and an environment, for each test ---- */

static char devices_directory[64];

static inline void clear_environment(void)
{
    static const char *const names[] = {
        "FAKECUDA_DEVICES", "FAKECUDA_MEMORY", "FAKECUDA_CONTEXT",      "FAKECUDA_VERSION",
        "FAKECUDA_PEER",    "FAKECUDA_MIG",    "FAKECUDA_STREAM_DELAY", "FAKECUDA_NAME",
        "FAKECUDA_FAIL",    "FAKECUDA_DELAY",  "FAKECUDA_LOST",         "FAKECUDA_ATTRIBUTE",
        "FAKECUDA_POINTER", "FAKECUDA_TRACE",  "CUDA_VISIBLE_DEVICES",
    };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        unsetenv(names[i]);
}

static inline int set_up(void **state)
{
    clear_environment();
    strcpy(devices_directory, "/dev/shm/fakecuda-test-XXXXXX");
    if (!mkdtemp(devices_directory)) {
        strcpy(devices_directory, "/tmp/fakecuda-test-XXXXXX");
        if (!mkdtemp(devices_directory))
            return -1;
    }
    return setenv("FAKECUDA_DIR", devices_directory, 1);
}

static inline int tear_down(void **state)
{
    clear_environment();
    char command[96];
    snprintf(command, sizeof(command), "rm -rf %s", devices_directory);
    return system(command);
}

/* ---- children ---- */

struct child {
    pid_t pid;
    int socket; /* to the child's own */
};

static inline struct child start(void (*body)(int socket))
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(pair[0]);
        alarm(120);
        struct gb_error error;
        if (gb_cuda_load(TEST_DRIVER, &cu, &error) < 0) {
            fprintf(stderr, "%s\n", error.message);
            _exit(1);
        }
        body(pair[1]);
        _exit(0);
    }
    close(pair[1]);
    return (struct child){.pid = pid, .socket = pair[0]};
}

static inline void ends_well(struct child child)
{
    int status;
    close(child.socket);
    assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
    assert_int_equal(status, 0);
}

/* Ends a child by kill -9 and waits until it is gone. */
static inline void kill_child(struct child child)
{
    int status;
    assert_int_equal(kill(child.pid, SIGKILL), 0);
    assert_int_equal(waitpid(child.pid, &status, 0), child.pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    close(child.socket);
}

static inline void run(void (*body)(int socket))
{
    ends_well(start(body));
}

/* Messages between a test and its child, for both sides. They end the calling process if the other
   one is gone. */

static inline void tell(int socket, const void *bytes, size_t size)
{
    if (send(socket, bytes, size, MSG_NOSIGNAL) != (ssize_t)size) {
        fprintf(stderr, "the other process is gone (send)\n");
        _exit(1);
    }
}

static inline void hear(int socket, void *bytes, size_t size)
{
    if (recv(socket, bytes, size, MSG_WAITALL) != (ssize_t)size) {
        fprintf(stderr, "the other process is gone (receive)\n");
        _exit(1);
    }
}

static inline void step(int socket)
{
    tell(socket, "s", 1);
}

static inline void await(int socket)
{
    char byte;
    hear(socket, &byte, 1);
}

/* For a child that is to be killed: waits until it is. */
static inline void __attribute__((noreturn)) stay(int socket)
{
    step(socket);
    char byte;
    while (recv(socket, &byte, 1, 0) > 0)
        continue;
    _exit(0);
}

/* ---- in children ---- */

static inline double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Calls cuInit and makes a device's context current. */
static inline void begin(int device)
{
    CUcontext context;
    OK(cu->cuInit(0));
    OK(cu->cuDevicePrimaryCtxRetain(&context, device));
    OK(cu->cuCtxPushCurrent(context));
}

static inline CUmemAllocationProp exportable(int device)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
    };
}

static inline CUmemGenericAllocationHandle create(int device, size_t bytes)
{
    CUmemAllocationProp properties = exportable(device);
    CUmemGenericAllocationHandle handle;
    OK(cu->cuMemCreate(&handle, bytes, &properties, 0));
    return handle;
}

/* Maps all of an allocation at addresses of its own. */
static inline CUdeviceptr map(CUmemGenericAllocationHandle handle, size_t bytes, int device,
                              unsigned int flags)
{
    CUdeviceptr pointer;
    OK(cu->cuMemAddressReserve(&pointer, bytes, 0, 0, 0));
    OK(cu->cuMemMap(pointer, bytes, 0, handle, 0));
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
    OK(cu->cuMemSetAccess(pointer, bytes, &access, 1));
    return pointer;
}

static inline void unmap(CUdeviceptr pointer, size_t bytes)
{
    OK(cu->cuMemUnmap(pointer, bytes));
    OK(cu->cuMemAddressFree(pointer, bytes));
}

static inline unsigned char *host(CUdeviceptr pointer)
{
    return (unsigned char *)(uintptr_t)pointer;
}

static inline size_t free_memory(void)
{
    size_t available, total;
    OK(cu->cuMemGetInfo(&available, &total));
    return available;
}

#define PATTERN(i) ((unsigned char)((i)*7 + 3))

static inline void fill_pattern(CUdeviceptr pointer, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 97)
        host(pointer)[i] = PATTERN(i);
}

/* ---- in the test's process ---- */

static inline void report_free(int socket)
{
    int device;
    hear(socket, &device, sizeof(device));
    begin(device);
    size_t bytes = free_memory();
    tell(socket, &bytes, sizeof(bytes));
}

/* The free bytes that a fresh process finds on a device, its own context taken off. */
static inline size_t free_on(int device)
{
    size_t bytes;
    struct child child = start(report_free);
    tell(child.socket, &device, sizeof(device));
    hear(child.socket, &bytes, sizeof(bytes));
    ends_well(child);
    return bytes;
}

#endif
