/* Calls of methods that bring no descriptors back: blocking, asynchronous, and the library's own.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

struct call {
    struct gb_request base;
    gpubuf_call_cb callback;
    void *arg;
    char *result;
    size_t length;
};

static int call_reply(struct gb_request *request, const struct gb_reply *reply,
                      struct gb_error *error)
{
    struct call *call = (struct call *)request;
    if (reply->refused)
        return reply->refused->code;
    call->result = strndup(reply->result.text, reply->result.length);
    if (!call->result)
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
    call->length = reply->result.length;
    return 0;
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
    free(call->result);
    free(call);
}

static const struct gb_request_type call_type = {
    .reply = call_reply,
    .deliver = call_deliver,
    .free = call_free,
};

void gb_write_json(struct gb_writer *writer, struct gb_json value)
{
    const char *text = value.text, *end = text + value.length;
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

/* Sends a call. The descriptors are taken over. */
static int start(struct gpubuf_client *client, struct call *call, const char *method,
                 gb_write_params write, const void *arg, const int *fds, unsigned fd_count,
                 struct gb_error *error)
{
    call->base.type = &call_type;
    struct gb_writer *writer = gb_request_begin(client, &call->base, method, fd_count);
    write(writer, arg);
    return gb_request_send(client, &call->base, fds, fd_count, GB_RELEASES_FIRST, error);
}

/* Copies of the caller's descriptors, for the connection to close. */
static int copy_fds(const int *fds, unsigned count, int *copies, struct gb_error *error)
{
    for (unsigned i = 0; i < count; i++) {
        copies[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, 0);
        if (copies[i] >= 0)
            continue;
        (void)gb_fail_errno(error, "descriptor %d", fds[i]);
        if (errno == EBADF)
            error->code = GPUBUF_E_INVALID;
        while (i > 0)
            close(copies[--i]);
        return error->code;
    }
    return 0;
}

int gb_call_with_fds(struct gpubuf_client *client, const char *method, gb_write_params write,
                     const void *arg, const int *fds, unsigned fd_count, int64_t timeout_ms,
                     char **result)
{
    int r = gb_enter_blocking(client);
    if (r < 0)
        return r;
    int copies[GB_LIMIT(fds)];
    struct call *call = calloc(1, sizeof(*call));
    if (!call) {
        r = gb_report_memory(client);
        goto leave;
    }
    struct gb_error error;
    call->base.waited = true;
    r = copy_fds(fds, fd_count, copies, &error);
    if (r == 0)
        r = start(client, call, method, write, arg, copies, fd_count, &error);
    if (r < 0) {
        free(call);
        (void)gb_report(client, &error);
        goto leave;
    }

    struct gb_request *request = &call->base;
    r = gb_request_wait(client, &request, timeout_ms);
    if (!request)
        goto leave;
    if (r == 0 && result) {
        *result = call->result;
        call->result = NULL;
    }
    call_free(request);
leave:
    gb_leave(client);
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

/* What the program gave us has to be sound before it is put into a message of ours. */
static int check_call(const struct gpubuf_client *client, const char *method, const char *params,
                      struct gb_json *value)
{
    static const char *const refused[] = {"open", "create", "register"};
    if (!method || !gb_utf8_valid(method, strlen(method)))
        return gb_report_text(client, GPUBUF_E_INVALID,
                              "the method's name is missing or not UTF-8");
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (strcmp(method, refused[i]) == 0)
            return gb_report_text(client, GPUBUF_E_UNSUPPORTED,
                                  "%s brings descriptors and has a function of its own", method);
    }
    if (!params)
        params = "{}";
    struct gb_error error;
    if (gb_json_check(params, strlen(params), value, &error) < 0)
        return gb_report_text(client, GPUBUF_E_INVALID, "params: %s", error.message);
    if (gb_json_type(*value) != GB_JSON_OBJECT)
        return gb_report_text(client, GPUBUF_E_INVALID, "params: expected an object, found %s",
                              gb_json_type_name(gb_json_type(*value)));
    return 0;
}

int gpubuf_call(struct gpubuf_client *client, const char *method, const char *params,
                int timeout_ms, char **result)
{
    struct gb_json value;
    int r = check_call(client, method, params, &value);
    if (r < 0)
        return r;
    return gb_call(client, method, write_value, &value, timeout_ms, result);
}

int gb_call_async_with_fds(struct gpubuf_client *client, const char *method, gb_write_params write,
                           const void *arg, const int *fds, unsigned fd_count,
                           gpubuf_call_cb callback, void *callback_arg, uint64_t *request)
{
    int r = gb_enter(client);
    if (r < 0)
        return r;
    int copies[GB_LIMIT(fds)];
    struct call *call = calloc(1, sizeof(*call));
    if (!call) {
        r = gb_report_memory(client);
        gb_leave(client);
        return r;
    }
    call->callback = callback;
    call->arg = callback_arg;
    struct gb_error error;
    r = copy_fds(fds, fd_count, copies, &error);
    if (r == 0)
        r = start(client, call, method, write, arg, copies, fd_count, &error);
    if (r < 0) {
        free(call);
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
    int r = check_call(client, method, params, &value);
    if (r < 0)
        return r;
    return gb_call_async_with_fds(client, method, write_value, &value, NULL, 0, callback, arg,
                                  request);
}
