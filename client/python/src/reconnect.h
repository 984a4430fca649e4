/*
 * A Client of Python, and the connection for each of its calls. libgpubuf resumes a connection that
 * broke. One that is lost for good (the daemon stopped in order, or did not come back in time) is
 * replaced here by the next call of an open Client. The new connection is another gpubuf_client:
 * the lost one must stay, or the objects opened on it could not be read any more.
 */
#ifndef GPUBUFD_RECONNECT_H
#define GPUBUFD_RECONNECT_H

#include "client/python/src/link.h"

struct client {
    PyObject_HEAD struct link *link; /* NULL once it is closed */
    struct gpubuf_connect_options options;
    char *path, *name;         /* what `options` points to; owned */
    PyObject *start;           /* called while nobody listens, to start a daemon; or NULL; owned */
    int patience_ms;           /* how long after a loss a call waits for a daemon; -1: for ever */
    int64_t lost_at;           /* when the loss was noticed, in ms; 0: it is not lost */
    int64_t seen_at;           /* when the connection was last seen alive, in ms */
    unsigned long connections; /* how often it has connected */
};

/*
 * Connects; where nobody listens calls `start`, and tries again, for at most that long since the
 * connection was lost (-1: for ever). 0, or -1 with an exception.
 */
int client_connect(struct client *self, int patience_ms, struct gpubuf_client **client);

/*
 * A reference, for the length of a call that needs the daemon, to a connection that was alive in
 * the last millisecond. NULL with Closed raised (closed here), ConnectFailed (no daemon answers),
 * or the exception of a signal's handler. With the GIL held, which it gives up in between.
 */
struct link *client_enter(PyObject *client);

/* A reference for a call that needs no daemon: never connects. NULL with Closed raised. */
static inline struct link *client_look(PyObject *client)
{
    return link_enter(((struct client *)client)->link);
}

#endif
