#include "client/python/src/link.h"

#include <stdlib.h>

#include "client/python/src/progress.h"

PyObject *error_factory;

struct link *link_new(struct gpubuf_client *client)
{
    struct link *link = calloc(1, sizeof(*link));

    if (!link) {
        gpubuf_disconnect(client);
        return NULL;
    }
    atomic_init(&link->references, 1);
    link->client = client;
    return link;
}

struct link *link_get(struct link *link)
{
    (void)atomic_fetch_add_explicit(&link->references, 1, memory_order_relaxed);
    return link;
}

void link_put(struct link *link)
{
    if (!link || atomic_fetch_sub_explicit(&link->references, 1, memory_order_acq_rel) > 1)
        return;
    struct link *before = link->before;
    gpubuf_disconnect(link->client);
    free(link);
    link_put(before);
}

PyObject *make_error(int status, const char *message)
{
    if (!message || !*message)
        message = gpubuf_strerror(status);
    if (!error_factory) {
        PyErr_SetString(PyExc_RuntimeError, message);
        return NULL;
    }
    /* The daemon's sentence may quote a name that is not UTF-8. */
    PyObject *text = PyUnicode_DecodeUTF8(message, (Py_ssize_t)strlen(message), "replace");
    if (!text)
        return NULL;
    return PyObject_CallFunction(error_factory, "isN", status, gpubuf_errkind(status), text);
}

void *raise_error(int status, const char *message)
{
    PyObject *error = make_error(status, message);

    if (error) {
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
        Py_DECREF(error);
    }
    return NULL;
}

PyObject *raise_status(const struct link *link, int status)
{
    if (status == GPUBUF_E_CANCELED && progress_raise())
        return NULL;
    if (status == GPUBUF_E_NO_MEMORY)
        return PyErr_NoMemory();
    return raise_error(status, gpubuf_errmsg(link ? link->client : NULL));
}

int link_check(const struct link *link)
{
    if (link && !link->closed)
        return 0;
    raise_error(GPUBUF_E_CLOSED, "the connection is closed");
    return -1;
}

struct link *link_enter(struct link *link)
{
    return link_check(link) < 0 ? NULL : link_get(link);
}
