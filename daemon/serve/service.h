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

/* A request on its way in: it is new, or it continues after waiting or as a task. */
struct gb_entry {
    struct gb_session *session;
    const char *line; /* of one that has come */
    size_t length;
    struct gb_task *task; /* it is one (daemon/methods/task.h) */
    struct gb_wait *wait; /* it has waited, perhaps as a task */
    bool last_try;        /* and its time is up: it must be answered now */
};

enum gb_outcome {
    GB_DONE = 0,    /* it was answered, if it has an answer */
    GB_WAITS = 1,   /* it was put aside */
    GB_GOES_ON = 2, /* it is a task, and continues in a later turn */
};

struct gb_service {
    size_t count; /* of methods */
    const char *(*name)(size_t i);
    /* The name of a method's parameter; NULL: it has fewer. */
    const char *(*param)(size_t i, size_t param);
    /* Serves a request, or continues it, and frees its wait or task when it is done. An enum
       gb_outcome; negative: the connection must be closed (descriptors out of step, no memory). */
    int (*serve)(const struct gb_entry *entry);
    /* Checks and decodes a message; any thread. */
    void (*read)(struct gb_message *message, const char *line, size_t length, struct gb_pool *pool);
    /* Goes on with tasks that are ready: with one at least, and then until that time of
       uv_hrtime(). */
    void (*run_tasks)(struct gb_server *server, uint64_t until);
    /* Ends the session's tasks. */
    void (*end_tasks)(struct gb_session *session);
    /* Ends the task of a waiting request. NULL is fine. */
    void (*end_task)(struct gb_task *task);
    /* Notes an event for watches; as the registry's on_event. */
    void (*event)(struct gb_server *server, enum gb_event event, struct gb_object *object);
    /* Tells the user's sessions of events that were noted, at least one, and until that time of
       uv_hrtime(). */
    void (*send_news)(struct gb_served *user, uint64_t until);
    /* Goes on telling the session's new watches of existing objects, as long as its peer reads. */
    void (*send_existing)(struct gb_session *session);
    /* Ends the session's watches. */
    void (*end_watches)(struct gb_session *session);
};

#endif
