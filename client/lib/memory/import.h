/*
 * Mapping a segment into this process: memfds by mmap, memory of a GPU by the CUDA driver
 * (import_cuda.c). The latter is mapped in the GPU's primary context, which is retained while
 * anything of that GPU is mapped.
 *
 * No state; any thread.
 */
#ifndef GB_LIB_IMPORT_H
#define GB_LIB_IMPORT_H

#include "client/lib/memory/imported.h"

/*
 * Checks a segment from the daemon before it is mapped: a memfd must be as large as the segment,
 * and sealed against shrinking under a reader. `fd` is the handle's descriptor, -1 for kinds
 * without; it stays the caller's. GPUBUF_E_PROTOCOL, GPUBUF_E_UNSUPPORTED, GPUBUF_E_SYSTEM,
 * GPUBUF_E_DEVICE.
 */
int gb_import_identify(const struct gb_segment_info *segment, int fd,
                       struct gb_memory_identity *identity, struct gb_error *error);

/* Maps a segment that was identified. GPUBUF_E_NO_MEMORY, GPUBUF_E_SYSTEM, GPUBUF_E_UNSUPPORTED,
   GPUBUF_E_DEVICE. */
int gb_import_map(const struct gb_segment_info *segment, int fd, struct gb_imported *imported,
                  struct gb_error *error);
void gb_import_unmap(const struct gb_imported *imported);

/* Takes away, or gives back, the right to write bytes `from` to `to` of a writable mapping: whole
   pages of a memfd, or all of a segment on a GPU. Returns whether it could. */
bool gb_import_set_writable(const struct gb_imported *imported, uint64_t from, uint64_t to,
                            bool writable);

/*
 * Has the kernel keep everybody from writing to a memfd that is mapped here for writing. The
 * mapping stays at its address, read-only. GPUBUF_E_BUSY: the memfd is mapped for writing anywhere
 * else; then all is as before. GPUBUF_E_SYSTEM. The kernel waits for pinned pages, a device's say,
 * for up to a tenth of a second.
 */
int gb_import_finish(const struct gb_imported *imported, struct gb_error *error);

/*
 * Copies memory into a writable mapping by the quickest way that there is. The range must lie
 * inside. `from` is host memory; for a mapping on a GPU it may be any, and unless it is pageable
 * memory of the host it must stay until gb_gpu_finish. GPUBUF_E_NO_MEMORY or GPUBUF_E_SYSTEM if the
 * system has no memory to back it; GPUBUF_E_DEVICE.
 */
int gb_import_write(const struct gb_imported *imported, uint64_t offset, const void *from,
                    uint64_t bytes, struct gb_error *error);

#endif
