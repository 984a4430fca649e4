/*
 * The state that outlives the daemon: descriptors of segments and of the host tier, and a journal
 * that says what lies in them, all kept by the service manager (notify.h) and handed to whoever is
 * started next.
 *
 * The store and the registry tell of each change before the reply that depends on it goes out. A
 * record is a whole storage with all its objects, so that each is one consistent state, and the
 * last one of a storage is what counts. Objects that are not sealed or not settled end with the
 * daemon, as does memory that stays its producer's or dies with us: its record has the names, so
 * that a successor can tell that they are gone, and the range of a shared segment to which its
 * producer may go on writing.
 *
 * A successor rebuilds the store and the registry from it. For a grace period it holds a lease on
 * every object itself and on these ranges, so that clients who still map them find what was there
 * when they come and resume, and nobody is given what another may be writing to. Other free ranges
 * are handed out at once, as they were before the crash.
 *
 * The loop's thread.
 */
#ifndef GB_STATE_H
#define GB_STATE_H

#include "daemon/objects/lease.h"
#include "daemon/spill/spill.h"
#include "daemon/survive/journal.h"
#include "daemon/survive/notify.h"

/* An object that went with the earlier daemon. */
struct gb_withdrawn {
    uint64_t number; /* of its storage, in the journal */
    uint64_t version;
    uid_t uid;
    gid_t gid;
    unsigned mode;
    size_t name_length, text_length;
    char name[]; /* and what was rendered of it, without the layout */
};

struct gb_state {
    struct gb_notify *notify; /* NULL: nothing outlives us */
    struct gb_registry *registry;
    struct gb_spill *spill;
    struct gb_device **devices;
    unsigned device_count;
    struct gb_journal journal;
    struct gb_link storages; /* that have a record */
    /* The one that is written anew: what changes is noted there as well. fd -1: there is none. */
    struct gb_journal next;
    struct gb_link written; /* those of `storages` that it has, in a list of their own until then */
    struct gb_walk segments; /* in the next of these devices; it has those before */
    unsigned walked;
    uint64_t next_number;
    struct gb_writer writer; /* of the record at hand */
    bool failed;             /* the journal is given up */
    bool disbelieved;        /* something in the journal: it is written anew when it may be */
    bool tier_restored;      /* the host tier's memory is the one that was handed over */

    struct gb_holder grace;     /* of the leases for those who have not come yet */
    struct gb_object **objects; /* that these are on, by version; owned */
    size_t object_count;
    uint64_t grace_ms;
    uint64_t grace_until;            /* 0: it is over, or never was */
    uint64_t lost;                   /* objects */
    struct gb_withdrawn **withdrawn; /* until the grace period is over; owned, as are they */
    size_t withdrawn_count;
};

/*
 * Takes what was handed over and rebuilds what it says, or begins anew; `instance` is the one to
 * have then, and becomes the predecessor's if that is gone on with. Before anything is served, and
 * before movers are started. A failure is a sentence for the person who started us: a journal of a
 * later version. One that is damaged is given up, with a line in the log.
 */
int gb_state_begin(struct gb_state *state, struct gb_notify *notify, struct gb_registry *registry,
                   struct gb_spill *spill, struct gb_device **devices, unsigned device_count,
                   uint64_t grace_ms, char instance[GB_JOURNAL_INSTANCE_BYTES + 1], uint64_t now_ms,
                   struct gb_error *error);

/* Once in a turn: ends the grace period when it is over (returns true then), and writes the journal
   anew, a piece in a turn, when it has become large. */
bool gb_state_tend(struct gb_state *state, uint64_t now_ms);
/* When to be called again at the latest; UINT64_MAX: not for its own sake. */
uint64_t gb_state_due(const struct gb_state *state);

/* An object that has lost its name and is kept for those who have not come yet; NULL. */
struct gb_object *gb_state_nameless(const struct gb_state *state, const char *name, size_t length,
                                    uint64_t version);

/* Of those that went with the earlier daemon the next, from the `*next`th on, whose name nobody has
   taken since, until the grace period is over; NULL: no more. */
const struct gb_withdrawn *gb_state_withdrawn(const struct gb_state *state, size_t *next);
/* Writes it as watches are told of it. */
void gb_withdrawn_write(struct gb_writer *writer, const struct gb_withdrawn *withdrawn);

/* From now on nothing is noted any more: what there is, is the successor's. */
void gb_state_hand_over(struct gb_state *state);
/* Whether somebody keeps it for a successor. */
bool gb_state_is_kept(const struct gb_state *state);
/* "kept", if so; "none" if there never was anybody; "lost". */
const char *gb_state_handover(const struct gb_state *state);
/* The manager is no more. */
void gb_state_give_up(struct gb_state *state, const char *why);
/* Gives the grace period's leases back, and frees it. Before the registry ends. */
void gb_state_end(struct gb_state *state);

/* ---- between state.c and restore.c ---- */

enum gb_state_record {
    GB_RECORD_COUNTERS = 1, /* the next of each kind of number */
    GB_RECORD_SEGMENT = 2,
    GB_RECORD_SEGMENT_GONE = 3,
    GB_RECORD_STORAGE = 4, /* with its objects; in place of what was said of it before */
    GB_RECORD_STORAGE_GONE = 5,
    GB_RECORD_FLEETING =
        6, /* as STORAGE, of what goes with us: the named objects, without layouts */
};

#define GB_STATE_TIER_NAME "tier"

/* Has the store and the registry tell of changes from now on. */
void gb_state_attach(struct gb_state *state);
/* Has the manager keep nothing of that name any more. */
void gb_state_forget(struct gb_state *state, const char *name);
void gb_state_segment_name(uint64_t id, char name[24]);
/* A segment or a storage that has a record is no more; nobody keeps the segment's descriptor
   then. */
void gb_state_segment_gone(struct gb_state *state, uint64_t id);
void gb_state_storage_gone(struct gb_state *state, uint64_t number);
/* Rebuilds what the journal says, which is opened. */
int gb_state_restore(struct gb_state *state, int fd, uint64_t now_ms, struct gb_error *error);

#endif
