/* Arrow's streams in capsules: exports of Objects, as one array, and imports of other libraries'
   streams. */
#include "client/python/src/arrow_stream.h"

#include <stdlib.h>
#include <string.h>

#include "client/python/src/arrow.h"
#include "client/python/src/object.h"

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
};

struct ArrowDeviceArrayStream {
    ArrowDeviceType device_type;
    int (*get_schema)(struct ArrowDeviceArrayStream *, struct ArrowSchema *out);
    int (*get_next)(struct ArrowDeviceArrayStream *, struct ArrowDeviceArray *out);
    const char *(*get_last_error)(struct ArrowDeviceArrayStream *);
    void (*release)(struct ArrowDeviceArrayStream *);
    void *private_data;
};

/* ---- a stream of one array ---- */

/* The state of a stream of either kind: one array, until it is fetched. */
struct single {
    struct link *link;
    struct gpubuf_object *object;
    struct ArrowDeviceArray array; /* of the host: its first member alone is used */
};

#define STREAM_FAILED 5 /* EIO */

static void single_end(struct single *single)
{
    if (!single)
        return;
    if (single->array.array.release)
        single->array.array.release(&single->array.array);
    gpubuf_release(single->object);
    link_put(single->link);
    free(single);
}

static struct single *single_new(struct object *self)
{
    struct gpubuf_object *object = object_use(self);
    struct single *single = object ? calloc(1, sizeof(*single)) : NULL;

    if (!object)
        return NULL;
    if (!single) {
        PyErr_NoMemory();
        return NULL;
    }
    int status = gpubuf_export_arrow_device(object, NULL, &single->array);
    if (status == 0 && arrow_hold(&single->array.array, self->link) < 0)
        status = GPUBUF_E_NO_MEMORY;
    if (status < 0) {
        raise_status(self->link, status);
        single_end(single);
        return NULL;
    }
    single->object = gpubuf_retain(object);
    single->link = link_get(self->link);
    return single;
}

static int export_schema(const struct single *single, struct ArrowSchema *out)
{
    return gpubuf_export_arrow_device(single->object, out, NULL) < 0 ? STREAM_FAILED : 0;
}

/* The two kinds are alike but for their types. `first` is the array of a `single`; what follows it
   are further members of the stream. */
#define STREAM(kind, stream_type, array_type, capsule_name, first, ...)                            \
    static int kind##_schema(struct stream_type *stream, struct ArrowSchema *out)                  \
    {                                                                                              \
        return export_schema(stream->private_data, out);                                           \
    }                                                                                              \
                                                                                                   \
    static int kind##_next(struct stream_type *stream, struct array_type *out)                     \
    {                                                                                              \
        struct single *single = stream->private_data;                                              \
                                                                                                   \
        *out = first;                                                                              \
        single->array.array.release = NULL;                                                        \
        return 0;                                                                                  \
    }                                                                                              \
                                                                                                   \
    static const char *kind##_error(struct stream_type *stream)                                    \
    {                                                                                              \
        return gpubuf_object_errmsg(((struct single *)stream->private_data)->object);              \
    }                                                                                              \
                                                                                                   \
    static void kind##_release(struct stream_type *stream)                                         \
    {                                                                                              \
        single_end(stream->private_data);                                                          \
        stream->release = NULL;                                                                    \
    }                                                                                              \
                                                                                                   \
    static void end_##kind##_stream(PyObject *capsule)                                             \
    {                                                                                              \
        struct stream_type *stream = PyCapsule_GetPointer(capsule, capsule_name);                  \
                                                                                                   \
        if (stream->release)                                                                       \
            stream->release(stream);                                                               \
        free(stream);                                                                              \
    }                                                                                              \
                                                                                                   \
    static PyObject *kind##_stream(struct single *single)                                          \
    {                                                                                              \
        struct stream_type *stream = single ? malloc(sizeof(*stream)) : NULL;                      \
        PyObject *capsule = NULL;                                                                  \
                                                                                                   \
        if (single && !stream)                                                                     \
            PyErr_NoMemory();                                                                      \
        if (stream) {                                                                              \
            *stream = (struct stream_type){.get_schema = kind##_schema,                            \
                                           .get_next = kind##_next,                                \
                                           .get_last_error = kind##_error,                         \
                                           .release = kind##_release,                              \
                                           .private_data = single,                                 \
                                           __VA_ARGS__};                                           \
            capsule = PyCapsule_New(stream, capsule_name, end_##kind##_stream);                    \
        }                                                                                          \
        if (!capsule) {                                                                            \
            single_end(single);                                                                    \
            free(stream);                                                                          \
        }                                                                                          \
        return capsule;                                                                            \
    }

STREAM(host, ArrowArrayStream, ArrowArray, "arrow_array_stream", single->array.array, )
STREAM(device, ArrowDeviceArrayStream, ArrowDeviceArray, "arrow_device_array_stream", single->array,
       .device_type = single->array.device_type)

PyObject *object_arrow_stream(PyObject *self, PyObject *unused)
{
    (void)unused;
    return host_stream(single_new((struct object *)self));
}

PyObject *object_arrow_device_stream(PyObject *self, PyObject *unused)
{
    (void)unused;
    return device_stream(single_new((struct object *)self));
}

/* ---- reading a stream ---- */

/* A stream of either kind. */
struct reader {
    struct ArrowArrayStream *host;
    struct ArrowDeviceArrayStream *device; /* if there is no `host` */
};

static int raise_stream(const struct reader *reader, int error)
{
    const char *why = reader->host ? reader->host->get_last_error(reader->host)
                                   : reader->device->get_last_error(reader->device);

    PyErr_Format(PyExc_ValueError, "the Arrow stream failed: %s", why ? why : strerror(error));
    return -1;
}

/* The next array of a stream at the end of `list`. 1 at the end of the stream, -1 on failure. */
static int read_next(const struct reader *reader, PyObject *list)
{
    struct ArrowDeviceArray *array = calloc(1, sizeof(*array)); /* it begins with an ArrowArray */

    if (!array) {
        PyErr_NoMemory();
        return -1;
    }
    int error = reader->host ? reader->host->get_next(reader->host, &array->array)
                             : reader->device->get_next(reader->device, array);
    if (error || !array->array.release) {
        free(array);
        return error ? raise_stream(reader, error) : 1;
    }
    PyObject *capsule = arrow_capsule(array, reader->host ? "arrow_array" : "arrow_device_array");
    int r = capsule ? PyList_Append(list, capsule) : -1;
    Py_XDECREF(capsule);
    return r;
}

static PyObject *read_schema(const struct reader *reader)
{
    struct ArrowSchema *schema = calloc(1, sizeof(*schema));

    if (!schema)
        return PyErr_NoMemory();
    int error = reader->host ? reader->host->get_schema(reader->host, schema)
                             : reader->device->get_schema(reader->device, schema);
    if (error) {
        free(schema);
        raise_stream(reader, error);
        return NULL;
    }
    return arrow_capsule(schema, "arrow_schema");
}

PyObject *core_read_stream(PyObject *module, PyObject *capsule)
{
    (void)module;
    struct reader reader = {NULL, NULL};
    if (PyCapsule_IsValid(capsule, "arrow_device_array_stream"))
        reader.device = PyCapsule_GetPointer(capsule, "arrow_device_array_stream");
    else
        reader.host = PyCapsule_GetPointer(capsule, "arrow_array_stream");
    if (!reader.host && !reader.device)
        return NULL;
    if (reader.host ? !reader.host->release : !reader.device->release) {
        PyErr_SetString(PyExc_ValueError, "the Arrow stream has been released");
        return NULL;
    }
    PyObject *head = read_schema(&reader);
    PyObject *list = head ? PyList_New(0) : NULL;
    int r = list ? 0 : -1;
    while (r == 0)
        r = read_next(&reader, list);
    if (r < 0) {
        Py_XDECREF(head);
        Py_XDECREF(list);
        return NULL;
    }
    return Py_BuildValue("(NN)", head, list);
}
