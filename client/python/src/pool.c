#include "client/python/src/pool.h"

#include <pthread.h>
#include <stdlib.h>

#include "client/python/src/object.h"

#define ALIGN 512u /* of a piece: what cudaMalloc promises is 256 */

struct pool {
    struct pool *next; /* in the list of the process */
    size_t references; /* the Pool's, each piece's, and each thread's that has entered it */
    struct link *link;
    struct gpubuf_object *object;
    int ordinal;
    char *memory;
    size_t size, used, pieces;
    bool ended; /* take() fails from now on */
};

struct pool_object {
    PyObject_HEAD struct pool *pool;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* innermost */
static struct pool *pools;
static _Thread_local struct pool *entered;

/* With the lock held, which it releases. */
static void put_and_unlock(struct pool *pool)
{
    bool last = pool && --pool->references == 0;
    struct pool **at = &pools;

    while (last && *at != pool)
        at = &(*at)->next;
    if (last)
        *at = pool->next;
    (void)pthread_mutex_unlock(&lock);
    if (!last)
        return;
    gpubuf_release(pool->object);
    link_put(pool->link);
    free(pool);
}

static void *take(struct pool *pool, Py_ssize_t bytes)
{
    void *piece = NULL;

    if (bytes <= 0)
        return NULL;
    (void)pthread_mutex_lock(&lock);
    size_t room = pool->size - pool->used, taken = (size_t)bytes;
    if (!pool->ended && taken <= room) {
        piece = pool->memory + pool->used;
        taken = (taken + ALIGN - 1) / ALIGN * ALIGN;
        pool->used += taken < room ? taken : room;
        pool->pieces++;
        pool->references++;
    }
    (void)pthread_mutex_unlock(&lock);
    return piece;
}

void *gpubufd_pool_alloc(Py_ssize_t bytes, int device, void *stream)
{
    (void)stream;
    return entered && device == entered->ordinal ? take(entered, bytes) : NULL;
}

void gpubufd_pool_free(void *pointer, Py_ssize_t bytes, int device, void *stream)
{
    (void)bytes;
    (void)device;
    (void)stream;
    uintptr_t at = (uintptr_t)pointer;

    (void)pthread_mutex_lock(&lock);
    struct pool *pool = pools;
    while (pool && (at < (uintptr_t)pool->memory || at >= (uintptr_t)pool->memory + pool->used))
        pool = pool->next;
    if (pool)
        pool->pieces--;
    put_and_unlock(pool);
}

/* ---- what Python sees ---- */

/* Pool(object, start): of the object's bytes from `start` on. */
static PyObject *pool_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    (void)keywords;
    PyObject *held;
    unsigned long long start;
    struct gpubuf_memory memory;
    if (!PyArg_ParseTuple(args, "O!K:Pool", object_type, &held, &start))
        return NULL;
    struct gpubuf_object *object = object_use((struct object *)held);
    if (!object)
        return NULL;
    struct link *link = ((struct object *)held)->link;
    int status = gpubuf_memory(object, GPUBUF_DATA, &memory);
    if (status < 0)
        return raise_status(link, status);
    if (!memory.writable || start > memory.bytes) {
        PyErr_SetString(PyExc_ValueError, "expected an unsealed object to make a Pool of");
        return NULL;
    }
    struct pool_object *self = type_new(type);
    struct pool *pool = self ? calloc(1, sizeof(*pool)) : NULL;
    if (!pool) {
        Py_XDECREF((PyObject *)self);
        return PyErr_NoMemory();
    }
    *pool = (struct pool){
        .references = 1,
        .link = link_get(link),
        .object = gpubuf_retain(object),
        .ordinal = gpubuf_device_ordinal(object),
        .memory = (char *)memory.pointer + start,
        .size = (size_t)(memory.bytes - start),
    };
    self->pool = pool;
    (void)pthread_mutex_lock(&lock);
    pool->next = pools;
    pools = pool;
    (void)pthread_mutex_unlock(&lock);
    return (PyObject *)self;
}

static void pool_dealloc(PyObject *object)
{
    struct pool *pool = ((struct pool_object *)object)->pool;

    if (pool) {
        (void)pthread_mutex_lock(&lock);
        put_and_unlock(pool);
    }
    type_free(object);
}

/* enter(): this thread allocates from the Pool until leave(). ValueError: it already does. */
static PyObject *pool_enter(PyObject *object, PyObject *unused)
{
    (void)unused;
    if (entered) {
        PyErr_SetString(PyExc_ValueError, "this thread allocates from a pool already");
        return NULL;
    }
    entered = ((struct pool_object *)object)->pool;
    (void)pthread_mutex_lock(&lock);
    entered->references++;
    (void)pthread_mutex_unlock(&lock);
    Py_RETURN_NONE;
}

static PyObject *pool_leave(PyObject *object, PyObject *unused)
{
    (void)unused;
    if (entered && entered == ((struct pool_object *)object)->pool) {
        struct pool *pool = entered;
        entered = NULL;
        (void)pthread_mutex_lock(&lock);
        put_and_unlock(pool);
    }
    Py_RETURN_NONE;
}

/* take(bytes): a piece's address; MemoryError. */
static PyObject *pool_take(PyObject *object, PyObject *count)
{
    struct pool *pool = ((struct pool_object *)object)->pool;
    Py_ssize_t bytes = PyLong_AsSsize_t(count);

    if (PyErr_Occurred())
        return NULL;
    void *piece = take(pool, bytes);
    if (piece)
        return PyLong_FromVoidPtr(piece);
    return PyErr_Format(PyExc_MemoryError, "the pool has no %zd bytes left, or was published",
                        bytes);
}

static PyObject *pool_give_back(PyObject *object, PyObject *address)
{
    (void)object;
    void *piece = PyLong_AsVoidPtr(address);
    if (PyErr_Occurred())
        return NULL;
    gpubufd_pool_free(piece, 0, 0, NULL);
    Py_RETURN_NONE;
}

/* end(): take() fails from now on. */
static PyObject *pool_end(PyObject *object, PyObject *unused)
{
    (void)unused;
    (void)pthread_mutex_lock(&lock);
    ((struct pool_object *)object)->pool->ended = true;
    (void)pthread_mutex_unlock(&lock);
    Py_RETURN_NONE;
}

#define POOL_GETTER(what)                                                                          \
    static PyObject *get_##what(PyObject *object, void *closure)                                   \
    {                                                                                              \
        (void)closure;                                                                             \
        (void)pthread_mutex_lock(&lock);                                                           \
        size_t found = ((struct pool_object *)object)->pool->what;                                 \
        (void)pthread_mutex_unlock(&lock);                                                         \
        return PyLong_FromSize_t(found);                                                           \
    }

POOL_GETTER(size)
POOL_GETTER(used)
POOL_GETTER(pieces)

static PyGetSetDef getters[] = {
    {"size", get_size, NULL, "Bytes of the pool in all.", NULL},
    {"used", get_used, NULL, "Bytes handed out, from the pool's start on.", NULL},
    {"pieces", get_pieces, NULL, "The number of pieces not given back yet.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"enter", pool_enter, METH_NOARGS, NULL}, {"leave", pool_leave, METH_NOARGS, NULL},
    {"take", pool_take, METH_O, NULL},        {"give_back", pool_give_back, METH_O, NULL},
    {"end", pool_end, METH_NOARGS, NULL},     {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_new, pool_new},
    {Py_tp_dealloc, pool_dealloc},
    {Py_tp_getset, getters},
    {Py_tp_methods, methods},
    {0, NULL},
};

int pool_setup(PyObject *module)
{
    return add_type(module, "gpubufd._core.Pool", sizeof(struct pool_object), Py_TPFLAGS_DEFAULT,
                    slots, NULL);
}
