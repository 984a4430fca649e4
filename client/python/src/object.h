/* Objects: a reference to a gpubuf_object, and the link that it needs. */
#ifndef GPUBUFD_OBJECT_H
#define GPUBUFD_OBJECT_H

#include "client/python/src/link.h"

struct object {
    PyObject_HEAD struct link *link; /* NULL once it is released */
    struct gpubuf_object *object;    /* NULL once it is released */
    struct gpubuf_bundle *bundle;    /* its manifest, after its first use; or NULL */
    struct object *previous, *next;  /* in link->objects */
};

extern PyTypeObject *object_type;
/* set_kinds(Bytes, Array, Column, Table, Bundle): the subclasses that objects are instances of. */
PyObject *core_set_kinds(PyObject *module, PyObject *args);
/* A new instance of the subclass for its kind; takes over the reference `object`, also on
   failure. */
PyObject *object_wrap(struct link *link, struct gpubuf_object *object);
/* Releases the reference. */
void object_drop(struct object *self);
/* The number of nulls; counted if it is unknown and the bitmap is on the host; -1: on a GPU. */
int64_t object_null_count(const struct gpubuf_object *object);
/* runs() of a table -> [(first column, how many, bytes from one to the next)]: columns of a run are
   numbers of one type, without nulls and metadata, at equal distances; other columns are alone. */
PyObject *object_runs(PyObject *self, PyObject *unused);
/* The Object's gpubuf_object, or NULL with Closed raised. */
struct gpubuf_object *object_use(const struct object *self);

#endif
