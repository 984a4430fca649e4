#include "client/python/src/reconnect.h"

#include <poll.h>
#include <time.h>

#include "client/python/src/pending.h"

#define PAUSE_MS 50  /* between two attempts to connect */
#define LOOKS_MAX 16 /* at what arrives, before a call */

static int64_t now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * (int64_t)1000 + now.tv_nsec / 1000000 + 1;
}

/* Connects; tries again until a daemon listens, for at most the Client's patience. 0, or -1 with an
   exception. */
static int connect_anew(struct client *self, struct gpubuf_client **client)
{
    for (;;) {
        int status;
        WITHOUT_GIL(status = gpubuf_connect(client, &self->options));
        if (status == 0)
            return 0;
        bool wait = status == GPUBUF_E_CONNECT &&
                    (self->patience_ms < 0 || now_ms() < self->lost_at + self->patience_ms);
        if (!wait) {
            raise_status(NULL, status);
            return -1;
        }
        WITHOUT_GIL((void)poll(NULL, 0, PAUSE_MS));
        if (PyErr_CheckSignals() < 0 || link_check(self->link) < 0)
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
    if (connect_anew(self, &client) < 0)
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

/* Whether the connection is lost for good: a daemon that stops says so, and then hangs up. */
static bool is_lost(struct gpubuf_client *client)
{
    int status;
    int looks = 0;

    do {
        status = gpubuf_dispatch(client);
    } while (status > 0 && ++looks < LOOKS_MAX);
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
        WITHOUT_GIL(lost = is_lost(link->client));
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
