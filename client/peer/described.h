/*
 * Facts that this machine's daemon tells of an object, and whether other machines may have it: it
 * was put with scope "cluster", or is a copy of such a one; it is sealed and current; and others
 * than its owner and group may read it, or its group is the peer's own and may.
 */
#ifndef GB_DESCRIBED_H
#define GB_DESCRIBED_H

#include "client/peer/copies.h"
#include "proto/json.h"

struct gb_described {
    struct gb_string name, state, device, mode, label, scope;
    uint64_t version, bytes, gid, created_ms;
    struct gb_json layout; /* absent in lists */
};

/* An `object` of an answer. Its strings are in the pool. GPUBUF_E_INVALID. */
int gb_described_read(struct gb_json object, struct gb_pool *pool, struct gb_described *described,
                      struct gb_error *error);

/* The answer to `stat`. */
int gb_described_answer(const char *text, size_t length, struct gb_pool *pool,
                        struct gb_described *described, struct gb_error *error);

/* `copies` NULL: only an object of this machine's own is meant. */
bool gb_described_shared(const struct gb_described *described, const struct gb_copies *copies);

/* Of its mode, what a copy gets: others and the group may read it where they may here. */
unsigned gb_described_mode(const struct gb_described *described);

#endif
