#include "daemon/observe/report.h"

#include <inttypes.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/memory/figures.h"
#include "daemon/observe/prometheus.h"
#include "daemon/serve/departure.h"
#include "daemon/serve/session.h"

/* ---- slices ---- */

#define SLICE_NS 400000u /* then the rest has to wait for the next slice */
#define SLICE_ROWS 16    /* are written without a look at the clock */
#define SLICE_BYTES (128u << 10)

struct slice {
    uint64_t until;
    unsigned rows;
};

static struct slice slice_begin(void)
{
    return (struct slice){.until = uv_hrtime() + SLICE_NS};
}

static bool slice_is_full(struct slice *slice, const struct gb_writer *writer)
{
    if (++slice->rows % SLICE_ROWS)
        return false;
    return writer->length >= SLICE_BYTES || uv_hrtime() >= slice->until;
}

/* ---- parts ---- */

bool gb_object_is_public(const struct gb_object *object)
{
    return object->mode & 4;
}

static void write_heading(struct gb_server *server, struct gb_writer *writer)
{
    GB_WRITE_LITERAL(writer, "{\"seq\":");
    gb_write_uint(writer, server->seq);
    gb_write_format(writer, ",\"now_ms\":%" PRIi64 ",\"instance\":\"%s\",\"version\":\"%s\"",
                    gb_wall_ms(), server->instance, GPUBUF_VERSION);
}

/* `segments`: how many it has, where they are not told one by one under that name. */
static void write_device(struct gb_writer *writer, const struct gb_device *device, bool segments)
{
    gb_write_char(writer, '{');
    gb_device_write_figures(writer, device, segments);
}

static uint64_t segment_used(const struct gb_segment *segment)
{
    return segment->block   ? gb_arena_block_used(segment->block)
           : segment->empty ? 0
                            : segment->bytes;
}

static void write_segment(struct gb_writer *writer, const struct gb_segment *segment)
{
    const char *state = segment->retiring ? "retiring" : segment->empty ? "empty" : "used";

    gb_write_format(writer,
                    "{\"id\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"used\":%" PRIu64
                    ",\"state\":\"%s\",\"domain\":",
                    segment->id, segment->bytes, segment_used(segment), state);
    if (segment->domain)
        gb_write_format(writer, "{\"share\":\"%s\",\"uid\":%u,\"gid\":%u,\"mode\":\"%04o\"}}",
                        segment->domain->key.share == GB_SHARE_FD ? "fd" : "ipc",
                        segment->domain->key.uid, segment->domain->key.gid,
                        segment->domain->key.mode);
    else
        GB_WRITE_LITERAL(writer, "null}");
}

static void write_session(struct gb_writer *writer, const struct gb_session *session)
{
    gb_write_format(writer,
                    "{\"session\":%" PRIu64 ",\"pid\":%d,\"uid\":%u,\"client\":", session->id,
                    session->pid, session->user->uid);
    gb_write_cstring(writer, session->client ? session->client : "");
    gb_write_format(
        writer, ",\"leases\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"mapped_bytes\":%" PRIu64 "}",
        session->holder.count, gb_holder_bytes(&session->holder), session->mapper.bytes);
}

void gb_report_stats(struct gb_server *server, struct gb_writer *writer)
{
    write_heading(server, writer);
    GB_WRITE_LITERAL(writer, ",\"kind\":\"stats\",\"devices\":[");
    for (unsigned i = 0; i < server->device_count; i++) {
        if (i > 0)
            gb_write_char(writer, ',');
        write_device(writer, server->devices[i], true);
        gb_write_char(writer, '}');
    }
    GB_WRITE_LITERAL(writer, "],");
    gb_tiers_write_figures(writer, server->spill.tiers);
    gb_write_format(writer, ",\"sessions\":%" PRIu64 ",\"leases\":%" PRIu64 ",\"objects\":%zu}",
                    server->session_count, gb_registry_lease_count(&server->registry),
                    gb_names_count(&server->registry.names));
}

/* ---- the snapshot ---- */

enum { STAGE_HEAD, STAGE_DEVICE, STAGE_SEGMENTS, STAGE_SESSIONS, STAGE_TAIL };

/* True when the list is through; false when the slice is full first. */
static bool walk_segments(struct gb_server *server, struct gb_query *query, struct slice *slice)
{
    struct gb_device *device = server->devices[query->device];

    while (query->walk.at != &device->segment_list) {
        if (slice_is_full(slice, &query->writer))
            return false;
        gb_write_text(&query->writer, query->count++ > 0 ? ",\n" : "\n");
        write_segment(&query->writer, GB_CONTAINER(query->walk.at, struct gb_segment, of_device));
        query->walk.at = query->walk.at->next;
    }
    gb_walk_end(&query->walk);
    return true;
}

static bool walk_sessions(struct gb_server *server, struct gb_query *query, struct slice *slice)
{
    while (query->walk.at != &server->sessions) {
        if (slice_is_full(slice, &query->writer))
            return false;
        gb_write_text(&query->writer, query->count++ > 0 ? ",\n" : "\n");
        write_session(&query->writer, GB_CONTAINER(query->walk.at, struct gb_session, of_server));
        query->walk.at = query->walk.at->next;
    }
    gb_walk_end(&query->walk);
    return true;
}

static void begin_device(struct gb_server *server, struct gb_query *query)
{
    struct gb_device *device = server->devices[query->device];

    gb_write_text(&query->writer, query->device > 0 ? ",\n" : "\n");
    write_device(&query->writer, device, false);
    GB_WRITE_LITERAL(&query->writer, ",\"segments\":[");
    query->count = 0;
    gb_walk_begin(&server->store.walks, &query->walk, &device->segment_list);
}

static void begin_sessions(struct gb_server *server, struct gb_query *query)
{
    GB_WRITE_LITERAL(&query->writer, "],\n\"sessions\":[");
    query->count = 0;
    gb_walk_begin(&server->walks, &query->walk, &server->sessions);
}

static void write_tail(struct gb_server *server, struct gb_query *query)
{
    GB_WRITE_LITERAL(&query->writer, "],\n");
    gb_tiers_write_figures(&query->writer, server->spill.tiers);
    gb_write_format(&query->writer,
                    ",\n\"objects\":%zu,\"leases\":%" PRIu64 ",\"private_objects\":%" PRIu64 "}\n",
                    gb_names_count(&server->registry.names),
                    gb_registry_lease_count(&server->registry), server->registry.private_names);
}

static void step_snapshot(struct gb_server *server, struct gb_query *query)
{
    struct slice slice = slice_begin();

    for (;;) {
        switch (query->stage) {
        case STAGE_HEAD:
            write_heading(server, &query->writer);
            GB_WRITE_LITERAL(&query->writer, ",\n\"devices\":[");
            query->stage = STAGE_DEVICE;
            break;
        case STAGE_DEVICE:
            if (query->device < server->device_count) {
                begin_device(server, query);
                query->stage = STAGE_SEGMENTS;
            } else {
                begin_sessions(server, query);
                query->stage = STAGE_SESSIONS;
            }
            break;
        case STAGE_SEGMENTS:
            if (!walk_segments(server, query, &slice))
                return;
            GB_WRITE_LITERAL(&query->writer, "]}");
            query->device++;
            query->stage = STAGE_DEVICE;
            break;
        case STAGE_SESSIONS:
            if (!walk_sessions(server, query, &slice))
                return;
            query->stage = STAGE_TAIL;
            break;
        default:
            write_tail(server, query);
            query->done = true;
            return;
        }
    }
}

/* ---- objects ---- */

static void write_fields(struct gb_writer *writer)
{
    GB_WRITE_LITERAL(writer, ",\"fields\":[\"name\",\"version\",\"bytes\",\"tier\",\"device\","
                             "\"uid\",\"mode\",\"leases\",\"pinned\",\"evict\",\"age_ms\","
                             "\"idle_ms\",\"placements\"],\n\"objects\":[");
}

static int64_t since(int64_t now, int64_t then)
{
    return now > then ? now - then : 0;
}

static void write_row(struct gb_server *server, struct gb_writer *writer,
                      const struct gb_object *object, int64_t wall_ms)
{
    const struct gb_storage *storage = object->storage;

    gb_write_char(writer, '[');
    gb_write_string(writer, object->name, object->name_length);
    gb_write_char(writer, ',');
    gb_write_uint(writer, object->version);
    gb_write_char(writer, ',');
    gb_write_uint(writer, object->bytes);
    GB_WRITE_LITERAL(writer, ",\"");
    gb_write_text(writer, gb_object_tier(object));
    GB_WRITE_LITERAL(writer, "\",\"");
    gb_write_text(writer, storage->device->id);
    GB_WRITE_LITERAL(writer, "\",");
    gb_write_uint(writer, object->owner->uid);
    gb_write_text(writer, ",\"0");
    for (int shift = 6; shift >= 0; shift -= 3)
        gb_write_char(writer, (char)('0' + (object->mode >> shift & 7)));
    GB_WRITE_LITERAL(writer, "\",");
    gb_write_uint(writer, gb_object_lease_count(object));
    gb_write_text(writer, object->pinned ? ",true,\"" : ",false,\"");
    gb_write_text(writer, gb_evict_name(object->evict));
    GB_WRITE_LITERAL(writer, "\",");
    gb_write_int(writer, since(wall_ms, object->created_ms));
    gb_write_char(writer, ',');
    gb_write_uint(writer, gb_storage_idle_ms(storage, server->registry.now_ms));
    gb_write_char(writer, ',');
    gb_placements_write(writer, object);
    gb_write_char(writer, ']');
}

static void end_objects(struct gb_query *query, bool more)
{
    GB_WRITE_LITERAL(&query->writer, "\n],\"cursor\":");
    if (more)
        gb_write_string(&query->writer, query->shown, query->shown_length);
    else
        GB_WRITE_LITERAL(&query->writer, "null");
    GB_WRITE_LITERAL(&query->writer, "}\n");
    query->done = true;
}

static void step_objects(struct gb_server *server, struct gb_query *query)
{
    struct slice slice = slice_begin();
    struct gb_names *names = &server->registry.names;
    struct gb_name *name =
        gb_names_lower(names, query->after, query->after_length, query->after_length > 0);
    int64_t wall_ms = gb_wall_ms();

    if (query->stage++ == 0) {
        write_heading(server, &query->writer);
        write_fields(&query->writer);
    }
    for (; name; name = gb_names_next(name)) {
        const struct gb_object *object = GB_CONTAINER(name, struct gb_object, index);
        bool shown = query->sees_all || gb_object_is_public(object);

        if (shown && query->count == query->limit) {
            end_objects(query, true);
            return;
        }
        if (slice_is_full(&slice, &query->writer))
            return;
        query->after_length = object->name_length;
        memcpy(query->after, object->name, object->name_length);
        if (!shown)
            continue;
        query->shown_length = object->name_length;
        memcpy(query->shown, object->name, object->name_length);
        gb_write_text(&query->writer, query->count++ > 0 ? ",\n" : "\n");
        write_row(server, &query->writer, object, wall_ms);
    }
    end_objects(query, false);
}

/* ---- */

void gb_query_cancel(struct gb_query *query)
{
    gb_walk_end(&query->walk);
    query->done = true;
}

void gb_query_step(struct gb_server *server, struct gb_query *query,
                   const struct gb_observe_counts *counts)
{
    if (query->cancelled) {
        gb_query_cancel(query);
        return;
    }
    gb_sessions_give_back(server, UINT64_MAX); /* who has ended holds nothing */
    switch (query->kind) {
    case GB_QUERY_METRICS:
        gb_prometheus_write(server, counts, &query->writer);
        query->done = true;
        break;
    case GB_QUERY_STATS:
        gb_report_stats(server, &query->writer);
        query->done = true;
        break;
    case GB_QUERY_SNAPSHOT:
        step_snapshot(server, query);
        break;
    default:
        step_objects(server, query);
    }
}
