/*
 * A directory that is a fixed list of machines: each name is asked of all of them. It is for a few
 * machines, 16 at most. The newest revision that one node has published counts; if two nodes have
 * published the same name, that is an error. The revision of an object is its version in the daemon
 * of its origin.
 *
 * A machine that cannot be asked is passed over if another has the name; else the answer is
 * GB_UNAVAILABLE.
 */
#ifndef GB_DIRECTORY_STATIC_H
#define GB_DIRECTORY_STATIC_H

#include "client/peer/directory.h"
#include "client/peer/remote.h"

enum { GB_PEERS_MOST = 16 };

struct gb_peer {
    char node[GB_NODE_BYTES], host[GB_HOST_BYTES];
    uint16_t port;
};

/* `self` is this machine's node, which is left out of the list. `remotes` outlive the directory.
   NULL: out of memory. */
struct gb_directory *gb_directory_static(struct gb_remotes *remotes, const struct gb_peer *peers,
                                         size_t count, const char *self);

#endif
