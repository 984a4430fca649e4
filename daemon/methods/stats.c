/* stats and describe: how much there is of everything, and what can be asked. */
#include "daemon/methods/stats.h"

#include <inttypes.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/methods/call.h"
#include "daemon/methods/methods.h"

/* ---- stats ---- */

struct no_params {
    char nothing;
};

void gb_device_write_figures(struct gb_writer *writer, const struct gb_device *device,
                             bool segments)
{
    const struct {
        const char *name;
        uint64_t value;
    } figures[] = {
        {"capacity", device->capacity},
        {"free", gb_device_free_bytes(device)},
        {"used", device->used},
        {"retained", gb_device_retained(device)},
        {"pinned_by_clients", device->pinned_by_clients},
        {"leased", device->leased},
        {"pinned", device->pinned},
        {"evictable", device->recency.bytes},
        {"clean", device->recency.clean_bytes},
        {"leaving", device->leaving},
        {"spilled", device->spilled},
        {"spilled_bytes", device->spilled_bytes},
        {"objects", device->objects},
        {"segments", device->segments},
        {"segments_created", device->segments_created},
        {"segments_destroyed", device->segments_destroyed},
        {"evictions", device->evictions},
        {"evicted_bytes", device->evicted_bytes},
        {"spills", device->spills},
        {"spills_bytes", device->spills_bytes},
        {"restores", device->restores},
        {"restores_bytes", device->restores_bytes},
    };

    gb_write_format(writer, "\"id\":\"%s\",\"name\":", device->id);
    gb_write_cstring(writer, device->name);
    if (device->alias[0])
        gb_write_format(writer, ",\"alias\":\"%s\"", device->alias);
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
        if (segments || strcmp(figures[i].name, "segments") != 0)
            gb_write_format(writer, ",\"%s\":%" PRIu64, figures[i].name, figures[i].value);
}

static void write_tier_stats(struct gb_writer *writer, const struct gb_tier *tier)
{
    const struct {
        const char *name;
        uint64_t value;
    } figures[] = {
        {"capacity", tier->capacity},
        {"free", gb_tier_free_bytes(tier)},
        {"used", tier->used},
        {"clean", tier->recency.clean_bytes},
        {"copies", tier->copies},
        {"writes", tier->writes},
        {"written_bytes", tier->written_bytes},
        {"write_us", tier->write_us},
        {"reads", tier->reads},
        {"read_bytes", tier->read_bytes},
        {"read_us", tier->read_us},
        {"failures", tier->failures},
    };

    gb_write_format(writer, "{\"tier\":\"%s\"", gb_tier_name(tier->kind));
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++)
        gb_write_format(writer, ",\"%s\":%" PRIu64, figures[i].name, figures[i].value);
    gb_write_char(writer, '}');
}

void gb_tiers_write_figures(struct gb_writer *writer, const struct gb_server *server)
{
    const char *separator = "";

    GB_WRITE_LITERAL(writer, "\"tiers\":[");
    for (int i = 0; i < GB_TIERS; i++) {
        const struct gb_tier *tier = &server->spill.tiers[i];

        if (tier->capacity == 0)
            continue;
        gb_write_text(writer, separator);
        write_tier_stats(writer, tier);
        separator = ",";
    }
    gb_write_char(writer, ']');
}

static void write_totals(struct gb_call *call)
{
    const struct gb_server *server = call->server;

    gb_write_format(call->writer, "\"server\":\"gpubufd %s\",\"instance\":\"%s\",", GPUBUF_VERSION,
                    server->instance);
    gb_write_format(call->writer,
                    "\"uptime_ms\":%" PRIu64 ",\"sessions\":%" PRIu64 ",\"sessions_total\":%" PRIu64
                    ",\"names\":%zu,\"objects\":%" PRIu64 ",\"leases\":%zu,\"mappings\":%zu,"
                    "\"segments\":%zu,\"events\":%" PRIu64,
                    gb_now_ms() - server->started_ms, server->session_count, server->sessions_total,
                    gb_names_count(&server->registry.names), server->registry.objects,
                    server->registry.leases.count, server->store.mappings.count,
                    server->store.segments.count, server->events);
}

static void write_use(struct gb_writer *writer, const char *name, uint64_t used, uint64_t quota)
{
    gb_write_format(writer, ",\"%s\":{\"used\":%" PRIu64 ",\"quota\":%" PRIu64 "}", name, used,
                    quota);
}

static void write_user(struct gb_call *call, const struct gb_user *user)
{
    const struct gb_server *server = call->server;
    struct gb_writer *writer = call->writer;

    gb_write_format(writer, "{\"uid\":%u", user->uid);
    write_use(writer, "sessions", user->sessions, user->quota->sessions);
    write_use(writer, "objects", user->objects, user->quota->objects);
    write_use(writer, "segments", user->segments, user->quota->segments);
    GB_WRITE_LITERAL(writer, ",\"bytes\":[");
    for (unsigned i = 0; i < server->device_count; i++)
        gb_write_format(writer, "%s{\"device\":\"%s\",\"used\":%" PRIu64 ",\"quota\":%" PRIu64 "}",
                        i > 0 ? "," : "", server->devices[i]->id, user->bytes[i],
                        user->quota->bytes[i]);
    GB_WRITE_LITERAL(writer, "]}");
}

/* One's own; all, for those who may do everything, as far as there is room. */
static void write_users(struct gb_call *call)
{
    bool all = gb_session_is_admin(call->session), truncated = false;
    const char *separator = "";

    GB_WRITE_LITERAL(call->writer, ",\"users\":[");
    GB_LIST_EACH(&call->server->store.users.all, link) {
        const struct gb_user *user = GB_CONTAINER(link, struct gb_user, of_users);

        if (!all && user != call->session->user)
            continue;
        truncated = call->writer->length > GB_ANSWER_ROOM;
        if (truncated)
            break;
        gb_write_text(call->writer, separator);
        write_user(call, user);
        separator = ",";
    }
    gb_write_text(call->writer, truncated ? "],\"truncated\":true" : "]");
}

static int handle_stats(struct gb_call *call, const void *p, uint64_t present)
{
    const struct gb_server *server = call->server;
    struct gb_writer *writer = call->writer;

    (void)p;
    (void)present;
    gb_call_begin_result(call);
    gb_write_char(writer, '{');
    write_totals(call);
    GB_WRITE_LITERAL(writer, ",\"devices\":[");
    for (unsigned i = 0; i < server->device_count; i++) {
        gb_write_text(writer, i > 0 ? ",{" : "{");
        gb_device_write_figures(writer, server->devices[i], true);
        gb_write_char(writer, '}');
    }
    GB_WRITE_LITERAL(call->writer, "],");
    gb_tiers_write_figures(call->writer, server);
    write_users(call);
    GB_WRITE_LITERAL(writer, ",\"methods\":{");
    for (size_t i = 0; i < gb_method_count(); i++)
        gb_write_format(writer, "%s\"%s\":{\"calls\":%" PRIu64 ",\"errors\":%" PRIu64 "}",
                        i > 0 ? "," : "", gb_method_name(i), server->counts[i].calls,
                        server->counts[i].errors);
    GB_WRITE_LITERAL(writer, "}}");
    return GB_DONE;
}

const struct gb_method gb_method_stats = {
    .name = "stats", .handle = handle_stats, .params_size = sizeof(struct no_params)};

/* ---- describe ---- */

extern const char gb_protocol_json[];
extern const size_t gb_protocol_json_length;

/* The file as it is, its line ends made spaces: a message is one line. */
static int handle_describe(struct gb_call *call, const void *p, uint64_t present)
{
    const char *text = gb_protocol_json, *end = text + gb_protocol_json_length;

    (void)p;
    (void)present;
    gb_call_begin_result(call);
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *stop = newline ? newline : end;

        gb_write(call->writer, text, (size_t)(stop - text));
        text = newline ? newline + 1 : end;
    }
    return GB_DONE;
}

const struct gb_method gb_method_describe = {
    .name = "describe", .handle = handle_describe, .params_size = sizeof(struct no_params)};
