/* stats and describe: figures of the daemon, and its methods. */
#include <inttypes.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/memory/figures.h"
#include "daemon/methods/call.h"

/* ---- stats ---- */

struct no_params {
    char nothing;
};

static void write_totals(struct gb_call *call)
{
    const struct gb_server *server = call->server;

    gb_write_format(call->writer, "\"server\":\"gpubufd %s\",\"instance\":\"%s\",", GPUBUF_VERSION,
                    server->instance);
    gb_write_format(call->writer,
                    "\"uptime_ms\":%" PRIu64 ",\"sessions\":%" PRIu64 ",\"sessions_total\":%" PRIu64
                    ",\"names\":%zu,\"objects\":%" PRIu64 ",\"leases\":%" PRIu64
                    ",\"kept\":%" PRIu64 ",\"mappings\":%zu,"
                    "\"segments\":%zu,\"seq\":%" PRIu64 ",\"private_names\":%" PRIu64
                    ",\"wanted\":%" PRIu64 ",\"provided\":%" PRIu64 ",\"declined\":%" PRIu64,
                    gb_now_ms() - server->started_ms, server->session_count, server->sessions_total,
                    gb_names_count(&server->registry.names), server->registry.objects,
                    gb_registry_lease_count(&server->registry), server->registry.idle_count,
                    server->store.mappings.count, server->store.segments.count, server->seq,
                    server->registry.private_names, server->missings.providers.wanted,
                    server->missings.providers.provided, server->missings.providers.declined);
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
                    gb_state_handover(&server->state), server->store.users.open_files);
    write_stock(writer, "open", &stocks[GB_STOCK_OPEN]);
    gb_write_char(writer, ',');
    write_stock(writer, "kept", &stocks[GB_STOCK_KEPT]);
    gb_write_char(writer, ',');
    write_stock(writer, "in_flight", &stocks[GB_STOCK_FLIGHT]);
    gb_write_char(writer, '}');
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
    write_use(writer, "leases", user->leases, user->quota->leases);
    write_use(writer, "text_bytes", user->text_bytes, user->quota->text_bytes);
    gb_write_format(
        writer,
        ",\"descriptors\":{\"open\":%" PRIu64 ",\"kept\":%" PRIu64 ",\"in_flight\":%" PRIu64 "}",
        user->stocks[GB_STOCK_OPEN], user->stocks[GB_STOCK_KEPT], user->stocks[GB_STOCK_FLIGHT]);
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
    GB_LIST_EACH(&call->server->store.users.all, link) {
        const struct gb_user *user = GB_CONTAINER(link, struct gb_user, of_users);

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

static int handle_stats(struct gb_call *call, const void *p, uint64_t present)
{
    const struct gb_server *server = call->server;
    const struct gb_service *service = server->service;
    struct gb_writer *writer = call->writer;

    (void)p;
    (void)present;
    gb_call_begin_result(call);
    gb_write_char(writer, '{');
    write_totals(call);
    write_descriptors(call);
    GB_WRITE_LITERAL(writer, ",\"devices\":[");
    for (unsigned i = 0; i < server->device_count; i++) {
        gb_write_text(writer, i > 0 ? ",{" : "{");
        gb_device_write_figures(writer, server->devices[i], true);
        gb_write_char(writer, '}');
    }
    GB_WRITE_LITERAL(call->writer, "],");
    gb_tiers_write_figures(call->writer, server->spill.tiers);
    write_users(call);
    GB_WRITE_LITERAL(writer, ",\"methods\":{");
    for (size_t i = 0; i < service->count; i++)
        gb_write_format(writer, "%s\"%s\":{\"calls\":%" PRIu64 ",\"errors\":%" PRIu64 "}",
                        i > 0 ? "," : "", service->name(i), server->counts[i].calls,
                        server->counts[i].errors);
    GB_WRITE_LITERAL(writer, "}}");
    return GB_DONE;
}

const struct gb_method gb_method_stats = {
    .name = "stats", .handle = handle_stats, .params_size = sizeof(struct no_params)};

/* ---- describe ---- */

extern const char gb_protocol_json[];
extern const size_t gb_protocol_json_length;

/* Writes proto/protocol.json without its line ends, since a message is one line. */
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
