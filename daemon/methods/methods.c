#include "daemon/methods/methods.h"

#include <string.h>
#include <unistd.h>

#include "daemon/base/log.h"
#include "daemon/base/probes.h"
#include "daemon/methods/call.h"
#include "daemon/methods/watch.h"
#include "daemon/serve/departure.h"
#include "daemon/serve/observer.h"

/* In the order of docs/PROTOCOL.md. */
static const struct gb_method *const methods[] = {
    &gb_method_hello, &gb_method_create,  &gb_method_seal,    &gb_method_settle,
    &gb_method_abort, &gb_method_open,    &gb_method_release, &gb_method_register,
    &gb_method_alias, &gb_method_delete,  &gb_method_list,    &gb_method_stat,
    &gb_method_pin,   &gb_method_unpin,   &gb_method_spill,   &gb_method_restore,
    &gb_method_why,   &gb_method_leases,  &gb_method_unmap,   &gb_method_trim,
    &gb_method_watch, &gb_method_unwatch, &gb_method_stats,   &gb_method_describe,
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

static size_t find_method(const struct gb_string *name)
{
    size_t i = 0;

    while (i < METHOD_COUNT && strcmp(methods[i]->name, name->text) != 0)
        i++;
    return i;
}

/* ---- one request ---- */

static void close_fds(int *fds, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* Decodes the parameters and lets the method answer: an outcome, or a code with call->error set. */
static int handle(struct gb_call *call)
{
    const struct gb_method *method = call->method;
    uint64_t present = 0;
    void *params;

    if ((method->flags & GB_METHOD_ADMIN) && !gb_session_is_admin(call->session))
        return gb_fail(&call->error, GPUBUF_E_DENIED, "%s is for root and the daemon's own user",
                       method->name);
    if (call->fd_count > 0 && !(method->flags & GB_METHOD_FDS))
        return gb_fail(&call->error, GPUBUF_E_INVALID, "%s takes no descriptors", method->name);
    params = gb_pool_calloc(call->pool, 1, method->params_size);
    if (!params)
        return gb_call_no_memory(call);
    if (call->params_text.text) {
        int r =
            gb_json_read(call->params_text, method->fields, method->field_count, GB_UNKNOWN_REFUSE,
                         &gb_params_path, call->pool, params, &present, &call->error);
        if (r < 0)
            return r;
    }
    if (!(method->flags & GB_METHOD_APART))
        gb_sessions_give_back(call->server, UINT64_MAX);
    for (size_t i = 0; i < method->field_count; i++)
        if ((method->fields[i].flags & GB_FIELD_REQUIRED) && !(present & (uint64_t)1 << i))
            return gb_fail_at(&call->error, GB_PARAM(method->fields[i].name), "missing");
    return method->handle(call, params, present);
}

/* Counts the request as answered, with how long it took. */
static void note(struct gb_call *call, int r)
{
    struct gb_metrics *metrics = &call->server->metrics;
    struct gb_observer *observer = call->server->observer;
    size_t index = call->method ? call->index : METHOD_COUNT;
    const char *name = call->method ? call->method->name : "unknown";
    uint64_t waited_since = call->wait ? gb_wait_begun_ns(call->wait) : 0;
    uint64_t begun_ns, ns;

    if (r == GPUBUF_E_LIMIT && call->error.limit)
        gb_metrics_limit(metrics, call->error.limit);
    begun_ns = waited_since ? waited_since : metrics->begun_ns;
    ns = gb_metrics_request(metrics, index, r < 0 ? r : 0, waited_since);
    GB_PROBE4(request, name, call->session->id, r < 0 ? r : 0, ns);
    if (observer)
        observer->request(observer, call->session, name, r < 0 ? gb_error_kind(r) : "ok", begun_ns,
                          ns, waited_since > 0);
}

/* Sends the result or the error; a notification gets neither. */
static void answer(struct gb_call *call, int r)
{
    note(call, r);
    if (r < 0) {
        if (call->method)
            call->server->counts[call->index].errors++;
        if (call->error.code == GPUBUF_E_INTERNAL || call->error.code == GPUBUF_E_DEVICE)
            gb_log(GB_LOG_ERROR, "request failed",
                   GB_LOG_TEXT("method", call->method ? call->method->name : ""),
                   GB_LOG_NUMBER("pid", call->session->pid),
                   GB_LOG_TEXT("why", call->error.message));
        close_fds(call->reply_fds, call->reply_fd_count);
        call->reply_fd_count = 0;
        gb_writer_reset(call->writer);
        if (call->id.text || !call->method)
            gb_rpc_write_error(call->writer, call->id, &call->error);
    } else if (call->id.text) {
        gb_rpc_end(call->writer);
    } else {
        close_fds(call->reply_fds, call->reply_fd_count);
        call->reply_fd_count = 0;
        return;
    }
    call->writer->failed |= call->writer->length > GB_LIMIT(line_bytes);
    if (call->writer->length > 0 || call->writer->failed)
        gb_session_answer(call->session, call->writer, call->reply_fds, call->reply_fd_count);
}

static int run(struct gb_call *call)
{
    int r;

    gb_writer_reset(call->writer);
    r = handle(call);
    if (r == GB_WAITS)
        return GB_WAITS;
    answer(call, r);
    return GB_DONE;
}

static void call_init(struct gb_call *call, struct gb_session *session, const char *line,
                      size_t length)
{
    struct gb_server *server = session->server;

    memset(call, 0, offsetof(struct gb_call, error));
    call->server = server;
    call->session = session;
    call->pool = &server->desk.pool;
    call->writer = &server->desk.writer;
    call->line = line;
    call->line_length = length;
    gb_pool_reset(call->pool);
}

/*
 * The descriptors that the message says it brings. When it cannot be told how many a broken line
 * brought, and some are there, they are out of step with the messages for good.
 */
static int take_fds(struct gb_call *call, const struct gb_rpc_request *request, int read, int *fds)
{
    struct gb_frame *frame = &call->session->conn.in;

    if (read < 0 && frame->fd_count > 0 && request->fds == 0)
        return GPUBUF_E_PROTOCOL;
    if (request->fds == 0)
        return 0;
    if (request->fds > GB_LIMIT(fds) || gb_frame_take_fds(frame, fds, (unsigned)request->fds) < 0)
        return GPUBUF_E_PROTOCOL;
    call->fds = fds;
    call->fd_count = (unsigned)request->fds;
    return 0;
}

static int serve(struct gb_session *session, const char *line, size_t length)
{
    struct gb_rpc_request request = {0};
    struct gb_call call;
    int fds[GB_LIMIT(fds)];
    int r;

    call_init(&call, session, line, length);
    r = gb_rpc_read_request(line, length, call.pool, &request, &call.error);
    if (r == GPUBUF_E_NO_MEMORY && !request.id.text)
        return r; /* nobody would know what an answer is to */
    call.id = request.id;
    call.params_text = request.params;
    if (take_fds(&call, &request, r, fds) < 0) {
        gb_fail(&call.error, GPUBUF_E_REQUEST,
                "the message does not bring the descriptors that it should; the session ends");
        answer(&call, GPUBUF_E_REQUEST);
        return GPUBUF_E_PROTOCOL;
    }
    if (r == 0 && (call.index = find_method(&request.method)) < METHOD_COUNT) {
        call.method = methods[call.index];
        session->server->counts[call.index].calls++;
        r = run(&call);
        if (call.method != &gb_method_hello)
            session->greeted = true; /* hello can only come first */
    } else {
        if (r == 0)
            r = gb_fail(&call.error, GPUBUF_E_METHOD, "there is no method \"%.64s\"",
                        request.method.text);
        if (request.id.text || !request.method.text)
            answer(&call, r);
    }
    if (r != GB_WAITS)
        gb_session_drop_fds(session, call.fds, call.fd_count);
    return 0;
}

static bool retry(struct gb_wait *wait, bool last_try)
{
    struct gb_session *session = gb_wait_session(wait);
    struct gb_rpc_request request = {0};
    struct gb_call call;
    const char *line;
    size_t length;

    line = gb_wait_line(wait, &length);
    call_init(&call, session, line, length);
    call.wait = wait;
    call.last_try = last_try;
    call.fds = gb_wait_fds(wait, &call.fd_count);
    if (gb_rpc_read_request(line, length, call.pool, &request, &call.error) < 0) {
        /* It was readable once, so memory is out. Whose request it was cannot be told. */
        call.writer->failed = true;
        gb_session_send(session, call.writer, NULL, 0);
        gb_wait_end(wait);
        return true;
    }
    call.id = request.id;
    call.params_text = request.params;
    call.index = find_method(&request.method);
    call.method = methods[call.index];
    if (run(&call) == GB_WAITS)
        return false;
    gb_wait_end(wait);
    return true;
}

const struct gb_service gb_methods = {
    .count = METHOD_COUNT,
    .name = method_name,
    .serve = serve,
    .retry = retry,
    .event = gb_watches_event,
    .tell_more = gb_watches_pump,
    .end_watches = gb_watches_end_session,
};
