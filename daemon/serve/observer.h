/*
 * The observer of a server: it looks on and is told what happens, so that serving and the methods
 * know neither HTTP nor traces by name. A server has one at most (server->observer; NULL: nobody
 * looks on), set before the loop runs. The loop's thread calls; none of these may block.
 */
#ifndef GB_OBSERVER_H
#define GB_OBSERVER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/objects/registry.h"

struct gb_session;

struct gb_observer {
    /* A name has got its object, or is about to lose it. The event's number is server->seq. */
    void (*event)(struct gb_observer *observer, enum gb_event event, struct gb_object *object);
    /* A session has begun, or its client has given its name. */
    void (*session)(struct gb_observer *observer, const struct gb_session *session);
    /* A request of the session was answered: begun at `begun_ns` (uv_hrtime), over after `ns`, with
       an error's kind or "ok". `waited`: it had been put aside before. */
    void (*request)(struct gb_observer *observer, const struct gb_session *session,
                    const char *method, const char *result, uint64_t begun_ns, uint64_t ns,
                    bool waited);
    /* The end of a turn of the loop. */
    void (*turn)(struct gb_observer *observer);
};

#endif
