/*
 * Pools: allocators over the memory of an unsealed object, for PyTorch's for example. Memory of a
 * freed piece is not allocated again. The object is held until the Pool and all pieces are freed.
 */
#ifndef GPUBUFD_POOL_H
#define GPUBUFD_POOL_H

#include "client/python/src/core.h"

/*
 * For other libraries' allocators, which call them on any thread, with or without the GIL. `alloc`
 * takes a piece of the Pool that the thread has entered; NULL: there is none, it is on another
 * device, or full. `free` finds the Pool by the address, and ignores its other arguments. Work on
 * a freed piece may still be under way, since its memory is not allocated again.
 */
__attribute__((visibility("default"))) void *gpubufd_pool_alloc(Py_ssize_t bytes, int device,
                                                                void *stream);
__attribute__((visibility("default"))) void gpubufd_pool_free(void *pointer, Py_ssize_t bytes,
                                                              int device, void *stream);

#endif
