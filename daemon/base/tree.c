#include "daemon/base/tree.h"

#include <stddef.h>

/* Where the pointer to the node lies. */
static struct gb_tree_node **place_of(struct gb_tree_node **root, const struct gb_tree_node *node)
{
    if (!node->parent)
        return root;
    return node->parent->left == node ? &node->parent->left : &node->parent->right;
}

/* Swaps a node with its parent; the order stays. */
static void rotate_up(struct gb_tree_node **root, struct gb_tree_node *node)
{
    struct gb_tree_node *parent = node->parent, *inner;
    struct gb_tree_node **place = place_of(root, parent);

    if (parent->left == node) {
        inner = node->right;
        parent->left = inner;
        node->right = parent;
    } else {
        inner = node->left;
        parent->right = inner;
        node->left = parent;
    }
    if (inner)
        inner->parent = parent;
    node->parent = parent->parent;
    parent->parent = node;
    *place = node;
}

void gb_tree_attach(struct gb_tree_node **root, struct gb_tree_node *parent,
                    struct gb_tree_node **place, struct gb_tree_node *node,
                    bool (*update)(struct gb_tree_node *node))
{
    node->parent = parent;
    node->left = node->right = NULL;
    *place = node;
    while ((parent = node->parent) && parent->priority < node->priority) {
        rotate_up(root, node);
        if (update)
            update(parent);
    }
    if (!update)
        return;
    update(node);
    while (parent && update(parent))
        parent = parent->parent;
}

void gb_tree_remove(struct gb_tree_node **root, struct gb_tree_node *node,
                    bool (*update)(struct gb_tree_node *node))
{
    struct gb_tree_node **place = place_of(root, node);
    struct gb_tree_node *above = node->parent, *parent = above;
    struct gb_tree_node *left = node->left, *right = node->right, *rest;

    /* Zip the two subtrees into one: down the inner edges, the higher priority first. */
    while (left && right) {
        if (left->priority > right->priority) {
            *place = left;
            left->parent = parent;
            parent = left;
            place = &left->right;
            left = left->right;
        } else {
            *place = right;
            right->parent = parent;
            parent = right;
            place = &right->left;
            right = right->left;
        }
    }
    rest = left ? left : right;
    *place = rest;
    if (rest)
        rest->parent = parent;
    node->parent = node->left = node->right = NULL;
    if (!update)
        return;
    for (; parent != above; parent = parent->parent)
        update(parent);
    while (above && update(above))
        above = above->parent;
}

struct gb_tree_node *gb_tree_first(struct gb_tree_node *root)
{
    while (root && root->left)
        root = root->left;
    return root;
}

struct gb_tree_node *gb_tree_next(const struct gb_tree_node *node)
{
    if (node->right)
        return gb_tree_first(node->right);
    while (node->parent && node->parent->right == node)
        node = node->parent;
    return node->parent;
}
