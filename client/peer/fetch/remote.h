/*
 * The machines that this one asks: a link to each, made when there is something to ask, and the
 * requests under way on it. Every request is answered once: by the other machine, or with a
 * sentence that names it. The latter happens if its link ended, if nothing came from the machine
 * for `patience_ms`, or if the answer did not come within ten minutes. A machine that could not be
 * reached is not tried again for a moment; until then requests fail at once. They fail with
 * GPUBUF_E_CLOSED if there was no connection, and a later one may come about.
 *
 * Large chunks come by side links, so that a small object waits for none of them on a slow network:
 * by one, and by several, with a thread for each (link.h), while many are asked for. If one fails,
 * its chunks are asked for anew over the first link.
 *
 * Callbacks are never called before the function that takes them returns. On the loop's thread.
 */
#ifndef GB_PEER_REMOTE_H
#define GB_PEER_REMOTE_H

#include "client/peer/base/parts.h"
#include "client/peer/link/lane.h"
#include "client/peer/link/link.h"

struct gb_peer_remotes;
struct gb_peer_remote;

/* Chunks come by lanes (lane.h) if there is UCX on both machines. If a lane fails, they come over
   the link, and the figures count the failure. NULL: out of memory. */
struct gb_peer_remotes *gb_peer_remotes_new(const struct gb_peer_parts *parts,
                                            unsigned patience_ms);
/* Requests under way are answered with GPUBUF_E_CANCELED, in this call. The remotes are freed in a
   later turn of the loop. */
void gb_peer_remotes_close(struct gb_peer_remotes *remotes);

/* The number of machines that there is a link to. */
unsigned gb_peer_remotes_connected(const struct gb_peer_remotes *remotes);

/* The machine with that node and place. It is freed in a later turn of the loop, unless it has a
   link, a request under way or a hold. NULL: out of memory, or there are too many. */
struct gb_peer_remote *gb_peer_remotes_get(struct gb_peer_remotes *remotes, const char *node,
                                           const char *host, uint16_t port);
void gb_peer_remote_hold(struct gb_peer_remote *remote);
void gb_peer_remote_drop(struct gb_peer_remote *remote);

/* `result` is the JSON text of an answer that is no error. It lives during the call. */
typedef void (*gb_peer_answered_cb)(void *user, int status, const char *result, size_t length,
                                    const struct gb_error *error);
/* False: out of memory, or the remotes are being closed; `callback` is not called then. */
bool gb_peer_remote_ask(struct gb_peer_remote *remote, const char *text, size_t length,
                        gb_peer_answered_cb callback, void *user);

/* Reads a chunk of a lease into `memory`, which must stay until `callback`. On success the memory
   has the bytes, and `land` has been called with `user`, in any thread, and has returned 0.
   GPUBUF_E_PROTOCOL: they have another checksum than they were sent with. */
typedef int (*gb_peer_land_cb)(void *user, struct gb_error *error);
typedef void (*gb_peer_chunk_cb)(void *user, int status, uint64_t chunk,
                                 const struct gb_error *error);
bool gb_peer_remote_read(struct gb_peer_remote *remote, uint64_t lease, uint64_t chunk,
                         void *memory, uint64_t bytes, gb_peer_land_cb land,
                         gb_peer_chunk_cb callback, void *user);

/* Gives a lease back. There is no answer. */
void gb_peer_remote_release(struct gb_peer_remote *remote, uint64_t lease);

/* How often the link was made (0: there is none now). A lease is only valid on the link that
   granted it. */
uint64_t gb_peer_remote_epoch(const struct gb_peer_remote *remote);
const char *gb_peer_remote_text(const struct gb_peer_remote *remote); /* "node (host:port)" */
const char *gb_peer_remote_node(const struct gb_peer_remote *remote);

#endif
