#include "client/python/src/client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "client/python/src/arrow.h"
#include "client/python/src/async.h"
#include "client/python/src/link.h"
#include "client/python/src/object.h"
#include "client/python/src/options.h"
#include "client/python/src/pending.h"
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
    PyTypeObject *type = Py_TYPE(object);
    PyObject *kind, *error, *traceback; /* callbacks run here, perhaps with an exception set */

    PyErr_Fetch(&kind, &error, &traceback);
    client_end((struct client *)object, false);
    free(((struct client *)object)->path);
    free(((struct client *)object)->name);
    PyErr_Restore(kind, error, traceback);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(object);
    Py_DECREF(type);
}

static char *copy_of(const char *text, bool *failed)
{
    char *copy = text ? strdup(text) : NULL;

    *failed = *failed || (text && !copy);
    return copy;
}

static PyObject *client_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"path",      "name",         "timeout_ms", "cache_bytes",
                            "resume_ms", "cache_leases", "patient",    NULL};
    struct gpubuf_connect_options options = {.size = sizeof(options)};
    unsigned long long cache_bytes;
    int patient = 1;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "zziKii|p:Client", names, &options.path,
                                     &options.client_name, &options.timeout_ms, &cache_bytes,
                                     &options.resume_ms, &options.cache_leases, &patient))
        return NULL;
    options.cache_bytes = cache_bytes;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    struct client *self = (struct client *)allocate(type, 0);
    if (!self)
        return NULL;
    bool failed = false;
    self->options = options;
    self->options.path = self->path = copy_of(options.path, &failed);
    self->options.client_name = self->name = copy_of(options.client_name, &failed);
    self->patience_ms = !patient ? 0 : options.resume_ms == 0 ? 10000 : options.resume_ms;
    struct gpubuf_client *client = NULL;
    int status = GPUBUF_E_NO_MEMORY;
    if (!failed)
        WITHOUT_GIL(status = gpubuf_connect(&client, &self->options));
    if (status < 0) {
        Py_DECREF(self);
        return raise_status(NULL, status);
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

static void leave(struct link *link)
{
    link_put(link);
}

/* Ends a call: `result` if it succeeded. */
static PyObject *finish(struct link *link, int status, PyObject *result)
{
    if (status < 0) {
        Py_CLEAR(result);
        raise_status(link, status);
    }
    leave(link);
    return result;
}

/* ---- blocking, interruptibly ---- */

/* The result of a request. A callback fills it, in the thread that dispatches. */
struct waiter {
    atomic_int done;
    int status;
    struct gpubuf_object *object;
    char message[1024];
};

static void on_waited(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                      void *arg)
{
    struct waiter *waiter = arg;

    waiter->status = status;
    waiter->object = object;
    if (status < 0)
        strncpy(waiter->message, gpubuf_errmsg(client), sizeof(waiter->message) - 1);
    atomic_store(&waiter->done, 1);
}

/* Handles messages that arrive within `timeout_ms`. */
static void receive(struct gpubuf_client *client, int timeout_ms)
{
    struct pollfd fd = {gpubuf_fd(client), gpubuf_events(client), 0};

    (void)poll(&fd, 1, timeout_ms);
    (void)gpubuf_dispatch(client);
}

/*
 * Waits for a request; Ctrl-C and Client.close() end it. Another thread may receive the answer, so
 * that this one checks every 20 ms even if it receives nothing.
 */
static int wait_for(struct link *link, uint64_t request, struct waiter *waiter)
{
    bool canceled = false;
    int signaled = 0;

    while (!atomic_load(&waiter->done)) {
        WITHOUT_GIL(receive(link->client, canceled ? 1 : 20));
        if (!signaled)
            signaled = PyErr_CheckSignals();
        if ((signaled || link->closed) && !canceled && !atomic_load(&waiter->done)) {
            WITHOUT_GIL((void)gpubuf_cancel(link->client, request));
            canceled = true;
        }
    }
    if (signaled || waiter->status < 0) {
        gpubuf_release(waiter->object);
        waiter->object = NULL;
    }
    return signaled;
}

/* The Object of a request. `status`: of its beginning. */
static PyObject *await_object(struct link *link, int status, uint64_t request,
                              struct waiter *waiter)
{
    PyObject *result = NULL;

    if (status < 0)
        return finish(link, status, NULL);
    if (wait_for(link, request, waiter) == 0) {
        if (waiter->status >= 0) {
            result = object_wrap(link, waiter->object);
        } else {
            PyObject *error = link->closed
                                  ? make_error(GPUBUF_E_CLOSED, "the connection was closed")
                                  : make_error(waiter->status, waiter->message);
            if (error)
                PyErr_SetObject((PyObject *)Py_TYPE(error), error);
            Py_XDECREF(error);
        }
    }
    leave(link);
    return result;
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

/* open(name, version, wait_ms, label) */
static PyObject *client_open(PyObject *self, PyObject *args)
{
    const char *name, *label;
    unsigned long long version;
    long long wait_ms;

    if (!PyArg_ParseTuple(args, "sKLz:get", &name, &version, &wait_ms, &label))
        return NULL;
    struct link *link = client_enter(self);
    if (!link)
        return NULL;
    struct gpubuf_open_options options = {
        .size = sizeof(options),
        .version = version,
        .wait_ms = wait_ms,
        .label = label,
    };
    struct gpubuf_object *object = NULL;
    int status;
    if (wait_ms > 0) {
        struct waiter waiter = {.status = 0};
        uint64_t request = 0;
        status = gpubuf_open_async(link->client, name, &options, on_waited, &waiter, &request);
        return await_object(link, status, request, &waiter);
    }
    WITHOUT_GIL(status = gpubuf_open(link->client, name, &options, &object));
    return finish(link, status, status < 0 ? NULL : object_wrap(link, object));
}

/* open_many(names, wait_ms) -> [Object or exception] */
static PyObject *client_open_many(PyObject *self, PyObject *args)
{
    PyObject *names;
    long long wait_ms;

    if (!PyArg_ParseTuple(args, "O!L:open_many", &PyTuple_Type, &names, &wait_ms))
        return NULL;
    size_t count = (size_t)PyTuple_Size(names);
    struct link *link = client_enter(self);
    if (!link)
        return NULL;
    PyObject *list = NULL;
    const char **texts = parse_names(names);
    struct gpubuf_object **objects = calloc(count + 1, sizeof(*objects));
    int *errors = calloc(count + 1, sizeof(*errors));
    if (!texts || !objects || !errors) {
        if (texts)
            PyErr_NoMemory();
        goto out;
    }
    struct gpubuf_open_options options = {.size = sizeof(options), .wait_ms = wait_ms};
    int status;
    WITHOUT_GIL(status = gpubuf_open_many(link->client, texts, count, &options, objects, errors));
    if (status < 0) {
        raise_status(link, status);
        goto out;
    }
    list = object_list(link, objects, errors, count);
out:
    free(texts);
    free(objects);
    free(errors);
    leave(link);
    return list;
}

/* create(name, layout, options) */
static PyObject *client_create(PyObject *self, PyObject *args)
{
    const char *name;
    PyObject *layout_tuple, *options_tuple;
    struct gpubuf_layout_spec layout;
    struct gpubuf_create_options options;
    struct layout_arena *arena;

    if (!PyArg_ParseTuple(args, "sOO:create", &name, &layout_tuple, &options_tuple))
        return NULL;
    if (parse_create_options(options_tuple, &options) < 0 ||
        parse_layout(layout_tuple, &layout, &arena) < 0)
        return NULL;
    struct link *link = client_enter(self);
    if (!link) {
        layout_free(arena);
        return NULL;
    }
    struct waiter waiter = {.status = 0};
    uint64_t request = 0;
    int status =
        gpubuf_create_async(link->client, name, &layout, &options, on_waited, &waiter, &request);
    PyObject *result = await_object(link, status, request, &waiter);
    layout_free(arena);
    return result;
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
    Py_ssize_t ndim = PyTuple_Size(shape);
    if (ndim > MAX_NDIM) {
        PyErr_Format(PyExc_ValueError, "an array has at most %d axes, not %zd", MAX_NDIM, ndim);
        return NULL;
    }
    if (strides != Py_None && PyTuple_Size(strides) != ndim) {
        if (!PyErr_Occurred())
            PyErr_SetString(PyExc_ValueError, "expected as many strides as extents");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < ndim; i++) {
        extents[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(shape, i));
        if (strides != Py_None)
            steps[i] = PyLong_AsLongLong(PyTuple_GetItem(strides, i));
    }
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
        leave(link);
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

/* register(name, ((address, bytes), …), layout_json, options) */
static PyObject *client_register(PyObject *self, PyObject *args)
{
    const char *name, *layout;
    PyObject *parts_tuple, *options_tuple;
    struct gpubuf_create_options options;

    if (!PyArg_ParseTuple(args, "sO!sO:register", &name, &PyTuple_Type, &parts_tuple, &layout,
                          &options_tuple) ||
        parse_create_options(options_tuple, &options) < 0)
        return NULL;
    struct gpubuf_part *parts = parse_parts(parts_tuple);
    struct link *link = parts ? client_enter(self) : NULL;
    if (!link) {
        free(parts);
        return NULL;
    }
    int status;
    size_t count = (size_t)PyTuple_Size(parts_tuple);
    WITHOUT_GIL(status = gpubuf_register_parts(link->client, name, parts, count, layout, &options));
    free(parts);
    return finish(link, status, status < 0 ? NULL : new_ref(Py_None));
}

/* ---- for event loops ---- */

static PyObject *client_fileno(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct link *link = ((struct client *)self)->link;
    if (link_check(link) < 0)
        return NULL;
    return PyLong_FromLong(gpubuf_fd(link->client));
}

static PyObject *client_events(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct link *link = ((struct client *)self)->link;
    if (link_check(link) < 0)
        return NULL;
    return PyLong_FromLong(gpubuf_events(link->client));
}

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

static PyObject *get_instance(PyObject *self, void *closure)
{
    (void)closure;
    struct link *link = ((struct client *)self)->link;
    return link_check(link) < 0 ? NULL : PyUnicode_FromString(gpubuf_instance(link->client));
}

static PyObject *get_session(PyObject *self, void *closure)
{
    (void)closure;
    struct link *link = ((struct client *)self)->link;
    return link_check(link) < 0 ? NULL : PyLong_FromUnsignedLongLong(gpubuf_session(link->client));
}

static PyObject *get_connections(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLong(((struct client *)self)->connections);
}

static PyGetSetDef getters[] = {
    {"_connections", get_connections, NULL, NULL, NULL},
    {"closed", get_closed, NULL, "Whether the connection was closed here.", NULL},
    {"instance", get_instance, NULL, "The daemon's identity of this run, hexadecimal.", NULL},
    {"session", get_session, NULL, "The number of this connection, as `gpubufctl ps` shows it.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"close", client_close, METH_NOARGS, NULL},
    {"_call", client_call, METH_VARARGS, NULL},
    {"_open", client_open, METH_VARARGS, NULL},
    {"_open_many", client_open_many, METH_VARARGS, NULL},
    {"_create", client_create, METH_VARARGS, NULL},
    {"_put_array", client_put_array, METH_VARARGS, NULL},
    {"_put_bytes", client_put_bytes, METH_VARARGS, NULL},
    {"_put_arrow", client_put_arrow, METH_VARARGS, NULL},
    {"_register", client_register, METH_VARARGS, NULL},
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
    {"_watch", client_watch, METH_VARARGS, NULL},
    {"_unwatch", client_unwatch, METH_O, NULL},
    {"_provide_async", client_provide_async, METH_VARARGS, NULL},
    {"_provide_end", client_provide_end, METH_VARARGS, NULL},
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

static PyType_Spec spec = {
    .name = "gpubufd._core.Client",
    .basicsize = sizeof(struct client),
    .flags = TYPE_FLAGS,
    .slots = slots,
};

int client_setup(PyObject *module)
{
    client_type = (PyTypeObject *)PyType_FromSpec(&spec);
    return client_type ? add_to_module(module, "Client", (PyObject *)client_type) : -1;
}
