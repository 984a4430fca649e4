#include "daemon/spill/tiers.h"

#include <inttypes.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/log.h"

#define CHECK_MS 2000 /* between two checks of a tier that is out of order */

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
        gb_device_changed(spill->devices[i]);
}

void gb_spill_bid(struct gb_spill *spill, struct gb_bid *bid, enum gb_tier_kind full_tier)
{
    if (gb_bid_set(bid, spill->tiers, full_tier))
        gb_spill_changed(spill); /* for the requests behind it */
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

/* Whether the directory's file system has room for the tier; *bytes is what it shall have. */
static int check_room(const struct gb_spill_settings *settings, uint64_t *bytes,
                      struct gb_error *error)
{
    struct statvfs room;
    uint64_t total;

    if (statvfs(settings->dir, &room) < 0)
        return gb_fail_errno(error, "cannot look at the directory %s", settings->dir);
    if (room.f_flag & ST_RDONLY)
        return gb_fail(error, GPUBUF_E_INVALID, "%s is on a file system that is read-only",
                       settings->dir);
    total = (uint64_t)room.f_blocks * room.f_frsize;
    *bytes = settings->disk_percent ? total / 100 * settings->disk_percent : settings->disk;
    if (*bytes < GB_TIER_LEAST)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "a tier needs at least 2M, and the file system of %s has %" PRIu64 " MiB",
                       settings->dir, total >> 20);
    if (*bytes > total)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "the tier in %s shall have %" PRIu64
                       " MiB: that is more than the file system has, %" PRIu64 " MiB",
                       settings->dir, *bytes >> 20, total >> 20);
    return 0;
}

static int init_disk(struct gb_spill *spill, const struct gb_spill_settings *settings,
                     struct gb_error *error)
{
    struct gb_tier *tier = &spill->tiers[GB_TIER_DISK];
    struct gb_error inner = {0};
    int r = check_room(settings, &tier->capacity, &inner);

    if (r == 0)
        r = gb_spill_dir_open(settings->dir, &tier->dir, &inner);
    spill->outage.settings = settings;
    if (r < 0 && r != GPUBUF_E_NO_MEMORY && settings->follows)
        gb_spill_begin_outage(spill, &inner);
    else if (r < 0)
        return gb_fail(error, inner.code, "%s: %s", settings->text, inner.message);
    return add_places(tier, GB_PACK_BYTES, error);
}

int gb_spill_check(const struct gb_spill_settings *settings, struct gb_error *error)
{
    struct gb_error inner;
    uint64_t bytes;
    int r;

    if (!settings->dir)
        return 0;
    r = check_room(settings, &bytes, &inner);
    if (r == 0 && access(settings->dir, R_OK | W_OK | X_OK) < 0)
        r = gb_fail_errno(&inner, "cannot write to the directory %s", settings->dir);
    return r == 0 ? 0 : gb_fail(error, r, "%s: %s", settings->text, inner.message);
}

/* ---- a disk tier that is out of order ---- */

void gb_spill_begin_outage(struct gb_spill *spill, const struct gb_error *why)
{
    spill->tiers[GB_TIER_DISK].capacity = 0;
    spill->faults[GB_TIER_DISK] = *why;
    spill->outage.lasts = true;
}

static void try_directory(struct gb_job *job)
{
    struct gb_outage *outage = GB_CONTAINER(job, struct gb_outage, job);
    uint64_t bytes;

    if (check_room(outage->settings, &bytes, &outage->why) == 0 &&
        gb_spill_dir_try(outage->settings->dir, !outage->owed, &outage->why) == 0)
        outage->why.code = 0;
}

static void on_tried(struct gb_job *job)
{
    struct gb_outage *outage = GB_CONTAINER(job, struct gb_outage, job);
    struct gb_spill *spill = GB_CONTAINER(outage, struct gb_spill, outage);

    outage->checking = false;
    outage->check_at = gb_now_ms() + CHECK_MS;
    if (outage->why.code == 0)
        outage->over(spill->moved_arg);
    else
        spill->faults[GB_TIER_DISK] = outage->why;
}

void gb_spill_check_outage(struct gb_spill *spill)
{
    struct gb_outage *outage = &spill->outage;

    if (!outage->lasts || outage->checking || gb_now_ms() < outage->check_at)
        return;
    if (outage->check_at == 0)
        gb_log(GB_LOG_ERROR, "tier out of order: serving without it",
               GB_LOG_TEXT("tier", gb_tier_name(GB_TIER_DISK)),
               GB_LOG_TEXT("why", spill->faults[GB_TIER_DISK].message));
    outage->checking = true;
    outage->job = (struct gb_job){.work = try_directory, .done = on_tried};
    gb_mover_submit(spill->tiers[GB_TIER_DISK].mover, &outage->job);
}

/* ---- beginning and ending ---- */

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
        spill->tiers[i].handed_over = settings->follows; /* until this daemon has taken it over */
        spill->tiers[i].removed = gb_spill_changed;
        spill->tiers[i].removed_arg = spill;
    }
    if (settings->host)
        r = init_host(&spill->tiers[GB_TIER_HOST], settings->host, error);
    if (r == 0 && settings->dir)
        r = init_disk(spill, settings, error);
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
    int r = disk->capacity > 0 || spill->outage.lasts ? gb_mover_new(loop, &disk->mover) : 0;

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
