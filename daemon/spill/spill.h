/*
 * Which objects leave a device, when, and to where; and how they come back. The least recently used
 * leaves first, to pinned host memory, and from there to a disk. Only objects that are published
 * with evict=drop are ever dropped; others stay if the tiers have no room for them.
 *
 * Above the high watermark the objects that would leave next are copied below in the background, so
 * that they can leave at once when room is wanted. They stay on the device until then. So the order
 * in which objects leave is exactly that of their last use, and an object that is used again in
 * between was there all the time. An object can be opened while it is copied, since sealed content
 * does not change.
 *
 * The loop's. Threads make the copies: one for each device and direction, one for the disk.
 */
#ifndef GB_SPILL_H
#define GB_SPILL_H

#include "daemon/objects/registry.h"
#include "daemon/spill/move.h"
#include "daemon/spill/settings.h"

/* Why the last move of a storage failed, for requests that wait for it. */
struct gb_move_failure {
    struct gb_error error;
    uint64_t stuck_ms; /* when its driver could not copy it out; 0: it could, or was not asked */
};

/* Dropped objects that are not yet logged; zeroed: none. */
struct gb_losses {
    uint64_t objects, bytes;
    uint64_t tell_at; /* the earliest time to log them */
};

/* The disk tier of a daemon that follows another is out of order: it is as if there were none, and
   is looked at now and then. */
struct gb_outage {
    bool lasts;
    bool owed; /* objects lie there: only the directory that they were left in will do */
    bool looking;
    const struct gb_spill_settings *settings;
    struct gb_error why; /* of the last look */
    uint64_t look_at;
    struct gb_job job;
    /* Called when the directory can be used again, by a daemon that is started then. */
    void (*over)(void *moved_arg);
};

struct gb_spill {
    struct gb_registry *registry;
    struct gb_outage outage;
    struct gb_losses losses;
    struct gb_tier tiers[GB_TIERS];
    struct gb_device **devices;
    unsigned device_count;
    unsigned high, low;          /* watermarks, percent */
    bool above_high[GB_DEVICES]; /* above the high watermark, until below the low one */
    uint64_t unrecorded;         /* copies so far of storages that no journal has */
    uint64_t draining;           /* bytes on their way from the host tier to the disk */
    uint64_t moves;              /* under way */
    atomic_bool stop;
    /* Called when a move of the storage has ended. */
    void (*moved)(void *arg, struct gb_storage *storage);
    void *moved_arg;
};

/* A request that needs room. */
struct gb_demand {
    uint64_t since_ms; /* when it began to wait; UINT64_MAX: it does not wait yet */
    uint64_t serial;   /* of its claim; UINT64_MAX: it has none yet */
    /* Bytes that must stay free in the tiers. A new object leaves as many as it has: else objects
       below could not come back to a full device in exchange for others. */
    uint64_t reserve;
    enum gb_tier_kind full_tier; /* out: the uppermost tier without room for it; GB_TIERS: none */
    bool keeps;                  /* nothing may be dropped for it: room will come by itself */
};

/* Outcomes of making room on a device that is full. */
enum gb_room {
    GB_ROOM_NONE,     /* there is nothing that may leave */
    GB_ROOM_MADE,     /* a storage has left: try again */
    GB_ROOM_ARRIVING, /* a storage is being copied, or its leases are recalled: wait */
    GB_ROOM_STUCK,    /* the driver could not copy the storage that leaves next; *error says why */
};

/* Makes room for a request that lacks `bytes`: the least recently used storage leaves. */
enum gb_room gb_spill_make_room(struct gb_spill *spill, struct gb_device *device, uint64_t bytes,
                                struct gb_demand *demand, struct gb_error *error);
/* Copies ahead if a watermark is passed, logs dropped objects, and looks after an outage. To be
   called when something has changed, and at gb_spill_tells_at() (UINT64_MAX: no need to). */
void gb_spill_tend(struct gb_spill *spill);
uint64_t gb_spill_tells_at(const struct gb_spill *spill);

/* Outcomes of gb_spill_out(). */
enum gb_moving {
    GB_MOVED = 0,
    GB_MOVING = 1,   /* wait until `moved` is called for the storage, and try again */
    GB_MOVE_FULL = 2 /* wait for room in demand->full_tier, and try again */
};

/* Begins to bring a storage's content back; the storage has room on its device.
   GPUBUF_E_NO_MEMORY. */
int gb_spill_restore(struct gb_spill *spill, struct gb_storage *storage, struct gb_error *error);
/* Moves a storage, which nobody holds, to that tier and nowhere else. An enum gb_moving, or
   GPUBUF_E_NO_SPACE (the tier cannot take it), _NO_MEMORY, _UNSUPPORTED. */
int gb_spill_out(struct gb_spill *spill, struct gb_storage *storage, enum gb_tier_kind tier,
                 struct gb_demand *demand, struct gb_error *error);
#endif
