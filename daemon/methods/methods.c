#include "daemon/methods/methods.h"

#include <string.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/base/probes.h"
#include "daemon/methods/task.h"
#include "daemon/methods/watch.h"
#include "daemon/serve/departure.h"

/* In the order of docs/PROTOCOL-METHODS.md. */
static const struct gb_method *const methods[] = {
    &gb_method_hello,   &gb_method_create,   &gb_method_seal,     &gb_method_open,
    &gb_method_release, &gb_method_unmap,    &gb_method_settle,   &gb_method_register,
    &gb_method_alias,   &gb_method_cache,    &gb_method_join,     &gb_method_provide,
    &gb_method_decline, &gb_method_delete,   &gb_method_list,     &gb_method_stat,
    &gb_method_set,     &gb_method_move,     &gb_method_watch,    &gb_method_unwatch,
    &gb_method_leases,  &gb_method_trim,     &gb_method_segments, &gb_method_sessions,
    &gb_method_stats,   &gb_method_describe,
};

#define METHOD_COUNT (sizeof(methods) / sizeof(methods[0]))

size_t gb_method_count(void)
{
    return METHOD_COUNT;
}

const struct gb_method *gb_method_at(size_t i)
{
    return methods[i];
}

static const char *method_name(size_t i)
{
    return methods[i]->name;
}

static const char *param_name(size_t i, size_t param)
{
    return param < methods[i]->field_count ? methods[i]->fields[param].name : NULL;
}

static size_t find_method(const struct gb_string *name)
{
    size_t i = 0;

    while (i < METHOD_COUNT && strcmp(methods[i]->name, name->text) != 0)
        i++;
    return i;
}

/* ---- one request ---- */

static void close_reply_fds(struct gb_call *call)
{
    while (call->reply_fd_count > 0)
        close(call->reply_fds[--call->reply_fd_count]);
}

static void read_message(struct gb_message *message, const char *line, size_t length,
                         struct gb_pool *pool)
{
    const struct gb_method *method;
    void *params;

    *message = (struct gb_message){.line = line, .length = length};
    message->r = gb_rpc_read_request(line, length, pool, &message->request, &message->error);
    if (message->r < 0)
        return;
    message->index = find_method(&message->request.method);
    if (message->index == METHOD_COUNT) {
        message->r = gb_fail(&message->error, GPUBUF_E_METHOD, "there is no method \"%.64s\"",
                             message->request.method.text);
        return;
    }
    message->method = method = methods[message->index];
    params = gb_pool_calloc(pool, 1, method->params_size);
    message->params = params;
    if (!params)
        message->params_r = gb_fail_memory(&message->error);
    else if (length >= GB_LIMIT(request_bytes) && !(method->flags & GB_METHOD_LONG))
        message->params_r = gb_fail_limit(&message->error, "request_bytes", GB_LIMIT(request_bytes),
                                          "bytes in a request that brings no layout");
    else
        message->params_r = gb_json_read(message->request.params, method->fields,
                                         method->field_count, GB_UNKNOWN_REFUSE, &gb_params_path,
                                         pool, params, &message->present, &message->error);
}

/* Whether parts of the task are done, so that it does not begin with the handler. */
static bool is_begun(const struct gb_task *task)
{
    return task && task->next_step;
}

/* Calls the method's handler: an outcome, or a negative code with call->error set. */
static int handle(struct gb_call *call)
{
    const struct gb_method *method = call->method;

    if ((method->flags & GB_METHOD_ADMIN) && !gb_session_is_admin(call->session))
        return gb_fail(&call->error, GPUBUF_E_DENIED, "%s is for root and the daemon's own user",
                       method->name);
    if (call->fd_count > 0 && !(method->flags & GB_METHOD_FDS))
        return gb_fail(&call->error, GPUBUF_E_INVALID, "%s takes no descriptors", method->name);
    if (call->message->params_r < 0) {
        call->error = call->message->error;
        return call->message->params_r;
    }
    return method->handle(call, call->message->params);
}

/* Counts the request as answered, with how long it took. */
static void count_answer(struct gb_call *call, int r)
{
    struct gb_metrics *metrics = &call->server->metrics;
    size_t index = call->method ? call->index : METHOD_COUNT;
    const char *name = call->method ? call->method->name : "unknown";
    uint64_t ns;

    if (r == GPUBUF_E_LIMIT && call->error.limit)
        gb_metrics_limit(metrics, call->error.limit);
    for (unsigned i = 0; call->method && i < GB_METRICS_PARAMS; i++)
        metrics->methods[index].params[i] += call->message->present >> i & 1;
    ns = gb_metrics_request(metrics, index, r < 0 ? r : 0, call->since_ns);
    GB_PROBE4(request, name, call->session->id, r < 0 ? r : 0, ns);
}

/* Sends the result or the error; a notification gets neither. */
static void answer(struct gb_call *call, int r)
{
    count_answer(call, r);
    if (r < 0) {
        if (call->error.code == GPUBUF_E_INTERNAL || call->error.code == GPUBUF_E_DEVICE)
            gb_log_limited(GB_LOG_ERROR, call->session->user->uid, "request failed",
                           GB_LOG_TEXT("method", call->method ? call->method->name : ""),
                           GB_LOG_NUMBER("pid", call->session->pid),
                           GB_LOG_TEXT("why", call->error.message));
        close_reply_fds(call);
        gb_writer_reset(call->writer);
        if (call->id.text || !call->method)
            gb_rpc_write_error(call->writer, call->id, &call->error);
    } else if (call->id.text) {
        gb_rpc_end(call->writer);
        if (call->method->flags & GB_METHOD_KEEPS)
            gb_session_delay_output(call->session);
    } else {
        close_reply_fds(call);
        return;
    }
    call->writer->failed |= call->writer->length > GB_LIMIT(line_bytes);
    if (call->writer->length > 0 || call->writer->failed)
        gb_session_answer(call->session, call->writer, call->reply_fds, call->reply_fd_count);
}

/* Has the handler serve the request, or continue its task, and answers. */
static int run(struct gb_call *call)
{
    struct gb_task *task = call->task;
    bool continues = is_begun(task) && !call->wait;
    int r;

    if (continues && task->answer.capacity > 0)
        call->writer = &task->answer;
    else
        gb_writer_reset(call->writer);
    r = continues ? task->next_step(call, task->state) : handle(call);
    if (r == GB_WAITS || r == GB_GOES_ON)
        return r;
    answer(call, r);
    return GB_DONE;
}

/* `task`: NULL if the request is no task. The workspace is to be returned when the answer is sent,
   or the request put aside. */
static void call_init(struct gb_call *call, struct gb_session *session,
                      const struct gb_message *message, struct gb_task *task)
{
    struct gb_server *server = session->server;

    gb_workspace_acquire(&server->workspace);
    memset(call, 0, offsetof(struct gb_call, error));
    call->server = server;
    call->session = session;
    call->message = message;
    call->task = task;
    call->since_ns = task ? task->since_ns : 0;
    call->pool = task ? &task->pool : &server->workspace.pool;
    call->writer = &server->workspace.writer;
    call->layout = task ? &task->layout : &server->workspace.layout;
    call->text = task ? &task->text : &server->workspace.text;
    gb_writer_reset(call->text);
    call->id = message->request.id;
    call->method = message->method;
    call->index = message->index;
}

/*
 * Takes the descriptors that the message says it brings. If a broken line does not say how many,
 * and some are there, descriptors and messages are out of step for good: GPUBUF_E_PROTOCOL.
 */
static int take_fds(struct gb_call *call, int *fds)
{
    const struct gb_message *message = call->message;
    struct gb_frame *frame = &call->session->conn.in;
    uint64_t count = message->request.fds;

    if (message->r < 0 && message->r != GPUBUF_E_METHOD && frame->fd_count > 0 && count == 0)
        return GPUBUF_E_PROTOCOL;
    if (count == 0)
        return 0;
    if (count > GB_LIMIT(fds) || gb_frame_take_fds(frame, fds, (unsigned)count) < 0)
        return GPUBUF_E_PROTOCOL;
    call->fds = fds;
    call->fd_count = (unsigned)count;
    return 0;
}

/* Begins a request that comes: takes its descriptors to `fds`. GB_GOES_ON: it is to be done; else
   it is over. Negative: the connection must be closed. */
static int begin(struct gb_call *call, int *fds)
{
    const struct gb_message *message = call->message;

    if (message->r == GPUBUF_E_NO_MEMORY && !call->id.text)
        return message->r; /* an answer without an id would be of no use */
    if (take_fds(call, fds) < 0) {
        gb_fail(&call->error, GPUBUF_E_REQUEST,
                "the message does not bring the descriptors that it should; the session ends");
        answer(call, GPUBUF_E_REQUEST);
        return GPUBUF_E_PROTOCOL;
    }
    if (message->r == 0) {
        if (!call->task || !call->task->counted)
            call->server->metrics.methods[call->index].calls++;
        return GB_GOES_ON;
    }
    if (call->id.text || !message->request.method.text) {
        call->error = message->error;
        answer(call, message->r);
    }
    return GB_DONE;
}

/* Goes on with a request that has waited: as one that comes, but with what was kept for it. */
static int resume(struct gb_call *call, const struct gb_entry *entry)
{
    struct gb_wait *wait = entry->wait;

    call->wait = wait;
    call->last_try = entry->last_try;
    call->since_ns = wait->begun_ns;
    call->fds = wait->fds;
    call->fd_count = wait->fd_count;
    if (call->message->r == 0)
        return GB_GOES_ON;
    /* The message was readable once, so memory is out. Its id is not known without it. */
    call->writer->failed = true;
    gb_session_send(call->session, call->writer, NULL, 0);
    return GB_DONE;
}

/* Ends this try of the request: what it was given is freed, unless it is needed for the next. */
static void end(struct gb_call *call, const struct gb_entry *entry, int r)
{
    gb_workspace_return(&call->server->workspace);
    if (r == GB_WAITS)
        return;
    if (entry->wait) {
        if (r == GB_GOES_ON)
            entry->wait->task = NULL; /* the task is the worker's now */
        gb_wait_end(entry->wait);
        return;
    }
    gb_session_drop_fds(call->session, call->fds, call->fd_count);
    if (r != GB_GOES_ON)
        gb_task_free(call->task);
}

/* Whether the request may be served now: not while its answer could show leases of sessions that
   have ended. Until these are given back, some in each turn, the request is a task. */
static bool has_settled(struct gb_server *server, const struct gb_message *message, bool is_task)
{
    return message->r < 0 || (message->method->flags & GB_METHOD_APART) ||
           gb_list_empty(&server->turns.leaving) ||
           (!is_task &&
            gb_sessions_release_leases(server, uv_hrtime() + server->turns.slice_ns / 2));
}

static int serve(const struct gb_entry *entry)
{
    struct gb_session *session = entry->session, *before = session->server->serving;
    struct gb_server *server = session->server;
    struct gb_wait *wait = entry->wait;
    struct gb_task *task = wait ? wait->task : entry->task;
    const char *line = wait ? wait->line : entry->line;
    size_t length = wait ? wait->length : entry->length;
    struct gb_message message;
    struct gb_call call;
    int fds[GB_LIMIT(fds)], r = GB_GOES_ON;

    if (wait)
        gb_sessions_release_leases(server, UINT64_MAX);
    else if (length > GB_TASK_BYTES)
        return gb_task_read(session, line, length);
    if (!task) {
        gb_pool_reset(&server->workspace.pool);
        read_message(&message, line, length, &server->workspace.pool);
    }
    if (!wait && !is_begun(task) && !has_settled(server, task ? &task->message : &message, task)) {
        if (!task)
            return gb_task_read(session, line, length);
        gb_task_ready(task);
        return GB_GOES_ON;
    }
    server->serving = session;
    call_init(&call, session, task ? &task->message : &message, task);
    if (wait)
        r = resume(&call, entry);
    else if (!is_begun(task))
        r = begin(&call, fds);
    if (r == GB_GOES_ON)
        r = run(&call);
    if (call.message->r == 0 && call.method != &gb_method_hello)
        session->greeted = true; /* hello can only come first */
    end(&call, entry, r);
    server->serving = before;
    return r;
}

const struct gb_service gb_methods = {
    .count = METHOD_COUNT,
    .name = method_name,
    .param = param_name,
    .serve = serve,
    .read = read_message,
    .run_tasks = gb_tasks_run,
    .end_tasks = gb_tasks_end_session,
    .end_task = gb_task_free,
    .event = gb_watches_event,
    .send_news = gb_watches_send_news,
    .send_existing = gb_watches_pump,
    .end_watches = gb_watches_end_session,
};
