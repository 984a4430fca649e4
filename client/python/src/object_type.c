/* The type of Objects: its attributes and methods. */
#include <string.h>

#include "client/python/src/arrow.h"
#include "client/python/src/arrow_stream.h"
#include "client/python/src/bundle.h"
#include "client/python/src/object.h"
#include "client/python/src/options.h"
#include "client/python/src/view.h"

/* ---- the end of an Object ---- */

static void object_dealloc(PyObject *self)
{
    object_drop((struct object *)self);
    type_free(self);
}

static PyObject *object_raise(const struct object *self, int status)
{
    return raise_status(self->link, status);
}

static PyObject *object_release(PyObject *self, PyObject *unused)
{
    (void)unused;
    object_drop((struct object *)self);
    Py_RETURN_NONE;
}

/* ---- what it is ---- */

#define USE(object, self)                                                                          \
    struct gpubuf_object *object = object_use((struct object *)(self));                            \
    if (!object)                                                                                   \
    return NULL

static PyObject *text_or_none(const char *text)
{
    if (!text)
        Py_RETURN_NONE;
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)strlen(text), "replace");
}

#define GETTER(what, expression)                                                                   \
    static PyObject *get_##what(PyObject *self, void *closure)                                     \
    {                                                                                              \
        (void)closure;                                                                             \
        USE(object, self);                                                                         \
        return expression;                                                                         \
    }

GETTER(kind, PyLong_FromLong((long)gpubuf_kind(object)))
GETTER(name, text_or_none(gpubuf_name(object)))
GETTER(version, PyLong_FromUnsignedLongLong(gpubuf_object_version(object)))
GETTER(label, text_or_none(gpubuf_label(object)))
GETTER(live, PyBool_FromLong(gpubuf_is_live(object)))
GETTER(foreign, PyBool_FromLong(gpubuf_is_foreign(object)))
GETTER(generation, PyLong_FromUnsignedLongLong(gpubuf_generation(object)))
GETTER(device, text_or_none(gpubuf_device(object)))
GETTER(ordinal, PyLong_FromLong(gpubuf_device_ordinal(object)))
GETTER(column_name, text_or_none(gpubuf_column_name(object)))
GETTER(dtype, text_or_none(gpubuf_dtype(object)))
GETTER(instance, text_or_none(gpubuf_instance(((struct object *)self)->link->client)))
GETTER(stale, PyBool_FromLong(gpubuf_is_stale(object)))
GETTER(length, PyLong_FromUnsignedLongLong(gpubuf_length(object)))
GETTER(offset, PyLong_FromUnsignedLongLong(gpubuf_offset(object)))
GETTER(child_count, PyLong_FromSize_t(gpubuf_child_count(object)))

static PyObject *get_released(PyObject *self, void *closure)
{
    (void)closure;
    return PyBool_FromLong(((struct object *)self)->object == NULL);
}

GETTER(shape, tuple_of((const int64_t *)gpubuf_shape(object), gpubuf_ndim(object)))
GETTER(strides, tuple_of(gpubuf_strides(object), gpubuf_ndim(object)))

/* ---- nulls ---- */

GETTER(null_count, PyLong_FromLongLong(object_null_count(object)))

static PyObject *get_has_mask(PyObject *self, void *closure)
{
    (void)closure;
    USE(object, self);
    struct gpubuf_memory mask;
    return PyBool_FromLong(gpubuf_memory(object, GPUBUF_MASK, &mask) == 0);
}

/* ---- parts ---- */

static PyObject *part(PyObject *self, int status, struct gpubuf_object *view)
{
    if (status < 0)
        return object_raise((struct object *)self, status);
    return object_wrap(((struct object *)self)->link, view);
}

static PyObject *object_child(PyObject *self, PyObject *index)
{
    USE(object, self);
    size_t i = PyLong_AsSize_t(index);
    if (PyErr_Occurred())
        return NULL;
    struct gpubuf_object *view = NULL;
    int status = gpubuf_child(object, i, &view);
    return part(self, status, view);
}

static PyObject *object_column(PyObject *self, PyObject *name)
{
    USE(object, self);
    const char *text;
    if (!PyArg_Parse(name, "s;a column's name is a str", &text))
        return NULL;
    struct gpubuf_object *view = NULL;
    int status = gpubuf_column(object, text, &view);
    return part(self, status, view);
}

static PyObject *object_slice(PyObject *self, PyObject *args)
{
    unsigned long long offset, length;

    USE(object, self);
    if (!PyArg_ParseTuple(args, "KK:slice", &offset, &length))
        return NULL;
    struct gpubuf_object *view = NULL;
    int status = gpubuf_slice(object, offset, length, &view);
    return part(self, status, view);
}

/* select(names): a table of some of its columns. */
static PyObject *object_select(PyObject *self, PyObject *names)
{
    USE(object, self);
    if (!PyTuple_Check(names)) {
        PyErr_SetString(PyExc_TypeError, "expected a tuple of names");
        return NULL;
    }
    struct gb_pool pool = {0};
    const char **texts = parse_names(names, &pool);
    if (!texts) {
        gb_pool_end(&pool);
        return NULL;
    }
    struct gpubuf_object *view = NULL;
    int status = gpubuf_select(object, texts, (size_t)PyTuple_Size(names), &view);
    gb_pool_end(&pool);
    return part(self, status, view);
}

/* Makes no Python objects of the children. */
static PyObject *get_child_names(PyObject *self, void *closure)
{
    (void)closure;
    USE(object, self);
    size_t count = gpubuf_child_count(object);
    PyObject *names = PyList_New((Py_ssize_t)count);
    for (size_t i = 0; names && i < count; i++) {
        struct gpubuf_object *child = NULL;
        int status = gpubuf_child(object, i, &child);
        PyObject *name = status < 0 ? object_raise((struct object *)self, status)
                                    : text_or_none(gpubuf_column_name(child));
        gpubuf_release(child);
        if (!name || PyList_SetItem(names, (Py_ssize_t)i, name) < 0)
            Py_CLEAR(names);
    }
    return names;
}

static PyObject *get_metadata(PyObject *self, void *closure)
{
    (void)closure;
    USE(object, self);
    if (gpubuf_kind(object) == GPUBUF_KIND_BUNDLE)
        return get_bundle_metadata(self);
    PyObject *metadata = PyDict_New();
    const char *key, *value;
    for (size_t i = 0; metadata && gpubuf_metadata_at(object, i, &key, &value) == 0; i++) {
        PyObject *text = text_or_none(value);
        if (!text || PyDict_SetItemString(metadata, key, text) < 0)
            Py_CLEAR(metadata);
        Py_XDECREF(text);
    }
    return metadata;
}

/* ---- memory ---- */

static PyObject *object_view(PyObject *self, PyObject *unused)
{
    (void)unused;
    return view_of_object((struct object *)self);
}

static PyObject *object_buffer(PyObject *self, PyObject *which)
{
    long index = PyLong_AsLong(which);

    if (index == -1 && PyErr_Occurred())
        return NULL;
    if (index < 0 || index > GPUBUF_OFFSETS) {
        PyErr_SetString(PyExc_ValueError, "which is 0, 1 or 2: data, mask, offsets");
        return NULL;
    }
    return view_of_buffer((struct object *)self, (enum gpubuf_which)index);
}

/* Makes `result` of a call that may wait, without the GIL: `value`, or NULL with an exception. */
#define CALL(self, object, value, call)                                                            \
    struct link *link = link_get(((struct object *)(self))->link);                                 \
    gpubuf_retain(object);                                                                         \
    int status;                                                                                    \
    WITHOUT_GIL(status = call);                                                                    \
    PyObject *result = status < 0 ? raise_status(link, status) : new_ref(value);                   \
    gpubuf_release(object);                                                                        \
    link_put(link)

/* read(which, offset, address, bytes, stream) and write(…): the memory at `address` must stay until
   the copy is done. */
static PyObject *copy(PyObject *self, PyObject *args, bool write)
{
    int which;
    unsigned long long offset, address, bytes, stream;

    USE(object, self);
    if (!PyArg_ParseTuple(args, "iKKKK", &which, &offset, &address, &bytes, &stream))
        return NULL;
    void *data = (void *)(uintptr_t)address, *on = (void *)(uintptr_t)stream;
    CALL(self, object, Py_None,
         write ? gpubuf_write(object, (enum gpubuf_which)which, offset, data, bytes, on)
               : gpubuf_read(object, (enum gpubuf_which)which, offset, data, bytes, on));
    return result;
}

static PyObject *object_read(PyObject *self, PyObject *args)
{
    return copy(self, args, false);
}

static PyObject *object_write(PyObject *self, PyObject *args)
{
    return copy(self, args, true);
}

static PyObject *object_wait_ready(PyObject *self, PyObject *stream)
{
    USE(object, self);
    void *on = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(stream);
    if (PyErr_Occurred())
        return NULL;
    CALL(self, object, Py_None, gpubuf_wait_ready(object, on));
    return result;
}

/* Gives the reference back when the work queued on a stream is done. */
static PyObject *object_release_on(PyObject *self, PyObject *stream)
{
    struct object *mine = (struct object *)self;

    USE(object, self);
    void *on = (void *)(uintptr_t)PyLong_AsUnsignedLongLong(stream);
    if (PyErr_Occurred())
        return NULL;
    gpubuf_retain(object);
    int status = gpubuf_release_on(object, on);
    if (status < 0) {
        gpubuf_release(object);
        return object_raise(mine, status);
    }
    object_drop(mine);
    Py_RETURN_NONE;
}

/* ---- sealing ---- */

static PyObject *object_set_label(PyObject *self, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"label", "keep", NULL};
    const char *label;
    int keep = -1;

    if (!PyArg_ParseTupleAndKeywords(args, keywords, "z|i:set_label", names, &label, &keep))
        return NULL;
    USE(object, self);
    int status = gpubuf_set_label(object, label, keep);
    if (status < 0)
        return object_raise((struct object *)self, status);
    Py_RETURN_NONE;
}

static PyObject *object_seal(PyObject *self, PyObject *args)
{
    PyObject *counts;
    unsigned long long stream;

    USE(object, self);
    if (!PyArg_ParseTuple(args, "OK:seal", &counts, &stream))
        return NULL;
    int64_t *null_counts;
    struct gb_pool pool = {0};
    if (parse_null_counts(counts, object, &null_counts, &pool) < 0) {
        gb_pool_end(&pool);
        return NULL;
    }
    CALL(self, object, Py_None,
         stream ? gpubuf_seal_on(object, null_counts, (void *)(uintptr_t)stream)
                : gpubuf_seal(object, null_counts));
    gb_pool_end(&pool);
    return result;
}

/* protect(): makes a sealed object's memory read-only in this process. Whether it could. */
static PyObject *object_protect(PyObject *self, PyObject *unused)
{
    (void)unused;
    USE(object, self);
    int status = gpubuf_protect(object);
    return status < 0 ? object_raise((struct object *)self, status) : PyBool_FromLong(status);
}

static PyObject *object_pin_memory(PyObject *self, PyObject *unused)
{
    (void)unused;
    USE(object, self);
    CALL(self, object, self, gpubuf_pin_memory(object));
    return result;
}

/* ---- the buffer protocol ---- */

static int object_getbuffer(PyObject *self, Py_buffer *buffer, int flags)
{
    buffer->obj = NULL;
    struct gpubuf_object *object = object_use((struct object *)self);
    if (!object)
        return -1;
    if (object_null_count(object) != 0) {
        PyErr_Format(PyExc_BufferError,
                     "there are nulls, for which a buffer has no place; `.values` is the buffer "
                     "with undefined elements there, `.validity` says where they are");
        return -1;
    }
    PyObject *view = view_of_object((struct object *)self);
    if (!view)
        return -1;
    int r = -1;
    if (!((struct view *)view)->element.plain)
        PyErr_Format(PyExc_BufferError,
                     "the buffer protocol has no dtype %s; use to_numpy(), or `.values`",
                     gpubuf_dtype(object));
    else
        r = view_fill((struct view *)view, view, buffer, flags);
    Py_DECREF(view);
    return r;
}

/* A memoryview of a published array's or column's numbers, if NumPy has their type, they are on the
   host and there is no bitmap of nulls; else None. */
static PyObject *object_numbers(PyObject *self, PyObject *unused)
{
    (void)unused;
    USE(object, self);
    enum gpubuf_kind kind = gpubuf_kind(object);
    bool one = kind == GPUBUF_KIND_ARRAY || kind == GPUBUF_KIND_COLUMN;
    struct gpubuf_memory mask;
    if (!one || !gpubuf_object_version(object) || gpubuf_device_ordinal(object) >= 0 ||
        gpubuf_memory(object, GPUBUF_MASK, &mask) == 0)
        Py_RETURN_NONE;
    struct view *view = (struct view *)view_of_object((struct object *)self);
    if (!view && !PyErr_ExceptionMatches(PyExc_BufferError))
        return NULL;
    PyErr_Clear();
    bool numbers = view && view->element.plain && view->element.typestr[0] &&
                   strchr("bhilBHILefd", view->format[0]);
    PyObject *result = numbers ? PyMemoryView_FromObject((PyObject *)view) : new_ref(Py_None);
    Py_XDECREF((PyObject *)view);
    return result;
}

/* ---- the type ---- */

static PyGetSetDef getters[] = {
    {"kind", get_kind, NULL, NULL, NULL},
    {"name", get_name, NULL, "The object's name; of a part, that of its whole object.", NULL},
    {"version", get_version, NULL, "The object's version; 0 until seal().", NULL},
    {"live", get_live, NULL, "Whether its content changes: an object of create(live=True).", NULL},
    {"generation", get_generation, NULL,
     "Of an object of claim(): one higher than that of the claim before it; else 0.", NULL},
    {"label", get_label, NULL, "The producer's label for this version, or None.", NULL},
    {"_device", get_device, NULL, NULL, NULL},
    {"_instance", get_instance, NULL, NULL, NULL},
    {"_ordinal", get_ordinal, NULL, NULL, NULL},
    {"_column_name", get_column_name, NULL, NULL, NULL},
    {"_dtype", get_dtype, NULL, NULL, NULL},
    {"_length", get_length, NULL, NULL, NULL},
    {"_offset", get_offset, NULL, NULL, NULL},
    {"_child_count", get_child_count, NULL, NULL, NULL},
    {"_child_names", get_child_names, NULL, NULL, NULL},
    {"_shape", get_shape, NULL, NULL, NULL},
    {"_strides", get_strides, NULL, NULL, NULL},
    {"_null_count", get_null_count, NULL, NULL, NULL},
    {"_has_mask", get_has_mask, NULL, NULL, NULL},
    {"_foreign", get_foreign, NULL, NULL, NULL},
    {"_tensor_count", get_tensor_count, NULL, NULL, NULL},
    {"_manifest_bytes", get_manifest_bytes, NULL, NULL, NULL},
    {"metadata", get_metadata, NULL, "The metadata of the object, a new dict.", NULL},
    {"released", get_released, NULL, "Whether the object has been released.", NULL},
    {"stale", get_stale, NULL,
     "Whether the lease ended with a lost connection. The object can still be read, as it was.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"release", object_release, METH_NOARGS,
     "Releases the object; more than once is fine. Arrays made of it keep the lease."},
    {"_child", object_child, METH_O, NULL},
    {"_column", object_column, METH_O, NULL},
    {"_slice", object_slice, METH_VARARGS, NULL},
    {"_select", object_select, METH_O, NULL},
    {"_runs", object_runs, METH_NOARGS, NULL},
    {"_entries", object_entries, METH_NOARGS, NULL},
    {"_entry", object_entry, METH_O, NULL},
    {"_find", object_find, METH_O, NULL},
    {"_tensor", object_tensor, METH_O, NULL},
    {"_capsules", object_capsules, METH_NOARGS, NULL},
    {"_view", object_view, METH_NOARGS, NULL},
    {"_plain_numbers", object_numbers, METH_NOARGS, NULL},
    {"_buffer", object_buffer, METH_O, NULL},
    {"_read", object_read, METH_VARARGS, NULL},
    {"_write", object_write, METH_VARARGS, NULL},
    {"_wait_ready", object_wait_ready, METH_O, NULL},
    {"_release_on", object_release_on, METH_O, NULL},
    {"_seal", object_seal, METH_VARARGS, NULL},
    {"_protect", object_protect, METH_NOARGS, NULL},
    {"pin_memory", object_pin_memory, METH_NOARGS,
     "pin_memory()\n--\n\nPage-locks the object's memory on the host for copies to and from GPUs, "
     "once "
     "in this process,\nuntil its last reference is released; the object itself."},
    {"set_label", (PyCFunction)(void (*)(void))object_set_label, METH_VARARGS | METH_KEYWORDS,
     "set_label(label, keep=-1)\n--\n\nSets, before seal(), the version's label and how many older "
     "versions can still be opened\n(-1: as create() said), in place of those of create()."},
    {"_arrow_schema", object_arrow_schema, METH_NOARGS, NULL},
    {"_arrow_array", object_arrow_array, METH_NOARGS, NULL},
    {"_arrow_device_array", object_arrow_device_array, METH_NOARGS, NULL},
    {"_arrow_stream", object_arrow_stream, METH_NOARGS, NULL},
    {"_arrow_device_stream", object_arrow_device_stream, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, object_dealloc},
    {Py_tp_getset, getters},
    {Py_tp_methods, methods},
    {Py_bf_getbuffer, object_getbuffer},
    {0, NULL},
};

int object_setup(PyObject *module)
{
    return add_type(module, "gpubufd._core.Object", sizeof(struct object), TYPE_FLAGS, slots,
                    &object_type);
}
