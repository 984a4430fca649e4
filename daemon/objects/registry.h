/*
 * Names and versions. An object is one version of a name. Unsealed, it is found by its write lease
 * only. Sealed, it is the name's current version until it is deleted, replaced or evicted, and it
 * exists as long as it has a name or a lease. A name may keep some older versions beside its
 * current one, which are found by version or label. Events are about current versions only. Pure
 * logic over the store: no sockets, no clock. Not thread-safe: the loop's.
 */
#ifndef GB_REGISTRY_H
#define GB_REGISTRY_H

#include "daemon/base/names.h"
#include "daemon/base/timer.h"
#include "daemon/base/walk.h"
#include "daemon/store/storage.h"

enum gb_evict { GB_EVICT_SPILL, GB_EVICT_DROP, GB_EVICT_KEEP };

enum gb_event {
    GB_EVENT_SEALED,
    GB_EVENT_DELETED,
    GB_EVENT_EVICTED,
    GB_EVENT_SPILLED,
    GB_EVENT_RESTORED,
    GB_EVENT_WITHDRAWN, /* its producer has ended, or its content is lost */
    GB_EVENT_PARKED,    /* a session keeps its lease on it, without memory … */
    GB_EVENT_RESUMED,   /* … and reads it again */
    GB_EVENTS
};

/* "sealed", … Static. */
const char *gb_event_kind(enum gb_event event);

/* Where a buffer lies. */
struct gb_first {
    uint64_t segment, offset;
};

/* A session with which an object ends. */
struct gb_produced {
    struct gb_link link; /* in its list */
    uint64_t session;    /* its id, while the object is there */
};

struct gb_stream;

/* The writers of a live object. */
struct gb_live {
    struct gb_link writing;   /* leases */
    uint64_t writers;         /* how many these are */
    bool claimed;             /* one of them is exclusive, and so the only one */
    uint64_t generation;      /* of the last that was; 0: none */
    struct gb_stream *stream; /* NULL: nobody has joined one */
};

/* Where parts of an object's text end: the note, which its owner alone is told; name, version,
   label and device; the scope. `,"layout":{…}` follows. */
struct gb_text_ends {
    uint32_t note, head, brief;
};

struct gb_object {
    struct gb_name index;   /* while it is the name's current version */
    struct gb_link of_name; /* a ring: the current version, older ones that have the name, newest
                               first, then versions without the name that leases keep */
    struct gb_link of_storage;
    struct gb_storage *storage;
    struct gb_link leases;
    uint32_t lease_count;       /* with the grace period's hold, if it is `kept` */
    uint32_t idle_count, slots; /* of all: idle ones; those with a slot in a page */
    uint32_t parked_count;      /* of all: parked ones */
    struct gb_live *live;       /* owned; NULL: it is not live */
    uint64_t version;           /* 0 while unsealed */
    uint64_t line;  /* the first version that the name has had since it was last nobody's */
    uint64_t bytes; /* of its buffers */
    struct gb_user *owner;
    gid_t gid;
    unsigned mode;
    enum gb_evict evict;
    bool current;            /* the name means it */
    bool named;              /* the name means it, or keeps it as an older version */
    bool pinned, by_session; /* by_session: registered by its producer */
    bool cluster;            /* its scope: other machines may know it */
    bool kept;               /* the grace period holds it as a lease does */
    bool charged;            /* its storage counts for its owner: it has a name or is written */
    bool unsettled;          /* its content is not complete yet, which is a hold */
    unsigned keep;           /* while it is current: older versions that the name keeps, at most */
    uint32_t unsealed_bytes; /* of its layout, while it is written */
    uint32_t name_length, text_length;
    struct gb_text_ends text_ends;
    struct gb_produced produced; /* it ends with a session: it is unsettled, or registered memory
                                    that its producer keeps */
    char *ready; /* the event after which its content is complete, base64; owned; NULL: it is
                    complete */
    int64_t created_ms, ttl_ms;
    struct gb_deadline deadline; /* of ttl_ms */

    struct gb_first first; /* of its first buffer that has bytes; 0: none */

    /* Of replies about it what is not in this struct, rendered once: members without braces. NULL
       until it is rendered or has a note. */
    char *text;
    struct gb_string label; /* as JSON: in the text, or what the next text will have; NULL: none */

    char name[];
};

struct gb_holder;
struct gb_lease;

struct gb_registry {
    struct gb_store *store;
    struct gb_names names;
    struct gb_hash_table leases;
    uint64_t grace_count;             /* objects that the grace period holds … */
    uint64_t grace_bytes[GB_DEVICES]; /* … and their bytes, by the device's index */
    uint64_t idle_count;              /* of leases: idle ones (lease.h) … */
    uint64_t parked_count;            /* … and parked ones */
    struct gb_deadlines deadlines;    /* of objects with a time to live */
    uint64_t next_version, next_lease;
    struct gb_link walks; /* struct gb_walk: over leases of a holder */
    uint64_t objects;
    uint64_t private_names; /* of objects that not everybody may open */
    /* Processes that write live objects (orphan_writer.h). */
    struct gb_hash_table writers; /* struct gb_writer_process, by pid */
    struct gb_hash_table
        orphan_writers;    /* by session, with those of sessions that have not ended */
    uint64_t last_session; /* of earlier daemons, as far as writers of theirs are known */
    struct gb_link writer_list, unwatched_writers;
    uint64_t watch_at; /* when to look for the unwatched ones again; UINT64_MAX: there are none */
    int exits;         /* an epoll set of the others, which can be read when one ends; not ours */
    struct gb_link orphans; /* objects without name and lease that gb_registry_sweep() frees */
    uint64_t now_ms;        /* the time of this turn, set by the server */
    /* Called after a name has got its object, and just before it loses it; also amid a request of
       `create`, `register`, `seal`, `alias`, `open`, `move` (a name gets its object, or what gives
       way for it leaves), `delete`, `release` or `hello` (a lease is parked), whose answer may be
       half written. So it writes elsewhere (struct gb_watches), and serves nobody. */
    void (*on_event)(void *arg, enum gb_event event, struct gb_object *object);
    void *on_event_arg;
    /* Called when a name ceases to mean the storage's content, or to have it as an older version,
       and when a writer of live content has ended; NULL: nobody asks. */
    void (*on_unnamed)(void *arg, struct gb_storage *storage);
    void *on_unnamed_arg;
    /* Asks the holder of a lease to give it back. */
    void (*recall)(void *arg, struct gb_lease *lease);
    /* The holder has not given back what is asked for in time. */
    void (*overdue)(void *arg, struct gb_lease *lease);
    void *recall_arg;
    uint64_t recall_ms; /* that an answer may take, while the lease is idle */
    /* When a lease was last recalled for the sake of the device; 0: none is awaited. */
    uint64_t recalled_ms[GB_DEVICES];
};

void gb_registry_init(struct gb_registry *registry, struct gb_store *store);
/* Deletes every object. No lease may be left. */
void gb_registry_end(struct gb_registry *registry);

/* A new, unsealed object over `storage`, whose reference it takes over on success. `owner` is
   referenced, and charged for the storage, the name and the text. NULL if memory is out. */
struct gb_object *gb_object_new(struct gb_registry *registry, const char *name, size_t name_length,
                                struct gb_storage *storage, struct gb_user *owner);
/* Frees an object that never got its name and has no lease. */
void gb_object_discard(struct gb_registry *registry, struct gb_object *object);

/* Charges its owner with a layout of `bytes` while the object is written; 0: it is no longer
   written.
 */
void gb_object_charge_unsealed(struct gb_object *object, size_t bytes);

/* Whether it is *live*: it was given its name when it was created, is never sealed, and its content
   changes. It has a segment's range in a domain of live objects, no alias, and no copy. */
static inline bool gb_object_is_live(const struct gb_object *object)
{
    return object->live;
}
/* A lease for writing it begins or ends: its link in the object's list. */
void gb_object_begin_writer(struct gb_object *object, struct gb_link *of_writing);
void gb_object_end_writer(struct gb_registry *registry, struct gb_object *object,
                          struct gb_link *of_writing);

/* Has the storage's record in the journal written anew. */
void gb_storage_changed(struct gb_storage *storage);
/* To be called when the storage has got or lost a copy. Writes the record anew, too. */
void gb_storage_set_clean(struct gb_storage *storage);
/* Gives the storage, whose content is on its device, a place in an order of eviction there. */
void gb_storage_enter(struct gb_storage *storage);

/* Whether the content can be copied to a tier: not if its producer's memory is not accessible to
   us, if it is final or live, or if it has no bytes. */
bool gb_storage_can_spill(const struct gb_storage *storage);
/* The fate of the object when room is short and nobody holds it: "stays", "spills", "drops". */
const char *gb_object_prospect(const struct gb_object *object);

/*
 * Gives a rendered object its name: `replace` says whether it may take it from another. The name
 * keeps `object->keep` of its older versions; the others lose the name, without an event of their
 * own. `now_ms` starts its time to live.
 * GPUBUF_E_EXISTS, GPUBUF_E_NO_MEMORY; then nothing has changed.
 */
int gb_registry_publish(struct gb_registry *registry, struct gb_object *object, bool replace,
                        uint64_t now_ms, struct gb_error *error);
/* Takes the name away, for the reason `event`. The object is freed with its last lease, or at once
   if it has none. A current version takes the name's older versions along; but if it is withdrawn,
   the newest of these becomes current. */
void gb_registry_unname(struct gb_registry *registry, struct gb_object *object,
                        enum gb_event event);

struct gb_object *gb_registry_find(const struct gb_registry *registry, const char *name,
                                   size_t length);
/* The next version in the ring of the name, whose first is the current one; NULL: there are no
   more. The object must be in such a ring. */
struct gb_object *gb_object_older(const struct gb_object *object);

/* Restores an object of an earlier daemon, which is rendered and has its version, over a storage
   that has its place. `named`: it gets its name, unless later versions have it and do not keep this
   one. No event is told. GPUBUF_E_NO_MEMORY. */
int gb_registry_restore(struct gb_registry *registry, struct gb_object *object, bool named,
                        bool pinned, uint64_t expires_ms);

/* Enters a restored object without a name among its name's versions. To be called after all objects
   are restored. */
void gb_registry_restore_held(struct gb_registry *registry, struct gb_object *object);

/* The content of the object and of its aliases is complete. */
void gb_object_settle(struct gb_object *object);

void gb_object_pin(struct gb_object *object, bool pin);

/* The object loses its name after `ttl_ms` from now; 0: not by itself. GPUBUF_E_NO_MEMORY. */
int gb_object_expire(struct gb_registry *registry, struct gb_object *object, uint64_t ttl_ms,
                     struct gb_error *error);

/* Unnames every object of a storage, for the reason `event`. */
void gb_registry_lose(struct gb_registry *registry, struct gb_storage *storage,
                      enum gb_event event);
/* Unnames every object of a storage to make room, which counts as an eviction. Frees no other
   storage: a caller may be walking over them. */
void gb_registry_evict(struct gb_registry *registry, struct gb_storage *storage);
/* Frees objects that lost their name by an eviction and have no lease. Not to be called while room
   is being made. */
void gb_registry_sweep(struct gb_registry *registry);
/* Unnames every object on a device that is lost. */
void gb_registry_withdraw(struct gb_registry *registry, const struct gb_device *device);
/* Deletes the first object whose time to live is over; false: there is none. */
bool gb_registry_expire_next(struct gb_registry *registry, uint64_t now_ms);

/* The grace period begins to hold an object, or ends to: an object without a name and a lease is
   then freed. */
void gb_object_keep(struct gb_registry *registry, struct gb_object *object, uint64_t now_ms);
void gb_object_unkeep(struct gb_registry *registry, struct gb_object *object);

/* Leases in use: without idle and parked ones, and without the grace period. */
uint64_t gb_registry_lease_count(const struct gb_registry *registry);
uint64_t gb_object_lease_count(const struct gb_object *object);

/* ---- for lease.c ---- */

/* An object has got a lease, which keeps its storage from being evicted. */
void gb_object_hold(struct gb_object *object, uint64_t now_ms);
/* An object has lost a lease, which was a hold if it was used. Frees it if it has no name and this
   was the last. */
enum gb_lease_use { GB_LEASE_USED, GB_LEASE_IDLE, GB_LEASE_PARKED };
void gb_object_drop(struct gb_registry *registry, struct gb_object *object, enum gb_lease_use use);
/* Reports the event to on_event. */
void gb_registry_announce(struct gb_registry *registry, enum gb_event event,
                          struct gb_object *object);
/* A lease of the object that was in use is parked. */
void gb_object_park(struct gb_registry *registry, struct gb_object *object, uint64_t now_ms);
/* A lease of the object has become idle; not `first`: it was idle, and was used in between. */
void gb_object_idle(struct gb_registry *registry, struct gb_object *object, bool first,
                    uint64_t now_ms);
/* An idle lease of the object is in use again. */
void gb_object_resume(struct gb_registry *registry, struct gb_object *object);
/* The name means something else: clears the slots of all leases on the object. */
void gb_object_clear_slots(struct gb_object *object);

#endif
