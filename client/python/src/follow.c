#include "client/python/src/follow.h"

#include <stdlib.h>

#include "client/python/src/link.h"
#include "client/python/src/object.h"
#include "client/python/src/reconnect.h"

#define NAME "gpubufd.view"
#define STREAMS_MAX 64

struct followed {
    struct link *link;
    struct gpubuf_view *view;
};

static void followed_free(PyObject *capsule)
{
    struct followed *followed = PyCapsule_GetPointer(capsule, NAME);

    if (!followed)
        return;
    WITHOUT_GIL(gpubuf_unfollow(followed->view); link_put(followed->link));
    free(followed);
}

PyObject *client_follow(PyObject *self, PyObject *args)
{
    struct gpubuf_open_options options = {.size = sizeof(options)};
    const char *name;
    unsigned long long version;
    int status;

    if (!PyArg_ParseTuple(args, "sKz:follow", &name, &version, &options.label))
        return NULL;
    options.version = version;
    struct link *link = client_enter(self);
    if (!link)
        return NULL;
    struct followed *followed = calloc(1, sizeof(*followed));
    if (!followed) {
        link_put(link);
        return PyErr_NoMemory();
    }
    followed->link = link;
    WITHOUT_GIL(status = gpubuf_follow(link->client, name, &options, &followed->view));
    PyObject *capsule =
        status < 0 ? raise_status(link, status) : PyCapsule_New(followed, NAME, followed_free);
    if (!capsule) {
        gpubuf_unfollow(followed->view);
        free(followed);
        link_put(link);
        return NULL;
    }
    PyObject *object = object_wrap(link, gpubuf_retain(gpubuf_view_object(followed->view)));
    if (!object) {
        Py_DECREF(capsule);
        return NULL;
    }
    return Py_BuildValue("(NN)", capsule, object);
}

/* The streams of a tuple of handles. Returns how many; -1 with an exception. */
static int parse_streams(PyObject *tuple, void **streams)
{
    Py_ssize_t count = PyTuple_Size(tuple);

    if (count < 0 || count > STREAMS_MAX) {
        if (count >= 0)
            PyErr_Format(PyExc_ValueError, "%zd streams: at most %d are waited for; none: all",
                         count, STREAMS_MAX);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        streams[i] = PyLong_AsVoidPtr(PyTuple_GetItem(tuple, i));
    return PyErr_Occurred() ? -1 : (int)count;
}

static PyObject *told(const struct followed *followed, int status)
{
    return status < 0 ? raise_status(followed->link, status) : PyBool_FromLong(status == 0);
}

PyObject *core_switch(PyObject *module, PyObject *args)
{
    struct gpubuf_open_options options = {.size = sizeof(options)};
    PyObject *capsule, *tuple;
    unsigned long long version;
    long long wait_ms;
    void *streams[STREAMS_MAX];
    int status, count;

    (void)module;
    if (!PyArg_ParseTuple(args, "OKzLO!:switch", &capsule, &version, &options.label, &wait_ms,
                          &PyTuple_Type, &tuple))
        return NULL;
    struct followed *followed = PyCapsule_GetPointer(capsule, NAME);
    if (!followed || (count = parse_streams(tuple, streams)) < 0)
        return NULL;
    options.version = version;
    options.wait_ms = wait_ms;
    WITHOUT_GIL(status = gpubuf_switch(followed->view, &options, streams, (size_t)count));
    return told(followed, status);
}

PyObject *core_park(PyObject *module, PyObject *args)
{
    PyObject *capsule, *tuple;
    void *streams[STREAMS_MAX];
    int status, count;

    (void)module;
    if (!PyArg_ParseTuple(args, "OO!:park", &capsule, &PyTuple_Type, &tuple))
        return NULL;
    struct followed *followed = PyCapsule_GetPointer(capsule, NAME);
    if (!followed || (count = parse_streams(tuple, streams)) < 0)
        return NULL;
    WITHOUT_GIL(status = gpubuf_park(followed->view, streams, (size_t)count));
    return told(followed, status);
}

PyObject *core_resume(PyObject *module, PyObject *args)
{
    PyObject *capsule;
    long long wait_ms;
    int status;

    (void)module;
    if (!PyArg_ParseTuple(args, "OL:resume", &capsule, &wait_ms))
        return NULL;
    struct followed *followed = PyCapsule_GetPointer(capsule, NAME);
    if (!followed)
        return NULL;
    WITHOUT_GIL(status = gpubuf_resume(followed->view, wait_ms));
    return told(followed, status);
}

PyObject *core_is_parked(PyObject *module, PyObject *capsule)
{
    (void)module;
    struct followed *followed = PyCapsule_GetPointer(capsule, NAME);
    return followed ? PyBool_FromLong(gpubuf_is_parked(followed->view)) : NULL;
}
