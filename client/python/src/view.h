/* Views: stretches of memory with a shape and an element type. */
#ifndef GPUBUFD_VIEW_H
#define GPUBUFD_VIEW_H

#include "client/python/src/element.h"
#include "client/python/src/link.h"

struct object;
struct dl_versioned;

struct view {
    PyObject_HEAD void *pointer;
    int ndim;
    Py_ssize_t shape[MAX_NDIM];
    Py_ssize_t strides[MAX_NDIM]; /* bytes */
    Py_ssize_t itemsize, bytes;
    char format[32];
    char dtype[32];
    struct element element;
    bool readonly;
    int32_t device_type, device_id; /* DLPack's */
    /* the owner of the memory: */
    struct link *link;
    struct gpubuf_object *object;
    Py_buffer buffer;
    void *tensor; /* DLManagedTensor(Versioned) */
    bool versioned;
};

extern PyTypeObject *view_type;
PyObject *core_itemsize(PyObject *module, PyObject *dtype);
/* The elements of an array, of bytes, or of a column of fixed width; NULL with BufferError for
   others. */
PyObject *view_of_object(struct object *self);
/* A whole buffer, as bytes; None if the object has no such buffer. */
PyObject *view_of_buffer(struct object *self, enum gpubuf_which which);
/* {name: capsule} of a bundle's tensors, in a fraction of the time that a View of each takes:
   "dltensor" of DLPack; None for one that is empty or not aligned, and for types that some
   consumers lack. NULL with an exception. */
PyObject *view_capsules(struct object *self, const struct gpubuf_bundle *bundle);
/* A DLPack tensor that holds the memory until its deleter is called; NULL with an exception. */
struct dl_versioned *view_export(struct view *view);
/* Fills a Py_buffer with the View's memory; `exporter` is the object that the buffer holds. */
int view_fill(struct view *view, PyObject *exporter, Py_buffer *buffer, int flags);

#endif
