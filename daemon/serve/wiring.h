/*
 * The daemon from its beginning to its end: makes the rooms' structs, and hands functions down to
 * them. The loop's thread.
 */
#ifndef GB_WIRING_H
#define GB_WIRING_H

#include <uv.h>

#include "daemon/serve/server.h"

/* Makes the devices. `config` and `service` must outlive the server. The caller sets `notify` and
   `closer` after this, if there are any. */
int gb_server_init(struct gb_server *server, const struct gb_config *config,
                   const struct gb_service *service, struct gb_error *error);
/* Binds and listens, or takes the socket that the service manager listens on for us, and restores
   the state of an earlier daemon. A failure is a sentence for the person who started the daemon. */
int gb_server_listen(struct gb_server *server, uv_loop_t *loop, struct gb_error *error);
/* Runs until SIGTERM or SIGINT, or SIGHUP if a service manager keeps the state; then ends every
   session. True: the manager should start a successor. */
bool gb_server_run(struct gb_server *server);
/* Frees everything, and removes the socket. Fine after any of the above failed. */
void gb_server_end(struct gb_server *server);

#endif
