/*
 * Makes room for an object that a request makes or restores, or has the request wait: for memory of
 * a device or a tier, for the end of a move, for names to appear. A request that waits is put aside
 * and tried again as a whole.
 */
#ifndef GB_SPACE_H
#define GB_SPACE_H

#include "daemon/methods/call.h"
#include "daemon/spill/spill.h"
#include "daemon/store/store.h"

/* A request's search for room on a device, in one try. The caller sets `key`, and `bytes`,
   `adoptions` or `storage`, of the placing; the rest is found out by gb_call_place(). */
struct gb_search {
    struct gb_placing placing;
    struct gb_device *device;
    uint64_t need;               /* bytes that it needs on the device */
    enum gb_look look;           /* FITS: eviction makes enough room; MAPPED: or so it will, since
                                    sessions were asked to unmap segments or end leases */
    enum gb_room room;           /* what the last eviction brought */
    enum gb_tier_kind full_tier; /* the tier without room for a storage to leave; GB_TIERS: none */
};

/* Finds a place, after making room if need be: an enum gb_place, or a negative code. Unless it is 0
   the call's error is set. */
int gb_call_place(struct gb_call *call, struct gb_search *search);

/* To be called with the result `r` of a check of the user's quota, as that does. Returns it; or
   GB_PLACE_QUOTA if it was a refusal, and the user merely keeps leases on versions without a name,
   which are recalled then. */
int gb_call_spare(struct gb_call *call, struct gb_device *device, int r);

/* To be called if that gave another enum gb_place than OK: waits for space, for FULL until
   `wait_ms` have passed since the first try. GB_WAITS; or the error no_space or timeout. */
int gb_call_wait_space(struct gb_call *call, const struct gb_search *search, int place,
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
/* The request as a demand for room (spill.h), which leaves `reserve` bytes in the tiers. */
struct gb_demand gb_call_demand(const struct gb_call *call, uint64_t reserve);
/* Waits, with a claim, for room in the tier, which is full, and for any change on the device. */
int gb_call_wait_tier(struct gb_call *call, struct gb_device *device, enum gb_tier_kind full_tier);
/* Waits for leases that were recalled, of objects on the device. */
int gb_call_wait_recall(struct gb_call *call, struct gb_device *device);
/* GPUBUF_E_DEVICE if the storage's move, for which this request has waited, has failed; else 0. */
int gb_call_move_failure(struct gb_call *call, struct gb_storage *storage);

#endif
