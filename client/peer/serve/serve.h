/*
 * Answers other machines: a listener, and a session for each connection. A session's end ends its
 * leases. Connections of a node, leases and requests have limits. Chunks are sent from where the
 * objects lie, so data in flight takes at most one buffer for each session.
 *
 * On the loop's thread.
 */
#ifndef GB_PEER_SERVE_H
#define GB_PEER_SERVE_H

#include "client/peer/serve/session.h"

struct gb_peer_serve;

int gb_peer_serve_new(struct gb_peer_serve **serve, const struct gb_peer_parts *parts,
                      struct gb_error *error);
void gb_peer_serve_close(struct gb_peer_serve *serve);
unsigned gb_peer_serve_connected(const struct gb_peer_serve *serve);
uint16_t gb_peer_serve_port(const struct gb_peer_serve *serve);

#endif
