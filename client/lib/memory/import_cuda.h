/* Importing segments on GPUs, for import.c. No state; any thread. */
#ifndef GB_LIB_IMPORT_CUDA_H
#define GB_LIB_IMPORT_CUDA_H

#include "client/lib/memory/imported.h"

int gb_cuda_identify(const struct gb_segment_info *segment, struct gb_memory_identity *identity,
                     struct gb_error *error);
int gb_cuda_map(const struct gb_segment_info *segment, int fd, struct gb_imported *imported,
                struct gb_error *error);
void gb_cuda_unmap(const struct gb_imported *imported);
/* The driver knows one right for the whole of a mapping, of memory of cuMemCreate. Whether that
   could be done. */
bool gb_cuda_set_writable(const struct gb_imported *imported, bool writable);

#endif
