/* stats and describe: figures of the daemon, and its methods. */
#include <inttypes.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/memory/figures.h"
#include "daemon/methods/families.h"
#include "daemon/spill/evict.h"

/* ---- stats ---- */

struct stats_params {
    bool families;
};

static const struct gb_field stats_fields[] = {
    GB_FIELD(struct stats_params, families, GB_FIELD_BOOL, 0, 0, 0),
};

/* Each is ,"member":value. */
static void write_figures(struct gb_writer *writer, const struct gb_figure *figures, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (figures[i].member)
            gb_write_format(writer, ",\"%s\":%" PRIu64, figures[i].member, figures[i].value);
}

static void write_totals(struct gb_call *call)
{
    struct gb_server *server = call->server;
    struct gb_figure figures[GB_FIGURES];

    gb_write_format(call->writer,
                    "\"server\":\"gpubufd %s\",\"instance\":\"%s\",\"uptime_ms\":%" PRIu64,
                    GPUBUF_VERSION, server->instance, gb_now_ms() - server->started_ms);
    write_figures(call->writer, figures, gb_server_figures(server, figures));
}

static void write_devices(struct gb_call *call)
{
    struct gb_writer *writer = call->writer;
    struct gb_figure figures[GB_FIGURES];

    GB_WRITE_LITERAL(writer, ",\"devices\":[");
    for (unsigned i = 0; i < call->server->device_count; i++) {
        const struct gb_device *device = call->server->devices[i];

        gb_write_format(writer, "%s{\"id\":\"%s\",\"name\":", i > 0 ? "," : "", device->id);
        gb_write_cstring(writer, device->name);
        if (device->alias[0])
            gb_write_format(writer, ",\"alias\":\"%s\"", device->alias);
        write_figures(
            writer, figures,
            gb_device_figures(device, gb_evict_most(&call->server->spill, device), figures));
        gb_write_char(writer, '}');
    }
    GB_WRITE_LITERAL(writer, "],\"tiers\":[");
    for (int i = 0, told = 0; i < GB_TIERS; i++) {
        const struct gb_tier *tier = &call->server->spill.tiers[i];
        const struct gb_error *fault = &call->server->spill.faults[i];

        if (tier->capacity == 0 && fault->code == 0)
            continue;
        gb_write_format(writer, "%s{\"tier\":\"%s\"", told++ > 0 ? "," : "",
                        gb_tier_name(tier->kind));
        if (fault->code != 0) {
            GB_WRITE_LITERAL(writer, ",\"fault\":");
            gb_write_cstring(writer, fault->message);
        }
        write_figures(writer, figures, gb_tier_figures(tier, figures));
        gb_write_char(writer, '}');
    }
    gb_write_char(writer, ']');
}

static void write_stock(struct gb_writer *writer, const char *name, const struct gb_stock *stock)
{
    gb_write_format(writer, "\"%s\":{\"used\":%" PRIu64, name, stock->used);
    if (stock->most != UINT64_MAX)
        gb_write_format(writer, ",\"most\":%" PRIu64, stock->most);
    gb_write_char(writer, '}');
}

static void write_descriptors(struct gb_call *call)
{
    const struct gb_server *server = call->server;
    const struct gb_stock *stocks = server->store.users.stocks;
    struct gb_writer *writer = call->writer;

    gb_write_format(writer, ",\"handover\":\"%s\",\"descriptors\":{\"limit\":%" PRIu64 ",",
                    gb_state_handover_status(&server->state), server->store.users.open_files);
    write_stock(writer, "open", &stocks[GB_STOCK_OPEN]);
    gb_write_char(writer, ',');
    write_stock(writer, "kept", &stocks[GB_STOCK_KEPT]);
    gb_write_char(writer, ',');
    write_stock(writer, "in_flight", &stocks[GB_STOCK_FLIGHT]);
    gb_write_char(writer, '}');
}

static void write_user(struct gb_call *call, const struct gb_user *user)
{
    const struct gb_server *server = call->server;
    struct gb_writer *writer = call->writer;

    gb_write_format(writer, "{\"uid\":%u", user->uid);
    for (unsigned kind = 0; kind < GB_QUOTA_BYTES; kind++)
        gb_write_pattern(writer, ",%s:{'used':%" PRIu64 ",'quota':%" PRIu64 "}",
                         gb_quota_rows[kind].name, user->has[kind], user->quota->most[kind]);
    gb_write_format(
        writer,
        ",\"descriptors\":{\"open\":%" PRIu64 ",\"kept\":%" PRIu64 ",\"in_flight\":%" PRIu64 "}",
        user->charges[GB_STOCK_OPEN], user->charges[GB_STOCK_KEPT], user->charges[GB_STOCK_FLIGHT]);
    GB_WRITE_LITERAL(writer, ",\"bytes\":[");
    for (unsigned i = 0; i < server->device_count; i++)
        gb_write_format(writer,
                        "%s{\"device\":\"%s\",\"used\":%" PRIu64 ",\"nameless\":%" PRIu64
                        ",\"held\":%" PRIu64 ",\"pinned_by_clients\":%" PRIu64 ",\"quota\":%" PRIu64
                        "}",
                        i > 0 ? "," : "", server->devices[i]->id, user->bytes[i], user->nameless[i],
                        user->held[i], user->retiring[i], user->quota->bytes[i]);
    GB_WRITE_LITERAL(writer, "]}");
}

/* The most users in an answer to `stats`. */
#define USERS_LIMIT 128u

/* Writes the session's own user; for an administrator all users, up to the limit. */
static void write_users(struct gb_call *call)
{
    bool all = gb_session_is_admin(call->session), truncated = false;
    unsigned told = 0;
    const char *separator = "";

    GB_WRITE_LITERAL(call->writer, ",\"users\":[");
    GB_LIST_EACH(&call->server->store.users.all, const struct gb_user, user, of_users) {
        if (!all && user != call->session->user)
            continue;
        truncated = told++ == USERS_LIMIT;
        if (truncated)
            break;
        gb_write_text(call->writer, separator);
        write_user(call, user);
        separator = ",";
    }
    gb_write_text(call->writer, truncated ? "],\"truncated\":true" : "]");
}

static void write_methods(struct gb_call *call)
{
    const struct gb_service *service = call->server->service;

    GB_WRITE_LITERAL(call->writer, ",\"methods\":{");
    for (size_t i = 0; i < service->count; i++) {
        const struct gb_method_metrics *method = &call->server->metrics.methods[i];
        uint64_t errors = 0;

        for (int k = 0; k < GB_METRICS_ERRORS; k++)
            errors += method->errors[k];
        gb_write_format(call->writer, "%s\"%s\":{\"calls\":%" PRIu64 ",\"errors\":%" PRIu64 "}",
                        i > 0 ? "," : "", service->name(i), method->calls, errors);
    }
    gb_write_char(call->writer, '}');
}

/* How often each parameter was given, by method; those that were never given are left out. */
static void write_params(struct gb_call *call)
{
    const struct gb_service *service = call->server->service;

    GB_WRITE_LITERAL(call->writer, ",\"params\":{");
    for (size_t i = 0; i < service->count; i++) {
        const uint64_t *given = call->server->metrics.methods[i].params;
        const char *param, *before = "";

        gb_write_format(call->writer, "%s\"%s\":{", i > 0 ? "," : "", service->name(i));
        for (size_t k = 0; (param = service->param(i, k)); k++) {
            if (given[k] == 0)
                continue;
            gb_write_format(call->writer, "%s\"%s\":%" PRIu64, before, param, given[k]);
            before = ",";
        }
        gb_write_char(call->writer, '}');
    }
    gb_write_char(call->writer, '}');
}

static int handle_stats(struct gb_call *call, const void *p)
{
    struct gb_writer *writer = call->writer;

    gb_call_begin_result(call);
    if (((const struct stats_params *)p)->families) {
        GB_WRITE_LITERAL(writer, "{\"families\":[");
        gb_server_write_families(call->server, writer);
        GB_WRITE_LITERAL(writer, "]}");
        return GB_DONE;
    }
    gb_write_char(writer, '{');
    write_totals(call);
    write_descriptors(call);
    write_devices(call);
    write_users(call);
    write_methods(call);
    write_params(call);
    gb_write_char(writer, '}');
    return GB_DONE;
}

const struct gb_method gb_method_stats = {
    GB_METHOD_ROW("stats", 0, stats_fields, handle_stats, struct stats_params)};

/* ---- describe ---- */

struct no_params {
    char nothing;
};

extern const char gb_protocol_json[];
extern const size_t gb_protocol_json_length;

/* Writes proto/protocol.json without its line ends, since a message is one line. */
static int handle_describe(struct gb_call *call, const void *p)
{
    const char *text = gb_protocol_json, *end = text + gb_protocol_json_length;

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
