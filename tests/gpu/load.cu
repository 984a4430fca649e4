// The floor of tests/gpu/fill.py: a file into the GPU's memory by threads with two pinned buffers each, without gpubufd.
//     load FILE BYTES DIRECT(0/1) THREADS:MIB …    prints "THREADS:MIB GB/s seconds-to-pin GB/s-with-all" for each, the last
//                                                  with the time of cudaMalloc and of pinning; "8:4s": one stream for all
//     load streams COUNT                           prints the milliseconds that so many first streams take
#include <cuda_runtime.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

static double now()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static void check(cudaError_t error)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "%s\n", cudaGetErrorString(error));
        exit(1);
    }
}

static void read_part(const char *path, int direct, char *device, char *ring, size_t chunk, size_t bytes,
                      std::atomic<size_t> &next, cudaStream_t stream)
{
    int fd = open(path, O_RDONLY | (direct ? O_DIRECT : 0));
    cudaEvent_t events[2];
    if (!stream)
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (cudaEvent_t &event : events)
        check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    for (int k = 0;; k ^= 1) {
        size_t offset = next.fetch_add(chunk), count = offset < bytes ? bytes - offset : 0;
        if (count == 0)
            break;
        count = count < chunk ? count : chunk;
        check(cudaEventSynchronize(events[k]));
        for (size_t got = 0; got < count;) {
            ssize_t n = pread(fd, ring + k * chunk + got, count - got, offset + got);
            if (n <= 0) {
                perror(path);
                exit(1);
            }
            got += n;
        }
        check(cudaMemcpyAsync(device + offset, ring + k * chunk, count, cudaMemcpyHostToDevice, stream));
        check(cudaEventRecord(events[k], stream));
    }
    check(cudaStreamSynchronize(stream));
    close(fd);
}

static void load(const char *path, size_t bytes, int direct, const char *shape)
{
    char *ring, *device;
    int threads = atoi(shape);
    size_t chunk = (size_t)atoi(strchr(shape, ':') + 1) << 20;
    cudaStream_t stream = nullptr;
    double begin = now();
    check(cudaMalloc((void **)&device, bytes));
    double start = now();
    check(cudaHostAlloc((void **)&ring, 2 * threads * chunk, 0));
    double pinned = now();
    if (strchr(shape, 's'))
        check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    std::atomic<size_t> next{0};
    std::vector<std::thread> readers;
    for (int i = 0; i < threads; i++)
        readers.emplace_back(read_part, path, direct, device, ring + 2 * i * chunk, chunk, bytes, std::ref(next),
                             stream);
    for (std::thread &reader : readers)
        reader.join();
    double end = now();
    printf("%s %.3f %.4f %.3f\n", shape, bytes / 1e9 / (end - pinned), pinned - start, bytes / 1e9 / (end - begin));
    fflush(stdout);
    check(cudaFreeHost(ring));
    check(cudaFree(device));
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    check(cudaFree(nullptr)); // the context
    if (strcmp(argv[1], "streams") == 0) {
        double start = now();
        for (int i = 0; i < atoi(argv[2]); i++) {
            cudaStream_t stream;
            check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
        }
        printf("%.2f\n", (now() - start) * 1e3);
        return 0;
    }
    for (int i = 4; i < argc; i++)
        load(argv[1], strtoull(argv[2], nullptr, 10), atoi(argv[3]), argv[i]);
    return 0;
}
