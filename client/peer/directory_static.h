/*
 * A directory that is a fixed list of machines: each name is asked of all of them. It is for a few
 * machines, 16 at most. The newest revision that one node has published counts; if two nodes have
 * published the same name, that is an error. The revision of an object is its version in the daemon
 * of its origin.
 *
 * A machine that cannot be asked is passed over if another has the name; else the answer is
 * GPUBUF_E_UNAVAILABLE.
 */
#ifndef GB_PEER_DIRECTORY_STATIC_H
#define GB_PEER_DIRECTORY_STATIC_H

#include "client/peer/directory.h"
#include "client/peer/remote.h"

enum { GB_PEER_MACHINES_MOST = 16 };

struct gb_peer_machine {
    char node[GB_PEER_NODE_BYTES], host[GB_PEER_HOST_BYTES];
    uint16_t port;
};

/* `self` is this machine's node, which is left out of the list. `remotes` outlive the directory.
   NULL: out of memory. */
struct gb_peer_directory *gb_peer_directory_static(struct gb_peer_remotes *remotes,
                                                   const struct gb_peer_machine *peers,
                                                   size_t count, const char *self);

#endif
