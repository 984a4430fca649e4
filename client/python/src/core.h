/*
 * gpubufd._core: libgpubuf for Python, and nothing more. Users see the modules of the package
 * gpubufd, which build on it.
 *
 * Types. A Client is a connection. An Object is a gpubuf_object: the package registers a subclass
 * for each kind, and opened objects and slices are instances of these. A View is a stretch of
 * memory with a shape and an element type: of an Object's buffer, or of another library's value,
 * taken over by DLPack or the buffer protocol.
 *
 * Lifetimes. Everything that needs the connection holds a reference to its `struct link`: the
 * Client, every Object, every View of one, every capsule that another library took, every call
 * under way. The last reference disconnects. So a lease stays as long as any library can still read
 * its memory, even without the Python objects, and a release needs neither the GIL nor an
 * interpreter.
 *
 * Threads. Python's own state, and the lists in a link, are guarded by the GIL, which is not held
 * while libgpubuf may wait.
 */
#ifndef GPUBUFD_CORE_H
#define GPUBUFD_CORE_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x03090000 /* the oldest Python that this is for */
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "client/python/src/pybuffer.h"
#include "gpubuf.h"

#define MAX_NDIM 32

/* For Pythons before 3.10. */
static inline PyObject *new_ref(PyObject *object)
{
    Py_INCREF(object);
    return object;
}

/* A new instance of a type. */
static inline void *type_new(PyTypeObject *type)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);

    return allocate(type, 0);
}

/* The end of each tp_dealloc. */
static inline void type_free(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

    release(object);
    Py_DECREF(type);
}

static inline PyObject *tuple_of(const int64_t *numbers, size_t count)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)count);

    for (size_t i = 0; tuple && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (!number || PyTuple_SetItem(tuple, (Py_ssize_t)i, number) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static inline int add_to_module(PyObject *module, const char *name, PyObject *value)
{
    return PyObject_SetAttrString(module, name, value);
}

/*
 * The flags of each of our types. Python 3.9 needs Py_TPFLAGS_HAVE_VERSION_TAG, which the headers
 * of later versions leave out of Py_TPFLAGS_DEFAULT. Without the flag 3.9 destroys type.mro when a
 * class whose metaclass is not type, such as Bundle, is derived from ours.
 */
#define TYPE_FLAGS (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VERSION_TAG | Py_TPFLAGS_BASETYPE)

/* Adds a type to the module, and notes it in `*noted` if that is not NULL. `name` begins with
   "gpubufd._core.". 0 or -1 with an exception. */
static inline int add_type(PyObject *module, const char *name, size_t bytes, unsigned flags,
                           PyType_Slot *slots, PyTypeObject **noted)
{
    PyType_Spec spec = {.name = name, .basicsize = (int)bytes, .flags = flags, .slots = slots};
    PyObject *type = PyType_FromSpec(&spec);

    if (noted)
        *noted = (PyTypeObject *)type;
    return type ? add_to_module(module, strrchr(name, '.') + 1, type) : -1;
}

/* Each adds a file's types, and what else it has, to the module. 0 or -1 with an exception. */
int client_setup(PyObject *module);
int object_setup(PyObject *module);
int view_setup(PyObject *module);
int pool_setup(PyObject *module);
int fill_setup(PyObject *module);
int exchange_setup(PyObject *module);
/* borrow_all(table, (value, …)): as bytes, what the table of another library's type (dlpack.h) says
   of the values' memory, shapes and types; its exception for what is no tensor with memory. */
PyObject *core_borrow_all(PyObject *module, PyObject *args);
int stream_setup(PyObject *module);

extern _Thread_local unsigned calls_without_gil; /* that the thread is in: progress.h */

/* An expression that may wait, without the GIL. */
#define WITHOUT_GIL(...)                                                                           \
    do {                                                                                           \
        PyThreadState *thread = PyEval_SaveThread();                                               \
        calls_without_gil++;                                                                       \
        __VA_ARGS__;                                                                               \
        calls_without_gil--;                                                                       \
        PyEval_RestoreThread(thread);                                                              \
    } while (0)

#endif
