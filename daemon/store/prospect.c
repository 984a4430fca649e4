/* How much room the eviction of objects would bring. Asks sessions to unmap segments that are in
   the way. */
#include "daemon/base/clock.h"
#include "daemon/store/store.h"

#define LOOK_LIMIT 1024u

struct prospect {
    const struct gb_domain_key *key;
    uint64_t bytes;  /* that one place must have */
    bool spare;      /* it may be a segment that was a storage's own */
    uint64_t enough; /* bytes of the device that are wanted */
    uint64_t below;  /* room of the tiers, for content that must be kept */
    uint64_t free;   /* bytes of segments that would be empty: of the domain's own, and of others'
                        that nobody maps */
    uint64_t mapped; /* bytes of others' that would be empty, but that sessions map */
    bool fits;       /* a segment of the domain would have a place for them */
    unsigned looked; /* storages looked at */
};

static uint64_t used_of(const struct gb_segment *segment)
{
    return segment->block ? gb_arena_block_used(segment->block) : segment->charged;
}

static bool is_emptied(const struct gb_segment *segment, uint64_t look)
{
    return segment->look == look && segment->tally == used_of(segment);
}

/* Counts a storage that may leave, if the tiers have room for content that must be kept. A segment
   that would be empty is given back; in another domain only as soon as no session maps it. In one
   of the same domain the request can have a hole, or a segment that was a storage's own: but one
   that is large enough: pieces are of no use, however many they are. */
static void count_leaving(const struct gb_store *store, const struct gb_storage *storage,
                          struct prospect *prospect)
{
    bool own = prospect->key && gb_domain_key_same(&storage->key, prospect->key);

    if (storage->recent.needed && storage->bytes > prospect->below)
        return;
    if (storage->recent.needed)
        prospect->below -= storage->bytes;
    for (unsigned i = 0; i < storage->placement_count; i++) {
        const struct gb_placement *placement = &storage->placements[i];
        struct gb_segment *segment = placement->segment;
        uint64_t place = 0;

        if (placement->range)
            place = gb_range_leave(placement->range, store->looks);
        else if (prospect->spare && segment->kind == GB_SEGMENT_OWN)
            place = segment->bytes;
        segment->tally = (segment->look != store->looks ? 0 : segment->tally) + placement->bytes;
        segment->look = store->looks;
        prospect->fits |= own && place >= prospect->bytes;
        if (!is_emptied(segment, store->looks))
            continue;
        if (own || gb_list_empty(&segment->mappings))
            prospect->free += segment->charged;
        else
            prospect->mapped += segment->charged;
    }
}

static void look_through(const struct gb_store *store, const struct gb_link *list,
                         struct prospect *prospect)
{
    GB_LIST_EACH(list, struct gb_storage, storage, recent.link) {
        if (prospect->fits || prospect->free >= prospect->enough || prospect->looked == LOOK_LIMIT)
            return;
        prospect->looked++;
        count_leaving(store, storage, prospect);
    }
}

/* Asks the sessions that map the segment to unmap it, once. After `unmap_ms` they are overdue. */
static void ask_for(struct gb_store *store, struct gb_segment *segment, uint64_t now)
{
    bool overdue = segment->asked_ms && now - segment->asked_ms >= store->unmap_ms;

    GB_LIST_EACH(&segment->mappings, struct gb_mapping, mapping, of_segment) {
        if (overdue)
            store->overdue(store->retire_arg, mapping->mapper);
        else if (!segment->asked_ms)
            store->retire(store->retire_arg, mapping->mapper, segment);
    }
    if (!segment->asked_ms)
        segment->asked_ms = segment->device->asked_ms = now;
}

/* Asks for segments that would be empty, until they make up the missing bytes. */
static void ask_in(struct gb_store *store, const struct gb_link *list, uint64_t *missing)
{
    uint64_t now = gb_now_ms();

    GB_LIST_EACH(list, struct gb_storage, storage, recent.link) {
        for (unsigned i = 0; *missing > 0 && i < storage->placement_count; i++) {
            struct gb_segment *segment = storage->placements[i].segment;

            if (!is_emptied(segment, store->looks) || gb_list_empty(&segment->mappings))
                continue;
            segment->look = 0; /* counts once */
            *missing -= *missing < segment->charged ? *missing : segment->charged;
            ask_for(store, segment, now);
        }
    }
}

enum gb_look gb_store_look(struct gb_store *store, struct gb_device *device,
                           const struct gb_domain_key *key, uint64_t bytes, uint64_t soon,
                           uint64_t below)
{
    const struct gb_recency *recency = &device->recency;
    uint64_t stuck = gb_recency_stuck(recency, below);
    struct prospect prospect = {.key = key, .bytes = bytes, .below = below};
    uint64_t there, missing;

    if (gb_device_lacks(device, bytes + stuck) > 0)
        return GB_LOOK_NOTHING;
    prospect.spare = key ? gb_key_gets_own(key, bytes) : gb_store_gets_own(device, bytes);
    if (prospect.spare)
        bytes = gb_round_up(bytes, device->granularity);
    there = gb_store_near(store, device, soon, bytes);
    if (there >= bytes)
        return GB_LOOK_FITS;
    prospect.enough = bytes - there;
    store->looks++;
    look_through(store, &recency->clean, &prospect);
    look_through(store, &recency->dirty, &prospect);
    if (prospect.fits || prospect.free >= prospect.enough || prospect.looked == LOOK_LIMIT)
        return GB_LOOK_FITS;
    missing = prospect.enough - prospect.free;
    if (prospect.mapped < missing)
        return GB_LOOK_NOTHING;
    ask_in(store, &recency->clean, &missing);
    ask_in(store, &recency->dirty, &missing);
    return GB_LOOK_MAPPED;
}

/* ---- sessions that have not unmapped a segment in time ---- */

uint64_t gb_store_press(struct gb_store *store, struct gb_device *device, uint64_t now_ms)
{
    uint64_t next = device->asked_ms ? device->asked_ms + store->unmap_ms : UINT64_MAX;

    if (now_ms >= next) { /* waiting requests are tried again, and ask_for() finds the overdue */
        gb_device_changed(device);
        device->asked_ms = 0;
        next = UINT64_MAX;
    }
    while (!gb_list_empty(&device->retiring)) {
        struct gb_segment *segment = GB_CONTAINER(device->retiring.next, struct gb_segment, place);
        uint64_t at = segment->retired_ms + store->unmap_ms;

        if (device->needed_ms < segment->retired_ms)
            return next;
        if (now_ms < at)
            return at < next ? at : next;
        gb_list_remove(&segment->place);
        GB_LIST_EACH(&segment->mappings, struct gb_mapping, mapping, of_segment)
            store->overdue(store->retire_arg, mapping->mapper);
    }
    return next;
}
