#include "daemon/memory/figures.h"

#include <inttypes.h>
#include <string.h>

#include "daemon/memory/store.h"

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
        {"stays", device->stay.bytes},
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

void gb_tiers_write_figures(struct gb_writer *writer, const struct gb_tier *tiers)
{
    const char *separator = "";

    GB_WRITE_LITERAL(writer, "\"tiers\":[");
    for (int i = 0; i < GB_TIERS; i++) {
        const struct gb_tier *tier = &tiers[i];

        if (tier->capacity == 0)
            continue;
        gb_write_text(writer, separator);
        write_tier_stats(writer, tier);
        separator = ",";
    }
    gb_write_char(writer, ']');
}
