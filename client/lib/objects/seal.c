#include "client/lib/objects/seal.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/memory/gpu_copy.h"
#include "client/lib/memory/gpu_event.h"
#include "client/lib/objects/copy.h"
#include "client/lib/objects/create_options.h"
#include "client/lib/objects/object.h"
#include "client/lib/objects/order.h"
#include "client/lib/objects/ready.h"
#include "client/lib/objects/references.h"
#include "client/lib/wire/enter.h"
#include "client/lib/wire/release.h"
#include "client/lib/wire/report.h"
#include "client/lib/wire/wait.h"

struct seal {
    struct gb_request base;
    gpubuf_object_cb callback;
    void *arg;
    struct gpubuf_object *object; /* a reference of its own */
    bool release;                 /* the daemon ends the lease with the seal */
    /* The content is there after this; it has a place in the client's order; or NULL. */
    struct gb_ready *ready;
    uint64_t version;
    int64_t null_counts[]; /* as many as there are columns, or none */
};

/* The column that null count i is about; NULL past the last. */
static struct gb_column *counted_column(const struct gpubuf_object *object, size_t i)
{
    struct gb_layout *layout = &object->lease->layout;

    if (layout->kind == GB_KIND_COLUMN)
        return i == 0 ? &layout->column : NULL;
    if (layout->kind == GB_KIND_TABLE && i < layout->column.child_count)
        return &layout->column.children[i];
    return NULL;
}

static size_t count_columns(const struct gpubuf_object *object)
{
    const struct gb_layout *layout = &object->lease->layout;

    return layout->kind == GB_KIND_TABLE ? layout->column.child_count
                                         : layout->kind == GB_KIND_COLUMN;
}

struct seal_members {
    uint64_t version;
};

static int seal_reply(struct gb_request *request, const struct gb_reply *reply,
                      struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct seal_members, version, GB_FIELD_UINT, GB_FIELD_REQUIRED, 1, 0),
    };
    struct seal *seal = (struct seal *)request;
    struct seal_members members = {.version = 0};
    struct gb_path path = {.key = "result"};

    if (reply->refused)
        return reply->refused->code;
    if (gb_json_read(reply->result, fields, 1, GB_UNKNOWN_IGNORE, &path, &request->client->pool,
                     &members, NULL, error) < 0) {
        struct gb_error cause = *error;
        return gb_fail(error, GPUBUF_E_PROTOCOL, "the daemon's answer to seal is malformed: %s",
                       cause.message);
    }
    seal->version = members.version;
    return 0;
}

static void drop_ready(struct gpubuf_client *client, struct seal *seal)
{
    if (!seal->ready)
        return;
    gb_order_unreserve(client);
    gb_ready_free(seal->ready);
    seal->ready = NULL;
}

/* Also for a seal that was canceled: the object is sealed all the same. */
static void seal_on_end(struct gb_request *request)
{
    struct seal *seal = (struct seal *)request;
    struct gb_client_lease *lease = seal->object->lease;

    if (request->status < 0) {
        gb_client_lease_unguard(lease);
        atomic_store(&lease->state, GB_LEASE_OPEN);
        drop_ready(request->client, seal);
        return;
    }
    for (size_t i = 0; i < count_columns(seal->object); i++) {
        if (seal->null_counts[i] >= 0)
            counted_column(seal->object, i)->null_count = seal->null_counts[i];
    }
    atomic_store(&lease->version, seal->version);
    if (seal->ready)
        gb_order_sealed(lease, seal->ready);
    seal->ready = NULL;
    atomic_store(&lease->state, seal->release ? GB_LEASE_ENDED : GB_LEASE_SEALED);
}

static void seal_deliver(struct gb_request *request, int status)
{
    struct seal *seal = (struct seal *)request;
    struct gpubuf_object *object = NULL;

    if (status >= 0 && seal->callback) {
        object = seal->object; /* the reference goes with it */
        seal->object = NULL;
    }
    if (seal->callback)
        seal->callback(request->client, status < 0 ? status : 0, object, seal->arg);
}

static void seal_discard(struct gb_request *request)
{
    struct seal *seal = (struct seal *)request;

    gb_object_drop(seal->object);
    seal->object = NULL;
    gb_flush_releases(request->client);
}

static void seal_free(struct gb_request *request)
{
    struct seal *seal = (struct seal *)request;

    gpubuf_release(seal->object);
    free(seal);
}

static const struct gb_request_type seal_type = {
    .reply = seal_reply,
    .on_end = seal_on_end,
    .deliver = seal_deliver,
    .discard = seal_discard,
    .free = seal_free,
};

static void write_null_counts(struct gb_writer *writer, const struct gpubuf_object *object,
                              const int64_t *counts)
{
    bool first = true;

    for (size_t i = 0; i < count_columns(object); i++) {
        if (counts[i] < 0)
            continue;
        const char *name = counted_column(object, i)->name;
        gb_write_text(writer, first ? ",\"null_counts\":{" : ",");
        gb_write_cstring(writer, name ? name : "");
        gb_write_char(writer, ':');
        gb_write_int(writer, counts[i]);
        first = false;
    }
    if (!first)
        gb_write_char(writer, '}');
}

static struct seal *seal_new(struct gpubuf_object *object, const int64_t *null_counts)
{
    size_t count = count_columns(object);
    struct seal *seal = calloc(1, sizeof(*seal) + count * sizeof(seal->null_counts[0]));

    if (!seal)
        return NULL;
    seal->base.type = &seal_type;
    seal->base.waited = true;
    seal->base.once = true;
    seal->object = gpubuf_retain(object);
    for (size_t i = 0; i < count; i++)
        seal->null_counts[i] = null_counts ? null_counts[i] : -1;
    return seal;
}

static void write_ready(struct gb_writer *writer, const struct gb_ready *ready)
{
    GB_WRITE_LITERAL(writer, ",\"ready\":");
    gb_write_base64(writer, ready->handle, sizeof(ready->handle));
}

int gpubuf_set_label(struct gpubuf_object *object, const char *label, int keep)
{
    int r = gb_object_check(object);

    if (r < 0)
        return r;
    struct gb_client_lease *lease = object->lease;
    struct gpubuf_client *client = lease->client;
    char *copy = NULL;
    r = gb_enter(client);
    if (r < 0)
        return r;
    r = gb_check_title(client, label, keep < 0 ? 0 : (unsigned)keep);
    if (r == 0 && atomic_load(&lease->state) != GB_LEASE_OPEN)
        r = gb_report_text(client, GPUBUF_E_BUSY, "%s is sealed already, or about to be",
                           lease->name);
    if (r == 0 && label && !(copy = gb_pool_strndup(&lease->pool, label, strlen(label))))
        r = gb_report_memory(client);
    if (r == 0) {
        lease->label = copy ? copy : lease->label;
        lease->entitled |= copy != NULL;
        lease->keep = keep < 0 ? lease->keep : keep;
    }
    gb_leave(client);
    return r;
}

int gpubuf_protect(struct gpubuf_object *object)
{
    int r = gb_object_check(object);

    if (r < 0)
        return r;
    struct gb_client_lease *lease = object->lease;
    struct gpubuf_client *client = lease->client;
    r = gb_enter(client);
    if (r < 0)
        return r;
    if (!lease->access.writable || lease->access.live ||
        atomic_load(&lease->state) != GB_LEASE_SEALED)
        r = gb_report_text(client, GPUBUF_E_INVALID, "%s was not created and sealed by this client",
                           lease->name);
    else
        r = gb_client_lease_protect(lease);
    gb_leave(client);
    return r;
}

/* Sends a seal. With the client entered. `ready` (may be NULL) is taken over on success. */
static int seal_start(struct gpubuf_object *object, const int64_t *null_counts, bool release,
                      struct gb_ready *ready, struct seal **out)
{
    struct gb_client_lease *lease = object->lease;
    struct gpubuf_client *client = lease->client;

    if (object != lease->root)
        return gb_report_text(
            client, GPUBUF_E_INVALID,
            "only the object that gpubuf_create gave can be sealed, not a view of it");
    if (atomic_load(&lease->state) == GB_LEASE_STALE)
        return gb_report_text(client, GPUBUF_E_STALE,
                              "%s was lost: the connection broke before it was sealed",
                              lease->name);
    if (atomic_load(&lease->state) != GB_LEASE_OPEN)
        return gb_report_text(client, GPUBUF_E_BUSY, "%s is sealed already, or about to be",
                              lease->name);
    for (size_t i = 0; null_counts && i < count_columns(object); i++) {
        if (null_counts[i] > (int64_t)counted_column(object, i)->length)
            return gb_report_text(client, GPUBUF_E_INVALID,
                                  "null_counts[%zu] is more than the column has elements", i);
    }

    struct gb_error error;
    if (lease->final && gb_client_lease_finish(lease, &error) < 0)
        return gb_report(client, &error);
    struct seal *seal = seal_new(object, null_counts);
    if (!seal)
        return gb_report_memory(client);
    seal->release = release;
    if (!release) /* else the program no longer has the object */
        gb_client_lease_guard(lease);
    struct gb_writer *writer = gb_request_begin(client, &seal->base, "seal", 0);
    GB_WRITE_LITERAL(writer, "{\"lease\":");
    gb_write_uint(writer, lease->id);
    write_null_counts(writer, object, seal->null_counts);
    if (release)
        GB_WRITE_LITERAL(writer, ",\"release\":true");
    if (ready)
        write_ready(writer, ready);
    gb_write_title(writer, lease->entitled ? lease->label : NULL, lease->keep);
    gb_write_char(writer, '}');
    int r = gb_request_send(client, &seal->base, NULL, 0, GB_RELEASES_FIRST, &error);
    if (r < 0) {
        gb_client_lease_unguard(lease);
        gb_object_drop(seal->object);
        free(seal);
        return gb_report(client, &error);
    }
    seal->ready = ready;
    atomic_store(&lease->state, GB_LEASE_SEALING);
    *out = seal;
    return 0;
}

/* Reserves a place in the client's order if there is an event. The lock may be let go meanwhile. */
static int reserve(struct gpubuf_client *client, struct gb_gpu_event *event,
                   struct gb_ready **ready)
{
    struct gb_error error;

    *ready = NULL;
    if (!event)
        return 0;
    int r = gb_order_reserve(client, &error);
    if (r < 0)
        return gb_report(client, &error);
    *ready = gb_ready_new(event->handle, gb_gpu_event_ref(event));
    if (*ready)
        return 0;
    gb_order_unreserve(client);
    gb_gpu_event_drop(event);
    return gb_report_memory(client);
}

/* ---- counts of nulls ---- */

/* Checks that the masks of a column and its children have as many nulls as was said. */
static int check_mask(const struct gb_client_lease *lease, const struct gb_column *column,
                      int64_t said)
{
    if (said >= 0 && column->mask.bytes > 0) {
        const unsigned char *mask = gb_buffer_address(lease, &column->mask);
        uint64_t nulls = column->length - gb_count_bits(mask, column->offset, column->length);
        if ((int64_t)nulls != said)
            return gb_report_text(lease->client, GPUBUF_E_INVALID,
                                  "%s%s%s: its mask has %" PRIu64 " nulls, and its null_count is "
                                  "%" PRId64 ": give the right one, or -1",
                                  lease->name, column->name ? ", column " : "",
                                  column->name ? column->name : "", nulls, said);
    }
    int r = 0;
    for (size_t i = 0; r == 0 && i < column->child_count; i++)
        r = check_mask(lease, &column->children[i], column->children[i].null_count);
    return r;
}

/* Checks null counts against the masks, since readers skip the mask of a column without nulls. On a
   GPU the masks are not read. */
static int check_null_counts(const struct gpubuf_object *object, const int64_t *null_counts)
{
    if (!gb_is_host(object->lease->device))
        return 0;
    int r = 0;
    for (size_t i = 0; r == 0 && i < count_columns(object); i++) {
        const struct gb_column *column = counted_column(object, i);
        bool given = null_counts && null_counts[i] >= 0;
        r = check_mask(object->lease, column, given ? null_counts[i] : column->null_count);
    }
    return r;
}

static int seal_and_wait(struct gpubuf_object *object, const int64_t *null_counts, bool release,
                         struct gb_gpu_event *event)
{
    int r = gb_object_check(object);

    if (r < 0)
        return r;
    struct gpubuf_client *client = object->lease->client;
    r = gb_enter_blocking(client);
    if (r < 0)
        return r;
    struct seal *seal;
    struct gb_request *request = NULL;
    struct gb_ready *ready;
    r = reserve(client, event, &ready);
    if (r == 0) {
        r = seal_start(object, null_counts, release, ready, &seal);
        if (r < 0 && ready) {
            gb_order_unreserve(client);
            gb_ready_free(ready);
        }
    }
    if (r == 0) {
        request = &seal->base;
        request->firm = true; /* whether it is published is to be known */
        r = gb_request_wait(client, &request, gb_answer_timeout(client, 0));
    }
    if (request) {
        gb_object_drop(seal->object); /* not the last: the caller has one */
        free(seal);
    }
    gb_leave(client);
    return r;
}

int gpubuf_seal(struct gpubuf_object *object, const int64_t *null_counts)
{
    int r = gb_object_check(object);

    if (r == 0)
        r = check_null_counts(object, null_counts);
    return r < 0 ? r : seal_and_wait(object, null_counts, false, NULL);
}

int gpubuf_seal_on(struct gpubuf_object *object, const int64_t *null_counts, void *stream)
{
    int r = gb_object_check(object);

    if (r < 0 || !stream)
        return r < 0 ? r : gpubuf_seal(object, null_counts);
    struct gpubuf_client *client = object->lease->client;
    struct gb_gpu_event *event = NULL;
    struct gb_error error;
    struct gb_gpu *gpu;
    r = gb_client_lease_gpu(object->lease, &gpu, &error);
    if (r == 0)
        r = gpu && gpu->cuda->driver == GB_CUDA
                ? gb_gpu_event_record(gpu, stream, true, &event, &error)
                : gb_gpu_finish(gpu, stream, &error); /* neither host nor HIP has shared events */
    if (r < 0)
        return gb_report(client, &error);
    if (!event)
        return gpubuf_seal(object, null_counts);
    r = seal_and_wait(object, null_counts, false, event);
    gb_gpu_event_drop(event);
    return r;
}

/* A program that was built with an older header has no such member. */
static bool wants_version(const struct gpubuf_create_options *options)
{
    size_t end = offsetof(struct gpubuf_create_options, version) + sizeof(options->version);

    return options && options->size >= end && options->version;
}

int gb_end_put(struct gpubuf_object *object, const struct gpubuf_create_options *options, int r)
{
    int finished = gb_finish_writing(object->lease);

    if (r == 0)
        r = finished;
    if (r == 0)
        r = seal_and_wait(object, NULL, true, NULL);
    if (r == 0 && wants_version(options))
        *options->version = atomic_load(&object->lease->version);
    gpubuf_release(object);
    return r;
}

int gpubuf_seal_async(struct gpubuf_object *object, const int64_t *null_counts,
                      gpubuf_object_cb callback, void *arg, uint64_t *request)
{
    int r = gb_object_check(object);

    if (r == 0)
        r = check_null_counts(object, null_counts);
    if (r < 0)
        return r;
    struct gpubuf_client *client = object->lease->client;
    r = gb_enter(client);
    if (r < 0)
        return r;
    struct seal *seal;
    r = seal_start(object, null_counts, false, NULL, &seal);
    if (r == 0) {
        seal->base.waited = false; /* no answer is received before the lock is let go */
        seal->callback = callback;
        seal->arg = arg;
        if (request)
            *request = seal->base.id;
    }
    gb_leave(client);
    return r;
}
