#include "client/lib/objects/wait_ready.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/lib/base/clock.h"
#include "client/lib/memory/gpu_event.h"
#include "client/lib/objects/object.h"
#include "client/lib/objects/ready.h"
#include "client/lib/wire/call.h"
#include "client/lib/wire/callback.h"
#include "client/lib/wire/enter.h"
#include "client/lib/wire/report.h"

#define ASK_EVERY_MS 100    /* how often the daemon is asked while another process is waited for */
#define GRACE_MS 1000       /* for an event whose object the daemon no longer has */
#define PAUSE_MAX_NS 500000 /* between two looks at another process's event */

struct standing {
    uint64_t version;
    struct gb_string ready;
};

/* The daemon's answer about an object. */
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
 * Asks the daemon about the object. 1: it is settled. 0: it is not. GPUBUF_E_STALE: it is gone, or
 * another object has its name; it was deleted, perhaps before it was settled, or withdrawn with its
 * producer. Any other failure: the daemon could not be asked. Reports failures.
 */
static int ask_daemon(const struct gb_client_lease *lease)
{
    struct gpubuf_client *client = lease->client;
    struct stand stand = {0};
    int r = gb_call_read(client, "stat", write_stat, lease->name, client->requests.timeout_ms,
                         read_stat, &stand);

    if (r == 0 && stand.version != atomic_load(&lease->version))
        r = GPUBUF_E_NOT_FOUND;
    if (r == GPUBUF_E_NOT_FOUND)
        return gb_report_text(
            client, GPUBUF_E_STALE,
            "%s no longer exists, and nobody can tell whether its producer's work on it "
            "was done; a producer that ends before that has its object withdrawn",
            lease->name);
    return r < 0 ? r : stand.settled;
}

static int open_event(struct gb_client_lease *lease, struct gb_ready *ready, struct gb_error *error)
{
    struct gpubuf_client *client = lease->client;
    struct gb_gpu *gpu;
    int r = gb_gpu_find(lease->device, &gpu, error);

    if (r < 0)
        return r;
    pthread_mutex_lock(&client->lock);
    if (!ready->event)
        r = gb_gpu_event_open(gpu, ready->handle, &ready->event, error);
    pthread_mutex_unlock(&client->lock);
    return r;
}

int gb_ready_event(struct gb_client_lease *lease, struct gb_gpu_event **event)
{
    struct gb_ready *ready = atomic_load(&lease->ready);
    struct gb_error error;

    *event = NULL;
    if (!ready || atomic_load(&ready->passed))
        return 0;
    int r = open_event(lease, ready, &error);
    if (r == 0) {
        r = gb_gpu_event_query(ready->event, &error);
        if (r == 0) {
            *event = gb_gpu_event_ref(ready->event);
            return 0;
        }
    } else {
        /* A producer that was done and has ended has no event any more. */
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
 * Waits for the event of another process. If that process is killed the event never passes, and the
 * driver would wait for ever; so the daemon is asked now and then.
 */
static int wait_for_other(const struct gb_client_lease *lease, const struct gb_gpu_event *event)
{
    struct gb_error error;
    struct timespec pause = {.tv_nsec = 20000};
    int64_t ask = gb_now_ms() + ASK_EVERY_MS, give_up = INT64_MAX;
    int why = 0;

    for (;;) {
        int r = gb_gpu_event_query(event, &error);
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

/* Notes that the event has passed, and settles what this client can. */
static void note_passed(struct gb_client_lease *lease)
{
    atomic_store(&atomic_load(&lease->ready)->passed, true);
    if (gb_enter(lease->client) == 0)
        gb_leave(lease->client);
}

/* Asked before a stream waits for another process, since a stream cannot be told later to stop
   waiting. 1: the event has passed. GPUBUF_E_STALE: that process has ended. 0: it still lives, as
   far as can be told. */
static int check_producer(const struct gb_client_lease *lease, const struct gb_gpu_event *event)
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
    struct gb_client_lease *lease = object->lease;
    struct gb_gpu_event *event;
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
        r = gb_gpu_event_wait(event, &error);
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
    gb_gpu_event_drop(event);
    return r;
}
