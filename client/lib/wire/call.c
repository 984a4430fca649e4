#include "client/lib/wire/call.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/lib/wire/enter.h"
#include "client/lib/wire/report.h"
#include "client/lib/wire/wait.h"

struct call {
    struct gb_request base;
    gpubuf_call_cb callback;
    void *arg;
    char *result; /* its text, for free(); NULL if `read` reads it */
    size_t length;
    gb_read_result read;
    void *out;
    int read_status;
    struct gb_error read_error;
    /* To send it with. In a blocking call these are the caller's, who waits; else they point to the
       last members. */
    const char *method;
    gb_write_params write;
    const void *params;
    const int *fds;
    unsigned fd_count;
    struct gb_writer written;
    int own_fds[GB_LIMIT(fds)];
    unsigned own_fd_count;
    char text[];
};

static int call_reply(struct gb_request *request, const struct gb_reply *reply,
                      struct gb_error *error)
{
    struct call *call = (struct call *)request;

    if (reply->refused)
        return reply->refused->code;
    if (request->canceled)
        return 0;
    if (call->read) {
        call->read_status =
            call->read(reply->result, &request->client->pool, call->out, &call->read_error);
        return 0;
    }
    call->length = gb_json_length(reply->result);
    call->result = strndup(reply->result.text, call->length);
    return call->result ? 0 : gb_fail_memory(error);
}

static void call_deliver(struct gb_request *request, int status)
{
    struct call *call = (struct call *)request;

    if (!call->callback)
        return;
    if (status < 0)
        call->callback(request->client, status, NULL, 0, call->arg);
    else
        call->callback(request->client, 0, call->result, call->length, call->arg);
}

static void call_free(struct gb_request *request)
{
    struct call *call = (struct call *)request;

    for (unsigned i = 0; i < call->own_fd_count; i++)
        close(call->own_fds[i]);
    gb_writer_end(&call->written);
    free(call->result);
    free(call);
}

/* Copies of the caller's descriptors, for the connection to close. */
static int copy_fds(const int *fds, unsigned count, int *copies, struct gb_error *error)
{
    for (unsigned i = 0; i < count; i++) {
        copies[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
        if (copies[i] >= 0)
            continue;
        bool closed = errno == EBADF;
        (void)gb_fail_errno(error, "descriptor %d", fds[i]);
        if (closed)
            error->code = GPUBUF_E_INVALID;
        while (i > 0)
            close(copies[--i]);
        return error->code;
    }
    return 0;
}

static int send_call(struct gb_request *request, struct gb_error *error)
{
    struct call *call = (struct call *)request;
    int copies[GB_LIMIT(fds)];
    int r = copy_fds(call->fds, call->fd_count, copies, error);

    if (r < 0)
        return r;
    call->write(gb_request_begin(request->client, request, call->method, call->fd_count),
                call->params);
    return gb_request_send(request->client, request, copies, call->fd_count, GB_RELEASES_FIRST,
                           error);
}

static const struct gb_request_type call_type = {
    .reply = call_reply,
    .resend = send_call,
    .deliver = call_deliver,
    .free = call_free,
};

void gb_write_json(struct gb_writer *writer, struct gb_json value)
{
    const char *text = value.text, *end = text + gb_json_length(value);

    while (text < end) {
        const char *stop = text;
        while (stop < end && *stop != '\n' && *stop != '\r')
            stop++;
        gb_write(writer, text, (size_t)(stop - text));
        if (stop < end) /* outside strings, where JSON has no raw line breaks */
            gb_write_char(writer, ' ');
        text = stop + 1;
    }
}

/* Whether a method may reach the daemon twice without harm. */
static bool may_repeat(const char *method)
{
    static const char *const methods[] = {"list", "stat", "stats",    "leases",
                                          "set",  "move", "describe", "provide"};
    for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
        if (strcmp(method, methods[i]) == 0)
            return true;
    }
    return false;
}

/* Enters the client, sends the call that `given` describes, waits, and leaves. On success *out is
   the call, for call_free(). */
static int call_wait(struct gpubuf_client *client, const struct call *given, int64_t timeout_ms,
                     struct call **out)
{
    int r = gb_enter_blocking(client);

    if (r < 0)
        return r;
    struct call *call = calloc(1, sizeof(*call));
    if (!call) {
        r = gb_report_memory(client);
        goto leave;
    }
    struct gb_error error;
    *call = *given;
    call->base.type = &call_type;
    call->base.client = client;
    call->base.waited = true;
    call->base.once = !may_repeat(call->method);
    r = send_call(&call->base, &error);
    if (r < 0) {
        free(call);
        (void)gb_report(client, &error);
        goto leave;
    }

    struct gb_request *request = &call->base;
    r = gb_request_wait(client, &request, timeout_ms);
    if (r == 0)
        *out = call;
    else if (request)
        call_free(request);
leave:
    gb_leave(client);
    return r;
}

int gb_call_with_fds(struct gpubuf_client *client, const char *method, gb_write_params write,
                     const void *arg, const int *fds, unsigned fd_count, int64_t timeout_ms,
                     char **result)
{
    const struct call given = {
        .method = method, .write = write, .params = arg, .fds = fds, .fd_count = fd_count};
    struct call *call;
    int r = call_wait(client, &given, timeout_ms, &call);

    if (r < 0)
        return r;
    if (result) {
        *result = call->result;
        call->result = NULL;
    }
    call_free(&call->base);
    return 0;
}

int gb_call_read(struct gpubuf_client *client, const char *method, gb_write_params write,
                 const void *arg, int64_t timeout_ms, gb_read_result read, void *out)
{
    const struct call given = {
        .method = method, .write = write, .params = arg, .read = read, .out = out};
    struct call *call;
    int r = call_wait(client, &given, timeout_ms, &call);

    if (r < 0)
        return r;
    r = call->read_status;
    if (r == GPUBUF_E_INVALID)
        r = gb_report_text(client, GPUBUF_E_PROTOCOL, "the daemon's answer is malformed: %s",
                           call->read_error.message);
    else if (r < 0)
        r = gb_report(client, &call->read_error);
    call_free(&call->base);
    return r;
}

int gb_call(struct gpubuf_client *client, const char *method, gb_write_params write,
            const void *arg, int64_t timeout_ms, char **result)
{
    return gb_call_with_fds(client, method, write, arg, NULL, 0, timeout_ms, result);
}

/* ---- the public side ---- */

static void write_value(struct gb_writer *writer, const void *arg)
{
    gb_write_json(writer, *(const struct gb_json *)arg);
}

/* Checks the method and the JSON of the program, which become part of a message. */
static int check_call(const struct gpubuf_client *client, const char *method, const char *params,
                      struct gb_pool *pool, struct gb_json *value)
{
    static const char *const refused[] = {"open", "create", "register"};
    if (!method || !gb_utf8_valid(method, strlen(method)))
        return gb_report_text(client, GPUBUF_E_INVALID,
                              "the method's name is missing or not UTF-8");
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (strcmp(method, refused[i]) == 0)
            return gb_report_text(client, GPUBUF_E_UNSUPPORTED,
                                  "%s carries descriptors and has a function of its own", method);
    }
    return gb_check_params(client, params, pool, value);
}

int gb_check_params(const struct gpubuf_client *client, const char *params, struct gb_pool *pool,
                    struct gb_json *value)
{
    if (!params)
        params = "{}";
    struct gb_error error;
    int r = gb_json_check(params, strlen(params), pool, value, &error);
    if (r == GPUBUF_E_PARSE)
        return gb_report_text(client, GPUBUF_E_INVALID, "params: %s", error.message);
    if (r < 0)
        return gb_report(client, &error);
    if (gb_json_type(*value) != GB_JSON_OBJECT)
        return gb_report_text(client, GPUBUF_E_INVALID, "params: expected an object, found %s",
                              gb_json_type_name(gb_json_type(*value)));
    return 0;
}

int gpubuf_call(struct gpubuf_client *client, const char *method, const char *params,
                int timeout_ms, char **result)
{
    struct gb_json value;
    struct gb_pool pool = {0};
    int r = check_call(client, method, params, &pool, &value);

    if (r == 0)
        r = gb_call(client, method, write_value, &value, timeout_ms, result);
    gb_pool_end(&pool);
    return r;
}

static void write_written(struct gb_writer *writer, const void *arg)
{
    const struct gb_writer *written = arg;

    gb_write(writer, written->data, written->length);
}

/* A call with copies of the texts and descriptors. On failure NULL, and *error is filled in. */
static struct call *call_copy(const char *method, gb_write_params write, const void *arg,
                              const int *fds, unsigned fd_count, struct gb_error *error)
{
    size_t length = strlen(method) + 1;
    struct call *call = calloc(1, sizeof(*call) + length);

    (void)gb_fail_memory(error);
    if (!call)
        return NULL;
    memcpy(call->text, method, length);
    gb_writer_init(&call->written, 0);
    write(&call->written, arg);
    if (call->written.failed || copy_fds(fds, fd_count, call->own_fds, error) < 0) {
        call_free(&call->base);
        return NULL;
    }
    call->own_fd_count = fd_count;
    call->base.type = &call_type;
    call->base.once = !may_repeat(method);
    call->method = call->text;
    call->write = write_written;
    call->params = &call->written;
    call->fds = call->own_fds;
    call->fd_count = fd_count;
    return call;
}

int gb_call_async_with_fds(struct gpubuf_client *client, const char *method, gb_write_params write,
                           const void *arg, const int *fds, unsigned fd_count,
                           gpubuf_call_cb callback, void *callback_arg, uint64_t *request)
{
    int r = gb_enter(client);

    if (r < 0)
        return r;
    struct gb_error error;
    struct call *call = call_copy(method, write, arg, fds, fd_count, &error);
    if (!call) {
        r = gb_report(client, &error);
        gb_leave(client);
        return r;
    }
    call->base.client = client;
    call->callback = callback;
    call->arg = callback_arg;
    r = send_call(&call->base, &error);
    if (r < 0) {
        call_free(&call->base);
        (void)gb_report(client, &error);
    } else if (request) {
        *request = call->base.id;
    }
    gb_leave(client);
    return r;
}

int gpubuf_call_async(struct gpubuf_client *client, const char *method, const char *params,
                      gpubuf_call_cb callback, void *arg, uint64_t *request)
{
    struct gb_json value;
    struct gb_pool pool = {0};
    int r = check_call(client, method, params, &pool, &value);

    if (r == 0)
        r = gb_call_async_with_fds(client, method, write_value, &value, NULL, 0, callback, arg,
                                   request);
    gb_pool_end(&pool);
    return r;
}
