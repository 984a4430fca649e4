/*
 * The timed parts of `make gpu-bench`, over libgpubuf as any program would use it. Run by bench.py,
 * each in a process of its own, which says where the daemon is, reads the lines of JSON that come
 * out, and holds them against each other:
 *
 *   bench make SOCKET PREFIX COUNT BYTES       publishes PREFIX/0 …: create + seal, each
 *   bench open SOCKET PREFIX COUNT             opens them in one call, cold
 *   bench lend COUNT BYTES                     own memory; its legacy handles; until input ends
 *   bench borrow                               opens the handles that it reads
 *   bench create SOCKET BYTES ROUNDS           create + seal
 *   bench put SOCKET BYTES ROUNDS              put from device memory, and a plain copy
 *   bench kernel SOCKET NAME CUBIN ROUNDS      a reduction over an object and over own memory
 *   bench produce SOCKET BYTES ROUNDS          one side of a hand-over,
 *   bench consume SOCKET BYTES ROUNDS          and the other
 *   bench send FILE BYTES                      the same by way of host memory
 *   bench receive FILE BYTES
 *
 * Times are microseconds; moments are of CLOCK_MONOTONIC, which all processes share.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpubuf.h"
#include "proto/driver/cuda.h"
#include "tests/bench/measure.h"

static const struct gb_cuda *cuda;

#define DRIVER(function, ...) driver(cuda->function(__VA_ARGS__), #function)

static void driver(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS)
        die("%s: %s", what, gb_cuda_error_name(cuda, result));
}

static double microseconds(void)
{
    return now() * 1e6;
}

/* A context, so that what is measured later does not pay for it. */
static void start_cuda(void)
{
    struct gb_error error;
    CUcontext context;
    CUdeviceptr pointer;

    if (gb_cuda_load(GB_CUDA, &cuda, &error) < 0)
        die("%s", error.message);
    DRIVER(cuInit, 0);
    DRIVER(cuDevicePrimaryCtxRetain, &context, 0);
    DRIVER(cuCtxPushCurrent, context);
    DRIVER(cuMemAlloc, &pointer, 4096);
    DRIVER(cuMemFree, pointer);
}

static struct gpubuf_client *start(const char *socket)
{
    struct gpubuf_connect_options options = {.size = sizeof(options),
                                             .path = socket,
                                             .client_name = "gpu-bench",
                                             .cache_bytes = (uint64_t)64 << 30};
    struct gpubuf_client *client;

    start_cuda();
    check(NULL, gpubuf_connect(&client, &options), "connecting");
    return client;
}

static uint64_t number(const char *text)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);

    if (*text == '\0' || *end != '\0')
        die("%s is no number", text);
    return value;
}

static CUdeviceptr allocate_device(uint64_t bytes)
{
    CUdeviceptr pointer;

    DRIVER(cuMemAlloc, &pointer, bytes);
    return pointer;
}

static void await_go(void)
{
    if (getchar() == EOF)
        exit(0);
}

/* ---- objects ---- */

static struct gpubuf_object *create(struct gpubuf_client *client, const char *name, uint64_t bytes,
                                    bool replace)
{
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = bytes};
    struct gpubuf_create_options options = {.size = sizeof(options), .replace = replace};
    struct gpubuf_object *object;

    check(client, gpubuf_create(client, name, &layout, &options, &object), "create");
    return object;
}

static CUdeviceptr address(const struct gpubuf_object *object)
{
    struct gpubuf_memory memory;

    if (gpubuf_memory(object, GPUBUF_DATA, &memory) != 0)
        die("gpubuf_memory: %s", gpubuf_object_errmsg(object));
    return (CUdeviceptr)(uintptr_t)memory.pointer;
}

static void fill(CUdeviceptr pointer, unsigned char value, uint64_t bytes)
{
    DRIVER(cuMemsetD8Async, pointer, value, bytes, NULL);
    DRIVER(cuCtxSynchronize);
}

static void make(char **arguments)
{
    struct gpubuf_client *client = start(arguments[0]);
    uint64_t count = number(arguments[2]), bytes = number(arguments[3]);
    char name[NAME_BYTES];
    double taken = 0;

    for (uint64_t i = 0; i < count; i++) {
        struct gpubuf_object *object;
        double begun = microseconds();

        snprintf(name, sizeof(name), "%s/%" PRIu64, arguments[1], i);
        object = create(client, name, bytes, false);
        taken += microseconds() - begun;
        fill(address(object), (unsigned char)(i + 1), bytes);
        begun = microseconds();
        check(client, gpubuf_seal(object, NULL), "seal");
        taken += microseconds() - begun;
        gpubuf_release(object);
    }
    printf("{\"each\":%.3f}\n", taken / (double)count);
    gpubuf_disconnect(client);
}

/* ---- opening many ---- */

static double open_once(struct gpubuf_client *client, const char *const *names, size_t count,
                        struct gpubuf_object **objects)
{
    double begun = microseconds();
    int opened = check(client, gpubuf_open_many(client, names, count, NULL, objects, NULL), "open");
    double taken = microseconds() - begun;

    if ((size_t)opened != count)
        die("%d of %zu were opened", opened, count);
    return taken / (double)count;
}

static const char **names_of(const char *prefix, size_t count)
{
    const char **names = allocate(count, sizeof(*names));

    for (size_t i = 0; i < count; i++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof(name), "%s/%zu", prefix, i);
        names[i] = strdup(name);
        if (!names[i])
            die("out of memory");
    }
    return names;
}

static void open_many(char **arguments)
{
    struct gpubuf_client *client = start(arguments[0]);
    size_t count = number(arguments[2]);
    const char **names = names_of(arguments[1], count);
    struct gpubuf_object **objects = allocate(count, sizeof(struct gpubuf_object *));
    double cold;
    unsigned char last;

    cold = open_once(client, names, count, objects);
    DRIVER(cuMemcpyDtoH, &last, address(objects[count - 1]), 1);
    if (last != (unsigned char)count)
        die("the last object holds %u", last);
    printf("{\"cold\":%.3f}\n", cold);
}

/* A line when it is ready, beside others that do the same; once told to go another: since when it
   opened, and when it had all. */
static void open_together(char **arguments)
{
    struct gpubuf_client *client = start(arguments[0]);
    size_t count = number(arguments[2]);
    const char **names = names_of(arguments[1], count);
    struct gpubuf_object **objects = allocate(count, sizeof(struct gpubuf_object *));
    unsigned char last;
    double begun;

    printf("{}\n");
    fflush(stdout);
    await_go();
    begun = microseconds();
    open_once(client, names, count, objects);
    printf("{\"begun\":%.3f,\"opened\":%.3f}\n", begun, microseconds());
    DRIVER(cuMemcpyDtoH, &last, address(objects[count - 1]), 1);
    if (last != (unsigned char)count)
        die("the last object holds %u", last);
    fflush(stdout);
    await_go(); /* and keeps them until all are done */
}

/* ---- the same with legacy handles ---- */

static void lend(char **arguments)
{
    uint64_t count = number(arguments[0]), bytes = number(arguments[1]);

    start_cuda();
    for (uint64_t i = 0; i < count; i++) {
        CUipcMemHandle handle;
        DRIVER(cuIpcGetMemHandle, &handle, allocate_device(bytes));
        for (size_t k = 0; k < sizeof(handle); k++)
            printf("%02x", (unsigned char)handle.reserved[k]);
        putchar('\n');
    }
    fflush(stdout);
    while (getchar() != EOF)
        continue;
}

static void borrow(char **arguments)
{
    char line[2 * sizeof(CUipcMemHandle) + 2];
    CUipcMemHandle *handles = NULL;
    size_t count = 0;
    double begun;

    (void)arguments;
    start_cuda();
    while (fgets(line, sizeof(line), stdin)) {
        handles = realloc(handles, (count + 1) * sizeof(*handles));
        if (!handles)
            die("out of memory");
        for (size_t k = 0; k < sizeof(*handles); k++) {
            unsigned octet;
            if (sscanf(line + 2 * k, "%2x", &octet) != 1)
                die("not a handle: %s", line);
            handles[count].reserved[k] = (char)octet;
        }
        count++;
    }
    begun = microseconds();
    for (size_t i = 0; i < count; i++) {
        CUdeviceptr pointer;
        DRIVER(cuIpcOpenMemHandle, &pointer, handles[i], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    }
    printf("{\"cold\":%.3f}\n", (microseconds() - begun) / (double)count);
    free(handles);
}

/* ---- publishing ---- */

static void create_and_seal(char **arguments)
{
    struct gpubuf_client *client = start(arguments[0]);
    uint64_t bytes = number(arguments[1]), rounds = number(arguments[2]);
    struct series taken = {0};

    for (uint64_t i = 0; i < rounds + 10; i++) { /* ten to warm up */
        double begun = microseconds();
        struct gpubuf_object *object = create(client, "created", bytes, true);
        check(client, gpubuf_seal(object, NULL), "seal");
        if (i >= 10)
            series_add(&taken, microseconds() - begun);
        gpubuf_release(object);
    }
    print_row(&(struct row){.id = "create_seal", .unit = "us", .measured = &taken});
    check(client, gpubuf_delete(client, "created"), "delete");
    gpubuf_disconnect(client);
}

static double rate(uint64_t bytes, double taken)
{
    return (double)bytes / taken / 1e3; /* GB/s */
}

static double plain_copy(CUdeviceptr target, CUdeviceptr source, uint64_t bytes)
{
    double begun = microseconds();

    DRIVER(cuMemcpyDtoD, target, source, bytes);
    DRIVER(cuCtxSynchronize);
    return rate(bytes, microseconds() - begun);
}

static double put_once(struct gpubuf_client *client, CUdeviceptr source, uint64_t bytes)
{
    struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
    double begun = microseconds();

    check(client, gpubuf_put_bytes(client, "put", (const void *)(uintptr_t)source, bytes, &options),
          "put");
    return rate(bytes, microseconds() - begun);
}

static void put(char **arguments)
{
    struct gpubuf_client *client = start(arguments[0]);
    uint64_t bytes = number(arguments[1]), rounds = number(arguments[2]);
    CUdeviceptr source = allocate_device(bytes), target = allocate_device(bytes);
    struct compared compared = {0};
    char id[64], note[64];
    double first;

    fill(source, 0x5a, bytes);
    plain_copy(target, source, bytes);
    first = put_once(client, source, bytes);
    put_once(client, source, bytes); /* there are two versions at a time: now both have memory */
    for (uint64_t i = 0; i < rounds; i++) {
        double plain = plain_copy(target, source, bytes), ours = put_once(client, source, bytes);
        compared_add(&compared, ours, plain, ours / plain);
    }
    snprintf(id, sizeof(id), "put.%" PRIu64 "mib", bytes >> 20);
    snprintf(note, sizeof(note), "into fresh memory %.3g GB/s", first);
    print_compared(id, "GB/s", &compared, note);
    check(client, gpubuf_delete(client, "put"), "delete");
    gpubuf_disconnect(client);
}

/* ---- moving to the host tier and back ---- */

enum { AT_ONCE = 8 };

static void count_answer(struct gpubuf_client *client, int status, const char *result,
                         size_t length, void *arg)
{
    (void)result;
    (void)length;
    if (status < 0)
        die("moving: %s", gpubuf_errmsg(client));
    --*(unsigned *)arg;
}

/* Asks for all of them, and waits until the last is done. */
static double move_rate(struct gpubuf_client *client, const char *tier, uint64_t bytes)
{
    double begun = microseconds();
    unsigned left = AT_ONCE;
    char params[64];

    for (unsigned i = 0; i < AT_ONCE; i++) {
        snprintf(params, sizeof(params), "{\"name\":\"move/%u\",\"tier\":\"%s\"}", i, tier);
        check(client, gpubuf_call_async(client, "move", params, count_answer, &left, NULL), "move");
    }
    while (left > 0) {
        struct pollfd socket = {.fd = gpubuf_fd(client), .events = (short)gpubuf_events(client)};

        poll(&socket, 1, -1);
        check(client, gpubuf_dispatch(client), "dispatch");
    }
    return rate(bytes * AT_ONCE, microseconds() - begun);
}

static double pinned_copy(void *pinned, CUdeviceptr pointer, uint64_t bytes, bool out)
{
    double begun = microseconds();

    for (unsigned i = 0; i < AT_ONCE; i++) {
        if (out)
            DRIVER(cuMemcpyDtoHAsync, pinned, pointer, bytes, NULL);
        else
            DRIVER(cuMemcpyHtoDAsync, pointer, pinned, bytes, NULL);
        DRIVER(cuCtxSynchronize);
    }
    return rate(bytes * AT_ONCE, microseconds() - begun);
}

static void print_moves(const char *what, uint64_t bytes, const struct compared *compared)
{
    char id[64];

    snprintf(id, sizeof(id), "%s.%" PRIu64 "mib", what, bytes >> 20);
    print_compared(id, "GB/s", compared, NULL);
}

/* Spilled content was never copied below before: new versions in every round. */
static void move(char **arguments)
{
    struct gpubuf_client *client = start(arguments[0]);
    uint64_t bytes = number(arguments[1]), rounds = number(arguments[2]);
    CUdeviceptr source = allocate_device(bytes);
    struct compared out = {0}, in = {0};
    void *pinned;

    DRIVER(cuMemHostAlloc, &pinned, bytes, 0);
    fill(source, 0x5a, bytes);
    for (uint64_t i = 0; i < rounds + 3; i++) { /* the first ones pin the tier's memory */
        struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
        double out_plain, in_plain, spilled, restored;
        char name[NAME_BYTES];

        for (unsigned j = 0; j < AT_ONCE; j++) {
            snprintf(name, sizeof(name), "move/%u", j);
            check(client,
                  gpubuf_put_bytes(client, name, (const void *)(uintptr_t)source, bytes, &options),
                  "put");
        }
        out_plain = pinned_copy(pinned, source, bytes, true);
        spilled = move_rate(client, "host", bytes);
        in_plain = pinned_copy(pinned, source, bytes, false);
        restored = move_rate(client, "device", bytes);
        if (i < 3)
            continue;
        compared_add(&out, spilled, out_plain, spilled / out_plain);
        compared_add(&in, restored, in_plain, restored / in_plain);
    }
    print_moves("spill", bytes, &out);
    print_moves("restore", bytes, &in);
    DRIVER(cuMemFreeHost, pinned);
    for (unsigned j = 0; j < AT_ONCE; j++) {
        char name[NAME_BYTES];

        snprintf(name, sizeof(name), "move/%u", j);
        check(client, gpubuf_delete(client, name), "delete");
    }
    gpubuf_disconnect(client);
}

/* Opens and releases one object, that is mapped, until told to stop; the time of each. */
static void reopen(char **arguments)
{
    struct gpubuf_client *client = start(arguments[0]);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    struct series taken = {0};

    for (uint64_t i = 0; poll(&input, 1, 0) == 0; i++) {
        double begun = microseconds();
        struct gpubuf_object *object;

        check(client, gpubuf_open(client, arguments[1], NULL, &object), "open");
        gpubuf_release(object);
        if (i >= 100)
            series_add(&taken, microseconds() - begun);
        if (i == 100) {
            puts("{\"ready\":true}");
            fflush(stdout);
        }
    }
    print_row(&(struct row){.id = "reopen", .unit = "us", .measured = &taken});
    gpubuf_disconnect(client);
}

/* ---- a kernel ---- */

struct kernels { /* what the table of proto/driver/cuda.h has no need of */
    CUresult (*load)(void **module, const void *image);
    CUresult (*find)(void **function, void *module, const char *name);
    CUresult (*launch)(void *function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                       unsigned, CUstream stream, void **parameters, void **extra);
    CUresult (*elapsed)(float *milliseconds, CUevent from, CUevent to);
    void *reduce;
    CUevent from, to;
    CUdeviceptr result;
};

static void find_symbol(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);

    if (!found)
        die("libcuda.so.1 lacks %s", name);
    memcpy(function, &found, sizeof(found));
}

static void load_kernels(struct kernels *kernels, const char *path)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *module;
    FILE *file = fopen(path, "rbe");
    char *image = allocate(1, 16 << 20);

    if (!library || !file || fread(image, 1, (16 << 20) - 1, file) == 0)
        die("cannot read %s", path);
    fclose(file);
    find_symbol(library, "cuModuleLoadData", &kernels->load);
    find_symbol(library, "cuModuleGetFunction", &kernels->find);
    find_symbol(library, "cuLaunchKernel", &kernels->launch);
    find_symbol(library, "cuEventElapsedTime", &kernels->elapsed);
    driver(kernels->load(&module, image), "cuModuleLoadData");
    driver(kernels->find(&kernels->reduce, module, "reduce"), "cuModuleGetFunction");
    DRIVER(cuEventCreate, &kernels->from, CU_EVENT_DEFAULT);
    DRIVER(cuEventCreate, &kernels->to, CU_EVENT_DEFAULT);
    kernels->result = allocate_device(8);
    free(image);
}

/* GB/s of one reduction; *sum is what it found. */
static double reduce(struct kernels *kernels, CUdeviceptr source, uint64_t bytes, uint64_t *sum)
{
    void *parameters[] = {&source, &bytes, &kernels->result};
    float milliseconds;

    DRIVER(cuMemsetD8Async, kernels->result, 0, 8, NULL);
    DRIVER(cuEventRecord, kernels->from, NULL);
    driver(kernels->launch(kernels->reduce, 132 * 8, 1, 1, 256, 1, 1, 0, NULL, parameters, NULL),
           "cuLaunchKernel");
    DRIVER(cuEventRecord, kernels->to, NULL);
    DRIVER(cuEventSynchronize, kernels->to);
    driver(kernels->elapsed(&milliseconds, kernels->from, kernels->to), "cuEventElapsedTime");
    DRIVER(cuMemcpyDtoH, sum, kernels->result, 8);
    return rate(bytes, (double)milliseconds * 1e3);
}

static void kernel(char **arguments)
{
    struct gpubuf_client *client = start(arguments[0]);
    struct compared compared = {0};
    struct kernels kernels;
    struct gpubuf_object *object;
    uint64_t bytes, rounds = number(arguments[3]);
    CUdeviceptr shared, own;

    load_kernels(&kernels, arguments[2]);
    check(client, gpubuf_open(client, arguments[1], NULL, &object), "open");
    bytes = gpubuf_length(object);
    shared = address(object);
    own = allocate_device(bytes);
    DRIVER(cuMemcpyDtoD, own, shared, bytes);
    for (uint64_t i = 0; i < rounds + 3; i++) { /* three to warm up */
        uint64_t one, other;
        double mine = reduce(&kernels, own, bytes, &one);
        double ours = reduce(&kernels, shared, bytes, &other);
        if (one != other)
            die("the kernel found %" PRIu64 " and %" PRIu64, one, other);
        if (i < 3)
            continue;
        compared_add(&compared, ours, mine, ours / mine);
    }
    print_compared("kernel", "GB/s", &compared, NULL);
    gpubuf_release(object);
    gpubuf_disconnect(client);
}

/* ---- handing over ---- */

/* Every round has memory that its reader has never mapped. A line for each round: the moment before
   the seal. */
static void produce(char **arguments)
{
    struct gpubuf_client *client = start(arguments[0]);
    uint64_t bytes = number(arguments[1]), rounds = number(arguments[2]);

    for (uint64_t i = 0; i < rounds; i++) {
        char name[NAME_BYTES];
        struct gpubuf_object *object;
        double begun;
        snprintf(name, sizeof(name), "handed/%" PRIu64, i);
        object = create(client, name, bytes, false);
        fill(address(object), (unsigned char)(i + 1), bytes);
        await_go(); /* the other side waits by now */
        begun = microseconds();
        check(client, gpubuf_seal(object, NULL), "seal");
        printf("{\"begun\":%.3f}\n", begun);
        fflush(stdout);
        gpubuf_release(object);
    }
    gpubuf_disconnect(client);
}

/* A line before each round, and one after it: when a byte of the object had been read. */
static void consume(char **arguments)
{
    struct gpubuf_client *client = start(arguments[0]);
    uint64_t bytes = number(arguments[1]), rounds = number(arguments[2]);
    struct gpubuf_open_options options = {.size = sizeof(options), .wait_ms = 20000};

    for (uint64_t i = 0; i < rounds; i++) {
        char name[NAME_BYTES];
        struct gpubuf_object *object;
        unsigned char byte;
        snprintf(name, sizeof(name), "handed/%" PRIu64, i);
        printf("{}\n");
        fflush(stdout);
        check(client, gpubuf_open(client, name, &options, &object), "open");
        DRIVER(cuMemcpyDtoH, &byte, address(object) + bytes - 1, 1);
        printf("{\"used\":%.3f}\n", microseconds());
        fflush(stdout);
        if (byte != (unsigned char)(i + 1))
            die("round %" PRIu64 ": found %u", i, byte);
        gpubuf_release(object);
    }
    gpubuf_disconnect(client);
}

/* ---- by way of host memory ---- */

struct box { /* at the front of the file */
    _Atomic uint64_t full;
    char padding[4088];
};

static struct box *open_box(char **arguments, uint64_t *bytes, CUdeviceptr *memory)
{
    int fd = open(arguments[0], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct box *box = MAP_FAILED;

    *bytes = number(arguments[1]);
    if (fd >= 0 && ftruncate(fd, (off_t)(sizeof(*box) + *bytes)) == 0)
        box = mmap(NULL, sizeof(*box) + *bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (box == MAP_FAILED)
        die("cannot map %s", arguments[0]);
    start_cuda();
    *memory = allocate_device(*bytes);
    return box;
}

static void send_box(char **arguments)
{
    uint64_t bytes;
    CUdeviceptr memory;
    struct box *box = open_box(arguments, &bytes, &memory);
    double begun;

    fill(memory, 0x77, bytes);
    await_go();
    begun = microseconds();
    DRIVER(cuMemcpyDtoH, box + 1, memory, bytes);
    atomic_store(&box->full, 1);
    printf("{\"begun\":%.3f}\n", begun);
}

static void receive_box(char **arguments)
{
    uint64_t bytes;
    CUdeviceptr memory;
    struct box *box = open_box(arguments, &bytes, &memory);
    unsigned char byte;
    double used;

    printf("{}\n");
    fflush(stdout);
    while (!atomic_load(&box->full))
        sched_yield();
    DRIVER(cuMemcpyHtoD, memory, box + 1, bytes);
    DRIVER(cuMemcpyDtoH, &byte, memory + bytes - 1, 1);
    used = microseconds();
    if (byte != 0x77)
        die("found %u", byte);
    printf("{\"used\":%.3f}\n", used);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int arguments;
        void (*run)(char **arguments);
    } commands[] = {
        {"make", 4, make},     {"open", 3, open_many},         {"lend", 2, lend},
        {"borrow", 0, borrow}, {"create", 3, create_and_seal}, {"put", 3, put},
        {"kernel", 4, kernel}, {"produce", 3, produce},        {"consume", 3, consume},
        {"send", 2, send_box}, {"receive", 2, receive_box},    {"move", 3, move},
        {"reopen", 2, reopen}, {"together", 3, open_together},
    };

    for (size_t i = 0; argc > 1 && i < sizeof(commands) / sizeof(*commands); i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        if (argc != commands[i].arguments + 2)
            die("%s takes %d arguments", argv[1], commands[i].arguments);
        commands[i].run(argv + 2);
        return 0;
    }
    die("no such command; bench.c has them all");
}
