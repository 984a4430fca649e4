/* From the end of a producer's kernel to the begin of a consumer's, on one GPU, by the ways in which a stream's frames
 * can be ordered: the floor that gpubufd's streams are compared with. tests/gpu/streams.py compiles and runs it.
 *
 *     streams ROUNDS one|device|host|cpu|ours [busy|behind]
 *
 * one: two streams of one process; device: two processes, a word in device memory; host: two processes, a word in a
 * page as the daemon makes them, which the consumer can only read; cpu: two processes, the producer waits for its
 * kernel and stores the word, the consumer looks for it and launches; ours: two processes, a frame of a stream that is
 * read ahead, of the daemon that GPUBUFD_SOCKET names. busy: the consumer's process has kernels under way all the time,
 * so that the GPU's time is sliced between the processes. behind: the producer has work under way for 2 ms before, during
 * which the consumer queues its own; ours is always so, since a frame is announced after its work is queued.
 *
 * Kernels are launched once before anything waits: the driver loads a kernel at its first launch, and that load waits
 * for the context's work, which would wait for a word that nobody writes. */
#include <cuda.h>
#include <fcntl.h>
#include <gpubuf.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#define CHECK(call)                                                                                                      \
    do {                                                                                                                 \
        CUresult result_ = (call);                                                                                       \
        const char *text_ = "?";                                                                                         \
        if (result_ != CUDA_SUCCESS) {                                                                                   \
            cuGetErrorString(result_, &text_);                                                                           \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, text_);                                                \
            exit(1);                                                                                                     \
        }                                                                                                                \
    } while (0)
#define SYSTEM(call)                                                                                                     \
    do {                                                                                                                 \
        if ((call) < 0) {                                                                                                \
            perror(#call);                                                                                               \
            exit(1);                                                                                                     \
        }                                                                                                                \
    } while (0)

static const size_t BYTES = 2 << 20; /* of the device memory: the word, then times */
static const size_t FIRST = 4096, SECOND = FIRST + (512 << 10);
enum { PAGE = 8192, WORD = 0, SPUN = 64 };

__global__ void stamp(unsigned long long *at)
{
    unsigned long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    *at = now;
}

__global__ void work(unsigned long long ns)
{
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    while (now - begin < ns);
}

#define STREAM(client, call)                                                                                             \
    do {                                                                                                                 \
        int result_ = (call);                                                                                            \
        if (result_ < 0) {                                                                                               \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, gpubuf_errmsg(client));                                \
            exit(1);                                                                                                     \
        }                                                                                                                \
    } while (0)

static void send_fd(int socket, int fd)
{
    char byte = 0, room[CMSG_SPACE(sizeof(int))] = {0};
    iovec one = {&byte, 1};
    msghdr message = {};
    message.msg_iov = &one;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof(room);
    cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof(int));
    SYSTEM(sendmsg(socket, &message, 0));
}

static int receive_fd(int socket)
{
    char byte, room[CMSG_SPACE(sizeof(int))];
    iovec one = {&byte, 1};
    msghdr message = {};
    int fd;
    message.msg_iov = &one;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof(room);
    if (recvmsg(socket, &message, 0) <= 0 || !CMSG_FIRSTHDR(&message))
        exit(1);
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    return fd;
}

static void tell(int socket)
{
    char byte = 1;
    if (write(socket, &byte, 1) != 1)
        exit(1);
}

static void hear(int socket)
{
    char byte;
    if (read(socket, &byte, 1) != 1)
        exit(1); /* the other has ended, and has said why */
}

static void begin_cuda(void)
{
    CUdevice device;
    CUcontext context;
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
}

static CUdeviceptr map(CUmemGenericAllocationHandle handle)
{
    CUdeviceptr at;
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(cuMemAddressReserve(&at, BYTES, 0, 0, 0));
    CHECK(cuMemMap(at, BYTES, 0, handle, 0));
    CHECK(cuMemSetAccess(at, BYTES, &access, 1));
    return at;
}

static CUdeviceptr register_page(void *page, unsigned flags)
{
    CUdeviceptr at;
    CHECK(cuMemHostRegister(page, PAGE, CU_MEMHOSTREGISTER_DEVICEMAP | flags));
    CHECK(cuMemHostGetDevicePointer(&at, page, 0));
    return at;
}

static CUstream new_stream(void)
{
    CUstream stream;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static void launch_once(CUdeviceptr memory, CUstream stream)
{
    stamp<<<1, 1, 0, stream>>>((unsigned long long *)(memory + FIRST));
    work<<<1, 1, 0, stream>>>(1000);
    CHECK(cuStreamSynchronize(stream));
}

static unsigned long long *slot(CUdeviceptr memory, size_t base, int i)
{
    return (unsigned long long *)(memory + base) + i;
}

static void report(const char *way, CUdeviceptr memory, int rounds)
{
    std::vector<unsigned long long> first(rounds), second(rounds);
    std::vector<double> us(rounds);
    CHECK(cuMemcpyDtoH(first.data(), memory + FIRST, rounds * 8));
    CHECK(cuMemcpyDtoH(second.data(), memory + SECOND, rounds * 8));
    for (int i = 0; i < rounds; i++)
        us[i] = (double)(long long)(second[i] - first[i]) / 1e3;
    std::sort(us.begin(), us.end());
    printf("%s: p50 %.1f p90 %.1f p99 %.1f us of %d rounds; wrong order %d\n", way, us[rounds / 2], us[rounds * 9 / 10],
           us[rounds * 99 / 100], rounds, (int)(std::lower_bound(us.begin(), us.end(), 0.0) - us.begin()));
}

static int in_one_process(int rounds)
{
    begin_cuda();
    CUdeviceptr memory;
    CHECK(cuMemAlloc(&memory, BYTES));
    CHECK(cuMemsetD8(memory, 0, BYTES));
    CUstream producer = new_stream(), consumer = new_stream();
    launch_once(memory, producer);
    launch_once(memory, consumer);
    for (int i = 0; i < rounds; i++) {
        CHECK(cuStreamWaitValue32(consumer, memory, i + 1, CU_STREAM_WAIT_VALUE_GEQ));
        stamp<<<1, 1, 0, consumer>>>(slot(memory, SECOND, i));
        usleep(300);
        stamp<<<1, 1, 0, producer>>>(slot(memory, FIRST, i));
        CHECK(cuStreamWriteValue32(producer, memory, i + 1, 0));
        CHECK(cuStreamSynchronize(consumer));
    }
    report("one process, two streams", memory, rounds);
    return 0;
}

struct way {
    bool host, cpu, busy, ours, behind;
};

/* One end of a stream of gpubufd; empty unless the way is ours. */
struct frames {
    gpubuf_client *client;
    gpubuf_stream *stream;
    gpubuf_frame frame;
};

static void join(frames *end, const way &how, bool writes)
{
    const uint64_t shape[] = {4096};
    gpubuf_stream_options options = {};
    if (!how.ours)
        return;
    options.size = sizeof(options);
    options.device = "cuda:0";
    options.wait_ms = 10000;
    options.ahead = true;
    options.hold = 2;
    STREAM(NULL, gpubuf_connect(&end->client, NULL));
    if (writes)
        STREAM(end->client, gpubuf_stream_create(end->client, "streams", "uint8", 1, shape, &options, &end->stream));
    else
        STREAM(end->client, gpubuf_stream_open(end->client, "streams", &options, &end->stream));
}

static void consume(int socket, int rounds, const way &how)
{
    begin_cuda();
    CUmemGenericAllocationHandle handle;
    int fd = receive_fd(socket), file = receive_fd(socket);
    CHECK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CUdeviceptr memory = map(handle), word = memory;
    void *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0);
    if (page == MAP_FAILED)
        exit(1);
    if (how.host)
        word = register_page(page, CU_MEMHOSTREGISTER_READ_ONLY);
    CUstream stream = new_stream(), other = new_stream();
    launch_once(memory, stream);
    launch_once(memory, other);
    frames in = {};
    join(&in, how, false);
    volatile uint32_t *looked = (volatile uint32_t *)((char *)page + SPUN);
    tell(socket); /* ready */
    hear(socket);
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; how.busy && k < 8; k++)
            work<<<1, 1, 0, other>>>(500000);
        if (how.cpu) {
            tell(socket);
            while (*looked != (uint32_t)i + 1)
                ;
        } else if (how.ours) {
            tell(socket);
            STREAM(in.client, gpubuf_stream_read(in.stream, 10000, &in.frame));
            STREAM(in.client, gpubuf_stream_wait(in.stream, &in.frame, stream));
        } else {
            CHECK(cuStreamWaitValue32(stream, word, i + 1, CU_STREAM_WAIT_VALUE_GEQ));
        }
        stamp<<<1, 1, 0, stream>>>(slot(memory, SECOND, i));
        if (how.ours)
            STREAM(in.client, gpubuf_stream_done(in.stream, &in.frame, stream));
        else if (!how.cpu)
            tell(socket);
        CHECK(cuStreamSynchronize(stream));
        if (how.busy)
            CHECK(cuStreamSynchronize(other));
        tell(socket);
        hear(socket);
    }
    fflush(stdout);
    _exit(0);
}

static int produce(int socket, int rounds, const way &how, const char *name)
{
    begin_cuda();
    CUmemAllocationProp prop = {};
    CUmemGenericAllocationHandle handle;
    int fd, file = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    char path[64];
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CHECK(cuMemCreate(&handle, BYTES, &prop, 0));
    CUdeviceptr memory = map(handle), word = memory;
    CHECK(cuMemsetD8(memory, 0, BYTES));
    CHECK(cuCtxSynchronize());
    CHECK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    SYSTEM(ftruncate(file, PAGE));
    SYSTEM(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
    char *page = (char *)mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    memset(page, 0, PAGE);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    int reading = open(path, O_RDONLY | O_CLOEXEC);
    SYSTEM(reading);
    frames out = {};
    join(&out, how, true);
    send_fd(socket, fd);
    send_fd(socket, reading);
    if (how.host)
        word = register_page(page, 0);
    CUstream stream = new_stream();
    launch_once(memory, stream);
    volatile uint32_t *looked = (volatile uint32_t *)(page + SPUN);
    hear(socket);
    tell(socket);
    for (int i = 0; i < rounds; i++) {
        hear(socket); /* the consumer waits */
        usleep(300);
        if (how.ours)
            STREAM(out.client, gpubuf_stream_next(out.stream, 0, &out.frame));
        if (how.behind)
            work<<<1, 1, 0, stream>>>(2000000);
        stamp<<<1, 1, 0, stream>>>(slot(memory, FIRST, i));
        if (how.ours)
            STREAM(out.client, gpubuf_stream_publish(out.stream, &out.frame, stream));
        else if (!how.cpu)
            CHECK(cuStreamWriteValue32(stream, word, i + 1, 0));
        CHECK(cuStreamSynchronize(stream));
        if (how.cpu)
            *looked = (uint32_t)i + 1;
        hear(socket); /* it has seen this round */
        tell(socket);
    }
    report(name, memory, rounds);
    gpubuf_stream_close(out.stream);
    gpubuf_disconnect(out.client);
    return 0;
}

int main(int argc, char **argv)
{
    int rounds = argc > 2 ? atoi(argv[1]) : 0, sockets[2];
    if (rounds < 1 || rounds > 60000)
        return fprintf(stderr, "usage: streams ROUNDS one|device|host|cpu|ours [busy|behind]\n"), 2;
    alarm(30); /* whatever happens */
    if (strcmp(argv[2], "one") == 0)
        return in_one_process(rounds);
    bool ours = strcmp(argv[2], "ours") == 0, busy = argc > 3 && strcmp(argv[3], "busy") == 0;
    way how = {strcmp(argv[2], "host") == 0, strcmp(argv[2], "cpu") == 0, busy, ours, ours || (argc > 3 && !busy)};
    char name[128];
    snprintf(name, sizeof(name), "two processes, %s%s",
             how.host   ? "a word in a page of the host that the consumer can only read"
             : how.cpu  ? "by the processors"
             : how.ours ? "a frame of gpubufd"
                        : "a word in device memory",
             how.busy     ? ", the consumer's process busy"
             : how.behind ? ", behind work of 2 ms"
                          : "");
    SYSTEM(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    pid_t child = fork(); /* before either uses the driver */
    SYSTEM(child);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(30);
        close(sockets[0]);
        consume(sockets[1], rounds, how);
    }
    close(sockets[1]);
    int r = produce(sockets[0], rounds, how, name), status;
    SYSTEM(waitpid(child, &status, 0));
    return r || status;
}
