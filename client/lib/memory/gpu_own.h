/*
 * Memory that this process has registered by legacy handle. The driver opens no handle in the
 * process that it is from, so that an object of such memory is found here. State is the process',
 * under a lock of its own. Any thread.
 */
#ifndef GB_LIB_GPU_OWN_H
#define GB_LIB_GPU_OWN_H

#include "proto/handle.h"

/* Memory that a client, by its serial, has registered. The last one that does answers for it.
   GPUBUF_E_NO_MEMORY. */
int gb_gpu_own_note(const unsigned char handle[GB_IPC_BYTES], uint64_t client, void *base,
                    uint64_t bytes);
/* Where the memory of a handle lies that a client of this process registered. */
bool gb_gpu_own_find(const unsigned char handle[GB_IPC_BYTES], void **base, uint64_t *bytes);
/* A client, by its serial, has ended: what it registered is withdrawn. */
void gb_gpu_own_forget(uint64_t client);

#endif
