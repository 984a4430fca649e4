/* leases: which session holds which leases, and may map which segments. */
#include <inttypes.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/methods/reply.h"
#include "daemon/methods/task.h"
#include "daemon/objects/stream.h"

/* The most requests of the daemon that walk over leases at a time: each makes the end of a lease a
   little slower. */
#define WALKERS_LIMIT 8
/* Steps between two looks at the clock. */
#define STEPS 16

struct leases_params {
    struct gb_string name;
};

static const struct gb_field leases_fields[] = {
    GB_FIELD(struct leases_params, name, GB_FIELD_STRING, 0, 0, GB_LIMIT(name_bytes)),
};

/* The state of the answer, which is written in slices. If the session, lease or mapping at which a
   walk stands ends in between, the walk steps on. */
struct listing {
    bool mapped;      /* the list of mappings is being written; before it, that of leases */
    uint64_t session; /* the session whose items are being written; 0: none yet */
    bool any;         /* the list has an item */
    bool truncated;
};

static bool wanted(struct gb_call *call, const struct leases_params *params,
                   const struct gb_object *object)
{
    if (params->name.text && (params->name.length != object->name_length ||
                              memcmp(params->name.text, object->name, object->name_length) != 0))
        return false;
    return gb_session_may_read(call->session, object);
}

void gb_holder_write(struct gb_writer *writer, const struct gb_holder *holder)
{
    gb_write_format(writer,
                    "\"session\":%" PRIu64 ",\"pid\":%d,\"uid\":%u,\"client\":", holder->session,
                    (int)holder->pid, holder->user->uid);
    gb_write_cstring(writer, holder->client ? holder->client : "");
}

void gb_lease_write_holder(struct gb_writer *writer, const struct gb_lease *lease, uint64_t now)
{
    gb_write_format(writer, "\"lease\":%" PRIu64 ",", lease->id);
    gb_holder_write(writer, lease->holder);
    GB_WRITE_LITERAL(writer, ",\"name\":");
    gb_write_string(writer, lease->object->name, lease->object->name_length);
    gb_write_format(writer,
                    ",\"version\":%" PRIu64 ",\"bytes\":%" PRIu64
                    ",\"access\":\"%s\",\"age_ms\":%" PRIu64,
                    lease->object->version, lease->object->bytes, lease->write ? "rw" : "r",
                    now - lease->since_ms);
    uint64_t since = lease->idle_ms ? lease->idle_ms : lease->parked_ms;
    if (lease->exclusive)
        GB_WRITE_LITERAL(writer, ",\"exclusive\":true");
    if (lease->holder->orphan)
        GB_WRITE_LITERAL(writer, ",\"left\":true");
    gb_stream_write_part(writer, lease);
    if (since)
        gb_write_format(writer, ",\"%s_ms\":%" PRIu64, lease->idle_ms ? "cached" : "parked",
                        now < since ? 0 : now - since);
}

static void begin_item(struct gb_writer *writer, struct listing *listing)
{
    gb_write_text(writer, listing->any ? ",{" : "{");
    listing->any = true;
}

static void write_lease(struct gb_call *call, struct listing *listing, const struct gb_lease *lease)
{
    if (!wanted(call, call->message->params, lease->object))
        return;
    begin_item(call->writer, listing);
    gb_lease_write_holder(call->writer, lease, gb_now_ms());
    gb_write_char(call->writer, '}');
}

/* Writes a mapping for the user of its session, for the user who is charged for the segment, and
   for administrators. */
static void write_mapping(struct gb_call *call, struct listing *listing,
                          const struct gb_session *session, const struct gb_mapping *mapping)
{
    const struct gb_user *user = call->session->user;
    struct gb_writer *writer = call->writer;

    if (session->user != user && mapping->segment->user != user &&
        !gb_session_is_admin(call->session))
        return;
    begin_item(writer, listing);
    gb_holder_write(writer, &session->holder);
    gb_write_format(writer, ",\"segment\":%" PRIu64 ",\"bytes\":%" PRIu64 "%s}",
                    mapping->segment->id, mapping->segment->bytes,
                    mapping->segment->retiring ? ",\"retiring\":true" : "");
}

static void begin_sessions(struct gb_call *call, struct listing *listing)
{
    struct gb_server *server = call->server;
    struct gb_walk *walk = &call->task->walks[0];

    gb_walk_end(walk);
    gb_walk_begin(&server->walks, walk, &server->sessions);
    listing->session = 0;
    listing->any = false;
}

/* Begins the walk over the leases, or mappings, of the session. */
static void enter_session(struct gb_call *call, struct listing *listing, struct gb_session *session)
{
    struct gb_walk *walk = &call->task->walks[1];

    listing->session = session->id;
    gb_walk_end(walk);
    if (listing->mapped)
        gb_walk_begin(&call->server->store.walks, walk, &session->mapper.mappings);
    else
        gb_walk_begin(&call->server->registry.walks, walk, &session->holder.leases);
}

/* One step: to the next session, lease or mapping. False at the end. */
static bool next_item(struct gb_call *call, struct listing *listing)
{
    struct gb_walk *sessions = &call->task->walks[0], *items = &call->task->walks[1];
    struct gb_session *session;
    struct gb_link *at, *end;

    if (sessions->at == &call->server->sessions)
        return false;
    session = GB_CONTAINER(sessions->at, struct gb_session, of_server);
    if (session->id != listing->session)
        enter_session(call, listing, session);
    at = items->at;
    end = listing->mapped ? &session->mapper.mappings : &session->holder.leases;
    if (at == end) {
        sessions->at = sessions->at->next;
        return true;
    }
    items->at = at->next;
    if (listing->mapped)
        write_mapping(call, listing, session, GB_CONTAINER(at, struct gb_mapping, of_mapper));
    else
        write_lease(call, listing, GB_CONTAINER(at, struct gb_lease, of_holder));
    return true;
}

/* Writes items of the list. False if time is up before its end. */
static bool write_list(struct gb_call *call, struct listing *listing, uint64_t until)
{
    size_t room = GB_ANSWER_ROOM + (listing->mapped ? 8192 : 0);

    for (unsigned steps = 1; next_item(call, listing); steps++) {
        if (call->writer->length > room) {
            listing->truncated = true;
            return true;
        }
        if (steps % STEPS == 0 && uv_hrtime() >= until)
            return false;
    }
    return true;
}

static int write_more(struct gb_call *call, void *state)
{
    uint64_t until = uv_hrtime() + call->server->turns.slice_ns / 2;
    struct listing *listing = state;

    if (!listing->mapped) {
        if (!write_list(call, listing, until))
            return gb_call_continue(call, NULL, write_more, listing);
        GB_WRITE_LITERAL(call->writer, "],\"mapped\":[");
        listing->mapped = true;
        begin_sessions(call, listing);
    }
    if (!write_list(call, listing, until))
        return gb_call_continue(call, NULL, write_more, listing);
    gb_write_text(call->writer, listing->truncated ? "],\"truncated\":true}" : "]}");
    return GB_DONE;
}

static int begin_listing(struct gb_call *call, void *state)
{
    unsigned walkers = 0;

    GB_LIST_EACH(&call->server->walks, struct gb_walk, walk, of_walks)
        walkers++;
    if (walkers >= WALKERS_LIMIT) /* tries again in the next turn */
        return gb_call_continue(call, NULL, begin_listing, state);
    gb_call_begin_result(call);
    GB_WRITE_LITERAL(call->writer, "{\"leases\":[");
    begin_sessions(call, state);
    return write_more(call, state);
}

static int handle_leases(struct gb_call *call, const void *params)
{
    const struct gb_string *name = &((const struct leases_params *)params)->name;
    struct listing *listing;

    if (name->text && gb_name_check(name->text, name->length, GB_PARAM("name"), &call->error) < 0)
        return call->error.code;
    if (!call->task)
        return gb_call_as_task(call);
    listing = gb_pool_calloc(call->pool, 1, sizeof(*listing));
    return listing ? begin_listing(call, listing) : gb_call_no_memory(call);
}

const struct gb_method gb_method_leases = {
    GB_METHOD_ROW("leases", 0, leases_fields, handle_leases, struct leases_params)};
