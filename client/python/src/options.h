/* Arguments that are structs. With the GIL held. */
#ifndef GPUBUFD_OPTIONS_H
#define GPUBUFD_OPTIONS_H

#include "client/python/src/core.h"
#include "proto/base/pool.h"

/* Extents of a tuple, at most MAX_NDIM; how many, or -1 with an exception. */
int parse_extents(PyObject *tuple, uint64_t extents[MAX_NDIM]);

/* From a tuple (device, share, mode, replace, ttl_ms, evict, wait_ms, final, label, keep, scope),
   whose strings it borrows. */
int parse_create_options(PyObject *tuple, struct gpubuf_create_options *options);

/* Zeroed memory of a pool; NULL with an exception raised. */
void *pool_take(struct gb_pool *pool, size_t count, size_t size);

/* From (kind, bytes, dtype, shape, mask, column, and of a bundle manifest_bytes); column is (name,
   dtype, length, offset, null_count, mask, data_bytes, children, metadata). Strings are borrowed
   from the tuples; the rest lies in the pool, which the caller ends, also after a failure. */
int parse_layout(PyObject *tuple, struct gpubuf_layout_spec *layout, struct gb_pool *pool);

/* An array, in the pool, of a tuple of (address, bytes); NULL with an exception. */
struct gpubuf_part *parse_parts(PyObject *tuple, struct gb_pool *pool);
/* An array, in the pool, of names that the tuple keeps; NULL with an exception. */
const char **parse_names(PyObject *tuple, struct gb_pool *pool);

/* From None or a tuple with an entry for each column: *out is NULL or in the pool. */
int parse_null_counts(PyObject *counts, const struct gpubuf_object *object, int64_t **out,
                      struct gb_pool *pool);

#endif
