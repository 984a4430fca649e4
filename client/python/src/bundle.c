#include "client/python/src/bundle.h"

#include <string.h>

#include "client/python/src/object.h"
#include "client/python/src/options.h"
#include "client/python/src/view.h"

/* The Object's manifest, read at its first use; NULL with an exception. */
static struct gpubuf_bundle *bundle_of(PyObject *self)
{
    struct object *mine = (struct object *)self;
    struct gpubuf_object *object = object_use(mine);
    struct gpubuf_bundle *bundle = NULL;
    int status;

    if (!object || mine->bundle)
        return object ? mine->bundle : NULL;
    struct link *link = link_get(mine->link);
    gpubuf_retain(object);
    WITHOUT_GIL(status = gpubuf_bundle_open(object, &bundle));
    gpubuf_release(object);
    if (status < 0) {
        raise_status(link, status);
    } else if (!object_use(mine) || mine->bundle) { /* released, or read, by another thread */
        gpubuf_bundle_free(bundle);
        bundle = mine->bundle;
    } else {
        mine->bundle = bundle;
    }
    link_put(link);
    return bundle;
}

#define BUNDLE(bundle, self)                                                                       \
    const struct gpubuf_bundle *bundle = bundle_of(self);                                          \
    if (!bundle)                                                                                   \
    return NULL

/* (name, dtype, shape, offset, bytes) */
static PyObject *entry_of(const struct gpubuf_tensor *tensor)
{
    PyObject *shape = tuple_of((const int64_t *)tensor->shape, tensor->ndim);

    return shape ? Py_BuildValue("(ssNKK)", tensor->name, tensor->dtype, shape,
                                 (unsigned long long)tensor->offset,
                                 (unsigned long long)tensor->bytes)
                 : NULL;
}

/* entry(i): tensor i; IndexError. */
PyObject *object_entry(PyObject *self, PyObject *index)
{
    BUNDLE(bundle, self);
    size_t i = PyLong_AsSize_t(index);
    if (PyErr_Occurred())
        return NULL;
    const struct gpubuf_tensor *tensor = gpubuf_bundle_at(bundle, i);
    if (tensor)
        return entry_of(tensor);
    PyErr_Format(PyExc_IndexError, "there is no tensor %zu", i);
    return NULL;
}

/* entries(): those of all tensors */
PyObject *object_entries(PyObject *self, PyObject *unused)
{
    (void)unused;
    BUNDLE(bundle, self);
    size_t count = gpubuf_bundle_count(bundle);
    PyObject *list = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; list && i < count; i++) {
        PyObject *entry = entry_of(gpubuf_bundle_at(bundle, i));
        if (!entry || PyList_SetItem(list, (Py_ssize_t)i, entry) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* find(name): the tensor's number, or -1. */
PyObject *object_find(PyObject *self, PyObject *name)
{
    const char *text;
    size_t i;

    BUNDLE(bundle, self);
    if (!PyArg_Parse(name, "s;a tensor's name is a str", &text))
        return NULL;
    return PyLong_FromLong(gpubuf_bundle_find(bundle, text, &i) ? (long)i : -1);
}

/* tensor(i): an Array; a copy on the host of one that its file has not aligned */
PyObject *object_tensor(PyObject *self, PyObject *index)
{
    struct gpubuf_object *array = NULL;

    BUNDLE(bundle, self);
    size_t i = PyLong_AsSize_t(index);
    if (PyErr_Occurred())
        return NULL;
    struct link *link = ((struct object *)self)->link;
    int status = gpubuf_bundle_array(bundle, i, &array);
    const struct gpubuf_object *object = ((struct object *)self)->object;
    if (status == GPUBUF_E_UNSUPPORTED && strcmp(gpubuf_device(object), "host") == 0)
        status = gpubuf_bundle_copy(bundle, i, &array);
    return status < 0 ? raise_status(link, status) : object_wrap(link, array);
}

/* capsules(): see view_capsules */
PyObject *object_capsules(PyObject *self, PyObject *unused)
{
    (void)unused;
    BUNDLE(bundle, self);
    return view_capsules((struct object *)self, bundle);
}

PyObject *get_bundle_metadata(PyObject *self)
{
    const char *key, *value;

    BUNDLE(bundle, self);
    PyObject *found = PyDict_New();
    for (size_t i = 0; found && gpubuf_bundle_metadata_at(bundle, i, &key, &value) == 0; i++) {
        PyObject *text = Py_BuildValue("s", value);
        if (!text || PyDict_SetItemString(found, key, text) < 0)
            Py_CLEAR(found);
        Py_XDECREF(text);
    }
    return found;
}

#define BUNDLE_GETTER(what, expression)                                                            \
    PyObject *get_##what(PyObject *self, void *closure)                                            \
    {                                                                                              \
        (void)closure;                                                                             \
        BUNDLE(bundle, self);                                                                      \
        return expression;                                                                         \
    }

static uint64_t manifest_bytes(const struct gpubuf_bundle *bundle)
{
    struct gpubuf_layout_spec layout;

    gpubuf_bundle_layout(bundle, &layout);
    return layout.manifest_bytes;
}

BUNDLE_GETTER(tensor_count, PyLong_FromSize_t(gpubuf_bundle_count(bundle)))
BUNDLE_GETTER(manifest_bytes, PyLong_FromUnsignedLongLong(manifest_bytes(bundle)))

/* ---- without an object ---- */

PyObject *core_check_manifest(PyObject *module, PyObject *args)
{
    const char *text;
    Py_ssize_t length;
    unsigned long long bytes;
    struct gpubuf_bundle *bundle;

    (void)module;
    if (!PyArg_ParseTuple(args, "y#K:check_manifest", &text, &length, &bytes))
        return NULL;
    int status = gpubuf_bundle_parse(text, (uint64_t)length, bytes, &bundle);
    if (status < 0)
        return raise_status(NULL, status);
    gpubuf_bundle_free(bundle);
    Py_RETURN_NONE;
}

static int parse_tensor(PyObject *tuple, struct gpubuf_tensor_spec *spec, struct gb_pool *pool)
{
    PyObject *shape;
    uint64_t extents[MAX_NDIM], *kept;

    if (!PyArg_ParseTuple(tuple, "ssO!:tensor", &spec->name, &spec->dtype, &PyTuple_Type, &shape))
        return -1;
    int ndim = parse_extents(shape, extents);
    if (ndim < 0 || !(kept = pool_take(pool, (size_t)ndim, sizeof(*kept))))
        return -1;
    memcpy(kept, extents, (size_t)ndim * sizeof(*kept));
    spec->ndim = (unsigned)ndim;
    spec->shape = kept;
    return 0;
}

static PyObject *outcome_of(const struct gpubuf_bundle *bundle)
{
    struct gpubuf_layout_spec layout;
    uint64_t head_bytes;
    const void *head = gpubuf_bundle_head(bundle, &head_bytes);
    size_t count = gpubuf_bundle_count(bundle);
    PyObject *offsets = PyList_New((Py_ssize_t)count);

    for (size_t i = 0; offsets && i < count; i++) {
        PyObject *offset = PyLong_FromUnsignedLongLong(gpubuf_bundle_at(bundle, i)->offset);
        if (!offset || PyList_SetItem(offsets, (Py_ssize_t)i, offset) < 0)
            Py_CLEAR(offsets);
    }
    gpubuf_bundle_layout(bundle, &layout);
    return offsets ? Py_BuildValue("(y#KKN)", head, (Py_ssize_t)head_bytes,
                                   (unsigned long long)layout.bytes,
                                   (unsigned long long)layout.manifest_bytes, offsets)
                   : NULL;
}

PyObject *core_plan_bundle(PyObject *module, PyObject *args)
{
    PyObject *tuple, *pairs, *result = NULL;
    struct gpubuf_bundle *bundle = NULL;
    struct gb_pool pool = {0};
    int status;

    (void)module;
    if (!PyArg_ParseTuple(args, "O!O!:plan_bundle", &PyTuple_Type, &tuple, &PyTuple_Type, &pairs))
        return NULL;
    size_t count = (size_t)PyTuple_Size(tuple), read = 0;
    struct gpubuf_tensor_spec *specs = pool_take(&pool, count, sizeof(*specs));
    while (specs && read < count &&
           parse_tensor(PyTuple_GetItem(tuple, (Py_ssize_t)read), &specs[read], &pool) == 0)
        read++;
    const char **metadata = specs && read == count ? parse_names(pairs, &pool) : NULL;
    if (metadata) {
        WITHOUT_GIL(status = gpubuf_bundle_plan(specs, count, metadata, &bundle));
        result = status < 0 ? raise_status(NULL, status) : outcome_of(bundle);
        gpubuf_bundle_free(bundle);
    }
    gb_pool_end(&pool);
    return result;
}
