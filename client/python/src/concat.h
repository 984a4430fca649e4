/* Joining Arrow arrays. */
#ifndef GPUBUFD_CONCAT_H
#define GPUBUFD_CONCAT_H

#include "client/python/src/core.h"

/* Joins arrays of one schema into `out`, whose memory is its own. 0, or -1 with an exception. */
int concat_arrays(const struct ArrowSchema *schema, const struct ArrowArray *const *arrays,
                  size_t count, struct ArrowArray *out);

#endif
