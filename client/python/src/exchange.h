/* DLPack without a call of Python's: the table of functions that consumers find on a type. */
#ifndef GPUBUFD_EXCHANGE_H
#define GPUBUFD_EXCHANGE_H

#include "client/python/src/core.h"

/* Adds `exchange_api`, the capsule for types of Objects that are arrays. */
int exchange_setup(PyObject *module);

#endif
