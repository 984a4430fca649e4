/*
 * The functions that answer requests and send events, handed to the server. So serving knows no
 * method by name, and methods may know sessions, waits and the server. The loop's thread.
 */
#ifndef GB_SERVICE_H
#define GB_SERVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "daemon/objects/registry.h"

struct gb_message;
struct gb_pool;
struct gb_served;
struct gb_server;
struct gb_session;
struct gb_task;
struct gb_wait;

struct gb_service {
    size_t count; /* of methods */
    const char *(*name)(size_t i);
    /* The name of a method's parameter; NULL: it has fewer. */
    const char *(*param)(size_t i, size_t param);
    /* Serves one line; negative: the connection must be closed (descriptors out of step, no
       memory). */
    int (*serve)(struct gb_session *session, const char *line, size_t length);
    /* Tries a waiting request again; `last_try`: its time is up. True if it was answered. */
    bool (*retry)(struct gb_wait *wait, bool last_try);
    /* Checks and decodes a message; any thread. */
    void (*read)(struct gb_message *message, const char *line, size_t length, struct gb_pool *pool);
    /* Goes on with a task (daemon/methods/task.h), and frees it if it is done. Negative: the
       connection must be closed. */
    int (*go_on_with)(struct gb_task *task);
    /* Goes on with tasks that are ready: with one at least, and then until that time of
       uv_hrtime(). */
    void (*go_on)(struct gb_server *server, uint64_t until);
    /* Ends the session's tasks. */
    void (*end_tasks)(struct gb_session *session);
    /* Ends the task of a waiting request. NULL is fine. */
    void (*end_task)(struct gb_task *task);
    /* Notes an event for watches; as the registry's on_event. */
    void (*event)(struct gb_server *server, enum gb_event event, struct gb_object *object);
    /* Tells the user's sessions of events that were noted, at least one, and until that time of
       uv_hrtime(). */
    void (*tell)(struct gb_served *user, uint64_t until);
    /* Goes on telling the session's new watches of existing objects, as long as its peer reads. */
    void (*tell_more)(struct gb_session *session);
    /* Ends the session's watches. */
    void (*end_watches)(struct gb_session *session);
};

#endif
