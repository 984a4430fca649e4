#include "client/lib/objects/open.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/base/process.h"
#include "client/lib/objects/cached.h"
#include "client/lib/objects/create_options.h"
#include "client/lib/objects/grants.h"
#include "client/lib/objects/object.h"
#include "client/lib/objects/references.h"
#include "client/lib/wire/enter.h"
#include "client/lib/wire/loop.h"
#include "client/lib/wire/release.h"
#include "client/lib/wire/report.h"
#include "client/lib/wire/wait.h"
#include "proto/layout/layout.h"

int gb_open_read_options(const struct gpubuf_client *client,
                         const struct gpubuf_open_options *given,
                         struct gpubuf_open_options *options)
{
    int r = gb_read_options(client, given, options, sizeof(*options));

    if (r < 0)
        return r;
    if (options->wait_ms < 0 || options->wait_ms > GB_LIMIT(wait_ms))
        return gb_report_text(client, GPUBUF_E_INVALID, "wait_ms is not from 0 to %d",
                              (int)GB_LIMIT(wait_ms));
    if (options->version > (uint64_t)GB_LIMIT(integer))
        return gb_report_text(client, GPUBUF_E_INVALID, "version is not below 2^52");
    if (options->exclusive && !options->write)
        return gb_report_text(client, GPUBUF_E_INVALID, "exclusive goes with write");
    if (options->label && (!*options->label || options->version))
        return gb_report_text(client, GPUBUF_E_INVALID,
                              "label is empty, or stands beside a version");
    return gb_check_title(client, options->label, 0);
}

void gb_open_write_options(struct gb_writer *writer, const struct gpubuf_open_options *options)
{
    if (options->version) {
        GB_WRITE_LITERAL(writer, ",\"version\":");
        gb_write_uint(writer, options->version);
    }
    gb_write_title(writer, options->label, -1);
    if (options->wait_ms) {
        GB_WRITE_LITERAL(writer, ",\"wait_ms\":");
        gb_write_int(writer, options->wait_ms);
    }
    if (options->write)
        GB_WRITE_LITERAL(writer, ",\"access\":\"write\"");
    if (options->exclusive)
        GB_WRITE_LITERAL(writer, ",\"exclusive\":true");
    GB_WRITE_LITERAL(writer, ",\"brief\":true}");
}

int gb_open_malformed(struct gb_error *error)
{
    struct gb_error cause = *error;

    return gb_fail(error, GPUBUF_E_PROTOCOL, "the daemon's answer to open is malformed: %s",
                   cause.message);
}

struct open {
    struct gb_request base;
    gpubuf_object_cb callback;
    void *arg;
    struct gpubuf_open_options options;
    uint64_t drops; /* the imports' count, when the request was sent */
    struct gpubuf_object *object;
    bool alone; /* for a view */
    /* The version that this lease is on, whose number may change until the request is sent; NULL:
       that of the name. It lives as long as its caller waits. */
    const struct gb_client_lease *of;
    size_t name_length;
    char name[];
};

static void write_which(struct gb_writer *writer, const struct open *open)
{
    if (open->of) {
        gb_write_format(writer, "{\"lease\":%" PRIu64, open->of->id);
    } else {
        GB_WRITE_LITERAL(writer, "{\"name\":");
        gb_write_string(writer, open->name, open->name_length);
    }
    if (open->alone)
        GB_WRITE_LITERAL(writer, ",\"own\":true");
    gb_open_write_options(writer, &open->options);
}

static int open_send(struct gpubuf_client *client, struct open *open, enum gb_release_order order,
                     struct gb_error *error)
{
    if (open->options.write && !gb_process_has_room(1))
        return gb_fail_errno(error, "a descriptor for the memory of \"%s\"", open->name);
    if (gb_reserve_releases(client, 1) < 0 ||
        gb_imports_reserve(&client->imports, GB_LIMIT(fds)) < 0)
        return gb_fail_memory(error);
    struct gb_writer *writer = gb_request_begin(client, &open->base, "open", 0);
    write_which(writer, open);
    client->lingers |= open->options.write;
    open->drops = client->imports.drops;
    return gb_request_send(client, &open->base, NULL, 0, order, error);
}

static int open_again(struct gb_request *request, struct gb_error *error)
{
    struct open *open = (struct open *)request;

    /* The useless lease ends after the new request, so that the object is not evicted in
       between. */
    gb_request_hold_imports(request);
    gb_request_remove(request);
    int r = open_send(request->client, open, GB_RELEASES_LAST, error);
    if (r < 0) { /* the caller ends it, which must be in the table */
        gb_request_restore(request);
        return r;
    }
    request->again = true;
    return 0;
}

static int open_reply(struct gb_request *request, const struct gb_reply *reply,
                      struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct gb_grant, lease, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_grant, object, GB_FIELD_OBJECT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct gb_grant, segments, GB_FIELD_ARRAY, 0, 0, 0),
        GB_FIELD(struct gb_grant, slot, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct gb_grant, generation, GB_FIELD_UINT, 0, 0, 0),
    };
    struct open *open = (struct open *)request;
    struct gpubuf_client *client = request->client;

    if (reply->refused)
        return reply->refused->code;
    struct gb_grant grant = {.slot = GB_NO_SLOT};
    struct gb_path path = {.key = "result"};
    if (gb_json_read(reply->result, fields, 5, GB_UNKNOWN_IGNORE, &path, &client->pool, &grant,
                     NULL, error) < 0)
        return gb_open_malformed(error);

    struct gb_grants grants;
    int r = gb_grants_begin(&grants, client, reply, grant.segments, 1, open->options.write,
                            open->drops, error);
    if (r < 0)
        return r;
    r = open->alone || open->options.write
            ? gb_grants_make_lease(&grants, grant.lease, grant.object, &open->object, error)
            : gb_grants_make_cached_lease(&grants, grant.lease, grant.slot + 1, grant.object,
                                          &open->object, error);
    if (r == 0 && open->options.write) {
        open->object->lease->access.generation = grant.generation;
        gb_client_lease_made(open->object->lease);
    }
    if (r == GB_AGAIN)
        r = request->canceled ? 0 : open_again(request, error);
    gb_grants_end(&grants);
    return r;
}

static void open_deliver(struct gb_request *request, int status)
{
    struct open *open = (struct open *)request;
    struct gpubuf_object *object = NULL;

    if (status >= 0) {
        object = open->object;
        open->object = NULL;
    }
    if (open->callback)
        open->callback(request->client, status < 0 ? status : 0, object, open->arg);
    else
        gpubuf_release(object);
}

static void open_discard(struct gb_request *request)
{
    struct open *open = (struct open *)request;

    gb_object_drop(open->object);
    open->object = NULL;
    gb_flush_releases(request->client);
}

static void open_free(struct gb_request *request)
{
    free(request);
}

static int open_resend(struct gb_request *request, struct gb_error *error)
{
    return open_send(request->client, (struct open *)request, GB_RELEASES_FIRST, error);
}

static const struct gb_request_type open_type = {
    .reply = open_reply,
    .resend = open_resend,
    .deliver = open_deliver,
    .discard = open_discard,
    .free = open_free,
};

static struct open *open_new(const char *name, size_t length,
                             const struct gpubuf_open_options *options)
{
    size_t label = options->label ? strlen(options->label) + 1 : 0;
    struct open *open = calloc(1, sizeof(*open) + length + 1 + label);

    if (!open)
        return NULL;
    open->base.type = &open_type;
    open->base.waited = true;
    open->options = *options;
    open->name_length = length;
    memcpy(open->name, name, length + 1);
    if (label) /* it may be sent once more */
        open->options.label = memcpy(open->name + length + 1, options->label, label);
    return open;
}

/* Sends an open. With the client entered, and when no cached lease has the answer. */
static int open_start(struct gpubuf_client *client, const char *name,
                      const struct gpubuf_open_options *options, bool alone,
                      const struct gb_client_lease *of, struct open **out)
{
    size_t length = name ? strlen(name) : 0;
    struct gb_path path = {.key = "name"};
    struct gb_error error;

    if (gb_name_check(name ? name : "", length, &path, &error) < 0)
        return gb_report(client, &error);

    struct open *open = open_new(name, length, options);
    if (!open)
        return gb_report_memory(client);
    open->alone = alone;
    open->of = of;
    int r = open_send(client, open, GB_RELEASES_FIRST, &error);
    if (r < 0) {
        free(open);
        return gb_report(client, &error);
    }
    *out = open;
    return 0;
}

/* Sends an open and waits for its answer, with the client entered. */
static int open_now(struct gpubuf_client *client, const char *name,
                    const struct gpubuf_open_options *options, bool alone,
                    const struct gb_client_lease *of, struct gpubuf_object **object)
{
    struct open *open;
    int r = open_start(client, name, options, alone, of, &open);

    if (r < 0)
        return r;
    struct gb_request *request = &open->base;
    r = gb_request_wait(client, &request, gb_answer_timeout(client, options->wait_ms));
    if (r == 0)
        *object = open->object;
    if (request)
        open_free(request);
    return r;
}

int gb_open_alone(struct gpubuf_client *client, const char *name,
                  const struct gpubuf_open_options *given, const struct gb_client_lease *of,
                  struct gpubuf_object **object)
{
    struct gpubuf_open_options options;
    int r = gb_enter_blocking(client);

    if (r < 0)
        return r;
    r = gb_open_read_options(client, given, &options);
    if (r == 0)
        r = open_now(client, name, &options, true, of, object);
    gb_leave(client);
    return r;
}

int gpubuf_open(struct gpubuf_client *client, const char *name,
                const struct gpubuf_open_options *given, struct gpubuf_object **object)
{
    struct gpubuf_open_options options;
    int r = gb_enter_blocking(client);

    if (r < 0)
        return r;
    struct gpubuf_object *cached = NULL;
    r = gb_open_read_options(client, given, &options);
    if (r == 0 && name && !options.label && !options.write)
        cached = gb_cached_find(client, name, options.version);
    if (cached)
        *object = cached;
    else if (r == 0)
        r = open_now(client, name, &options, false, NULL, object);
    gb_leave(client);
    return r;
}

struct gpubuf_object *gb_open_cached(struct gpubuf_client *client, const char *name,
                                     uint64_t *lease)
{
    if (gb_enter(client) < 0)
        return NULL;
    struct gpubuf_object *object = gb_cached_find(client, name, 0);
    if (object)
        *lease = object->lease->number;
    gb_leave(client);
    return object;
}

void gb_open_end_at_once(struct gb_request *request)
{
    request->waited = false;
    gb_request_end(request, 0, NULL);
    gb_loop_wake(request->client);
}

/* An open that a cached lease answers: its request has ended already. NULL: none does, or memory is
   out. */
static struct open *open_cached(struct gpubuf_client *client, const char *name,
                                const struct gpubuf_open_options *options)
{
    struct gpubuf_object *cached = name && !options->label && !options->write
                                       ? gb_cached_find(client, name, options->version)
                                       : NULL;
    struct open *open = cached ? open_new(name, strlen(name), options) : NULL;

    if (open && gb_request_note(client, &open->base) < 0) {
        free(open);
        open = NULL;
    }
    if (!open) {
        gb_object_drop(cached);
        return NULL;
    }
    open->object = cached;
    gb_open_end_at_once(&open->base);
    return open;
}

int gpubuf_open_async(struct gpubuf_client *client, const char *name,
                      const struct gpubuf_open_options *given, gpubuf_object_cb callback, void *arg,
                      uint64_t *request)
{
    struct gpubuf_open_options options;
    int r = gb_enter(client);

    if (r < 0)
        return r;
    struct open *open = NULL;
    r = gb_open_read_options(client, given, &options);
    if (r == 0) {
        open = open_cached(client, name, &options);
        if (!open)
            r = open_start(client, name, &options, false, NULL, &open);
    }
    if (r == 0) {
        open->base.waited = false; /* nothing is received before the lock is let go */
        open->callback = callback;
        open->arg = arg;
        if (request)
            *request = open->base.id;
    }
    gb_leave(client);
    return r;
}
