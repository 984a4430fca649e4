#include "gpu_order.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gpu.h"

#define LOOKED_AT_MAX 16    /* how many unfinished events one call looks at */
#define ASK_EVERY_MS 100    /* how often the daemon is asked while another process is waited for */
#define GRACE_MS 1000       /* for an event of an object that the daemon knows no more */
#define PAUSE_MAX_NS 500000 /* between two looks at another process's event */

struct pending_seal {
    struct gb_event *event;
    uint64_t version;
    char *name;
};

struct pending_release {
    struct gb_event *event;
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
        gb_event_drop(order->seals[i].event);
        free(order->seals[i].name);
    }
    free(order);
}

/* ---- what is done ---- */

/* Tells the daemon; what cannot be told now, for want of memory, is told the next time. */
static bool send_settle(struct gpubuf_client *client, const struct pending_seal *done, size_t count)
{
    struct gb_writer *writer = &client->notice;
    if (client->lost.code || client->write_failed)
        return true;
    gb_writer_reset(writer);
    gb_rpc_begin_notification(writer, "settle", 0);
    GB_WRITE_LITERAL(writer, "{\"objects\":[");
    for (size_t i = 0; i < count; i++) {
        gb_write_text(writer, i ? ",{\"name\":" : "{\"name\":");
        gb_write_cstring(writer, done[i].name);
        gb_write_format(writer, ",\"version\":%" PRIu64 "}", done[i].version);
    }
    GB_WRITE_LITERAL(writer, "]}");
    gb_rpc_end(writer);
    return !writer->failed &&
           gb_conn_queue(&client->conn, writer->data, writer->length, NULL, 0) == 0;
}

/* Work that came to grief leaves an object that nobody can vouch for: it is not settled, and goes
   with the connection. */
static bool poll_seals(struct gpubuf_client *client, struct gb_order *order)
{
    struct pending_seal done[GB_ORDER_MAX];
    size_t done_count = 0, kept = 0, unfinished = 0;
    for (size_t i = 0; i < order->seal_count; i++) {
        struct pending_seal seal = order->seals[i];
        int r = unfinished < LOOKED_AT_MAX ? gb_event_query(seal.event, NULL) : 0;
        if (r == 1) {
            done[done_count++] = seal;
        } else if (r == 0) {
            order->seals[kept++] = seal;
            unfinished++;
        } else {
            gb_event_drop(seal.event);
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
        gb_event_drop(done[i].event);
        free(done[i].name);
    }
    return told;
}

/* A context that failed runs nothing any more, so that its work is over, too. */
static bool poll_releases(struct gb_order *order)
{
    struct pending_release done[GB_ORDER_MAX];
    size_t done_count = 0, kept = 0, unfinished = 0;
    for (size_t i = 0; i < order->release_count; i++) {
        struct pending_release *release = &order->releases[i];
        if (unfinished < LOOKED_AT_MAX && gb_event_query(release->event, NULL) != 0) {
            done[done_count++] = *release;
        } else {
            order->releases[kept++] = *release;
            unfinished++;
        }
    }
    order->release_count = kept;
    for (size_t i = 0; i < done_count; i++) {
        gb_event_drop(done[i].event);
        gb_object_drop(done[i].object);
    }
    return done_count > 0;
}

bool gb_order_poll_all(struct gpubuf_client *client)
{
    struct gb_order *order = client->order;
    bool settled = order->seal_count > 0 && poll_seals(client, order);
    bool released = order->release_count > 0 && poll_releases(order);
    if (settled || released) {
        gb_queue_releases(client);
        gb_flush(client);
    }
    return order->seal_count > 0 || order->release_count > 0;
}

/* ---- seals ---- */

/* Waits for an event that the order holds, and looks again. */
static void wait_for(struct gpubuf_client *client, struct gb_event *event)
{
    (void)gb_event_ref(event);
    pthread_mutex_unlock(&client->lock);
    (void)gb_event_wait(event, NULL);
    pthread_mutex_lock(&client->lock);
    gb_event_drop(event);
    (void)gb_order_poll_all(client);
}

int gb_order_reserve(struct gpubuf_client *client, struct gb_error *error)
{
    struct gb_order *order = order_of(client);
    if (!order)
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
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

void gb_order_sealed(struct gb_lease *lease, struct gb_ready *ready)
{
    struct gpubuf_client *client = lease->client;
    struct gb_order *order = client->order;
    atomic_store(&lease->ready, ready);
    order->reserved--;
    /* Without memory for its name it stays unsettled, and readers wait on the event. */
    char *name = strdup(lease->name);
    if (!name)
        return;
    order->seals[order->seal_count++] = (struct pending_seal){
        .event = gb_event_ref(ready->event),
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
    struct gb_event *event;
    int r = gb_event_record(gpu, stream, false, &event, &error);
    if (r < 0)
        return gb_report(client, &error);
    gb_client_retain(client);
    pthread_mutex_lock(&client->lock);
    struct gb_order *order = order_of(client);
    if (!order) {
        gb_event_drop(event);
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
    int r = gb_lease_gpu(object->lease, &gpu, &error);
    if (r == 0 && !gpu) /* an event would need a context, which host memory has not */
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
        gb_event_drop(seal->event);
        free(seal->name);
    }
}

void gb_order_drain(struct gpubuf_client *client)
{
    while (client->order && client->order->release_count > 0)
        wait_for(client, client->order->releases[0].event);
    (void)gb_order_poll(client);
}

/* ---- what is ready ---- */

struct gb_ready *gb_ready_new(const unsigned char handle[GB_IPC_BYTES], struct gb_event *event)
{
    struct gb_ready *ready = calloc(1, sizeof(*ready));
    if (!ready)
        return NULL;
    memcpy(ready->handle, handle, sizeof(ready->handle));
    ready->event = event;
    return ready;
}

void gb_ready_free(struct gb_ready *ready)
{
    if (!ready)
        return;
    gb_event_drop(ready->event);
    free(ready);
}

struct standing {
    uint64_t version;
    struct gb_string ready;
};

/* What the daemon says of an object. */
struct stand {
    uint64_t version;
    bool settled;
};

static void write_stat(struct gb_writer *writer, const void *name)
{
    GB_WRITE_LITERAL(writer, "{\"name\":");
    gb_write_cstring(writer, name);
    gb_write_char(writer, '}');
}

static int read_stat(struct gb_json result, struct gb_pool *pool, void *out, struct gb_error *error)
{
    static const struct gb_field result_fields[] = {
        {.name = "object", .type = GB_FIELD_OBJECT, .flags = GB_FIELD_REQUIRED},
    };
    static const struct gb_field fields[] = {
        GB_FIELD(struct standing, version, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct standing, ready, GB_FIELD_STRING, 0, 0, 0),
    };
    struct standing standing = {0};
    struct gb_json object = {NULL, NULL};
    struct gb_path path = {.key = "result"};
    int r = gb_json_read(result, result_fields, 1, GB_UNKNOWN_IGNORE, &path, pool, &object, NULL,
                         error);
    if (r == 0)
        r = gb_json_read(object, fields, 2, GB_UNKNOWN_IGNORE, &path, pool, &standing, NULL, error);
    if (r == 0)
        *(struct stand *)out = (struct stand){standing.version, !standing.ready.text};
    return r;
}

/*
 * What the daemon says: 1, the object is settled; 0, it is not; GPUBUF_E_STALE, it is no more, or
 * another has its name: deleted and perhaps still to be settled, or withdrawn with its producer.
 * Any other failure says that it could not be asked. Reports failures.
 */
static int ask_daemon(const struct gb_lease *lease)
{
    struct gpubuf_client *client = lease->client;
    struct stand stand = {0};
    int r = gb_call_read(client, "stat", write_stat, lease->name, client->answer_timeout_ms,
                         read_stat, &stand);
    if (r == 0 && stand.version != atomic_load(&lease->version))
        r = GPUBUF_E_NOT_FOUND;
    if (r == GPUBUF_E_NOT_FOUND)
        return gb_report_text(
            client, GPUBUF_E_STALE,
            "%s is no more, and whether its producer's work on it was done cannot "
            "be told; a producer that ends before takes its object along",
            lease->name);
    return r < 0 ? r : stand.settled;
}

static int open_event(struct gb_lease *lease, struct gb_ready *ready, struct gb_error *error)
{
    struct gpubuf_client *client = lease->client;
    struct gb_gpu *gpu;
    int r = gb_gpu_find(lease->device, &gpu, error);
    if (r < 0)
        return r;
    pthread_mutex_lock(&client->lock);
    if (!ready->event)
        r = gb_event_open(gpu, ready->handle, &ready->event, error);
    pthread_mutex_unlock(&client->lock);
    return r;
}

int gb_ready_event(struct gb_lease *lease, struct gb_event **event)
{
    struct gb_ready *ready = atomic_load(&lease->ready);
    struct gb_error error;
    *event = NULL;
    if (!ready || atomic_load(&ready->passed))
        return 0;
    int r = open_event(lease, ready, &error);
    if (r == 0) {
        r = gb_event_query(ready->event, &error);
        if (r == 0) {
            *event = gb_event_ref(ready->event);
            return 0;
        }
    } else {
        /* A producer that is done and gone has taken its event along. */
        int said = ask_daemon(lease);
        if (said == GPUBUF_E_STALE)
            return said;
        r = said == 1 ? 1 : r;
    }
    if (r < 0)
        return gb_report(lease->client, &error);
    atomic_store(&ready->passed, true);
    return 0;
}

/*
 * Waits for another process, which may be killed: then its event never passes, and the driver would
 * wait for ever. The daemon knows.
 */
static int wait_for_other(const struct gb_lease *lease, const struct gb_event *event)
{
    struct gb_error error;
    struct timespec pause = {.tv_nsec = 20000};
    int64_t ask = gb_now_ms() + ASK_EVERY_MS, give_up = INT64_MAX;
    int why = 0;
    for (;;) {
        int r = gb_event_query(event, &error);
        if (r < 0)
            return gb_report(lease->client, &error);
        if (r == 1)
            return 0;
        int64_t now = gb_now_ms();
        if (now >= give_up)
            return why;
        if (now >= ask && give_up == INT64_MAX) {
            r = ask_daemon(lease);
            if (r == 1)
                return 0;
            if (r < 0) {
                why = r;
                give_up = now + GRACE_MS;
            }
            ask = gb_now_ms() + ASK_EVERY_MS;
        }
        (void)nanosleep(&pause, NULL);
        if (pause.tv_nsec < PAUSE_MAX_NS)
            pause.tv_nsec *= 2;
    }
}

/* Once it has passed there is nothing left to wait for; and what is ours is settled. */
static void note_passed(struct gb_lease *lease)
{
    atomic_store(&atomic_load(&lease->ready)->passed, true);
    if (gb_enter(lease->client) == 0)
        gb_leave(lease->client);
}

/* Before a stream waits for another process: 1, the event has passed; GPUBUF_E_STALE, that process is
   gone; 0, it is still there as far as can be told. A stream cannot be told later to wait no more. */
static int check_producer(const struct gb_lease *lease, const struct gb_event *event)
{
    if (!event->imported || gb_in_callback(lease->client))
        return 0;
    int r = ask_daemon(lease);
    if (r == GPUBUF_E_STALE)
        r = wait_for_other(lease, event) < 0 ? r : 1;
    return r == 1 || r == GPUBUF_E_STALE ? r : 0;
}

int gpubuf_wait_ready(struct gpubuf_object *object, void *stream)
{
    int r = gb_object_check(object);
    if (r < 0)
        return r;
    struct gb_lease *lease = object->lease;
    struct gb_event *event;
    r = gb_ready_event(lease, &event);
    if (r < 0 || !event)
        return r;

    struct gb_error error;
    if (stream) {
        r = check_producer(lease, event);
        if (r == 1) {
            note_passed(lease);
            r = 0;
        } else if (r == 0 && (r = gb_event_stream_wait(event, stream, &error)) < 0) {
            (void)gb_report(lease->client, &error);
        }
    } else if (!event->imported) {
        r = gb_event_wait(event, &error);
        if (r < 0)
            (void)gb_report(lease->client, &error);
        else
            note_passed(lease);
    } else if (gb_in_callback(lease->client)) {
        r = gb_report_text(lease->client, GPUBUF_E_BUSY,
                           "a callback must not make a blocking call on its own client");
    } else {
        r = wait_for_other(lease, event);
        if (r == 0)
            note_passed(lease);
    }
    gb_event_drop(event);
    return r;
}
