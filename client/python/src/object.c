#include "client/python/src/object.h"

#include "client/python/src/bits.h"

PyTypeObject *object_type;
#define KINDS 5
static PyObject *kinds[KINDS]; /* the subclass for each enum gpubuf_kind */

PyObject *object_wrap(struct link *link, struct gpubuf_object *object)
{
    unsigned kind = gpubuf_kind(object);
    PyTypeObject *type = kind < KINDS && kinds[kind] ? (PyTypeObject *)kinds[kind] : object_type;
    struct object *self = type_new(type);

    if (!self) {
        gpubuf_release(object);
        return NULL;
    }
    self->object = object;
    self->link = link_get(link);
    self->next = link->objects;
    if (self->next)
        self->next->previous = self;
    link->objects = self;
    return (PyObject *)self;
}

void object_drop(struct object *self)
{
    struct link *link = self->link;

    if (!link)
        return;
    if (self->previous)
        self->previous->next = self->next;
    else
        link->objects = self->next;
    if (self->next)
        self->next->previous = self->previous;
    struct gpubuf_object *object = self->object;
    struct gpubuf_bundle *bundle = self->bundle;
    self->previous = self->next = NULL;
    self->object = NULL;
    self->link = NULL;
    self->bundle = NULL;
    gpubuf_bundle_free(bundle);
    gpubuf_release(object);
    link_put(link);
}

struct gpubuf_object *object_use(const struct object *self)
{
    if (self->object)
        return self->object;
    return raise_error(GPUBUF_E_CLOSED, "the object has been released, or its connection closed");
}

static uint64_t element_count(const struct gpubuf_object *object)
{
    if (gpubuf_kind(object) != GPUBUF_KIND_ARRAY)
        return gpubuf_length(object);
    uint64_t count = 1;
    for (unsigned i = 0; i < gpubuf_ndim(object); i++)
        count *= gpubuf_shape(object)[i];
    return count;
}

int64_t object_null_count(const struct gpubuf_object *object)
{
    int64_t known = gpubuf_null_count(object);
    struct gpubuf_memory mask;

    if (known >= 0 || gpubuf_memory(object, GPUBUF_MASK, &mask) != 0)
        return known;
    if (gpubuf_device_ordinal(object) >= 0)
        return -1;
    return (int64_t)count_nulls(mask.pointer, gpubuf_offset(object), element_count(object));
}

PyObject *core_set_kinds(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *classes[KINDS];
    if (!PyArg_ParseTuple(args, "OOOOO:set_kinds", &classes[0], &classes[1], &classes[2],
                          &classes[3], &classes[4]))
        return NULL;
    for (int i = 0; i < KINDS; i++) {
        if (!PyType_Check(classes[i]) ||
            !PyType_IsSubtype((PyTypeObject *)classes[i], object_type)) {
            PyErr_SetString(PyExc_TypeError, "expected subclasses of Object");
            return NULL;
        }
    }
    for (int i = 0; i < KINDS; i++) {
        PyObject *before = kinds[i];
        kinds[i] = new_ref(classes[i]);
        Py_XDECREF(before);
    }
    Py_RETURN_NONE;
}
