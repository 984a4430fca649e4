/*
 * A directory in etcd. Below `root`:
 *
 *     nodes/NODE                 {"host","port"}
 *     names/NAME                 {"node","version","bytes","serial","since"}
 *     copies/NAME@REVISION/NODE  {"version","since"}
 *
 * Each key is under the lease of the node that wrote it, so all of a node's keys end with the node.
 * A revision is the key's mod_revision, which only grows. Publishing is one transaction: the key
 * must be absent, or be the revision that is replaced. So of two nodes that publish one name, one
 * wins in etcd, and the other is told GPUBUF_E_STALE.
 *
 * A node renews its lease every 3 s of 10. If it could not for 8 s, by its own clock, it stops:
 * find, publish and list end with GPUBUF_E_UNAVAILABLE, the objects that it had published are
 * forgotten (events.state says so), and it joins again under a new lease. The lease is its epoch:
 * the node never takes a key under another lease for its own. Known names stay known meanwhile:
 * `knows` goes on.
 *
 * Names are kept in memory by a watch. They are listed anew at every epoch, and if etcd has
 * compacted changes that the watch would have told. Names that are not in memory are asked for in
 * etcd, so an object that was published before `find` began is found. Memory: about 200 bytes a
 * name.
 */
#ifndef GB_PEER_DIRECTORY_ETCD_H
#define GB_PEER_DIRECTORY_ETCD_H

#include "client/peer/directory/directory.h"
#include "client/peer/directory/etcd.h"

struct gb_peer_directory_etcd_settings {
    struct gb_peer_etcd_settings etcd; /* timeout_ms 0: a fifth of the lease */
    const char *root;                  /* NULL: "/gpubufd" */
    const char *node;                  /* letters, digits, '.', '-', '_' */
    const char *host;                  /* where other nodes reach this one */
    uint16_t port;
    unsigned ttl_s; /* of the lease; 0: 10 */
    struct gb_peer_directory_events events;
};

/* Everything is copied. GPUBUF_E_INVALID: a setting, which the sentence names. etcd need not be
   there yet. Ended by the directory's own close, which gives the lease back. */
int gb_peer_directory_etcd_create(uv_loop_t *loop,
                                  const struct gb_peer_directory_etcd_settings *settings,
                                  struct gb_peer_directory **out, struct gb_error *error);

#endif
