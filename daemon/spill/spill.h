/*
 * Which objects leave a device, when, and to where; and how they come back. The least recently used
 * goes first, to pinned host memory, and from there to a disk. Only what is published to be dropped
 * is ever dropped; what is needed and has no room below stays.
 *
 * Above a high watermark the content of what will go next is copied below in the background, so
 * that it can leave at once when room is wanted. It stays on the device until then: the order in
 * which objects leave is exactly that of their last use, and an object that is used again in
 * between was there all the time. Reading sealed content disturbs nobody, so an object can be
 * opened while it is copied.
 *
 * The loop's. Copies are made on threads: one a device and direction, one for the disk.
 */
#ifndef GB_SPILL_H
#define GB_SPILL_H

#include "daemon/objects/registry.h"
#include "daemon/spill/move.h"

/* A copy out of a device or a tier, or back, that has just been made. */
struct gb_moved {
    const char *what; /* "spill", "restore" */
    const struct gb_device *device;
    enum gb_tier_kind tier;
    uint64_t bytes, ns;
};

/* Dropped objects that are not yet logged; zeroed: none. */
struct gb_losses {
    uint64_t objects, bytes;
    uint64_t tell_at; /* not before */
};

struct gb_spill {
    struct gb_registry *registry;
    struct gb_losses losses;
    struct gb_tier tiers[GB_TIERS];
    struct gb_device **devices;
    unsigned device_count;
    unsigned high, low; /* watermarks, percent */
    uint64_t draining;  /* bytes on their way from the host tier to the disk */
    uint64_t moves;     /* under way */
    atomic_bool stop;
    /* Told when a move of the storage's has ended. */
    void (*moved)(void *arg, struct gb_storage *storage);
    void *moved_arg;
    /* Told of each copy; NULL: nobody asks. */
    void (*on_copied)(void *arg, const struct gb_moved *moved);
    void *on_copied_arg;
};

/* Somebody who waits for what is done. */
struct gb_demand {
    uint64_t since_ms; /* that it has waited; UINT64_MAX: not yet */
    uint64_t serial;   /* of its claim; UINT64_MAX: it has none yet */
    uint64_t
        reserve; /* bytes that it leaves free below: what is new as many as it asks for, or what is
                         below could not come back to a full device in exchange for others */
    enum gb_tier_kind
        full_tier; /* out: the uppermost tier that has no room for it; GB_TIERS: none */
    bool keeps;    /* nothing may be lost for it: there will be room */
};

/* Ways to make room on a device that is full. */
enum gb_room {
    GB_ROOM_NONE,     /* nothing */
    GB_ROOM_MADE,     /* something has left: try again */
    GB_ROOM_ARRIVING, /* something is on its way out, or has been recalled: wait */
    GB_ROOM_STUCK,    /* nothing: the driver could not copy what is to leave; *error says why */
};

/* Makes room for somebody who lacks `bytes`: the least recently used leaves. */
enum gb_room gb_spill_make_room(struct gb_spill *spill, struct gb_device *device, uint64_t bytes,
                                struct gb_demand *demand, struct gb_error *error);
/* Keeps to the watermarks, and logs what was dropped; to be called when something has changed, and
   at gb_spill_tells_at() (UINT64_MAX: there is nothing to log). */
void gb_spill_tend(struct gb_spill *spill);
uint64_t gb_spill_tells_at(const struct gb_spill *spill);

/* Outcomes of the following. */
enum gb_moving {
    GB_MOVED = 0,
    GB_MOVING = 1,   /* wait for the storage's `moved` */
    GB_MOVE_FULL = 2 /* wait for room in the tier that `demand` lacks */
};

/* Begins to bring a storage's content back; it has room on its device. GPUBUF_E_NO_MEMORY. */
int gb_spill_restore(struct gb_spill *spill, struct gb_storage *storage, struct gb_error *error);
/* Has a storage, which nobody holds, be only in that tier. An enum gb_moving, or GPUBUF_E_NO_SPACE
   (the tier cannot take it), _NO_MEMORY, _UNSUPPORTED. */
int gb_spill_out(struct gb_spill *spill, struct gb_storage *storage, enum gb_tier_kind tier,
                 struct gb_demand *demand, struct gb_error *error);
#endif
