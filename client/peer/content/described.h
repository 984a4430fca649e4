/*
 * Facts that this machine's daemon tells of an object, and whether other machines may have the
 * object. They may if it was put with scope "cluster", or is a copy of such an object; if it is
 * sealed and current; and if its mode lets all others read it, or its group, which is the peer's
 * own.
 */
#ifndef GB_PEER_DESCRIBED_H
#define GB_PEER_DESCRIBED_H

#include "client/peer/content/copies.h"
#include "gpubuf.h"
#include "proto/wire/json.h"

struct gb_peer_described {
    struct gb_string name, state, device, mode, label, scope;
    struct gb_string ready; /* none: its content is complete */
    uint64_t version, bytes, gid, created_ms;
    struct gb_json layout;
};

/* Asks the daemon for a name's description, by `stat`; 0, or the library's code. */
int gb_peer_described_ask(struct gpubuf_client *client, const char *name, gpubuf_call_cb callback,
                          void *arg);
/* Reads the answer. Its strings are in the pool. GPUBUF_E_INVALID. */
int gb_peer_described_answer(const char *text, size_t length, struct gb_pool *pool,
                             struct gb_peer_described *described, struct gb_error *error);

/* Whether other machines may have it. The second is for an event, which is never of a copy. */
bool gb_peer_described_shared(const struct gb_peer_described *described,
                              const struct gb_peer_copies *copies);
bool gb_peer_described_publishes(const struct gpubuf_info *info);

/* The mode of a copy: others, and the peer's group, may read the copy if they may read the
   object. */
unsigned gb_peer_described_mode(const struct gb_peer_described *described);

#endif
