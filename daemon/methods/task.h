/*
 * A request that takes longer than the loop has time for. Its text is long, and a thread checks and
 * decodes it before its handler runs; or its layout is long, and a thread reads and writes it; or
 * it looks at much, and goes on in slices, a turn after another. Nothing else is served in the
 * middle of it: between two parts of it the loop does what it always does.
 *
 * So a part holds nothing that it looked up before, but for what its task owns. The session serves
 * no later line until the request is answered. If it ends first, it leaves the task behind, which
 * then only gives back what it owns.
 *
 * All of it belongs to the loop's thread; what the work is about, to the worker's while `working`.
 */
#ifndef GB_TASK_H
#define GB_TASK_H

#include "daemon/base/walk.h"
#include "daemon/memory/mover.h"
#include "daemon/methods/call.h"

/* Of a message's text, or a layout's: what is longer is not read, or written, on the loop. */
#define GB_TASK_BYTES 16384

struct gb_task {
    struct gb_job job;
    struct gb_link of_session, ready; /* ready: to be gone on with */
    struct gb_session *session;       /* NULL: it has ended */
    struct gb_server *server;
    bool working;
    uint64_t since_ns; /* when the message came, if that is asked */
    uint64_t charged;  /* bytes, to the session's user */

    struct gb_pool pool; /* of the message, and of what the handler keeps */
    char *line;          /* the message's text; owned */
    struct gb_message message;
    struct gb_writer answer; /* as far as it is written */
    struct gb_walk walks[2]; /* over what it tells of, in slices */

    void (*work)(struct gb_task *task);              /* the worker's thread; NULL: nothing */
    int (*go_on)(struct gb_call *call, void *state); /* NULL: the handler is next */
    void *state;                                     /* in the pool */

    /* The state of a method that makes an object. */
    struct gb_unsealed *unsealed; /* the layout; owned */
    struct gb_storage *storage;   /* a reference; NULL: none yet */
    struct gb_writer layout;      /* as it is written */
    struct gb_writer text;        /* room for an object's text */
    int r;                        /* of the worker's: 0, or a code with the error */
    struct gb_error error;
};

/* Has the worker read a long message, whose handler runs after that. GPUBUF_E_NO_MEMORY. */
int gb_task_read(struct gb_session *session, const char *line, size_t length);
/* Goes on with those that are ready: one at least, and then as long as there is time (`until`: of
   uv_hrtime()). */
void gb_tasks_run(struct gb_server *server, uint64_t until);
/* It is gone on with in the next turn. */
void gb_task_ready(struct gb_task *task);
/* The session ends; its tasks end when the worker has done with them. */
void gb_tasks_end_session(struct gb_session *session);
/* Frees it, with all that it owns. NULL is fine. */
void gb_task_free(struct gb_task *task);
/* A request that is to wait takes its task along: it is not the session's any more, which goes on.
   */
void gb_task_detach(struct gb_task *task);

/* The worker has written the layout: has room for it made in `answer` and `text`, too, so that the
   loop does not wait for the kernel's pages. */
void gb_task_make_room(struct gb_task *task);

/* ---- for the handlers ---- */

/* To be returned by a handler that finds that its request takes long: it is called again for the
   same message, which has a task then. Nothing has been changed. */
int gb_call_as_task(struct gb_call *call);
/* To be returned by the handler of a request that has a task: the worker does `work` (NULL:
   nothing), and in a later turn `go_on` answers, as a handler does. `state` lies in the task's
   pool. */
int gb_call_go_on(struct gb_call *call, void (*work)(struct gb_task *task),
                  int (*go_on)(struct gb_call *call, void *state), void *state);

#endif
