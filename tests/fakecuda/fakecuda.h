/*
 * The fake driver's functions beyond those of the real one, for tests: device work that takes time
 * or misbehaves. Look them up with dlsym in libcuda.so.1; if they are missing, the driver is a real
 * one. README.md has the environment variables.
 */
#ifndef FAKECUDA_H
#define FAKECUDA_H

#include "proto/driver/cuda_types.h"

/*
 * "Kernels": queued on `stream` and run in its order. As with real ones nothing is checked when
 * they are queued; one that touches memory which its device may not read (or write) makes the
 * context fail with CUDA_ERROR_ILLEGAL_ADDRESS from then on.
 */
CUresult fakecuda_fill(CUdeviceptr target, unsigned char value, size_t bytes, CUstream stream);
/* Adds up the bytes; *sum is written when the stream runs this. */
CUresult fakecuda_sum(CUdeviceptr source, size_t bytes, uint64_t *sum, CUstream stream);
/* Keeps the stream busy. */
CUresult fakecuda_delay(unsigned int milliseconds, CUstream stream);
/* Keeps the stream busy until *gate, of this process, is not 0. */
CUresult fakecuda_wait(const int *gate, CUstream stream);

/* How often the process has called a function of the driver ("cuMemMap"), failed calls included. */
uint64_t fakecuda_calls(const char *function);

#endif
