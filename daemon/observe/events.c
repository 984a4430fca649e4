#include "daemon/observe/events.h"

#include <inttypes.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/observe/report.h"

#define BATCH_BYTES (64u << 10) /* then it is handed over, in the middle of a turn too */

void gb_events_init(struct gb_events *events)
{
    memset(events, 0, sizeof(*events));
    gb_writer_init(&events->writer, 0);
}

void gb_events_end(struct gb_events *events)
{
    gb_batch_unref(events->batch);
    events->batch = NULL;
    gb_writer_end(&events->writer);
}

void gb_events_attach(struct gb_events *events, struct gb_outlet *outlet)
{
    events->outlets[events->outlet_count++] = outlet;
}

static bool anybody_listens(const struct gb_events *events)
{
    for (unsigned i = 0; i < events->outlet_count; i++)
        if (atomic_load_explicit(&events->outlets[i]->takers, memory_order_relaxed) > 0)
            return true;
    return false;
}

/* What is in the writer goes into the batch, from `json` on as JSON. */
static void add(struct gb_events *events, unsigned audience, size_t json)
{
    const struct gb_writer *writer = &events->writer;

    if (!events->batch)
        events->batch = gb_batch_new();
    /* Where memory is out nothing is told: the numbers show that something is missing. */
    if (events->batch && !writer->failed)
        gb_batch_add(events->batch, audience, writer->data, json, writer->data + json,
                     writer->length - json);
}

static void write_head(struct gb_events *events, uint64_t seq, const char *kind)
{
    struct gb_writer *writer = &events->writer;

    GB_WRITE_LITERAL(writer, "{\"seq\":");
    gb_write_uint(writer, seq);
    GB_WRITE_LITERAL(writer, ",\"time_ms\":");
    gb_write_int(writer, gb_wall_ms());
    GB_WRITE_LITERAL(writer, ",\"kind\":\"");
    gb_write_text(writer, kind);
    GB_WRITE_LITERAL(writer, "\",");
}

static void add_whole(struct gb_events *events, uint64_t seq, const char *kind,
                      const struct gb_object *object)
{
    struct gb_writer *writer = &events->writer;
    size_t json;

    gb_writer_reset(writer);
    gb_write_text(writer, kind);
    gb_write_char(writer, ' ');
    gb_write(writer, object->name, object->name_length);
    json = writer->length;
    write_head(events, seq, kind);
    GB_WRITE_LITERAL(writer, "\"object\":");
    gb_object_write(writer, object, false);
    GB_WRITE_LITERAL(writer, ",\"placements\":");
    gb_placements_write(writer, object);
    if (object->storage->device->lost)
        GB_WRITE_LITERAL(writer, ",\"lost\":true");
    gb_write_char(writer, '}');
    add(events, GB_AUDIENCE_ALL | (gb_object_is_public(object) ? GB_AUDIENCE_PUBLIC : 0), json);
}

/* What everybody may know of an object that is private: that something happened, and where. */
static void add_private(struct gb_events *events, uint64_t seq, const char *kind,
                        const struct gb_object *object)
{
    struct gb_writer *writer = &events->writer;
    size_t json;

    gb_writer_reset(writer);
    gb_write_text(writer, kind);
    gb_write_char(writer, ' ');
    json = writer->length;
    write_head(events, seq, kind);
    gb_write_format(writer, "\"private\":true,\"device\":\"%s\"}", object->storage->device->id);
    add(events, GB_AUDIENCE_PUBLIC, json);
}

void gb_events_note(struct gb_events *events, uint64_t seq, enum gb_event event,
                    const struct gb_object *object)
{
    const char *kind = gb_event_kind(event);

    if (!anybody_listens(events))
        return;
    add_whole(events, seq, kind, object);
    if (!gb_object_is_public(object))
        add_private(events, seq, kind, object);
    if (events->batch && events->batch->length >= BATCH_BYTES)
        gb_events_flush(events);
}

void gb_events_tick(struct gb_events *events, struct gb_server *server)
{
    struct gb_writer *writer = &events->writer;
    size_t json;

    if (!anybody_listens(events))
        return;
    gb_writer_reset(writer);
    GB_WRITE_LITERAL(writer, "stats ");
    json = writer->length;
    gb_report_stats(server, writer);
    add(events, GB_AUDIENCE_ALL | GB_AUDIENCE_PUBLIC, json);
    gb_events_flush(events);
}

bool gb_events_turn(struct gb_events *events, uint64_t now_ms)
{
    if (!events->batch)
        return false;
    if (now_ms - events->flushed_ms < GB_EVENTS_GATHER_MS)
        return true;
    events->flushed_ms = now_ms;
    gb_events_flush(events);
    return false;
}

void gb_events_flush(struct gb_events *events)
{
    if (!events->batch)
        return;
    for (unsigned i = 0; i < events->outlet_count; i++)
        if (atomic_load_explicit(&events->outlets[i]->takers, memory_order_relaxed) > 0)
            gb_outlet_put(events->outlets[i], events->batch);
    gb_batch_unref(events->batch);
    events->batch = NULL;
}
