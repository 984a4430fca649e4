#include "daemon/memory/figures.h"

#include <string.h>

#include "daemon/memory/device.h"
#include "daemon/memory/tier.h"

size_t gb_device_figures(const struct gb_device *device, uint64_t evictable,
                         struct gb_figure *figures)
{
    const struct gb_figure all[] = {
        {"capacity", "gpubufd_device_capacity_bytes", "The bytes that the daemon may allocate.",
         device->capacity},
        {"free", "gpubufd_device_free_bytes", "Not allocated.", gb_device_free_bytes(device)},
        {"used", "gpubufd_device_used_bytes", "In objects.", device->used},
        {"retained", "gpubufd_device_retained_bytes", "Allocated, and in no object.",
         gb_device_retained(device)},
        {"pinned_by_clients", "gpubufd_device_pinned_by_clients_bytes",
         "Of deleted objects, but still mapped by sessions.", device->pinned_by_clients},
        {"leased", "gpubufd_device_leased_bytes", "In objects under a lease.", device->leased},
        {"pinned", "gpubufd_device_pinned_bytes", "In objects that are pinned or to be kept.",
         device->pinned},
        {"stays", "gpubufd_device_stays_bytes",
         "In unleased objects that stay because no tier has room.",
         device->stay.bytes + device->recency.bytes - evictable},
        {"evictable", "gpubufd_device_evictable_bytes", "In objects that may go for a new one.",
         evictable},
        {"clean", NULL, NULL, device->recency.clean_bytes},
        {"objects", "gpubufd_device_objects", "Objects, unsealed and unnamed ones included.",
         device->objects},
        {"segments", "gpubufd_device_segments", "Segments.", device->segments},
        {"segments_created", "gpubufd_device_segments_created_total", "Segments made or adopted.",
         device->so_far.segments_created},
        {"segments_destroyed", "gpubufd_device_segments_destroyed_total", "Segments given back.",
         device->so_far.segments_destroyed},
        {"evictions", "gpubufd_evictions_total", "Times that content was dropped.",
         device->so_far.evictions},
        {"evicted_bytes", "gpubufd_evicted_bytes_total", "Bytes of it.",
         device->so_far.evicted_bytes},
        {"leaving", "gpubufd_device_leaving_bytes", "In objects that are being copied to a tier.",
         device->leaving},
        {"spilled", NULL, NULL, device->spilled},
        {"spilled_bytes", "gpubufd_device_spilled_bytes", "Content that is only in tiers.",
         device->spilled_bytes},
        {"spills", "gpubufd_spills_total", "Times that content left for a tier.",
         device->so_far.spills},
        {"spills_bytes", "gpubufd_spilled_bytes_total", "Bytes that left for a tier.",
         device->so_far.spills_bytes},
        {"restores", "gpubufd_restores_total", "Times that content came back.",
         device->so_far.restores},
        {"restores_bytes", "gpubufd_restored_bytes_total", "Bytes that came back.",
         device->so_far.restores_bytes},
        {NULL, "gpubufd_device_lost", "1 if the driver has lost the device.", device->lost},
    };

    _Static_assert(sizeof(all) <= GB_FIGURES * sizeof(all[0]), "a caller has room for GB_FIGURES");
    memcpy(figures, all, sizeof(all));
    return sizeof(all) / sizeof(all[0]);
}

size_t gb_tier_figures(const struct gb_tier *tier, struct gb_figure *figures)
{
    const struct gb_figure all[] = {
        {"capacity", "gpubufd_tier_capacity_bytes", "The bytes that the tier may hold.",
         tier->capacity},
        {"free", NULL, NULL, gb_tier_free_bytes(tier)},
        {"used", "gpubufd_tier_used_bytes", "In copies.", tier->used},
        {"clean", "gpubufd_tier_clean_bytes", "In copies that may go at once.",
         tier->recency.clean_bytes},
        {"copies", "gpubufd_tier_copies", "Copies.", tier->copies},
        {"writes", "gpubufd_tier_writes_total", "Copies that were written.", tier->writes},
        {"written_bytes", "gpubufd_tier_written_bytes_total", "Bytes that were written.",
         tier->written_bytes},
        {"write_us", "gpubufd_tier_write_seconds_total", "Time that writing took.", tier->write_us},
        {"reads", "gpubufd_tier_reads_total", "Copies that were read.", tier->reads},
        {"read_bytes", "gpubufd_tier_read_bytes_total", "Bytes that were read.", tier->read_bytes},
        {"read_us", "gpubufd_tier_read_seconds_total", "Time that reading took.", tier->read_us},
        {"failures", "gpubufd_tier_failures_total", "Writes and reads that failed.",
         tier->failures},
    };

    _Static_assert(sizeof(all) <= GB_FIGURES * sizeof(all[0]), "a caller has room for GB_FIGURES");
    memcpy(figures, all, sizeof(all));
    return sizeof(all) / sizeof(all[0]);
}
