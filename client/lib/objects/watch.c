#include "client/lib/objects/watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/objects/names.h"
#include "client/lib/wire/call.h"
#include "client/lib/wire/enter.h"
#include "client/lib/wire/link.h"
#include "client/lib/wire/output.h"
#include "client/lib/wire/report.h"
#include "client/lib/wire/wait.h"

struct gb_watcher {
    struct gb_watcher *next;
    uint64_t id;     /* by which the program knows it */
    uint64_t remote; /* by which the daemon knows it; 0: it does not, for now */
    char *params;    /* of the request `watch`, JSON; owned */
    gpubuf_event_cb callback;
    gpubuf_event_json_cb json; /* in place of the callback */
    void *arg;
};

/* An event that waits for its callback. The watch may have ended by then, so it is looked up
   again. */
struct event {
    struct gb_delivery delivery;
    uint64_t watch;
    char kind[16];
    bool has_info;
    struct gpubuf_info info;
    char *text; /* in place of the kind and the info, as JSON; owned */
    size_t length;
};

static void event_free(struct event *event)
{
    free(event->text);
    free(event);
}

static struct gb_watcher *find_watch(const struct gpubuf_client *client, uint64_t id)
{
    struct gb_watcher *watch = client->watches;

    while (watch && watch->id != id)
        watch = watch->next;
    return watch;
}

static struct gb_watcher *find_remote(const struct gpubuf_client *client, uint64_t remote)
{
    struct gb_watcher *watch = client->watches;

    while (watch && watch->remote != remote)
        watch = watch->next;
    return remote ? watch : NULL;
}

static void watch_end(struct gb_watcher *watch)
{
    if (!watch)
        return;
    free(watch->params);
    free(watch);
}

/* ---- events ---- */

struct event_members {
    uint64_t watch;
    struct gb_string kind;
    struct gb_json object;
};

/* Runs the callback, if the watch is still there. */
static void event_deliver(struct gpubuf_client *client, struct gb_delivery *delivery)
{
    struct event *event = (struct event *)delivery;
    const struct gb_watcher *watch = find_watch(client, event->watch);

    if (watch) {
        gpubuf_event_cb callback = watch->callback;
        gpubuf_event_json_cb json = watch->json;
        void *arg = watch->arg;
        struct gb_callback_frame frame;
        client->deliveries.watch = event->watch;
        gb_callback_begin(client, &frame);
        if (json)
            json(client, event->text, event->length, arg);
        else
            callback(client, event->kind, event->has_info ? &event->info : NULL, arg);
        gb_callback_end(client, &frame);
        client->deliveries.watch = 0;
        gb_client_changed(client);
    }
    event_free(event);
}

void gb_watcher_event(struct gpubuf_client *client, struct gb_json params)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct event_members, watch, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct event_members, kind, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct event_members, object, GB_FIELD_OBJECT, 0, 0, 0),
    };
    struct event_members members = {.watch = 0};
    struct gb_path path = {.key = "params"};
    struct gb_error error;

    if (gb_json_read(params, fields, 3, GB_UNKNOWN_IGNORE, &path, &client->pool, &members, NULL,
                     &error) < 0) {
        gb_client_lose_for(client, GPUBUF_E_PROTOCOL, "the daemon sent a malformed event");
        return;
    }
    /* Only a later version has a kind that is too long for us. */
    const struct gb_watcher *watch = find_remote(client, members.watch);
    if (!watch || members.kind.length >= sizeof(((struct event *)0)->kind))
        return;

    struct event *event = calloc(1, sizeof(*event));
    if (!event) {
        /* A program must not miss an event. On a new connection it is told everything from the
           beginning. */
        (void)gb_fail(&error, GPUBUF_E_NO_MEMORY, "out of memory for an event");
        gb_client_doom(client, &error);
        return;
    }
    event->delivery.run = event_deliver;
    event->watch = watch->id;
    if (watch->json) {
        event->text = strndup(params.text, gb_json_length(params));
        event->length = gb_json_length(params);
        if (!event->text) {
            free(event);
            (void)gb_fail(&error, GPUBUF_E_NO_MEMORY, "out of memory for an event");
            gb_client_doom(client, &error);
            return;
        }
        gb_queue_delivery(client, &event->delivery);
        return;
    }
    memcpy(event->kind, members.kind.text, members.kind.length + 1);
    event->has_info = members.object.text != NULL;
    if (event->has_info && gb_info_read(members.object, &client->pool, &event->info, &error) < 0) {
        free(event);
        gb_client_lose_for(client, GPUBUF_E_PROTOCOL, "the daemon sent a malformed event");
        return;
    }
    gb_queue_delivery(client, &event->delivery);
}

void gb_watcher_end_all(struct gpubuf_client *client)
{
    while (client->watches) {
        struct gb_watcher *watch = client->watches;
        client->watches = watch->next;
        watch_end(watch);
    }
}

/* ---- watch ---- */

/* Events may follow the reply at once, so the watch is added where the reply is read. */
struct watching {
    struct gb_request base;
    struct gb_watcher *watch; /* NULL once it is the client's */
    uint64_t again;           /* after a reconnect, the client's watch that is made anew; else 0 */
    uint64_t *id;             /* the caller's; not valid once canceled. NULL: an asynchronous one */
    uint64_t number;          /* the watch's, once it is the client's */
    gpubuf_watch_cb done;     /* NULL: the caller waits */
    void *arg;
};

struct watch_member {
    uint64_t watch;
};

static void write_unwatch(struct gb_writer *writer, const void *arg)
{
    GB_WRITE_LITERAL(writer, "{\"watch\":");
    gb_write_uint(writer, *(const uint64_t *)arg);
    gb_write_char(writer, '}');
}

/* Ends a watch at the daemon, without waiting for an answer. */
static void unwatch_silently(struct gpubuf_client *client, uint64_t id)
{
    write_unwatch(gb_notice_begin(client, "unwatch"), &id);
    if (gb_notice_queue(client))
        gb_flush(client);
}

/* Queues an event that is the library's own. */
static int queue_mark(struct gpubuf_client *client, uint64_t watch, const char *kind)
{
    struct event *event = calloc(1, sizeof(*event));
    int n = event ? asprintf(&event->text, "{\"kind\":\"%s\"}", kind) : -1;

    if (n < 0) {
        free(event);
        return GPUBUF_E_NO_MEMORY;
    }
    event->length = (size_t)n;
    event->delivery.run = event_deliver;
    event->watch = watch;
    (void)strcpy(event->kind, kind);
    gb_queue_delivery(client, &event->delivery);
    return 0;
}

static int watch_reply(struct gb_request *request, const struct gb_reply *reply,
                       struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct watch_member, watch, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
    };
    struct watching *watching = (struct watching *)request;
    struct gpubuf_client *client = request->client;
    struct watch_member member;
    struct gb_path path = {.key = "result"};

    if (reply->refused && find_watch(client, watching->again) &&
        queue_mark(client, watching->again, "refused") < 0)
        gb_client_doom(client, reply->refused); /* and it is tried again */
    if (reply->refused)
        return reply->refused->code;
    if (gb_json_read(reply->result, fields, 1, GB_UNKNOWN_IGNORE, &path, &client->pool, &member,
                     NULL, error) < 0 ||
        member.watch == 0 || find_remote(client, member.watch))
        return gb_fail(error, GPUBUF_E_PROTOCOL, "the daemon's answer to watch is malformed");
    struct gb_watcher *again = find_watch(client, watching->again);
    if (again) {
        again->remote = member.watch;
        return 0;
    }
    if (request->canceled || watching->again) {
        unwatch_silently(client, member.watch);
        return 0;
    }
    struct gb_watcher *watch = watching->watch;
    watching->watch = NULL;
    watch->id = ++client->last_watch;
    watch->remote = member.watch;
    watch->next = client->watches;
    client->watches = watch;
    watching->number = watch->id;
    if (watching->id)
        *watching->id = watch->id;
    return 0;
}

static void watch_done(struct gb_request *request, int status)
{
    struct watching *watching = (struct watching *)request;

    watching->done(request->client, status, status < 0 ? 0 : watching->number, watching->arg);
}

/* Takes a watch off the client, and tells the daemon. False: the client has no such watch. */
static bool take_watch(struct gpubuf_client *client, uint64_t id)
{
    struct gb_watcher **link = &client->watches;

    while (*link && (*link)->id != id)
        link = &(*link)->next;
    struct gb_watcher *watch = *link;
    if (!watch)
        return false;
    *link = watch->next;
    if (watch->remote && client->link == GB_LINK_UP && !client->end.lost.code)
        unwatch_silently(client, watch->remote);
    watch_end(watch);
    return true;
}

/* The request was canceled after the daemon's answer, before its callback ran. */
static void watch_discard(struct gb_request *request)
{
    const struct watching *watching = (struct watching *)request;

    (void)take_watch(request->client, watching->number);
}

static void watch_free(struct gb_request *request)
{
    struct watching *watching = (struct watching *)request;

    watch_end(watching->watch);
    free(watching);
}

/* The params of a request that watches a prefix, for free(); NULL if memory is out. */
static char *prefix_params(const char *prefix)
{
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    gb_write_char(&writer, '{');
    if (prefix) {
        GB_WRITE_LITERAL(&writer, "\"prefix\":");
        gb_write_cstring(&writer, prefix);
    }
    gb_write_char(&writer, '}');
    return gb_writer_take(&writer, NULL);
}

static int watch_send(struct gb_request *request, struct gb_error *error)
{
    const struct watching *watching = (struct watching *)request;
    struct gpubuf_client *client = request->client;
    const struct gb_watcher *watch =
        watching->again ? find_watch(client, watching->again) : watching->watch;

    if (!watch)
        return gb_fail(error, GPUBUF_E_CANCELED, "the watch has ended");
    gb_write_text(gb_request_begin(client, request, "watch", 0), watch->params);
    return gb_request_send(client, request, NULL, 0, GB_RELEASES_FIRST, error);
}

static const struct gb_request_type watch_type = {
    .reply = watch_reply,
    .resend = watch_send,
    .deliver = watch_done,
    .discard = watch_discard,
    .free = watch_free,
};

/* The receiver of events: one of the two callbacks. */
struct listener {
    gpubuf_event_cb callback;
    gpubuf_event_json_cb json;
    void *arg;
};

/* Takes the params over, also on failure. */
static struct watching *watching_new(struct gpubuf_client *client, char *params,
                                     struct listener listener, uint64_t *id)
{
    struct watching *watching = calloc(1, sizeof(*watching));
    struct gb_watcher *watch = calloc(1, sizeof(*watch));

    if (!watching || !watch || !params) {
        free(params);
        free(watch);
        free(watching);
        return NULL;
    }
    watching->watch = watch;
    watch->params = params;
    watch->callback = listener.callback;
    watch->json = listener.json;
    watch->arg = listener.arg;
    watching->base.client = client;
    watching->base.type = &watch_type;
    watching->base.waited = true;
    watching->id = id;
    return watching;
}

/* Enters the client and sends the request, whose params it takes over. On failure the client is not
   entered. */
static int watch_start(struct gpubuf_client *client, char *params, struct listener listener,
                       bool blocking, uint64_t *id, struct watching **out)
{
    int r = 0;

    if (!listener.callback && !listener.json)
        r = gb_report_text(client, GPUBUF_E_INVALID, "the callback is NULL");
    if (r == 0)
        r = blocking ? gb_enter_blocking(client) : gb_enter(client);
    if (r < 0) {
        free(params);
        return r;
    }
    struct watching *watching = watching_new(client, params, listener, id);
    if (!watching) {
        r = gb_report_memory(client);
        gb_leave(client);
        return r;
    }
    struct gb_error error;
    r = watch_send(&watching->base, &error);
    if (r < 0) {
        watch_free(&watching->base);
        (void)gb_report(client, &error);
        gb_leave(client);
        return r;
    }
    *out = watching;
    return 0;
}

static int watch_blocking(struct gpubuf_client *client, char *params, struct listener listener,
                          uint64_t *id)
{
    struct watching *watching;
    int r = watch_start(client, params, listener, true, id, &watching);

    if (r < 0)
        return r;
    struct gb_request *request = &watching->base;
    r = gb_request_wait(client, &request, gb_answer_timeout(client, 0));
    if (request)
        watch_free(request);
    gb_leave(client);
    return r;
}

int gpubuf_watch(struct gpubuf_client *client, const char *prefix, gpubuf_event_cb callback,
                 void *arg, uint64_t *id)
{
    int r = gb_check_prefix(client, prefix);

    if (r < 0)
        return r;
    return watch_blocking(client, prefix_params(prefix), (struct listener){callback, NULL, arg},
                          id);
}

int gpubuf_watch_json(struct gpubuf_client *client, const char *params,
                      gpubuf_event_json_cb callback, void *arg, uint64_t *id)
{
    struct gb_pool pool = {0};
    struct gb_writer writer;
    struct gb_json value;
    int r = gb_check_params(client, params, &pool, &value);

    gb_writer_init(&writer, 0);
    if (r == 0)
        gb_write_json(&writer, value);
    gb_pool_end(&pool);
    if (r < 0)
        return r;
    return watch_blocking(client, gb_writer_take(&writer, NULL),
                          (struct listener){NULL, callback, arg}, id);
}

int gpubuf_watch_async(struct gpubuf_client *client, const char *prefix, gpubuf_event_cb callback,
                       gpubuf_watch_cb done, void *arg, uint64_t *request)
{
    if (!done)
        return gb_report_text(client, GPUBUF_E_INVALID, "the callback is NULL");
    struct watching *watching;
    int r = gb_check_prefix(client, prefix);
    if (r == 0)
        r = watch_start(client, prefix_params(prefix), (struct listener){callback, NULL, arg},
                        false, NULL, &watching);
    if (r < 0)
        return r;
    watching->base.waited = false; /* no answer is received before the lock is let go */
    watching->done = done;
    watching->arg = arg;
    if (request)
        *request = watching->base.id;
    gb_leave(client);
    return 0;
}

/* Takes the watch off the client, and waits until no other thread is in its callback. */
static int remove_watch(struct gpubuf_client *client, uint64_t id)
{
    if (!take_watch(client, id))
        return gb_report_text(client, GPUBUF_E_NOT_FOUND, "no such watch");
    gb_await_callback(client, id);
    return 0;
}

int gpubuf_unwatch(struct gpubuf_client *client, uint64_t id)
{
    int r = gb_enter(client);

    if (r < 0)
        return r;
    r = remove_watch(client, id);
    gb_leave(client);
    return r;
}

/* ---- a connection that broke ---- */

void gb_watcher_break(struct gpubuf_client *client)
{
    for (struct gb_watcher *watch = client->watches; watch; watch = watch->next)
        watch->remote = 0;
}

static int watch_anew(struct gpubuf_client *client, uint64_t id, struct gb_error *error)
{
    struct watching *watching = calloc(1, sizeof(*watching));

    if (!watching || queue_mark(client, id, "reconnected") < 0) {
        free(watching);
        return gb_fail_memory(error);
    }
    watching->base.client = client;
    watching->base.type = &watch_type;
    watching->base.canceled = true; /* nobody waits for it */
    watching->again = id;
    int r = watch_send(&watching->base, error);
    if (r < 0)
        free(watching);
    return r;
}

int gb_watcher_resume(struct gpubuf_client *client, struct gb_error *error)
{
    int r = 0;

    for (struct gb_watcher *watch = client->watches; watch && r == 0; watch = watch->next) {
        if (watch->remote == 0)
            r = watch_anew(client, watch->id, error);
    }
    return r;
}
