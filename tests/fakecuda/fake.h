/*
 * Inside the fake CUDA driver. A device is a number, an allocation is a file in a directory that
 * all processes share, and a device pointer is an address where that file is mapped, so that
 * processes exchange real descriptors, the MMU enforces access, and the kernel itself knows how
 * long memory lives.
 *
 * One mutex (fc_lock) guards all state of a process. It is not held while a call is delayed, while
 * anything is waited for, or while device work runs. Functions named fc_… expect it held unless
 * their comment says otherwise.
 *
 *   settings.c  the environment; the gate that every driver function passes
 *   store.c     the shared directory: allocations, their liveness, what is used
 *   space.c     addresses: reservations, mappings, access, what a pointer is
 *   context.c   contexts                stream.c  streams: queues and their threads
 *   event.c     events                  copy.c    copies, and the kernels of fakecuda.h
 *   device.c    devices, errors, cuGetProcAddress
 *   vmm.c       cuMemCreate and kin     legacy.c  cuMemAlloc, its handles, host memory
 */
#ifndef FC_FAKE_H
#define FC_FAKE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/driver/cuda.h"
#include "tests/fakecuda/fakecuda.h"

#define FC_EXPORT __attribute__((visibility("default")))
#define FC_DEVICES 16
#define FC_GRANULE ((size_t)2 << 20)

/* Every driver function, so that a definition of another type does not compile. */
#define FC_PROTOTYPE(name, suffix, version, hip, parameters)                                       \
    FC_EXPORT CUresult name##suffix parameters;
GB_CUDA_FUNCTION_MAP(FC_PROTOTYPE)
#undef FC_PROTOTYPE

/* Functions that only the package for Python calls. */
FC_EXPORT CUresult cuEventElapsedTime(float *milliseconds, CUevent begin, CUevent end);

/* ---- settings.c ---- */

struct fc_settings {
    int version;    /* FAKECUDA_VERSION */
    int devices;    /* FAKECUDA_DEVICES */
    size_t memory;  /* FAKECUDA_MEMORY, of each device */
    size_t context; /* FAKECUDA_CONTEXT: the device memory that a context takes */
    bool peer;      /* FAKECUDA_PEER: devices reach each other's memory */
    bool mig;       /* FAKECUDA_MIG: devices are instances */
    const char *name;
    unsigned int stream_delay; /* FAKECUDA_STREAM_DELAY: milliseconds before any device work */
    /* CUDA_VISIBLE_DEVICES, as cuInit found it: ordinal -> physical device */
    int visible[FC_DEVICES];
    int visible_count;
};

extern struct fc_settings fc_settings;
extern pthread_mutex_t fc_lock;

/* One for each driver function, static in it: how often it was called. */
struct fc_gate {
    const char *name;
    bool uninitialised; /* works before cuInit */
    bool known;         /* in the list of gates */
    uint64_t calls;
    struct fc_gate *next;
};

/* Counts, traces, delays and fails as the environment says, and refuses before cuInit and after
   fork. Called without the lock. */
CUresult fc_enter(struct fc_gate *gate);

/* The first statement of a driver function: returns from the function if fc_enter fails. */
#define FC_ENTER_AS(function, before_init)                                                         \
    static struct fc_gate fc_gate = {.name = #function, .uninitialised = (before_init)};           \
    CUresult fc_entered = fc_enter(&fc_gate);                                                      \
    if (fc_entered != CUDA_SUCCESS)                                                                \
    return fc_entered
#define FC_ENTER(function) FC_ENTER_AS(function, false)

/* Holds the lock until the end of the block. */
#define FC_LOCKED                                                                                  \
    __attribute__((cleanup(fc_unlock_at))) pthread_mutex_t *fc_locked = &fc_lock;                  \
    pthread_mutex_lock(fc_locked)
void fc_unlock_at(pthread_mutex_t **lock);

CUresult fc_init(void);
/* The physical device of an ordinal, or -1. */
int fc_physical(int ordinal);
/* The ordinal of a physical device, or -1 where it is hidden. */
int fc_ordinal(int physical);
/* CUDA_SUCCESS, or how a device that is lost answers. */
CUresult fc_lost(int physical);
int fc_attribute_override(int attribute, int value);
/* Changes the first four bytes of a pointer's attribute if a test has asked for that. */
void fc_pointer_override(int attribute, void *value);
uint64_t fc_gate_calls(const char *name);

/* ---- store.c ---- */

/* Opens the shared directory. */
CUresult fc_store_init(void);
/* Takes `bytes` of a physical device: a file of that size (none for kind 'c' and 'e'), alive as
   long as any process has *fd, a duplicate, or a mapping made from them. `exporter`: fc_store_open
   works only as long as this very descriptor or a mapping of it is there. */
CUresult fc_store_create(char kind, int device, size_t bytes, bool exporter, uint64_t *id, int *fd);
/* Opens an allocation anew by its name. INVALID_VALUE: no longer there or no longer exported. */
CUresult fc_store_open(char kind, int device, size_t bytes, uint64_t id, int *fd);
/* The memory of a descriptor, if it is of ours and of kind 'v'; *out is a new descriptor. */
CUresult fc_store_adopt(int fd, int *device, size_t *bytes, uint64_t *id, int *out);
/* Bytes in use on a physical device, by all processes that live or whose memory does. */
CUresult fc_store_used(int device, size_t *used);

/* ---- space.c ---- */

struct fc_context;

/* An allocation as a process has it: by handle (cuMemCreate, import), or behind a range. */
struct fc_memory {
    uint64_t handle; /* CUmemGenericAllocationHandle */
    int fd;
    int device; /* physical */
    size_t bytes;
    uint64_t id;
    unsigned int
        handle_types; /* the kinds of handle that it may be exported as; 0 if it was imported */
    unsigned char rdma;
    int references; /* by handles; these and `mappings` keep it alive */
    int mappings;
    struct fc_memory *next;
};

struct fc_mapping { /* of cuMemMap */
    uintptr_t base;
    size_t bytes;
    struct fc_memory *memory;
    unsigned char access[FC_DEVICES]; /* by physical device */
    uint64_t buffer_id;
    struct fc_mapping *next;
};

enum fc_range_kind { FC_RESERVED, FC_ALLOCATED, FC_IMPORTED };

struct fc_range {
    uintptr_t base;
    size_t bytes; /* reserved, a multiple of the granule */
    enum fc_range_kind kind;
    struct fc_mapping *mappings; /* FC_RESERVED */
    /* the rest: not FC_RESERVED */
    struct fc_context *context;
    int fd, device;
    size_t asked; /* bytes asked for */
    uint64_t id, buffer_id;
    CUipcMemHandle handle; /* FC_IMPORTED */
    int opened;            /* FC_IMPORTED: times */
    struct fc_range *next; /* in order of addresses */
};

extern struct fc_range *fc_ranges;

/* Reserves addresses, inaccessible so far, that were not in use lately. NULL: none left. */
struct fc_range *fc_range_reserve(size_t bytes, size_t alignment, enum fc_range_kind kind);
void fc_range_free(struct fc_range *range);
struct fc_range *fc_range_at(uintptr_t address);
struct fc_mapping *fc_mapping_at(const struct fc_range *range, uintptr_t address);
/* Maps a file over part of a range, or takes it away again (fd -1). */
CUresult fc_space_map(uintptr_t base, size_t bytes, int fd, int protection);
/* May `context` read (write) all of it? False too for what is no device memory. */
bool fc_space_allows(const struct fc_context *context, uintptr_t address, size_t bytes, bool write);
/* Is any of it in the region of device addresses? */
bool fc_space_is_device(uintptr_t address);
uint64_t fc_next_id(void);

/* ---- context.c ---- */

struct fc_stream;

struct fc_context { /* primary contexts, one for each device, static */
    int device;     /* physical */
    int retained;
    bool ever; /* it was active once, so that its handle is valid */
    int fd;    /* the memory it takes, as a file of the store */
    CUresult failed;
    struct fc_stream *null_stream, *thread_stream;
};

/* The context current in this thread, healthy; or why there is none. */
CUresult fc_context_current(struct fc_context **context);
/* Is this one usable? */
CUresult fc_context_check(const struct fc_context *context);

/* ---- stream.c ---- */

struct fc_operation {
    /* Runs in the stream's thread without the lock. Its result, if a failure, fails the context. */
    CUresult (*run)(struct fc_operation *operation);
    struct fc_operation *next;
    struct fc_stream *stream; /* filled in by fc_stream_queue */
    uintptr_t target, source;
    size_t bytes;
    void *data; /* freed with the operation if `owned` */
    bool owned;
    unsigned int value;
    struct fc_event *event; /* counted */
    uint64_t sequence;
};

struct fc_stream {
    struct fc_context *context;
    unsigned int flags;
    bool ending, threaded;
    uint64_t number;
    uint64_t submitted, completed;
    uint64_t mark; /* how much work it had been given when its context was last waited for */
    struct fc_operation *first, *last;
    pthread_cond_t work;
    struct fc_stream *next;
};

/* All of these are called with the lock held and may give it up while they wait. */
/* The stream of a handle, NULL being the current context's, healthy. */
CUresult fc_stream_get(CUstream handle, struct fc_stream **stream);
/* Queues an operation, which it takes over in any case; `copy` is duplicated. */
CUresult fc_stream_queue(struct fc_stream *stream, const struct fc_operation *copy);
/* Waits, giving the lock up meanwhile, until what is queued now has run. */
CUresult fc_stream_drain(struct fc_stream *stream);
/* Waits until all that the streams of a context have been given so far has run. */
CUresult fc_context_drain(struct fc_context *context);
/* Ends all streams of a context once they have run. */
void fc_context_end_streams(struct fc_context *context);

/* ---- event.c ---- */

struct fc_event;
void fc_event_put(struct fc_event *event);

/* ---- legacy.c ---- */

/* Frees what was allocated, opened and registered in a context. */
void fc_context_end_memory(struct fc_context *context);
/* The host memory, allocated or registered, that an address is in. */
struct fc_host {
    uintptr_t base;
    size_t bytes;
    bool registered;
    struct fc_context *context;
    uint64_t buffer_id;
    struct fc_host *next;
};
struct fc_host *fc_host_at(uintptr_t address);

#endif
