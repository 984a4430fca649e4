/*
 * An earlier daemon's journal, read and checked, before anything is made of it: the last
 * word on each segment and storage, with the storage's objects. A record that no daemon can have
 * written is not believed: it has a line in the log and costs what it is about (a segment what lies
 * in it, a storage its objects, an object or a copy itself), and nothing else. Whether the memory
 * is there, and free where it is said to lie, is for restore.c to see.
 *
 * The loop's thread, at its beginning.
 */
#ifndef GB_REPLAY_H
#define GB_REPLAY_H

#include "daemon/objects/registry.h"
#include "daemon/survive/journal.h"

struct gb_replayed_segment {
    uint64_t id, bytes;
    enum gb_segment_kind kind;
    enum gb_handle_kind handle;
    uid_t uid;
    struct gb_domain_key key; /* its device is NULL where it is served no more */
    bool disbelieved;
    bool wanted;                /* a storage lies in it */
    bool taken;                 /* as a whole, by a storage */
    struct gb_segment *segment; /* once it is there */
};

struct gb_replayed_placement {
    uint64_t segment, offset, bytes;
    struct gb_range *range; /* once it is taken */
};

struct gb_replayed_copy {
    bool there;
    uint64_t bytes, where;
    struct gb_copy *copy; /* once it is there */
};

/* Texts are valid as long as the replay. */
struct gb_replayed_object {
    uint64_t version, bytes;
    bool named, pinned, by_session;
    enum gb_evict evict;
    uid_t uid;
    gid_t gid;
    unsigned mode;
    int64_t created_ms, ttl_ms, expires_ms; /* by the wall's clock */
    const char *name, *text;
    size_t name_length, text_length, brief_length;
    uint64_t first_segment, first_offset; /* where its first buffer lies, as the layout says */
};

struct gb_replayed_storage {
    uint64_t number;
    bool fleeting; /* it went with the daemon; of its objects only those with a name are there */
    uid_t uid;
    uint64_t charged, size;
    struct gb_domain_key key; /* as above */
    bool adopted, resident;
    bool disbelieved; /* it has no object that could be */
    bool lost;        /* that, or it has no place, or its device is served no more; fleeting: nobody
                         can be writing to a range of what was restored */
    bool amended;     /* an object or a copy was left out */
    unsigned placement_count;
    struct gb_replayed_placement *placements;
    struct gb_replayed_copy copies[GB_TIERS];
    uint64_t object_count;
    struct gb_replayed_object *objects;
    struct gb_storage *storage; /* once it is there */
};

struct gb_replay {
    struct gb_device **devices;
    unsigned device_count;
    struct gb_hash_table segment_records, storage_records;
    struct gb_link records; /* of storages, in the order in which they were last written */
    struct gb_link segment_list;
    uint64_t next_segment, next_version, next_number;
    struct gb_replayed_segment *segments; /* by id */
    size_t segment_count;
    struct gb_replayed_storage *storages;
    size_t storage_count; /* in the order in which they were last written */
    uint64_t disbelieved; /* records, objects and copies */
    uint64_t lost;        /* objects by that, as far as they can be counted */
};

/*
 * Opens the journal, which takes `fd` over on success. GPUBUF_E_NO_MEMORY, and the failures of
 * gb_journal_open(). The caller ends both the replay and, where
 * its descriptor is not -1, the journal, also after a failure.
 */
int gb_replay_read(struct gb_replay *replay, struct gb_journal *journal, int fd,
                   struct gb_device **devices, unsigned device_count, struct gb_error *error);
void gb_replay_end(struct gb_replay *replay);

/* NULL: it is not known. */
struct gb_replayed_segment *gb_replay_segment(const struct gb_replay *replay, uint64_t id);

#endif
