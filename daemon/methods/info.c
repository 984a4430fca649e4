/* leases, unmap, trim, stats, describe: who has what, and how much. */
#include <inttypes.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/methods/methods.h"

/* ---- leases ---- */

struct leases_params {
    struct gb_string name;
};

static const struct gb_field leases_fields[] = {
    GB_FIELD(struct leases_params, name, GB_FIELD_STRING, 0, 0, GB_LIMIT(name_bytes)),
};

static bool wanted(struct gb_call *call, const struct leases_params *params,
                   const struct gb_object *object)
{
    if (params->name.text && (params->name.length != object->name_length ||
                              memcmp(params->name.text, object->name, object->name_length) != 0))
        return false;
    return gb_session_may_read(call->session, object);
}

/* "session":…, … "client":…: who it is. */
static void write_session(struct gb_writer *writer, const struct gb_session *session)
{
    gb_write_format(writer,
                    "\"session\":%" PRIu64 ",\"pid\":%d,\"uid\":%u,\"client\":", session->id,
                    session->pid, session->user->uid);
    gb_write_cstring(writer, session->client ? session->client : "");
}

void gb_lease_write_holder(struct gb_writer *writer, const struct gb_lease *lease, uint64_t now)
{
    gb_write_format(writer, "\"lease\":%" PRIu64 ",", lease->id);
    write_session(writer, GB_CONTAINER(lease->holder, struct gb_session, holder));
    GB_WRITE_LITERAL(writer, ",\"name\":");
    gb_write_string(writer, lease->object->name, lease->object->name_length);
    gb_write_format(writer,
                    ",\"version\":%" PRIu64 ",\"bytes\":%" PRIu64
                    ",\"access\":\"%s\",\"age_ms\":%" PRIu64,
                    lease->object->version, lease->object->bytes, lease->write ? "rw" : "r",
                    now - lease->since_ms);
}

/* Sessions in the order in which they began. True if there was no room for all. */
static bool write_leases(struct gb_call *call, const struct leases_params *params)
{
    struct gb_writer *writer = call->writer;
    uint64_t now = gb_now_ms();
    const char *separator = "";

    GB_LIST_EACH(&call->server->sessions, link) {
        struct gb_session *session = GB_CONTAINER(link, struct gb_session, of_server);

        GB_LIST_EACH(&session->holder.leases, lease_link) {
            struct gb_lease *lease = GB_CONTAINER(lease_link, struct gb_lease, of_holder);

            if (!wanted(call, params, lease->object))
                continue;
            if (writer->length > GB_ANSWER_ROOM)
                return true;
            gb_write_text(writer, separator);
            separator = ",";
            gb_write_char(writer, '{');
            gb_lease_write_holder(writer, lease, now);
            gb_write_char(writer, '}');
        }
    }
    return false;
}

static bool write_mapped(struct gb_call *call)
{
    struct gb_writer *writer = call->writer;
    const char *separator = "";

    GB_LIST_EACH(&call->server->sessions, link) {
        struct gb_session *session = GB_CONTAINER(link, struct gb_session, of_server);

        if (session->user != call->session->user && !gb_session_is_admin(call->session))
            continue;
        GB_LIST_EACH(&session->mapper.mappings, mapping_link) {
            struct gb_mapping *mapping = GB_CONTAINER(mapping_link, struct gb_mapping, of_mapper);

            if (writer->length > GB_ANSWER_ROOM + 8192)
                return true;
            gb_write_text(writer, separator);
            gb_write_char(writer, '{');
            write_session(writer, session);
            gb_write_format(writer, ",\"segment\":%" PRIu64 ",\"bytes\":%" PRIu64 "%s}",
                            mapping->segment->id, mapping->segment->bytes,
                            mapping->segment->retiring ? ",\"retiring\":true" : "");
            separator = ",";
        }
    }
    return false;
}

static int handle_leases(struct gb_call *call, const void *p, uint64_t present)
{
    const struct leases_params *params = p;
    bool truncated;

    (void)present;
    gb_call_begin_result(call);
    GB_WRITE_LITERAL(call->writer, "{\"leases\":[");
    truncated = write_leases(call, params);
    GB_WRITE_LITERAL(call->writer, "],\"mapped\":[");
    truncated |= write_mapped(call);
    gb_write_text(call->writer, truncated ? "],\"truncated\":true}" : "]}");
    return GB_DONE;
}

const struct gb_method gb_method_leases = {
    GB_METHOD_ROW("leases", 0, leases_fields, handle_leases, struct leases_params)};

/* ---- unmap ---- */

struct unmap_params {
    struct gb_json segments;
};

static const struct gb_field unmap_fields[] = {
    GB_FIELD(struct unmap_params, segments, GB_FIELD_ARRAY, GB_FIELD_REQUIRED, 0, 0),
};

static int unmap_item(struct gb_call *call, struct gb_json item, const struct gb_path *path)
{
    struct gb_store *store = &call->server->store;
    struct gb_mapping *mapping;
    uint64_t id;
    int r = gb_json_uint(item, 0, GB_LIMIT(integer), path, &id, &call->error);

    if (r < 0)
        return r;
    mapping = gb_mapper_find(store, &call->session->mapper, id);
    if (!mapping)
        return gb_fail(&call->error, GPUBUF_E_STALE,
                       "this session was given no handle of segment %" PRIu64, id);
    gb_mapping_end(store, mapping);
    return 0;
}

static int handle_unmap(struct gb_call *call, const void *p, uint64_t present)
{
    const struct unmap_params *params = p;

    (void)present;
    return gb_call_each(call, params->segments, "segments", unmap_item);
}

const struct gb_method gb_method_unmap = {
    GB_METHOD_ROW("unmap", 0, unmap_fields, handle_unmap, struct unmap_params)};

/* ---- trim ---- */

struct trim_params {
    struct gb_string device;
    uint64_t bytes;
};

static const struct gb_field trim_fields[] = {
    GB_FIELD(struct trim_params, device, GB_FIELD_STRING, 0, 0, 64),
    GB_FIELD(struct trim_params, bytes, GB_FIELD_UINT, 0, 0, 0),
};

/* What is on its way back counts as freed: how fast a driver is makes no difference. */
static uint64_t trim(struct gb_store *store, struct gb_device *device, uint64_t bytes)
{
    uint64_t freeing = device->freeing;
    uint64_t freed = gb_store_trim(store, device, bytes);

    return freed + device->freeing - freeing;
}

static int handle_trim(struct gb_call *call, const void *p, uint64_t present)
{
    const struct trim_params *params = p;
    uint64_t bytes = present & 2 ? params->bytes : UINT64_MAX, freed = 0;
    struct gb_device *device;

    if (params->device.text && gb_call_device(call, &params->device, &device) < 0)
        return call->error.code;
    for (unsigned i = 0; i < call->server->device_count; i++)
        if (!params->device.text || call->server->devices[i] == device)
            freed += trim(&call->server->store, call->server->devices[i], bytes);
    gb_call_begin_result(call);
    gb_write_format(call->writer, "{\"freed\":%" PRIu64 "}", freed);
    return GB_DONE;
}

const struct gb_method gb_method_trim = {
    GB_METHOD_ROW("trim", GB_METHOD_ADMIN, trim_fields, handle_trim, struct trim_params)};

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
                        i > 0 ? "," : "", gb_method_at(i)->name, server->counts[i].calls,
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
