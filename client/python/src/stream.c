/* Streams of frames: gpubuf_stream_…, for _streams.py. */
#include "client/python/src/client.h"
#include "client/python/src/object.h"
#include "client/python/src/options.h"
#include "client/python/src/reconnect.h"

enum { SIGNALS_MS = 100 }; /* how long a signal of Python's may wait */

struct stream {
    PyObject_HEAD struct link *link;
    struct gpubuf_stream *stream; /* NULL: closed */
    bool used;                    /* by a call under way */
    bool ended;                   /* close() was called meanwhile */
};

/* Stream(client, name, dtype or None, shape, device, mode, slots, wait_ms, each, waits, lag, hold,
   ahead): with a dtype its writer, else a reader. */
static PyObject *stream_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    struct gpubuf_stream_options options = {.size = sizeof(options)};
    struct gpubuf_stream *stream = NULL;
    const char *name, *dtype;
    PyObject *client, *tuple;
    long long wait_ms;
    uint64_t shape[MAX_NDIM];
    int each, waits, ahead, status;

    (void)keywords;
    if (!PyArg_ParseTuple(args, "O!szO!zIILppIIp:Stream", client_type, &client, &name, &dtype,
                          &PyTuple_Type, &tuple, &options.device, &options.mode, &options.slots,
                          &wait_ms, &each, &waits, &options.lag, &options.hold, &ahead))
        return NULL;
    options.wait_ms = wait_ms;
    options.each = each;
    options.waits = waits;
    options.ahead = ahead;
    int ndim = parse_extents(tuple, shape);
    struct link *link = ndim < 0 ? NULL : client_enter(client);
    if (!link)
        return NULL;
    if (dtype)
        WITHOUT_GIL(status = gpubuf_stream_create(link->client, name, dtype, (unsigned)ndim, shape,
                                                  &options, &stream));
    else
        WITHOUT_GIL(status = gpubuf_stream_open(link->client, name, &options, &stream));
    struct stream *self = status < 0 ? NULL : type_new(type);
    if (self) {
        *self = (struct stream){.ob_base = self->ob_base, .link = link, .stream = stream};
        return (PyObject *)self;
    }
    if (status < 0)
        raise_status(link, status);
    WITHOUT_GIL(gpubuf_stream_close(stream));
    link_put(link);
    return NULL;
}

/* Takes the stream for a call; NULL with an exception: it is closed, or another thread uses it. */
static struct gpubuf_stream *enter(struct stream *self)
{
    if (!self->stream || self->ended || self->used) {
        PyErr_SetString(PyExc_ValueError,
                        self->used ? "another thread uses the stream" : "the stream is closed");
        return NULL;
    }
    if (link_check(self->link) < 0)
        return NULL;
    self->used = true;
    return self->stream;
}

static void end_unused(struct stream *self)
{
    struct gpubuf_stream *stream = self->stream;
    struct link *link = self->link;

    if (!self->ended || self->used || !stream)
        return;
    self->stream = NULL;
    self->link = NULL;
    WITHOUT_GIL({
        gpubuf_stream_close(stream);
        link_put(link);
    });
}

/* Ends a call. `result` is NULL if it failed. */
static PyObject *leave(struct stream *self, int status, PyObject *result)
{
    self->used = false;
    if (status < 0 && !PyErr_Occurred())
        raise_status(self->link, status);
    PyObject *kind, *value, *trace;
    PyErr_Fetch(&kind, &value, &trace);
    end_unused(self);
    PyErr_Restore(kind, value, trace);
    return result;
}

/* close(): ends it, or as soon as a call in another thread has. */
static PyObject *stream_close(PyObject *object, PyObject *unused)
{
    (void)unused;
    ((struct stream *)object)->ended = true;
    end_unused((struct stream *)object);
    Py_RETURN_NONE;
}

static void stream_dealloc(PyObject *object)
{
    Py_XDECREF(stream_close(object, NULL));
    type_free(object);
}

static PyObject *describe(const struct gpubuf_frame *frame)
{
    return Py_BuildValue("(IKKKK)", frame->slot, (unsigned long long)frame->bytes,
                         (unsigned long long)frame->number, (unsigned long long)frame->time_ns,
                         (unsigned long long)frame->missed);
}

/* Waits in pieces, between which signals are handled and close() is heeded. */
static PyObject *wait_for(struct stream *self, long long ms, bool writes)
{
    struct gpubuf_stream *stream = enter(self);
    struct gpubuf_frame frame;
    int status = GPUBUF_E_TIMEOUT;
    bool interrupted = false;

    if (!stream)
        return NULL;
    while (status == GPUBUF_E_TIMEOUT && !interrupted) {
        int64_t piece = ms < 0 || ms > SIGNALS_MS ? SIGNALS_MS : ms;

        if (writes)
            WITHOUT_GIL(status = gpubuf_stream_next(stream, ms, &frame));
        else
            WITHOUT_GIL(status = gpubuf_stream_read(stream, piece, &frame));
        interrupted = PyErr_CheckSignals() < 0;
        if (ms >= 0 && (ms -= piece) <= 0)
            break;
        if (self->ended)
            break;
    }
    if (interrupted && status == 0 && !writes)
        (void)gpubuf_stream_done(stream, &frame, NULL);
    if (interrupted)
        return leave(self, -1, NULL);
    return leave(self, status, status == 0 ? describe(&frame) : NULL);
}

/* next(ms): (slot, bytes, number, 0, 0) */
static PyObject *stream_next(PyObject *object, PyObject *ms)
{
    long long wait = PyLong_AsLongLong(ms);

    return PyErr_Occurred() ? NULL : wait_for((struct stream *)object, wait, true);
}

/* read(ms): (slot, bytes, number, time_ns, missed) */
static PyObject *stream_read(PyObject *object, PyObject *ms)
{
    long long wait = PyLong_AsLongLong(ms);

    return PyErr_Occurred() ? NULL : wait_for((struct stream *)object, wait, false);
}

enum { PUBLISH, WAIT, DONE };

/* publish(slot, bytes, work), wait(slot, number, work), done(slot, number, work): `work` is a
   stream of the GPU, as an integer. */
static PyObject *with_frame(PyObject *object, PyObject *args, int what)
{
    struct gpubuf_frame frame = {0};
    unsigned long long number, work;
    int status;

    if (!PyArg_ParseTuple(args, "IKK", &frame.slot, &number, &work))
        return NULL;
    frame.number = frame.bytes = number;
    struct gpubuf_stream *stream = enter((struct stream *)object);
    if (!stream)
        return NULL;
    void *on = (void *)(uintptr_t)work;
    WITHOUT_GIL(status = what == PUBLISH ? gpubuf_stream_publish(stream, &frame, on)
                         : what == WAIT  ? gpubuf_stream_wait(stream, &frame, on)
                                         : gpubuf_stream_done(stream, &frame, on));
    return leave((struct stream *)object, status, status == 0 ? new_ref(Py_None) : NULL);
}

static PyObject *stream_publish(PyObject *object, PyObject *args)
{
    return with_frame(object, args, PUBLISH);
}

static PyObject *stream_wait(PyObject *object, PyObject *args)
{
    return with_frame(object, args, WAIT);
}

static PyObject *stream_done(PyObject *object, PyObject *args)
{
    return with_frame(object, args, DONE);
}

/* array(): the Array of all slots, which has a reference of its own. */
static PyObject *stream_array(PyObject *object, PyObject *unused)
{
    struct stream *self = (struct stream *)object;
    struct gpubuf_stream *stream = enter(self);

    (void)unused;
    if (!stream)
        return NULL;
    self->used = false;
    return object_wrap(self->link, gpubuf_retain(gpubuf_stream_object(stream)));
}

static PyMethodDef methods[] = {
    {"next", stream_next, METH_O, NULL},        {"publish", stream_publish, METH_VARARGS, NULL},
    {"read", stream_read, METH_O, NULL},        {"wait", stream_wait, METH_VARARGS, NULL},
    {"done", stream_done, METH_VARARGS, NULL},  {"array", stream_array, METH_NOARGS, NULL},
    {"close", stream_close, METH_NOARGS, NULL}, {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, stream_new},
    {Py_tp_dealloc, stream_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

int stream_setup(PyObject *module)
{
    return add_type(module, "gpubufd._core.Stream", sizeof(struct stream), Py_TPFLAGS_DEFAULT,
                    slots, NULL);
}
