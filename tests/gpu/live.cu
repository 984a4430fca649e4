/* The processes of tests/gpu/live.py: writers that are killed while their kernels run, and what the kernel of the
   system tells of their ends. Each prints lines of words. */
#include <cuda.h>
#include <cuda_runtime.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gpubuf.h"

#define WORDS (size_t)(1 << 18) /* of the pool, which a writer writes all the time */

static void die(const char *what, const char *why)
{
    fprintf(stderr, "live: %s: %s\n", what, why);
    exit(1);
}

static void check(cudaError_t error, const char *what)
{
    if (error)
        die(what, cudaGetErrorString(error));
}

static void check(CUresult result, const char *what)
{
    const char *text = "?";

    if (result)
        cuGetErrorString(result, &text), die(what, text);
}

static double now_ms()
{
    timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

/* Writes its generation and a count into every word, again and again. */
__global__ void scribble(volatile unsigned long long *words, unsigned long long generation, unsigned long long ns)
{
    unsigned long long begun, now, count = 0;

    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begun));
    do {
        count++;
        for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < WORDS; i += gridDim.x * blockDim.x)
            words[i] = generation << 40 | count;
        __threadfence_system();
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    } while (now - begun < ns);
}

__global__ void copy(unsigned long long *to, const volatile unsigned long long *from)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < WORDS; i += gridDim.x * blockDim.x)
        to[i] = from[i];
}

/* Counts words that differ, and words that are of no generation up to `last`. */
__global__ void compare(const volatile unsigned long long *a, const unsigned long long *b, unsigned long long last,
                        unsigned long long *counts)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < WORDS; i += gridDim.x * blockDim.x) {
        if (a[i] != b[i])
            atomicAdd(&counts[0], 1ull);
        if (b[i] >> 40 > last)
            atomicAdd(&counts[1], 1ull);
    }
}

static gpubuf_client *connect(const char *path)
{
    gpubuf_client *client;
    gpubuf_connect_options options = {};

    options.size = sizeof(options);
    options.path = path;
    if (gpubuf_connect(&client, &options) < 0)
        die("connect", gpubuf_errmsg(NULL));
    return client;
}

static void create(const char *path, const char *name, uint64_t bytes)
{
    gpubuf_client *client = connect(path);
    gpubuf_layout_spec layout = {};
    gpubuf_create_options options = {};
    gpubuf_object *object;

    layout.kind = GPUBUF_KIND_BYTES;
    layout.bytes = bytes;
    options.size = sizeof(options);
    options.device = "cuda:0";
    options.live = true;
    if (gpubuf_create(client, name, &layout, &options, &object) < 0)
        die("create", gpubuf_errmsg(client));
    struct gpubuf_memory memory;
    gpubuf_memory(object, GPUBUF_DATA, &memory);
    check(cudaMemset(memory.pointer, 0, WORDS * 8), "memset");
    check(cudaDeviceSynchronize(), "synchronize");
    gpubuf_release(object);
    gpubuf_disconnect(client);
    printf("created\n");
}

/* Claims memory that nobody writes, again and again, and runs a kernel on it. */
static void claim_free(const char *path, const char *name, int rounds)
{
    gpubuf_client *client = connect(path);
    gpubuf_open_options options = {};
    unsigned long long *mine;

    check(cudaMalloc(&mine, WORDS * 8), "malloc");
    copy<<<64, 256>>>(mine, mine);
    check(cudaDeviceSynchronize(), "warm up");
    options.size = sizeof(options);
    options.write = options.exclusive = true;
    options.wait_ms = 10000;
    for (int i = 0; i < rounds; i++) {
        gpubuf_object *object;
        struct gpubuf_memory memory;
        double begun = now_ms();
        if (gpubuf_open(client, name, &options, &object) < 0)
            die("claim", gpubuf_errmsg(client));
        double claimed = now_ms();
        gpubuf_memory(object, GPUBUF_DATA, &memory);
        copy<<<64, 256>>>(mine, (unsigned long long *)memory.pointer);
        check(cudaDeviceSynchronize(), "kernel");
        printf("free %.3f %.3f\n", claimed - begun, now_ms() - claimed);
        gpubuf_release(object);
    }
    gpubuf_disconnect(client);
}

/* Claims the pool, looks whether anything still changes it, and writes it until it is killed. */
static void writer(const char *path, const char *name, int watch_ms)
{
    unsigned long long *mine, *counts, found[2];
    gpubuf_open_options options = {};
    gpubuf_object *object;
    struct gpubuf_memory memory;

    check(cudaMalloc(&mine, WORDS * 8), "malloc");
    check(cudaMalloc(&counts, 16), "malloc");
    check(cudaMemset(mine, 0, WORDS * 8), "memset");
    check(cudaMemset(counts, 0, 16), "memset");
    copy<<<64, 256>>>(mine, mine); /* loads them */
    compare<<<64, 256>>>(mine, mine, 0, counts);
    scribble<<<64, 256>>>(mine, 0, 1000);
    check(cudaDeviceSynchronize(), "warm up");
    gpubuf_client *client = connect(path);
    printf("waits\n");
    fflush(stdout);
    options.size = sizeof(options);
    options.write = options.exclusive = true;
    options.wait_ms = 110000;
    if (gpubuf_open(client, name, &options, &object) < 0)
        die("claim", gpubuf_errmsg(client));
    double claimed = now_ms();
    gpubuf_memory(object, GPUBUF_DATA, &memory);
    unsigned long long *words = (unsigned long long *)memory.pointer;
    uint64_t generation = gpubuf_generation(object);
    copy<<<64, 256>>>(mine, words);
    check(cudaDeviceSynchronize(), "first kernel");
    double ran = now_ms();
    usleep(watch_ms * 1000);
    compare<<<64, 256>>>(words, mine, generation - 1, counts);
    check(cudaMemcpy(found, counts, 16, cudaMemcpyDeviceToHost), "compare");
    scribble<<<64, 256>>>(words, generation, 100000000000ull);
    check(cudaGetLastError(), "scribble");
    usleep(30000);
    printf("claimed %llu %.3f %.3f %llu %llu\n", (unsigned long long)generation, claimed, ran, found[0], found[1]);
    fflush(stdout);
    pause();
}

/* ---- in which order the kernel closes what a killed process had ---- */

static void send_fd(int socket, int fd)
{
    char byte = 0, room[CMSG_SPACE(sizeof(int))];
    iovec data = {&byte, 1};
    msghdr message = {};

    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof(room);
    cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &fd, sizeof(int));
    if (sendmsg(socket, &message, 0) != 1)
        die("sendmsg", "failed");
}

static int receive_fd(int socket)
{
    char byte, room[CMSG_SPACE(sizeof(int))];
    iovec data = {&byte, 1};
    msghdr message = {};
    int fd;

    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof(room);
    if (recvmsg(socket, &message, 0) != 1)
        die("recvmsg", "failed");
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    return fd;
}

static unsigned long long *map(CUmemGenericAllocationHandle handle)
{
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at;

    check(cuMemAddressReserve(&at, WORDS * 8, 0, 0, 0), "reserve");
    check(cuMemMap(at, WORDS * 8, 0, handle, 0), "map");
    check(cuMemSetAccess(at, WORDS * 8, &access, 1), "access");
    return (unsigned long long *)at;
}

enum { LOW, HIGH, LEASHED, SYNC, SOCKETS };

/* The low socket is older than the driver's descriptors, the high one younger. */
static void victim(int pairs[SOCKETS][2])
{
    CUmemGenericAllocationHandle handle;
    int leash[2], high;

    for (int i = 0; i < SOCKETS; i++)
        close(pairs[i][0]);
    check(cudaFree(NULL), "context");
    high = fcntl(pairs[HIGH][1], F_DUPFD, 900);
    close(pairs[HIGH][1]);
    if (high < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, leash) < 0)
        die("sockets", "none");
    send_fd(leash[0], pairs[LEASHED][1]);
    close(leash[0]);
    int fd = receive_fd(pairs[SYNC][1]);
    check(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
          "import");
    close(fd);
    scribble<<<64, 256>>>(map(handle), 1, 100000000000ull);
    check(cudaGetLastError(), "scribble");
    char byte = 1;
    (void)!write(pairs[SYNC][1], &byte, 1);
    pause();
}

static void watch(pid_t pid, int pairs[SOCKETS][2])
{
    CUmemAllocationProp properties = {};
    CUmemGenericAllocationHandle handle;
    double at[4] = {0}, last, begun;
    unsigned long long seen = 0, word;
    int fd, pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    char byte;

    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    for (int i = 0; i < SOCKETS; i++)
        close(pairs[i][1]);
    check(cudaFree(NULL), "context");
    check(cuMemCreate(&handle, WORDS * 8, &properties, 0), "create");
    check(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), "export");
    CUdeviceptr words = (CUdeviceptr)map(handle);
    check(cuMemsetD8(words, 0, WORDS * 8), "memset");
    send_fd(pairs[SYNC][0], fd);
    (void)!read(pairs[SYNC][0], &byte, 1);
    usleep(50000);
    begun = last = now_ms();
    kill(pid, SIGKILL);
    while (now_ms() - begun < 1500 && !(at[LOW] && at[HIGH] && at[LEASHED] && at[3] && now_ms() - last > 200)) {
        pollfd fds[4] = {{pairs[LOW][0], POLLIN}, {pairs[HIGH][0], POLLIN}, {pairs[LEASHED][0], POLLIN}, {pidfd, POLLIN}};
        poll(fds, 4, 0);
        for (int i = 0; i < 4; i++)
            if (!at[i] && fds[i].revents)
                at[i] = now_ms();
        check(cuMemcpyDtoH(&word, words, 8), "read");
        if (word != seen) {
            seen = word;
            last = now_ms();
        }
    }
    printf("order %.2f %.2f %.2f %.2f %.2f\n", last - begun, at[LOW] - begun, at[HIGH] - begun, at[LEASHED] - begun,
           at[3] - begun);
}

static void order(int rounds)
{
    for (int round = 0; round < rounds; round++) {
        int pairs[SOCKETS][2];

        for (int i = 0; i < SOCKETS; i++)
            if (socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]) < 0)
                die("sockets", "none");
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0)
            victim(pairs);
        pid_t watcher = fork();
        if (watcher == 0) {
            watch(pid, pairs);
            exit(0);
        }
        for (int i = 0; i < SOCKETS; i++) {
            close(pairs[i][0]);
            close(pairs[i][1]);
        }
        waitpid(watcher, NULL, 0);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
}

int main(int count, char **words)
{
    if (count == 5 && strcmp(words[1], "create") == 0)
        create(words[2], words[3], strtoull(words[4], NULL, 10));
    else if (count == 5 && strcmp(words[1], "writer") == 0)
        writer(words[2], words[3], atoi(words[4]));
    else if (count == 5 && strcmp(words[1], "free") == 0)
        claim_free(words[2], words[3], atoi(words[4]));
    else if (count == 3 && strcmp(words[1], "order") == 0)
        order(atoi(words[2]));
    else
        die("arguments", "see live.py");
    return 0;
}
