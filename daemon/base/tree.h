/*
 * An ordered binary tree through a node in the struct that is listed, kept shallow as a treap: node
 * priorities are random, and no node has a higher priority than its parent. The caller compares
 * keys and descends; this keeps the shape. No recursion, no allocation. Not thread-safe.
 *
 * A node may know something of its subtree, such as a maximum. `update` then sets that from what
 * the node's children know (they are right when it is called), and returns whether it changed; else
 * it is NULL.
 */
#ifndef GB_TREE_H
#define GB_TREE_H

#include <stdbool.h>
#include <stdint.h>

struct gb_tree_node {
    struct gb_tree_node *parent, *left, *right;
    uint64_t priority; /* hard to guess, or an adversary could grow a deep tree */
};

/* A tree is a pointer to its root; NULL is an empty one. */

/* Adds a node, its priority set, at `place`: the empty root, left or right under `parent` where the
   caller's descent ended. */
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
