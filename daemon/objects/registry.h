/*
 * Names and versions. An object is one version of a name: unsealed, it is known by its write
 * lease only; sealed, it is the name's current version until it is deleted, replaced or evicted,
 * and lives on as long as somebody holds a lease. A name may keep some older versions beside its
 * current one: those are entered as it is, and found by version or label. Events are about current
 * versions only. Pure logic over the store: no sockets, no clock. Not thread-safe: the loop's.
 */
#ifndef GB_REGISTRY_H
#define GB_REGISTRY_H

#include "daemon/base/names.h"
#include "daemon/base/timer.h"
#include "daemon/base/walk.h"
#include "daemon/memory/store.h"

enum gb_evict { GB_EVICT_SPILL, GB_EVICT_DROP, GB_EVICT_KEEP };

enum gb_event {
    GB_EVENT_SEALED,
    GB_EVENT_DELETED,
    GB_EVENT_EVICTED,
    GB_EVENT_SPILLED,
    GB_EVENT_RESTORED,
    GB_EVENT_WITHDRAWN, /* its producer or its device is gone */
    GB_EVENTS
};

/* "sealed", … Static. */
const char *gb_event_kind(enum gb_event event);

struct gb_object {
    struct gb_name index;   /* while it is the name's current version */
    struct gb_link of_name; /* a ring: the current version, older ones that have the name, newest
                               first, then those that only leases keep */
    struct gb_link of_storage;
    struct gb_storage *storage;
    struct gb_link leases;
    uint64_t lease_count, kept_count; /* all; those of a holder that only keeps */
    uint64_t idle_count, slots;       /* of all: idle ones; those with a slot in a page */
    uint64_t version;                 /* 0 while unsealed */
    uint64_t bytes;                   /* of its buffers */
    struct gb_user *owner;
    gid_t gid;
    unsigned mode;
    enum gb_evict evict;
    bool current;            /* it is what the name means */
    bool named;              /* it is, or the name keeps it as an older version */
    bool pinned, by_session; /* by_session: registered by its producer */
    bool cluster;            /* other machines are to know it: its scope */
    unsigned keep;           /* while it is current: older versions that the name keeps, at most */
    bool charged;            /* its storage counts for its owner: it has a name or is written */
    size_t unsealed_bytes;   /* of its layout, while it is written */
    bool unsettled;          /* its content is not there yet: a hold */
    struct gb_link of_producer; /* in a session's list, as long as it goes with it: unsettled, or
                                   registered memory that stays its producer's */
    uint64_t producer;          /* the id of that session, while it is in its list */
    char *ready; /* the event after which its content is there, base64; owned; NULL: it
                    is there */
    int64_t created_ms, ttl_ms;
    struct gb_deadline deadline; /* of ttl_ms */

    uint64_t first_segment, first_offset; /* of its first buffer that has bytes; 0: none */

    /* The unchanging part of replies about it, rendered once: members without braces. Up to
       `head_length` name, version, label and device; up to `brief_length` all but the layout
       (lists, events); then `,"layout":{…}`. NULL until it is rendered. */
    char *text;
    const char *label; /* as JSON: in the text, or what the next text will have; NULL: none */
    size_t label_length;
    uint32_t head_length, brief_length;
    size_t text_length;

    size_t name_length;
    char name[];
};

struct gb_lease;

struct gb_registry {
    struct gb_store *store;
    struct gb_names names;
    struct gb_hash_table leases;
    uint64_t kept_count;           /* of them: those of a holder that only keeps */
    uint64_t idle_count;           /* and those that are idle: lease.h */
    struct gb_deadlines deadlines; /* of objects with a time to live */
    uint64_t next_version, next_lease;
    struct gb_link walks; /* struct gb_walk: over leases of a holder */
    uint64_t objects;
    uint64_t private_names; /* of objects that not everybody may open */
    struct gb_link orphans; /* that lost their name while memory was sought, and have no lease */
    uint64_t now_ms;        /* the time of this turn, set by the server */
    /* Told after a name has got its object, and just before it loses it. */
    void (*on_event)(void *arg, enum gb_event event, struct gb_object *object);
    void *on_event_arg;
    /* Asks the holder of an idle lease to give it back. */
    void (*recall)(void *arg, struct gb_lease *lease);
    void *recall_arg;
    uint64_t recall_ms; /* that it may take */
};

void gb_registry_init(struct gb_registry *registry, struct gb_store *store);
/* Deletes every object. No lease may be left. */
void gb_registry_end(struct gb_registry *registry);

/* A new, unsealed object over `storage`, whose reference it takes over on success. `owner` is
   charged and referenced, also for its name and what is rendered of it. NULL if memory is out. */
struct gb_object *gb_object_new(struct gb_registry *registry, const char *name, size_t name_length,
                                struct gb_storage *storage, struct gb_user *owner);
/* An object that never got its name and has no lease. */
void gb_object_discard(struct gb_registry *registry, struct gb_object *object);

/* Charges its owner with a layout of `bytes` while it is written; 0: it is written no more. */
void gb_object_charge_unsealed(struct gb_object *object, size_t bytes);

/* The journal's record of a storage is out of date. */
void gb_storage_changed(struct gb_storage *storage);
/* To be called when a copy of it has come or gone. */
void gb_storage_set_clean(struct gb_storage *storage);
/* Its content has come to its device: it gets its place in an order there. */
void gb_storage_enter(struct gb_storage *storage);

/* Memory of a producer's that we have no access to, that of final content, or none at all, stays
   where it is. */
bool gb_storage_can_spill(const struct gb_storage *storage);
/* The object's fate when room is short and nobody holds it: "stays", "spills", "drops". */
const char *gb_object_prospect(const struct gb_object *object);

/*
 * Gives a rendered object its name: `replace` says whether it may take it from another. Of the
 * versions before it as many as it says stay; the others lose the name, without an event of their
 * own. `now_ms` starts its time to live.
 * GPUBUF_E_EXISTS, GPUBUF_E_NO_MEMORY; then nothing has changed.
 */
int gb_registry_publish(struct gb_registry *registry, struct gb_object *object, bool replace,
                        uint64_t now_ms, struct gb_error *error);
/* Takes the name away, saying why; the object goes with its last lease, at once if there is none.
   Older versions of the name go before a current one, but for what is withdrawn: then the newest of
   them is current. */
void gb_registry_unname(struct gb_registry *registry, struct gb_object *object,
                        enum gb_event event);

struct gb_object *gb_registry_find(const struct gb_registry *registry, const char *name,
                                   size_t length);
/* The next of its name's versions, in the order of the ring; NULL: no more. Of a current version,
   and of those that come after one. */
struct gb_object *gb_object_older(const struct gb_object *object);

/* As it was in a daemon before: rendered, with its version, and with the name unless later versions
   have it and do not keep it. The storage has its place. Nobody is told. GPUBUF_E_NO_MEMORY. */
int gb_registry_restore(struct gb_registry *registry, struct gb_object *object, bool named,
                        bool pinned, uint64_t expires_ms);

/* Once all are back: what has lost its name, and is held, is found among its name's versions. */
void gb_registry_restore_held(struct gb_registry *registry, struct gb_object *object);

/* Its content is there, and so is that of its aliases. */
void gb_object_settle(struct gb_object *object);

void gb_object_pin(struct gb_object *object, bool pin);

/* Its name goes so long from now; 0: not by itself any more. GPUBUF_E_NO_MEMORY. */
int gb_object_expire(struct gb_registry *registry, struct gb_object *object, uint64_t ttl_ms,
                     struct gb_error *error);

/* Unnames every object of a storage, saying why. */
void gb_registry_lose(struct gb_registry *registry, struct gb_storage *storage,
                      enum gb_event event);
/* That, to make room: it counts as an eviction. No other storage ends by it, at once. */
void gb_registry_evict(struct gb_registry *registry, struct gb_storage *storage);
/* Ends what lost its name to that, and nobody holds. Not while memory is sought. */
void gb_registry_sweep(struct gb_registry *registry);
/* Unnames every object on a device that is gone. */
void gb_registry_withdraw(struct gb_registry *registry, const struct gb_device *device);
/* Deletes what has outlived its time. */
void gb_registry_expire(struct gb_registry *registry, uint64_t now_ms);

/* Leases as they are told: those that somebody uses. */
uint64_t gb_registry_lease_count(const struct gb_registry *registry);
uint64_t gb_object_lease_count(const struct gb_object *object);

/* ---- for lease.c ---- */

/* An object has got a lease, which keeps its storage from being evicted. */
void gb_object_hold(struct gb_object *object, uint64_t now_ms);
/* It has lost one; without a name it goes with the last. An idle one was no hold any more. */
void gb_object_drop(struct gb_registry *registry, struct gb_object *object, bool idle);
/* One of them has become idle (not `first`: was used in between). */
void gb_object_idle(struct gb_registry *registry, struct gb_object *object, bool first,
                    uint64_t now_ms);
/* One that was idle is in use again. */
void gb_object_resume(struct gb_registry *registry, struct gb_object *object);
/* The name means something else: who keeps leases on it is not to find them any more. */
void gb_object_outdate(struct gb_object *object);

#endif
