/*
 * Names that the daemon asked this peer for and that no machine has. With a directory that tells of
 * changes such a request stays open: the name may be made here, or be published elsewhere, while a
 * program waits. If the request were declined, all waiting opens would end. So does one that comes
 * before the directory is there at all, for as long as that may take. On the loop's thread.
 */
#ifndef GB_PEER_ABSENT_H
#define GB_PEER_ABSENT_H

#include <stdbool.h>
#include <stdint.h>

struct gb_absent_name {
    struct gb_absent_name *next;
    uint64_t request, uid;
    bool absent;
    char name[];
};

/* A zeroed list is empty. It is no longer than the number of requests that a daemon has open at a
   provider. */
struct gb_absent {
    struct gb_absent_name *first;
};

/* Adds a request, whose name may turn out to be absent. False: memory is out. */
bool gb_absent_wanted(struct gb_absent *absent, const char *name, uint64_t request, uint64_t uid);
/* The name of a request is absent. True: the request stays open; false: the caller declines it. */
bool gb_absent_stays(struct gb_absent *absent, uint64_t request);
/* A request is over; 0: all requests are. */
void gb_absent_over(struct gb_absent *absent, uint64_t request);
/* The name has been made here: all its requests are over. */
void gb_absent_made(struct gb_absent *absent, const char *name);
/* A request whose name (NULL: any) was absent, and is no longer marked so; NULL: there is none. */
const struct gb_absent_name *gb_absent_take(struct gb_absent *absent, const char *name);

#endif
