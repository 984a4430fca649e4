/*
 * A directory without one: the machines of a list; all are asked. It is for a few
 * machines, 16 at most. The newest revision of a name that one node published counts; two nodes
 * that have published the same name are an error. The revision of an object is its version in the
 * daemon of its origin.
 *
 * A machine that cannot be asked is passed over where another has the name. Else nobody can know.
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

/* `self` is this machine's node, which is left out. `remotes` outlive it. NULL: out of memory. */
struct gb_directory *gb_directory_static(struct gb_remotes *remotes, const struct gb_peer *peers,
                                         size_t count, const char *self);

#endif
