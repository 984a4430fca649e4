/*
 * A window: a range of addresses at which one piece of memory after another is shown, for reading.
 * Its address never changes, so what was computed from it stays good: pointers, captured graphs.
 *
 * On the host all of a change is one move of page tables: no access in between fails, and what was
 * faulted in before stays so. On a GPU the old memory is unmapped before the new one is mapped. The
 * caller sees to it that no work uses the window meanwhile.
 *
 * No lock: one thread at a time. The memory must stay mapped where it came from.
 */
#ifndef GB_LIB_WINDOW_H
#define GB_LIB_WINDOW_H

#include "client/lib/memory/imported.h"

struct gb_view_window;

/* Reserves addresses for the first `bytes` of pieces like `like`; shows nothing yet.
   GPUBUF_E_UNSUPPORTED: memory of cuMemAlloc cannot be shown; GPUBUF_E_NO_MEMORY;
   GPUBUF_E_DEVICE. */
int gb_window_open(const struct gb_imported *like, uint64_t bytes, struct gb_view_window **window,
                   struct gb_error *error);
/* Nothing may use the window any more, unless it is held. */
void gb_window_close(struct gb_view_window *window);

/* For memory that a garbage collector decides about. Until gb_window_release the addresses stay
   reserved, also after gb_window_close, and a window on the host that shows nothing reads as zeros.
   Any thread. */
void gb_window_hold(struct gb_view_window *window);
void gb_window_release(struct gb_view_window *window);

void *gb_window_address(const struct gb_view_window *window);
uint64_t gb_window_bytes(const struct gb_view_window *window); /* that are shown */
bool gb_window_is_shown(const struct gb_view_window *window);

/* Waits for the GPU's work: that of `count` streams, or, without any, all of the context's. On the
   host there is nothing to wait for. GPUBUF_E_DEVICE. */
int gb_window_wait(const struct gb_view_window *window, void *const *streams, size_t count,
                   struct gb_error *error);

/* Shows `memory` in place of what is shown. On failure the window is as it was; where the driver
   cannot undo it, either, nothing is shown. GPUBUF_E_UNSUPPORTED: it is larger than what the window
   was opened for; GPUBUF_E_DEVICE; GPUBUF_E_SYSTEM. */
int gb_window_show(struct gb_view_window *window, const struct gb_imported *memory,
                   struct gb_error *error);
/* Shows nothing: an access is a fault, unless the window is held. The addresses stay reserved.
   *was: what was shown, for gb_window_show; without an address: nothing. */
int gb_window_hide(struct gb_view_window *window, struct gb_imported *was, struct gb_error *error);

/* Reserves addresses on the host, aligned such that page tables can be moved in large pieces. NULL:
   there are none. For import.c, too. */
void *gb_window_reserve(uint64_t bytes);

#endif
