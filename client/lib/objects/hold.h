/*
 * Holding memory without its object, for languages whose garbage collector decides when memory is
 * no longer reachable. Until the hold is dropped the mapping stays, and the daemon counts it as
 * mapped. The lease may have ended by then, and the content be another object's of the same domain.
 *
 * The shared library does not export these functions: they are for bindings that are linked with
 * these sources. Any thread.
 */
#ifndef GB_LIB_HOLD_H
#define GB_LIB_HOLD_H

#include "gpubuf.h"

struct gb_hold;

/*
 * Holds the whole mapping that the object's buffer `which` lies in and tells where it is; the
 * caller ends the hold with gb_hold_drop. Of a view it holds the window, which reads as zeros while
 * it is parked and after its end. Of live memory that may be written it describes that buffer
 * alone. 1 if there is no such buffer, if it has no memory, or if it is on a GPU; then nothing is
 * held. Errors are those of gpubuf_memory.
 */
int gb_hold_mapping(const struct gpubuf_object *object, enum gpubuf_which which,
                    struct gb_hold **hold, struct gpubuf_memory *mapping);

/* Tells one mapping of a client from another: the same for two holds of the same mapping as
   long as one of them lasts. */
const void *gb_hold_key(const struct gb_hold *hold);

/* Also after gpubuf_disconnect. NULL is fine. */
void gb_hold_drop(struct gb_hold *hold);

#endif
