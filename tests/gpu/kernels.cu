/* The kernels of tests/gpu. Grids of any size. */

typedef unsigned char byte;
typedef unsigned long long count;

#define FIRST ((size_t)blockIdx.x * blockDim.x + threadIdx.x)
#define STEP ((size_t)gridDim.x * blockDim.x)

extern "C" __global__ void fill(byte *target, byte value, size_t bytes)
{
    for (size_t i = FIRST; i < bytes; i += STEP)
        target[i] = value;
}

__device__ count of_warp(count sum)
{
    for (int lanes = 16; lanes > 0; lanes /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, lanes);
    return sum;
}

/* Adds the bytes up into *result, which is 0 before. */
extern "C" __global__ void sum(const byte *source, size_t bytes, count *result)
{
    count mine = 0;
    for (size_t i = FIRST; i < bytes; i += STEP)
        mine += source[i];
    mine = of_warp(mine);
    if (threadIdx.x % 32 == 0)
        atomicAdd(result, mine);
}

/* As sum, as fast as memory goes: `source` is a multiple of 16 and so is `bytes`. */
extern "C" __global__ void reduce(const uint4 *source, size_t bytes, count *result)
{
    count mine = 0;
    for (size_t i = FIRST; i < bytes / 16; i += STEP) {
        uint4 four = source[i];
        mine += (count)four.x + four.y + four.z + four.w;
    }
    mine = of_warp(mine);
    if (threadIdx.x % 32 == 0)
        atomicAdd(result, mine);
}

/* A column of float64 as docs/PROTOCOL.md has it: element i is number offset + i, and a 0 in the
   mask (0: there is none) says that it is null. result[0] is the sum, result[1] how many are valid. */
extern "C" __global__ void column_sum(const double *data, const byte *mask, size_t offset,
                                      size_t length, double *result)
{
    for (size_t i = FIRST; i < length; i += STEP) {
        size_t at = offset + i;
        if (mask && !(mask[at >> 3] >> (at & 7) & 1))
            continue;
        atomicAdd(&result[0], data[at]);
        atomicAdd(&result[1], 1.0);
    }
}

/* Runs until *gate is not 0, or for so many nanoseconds if nobody opens it. One thread does. */
extern "C" __global__ void wait_gate(const volatile int *gate, count limit)
{
    count start, now;
    if (FIRST)
        return;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (!*gate && now - start < limit);
}
