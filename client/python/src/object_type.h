/* The type of Objects: its attributes and methods. */
#ifndef GPUBUFD_OBJECT_TYPE_H
#define GPUBUFD_OBJECT_TYPE_H

#include "client/python/src/core.h"

int object_setup(PyObject *module);

#endif
