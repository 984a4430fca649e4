#include "client/lib/objects/provide.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/objects/names.h"
#include "client/lib/wire/call.h"
#include "client/lib/wire/callback.h"
#include "client/lib/wire/enter.h"
#include "client/lib/wire/link.h"
#include "client/lib/wire/output.h"
#include "client/lib/wire/report.h"
#include "client/lib/wire/wait.h"
#include "proto/base/utf8.h"

struct gb_provide {
    struct gb_provide *next;
    uint64_t id; /* of the same numbers as watches */
    gpubuf_wanted_cb callback;
    void *arg;
    char prefix[];
};

/* A notice that waits for its callback. The client may no longer provide that prefix by then. */
struct notice {
    struct gb_delivery delivery;
    uint64_t provide;
    struct gpubuf_wanted wanted;
    char name[];
};

static struct gb_provide *find_provide(const struct gpubuf_client *client, uint64_t id)
{
    struct gb_provide *provide = client->provides;

    while (provide && provide->id != id)
        provide = provide->next;
    return provide;
}

static struct gb_provide *find_prefix(const struct gpubuf_client *client, const char *prefix)
{
    struct gb_provide *provide = client->provides;

    while (provide && strcmp(provide->prefix, prefix) != 0)
        provide = provide->next;
    return provide;
}

/* ---- what is wanted ---- */

static void notice_deliver(struct gpubuf_client *client, struct gb_delivery *delivery)
{
    struct notice *notice = (struct notice *)delivery;
    const struct gb_provide *provide = find_provide(client, notice->provide);

    if (provide) {
        gpubuf_wanted_cb callback = provide->callback;
        void *arg = provide->arg;
        struct gb_callback_frame frame;
        client->deliveries.watch = notice->provide;
        gb_callback_begin(client, &frame);
        callback(client, &notice->wanted, arg);
        gb_callback_end(client, &frame);
        client->deliveries.watch = 0;
        gb_client_changed(client);
    }
    free(notice);
}

static int queue_notice(struct gpubuf_client *client, const struct gb_provide *provide,
                        const struct gpubuf_wanted *wanted, const struct gb_string *name,
                        struct gb_error *error)
{
    struct notice *notice = calloc(1, sizeof(*notice) + name->length + 1);

    if (!notice)
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory for a wanted name");
    notice->delivery.run = notice_deliver;
    notice->provide = provide->id;
    notice->wanted = *wanted;
    if (name->text) {
        memcpy(notice->name, name->text, name->length);
        notice->wanted.name = notice->name;
    }
    gb_queue_delivery(client, &notice->delivery);
    return 0;
}

struct wanted_members {
    uint64_t request, uid, gid;
    struct gb_string prefix, name;
};

void gb_provide_wanted(struct gpubuf_client *client, struct gb_json params, bool ended)
{
    const unsigned required = ended ? 0 : GB_FIELD_REQUIRED;
    const struct gb_field fields[] = {
        GB_FIELD(struct wanted_members, request, GB_FIELD_UINT, GB_FIELD_REQUIRED, 1, 0),
        GB_FIELD(struct wanted_members, prefix, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct wanted_members, name, GB_FIELD_STRING, required, 0, 0),
        GB_FIELD(struct wanted_members, uid, GB_FIELD_UINT, required, 0, UINT32_MAX),
        GB_FIELD(struct wanted_members, gid, GB_FIELD_UINT, required, 0, UINT32_MAX),
    };
    struct wanted_members members = {.request = 0};
    struct gb_path path = {.key = "params"};
    struct gb_error error;

    if (gb_json_read(params, fields, sizeof(fields) / sizeof(fields[0]), GB_UNKNOWN_IGNORE, &path,
                     &client->pool, &members, NULL, &error) < 0) {
        gb_client_lose_for(client, GPUBUF_E_PROTOCOL,
                           "the daemon sent a malformed notice of a wanted name");
        return;
    }
    const struct gb_provide *provide = find_prefix(client, members.prefix.text);
    if (!provide)
        return; /* the notice that it ended is on its way */
    struct gpubuf_wanted wanted = {
        .request = members.request,
        .uid = (uint32_t)members.uid,
        .gid = (uint32_t)members.gid,
        .ended = ended,
    };
    /* On a new connection the daemon asks again. */
    if (queue_notice(client, provide, &wanted, &members.name, &error) < 0)
        gb_client_doom(client, &error);
}

/* ---- beginning and ending ---- */

struct provide_params {
    const char *prefix;
    bool end;
};

static void write_provide(struct gb_writer *writer, const void *arg)
{
    const struct provide_params *params = arg;

    GB_WRITE_LITERAL(writer, "{\"prefix\":");
    gb_write_cstring(writer, params->prefix);
    gb_write_text(writer, params->end ? ",\"end\":true}" : "}");
}

/* Whether a notice can be sent to the daemon now. */
static bool is_up(const struct gpubuf_client *client)
{
    return client->link == GB_LINK_UP && !client->end.lost.code;
}

/* Takes a prefix off the client, and tells the daemon. NULL: the client does not provide it. */
static struct gb_provide *take_provide(struct gpubuf_client *client, uint64_t id)
{
    struct gb_provide **link = &client->provides;

    while (*link && (*link)->id != id)
        link = &(*link)->next;
    struct gb_provide *provide = *link;
    if (!provide)
        return NULL;
    *link = provide->next;
    if (is_up(client)) {
        const struct provide_params params = {provide->prefix, true};
        write_provide(gb_notice_begin(client, "provide"), &params);
        if (gb_notice_queue(client))
            gb_flush(client);
    }
    return provide;
}

/* Adds a prefix to the client before the daemon is asked, since names may be wanted before the
   answer. */
static int provide_new(struct gpubuf_client *client, const char *prefix, gpubuf_wanted_cb callback,
                       void *arg, uint64_t *id)
{
    int r = gb_check_prefix(client, prefix);

    if (r == 0 && (!prefix || !callback))
        r = gb_report_text(client, GPUBUF_E_INVALID, "the prefix or the callback is NULL");
    if (r == 0)
        r = gb_enter(client);
    if (r < 0)
        return r;
    struct gb_provide *provide = NULL;
    if (find_prefix(client, prefix))
        r = gb_report_text(client, GPUBUF_E_EXISTS, "this client provides \"%s\" already", prefix);
    else if (!(provide = calloc(1, sizeof(*provide) + strlen(prefix) + 1)))
        r = gb_report_memory(client);
    if (provide) {
        (void)strcpy(provide->prefix, prefix);
        provide->id = *id = ++client->last_watch;
        provide->callback = callback;
        provide->arg = arg;
        provide->next = client->provides;
        client->provides = provide;
    }
    gb_leave(client);
    return r;
}

static void provide_drop(struct gpubuf_client *client, uint64_t id)
{
    pthread_mutex_lock(&client->lock);
    free(take_provide(client, id));
    pthread_mutex_unlock(&client->lock);
}

int gpubuf_provide(struct gpubuf_client *client, const char *prefix, gpubuf_wanted_cb callback,
                   void *arg)
{
    const struct provide_params params = {prefix, false};
    uint64_t id;
    int r = provide_new(client, prefix, callback, arg, &id);

    if (r < 0)
        return r;
    r = gb_call(client, "provide", write_provide, &params, gb_answer_timeout(client, 0), NULL);
    if (r < 0)
        provide_drop(client, id);
    return r;
}

/* An asynchronous call under way. */
struct providing {
    uint64_t id;
    gpubuf_call_cb done;
    void *arg;
};

static void on_provided(struct gpubuf_client *client, int status, const char *result, size_t length,
                        void *arg)
{
    struct providing *providing = arg;

    if (status < 0)
        provide_drop(client, providing->id);
    providing->done(client, status, result, length, providing->arg);
    free(providing);
}

int gpubuf_provide_async(struct gpubuf_client *client, const char *prefix,
                         gpubuf_wanted_cb callback, gpubuf_call_cb done, void *arg,
                         uint64_t *request)
{
    const struct provide_params params = {prefix, false};

    if (!done)
        return gb_report_text(client, GPUBUF_E_INVALID, "the callback is NULL");
    struct providing *providing = calloc(1, sizeof(*providing));
    if (!providing)
        return gb_report_memory(client);
    *providing = (struct providing){.done = done, .arg = arg};
    int r = provide_new(client, prefix, callback, arg, &providing->id);
    if (r == 0) {
        r = gb_call_async_with_fds(client, "provide", write_provide, &params, NULL, 0, on_provided,
                                   providing, request);
        if (r < 0)
            provide_drop(client, providing->id);
    }
    if (r < 0)
        free(providing);
    return r;
}

int gpubuf_provide_end(struct gpubuf_client *client, const char *prefix)
{
    int r = gb_enter(client);

    if (r < 0)
        return r;
    struct gb_provide *provide = prefix ? find_prefix(client, prefix) : NULL;
    if (provide) {
        uint64_t id = provide->id;
        free(take_provide(client, id));
        gb_await_callback(client, id);
    } else {
        r = gb_report_text(client, GPUBUF_E_NOT_FOUND, "this client does not provide \"%s\"",
                           prefix ? prefix : "");
    }
    gb_leave(client);
    return r;
}

/* ---- declining ---- */

int gpubuf_decline(struct gpubuf_client *client, uint64_t request, int code, const char *message)
{
    size_t length = message ? strnlen(message, GB_LIMIT(decline_bytes) + 1) : 0;

    if (code != 0 && code != GPUBUF_E_NOT_FOUND && code != GPUBUF_E_UNAVAILABLE &&
        code != GPUBUF_E_TIMEOUT)
        return gb_report_text(client, GPUBUF_E_INVALID,
                              "a request is declined with GPUBUF_E_NOT_FOUND, "
                              "GPUBUF_E_UNAVAILABLE or GPUBUF_E_TIMEOUT, not with %d",
                              code);
    if (length > GB_LIMIT(decline_bytes))
        length = gb_utf8_trim(message, GB_LIMIT(decline_bytes));
    if (length > 0 && !gb_utf8_valid(message, length))
        return gb_report_text(client, GPUBUF_E_INVALID, "message is not UTF-8");
    int r = gb_enter(client);
    if (r < 0)
        return r;
    if (is_up(client)) { /* else the request is over */
        struct gb_writer *writer = gb_notice_begin(client, "decline");
        gb_write_format(
            writer, "{\"request\":%llu,\"kind\":\"%s\",\"message\":", (unsigned long long)request,
            gpubuf_errkind(code ? code : GPUBUF_E_NOT_FOUND));
        gb_write_string(writer, message ? message : "", length);
        gb_write_char(writer, '}');
        if (gb_notice_queue(client))
            gb_flush(client);
        else
            r = gb_report_memory(client);
    }
    gb_leave(client);
    return r;
}

/* ---- a connection that broke ---- */

void gb_provide_end_all(struct gpubuf_client *client)
{
    while (client->provides) {
        struct gb_provide *provide = client->provides;
        client->provides = provide->next;
        free(provide);
    }
}

int gb_provide_resume(struct gpubuf_client *client, struct gb_error *error)
{
    static const struct gpubuf_wanted all = {.ended = true};
    static const struct gb_string none = {NULL, 0};
    int r = 0;

    for (struct gb_provide *provide = client->provides; provide && r == 0;
         provide = provide->next) {
        const struct provide_params params = {provide->prefix, false};
        r = queue_notice(client, provide, &all, &none, error);
        write_provide(gb_notice_begin(client, "provide"), &params);
        if (r == 0 && !gb_notice_queue(client))
            r = gb_fail_memory(error);
    }
    return r;
}
