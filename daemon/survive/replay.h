/*
 * Reads an earlier daemon's journal and checks it, before anything is restored from it: the last
 * record of each segment and of each storage with its objects. A record that no daemon can have
 * written is ignored, and logged. A disbelieved segment costs the objects in
 * it, a storage its objects, an object or a copy itself, and nothing else. restore.c finds out
 * whether the memory is there, and free.
 *
 * The loop's thread, at its beginning.
 */
#ifndef GB_REPLAY_H
#define GB_REPLAY_H

#include "daemon/objects/lease.h"
#include "daemon/survive/journal.h"
#include "daemon/survive/notify.h"

struct gb_replayed_segment {
    uint64_t id, bytes;
    enum gb_segment_kind kind;
    enum gb_handle_kind handle;
    uid_t uid;
    struct gb_domain_key key; /* its device is NULL if that is not served any more */
    bool disbelieved;
    bool wanted;                /* a storage lies in it */
    bool taken;                 /* a storage has all of it */
    struct gb_segment *segment; /* NULL until it is restored */
};

struct gb_replayed_placement {
    uint64_t segment, offset, bytes;
    struct gb_range *range; /* NULL until it is restored, or if it is a whole segment */
};

struct gb_replayed_copy {
    bool there;
    uint64_t bytes, where;
    struct gb_copy *copy; /* NULL until it is restored */
};

/* Texts are valid as long as the replay. */
struct gb_replayed_object {
    uint64_t version, line, bytes;
    bool named, pinned, by_session;
    enum gb_evict evict;
    uid_t uid;
    gid_t gid;
    unsigned mode;
    int64_t created_ms, ttl_ms, expires_ms; /* by the wall's clock */
    const char *name, *text;
    size_t name_length, text_length, brief_length;
    uint64_t first_segment, first_offset; /* of its first buffer, by the layout */
    /* Of a live one. */
    uint64_t generation, lease_count;
    const unsigned char *leases; /* for gb_replay_lease() */
    uint64_t roster, front;      /* pages of its stream; 0: none */
    bool torn;                   /* that is */
};

struct gb_replayed_storage {
    uint64_t number;
    bool fleeting; /* it ended with the daemon; the record has only its objects with a name */
    uid_t uid;
    uint64_t charged, size;
    struct gb_domain_key key; /* as above */
    bool adopted, resident;
    bool disbelieved; /* the record is wrong, or all its objects are */
    bool lost;        /* it cannot be restored: disbelieved, without a place, or its device is not
                         served any more. Fleeting: no producer can still write to its range */
    bool amended;     /* an object or a copy was left out */
    unsigned placement_count;
    struct gb_replayed_placement *placements;
    struct gb_replayed_copy copies[GB_TIERS];
    uint64_t object_count;
    struct gb_replayed_object *objects;
    struct gb_storage *storage; /* NULL until it is restored */
};

struct gb_replay {
    struct gb_notify *notify; /* told that the daemon is at work */
    struct gb_device **devices;
    unsigned device_count;
    struct gb_journal_map read; /* what the records point into */
    struct gb_pool pool;        /* of records, and what storages have */
    struct gb_hash_table segment_records, storage_records;
    struct gb_link records; /* of storages, in the order in which they were last written */
    struct gb_link segment_list;
    uint64_t next_segment, next_version, next_number;
    struct gb_replayed_segment *segments; /* by id */
    size_t segment_count;
    struct gb_replayed_storage *storages;
    size_t storage_count; /* in the order in which they were last written */
    uint64_t disbelieved; /* records, objects and copies */
    uint64_t lost;        /* objects that these cost, as far as they can be counted */
    bool torn;            /* a storage may lie, or a producer may write, where no record says so */
};

/*
 * Opens the journal, which takes `fd` over on success, and reads it. GPUBUF_E_NO_MEMORY, and the
 * failures of gb_journal_open(). Also after a failure the caller ends the replay and, if its
 * descriptor is not -1, the journal.
 */
int gb_replay_read(struct gb_replay *replay, struct gb_journal *journal, int fd,
                   struct gb_notify *notify, struct gb_device **devices, unsigned device_count,
                   struct gb_error *error);
void gb_replay_end(struct gb_replay *replay);

/* The i-th lease on a live object. */
struct gb_live_lease gb_replay_lease(const struct gb_replayed_object *object, uint64_t i);
/* The record of a storage as it was written. */
const void *gb_replay_record(const struct gb_replay *replay, uint64_t number, size_t *length);
/* The segment with that id; NULL if the journal has none. */
struct gb_replayed_segment *gb_replay_segment(const struct gb_replay *replay, uint64_t id);

#endif
