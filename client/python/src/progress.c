#include "client/python/src/progress.h"

_Thread_local unsigned calls_without_gil;
static _Thread_local PyObject *kind, *value, *trace; /* the exception that is kept */
static PyObject *told;

PyObject *core_on_copied(PyObject *module, PyObject *callable)
{
    PyObject *before = told;

    (void)module;
    told = new_ref(callable);
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

int progress_copied(uint64_t bytes)
{
    PyObject *result =
        bytes && told ? PyObject_CallFunction(told, "K", (unsigned long long)bytes) : NULL;

    Py_XDECREF(result);
    return PyErr_Occurred() ? -1 : 0;
}

int progress_tell(void *arg, uint64_t bytes)
{
    (void)arg;
    if (!calls_without_gil) /* a thread of the library's own */
        return 0;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *before[3]; /* of a call that ends an object while an exception is set */
    PyErr_Fetch(&before[0], &before[1], &before[2]);
    if (!kind && (PyErr_CheckSignals() < 0 || progress_copied(bytes) < 0))
        PyErr_Fetch(&kind, &value, &trace);
    PyErr_Restore(before[0], before[1], before[2]);
    PyGILState_Release(state);
    return kind != NULL;
}

bool progress_raise(void)
{
    if (!kind)
        return false;
    PyErr_Restore(kind, value, trace);
    kind = value = trace = NULL;
    return true;
}
