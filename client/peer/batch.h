/*
 * Changes of keys in etcd, many in one transaction, which costs etcd a fraction of as many
 * requests. One transaction of a batch is under way at a time. The changes that come meanwhile
 * wait and make up the next one: so a single change goes at once, and many go as fast as etcd takes
 * them.
 *
 * Each change is an operation of the transaction by itself. A change that depends on a comparison
 * is a transaction within it, and is refused alone. Puts and deletions belong in batches of their
 * own: an etcd that is full refuses every transaction with a put.
 *
 * One thread, the loop's.
 */
#ifndef GB_PEER_BATCH_H
#define GB_PEER_BATCH_H

#include "client/peer/etcd.h"

/* Changes in a transaction. etcd takes 128 operations, and counts those of a transaction within on
   top. */
enum { GB_BATCH_CHANGES = 100 };

struct gb_change;

/* Zeroed but for `etcd`. */
struct gb_batch {
    struct gb_etcd *etcd;
    struct gb_change *waiting, **end; /* in turn */
    struct gb_change *sent;           /* in the transaction under way, in its order; or NULL */
};

/* As gb_etcd_cb. `value`: the answer of a change that is a transaction, absent for others;
   `revision`: of the whole transaction, which the keys that were put have. */
typedef void (*gb_changed_cb)(void *user, int code, struct gb_json value, uint64_t revision,
                              struct gb_pool *pool, const struct gb_error *error);

/* Adds a change of `key`: one of etcd's RequestOp, {"request_txn":{…}} or the like, which is taken
   over. Changes of one key are never in the same transaction, which etcd would refuse. NULL: memory
   is out, or the writer had failed; then no callback runs. The change frees itself after its
   callback. */
struct gb_change *gb_batch_add(struct gb_batch *batch, const char *key, struct gb_writer *operation,
                               gb_changed_cb callback, void *user);
/* Its callback will not run; etcd may do it all the same. NULL is ignored. */
void gb_change_cancel(struct gb_change *change);
/* Frees all changes without their callbacks; the client has been destroyed. */
void gb_batch_end(struct gb_batch *batch);

#endif
