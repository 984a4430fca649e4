/*
 * Eviction: which storages leave a device, and which request gets the room. evict.c tells how that
 * is decided. The loop's.
 */
#ifndef GB_EVICT_H
#define GB_EVICT_H

#include "daemon/spill/spill.h"
#include "daemon/store/store.h"

/* The outcome for a storage that is to leave, or for room that is wanted; or a negative code. */
enum gb_leaving {
    GB_LEFT = 0,         /* it has left, and there is room: try again */
    GB_LEAVES = 1,       /* it is being copied, or its leases are recalled: wait */
    GB_LEAVES_LATER = 2, /* not before the tier `full_tier` has room: wait */
    GB_STAYS = 3,        /* there is nothing that may leave, or no tier for it */
};

/* Whether the departure of all that may leave would make enough room. */
enum gb_forecast {
    GB_FORECAST_FITS,   /* it would, as far as can be told */
    GB_FORECAST_MAPPED, /* it will: sessions were asked to unmap segments, or users to end leases */
    GB_FORECAST_NOTHING /* it would not: what stays lies in the same segments */
};

/* The requests that wait for a device: for its space, its driver, or a tier below it. */
struct gb_queue {
    struct gb_link waits; /* struct gb_queued, in the order of arrival */
    uint64_t tried;       /* serial of the last request that this round has tried; 0: none */
    uint64_t seen;        /* the device's `changes` when the round began */
    uint64_t overtaken;   /* of the device's `used`: held for requests that overtook older ones */
    uint64_t retired_ms;  /* when a session was last asked to unmap a segment */
};

/* A request in such a queue. Zeroed but for its serial before its first use. */
struct gb_queued {
    struct gb_link link;
    struct gb_bid bid;        /* for room in a tier; its serial is the order of arrival */
    struct gb_device *device; /* NULL: it is in no queue */
    uint64_t need;            /* bytes of the device's space; 0: it waits for something else */
    bool arriving;            /* the daemon's own work will bring them */
};

/* A request's demand for room on a device, in one try. */
struct gb_demand {
    struct gb_placing placing;
    struct gb_device *device;
    uint64_t need;     /* bytes on the device */
    uint64_t reserve;  /* bytes that must stay free in the tiers: 0 for content that comes back */
    uint64_t since_ms; /* when it began to wait; UINT64_MAX: it does not wait yet */
    struct gb_queue *queue;         /* the device's */
    const struct gb_queued *queued; /* its place in the order of arrival; NULL: it has none yet */
    bool may_not_drop;              /* nothing may be dropped for it: room will come by itself */
    bool last;                      /* it must not be put aside again for the daemon's own work */
    unsigned *left; /* storages that left for the request in this try, also for other demands */

    /* Found out by gb_evict_for(). */
    enum gb_forecast forecast;
    int room;                    /* an enum gb_leaving, or GPUBUF_E_DEVICE: the driver cannot copy
                                    what leaves next */
    enum gb_tier_kind full_tier; /* out: the uppermost tier without room; GB_TIERS: none */
};

/* How long a request waits for sessions that were asked to unmap a segment, even if its wait_ms is
   0. */
#define GB_UNMAP_GRACE_MS 200

/* Whether the daemon's own work will bring the room. */
static inline bool gb_demand_arrives(const struct gb_demand *demand)
{
    return demand->room == GB_LEAVES || demand->room == GB_LEAVES_LATER;
}

/* Makes room after a try that found the device `shortfall` bytes short. True: try again. */
bool gb_evict_for(struct gb_spill *spill, struct gb_demand *demand);
/* Until when the request counts on segments that sessions were asked to unmap; after that, objects
   are evicted for it instead. 0: it does not count on any. */
uint64_t gb_evict_trusts_until(const struct gb_demand *demand);
/* Moves a storage, which nobody holds, to that tier and nowhere else. An enum gb_leaving but
   GB_STAYS, or GPUBUF_E_NO_SPACE (the tier cannot take it), _NO_MEMORY, _UNSUPPORTED. */
int gb_evict_to(struct gb_spill *spill, struct gb_storage *storage, enum gb_tier_kind tier,
                struct gb_demand *demand, struct gb_error *error);
/* Copies ahead on the devices, and from the host tier, that are above a watermark. */
void gb_evict_ahead(struct gb_spill *spill);

/* The room of the tiers for content of the device, if all their clean copies were freed; and how
   much of it there must be for a new object of `reserve` bytes. */
uint64_t gb_evict_room(const struct gb_spill *spill, const struct gb_device *device,
                       uint64_t reserve, uint64_t *least);
/* The bytes of the device's objects that may leave for the largest object that `create` could make
   now. */
uint64_t gb_evict_most(const struct gb_spill *spill, const struct gb_device *device);

/* ---- the queue of a device ---- */

/* Enters the request, or changes what it waits for, with a bid for room in `full_tier`
   (GB_TIERS: in none). Taking it out has the next one tried. */
void gb_queue_enter(struct gb_queue *queue, struct gb_spill *spill, struct gb_queued *queued,
                    struct gb_device *device, uint64_t need, bool arriving,
                    enum gb_tier_kind full_tier);
void gb_queue_leave(struct gb_spill *spill, struct gb_queued *queued);
/* Whether a request (`queued` NULL: a new one) that needs `bytes` of the device may be served
   before older ones that wait for space. If not, *arriving says whether these wait for nothing but
   the daemon's own work. */
bool gb_queue_may_overtake(const struct gb_queue *queue, const struct gb_queued *queued,
                           uint64_t bytes, bool *arriving);
/* Notes that the storage got its room, if older requests than this one wait for space. */
void gb_queue_note_passing(struct gb_queue *queue, const struct gb_queued *queued,
                           struct gb_storage *storage);
/* Whether the device's round is to begin anew, or to go on. */
bool gb_queue_has_more(const struct gb_queue *queue, const struct gb_device *device);
/* Goes on with the device's round: tries one request at least, and then until that time of
   uv_hrtime(). `try` is true if the request was answered, and is gone. */
void gb_queue_run(struct gb_queue *queue, struct gb_spill *spill, struct gb_device *device,
                  uint64_t until, bool (*try)(struct gb_queued *queued));

#endif
