/*
 * Makes room for an object that a request makes or restores, or has the request wait: for memory of
 * a device or a tier, for the end of a move, for names to appear. A request that waits is put aside
 * and tried again as a whole.
 */
#ifndef GB_SPACE_H
#define GB_SPACE_H

#include "daemon/methods/call.h"

/* Finds a place, after making room if need be: an enum gb_place, or a negative code. Unless it is 0
   the call's error is set. The caller sets `key`, and `bytes`, `adoptions` or `storage`, of the
   demand's placing. */
int gb_call_place(struct gb_call *call, struct gb_demand *demand);
/* Fails with no_space; the sentence tells where the room is, and ends with `more`. */
int gb_call_no_space(struct gb_call *call, const struct gb_demand *demand, const char *more);

/* To be called with the result `r` of a check of the user's quota, as that does. Returns it; or
   GB_PLACE_QUOTA if it was a refusal, and the user merely keeps leases on versions without a name,
   which are recalled then. */
int gb_call_quota_outcome(struct gb_call *call, struct gb_device *device, int r);

/* To be called if that gave another enum gb_place than OK: waits for space, for FULL until
   `wait_ms` have passed since the first try. GB_WAITS; or the error no_space or timeout. */
int gb_call_wait_space(struct gb_call *call, const struct gb_demand *demand, int place,
                       uint64_t wait_ms);
/* Waits for any of the names to appear. */
int gb_call_wait_names(struct gb_call *call, const struct gb_string *names, size_t count,
                       uint64_t wait_ms);

/* Waits to write the live object, or, with `claims`, to be its only writer; or for the name's next
   object. */
int gb_call_wait_writer(struct gb_call *call, struct gb_object *object, bool claims,
                        uint64_t wait_ms);

/* Brings a sealed object's content back to its device. 0: it is there; GB_WAITS; a negative code.
   Meanwhile the request also waits for `name` (NULL: none) to appear. The content then stays on the
   device until the request is answered. */
int gb_call_restore(struct gb_call *call, struct gb_object *object, const struct gb_string *name,
                    uint64_t wait_ms);
/* Waits for the end of the storage's move, or for the name (NULL: none) to appear. */
int gb_call_wait_move(struct gb_call *call, struct gb_storage *storage,
                      const struct gb_string *name);
/* Sets what a demand has of its request; the device is set. */
void gb_call_demand(struct gb_call *call, struct gb_demand *demand);
/* Waits, with a claim, for room in the tier, which is full (GB_TIERS: in none), and for any change
   on the device. */
int gb_call_wait_tier(struct gb_call *call, struct gb_device *device, enum gb_tier_kind full_tier);
/* GPUBUF_E_DEVICE if the storage's move, for which this request has waited, has failed; else 0. */
int gb_call_move_failure(struct gb_call *call, struct gb_storage *storage);

#endif
