/*
 * The record of a user: its account, and what serving keeps of it, which are descriptors that are
 * yet to be closed, and its turn among users. The loop's thread.
 */
#ifndef GB_SERVED_H
#define GB_SERVED_H

#include "daemon/store/user.h"

/* Descriptors that a user has sent and that are yet to be closed: closer.h. */
struct gb_foreign {
    struct gb_link of_closer;
    struct gb_charge charge; /* its user has a reference while there are any; NULL: nobody's */
    int *fds;                /* a queue: `count` from `first` on; owned */
    unsigned first, count, capacity;
    bool in_hand; /* a closer is closing one more */
};

struct gb_served {
    struct gb_user user;
    /* Received descriptors, and ended connections, that are yet to be closed; both in held_fds. */
    struct gb_foreign received, ended;
    /* Its busy sessions, its draining ones, and its place among users. */
    struct gb_link busy, draining, turn;
    bool drains; /* its next turn is a draining session's */
    /* Its sessions with watches: those that were sent all news, and the others, which are sent them
       in its turn. And its place among users with watches. */
    struct gb_link told, untold, watching;
    /* Its requests to be tried again: struct gb_wait. And its place among users with such. */
    struct gb_link woken, waking;
};

static inline struct gb_served *gb_served(const struct gb_user *user)
{
    return GB_CONTAINER(user, struct gb_served, user);
}

static inline bool gb_served_is_busy(const struct gb_served *served)
{
    return !gb_list_empty(&served->busy) || !gb_list_empty(&served->draining) ||
           !gb_list_empty(&served->untold);
}

#endif
