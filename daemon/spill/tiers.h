/*
 * The tiers below a daemon's devices: making them, starting and ending their threads, and what they
 * may take. spill.h decides what goes there and comes back. The loop's.
 */
#ifndef GB_TIERS_H
#define GB_TIERS_H

#include "daemon/spill/settings.h"
#include "daemon/spill/spill.h"

/* Makes the tiers that the configuration wants, for devices that have been made. A failure is a
   sentence for the person who started us. */
int gb_spill_init(struct gb_spill *spill, struct gb_registry *registry,
                  const struct gb_spill_settings *settings, struct gb_device **devices,
                  unsigned count, struct gb_error *error);
/* Starts the threads. GPUBUF_E_SYSTEM. */
int gb_spill_start(struct gb_spill *spill, uv_loop_t *loop, struct gb_error *error);
/* Gives up what is under way and ends the threads. */
void gb_spill_stop(struct gb_spill *spill);
/* After every storage has gone; before the devices do. */
void gb_spill_end(struct gb_spill *spill);

/* Has a request that waits claim room in the tier that it lacks some of (GB_TIERS: in none). */
void gb_spill_claim(struct gb_spill *spill, struct gb_claim *claim, enum gb_tier_kind full_tier);

/* The bytes of the device that the tiers could take if they kept only what is nowhere else. They
   leave the reserve free, and some more, since the room that a device has left may lie in pieces;
   and what they can take is as much again, or nothing: objects are alike, and leave as wholes. */
uint64_t gb_spill_room_below(const struct gb_spill *spill, const struct gb_device *device,
                             uint64_t reserve);
/* Whether there is such a tier for the device's objects. */
bool gb_spill_has(const struct gb_spill *spill, const struct gb_device *device,
                  enum gb_tier_kind tier);
/* There may be room where there was none: requests that wait are tried again. `spill`: a struct
   gb_spill. */
void gb_spill_changed(void *spill);

#endif
