#include "client/lib/objects/references.h"

#include <stdlib.h>

#include "client/lib/objects/object.h"
#include "client/lib/wire/enter.h"

/* Drops a reference. Returns the lease if it was the last that kept it. */
static struct gb_lease *unreference(struct gpubuf_object *object)
{
    if (atomic_fetch_sub_explicit(&object->references, 1, memory_order_acq_rel) > 1)
        return NULL;
    struct gb_lease *lease = object->lease;
    if (object != lease->root) {
        gb_selection_drop(object->selection);
        free(object);
    }
    if (atomic_fetch_sub_explicit(&lease->references, 1, memory_order_acq_rel) > 1)
        return NULL;
    return lease;
}

void gb_object_drop(struct gpubuf_object *object)
{
    struct gb_lease *lease = object ? unreference(object) : NULL;
    if (lease)
        gb_lease_end(lease);
}

struct gpubuf_object *gpubuf_retain(struct gpubuf_object *object)
{
    if (object)
        (void)atomic_fetch_add_explicit(&object->references, 1, memory_order_relaxed);
    return object;
}

/* Leases that end together, and whose client is locked meanwhile. */
static void batch_end(struct gpubuf_client *client)
{
    if (!client)
        return;
    gb_send_releases(client);
    gb_leave(client);
}

void gpubuf_release_many(struct gpubuf_object *const *objects, size_t count)
{
    struct gpubuf_client *client = NULL; /* locked */
    for (size_t i = 0; i < count; i++) {
        struct gb_lease *lease = objects[i] ? unreference(objects[i]) : NULL;
        if (!lease)
            continue;
        if (gb_is_forked(lease->client)) {
            gb_lease_free(lease);
            continue;
        }
        if (lease->client != client) {
            batch_end(client);
            client = lease->client;
            gb_client_retain(client);
            pthread_mutex_lock(&client->lock);
            (void)gb_poll_gpus(client);
        }
        gb_lease_end(lease);
    }
    batch_end(client);
}

void gpubuf_release(struct gpubuf_object *object)
{
    gpubuf_release_many(&object, 1);
}
