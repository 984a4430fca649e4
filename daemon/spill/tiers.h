/*
 * The tiers below a daemon's devices: makes them, starts and ends their threads. evict.c decides
 * what goes there. The loop's.
 */
#ifndef GB_TIERS_H
#define GB_TIERS_H

#include "daemon/spill/settings.h"
#include "daemon/spill/spill.h"

/* Makes the tiers that the configuration wants, for devices that have been made. A failure is a
   sentence for the person who started the daemon. */
int gb_spill_init(struct gb_spill *spill, struct gb_registry *registry,
                  const struct gb_spill_settings *settings, struct gb_device **devices,
                  unsigned count, struct gb_error *error);
/* Whether the disk tier could be made: its directory is there and may be written, and its file
   system is as large as the tier. 0, or a failure as of gb_spill_init. */
int gb_spill_check(const struct gb_spill_settings *settings, struct gb_error *error);
/* Starts the threads. GPUBUF_E_SYSTEM. */
int gb_spill_start(struct gb_spill *spill, uv_loop_t *loop, struct gb_error *error);
/* Gives up the moves that are under way and ends the threads. */
void gb_spill_stop(struct gb_spill *spill);
/* To be called after every storage is freed, and before the devices are. */
void gb_spill_end(struct gb_spill *spill);

/* The disk tier cannot be used: from now on it is as if there were none. */
void gb_spill_begin_outage(struct gb_spill *spill, const struct gb_error *why);
/* Checks whether the outage is over, if it is time. */
void gb_spill_check_outage(struct gb_spill *spill);

/* Has a waiting request bid for room in the tiers from `full_tier` on, which is full (GB_TIERS: in
   none). */
void gb_spill_bid(struct gb_spill *spill, struct gb_bid *bid, enum gb_tier_kind full_tier);

/* Whether the device's objects can go to that tier. */
bool gb_spill_has(const struct gb_spill *spill, const struct gb_device *device,
                  enum gb_tier_kind tier);
/* Has waiting requests tried again, since there may be room where there was none. `spill`: a struct
   gb_spill. */
void gb_spill_changed(void *spill);

#endif
