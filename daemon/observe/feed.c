#include "daemon/observe/feed.h"

#include <stdlib.h>
#include <string.h>

#include "gpubuf.h"

struct gb_batch *gb_batch_new(void)
{
    struct gb_batch *batch = calloc(1, sizeof(*batch));

    if (batch)
        atomic_init(&batch->references, 1);
    return batch;
}

struct gb_batch *gb_batch_ref(struct gb_batch *batch)
{
    atomic_fetch_add_explicit(&batch->references, 1, memory_order_relaxed);
    return batch;
}

void gb_batch_unref(struct gb_batch *batch)
{
    if (!batch || atomic_fetch_sub_explicit(&batch->references, 1, memory_order_acq_rel) > 1)
        return;
    free(batch->data);
    free(batch);
}

static size_t record_bytes(size_t topic_bytes, size_t json_bytes)
{
    return (sizeof(struct gb_record) + topic_bytes + 1 + json_bytes + 7) & ~(size_t)7;
}

bool gb_batch_add(struct gb_batch *batch, unsigned audience, const char *topic, size_t topic_bytes,
                  const char *json, size_t json_bytes)
{
    size_t bytes = record_bytes(topic_bytes, json_bytes);
    struct gb_record *record;

    if (batch->capacity - batch->length < bytes) {
        size_t capacity = batch->capacity ? batch->capacity * 2 : 8192;
        char *data;

        while (capacity < batch->length + bytes)
            capacity *= 2;
        data = realloc(batch->data, capacity);
        if (!data)
            return false;
        batch->data = data;
        batch->capacity = capacity;
    }
    record = (struct gb_record *)(void *)(batch->data + batch->length);
    *record = (struct gb_record){(uint32_t)topic_bytes, (uint32_t)json_bytes, audience, 0};
    memcpy(record->text, topic, topic_bytes);
    record->text[topic_bytes] = '\n';
    memcpy(record->text + topic_bytes + 1, json, json_bytes);
    batch->length += bytes;
    batch->count++;
    return true;
}

const struct gb_record *gb_batch_next(const struct gb_batch *batch, const struct gb_record *record)
{
    const char *next =
        record ? (const char *)record + record_bytes(record->topic_bytes, record->json_bytes)
               : batch->data;

    if (!next || next >= batch->data + batch->length)
        return NULL;
    return (const struct gb_record *)(const void *)next;
}

/* ---- outlets ---- */

int gb_outlet_init(struct gb_outlet *outlet, size_t most_bytes, void (*wake)(void *arg), void *arg)
{
    memset(outlet, 0, sizeof(*outlet));
    outlet->most_bytes = most_bytes;
    outlet->wake = wake;
    outlet->arg = arg;
    atomic_init(&outlet->takers, 0);
    return uv_mutex_init(&outlet->lock) < 0 ? GPUBUF_E_SYSTEM : 0;
}

void gb_outlet_end(struct gb_outlet *outlet)
{
    struct gb_batch *batch;

    while ((batch = gb_outlet_take(outlet)))
        gb_batch_unref(batch);
    uv_mutex_destroy(&outlet->lock);
}

void gb_outlet_put(struct gb_outlet *outlet, struct gb_batch *batch)
{
    bool fits;

    uv_mutex_lock(&outlet->lock);
    fits = outlet->count < GB_OUTLET_BATCHES && outlet->bytes + batch->length <= outlet->most_bytes;
    if (fits) {
        outlet->batches[(outlet->first + outlet->count++) % GB_OUTLET_BATCHES] =
            gb_batch_ref(batch);
        outlet->bytes += batch->length;
    } else {
        outlet->dropped += batch->count;
    }
    uv_mutex_unlock(&outlet->lock);
    if (fits)
        outlet->wake(outlet->arg);
}

struct gb_batch *gb_outlet_take(struct gb_outlet *outlet)
{
    struct gb_batch *batch = NULL;

    uv_mutex_lock(&outlet->lock);
    if (outlet->count > 0) {
        batch = outlet->batches[outlet->first];
        outlet->first = (outlet->first + 1) % GB_OUTLET_BATCHES;
        outlet->count--;
        outlet->bytes -= batch->length;
    }
    uv_mutex_unlock(&outlet->lock);
    return batch;
}

uint64_t gb_outlet_dropped(struct gb_outlet *outlet)
{
    uint64_t dropped;

    uv_mutex_lock(&outlet->lock);
    dropped = outlet->dropped;
    uv_mutex_unlock(&outlet->lock);
    return dropped;
}
