/* Files that libgpubuf's threads read into an object. */
#include <stdlib.h>

#include "client/python/src/object.h"
#include "client/python/src/progress.h"

enum { SIGNALS_MS = 100 }; /* how long a signal of Python's may wait */

struct fill {
    PyObject_HEAD struct link *link;
    struct gpubuf_fill *fill;
    PyObject *files;  /* as given; they stay open */
    size_t waiters;   /* calls of wait() under way */
    uint64_t refused; /* buffers that could not be pinned, at the beginning */
    bool ended;
};

static uint64_t count_refused(void)
{
    struct gpubuf_pinned_memory pinned = {.size = sizeof(pinned)};

    return gpubuf_pinned_memory(&pinned) == 0 ? pinned.refused : 0;
}

/* The ranges of a tuple of (descriptor, offset, bytes, at), to be freed; NULL with an exception. */
static struct gpubuf_file_range *parse_ranges(PyObject *tuple)
{
    size_t count = (size_t)PyTuple_Size(tuple);
    struct gpubuf_file_range *ranges = calloc(count + 1, sizeof(*ranges));

    if (!ranges)
        return (void *)PyErr_NoMemory();
    for (size_t i = 0; i < count; i++) {
        unsigned long long offset, bytes, at;
        if (!PyArg_ParseTuple(PyTuple_GetItem(tuple, (Py_ssize_t)i), "iKKK:range", &ranges[i].fd,
                              &offset, &bytes, &at)) {
            free(ranges);
            return NULL;
        }
        ranges[i].offset = offset;
        ranges[i].bytes = bytes;
        ranges[i].at = at;
    }
    return ranges;
}

/* Fill(object, which, ranges, files): begins to read; `files` keeps the descriptors open. */
static PyObject *fill_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *held, *tuple, *files;
    struct gpubuf_fill *fill = NULL;
    int which;

    (void)keywords;
    if (!PyArg_ParseTuple(args, "O!iO!O:Fill", object_type, &held, &which, &PyTuple_Type, &tuple,
                          &files))
        return NULL;
    struct gpubuf_object *object = object_use((struct object *)held);
    struct gpubuf_file_range *ranges = object ? parse_ranges(tuple) : NULL;
    if (!ranges)
        return NULL;
    struct link *link = link_get(((struct object *)held)->link);
    gpubuf_retain(object);
    uint64_t refused = count_refused();
    int status;
    WITHOUT_GIL(status = gpubuf_fill_begin(object, (enum gpubuf_which)which, ranges,
                                           (size_t)PyTuple_Size(tuple), NULL, &fill));
    free(ranges);
    gpubuf_release(object);
    struct fill *self = status < 0 ? NULL : type_new(type);
    if (self) {
        *self = (struct fill){.ob_base = self->ob_base,
                              .link = link,
                              .fill = fill,
                              .files = new_ref(files),
                              .refused = refused};
        return (PyObject *)self;
    }
    if (status < 0)
        raise_status(link, status);
    WITHOUT_GIL(gpubuf_fill_end(fill));
    link_put(link);
    return NULL;
}

/* Stops the readers when nobody waits for them any more. */
static void end_unused(struct fill *self)
{
    struct gpubuf_fill *fill = self->fill;

    if (!self->ended || self->waiters > 0)
        return;
    self->fill = NULL;
    WITHOUT_GIL(gpubuf_fill_end(fill));
    Py_CLEAR(self->files);
}

/* end(): stops the readers, and waits for them; wait() fails from now on. */
static PyObject *fill_end(PyObject *object, PyObject *unused)
{
    (void)unused;
    ((struct fill *)object)->ended = true;
    end_unused((struct fill *)object);
    Py_RETURN_NONE;
}

static void fill_dealloc(PyObject *object)
{
    Py_XDECREF(fill_end(object, NULL));
    link_put(((struct fill *)object)->link);
    type_free(object);
}

/* wait(at=0, bytes=all): until these bytes of the buffer are there. */
static PyObject *fill_wait(PyObject *object, PyObject *args)
{
    struct fill *self = (struct fill *)object;
    unsigned long long at = 0, bytes = UINT64_MAX;
    int status = GPUBUF_E_TIMEOUT;
    bool interrupted = false;
    uint64_t before = 0, done = 0;

    if (!PyArg_ParseTuple(args, "|KK:wait", &at, &bytes))
        return NULL;
    self->waiters++;
    while (status == GPUBUF_E_TIMEOUT && !interrupted && !self->ended) {
        WITHOUT_GIL(status = gpubuf_fill_wait(self->fill, at, bytes, SIGNALS_MS, &done));
        interrupted =
            PyErr_CheckSignals() < 0 || (bytes == UINT64_MAX && progress_copied(done - before) < 0);
        before = done;
    }
    PyObject *result = status == 0 && !interrupted ? new_ref(Py_None) : NULL;
    if (status < 0 && !interrupted) {
        if (status == GPUBUF_E_TIMEOUT)
            PyErr_SetString(PyExc_ValueError, "the reading has ended");
        else
            raise_status(self->link, status);
    }
    self->waiters--;
    if (result && bytes == UINT64_MAX && count_refused() > self->refused &&
        PyErr_WarnEx(PyExc_RuntimeWarning,
                     "memory could not be pinned, which made the copy to the GPU slower", 1) < 0)
        Py_CLEAR(result);
    PyObject *kind, *value, *trace; /* the end of the readers may run while they are set */
    PyErr_Fetch(&kind, &value, &trace);
    end_unused(self);
    PyErr_Restore(kind, value, trace);
    return result;
}

static PyMethodDef methods[] = {
    {"wait", fill_wait, METH_VARARGS, NULL},
    {"end", fill_end, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, fill_new},
    {Py_tp_dealloc, fill_dealloc},
    {Py_tp_methods, methods},
    {0, NULL},
};

int fill_setup(PyObject *module)
{
    return add_type(module, "gpubufd._core.Fill", sizeof(struct fill), Py_TPFLAGS_DEFAULT, slots,
                    NULL);
}
