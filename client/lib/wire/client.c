#include "client/lib/wire/client.h"

#include <stdlib.h>

struct gpubuf_client *gb_client_new(int fd, const struct gb_client_hooks *hooks)
{
    static _Atomic uint64_t serial;
    struct gpubuf_client *client = calloc(1, sizeof(*client));

    if (!client)
        return NULL;
    client->input = malloc(GB_INPUT_BYTES);
    if (!client->input)
        goto no_input;

    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0)
        goto no_attributes;
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int r = pthread_cond_init(&client->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    if (r != 0)
        goto no_attributes;
    if (pthread_mutex_init(&client->lock, NULL) != 0)
        goto no_mutex;

    client->hooks = hooks;
    atomic_init(&client->references, 1);
    client->serial = atomic_fetch_add(&serial, 1) + 1;
    client->deliveries.end = &client->deliveries.first;
    client->releases.last_us = INT64_MIN / 2; /* never */
    client->requests.timeout_ms = GB_ANSWER_TIMEOUT_MS;
    client->daemon.names_max = GB_LIMIT(names);
    client->daemon.line_bytes_max = GB_LIMIT(line_bytes);
    client->daemon.request_bytes_max = GB_LIMIT(request_bytes);
    client->imports.idle_bytes_max = GB_CACHE_BYTES;
    client->daemon.resume_ms = GPUBUF_NO_RESUME; /* not before it is greeted */
    client->loop.set = client->loop.waker = -1;
    gb_writer_init(&client->writer, 0);
    gb_writer_init(&client->notice, 0);
    gb_conn_init(&client->conn, fd);
    return client;

no_mutex:
    (void)pthread_cond_destroy(&client->changed);
no_attributes:
    free(client->input);
no_input:
    free(client);
    return NULL;
}

void gb_client_retain(struct gpubuf_client *client)
{
    (void)atomic_fetch_add_explicit(&client->references, 1, memory_order_relaxed);
}

void gb_client_release(struct gpubuf_client *client)
{
    if (atomic_fetch_sub_explicit(&client->references, 1, memory_order_acq_rel) > 1)
        return;
    gb_imports_end(&client->imports);
    client->hooks->end(client);
    gb_writer_end(&client->writer);
    gb_writer_end(&client->notice);
    gb_pool_end(&client->pool);
    (void)pthread_mutex_destroy(&client->lock);
    (void)pthread_cond_destroy(&client->changed);
    free(client->requests.buckets);
    free(client->releases.ids);
    free(client->input);
    free(client->path);
    free(client->name);
    free(client);
}

const char *gpubuf_instance(const struct gpubuf_client *client)
{
    return client->daemon.instance;
}

uint64_t gpubuf_session(const struct gpubuf_client *client)
{
    return atomic_load(&client->session);
}
