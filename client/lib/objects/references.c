#include "client/lib/objects/references.h"

#include <stdlib.h>

#include "client/lib/objects/cached.h"
#include "client/lib/objects/object.h"
#include "client/lib/wire/enter.h"

/* Drops a reference, unless it is the last. */
static bool drop_one(_Atomic size_t *references)
{
    size_t count = atomic_load_explicit(references, memory_order_relaxed);

    while (count > 1) {
        if (atomic_compare_exchange_weak_explicit(references, &count, count - 1,
                                                  memory_order_release, memory_order_relaxed))
            return true;
    }
    return false;
}

/* Drops a reference. Returns the lease if that was its last one. The last reference to a root, and
   to a lease, is dropped with the client's lock held: until then the lease may be found by its name
   (cached.h). */
static struct gb_client_lease *unreference(struct gpubuf_object *object)
{
    if (atomic_fetch_sub_explicit(&object->references, 1, memory_order_acq_rel) > 1)
        return NULL;
    struct gb_client_lease *lease = object->lease;
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
    struct gb_client_lease *lease = object ? unreference(object) : NULL;

    if (lease && !gb_cached_add(lease))
        gb_client_lease_end(lease);
}

struct gpubuf_object *gpubuf_retain(struct gpubuf_object *object)
{
    if (object)
        (void)atomic_fetch_add_explicit(&object->references, 1, memory_order_relaxed);
    return object;
}

/* Ends a batch of releases of one client (may be NULL), which is locked until now. */
static void batch_end(struct gpubuf_client *client)
{
    if (!client)
        return;
    if (client->releases.count > 0 || client->imports.unmap_count > 0 ||
        gb_conn_has_output(&client->conn))
        gb_send_releases(client);
    gb_leave(client);
}

void gpubuf_release_many(struct gpubuf_object *const *objects, size_t count)
{
    struct gpubuf_client *client = NULL; /* locked */

    for (size_t i = 0; i < count; i++) {
        if (!objects[i] || drop_one(&objects[i]->references))
            continue;
        if (gb_is_forked(objects[i]->lease->client)) {
            struct gb_client_lease *lease = unreference(objects[i]);
            if (lease)
                gb_client_lease_free(lease);
            continue;
        }
        if (objects[i]->lease->client != client) {
            batch_end(client);
            client = objects[i]->lease->client;
            gb_client_retain(client);
            pthread_mutex_lock(&client->lock);
            (void)gb_poll_gpus(client);
        }
        gb_object_drop(objects[i]);
    }
    batch_end(client);
}

void gpubuf_release(struct gpubuf_object *object)
{
    gpubuf_release_many(&object, 1);
}
