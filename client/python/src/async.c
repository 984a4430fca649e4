/* Client's calls that do not wait: each takes a callback as its last argument, and returns the
   request's number for cancel(). */
#include "client/python/src/async.h"

#include <string.h>

#include "client/python/src/link.h"
#include "client/python/src/object.h"
#include "client/python/src/options.h"
#include "client/python/src/pending.h"
#include "client/python/src/reconnect.h"

/* The beginning of each …_async: the pending of a request, with the reference to the link. NULL:
   there is an exception. */
static struct pending *begin_on(struct link *link, PyObject *callable)
{
    struct pending *pending = link ? pending_new(link, callable) : NULL;

    if (link && !pending)
        link_put(link);
    return pending;
}

static struct pending *begin(PyObject *self, PyObject *callable)
{
    return begin_on(client_enter(self), callable);
}

/* The end of each …_async: `status` says whether the request has begun. The GIL is held, so no
   callback runs before its id is noted. */
static PyObject *begun(struct pending *pending, int status)
{
    if (!pending)
        return NULL;
    struct link *link = pending->link;
    PyObject *id = NULL;
    if (status < 0) {
        raise_status(link, status);
        pending_end(pending);
    } else {
        id = PyLong_FromUnsignedLongLong(pending->id);
    }
    link_put(link);
    return id;
}

/* call_async(method, params, callback) -> id */
PyObject *client_call_async(PyObject *self, PyObject *args)
{
    const char *method, *params;
    PyObject *callable;
    int status = 0;

    if (!PyArg_ParseTuple(args, "szO:call_async", &method, &params, &callable))
        return NULL;
    struct pending *pending = begin(self, callable);
    if (pending)
        status = gpubuf_call_async(pending->link->client, method, params, pending_call, pending,
                                   &pending->id);
    return begun(pending, status);
}

/* open_async(name, version, wait_ms, label, write, exclusive, callback) -> id */
PyObject *client_open_async(PyObject *self, PyObject *args)
{
    struct gpubuf_open_options options = {.size = sizeof(options)};
    const char *name;
    unsigned long long version;
    long long wait_ms;
    PyObject *callable;
    int write, exclusive, status = 0;

    if (!PyArg_ParseTuple(args, "sKLzppO:get", &name, &version, &wait_ms, &options.label, &write,
                          &exclusive, &callable))
        return NULL;
    options.version = version;
    options.wait_ms = wait_ms;
    options.write = write;
    options.exclusive = exclusive;
    struct pending *pending = begin(self, callable);
    if (pending)
        status = gpubuf_open_async(pending->link->client, name, &options, pending_object, pending,
                                   &pending->id);
    return begun(pending, status);
}

/* create_async(name, layout, options, callback) -> id */
PyObject *client_create_async(PyObject *self, PyObject *args)
{
    const char *name;
    PyObject *layout_tuple, *options_tuple, *callable;
    struct gpubuf_layout_spec layout;
    struct gpubuf_create_options options;
    struct gb_pool pool = {0};
    int status = 0;

    if (!PyArg_ParseTuple(args, "sOOO:create_async", &name, &layout_tuple, &options_tuple,
                          &callable) ||
        parse_create_options(options_tuple, &options) < 0)
        return NULL;
    bool parsed = parse_layout(layout_tuple, &layout, &pool) == 0;
    struct pending *pending = parsed ? begin(self, callable) : NULL;
    if (pending)
        status = gpubuf_create_async(pending->link->client, name, &layout, &options, pending_object,
                                     pending, &pending->id);
    gb_pool_end(&pool);
    return begun(pending, status);
}

/* seal_async(object, null_counts, callback) -> id */
PyObject *client_seal_async(PyObject *self, PyObject *args)
{
    PyObject *object, *counts, *callable;
    int64_t *null_counts;
    struct gb_pool pool = {0};
    int status = 0;

    if (!PyArg_ParseTuple(args, "O!OO:seal_async", object_type, &object, &counts, &callable))
        return NULL;
    struct gpubuf_object *mine = object_use((struct object *)object);
    if (!mine || link_check(((struct client *)self)->link) < 0 ||
        parse_null_counts(counts, mine, &null_counts, &pool) < 0) {
        gb_pool_end(&pool);
        return NULL;
    }
    /* On the connection that made the object, which need not be the Client's any more. */
    struct pending *pending = begin_on(link_enter(((struct object *)object)->link), callable);
    if (pending)
        status = gpubuf_seal_async(mine, null_counts, pending_sealed, pending, &pending->id);
    gb_pool_end(&pool);
    return begun(pending, status);
}

/* open_many_async(names, wait_ms, callback) -> id; the result is as of open_many. */
PyObject *client_open_many_async(PyObject *self, PyObject *args)
{
    struct gpubuf_open_options options = {.size = sizeof(options)};
    PyObject *names, *callable;
    long long wait_ms;
    struct gb_pool pool = {0};
    int status = 0;

    if (!PyArg_ParseTuple(args, "O!LO:open_many_async", &PyTuple_Type, &names, &wait_ms, &callable))
        return NULL;
    options.wait_ms = wait_ms;
    const char **texts = parse_names(names, &pool);
    struct pending *pending = texts ? begin(self, callable) : NULL;
    if (pending)
        status = gpubuf_open_many_async(pending->link->client, texts, (size_t)PyTuple_Size(names),
                                        &options, pending_objects, pending, &pending->id);
    gb_pool_end(&pool);
    return begun(pending, status);
}

/* register_async(name, ((address, bytes), …), layout_json, options, callback) -> id */
PyObject *client_register_async(PyObject *self, PyObject *args)
{
    const char *name, *layout;
    PyObject *parts_tuple, *options_tuple, *callable;
    struct gpubuf_create_options options;
    struct gb_pool pool = {0};
    int status = 0;

    if (!PyArg_ParseTuple(args, "sO!sOO:register_async", &name, &PyTuple_Type, &parts_tuple,
                          &layout, &options_tuple, &callable) ||
        parse_create_options(options_tuple, &options) < 0)
        return NULL;
    struct gpubuf_part *parts = parse_parts(parts_tuple, &pool);
    struct pending *pending = parts ? begin(self, callable) : NULL;
    if (pending)
        status = gpubuf_register_parts_async(pending->link->client, name, parts,
                                             (size_t)PyTuple_Size(parts_tuple), layout, &options,
                                             pending_call, pending, &pending->id);
    gb_pool_end(&pool);
    return begun(pending, status);
}

/* watch_async(prefix, callback of events, callback) -> id; the result is the watch's number. The
   first callback gets the kind and what gpubuf_info has. */
PyObject *client_watch_async(PyObject *self, PyObject *args)
{
    const char *prefix;
    PyObject *callable, *done;
    int status = 0;

    if (!PyArg_ParseTuple(args, "zOO:watch_async", &prefix, &callable, &done))
        return NULL;
    struct pending *pending = begin(self, callable);
    if (pending) {
        pending->done = new_ref(done);
        status = gpubuf_watch_async(pending->link->client, prefix, pending_event, pending_watch,
                                    pending, &pending->id);
    }
    return begun(pending, status);
}

PyObject *client_cancel(PyObject *self, PyObject *id)
{
    unsigned long long request = PyLong_AsUnsignedLongLong(id);
    struct link *link = PyErr_Occurred() ? NULL : client_look(self);

    if (!link)
        return NULL;
    int status;
    WITHOUT_GIL(status = gpubuf_cancel(link->client, request));
    link_put(link);
    return PyBool_FromLong(status == 0);
}

/* ---- the end of watches and provided prefixes ---- */

/* That of a prefix, or without one the watch of that number; NULL: it has ended. */
static struct pending *find_lasting(const struct link *link, const char *prefix, uint64_t watch)
{
    struct pending *pending = link ? link->pending : NULL; /* without a link it is closed */

    while (pending && !(pending->lasting && !pending->prefix == !prefix &&
                        (prefix ? strcmp(pending->prefix, prefix) == 0 : pending->id == watch)))
        pending = pending->next;
    return pending;
}

static PyObject *end_lasting(PyObject *self, const char *prefix, uint64_t watch)
{
    struct link *link = ((struct client *)self)->link;

    if (!find_lasting(link, prefix, watch))
        Py_RETURN_NONE;
    (void)link_get(link);
    WITHOUT_GIL((void)(prefix ? gpubuf_provide_end(link->client, prefix)
                              : gpubuf_unwatch(link->client, watch)));
    struct pending *pending = find_lasting(link, prefix, watch); /* or another thread was quicker */
    if (pending)
        pending_end(pending);
    link_put(link);
    Py_RETURN_NONE;
}

PyObject *client_unwatch(PyObject *self, PyObject *id)
{
    unsigned long long watch = PyLong_AsUnsignedLongLong(id);

    return PyErr_Occurred() ? NULL : end_lasting(self, NULL, watch);
}

PyObject *client_provide_end(PyObject *self, PyObject *prefix)
{
    const char *text;

    return PyArg_Parse(prefix, "s:provide_end", &text) ? end_lasting(self, text, 0) : NULL;
}

/* ---- providing ---- */

/* provide_async(prefix, callback of wanted names, callback) -> id */
PyObject *client_provide_async(PyObject *self, PyObject *args)
{
    const char *prefix;
    PyObject *callable, *done;
    int status = GPUBUF_E_NO_MEMORY;

    if (!PyArg_ParseTuple(args, "sOO:provide_async", &prefix, &callable, &done))
        return NULL;
    struct pending *pending = begin(self, callable);
    if (pending) {
        pending->done = new_ref(done);
        pending->prefix = strdup(prefix);
    }
    if (pending && pending->prefix)
        status = gpubuf_provide_async(pending->link->client, prefix, pending_wanted,
                                      pending_provided, pending, &pending->id);
    return begun(pending, status);
}

/* decline(request, error, message) */
PyObject *client_decline(PyObject *self, PyObject *args)
{
    const char *message;
    unsigned long long request;
    int error;

    if (!PyArg_ParseTuple(args, "Kis:decline", &request, &error, &message))
        return NULL;
    struct link *link = client_look(self);
    if (!link)
        return NULL;
    int status;
    WITHOUT_GIL(status = gpubuf_decline(link->client, request, error, message));
    if (status < 0)
        raise_status(link, status);
    link_put(link);
    return status < 0 ? NULL : new_ref(Py_None);
}
