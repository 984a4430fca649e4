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

#endif
