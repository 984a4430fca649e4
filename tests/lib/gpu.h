/*
 * Shared by the library's tests on GPUs: a real daemon on the fake driver, and child processes. All
 * CUDA calls are made in children, since a process that was forked from one which uses CUDA cannot
 * use it. A test's own process only gives orders.
 */
#ifndef GB_TEST_GPU_H
#define GB_TEST_GPU_H

#ifdef TEST_HIP /* else CUDA */
#define GPU0 "HIP-fa4ecada00000000"
#define GPU1 "HIP-fa4ecada00000001"
#define TEST_LIBRARY "libamdhip64.so"
#define TEST_KIND "hip"
#define TEST_DRIVER GB_HIP
#else
#define GPU0 "GPU-fa4ecada-0000-4000-8000-000000000000"
#define GPU1 "GPU-fa4ecada-0000-4000-8000-000000000001"
#define TEST_LIBRARY "libcuda.so.1"
#define TEST_KIND "cuda"
#endif

#include <dlfcn.h>

#include "fakecuda.h"
#include "harness.h"

/* In a child: the call must return `wanted`, else the child says what it returned and ends. */
#define RETURNS(wanted, client, call)                                                              \
    do {                                                                                           \
        int got_ = (call);                                                                         \
        if (got_ != (wanted)) {                                                                    \
            fprintf(stderr, "%s:%d: %s: %d instead of %s: %s\n", __FILE__, __LINE__, #call, got_,  \
                    #wanted, gpubuf_errmsg(client));                                               \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define WORKS(client, call) RETURNS(0, client, call)

/* ---- the process ---- */

/* Starts the program anew with the fake driver's directory in LD_LIBRARY_PATH, which the loader
   reads at the start only. */
static inline void need_fakecuda(char **argv)
{
    const char *build = getenv("GPUBUF_BUILD");
    char path[1024], here[512];
    ssize_t length = readlink("/proc/self/exe", here, sizeof(here) - 1);
    if (getenv("GB_TEST_FAKECUDA") || length < 0)
        return;
    here[length] = '\0';
    if (build) {
        snprintf(path, sizeof(path), "%s/fakecuda", build);
    } else { /* build/tests/lib/test_x: `build` is the variant's directory */
        for (int i = 0; i < 3; i++)
            *strrchr(here, '/') = '\0';
        snprintf(path, sizeof(path), "%s/fakecuda", here);
        setenv("GPUBUF_BUILD", here, 1);
    }
    setenv("LD_LIBRARY_PATH", path, 1);
    setenv("GB_TEST_FAKECUDA", "1", 1);
    execv("/proc/self/exe", argv);
    perror("execv");
    _exit(1);
}

static inline int gpu_set_up(void **state)
{
    static const char *const arguments[] = {"--device", TEST_KIND ":all", NULL};
    return set_up(state) == 0 ? start_daemon_with(arguments) : -1;
}

static inline int gpu_tear_down(void **state)
{
    int r = stop_daemon(state);
    return tear_down(state) == 0 ? r : -1;
}

/* ---- children ---- */

/* LeakSanitizer's, in builds that have it. */
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static void (*gpu_body)(int socket);

static inline void run_gpu_body(int socket)
{
    gpu_body(socket);
    if (__lsan_do_recoverable_leak_check)
        CHECK(__lsan_do_recoverable_leak_check() == 0);
}

/* As start, and checks at the end of `body` that nothing has leaked. */
static inline struct child start_gpu(void (*body)(int socket))
{
    gpu_body = body;
    return start(run_gpu_body);
}

static inline void run_gpu(void (*body)(int socket))
{
    ends_well(start_gpu(body));
}

/* ---- in children ---- */

static CUresult (*kernel_fill)(CUdeviceptr, unsigned char, size_t, CUstream);
static CUresult (*kernel_sum)(CUdeviceptr, size_t, uint64_t *, CUstream);
static CUresult (*hold_stream)(const int *, CUstream);
static uint64_t (*driver_calls)(const char *);

static inline void find_kernels(void)
{
    void *library = dlopen(TEST_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
    CHECK(library);
    void *symbols[] = {dlsym(library, "fakecuda_fill"), dlsym(library, "fakecuda_sum"),
                       dlsym(library, "fakecuda_wait"), dlsym(library, "fakecuda_calls")};
    CHECK(symbols[0] && symbols[1] && symbols[2] && symbols[3]);
    memcpy(&kernel_fill, &symbols[0], sizeof(void *));
    memcpy(&kernel_sum, &symbols[1], sizeof(void *));
    memcpy(&hold_stream, &symbols[2], sizeof(void *));
    memcpy(&driver_calls, &symbols[3], sizeof(void *));
}

/* How many calls of the driver the process has made, without those for its version and for the
   names of errors. */
static inline uint64_t all_driver_calls(void)
{
    uint64_t sum = 0;
#define ADD(name, suffix, version, hip, parameters) sum += driver_calls(#name);
    GB_CUDA_FUNCTION_MAP(ADD)
#undef ADD
    return sum - driver_calls("cuDriverGetVersion") - driver_calls("cuGetErrorName") -
           driver_calls("cuGetErrorString");
}

/* Lets a stream that waits for `gate` go on. */
static inline void let_go(int *gate)
{
    __atomic_store_n(gate, 1, __ATOMIC_RELEASE);
}

static inline CUstream new_stream(void)
{
    CUstream stream;
    OK(cu->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

/* A client in a child. With `cache_bytes` 1 it keeps no unused segment mapped. */
static inline struct gpubuf_client *client_with_cache(uint64_t cache_bytes)
{
    struct gpubuf_connect_options options = {.size = sizeof(options),
                                             .path = daemon_socket(),
                                             .timeout_ms = 60000,
                                             .cache_bytes = cache_bytes,
                                             .resume_ms = 60000};
    struct gpubuf_client *client = NULL;
    find_kernels();
    WORKS(NULL, gpubuf_connect(&client, &options));
    return client;
}

static inline struct gpubuf_client *new_client(void)
{
    return client_with_cache(0);
}

static inline struct gpubuf_create_options on_gpu(const char *device)
{
    return (struct gpubuf_create_options){
        .size = sizeof(struct gpubuf_create_options), .device = device, .replace = true};
}

/* Publishes an object of bytes with a pattern. */
static inline void put_pattern(struct gpubuf_client *client, const char *name, size_t bytes,
                               const char *device)
{
    struct gpubuf_create_options options = on_gpu(device);
    unsigned char *data = malloc(bytes);
    CHECK(data);
    for (size_t i = 0; i < bytes; i++)
        data[i] = PATTERN(i);
    WORKS(client, gpubuf_put_bytes(client, name, data, bytes, &options));
    free(data);
}

static inline struct gpubuf_object *open_object(struct gpubuf_client *client, const char *name)
{
    struct gpubuf_object *object = NULL;
    WORKS(client, gpubuf_open(client, name, NULL, &object));
    return object;
}

static inline struct gpubuf_object *create_bytes(struct gpubuf_client *client, const char *name,
                                                 uint64_t bytes, const char *device)
{
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = bytes};
    struct gpubuf_create_options options = on_gpu(device);
    struct gpubuf_object *object = NULL;
    WORKS(client, gpubuf_create(client, name, &layout, &options, &object));
    return object;
}

static inline CUdeviceptr address_of(const struct gpubuf_object *object, enum gpubuf_which which)
{
    struct gpubuf_memory memory;
    WORKS(NULL, gpubuf_memory(object, which, &memory));
    return (CUdeviceptr)(uintptr_t)memory.pointer;
}

/* Whether an object of bytes has the pattern, read through the library. */
static inline bool object_has_pattern(struct gpubuf_client *client,
                                      const struct gpubuf_object *object)
{
    size_t bytes = (size_t)gpubuf_length(object);
    unsigned char *data = malloc(bytes);
    CHECK(data);
    WORKS(client, gpubuf_read(object, GPUBUF_DATA, 0, data, bytes, NULL));
    bool has = true;
    for (size_t i = 0; i < bytes && has; i++)
        has = data[i] == PATTERN(i);
    free(data);
    return has;
}

/* Dispatches until the condition holds; fails after a minute. */
#define UNTIL(client, condition)                                                                   \
    do {                                                                                           \
        double until_ = now() + 60;                                                                \
        while (!(condition)) {                                                                     \
            CHECK(now() < until_);                                                                 \
            CHECK(gpubuf_dispatch(client) >= 0);                                                   \
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);                               \
        }                                                                                          \
    } while (0)

/* The daemon's answer about an object, or NULL; to be freed. */
static inline char *stat_text(struct gpubuf_client *client, const char *name)
{
    char params[300], *text = NULL;
    snprintf(params, sizeof(params), "{\"name\":\"%s\"}", name);
    return gpubuf_call(client, "stat", params, 60000, &text) == 0 ? text : NULL;
}

static inline bool is_settled(struct gpubuf_client *client, const char *name)
{
    char *text = stat_text(client, name);
    CHECK(text);
    bool settled = !strstr(text, "\"ready\"");
    gpubuf_free(text);
    return settled;
}

#define GPU_TEST(test) TEST_WITH(test, gpu_set_up, gpu_tear_down)

/* A test whose body is run in a child; the second has the daemon of the whole program. */
#define IN_CHILD(kind, test)                                                                       \
    static void child_##test(int socket);                                                          \
    kind(test)                                                                                     \
    {                                                                                              \
        run_gpu(child_##test);                                                                     \
    }                                                                                              \
    static void child_##test(int socket)
#define GPU_TEST_IN_CHILD(test) IN_CHILD(GPU_TEST, test)
#define TEST_IN_CHILD(test) IN_CHILD(TEST, test)

#define RUN_GPU_TESTS                                                                              \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        (void)argc;                                                                                \
        need_fakecuda(argv);                                                                       \
        return cmocka_run_group_tests(listed_tests, NULL, NULL);                                   \
    }

#endif
