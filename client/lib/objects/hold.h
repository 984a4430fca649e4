/*
 * Holding memory without its object, for languages whose own garbage collector decides when nobody
 * can look at it any more: the mapping stays, and the daemon counts it as mapped, until the hold is
 * dropped, though the lease may have ended and the content be another object's of the same domain.
 *
 * Not shown by the shared library; for bindings that are linked with these sources. Any thread.
 */
#ifndef GB_LIB_HOLD_H
#define GB_LIB_HOLD_H

#include "gpubuf.h"

struct gb_hold;

/*
 * Holds the whole mapping that the object's buffer `which` lies in and tells where it is; to be
 * ended with gb_hold_drop. 1 if there is no such buffer, it lies nowhere, or it is on a GPU; then
 * nothing is held. Errors are those of gpubuf_memory.
 */
int gb_hold_mapping(const struct gpubuf_object *object, enum gpubuf_which which,
                    struct gb_hold **hold, struct gpubuf_memory *mapping);

/* Tells one mapping of a client from another: the same for two holds of the same mapping as
   long as one of them lasts. */
const void *gb_hold_key(const struct gb_hold *hold);

/* Also after gpubuf_disconnect. NULL is fine. */
void gb_hold_drop(struct gb_hold *hold);

#endif
