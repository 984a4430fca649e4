/*
 * Carries out what evict.c decides: storages leave their devices, are copied to tiers and within
 * them, and come back. An object can be opened while it is copied, since sealed content does not
 * change.
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
    uint64_t log_at; /* the earliest time to log them */
};

/* The disk tier of a daemon that follows another is out of order: it is as if there were none, and
   is looked at now and then. */
struct gb_outage {
    bool lasts;
    bool owed; /* objects lie there: only the directory that they were left in will do */
    bool checking;
    const struct gb_spill_settings *settings;
    struct gb_error why; /* of a check; the job's while `checking` */
    uint64_t check_at;
    struct gb_job job;
    /* Called when the directory can be used again, by a daemon that is started then. */
    void (*over)(void *moved_arg);
};

struct gb_spill {
    struct gb_registry *registry;
    struct gb_outage outage;
    struct gb_losses losses;
    struct gb_tier tiers[GB_TIERS];
    struct gb_error faults[GB_TIERS]; /* why nothing can be written to a tier; code 0: it can */
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

/* A tier that failed, and a storage that its driver could not copy out, are left alone for a while.
 */
#define GB_FAILING_MS 5000

/* Drops the storage's objects, if none is needed: the content is lost. */
void gb_spill_drop(struct gb_spill *spill, struct gb_storage *storage);
/* Takes a storage off its device; its content is below. False if memory is out. */
bool gb_spill_vacate(struct gb_spill *spill, struct gb_storage *storage);
/* Frees a copy that is not the only place of its content. */
void gb_spill_forget(struct gb_copy *copy);
/* Begins to fill the copy `to`, out of the storage's device, or from its copy in the host tier.
   `leave`: then it leaves the place it was copied from. GPUBUF_E_NO_MEMORY: gives `to` up. */
int gb_spill_copy(struct gb_spill *spill, struct gb_storage *storage, struct gb_copy *from,
                  struct gb_copy *to, bool leave);
/* Begins to bring a storage's content back; the storage has room on its device.
   GPUBUF_E_NO_MEMORY. */
int gb_spill_restore(struct gb_spill *spill, struct gb_storage *storage, struct gb_error *error);

/* When the storage's driver last failed to copy it out; 0: it did not. */
uint64_t gb_spill_stuck_ms(const struct gb_storage *storage);
/* Logs dropped objects, and checks an outage. To be called when something has changed, and at
   gb_spill_due() (UINT64_MAX: no need to). */
void gb_spill_run_due(struct gb_spill *spill);
uint64_t gb_spill_due(const struct gb_spill *spill);

#endif
