/* The type of Objects: what it has, and what can be asked of it. */
#ifndef GPUBUFD_OBJECT_TYPE_H
#define GPUBUFD_OBJECT_TYPE_H

#include "client/python/src/core.h"

int object_setup(PyObject *module);

#endif
