/*
 * The host tier's memory: one memfd of the tier's whole budget, mapped once, whose pages come when
 * they are first used and are pinned then, a chunk at a time, so that a GPU copies to and from them
 * at full speed. They stay: making a page costs more than copying it. Some threads make the pages
 * of the next chunks ahead of their use.
 */
#ifndef GB_PINNED_H
#define GB_PINNED_H

#include "daemon/memory/device.h"

struct gb_pinned;

/* `bytes` of address space. GPUBUF_E_SYSTEM, GPUBUF_E_NO_MEMORY. */
int gb_pinned_new(uint64_t bytes, struct gb_pinned **pinned, struct gb_error *error);
/* Over an earlier daemon's memory, at least as large, whose descriptor is taken over on success. To
   be called before it is used. */
int gb_pinned_restore(struct gb_pinned *pinned, int fd, struct gb_error *error);
int gb_pinned_fd(const struct gb_pinned *pinned);
/* After the threads that move have ended. NULL is fine. */
void gb_pinned_free(struct gb_pinned *pinned);

/* How many of `bytes` from `offset` on one copy may take, which is up to the chunk's end; pins the
   chunk if that has not been done. On any thread. Where pinning fails the copy works, slower. */
uint64_t gb_pinned_span(struct gb_pinned *pinned, struct gb_device *device, uint64_t offset,
                        uint64_t bytes);
void *gb_pinned_at(const struct gb_pinned *pinned, uint64_t offset);

#endif
