#include "daemon/methods/task.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/serve/departure.h"

/* ---- beginning and ending ---- */

static void attach(struct gb_task *task, struct gb_session *session)
{
    task->session = session;
    gb_list_append(&session->tasks, &task->of_session);
}

static struct gb_task *task_new(struct gb_session *session)
{
    struct gb_task *task = calloc(1, sizeof(*task));

    if (!task)
        return NULL;
    task->server = session->server;
    gb_writer_init(&task->answer, 2 * GB_LIMIT(line_bytes));
    gb_writer_init(&task->layout, 0);
    gb_writer_init(&task->text, 0);
    attach(task, session);
    return task;
}

void gb_task_detach(struct gb_task *task)
{
    if (!task || !task->session)
        return;
    gb_list_remove(&task->of_session);
    gb_charge_end(&task->charge);
    if (task->session->task == task)
        task->session->task = NULL;
    task->session = NULL;
}

/* Whether the worker frees it, since freeing several MiB takes time. Less is freed at once: while
   the worker has the allocator's lock, or the queue's, the loop may wait until it is scheduled. */
static bool is_large(const struct gb_task *task)
{
    return task->unsealed || task->message.length > GB_TASK_BYTES ||
           task->answer.capacity + task->layout.capacity + task->text.capacity > 4 * GB_TASK_BYTES;
}

static void free_memory(struct gb_job *job)
{
    struct gb_task *task = GB_CONTAINER(job, struct gb_task, job);

    gb_unsealed_free(task->unsealed);
    gb_writer_end(&task->answer);
    gb_writer_end(&task->layout);
    gb_writer_end(&task->text);
    gb_pool_end(&task->pool);
    free(task->line);
}

static void free_task(struct gb_job *job)
{
    free(GB_CONTAINER(job, struct gb_task, job));
}

/* Drops the storage; the worker does not use it. */
static void drop_storage(struct gb_task *task)
{
    if (task->storage)
        gb_storage_unref(&task->server->store, task->storage);
    task->storage = NULL;
}

void gb_task_free(struct gb_task *task)
{
    if (!task)
        return;
    gb_task_detach(task);
    gb_list_remove(&task->ready);
    gb_walk_end(&task->walks[0]);
    gb_walk_end(&task->walks[1]);
    drop_storage(task);
    task->job = (struct gb_job){.work = free_memory, .done = free_task};
    gb_mover_submit(is_large(task) ? task->server->worker : NULL, &task->job);
}

void gb_tasks_end_session(struct gb_session *session)
{
    GB_LIST_EACH(&session->tasks, struct gb_task, task, of_session) {
        gb_task_detach(task);
        if (!task->working)
            gb_task_free(task);
        else
            drop_storage(task);
    }
}

/* ---- the worker ---- */

static void work(struct gb_job *job)
{
    struct gb_task *task = GB_CONTAINER(job, struct gb_task, job);

    task->work(task);
}

/* The worker is done. The task continues in the next turn at the latest. */
static void worked(struct gb_job *job)
{
    struct gb_task *task = GB_CONTAINER(job, struct gb_task, job);

    task->working = false;
    if (task->session)
        gb_list_append(&task->server->turns.tasks, &task->ready);
    else
        gb_task_free(task);
}

void gb_task_ready(struct gb_task *task)
{
    gb_list_append(&task->server->turns.tasks, &task->ready);
}

static void submit(struct gb_task *task)
{
    if (!task->work) {
        gb_task_ready(task);
        return;
    }
    task->working = true;
    task->job = (struct gb_job){.work = work, .done = worked};
    gb_mover_submit(task->server->worker, &task->job);
}

void gb_task_make_room(struct gb_task *task)
{
    struct gb_writer *writers[] = {&task->answer, &task->text};

    for (int i = 0; i < 2; i++) {
        gb_writer_reset(writers[i]);
        gb_write(writers[i], task->layout.data, task->layout.length);
        gb_writer_reset(writers[i]);
    }
}

/* ---- long messages ---- */

static void read_message(struct gb_task *task)
{
    struct gb_message *message = &task->message;

    task->r = 0;
    task->server->service->read(message, task->line, message->length, &task->pool);
    if (message->r == 0 && message->params_r == 0 && message->method->read)
        task->r = message->method->read(message, &task->unsealed, &task->error);
}

/* A task for the line that is being served. NULL: memory is out. */
static struct gb_task *task_of_line(struct gb_session *session, const char *line, size_t length)
{
    struct gb_task *task = task_new(session);

    if (!task)
        return NULL;
    task->line = gb_frame_keep_line(&session->conn.in, line, length);
    if (!task->line) {
        gb_task_free(task);
        return NULL;
    }
    task->message.length = length;
    task->charge.user = session->user;
    gb_charge_set(&task->charge, GB_HELD_BYTES, length);
    session->task = task;
    task->since_ns = session->server->metrics.begun_ns;
    return task;
}

int gb_task_read(struct gb_session *session, const char *line, size_t length)
{
    struct gb_task *task = task_of_line(session, line, length);

    if (!task)
        return GPUBUF_E_NO_MEMORY;
    if (length > GB_TASK_BYTES)
        task->work = read_message;
    else
        read_message(task);
    submit(task);
    return 0;
}

/* ---- going on ---- */

static void run(struct gb_task *task)
{
    struct gb_session *session = task->session;
    bool holds = session->task == task;
    int r = session->server->service->serve(&(struct gb_entry){.session = session, .task = task});

    if (r < 0) {
        gb_session_flush(session, SIZE_MAX);
        gb_session_end(session, "its messages and descriptors are out of step");
    } else if (holds && !session->task) {
        gb_session_let_go(session);
    } else {
        gb_session_charge(session); /* for descriptors that the request has taken */
    }
}

void gb_tasks_run(struct gb_server *server, uint64_t until)
{
    struct gb_link turn = {NULL};

    gb_sessions_end_hung_up(server);
    /* A task that is done in slices is queued again, for the next turn. */
    gb_list_move(&server->turns.tasks, &turn);
    do {
        struct gb_task *task = GB_CONTAINER(turn.next, struct gb_task, ready);

        if (gb_list_empty(&turn))
            return;
        gb_list_remove(&task->ready);
        run(task);
    } while (uv_hrtime() < until);
    gb_list_move(&turn, &server->turns.tasks);
}

/* ---- for the handlers ---- */

int gb_call_as_task(struct gb_call *call)
{
    const struct gb_message *message = call->message;
    struct gb_task *task = task_of_line(call->session, message->line, message->length);

    if (!task)
        return gb_call_no_memory(call);
    task->counted = true;
    read_message(task); /* here: a long message would be a task already */
    submit(task);
    return GB_GOES_ON;
}

int gb_call_continue(struct gb_call *call, void (*work_)(struct gb_task *task),
                     int (*next_step)(struct gb_call *call, void *state), void *state)
{
    struct gb_task *task = call->task;

    if (!task->session) /* it waited, and does not hold up later requests of its session */
        attach(task, call->session);
    if (call->writer != &task->answer && call->writer->length > 0) {
        struct gb_writer none = task->answer;

        task->answer = *call->writer;
        *call->writer = none;
    }
    task->work = work_;
    task->next_step = next_step;
    task->state = state;
    submit(task);
    return GB_GOES_ON;
}
