#include "client/python/src/options.h"

int parse_create_options(PyObject *tuple, struct gpubuf_create_options *options)
{
    int replace, evict, final, scope, own, live;

    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "the options are not a tuple");
        return -1;
    }
    *options = (struct gpubuf_create_options){.size = sizeof(*options)};
    if (!PyArg_ParseTuple(tuple, "zIpLiLpzIipp:options", &options->device, &options->mode, &replace,
                          &options->ttl_ms, &evict, &options->wait_ms, &final, &options->label,
                          &options->keep, &scope, &own, &live))
        return -1;
    options->replace = replace;
    options->evict = (enum gpubuf_evict)evict;
    options->final = final;
    options->scope = (enum gpubuf_scope)scope;
    options->own = own;
    options->live = live;
    return 0;
}

/* ---- layouts ---- */

void *pool_take(struct gb_pool *pool, size_t count, size_t size)
{
    void *memory = gb_pool_calloc(pool, count + 1, size);

    if (!memory)
        PyErr_NoMemory();
    return memory;
}

static int parse_metadata(PyObject *list, const char *const **out, struct gb_pool *pool)
{
    if (list == Py_None)
        return 0;
    Py_ssize_t count = PyTuple_Size(list);
    if (count < 0)
        return -1;
    const char **pairs = pool_take(pool, (size_t)count + 1, sizeof(*pairs));
    if (!pairs)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *bytes = PyTuple_GetItem(list, i); /* encoded, so that it can be borrowed */
        pairs[i] = bytes ? PyBytes_AsString(bytes) : NULL;
        if (!pairs[i])
            return -1;
    }
    *out = pairs;
    return 0;
}

static int parse_column(PyObject *tuple, struct gpubuf_column_spec *spec, struct gb_pool *pool)
{
    PyObject *children, *metadata;
    const char *name, *dtype;
    unsigned long long length, offset, data_bytes;
    long long null_count;
    int mask;

    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "a column is not a tuple");
        return -1;
    }
    if (!PyArg_ParseTuple(tuple, "zsKKLpKO!O:column", &name, &dtype, &length, &offset, &null_count,
                          &mask, &data_bytes, &PyTuple_Type, &children, &metadata))
        return -1;
    *spec = (struct gpubuf_column_spec){
        .name = name,
        .dtype = dtype,
        .length = length,
        .offset = offset,
        .null_count = null_count,
        .mask = mask,
        .data_bytes = data_bytes,
    };
    if (parse_metadata(metadata, &spec->metadata, pool) < 0)
        return -1;
    size_t count = (size_t)PyTuple_Size(children);
    if (count == 0)
        return 0;
    struct gpubuf_column_spec *specs = pool_take(pool, count, sizeof(*specs));
    if (!specs || Py_EnterRecursiveCall(" in a layout"))
        return -1;
    int r = 0;
    for (size_t i = 0; r == 0 && i < count; i++)
        r = parse_column(PyTuple_GetItem(children, (Py_ssize_t)i), &specs[i], pool);
    Py_LeaveRecursiveCall();
    spec->children = specs;
    spec->child_count = count;
    return r;
}

int parse_extents(PyObject *tuple, uint64_t extents[MAX_NDIM])
{
    Py_ssize_t ndim = PyTuple_Size(tuple);

    if (ndim > MAX_NDIM) {
        PyErr_Format(PyExc_ValueError, "an array has at most %d axes, not %zd", MAX_NDIM, ndim);
        return -1;
    }
    for (Py_ssize_t i = 0; i < ndim; i++)
        extents[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, i));
    return PyErr_Occurred() ? -1 : (int)ndim;
}

int parse_layout(PyObject *tuple, struct gpubuf_layout_spec *layout, struct gb_pool *pool)
{
    PyObject *shape, *column;
    const char *dtype;
    unsigned long long bytes, manifest_bytes = 0;
    int kind, mask;

    *layout = (struct gpubuf_layout_spec){.kind = GPUBUF_KIND_BYTES};
    if (!PyArg_ParseTuple(tuple, "iKzO!pO|K:layout", &kind, &bytes, &dtype, &PyTuple_Type, &shape,
                          &mask, &column, &manifest_bytes))
        return -1;
    layout->manifest_bytes = manifest_bytes;
    layout->kind = (enum gpubuf_kind)kind;
    layout->bytes = bytes;
    layout->dtype = dtype;
    layout->mask = mask;
    uint64_t *extents = pool_take(pool, MAX_NDIM, sizeof(*extents));
    int ndim = extents ? parse_extents(shape, extents) : -1;
    if (ndim < 0)
        return -1;
    layout->ndim = (unsigned)ndim;
    layout->shape = extents;
    return column != Py_None ? parse_column(column, &layout->column, pool) : 0;
}

const char **parse_names(PyObject *tuple, struct gb_pool *pool)
{
    size_t count = (size_t)PyTuple_Size(tuple);
    const char **texts = pool_take(pool, count, sizeof(*texts));

    for (size_t i = 0; texts && i < count; i++) {
        if (!PyArg_Parse(PyTuple_GetItem(tuple, (Py_ssize_t)i), "s;a name is a str", &texts[i]))
            return NULL;
    }
    return texts;
}

struct gpubuf_part *parse_parts(PyObject *tuple, struct gb_pool *pool)
{
    size_t count = (size_t)PyTuple_Size(tuple);
    struct gpubuf_part *parts = pool_take(pool, count, sizeof(*parts));

    for (size_t i = 0; parts && i < count; i++) {
        unsigned long long address, bytes;
        if (!PyArg_ParseTuple(PyTuple_GetItem(tuple, (Py_ssize_t)i), "KK:part", &address, &bytes))
            return NULL;
        parts[i] = (struct gpubuf_part){(void *)(uintptr_t)address, bytes};
    }
    return parts;
}

int parse_null_counts(PyObject *counts, const struct gpubuf_object *object, int64_t **out,
                      struct gb_pool *pool)
{
    *out = NULL;
    if (counts == Py_None)
        return 0;
    Py_ssize_t count = PyTuple_Size(counts);
    size_t expected = gpubuf_kind(object) == GPUBUF_KIND_TABLE ? gpubuf_child_count(object) : 1;
    if (count < 0)
        return -1;
    if ((size_t)count != expected) {
        PyErr_Format(PyExc_ValueError, "expected %zu null counts, not %zd", expected, count);
        return -1;
    }
    int64_t *null_counts = *out = pool_take(pool, expected, sizeof(*null_counts));
    for (Py_ssize_t i = 0; null_counts && i < count; i++)
        null_counts[i] = PyLong_AsLongLong(PyTuple_GetItem(counts, i));
    return PyErr_Occurred() ? -1 : 0;
}
