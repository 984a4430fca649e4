#include "daemon/methods/watch.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/methods/call.h"
#include "daemon/objects/text.h"

/* The kinds of events: those of the registry, and `synced`. */
enum { SYNCED = GB_EVENTS, KIND_COUNT };

static const char *kind_name(unsigned kind)
{
    return kind == SYNCED ? "synced" : gb_event_kind((enum gb_event)kind);
}

struct gb_watch {
    struct gb_link of_session, of_server;
    struct gb_session *session;
    uint64_t id;
    unsigned kinds;  /* bits by kind */
    bool placements; /* events have placements, too */
    /* Until it is synced, it has been told of existing names up to and including `cursor`. Later
       names bring it no events before that: it will be told of them as existing. */
    bool synced;
    size_t withdrawn;     /* place in the walk of gb_state_withdrawn() */
    size_t cursor_length; /* 0: it has been told of none yet */
    char cursor[GB_LIMIT(name_bytes)];
    size_t prefix_length;
    char prefix[];
};

static void watch_free(struct gb_watch *watch)
{
    gb_list_remove(&watch->of_session);
    gb_list_remove(&watch->of_server);
    watch->session->watch_count--;
    watch->session->user->watches--;
    if (!watch->synced)
        watch->session->unsynced--;
    free(watch);
}

void gb_watches_end_session(struct gb_session *session)
{
    GB_LIST_EACH(&session->watches, link)
        watch_free(GB_CONTAINER(link, struct gb_watch, of_session));
}

/* Whether the watch has been told of the object's name, in the order of the index of names. */
static bool told(const struct gb_watch *watch, const struct gb_object *object)
{
    size_t length =
        watch->cursor_length < object->name_length ? watch->cursor_length : object->name_length;
    int order = memcmp(object->name, watch->cursor, length);

    return watch->synced || order < 0 ||
           (order == 0 && object->name_length <= watch->cursor_length);
}

static bool wants_name(const struct gb_watch *watch, unsigned kind, const char *name, size_t length)
{
    return (watch->kinds & 1u << kind) && length >= watch->prefix_length &&
           memcmp(name, watch->prefix, watch->prefix_length) == 0;
}

static bool wants(const struct gb_watch *watch, unsigned kind, const struct gb_object *object)
{
    return wants_name(watch, kind, object->name, object->name_length) &&
           gb_session_may_read(watch->session, object);
}

static struct gb_writer *begin_event(const struct gb_watch *watch, unsigned kind)
{
    struct gb_writer *writer = &watch->session->server->event_writer;

    gb_writer_reset(writer);
    gb_rpc_begin_notification(writer, "event", 0);
    GB_WRITE_LITERAL(writer, "{\"watch\":");
    gb_write_uint(writer, watch->id);
    GB_WRITE_LITERAL(writer, ",\"seq\":");
    gb_write_uint(writer, watch->session->server->seq);
    GB_WRITE_LITERAL(writer, ",\"kind\":\"");
    gb_write_text(writer, kind_name(kind));
    gb_write_char(writer, '"');
    return writer;
}

static void end_event(struct gb_watch *watch, struct gb_writer *writer)
{
    gb_write_char(writer, '}');
    gb_rpc_end(writer);
    gb_session_send(watch->session, writer, NULL, 0);
}

/* An event's text about an object, the same for all watches. */
struct news {
    const struct gb_object *object;
    const struct gb_writer *text;
    size_t placements; /* where `placements` begins in the text */
};

static struct news write_news(struct gb_server *server, const struct gb_object *object)
{
    struct gb_writer *writer = &server->workspace.list_writer;
    struct news news = {object, writer, 0};

    gb_writer_reset(writer);
    GB_WRITE_LITERAL(writer, ",\"object\":");
    gb_object_write(writer, object, false);
    news.placements = writer->length;
    GB_WRITE_LITERAL(writer, ",\"placements\":");
    gb_placements_write(writer, object);
    return news;
}

static void send_event(struct gb_watch *watch, unsigned kind, const struct news *news)
{
    struct gb_writer *writer = begin_event(watch, kind);

    if (news) {
        gb_write(writer, news->text->data,
                 watch->placements ? news->text->length : news->placements);
        writer->failed |= news->text->failed;
        if (news->object->storage->device->lost)
            GB_WRITE_LITERAL(writer, ",\"lost\":true");
    }
    end_event(watch, writer);
}

void gb_watches_event(struct gb_server *server, enum gb_event event, struct gb_object *object)
{
    struct news news = {0};

    if (event == GB_EVENT_SEALED)
        gb_missing_sealed(&server->missings, object,
                          server->serving ? &server->serving->provider : NULL);
    else if (event == GB_EVENT_DELETED || event == GB_EVENT_EVICTED || event == GB_EVENT_WITHDRAWN)
        gb_missing_gone(&server->missings, object);
    GB_LIST_EACH(&server->watches, link) {
        struct gb_watch *watch = GB_CONTAINER(link, struct gb_watch, of_server);

        if (!wants(watch, (unsigned)event, object) || !told(watch, object))
            continue;
        if (!news.object)
            news = write_news(server, object);
        send_event(watch, (unsigned)event, &news);
    }
}

/* Whether the session's peer reads: in a turn no more is written than is sent in one. */
static bool may_tell(const struct gb_session *session)
{
    return !session->end_reason && gb_conn_output_bytes(&session->conn) <= GB_SESSION_SEND_BYTES;
}

/* Tells of objects that ended with an earlier daemon, so that the client does not take them for
   existing ones. False: there are more. */
static bool tell_withdrawn(struct gb_watch *watch)
{
    struct gb_session *session = watch->session;
    const struct gb_withdrawn *withdrawn;

    while (may_tell(session)) {
        struct gb_writer *writer;

        withdrawn = gb_state_withdrawn(&session->server->state, &watch->withdrawn);
        if (!withdrawn)
            return true;
        if (!wants_name(watch, GB_EVENT_WITHDRAWN, withdrawn->name, withdrawn->name_length) ||
            !gb_session_may_read_of(session, withdrawn->uid, withdrawn->gid, withdrawn->mode))
            continue;
        writer = begin_event(watch, GB_EVENT_WITHDRAWN);
        GB_WRITE_LITERAL(writer, ",\"object\":");
        gb_withdrawn_write(writer, withdrawn);
        end_event(watch, writer);
    }
    return false;
}

/* Tells a new watch of existing objects, as `sealed`, then of withdrawn ones, and at last
   `synced`. */
static void tell_existing(struct gb_watch *watch)
{
    struct gb_session *session = watch->session;
    struct gb_names *names = &session->server->registry.names;
    const unsigned sealed = GB_EVENT_SEALED, synced = SYNCED;
    struct gb_name *name;

    name = watch->cursor_length ? gb_names_lower(names, watch->cursor, watch->cursor_length, true)
                                : gb_names_lower(names, watch->prefix, watch->prefix_length, false);
    for (; name; name = gb_names_next(name)) {
        struct gb_object *object = GB_CONTAINER(name, struct gb_object, index);

        if (object->name_length < watch->prefix_length ||
            memcmp(object->name, watch->prefix, watch->prefix_length) != 0)
            break;
        if (!may_tell(session))
            return;
        watch->cursor_length = object->name_length;
        memcpy(watch->cursor, object->name, object->name_length);
        if (wants(watch, sealed, object)) {
            struct news news = write_news(session->server, object);

            send_event(watch, sealed, &news);
        }
    }
    if (!tell_withdrawn(watch))
        return;
    watch->synced = true;
    session->unsynced--;
    if (watch->kinds & 1u << synced)
        send_event(watch, synced, NULL);
}

void gb_watches_pump(struct gb_session *session)
{
    if (gb_session_has_ended(session) || session->unsynced == 0)
        return;
    GB_LIST_EACH(&session->watches, link) {
        struct gb_watch *watch = GB_CONTAINER(link, struct gb_watch, of_session);

        if (!watch->synced)
            tell_existing(watch);
    }
}

/* ---- watch, unwatch ---- */

struct watch_params {
    struct gb_string prefix;
    struct gb_json kinds;
    bool existing, placements;
};

static const struct gb_field watch_fields[] = {
    GB_FIELD(struct watch_params, prefix, GB_FIELD_STRING, 0, 0, GB_LIMIT(name_bytes)),
    GB_FIELD(struct watch_params, kinds, GB_FIELD_ARRAY, 0, 0, KIND_COUNT),
    GB_FIELD(struct watch_params, existing, GB_FIELD_BOOL, 0, 0, 0),
    GB_FIELD(struct watch_params, placements, GB_FIELD_BOOL, 0, 0, 0),
};

enum { HAS_EXISTING = 1 << 2 }; /* among the fields that are present */

static int read_kinds(struct gb_call *call, struct gb_json array, unsigned *bits)
{
    struct gb_json_walk walk = gb_json_walk(array);
    struct gb_json item;
    uint64_t index = 0;

    for (; gb_json_next(&walk, NULL, &item); index++) {
        struct gb_path path = {.up = GB_PARAM("kinds"), .index = index};
        struct gb_string kind;
        unsigned i = 0;

        if (gb_json_string(item, 0, &path, call->pool, &kind, &call->error) < 0)
            return call->error.code;
        while (i < KIND_COUNT && strcmp(kind_name(i), kind.text) != 0)
            i++;
        if (i == KIND_COUNT)
            return gb_fail_at(&call->error, &path, "unknown kind of event \"%s\"", kind.text);
        *bits |= 1u << i;
    }
    return 0;
}

static int handle_watch(struct gb_call *call, const void *p)
{
    const struct watch_params *params = p;
    struct gb_session *session = call->session;
    struct gb_server *server = call->server;
    const struct gb_limits *limits = server->limits;
    struct gb_watch *watch;
    unsigned bits = 0;

    if (params->kinds.text && read_kinds(call, params->kinds, &bits) < 0)
        return call->error.code;
    if (session->watch_count >= limits->session_watches)
        return gb_fail_limit(&call->error, "session_watches", (long long)limits->session_watches,
                             "watches of a session");
    if (session->user->watches >= limits->user_watches)
        return gb_fail_limit(&call->error, "user_watches", (long long)limits->user_watches,
                             "watches of a user");
    watch = calloc(1, sizeof(*watch) + params->prefix.length + 1);
    if (!watch)
        return gb_call_no_memory(call);
    watch->session = session;
    watch->id = server->next_watch++;
    watch->kinds = params->kinds.text ? bits : (1u << KIND_COUNT) - 1;
    watch->synced = (call->message->present & HAS_EXISTING) && !params->existing;
    watch->placements = params->placements;
    watch->prefix_length = params->prefix.length;
    if (params->prefix.length)
        memcpy(watch->prefix, params->prefix.text, params->prefix.length);
    gb_list_append(&session->watches, &watch->of_session);
    gb_list_append(&server->watches, &watch->of_server);
    session->watch_count++;
    session->user->watches++;
    if (!watch->synced)
        session->unsynced++;

    gb_call_begin_result(call);
    GB_WRITE_LITERAL(call->writer, "{\"watch\":");
    gb_write_uint(call->writer, watch->id);
    GB_WRITE_LITERAL(call->writer, ",\"seq\":");
    gb_write_uint(call->writer, server->seq);
    gb_write_char(call->writer, '}');
    return GB_DONE;
}

const struct gb_method gb_method_watch = {
    GB_METHOD_ROW("watch", 0, watch_fields, handle_watch, struct watch_params)};

struct unwatch_params {
    uint64_t watch;
};

static const struct gb_field unwatch_fields[] = {
    GB_FIELD(struct unwatch_params, watch, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
};

static int handle_unwatch(struct gb_call *call, const void *p)
{
    const struct unwatch_params *params = p;

    GB_LIST_EACH(&call->session->watches, link) {
        struct gb_watch *watch = GB_CONTAINER(link, struct gb_watch, of_session);

        if (watch->id == params->watch) {
            watch_free(watch);
            return gb_call_empty(call);
        }
    }
    return gb_fail(&call->error, GPUBUF_E_STALE, "this session has no watch %" PRIu64,
                   params->watch);
}

const struct gb_method gb_method_unwatch = {
    GB_METHOD_ROW("unwatch", 0, unwatch_fields, handle_unwatch, struct unwatch_params)};
