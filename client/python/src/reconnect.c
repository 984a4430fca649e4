#include "client/python/src/reconnect.h"

#include <poll.h>
#include <time.h>

#include "client/python/src/pending.h"

#define PAUSE_MS 20  /* between two attempts to connect */
#define LOOKS_MAX 16 /* at what arrives, before a call */

static int64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * (int64_t)1000 + now.tv_nsec / 1000000 + 1;
}

/* Whether nobody listens, so that a later attempt may succeed; the error is set if not. A daemon
   that is just ending hangs up first. */
static bool is_absent(const struct client *self, int status, int patience_ms, int64_t since)
{
    bool absent = status == GPUBUF_E_CONNECT || (self->start && status == GPUBUF_E_CLOSED);

    if (absent && (patience_ms < 0 || now_ms() < since + patience_ms))
        return true;
    raise_status(NULL, status);
    return false;
}

int client_connect(struct client *self, int patience_ms, struct gpubuf_client **client)
{
    int64_t since = self->lost_at ? self->lost_at : now_ms();

    for (;;) {
        int status;
        WITHOUT_GIL(status = gpubuf_connect(client, &self->options));
        if (status == 0)
            return 0;
        PyObject *started = NULL;
        if (self->start && (status == GPUBUF_E_CONNECT || status == GPUBUF_E_CLOSED)) {
            started = PyObject_CallNoArgs(self->start);
            if (!started)
                return -1;
            Py_DECREF(started);
        }
        if (!is_absent(self, status, patience_ms, since))
            return -1;
        WITHOUT_GIL((void)poll(NULL, 0, PAUSE_MS));
        if (PyErr_CheckSignals() < 0 || (self->connections && link_check(self->link) < 0))
            return -1;
    }
}

/* Replaces a lost connection by a new one; another thread may do so at the same time. 0, or -1 with
   an exception. */
static int replace(struct client *self, struct link *lost)
{
    struct gpubuf_client *client = NULL;

    if (!self->lost_at)
        self->lost_at = now_ms();
    if (client_connect(self, self->patience_ms, &client) < 0)
        return -1;
    if (self->link != lost) {
        WITHOUT_GIL(gpubuf_disconnect(client));
        return 0;
    }
    struct link *link = link_new(client);
    if (!link) {
        PyErr_NoMemory();
        return -1;
    }
    self->link = link;
    self->lost_at = 0;
    self->seen_at = 0;
    self->connections++;
    pending_end_all(lost);
    if (lost->objects || lost->before)
        link->before = lost; /* with the Client's reference */
    else
        WITHOUT_GIL(link_put(lost));
    return 0;
}

/* Whether the connection is lost for good: a daemon that stops says so, and then hangs up. One that
   a Client may start again hangs up, and then nobody listens. */
static bool is_lost(struct gpubuf_client *client, bool starts)
{
    int status;
    int looks = 0;

    do {
        status = gpubuf_dispatch(client);
    } while (status > 0 && ++looks < LOOKS_MAX);
    if (starts && status == 0)
        status = gpubuf_dispatch(client);
    return status == GPUBUF_E_CLOSED;
}

/* A look costs as much as half a call, so a client that is busy looks once in a millisecond. */
struct link *client_enter(PyObject *object)
{
    struct client *self = (struct client *)object;

    for (;;) {
        struct link *link = client_look(object);
        if (!link || self->options.resume_ms == GPUBUF_NO_RESUME)
            return link;
        int64_t now = now_ms();
        if (self->seen_at == now)
            return link;
        bool lost;
        WITHOUT_GIL(lost = is_lost(link->client, self->start != NULL));
        if (!lost) {
            self->seen_at = now;
            return link;
        }
        int r = self->link == link ? replace(self, link) : 0;
        WITHOUT_GIL(link_put(link));
        if (r < 0)
            return NULL;
    }
}
