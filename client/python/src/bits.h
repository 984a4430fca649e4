/* Bitmaps. */
#ifndef GPUBUFD_BITS_H
#define GPUBUFD_BITS_H

#include "client/python/src/core.h"

/* Nulls among elements [offset, offset + length) of a bitmap. */
uint64_t count_nulls(const unsigned char *bits, uint64_t offset, uint64_t length);
/* ORs bits [start, start + length) into those from `at` on, which are 0. */
void copy_bits(unsigned char *to, int64_t at, const unsigned char *from, int64_t start,
               int64_t length);
/* The same on buffers, for Python; see _core.pyi. */
PyObject *core_copy_bits(PyObject *module, PyObject *args);
PyObject *core_count_nulls(PyObject *module, PyObject *args);
PyObject *core_add_to_integers(PyObject *module, PyObject *args);

#endif
