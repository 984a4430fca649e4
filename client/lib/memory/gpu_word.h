/*
 * Words of the host's memory that work on a GPU writes and waits for, in the order of its streams:
 * so one process's work follows another's with no processor in between. Where the driver cannot do
 * that, callers wait by themselves. One thread at a time uses a page.
 */
#ifndef GB_LIB_GPU_WORD_H
#define GB_LIB_GPU_WORD_H

#include "client/lib/memory/gpu.h"

/* A page that a GPU has been given. All zeros: none. */
struct gb_gpu_page {
    struct gb_gpu *gpu; /* retained; NULL: none */
    void *host;
    CUdeviceptr device; /* 0: the driver cannot have it */
};

/* Queues on `stream` (NULL: the legacy default one): once what is queued there is done, the word
   becomes `value`. The page, `bytes` long, is given to the GPU first if it was not. False: the
   driver cannot do that, and nothing is queued. */
bool gb_gpu_write_word(struct gb_gpu_page *page, struct gb_gpu *gpu, void *host, size_t bytes,
                       const _Atomic uint32_t *word, uint32_t value, CUstream stream);
/* Likewise: what is queued on `stream` from now on begins when the word is `value` or a little
   later (less than 2^31 above it). The page may be one that this process can only read. */
bool gb_gpu_wait_word(struct gb_gpu_page *page, struct gb_gpu *gpu, const void *host, size_t bytes,
                      const _Atomic uint32_t *word, uint32_t value, CUstream stream);
/* Waits for all work of the context, which may need the page, and takes it back. */
void gb_gpu_end_page(struct gb_gpu_page *page);

#endif
