/*
 * gpubufd._core: libgpubuf for Python, and nothing more. What a Python user sees is made of it by the
 * modules of the package gpubufd.
 *
 * Types. A Client is a connection. An Object is a gpubuf_object: the package registers a subclass for
 * each kind, and what is opened or sliced is an instance of that. A View is a stretch of memory with a
 * shape and an element type: of an Object's buffer, or of somebody else's value, taken over by DLPack or
 * the buffer protocol.
 *
 * Lifetimes. Everything that needs the connection holds a reference to its `struct link`: the Client,
 * every Object, every View of one, every capsule that another library took, every call under way. The
 * last to go disconnects. So a lease stays as long as somebody can still read what it holds, whatever
 * has become of the Python objects, and giving back needs neither the GIL nor an interpreter.
 *
 * Threads. Python's own state, and the lists in a link, are guarded by the GIL, which is not held
 * while libgpubuf may wait.
 */
#ifndef GPUBUFD_CORE_H
#define GPUBUFD_CORE_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x03090000 /* the oldest Python that this is for */
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gpubuf.h"
#include "pybuffer.h"

#define MAX_NDIM 32

/* What Python 3.10 brought. */
static inline PyObject *new_ref(PyObject *object)
{
    Py_INCREF(object);
    return object;
}

static inline int add_to_module(PyObject *module, const char *name, PyObject *value)
{
    return PyObject_SetAttrString(module, name, value);
}

/* An expression that may wait, without the GIL. */
#define WITHOUT_GIL(...)                                                                           \
    do {                                                                                           \
        PyThreadState *thread = PyEval_SaveThread();                                               \
        __VA_ARGS__;                                                                               \
        PyEval_RestoreThread(thread);                                                              \
    } while (0)

/* ---- link.c: a connection and who needs it ---- */

struct pending;
struct object;

struct link {
    atomic_int references;
    struct gpubuf_client *client;
    bool closed;             /* by Client.close(): no new calls */
    struct object *objects;  /* those that close() is to release */
    struct pending *pending; /* requests under way and watches */
};

/* Takes over the client; NULL (and the client is disconnected) without memory. */
struct link *link_new(struct gpubuf_client *client);
struct link *link_get(struct link *link);
void link_put(struct link *link); /* any thread, with or without the GIL */

/* Raises the exception for a failed call of libgpubuf, with the thread's last message. */
PyObject *raise_status(const struct link *link, int status);
/* The exception itself; NULL with another one set if there is no memory. */
PyObject *make_error(int status, const char *message);
/* Raises gpubufd.Closed if the link is closed. -1 if so. */
int link_check(const struct link *link);
extern PyObject *error_factory; /* callable(code, kind, message) */

/* ---- pending.c: requests under way, and watches ---- */

/* One of them. Its end, or the Client's, unlinks and frees it. */
struct pending {
    struct link *link; /* no reference: it must not keep the connection */
    struct pending *previous, *next;
    uint64_t id;
    bool watch;
    PyObject *callable; /* callable(error or None, result); a watch's: callable(kind, …) */
    PyObject *done;     /* of a watch under way: callable(error or None, its number); else NULL */
};

struct pending *pending_new(struct link *link, PyObject *callable);
void pending_end(struct pending *pending);
/* What libgpubuf calls; `arg` is the pending. */
void pending_object(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                    void *arg);
void pending_objects(struct gpubuf_client *client, int status, struct gpubuf_object *const *objects,
                     const int *errors, size_t count, void *arg);
void pending_sealed(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                    void *arg);
void pending_call(struct gpubuf_client *client, int status, const char *text, size_t length,
                  void *arg);
void pending_watch(struct gpubuf_client *client, int status, uint64_t watch, void *arg);
void pending_event(struct gpubuf_client *client, const char *kind, const struct gpubuf_info *info,
                   void *arg);
/* [Object or exception], of which each object is taken over; NULL with an exception raised. */
PyObject *object_list(struct link *link, struct gpubuf_object *const *objects, const int *errors,
                      size_t count);

/* ---- client.c, async.c ---- */

struct client {
    PyObject_HEAD struct link *link; /* NULL once it is closed */
};

extern PyTypeObject *client_type;
int client_setup(PyObject *module);
/* A reference for the length of a call on a Client, or NULL with Closed raised. */
struct link *client_enter(PyObject *client);
/* [parts] (address, bytes) -> an array to be freed; NULL with an exception raised. */
struct gpubuf_part *parse_parts(PyObject *tuple);
/* Names out of a tuple, which they are borrowed from: an array to be freed. */
const char **parse_names(PyObject *tuple);

PyObject *client_call_async(PyObject *self, PyObject *args);
PyObject *client_open_async(PyObject *self, PyObject *args);
PyObject *client_open_many_async(PyObject *self, PyObject *args);
PyObject *client_create_async(PyObject *self, PyObject *args);
PyObject *client_seal_async(PyObject *self, PyObject *args);
PyObject *client_register_async(PyObject *self, PyObject *args);
PyObject *client_watch(PyObject *self, PyObject *args);
PyObject *client_unwatch(PyObject *self, PyObject *id);
PyObject *client_watch_async(PyObject *self, PyObject *args);
PyObject *client_cancel(PyObject *self, PyObject *id);

/* ---- options.c: arguments that are structs ---- */

/* From a tuple (device, share, mode, replace, ttl_ms, evict, wait_ms), whose strings it borrows. */
int parse_create_options(PyObject *tuple, struct gpubuf_create_options *options);

struct layout_arena; /* owns what a specification points to */
/* From (kind, bytes, dtype, shape, mask, column), of which column is (name, dtype, length, offset,
   null_count, mask, data_bytes, children, metadata). Strings are borrowed from the tuples. */
int parse_layout(PyObject *tuple, struct gpubuf_layout_spec *layout, struct layout_arena **arena);
void layout_free(struct layout_arena *arena);

/* ---- object.c ---- */

struct object {
    PyObject_HEAD struct link *link; /* NULL once it is released */
    struct gpubuf_object *object;    /* NULL once it is released */
    struct object *previous, *next;  /* in link->objects */
};

extern PyTypeObject *object_type;
int object_setup(PyObject *module);
/* A new instance of the subclass for its kind; takes over the reference `object`, also on failure. */
PyObject *object_wrap(struct link *link, struct gpubuf_object *object);
/* Gives the reference back. */
void object_drop(struct object *self);
/* The Object's gpubuf_object, or NULL with Closed raised. */
struct gpubuf_object *object_use(const struct object *self);
/* From None or a tuple with an entry for each column: *out is NULL or to be freed. */
int parse_null_counts(PyObject *counts, const struct gpubuf_object *object, int64_t **out);

/* ---- element.c: types of elements ---- */

struct element {
    char format;  /* of the struct module; 0: none */
    uint8_t code; /* DLPack's type code */
    uint8_t bits;
    bool plain;       /* a number: what the bytes are is all there is to it */
    char typestr[16]; /* NumPy's, for what has one; "" otherwise */
};

/* Elements of a dtype of the protocol; false if they are not so many whole bytes each. */
bool element_of_dtype(const char *dtype, struct element *element);
/* Elements of DLPack's type and their dtype in the protocol. */
bool element_of_dlpack(uint8_t code, uint8_t bits, struct element *element, const char **dtype);

/* ---- view.c ---- */

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
    /* whose it is: */
    struct link *link;
    struct gpubuf_object *object;
    Py_buffer buffer;
    void *tensor; /* DLManagedTensor(Versioned) */
    bool versioned;
};

extern PyTypeObject *view_type;
int view_setup(PyObject *module);
PyObject *core_itemsize(PyObject *module, PyObject *dtype);
/* The elements of an array, bytes or column of fixed width; NULL with BufferError if there are none. */
PyObject *view_of_object(struct object *self);
/* A whole buffer, as bytes; None if the object has no such buffer. */
PyObject *view_of_buffer(struct object *self, enum gpubuf_which which);
/* Fills a Py_buffer for a read-only or writable view that `exporter` answers for. */
int view_fill(struct view *view, PyObject *exporter, Py_buffer *buffer, int flags);

/* ---- arrow.c, arrow_stream.c, concat.c ---- */

PyObject *object_arrow_schema(PyObject *self, PyObject *unused);
PyObject *object_arrow_array(PyObject *self, PyObject *unused);
PyObject *object_arrow_device_array(PyObject *self, PyObject *unused);
PyObject *object_arrow_stream(PyObject *self, PyObject *unused);
PyObject *object_arrow_device_stream(PyObject *self, PyObject *unused);
/* Makes an exported array hold the link. Every node on its own, since a consumer may move a child out
   and release the rest. 0 or GPUBUF_E_NO_MEMORY, after which it is still to be released. */
int arrow_hold(struct ArrowArray *array, struct link *link);
/* Ends of capsules. */
void arrow_end_schema(PyObject *capsule);
void arrow_end_array(PyObject *capsule);
void arrow_end_device_array(PyObject *capsule);
/* Client.put_arrow(name, source, as_table, options). */
PyObject *client_put_arrow(PyObject *self, PyObject *args);
PyObject *core_nodes(PyObject *module, PyObject *args);
PyObject *core_array_device(PyObject *module, PyObject *capsule);
PyObject *core_schema_format(PyObject *module, PyObject *capsule);
PyObject *core_schema_text(PyObject *module, PyObject *capsule);
/* stream capsule, of the host or of a device -> (schema capsule, [array capsules]) */
PyObject *core_read_stream(PyObject *module, PyObject *capsule);
/* ---- bits.c ---- */

/* Nulls among elements [offset, offset + length) of a bitmap. */
uint64_t count_nulls(const unsigned char *bits, uint64_t offset, uint64_t length);
/* ORs bits [start, start + length) into those from `at` on, which are 0. */
void copy_bits(unsigned char *to, int64_t at, const unsigned char *from, int64_t start,
               int64_t length);
/* The same on buffers, for Python; see _core.pyi. */
PyObject *core_copy_bits(PyObject *module, PyObject *args);
PyObject *core_count_nulls(PyObject *module, PyObject *args);
PyObject *core_add_to_integers(PyObject *module, PyObject *args);

/* Joins arrays of one schema into `out`, whose memory is its own. 0, or -1 with an exception. */
int concat_arrays(const struct ArrowSchema *schema, const struct ArrowArray *const *arrays,
                  size_t count, struct ArrowArray *out);

#endif
