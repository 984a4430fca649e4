/*
 * Points at which a test has the daemon die: wherever what outlives it (state.h) is between two
 * steps. Only a build with GB_FAILPOINTS has them; in any other they are nothing at all.
 *
 * The environment's GPUBUFD_FAILPOINTS names a file of at least GB_FAILPOINT_BYTES that is shared
 * with the test: words of eight octets, which are counted, armed and fired by anybody at any time.
 * The daemon that comes next finds the point disarmed, so that it dies once.
 *
 * Any thread's.
 */
#ifndef GB_FAILPOINT_H
#define GB_FAILPOINT_H

#include <stdbool.h>

/* In the order of the words. tests/soak reads this list. X(name, what has just been done) */
#define GB_FAILPOINT_MAP(X)                                                                        \
    X(STORE_BEGIN, "a descriptor is about to be sent to the manager")                              \
    X(STORE_DONE, "it was sent; no record says so yet")                                            \
    X(UNSTORE_BEGIN, "the manager is about to be told to forget a descriptor")                     \
    X(UNSTORE_DONE, "it was told")                                                                 \
    X(APPEND_BEGIN, "a record is about to be written")                                             \
    X(APPEND_TORN, "half of it is written")                                                        \
    X(APPEND_DONE, "all of it is written; nobody has been answered")                               \
    X(COMPACT_BEGIN, "the journal is to be written anew")                                          \
    X(COMPACT_WRITTEN, "the new one is written; the manager has the former")                       \
    X(COMPACT_KEPT, "the manager has both")                                                        \
    X(COMPACT_DONE, "the manager was told to forget the former")                                   \
    X(SEGMENT_MADE, "a segment was made; nobody keeps it")                                         \
    X(SEGMENT_GONE, "a record says that a segment is gone; the manager keeps it")                  \
    X(SEGMENT_DESTROYED, "its memory was given back")                                              \
    X(PUBLISH_BEGIN, "an object is about to get its name")                                         \
    X(PUBLISH_NAMED, "it has it; the former object of that name has not lost it yet")              \
    X(PUBLISH_DONE, "both is recorded; nobody has been answered")                                  \
    X(OLDER_GONE, "an older version has lost its name, for a later one or with it")                \
    X(UNNAME_DONE, "an object has lost its name")                                                  \
    X(OUT_BEGIN, "a copy in a tier is about to be made")                                           \
    X(OUT_COPIED, "the content was copied; the loop does not know")                                \
    X(OUT_TAKEN, "the copy is whole, and not recorded yet; the content is also where it was")      \
    X(VACATE_BEGIN, "a storage is about to leave its device")                                      \
    X(VACATE_DONE, "it has left it; nobody has been told")                                         \
    X(DOWN_TAKEN, "a copy of the host tier is on disk, too")                                       \
    X(FORGET_DONE, "a copy that was not needed is no more")                                        \
    X(IN_BEGIN, "content is about to be copied back to its device")                                \
    X(IN_COPIED, "it was copied; the loop does not know")                                          \
    X(IN_DONE, "it is recorded to be there")                                                       \
    X(FILE_CREATED, "a spill file has its name and nothing in it")                                 \
    X(FILE_FINISHED, "a spill file is whole")                                                      \
    X(FILE_REMOVE, "a spill file is about to be removed")                                          \
    X(FILE_REMOVED, "it was removed")                                                              \
    X(RESTORE_READ, "the journal is read")                                                         \
    X(RESTORE_SEGMENTS, "descriptors are segments again")                                          \
    X(RESTORE_DONE, "everything is as it was")                                                     \
    X(CLEAN_DONE, "files that nothing lies in are removed")                                        \
    X(DROP_DONE, "the manager was told to forget what nobody knows")                               \
    X(READY_DONE, "the manager was told that we serve")                                            \
    X(RESUME_BEGIN, "a client is about to get its leases back")                                    \
    X(RESUME_LEASE, "it has got one of them")                                                      \
    X(RESUME_DONE, "it has got them; it has not been answered")                                    \
    X(GRACE_BEGIN, "the grace period is over; what it held is still held")                         \
    X(GRACE_DONE, "it is given back")                                                              \
    X(HAND_OVER_BEGIN, "the daemon is to hand over")                                               \
    X(HAND_OVER_TOLD, "its clients were told")                                                     \
    X(HAND_OVER_DONE, "it has let go of everything but its process")

enum gb_failpoint {
#define GB_FAILPOINT_ENUM(name, done) GB_FAILPOINT_##name,
    GB_FAILPOINT_MAP(GB_FAILPOINT_ENUM)
#undef GB_FAILPOINT_ENUM
        GB_FAILPOINTS_COUNT
};

enum gb_failpoint_word {
    GB_FAILPOINT_ARMED,     /* 1 + which one; 0: none */
    GB_FAILPOINT_COUNTDOWN, /* how many times it is passed until it fires: 1 is the next time */
    GB_FAILPOINT_FIRED,     /* how often any did */
    GB_FAILPOINT_END_GRACE, /* 1: all who had leases have come, so let the grace period be over */
    GB_FAILPOINT_HITS = 8,  /* from here on: how often each was passed */
};

#define GB_FAILPOINT_BYTES 1024

#define GB_FAILPOINT(point) gb_failpoint(GB_FAILPOINT_##point)

#ifdef GB_FAILPOINTS

/* Maps the file, if there is one. Once, before there are threads. */
void gb_failpoints_begin(void);
/* Kills the process if `point` is armed and it is its turn. */
void gb_failpoint(enum gb_failpoint point);
/* Whether it will do so when `point` is passed next, unless the test changes its mind. */
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
