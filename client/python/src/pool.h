/*
 * Pools: an object that is being made, whose memory is given out piece by piece, to PyTorch's
 * allocator for example. A piece is not given out twice. The object is held until the Pool and all
 * pieces are given back.
 */
#ifndef GPUBUFD_POOL_H
#define GPUBUFD_POOL_H

#include "client/python/src/core.h"

int pool_setup(PyObject *module);

/*
 * For others' allocators, which call them on any thread, with or without the GIL. `alloc` takes
 * from the Pool that the thread has entered; NULL: none, of another device, or full. `free` finds
 * the Pool by the address; `bytes`, `device` and `stream` do not matter to it. The work on a piece
 * need not be done, since nobody is given it again.
 */
__attribute__((visibility("default"))) void *gpubufd_pool_alloc(Py_ssize_t bytes, int device,
                                                                void *stream);
__attribute__((visibility("default"))) void gpubufd_pool_free(void *pointer, Py_ssize_t bytes,
                                                              int device, void *stream);

#endif
