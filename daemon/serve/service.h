/*
 * The functions that answer requests and tell watches, handed to the server: so serving knows no
 * method by name, and methods may know sessions, waits and the server. The loop's thread.
 */
#ifndef GB_SERVICE_H
#define GB_SERVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/objects/registry.h"

struct gb_message;
struct gb_pool;
struct gb_server;
struct gb_session;
struct gb_task;
struct gb_wait;

struct gb_service {
    size_t count; /* of methods */
    const char *(*name)(size_t i);
    /* Answers one line; negative: the connection must be closed (descriptors out of step, no
       memory). */
    int (*serve)(struct gb_session *session, const char *line, size_t length);
    /* Tries a request that waited once more; `last_try`: its time is up. True if it was answered.
       */
    bool (*retry)(struct gb_wait *wait, bool last_try);
    /* Checks and decodes a message; any thread. */
    void (*read)(struct gb_message *message, const char *line, size_t length, struct gb_pool *pool);
    /* Goes on with one of the requests that do not end in one turn, and frees it if that was the
       end of it. Negative: the connection must be closed. */
    int (*go_on_with)(struct gb_task *task);
    /* Goes on with requests that do not end in one turn, and are ready for their next: one at
       least, and then as long as there is time (`until`: of uv_hrtime()). */
    void (*go_on)(struct gb_server *server, uint64_t until);
    /* The session's requests of that kind end with it; one that waits with another ends. NULL is
       fine. */
    void (*end_tasks)(struct gb_session *session);
    void (*end_task)(struct gb_task *task);
    /* Tells watches; as the registry's on_event. */
    void (*event)(struct gb_server *server, enum gb_event event, struct gb_object *object);
    /* Goes on telling the session's new watches what exists, as far as it reads what it is told. */
    void (*tell_more)(struct gb_session *session);
    /* The session's watches end. */
    void (*end_watches)(struct gb_session *session);
};

#endif
