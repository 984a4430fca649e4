/* DLPack's ABI (https://dmlc.github.io/dlpack/latest/c_api.html). */
#ifndef GPUBUFD_DLPACK_H
#define GPUBUFD_DLPACK_H

#include <stdint.h>

enum { DL_CPU = 1, DL_CUDA = 2, DL_CUDA_HOST = 3, DL_ROCM = 10, DL_CUDA_MANAGED = 13 };

enum { DL_INT, DL_UINT }; /* of `code`; others are floats, and more */

struct dl_tensor {
    void *data;
    int32_t device_type, device_id;
    int32_t ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape;
    int64_t *strides; /* elements; NULL: C order */
    uint64_t byte_offset;
};

/* Capsule "dltensor". */
struct dl_managed {
    struct dl_tensor tensor;
    void *context;
    void (*deleter)(struct dl_managed *self);
};

#define DL_READ_ONLY (UINT64_C(1) << 0)
#define DL_IS_COPIED (UINT64_C(1) << 1)
#define DL_SUBBYTE_PADDED (UINT64_C(1) << 2) /* a byte for each; without it packed */

/* Capsule "dltensor_versioned". */
struct dl_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct dl_versioned *self);
    uint64_t flags;
    struct dl_tensor tensor;
};

/* A type's __dlpack_c_exchange_api__, a capsule "dlpack_exchange_api", points to it. */
struct dl_exchange {
    uint32_t major, minor;
    void *older;
    int (*allocate)(struct dl_tensor *like, struct dl_versioned **out, void *context,
                    void (*set_error)(void *context, const char *kind, const char *message));
    int (*from_object)(void *object, struct dl_versioned **out);
    int (*to_object)(struct dl_versioned *tensor, void **out);
    int (*borrow)(void *object, struct dl_tensor *out); /* NULL: not offered */
    int (*current_stream)(int32_t device_type, int32_t device_id, void **out);
};

#endif
