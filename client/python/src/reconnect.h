/*
 * A Client of Python, and the connection that each of its calls is made on. libgpubuf itself
 * makes a connection anew that broke; one that is lost for good (the daemon stopped in order, or
 * did not come back in time) is replaced here by the next call, as long as the Client is open: by
 * another gpubuf_client, since what the lost one held stays readable with it alone.
 */
#ifndef GPUBUFD_RECONNECT_H
#define GPUBUFD_RECONNECT_H

#include "client/python/src/link.h"

struct client {
    PyObject_HEAD struct link *link; /* NULL once it is closed */
    struct gpubuf_connect_options options;
    char *path, *name;         /* what `options` points to; owned */
    int64_t patience_ms;       /* how long after a loss a call waits for a daemon; -1: for ever */
    int64_t lost_at;           /* when the loss was noticed, in ms; 0: it is not lost */
    int64_t seen_at;           /* in which ms the connection was last seen to be there */
    unsigned long connections; /* how often it has connected */
};

/*
 * A reference for the length of a call that needs the daemon, to a connection that was there a
 * moment ago. NULL with Closed raised (closed here), or ConnectFailed (no daemon is there), or
 * what a signal's handler raised. With the GIL held, which it gives up meanwhile.
 */
struct link *client_enter(PyObject *client);

/* The same for a call that only looks at what there is: never connects. */
static inline struct link *client_look(PyObject *client)
{
    return link_enter(((struct client *)client)->link);
}

#endif
