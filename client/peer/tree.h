/* Visits all items of a tree of tsearch, in order. The visitor must not change the tree. */
#ifndef GB_PEER_TREE_H
#define GB_PEER_TREE_H

#include <search.h>

struct gb_peer_tree_visit {
    void (*each)(void *item, void *user);
    void *user;
};

static inline void gb_peer_tree_node(const void *node, VISIT which, void *user)
{
    const struct gb_peer_tree_visit *visit = user;

    if (which == postorder || which == leaf)
        visit->each(*(void *const *)node, visit->user);
}

static inline void gb_peer_tree_each(const void *tree, void (*each)(void *item, void *user),
                                     void *user)
{
    twalk_r(tree, gb_peer_tree_node, &(struct gb_peer_tree_visit){each, user});
}

#endif
