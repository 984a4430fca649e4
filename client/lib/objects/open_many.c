#include <stdlib.h>
#include <string.h>

#include "client/lib/base/clock.h"
#include "client/lib/objects/cached.h"
#include "client/lib/objects/grants.h"
#include "client/lib/objects/open.h"
#include "client/lib/objects/references.h"
#include "client/lib/wire/enter.h"
#include "client/lib/wire/release.h"
#include "client/lib/wire/report.h"
#include "client/lib/wire/wait.h"
#include "proto/layout/layout.h"

/* How many requests in a row may bring nothing because the daemon's answer is full. */
#define TRIES_MAX 4

/*
 * If there are more names than one request may have, they are asked for in parts, several of them
 * under way at a time. The program knows one request, which is never sent itself. It ends with the
 * last of its parts, or with the first that fails. When a part has failed or the request is
 * canceled, the other parts continue alone: they receive what the daemon grants, and release it.
 */
#define PARTS 4

struct part {
    struct gb_request base;
    struct open_many *many;       /* NULL: the part's results are given back */
    size_t left[GB_LIMIT(names)]; /* indices of its names without an outcome, in order */
    size_t left_count;
    size_t asked; /* the request under way asks for this many of them, from the first on */
    uint64_t drops;
    unsigned tries; /* requests in a row that brought nothing */
};

struct open_many {
    struct gb_request base;
    struct part *parts[PARTS]; /* under way, or NULL; owned by the table of requests */
    const char *const *names;  /* the caller's, not valid once canceled; or `copy` */
    char **copy;               /* of an asynchronous one: the names, in one allocation */
    gpubuf_objects_cb callback;
    void *arg;
    struct gpubuf_open_options options;
    int64_t until; /* the end of the wait */
    size_t next;   /* the first name that no part has */
    size_t opened;
    size_t count;
    struct gpubuf_object **objects;
    int *errors;
};

/* Whether the part's results are still wanted. */
static bool is_wanted(const struct part *part)
{
    return part->many && !part->many->base.canceled;
}

static bool is_name(const char *name)
{
    return name && gb_name_check(name, strlen(name), NULL, NULL) == 0;
}

/* Gives the next names to a part that has none left. False: there are none. Names that are not
   valid fail here: one of them would have the daemon refuse all. */
static bool part_fill(struct part *part, size_t most)
{
    struct open_many *many = part->many;

    while (part->left_count < most && many->next < many->count) {
        size_t i = many->next++;
        if (many->objects[i]) /* a cached lease had it */
            continue;
        if (is_name(many->names[i]))
            part->left[part->left_count++] = i;
        else
            many->errors[i] = GPUBUF_E_INVALID;
    }
    return part->left_count > 0;
}

/* Asks for the names that the part has left, or as many of them as one request may have. */
static int part_send(struct gpubuf_client *client, struct part *part, enum gb_release_order order,
                     struct gb_error *error)
{
    struct open_many *many = part->many;

    if (gb_reserve_releases(client, part->left_count) < 0 ||
        gb_imports_reserve(&client->imports, GB_LIMIT(fds)) < 0)
        return gb_fail_memory(error);
    struct gb_writer *writer = gb_request_begin(client, &part->base, "open", 0);
    /* A name is at most 255 bytes, and six times that when it is escaped. */
    size_t bound = client->daemon.request_bytes_max - 6 * (GB_LIMIT(name_bytes) + 1) - 128;
    struct gpubuf_open_options options = many->options;
    int64_t left = many->until - gb_now_ms();
    if (options.wait_ms) /* the wait is that of all requests together */
        options.wait_ms = left > 1 ? left : 1;
    GB_WRITE_LITERAL(writer, "{\"names\":[");
    part->asked = 0;
    while (part->asked < part->left_count && part->asked < client->daemon.names_max &&
           !writer->failed && (part->asked == 0 || writer->length < bound)) {
        if (part->asked > 0)
            gb_write_char(writer, ',');
        gb_write_cstring(writer, many->names[part->left[part->asked++]]);
    }
    gb_write_char(writer, ']');
    gb_open_write_options(writer, &options);
    part->drops = client->imports.drops;
    return gb_request_send(client, &part->base, NULL, 0, order, error);
}

struct data_member {
    struct gb_json data;
};

struct limit_member {
    struct gb_string limit;
};

/* Whether an error says that the answer had no room for this object. */
static bool is_message_full(struct gb_json value, struct gb_pool *pool)
{
    static const struct gb_field data_fields[] = {
        GB_FIELD(struct data_member, data, GB_FIELD_OBJECT, 0, 0, 0),
    };
    static const struct gb_field limit_fields[] = {
        GB_FIELD(struct limit_member, limit, GB_FIELD_STRING, 0, 0, 0),
    };
    struct data_member member = {{NULL, 0}};
    struct limit_member data = {{NULL, 0}};

    if (gb_json_read(value, data_fields, 1, GB_UNKNOWN_IGNORE, NULL, pool, &member, NULL, NULL) ||
        gb_json_read(member.data, limit_fields, 1, GB_UNKNOWN_IGNORE, NULL, pool, &data, NULL,
                     NULL))
        return false;
    return data.limit.text &&
           (strcmp(data.limit.text, "fds") == 0 || strcmp(data.limit.text, "line_bytes") == 0);
}

/* Reads the answer for one name: 0, GB_AGAIN, or a failure of the whole request. A failure of this
   one object is in *status. */
static int take_entry(struct gb_grants *grants, struct gb_json item, const struct gb_path *path,
                      struct gpubuf_object **object, int *status, struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct gb_grant, lease, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct gb_grant, object, GB_FIELD_OBJECT, 0, 0, 0),
        GB_FIELD(struct gb_grant, error, GB_FIELD_OBJECT, 0, 0, 0),
        GB_FIELD(struct gb_grant, slot, GB_FIELD_UINT, 0, 0, 0),
    };
    struct gb_pool *pool = &grants->client->pool;
    struct gb_grant grant = {.slot = GB_NO_SLOT};
    uint64_t present;

    if (gb_json_type(item) != GB_JSON_OBJECT)
        return gb_fail(error, GPUBUF_E_PROTOCOL, "an element of objects is not an object");
    if (gb_json_read(item, fields, 4, GB_UNKNOWN_IGNORE, path, pool, &grant, &present, error) < 0)
        return gb_open_malformed(error);
    if (grant.error.text) {
        *status = gb_rpc_read_error(grant.error, pool, error);
        if (*status >= 0 || *status == GPUBUF_E_PROTOCOL)
            return gb_open_malformed(error);
        return *status == GPUBUF_E_LIMIT && is_message_full(grant.error, pool) ? GB_AGAIN : 0;
    }
    if ((present & 3) != 3)
        return gb_fail(error, GPUBUF_E_PROTOCOL, "objects has neither a lease nor an error");
    *status = 0;
    int r = gb_grants_make_cached_lease(grants, grant.lease, grant.slot + 1, grant.object, object,
                                        error);
    if (r < 0 && r != GPUBUF_E_PROTOCOL)
        *status = r, r = 0; /* only this one */
    return r;
}

/* Notes the result for a name. `object` is NULL if it was not opened. */
static void note_entry(struct part *part, size_t i, struct gpubuf_object *object, int status)
{
    if (!part->many) {
        gb_object_drop(object);
        return;
    }
    part->many->errors[i] = status;
    part->many->objects[i] = object;
    part->many->opened += object != NULL;
}

/* Reads the objects of a reply; the names that are to be asked for again stay in part->left. */
static int part_read(struct part *part, struct gb_grants *grants, struct gb_json objects,
                     struct gb_error *error)
{
    struct gb_path result = {.key = "result"}, member = {.up = &result, .key = "objects"};
    struct gb_path path = {.up = &member};
    struct gb_json_walk walk = gb_json_walk(objects);
    struct gb_json key, item;
    size_t read = 0, again = 0;
    int last_limit = GPUBUF_E_LIMIT;

    for (; gb_json_next(&walk, &key, &item); read++) {
        if (read == part->asked)
            return gb_fail(error, GPUBUF_E_PROTOCOL, "more objects than were asked for");
        struct gpubuf_object *object = NULL;
        size_t i = part->left[read];
        int status = 0;
        path.index = read;
        int r = take_entry(grants, item, &path, &object, &status, error);
        if (r < 0)
            return r;
        if (r == GB_AGAIN) {
            part->left[again++] = i;
            if (status < 0)
                last_limit = status;
        } else {
            note_entry(part, i, object, status);
        }
    }
    if (read != part->asked)
        return gb_fail(error, GPUBUF_E_PROTOCOL, "fewer objects than were asked for");

    part->tries = again == part->asked ? part->tries + 1 : 0;
    if (part->tries >= TRIES_MAX) { /* it does not fit, however often we ask */
        while (again > 0)
            note_entry(part, part->left[--again], NULL, last_limit);
    }
    memmove(part->left + again, part->left + read, (part->left_count - read) * sizeof(*part->left));
    part->left_count -= read - again;
    return 0;
}

/* Asks for what is left, or for the next names, if there are any. */
static int part_send_again(struct part *part, struct gb_error *error)
{
    struct gpubuf_client *client = part->base.client;

    if (!is_wanted(part) || (part->left_count == 0 && !part_fill(part, client->daemon.names_max)))
        return 0;
    gb_request_hold_imports(&part->base);
    gb_request_remove(&part->base);
    int r = part_send(client, part, GB_RELEASES_LAST, error);
    if (r < 0)
        gb_request_restore(&part->base);
    else
        part->base.again = true;
    return r;
}

static int part_reply(struct gb_request *request, const struct gb_reply *reply,
                      struct gb_error *error)
{
    struct many_members {
        struct gb_json objects, segments;
    } members = {{NULL, 0}, {NULL, 0}};
    static const struct gb_field fields[] = {
        GB_FIELD(struct many_members, objects, GB_FIELD_ARRAY, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct many_members, segments, GB_FIELD_ARRAY, 0, 0, 0),
    };
    struct part *part = (struct part *)request;
    struct gpubuf_client *client = request->client;
    if (reply->refused)
        return reply->refused->code;
    struct gb_path path = {.key = "result"};
    if (gb_json_read(reply->result, fields, 2, GB_UNKNOWN_IGNORE, &path, &client->pool, &members,
                     NULL, error) < 0)
        return gb_open_malformed(error);

    struct gb_grants grants;
    int r = gb_grants_begin(&grants, client, reply, members.segments, part->asked, false,
                            part->drops, error);
    if (r < 0)
        return r;
    r = part_read(part, &grants, members.objects, error);
    if (r == 0)
        r = part_send_again(part, error);
    gb_grants_end(&grants);
    return r;
}

/* A part has ended. If it was the last, or has failed, the program's request ends. If the client is
   lost, each request ends by itself. */
static void part_ended(struct open_many *many, const struct part *part)
{
    bool last = true;

    for (size_t i = 0; i < PARTS; i++) {
        if (many->parts[i] == part)
            many->parts[i] = NULL;
        last &= !many->parts[i];
    }
    if (!many->base.client->end.lost.code && (last || part->base.status < 0))
        gb_request_end(&many->base, part->base.status, &part->base.error);
}

static void part_on_end(struct gb_request *request)
{
    struct part *part = (struct part *)request;
    struct open_many *many = part->many;

    part->many = NULL;
    request->canceled = true; /* nobody else is told */
    if (many)
        part_ended(many, part);
}

static int part_resend(struct gb_request *request, struct gb_error *error)
{
    struct part *part = (struct part *)request;

    if (!is_wanted(part))
        return gb_fail(error, GPUBUF_E_CANCELED, "nobody waits for it");
    return part_send(request->client, part, GB_RELEASES_FIRST, error);
}

static void part_free(struct gb_request *request)
{
    free(request);
}

static const struct gb_request_type part_type = {
    .reply = part_reply,
    .on_end = part_on_end,
    .resend = part_resend,
    .free = part_free,
};

static void many_on_end(struct gb_request *request)
{
    struct open_many *many = (struct open_many *)request;

    for (size_t i = 0; i < PARTS; i++) {
        if (many->parts[i])
            many->parts[i]->many = NULL;
        many->parts[i] = NULL;
    }
}

/* Only the parts are sent, and have answers. */
static int many_reply(struct gb_request *request, const struct gb_reply *reply,
                      struct gb_error *error)
{
    return gb_fail(error, GPUBUF_E_PROTOCOL, "the daemon answered a request that was not made");
}

/* Its parts are sent anew. */
static int many_resend(struct gb_request *request, struct gb_error *error)
{
    gb_request_restore(request);
    return 0;
}

static void many_discard(struct gb_request *request)
{
    struct open_many *many = (struct open_many *)request;

    for (size_t i = 0; i < many->count; i++) {
        gb_object_drop(many->objects[i]);
        many->objects[i] = NULL;
    }
    if (request->client)
        gb_flush_releases(request->client);
}

static void many_free(struct gb_request *request)
{
    struct open_many *many = (struct open_many *)request;

    free((void *)many->copy);
    free(many->objects);
    free(many->errors);
    free(many);
}

static void many_deliver(struct gb_request *request, int status)
{
    struct open_many *many = (struct open_many *)request;

    if (status < 0) {
        many->callback(request->client, status, NULL, NULL, many->count, many->arg);
        if (!request->canceled) /* else objects are given back when the parts have ended */
            gpubuf_release_many(many->objects, many->count);
        return;
    }
    many->callback(request->client, (int)many->opened, many->objects, many->errors, many->count,
                   many->arg);
}

static const struct gb_request_type many_type = {
    .reply = many_reply,
    .on_end = many_on_end,
    .resend = many_resend,
    .deliver = many_deliver,
    .discard = many_discard,
    .free = many_free,
};

static struct open_many *many_new(const char *const *names, size_t count,
                                  const struct gpubuf_open_options *options)
{
    struct open_many *many = calloc(1, sizeof(*many));

    if (!many)
        return NULL;
    many->base.type = &many_type;
    many->base.waited = true;
    many->names = names;
    many->options = *options;
    many->until = gb_now_ms() + options->wait_ms;
    many->count = count;
    many->objects = calloc(count ? count : 1, sizeof(struct gpubuf_object *));
    many->errors = calloc(count ? count : 1, sizeof(*many->errors));
    if (many->objects && many->errors)
        return many;
    many_free(&many->base);
    return NULL;
}

/* Sends one more part. 1; 0 if there are no more names; or a failure. */
static int start_part(struct gpubuf_client *client, struct open_many *many, struct part **out,
                      struct gb_error *error)
{
    size_t from = many->next;
    struct part *part = calloc(1, sizeof(*part));
    int r = 0;

    if (!part)
        return gb_fail_memory(error);
    part->base.type = &part_type;
    part->many = many;
    if (part_fill(part, client->daemon.names_max))
        r = part_send(client, part, GB_RELEASES_FIRST, error) < 0 ? error->code : 1;
    if (r == 1) {
        *out = part;
    } else {
        many->next = from;
        free(part);
    }
    return r;
}

/* Opens the names that cached leases have. */
static void open_all_cached(struct gpubuf_client *client, struct open_many *many)
{
    for (size_t i = 0; client->cached && i < many->count; i++) {
        many->objects[i] = many->names[i] ? gb_cached_find(client, many->names[i], 0) : NULL;
        many->opened += many->objects[i] != NULL;
    }
}

/* Sends the first parts. 1; 0 if there is nothing to ask for, since each name is cached or no valid
   name; or a failure, and then nothing is under way. If there is no memory for another part, those
   under way ask for its names later. */
static int many_send(struct gpubuf_client *client, struct open_many *many)
{
    struct gb_error error;

    open_all_cached(client, many);
    if (many->opened == many->count && many->count > 0)
        return 0;
    if (gb_request_note(client, &many->base) < 0)
        return gb_report_memory(client);
    int r = start_part(client, many, &many->parts[0], &error);
    if (r <= 0) {
        gb_request_remove(&many->base);
        return r < 0 ? gb_report(client, &error) : 0;
    }
    for (size_t i = 1; i < PARTS && start_part(client, many, &many->parts[i], &error) == 1; i++)
        ;
    return 1;
}

/* Sends and waits. Returns 0 or a failure; *many is NULL if it is no longer the caller's. */
static int many_run(struct gpubuf_client *client, struct open_many **many)
{
    int r = many_send(client, *many);

    if (r < 0)
        many_discard(&(*many)->base);
    if (r <= 0)
        return r;
    struct gb_request *request = &(*many)->base;
    r = gb_request_wait(client, &request, gb_answer_timeout(client, (*many)->options.wait_ms));
    if (!request)
        *many = NULL;
    else if (r < 0)
        many_discard(request);
    return r;
}

/* Checks the arguments and makes the request. */
static int many_prepare(const struct gpubuf_client *client, const char *const *names, size_t count,
                        const struct gpubuf_open_options *given, struct open_many **many)
{
    struct gpubuf_open_options options;
    int r = gb_open_read_options(client, given, &options);

    if (r < 0)
        return r;
    if (options.version || options.label)
        return gb_report_text(client, GPUBUF_E_INVALID, "a %s goes with one name only",
                              options.version ? "version" : "label");
    if (count > INT32_MAX)
        return gb_report_text(client, GPUBUF_E_INVALID, "%zu names are too many", count);
    *many = many_new(names, count, &options);
    return *many ? 0 : gb_report_memory(client);
}

int gpubuf_open_many(struct gpubuf_client *client, const char *const *names, size_t count,
                     const struct gpubuf_open_options *given, struct gpubuf_object **objects,
                     int *errors)
{
    int r = gb_enter_blocking(client);

    if (r < 0)
        return r;
    struct open_many *many = NULL;
    r = many_prepare(client, names, count, given, &many);
    if (r < 0)
        goto leave;
    r = many_run(client, &many);
    if (r == 0) {
        if (count > 0)
            memcpy(objects, many->objects, count * sizeof(struct gpubuf_object *));
        if (errors && count > 0)
            memcpy(errors, many->errors, count * sizeof(*errors));
        r = (int)many->opened;
    }
    if (many)
        many_free(&many->base);
leave:
    gb_leave(client);
    return r;
}

/* Copies the names, so that the request may outlive the call; NULL stays NULL. */
static char **copy_names(const char *const *names, size_t count)
{
    size_t bytes = count * sizeof(char *);

    for (size_t i = 0; i < count; i++)
        bytes += names[i] ? strlen(names[i]) + 1 : 0;
    char **copy = malloc(bytes + 1);
    if (!copy)
        return NULL;
    char *text = (char *)(copy + count);
    for (size_t i = 0; i < count; i++) {
        copy[i] = names[i] ? text : NULL;
        if (names[i])
            text = stpcpy(text, names[i]) + 1;
    }
    return copy;
}

int gpubuf_open_many_async(struct gpubuf_client *client, const char *const *names, size_t count,
                           const struct gpubuf_open_options *given, gpubuf_objects_cb callback,
                           void *arg, uint64_t *request)
{
    int r = gb_enter(client);

    if (r < 0)
        return r;
    struct open_many *many = NULL;
    if (!callback)
        r = gb_report_text(client, GPUBUF_E_INVALID, "the callback is NULL");
    else
        r = many_prepare(client, names, count, given, &many);
    if (r < 0)
        goto leave;
    many->callback = callback;
    many->arg = arg;
    many->copy = copy_names(names, count);
    many->names = (const char *const *)many->copy;
    many->base.waited = false; /* no answer is received before the lock is let go */
    bool at_once = false;
    if (!many->copy)
        r = gb_report_memory(client);
    else if ((r = many_send(client, many)) == 0 && (at_once = many->opened > 0))
        r = gb_request_note(client, &many->base) < 0 ? gb_report_memory(client) : 1;
    else if (r == 0)
        r = gb_report_text(client, GPUBUF_E_INVALID, "none of the names is a valid name");
    if (r < 0) {
        many_discard(&many->base);
        many_free(&many->base);
        goto leave;
    }
    if (at_once)
        gb_open_end_at_once(&many->base);
    if (request)
        *request = many->base.id;
    r = 0;
leave:
    gb_leave(client);
    return r;
}
