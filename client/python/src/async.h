/* Requests that a Client begins and does not wait for. */
#ifndef GPUBUFD_ASYNC_H
#define GPUBUFD_ASYNC_H

#include "client/python/src/core.h"

PyObject *client_call_async(PyObject *self, PyObject *args);
PyObject *client_open_async(PyObject *self, PyObject *args);
PyObject *client_open_many_async(PyObject *self, PyObject *args);
PyObject *client_create_async(PyObject *self, PyObject *args);
PyObject *client_seal_async(PyObject *self, PyObject *args);
PyObject *client_register_async(PyObject *self, PyObject *args);
PyObject *client_unwatch(PyObject *self, PyObject *id);
PyObject *client_provide_async(PyObject *self, PyObject *args);
PyObject *client_provide_end(PyObject *self, PyObject *prefix);
PyObject *client_decline(PyObject *self, PyObject *args);
PyObject *client_watch_async(PyObject *self, PyObject *args);
PyObject *client_cancel(PyObject *self, PyObject *id);

#endif
