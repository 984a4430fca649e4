#include "client/python/src/object.h"

#include <string.h>

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

/* ---- columns that lie in one array ---- */

struct run {
    size_t first, count;
    struct gpubuf_object *last; /* its last column, a reference; NULL: no other follows that */
    const char *at;             /* where the data of that begin */
    ptrdiff_t apart;            /* from one column to the next */
};

static bool is_number(const char *dtype)
{
    return strncmp(dtype, "int", 3) == 0 || strncmp(dtype, "uint", 4) == 0 ||
           strncmp(dtype, "float16", 7) == 0 || strncmp(dtype, "float32", 7) == 0 ||
           strncmp(dtype, "float64", 7) == 0;
}

/* Takes over the reference `column`. If the column does not belong to the run it begins the next
   one, and `run` was complete. */
static bool run_grows(struct run *run, struct gpubuf_object *column)
{
    struct gpubuf_memory data = {0};
    const char *key, *value;
    bool plain = is_number(gpubuf_dtype(column)) && object_null_count(column) == 0 &&
                 gpubuf_metadata_at(column, 0, &key, &value) != 0 &&
                 gpubuf_memory(column, GPUBUF_DATA, &data) == 0;
    ptrdiff_t apart = run->last && plain ? (const char *)data.pointer - run->at : 0;
    bool grows = apart > 0 && (uint64_t)apart >= data.bytes &&
                 (run->count == 1 || apart == run->apart) &&
                 strcmp(gpubuf_dtype(run->last), gpubuf_dtype(column)) == 0;

    gpubuf_release(run->last);
    *run = (struct run){.first = grows ? run->first : run->first + run->count,
                        .count = grows ? run->count + 1 : 1,
                        .last = plain ? column : NULL,
                        .at = data.pointer,
                        .apart = apart};
    if (!plain)
        gpubuf_release(column);
    return grows;
}

static int add_run(PyObject *list, const struct run *run)
{
    PyObject *told = Py_BuildValue("nnn", (Py_ssize_t)run->first, (Py_ssize_t)run->count,
                                   run->count > 1 ? (Py_ssize_t)run->apart : 0);
    int r = told ? PyList_Append(list, told) : -1;

    Py_XDECREF(told);
    return r;
}

PyObject *object_runs(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct link *link = ((struct object *)self)->link;
    struct gpubuf_object *object = object_use((struct object *)self);
    PyObject *list = object ? PyList_New(0) : NULL;
    size_t count = object ? gpubuf_child_count(object) : 0;
    struct run run = {0};
    for (size_t i = 0; list && i < count; i++) {
        struct gpubuf_object *column = NULL;
        struct run before = run;
        int status = gpubuf_child(object, i, &column);
        if (status < 0)
            raise_status(link, status);
        if (status < 0 || (!run_grows(&run, column) && i > 0 && add_run(list, &before) < 0))
            Py_CLEAR(list);
    }
    gpubuf_release(run.last);
    if (list && count > 0 && add_run(list, &run) < 0)
        Py_CLEAR(list);
    return list;
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
