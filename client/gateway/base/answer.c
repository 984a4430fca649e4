#include "client/gateway/base/answer.h"

#include <inttypes.h>
#include <string.h>

#include "client/gateway/base/clock.h"

void gb_gateway_write_copy(struct gb_writer *writer, struct gb_json value)
{
    gb_write(writer, value.text, gb_json_length(value));
}

bool gb_gateway_is_public(const struct gb_string *mode)
{
    return mode->length > 0 && ((mode->text[mode->length - 1] - '0') & 4);
}

int gb_gateway_stats_read(const char *text, size_t length, struct gb_pool *pool,
                          struct gb_gateway_stats *stats, struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct gb_gateway_stats, seq, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_gateway_stats, sessions, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_gateway_stats, leases, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_gateway_stats, names, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_gateway_stats, private_names, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_gateway_stats, server, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_gateway_stats, instance, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 63),
        GB_FIELD(struct gb_gateway_stats, devices, GB_FIELD_ARRAY, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_gateway_stats, tiers, GB_FIELD_ARRAY, GB_FIELD_REQUIRED, 0, 0),
    };

    *stats = (struct gb_gateway_stats){0};
    return gb_json_read_text(text, length, fields, sizeof(fields) / sizeof(fields[0]), "stats",
                             pool, stats, error);
}

void gb_gateway_stats_write_heading(struct gb_writer *writer, const struct gb_gateway_stats *stats)
{
    const char *version = strchr(stats->server.text, ' ');

    gb_write_format(
        writer,
        "{\"seq\":%" PRIu64 ",\"now_ms\":%" PRIi64 ",\"instance\":\"%s\",\"version\":\"%s\"",
        stats->seq, gb_gateway_wall_ms(), stats->instance.text, version ? version + 1 : "");
}

void gb_gateway_stats_write(struct gb_writer *writer, const struct gb_gateway_stats *stats)
{
    gb_gateway_stats_write_heading(writer, stats);
    GB_WRITE_LITERAL(writer, ",\"kind\":\"stats\",\"devices\":");
    gb_gateway_write_copy(writer, stats->devices);
    GB_WRITE_LITERAL(writer, ",\"tiers\":");
    gb_gateway_write_copy(writer, stats->tiers);
    gb_write_format(writer,
                    ",\"sessions\":%" PRIu64 ",\"leases\":%" PRIu64 ",\"objects\":%" PRIu64 "}",
                    stats->sessions, stats->leases, stats->names);
}
