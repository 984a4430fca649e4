/*
 * A segment's handle lets another process map the segment. On the wire:
 * {"kind":"memfd","fd":k} · {"kind":"cuda_fd","fd":k} ·
 * {"kind":"cuda_ipc","ipc":"<base64>","uuid":…}; on a device of HIP's "hip_fd" and "hip_ipc".
 */
#ifndef GB_HANDLE_H
#define GB_HANDLE_H

#include <string.h>

#include "proto/wire/json.h"

/* CUDA_…: a GPU's, of either driver; the device's id tells which. */
enum gb_handle_kind { GB_HANDLE_MEMFD, GB_HANDLE_CUDA_FD, GB_HANDLE_CUDA_IPC };

#define GB_IPC_BYTES 64

/* Whether a device's id is the host's; every other device is a GPU. */
static inline bool gb_is_host(const char *device)
{
    return strcmp(device, "host") == 0;
}

struct gb_handle {
    enum gb_handle_kind kind;
    uint64_t fd; /* index among the message's descriptors */
    unsigned char ipc[GB_IPC_BYTES];
    const char *uuid;   /* cuda_ipc in replies */
    uint64_t bytes;     /* `register` only */
    const char *device; /* `register` only */
};

struct gb_segment_info { /* a segment in a reply */
    uint64_t id;
    const char *device;
    uint64_t bytes;
    bool writable; /* access "rw" */
    struct gb_handle handle;
};

/*
 * Readers: GPUBUF_E_INVALID with the path, or GPUBUF_E_NO_MEMORY; the output is written on success
 * only, and its texts lie in the pool. The caller checks that `fd` is among the message's
 * descriptors, and that the memory has `bytes`.
 */

/* The name on the wire of a handle for memory of that device: "cuda_fd". */
const char *gb_handle_kind_name(enum gb_handle_kind kind, const char *device);

/* One element of `register`'s handles: kind, fd or ipc, bytes, device ("host" for a memfd, and for
   nothing else). Unknown members are refused. */
int gb_handle_read(struct gb_json value, const struct gb_path *path, struct gb_pool *pool,
                   struct gb_handle *handle, struct gb_error *error);

/* A segment in a reply. Unknown members are ignored. */
int gb_segment_read(struct gb_json value, const struct gb_path *path, struct gb_pool *pool,
                    struct gb_segment_info *segment, struct gb_error *error);
void gb_segment_write(struct gb_writer *writer, const struct gb_segment_info *segment);

#endif
