/* The Arrow C Data interface, as capsules. */
#ifndef GPUBUFD_ARROW_H
#define GPUBUFD_ARROW_H

#include "client/python/src/link.h"

PyObject *object_arrow_schema(PyObject *self, PyObject *unused);
PyObject *object_arrow_array(PyObject *self, PyObject *unused);
PyObject *object_arrow_device_array(PyObject *self, PyObject *unused);
/* Makes each node of an exported array hold the link, since a consumer may move a child out and
   release the rest. 0 or GPUBUF_E_NO_MEMORY; then the array is still to be released. */
int arrow_hold(struct ArrowArray *array, struct link *link);
/* A capsule of what malloc gave: an "arrow_schema", an "arrow_array" or an "arrow_device_array". It
   is released and freed at the capsule's end, or if there can be none. */
PyObject *arrow_capsule(void *content, const char *name);
/* Client.put_arrow(name, source, as_table, options). */
PyObject *client_put_arrow(PyObject *self, PyObject *args);
PyObject *core_capsules(PyObject *module, PyObject *source);
PyObject *core_nodes(PyObject *module, PyObject *args);
PyObject *core_array_device(PyObject *module, PyObject *capsule);

#endif
