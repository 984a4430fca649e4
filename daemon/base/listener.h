/*
 * The socket that the daemon listens on: finds its place, makes sure that no other daemon listens
 * there, and replaces the file that a killed daemon left. No loop, no state.
 */
#ifndef GB_LISTENER_H
#define GB_LISTENER_H

#include <stdbool.h>

#include "proto/base/errors.h"

#define GB_LISTENER_BACKLOG 128 /* connections that are not accepted yet */

struct gb_listener {
    char *path;  /* owned */
    int fd;      /* listening, non-blocking; -1: none */
    int lock_fd; /* of PATH.lock, held as long as we serve; -1: none, the socket was handed over */
    bool taken_over; /* the supervisor that has handed it over has ended */
};

/*
 * Listens on `path` (NULL: the default places), with the socket file's permissions `mode`. A socket
 * that a live process listens on is never taken over (GPUBUF_E_BUSY); one that nobody listens on is
 * replaced.
 */
int gb_listener_open(struct gb_listener *listener, const char *path, unsigned mode,
                     struct gb_error *error);
/*
 * Takes `fd`, a socket on which the service manager already listens for us; on failure, too
 * (GPUBUF_E_INVALID: no listening unix stream socket, or elsewhere than at `path`, which may be
 * NULL). The socket's file stays when we stop.
 */
int gb_listener_adopt(struct gb_listener *listener, int fd, const char *path,
                      struct gb_error *error);
/*
 * Makes a socket our own that a supervisor has listened on, which has ended: we remove its files
 * when we stop, and the kernel gives our pid to a daemon that finds it in use.
 */
void gb_listener_take_over(struct gb_listener *listener);
/* Stops listening and removes the socket and its lock. Fine on one that is not open. */
void gb_listener_close(struct gb_listener *listener);

#endif
