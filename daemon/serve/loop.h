/*
 * The daemon from its beginning to its end, and what it does in a turn of its loop. The loop's
 * thread.
 *
 * One turn: libuv polls; the callbacks only note which sessions have something to read or room to
 * write; then, before the loop polls again, serve() receives from each once and answers. A session
 * that sends more than can be served in a slice of time goes on in later turns, behind the others.
 * Between receiving from a session and serving what was received it looks whether another session
 * has ended, and ends that one first: a request is never served while a lease is held by a session
 * that was gone when it was sent (docs/PROTOCOL.md, rule 1).
 */
#ifndef GB_LOOP_H
#define GB_LOOP_H

#include <uv.h>

#include "daemon/serve/server.h"

/* Makes the devices. The server keeps `config` and `service`. The caller sets `notify` and `closer`
   after this, where there are any. */
int gb_server_init(struct gb_server *server, const struct gb_config *config,
                   const struct gb_service *service, struct gb_error *error);
/* Binds and listens, or takes the socket that the service manager listens on for us: a failure is a
   sentence for the person who started us. */
int gb_server_listen(struct gb_server *server, uv_loop_t *loop, struct gb_error *error);
/* Runs until SIGTERM or SIGINT, or SIGHUP where a service manager keeps what outlives us; then ends
   every session and removes the socket. True: to be started again. */
bool gb_server_run(struct gb_server *server);
/* Frees everything; fine after any of the above failed. */
void gb_server_end(struct gb_server *server);

#endif
