// The floor of tests/gpu/fill.py: a file into the GPU's memory by threads with two pinned buffers each, without gpubufd.
//     load FILE BYTES DIRECT(0/1) THREADS:MIB …      prints "THREADS MIB GB/s seconds-to-pin" for each
//     load pinned BYTES                              prints the GB/s of one copy from pinned memory
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
                      std::atomic<size_t> &next)
{
    int fd = open(path, O_RDONLY | (direct ? O_DIRECT : 0));
    cudaStream_t stream;
    cudaEvent_t events[2];
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

static void load(const char *path, size_t bytes, int direct, char *device, int threads, size_t chunk)
{
    char *ring;
    double start = now();
    check(cudaHostAlloc((void **)&ring, 2 * threads * chunk, 0));
    double pinned = now();
    std::atomic<size_t> next{0};
    std::vector<std::thread> readers;
    for (int i = 0; i < threads; i++)
        readers.emplace_back(read_part, path, direct, device, ring + 2 * i * chunk, chunk, bytes, std::ref(next));
    for (std::thread &reader : readers)
        reader.join();
    double end = now();
    printf("%d %zu %.3f %.4f\n", threads, chunk >> 20, bytes / 1e9 / (end - pinned), pinned - start);
    fflush(stdout);
    check(cudaFreeHost(ring));
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    size_t bytes = strtoull(argv[2], nullptr, 10);
    char *device;
    check(cudaMalloc((void **)&device, bytes));
    if (strcmp(argv[1], "pinned") == 0) {
        char *host;
        check(cudaHostAlloc((void **)&host, bytes, 0));
        memset(host, 1, bytes);
        for (int i = 0; i < 3; i++) {
            double start = now();
            check(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
            check(cudaDeviceSynchronize());
            printf("%.3f\n", bytes / 1e9 / (now() - start));
        }
        return 0;
    }
    for (int i = 4; i < argc; i++) {
        int threads = atoi(argv[i]);
        load(argv[1], bytes, atoi(argv[3]), device, threads, (size_t)atoi(strchr(argv[i], ':') + 1) << 20);
    }
    return 0;
}
