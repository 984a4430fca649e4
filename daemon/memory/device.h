/*
 * Devices make memory that can be shared, and take it back. The host and each GPU have a struct
 * gb_device, with its own budget and its own order of eviction.
 *
 * `create`, `adopt` and `destroy` may block on a driver: where a device has a mover they are called
 * on the mover's thread, one at a time, else on the loop's. `copy` and `finish_copies` are called
 * on the threads of the lanes. All else is the loop's.
 */
#ifndef GB_DEVICE_H
#define GB_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/memory/recency.h"
#include "proto/base/errors.h"
#include "proto/wire/handle.h"

#define GB_DEVICES 16 /* of a daemon, at most */

/* One --device: the devices that it means, and how much of each may be used. */
struct gb_device_spec {
    char *text;       /* how it is given: "--device cuda:0:50%"; owned */
    char id[64];      /* "host", "cuda:0", "hip:all", "GPU-…", "MIG-…", "HIP-…" */
    uint64_t bytes;   /* 0: `percent` of the memory */
    unsigned percent; /* of the device's memory */
};

enum gb_share { GB_SHARE_FD, GB_SHARE_IPC };

/* Memory of a device, with what its handles are made of. */
struct gb_memory {
    enum gb_handle_kind kind;
    int write_fd, read_fd;           /* owned; -1 where there is none; may be the same */
    unsigned char ipc[GB_IPC_BYTES]; /* cuda_ipc */
    uint64_t pointer;                /* cuda_ipc: the memory to free; 0: it is a client's */
    bool final;                      /* the kernel lets nobody write it any more */
};

/* The direction of a copy: out of a device's memory, or into it. */
enum gb_direction { GB_OUT, GB_IN, GB_DIRECTIONS };

struct gb_device;
struct gb_mover;

/* A kind of device: device_kinds.c has a table of these. */
struct gb_device_ops {
    /* ---- of the kind ---- */

    const char *kind; /* "host", "cuda", "hip" */
    bool numbered;    /* an id may have a second word: "cuda:0" */
    /* Its memory is the machine's own: copies in the host tier would spare nothing, there are no
       events to wait for, and it has no uuid. */
    bool is_host;
    /* Whether the id of a spec means devices of this kind. */
    bool (*is_meant)(const char *id);
    /* Appends the devices that a spec means to `devices`, which holds *count of at most GB_DEVICES.
       A failure is a sentence for the person who started the daemon; the caller frees the devices
       that were appended before it. */
    int (*open)(const struct gb_device_spec *spec, struct gb_device **devices, unsigned *count,
                struct gb_error *error);

    /* ---- of a device ---- */

    bool (*can_share)(const struct gb_device *device, enum gb_share share);
    /* `bytes` is a multiple of the device's granularity; the memory reads as zeros. */
    int (*create)(struct gb_device *device, enum gb_share share, uint64_t bytes,
                  struct gb_memory *memory, struct gb_error *error);
    /* Makes memory of one object alone, whose producer can seal it against all writing when it is
       filled. `is_final` finds out whether the producer has done that, and notes it in `final`.
       NULL: the device has no such memory. */
    int (*create_final)(struct gb_device *device, uint64_t bytes, struct gb_memory *memory,
                        struct gb_error *error);
    bool (*is_final)(struct gb_memory *memory);
    /* Checks what a client offers to `register` and makes it ours: duplicates the descriptor (-1
       where the handle is none). GPUBUF_E_UNSUPPORTED, GPUBUF_E_INVALID. */
    int (*adopt)(struct gb_device *device, const struct gb_handle *handle, int fd,
                 struct gb_memory *memory, struct gb_error *error);
    void (*destroy)(struct gb_device *device, struct gb_memory *memory);
    /* Restores memory of at least `bytes` from a descriptor of an earlier daemon, which is taken
       over on success. `kind` is that of the handles that the memory had. GPUBUF_E_NO_MEMORY and
       GPUBUF_E_LIMIT if a later try may succeed; GPUBUF_E_INVALID; GPUBUF_E_DEVICE. */
    int (*restore)(const struct gb_device *device, enum gb_handle_kind kind, int fd, uint64_t bytes,
                   struct gb_memory *memory, struct gb_error *error);

    /* `copy` begins a copy between a segment, from `offset` on, and the daemon's own memory, and
       may return before it is done. `finish_copies` waits for all copies that were begun in that
       direction. Each direction has a thread of its own, on which these are called. */
    int (*copy)(struct gb_device *device, enum gb_direction direction,
                const struct gb_memory *memory, uint64_t segment_bytes, uint64_t offset, void *own,
                uint64_t bytes, struct gb_error *error);
    int (*finish_copies)(struct gb_device *device, enum gb_direction direction,
                         struct gb_error *error);
    /* Pins memory of the daemon's, so that copies are fast, and unpins it. NULL: needs no pinning.
     */
    int (*pin)(struct gb_device *device, void *own, uint64_t bytes, struct gb_error *error);
    void (*unpin)(struct gb_device *device, void *own);

    void (*end)(struct gb_device *device);
};

struct gb_device_counts {
    uint64_t evictions, evicted_bytes;
    uint64_t segments_created, segments_destroyed;
    uint64_t spills, spills_bytes, restores, restores_bytes;
};

struct gb_device {
    const struct gb_device_ops *ops;
    unsigned index;
    char id[64];    /* "host", "GPU-…", "MIG-…", "HIP-…" */
    char alias[20]; /* "cuda:0", "hip:0": the daemon's own numbering; "" for the host */
    char name[96];  /* for people */
    uint64_t capacity, granularity; /* bytes */
    bool can_block;                 /* its driver may: it gets a mover */

    struct gb_mover *mover;                /* NULL: jobs are done at once */
    struct gb_mover *lanes[GB_DIRECTIONS]; /* the threads that copy; NULL: there is no tier below */
    char *stages[GB_DIRECTIONS];           /* memory of each lane: move.h */
    bool stage_pinned[GB_DIRECTIONS];
    bool lost; /* the driver has lost it for good: its objects have to be withdrawn */

    /* Account, in bytes: allocated = used + retained + pinned_by_clients; free = capacity -
     * allocated. */
    uint64_t allocated;         /* segments that exist */
    uint64_t used;              /* of them, in objects */
    uint64_t pinned_by_clients; /* of them, retired but still mapped by a session */
    uint64_t moving;            /* of retained: segments being made or given back */
    uint64_t freeing;           /* of moving: segments being given back */
    uint64_t needed_ms;         /* when a request last lacked room */
    uint64_t asked_ms;          /* when sessions were last asked to unmap segments that could be
                                emptied; 0: not */
    uint64_t mapped;         /* of allocated: segments that a session maps, but for retiring ones */
    struct gb_link retiring; /* segments that sessions were asked to unmap, oldest first */
    uint64_t leased, pinned; /* of used: under a lease; pinned or kept (may overlap) */
    uint64_t pinned_leased;  /* of these: both */
    uint64_t segments, objects;
    uint64_t leaving;                /* of used: being copied to a tier below */
    uint64_t spilled, spilled_bytes; /* storages that are only in tiers below, and their bytes */
    struct gb_device_counts so_far;
    uint64_t changes; /* gb_device_changed() so far */

    struct gb_link segment_list; /* struct gb_segment, in the order of their ids */
    struct gb_recency recency;   /* storages that may leave; clean ones at once */
    struct gb_recency stay;      /* storages that nobody holds, but for which there is no tier */
};

/* To be called when what a request waits for may be there: room on the device or below it, memory
   that was being made, a lease that may be recalled again. */
static inline void gb_device_changed(struct gb_device *device)
{
    device->changes++;
}

/* Writes the device as `hello` and --probe describe it. */
void gb_device_write(struct gb_writer *writer, const struct gb_device *device, bool is_default);

/* The kinds: device_host.c, device_cuda.c. */
extern const struct gb_device_ops gb_device_host, gb_device_cuda, gb_device_hip;

/* For a kind's `open`: the budget that a spec gives of a device's `total` bytes. GPUBUF_E_INVALID
   with the spec and what is wrong: more than there is, or less than a segment. */
int gb_device_spec_capacity(const struct gb_device_spec *spec, uint64_t total, uint64_t *capacity,
                            struct gb_error *error);
/* The bytes of memory that the machine has. */
uint64_t gb_device_host_memory(void);
/* Whether a failure with that CUDA error (may be NULL) means that the device is gone for good. */
bool gb_device_cuda_lost(const char *cuda_error);

/* The device of a request's `device` ("host", "GPU-…"; NULL: the first); NULL if there is none. */
struct gb_device *gb_device_find(struct gb_device *const *devices, unsigned count, const char *id);

void gb_device_free(struct gb_device *device); /* NULL is fine */

/* ---- sizes ---- */

/* The bytes of the largest shared segment that the device gets. */
uint64_t gb_store_largest_shared(const struct gb_device *device);
/* Whether content of `bytes` gets a segment of its own. */
bool gb_store_gets_own(const struct gb_device *device, uint64_t bytes);
uint64_t gb_device_retained(const struct gb_device *device);
uint64_t gb_device_free_bytes(const struct gb_device *device);
/* How many bytes would be missing for an object of `bytes`, even if all left that may leave. */
uint64_t gb_device_lacks(const struct gb_device *device, uint64_t bytes);
#endif
