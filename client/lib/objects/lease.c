#include "client/lib/objects/lease.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/base/clock.h"
#include "client/lib/memory/gpu.h"
#include "client/lib/memory/window.h"
#include "client/lib/objects/ready.h"
#include "client/lib/wire/callback.h"
#include "client/lib/wire/flusher.h"
#include "client/lib/wire/fork.h"
#include "client/lib/wire/release.h"

#define BUSY_US 1000 /* a client whose last release is younger than this is busy */
#define HELD_MAX 512 /* how many releases are held back at most */

/* ---- among the client's ---- */

void gb_client_lease_free(struct gb_client_lease *lease)
{
    free(atomic_load(&lease->ready));
    free(lease->relabeled);
    gb_pool_end(&lease->pool);
    free(lease);
}

void gb_client_lease_unuse(struct gb_client_lease *lease)
{
    for (size_t i = 0; i < lease->segment_count; i++)
        gb_imports_unuse(&lease->client->imports, lease->segments[i].import);
    lease->segment_count = 0;
}

void gb_client_lease_add(struct gb_client_lease *lease)
{
    struct gpubuf_client *client = lease->client;

    gb_client_retain(client);
    lease->link = &client->leases;
    lease->next = client->leases;
    if (lease->next)
        lease->next->link = &lease->next;
    client->leases = lease;
    lease->number = ++client->releases.last_lease;
    client->releases.leases++;
    if (client->daemon.resume_ms != GPUBUF_NO_RESUME)
        gb_flusher_watch(client);
}

void gb_client_lease_discard(struct gb_client_lease *lease)
{
    gb_client_lease_unuse(lease);
    gb_client_lease_free(lease);
}

bool gb_client_lease_is_writable(const struct gb_client_lease *lease)
{
    int state = atomic_load(&lease->state);

    if (lease->access.live)
        return lease->access.writable && state == GB_LEASE_SEALED;
    return state == GB_LEASE_OPEN && !atomic_load(&lease->held);
}

/* ---- the memory of what is written ---- */

/* The range that a created object has in its one segment. */
struct extent {
    uint64_t from, to;
};

static int widen(struct gb_buffer *buffer, void *arg)
{
    struct extent *extent = arg;

    if (buffer->bytes == 0)
        return 0;
    if (buffer->offset < extent->from)
        extent->from = buffer->offset;
    if (buffer->offset + buffer->bytes > extent->to)
        extent->to = buffer->offset + buffer->bytes;
    return 0;
}

/* The writable mapping of a created object, and its range there. NULL: there is none. */
static struct gb_mapped *written(struct gb_client_lease *lease, struct extent *extent)
{
    if (!lease->access.writable || lease->segment_count != 1)
        return NULL;
    struct gb_mapped *mapping = lease->segments[0].import->mappings[1];
    if (!mapping)
        return NULL;
    *extent = (struct extent){.from = UINT64_MAX};
    (void)gb_layout_each(&lease->layout, widen, extent);
    return mapping;
}

static struct gb_mapped *written_on_host(struct gb_client_lease *lease, struct extent *extent)
{
    struct gb_mapped *mapping = written(lease, extent);

    return mapping && !gb_mapped_gpu(mapping) ? mapping : NULL;
}

void gb_client_lease_made(struct gb_client_lease *lease)
{
    struct extent extent;
    struct gb_mapped *mapping = written(lease, &extent);

    if (mapping)
        gb_mapped_open(mapping, extent.from, extent.to);
    if (!mapping || !lease->access.live)
        return;
    gb_mapped_keep_from_children(mapping);
    gb_mapped_writer(mapping, 1);
    lease->access.counted = true;
}

void gb_client_lease_guard(struct gb_client_lease *lease)
{
    struct extent extent;

    if (written_on_host(lease, &extent))
        (void)gb_client_lease_protect(lease);
}

bool gb_client_lease_protect(struct gb_client_lease *lease)
{
    struct extent extent;
    struct gb_mapped *mapping = written(lease, &extent);

    if (mapping && !lease->guarded && !lease->final)
        lease->guarded = gb_mapped_guard(mapping, extent.from, extent.to);
    return lease->guarded || atomic_load(&lease->held);
}

void gb_client_lease_unguard(struct gb_client_lease *lease)
{
    struct extent extent = {0, 0};
    struct gb_mapped *mapping = lease->guarded ? written(lease, &extent) : NULL;

    if (mapping)
        gb_mapped_unguard(mapping, extent.from, extent.to);
    lease->guarded = false;
}

int gb_client_lease_finish(struct gb_client_lease *lease, struct gb_error *error)
{
    struct extent extent;
    struct gb_mapped *mapping = written_on_host(lease, &extent);
    struct gb_error cause;

    if (!mapping || atomic_load(&lease->held))
        return 0;
    int r = gb_mapped_finish(mapping, &cause);
    if (r < 0)
        return gb_fail(error, r, "%s cannot be made final: %s", lease->name, cause.message);
    atomic_store(&lease->held, true);
    return 0;
}

void gb_client_lease_stray(struct gb_client_lease *lease)
{
    struct extent extent;
    struct gb_mapped *mapping = written_on_host(lease, &extent);

    if (!mapping || lease->stray)
        return;
    gb_client_lease_unguard(lease);
    gb_mapped_stray(mapping, 1);
    lease->stray = true;
}

void gb_client_lease_lose(struct gb_client_lease *lease)
{
    struct extent extent = {0, 0};
    struct gb_mapped *mapping = lease->access.counted ? written(lease, &extent) : NULL;

    if (mapping)
        gb_mapped_lose(mapping, extent.from, extent.to);
    lease->access.counted = false;
}

/* The mapping of a segment that the lease uses. */
static struct gb_mapped *mapping_of(const struct gb_client_lease_segment *segment)
{
    struct gb_mapped *const *mappings = segment->import->mappings;
    bool first = mappings[0] && gb_mapped_address(mappings[0]) == segment->address;

    return mappings[!first];
}

static pthread_mutex_t pin_lock = PTHREAD_MUTEX_INITIALIZER; /* inside a client's lock */

int gb_client_lease_pin(struct gb_client_lease *lease, struct gb_error *error)
{
    int r = 0;

    pthread_mutex_lock(&pin_lock);
    for (size_t i = 0; i < lease->segment_count && r == 0; i++) {
        struct gb_client_lease_segment *segment = &lease->segments[i];
        if (!segment->pinned)
            r = gb_mapped_pin(mapping_of(segment), error);
        segment->pinned = segment->pinned || r == 0;
    }
    pthread_mutex_unlock(&pin_lock);
    return r;
}

static void unpin(struct gb_client_lease *lease)
{
    for (size_t i = 0; i < lease->segment_count; i++) {
        if (!lease->segments[i].pinned)
            continue;
        pthread_mutex_lock(&pin_lock);
        gb_mapped_unpin(mapping_of(&lease->segments[i]));
        pthread_mutex_unlock(&pin_lock);
    }
}

/* Ends guard and stray before the daemon is told: after that the memory may be another object's. */
static void let_go(struct gb_client_lease *lease)
{
    gb_client_lease_unguard(lease);
    unpin(lease);
    if (lease->stray)
        gb_mapped_stray(lease->segments[0].import->mappings[1], -1);
    if (lease->access.counted)
        gb_mapped_writer(lease->segments[0].import->mappings[1], -1);
}

/* ---- the end of a lease ---- */

void gb_client_lease_end(struct gb_client_lease *lease)
{
    struct gpubuf_client *client = lease->client;
    int state = atomic_load(&lease->state);

    *lease->link = lease->next;
    if (lease->next)
        lease->next->link = lease->link;
    client->releases.leases--;
    if (lease->resuming.asked)
        *lease->resuming.asked = NULL;
    let_go(lease);
    if (lease->window)
        gb_window_close(lease->window);
    if (state != GB_LEASE_ENDED && state != GB_LEASE_STALE)
        gb_push_release(client, lease->id);
    gb_ready_free(atomic_exchange(&lease->ready, NULL));
    gb_client_lease_unuse(lease);
    if (client->end.lost.code)
        gb_imports_abandon(&client->imports);
    else
        gb_imports_trim(&client->imports);
    gb_client_lease_free(lease);
    gb_client_release(client); /* not the last reference: the caller, who has the lock, has one */
}

void gb_send_releases(struct gpubuf_client *client)
{
    if (client->deliveries.under_way && gb_in_callback(client))
        return;
    int64_t now = gb_now_us();
    bool busy = now - client->releases.last_us < BUSY_US;
    client->releases.last_us = now;
    if (busy && client->releases.count < HELD_MAX && gb_flusher_engage(client))
        return;
    gb_flush_releases(client);
    if (gb_conn_has_output(&client->conn) && !client->end.write_failed) /* the socket is full */
        (void)gb_flusher_engage(client);
}

/* ---- where it lies ---- */

int gb_client_lease_gpu(const struct gb_client_lease *lease, struct gb_gpu **gpu,
                        struct gb_error *error)
{
    if (!gb_is_host(lease->device))
        return gb_gpu_find(lease->device, gpu, error);
    *gpu = NULL;
    return 0;
}
