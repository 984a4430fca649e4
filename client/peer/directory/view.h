/*
 * A node's view of the names of all nodes: the keys of directory_etcd.h as etcd last told them, in
 * memory. Pure but for malloc; one thread. Strings that come in are copied.
 *
 * A key that cannot be read (another program's, another version's) counts as absent.
 *
 * An entry stays as long as it has a revision, a copy, or state of this node's own.
 * gb_peer_view_tidy frees one that has nothing.
 */
#ifndef GB_PEER_VIEW_H
#define GB_PEER_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/peer/directory/directory.h"
#include "proto/base/list.h"
#include "proto/wire/json.h"

struct gb_peer_view_node {
    const char *name; /* of less than GB_PEER_NODE_BYTES */
    char host[GB_PEER_HOST_BYTES];
    uint16_t port;       /* 0: the node is not there */
    uint64_t generation; /* the listing that told it last */
    size_t references;   /* of entries and copies */
};

struct gb_peer_view_copy {
    struct gb_peer_view_node *node;
    uint64_t revision, version, since_ms, generation;
};

/* The origin's word on a revision. */
struct gb_peer_view_word {
    uint64_t revision;
    struct gb_peer_word word;
};

struct gb_peer_entry {
    const char *name;
    struct gb_peer_view_node *node; /* that has published it; NULL: none */
    uint64_t revision;              /* 0: none */
    uint64_t lease, version, bytes, serial, since_ms, generation;
    struct gb_peer_view_word *word; /* NULL: none is known */
    struct gb_peer_view_copy *copies;
    size_t copy_count;
    /* State of this node: the revision that it has published and not withdrawn (0: none), the
       revision whose word it has written (0: none), its requests to publish under way, and
       whether a request to withdraw is under way. */
    uint64_t published, worded;
    unsigned publishing;
    bool withdrawing;
    struct gb_link lost; /* in the member's list of entries that have lost their revision */
};

struct gb_peer_view {
    void *nodes, *names; /* trees by name (tree.h) */
    size_t name_count;
    uint64_t generation;
};

/* A key and its value as etcd tells them; `key` is without the root. `value` NULL: deleted. */
struct gb_peer_view_key {
    const char *key, *value;
    size_t value_length;
    uint64_t revision, lease;
};

/* Takes a key in, unless the entry is newer. If a name's revision has changed, *changed is its
   entry, which the caller then gives to gb_peer_view_tidy; else NULL. GPUBUF_E_NO_MEMORY. */
int gb_peer_view_apply(struct gb_peer_view *view, const struct gb_peer_view_key *key,
                       struct gb_peer_entry **changed);

/* Begins a listing: the keys taken in until gb_peer_view_listed belong to it. */
void gb_peer_view_list(struct gb_peer_view *view);
/* Ends a listing: forgets what the listing has not told, nodes first. Calls `each` for every name
   that has lost its revision. */
void gb_peer_view_listed(struct gb_peer_view *view,
                         void (*each)(void *user, struct gb_peer_entry *entry), void *user);

/* The entry of a name, made if `make`. NULL: there is none; with `make`, memory is out. */
struct gb_peer_entry *gb_peer_view_entry(struct gb_peer_view *view, const char *name, bool make);
/* Frees the entry if nothing is in it. */
void gb_peer_view_tidy(struct gb_peer_view *view, struct gb_peer_entry *entry);
/* The first entry after that name, or with `at` that name's own if there is one. NULL: there is
   none. */
struct gb_peer_entry *gb_peer_view_next(struct gb_peer_view *view, const char *name, bool at);

/* Calls `each` for every node that is there. */
void gb_peer_view_nodes(struct gb_peer_view *view, gb_peer_machine_cb each, void *user);
/* NULL: the node is not there. */
const struct gb_peer_view_node *gb_peer_view_node(struct gb_peer_view *view, const char *name);

/*
 * Writes up to `most` places of the entry's revision, without `self`: the publisher, in any case,
 * and nodes with a copy. They begin at `start` (any number), so that different readers ask
 * different nodes. Returns how many.
 */
size_t gb_peer_view_places(const struct gb_peer_entry *entry, const char *self, size_t start,
                           struct gb_peer_place *places, size_t most);

/* How many nodes have a copy of the entry's revision. */
size_t gb_peer_view_copies(const struct gb_peer_entry *entry);

/* The next `start`. *state begins with any number, a different one on each machine. */
static inline size_t gb_peer_view_start(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (size_t)(*state >> 33);
}

/* Calls `each` for every entry, in the order of names; it must not free any. */
void gb_peer_view_each(struct gb_peer_view *view, void (*each)(void *entry, void *user),
                       void *user);
void gb_peer_view_end(struct gb_peer_view *view);

#endif
