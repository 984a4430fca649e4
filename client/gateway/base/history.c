#include "client/gateway/base/history.h"

#include <inttypes.h>
#include <string.h>

void gb_gateway_history_init(struct gb_gateway_history *history)
{
    *history = (struct gb_gateway_history){.count = 0};
    pthread_mutex_init(&history->lock, NULL);
}

void gb_gateway_history_end(struct gb_gateway_history *history)
{
    pthread_mutex_destroy(&history->lock);
}

void gb_gateway_history_clear(struct gb_gateway_history *history)
{
    pthread_mutex_lock(&history->lock);
    history->count = 0;
    pthread_mutex_unlock(&history->lock);
}

/* The device of that id, made if need be; NULL: there are too many. */
static struct gb_gateway_history_device *find(struct gb_gateway_history *history,
                                              const struct gb_string *id)
{
    for (unsigned i = 0; i < history->count; i++)
        if (strcmp(history->devices[i].id, id->text) == 0)
            return &history->devices[i];
    if (history->count == GB_GATEWAY_HISTORY_DEVICES ||
        id->length >= sizeof(history->devices[0].id))
        return NULL;
    struct gb_gateway_history_device *made = &history->devices[history->count++];
    memcpy(made->id, id->text, id->length + 1);
    made->step = 0;
    memset(made->used, 0xff, sizeof(made->used));
    return made;
}

void gb_gateway_history_note(struct gb_gateway_history *history, const struct gb_string *id,
                             uint64_t used, int64_t now_ms)
{
    int64_t step = now_ms / GB_GATEWAY_HISTORY_STEP_MS;

    pthread_mutex_lock(&history->lock);
    struct gb_gateway_history_device *device = find(history, id);
    if (device) {
        int64_t from = step - GB_GATEWAY_HISTORY_STEPS;
        if (device->step > from)
            from = device->step;
        for (int64_t silent = from + 1; silent < step; silent++)
            device->used[silent % GB_GATEWAY_HISTORY_STEPS] = UINT64_MAX;
        device->used[step % GB_GATEWAY_HISTORY_STEPS] = used;
        device->step = step;
    }
    pthread_mutex_unlock(&history->lock);
}

void gb_gateway_history_write(struct gb_gateway_history *history, struct gb_writer *writer,
                              int64_t now_ms)
{
    int64_t last = now_ms / GB_GATEWAY_HISTORY_STEP_MS;

    pthread_mutex_lock(&history->lock);
    gb_write_format(writer, "{\"now_ms\":%" PRIi64 ",\"step_ms\":%d,\"used\":{", now_ms,
                    GB_GATEWAY_HISTORY_STEP_MS);
    for (unsigned i = 0; i < history->count; i++) {
        const struct gb_gateway_history_device *device = &history->devices[i];

        gb_write_text(writer, i > 0 ? ",\n" : "\n");
        gb_write_cstring(writer, device->id);
        gb_write_text(writer, ":[");
        for (int64_t step = last - GB_GATEWAY_HISTORY_STEPS + 1; step <= last; step++) {
            uint64_t used = device->used[step % GB_GATEWAY_HISTORY_STEPS];

            if (step > last - GB_GATEWAY_HISTORY_STEPS + 1)
                gb_write_char(writer, ',');
            if (step > device->step || used == UINT64_MAX)
                gb_write_text(writer, "null");
            else
                gb_write_uint(writer, used);
        }
        gb_write_char(writer, ']');
    }
    gb_write_text(writer, "}}\n");
    pthread_mutex_unlock(&history->lock);
}
