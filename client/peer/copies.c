#include "client/peer/copies.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/peer/tree.h"

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

#define MARK "copy of "
#define BEFORE_MARK ", "

void gb_peer_copies_label(char label[GB_PEER_COPY_LABEL], const char *own, const char *origin,
                          uint64_t revision)
{
    int length = own ? snprintf(label, GB_PEER_COPY_LABEL, "%s" BEFORE_MARK, own) : 0;
    int room = length < GB_PEER_COPY_LABEL ? GB_PEER_COPY_LABEL - length : 0;

    if (snprintf(room ? label + length : NULL, (size_t)room, MARK "%s, revision %" PRIu64, origin,
                 revision) >= room)
        gb_peer_copies_label(label, NULL, origin, revision);
}

bool gb_peer_copies_read(const char *label, char origin[GB_PEER_NODE_BYTES], uint64_t *revision,
                         size_t *own)
{
    const char *mark = NULL, *next = label;
    size_t before = strlen(BEFORE_MARK);
    int end = 0;

    while ((next = strstr(next, MARK)))
        mark = next++;
    if (!mark ||
        sscanf(mark, MARK "%63[^,], revision %" SCNu64 "%n", origin, revision, &end) != 2 ||
        mark[end])
        return false;
    if (mark != label &&
        ((size_t)(mark - label) < before || strncmp(mark - before, BEFORE_MARK, before) != 0))
        return false;
    *own = mark == label ? 0 : (size_t)(mark - label) - before;
    return true;
}

void gb_peer_copies_end(struct gb_peer_copies *copies)
{
    tdestroy(copies->tree, free);
    *copies = (struct gb_peer_copies){0};
}
