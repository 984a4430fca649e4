/* Arrow's C structs in capsules: exports of Objects, and imports of other libraries' arrays. */
#include "client/python/src/arrow.h"

#include <stdlib.h>
#include <string.h>

#include "client/python/src/object.h"
#include "client/python/src/options.h"
#include "client/python/src/reconnect.h"
#include "proto/base/pool.h"

/* ---- exports that keep the connection ---- */

/* The state of an array's own release, while the array holds the link as well. */
struct held {
    struct link *link;
    void (*release)(struct ArrowArray *);
    void *private_data;
};

static void held_release(struct ArrowArray *array)
{
    struct held *held = array->private_data;
    struct link *link = held->link;

    array->release = held->release;
    array->private_data = held->private_data;
    free(held);
    array->release(array);
    link_put(link);
}

int arrow_hold(struct ArrowArray *array, struct link *link)
{
    struct held *held = malloc(sizeof(*held));

    if (!held)
        return GPUBUF_E_NO_MEMORY;
    *held = (struct held){link_get(link), array->release, array->private_data};
    array->release = held_release;
    array->private_data = held;
    int r = 0;
    for (int64_t i = 0; r == 0 && i < array->n_children; i++)
        r = arrow_hold(array->children[i], link);
    if (r == 0 && array->dictionary)
        r = arrow_hold(array->dictionary, link);
    return r;
}

static void release(void *content, const char *name)
{
    struct ArrowSchema *schema = content;
    struct ArrowArray *array = content; /* that of a device begins with one */

    if (strcmp(name, "arrow_schema") != 0 && array->release)
        array->release(array);
    else if (strcmp(name, "arrow_schema") == 0 && schema->release)
        schema->release(schema);
    free(content);
}

static void end_capsule(PyObject *capsule)
{
    const char *name = PyCapsule_GetName(capsule);

    release(PyCapsule_GetPointer(capsule, name), name);
}

PyObject *arrow_capsule(void *content, const char *name)
{
    PyObject *capsule = PyCapsule_New(content, name, end_capsule);

    if (!capsule)
        release(content, name);
    return capsule;
}

PyObject *object_arrow_schema(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct gpubuf_object *object = object_use((struct object *)self);
    if (!object)
        return NULL;
    struct ArrowSchema *schema = calloc(1, sizeof(*schema));
    if (!schema)
        return PyErr_NoMemory();
    int status = gpubuf_export_arrow_device(object, schema, NULL);
    if (status < 0) {
        free(schema);
        return raise_status(((struct object *)self)->link, status);
    }
    return arrow_capsule(schema, "arrow_schema");
}

/* An export that holds the link. */
static PyObject *export_array(PyObject *self, bool device)
{
    struct link *link = ((struct object *)self)->link;
    struct gpubuf_object *object = object_use((struct object *)self);

    if (!object)
        return NULL;
    struct ArrowDeviceArray *array = calloc(1, sizeof(*array));
    if (!array)
        return PyErr_NoMemory();
    int status = device ? gpubuf_export_arrow_device(object, NULL, array)
                        : gpubuf_export_arrow(object, NULL, &array->array);
    if (status == 0 && arrow_hold(&array->array, link) < 0) {
        array->array.release(&array->array);
        status = GPUBUF_E_NO_MEMORY;
    }
    if (status < 0) {
        free(array);
        return raise_status(link, status);
    }
    return arrow_capsule(array, device ? "arrow_device_array" : "arrow_array");
}

PyObject *object_arrow_array(PyObject *self, PyObject *unused)
{
    (void)unused;
    return export_array(self, false);
}

PyObject *object_arrow_device_array(PyObject *self, PyObject *unused)
{
    (void)unused;
    return export_array(self, true);
}

/* ---- arrays taken apart, to be copied by Python ---- */

static int32_t next_int32(const char **at)
{
    int32_t value;

    memcpy(&value, *at, sizeof(value));
    *at += sizeof(value);
    return value;
}

/* A node's metadata as (key, value, …), each bytes; None if there are none. */
static PyObject *metadata_of(const struct ArrowSchema *schema)
{
    const char *at = schema->metadata;
    int32_t count = at ? next_int32(&at) : 0;

    if (count <= 0)
        return new_ref(Py_None);
    PyObject *pairs = PyTuple_New((Py_ssize_t)count * 2);
    for (int32_t i = 0; pairs && i < count * 2; i++) {
        int32_t length = next_int32(&at);
        PyObject *text = PyBytes_FromStringAndSize(at, length);
        if (!text || PyTuple_SetItem(pairs, i, text) < 0)
            Py_CLEAR(pairs);
        at += length;
    }
    return pairs;
}

static PyObject *node_of(const struct ArrowSchema *schema, const struct ArrowArray *array);

static PyObject *nodes_of(const struct ArrowSchema *schema, const struct ArrowArray *array)
{
    if (array && (schema->n_children != array->n_children ||
                  (schema->dictionary != NULL) != (array->dictionary != NULL))) {
        PyErr_SetString(PyExc_ValueError, "an Arrow array does not fit its schema");
        return NULL;
    }
    PyObject *children = PyTuple_New((Py_ssize_t)schema->n_children);
    for (int64_t i = 0; children && i < schema->n_children; i++) {
        PyObject *child = node_of(schema->children[i], array ? array->children[i] : NULL);
        if (!child || PyTuple_SetItem(children, (Py_ssize_t)i, child) < 0)
            Py_CLEAR(children);
    }
    return children;
}

static PyObject *addresses_of(const struct ArrowArray *array)
{
    Py_ssize_t count = array ? (Py_ssize_t)array->n_buffers : 0;
    PyObject *buffers = PyTuple_New(count);

    for (Py_ssize_t i = 0; buffers && i < count; i++) {
        PyObject *address = PyLong_FromVoidPtr((void *)(uintptr_t)array->buffers[i]);
        if (!address || PyTuple_SetItem(buffers, i, address) < 0)
            Py_CLEAR(buffers);
    }
    return buffers;
}

/* (format, name, length, offset, null_count, addresses of the buffers, children, dictionary,
   metadata); of a schema alone without elements and buffers. */
static PyObject *node_of(const struct ArrowSchema *schema, const struct ArrowArray *array)
{
    if (Py_EnterRecursiveCall(" in an Arrow array"))
        return NULL;
    PyObject *children = nodes_of(schema, array);
    PyObject *buffers = children ? addresses_of(array) : NULL;
    PyObject *metadata = buffers ? metadata_of(schema) : NULL;
    PyObject *dictionary = NULL;
    if (metadata)
        dictionary = schema->dictionary
                         ? node_of(schema->dictionary, array ? array->dictionary : NULL)
                         : new_ref(Py_None);
    Py_LeaveRecursiveCall();
    if (!dictionary) {
        Py_XDECREF(children);
        Py_XDECREF(buffers);
        Py_XDECREF(metadata);
        return NULL;
    }
    return Py_BuildValue("(ssLLLNNNN)", schema->format, schema->name ? schema->name : "",
                         array ? (long long)array->length : 0, array ? (long long)array->offset : 0,
                         array ? (long long)array->null_count : 0, buffers, children, dictionary,
                         metadata);
}

/* The schema in a capsule; NULL with an exception. */
static const struct ArrowSchema *find_schema(PyObject *capsule)
{
    const struct ArrowSchema *schema = PyCapsule_GetPointer(capsule, "arrow_schema");

    if (!schema || schema->release)
        return schema;
    PyErr_SetString(PyExc_ValueError, "the Arrow schema has been released");
    return NULL;
}

/* The array of a capsule of either kind, and where it is. False with an exception. */
static bool find_array(PyObject *capsule, struct ArrowDeviceArray *found)
{
    if (PyCapsule_IsValid(capsule, "arrow_device_array")) {
        *found = *(struct ArrowDeviceArray *)PyCapsule_GetPointer(capsule, "arrow_device_array");
    } else {
        const struct ArrowArray *array = PyCapsule_GetPointer(capsule, "arrow_array");
        if (!array)
            return false;
        *found = (struct ArrowDeviceArray){
            .array = *array, .device_type = ARROW_DEVICE_CPU, .device_id = -1};
    }
    if (!found->array.release)
        PyErr_SetString(PyExc_ValueError, "the Arrow array has been released");
    return found->array.release;
}

/* array_device(array capsule of either kind) -> (device type, device, sync event) */
PyObject *core_array_device(PyObject *module, PyObject *capsule)
{
    struct ArrowDeviceArray found;

    (void)module;
    if (!find_array(capsule, &found))
        return NULL;
    return Py_BuildValue("(iLN)", (int)found.device_type, (long long)found.device_id,
                         PyLong_FromVoidPtr(found.sync_event));
}

/* nodes(schema capsule, array capsule of either kind, or None for the schema alone) -> node */
PyObject *core_nodes(PyObject *module, PyObject *args)
{
    PyObject *head, *body;
    struct ArrowDeviceArray found;

    (void)module;
    if (!PyArg_ParseTuple(args, "OO:nodes", &head, &body))
        return NULL;
    const struct ArrowSchema *schema = find_schema(head);
    if (!schema || (body != Py_None && !find_array(body, &found)))
        return NULL;
    return node_of(schema, body != Py_None ? &found.array : NULL);
}

/* ---- sources, which put_arrow takes ---- */

/*
 * A source is either (schema capsule, [array capsules]), or what Python has put together:
 * (format, length, null_count, buffers, children, dictionary, metadata): buffers are exporters of
 * the buffer protocol or None, children are (name, source), dictionary is a source or None, and
 * metadata, which may be left out, are bytes as Arrow encodes them. A child with a tuple of names
 * is a block: as many columns of numbers, whose data lie one behind the other in its last buffer.
 * All of it is borrowed, and stays as it is until the call returns.
 */
#define IN_PIECES 1 /* of build(): an array is in several, or in none */

struct block { /* what is given back at the end */
    struct block *next;
    Py_buffer buffer;
};

struct sources {
    struct gb_pool pool;
    struct block *blocks;
};

static struct block *sources_block(struct sources *sources)
{
    struct block *block = pool_take(&sources->pool, 1, sizeof(*block));

    if (block) {
        block->next = sources->blocks;
        sources->blocks = block;
    }
    return block;
}

static void sources_end(struct sources *sources)
{
    for (struct block *block = sources->blocks; block; block = block->next) {
        if (block->buffer.obj)
            PyBuffer_Release(&block->buffer);
    }
    sources->blocks = NULL;
    gb_pool_end(&sources->pool);
}

static void no_release_schema(struct ArrowSchema *schema)
{
    schema->release = NULL;
}

static void no_release_array(struct ArrowArray *array)
{
    array->release = NULL;
}

static int build_capsules(PyObject *source, struct ArrowSchema *schema, struct ArrowArray *array)
{
    PyObject *head, *list;

    if (!PyArg_ParseTuple(source, "OO!:arrow", &head, &PyList_Type, &list))
        return -1;
    const struct ArrowSchema *from = find_schema(head);
    if (!from)
        return -1;
    if (PyList_Size(list) != 1)
        return IN_PIECES;
    struct ArrowDeviceArray found;
    if (!find_array(PyList_GetItem(list, 0), &found))
        return -1;
    if (found.device_type != ARROW_DEVICE_CPU) {
        PyErr_Format(PyExc_TypeError,
                     "an Arrow array on a device of type %d cannot be put; copy it to the host, or "
                     "put its columns as arrays",
                     (int)found.device_type);
        return -1;
    }
    *schema = *from;
    *array = found.array;
    return 0;
}

static int build_buffers(struct sources *sources, PyObject *tuple, struct ArrowArray *array)
{
    Py_ssize_t count = PyTuple_Size(tuple);
    const void **buffers =
        count < 0 ? NULL : pool_take(&sources->pool, (size_t)count, sizeof(*buffers));

    if (!buffers)
        return -1;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *exporter = PyTuple_GetItem(tuple, i);
        if (exporter == Py_None)
            continue;
        struct block *block = sources_block(sources);
        if (!block || PyObject_GetBuffer(exporter, &block->buffer, PyBUF_SIMPLE) < 0)
            return -1;
        buffers[i] = block->buffer.buf;
    }
    array->buffers = buffers;
    array->n_buffers = count;
    return 0;
}

static int build(struct sources *sources, PyObject *source, struct ArrowSchema *schema,
                 struct ArrowArray *array);

/* Makes as many columns as there are names of the first, which has the data of all. */
static int divide_block(struct sources *sources, PyObject *names, struct ArrowSchema *schemas,
                        struct ArrowArray *arrays)
{
    Py_ssize_t count = PyTuple_Size(names);
    size_t apart = (size_t)(sources->blocks->buffer.len / count);
    const char *data = arrays[0].buffers[1];

    for (Py_ssize_t i = 0; i < count; i++) {
        const void **buffers = pool_take(&sources->pool, 2, sizeof(*buffers));
        if (!buffers)
            return -1;
        buffers[1] = data + (size_t)i * apart;
        schemas[i] = schemas[0];
        arrays[i] = arrays[0];
        arrays[i].buffers = buffers;
        if (!PyArg_Parse(PyTuple_GetItem(names, i), "s:name", &schemas[i].name))
            return -1;
    }
    return 0;
}

/* Builds a child, or the columns of a block. */
static int build_child(struct sources *sources, PyObject *name, PyObject *source,
                       struct ArrowSchema *schemas, struct ArrowArray *arrays)
{
    int r = build(sources, source, schemas, arrays);

    if (r != 0)
        return r;
    if (PyTuple_Check(name))
        return divide_block(sources, name, schemas, arrays);
    return PyArg_Parse(name, "s:name", &schemas->name) ? 0 : -1;
}

/* How many columns children are; -1 with an exception. */
static Py_ssize_t count_columns(PyObject *children)
{
    Py_ssize_t found = 0, entries = PyTuple_Size(children);

    for (Py_ssize_t i = 0; i < entries; i++) {
        PyObject *name = PyTuple_GetItem(PyTuple_GetItem(children, i), 0);
        if (!name)
            return -1;
        found += PyTuple_Check(name) ? PyTuple_Size(name) : 1;
    }
    return entries < 0 ? -1 : found;
}

static int build_children(struct sources *sources, PyObject *tuple, struct ArrowSchema *schema,
                          struct ArrowArray *array)
{
    Py_ssize_t count = count_columns(tuple);

    if (count <= 0)
        return (int)count;
    size_t room = (size_t)count;
    schema->children = pool_take(&sources->pool, room, sizeof(*schema->children));
    array->children = pool_take(&sources->pool, room, sizeof(*array->children));
    struct ArrowSchema *schemas = pool_take(&sources->pool, room, sizeof(*schemas));
    struct ArrowArray *arrays = pool_take(&sources->pool, room, sizeof(*arrays));
    if (!schema->children || !array->children || !schemas || !arrays)
        return -1;
    Py_ssize_t at = 0;
    for (Py_ssize_t i = 0; at < count; i++) {
        PyObject *name, *child;
        if (!PyArg_ParseTuple(PyTuple_GetItem(tuple, i), "OO:child", &name, &child))
            return -1;
        int r = build_child(sources, name, child, &schemas[at], &arrays[at]);
        if (r != 0)
            return r;
        at += PyTuple_Check(name) ? PyTuple_Size(name) : 1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        if (strcmp(schema->format, "+m") == 0) { /* entries and keys of a map cannot be null */
            schemas[i].flags &= ~ARROW_FLAG_NULLABLE;
            if (schemas[i].n_children > 0)
                schemas[i].children[0]->flags &= ~ARROW_FLAG_NULLABLE;
        }
        schema->children[i] = &schemas[i];
        array->children[i] = &arrays[i];
    }
    schema->n_children = array->n_children = count;
    return 0;
}

static int build_parts(struct sources *sources, PyObject *source, struct ArrowSchema *schema,
                       struct ArrowArray *array)
{
    PyObject *buffers, *children, *dictionary;
    long long length, null_count;

    *schema = (struct ArrowSchema){.flags = ARROW_FLAG_NULLABLE, .release = no_release_schema};
    *array = (struct ArrowArray){.release = no_release_array};
    Py_ssize_t metadata_bytes;
    if (!PyArg_ParseTuple(source, "sLLO!O!O|y#:parts", &schema->format, &length, &null_count,
                          &PyTuple_Type, &buffers, &PyTuple_Type, &children, &dictionary,
                          &schema->metadata, &metadata_bytes))
        return -1;
    array->length = length;
    array->null_count = null_count;
    int r = build_buffers(sources, buffers, array);
    if (r == 0)
        r = build_children(sources, children, schema, array);
    if (r != 0 || dictionary == Py_None)
        return r;
    schema->dictionary = pool_take(&sources->pool, 1, sizeof(*schema->dictionary));
    array->dictionary = pool_take(&sources->pool, 1, sizeof(*array->dictionary));
    if (!schema->dictionary || !array->dictionary)
        return -1;
    return build(sources, dictionary, schema->dictionary, array->dictionary);
}

static int build(struct sources *sources, PyObject *source, struct ArrowSchema *schema,
                 struct ArrowArray *array)
{
    if (!PyTuple_Check(source)) {
        PyErr_SetString(PyExc_TypeError, "a source is not a tuple");
        return -1;
    }
    if (Py_EnterRecursiveCall(" in a column"))
        return -1;
    bool parts = PyTuple_Size(source) != 2;
    int r =
        parts ? build_parts(sources, source, schema, array) : build_capsules(source, schema, array);
    Py_LeaveRecursiveCall();
    return r;
}

/* put_arrow(name, source, as_table, options): the version; None: nothing was put, since an array of
   the source is in several pieces. */
PyObject *client_put_arrow(PyObject *self, PyObject *args)
{
    const char *name;
    PyObject *source, *options_tuple;
    int as_table;
    struct gpubuf_create_options options;

    if (!PyArg_ParseTuple(args, "sOpO:put", &name, &source, &as_table, &options_tuple) ||
        parse_create_options(options_tuple, &options) < 0)
        return NULL;
    struct link *link = client_enter(self);
    if (!link)
        return NULL;
    struct sources sources = {0};
    struct ArrowSchema schema;
    struct ArrowArray array;
    PyObject *result = NULL;
    int r = build(&sources, source, &schema, &array);
    if (r == IN_PIECES) {
        result = new_ref(Py_None);
    } else if (r == 0) {
        int status;
        uint64_t version = 0;
        options.version = &version;
        WITHOUT_GIL(status =
                        gpubuf_put_arrow(link->client, name, &schema, &array, as_table, &options));
        result = status < 0 ? raise_status(link, status) : PyLong_FromUnsignedLongLong(version);
    }
    sources_end(&sources);
    link_put(link);
    return result;
}

/* ---- sources as capsules ---- */

/* The memory that a source's structs point to. Each node has a reference, since a consumer may move
   a child out. */
struct shared_sources {
    atomic_size_t references;
    struct sources sources;
    PyObject *source;
};

static void shared_put(struct shared_sources *shared)
{
    if (atomic_fetch_sub(&shared->references, 1) > 1 || !Py_IsInitialized())
        return;
    PyGILState_STATE state = PyGILState_Ensure(); /* a consumer may release in any thread */
    sources_end(&shared->sources);
    Py_DECREF(shared->source);
    PyGILState_Release(state);
    free(shared);
}

static void shared_release_schema(struct ArrowSchema *schema)
{
    for (int64_t i = 0; i < schema->n_children; i++) {
        if (schema->children[i]->release)
            schema->children[i]->release(schema->children[i]);
    }
    if (schema->dictionary && schema->dictionary->release)
        schema->dictionary->release(schema->dictionary);
    schema->release = NULL;
    shared_put(schema->private_data);
}

static void shared_release_array(struct ArrowArray *array)
{
    for (int64_t i = 0; i < array->n_children; i++) {
        if (array->children[i]->release)
            array->children[i]->release(array->children[i]);
    }
    if (array->dictionary && array->dictionary->release)
        array->dictionary->release(array->dictionary);
    array->release = NULL;
    shared_put(array->private_data);
}

static void share_nodes(struct shared_sources *shared, struct ArrowSchema *schema,
                        struct ArrowArray *array)
{
    (void)atomic_fetch_add(&shared->references, 2);
    schema->private_data = array->private_data = shared;
    schema->release = shared_release_schema;
    array->release = shared_release_array;
    for (int64_t i = 0; i < array->n_children; i++)
        share_nodes(shared, schema->children[i], array->children[i]);
    if (array->dictionary)
        share_nodes(shared, schema->dictionary, array->dictionary);
}

/* capsules(source): capsules of the schema and the array of a source; they hold the source. */
PyObject *core_capsules(PyObject *module, PyObject *source)
{
    (void)module;
    struct shared_sources *shared = calloc(1, sizeof(*shared));
    struct ArrowSchema *schema = calloc(1, sizeof(*schema));
    struct ArrowArray *array = calloc(1, sizeof(*array));
    if (!shared || !schema || !array || build(&shared->sources, source, schema, array) != 0) {
        if (shared)
            sources_end(&shared->sources);
        free(shared);
        free(schema);
        free(array);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    atomic_init(&shared->references, 1);
    shared->source = new_ref(source);
    share_nodes(shared, schema, array);
    PyObject *head = arrow_capsule(schema, "arrow_schema");
    PyObject *body = arrow_capsule(array, "arrow_array");
    shared_put(shared);
    return Py_BuildValue("(NN)", head, body);
}
