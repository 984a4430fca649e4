/* Client's calls that do not wait: each takes a callback as its last argument, and returns the
   request's number for cancel(). */
#include "client/python/src/async.h"

#include <stdlib.h>
#include <string.h>

#include "client/python/src/link.h"
#include "client/python/src/object.h"
#include "client/python/src/options.h"
#include "client/python/src/pending.h"
#include "client/python/src/reconnect.h"

static void leave(struct link *link)
{
    link_put(link);
}

/* The pending of a request; takes over the reference to the link, which may be NULL. */
static struct pending *begin_on(struct link *link, PyObject *callable, struct link **out)
{
    struct pending *pending = link ? pending_new(link, callable) : NULL;

    if (pending)
        *out = link;
    else if (link)
        leave(link);
    return pending;
}

/* The beginning of each …_async, for its Client. */
static struct pending *begin(PyObject *self, PyObject *callable, struct link **out)
{
    return begin_on(client_enter(self), callable, out);
}

/* The end of each …_async: `status` says whether the request has begun. */
static PyObject *begun(struct link *link, int status, struct pending *pending, uint64_t id)
{
    if (status < 0) {
        raise_status(link, status);
        pending_end(pending);
        leave(link);
        return NULL;
    }
    leave(link);
    return PyLong_FromUnsignedLongLong(id);
}

/* call_async(method, params, callback) -> id */
PyObject *client_call_async(PyObject *self, PyObject *args)
{
    const char *method, *params;
    PyObject *callable;

    if (!PyArg_ParseTuple(args, "szO:call_async", &method, &params, &callable))
        return NULL;
    struct link *link;
    struct pending *pending = begin(self, callable, &link);
    if (!pending)
        return NULL;
    /* The GIL is held, so no callback runs before the id is noted. */
    int status =
        gpubuf_call_async(link->client, method, params, pending_call, pending, &pending->id);
    return begun(link, status, pending, status < 0 ? 0 : pending->id);
}

/* open_async(name, version, wait_ms, label, callback) -> id */
PyObject *client_open_async(PyObject *self, PyObject *args)
{
    const char *name, *label;
    unsigned long long version;
    long long wait_ms;
    PyObject *callable;

    if (!PyArg_ParseTuple(args, "sKLzO:get", &name, &version, &wait_ms, &label, &callable))
        return NULL;
    struct link *link;
    struct pending *pending = begin(self, callable, &link);
    if (!pending)
        return NULL;
    struct gpubuf_open_options options = {
        .size = sizeof(options),
        .version = version,
        .wait_ms = wait_ms,
        .label = label,
    };
    int status =
        gpubuf_open_async(link->client, name, &options, pending_object, pending, &pending->id);
    return begun(link, status, pending, status < 0 ? 0 : pending->id);
}

/* create_async(name, layout, options, callback) -> id */
PyObject *client_create_async(PyObject *self, PyObject *args)
{
    const char *name;
    PyObject *layout_tuple, *options_tuple, *callable;
    struct gpubuf_layout_spec layout;
    struct gpubuf_create_options options;
    struct layout_arena *arena;

    if (!PyArg_ParseTuple(args, "sOOO:create_async", &name, &layout_tuple, &options_tuple,
                          &callable))
        return NULL;
    if (parse_create_options(options_tuple, &options) < 0 ||
        parse_layout(layout_tuple, &layout, &arena) < 0)
        return NULL;
    struct link *link;
    struct pending *pending = begin(self, callable, &link);
    if (!pending) {
        layout_free(arena);
        return NULL;
    }
    int status = gpubuf_create_async(link->client, name, &layout, &options, pending_object, pending,
                                     &pending->id);
    layout_free(arena);
    return begun(link, status, pending, status < 0 ? 0 : pending->id);
}

/* seal_async(object, null_counts, callback) -> id */
PyObject *client_seal_async(PyObject *self, PyObject *args)
{
    PyObject *object, *counts, *callable;

    if (!PyArg_ParseTuple(args, "O!OO:seal_async", object_type, &object, &counts, &callable))
        return NULL;
    struct gpubuf_object *mine = object_use((struct object *)object);
    int64_t *null_counts;
    if (!mine || link_check(((struct client *)self)->link) < 0 ||
        parse_null_counts(counts, mine, &null_counts) < 0)
        return NULL;
    /* On the connection that made the object, which need not be the Client's any more. */
    struct link *link;
    struct pending *pending =
        begin_on(link_enter(((struct object *)object)->link), callable, &link);
    if (!pending) {
        free(null_counts);
        return NULL;
    }
    int status = gpubuf_seal_async(mine, null_counts, pending_sealed, pending, &pending->id);
    free(null_counts);
    return begun(link, status, pending, status < 0 ? 0 : pending->id);
}

/* open_many_async(names, wait_ms, callback) -> id; the result is as of open_many. */
PyObject *client_open_many_async(PyObject *self, PyObject *args)
{
    PyObject *names, *callable;
    long long wait_ms;

    if (!PyArg_ParseTuple(args, "O!LO:open_many_async", &PyTuple_Type, &names, &wait_ms, &callable))
        return NULL;
    const char **texts = parse_names(names);
    struct link *link;
    struct pending *pending = texts ? begin(self, callable, &link) : NULL;
    if (!pending) {
        free(texts);
        return NULL;
    }
    struct gpubuf_open_options options = {.size = sizeof(options), .wait_ms = wait_ms};
    int status = gpubuf_open_many_async(link->client, texts, (size_t)PyTuple_Size(names), &options,
                                        pending_objects, pending, &pending->id);
    free(texts);
    return begun(link, status, pending, status < 0 ? 0 : pending->id);
}

/* register_async(name, parts, layout_json, options, callback) -> id */
PyObject *client_register_async(PyObject *self, PyObject *args)
{
    const char *name, *layout;
    PyObject *parts_tuple, *options_tuple, *callable;
    struct gpubuf_create_options options;

    if (!PyArg_ParseTuple(args, "sO!sOO:register_async", &name, &PyTuple_Type, &parts_tuple,
                          &layout, &options_tuple, &callable) ||
        parse_create_options(options_tuple, &options) < 0)
        return NULL;
    struct gpubuf_part *parts = parse_parts(parts_tuple);
    struct link *link;
    struct pending *pending = parts ? begin(self, callable, &link) : NULL;
    if (!pending) {
        free(parts);
        return NULL;
    }
    int status =
        gpubuf_register_parts_async(link->client, name, parts, (size_t)PyTuple_Size(parts_tuple),
                                    layout, &options, pending_call, pending, &pending->id);
    free(parts);
    return begun(link, status, pending, status < 0 ? 0 : pending->id);
}

/* watch_async(prefix, callback of events, callback) -> id; the result is the watch's number. The
   first callback gets the kind and what gpubuf_info has. */
PyObject *client_watch_async(PyObject *self, PyObject *args)
{
    const char *prefix;
    PyObject *callable, *done;

    if (!PyArg_ParseTuple(args, "zOO:watch_async", &prefix, &callable, &done))
        return NULL;
    struct link *link;
    struct pending *pending = begin(self, callable, &link);
    if (!pending)
        return NULL;
    pending->done = new_ref(done);
    int status = gpubuf_watch_async(link->client, prefix, pending_event, pending_watch, pending,
                                    &pending->id);
    return begun(link, status, pending, status < 0 ? 0 : pending->id);
}

PyObject *client_cancel(PyObject *self, PyObject *id)
{
    unsigned long long request = PyLong_AsUnsignedLongLong(id);
    struct link *link = PyErr_Occurred() ? NULL : client_look(self);

    if (!link)
        return NULL;
    int status;
    WITHOUT_GIL(status = gpubuf_cancel(link->client, request));
    leave(link);
    return PyBool_FromLong(status == 0);
}

/* ---- watching ---- */

static bool is_watch(const struct pending *pending, uint64_t watch)
{
    return pending->lasting && !pending->prefix && pending->id == watch;
}

PyObject *client_unwatch(PyObject *self, PyObject *id)
{
    unsigned long long watch = PyLong_AsUnsignedLongLong(id);
    struct link *link = ((struct client *)self)->link;

    if (PyErr_Occurred())
        return NULL;
    if (!link) /* closed, which ended the watch */
        Py_RETURN_NONE;
    struct pending *pending = link->pending;
    while (pending && !is_watch(pending, watch))
        pending = pending->next;
    if (!pending)
        Py_RETURN_NONE;
    (void)link_get(link);
    WITHOUT_GIL((void)gpubuf_unwatch(link->client, watch));
    for (pending = link->pending; pending; pending = pending->next) {
        if (is_watch(pending, watch)) {
            pending_end(pending);
            break;
        }
    }
    leave(link);
    Py_RETURN_NONE;
}

/* ---- providing ---- */

/* provide_async(prefix, callback of wanted names, callback) -> id */
PyObject *client_provide_async(PyObject *self, PyObject *args)
{
    const char *prefix;
    PyObject *callable, *done;

    if (!PyArg_ParseTuple(args, "sOO:provide_async", &prefix, &callable, &done))
        return NULL;
    struct link *link;
    struct pending *pending = begin(self, callable, &link);
    if (!pending)
        return NULL;
    pending->done = new_ref(done);
    pending->prefix = strdup(prefix);
    int status = GPUBUF_E_NO_MEMORY;
    if (pending->prefix)
        status = gpubuf_provide_async(link->client, prefix, pending_wanted, pending_provided,
                                      pending, &pending->id);
    return begun(link, status, pending, status < 0 ? 0 : pending->id);
}

static struct pending *provided(struct link *link, const char *prefix)
{
    struct pending *pending = link->pending;

    while (pending && !(pending->lasting && pending->prefix && !strcmp(pending->prefix, prefix)))
        pending = pending->next;
    return pending;
}

PyObject *client_provide_end(PyObject *self, PyObject *args)
{
    const char *prefix;
    struct link *link = ((struct client *)self)->link;

    if (!PyArg_ParseTuple(args, "s:provide_end", &prefix))
        return NULL;
    if (!link || !provided(link, prefix)) /* it ended with its connection */
        Py_RETURN_NONE;
    (void)link_get(link);
    WITHOUT_GIL((void)gpubuf_provide_end(link->client, prefix));
    struct pending *pending = provided(link, prefix); /* unless another thread was quicker */
    if (pending)
        pending_end(pending);
    leave(link);
    Py_RETURN_NONE;
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
    leave(link);
    return status < 0 ? NULL : new_ref(Py_None);
}
