/* stat: describes an object; with `why` what keeps it where it is, or what is evicted before it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/methods/reply.h"
#include "daemon/objects/text.h"
#include "daemon/spill/tiers.h"

/* The most entries of the order of use that are looked at, since that takes the loop's time. */
#define LOOK_LIMIT 8192u
/* The most reasons that are told, and the most aliases that are looked at. */
#define TOLD_LIMIT 128u
#define ALIASES_LIMIT 1024u

struct stat_params {
    struct gb_string name, label;
    uint64_t version;
    bool why;
};

static const struct gb_field stat_fields[] = {
    GB_FIELD(struct stat_params, name, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, GB_LIMIT(name_bytes)),
    GB_FIELD(struct stat_params, why, GB_FIELD_BOOL, 0, 0, 0),
    GB_WHICH_FIELDS(struct stat_params),
};

/* The state of the answer. */
struct answer {
    struct gb_call *call;
    const struct gb_storage *storage;
    const char *separator;
    unsigned told;
    bool truncated;
};

static void begin_list(struct answer *answer)
{
    answer->separator = "";
    answer->told = 0;
}

/* Begins another element of the list; false if the list has enough. */
static bool begin_item(struct answer *answer)
{
    if (answer->told++ >= TOLD_LIMIT) {
        answer->truncated = true;
        return false;
    }
    gb_write_text(answer->call->writer, answer->separator);
    answer->separator = ",";
    return true;
}

/* Whether another of the storage's objects may be looked at. */
static bool may_look(struct answer *answer, unsigned *looked)
{
    if ((*looked)++ < ALIASES_LIMIT)
        return true;
    answer->truncated = true;
    return false;
}

static bool begin_reason(struct answer *answer, const char *kind)
{
    if (!begin_item(answer))
        return false;
    gb_write_format(answer->call->writer, "{\"kind\":\"%s\"", kind);
    return true;
}

/* ---- reasons ---- */

static void write_name_reason(struct answer *answer, const char *kind,
                              const struct gb_object *object)
{
    if (!begin_reason(answer, kind))
        return;
    GB_WRITE_LITERAL(answer->call->writer, ",\"name\":");
    gb_write_string(answer->call->writer, object->name, object->name_length);
    gb_write_char(answer->call->writer, '}');
}

static void write_leases(struct answer *answer, const struct gb_object *object)
{
    struct gb_writer *writer = answer->call->writer;
    uint64_t now = gb_now_ms();

    GB_LIST_EACH(&object->leases, const struct gb_lease, lease, of_object) {
        if (answer->told > TOLD_LIMIT)
            return;
        if (!begin_reason(answer, lease->idle_ms     ? "cached"
                                  : lease->parked_ms ? "parked"
                                                     : "leased"))
            return;
        gb_write_char(writer, ',');
        gb_lease_write_holder(writer, lease, now);
        gb_write_char(writer, '}');
    }
}

/* Writes how many further reasons there are, of objects that the session may not open. */
static void write_others(struct answer *answer, const char *kind, uint64_t others)
{
    if (others > 0 && begin_reason(answer, kind))
        gb_write_format(answer->call->writer, ",\"others\":%" PRIu64 "}", others);
}

/* Where the content goes when room is short and nobody holds it: a tier, or "nowhere" if it is
   dropped. NULL: it stays, and *stays says why. */
static const char *next_place(const struct gb_spill *spill, const struct gb_storage *storage,
                              const char **stays)
{
    int first = storage->resident ? 0 : storage->copies[GB_TIER_HOST] ? GB_TIER_DISK : GB_TIERS;

    *stays = NULL;
    for (int kind = first; kind < GB_TIERS; kind++)
        if (storage->copies[kind])
            return gb_tier_name((enum gb_tier_kind)kind);
    if (storage->size > 0 && !storage->needs)
        return "nowhere";
    for (int kind = first; gb_storage_can_spill(storage) && kind < GB_TIERS; kind++)
        if (gb_spill_has(spill, storage->key.device, (enum gb_tier_kind)kind))
            return gb_tier_name((enum gb_tier_kind)kind);
    *stays = storage->size == 0               ? "empty"
             : !storage->resident             ? "last_tier"
             : storage->key.live              ? "live"
             : gb_storage_is_final(storage)   ? "final"
             : !gb_storage_can_spill(storage) ? "producer"
                                              : "no_tier";
    return NULL;
}

static void write_reasons(struct answer *answer, const char *stays)
{
    const struct gb_storage *storage = answer->storage;
    uint64_t leases = 0, idle = 0, parked = 0, grace = 0, pins = 0, keeps = 0, unsettled = 0,
             held = 0;
    unsigned looked = 0;

    begin_list(answer);
    GB_LIST_EACH(&storage->objects, const struct gb_object, object, of_storage) {
        bool told = gb_session_may_read(answer->call->session, object);
        bool keep = object->named && object->evict == GB_EVICT_KEEP;

        if (!may_look(answer, &looked))
            return;
        held += object->lease_count - object->idle_count - object->parked_count + object->pinned +
                keep + object->unsettled;
        if (told) {
            if (object->kept) /* for a client that may come back */
                write_name_reason(answer, "grace", object);
            write_leases(answer, object);
            if (object->pinned)
                write_name_reason(answer, "pinned", object);
            if (keep)
                write_name_reason(answer, "keep", object);
            if (object->unsettled)
                write_name_reason(answer, "unsettled", object);
        } else {
            leases += gb_object_lease_count(object);
            idle += object->idle_count;
            parked += object->parked_count;
            grace += object->kept;
            pins += object->pinned;
            keeps += keep;
            unsettled += object->unsettled;
        }
    }
    write_others(answer, "leased", leases);
    write_others(answer, "cached", idle);
    write_others(answer, "parked", parked);
    write_others(answer, "grace", grace);
    write_others(answer, "pinned", pins);
    write_others(answer, "keep", keeps);
    write_others(answer, "unsettled", unsettled);
    write_others(answer, "request", storage->recent.holds - held);
    if (stays && begin_reason(answer, stays))
        gb_write_char(answer->call->writer, '}');
}

/* ---- the place in the order of eviction ---- */

/* The storage's entry in the order by which it leaves: of its device, or of the tier that has
   it. */
static const struct gb_recent *recent_of(const struct gb_storage *storage)
{
    if (storage->resident)
        return &storage->recent;
    for (int i = 0; i < GB_TIERS; i++)
        if (storage->copies[i] && storage->copies[i]->whole)
            return &storage->copies[i]->recent;
    return &storage->recent;
}

static void write_before(struct gb_writer *writer, const struct gb_recent *recent)
{
    uint64_t count, bytes;
    bool all;

    if (!recent->in || recent->holds > 0) /* it is being moved */
        return;
    all = gb_recent_before(recent, LOOK_LIMIT, &count, &bytes);
    gb_write_format(writer,
                    ",\"before\":{\"objects\":%" PRIu64 ",\"bytes\":%" PRIu64
                    ",\"of_objects\":%" PRIu64 ",\"of_bytes\":%" PRIu64 "%s}",
                    count, bytes, recent->in->count, recent->in->bytes,
                    all ? "" : ",\"more\":true");
}

static void write_prospect(struct answer *answer, const char *next)
{
    struct gb_writer *writer = answer->call->writer;
    const struct gb_storage *storage = answer->storage;

    if (storage->recent.holds == 0 && next)
        write_before(writer, recent_of(storage));
    if (next)
        gb_write_format(writer, ",\"goes_to\":\"%s\"", next);
    if (storage->out || storage->in)
        gb_write_format(writer, ",\"moving\":\"%s\"", storage->in ? "in" : "out");
}

static void write_aliases(struct answer *answer, const struct gb_object *of)
{
    uint64_t others = 0;
    unsigned looked = 0;

    begin_list(answer);
    GB_WRITE_LITERAL(answer->call->writer, ",\"aliases\":[");
    GB_LIST_EACH(&answer->storage->objects, const struct gb_object, object, of_storage) {
        if (!may_look(answer, &looked))
            break;
        if (object == of || !object->current)
            continue;
        if (!gb_session_may_read(answer->call->session, object))
            others++;
        else if (begin_item(answer))
            gb_write_string(answer->call->writer, object->name, object->name_length);
    }
    gb_write_char(answer->call->writer, ']');
    if (others > 0)
        gb_write_format(answer->call->writer, ",\"other_aliases\":%" PRIu64, others);
}

/* Whether the session may know of the sessions that wait for the name and provide it: it is an
   administrator's, or of the user who provides the name, or of the one who waited first. */
static bool may_know(const struct gb_session *session, const struct gb_missing *missing)
{
    const struct gb_provider *provider = missing->provider;
    const struct gb_awaited *first;

    if (gb_session_is_admin(session) || (provider && provider->user == session->user))
        return true;
    first = GB_LIST_FIRST(&missing->asking, const struct gb_awaited, link);
    return first && first->by->user == session->user;
}

/* The name has no object: tells how many requests wait for it, and which provider was asked. */
static int describe_missing(struct gb_call *call, const struct gb_string *name)
{
    const struct gb_missing *missing =
        gb_missing_find(&call->server->missings, name->text, name->length);
    const struct gb_session *session;
    char asked[192] = "nobody who is here provides it";

    if (!missing || !may_know(call->session, missing) ||
        gb_registry_find(&call->server->registry, name->text, name->length))
        return GPUBUF_E_NOT_FOUND;
    session = missing->provider ? GB_CONTAINER(missing->provider, const struct gb_session, provider)
                                : NULL;
    if (session)
        snprintf(asked, sizeof(asked),
                 "its provider, session %" PRIu64 " (%.64s, pid %d), was asked %" PRIu64 " ms ago",
                 session->id, session->client ? session->client : "no name", session->pid,
                 gb_now_ms() - missing->asked_ms);
    else if (gb_provider_is_behind(missing))
        snprintf(asked, sizeof(asked), "its provider is behind with what it was asked for");
    return gb_call_fail_name(call, GPUBUF_E_NOT_FOUND, name,
                             "there is no object \"%s\"; %" PRIu64 " waiting, and %s", name->text,
                             missing->count, asked);
}

/* The first session that waits to write the live object, or to claim it. */
static void write_waits(struct gb_call *call, const struct gb_storage *storage)
{
    const struct gb_wait *wait = gb_wait_to_write_before(call->server, storage, NULL, true);

    if (!wait)
        return;
    GB_WRITE_LITERAL(call->writer, ",\"waits\":{");
    gb_holder_write(call->writer, &wait->session->holder);
    gb_write_format(call->writer, ",\"age_ms\":%" PRIu64 "%s}", gb_now_ms() - wait->since_ms,
                    wait->claims ? ",\"exclusive\":true" : "");
}

static void write_why(struct gb_call *call, const struct gb_object *object)
{
    struct answer answer = {.call = call, .storage = object->storage};
    uint64_t now = call->server->registry.now_ms;
    const char *stays, *next = next_place(&call->server->spill, object->storage, &stays);

    gb_write_format(call->writer, ",\"evictable\":%s,\"reasons\":[",
                    next && object->storage->recent.holds == 0 ? "true" : "false");
    write_reasons(&answer, stays);
    gb_write_char(call->writer, ']');
    write_aliases(&answer, object);
    write_prospect(&answer, next);
    write_waits(call, object->storage);
    if (object->deadline.place)
        gb_write_format(call->writer, ",\"expires_ms\":%" PRIu64,
                        object->deadline.at > now ? object->deadline.at - now : 0);
    if (answer.truncated)
        GB_WRITE_LITERAL(call->writer, ",\"truncated\":true");
}

static int handle_stat(struct gb_call *call, const void *p)
{
    const struct stat_params *params = p;
    const struct gb_which which = {params->version, params->label, .held = true};
    struct gb_object *object;
    int r = gb_call_find_which(call, &params->name, &which, &object);

    if (r == GPUBUF_E_NOT_FOUND && params->why)
        return describe_missing(call, &params->name);
    if (r < 0)
        return r;
    gb_call_begin_result(call);
    GB_WRITE_LITERAL(call->writer, "{\"object\":");
    gb_object_write(call->writer, object,
                    GB_WITH_IDLE | (params->why ? 0 : GB_WITH_LAYOUT) |
                        gb_object_note_for(object, call->session->user),
                    call->server->registry.now_ms);
    if (params->why)
        write_why(call, object);
    gb_write_char(call->writer, '}');
    return GB_DONE;
}

const struct gb_method gb_method_stat = {
    GB_METHOD_ROW("stat", 0, stat_fields, handle_stat, struct stat_params)};
