/*
 * Knows which objects of this machine's daemon are copies, and the revision of each. A copy's label
 * says so, too, and so a peer that starts knows the copies of the one before: an object of its own
 * user whose label ends in "copy of NODE, revision N" is a copy. Nobody else can make one.
 */
#ifndef GB_PEER_COPIES_H
#define GB_PEER_COPIES_H

#include "client/peer/directory.h"

struct gb_peer_copy {
    const char *name;
    uint64_t version; /* here */
    uint64_t revision;
    char origin[GB_PEER_NODE_BYTES];
};

/* Bytes of a copy's label, and of where it is from. */
enum { GB_PEER_COPY_LABEL = 256 };

struct gb_peer_copies {
    void *tree; /* by name (tree.h) */
    size_t count;
};

/* Replaces a copy of the same name. False: out of memory. */
bool gb_peer_copies_add(struct gb_peer_copies *copies, const char *name, uint64_t version,
                        const char *origin, uint64_t revision);
/* The label of a copy: the origin's own (NULL: none), if there is room for it, and the mark. */
void gb_peer_copies_label(char label[GB_PEER_COPY_LABEL], const char *own, const char *origin,
                          uint64_t revision);
/* Reads the mark. False: there is none. `own`: the length of the origin's own label; 0: none. */
bool gb_peer_copies_read(const char *label, char origin[GB_PEER_NODE_BYTES], uint64_t *revision,
                         size_t *own);
const struct gb_peer_copy *gb_peer_copies_find(const struct gb_peer_copies *copies,
                                               const char *name);
void gb_peer_copies_remove(struct gb_peer_copies *copies, const char *name);
void gb_peer_copies_end(struct gb_peer_copies *copies);

#endif
