/* Bitmaps. */
#ifndef GPUBUFD_BITS_H
#define GPUBUFD_BITS_H

#include "client/python/src/core.h"

/* Nulls among elements [offset, offset + length) of a bitmap. */
uint64_t count_nulls(const unsigned char *bits, uint64_t offset, uint64_t length);
/* For Python; see _core.pyi. */
PyObject *core_count_nulls(PyObject *module, PyObject *args);
PyObject *core_add_to_integers(PyObject *module, PyObject *args);
PyObject *core_is_even(PyObject *module, PyObject *args);

#endif
