/*
 * Knows which objects of this machine's daemon are copies, and the revision of each. The daemon has
 * a note of it with each copy, and so a peer that starts knows the copies of the one before. Nobody
 * but its own user can make such a note, or is told of one.
 */
#ifndef GB_PEER_COPIES_H
#define GB_PEER_COPIES_H

#include "client/peer/directory/directory.h"

struct gb_peer_copy {
    const char *name;
    uint64_t version; /* here */
    uint64_t revision;
    char origin[GB_PEER_NODE_BYTES];
};

enum { GB_PEER_COPY_NOTE = 128 }; /* bytes of a copy's note */

struct gb_peer_copies {
    void *tree; /* by name (tree.h) */
    size_t count;
};

/* Replaces a copy of the same name. False: out of memory. */
bool gb_peer_copies_add(struct gb_peer_copies *copies, const char *name, uint64_t version,
                        const char *origin, uint64_t revision);
/* Writes the note of a copy, and reads one. False: the note says something else. */
void gb_peer_copies_note(char note[GB_PEER_COPY_NOTE], const char *origin, uint64_t revision);
bool gb_peer_copies_read(const char *note, char origin[GB_PEER_NODE_BYTES], uint64_t *revision);
const struct gb_peer_copy *gb_peer_copies_find(const struct gb_peer_copies *copies,
                                               const char *name);
void gb_peer_copies_remove(struct gb_peer_copies *copies, const char *name);
void gb_peer_copies_end(struct gb_peer_copies *copies);

#endif
