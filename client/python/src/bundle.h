/* Bundles: the content of an Object's manifest, which is read once, and plans of new ones. */
#ifndef GPUBUFD_BUNDLE_H
#define GPUBUFD_BUNDLE_H

#include "client/python/src/core.h"

/* Methods of an Object of kind bundle; on others they raise Invalid. */
PyObject *object_entries(PyObject *self, PyObject *unused);
PyObject *object_entry(PyObject *self, PyObject *index);
PyObject *object_find(PyObject *self, PyObject *name);
PyObject *object_tensor(PyObject *self, PyObject *index);
PyObject *object_capsules(PyObject *self, PyObject *unused);
/* And its attributes. */
PyObject *get_bundle_metadata(PyObject *self);
PyObject *get_tensor_count(PyObject *self, void *closure);
PyObject *get_manifest_bytes(PyObject *self, void *closure);
/* Whether the memory has tensors that this bundle lacks. */

/* check_manifest(text, bytes): raises if it is no manifest of a file of `bytes`. */
PyObject *core_check_manifest(PyObject *module, PyObject *args);
/* plan_bundle(((name, dtype, shape), …), (key, value, …)):
   (head, bytes, manifest_bytes, [offset, …]) */
PyObject *core_plan_bundle(PyObject *module, PyObject *args);

#endif
