/*
 * The state that outlives the daemon: descriptors of segments and of the host tier, and a journal
 * that says which objects lie in them. The service manager (notify.h) keeps them and hands them to
 * the daemon that is started next, the *successor*.
 *
 * The store and the registry report each change before the reply that depends on it is sent. A
 * record has a whole storage with all its objects, so that each is one consistent state; the last
 * record of a storage counts. Some objects end with the daemon: those that are not sealed or not
 * settled, and those whose memory their producer keeps or the driver frees. Their storages have a
 * *fleeting* record. It has their names, so that a successor can tell clients that they are
 * withdrawn; and the range of a shared segment to which a producer may still write.
 *
 * A successor rebuilds the store and the registry. For a grace period it holds every object and
 * these ranges, as a lease does. So clients that still map them find them unchanged when they
 * connect again and resume, and no other client is given memory that a producer may be writing to.
 * Other free ranges are handed out at once, as before the crash.
 *
 * The loop's thread.
 */
#ifndef GB_STATE_H
#define GB_STATE_H

#include "daemon/objects/lease.h"
#include "daemon/spill/spill.h"
#include "daemon/survive/journal.h"
#include "daemon/survive/notify.h"
#include "daemon/survive/record.h"

/* An object that ended with the earlier daemon. */
struct gb_withdrawn {
    uint64_t number; /* of its storage, in the journal */
    uint64_t version;
    uid_t uid;
    gid_t gid;
    unsigned mode;
    size_t name_length, text_length;
    char name[]; /* followed by its text without the layout */
};

/* The record of a storage that lies only in a tier that is not served. It is written to each new
   journal, so that a daemon that has the tier restores it. */
struct gb_away {
    struct gb_away *next;
    uint64_t number;
    size_t length;
    unsigned char record[];
};

struct gb_state {
    struct gb_notify *notify; /* NULL: nothing outlives us */
    struct gb_registry *registry;
    struct gb_spill *spill;
    struct gb_device **devices;
    unsigned device_count;
    struct gb_journal journal;
    struct gb_link storages; /* that have a record */
    /* A new journal that is being written; changes go into both. fd -1: there is none. */
    struct gb_journal next;
    struct gb_link written;  /* storages that the new journal has; the others are in `storages` */
    struct gb_walk segments; /* over those of devices[walked], for the new journal */
    unsigned walked;
    uint64_t offered;     /* 1 + how many notices were queued when the manager was given the new
                                journal; 0: it was not yet */
    const char *instance; /* this daemon's, or its predecessor's, which it continues */
    uint64_t generation;  /* of the last journal that was begun */
    uint64_t next_number;
    struct gb_writer writer; /* of the current record */
    bool failed;             /* the journal is given up, until another takes its place */
    bool abandoned;          /* the manager has exited */
    bool late;               /* the manager does not respond, which was logged */
    uint64_t anew_at;        /* failed: when to begin another */
    bool disbelieved;        /* the journal has a record that is not believed: it must be written
                                anew when that is possible */
    bool tier_restored;      /* the host tier's memory is the one that was handed over */

    /* Objects that the grace period holds for clients that have not resumed yet, by version; of
       version 0 those that hold a range. Owned. */
    struct gb_object **objects;
    size_t object_count, object_room;
    uint64_t grace_ms;
    uint64_t grace_until;            /* 0: it is over, or never was */
    uint64_t lost;                   /* objects */
    struct gb_away *away;            /* storages that lie in a tier that is not served; owned */
    struct gb_withdrawn **withdrawn; /* until the grace period is over; array and items owned */
    size_t withdrawn_count;
};

/* Whether an earlier daemon's journal was handed over. */
bool gb_state_has_predecessor(const struct gb_notify *notify);

/*
 * Rebuilds the state from the descriptors that were handed over, or begins with none. `instance` is
 * this daemon's; if the state is rebuilt it becomes the predecessor's. To be called before anything
 * is served, and before movers are started. A failure (a journal of a later version, or memory is
 * out) is a sentence for the person who started the daemon. A damaged journal is given up, with a
 * line in the log.
 */
int gb_state_begin(struct gb_state *state, struct gb_notify *notify, struct gb_registry *registry,
                   struct gb_spill *spill, struct gb_device **devices, unsigned device_count,
                   uint64_t grace_ms, char instance[GB_JOURNAL_INSTANCE_BYTES + 1], uint64_t now_ms,
                   struct gb_error *error);

/* Has the files of an earlier daemon removed in the background, but for those with copies that were
   restored. To be called once, if there is a disk tier. GPUBUF_E_SYSTEM, GPUBUF_E_NO_MEMORY. */
int gb_state_remove_stale_files(struct gb_state *state, struct gb_error *error);

/* To be called in each turn: ends the grace period when it is over (returns true then), and writes
   the journal anew, a piece in a turn, when it has become large. */
bool gb_state_run_due(struct gb_state *state, uint64_t now_ms);
/* When gb_state_run_due() must be called at the latest; UINT64_MAX: at no certain time. */
uint64_t gb_state_due(const struct gb_state *state);

/* The object of that version without a name, which waits for clients that have not resumed yet;
   NULL: there is none. */
struct gb_object *gb_state_find_nameless(const struct gb_state *state, const char *name,
                                         size_t length, uint64_t version);

/* Walks, from 0 on, over objects that ended with the earlier daemon and whose name no other object
   has taken since, until the grace period is over; NULL: no more. */
const struct gb_withdrawn *gb_state_next_withdrawn(const struct gb_state *state, size_t *next);
/* Writes the object as events have it. */
void gb_withdrawn_write(struct gb_writer *writer, const struct gb_withdrawn *withdrawn);

/* The number of the last notice that was not sent to the manager; 0: all were. See
   gb_state_has_sent(). */
uint64_t gb_state_unsent_notice(const struct gb_state *state);
/* Whether the notices up to that one were sent, or the manager does not respond. */
bool gb_state_has_sent(const struct gb_state *state, uint64_t notice);

/* Records no change from now on: the state is the successor's. Waits up to a second for a manager
   that is slow. */
void gb_state_hand_over(struct gb_state *state);
/* Whether a manager keeps the state for a successor, all of it. */
bool gb_state_is_kept(const struct gb_state *state);
/* "kept" if so; "none" if there never was a manager; else "lost", though it may be kept again. */
const char *gb_state_handover_status(const struct gb_state *state);
/* Gives the journal up for good: nothing outlives this daemon any more. */
void gb_state_abandon(struct gb_state *state, const char *why);
/* Ends the grace period, and frees the state. To be called before gb_registry_end(). */
void gb_state_end(struct gb_state *state);

/* ---- between state.c and restore.c ---- */

#define GB_STATE_TIER_NAME "tier"

/* Has the store and the registry report changes from now on. */
void gb_state_record_changes(struct gb_state *state);
/* Has the manager forget the descriptors of that name. */
void gb_state_unstore_fd(struct gb_state *state, const char *name);
void gb_state_segment_fd_name(uint64_t id, char name[24]);
/* Records that a segment is freed, and has the manager forget its descriptor. */
void gb_state_record_segment_freed(struct gb_state *state, uint64_t id);
/* Has the grace period hold an object. GPUBUF_E_NO_MEMORY. */
int gb_state_keep_object(struct gb_state *state, struct gb_object *object, uint64_t now_ms);
/* Keeps the record of a storage that is away. GPUBUF_E_NO_MEMORY. */
int gb_state_add_away(struct gb_state *state, uint64_t number, const void *record, size_t length);
/* Records that a storage is freed. */
void gb_state_record_storage_freed(struct gb_state *state, uint64_t number);
/* Opens the journal behind `fd` and rebuilds the state from it. */
int gb_state_restore(struct gb_state *state, int fd, uint64_t now_ms, struct gb_error *error);

#endif
