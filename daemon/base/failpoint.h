/*
 * Points at which a test has the daemon die: each lies between two steps of changing what outlives
 * the daemon (state.h). Only a build with GB_FAILPOINTS has them; in any other they are nothing.
 *
 * The environment's GPUBUFD_FAILPOINTS names a file of at least GB_FAILPOINT_BYTES that is shared
 * with the test. It has words of eight octets, which the test and the daemon read and write at any
 * time. A point that kills is disarmed before, so that the daemon's successor lives.
 *
 * Any thread may pass a point.
 */
#ifndef GB_FAILPOINT_H
#define GB_FAILPOINT_H

#include <stdbool.h>

/* In the order of the words. tests/soak reads this list. X(name, what has just been done) */
#define GB_FAILPOINT_MAP(X)                                                                        \
    X(STORE_BEGIN, "a descriptor is about to be sent to the manager")                              \
    X(STORE_DONE, "a descriptor was sent; no record says so yet")                                  \
    X(UNSTORE_BEGIN, "the manager is about to be told to forget a descriptor")                     \
    X(UNSTORE_DONE, "the manager was told to forget a descriptor")                                 \
    X(APPEND_BEGIN, "a record is about to be written")                                             \
    X(APPEND_TORN, "half of a record is written")                                                  \
    X(APPEND_WRITTEN, "a record is written; the journal's header does not say so yet")             \
    X(APPEND_DONE, "a record is written; the request has not been answered")                       \
    X(COMPACT_BEGIN, "the journal is about to be written anew")                                    \
    X(COMPACT_WRITTEN, "the new journal is written; the manager keeps the former one")             \
    X(COMPACT_KEPT, "the manager keeps both journals")                                             \
    X(COMPACT_DONE, "the manager was told to forget the former journal")                           \
    X(SEGMENT_MADE, "a segment was made; the manager does not keep it yet")                        \
    X(SEGMENT_GONE, "a record says that a segment is freed; the manager still keeps it")           \
    X(SEGMENT_DESTROYED, "a segment's memory was given back")                                      \
    X(PUBLISH_BEGIN, "an object is about to get its name")                                         \
    X(PUBLISH_NAMED, "an object has its name; the former one of that name has not lost it yet")    \
    X(PUBLISH_DONE, "an object's name is recorded; the request has not been answered")             \
    X(OLDER_GONE, "an older version has lost its name, for a later one or with it")                \
    X(UNNAME_DONE, "an object has lost its name")                                                  \
    X(OUT_BEGIN, "a copy in a tier is about to be made")                                           \
    X(OUT_COPIED, "content was copied to a tier; the loop's thread does not know yet")             \
    X(OUT_TAKEN, "the copy is whole, and not recorded yet; the content is on its device, too")     \
    X(VACATE_BEGIN, "a storage is about to leave its device")                                      \
    X(VACATE_DONE, "a storage has left its device, and the record says so; no event does yet")     \
    X(DOWN_TAKEN, "a copy of the host tier is on disk, too")                                       \
    X(FORGET_DONE, "a copy that was not needed is freed")                                          \
    X(IN_BEGIN, "content is about to be copied back to its device")                                \
    X(IN_COPIED, "content was copied back; the loop's thread does not know yet")                   \
    X(IN_DONE, "a record says that the content is on its device")                                  \
    X(FILE_CREATED, "a spill file has its name and nothing in it")                                 \
    X(FILE_FINISHED, "a spill file is whole")                                                      \
    X(FILE_REMOVE, "a spill file is about to be removed")                                          \
    X(FILE_REMOVED, "a spill file was removed")                                                    \
    X(RESTORE_READ, "the journal is read")                                                         \
    X(RESTORE_SEGMENTS, "kept descriptors are segments again")                                     \
    X(RESTORE_DONE, "everything is restored")                                                      \
    X(CLEAN_DONE, "spill files of no copy are removed")                                            \
    X(DROP_DONE, "the manager was told to forget descriptors that no record names")                \
    X(READY_DONE, "the manager was told that the daemon serves")                                   \
    X(RESUME_BEGIN, "a client is about to get its leases back")                                    \
    X(RESUME_LEASE, "a client has got one of its leases back")                                     \
    X(RESUME_DONE, "a client has got its leases back; it has not been answered")                   \
    X(GRACE_BEGIN, "the grace period is over; leases of absent clients are still held")            \
    X(GRACE_DONE, "leases of absent clients are released")                                         \
    X(HAND_OVER_BEGIN, "the daemon is about to hand over")                                         \
    X(HAND_OVER_TOLD, "the clients were told")                                                     \
    X(HAND_OVER_DONE, "the daemon has freed everything; its process is left")

enum gb_failpoint {
#define GB_FAILPOINT_ENUM(name, done) GB_FAILPOINT_##name,
    GB_FAILPOINT_MAP(GB_FAILPOINT_ENUM)
#undef GB_FAILPOINT_ENUM
        GB_FAILPOINTS_COUNT
};

enum gb_failpoint_word {
    GB_FAILPOINT_ARMED,     /* 1 + which one; 0: none */
    GB_FAILPOINT_COUNTDOWN, /* passes until the armed point fires; 1: the next one */
    GB_FAILPOINT_FIRED,     /* how often any point has fired */
    GB_FAILPOINT_END_GRACE, /* 1: end the grace period, since all clients with leases are back */
    GB_FAILPOINT_HITS = 8,  /* the first of one word a point: how often it was passed */
};

#define GB_FAILPOINT_BYTES 1024

#define GB_FAILPOINT(point) gb_failpoint(GB_FAILPOINT_##point)

#ifdef GB_FAILPOINTS

/* Maps the file, if there is one. To be called once, before there are threads. */
void gb_failpoints_begin(void);
/* Kills the process if `point` is armed and it is its turn. */
void gb_failpoint(enum gb_failpoint point);
/* Whether the next pass of `point` kills the process, unless the test disarms it meanwhile. */
bool gb_failpoint_is_next(enum gb_failpoint point);
/* Whether the test has ended the grace period. */
bool gb_failpoint_ends_grace(void);

#else

static inline void gb_failpoints_begin(void)
{
}

static inline void gb_failpoint(enum gb_failpoint point)
{
    (void)point;
}

static inline bool gb_failpoint_is_next(enum gb_failpoint point)
{
    (void)point;
    return false;
}

static inline bool gb_failpoint_ends_grace(void)
{
    return false;
}

#endif

#endif
