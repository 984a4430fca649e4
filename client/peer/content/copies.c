#include "client/peer/content/copies.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/peer/base/tree.h"

const struct gb_peer_copy *gb_peer_copies_find(const struct gb_peer_copies *copies,
                                               const char *name)
{
    return gb_peer_tree_find(&copies->tree, name);
}

void gb_peer_copies_remove(struct gb_peer_copies *copies, const char *name)
{
    void *copy = gb_peer_tree_find(&copies->tree, name);

    if (!copy)
        return;
    gb_peer_tree_remove(&copies->tree, copy);
    copies->count--;
}

bool gb_peer_copies_add(struct gb_peer_copies *copies, const char *name, uint64_t version,
                        const char *origin, uint64_t revision)
{
    struct gb_peer_copy *copy;

    gb_peer_copies_remove(copies, name);
    copy = gb_peer_tree_add(&copies->tree, name, sizeof(*copy));
    if (!copy)
        return false;
    copy->version = version;
    copy->revision = revision;
    snprintf(copy->origin, sizeof(copy->origin), "%s", origin);
    copies->count++;
    return true;
}

#define NOTE "copy of %s, revision %" PRIu64

void gb_peer_copies_note(char note[GB_PEER_COPY_NOTE], const char *origin, uint64_t revision)
{
    snprintf(note, GB_PEER_COPY_NOTE, NOTE, origin, revision);
}

bool gb_peer_copies_read(const char *note, char origin[GB_PEER_NODE_BYTES], uint64_t *revision)
{
    char again[GB_PEER_COPY_NOTE];

    if (sscanf(note, "copy of %63[^,], revision %" SCNu64, origin, revision) != 2)
        return false;
    gb_peer_copies_note(again, origin, *revision);
    return strcmp(note, again) == 0;
}

void gb_peer_copies_end(struct gb_peer_copies *copies)
{
    tdestroy(copies->tree, free);
    *copies = (struct gb_peer_copies){0};
}
