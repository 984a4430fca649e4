/*
 * Trees of tsearch. All that are by name are of structs whose first member is the name, a `const
 * char *`; one that gb_peer_tree_add makes lies in one block with its name, which free() frees.
 */
#ifndef GB_PEER_TREE_H
#define GB_PEER_TREE_H

#include <search.h>
#include <stdlib.h>
#include <string.h>

static inline int gb_peer_tree_compare(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* NULL: there is none of that name. */
static inline void *gb_peer_tree_find(void *const *tree, const char *name)
{
    void *place = tfind(&name, tree, gb_peer_tree_compare);

    return place ? *(void **)place : NULL;
}

/* Adds a zeroed struct of `size` bytes with that name, which is not in the tree. NULL: memory is
   out. */
static inline void *gb_peer_tree_add(void **tree, const char *name, size_t size)
{
    size_t length = strlen(name) + 1;
    char *item = calloc(1, size + length);

    if (!item)
        return NULL;
    *(const char **)(void *)item = memcpy(item + size, name, length);
    if (tsearch(item, tree, gb_peer_tree_compare))
        return item;
    free(item);
    return NULL;
}

static inline void gb_peer_tree_remove(void **tree, void *item)
{
    tdelete(item, tree, gb_peer_tree_compare);
    free(item);
}

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

/* Visits all items, in order. The visitor must not change the tree. */
static inline void gb_peer_tree_each(const void *tree, void (*each)(void *item, void *user),
                                     void *user)
{
    twalk_r(tree, gb_peer_tree_node, &(struct gb_peer_tree_visit){each, user});
}

#endif
