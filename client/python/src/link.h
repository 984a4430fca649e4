/* A connection and its users. */
#ifndef GPUBUFD_LINK_H
#define GPUBUFD_LINK_H

#include "client/python/src/core.h"
#include <stdatomic.h>

struct pending;
struct object;

struct link {
    atomic_int references;
    struct gpubuf_client *client;
    bool closed;             /* by Client.close(): no new calls */
    struct object *objects;  /* those that close() is to release */
    struct pending *pending; /* requests under way and watches */
    struct link *before;     /* an earlier connection with Objects left; a reference */
};

/* Takes over the client; NULL (and the client is disconnected) without memory. */
struct link *link_new(struct gpubuf_client *client);
struct link *link_get(struct link *link);
void link_put(struct link *link); /* any thread, with or without the GIL */

/* A reference for the length of a call, or NULL with Closed raised. */
struct link *link_enter(struct link *link);

/* Raises the exception for a failed call of libgpubuf, with the thread's last message. */
PyObject *raise_status(const struct link *link, int status);
/* Raises an error of the package's; NULL. */
void *raise_error(int status, const char *message);
/* The exception itself; NULL with another one set if there is no memory. */
PyObject *make_error(int status, const char *message);
/* Raises gpubufd.Closed if the link is closed. -1 if so. */
int link_check(const struct link *link);
extern PyObject *error_factory; /* callable(code, kind, message) */

#endif
