/* Arrow streams, as capsules. */
#ifndef GPUBUFD_ARROW_STREAM_H
#define GPUBUFD_ARROW_STREAM_H

#include "client/python/src/core.h"

PyObject *object_arrow_stream(PyObject *self, PyObject *unused);
PyObject *object_arrow_device_stream(PyObject *self, PyObject *unused);
/* stream capsule, of the host or of a device -> (schema capsule, [array capsules]) */
PyObject *core_read_stream(PyObject *module, PyObject *capsule);

#endif
