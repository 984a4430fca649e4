/* Files that libgpubuf's threads read into an object. */
#ifndef GPUBUFD_FILL_H
#define GPUBUFD_FILL_H

#include "client/python/src/core.h"

int fill_setup(PyObject *module);

#endif
