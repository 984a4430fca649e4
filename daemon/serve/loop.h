/*
 * The turns of the loop, and accepting. The loop's thread.
 *
 * One turn: libuv polls; the callbacks only note which sessions have something to read or room to
 * write; then, before the loop polls again, serve() receives from each once and answers. A session
 * that sends more than can be served in a slice of time continues in later turns, behind the
 * others. After receiving from a session, and before serving it, serve() ends all sessions that
 * have hung up meanwhile. So no request is served while a lease is held by a session whose peer had
 * hung up before the request was sent (docs/PROTOCOL-SPACE.md, promise 1).
 */
#ifndef GB_LOOP_H
#define GB_LOOP_H

#include <uv.h>

#include "daemon/serve/server.h"

/* Starts the loop's handles: the socket, the signals, the turns. */
int gb_loop_start(struct gb_server *server, struct gb_error *error);
/* Sends `most` bytes of output of each session that has some, as long as there is time; the others
   wait for the next turn. */
void gb_loop_flush(struct gb_server *server, size_t most, uint64_t slice_ns);

#endif
