#include "client/python/src/pending.h"

#include <poll.h>
#include <stdlib.h>

#include "client/python/src/object.h"

struct pending *pending_new(struct link *link, PyObject *callable)
{
    struct pending *pending = calloc(1, sizeof(*pending));

    if (!pending) {
        PyErr_NoMemory();
        return NULL;
    }
    pending->link = link;
    pending->callable = new_ref(callable);
    pending->next = link->pending;
    if (pending->next)
        pending->next->previous = pending;
    link->pending = pending;
    return pending;
}

void pending_end(struct pending *pending)
{
    if (pending->previous)
        pending->previous->next = pending->next;
    else
        pending->link->pending = pending->next;
    if (pending->next)
        pending->next->previous = pending->previous;
    Py_DECREF(pending->callable);
    Py_XDECREF(pending->done);
    free(pending->prefix);
    free(pending);
}

/* Afterwards no callback of it begins, except one that another thread is about to run. */
static int stop(struct gpubuf_client *client, const struct pending *pending)
{
    uint64_t id = pending->id;
    const char *prefix = pending->prefix;
    bool lasting = pending->lasting;
    int status;

    WITHOUT_GIL(status = !lasting ? gpubuf_cancel(client, id)
                         : prefix ? gpubuf_provide_end(client, prefix)
                                  : gpubuf_unwatch(client, id));
    return status;
}

void pending_end_all(struct link *link)
{
    while (link->pending) {
        struct pending *pending = link->pending;
        bool lasting = pending->lasting;
        int status = stop(link->client, pending);
        /* A lasting one is freed here; so is a request in a child of fork, whose answer never
           comes. If another thread is about to run the callback, the callback frees it. */
        if (link->pending == pending && (lasting || status == GPUBUF_E_FORKED))
            pending_end(pending);
        else if (link->pending == pending && status < 0) {
            WITHOUT_GIL((void)poll(NULL, 0, 1));
        }
    }
}

/* Calls callable(error, result); steals `result`, which is NULL where `status` says why. */
static void answer(PyObject *callable, int status, const char *message, PyObject *result)
{
    PyObject *error = status < 0 ? make_error(status, message) : new_ref(Py_None);

    if (error && status >= 0 && !result) { /* no memory for the result */
        PyObject *type, *traceback;
        Py_DECREF(error);
        PyErr_Fetch(&type, &error, &traceback);
        PyErr_NormalizeException(&type, &error, &traceback);
        Py_XDECREF(type);
        Py_XDECREF(traceback);
    }
    PyObject *returned = NULL;
    if (error)
        returned = PyObject_CallFunctionObjArgs(callable, error, result ? result : Py_None, NULL);
    if (!returned)
        PyErr_WriteUnraisable(callable);
    Py_XDECREF(returned);
    Py_XDECREF(error);
    Py_XDECREF(result);
}

static void pending_answer(struct pending *pending, int status, const char *message,
                           PyObject *result)
{
    answer(pending->callable, status, message, result);
    pending_end(pending);
}

void pending_object(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                    void *arg)
{
    struct pending *pending = arg;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *result = status < 0 ? NULL : object_wrap(pending->link, object);

    pending_answer(pending, status, gpubuf_errmsg(client), result);
    PyGILState_Release(state);
}

PyObject *object_list(struct link *link, struct gpubuf_object *const *objects, const int *errors,
                      size_t count)
{
    PyObject *list = PyList_New((Py_ssize_t)count);

    for (size_t i = 0; i < count; i++) {
        if (!list) {
            gpubuf_release(objects[i]);
            continue;
        }
        PyObject *entry = objects[i] ? object_wrap(link, objects[i]) : make_error(errors[i], NULL);
        if (!entry || PyList_SetItem(list, (Py_ssize_t)i, entry) < 0)
            Py_CLEAR(list);
    }
    return list;
}

void pending_objects(struct gpubuf_client *client, int status, struct gpubuf_object *const *objects,
                     const int *errors, size_t count, void *arg)
{
    struct pending *pending = arg;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *result = status < 0 ? NULL : object_list(pending->link, objects, errors, count);

    pending_answer(pending, status, gpubuf_errmsg(client), result);
    PyGILState_Release(state);
}

void pending_sealed(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                    void *arg)
{
    struct pending *pending = arg;

    gpubuf_release(object); /* the caller has its own reference */
    PyGILState_STATE state = PyGILState_Ensure();
    pending_answer(pending, status, gpubuf_errmsg(client), status < 0 ? NULL : new_ref(Py_None));
    PyGILState_Release(state);
}

void pending_call(struct gpubuf_client *client, int status, const char *text, size_t length,
                  void *arg)
{
    struct pending *pending = arg;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *result =
        status < 0 ? NULL : PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace");

    pending_answer(pending, status, gpubuf_errmsg(client), result);
    PyGILState_Release(state);
}

/* The answer to the request of a watch or a provider. A failure ends it; else unwatch(),
   provide_end() or the Client's end does. Takes over `result`. */
static void pending_begun(struct pending *pending, int status, const char *message,
                          PyObject *result)
{
    PyObject *done = pending->done;

    pending->done = NULL;
    pending->lasting = status >= 0;
    answer(done, status, message, result);
    Py_DECREF(done);
    if (status < 0)
        pending_end(pending);
}

void pending_watch(struct gpubuf_client *client, int status, uint64_t watch, void *arg)
{
    struct pending *pending = arg;
    PyGILState_STATE state = PyGILState_Ensure();

    if (status >= 0)
        pending->id = watch;
    pending_begun(pending, status, gpubuf_errmsg(client),
                  status < 0 ? NULL : PyLong_FromUnsignedLongLong(watch));
    PyGILState_Release(state);
}

void pending_provided(struct gpubuf_client *client, int status, const char *text, size_t length,
                      void *arg)
{
    (void)text;
    (void)length;
    PyGILState_STATE state = PyGILState_Ensure();
    pending_begun(arg, status, gpubuf_errmsg(client), status < 0 ? NULL : new_ref(Py_None));
    PyGILState_Release(state);
}

void pending_wanted(struct gpubuf_client *client, const struct gpubuf_wanted *wanted, void *arg)
{
    (void)client;
    const struct pending *pending = arg;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *returned = PyObject_CallFunction(
        pending->callable, "zKII", wanted->ended ? NULL : wanted->name,
        (unsigned long long)wanted->request, (unsigned)wanted->uid, (unsigned)wanted->gid);
    if (!returned)
        PyErr_WriteUnraisable(pending->callable);
    Py_XDECREF(returned);
    PyGILState_Release(state);
}

void pending_event(struct gpubuf_client *client, const char *kind, const struct gpubuf_info *info,
                   void *arg)
{
    (void)client;
    struct pending *pending = arg;
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *returned =
        info ? PyObject_CallFunction(
                   pending->callable, "ssKKsssIIILKOLsIi", kind, info->name,
                   (unsigned long long)info->version, (unsigned long long)info->bytes, info->device,
                   info->state, info->tier, info->mode, (unsigned)info->uid, (unsigned)info->gid,
                   (long long)info->created_ms, (unsigned long long)info->leases,
                   info->pinned ? Py_True : Py_False, (long long)info->ttl_ms, info->label,
                   info->keep, (int)info->scope)
             : PyObject_CallFunction(pending->callable, "s", kind);
    if (!returned)
        PyErr_WriteUnraisable(pending->callable);
    Py_XDECREF(returned);
    PyGILState_Release(state);
}
