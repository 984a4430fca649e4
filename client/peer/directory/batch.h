/*
 * Changes of keys in etcd, many in one transaction, which costs etcd a fraction of as many
 * requests. One transaction of a batch is under way at a time. The changes that come meanwhile
 * wait and make up the next one: so a single change goes at once, and many go as fast as etcd takes
 * them.
 *
 * A change may depend on a comparison. The transaction is first asked for with the comparisons of
 * all. If one does not hold, nothing is done, and it is asked for again with each change as a
 * transaction within: then each is done or refused by itself. The first form costs etcd half as
 * much, and mostly no comparison fails.
 *
 * Puts and deletions belong in batches of their own: an etcd that is full refuses every transaction
 * with a put.
 *
 * One thread, the loop's.
 */
#ifndef GB_PEER_BATCH_H
#define GB_PEER_BATCH_H

#include "client/peer/directory/etcd.h"
#include "proto/base/list.h"

enum {
    /* Changes in a transaction. etcd takes 128 operations, and counts those of a transaction within
       on top. */
    GB_PEER_BATCH_CHANGES = 100,
    GB_PEER_CHANGE_REFUSED = 1, /* a change's outcome: its comparison did not hold */
};

struct gb_peer_change;

/* Zeroed but for `etcd`. */
struct gb_peer_batch {
    struct gb_peer_etcd *etcd;
    struct gb_link waiting; /* struct gb_peer_change, in turn */
    struct gb_link sent;    /* those in the transaction under way, in its order */
    bool apart;             /* each of them is a transaction within */
};

/* As gb_peer_etcd_cb. `code` 0: the change is done; `revision` is that of the transaction, which
   keys that were put have. GB_PEER_CHANGE_REFUSED: `value` is the answer of its own transaction. */
typedef void (*gb_peer_changed_cb)(void *user, int code, struct gb_json value, uint64_t revision,
                                   struct gb_pool *pool, const struct gb_error *error);

/* A change, as etcd's JSON. The texts are taken over by gb_peer_batch_add. */
struct gb_peer_change_texts {
    struct gb_writer compare;   /* a Compare; empty: it depends on nothing */
    struct gb_writer operation; /* a RequestOp, {"request_put":{…}} or the like */
    struct gb_writer otherwise; /* what is asked where it is refused, a RequestOp; may be empty */
};

/* Adds a change of `key`. Changes of one key are never in the same transaction, which etcd would
   refuse. NULL: memory is out, or a writer had failed; then no callback runs. The change frees
   itself after its callback. */
struct gb_peer_change *gb_peer_batch_add(struct gb_peer_batch *batch, const char *key,
                                         struct gb_peer_change_texts *texts,
                                         gb_peer_changed_cb callback, void *user);
/* Its callback will not run; etcd may do it all the same. NULL is ignored. */
void gb_peer_change_cancel(struct gb_peer_change *change);
/* Frees all changes without their callbacks; the client has been destroyed. */
void gb_peer_batch_end(struct gb_peer_batch *batch);

#endif
