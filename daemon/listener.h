/*
 * The socket that the daemon listens on: where it is, that nobody else listens there, and taking
 * over the file that a killed daemon left. No loop, no state.
 */
#ifndef GB_LISTENER_H
#define GB_LISTENER_H

#include "proto/errors.h"

struct gb_listener {
    char *path;  /* owned */
    int fd;      /* listening, non-blocking; -1: none */
    int lock_fd; /* of PATH.lock, held as long as we serve; -1: none */
};

/*
 * Listens on `path` (NULL: the default places), with the socket file's permissions `mode`. A socket
 * that a live process listens on is never taken over (GPUBUF_E_BUSY); one that nobody listens on is
 * replaced.
 */
int gb_listener_open(struct gb_listener *listener, const char *path, unsigned mode,
                     struct gb_error *error);
/* Stops listening and removes the socket and its lock. Fine on one that is not open. */
void gb_listener_close(struct gb_listener *listener);

#endif
