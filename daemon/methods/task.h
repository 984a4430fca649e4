/*
 * A task is a request that takes longer than the loop has time for, and is done in parts. If its
 * text is long, a thread, the *worker*, checks and decodes it before its handler runs. If its
 * layout is long, the worker reads and writes that. If it has many items, it continues in
 * slices, a turn after another.
 *
 * Between two parts of a task the loop serves other requests. So a pointer that was looked up in
 * one part must not be used in the next, unless the task owns the thing. The session serves no
 * later line until the request is answered. If the session ends first, the task is only freed.
 *
 * All of it belongs to the loop's thread; while `working`, the message, the layout and the writers
 * are the worker's.
 */
#ifndef GB_TASK_H
#define GB_TASK_H

#include "daemon/base/walk.h"
#include "daemon/memory/mover.h"
#include "daemon/methods/call.h"

/* Longer texts of messages and of layouts are read and written by the worker, not by the loop. */
#define GB_TASK_BYTES 16384

struct gb_task {
    struct gb_job job;
    struct gb_link of_session, ready; /* ready: in server->turns.tasks, while it has more to do */
    struct gb_session *session;       /* NULL: it has ended, or the request waits */
    struct gb_server *server;
    bool working;
    bool counted;      /* among the calls of its method */
    uint64_t since_ns; /* when the message came, by the clock of the metrics */
    struct gb_charge charge;

    struct gb_pool pool; /* of the message, and of the handler's state */
    char *line;          /* the message's text; owned */
    struct gb_message message;
    struct gb_writer answer; /* the part of the answer that is written */
    struct gb_walk walks[2]; /* for an answer that is written in slices */

    void (*work)(struct gb_task *task);                  /* on the worker's thread; NULL: nothing */
    int (*next_step)(struct gb_call *call, void *state); /* the next part; NULL: the handler */
    void *state;                                         /* in the pool */

    /* The state of a method that makes an object. */
    struct gb_unsealed *unsealed; /* the layout; owned */
    struct gb_storage *storage;   /* a reference; NULL: none yet */
    struct gb_writer layout;      /* the written layout */
    struct gb_writer text;        /* room for an object's text */
    int r;                        /* the worker's result: 0, or a code with the error */
    struct gb_error error;
};

/* Has a message read, a long one by the worker; then its handler runs. GPUBUF_E_NO_MEMORY. */
int gb_task_read(struct gb_session *session, const char *line, size_t length);
/* Goes on with tasks that are ready: with one at least, and then until that time of uv_hrtime(). */
void gb_tasks_run(struct gb_server *server, uint64_t until);
/* Has the task continue in the next turn. */
void gb_task_ready(struct gb_task *task);
/* The session ends: frees its tasks, or has them freed when the worker is done with them. */
void gb_tasks_end_session(struct gb_session *session);
/* Frees the task, with all that it owns. NULL is fine. */
void gb_task_free(struct gb_task *task);
/* Takes the task from its session, which serves later lines again: the request waits now, and its
   wait owns the task. NULL is fine. */
void gb_task_detach(struct gb_task *task);

/* For the worker, when it has written the layout: makes room for it in `answer` and `text`, too, so
   that the loop does not have to fault in the pages. */
void gb_task_make_room(struct gb_task *task);

/* ---- for the handlers ---- */

/* For a handler that finds that its request takes long, and has changed nothing yet: makes a task
   of the request, for which the handler is called again. The handler returns the result. */
int gb_call_as_task(struct gb_call *call);
/* For the handler of a task: the worker does `work` (NULL: nothing), and in a later turn
   `next_step` is called, which answers like a handler. `state` lies in the task's pool. The handler
   returns the result. */
int gb_call_continue(struct gb_call *call, void (*work)(struct gb_task *task),
                     int (*next_step)(struct gb_call *call, void *state), void *state);

#endif
