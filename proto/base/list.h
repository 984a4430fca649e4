/*
 * Doubly linked lists through a member of the struct that is listed. A head is a link of its own. A
 * zeroed head is an empty list, and a zeroed link is in none. Header only, no allocation.
 */
#ifndef GB_LIST_H
#define GB_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct gb_link {
    struct gb_link *prev, *next;
};

#define GB_CONTAINER(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

/* An empty list, or a ring of one link. */
static inline void gb_list_init(struct gb_link *head)
{
    head->prev = head->next = head;
}

static inline bool gb_list_empty(const struct gb_link *head)
{
    return head->next == head || !head->next;
}

static inline bool gb_list_linked(const struct gb_link *link)
{
    return link->next && link->next != link;
}

/* From a head: the first link, and the last; the head itself if there is none. */
static inline struct gb_link *gb_list_first(const struct gb_link *head)
{
    return head->next ? head->next : (struct gb_link *)head;
}

static inline struct gb_link *gb_list_last(const struct gb_link *head)
{
    return head->prev ? head->prev : (struct gb_link *)head;
}

/* To the end of a list, or before another link. */
static inline void gb_list_append(struct gb_link *head, struct gb_link *link)
{
    if (!head->next)
        gb_list_init(head);
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}

/* To the beginning of a list, or after another link. */
static inline void gb_list_prepend(struct gb_link *head, struct gb_link *link)
{
    if (!head->next)
        gb_list_init(head);
    gb_list_append(head->next, link);
}

static inline void gb_list_remove(struct gb_link *link)
{
    if (!gb_list_linked(link))
        return;
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->prev = link->next = link;
}

/* Moves all of `from` to the end of `to`. */
static inline void gb_list_move(struct gb_link *from, struct gb_link *to)
{
    if (gb_list_empty(from))
        return;
    if (!to->next)
        gb_list_init(to);
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    gb_list_init(from);
}

/* The first of the structs that a list is of, by the member that links them; NULL: none. */
#define GB_LIST_FIRST(head, type, member)                                                          \
    (gb_list_empty(head) ? NULL : GB_CONTAINER((head)->next, type, member))

/* Walks the structs that a list is of, by the member that links them. The current one may be
   removed meanwhile, but not the next one. */
#define GB_LIST_EACH(head, type, item, member)                                                     \
    for (type *item = GB_CONTAINER(gb_list_first(head), type, member),                             \
              *item##_next = GB_CONTAINER(gb_list_first(&item->member), type, member);             \
         &item->member != (head); item = item##_next,                                              \
              item##_next = GB_CONTAINER(gb_list_first(&item->member), type, member))

#endif
