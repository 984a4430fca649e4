/*
 * Order between work on GPUs and what the daemon is told. An object that was sealed behind work
 * still under way (`seal` with `ready`) is settled when its event has passed; a reader's reference
 * whose work is still under way is dropped when that is done.
 *
 * Every call on a client, and the flusher, looks at the events that it waits for; without any, that
 * costs a comparison. With the client's lock held, but for what says otherwise.
 */
#ifndef GB_LIB_GPU_ORDER_H
#define GB_LIB_GPU_ORDER_H

#include "client/lib/wire/client.h"

struct gb_holding;
struct gb_ready;

#define GB_ORDER_MAX 256 /* seals, and releases, that a client waits for */

/* Room for one seal more to wait for; the oldest is waited for, with the lock let go, where there
   is none. To be ended by one of the next two. GPUBUF_E_NO_MEMORY. */
int gb_order_reserve(struct gpubuf_client *client, struct gb_error *error);
void gb_order_unreserve(struct gpubuf_client *client);
/* The object of the lease is sealed; to be settled when the event of `ready`, which becomes the
   lease's, has passed. */
void gb_order_sealed(struct gb_holding *lease, struct gb_ready *ready);

/* Settles and drops what is done, and tells the daemon. Returns whether there is more to wait for.
   There must be an order; see gb_poll_gpus. */
bool gb_order_poll(struct gpubuf_client *client);

/* The connection broke, and the daemon has taken what was not settled along. */
void gb_order_break(struct gpubuf_client *client);

/* Before a client disconnects: waits for the deferred releases, and settles what has passed. Lets
   the lock go. */
void gb_order_drain(struct gpubuf_client *client);
/* With the client: nothing is deferred any more. */
void gb_order_end(struct gb_order *order);

#endif
