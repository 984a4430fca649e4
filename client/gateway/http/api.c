#include "client/gateway/http/api.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/gateway/base/answer.h"
#include "client/gateway/base/clock.h"

#define SLICE_ROWS 64 /* 64 rows cost the daemon some 50 µs */

/* ---- what stats says ---- */

int gb_gateway_api_stats(struct gb_gateway_ask *ask, struct gb_writer *writer,
                         struct gb_error *error)
{
    struct gb_pool pool = {0};
    struct gb_gateway_stats stats = {0};
    char *text = NULL;
    int r = gb_gateway_ask(ask, "stats", NULL, &text, error);

    if (r == 0)
        r = gb_gateway_stats_read(text, strlen(text), &pool, &stats, error);
    if (r == 0) {
        gb_gateway_stats_write(writer, &stats);
        gb_write_char(writer, '\n');
    }
    gb_pool_end(&pool);
    gpubuf_free(text);
    return r;
}

/* ---- the snapshot ---- */

/* The parts of an answer that comes in parts. */
struct parts {
    char **texts;
    size_t count;
};

static void parts_end(struct parts *parts)
{
    for (size_t i = 0; i < parts->count; i++)
        gpubuf_free(parts->texts[i]);
    free(parts->texts);
    *parts = (struct parts){0};
}

struct part {
    struct gb_json segments, sessions;
    uint64_t cursor;
};

static int read_part(const char *text, struct gb_pool *pool, struct part *part,
                     struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct part, segments, GB_FIELD_ARRAY, 0, 0, 0),
        GB_FIELD(struct part, sessions, GB_FIELD_ARRAY, 0, 0, 0),
        GB_FIELD(struct part, cursor, GB_FIELD_UINT, 0, 0, 0),
    };

    *part = (struct part){0};
    return gb_json_read_text(text, strlen(text), fields, 3, "result", pool, part, error);
}

/* Asks for all parts. If a cursor has become stale in between, this begins anew, a few times. */
static int ask_parts(struct gb_gateway_ask *ask, const char *method, struct gb_pool *pool,
                     struct parts *parts, struct gb_error *error)
{
    struct part part = {0};
    unsigned tries = 0;
    int r = 0;

    do {
        char params[64], *text = NULL, **texts;

        snprintf(params, sizeof(params), "{\"cursor\":%" PRIu64 "}", part.cursor);
        r = gb_gateway_ask(ask, method, part.cursor ? params : NULL, &text, error);
        if (r == GPUBUF_E_STALE && ++tries < 5) {
            parts_end(parts);
            part.cursor = 0;
            r = 0;
            continue;
        }
        texts = r == 0 ? realloc(parts->texts, (parts->count + 1) * sizeof(*texts)) : NULL;
        if (r == 0 && !texts) {
            gpubuf_free(text);
            r = gb_fail_memory(error);
        }
        if (r < 0)
            return r;
        parts->texts = texts;
        parts->texts[parts->count++] = text;
        r = read_part(text, pool, &part, error);
    } while (r == 0 && part.cursor);
    return r;
}

struct segment {
    struct gb_string device;
};

static int write_segments(struct gb_writer *writer, const struct parts *parts,
                          const struct gb_string *device, struct gb_pool *pool,
                          struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct segment, device, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
    };
    struct gb_path path = {.key = "segments"};
    const char *separator = "\n";
    struct part part;

    for (size_t i = 0; i < parts->count; i++) {
        struct gb_json_walk walk;
        struct gb_json item;

        if (read_part(parts->texts[i], pool, &part, error) < 0)
            return error->code;
        walk = gb_json_walk(part.segments);
        while (gb_json_next(&walk, NULL, &item)) {
            struct segment segment = {0};

            if (gb_json_read(item, fields, 1, GB_UNKNOWN_IGNORE, &path, pool, &segment, NULL,
                             error) < 0)
                return error->code;
            if (strcmp(segment.device.text, device->text) != 0)
                continue;
            gb_write_text(writer, separator);
            gb_gateway_write_copy(writer, item);
            separator = ",\n";
        }
    }
    return 0;
}

struct device {
    struct gb_string id;
};

/* Writes a device as `stats` tells it, with a list of its segments in place of their number. */
static int write_device(struct gb_writer *writer, struct gb_json device,
                        const struct parts *segments, struct gb_pool *pool, struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct device, id, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
    };
    struct gb_path path = {.key = "devices"};
    struct gb_json_walk walk = gb_json_walk(device);
    struct gb_json key, item;
    struct device known = {0};

    if (gb_json_read(device, fields, 1, GB_UNKNOWN_IGNORE, &path, pool, &known, NULL, error) < 0)
        return error->code;
    gb_write_char(writer, '{');
    while (gb_json_next(&walk, &key, &item)) {
        if (gb_json_is(key, "segments"))
            continue;
        gb_gateway_write_copy(writer, key);
        gb_write_char(writer, ':');
        gb_gateway_write_copy(writer, item);
        gb_write_char(writer, ',');
    }
    GB_WRITE_LITERAL(writer, "\"segments\":[");
    if (write_segments(writer, segments, &known.id, pool, error) < 0)
        return error->code;
    GB_WRITE_LITERAL(writer, "]}");
    return 0;
}

static int write_devices(struct gb_writer *writer, const struct gb_gateway_stats *stats,
                         const struct parts *segments, struct gb_pool *pool, struct gb_error *error)
{
    struct gb_json_walk walk = gb_json_walk(stats->devices);
    const char *separator = "\n";
    struct gb_json item;

    GB_WRITE_LITERAL(writer, ",\n\"devices\":[");
    while (gb_json_next(&walk, NULL, &item)) {
        gb_write_text(writer, separator);
        if (write_device(writer, item, segments, pool, error) < 0)
            return error->code;
        separator = ",\n";
    }
    gb_write_char(writer, ']');
    return 0;
}

static int write_sessions(struct gb_writer *writer, const struct parts *sessions,
                          struct gb_pool *pool, struct gb_error *error)
{
    const char *separator = "\n";

    GB_WRITE_LITERAL(writer, ",\n\"sessions\":[");
    for (size_t i = 0; i < sessions->count; i++) {
        struct gb_json_walk walk;
        struct gb_json item;
        struct part part;

        if (read_part(sessions->texts[i], pool, &part, error) < 0)
            return error->code;
        walk = gb_json_walk(part.sessions);
        while (gb_json_next(&walk, NULL, &item)) {
            gb_write_text(writer, separator);
            gb_gateway_write_copy(writer, item);
            separator = ",\n";
        }
    }
    gb_write_char(writer, ']');
    return 0;
}

int gb_gateway_api_snapshot(struct gb_gateway_ask *ask, struct gb_writer *writer,
                            struct gb_error *error)
{
    struct parts segments = {0}, sessions = {0};
    struct gb_pool pool = {0};
    struct gb_gateway_stats stats = {0};
    char *text = NULL;
    int r = gb_gateway_ask(ask, "stats", NULL, &text, error);

    if (r == 0)
        r = gb_gateway_stats_read(text, strlen(text), &pool, &stats, error);
    if (r == 0)
        r = ask_parts(ask, "segments", &pool, &segments, error);
    if (r == 0)
        r = ask_parts(ask, "sessions", &pool, &sessions, error);
    if (r == 0) {
        gb_gateway_stats_write_heading(writer, &stats);
        r = write_devices(writer, &stats, &segments, &pool, error);
    }
    if (r == 0)
        r = write_sessions(writer, &sessions, &pool, error);
    if (r == 0) {
        GB_WRITE_LITERAL(writer, ",\n\"tiers\":");
        gb_gateway_write_copy(writer, stats.tiers);
        gb_write_format(writer,
                        ",\n\"objects\":%" PRIu64 ",\"leases\":%" PRIu64
                        ",\"private_objects\":%" PRIu64 ",\"session\":%" PRIu64 "}\n",
                        stats.names, stats.leases, stats.private_names, atomic_load(&ask->session));
    }
    parts_end(&segments);
    parts_end(&sessions);
    gb_pool_end(&pool);
    gpubuf_free(text);
    return r;
}

/* ---- objects ---- */

struct listed {
    uint64_t seq;
    struct gb_json objects;
    struct gb_string cursor;
};

struct row {
    struct gb_json name, version, bytes, tier, device, uid, leases, pinned, evict, when_short,
        idle_ms, placements, stream;
    struct gb_string mode;
    int64_t created_ms;
    uint64_t cached, parked, generation, writers;
    bool live;
};

static int read_row(struct gb_json item, struct gb_pool *pool, struct row *row,
                    struct gb_error *error)
{
#define ROW_FIELD(member) GB_FIELD(struct row, member, GB_FIELD_ANY, GB_FIELD_REQUIRED, 0, 0)
    static const struct gb_field fields[] = {
        ROW_FIELD(name),
        ROW_FIELD(version),
        ROW_FIELD(bytes),
        ROW_FIELD(tier),
        ROW_FIELD(device),
        ROW_FIELD(uid),
        ROW_FIELD(leases),
        ROW_FIELD(pinned),
        ROW_FIELD(evict),
        ROW_FIELD(when_short),
        ROW_FIELD(idle_ms),
        ROW_FIELD(placements),
        GB_FIELD(struct row, mode, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct row, created_ms, GB_FIELD_INT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct row, cached, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct row, parked, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct row, generation, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct row, writers, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct row, live, GB_FIELD_BOOL, 0, 0, 0),
        GB_FIELD(struct row, stream, GB_FIELD_OBJECT, 0, 0, 0),
    };
#undef ROW_FIELD
    struct gb_path path = {.key = "objects"};

    *row = (struct row){0};
    return gb_json_read(item, fields, sizeof(fields) / sizeof(fields[0]), GB_UNKNOWN_IGNORE, &path,
                        pool, row, NULL, error);
}

/* The members of live objects alone; null for a sealed one. */
static void write_live(struct gb_writer *writer, const struct row *row)
{
    if (!row->live) {
        GB_WRITE_LITERAL(writer, "null");
        return;
    }
    gb_write_format(writer, "{\"generation\":%" PRIu64 ",\"writers\":%" PRIu64, row->generation,
                    row->writers);
    if (row->stream.text) {
        GB_WRITE_LITERAL(writer, ",\"stream\":");
        gb_gateway_write_copy(writer, row->stream);
    }
    gb_write_char(writer, '}');
}

static void write_row(struct gb_writer *writer, const struct row *row, int64_t now)
{
    const struct gb_json before[] = {row->name, row->version, row->bytes,
                                     row->tier, row->device,  row->uid};
    const struct gb_json after[] = {row->leases, row->pinned, row->evict, row->when_short};

    gb_write_char(writer, '[');
    for (size_t i = 0; i < sizeof(before) / sizeof(before[0]); i++) {
        gb_gateway_write_copy(writer, before[i]);
        gb_write_char(writer, ',');
    }
    gb_write_format(writer, "\"%s\"", row->mode.text);
    for (size_t i = 0; i < sizeof(after) / sizeof(after[0]); i++) {
        gb_write_char(writer, ',');
        gb_gateway_write_copy(writer, after[i]);
    }
    gb_write_format(writer, ",%" PRIi64 ",", now > row->created_ms ? now - row->created_ms : 0);
    gb_gateway_write_copy(writer, row->idle_ms);
    gb_write_char(writer, ',');
    gb_gateway_write_copy(writer, row->placements);
    gb_write_format(writer, ",%" PRIu64 ",%" PRIu64 ",", row->cached, row->parked);
    write_live(writer, row);
    gb_write_char(writer, ']');
}

static bool may_show(const struct gb_gateway_objects *objects, const struct row *row)
{
    return objects->audience == GB_GATEWAY_AUDIENCE_ALL || gb_gateway_is_public(&row->mode);
}

static void end_objects(struct gb_gateway_objects *objects, struct gb_writer *writer, bool more)
{
    GB_WRITE_LITERAL(writer, "\n],\"cursor\":");
    if (more)
        gb_write_cstring(writer, objects->shown);
    else
        GB_WRITE_LITERAL(writer, "null");
    GB_WRITE_LITERAL(writer, "}\n");
    objects->done = true;
}

static int write_rows(struct gb_gateway_objects *objects, struct gb_writer *writer,
                      struct gb_json array, struct gb_error *error)
{
    struct gb_json_walk walk = gb_json_walk(array);
    struct gb_path path = {.key = "objects"};
    int64_t now = gb_gateway_wall_ms();
    struct gb_json item;

    while (gb_json_next(&walk, NULL, &item)) {
        struct gb_string name;
        struct row row;

        if (read_row(item, &objects->pool, &row, error) < 0 ||
            gb_json_string(row.name, sizeof(objects->shown) - 1, &path, &objects->pool, &name,
                           error) < 0)
            return error->code;
        if (!may_show(objects, &row))
            continue;
        if (objects->count == objects->limit) {
            end_objects(objects, writer, true);
            return 0;
        }
        gb_write_text(writer, objects->count++ > 0 ? ",\n" : "\n");
        write_row(writer, &row, now);
        strcpy(objects->shown, name.text);
    }
    return 0;
}

static int ask_list(struct gb_gateway_objects *objects, char **text, struct gb_error *error)
{
    char instance[GB_INSTANCE_BYTES];
    struct gb_writer params;
    int r;

    gb_writer_init(&params, 0);
    gb_write_format(&params, "{\"limit\":%d,\"placements\":true", SLICE_ROWS);
    if (objects->after[0]) {
        GB_WRITE_LITERAL(&params, ",\"cursor\":");
        gb_write_cstring(&params, objects->after);
    }
    gb_write(&params, "}", 2); /* with the NUL that ends the text */
    r = params.failed
            ? gb_fail_memory(error)
            : gb_gateway_ask_which(objects->ask, "list", params.data, text, instance, error);
    gb_writer_end(&params);
    if (r == 0 && objects->begun && strcmp(instance, objects->instance) != 0) {
        gpubuf_free(*text);
        *text = NULL;
        return gb_fail(error, GPUBUF_E_STALE,
                       "another daemon has taken the place of the one asked");
    }
    memcpy(objects->instance, instance, sizeof(instance));
    return r;
}

static void begin_objects(struct gb_gateway_objects *objects, struct gb_writer *writer,
                          uint64_t seq)
{
    if (objects->begun)
        return;
    objects->begun = true;
    gb_write_format(writer, "{\"seq\":%" PRIu64 ",\"now_ms\":%" PRIi64 ",\"instance\":\"%s\"", seq,
                    gb_gateway_wall_ms(), objects->instance);
    GB_WRITE_LITERAL(writer, ",\"fields\":[\"name\",\"version\",\"bytes\",\"tier\",\"device\","
                             "\"uid\",\"mode\",\"leases\",\"pinned\",\"evict\",\"when_short\","
                             "\"age_ms\",\"idle_ms\",\"placements\",\"cached\",\"parked\","
                             "\"live\"],\n\"objects\":[");
}

int gb_gateway_api_objects(struct gb_gateway_objects *objects, struct gb_writer *writer,
                           struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct listed, seq, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct listed, objects, GB_FIELD_ARRAY, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct listed, cursor, GB_FIELD_STRING, 0, 0, sizeof(objects->after) - 1),
    };
    struct listed listed = {0};
    char *text = NULL;
    int r = ask_list(objects, &text, error);

    gb_pool_reset(&objects->pool);
    if (r == 0)
        r = gb_json_read_text(text, strlen(text), fields, 3, "result", &objects->pool, &listed,
                              error);
    if (r == 0) {
        begin_objects(objects, writer, listed.seq);
        r = write_rows(objects, writer, listed.objects, error);
    }
    if (r == 0 && listed.cursor.text)
        strcpy(objects->after, listed.cursor.text);
    else if (r == 0 && !objects->done)
        end_objects(objects, writer, false);
    gpubuf_free(text);
    return r;
}

/* ---- who holds an object ---- */

struct why {
    struct gb_json object, reasons, waits;
};

struct held {
    struct gb_string mode;
    uint64_t version;
};

struct reason {
    struct gb_json lease;
    struct gb_string name;
};

/* Writes the reasons that are leases by this name: other names of the memory may be private. */
static int write_holders(struct gb_writer *writer, struct gb_json reasons, const char *name,
                         struct gb_pool *pool, struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct reason, lease, GB_FIELD_ANY, 0, 0, 0),
        GB_FIELD(struct reason, name, GB_FIELD_STRING, 0, 0, 0),
    };
    struct gb_json_walk walk = gb_json_walk(reasons);
    struct gb_path path = {.key = "reasons"};
    const char *separator = "\n";
    struct gb_json item;

    while (gb_json_next(&walk, NULL, &item)) {
        struct reason reason = {0};

        if (gb_json_read(item, fields, 2, GB_UNKNOWN_IGNORE, &path, pool, &reason, NULL, error) < 0)
            return error->code;
        if (!reason.lease.text || !reason.name.text || strcmp(reason.name.text, name) != 0)
            continue;
        gb_write_text(writer, separator);
        gb_gateway_write_copy(writer, item);
        separator = ",\n";
    }
    return 0;
}

static int read_why(struct gb_gateway_ask *ask, const char *name, char **text, struct gb_pool *pool,
                    struct why *why, struct held *held, struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct why, object, GB_FIELD_OBJECT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct why, reasons, GB_FIELD_ARRAY, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct why, waits, GB_FIELD_OBJECT, 0, 0, 0),
    };
    static const struct gb_field object_fields[] = {
        GB_FIELD(struct held, mode, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct held, version, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
    };
    struct gb_path path = {.key = "object"};
    struct gb_writer params;
    int r;

    gb_writer_init(&params, 0);
    GB_WRITE_LITERAL(&params, "{\"why\":true,\"name\":");
    gb_write_cstring(&params, name);
    gb_write(&params, "}", 2); /* with the NUL that ends the text */
    r = params.failed ? gb_fail_memory(error)
                      : gb_gateway_ask(ask, "stat", params.data, text, error);
    gb_writer_end(&params);
    if (r == 0)
        r = gb_json_read_text(*text, strlen(*text), fields, 3, "result", pool, why, error);
    if (r == 0)
        r = gb_json_read(why->object, object_fields, 2, GB_UNKNOWN_IGNORE, &path, pool, held, NULL,
                         error);
    return r;
}

int gb_gateway_api_holders(struct gb_gateway_ask *ask, const char *name,
                           enum gb_gateway_audience audience, struct gb_writer *writer,
                           struct gb_error *error)
{
    struct gb_pool pool = {0};
    struct why why = {0};
    struct held held = {0};
    char *text = NULL;
    int r = read_why(ask, name, &text, &pool, &why, &held, error);

    bool none = r == GPUBUF_E_NOT_FOUND || (r == 0 && audience != GB_GATEWAY_AUDIENCE_ALL &&
                                            !gb_gateway_is_public(&held.mode));
    if (none) {
        GB_WRITE_LITERAL(writer, "{\"version\":0,\"holders\":[]}\n");
        r = 0;
    } else if (r == 0) {
        gb_write_format(writer, "{\"version\":%" PRIu64 ",\"holders\":[", held.version);
        r = write_holders(writer, why.reasons, name, &pool, error);
        gb_write_char(writer, ']');
        if (why.waits.text) {
            GB_WRITE_LITERAL(writer, ",\"waits\":");
            gb_gateway_write_copy(writer, why.waits);
        }
        GB_WRITE_LITERAL(writer, "}\n");
    }
    gb_pool_end(&pool);
    gpubuf_free(text);
    return r;
}

/* ---- metrics ---- */

struct family {
    struct gb_string name, type, help;
    struct gb_json samples;
};

struct sample {
    struct gb_json labels, value, buckets, sum, count;
};

/* Writes {a="b",c="d"}. JSON and Prometheus escape the values of our labels alike. */
static void write_labels(struct gb_writer *writer, struct gb_json labels, const char *bound,
                         size_t bound_length)
{
    struct gb_json_walk walk;
    const char *separator = "{";
    struct gb_json key, item;

    if (labels.text)
        walk = gb_json_walk(labels);
    while (labels.text && gb_json_next(&walk, &key, &item)) {
        gb_write_text(writer, separator);
        gb_write(writer, key.text + 1, gb_json_length(key) - 2); /* without its quotes */
        gb_write_char(writer, '=');
        gb_gateway_write_copy(writer, item);
        separator = ",";
    }
    if (bound) {
        gb_write_text(writer, separator);
        gb_write_format(writer, "le=\"%.*s\"", (int)bound_length, bound);
        separator = ",";
    }
    gb_write_text(writer, *separator == ',' ? "} " : " ");
}

static void write_line(struct gb_writer *writer, const char *name, const char *suffix,
                       struct gb_json labels, struct gb_json value)
{
    gb_write_format(writer, "%s%s", name, suffix);
    write_labels(writer, labels, NULL, 0);
    gb_gateway_write_copy(writer, value);
    gb_write_char(writer, '\n');
}

static void write_sample(struct gb_writer *writer, const char *name, const struct sample *sample)
{
    struct gb_json_walk walk;
    struct gb_json key, item;

    if (!sample->buckets.text) {
        write_line(writer, name, "", sample->labels, sample->value);
        return;
    }
    walk = gb_json_walk(sample->buckets);
    while (gb_json_next(&walk, &key, &item)) {
        gb_write_format(writer, "%s_bucket", name);
        write_labels(writer, sample->labels, key.text + 1, gb_json_length(key) - 2);
        gb_gateway_write_copy(writer, item);
        gb_write_char(writer, '\n');
    }
    write_line(writer, name, "_sum", sample->labels, sample->sum);
    write_line(writer, name, "_count", sample->labels, sample->count);
}

static int write_family(struct gb_writer *writer, struct gb_json item, struct gb_pool *pool,
                        struct gb_error *error)
{
    static const struct gb_field family_fields[] = {
        GB_FIELD(struct family, name, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct family, type, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct family, help, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct family, samples, GB_FIELD_ARRAY, GB_FIELD_REQUIRED, 0, 0),
    };
    static const struct gb_field sample_fields[] = {
        GB_FIELD(struct sample, labels, GB_FIELD_OBJECT, 0, 0, 0),
        GB_FIELD(struct sample, value, GB_FIELD_ANY, 0, 0, 0),
        GB_FIELD(struct sample, buckets, GB_FIELD_OBJECT, 0, 0, 0),
        GB_FIELD(struct sample, sum, GB_FIELD_ANY, 0, 0, 0),
        GB_FIELD(struct sample, count, GB_FIELD_ANY, 0, 0, 0),
    };
    struct gb_path path = {.key = "families"};
    struct family family = {0};
    struct gb_json_walk walk;

    if (gb_json_read(item, family_fields, 4, GB_UNKNOWN_IGNORE, &path, pool, &family, NULL, error) <
        0)
        return error->code;
    gb_write_format(writer, "# HELP %s %s\n# TYPE %s %s\n", family.name.text, family.help.text,
                    family.name.text, family.type.text);
    walk = gb_json_walk(family.samples);
    while (gb_json_next(&walk, NULL, &item)) {
        struct sample sample = {0};

        if (gb_json_read(item, sample_fields, 5, GB_UNKNOWN_IGNORE, &path, pool, &sample, NULL,
                         error) < 0)
            return error->code;
        write_sample(writer, family.name.text, &sample);
    }
    return 0;
}

struct families {
    struct gb_json families;
};

int gb_gateway_api_families(const char *text, size_t length, struct gb_writer *writer,
                            struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct families, families, GB_FIELD_ARRAY, GB_FIELD_REQUIRED, 0, 0),
    };
    struct families told = {{0}};
    struct gb_pool pool = {0};
    struct gb_json_walk walk;
    struct gb_json item;
    int r = gb_json_read_text(text, length, fields, 1, "result", &pool, &told, error);

    if (r == 0)
        walk = gb_json_walk(told.families);
    while (r == 0 && gb_json_next(&walk, NULL, &item))
        r = write_family(writer, item, &pool, error);
    gb_pool_end(&pool);
    return r;
}

int gb_gateway_api_metrics(struct gb_gateway_ask *ask, struct gb_writer *writer,
                           struct gb_error *error)
{
    char *text = NULL;
    int r = gb_gateway_ask(ask, "stats", "{\"families\":true}", &text, error);

    if (r == 0)
        r = gb_gateway_api_families(text, strlen(text), writer, error);
    gpubuf_free(text);
    return r;
}
