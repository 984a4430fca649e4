/* Live objects, for create, register, open and hello. */
#ifndef GB_LIVE_H
#define GB_LIVE_H

#include "daemon/methods/object.h"

/* Refuses parameters that go without `live`, if that is said. GPUBUF_E_INVALID. */
int gb_live_check(struct gb_call *call, const struct gb_create_params *params);
/* Whether the session may have a lease for writing the object (NULL: one that is to be made). */
int gb_live_may_write(struct gb_call *call, const struct gb_object *object);
/* For `open` with access "write". 0; GB_WAITS; or a negative code. */
int gb_live_open(struct gb_call *call, struct gb_object *object, bool exclusive, uint64_t wait_ms,
                 struct gb_lease **lease);
/* Makes sure that the daemon can tell when the session's process has exited. Errors of
   gb_orphan_writer_new(). */
int gb_live_know_process(struct gb_call *call);
/* Gives the session the lease again that its process had in an earlier one: for writing, or as the
   reader of that number in the object's stream (-1: for writing). Takes that as charged already: no
   limit refuses it. NULL: there is none, or memory is out, or it cannot be told whether this is the
   process; then it stays where it is. */
struct gb_lease *gb_live_resume(struct gb_call *call, const struct gb_string *name,
                                uint64_t version, int reader, uint64_t former);
/* The session has come back for all that its process writes or takes part in: what is left of the
   former one ends. */
void gb_live_end_rest(struct gb_call *call, uint64_t former);

#endif
