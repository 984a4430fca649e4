/*
 * This node as a member of the cluster in etcd: its lease, its key, and its view of all members'
 * keys, which a listing and a watch keep up to date. directory_etcd.h has the keys and the rules.
 *
 *     OUT → JOINING: the old lease is given back, a new one asked for, the key written
 *         → LISTING: all keys are read → IN: a watch tells of changes
 *     LISTING and IN → OUT: the lease could not be renewed in time, or has ended
 *     IN → LISTING: etcd has compacted what the watch would have told
 *
 * One thread, the loop's. The members of the struct are for directory_etcd.c to read; it writes
 * none but the view's entries.
 */
#ifndef GB_PEER_MEMBER_H
#define GB_PEER_MEMBER_H

#include <uv.h>

#include "client/peer/directory/batch.h"
#include "client/peer/directory/view.h"

enum gb_peer_member_state {
    GB_PEER_OUT,
    GB_PEER_JOINING,
    GB_PEER_LISTING,
    GB_PEER_IN,
    GB_PEER_LEAVING
};

/* All are called from the loop only, never inside a function of this header but
   gb_peer_member_leave. */
struct gb_peer_member_events {
    void *user;
    void (*joined)(void *user);            /* the state is GB_PEER_IN */
    void (*left)(void *user, bool forgot); /* it is no more, or again; why: member->why.
                                                            `forgot`: what was under the lease
                                                            goes */
    void (*changed)(void *user, struct gb_peer_entry *entry); /* an entry's revision */
    void (*ticked)(void *user); /* now and then while it is GB_PEER_IN */
    void (*closed)(void *user); /* after gb_peer_member_close: free it */
};

struct gb_peer_member {
    struct gb_peer_etcd *etcd;
    struct gb_peer_batch puts, deletes; /* of names and copies */
    uv_timer_t tick;
    struct gb_peer_member_events events;
    char root[128], node[GB_PEER_NODE_BYTES], host[GB_PEER_HOST_BYTES];
    uint16_t port;
    enum gb_peer_member_state state;
    struct gb_peer_view view;
    struct gb_link lost; /* struct gb_peer_entry: told when all of what is being told has come */
    struct gb_error why; /* not GB_PEER_IN: the reason */
    int64_t ttl_ms;      /* that is asked for */
    uint64_t lease, old_lease; /* 0: none; the old one is to be given back */
    int64_t lease_ms;          /* how long it was given for */
    int64_t renewed_ms;        /* when the renewal was sent that was answered last */
    int64_t asked_ms;          /* when the last one was sent */
    int64_t again_ms;          /* when to join again */
    struct gb_peer_etcd_call *joining, *renewal, *watch;
    bool watching;          /* the watch is set up */
    bool fragmented;        /* more of what is being told comes: names that are lost wait for it */
    int64_t unwatched_ms;   /* since when it is not */
    const char *watched_at; /* the endpoint */
    uint64_t watched;       /* the revision up to which everything is known */
    uint64_t listed;        /* the revision that is being listed; 0: the one of the first page */
};

/* Copies the keys' prefix, this node's name and its host in, or says which one cannot be taken. */
int gb_peer_member_set_texts(struct gb_peer_member *member, const char *root, const char *node,
                             const char *host, struct gb_error *error);
/* Fills in a zeroed struct whose etcd (the batches' as well), events, texts, port and ttl_ms are
   set, and begins to join. */
void gb_peer_member_begin(struct gb_peer_member *member, uv_loop_t *loop);
/* Gives the lease back, if etcd answers soon; events.closed runs when all handles are closed. */
void gb_peer_member_close(struct gb_peer_member *member);

/* Whether it is in, by this moment's clock: the lease may be counted on. */
bool gb_peer_member_is_in(const struct gb_peer_member *member);
/* Ends the epoch because of what another request met. */
void gb_peer_member_leave(struct gb_peer_member *member, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Takes a key in, with its whole name, that etcd had at `revision`. */
void gb_peer_member_apply(struct gb_peer_member *member, const char *key, const char *value,
                          size_t value_length, uint64_t revision, uint64_t lease);
/* The same of what etcd calls a KeyValue, unless the watch has told as much; `gone`: it was
   deleted. */
void gb_peer_member_apply_kv(struct gb_peer_member *member, struct gb_json kv, bool gone,
                             struct gb_pool *pool);

/* ---- parts of requests and answers; `kind` is "/names/" and the like ---- */

void gb_peer_member_write_key(struct gb_writer *writer, const struct gb_peer_member *member,
                              const char *kind, const char *name);
/* RequestOps: one that puts the key, with the value, which is ended, and the lease; one that reads
   it; one that deletes it. */
void gb_peer_member_write_put(struct gb_writer *writer, const struct gb_peer_member *member,
                              const char *kind, const char *name, struct gb_writer *value);
void gb_peer_member_write_range(struct gb_writer *writer, const struct gb_peer_member *member,
                                const char *kind, const char *name);
void gb_peer_member_write_delete(struct gb_writer *writer, const struct gb_peer_member *member,
                                 const char *kind, const char *name);
/* A Compare: the key has that revision; 0: it is absent. */
void gb_peer_member_write_compare(struct gb_writer *writer, const struct gb_peer_member *member,
                                  const char *kind, const char *name, uint64_t revision);
uint64_t gb_peer_member_unix_ms(void); /* the time now, as values have it */
/* The one key that a range has found, or the range of a transaction that failed; absent if none. */
struct gb_json gb_peer_member_found(struct gb_json answer);

#endif
