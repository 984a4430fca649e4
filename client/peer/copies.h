/*
 * Knows which objects of this machine's daemon are copies, and the revision of each. The table
 * lasts as long as the peer: afterwards the copies are ordinary objects, and are not served to
 * other machines.
 */
#ifndef GB_COPIES_H
#define GB_COPIES_H

#include "client/peer/directory.h"

struct gb_copy {
    struct gb_copy *next;
    uint64_t version; /* here */
    uint64_t revision;
    char origin[GB_NODE_BYTES];
    char name[];
};

struct gb_copies {
    struct gb_copy *buckets[4096];
    size_t count;
};

/* Replaces a copy of the same name. False: out of memory. */
bool gb_copies_add(struct gb_copies *copies, const char *name, uint64_t version, const char *origin,
                   uint64_t revision);
const struct gb_copy *gb_copies_find(const struct gb_copies *copies, const char *name);
void gb_copies_remove(struct gb_copies *copies, const char *name);
void gb_copies_end(struct gb_copies *copies);

#endif
