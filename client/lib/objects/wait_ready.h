/* Waiting until an object's content is there. Without the client's lock. */
#ifndef GB_LIB_WAIT_READY_H
#define GB_LIB_WAIT_READY_H

struct gb_gpu_event;
struct gb_client_lease;

/*
 * The event to wait for, with a reference of the caller's, opened if need be; NULL if there is
 * nothing to wait for. Without the lock; may ask the daemon. GPUBUF_E_DEVICE; GPUBUF_E_STALE: the
 * producer's end has withdrawn the object. Reports failures.
 */
int gb_ready_event(struct gb_client_lease *lease, struct gb_gpu_event **event);

#endif
