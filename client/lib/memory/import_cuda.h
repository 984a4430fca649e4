/* Importing segments on GPUs, for import.c. No state; any thread. */
#ifndef GB_LIB_IMPORT_CUDA_H
#define GB_LIB_IMPORT_CUDA_H

#include "client/lib/memory/imported.h"

int gb_cuda_identify(const struct gb_segment_info *segment, struct gb_memory_identity *identity,
                     struct gb_error *error);
int gb_cuda_map(const struct gb_segment_info *segment, int fd, struct gb_imported *imported,
                struct gb_error *error);
void gb_cuda_unmap(const struct gb_imported *imported);
/* Sets the access to a whole mapping of memory of cuMemCreate: the driver can do no less, and
   nothing for other memory. Returns whether it could. */
bool gb_cuda_set_writable(const struct gb_imported *imported, bool writable);

/* Registers host memory with the driver, for GPUs to copy from at the full speed of their bus, with
   the GPU whose context is current, else the first. *gpu is retained until gb_cuda_unregister.
   GPUBUF_E_UNSUPPORTED, GPUBUF_E_DEVICE. */
int gb_cuda_register(const struct gb_imported *imported, struct gb_gpu **gpu,
                     struct gb_error *error);
void gb_cuda_unregister(const struct gb_imported *imported, struct gb_gpu *gpu);
uint64_t gb_cuda_registered(void); /* bytes, now */

#endif
