/*
 * A unix socket at which programs of this machine ask the peer: gpubufctl, the gateway, and the
 * packages for Python and Node. A line of JSON each way, one question after the other:
 *
 *     → {"method":"where","name"}             ← {"node","places":[{"node","host"?,"port"?,"origin",
 *                                                "version","bytes","since"}],"why"?}
 *     → {"method":"list","prefix"?,"after"?}  ← {"node","names":[{"name","node","version","bytes",
 *                                                "since","copies"}],"after"?}
 *     → {"method":"peers"}                    ← {"node","peers":[{"node","host","port"}]}
 *     → {"method":"metrics"}                  ← {"families":[…]}, as the daemon's `stats` has them
 *     or ← {"error":{"kind","message"}}
 *
 * `since` is Unix time in milliseconds, 0 if it is not known. "why" says why other machines could
 * not be asked. "after" is for the next page. Only objects that all users, or the peer's group, may
 * read are in the directory, and the socket has mode 0660 and that group. So nobody is told of a
 * name that he may not open.
 *
 * On the loop's thread.
 */
#ifndef GB_PEER_QUERY_H
#define GB_PEER_QUERY_H

#include <uv.h>

#include "client/peer/base/figures.h"
#include "client/peer/base/parts.h"
#include "client/peer/content/copies.h"
#include "proto/wire/json.h"

struct gb_peer_query;

/* Writes the families of `metrics`. */
typedef void (*gb_peer_metrics_cb)(struct gb_writer *writer, void *user);

/* Replaces a socket at that path that nobody listens at. */
int gb_peer_query_new(struct gb_peer_query **query, const struct gb_peer_parts *parts,
                      gb_peer_metrics_cb families, void *user, struct gb_error *error);
/* To be called before the directory and the client are closed; that ends the questions under way.
   NULL is fine. */
void gb_peer_query_close(struct gb_peer_query *query);

#endif
