/*
 * Memory of the host that a GPU copies into at the full speed of its bus, for bindings whose
 * results are such memory themselves. To pin fresh memory takes longer than to copy into it. So
 * blocks that are given back are kept for the next copies, up to a limit. The GPU's primary context
 * is retained as long as there is any block. Where memory cannot be pinned, or too much is pinned
 * already, a block is ordinary memory.
 *
 * The shared library does not export these functions: they are for bindings that are linked with
 * these sources. Any thread.
 */
#ifndef GB_LIB_PINNED_H
#define GB_LIB_PINNED_H

#include "gpubuf.h"

struct gb_staging;

/* A block for a copy from `object`, which the caller gives back. Its content is undefined.
   GPUBUF_E_NO_MEMORY. */
int gb_staging_acquire(const struct gpubuf_object *object, uint64_t bytes,
                       struct gb_staging **block);
void gb_staging_release(struct gb_staging *block); /* NULL is fine */

void *gb_staging_memory(struct gb_staging *block);
uint64_t gb_staging_bytes(const struct gb_staging *block); /* as asked for */

/* Frees the blocks that are kept. */
void gb_staging_trim(void);

#endif
