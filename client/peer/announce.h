/*
 * Tells etcd which copies this machine has, so that others find them: keys below "/copies/", under
 * the member's lease. One thread, the loop's.
 *
 * There is one request at a time about a key. Two would travel on connections of their own, and
 * etcd could take the later one first.
 */
#ifndef GB_PEER_ANNOUNCE_H
#define GB_PEER_ANNOUNCE_H

#include "client/peer/member.h"

struct gb_announcer {
    struct gb_member *member;
    void *notes; /* what etcd is being told: a tree of tsearch */
    bool unsent; /* the tick has to send some of them */
};

/* This machine's daemon has a copy of that revision as `version`, or no more (version 0). */
void gb_announce_copy(struct gb_announcer *announcer, const char *name, uint64_t revision,
                      uint64_t version);
/* Sends again what has failed and must not be left. */
void gb_announce_tick(struct gb_announcer *announcer);
/* Ends all requests: the keys have gone with the lease, or nothing may be asked any more. */
void gb_announce_forget(struct gb_announcer *announcer);

#endif
