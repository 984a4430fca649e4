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

/* An event that happened, and its text about the object, the same for all watches. */
struct gb_news {
    struct gb_link of_all;
    uint64_t seq;
    uint64_t last_of; /* sessions that were sent this, and nothing newer */
    unsigned kind;
    uid_t uid;
    gid_t gid;
    unsigned mode;
    bool lost;                              /* with its device */
    size_t name_length, placements, length; /* `placements` begin there in the text */
    char text[];                            /* the name, and then the text of that length */
};

struct gb_watch {
    struct gb_link of_session;
    struct gb_session *session;
    uint64_t id, after; /* after: it is sent no event up to that one */
    unsigned kinds;     /* bits by kind */
    bool placements;    /* events have placements, too */
    /* Until it is synced, it has been sent existing names up to and including `cursor`. Later
       names bring it no events before that: it will be sent them as existing. */
    bool synced;
    size_t withdrawn;     /* place in the walk of gb_state_next_withdrawn() */
    size_t cursor_length; /* 0: it has been sent none yet */
    char cursor[GB_LIMIT(name_bytes)];
    size_t prefix_length;
    char prefix[];
};

/* ---- news ---- */

static struct gb_news *first_news(const struct gb_watches *watches)
{
    return GB_CONTAINER(watches->news.next, struct gb_news, of_all);
}

static size_t size_of(const struct gb_news *news)
{
    return sizeof(*news) + news->name_length + news->length;
}

/* Adds news of `room` bytes of text; NULL: no memory. */
static struct gb_news *add_news(struct gb_server *server, size_t room)
{
    struct gb_news *news = calloc(1, sizeof(*news) + room);

    if (news) {
        news->seq = server->seq;
        gb_list_append(&server->watches.news, &news->of_all);
    }
    return news;
}

/* Notes up to which news the session was sent (NULL: it has no more watches), and frees those that
   all were sent. */
static void set_told(struct gb_session *session, struct gb_news *news)
{
    struct gb_watches *watches = &session->server->watches;
    struct gb_session_watches *watching = &session->watching;

    if (news) {
        news->last_of++;
        watching->seq = news->seq;
    }
    if (watching->told)
        watching->told->last_of--;
    watching->told = news;
    while (!gb_list_empty(&watches->news) && first_news(watches)->last_of == 0) {
        struct gb_news *old = first_news(watches);

        watches->bytes -= size_of(old);
        gb_list_remove(&old->of_all);
        free(old);
    }
}

/* Lists the session among its user's. */
static void enlist(struct gb_session *session, bool untold)
{
    struct gb_served *user = gb_served(session->user);

    gb_list_append(untold ? &user->untold : &user->told, &session->watching.of_user);
    if (!gb_list_linked(&user->watching))
        gb_list_append(&session->server->watches.users, &user->watching);
    if (untold && !gb_list_linked(&user->turn))
        gb_list_append(&session->server->turns.busy, &user->turn);
}

static void unlist(struct gb_session *session)
{
    struct gb_served *user = gb_served(session->user);

    gb_list_remove(&session->watching.of_user);
    if (gb_list_empty(&user->told) && gb_list_empty(&user->untold))
        gb_list_remove(&user->watching);
}

/* With its first watch: it needs no earlier news. False: no memory. */
static bool begin_watching(struct gb_session *session)
{
    struct gb_watches *watches = &session->server->watches;
    struct gb_news *last = GB_CONTAINER(gb_list_last(&watches->news), struct gb_news, of_all);

    if (gb_list_empty(&watches->news)) {
        last = add_news(session->server, 0); /* of no kind */
        if (!last)
            return false;
        watches->bytes += size_of(last);
    }
    set_told(session, last);
    enlist(session, false);
    return true;
}

static void watch_free(struct gb_watch *watch)
{
    struct gb_session *session = watch->session;

    gb_list_remove(&watch->of_session);
    session->user->watches--;
    if (!watch->synced)
        session->watching.unsynced--;
    free(watch);
    if (--session->watching.count > 0)
        return;
    set_told(session, NULL);
    unlist(session);
}

void gb_watches_end_session(struct gb_session *session)
{
    GB_LIST_EACH(&session->watching.watches, struct gb_watch, watch, of_session)
        watch_free(watch);
}

/* Ends the sessions that were sent no event after that one. */
static void end_late(struct gb_server *server, uint64_t seq, const char *why)
{
    GB_LIST_EACH(&server->sessions, struct gb_session, session, of_server) {
        if (!session->watching.told || session->watching.seq > seq)
            continue;
        gb_session_doom(session, why);
        gb_watches_end_session(session);
    }
}

/* ---- telling ---- */

/* Whether the watch has been sent the name, in the order of the index of names. */
static bool has_sent_name(const struct gb_watch *watch, const char *name, size_t name_length)
{
    size_t length = watch->cursor_length < name_length ? watch->cursor_length : name_length;
    int order = memcmp(name, watch->cursor, length);

    return watch->synced || order < 0 || (order == 0 && name_length <= watch->cursor_length);
}

static bool wants_name(const struct gb_watch *watch, unsigned kind, const char *name, size_t length)
{
    return (watch->kinds & 1u << kind) && length >= watch->prefix_length &&
           memcmp(name, watch->prefix, watch->prefix_length) == 0;
}

static struct gb_writer *begin_event(const struct gb_watch *watch, unsigned kind, uint64_t seq)
{
    struct gb_writer *writer = gb_shared_writer_acquire(&watch->session->server->notices);

    gb_rpc_begin_notification(writer, "event", 0);
    GB_WRITE_UINT(writer, "{\"watch\":", watch->id);
    GB_WRITE_UINT(writer, ",\"seq\":", seq);
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
    gb_shared_writer_return(writer);
}

/* Writes an event's text about an object; returns where `placements` begins in it. `parts`:
   GB_WITH_NOTE or 0. */
static size_t write_text(struct gb_writer *writer, const struct gb_object *object, unsigned parts)
{
    size_t placements;

    GB_WRITE_LITERAL(writer, ",\"object\":");
    gb_object_write(writer, object, parts, 0);
    placements = writer->length;
    GB_WRITE_LITERAL(writer, ",\"placements\":");
    gb_placements_write(writer, object);
    return placements;
}

static void notify_watch(struct gb_watch *watch, const struct gb_news *news)
{
    struct gb_writer *writer = begin_event(watch, news->kind, news->seq);

    gb_write(writer, news->text + news->name_length,
             watch->placements ? news->length : news->placements);
    if (news->lost)
        GB_WRITE_LITERAL(writer, ",\"lost\":true");
    end_event(watch, writer);
}

static bool has_unread(const struct gb_session *session)
{
    return gb_conn_output_bytes(&session->conn) > GB_SESSION_THROTTLE_BYTES;
}

/* Tells the session's watches. One whose peer does not read is listed again when it does. */
static void notify_session(struct gb_session *session, uint64_t until)
{
    const struct gb_link *end = &session->server->watches.news;

    unlist(session);
    do {
        struct gb_news *news =
            GB_CONTAINER(session->watching.told->of_all.next, struct gb_news, of_all);

        GB_LIST_EACH(&session->watching.watches, struct gb_watch, watch, of_session) {
            if (news->seq > watch->after &&
                wants_name(watch, news->kind, news->text, news->name_length) &&
                has_sent_name(watch, news->text, news->name_length) &&
                gb_session_may_read_of(session, news->uid, news->gid, news->mode))
                notify_watch(watch, news);
        }
        set_told(session, news);
    } while (session->watching.told->of_all.next != end && !has_unread(session) &&
             uv_hrtime() < until);
    if (session->watching.told->of_all.next == end || !has_unread(session))
        enlist(session, session->watching.told->of_all.next != end);
}

void gb_watches_send_news(struct gb_served *user, uint64_t until)
{
    do
        notify_session(GB_CONTAINER(user->untold.next, struct gb_session, watching.of_user), until);
    while (!gb_list_empty(&user->untold) && uv_hrtime() < until);
}

/* Notes what happened, and ends sessions that are too far behind. */
static void note_news(struct gb_server *server, enum gb_event event, const struct gb_object *object)
{
    struct gb_writer *writer = gb_shared_writer_acquire(&server->watches.text);
    size_t placements = write_text(writer, object, 0); /* many are told */
    struct gb_news *news =
        writer->failed ? NULL : add_news(server, object->name_length + writer->length);

    if (!news) {
        gb_shared_writer_return(writer);
        end_late(server, UINT64_MAX, "out of memory");
        return;
    }
    news->kind = (unsigned)event;
    news->uid = object->owner->uid;
    news->gid = object->gid;
    news->mode = object->mode;
    news->lost = object->storage->key.device->lost;
    news->name_length = object->name_length;
    news->placements = placements;
    news->length = writer->length;
    memcpy(news->text, object->name, object->name_length);
    memcpy(news->text + object->name_length, writer->data, writer->length);
    gb_shared_writer_return(writer);
    server->watches.bytes += size_of(news);
    if (server->watches.bytes > server->limits->output_bytes)
        end_late(server, first_news(&server->watches)->seq / 2 + news->seq / 2,
                 "its user's watches are told of more than there is time for");
}

void gb_watches_event(struct gb_server *server, enum gb_event event, struct gb_object *object)
{
    if (event == GB_EVENT_SEALED)
        gb_missing_sealed(&server->missings, object,
                          server->serving ? &server->serving->provider : NULL);
    else if (event == GB_EVENT_DELETED || event == GB_EVENT_EVICTED || event == GB_EVENT_WITHDRAWN)
        gb_missing_gone(&server->missings, object);
    GB_LIST_EACH(&server->watches.users, struct gb_served, user, watching) {
        gb_list_move(&user->told, &user->untold);
        if (!gb_list_linked(&user->turn))
            gb_list_append(&server->turns.busy, &user->turn);
    }
    if (!gb_list_empty(&server->watches.news))
        note_news(server, event, object);
}

/* Whether there is time, and the session's peer reads: in a turn no more is written than is sent in
   one. */
static bool may_tell(const struct gb_session *session, uint64_t until)
{
    return !session->end_reason && uv_hrtime() < until &&
           gb_conn_output_bytes(&session->conn) <= GB_SESSION_SEND_BYTES;
}

/* Tells of objects that ended with an earlier daemon, so that the client does not take them for
   existing ones. False: there are more. */
static bool report_withdrawn(struct gb_watch *watch, uint64_t until)
{
    struct gb_session *session = watch->session;
    const struct gb_withdrawn *withdrawn;

    while (may_tell(session, until)) {
        struct gb_writer *writer;

        withdrawn = gb_state_next_withdrawn(&session->server->state, &watch->withdrawn);
        if (!withdrawn)
            return true;
        if (!wants_name(watch, GB_EVENT_WITHDRAWN, withdrawn->name, withdrawn->name_length) ||
            !gb_session_may_read_of(session, withdrawn->uid, withdrawn->gid, withdrawn->mode))
            continue;
        writer = begin_event(watch, GB_EVENT_WITHDRAWN, session->server->seq);
        GB_WRITE_LITERAL(writer, ",\"object\":");
        gb_withdrawn_write(writer, withdrawn);
        end_event(watch, writer);
    }
    return false;
}

static void report_object(struct gb_watch *watch, const struct gb_object *object)
{
    struct gb_server *server = watch->session->server;
    struct gb_writer *text = gb_shared_writer_acquire(&server->watches.text);
    size_t placements = write_text(text, object, gb_object_note_for(object, watch->session->user));
    struct gb_writer *writer = begin_event(watch, GB_EVENT_SEALED, server->seq);

    gb_write(writer, text->data, watch->placements ? text->length : placements);
    writer->failed |= text->failed;
    gb_shared_writer_return(text);
    end_event(watch, writer);
}

/* Tells a new watch of existing objects, as `sealed`, then of withdrawn ones, and at last
   `synced`. */
static void report_existing(struct gb_watch *watch, uint64_t until)
{
    struct gb_session *session = watch->session;
    struct gb_names *names = &session->server->registry.names;
    struct gb_name *name;

    name = watch->cursor_length ? gb_names_lower(names, watch->cursor, watch->cursor_length, true)
                                : gb_names_lower(names, watch->prefix, watch->prefix_length, false);
    for (; name; name = gb_names_next(name)) {
        struct gb_object *object = GB_CONTAINER(name, struct gb_object, index);

        if (object->name_length < watch->prefix_length ||
            memcmp(object->name, watch->prefix, watch->prefix_length) != 0)
            break;
        if (!may_tell(session, until))
            return;
        watch->cursor_length = object->name_length;
        memcpy(watch->cursor, object->name, object->name_length);
        if (wants_name(watch, GB_EVENT_SEALED, object->name, object->name_length) &&
            gb_session_may_read(session, object))
            report_object(watch, object);
    }
    if (!report_withdrawn(watch, until))
        return;
    watch->synced = true;
    session->watching.unsynced--;
    if (watch->kinds & 1u << SYNCED)
        end_event(watch, begin_event(watch, SYNCED, session->server->seq));
}

/* A watch is sent existing objects only while it has all news: so both are in order. */
void gb_watches_pump(struct gb_session *session)
{
    uint64_t until;

    if (gb_session_has_ended(session))
        return;
    if (gb_session_stalls(session) && !has_unread(session))
        enlist(session, true);
    if (session->watching.unsynced == 0)
        return;
    until = uv_hrtime() + session->server->turns.slice_ns / 2;
    GB_LIST_EACH(&session->watching.watches, struct gb_watch, watch, of_session) {
        if (!watch->synced && session->watching.seq == session->server->seq)
            report_existing(watch, until);
    }
    session->busy |= session->watching.unsynced > 0;
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
    if (session->watching.count >= limits->session_watches)
        return gb_fail_limit(&call->error, "session_watches", (long long)limits->session_watches,
                             "watches of a session");
    if (session->user->watches >= limits->user_watches)
        return gb_fail_limit(&call->error, "user_watches", (long long)limits->user_watches,
                             "watches of a user");
    watch = calloc(1, sizeof(*watch) + params->prefix.length + 1);
    if (!watch || (session->watching.count == 0 && !begin_watching(session))) {
        free(watch);
        return gb_call_no_memory(call);
    }
    watch->session = session;
    watch->id = server->watches.next++;
    watch->after = server->seq;
    watch->kinds = params->kinds.text ? bits : (1u << KIND_COUNT) - 1;
    watch->synced = (call->message->present & HAS_EXISTING) && !params->existing;
    watch->placements = params->placements;
    watch->prefix_length = params->prefix.length;
    if (params->prefix.length)
        memcpy(watch->prefix, params->prefix.text, params->prefix.length);
    gb_list_append(&session->watching.watches, &watch->of_session);
    session->watching.count++;
    session->user->watches++;
    if (!watch->synced)
        session->watching.unsynced++;

    gb_call_begin_result(call);
    GB_WRITE_UINT(call->writer, "{\"watch\":", watch->id);
    GB_WRITE_UINT(call->writer, ",\"seq\":", server->seq);
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

    GB_LIST_EACH(&call->session->watching.watches, struct gb_watch, watch, of_session) {
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
