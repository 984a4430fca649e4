/*
 * A walk over a list in several parts, between which the list may change. Code that removes an
 * element from such a list calls gb_walks_leave() first, and walks that are at the element step on.
 * Header only.
 */
#ifndef GB_WALK_H
#define GB_WALK_H

#include "proto/base/list.h"

/* A list's walks are kept in a list of their own. */
struct gb_walk {
    struct gb_link of_walks;
    struct gb_link *at; /* the next element, or the head: the end */
};

static inline void gb_walk_begin(struct gb_link *walks, struct gb_walk *walk, struct gb_link *head)
{
    walk->at = gb_list_first(head);
    gb_list_append(walks, &walk->of_walks);
}

/* Does nothing for a walk that never began. */
static inline void gb_walk_end(struct gb_walk *walk)
{
    gb_list_remove(&walk->of_walks);
}

/* To be called before `link` is removed from a list that may be walked over. */
static inline void gb_walks_leave(struct gb_link *walks, const struct gb_link *link)
{
    GB_LIST_EACH(walks, struct gb_walk, walk, of_walks) {
        if (walk->at == link)
            walk->at = link->next;
    }
}

#endif
