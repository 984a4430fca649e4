/*
 * Names that the daemon asked this peer for and no machine has. With a directory that tells of
 * changes such a request stays open: the name may be made here, or be published elsewhere, while
 * somebody waits. Declined it would end the waiting of all. On the loop's thread.
 */
#ifndef GB_PEER_ABSENT_H
#define GB_PEER_ABSENT_H

#include <stdbool.h>
#include <stdint.h>

struct gb_absent_name {
    struct gb_absent_name *next;
    uint64_t request;
    bool absent;
    char name[];
};

/* A zeroed one is empty. Its length is bounded by how many requests a daemon has open at a
   provider. */
struct gb_absent {
    struct gb_absent_name *first;
};

/* A request has come, whose name may be absent. False: memory is out. */
bool gb_absent_wanted(struct gb_absent *absent, const char *name, uint64_t request);
/* Its name is absent: it may be declined if this returns false. */
bool gb_absent_stays(struct gb_absent *absent, uint64_t request);
/* It is over; 0: all are. */
void gb_absent_over(struct gb_absent *absent, uint64_t request);
/* The name has been made here: its requests are over. */
void gb_absent_made(struct gb_absent *absent, const char *name);
/* One that waits for the name (NULL: for any), which is absent no more; NULL: there is none. */
const struct gb_absent_name *gb_absent_take(struct gb_absent *absent, const char *name);

#endif
