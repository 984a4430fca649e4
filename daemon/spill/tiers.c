#include "daemon/spill/tiers.h"

#include <string.h>

#include "daemon/base/clock.h"

bool gb_spill_has(const struct gb_spill *spill, const struct gb_device *device,
                  enum gb_tier_kind kind)
{
    return spill->tiers[kind].capacity > 0 && device->lanes[GB_OUT] &&
           (kind != GB_TIER_HOST || !device->ops->is_host);
}

void gb_spill_changed(void *arg)
{
    struct gb_spill *spill = arg;

    for (unsigned i = 0; i < spill->device_count; i++)
        spill->devices[i]->space_changed = true;
}

void gb_spill_claim(struct gb_spill *spill, struct gb_claim *claim, enum gb_tier_kind full_tier)
{
    if (gb_claim_set(claim, spill->tiers, full_tier))
        gb_spill_changed(spill); /* for the requests behind it */
}

uint64_t gb_spill_room_below(const struct gb_spill *spill, const struct gb_device *device,
                             uint64_t reserve)
{
    uint64_t room = 0, all = 0, more = 0;

    for (int kind = 0; kind < GB_TIERS; kind++) {
        const struct gb_tier *tier = &spill->tiers[kind];
        uint64_t stays = tier->recency.bytes - tier->recency.clean_bytes;

        if (!gb_tier_works(tier) || !gb_spill_has(spill, device, (enum gb_tier_kind)kind))
            continue;
        all += tier->capacity;
        room += stays < tier->capacity ? tier->capacity - stays : 0;
    }
    if (reserve > 0)
        more = all / 16 < device->capacity / 4 ? all / 16 : device->capacity / 4;
    return room >= 2 * reserve + more ? room - reserve - more : 0;
}

static int add_places(struct gb_tier *tier, uint64_t bytes, struct gb_error *error)
{
    tier->arena = gb_arena_new();
    tier->block = tier->arena ? gb_arena_add(tier->arena, bytes, tier) : NULL;
    return tier->block ? 0 : gb_fail_memory(error);
}

static int init_host(struct gb_tier *tier, uint64_t bytes, struct gb_error *error)
{
    int r;

    tier->capacity = bytes / GB_ARENA_GRANULE * GB_ARENA_GRANULE;
    r = gb_pinned_new(tier->capacity, &tier->pinned, error);
    if (r < 0)
        return r;
    return add_places(tier, tier->capacity, error);
}

static int init_disk(struct gb_tier *tier, const struct gb_spill_settings *settings,
                     struct gb_error *error)
{
    struct gb_error inner = {0};

    tier->capacity = settings->disk;
    if (gb_spill_dir_open(settings->dir, &tier->dir, &inner) < 0)
        return gb_fail(error, inner.code, "--tier disk: %s", inner.message);
    return add_places(tier, GB_PACK_BYTES, error);
}

int gb_spill_init(struct gb_spill *spill, struct gb_registry *registry,
                  const struct gb_spill_settings *settings, struct gb_device **devices,
                  unsigned count, struct gb_error *error)
{
    int r = 0;

    memset(spill, 0, sizeof(*spill));
    spill->registry = registry;
    spill->devices = devices;
    spill->device_count = count;
    spill->high = settings->high_watermark;
    spill->low = settings->low_watermark;
    for (int i = 0; i < GB_TIERS; i++) {
        spill->tiers[i].kind = (enum gb_tier_kind)i;
        spill->tiers[i].removed = gb_spill_changed;
        spill->tiers[i].removed_arg = spill;
        gb_recency_init(&spill->tiers[i].recency);
        gb_list_init(&spill->tiers[i].claims);
    }
    if (settings->host)
        r = init_host(&spill->tiers[GB_TIER_HOST], settings->host, error);
    if (r == 0 && settings->dir)
        r = init_disk(&spill->tiers[GB_TIER_DISK], settings, error);
    return r;
}

static int start_lanes(struct gb_spill *spill, struct gb_device *device, uv_loop_t *loop)
{
    bool host_only = spill->tiers[GB_TIER_DISK].capacity == 0;
    int r = 0;

    if (host_only && (spill->tiers[GB_TIER_HOST].capacity == 0 || device->ops->is_host))
        return 0;
    for (int i = 0; r == 0 && i < GB_DIRECTIONS; i++)
        r = gb_mover_new(loop, &device->lanes[i]);
    return r;
}

int gb_spill_start(struct gb_spill *spill, uv_loop_t *loop, struct gb_error *error)
{
    struct gb_tier *disk = &spill->tiers[GB_TIER_DISK];
    int r = disk->capacity > 0 ? gb_mover_new(loop, &disk->mover) : 0;

    for (unsigned i = 0; r == 0 && i < spill->device_count; i++)
        r = start_lanes(spill, spill->devices[i], loop);
    if (r < 0)
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot start the threads that spill");
    return 0;
}

void gb_spill_stop(struct gb_spill *spill)
{
    atomic_store(&spill->stop, true);
    spill->tiers[GB_TIER_DISK].stopping = true; /* a successor removes the rest */
    for (unsigned i = 0; i < spill->device_count; i++)
        for (int lane = 0; lane < GB_DIRECTIONS; lane++) {
            gb_mover_end(spill->devices[i]->lanes[lane]);
            spill->devices[i]->lanes[lane] = NULL;
        }
    gb_mover_end(spill->tiers[GB_TIER_DISK].mover);
    spill->tiers[GB_TIER_DISK].mover = NULL;
}

void gb_spill_end(struct gb_spill *spill)
{
    const struct gb_tier *disk = &spill->tiers[GB_TIER_DISK];

    for (unsigned i = 0; i < spill->device_count; i++)
        for (int lane = 0; lane < GB_DIRECTIONS; lane++)
            gb_move_end_lane(spill->devices[i], (enum gb_direction)lane);
    for (int i = 0; i < GB_TIERS; i++)
        gb_arena_free(spill->tiers[i].arena);
    gb_pinned_free(spill->tiers[GB_TIER_HOST].pinned);
    if (disk->dir && !disk->handed_over)
        gb_spill_pack_remove(disk->dir);
    gb_spill_dir_close(disk->dir);
}
