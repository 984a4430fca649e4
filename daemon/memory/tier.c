#include "daemon/memory/tier.h"

#include <stdlib.h>

#include "daemon/base/clock.h"
#include "daemon/base/failpoint.h"
#include "daemon/base/log.h"
#include "gpubuf.h"

#define CLEAN_FILES 64 /* files that one job removes */

const char *gb_tier_name(enum gb_tier_kind kind)
{
    return kind == GB_TIER_HOST ? "host" : "disk";
}

bool gb_tier_works(const struct gb_tier *tier)
{
    return tier->capacity > 0 && (!tier->failing_until || gb_now_ms() >= tier->failing_until);
}

uint64_t gb_tier_free_bytes(const struct gb_tier *tier)
{
    return tier->used < tier->capacity ? tier->capacity - tier->used : 0;
}

bool gb_tier_fits(const struct gb_tier *tier, uint64_t bytes)
{
    return bytes <= tier->capacity && gb_tier_occupies(tier, bytes) <= tier->capacity;
}

uint64_t gb_tier_occupies(const struct gb_tier *tier, uint64_t bytes)
{
    if (tier->kind == GB_TIER_DISK && bytes > GB_PACKED_MAX)
        return bytes + GB_SPILL_HEADER_BYTES;
    bytes += tier->kind == GB_TIER_DISK ? GB_PACK_HEADER_BYTES : 0;
    return (bytes + GB_ARENA_GRANULE - 1) / GB_ARENA_GRANULE * GB_ARENA_GRANULE;
}

static struct gb_bid *bid_of(struct gb_link *link, enum gb_tier_kind kind)
{
    return GB_CONTAINER(link - kind, struct gb_bid, of_tiers[0]);
}

bool gb_bid_set(struct gb_bid *bid, struct gb_tier *tiers, enum gb_tier_kind from)
{
    bool gave_up = false;

    for (enum gb_tier_kind kind = 0; kind < GB_TIERS; kind++) {
        struct gb_link *link = &bid->of_tiers[kind], *bids = &tiers[kind].bids, *after;
        bool wants_it = kind >= from;

        if (gb_list_linked(link) == wants_it)
            continue;
        gave_up |= !wants_it;
        gb_list_remove(link);
        if (!wants_it)
            continue;
        after = gb_list_last(bids);
        while (after != bids && bid_of(after, kind)->serial > bid->serial)
            after = after->prev;
        gb_list_prepend(after, link);
    }
    return gave_up;
}

bool gb_tier_has_older_bid(const struct gb_tier *tier, uint64_t serial)
{
    return !gb_list_empty(&tier->bids) && bid_of(tier->bids.next, tier->kind)->serial < serial;
}

static int find_place(struct gb_copy *copy)
{
    struct gb_tier *tier = copy->tier;
    bool disk = tier->kind == GB_TIER_DISK;
    int r;

    copy->occupied = gb_tier_occupies(tier, copy->bytes);
    if (disk && copy->occupied > gb_tier_free_bytes(tier))
        return 1;
    if (disk && copy->bytes > GB_PACKED_MAX) {
        copy->file = tier->next_file++;
        return 0;
    }
    r = gb_arena_alloc(tier->arena, copy->occupied, &copy->range);
    if (r == 0 && disk)
        copy->file = GB_PACK_BASE + gb_range_offset(copy->range);
    return r;
}

static void enter(struct gb_copy *copy)
{
    copy->tier->used += copy->occupied;
    copy->tier->copies++;
    gb_recent_enter(&copy->tier->recency, &copy->recent, copy->occupied);
}

static struct gb_copy *make_copy(struct gb_tier *tier, struct gb_storage *storage, uint64_t bytes)
{
    struct gb_copy *copy = calloc(1, sizeof(*copy));

    if (!copy)
        return NULL;
    copy->tier = tier;
    copy->storage = storage;
    copy->bytes = bytes;
    return copy;
}

/* Enters a copy that has got a place (`r` 0) and gives it to the caller; else frees it. */
static int placed(struct gb_copy *copy, int r, struct gb_copy **out)
{
    if (r != 0) {
        free(copy);
        return r;
    }
    enter(copy);
    *out = copy;
    return 0;
}

int gb_copy_new(struct gb_tier *tier, struct gb_storage *storage, uint64_t bytes,
                struct gb_copy **out)
{
    struct gb_copy *copy = make_copy(tier, storage, bytes);

    if (!copy)
        return GPUBUF_E_NO_MEMORY;
    gb_recent_hold(&copy->recent);
    return placed(copy, find_place(copy), out);
}

uint64_t gb_copy_where(const struct gb_copy *copy)
{
    return copy->tier->kind == GB_TIER_HOST ? gb_range_offset(copy->range) : copy->file;
}

static int reserve_place(struct gb_copy *copy, uint64_t where, const struct gb_copy *after)
{
    struct gb_tier *tier = copy->tier;
    bool packed = where >= GB_PACK_BASE;
    int r;

    copy->occupied = gb_tier_occupies(tier, copy->bytes);
    copy->file = where;
    if (tier->kind == GB_TIER_DISK && packed != (copy->bytes <= GB_PACKED_MAX))
        return GPUBUF_E_INVALID;
    if (tier->kind == GB_TIER_DISK && !packed) {
        if (where >= tier->next_file)
            tier->next_file = where + 1;
        return 0;
    }
    if (tier->kind == GB_TIER_DISK)
        where -= GB_PACK_BASE;
    r = gb_arena_alloc_at(tier->arena, tier->block, after ? after->range : NULL, where,
                          copy->occupied, &copy->range);
    return r == 1 ? GPUBUF_E_INVALID : r;
}

int gb_copy_restore(struct gb_tier *tier, struct gb_storage *storage, uint64_t bytes,
                    uint64_t where, const struct gb_copy *after, struct gb_copy **out)
{
    struct gb_copy *copy = make_copy(tier, storage, bytes);

    if (!copy)
        return GPUBUF_E_NO_MEMORY;
    copy->whole = true;
    return placed(copy, reserve_place(copy, where, after), out);
}

void gb_copy_complete(struct gb_copy *copy)
{
    copy->whole = true;
    gb_copy_drop(copy);
}

void gb_copy_hold(struct gb_copy *copy)
{
    gb_recent_hold(&copy->recent);
}

static void copy_end(struct gb_copy *copy)
{
    copy->tier->used -= copy->occupied;
    copy->tier->copies--;
    free(copy);
}

static void remove_file(struct gb_job *job)
{
    struct gb_copy *copy = GB_CONTAINER(job, struct gb_copy, job);

    if (copy->tier->handed_over)
        return;
    if (copy->range)
        gb_spill_pack_free(copy->tier->dir, copy->file, copy->bytes);
    else
        gb_spill_file_remove(copy->tier->dir, copy->file);
}

/* Whether freeing a copy frees whole pages of the pack. Widens the copy to these pages, so that
   nothing is placed there before the disk has got them back. */
static bool frees_pages(struct gb_copy *copy)
{
    uint64_t end;

    gb_range_widen(copy->tier->arena, copy->range, GB_PACK_PAGE_BYTES);
    copy->file = GB_PACK_BASE + gb_range_offset(copy->range);
    copy->bytes = gb_range_bytes(copy->range);
    end = (copy->file + copy->bytes) / GB_PACK_PAGE_BYTES;
    return (copy->file + GB_PACK_PAGE_BYTES - 1) / GB_PACK_PAGE_BYTES < end;
}

static void removed(struct gb_job *job)
{
    struct gb_copy *copy = GB_CONTAINER(job, struct gb_copy, job);
    struct gb_tier *tier = copy->tier;
    uint64_t bytes = copy->bytes;

    if (copy->range && frees_pages(copy) && copy->bytes > bytes) {
        gb_mover_submit(tier->mover, &copy->job); /* its neighbour is free by now: more pages are */
        return;
    }
    tier->going -= copy->occupied;
    if (copy->range)
        gb_range_free(tier->arena, copy->range);
    copy_end(copy);
    tier->removed(tier->removed_arg);
}

static void copy_remove(struct gb_copy *copy)
{
    struct gb_tier *tier = copy->tier;

    gb_recent_leave(&copy->recent);
    if (tier->kind == GB_TIER_HOST || (copy->range && !frees_pages(copy))) {
        gb_range_free(tier->arena, copy->range);
        copy_end(copy);
        if (tier->removed)
            tier->removed(tier->removed_arg);
        return;
    }
    tier->going += copy->occupied;
    copy->job = (struct gb_job){.work = remove_file, .done = removed};
    gb_mover_submit(tier->mover, &copy->job);
}

void gb_copy_drop(struct gb_copy *copy)
{
    gb_recent_drop_unused(&copy->recent);
    if (!copy->storage && copy->recent.holds == 0)
        copy_remove(copy);
}

void gb_copy_free(struct gb_copy *copy)
{
    copy->storage = NULL;
    if (copy->recent.holds == 0)
        copy_remove(copy);
}

/* ---- what an earlier daemon left ---- */

static void remove_some(struct gb_job *job)
{
    struct gb_tier *tier = GB_CONTAINER(job, struct gb_tier, cleaning);

    for (unsigned i = 0; i < CLEAN_FILES && tier->stale_count > 0; i++)
        gb_spill_file_remove(tier->dir, tier->stale[--tier->stale_count]);
}

/* Submits the next piece as a new job, so that the mover does other jobs in between. */
static void removed_some(struct gb_job *job)
{
    struct gb_tier *tier = GB_CONTAINER(job, struct gb_tier, cleaning);

    if (tier->stale_count > 0 && !tier->stopping) {
        gb_mover_submit(tier->mover, &tier->cleaning);
        return;
    }
    if (tier->stale_found > 0)
        gb_log(GB_LOG_INFO, "files of an earlier daemon removed",
               GB_LOG_NUMBER("files", tier->stale_found - tier->stale_count),
               GB_LOG_NUMBER("left", tier->stale_count));
    free(tier->stale);
    tier->stale = NULL;
    GB_FAILPOINT(CLEAN_DONE);
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

int gb_tier_clean(struct gb_tier *tier, uint64_t *kept, size_t count, struct gb_error *error)
{
    uint64_t *ids;
    size_t found;
    int r = gb_spill_dir_list(tier->dir, &ids, &found, error);

    if (r < 0)
        return r;
    qsort(kept, count, sizeof(*kept), by_number);
    tier->stale = ids;
    for (size_t i = 0; i < found; i++) {
        if (ids[i] >= tier->next_file)
            tier->next_file = ids[i] + 1;
        if (!bsearch(&ids[i], kept, count, sizeof(*kept), by_number))
            ids[tier->stale_count++] = ids[i];
    }
    tier->stale_found = tier->stale_count;
    tier->cleaning = (struct gb_job){.work = remove_some, .done = removed_some};
    gb_mover_submit(tier->mover, &tier->cleaning);
    return 0;
}

uint64_t gb_copy_offset(const struct gb_copy *copy)
{
    return gb_range_offset(copy->range);
}
