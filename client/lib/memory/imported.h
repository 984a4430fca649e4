/* A segment as it is mapped in this process. */
#ifndef GB_LIB_IMPORTED_H
#define GB_LIB_IMPORTED_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/wire/handle.h"

/* Tells one piece of memory from another, so that a segment's number alone is not trusted: a
   memfd's inode; for memory of a GPU, whose descriptors all name one file, the GPU and the legacy
   handle, if there is one. */
struct gb_memory_identity {
    uint64_t device, file;
};

struct gb_gpu;

struct gb_imported {
    enum gb_handle_kind kind;
    void *address;
    uint64_t bytes;
    bool writable;
    int fd;                   /* of a memfd that is written here; else -1 */
    _Atomic uint8_t *written; /* how often each granule was written, up to 2; NULL: not noted */
    struct gb_gpu *gpu;       /* NULL: host memory */
    uint64_t allocation;      /* cuda_fd: the driver's handle */
    bool own;                 /* cuda_ipc: registered by this very process, so never opened */
};

#endif
