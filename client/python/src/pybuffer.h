/*
 * The buffer protocol for an extension of the stable ABI of Python 3.9.
 *
 * Py_buffer came into the limited API with 3.11, which fixed for good the layout that it had had
 * since 3.0; types made from a specification take the two slots since 3.9. So an extension that
 * declares them itself, as here, runs on everything from 3.9 on.
 */
#ifndef GPUBUFD_PYBUFFER_H
#define GPUBUFD_PYBUFFER_H

#include <Python.h>

#if !defined(Py_LIMITED_API) || Py_LIMITED_API + 0 >= 0x030b0000
#error "these are Python's own from 3.11 on"
#endif

typedef struct bufferinfo {
    void *buf;
    PyObject *obj;
    Py_ssize_t len;
    Py_ssize_t itemsize;
    int readonly;
    int ndim;
    char *format;
    Py_ssize_t *shape;
    Py_ssize_t *strides;
    Py_ssize_t *suboffsets;
    void *internal;
} Py_buffer;

extern int PyObject_GetBuffer(PyObject *object, Py_buffer *view, int flags);
extern void PyBuffer_Release(Py_buffer *view);

#define Py_bf_getbuffer 1
#define Py_bf_releasebuffer 2

#define PyBUF_SIMPLE 0
#define PyBUF_WRITABLE 0x0001
#define PyBUF_FORMAT 0x0004
#define PyBUF_ND 0x0008
#define PyBUF_STRIDES (0x0010 | PyBUF_ND)
#define PyBUF_F_CONTIGUOUS (0x0040 | PyBUF_STRIDES)
#define PyBUF_STRIDED_RO PyBUF_STRIDES
#define PyBUF_FULL_RO (0x0100 | PyBUF_STRIDES | PyBUF_FORMAT)

#endif
