#include "client/lib/wire/callback.h"

#include "client/lib/wire/loop.h"
#include "client/lib/wire/release.h"

static _Thread_local const struct gb_callback_frame *callback_frames;

bool gb_in_callback(const struct gpubuf_client *client)
{
    for (const struct gb_callback_frame *frame = callback_frames; frame; frame = frame->up) {
        if (frame->client == client)
            return true;
    }
    return false;
}

void gb_callback_begin(struct gpubuf_client *client, struct gb_callback_frame *frame)
{
    *frame = (struct gb_callback_frame){client, callback_frames};
    callback_frames = frame;
    pthread_mutex_unlock(&client->lock);
}

void gb_callback_end(struct gpubuf_client *client, const struct gb_callback_frame *frame)
{
    pthread_mutex_lock(&client->lock);
    callback_frames = frame->up;
}

void gb_await_callback(struct gpubuf_client *client, uint64_t watch)
{
    bool in_callback = gb_in_callback(client);

    while (client->deliveries.watch == watch && !in_callback) {
        client->polling.waiters++;
        pthread_cond_wait(&client->changed, &client->lock);
        client->polling.waiters--;
    }
}

void gb_queue_delivery(struct gpubuf_client *client, struct gb_delivery *delivery)
{
    delivery->next = NULL;
    *client->deliveries.end = delivery;
    client->deliveries.end = &delivery->next;
}

void gb_unqueue_delivery(struct gpubuf_client *client, struct gb_delivery *delivery)
{
    struct gb_delivery **link = &client->deliveries.first;

    while (*link != delivery)
        link = &(*link)->next;
    *link = delivery->next;
    if (client->deliveries.end == &delivery->next)
        client->deliveries.end = link;
}

static size_t count_due(const struct gpubuf_client *client)
{
    size_t count = 0;

    for (const struct gb_delivery *due = client->deliveries.first; due; due = due->next)
        count++;
    return count;
}

void gb_deliver(struct gpubuf_client *client, bool all)
{
    if (client->deliveries.under_way || !client->deliveries.first)
        return;
    client->deliveries.under_way = true;
    client->deliveries.by = pthread_self();
    for (size_t due = count_due(client); client->deliveries.first; due--) {
        if (!all && due == 0 && !client->end.lost.code)
            break;
        struct gb_delivery *delivery = client->deliveries.first;
        gb_unqueue_delivery(client, delivery);
        delivery->run(client, delivery);
    }
    client->deliveries.under_way = false;
    if (client->deliveries.first)
        gb_loop_wake(client);
    gb_flush_releases(client); /* of the leases that the callbacks released */
    gb_client_changed(client);
}
