#include "client/python/src/client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "client/python/src/arrow.h"
#include "client/python/src/async.h"
#include "client/python/src/follow.h"
#include "client/python/src/link.h"
#include "client/python/src/object.h"
#include "client/python/src/options.h"
#include "client/python/src/pending.h"
#include "client/python/src/progress.h"
#include "client/python/src/reconnect.h"

PyTypeObject *client_type;

/* ---- the life of a Client ---- */

/* Ends requests and watches; with `release_objects` releases the Objects, too. */
static void client_end(struct client *self, bool release_objects)
{
    struct link *link = self->link;

    if (!link)
        return;
    self->link = NULL;
    for (struct link *each = link; release_objects && each; each = each->before) {
        each->closed = true;
        while (each->objects)
            object_drop(each->objects);
    }
    pending_end_all(link);
    WITHOUT_GIL(link_put(link));
}

static void client_dealloc(PyObject *object)
{
    PyObject *kind, *error, *traceback; /* callbacks run here, perhaps with an exception set */

    PyErr_Fetch(&kind, &error, &traceback);
    client_end((struct client *)object, false);
    free(((struct client *)object)->path);
    free(((struct client *)object)->name);
    Py_XDECREF(((struct client *)object)->start);
    PyErr_Restore(kind, error, traceback);
    type_free(object);
}

static char *copy_of(const char *text, bool *failed)
{
    char *copy = text ? strdup(text) : NULL;

    *failed = *failed || (text && !copy);
    return copy;
}

static PyObject *client_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"path",         "name",    "timeout_ms", "cache_bytes", "resume_ms",
                            "cache_leases", "patient", "own_daemon", "start",       NULL};
    struct gpubuf_connect_options options = {.size = sizeof(options), .progress = progress_tell};
    unsigned long long cache_bytes;
    int patient = 1, own = 0;
    PyObject *start = Py_None;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "zziKii|ppO:Client", names, &options.path,
                                     &options.client_name, &options.timeout_ms, &cache_bytes,
                                     &options.resume_ms, &options.cache_leases, &patient, &own,
                                     &start))
        return NULL;
    options.own_daemon = own;
    options.while_listening = start != Py_None;
    options.cache_bytes = cache_bytes;
    struct client *self = type_new(type);
    if (!self)
        return NULL;
    bool failed = false;
    self->options = options;
    self->start = start == Py_None ? NULL : new_ref(start);
    self->options.path = self->path = copy_of(options.path, &failed);
    self->options.client_name = self->name = copy_of(options.client_name, &failed);
    self->patience_ms = !patient ? 0 : options.resume_ms == 0 ? 10000 : options.resume_ms;
    struct gpubuf_client *client = NULL;
    if (failed)
        PyErr_NoMemory();
    if (failed || client_connect(self, start == Py_None ? 0 : options.timeout_ms, &client) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    self->connections = 1;
    self->link = link_new(client);
    if (!self->link) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static PyObject *client_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    client_end((struct client *)self, true);
    Py_RETURN_NONE;
}

/* Ends a call: `result` if it succeeded. */
static PyObject *finish(struct link *link, int status, PyObject *result)
{
    if (status < 0) {
        Py_CLEAR(result);
        raise_status(link, status);
    }
    link_put(link);
    return result;
}

/* ---- blocking, interruptibly ---- */

/* Handles messages that arrive within `timeout_ms`. */
static void receive(struct gpubuf_client *client, int timeout_ms)
{
    struct pollfd fd = {gpubuf_fd(client), gpubuf_events(client), 0};

    (void)poll(&fd, 1, timeout_ms);
    (void)gpubuf_dispatch(client);
}

/*
 * wait(request, outcome): until the request's callback has put its answer into the list. Ctrl-C and
 * Client.close() end it. Another thread may receive the answer, so that this one checks every 20 ms
 * even if it receives nothing.
 */
static PyObject *client_wait(PyObject *self, PyObject *args)
{
    unsigned long long request;
    PyObject *outcome;

    if (!PyArg_ParseTuple(args, "KO!:wait", &request, &PyList_Type, &outcome))
        return NULL;
    if (PyList_Size(outcome) > 0)
        Py_RETURN_NONE;
    struct link *link = client_look(self);
    if (!link)
        return NULL;
    bool canceled = false;
    PyObject *kind = NULL, *error, *traceback; /* of a signal; callbacks run without it */
    while (PyList_Size(outcome) == 0) {
        WITHOUT_GIL(receive(link->client, canceled ? 1 : 20));
        if (!kind && PyErr_CheckSignals() < 0)
            PyErr_Fetch(&kind, &error, &traceback);
        if ((kind || link->closed) && !canceled && PyList_Size(outcome) == 0) {
            WITHOUT_GIL((void)gpubuf_cancel(link->client, request));
            canceled = true;
        }
    }
    link_put(link);
    if (!kind)
        Py_RETURN_NONE;
    PyErr_Restore(kind, error, traceback);
    return NULL;
}

/* ---- methods ---- */

/* call(method, params, timeout_ms) -> str */
static PyObject *client_call(PyObject *self, PyObject *args)
{
    const char *method, *params;
    int timeout_ms;

    if (!PyArg_ParseTuple(args, "szi:call", &method, &params, &timeout_ms))
        return NULL;
    struct link *link = client_enter(self);
    if (!link)
        return NULL;
    char *text = NULL;
    int status;
    WITHOUT_GIL(status = gpubuf_call(link->client, method, params, timeout_ms, &text));
    PyObject *result =
        status < 0 ? NULL : PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
    gpubuf_free(text);
    return finish(link, status, result);
}

/* open(name, version, label); it does not wait for the name. */
static PyObject *client_open(PyObject *self, PyObject *args)
{
    const char *name, *label;
    unsigned long long version;

    if (!PyArg_ParseTuple(args, "sKz:get", &name, &version, &label))
        return NULL;
    struct link *link = client_enter(self);
    if (!link)
        return NULL;
    struct gpubuf_open_options options = {
        .size = sizeof(options),
        .version = version,
        .label = label,
    };
    struct gpubuf_object *object = NULL;
    int status;
    WITHOUT_GIL(status = gpubuf_open(link->client, name, &options, &object));
    return finish(link, status, status < 0 ? NULL : object_wrap(link, object));
}

/* put_array(name, dtype, shape, strides or None, address, options): the version. `address` must
   stay. */
static PyObject *client_put_array(PyObject *self, PyObject *args)
{
    const char *name, *dtype;
    PyObject *shape, *strides, *options_tuple;
    unsigned long long address;
    struct gpubuf_create_options options;
    uint64_t extents[MAX_NDIM];
    int64_t steps[MAX_NDIM];

    if (!PyArg_ParseTuple(args, "ssO!OKO:put", &name, &dtype, &PyTuple_Type, &shape, &strides,
                          &address, &options_tuple) ||
        parse_create_options(options_tuple, &options) < 0)
        return NULL;
    int ndim = parse_extents(shape, extents);
    if (ndim < 0)
        return NULL;
    if (strides != Py_None && PyTuple_Size(strides) != ndim) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "expected as many strides as extents");
        return NULL;
    }
    for (int i = 0; strides != Py_None && i < ndim; i++)
        steps[i] = PyLong_AsLongLong(PyTuple_GetItem(strides, i));
    if (PyErr_Occurred())
        return NULL;
    struct link *link = client_enter(self);
    if (!link)
        return NULL;
    int status;
    uint64_t version = 0;
    options.version = &version;
    WITHOUT_GIL(status = gpubuf_put_array(link->client, name, dtype, (unsigned)ndim, extents,
                                          strides == Py_None ? NULL : steps,
                                          (void *)(uintptr_t)address, &options));
    return finish(link, status, status < 0 ? NULL : PyLong_FromUnsignedLongLong(version));
}

/* put_bytes(name, buffer, options): the version. */
static PyObject *client_put_bytes(PyObject *self, PyObject *args)
{
    const char *name;
    PyObject *exporter, *options_tuple;
    struct gpubuf_create_options options;
    Py_buffer buffer;

    if (!PyArg_ParseTuple(args, "sOO:put_bytes", &name, &exporter, &options_tuple) ||
        parse_create_options(options_tuple, &options) < 0)
        return NULL;
    struct link *link = client_enter(self);
    if (!link)
        return NULL;
    if (PyObject_GetBuffer(exporter, &buffer, PyBUF_SIMPLE) < 0) {
        link_put(link);
        return NULL;
    }
    int status;
    uint64_t version = 0;
    options.version = &version;
    WITHOUT_GIL(status = gpubuf_put_bytes(link->client, name, buffer.len ? buffer.buf : "",
                                          (uint64_t)buffer.len, &options));
    PyBuffer_Release(&buffer);
    return finish(link, status, status < 0 ? NULL : PyLong_FromUnsignedLongLong(version));
}

/* edit(name, version, label): an Object. */
static PyObject *client_edit(PyObject *self, PyObject *args)
{
    struct gpubuf_open_options options = {.size = sizeof(options)};
    struct gpubuf_object *object = NULL;
    const char *name;
    unsigned long long version;
    int status;

    if (!PyArg_ParseTuple(args, "sKzL:edit", &name, &version, &options.label, &options.wait_ms))
        return NULL;
    options.version = version;
    struct link *link = client_enter(self);
    if (!link)
        return NULL;
    WITHOUT_GIL(status = gpubuf_edit(link->client, name, &options, &object));
    return finish(link, status, status < 0 ? NULL : object_wrap(link, object));
}

/* ---- for event loops ---- */

/* A method, whose second argument is an object, or a getter, of an open connection. */
#define OF_LINK(what, argument, expression)                                                        \
    static PyObject *client_##what(PyObject *self, argument *unused)                               \
    {                                                                                              \
        (void)unused;                                                                              \
        struct link *link = ((struct client *)self)->link;                                         \
        return link_check(link) < 0 ? NULL : expression;                                           \
    }

OF_LINK(instance, void, PyUnicode_FromString(gpubuf_instance(link->client)))
OF_LINK(session, void, PyLong_FromUnsignedLongLong(gpubuf_session(link->client)))
OF_LINK(fileno, PyObject, PyLong_FromLong(gpubuf_fd(link->client)))
OF_LINK(events, PyObject, PyLong_FromLong(gpubuf_events(link->client)))

static PyObject *client_dispatch(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct link *link = client_look(self);
    if (!link)
        return NULL;
    int status;
    WITHOUT_GIL(status = gpubuf_dispatch(link->client));
    return finish(link, status, status < 0 ? NULL : PyLong_FromLong(status));
}

/* ---- the type ---- */

static PyObject *get_closed(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(((struct client *)self)->link == NULL);
}

static PyObject *get_connections(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLong(((struct client *)self)->connections);
}

static PyGetSetDef getters[] = {
    {"_connections", get_connections, NULL, NULL, NULL},
    {"closed", get_closed, NULL, "Whether the connection was closed here.", NULL},
    {"instance", client_instance, NULL, "The daemon's identity of this run, hexadecimal.", NULL},
    {"session", client_session, NULL, "The number of this connection, as `gpubufctl ps` shows it.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"close", client_close, METH_NOARGS, NULL},
    {"_call", client_call, METH_VARARGS, NULL},
    {"_wait", client_wait, METH_VARARGS, NULL},
    {"_open", client_open, METH_VARARGS, NULL},
    {"_follow", client_follow, METH_VARARGS, NULL},
    {"_edit", client_edit, METH_VARARGS, NULL},
    {"_put_array", client_put_array, METH_VARARGS, NULL},
    {"_put_bytes", client_put_bytes, METH_VARARGS, NULL},
    {"_put_arrow", client_put_arrow, METH_VARARGS, NULL},
    {"fileno", client_fileno, METH_NOARGS, "The socket, to be polled and never read."},
    {"_events", client_events, METH_NOARGS, NULL},
    {"_dispatch", client_dispatch, METH_NOARGS, NULL},
    {"_call_async", client_call_async, METH_VARARGS, NULL},
    {"_open_async", client_open_async, METH_VARARGS, NULL},
    {"_open_many_async", client_open_many_async, METH_VARARGS, NULL},
    {"_register_async", client_register_async, METH_VARARGS, NULL},
    {"_watch_async", client_watch_async, METH_VARARGS, NULL},
    {"_create_async", client_create_async, METH_VARARGS, NULL},
    {"_seal_async", client_seal_async, METH_VARARGS, NULL},
    {"_cancel", client_cancel, METH_O, NULL},
    {"_unwatch", client_unwatch, METH_O, NULL},
    {"_provide_async", client_provide_async, METH_VARARGS, NULL},
    {"_provide_end", client_provide_end, METH_O, NULL},
    {"_decline", client_decline, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, client_new},
    {Py_tp_dealloc, client_dealloc},
    {Py_tp_getset, getters},
    {Py_tp_methods, methods},
    {0, NULL},
};

int client_setup(PyObject *module)
{
    return add_type(module, "gpubufd._core.Client", sizeof(struct client), TYPE_FLAGS, slots,
                    &client_type);
}
