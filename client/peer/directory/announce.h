/*
 * This node's own keys in etcd that depend on nothing: which copies it has, and its word on what it
 * has published. They are under the member's lease. One thread, the loop's.
 *
 * There is one request at a time about a key. Two would travel on connections of their own, and
 * etcd could take the later one first.
 */
#ifndef GB_PEER_ANNOUNCE_H
#define GB_PEER_ANNOUNCE_H

#include "client/peer/directory/member.h"

struct gb_peer_announcer {
    struct gb_peer_member *member;
    void *notes; /* what etcd is being told: a tree of tsearch */
    bool unsent; /* the tick has to send some of them */
};

/* The key "KIND NAME@REVISION SUFFIX" is to have the value, which is ended; `value` NULL: the key
   is to be deleted. `kind` is "/copies/" or the like, `suffix` "" or a node with a '/' before. */
void gb_peer_announce(struct gb_peer_announcer *announcer, const char *kind, const char *name,
                      uint64_t revision, const char *suffix, struct gb_writer *value);
/* Sends again what has failed and must not be left. */
void gb_peer_announce_tick(struct gb_peer_announcer *announcer);
/* Ends all requests: the keys have gone with the lease, or nothing may be asked any more. */
void gb_peer_announce_forget(struct gb_peer_announcer *announcer);

#endif
