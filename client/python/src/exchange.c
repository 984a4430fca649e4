/* DLPack without a call of Python's: the table of functions that consumers find on a type. */
#include "client/python/src/dlpack.h"
#include "client/python/src/object.h"
#include "client/python/src/view.h"
#include "proto/wire/json.h"

/*
 * The tensor can be used at once, on any stream: this thread waits until the producer's work is
 * done. A consumer may choose any stream, and does not ask for ours.
 */
static int from_object(void *object, struct dl_versioned **out)
{
    struct object *self = object;

    if (!PyObject_TypeCheck((PyObject *)object, object_type)) {
        PyErr_SetString(PyExc_BufferError, "the value is no object of gpubufd");
        return -1;
    }
    struct gpubuf_object *held = object_use(self);
    if (!held)
        return -1;
    if (object_null_count(held) != 0) {
        PyErr_SetString(PyExc_BufferError, "it may have nulls, for which DLPack has no place");
        return -1;
    }
    struct view *view = (struct view *)view_of_object(self);
    if (!view)
        return -1;
    int status = 0;
    if (gpubuf_device_ordinal(held) >= 0)
        WITHOUT_GIL(status = gpubuf_wait_ready(view->object, NULL));
    if (status < 0)
        raise_status(view->link, status);
    else
        *out = view_export(view);
    bool made = status == 0 && *out;
    Py_DECREF((PyObject *)view);
    return made ? 0 : -1;
}

static int allocate(struct dl_tensor *like, struct dl_versioned **out, void *context,
                    void (*set_error)(void *context, const char *kind, const char *message))
{
    (void)like;
    (void)out;
    set_error(context, "NotImplementedError", "gpubufd makes no arrays without names: create()");
    return -1;
}

/* The tensor is the caller's on failure. */
static int to_object(struct dl_versioned *tensor, void **out)
{
    (void)tensor;
    (void)out;
    PyErr_SetString(PyExc_NotImplementedError,
                    "gpubufd makes no objects without a name: put() publishes a copy");
    return -1;
}

/* The legacy default stream; this package queues nothing. */
static int current_stream(int32_t device_type, int32_t device_id, void **out)
{
    (void)device_type;
    (void)device_id;
    *out = NULL;
    return 0;
}

/* Without `borrow`: a DLTensor cannot say that it is read-only. Consumers call from_object(). */
static struct dl_exchange exchange = {
    .major = 1,
    .minor = 3,
    .allocate = allocate,
    .from_object = from_object,
    .to_object = to_object,
    .current_stream = current_stream,
};

/* ---- as a consumer ---- */

/* Writes all that says where a tensor lies and what it is. */
static void write_facts(struct gb_writer *facts, const struct dl_tensor *tensor)
{
    size_t axes = (size_t)tensor->ndim * sizeof(int64_t);
    struct dl_tensor fixed = *tensor;

    fixed.shape = fixed.strides = NULL;
    gb_write(facts, (const char *)&fixed, sizeof(fixed));
    gb_write(facts, (const char *)tensor->shape, axes);
    if (tensor->strides)
        gb_write(facts, (const char *)tensor->strides, axes);
}

PyObject *core_borrow_all(PyObject *module, PyObject *args)
{
    PyObject *capsule, *values, *result = NULL;
    struct gb_writer facts = {0};
    int r = 0;

    (void)module;
    if (!PyArg_ParseTuple(args, "OO!:borrow_all", &capsule, &PyTuple_Type, &values))
        return NULL;
    const struct dl_exchange *of = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (of && (of->major != 1 || !of->borrow))
        PyErr_SetString(PyExc_RuntimeError, "it lends no tensors of DLPack 1");
    if (PyErr_Occurred())
        return NULL;
    for (Py_ssize_t i = 0; r == 0 && i < PyTuple_Size(values); i++) {
        struct dl_tensor tensor = {0};
        r = of->borrow(PyTuple_GetItem(values, i), &tensor);
        if (r == 0)
            write_facts(&facts, &tensor);
    }
    if (r == 0 && facts.failed)
        PyErr_NoMemory();
    else if (r == 0)
        result = PyBytes_FromStringAndSize(facts.data, (Py_ssize_t)facts.length);
    gb_writer_end(&facts);
    return result;
}

int exchange_setup(PyObject *module)
{
    PyObject *capsule = PyCapsule_New(&exchange, "dlpack_exchange_api", NULL);
    int r = capsule ? add_to_module(module, "exchange_api", capsule) : -1;

    Py_XDECREF(capsule);
    return r;
}
