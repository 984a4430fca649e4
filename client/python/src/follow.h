/* Views of names: libgpubuf's struct gpubuf_view in a capsule, with the link that it needs. */
#ifndef GPUBUFD_FOLLOW_H
#define GPUBUFD_FOLLOW_H

#include "client/python/src/core.h"

/* Client._follow(name, version, label) -> (view, Object) */
PyObject *client_follow(PyObject *self, PyObject *args);
/* switch(view, version, label, wait_ms, streams): whether another version is shown now */
PyObject *core_switch(PyObject *module, PyObject *args);
/* park(view, streams), resume(view, wait_ms) */
PyObject *core_park(PyObject *module, PyObject *args);
PyObject *core_resume(PyObject *module, PyObject *args);
PyObject *core_is_parked(PyObject *module, PyObject *capsule);

#endif
