/*
 * Memory that this process has registered by legacy handle. The driver does not open a handle in
 * the process that made it, so the memory of such an object is looked up here. The state belongs to
 * the process, under a lock of its own. Any thread.
 */
#ifndef GB_LIB_GPU_OWN_H
#define GB_LIB_GPU_OWN_H

#include "proto/wire/handle.h"

/* Notes memory that a client, known by its serial, has registered. If several clients register the
   same memory, the entry lasts as long as the last of them. GPUBUF_E_NO_MEMORY. */
int gb_gpu_own_note(const unsigned char handle[GB_IPC_BYTES], uint64_t client, void *base,
                    uint64_t bytes);
/* Where the memory lies that a client of this process registered by that handle. False: none
   did. */
bool gb_gpu_own_find(const unsigned char handle[GB_IPC_BYTES], void **base, uint64_t *bytes);
/* The client has ended, and the daemon withdraws what it registered: forgets its entries. */
void gb_gpu_own_forget(uint64_t client);

#endif
