/* Requests under way, watches, and provided prefixes. */
#ifndef GPUBUFD_PENDING_H
#define GPUBUFD_PENDING_H

#include "client/python/src/link.h"

/* One of these. Its end, or the Client's, unlinks and frees it. */
struct pending {
    struct link *link; /* no reference: it must not keep the connection */
    struct pending *previous, *next;
    uint64_t id;
    bool lasting;       /* a watch, or a provided prefix: only this package ends it */
    char *prefix;       /* a provided one; NULL: this is a request or a watch */
    PyObject *callable; /* callable(error or None, result); a watch's: callable(kind, …); a
                           provider's: callable(name or None, request, uid, gid) */
    PyObject *done;     /* of a lasting one's request: callable(error or None, result); or NULL */
};

struct pending *pending_new(struct link *link, PyObject *callable);
void pending_end(struct pending *pending);
/* Ends all of a link's, and cancels requests. With the GIL held, which it gives up in between. */
void pending_end_all(struct link *link);
/* libgpubuf's callbacks; `arg` is the pending. */
void pending_object(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                    void *arg);
void pending_objects(struct gpubuf_client *client, int status, struct gpubuf_object *const *objects,
                     const int *errors, size_t count, void *arg);
void pending_sealed(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                    void *arg);
void pending_call(struct gpubuf_client *client, int status, const char *text, size_t length,
                  void *arg);
void pending_watch(struct gpubuf_client *client, int status, uint64_t watch, void *arg);
void pending_event(struct gpubuf_client *client, const char *kind, const struct gpubuf_info *info,
                   void *arg);
void pending_provided(struct gpubuf_client *client, int status, const char *text, size_t length,
                      void *arg);
void pending_wanted(struct gpubuf_client *client, const struct gpubuf_wanted *wanted, void *arg);
/* [Object or exception]; takes over each object. NULL with an exception raised. */
PyObject *object_list(struct link *link, struct gpubuf_object *const *objects, const int *errors,
                      size_t count);

#endif
