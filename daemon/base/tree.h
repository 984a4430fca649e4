/*
 * An ordered binary tree, whose entries embed a node, kept shallow as a treap: priorities of nodes
 * are random, and no node has a higher priority than its parent. The caller compares keys and
 * descends; this module keeps the shape. No recursion, no allocation. Not thread-safe.
 *
 * A node may hold a figure of its subtree, such as a maximum. `update` then computes it from those
 * of the node's children, which are right when it is called, and returns whether it changed. A tree
 * without such figures passes NULL.
 */
#ifndef GB_TREE_H
#define GB_TREE_H

#include <stdbool.h>
#include <stdint.h>

struct gb_tree_node {
    struct gb_tree_node *parent, *left, *right;
    uint64_t priority; /* hard to guess, or a client could make the tree deep */
};

/* A tree is a pointer to its root; NULL is an empty one. */

/* Adds a node, whose priority is set, at `place`, where the caller's descent ended: the empty root,
   or left or right under `parent`. */
void gb_tree_attach(struct gb_tree_node **root, struct gb_tree_node *parent,
                    struct gb_tree_node **place, struct gb_tree_node *node,
                    bool (*update)(struct gb_tree_node *node));
void gb_tree_remove(struct gb_tree_node **root, struct gb_tree_node *node,
                    bool (*update)(struct gb_tree_node *node));

/* The first one in order; NULL if the tree is empty. */
struct gb_tree_node *gb_tree_first(struct gb_tree_node *root);
/* The next one in order; NULL after the last. */
struct gb_tree_node *gb_tree_next(const struct gb_tree_node *node);

#endif
