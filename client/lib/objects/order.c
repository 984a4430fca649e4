#include "client/lib/objects/order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/memory/gpu_copy.h"
#include "client/lib/memory/gpu_event.h"
#include "client/lib/objects/object.h"
#include "client/lib/objects/ready.h"
#include "client/lib/objects/references.h"
#include "client/lib/wire/enter.h"
#include "client/lib/wire/flusher.h"
#include "client/lib/wire/output.h"
#include "client/lib/wire/release.h"
#include "client/lib/wire/report.h"

#define LOOKED_AT_MAX 16 /* how many unfinished events one call looks at */

struct pending_seal {
    struct gb_gpu_event *event;
    uint64_t version;
    char *name;
};

struct pending_release {
    struct gb_gpu_event *event;
    struct gpubuf_object *object;
};

struct gb_order {
    struct pending_seal seals[GB_ORDER_MAX];
    struct pending_release releases[GB_ORDER_MAX];
    size_t seal_count, release_count;
    size_t reserved; /* seals under way */
};

static struct gb_order *order_of(struct gpubuf_client *client)
{
    if (!client->order)
        client->order = calloc(1, sizeof(*client->order));
    return client->order;
}

void gb_order_end(struct gb_order *order)
{
    if (!order)
        return;
    for (size_t i = 0; i < order->seal_count; i++) {
        gb_gpu_event_drop(order->seals[i].event);
        free(order->seals[i].name);
    }
    free(order);
}

/* ---- what is done ---- */

/* Tells the daemon of as many settled objects as one message may name. Returns how many; 0: memory
   is out. */
static size_t send_some(struct gpubuf_client *client, const struct pending_seal *done, size_t count)
{
    struct gb_writer *writer = &client->notice;
    size_t bound = client->daemon.request_bytes_max - 6 * (GB_LIMIT(name_bytes) + 1) - 128,
           sent = 0;

    gb_writer_reset(writer);
    gb_rpc_begin_notification(writer, "settle", 0);
    GB_WRITE_LITERAL(writer, "{\"objects\":[");
    for (; sent < count && sent < client->daemon.names_max && writer->length < bound; sent++) {
        gb_write_text(writer, sent ? ",{\"name\":" : "{\"name\":");
        gb_write_cstring(writer, done[sent].name);
        gb_write_format(writer, ",\"version\":%" PRIu64 "}", done[sent].version);
    }
    GB_WRITE_LITERAL(writer, "]}");
    gb_rpc_end(writer);
    bool queued =
        !writer->failed && gb_conn_queue(&client->conn, writer->data, writer->length, NULL, 0) == 0;
    return queued ? sent : 0;
}

/* False: memory is out, and all are told again the next time. Settling twice does no harm. */
static bool send_settle(struct gpubuf_client *client, const struct pending_seal *done, size_t count)
{
    if (client->end.lost.code || client->end.write_failed)
        return true;
    for (size_t told = 0; told < count;) {
        size_t sent = send_some(client, done + told, count - told);
        if (sent == 0)
            return false;
        told += sent;
    }
    return true;
}

/* Settles the objects whose work is done. If the work has failed, nobody can vouch for the content:
   the object is never settled, and is withdrawn with the connection. */
static bool poll_seals(struct gpubuf_client *client, struct gb_order *order)
{
    struct pending_seal done[GB_ORDER_MAX];
    size_t done_count = 0, kept = 0, unfinished = 0;

    for (size_t i = 0; i < order->seal_count; i++) {
        struct pending_seal seal = order->seals[i];
        int r = unfinished < LOOKED_AT_MAX ? gb_gpu_event_query(seal.event, NULL) : 0;
        if (r == 1) {
            done[done_count++] = seal;
        } else if (r == 0) {
            order->seals[kept++] = seal;
            unfinished++;
        } else {
            gb_gpu_event_drop(seal.event);
            free(seal.name);
        }
    }
    order->seal_count = kept;
    bool told = done_count > 0 && send_settle(client, done, done_count);
    for (size_t i = 0; i < done_count; i++) {
        if (!told) {
            order->seals[order->seal_count++] = done[i];
            continue;
        }
        gb_gpu_event_drop(done[i].event);
        free(done[i].name);
    }
    return told;
}

/* Drops the references whose work is done. A context that failed runs nothing any more, so its work
   is done, too. */
static bool poll_releases(struct gb_order *order)
{
    struct pending_release done[GB_ORDER_MAX];
    size_t done_count = 0, kept = 0, unfinished = 0;

    for (size_t i = 0; i < order->release_count; i++) {
        struct pending_release *release = &order->releases[i];
        if (unfinished < LOOKED_AT_MAX && gb_gpu_event_query(release->event, NULL) != 0) {
            done[done_count++] = *release;
        } else {
            order->releases[kept++] = *release;
            unfinished++;
        }
    }
    order->release_count = kept;
    for (size_t i = 0; i < done_count; i++) {
        gb_gpu_event_drop(done[i].event);
        gb_object_drop(done[i].object);
    }
    return done_count > 0;
}

bool gb_order_poll(struct gpubuf_client *client)
{
    struct gb_order *order = client->order;
    bool settled = order->seal_count > 0 && poll_seals(client, order);
    bool released = order->release_count > 0 && poll_releases(order);

    if (settled || released) {
        gb_flush_releases(client);
    }
    return order->seal_count > 0 || order->release_count > 0;
}

/* ---- seals ---- */

/* Waits for an event that the order holds, and looks again. */
static void wait_for(struct gpubuf_client *client, struct gb_gpu_event *event)
{
    (void)gb_gpu_event_ref(event);
    pthread_mutex_unlock(&client->lock);
    (void)gb_gpu_event_wait(event, NULL);
    pthread_mutex_lock(&client->lock);
    gb_gpu_event_drop(event);
    (void)gb_order_poll(client);
}

int gb_order_reserve(struct gpubuf_client *client, struct gb_error *error)
{
    struct gb_order *order = order_of(client);

    if (!order)
        return gb_fail_memory(error);
    while (order->seal_count > 0 && order->seal_count + order->reserved >= GB_ORDER_MAX)
        wait_for(client, order->seals[0].event);
    if (order->reserved >= GB_ORDER_MAX)
        return gb_fail(error, GPUBUF_E_LIMIT, "%d seals are under way", GB_ORDER_MAX);
    order->reserved++;
    return 0;
}

void gb_order_unreserve(struct gpubuf_client *client)
{
    client->order->reserved--;
}

void gb_order_sealed(struct gb_client_lease *lease, struct gb_ready *ready)
{
    struct gpubuf_client *client = lease->client;
    struct gb_order *order = client->order;

    atomic_store(&lease->ready, ready);
    order->reserved--;
    /* Without memory for the name the object stays unsettled, and readers wait on the event. */
    char *name = strdup(lease->name);
    if (!name)
        return;
    order->seals[order->seal_count++] = (struct pending_seal){
        .event = gb_gpu_event_ref(ready->event),
        .version = atomic_load(&lease->version),
        .name = name,
    };
    (void)gb_flusher_engage(client);
}

/* ---- releases ---- */

/* Without the lock. */
static int defer(struct gpubuf_client *client, struct gpubuf_object *object, struct gb_gpu *gpu,
                 void *stream)
{
    struct gb_error error;
    struct gb_gpu_event *event;
    int r = gb_gpu_event_record(gpu, stream, false, &event, &error);

    if (r < 0)
        return gb_report(client, &error);
    gb_client_retain(client);
    pthread_mutex_lock(&client->lock);
    struct gb_order *order = order_of(client);
    if (!order) {
        gb_gpu_event_drop(event);
        r = gb_report_memory(client);
    } else {
        while (order->release_count >= GB_ORDER_MAX)
            wait_for(client, order->releases[0].event);
        order->releases[order->release_count++] = (struct pending_release){event, object};
        (void)gb_flusher_engage(client);
    }
    gb_leave(client);
    return r;
}

int gpubuf_release_on(struct gpubuf_object *object, void *stream)
{
    if (!object || !stream || gb_is_forked(object->lease->client)) {
        gpubuf_release(object);
        return 0;
    }
    struct gpubuf_client *client = object->lease->client;
    struct gb_error error;
    struct gb_gpu *gpu;
    int r = gb_client_lease_gpu(object->lease, &gpu, &error);
    if (r == 0 && !gpu) /* an event needs a context, and host memory has none */
        r = gb_gpu_finish(NULL, stream, &error);
    if (r < 0)
        return gb_report(client, &error);
    if (gpu && !atomic_load(&client->disconnected))
        return defer(client, object, gpu, stream);
    if (gpu && gb_gpu_finish(gpu, stream, &error) < 0)
        return gb_report(client, &error);
    gpubuf_release(object);
    return 0;
}

void gb_order_break(struct gpubuf_client *client)
{
    struct gb_order *order = client->order;

    while (order && order->seal_count > 0) {
        struct pending_seal *seal = &order->seals[--order->seal_count];
        gb_gpu_event_drop(seal->event);
        free(seal->name);
    }
}

void gb_order_drain(struct gpubuf_client *client)
{
    while (client->order && client->order->release_count > 0)
        wait_for(client, client->order->releases[0].event);
    (void)gb_poll_gpus(client);
}
