/*
 * Order between work on GPUs and what the daemon is told. An object that was sealed behind work
 * still under way (`seal` with `ready`) is settled when its event has passed; a reader's reference
 * whose work is still under way is dropped when the work is done.
 *
 * Every call on a client, and the flusher, looks at the events that it waits for; without any, that
 * costs a comparison. With the client's lock held, unless a function's comment says otherwise.
 */
#ifndef GB_LIB_GPU_ORDER_H
#define GB_LIB_GPU_ORDER_H

#include "client/lib/wire/client.h"

struct gb_client_lease;
struct gb_ready;

#define GB_ORDER_MAX 256 /* seals, and releases, that a client waits for */

/* Makes room for one more seal to wait for. If there is none, waits for the oldest one, with the
   lock let go. One of the next two functions follows. GPUBUF_E_NO_MEMORY. */
int gb_order_reserve(struct gpubuf_client *client, struct gb_error *error);
void gb_order_unreserve(struct gpubuf_client *client);
/* The lease's object is sealed, and is to be settled when the event of `ready` has passed. `ready`
   becomes the lease's. */
void gb_order_sealed(struct gb_client_lease *lease, struct gb_ready *ready);

/* Settles and drops what is done, and tells the daemon. Returns whether there is more to wait for.
   The client must have an order; gb_poll_gpus checks that. */
bool gb_order_poll(struct gpubuf_client *client);

/* The connection broke, and the daemon has withdrawn the objects that were not settled. */
void gb_order_break(struct gpubuf_client *client);

/* Before a client disconnects: waits for the deferred releases, and settles what has passed. Lets
   the lock go. */
void gb_order_drain(struct gpubuf_client *client);
/* At the end of the client, when no release is deferred any more. */
void gb_order_end(struct gb_order *order);

#endif
