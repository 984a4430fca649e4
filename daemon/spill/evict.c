/*
 * Eviction: which storages leave a device, and which request gets the room.
 *
 * Everything is decided here. Others carry it out: recency.c lists storages by their last use,
 * store.c places what has got room, spill.c copies, drops and restores, wait.c puts requests aside,
 * and space.c answers them.
 *
 * May it leave? A lease, a pin, a history and work on a storage are *holds*: as long as it has
 * one it is in no order. Without holds it is in its device's order of use. There it is *clean* if
 * it can leave at once, since its content is also below, or need not be kept (evict=drop); else it
 * is *dirty*, and is copied first. Content that must be kept and has no tier to go to *stays*: it
 * is in another order, which nobody looks at.
 *
 * Which is next? The least recently used, clean or dirty; that is all, but for one exception. A new
 * object must leave as many bytes free in the tiers as it has itself, and some more: else what was
 * moved below could never come back to a full device in exchange for others. If the tiers cannot
 * take the storage that is next and keep that reserve, the oldest one that need not be kept leaves
 * in its place. A storage with idle leases leaves when their holders have given them back; those of
 * the storages after it are recalled at the same time.
 *
 * A request that finds its device full (store.c has given back empty segments before that):
 * 1. It queues behind older requests for space, unless it may pass them (below).
 * 2. If enough is coming without an eviction, it waits for that: segments that the driver is taking
 *    back, and for a moment segments that sessions were asked to unmap.
 * 3. If all that may leave would not make room, nothing leaves. That is predicted by segments and
 *    not by bytes, since a segment is free only when all in it has left. If segments that would be
 *    empty are mapped, their sessions are asked to unmap them.
 * 4. Else storages leave, one after another, until the place is found; after LEAVE_A_TRY of them
 *    the request goes on in the next turn of the loop.
 * 5. If nothing can leave, users who are past their quota by versions without a name have to give
 *    way: a parked lease ends, or they are asked to end others.
 *
 * Where does it go? To the uppermost tier that can take it. Room in a tier is made by freeing
 * copies whose content is elsewhere too and will not be copied again before (is_needless), and in
 * the host tier by copying content down to the disk. If neither helps, and the request waits, it
 * *bids* for the room: nobody who came later, nor the background, gets it.
 *
 * Ahead of need. While more than the high watermark of a device or of the host tier would have to
 * be copied before it can leave, the storages that are next are copied, down to the low watermark.
 * They stay where they are, so the order in which objects leave is exactly that of their use.
 *
 * The queue. Each device has one queue, by arrival, and a change on the device has it tried in that
 * order, but for those that could not be served even if everything left. A request may pass an
 * older one, which waits for others' leases to end, if the older one is not served later for that:
 * the bytes that it needs, those of all that passed it and are still held, and the new one's must
 * fit into the device together. Nobody passes a request whose room is arriving. A request that
 * waits for the driver, a quota or a tier has need 0, and holds up nobody.
 */
#include "daemon/spill/evict.h"

#include <inttypes.h>

#include "daemon/base/clock.h"
#include "daemon/objects/lease.h"
#include "daemon/spill/tiers.h"

/* Storages that leave in one try of a request. */
#define LEAVE_A_TRY 32
/* Storages whose segments are looked at for the prediction. If there are more, their bytes are
   taken to be enough. */
#define PREDICTED 1024u
/* Copies that are looked at for one that can be freed, and storages for one that a tier can take.
 */
#define LOOK_AT 64
/* Copies of one device that are made in the background at a time. */
#define BACKGROUND_MOVES 4
/* The most storages whose idle leases are recalled together, and which part of the device their
   bytes are. A holder answers within a millisecond or so; recalling some ahead spares later
   requests that wait. */
#define RECALL_AHEAD 32
#define RECALL_PART 16

static struct gb_storage *storage_of(struct gb_recent *recent)
{
    return GB_CONTAINER(recent, struct gb_storage, recent);
}

/* ---- how much the tiers take ---- */

uint64_t gb_evict_room(const struct gb_spill *spill, const struct gb_device *device,
                       uint64_t reserve, uint64_t *least)
{
    uint64_t room = 0, all = 0;

    for (int kind = 0; kind < GB_TIERS; kind++) {
        const struct gb_tier *tier = &spill->tiers[kind];
        uint64_t stays = tier->recency.bytes - tier->recency.clean_bytes;

        if (!gb_tier_works(tier) || !gb_spill_has(spill, device, (enum gb_tier_kind)kind))
            continue;
        all += tier->capacity;
        room += stays < tier->capacity ? tier->capacity - stays : 0;
    }
    /* As many bytes for what leaves for it, as many that stay free, and some more, since the room
       that is left may lie in pieces. */
    *least = 2 * reserve;
    if (reserve > 0)
        *least += all / 16 < device->capacity / 4 ? all / 16 : device->capacity / 4;
    return room;
}

/* The bytes of the device that the tiers could take beside the reserve. 0 if that is less than the
   reserve: objects are alike, and leave as wholes. */
static uint64_t room_below(const struct gb_spill *spill, const struct gb_demand *demand)
{
    uint64_t least, room = gb_evict_room(spill, demand->device, demand->reserve, &least);

    return room >= least ? room - least + demand->reserve : 0;
}

/*
 * The largest n such that n bytes and what is stuck fit into `all`, the device without what is
 * held. Needed content is stuck, unless the tiers take it: they take room - spare - n bytes if that
 * is n or more, and then n and what is stuck fit.
 */
uint64_t gb_evict_most(const struct gb_spill *spill, const struct gb_device *device)
{
    const struct gb_recency *recency = &device->recency;
    uint64_t there = gb_device_free_bytes(device) + gb_device_retained(device);
    uint64_t all = there + recency->bytes, largest = all - recency->needed_bytes, least;
    uint64_t room = gb_evict_room(spill, device, 1, &least), spare = least - 2;
    uint64_t half = room > spare ? (room - spare) / 2 : 0;

    if (half > all)
        half = all;
    return (half > largest ? half : largest) - there;
}

/* ---- what would be free ---- */

struct prospect {
    const struct gb_domain_key *key; /* of the demand; NULL: of none */
    uint64_t bytes;                  /* that one place must have */
    bool spare;                      /* it may be a segment that was a storage's own */
    uint64_t below;                  /* room of the tiers, for content that must be kept */
    uint64_t free;   /* bytes of segments that would be empty: of the domain's own, and of others'
                        that nobody maps */
    uint64_t mapped; /* bytes of others' that would be empty, but that sessions map */
    bool fits;       /* a segment of the domain would have a place for them */
    unsigned looked; /* storages looked at */
};

static bool is_emptied(const struct gb_segment *segment, uint64_t forecast)
{
    uint64_t used = segment->block ? gb_arena_block_used(segment->block) : segment->charged;

    return segment->forecast == forecast && segment->tally == used;
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
            place = gb_range_leave(placement->range, store->forecasts);
        else if (prospect->spare && segment->kind == GB_SEGMENT_OWN)
            place = segment->bytes;
        segment->tally = (segment->forecast != store->forecasts ? 0 : segment->tally) +
                         gb_placement_bytes(placement);
        segment->forecast = store->forecasts;
        prospect->fits |= own && place >= prospect->bytes;
        if (!is_emptied(segment, store->forecasts))
            continue;
        if (own || gb_list_empty(&segment->mappings))
            prospect->free += segment->charged;
        else
            prospect->mapped += segment->charged;
    }
}

/* Asks for segments of the list that would be empty, until they make up the missing bytes. */
static void ask_for(struct gb_store *store, const struct gb_link *list, uint64_t *missing)
{
    GB_LIST_EACH(list, struct gb_storage, storage, recent.link) {
        for (unsigned i = 0; *missing > 0 && i < storage->placement_count; i++) {
            struct gb_segment *segment = storage->placements[i].segment;

            if (!is_emptied(segment, store->forecasts) || gb_list_empty(&segment->mappings))
                continue;
            segment->forecast = 0; /* counts once */
            *missing -= *missing < segment->charged ? *missing : segment->charged;
            gb_segment_ask(store, segment, gb_now_ms());
        }
    }
}

/* Predicts whether room for the demand would be made. `soon` bytes come free anyway. */
static enum gb_forecast forecast_room(struct gb_store *store, const struct gb_demand *demand,
                                      uint64_t soon, uint64_t below)
{
    struct gb_device *device = demand->device;
    const struct gb_link *lists[] = {&device->recency.clean, &device->recency.dirty};
    uint64_t bytes = demand->need, stuck = gb_recency_stuck(&device->recency, below), there,
             missing;
    struct prospect found = {.key = demand->placing.count > 0 ? NULL : demand->placing.key,
                             .bytes = bytes,
                             .below = below};

    if (gb_device_lacks(device, bytes + stuck) > 0)
        return GB_FORECAST_NOTHING;
    found.spare = found.key ? gb_key_gets_own(found.key, bytes) : gb_store_gets_own(device, bytes);
    if (found.spare)
        bytes = gb_round_up(bytes, device->granularity);
    there = gb_store_reachable_bytes(store, device, soon, bytes);
    if (there >= bytes)
        return GB_FORECAST_FITS;
    missing = bytes - there;
    store->forecasts++;
    for (int i = 0; i < 2; i++)
        GB_LIST_EACH(lists[i], struct gb_storage, storage, recent.link) {
            count_leaving(store, storage, &found);
            if (found.fits || found.free >= missing || ++found.looked == PREDICTED)
                return GB_FORECAST_FITS;
        }
    missing -= found.free;
    if (found.mapped < missing)
        return GB_FORECAST_NOTHING;
    for (int i = 0; i < 2; i++)
        ask_for(store, lists[i], &missing);
    return GB_FORECAST_MAPPED;
}

/* ---- room in a tier ---- */

/* Whether the storage leaves the device, or the host tier, later than `wanting` does. */
static bool is_later(const struct gb_storage *storage, const struct gb_storage *wanting)
{
    const struct gb_copy *copy = storage->copies[GB_TIER_HOST];
    const struct gb_copy *first = wanting->copies[GB_TIER_HOST];

    if (storage->resident != wanting->resident)
        return false;
    if (storage->resident)
        return storage->key.device == wanting->key.device &&
               storage->recent.used > wanting->recent.used;
    return copy && first && copy->recent.used > first->recent.used;
}

/* Whether the copy is the only place of its content. */
static bool is_last(const struct gb_copy *copy)
{
    const struct gb_storage *storage = copy->storage;

    return !storage->resident && !storage->copies[!copy->tier->kind];
}

/*
 * Whether a copy can be freed for a copy of `wanting`.
 * - In the background (no `demand`) only if it would not be made again before that: else the two
 *   could take each other's place for ever. So its storage is resident, and leaves later or is held
 *   there; or it is in the host tier, and the content is below as well.
 * - For a request it is enough that no needed content is lost, and that the copy is not needed
 *   sooner. But of two storages in the host tier, the one that was copied to the disk first keeps
 *   its copy there.
 */
static bool is_needless(const struct gb_copy *copy, const struct gb_storage *wanting,
                        const struct gb_demand *demand)
{
    const struct gb_storage *storage = copy->storage;

    if (storage->out || storage->in)
        return false;
    if (is_last(copy))
        return demand && !demand->may_not_drop && storage->recent.holds == 0 && storage != wanting;
    if ((storage->resident && storage->recent.holds > 0) || is_later(storage, wanting))
        return true;
    if (!storage->resident && !wanting->resident)
        return copy->tier->kind == GB_TIER_HOST;
    if (demand)
        return !storage->resident || !wanting->resident ||
               storage->key.device != wanting->key.device;
    return !storage->resident && copy->tier->kind == GB_TIER_HOST;
}

/* A copy that can be freed for `wanting`, if there would be room when all clean ones were. */
static struct gb_copy *find_needless(const struct gb_tier *tier, const struct gb_storage *wanting,
                                     const struct gb_demand *demand)
{
    unsigned looked = 0;

    if (gb_tier_free_bytes(tier) + tier->recency.clean_bytes < wanting->size)
        return NULL;
    GB_LIST_EACH(&tier->recency.clean, struct gb_copy, copy, recent.link) {
        if (is_needless(copy, wanting, demand))
            return copy;
        if (++looked == LOOK_AT)
            break;
    }
    return NULL;
}

static int copy_to(struct gb_spill *spill, struct gb_storage *storage, struct gb_copy *from,
                   enum gb_tier_kind kind, struct gb_demand *demand, bool leave);

/* Copies content of the host tier that is nowhere else to the disk. GB_LEAVES_LATER: as much as is
   wanted is on its way. */
static int drain(struct gb_spill *spill, uint64_t bytes, struct gb_demand *demand)
{
    struct gb_recent *oldest;
    int r = GB_LEAVES;

    while (r == GB_LEAVES && spill->draining < bytes &&
           (oldest = gb_recency_oldest_dirty(&spill->tiers[GB_TIER_HOST].recency))) {
        struct gb_copy *copy = GB_CONTAINER(oldest, struct gb_copy, recent);

        r = copy_to(spill, copy->storage, copy, GB_TIER_DISK, demand, false);
    }
    if (spill->draining > 0 || r == GB_LEAVES_LATER)
        return GB_LEAVES_LATER;
    return r < 0 ? r : GB_STAYS;
}

/* Makes a copy with room in the tier, if need be by freeing others: GB_LEAVES. With a demand (NULL:
   this is the background) objects that are not needed may be dropped for it. */
static int find_room(struct gb_spill *spill, struct gb_tier *tier, struct gb_storage *storage,
                     struct gb_demand *demand, struct gb_copy **copy)
{
    uint64_t serial = demand && demand->queued ? demand->queued->bid.serial : UINT64_MAX;
    struct gb_copy *needless;
    int r;

    if (!gb_tier_works(tier) || !gb_tier_fits(tier, storage->size))
        return GB_STAYS;
    if (gb_tier_has_older_bid(tier, serial))
        return GB_LEAVES_LATER;
    while ((r = gb_copy_new(tier, storage, storage->size, copy)) > 0) {
        if (tier->going > 0)
            return GB_LEAVES_LATER;
        needless = find_needless(tier, storage, demand);
        if (!needless)
            break;
        if (is_last(needless))
            gb_spill_drop(spill, needless->storage);
        else
            gb_spill_forget(needless);
    }
    if (r <= 0)
        return r < 0 ? r : GB_LEAVES;
    r = tier->kind == GB_TIER_HOST ? drain(spill, storage->size, demand) : GB_STAYS;
    return r == GB_STAYS && demand && tier->used > 0 && spill->moves > 0 ? GB_LEAVES_LATER : r;
}

/* Begins to copy a storage's content to a tier: out of its device, or from another copy. */
static int copy_to(struct gb_spill *spill, struct gb_storage *storage, struct gb_copy *from,
                   enum gb_tier_kind kind, struct gb_demand *demand, bool leave)
{
    struct gb_copy *to;
    int r = storage->out ? GB_LEAVES_LATER
                         : find_room(spill, &spill->tiers[kind], storage, demand, &to);

    if (r == GB_LEAVES_LATER && demand && kind < demand->full_tier)
        demand->full_tier = kind;
    if (r == GB_LEAVES)
        r = gb_spill_copy(spill, storage, from, to, leave) < 0 ? GPUBUF_E_NO_MEMORY : GB_LEAVES;
    return r;
}

/* Begins to copy a resident storage to the uppermost tier that can take it. The background leaves
   one alone that its driver failed to copy out lately. */
static int copy_out(struct gb_spill *spill, struct gb_storage *storage, struct gb_demand *demand,
                    bool leave)
{
    uint64_t stuck_ms = gb_spill_stuck_ms(storage);
    int r = GB_STAYS;

    if (!demand && stuck_ms > 0 && gb_now_ms() - stuck_ms < GB_FAILING_MS)
        return GB_STAYS;
    for (enum gb_tier_kind kind = 0; r == GB_STAYS && kind < GB_TIERS; kind++)
        if (gb_spill_has(spill, storage->key.device, kind))
            r = copy_to(spill, storage, NULL, kind, demand, leave);
    return r;
}

/* ---- room on a device ---- */

/* Begins to copy dirty storages, the least recently used first, until `bytes` are on their way. For
   a request those that no tier has room for are passed over. The ones after these leave as soon as
   they are copied, since else their copies could be freed for the ones before. GB_STAYS: nothing is
   on its way. */
static int copy_ahead(struct gb_spill *spill, struct gb_device *device, uint64_t bytes,
                      struct gb_demand *demand)
{
    uint64_t coming = 0;
    unsigned moves = 0, skipped = 0;

    GB_LIST_EACH(&device->recency.dirty, struct gb_storage, storage, recent.link) {
        int r = storage->out ? GB_LEAVES : copy_out(spill, storage, demand, skipped > 0);

        if (r == GB_LEAVES_LATER || (r < 0 && coming == 0))
            return r;
        if (r == GB_STAYS && demand && ++skipped < LOOK_AT)
            continue;
        if (r != GB_LEAVES)
            break;
        coming += storage->bytes;
        if (coming >= bytes || (!demand && ++moves == BACKGROUND_MOVES))
            break;
    }
    return coming > 0 ? GB_LEAVES : GB_STAYS;
}

/* The storage that leaves next: the least recently used; but if the tiers could not take that and
   keep the reserve, the least recently used of those that may be dropped. */
static struct gb_recent *next_to_leave(const struct gb_demand *demand, uint64_t below)
{
    const struct gb_recency *recency = &demand->device->recency;
    struct gb_recent *oldest = gb_recency_oldest(recency);
    unsigned looked = 0;

    if (!oldest || !oldest->needed || demand->reserve == 0 || oldest->bytes <= below)
        return oldest;
    GB_LIST_EACH(&recency->clean, struct gb_recent, recent, link) {
        if (!recent->needed)
            return recent;
        if (++looked == LOOK_AT)
            break;
    }
    return oldest;
}

/* Recalls the idle leases of the storage that leaves next, and those of storages that leave after
   it, for as many bytes as are wanted and soon will be. A storage that turns out to be in use,
   since a holder says so or does not answer, is taken off the list, and another one leaves. */
static int recall(struct gb_spill *spill, struct gb_storage *storage, uint64_t bytes)
{
    const struct gb_recency *recency = &storage->key.device->recency;
    uint64_t now = gb_now_ms(), coming = 0;
    unsigned looked = 0, recalled = 0;
    bool waits = gb_storage_recall(spill->registry, storage, now, &recalled);

    if (bytes < storage->key.device->capacity / RECALL_PART)
        bytes = storage->key.device->capacity / RECALL_PART;
    GB_LIST_EACH(storage->recent.clean ? &recency->clean : &recency->dirty, struct gb_storage,
                 other, recent.link) {
        if (coming >= bytes || ++looked > RECALL_AHEAD)
            break;
        coming += other->bytes;
        if (other != storage)
            (void)gb_storage_recall(spill->registry, other, now, &recalled);
    }
    return waits ? GB_LEAVES : GB_LEFT;
}

static int fail_stuck(const struct gb_storage *storage, struct gb_error *error)
{
    const struct gb_error *why = &storage->failure->error;

    gb_fail(error, GPUBUF_E_DEVICE, "no room can be made on %s: %.400s", storage->key.device->id,
            why->message);
    error->cuda = why->cuda;
    return GPUBUF_E_DEVICE;
}

/* Has the next storage leave for a demand that lacks `bytes`. */
static int leave_next(struct gb_spill *spill, struct gb_demand *demand, uint64_t bytes,
                      uint64_t below)
{
    struct gb_recent *oldest = next_to_leave(demand, below);
    struct gb_storage *storage;
    int r;

    if (oldest && !oldest->clean) {
        storage = storage_of(oldest);
        if (storage->out)
            return GB_LEAVES;
        if (gb_spill_stuck_ms(storage) >= demand->since_ms)
            return fail_stuck(storage, demand->placing.error);
        r = copy_ahead(spill, demand->device, bytes, demand);
        if (r != GB_STAYS) /* for want of the daemon's own memory nothing is dropped */
            return r < 0 ? GB_STAYS : r;
        /* No tier takes the older dirty ones. */
        oldest = gb_recency_oldest_clean(&demand->device->recency);
    }
    if (!oldest)
        return GB_STAYS;
    storage = storage_of(oldest);
    if (storage->out)
        return GB_LEAVES;
    if (!gb_list_empty(&storage->idles))
        return recall(spill, storage, bytes);
    if (storage->copies[GB_TIER_HOST] || storage->copies[GB_TIER_DISK])
        return gb_spill_vacate(spill, storage) ? GB_LEFT : GB_STAYS;
    if (demand->may_not_drop)
        return GB_STAYS;
    gb_spill_drop(spill, storage);
    return GB_LEFT;
}

/* Has users who are past their quota by versions without a name give way: a parked lease on one of
   these ends, else they are asked for the others. True: a lease has ended. */
static bool end_excess(struct gb_registry *registry, struct gb_demand *demand, uint64_t below)
{
    struct gb_device *device = demand->device;
    uint64_t stuck = gb_recency_stuck(&device->recency, below);
    uint64_t excess = gb_users_excess(&registry->store->users, device);

    if (demand->forecast == GB_FORECAST_MAPPED)
        return false;
    if (excess >= gb_device_lacks(device, demand->need) &&
        gb_users_unpark(registry, device, demand->placing.storage))
        return true;
    if (gb_users_end_overdue(registry, device, demand->need + stuck, gb_now_ms()))
        demand->forecast = GB_FORECAST_MAPPED;
    return false;
}

uint64_t gb_evict_trusts_until(const struct gb_demand *demand)
{
    uint64_t now = gb_now_ms();
    uint64_t until = (demand->queued ? demand->since_ms : now) + GB_UNMAP_GRACE_MS;
    bool asked = demand->device->pinned_by_clients > 0 &&
                 now - demand->queue->retired_ms < GB_UNMAP_GRACE_MS;

    return asked && now < until ? until : 0;
}

bool gb_evict_for(struct gb_spill *spill, struct gb_demand *demand)
{
    struct gb_device *device = demand->device;
    uint64_t trusted = gb_evict_trusts_until(demand) ? device->pinned_by_clients : 0;
    uint64_t soon = device->freeing + trusted, shortfall = demand->placing.shortfall;
    uint64_t below;

    if (soon >= shortfall)
        return false;
    below = room_below(spill, demand);
    /* Once in a try: evicting the first does not change it. */
    if (demand->forecast != GB_FORECAST_FITS)
        demand->forecast = forecast_room(spill->registry->store, demand, soon, below);
    demand->full_tier = GB_TIERS;
    if ((*demand->left)++ == LEAVE_A_TRY && !demand->last) {
        demand->room = GB_LEAVES; /* it is put aside, and goes on in the next turn */
        gb_device_changed(device);
        return false;
    }
    demand->room = demand->forecast == GB_FORECAST_FITS
                       ? leave_next(spill, demand, shortfall - soon, below)
                       : GB_STAYS;
    return demand->room == GB_LEFT ||
           (demand->room == GB_STAYS && end_excess(spill->registry, demand, below));
}

/* ---- leaving on request ---- */

static int full(const struct gb_tier *tier, struct gb_error *error)
{
    return gb_fail(error, GPUBUF_E_NO_SPACE,
                   "the %s tier has no room: of %" PRIu64 " bytes, %" PRIu64 " are in use%s",
                   gb_tier_name(tier->kind), tier->capacity, tier->used,
                   tier->failing_until ? ", and it failed lately" : "");
}

/* Whether the content may be copied; says why not, which gb_storage_can_spill() does not. */
static int check_movable(const struct gb_storage *storage, struct gb_error *error)
{
    const char *why = NULL;

    if (gb_storage_can_spill(storage))
        return 0;
    if (storage->adopted && storage->key.share == GB_SHARE_IPC)
        why = "the memory is its producer's, and stays where it is";
    else if (storage->size == 0)
        why = "the object has no bytes";
    else if (storage->key.live)
        why = "the object is live, and stays on its device: a copy would not be written";
    else
        why = "the object is final, and stays in the memory that the kernel holds";
    return gb_fail(error, GPUBUF_E_UNSUPPORTED, "%s", why);
}

int gb_evict_to(struct gb_spill *spill, struct gb_storage *storage, enum gb_tier_kind kind,
                struct gb_demand *demand, struct gb_error *error)
{
    struct gb_copy *from = storage->copies[GB_TIER_HOST];
    bool resident = storage->resident;
    int r = 0;

    if (storage->out || storage->in)
        return GB_LEAVES;
    if (resident)
        r = check_movable(storage, error);
    if (r < 0)
        return r;
    if (resident ? !storage->copies[kind] : kind == GB_TIER_DISK && from && !storage->copies[kind])
        r = copy_to(spill, storage, resident ? NULL : from, kind, demand, true);
    else if (resident && !gb_spill_vacate(spill, storage))
        r = GPUBUF_E_NO_MEMORY;
    if (r == GB_STAYS)
        return full(&spill->tiers[kind], error);
    if (r < 0)
        return gb_fail_memory(error);
    if (r == GB_LEFT && kind == GB_TIER_DISK && from)
        gb_spill_forget(from);
    return r;
}

/* ---- before it is needed ---- */

static uint64_t above(uint64_t bytes, uint64_t capacity, unsigned percent)
{
    uint64_t mark = capacity / 100 * percent + capacity % 100 * percent / 100;

    return bytes > mark ? bytes - mark : 0;
}

static void copy_ahead_of_device(struct gb_spill *spill, struct gb_device *device)
{
    uint64_t stays = device->used + device->pinned_by_clients - device->recency.clean_bytes;
    uint64_t need;
    int r;

    if (above(stays, device->capacity, spill->high))
        spill->above_high[device->index] = true;
    if (!spill->above_high[device->index])
        return;
    need = above(stays, device->capacity, spill->low);
    r = need > 0 ? copy_ahead(spill, device, need, NULL) : GB_STAYS;
    if (r < 0 || r == GB_STAYS)
        spill->above_high[device->index] = false;
}

void gb_evict_ahead(struct gb_spill *spill)
{
    struct gb_tier *host = &spill->tiers[GB_TIER_HOST];
    uint64_t stays = host->used - host->recency.clean_bytes;

    for (unsigned i = 0; i < spill->device_count; i++)
        if (spill->devices[i]->lanes[GB_OUT] && !spill->devices[i]->lost)
            copy_ahead_of_device(spill, spill->devices[i]);
    if (host->capacity > 0 && above(stays, host->capacity, spill->high) && spill->draining == 0 &&
        gb_tier_works(&spill->tiers[GB_TIER_DISK]))
        drain(spill, above(stays, host->capacity, spill->low), NULL);
}

/* ---- the queue of a device ---- */

void gb_queue_enter(struct gb_queue *queue, struct gb_spill *spill, struct gb_queued *queued,
                    struct gb_device *device, uint64_t need, bool arriving,
                    enum gb_tier_kind full_tier)
{
    if (!queued->device) {
        struct gb_link *after = gb_list_last(&queue->waits);

        /* Most requests belong at the end, so the search begins there. */
        while (after != &queue->waits &&
               GB_CONTAINER(after, struct gb_queued, link)->bid.serial > queued->bid.serial)
            after = after->prev;
        gb_list_prepend(after, &queued->link);
        queued->device = device;
    } else if (queued->need > 0 && need == 0) {
        gb_device_changed(device); /* it holds up nobody any more */
    }
    queued->need = need;
    queued->arriving = arriving;
    gb_spill_bid(spill, &queued->bid, full_tier);
}

void gb_queue_leave(struct gb_spill *spill, struct gb_queued *queued)
{
    gb_list_remove(&queued->link);
    gb_spill_bid(spill, &queued->bid, GB_TIERS);
    if (queued->device)
        gb_device_changed(queued->device);
    queued->device = NULL;
    queued->need = 0;
    queued->arriving = false;
}

/* Whether a request for `bytes` may pass this one. */
static bool lets_pass(const struct gb_queue *queue, const struct gb_queued *queued, uint64_t bytes)
{
    uint64_t capacity = queued->device->capacity, need = queued->need;

    return need == 0 ||
           (!queued->arriving && need <= capacity && queue->overtaken <= capacity - need &&
            bytes <= capacity - need - queue->overtaken);
}

bool gb_queue_may_overtake(const struct gb_queue *queue, const struct gb_queued *queued,
                           uint64_t bytes, bool *arriving)
{
    bool passes = true;

    *arriving = true;
    GB_LIST_EACH(&queue->waits, const struct gb_queued, other, link) {
        if (other == queued)
            break;
        if (lets_pass(queue, other, bytes))
            continue;
        passes = false;
        *arriving &= other->arriving;
    }
    return passes;
}

void gb_queue_note_passing(struct gb_queue *queue, const struct gb_queued *queued,
                           struct gb_storage *storage)
{
    GB_LIST_EACH(&queue->waits, const struct gb_queued, other, link) {
        if (other == queued)
            return;
        if (other->need == 0)
            continue;
        storage->tally = &queue->overtaken;
        queue->overtaken += storage->bytes;
        return;
    }
}

bool gb_queue_has_more(const struct gb_queue *queue, const struct gb_device *device)
{
    return queue->seen != device->changes || queue->tried > 0;
}

/* Of two requests, the one that is harder to pass. */
static const struct gb_queued *harder(const struct gb_queued *a, const struct gb_queued *b)
{
    if (!a || b->arriving)
        return b;
    return !a->arriving && b->need > a->need ? b : a;
}

/* Whether it is of no use to try a request now: it needs more than there can be, or it must not
   pass `waiting` (NULL: none). One whose room was arriving is tried all the same when none arrives
   any more: it must be answered. */
static bool is_hopeless(const struct gb_queue *queue, const struct gb_spill *spill,
                        const struct gb_queued *queued, const struct gb_queued *waiting)
{
    const struct gb_device *device = queued->device;

    if (queued->need == 0)
        return false;
    if (waiting && !lets_pass(queue, waiting, queued->need))
        return !queued->arriving || waiting->arriving;
    /* One that may ask users for what they have past their quotas is tried, too. */
    return !queued->arriving && !device->lost &&
           gb_device_lacks(device, queued->need) >
               gb_users_excess(&spill->registry->store->users, device);
}

void gb_queue_run(struct gb_queue *queue, struct gb_spill *spill, struct gb_device *device,
                  uint64_t until, bool (*try)(struct gb_queued *queued))
{
    const struct gb_queued *waiting = NULL; /* of those so far, the hardest to pass */

    /* If space has changed it begins anew, or a younger request could take room that an older one
       can use now. */
    if (queue->seen != device->changes)
        queue->tried = 0;
    queue->seen = device->changes;
    GB_LIST_EACH(&queue->waits, struct gb_queued, queued, link) {
        if (is_hopeless(queue, spill, queued, waiting)) {
            /* It is not tried, so its bid must not hold others up. */
            gb_spill_bid(spill, &queued->bid, GB_TIERS);
        } else if (queued->bid.serial > queue->tried) {
            queue->tried = queued->bid.serial;
            if (try(queued))
                queued = NULL;
            if (queue->seen != device->changes || uv_hrtime() >= until)
                return;
        }
        if (queued && queued->device == device && queued->need > 0)
            waiting = harder(waiting, queued);
    }
    queue->tried = 0;
}
