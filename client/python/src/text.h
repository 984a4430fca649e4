/* Strings and bytes of Python into buffers of Arrow's columns, and back. */
#ifndef GPUBUFD_TEXT_H
#define GPUBUFD_TEXT_H

#include "client/python/src/core.h"

/*
 * text_of(values, missing): the buffers of a list of str, or of one of bytes: (is_text, nulls, mask
 * or None, offsets, data). Offsets have 4 bytes, or 8 if the data need them. A value that is None,
 * a float NaN among str, or whose type is in the tuple `missing`, is null. Returns None for a list
 * of other types, of several types, or with a str that is not Unicode.
 */
PyObject *core_text_of(PyObject *module, PyObject *args);

/*
 * text_list(is_text, wide, offsets, data, mask or None, start, length, target): elements [start,
 * start + length) as str (bytes that are no UTF-8 become lone surrogates) or bytes, None where the
 * mask has a 0. Equal values near each other are one object. Returns a new list; or fills `target`,
 * if not None, a buffer of `length` Python objects. ValueError: an offset is not within the data.
 */
PyObject *core_text_list(PyObject *module, PyObject *args);

/*
 * text_of_views(buffers, start, end): (offsets of 8 bytes, data) of Arrow's views of strings,
 * whose addresses are `buffers`: mask or 0, views, data, …, sizes of the data. Elements before
 * `start`, and nulls, are empty. ValueError: a view is not within its data.
 */
PyObject *core_text_of_views(PyObject *module, PyObject *args);

#endif
