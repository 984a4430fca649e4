#include "client/lib/wire/request.h"

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/lib/wire/output.h"
#include "client/lib/wire/release.h"
#include "client/lib/wire/report.h"

#define BUCKETS_MIN 32u
#define GATHERED_MAX (2u << 10) /* bytes of requests that wait to be sent together */

/* ---- the table ---- */

/* Ids are consecutive, so their low bits spread them evenly. */
static struct gb_request **bucket_of(const struct gpubuf_client *client, uint64_t id)
{
    return &client->requests.buckets[id & (client->requests.bucket_count - 1)];
}

struct gb_request *gb_request_find(const struct gpubuf_client *client, uint64_t id)
{
    if (client->requests.bucket_count == 0)
        return NULL;
    struct gb_request *request = *bucket_of(client, id);
    while (request && request->id != id)
        request = request->chain;
    return request;
}

static int grow_buckets(struct gpubuf_client *client)
{
    size_t count = client->requests.bucket_count ? client->requests.bucket_count * 2 : BUCKETS_MIN;
    struct gb_request **buckets = calloc(count, sizeof(struct gb_request *));

    if (!buckets)
        return GPUBUF_E_NO_MEMORY;

    for (size_t i = 0; i < client->requests.bucket_count; i++) {
        struct gb_request *request = client->requests.buckets[i];
        while (request) {
            struct gb_request *next = request->chain;
            struct gb_request **bucket = &buckets[request->id & (count - 1)];
            request->chain = *bucket;
            *bucket = request;
            request = next;
        }
    }
    free(client->requests.buckets);
    client->requests.buckets = buckets;
    client->requests.bucket_count = count;
    return 0;
}

void gb_request_restore(struct gb_request *request)
{
    struct gb_request **bucket = bucket_of(request->client, request->id);

    request->chain = *bucket;
    *bucket = request;
    request->client->requests.count++;
}

static int add(struct gpubuf_client *client, struct gb_request *request)
{
    /* A table that cannot grow only gets slower; without a table it is a failure. */
    if (client->requests.count >= client->requests.bucket_count && grow_buckets(client) < 0 &&
        client->requests.bucket_count == 0)
        return GPUBUF_E_NO_MEMORY;
    gb_request_restore(request);
    return 0;
}

void gb_request_remove(struct gb_request *request)
{
    struct gpubuf_client *client = request->client;
    struct gb_request **link = bucket_of(client, request->id);

    while (*link != request)
        link = &(*link)->chain;
    *link = request->chain;
    client->requests.count--;
}

/* ---- sending ---- */

int gb_request_note(struct gpubuf_client *client, struct gb_request *request)
{
    request->client = client;
    request->id = ++client->requests.last_id;
    return add(client, request);
}

struct gb_writer *gb_request_begin(struct gpubuf_client *client, struct gb_request *request,
                                   const char *method, unsigned fds)
{
    request->client = client;
    if (request->id == 0) /* one that is sent again keeps the id that the program knows it by */
        request->id = ++client->requests.last_id;
    gb_writer_reset(&client->writer);
    gb_rpc_begin_request(&client->writer, request->id, method, fds);
    return &client->writer;
}

static void close_fds(const int *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        close(fds[i]);
}

int gb_request_send(struct gpubuf_client *client, struct gb_request *request, const int *fds,
                    unsigned fd_count, enum gb_release_order order, struct gb_error *error)
{
    struct gb_writer *writer = &client->writer;

    gb_rpc_end(writer);
    if (writer->failed || add(client, request) < 0) {
        close_fds(fds, fd_count);
        return gb_fail_memory(error);
    }

    int r = 0;
    request->end = UINT64_MAX;
    if (writer->length > client->daemon.line_bytes_max) {
        close_fds(fds, fd_count);
        r = gb_fail(error, GPUBUF_E_LIMIT, "a message of %zu bytes; the daemon takes at most %llu",
                    writer->length, (unsigned long long)client->daemon.line_bytes_max);
    } else if (client->link != GB_LINK_UP && request->type->resend) {
        close_fds(fds, fd_count); /* it is sent when the link is up */
        return 0;
    } else {
        if (order == GB_RELEASES_FIRST)
            gb_queue_releases(client);
        if (gb_queue_unmaps(client)) {
            r = gb_conn_queue(&client->conn, writer->data, writer->length, fds, fd_count);
            request->end = client->conn.sent + gb_conn_output_bytes(&client->conn);
        } else {
            close_fds(fds, fd_count);
            r = GPUBUF_E_NO_MEMORY;
        }
        if (r < 0)
            (void)gb_fail(error, r, "out of memory");
    }
    if (r < 0) {
        gb_request_remove(request);
        return r;
    }
    if (order == GB_RELEASES_LAST)
        gb_queue_releases(client);
    if (!client->requests.gather || gb_conn_output_bytes(&client->conn) >= GATHERED_MAX)
        gb_flush(client);
    return 0;
}

/* ---- the callback ---- */

void gb_request_run_callback(struct gb_request *request, int status, const struct gb_error *error)
{
    struct gpubuf_client *client = request->client;
    struct gb_callback_frame frame;

    if (status < 0)
        (void)gb_report(client, error);
    gb_callback_begin(client, &frame);
    request->type->deliver(request, status);
    gb_callback_end(client, &frame);
}

static void deliver(struct gpubuf_client *client, struct gb_delivery *delivery)
{
    struct gb_request *request = (struct gb_request *)delivery;

    gb_request_remove(request);
    gb_request_run_callback(request, request->status, &request->error);
    pthread_mutex_unlock(&client->lock);
    request->type->free(request);
    pthread_mutex_lock(&client->lock);
}

/* ---- ending ---- */

void gb_request_hold_imports(struct gb_request *request)
{
    if (!request->holding)
        gb_imports_hold(&request->client->imports);
    request->holding = true;
}

void gb_request_end(struct gb_request *request, int status, const struct gb_error *error)
{
    struct gpubuf_client *client = request->client;

    assert(!request->ended);
    request->ended = true;
    request->status = status;
    if (status < 0)
        request->error = *error;
    if (request->type->on_end)
        request->type->on_end(request);
    if (request->holding) {
        request->holding = false;
        gb_imports_unhold(&client->imports);
        gb_flush_releases(client);
    }

    if (request->canceled) {
        if (request->type->discard)
            request->type->discard(request);
        gb_request_remove(request);
        if (!request->held)
            request->type->free(request);
    } else if (request->waited) {
        gb_client_changed(client);
    } else {
        request->delivery.run = deliver;
        gb_queue_delivery(client, &request->delivery);
    }
}

void gb_request_end_all(struct gpubuf_client *client, const struct gb_error *error)
{
    for (size_t i = 0; i < client->requests.bucket_count; i++) {
        struct gb_request *request = client->requests.buckets[i];
        while (request) {
            struct gb_request *next = request->chain;
            if (!request->ended)
                gb_request_end(request, error->code, error);
            request = next;
        }
    }
}

/* ---- a connection that broke ---- */

/* Whether the daemon cannot have received the whole request. */
static bool is_unsent(const struct gb_request *request)
{
    return request->end > request->client->conn.sent;
}

void gb_request_break_all(struct gpubuf_client *client)
{
    struct gb_error lost, unknown;

    (void)gb_fail(&lost, GPUBUF_E_STALE,
                  "the connection to the daemon broke, and the object that was not sealed is lost");
    (void)gb_fail(&unknown, GPUBUF_E_CLOSED,
                  "the connection to the daemon broke before it answered; whether it has carried "
                  "the request out is not known");
    for (size_t i = 0; i < client->requests.bucket_count; i++) {
        struct gb_request *request = client->requests.buckets[i];
        while (request) {
            struct gb_request *next = request->chain;
            bool unsent = is_unsent(request);
            if (request->ended)
                ;
            else if (request->canceled || (request->once && !unsent))
                gb_request_end(request, unknown.code, &unknown);
            else if (!request->type->resend)
                gb_request_end(request, lost.code, &lost);
            else
                request->end = UINT64_MAX;
            request = next;
        }
    }
}

static int compare_ids(const void *a, const void *b)
{
    const struct gb_request *const *left = a, *const *right = b;
    return ((*left)->id > (*right)->id) - ((*left)->id < (*right)->id);
}

static void resend(struct gb_request *request)
{
    struct gb_error error;

    gb_request_remove(request);
    int r = request->type->resend(request, &error);
    if (r == 0)
        return;
    gb_request_restore(request);
    gb_request_end(request, r, &error);
}

int gb_request_resume_all(struct gpubuf_client *client, struct gb_error *error)
{
    size_t count = 0;
    struct gb_request **requests = calloc(client->requests.count + 1, sizeof(struct gb_request *));

    if (!requests)
        return gb_fail_memory(error);
    for (size_t i = 0; i < client->requests.bucket_count; i++) {
        for (struct gb_request *request = client->requests.buckets[i]; request;
             request = request->chain) {
            if (!request->ended && !request->canceled && request->end == UINT64_MAX)
                requests[count++] = request;
        }
    }
    qsort(requests, count, sizeof(struct gb_request *), compare_ids);
    for (size_t i = 0; i < count; i++) {
        if (!requests[i]->ended) /* together with another request */
            resend(requests[i]);
    }
    free(requests);
    return 0;
}
