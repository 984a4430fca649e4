/*
 * The manifest of a bundle: the header of a safetensors file, JSON that says which arrays lie where
 * in the data behind it. Reading one with complete validation, and making one. Pure; any thread.
 *
 *     8 bytes   M, how long the manifest is, little-endian
 *     M bytes   {"__metadata__":{"key":"value",…},
 *                "name":{"dtype":"F32","shape":[2,3],"data_offsets":[begin,end]},…}, then spaces
 *     the data  offsets count from here
 */
#ifndef GB_LIB_MANIFEST_H
#define GB_LIB_MANIFEST_H

#include "gpubuf.h"
#include "proto/layout/layout.h"
#include "proto/wire/json.h"

/* A safetensors file has no holes. So unused bytes between the arrays, such as those of a memory
   pool, are written as arrays of bytes whose names begin with this. Readers do not see them. */
#define GB_MANIFEST_GAP "__gap__"

#define GB_MANIFEST_MAX 100000000u /* bytes, as safetensors has it */

/* The place of a name in the order of the text. */
struct gb_named {
    uint64_t hash; /* of the name */
    const char *name;
    size_t i;
};

/* All that it points to lies in its pool. Tensors and metadata are in the order of the text. */
struct gb_manifest {
    struct gb_pool pool;
    uint64_t bytes;                /* of the whole bundle */
    uint64_t manifest_bytes;       /* M */
    struct gpubuf_tensor *tensors; /* without pointers to data */
    size_t tensor_count;
    struct gb_pair *metadata;
    size_t metadata_count;
    struct gb_named *tensor_names, *metadata_names; /* sorted, by hash and then by name */
    void *memory;                                   /* the pool's first; or NULL */
};

/* Memory to be freed by free(). From 2 MiB on it is of huge pages, where the kernel has some: its
   faults page by page would take as long as reading a manifest does. NULL: memory is out. */
void *gb_manifest_memory(size_t bytes);

/*
 * Reads the manifest of a bundle that has `bytes` bytes in all. Refused are: a text that is no JSON
 * object, a name that occurs twice, an unknown dtype, more than 32 axes, a size that does not
 * follow from dtype and shape, data outside of the bundle, and bytes of two tensors or of none.
 * Unknown members of a tensor are passed over. `text` is not kept, and must not change meanwhile.
 * GPUBUF_E_INVALID with the tensor and the place; GPUBUF_E_NO_MEMORY. *manifest is written on
 * success only; the caller ends it.
 */
int gb_manifest_read(const char *text, uint64_t length, uint64_t bytes,
                     struct gb_manifest *manifest, struct gb_error *error);

/* Forgets the tensors that only mark padding. GPUBUF_E_NO_MEMORY leaves the manifest as it was. */
int gb_manifest_forget_gaps(struct gb_manifest *manifest, struct gb_error *error);

/*
 * Writes the first bytes of a bundle, the manifest with its length in front, to `head`, which is
 * empty, and reads it into *manifest, which the caller ends. See gpubuf_bundle_plan for where
 * arrays are placed. `metadata` is key, value, …, NULL; or NULL.
 */
int gb_manifest_plan(const struct gpubuf_tensor_spec *tensors, size_t count,
                     const char *const *metadata, struct gb_writer *head,
                     struct gb_manifest *manifest, struct gb_error *error);

void gb_manifest_end(struct gb_manifest *manifest);

/* Sorts names, and refuses a name that occurs twice; `what` says in that sentence what is named.
   Meanwhile it takes memory of the pool, at most five thirds of what the names take. */
int gb_manifest_sort(struct gb_named *names, size_t count, const char *what, struct gb_pool *pool,
                     struct gb_error *error);

/* The name's index, or -1. */
long gb_manifest_find(const struct gb_named *names, size_t count, const char *name);

#endif
