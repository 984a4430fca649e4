/*
 * The host tier's memory: one memfd of the tier's whole budget, mapped once. The pages of a chunk
 * are made and pinned when the chunk is first used, so that a GPU copies to and from them at full
 * speed. They are kept, since making a page takes longer than copying it. Some threads make the
 * pages of the next chunks ahead of their use.
 */
#ifndef GB_PINNED_H
#define GB_PINNED_H

#include "daemon/memory/device.h"

struct gb_pinned;

/* `bytes` of address space. GPUBUF_E_SYSTEM, GPUBUF_E_NO_MEMORY. */
int gb_pinned_new(uint64_t bytes, struct gb_pinned **pinned, struct gb_error *error);
/* Takes an earlier daemon's memory in place of its own, and the descriptor on success. A smaller
   memory grows to the budget. To be called before the first use. */
int gb_pinned_restore(struct gb_pinned *pinned, int fd, struct gb_error *error);
int gb_pinned_fd(const struct gb_pinned *pinned);
/* To be called after the movers have ended. NULL is fine. */
void gb_pinned_free(struct gb_pinned *pinned);

/* Pins the chunk at `offset` if it is not pinned, and returns how many of `bytes` from there lie in
   it: one copy may take these. Any thread. If pinning fails the copy still works, slower. */
uint64_t gb_pinned_span(struct gb_pinned *pinned, struct gb_device *device, uint64_t offset,
                        uint64_t bytes);
void *gb_pinned_at(const struct gb_pinned *pinned, uint64_t offset);

#endif
