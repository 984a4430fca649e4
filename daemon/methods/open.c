/* open, cache and release: sessions get read leases, cache them, and end them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/methods/live.h"
#include "daemon/methods/reply.h"
#include "daemon/methods/space.h"

/* ---- open ---- */

struct open_params {
    struct gb_string name, segments, label, access;
    struct gb_json names;
    uint64_t version, wait_ms, lease;
    bool brief, own, exclusive;
};

static const struct gb_field open_fields[] = {
    GB_FIELD(struct open_params, name, GB_FIELD_STRING, 0, 0, GB_LIMIT(name_bytes)),
    GB_FIELD(struct open_params, names, GB_FIELD_ARRAY, 0, 0, GB_LIMIT(names)),
    GB_WHICH_FIELDS(struct open_params),
    GB_FIELD(struct open_params, wait_ms, GB_FIELD_UINT, 0, 0, GB_LIMIT(wait_ms)),
    GB_FIELD(struct open_params, segments, GB_FIELD_STRING, 0, 0, 0),
    GB_FIELD(struct open_params, access, GB_FIELD_STRING, 0, 0, 0),
    GB_FIELD(struct open_params, exclusive, GB_FIELD_BOOL, 0, 0, 0),
    GB_FIELD(struct open_params, brief, GB_FIELD_BOOL, 0, 0, 0),
    GB_FIELD(struct open_params, lease, GB_FIELD_UINT, 0, 0, 0),
    GB_FIELD(struct open_params, own, GB_FIELD_BOOL, 0, 0, 0),
};

/* Outcomes of open_one(), besides 0 and negative codes. */
enum opened {
    DOES_NOT_FIT = 1, /* the segments do not fit in one message */
    COMES_BACK = 2    /* the content comes back from a tier, or a writer ends: the request waits */
};

/* Counts a name that was asked for. A request that waited was counted when it came. */
static void count_name(struct gb_call *call, const struct gb_string *name, bool hit)
{
    struct gb_metrics *metrics = &call->server->metrics;

    if (call->wait)
        return;
    *(hit ? &metrics->hits : &metrics->misses) += 1;
    gb_loads_opened(&call->server->missings.providers.loads, name->text, name->length, hit);
}

static bool writes(const struct open_params *params)
{
    return params->access.text && strcmp(params->access.text, "write") == 0;
}

/* The version that is asked for: by its name, or by a lease of the session on it. */
static int find_version(struct gb_call *call, const struct open_params *params,
                        const struct gb_string *name, struct gb_object **object)
{
    const struct gb_which which = {.version = params->version, .label = params->label};
    struct gb_lease *lease;
    int r;

    if (name->text) {
        r = writes(params) ? gb_call_find_changeable(call, name, &which, object)
                           : gb_call_find_which(call, name, &which, object);
        if (r == 0 || r == GPUBUF_E_NOT_FOUND)
            count_name(call, name, r == 0);
        return r;
    }
    r = gb_call_lease(call, params->lease, &lease);
    if (r == 0 && lease->write)
        r = gb_fail(&call->error, GPUBUF_E_BUSY,
                    "lease %" PRIu64 " is for writing, and what it is on is not sealed", lease->id);
    if (r == 0)
        *object = lease->object;
    return r;
}

static void notify_resumed(struct gb_call *call, uint64_t id, struct gb_object *object)
{
    struct gb_lease *lease;

    if (id && object->named && gb_call_lease(call, id, &lease) == 0 && lease->parked_ms)
        gb_registry_announce(&call->server->registry, GB_EVENT_RESUMED, object);
}

/* For a view, which maps the segment as a whole: the content stays in a segment of its own when it
   comes back from a tier, too. */
static int check_own(struct gb_call *call, const struct gb_object *object)
{
    struct gb_storage *storage = object->storage;
    bool before = storage->key.own;

    if (!gb_storage_is_own(storage))
        return gb_fail(&call->error, GPUBUF_E_UNSUPPORTED,
                       "\"%s\" version %" PRIu64 " shares its segment with other objects: create "
                       "it with own",
                       object->name, object->version);
    storage->key.own = !storage->adopted;
    if (storage->key.own != before)
        gb_storage_changed(storage); /* under a successor, too */
    return 0;
}

/* Gets a lease on the version that is asked for, and its segments for the reply. */
static int open_one(struct gb_call *call, const struct open_params *params,
                    const struct gb_string *name, bool all, struct gb_segments *segments,
                    struct gb_lease **lease)
{
    struct gb_registry *registry = &call->server->registry;
    struct gb_object *object;
    bool write = writes(params);
    int r = find_version(call, params, name, &object);

    if (r == 0)
        r = gb_call_may_lease(call);
    if (r < 0)
        return r;
    if (!object->storage->resident) {
        r = gb_call_restore(call, object, params->wait_ms > 0 && name->text ? name : NULL,
                            params->wait_ms);
        if (r != 0)
            return r == GB_WAITS ? COMES_BACK : r;
    }
    if (params->own && check_own(call, object) < 0)
        return call->error.code;
    if (write && (r = gb_live_open(call, object, params->exclusive, params->wait_ms, lease)) != 0)
        return r == GB_WAITS ? COMES_BACK : r;
    if (!write &&
        !(*lease = gb_lease_new(registry, object, &call->session->holder, false, registry->now_ms)))
        return gb_call_no_memory(call);
    /* Last, since the segments count as given from now on, and must be sent. */
    r = gb_segments_add(call, segments, object->storage, write ? GB_ACCESS_WRITE : GB_ACCESS_READ,
                        all);
    if (r == 0 && params->exclusive)
        gb_lease_claim(*lease, true);
    if (r == 0)
        notify_resumed(call, params->lease, object);
    if (r == 0 && !write && !params->own) {
        gb_lease_slot(registry, *lease, registry->now_ms);
    } else if (r != 0) {
        gb_lease_end(&call->server->registry, *lease);
        *lease = NULL;
    }
    return r;
}

/* ---- names that the request waits for ---- */

/* How many names the provider was asked for before this one, and has not answered either.
   session_wanted bounds the walk. */
static unsigned asked_before(const struct gb_missing *missing)
{
    unsigned count = 0;

    GB_LIST_EACH(&missing->provider->asked, const struct gb_missing, other, turn) {
        if (other == missing)
            break;
        count++;
    }
    return count;
}

/* Fails because the i-th name did not appear in time; tells what its provider says, or that it has
   not answered. */
static int fail_timeout(struct gb_call *call, const struct gb_string *name, size_t i,
                        uint64_t wait_ms)
{
    const struct gb_missing *missing = gb_wait_missing(call->wait, i);
    const struct gb_session *session =
        missing && missing->provider
            ? GB_CONTAINER(missing->provider, const struct gb_session, provider)
            : NULL;
    unsigned before = session ? asked_before(missing) : 0;
    char provider[256] = "", after[48] = "";
    const char *who = session && session->client ? session->client : "a session";

    if (session && missing->message)
        return gb_call_fail_name(call, GPUBUF_E_TIMEOUT, name,
                                 "\"%s\" did not appear within %" PRIu64
                                 " ms: its provider, %.64s (pid %d): %s",
                                 name->text, wait_ms, who, session->pid, missing->message);
    if (before)
        snprintf(after, sizeof(after), " after %u other%s", before, before == 1 ? "" : "s");
    if (session)
        snprintf(provider, sizeof(provider),
                 ": its provider, %.64s (pid %d), was asked %" PRIu64
                 " ms ago%s, and has not answered",
                 who, session->pid, gb_now_ms() - missing->asked_ms, after);
    else if (missing && gb_provider_is_behind(missing))
        snprintf(provider, sizeof(provider), ": its provider is behind with what it was asked for");
    return gb_call_fail_name(call, GPUBUF_E_TIMEOUT, name,
                             "\"%s\" did not appear within %" PRIu64 " ms%s", name->text, wait_ms,
                             provider);
}

/* A name that a provider could make is asked for by an open that waits, and by no other. */
static int fail_not_found(struct gb_call *call, const struct gb_string *name)
{
    if (!gb_providers_cover(&call->server->missings.providers, name->text, name->length))
        return GPUBUF_E_NOT_FOUND; /* as it was said */
    return gb_call_fail_name(call, GPUBUF_E_NOT_FOUND, name,
                             "there is no object \"%s\", or none that you may open; an open that "
                             "waits (--wait, timeout=) asks whoever provides such names",
                             name->text);
}

static bool is_declined(const struct gb_call *call, size_t i)
{
    const struct gb_missing *missing = gb_wait_missing(call->wait, i);

    return missing && missing->declined;
}

static int fail_declined(struct gb_call *call, const struct gb_string *name, size_t i)
{
    const struct gb_missing *missing = gb_wait_missing(call->wait, i);

    return gb_call_fail_name(call, missing->declined, name, "\"%s\": %s", name->text,
                             missing->message);
}

static int open_name(struct gb_call *call, const struct open_params *params, bool all)
{
    struct gb_segments segments = {0};
    struct gb_lease *lease;
    int r = open_one(call, params, &params->name, all, &segments, &lease);

    if (r == COMES_BACK)
        return GB_WAITS;
    if (r == GPUBUF_E_NOT_FOUND && call->wait && gb_wait_failure(call->wait))
        return gb_call_fail_name(call, GPUBUF_E_DEVICE, &params->name, "\"%s\" is lost: %.400s",
                                 params->name.text, gb_wait_failure(call->wait)->message);
    if (r == GPUBUF_E_NOT_FOUND && is_declined(call, 0))
        return fail_declined(call, &params->name, 0);
    if (r == GPUBUF_E_NOT_FOUND && params->wait_ms > 0) {
        if (!call->last_try)
            return gb_call_wait_names(call, &params->name, 1, params->wait_ms);
        return fail_timeout(call, &params->name, 0, params->wait_ms);
    }
    if (r == GPUBUF_E_NOT_FOUND && !params->version && !params->label.text)
        return fail_not_found(call, &params->name);
    if (r < 0)
        return r;
    return gb_call_grant(call, lease, params->brief, &segments);
}

/* Bytes that are kept free in the answer: for each further name, whose entry may have to say that
   it does not fit; and for the segments and the envelope. */
#define ENTRY_ROOM 160u
#define TAIL_ROOM 8192u
/* When the answer is this long no more names are opened, since copying their text takes time. */
#define ENOUGH (GB_LIMIT(line_bytes) / 4)

static void write_entry_error(struct gb_call *call, struct gb_writer *list)
{
    if (call->error.limit)
        gb_metrics_limit(&call->server->metrics, call->error.limit);
    GB_WRITE_LITERAL(list, "{\"error\":");
    gb_rpc_write_error_value(list, &call->error);
    gb_write_char(list, '}');
}

static void write_entry(struct gb_call *call, const struct open_params *params,
                        const struct gb_string *name, size_t i, bool all,
                        struct gb_segments *segments, struct gb_lease **lease,
                        struct gb_writer *list)
{
    int r = open_one(call, params, name, all, segments, lease);

    if (r == DOES_NOT_FIT)
        gb_fail_limit(&call->error, "fds", GB_LIMIT(fds), "ask for this one again");
    if (r == GPUBUF_E_NOT_FOUND && is_declined(call, i))
        fail_declined(call, name, i);
    else if (r == GPUBUF_E_NOT_FOUND && params->wait_ms > 0 && call->last_try)
        fail_timeout(call, name, i, params->wait_ms);
    if (r != 0) {
        write_entry_error(call, list);
        return;
    }
    gb_write_char(list, '{');
    gb_lease_write(list, *lease, params->brief);
    gb_write_char(list, '}');
}

static void write_no_room(struct gb_call *call, struct gb_writer *list)
{
    gb_fail_limit(&call->error, "line_bytes", GB_LIMIT(line_bytes), "ask for this one again");
    write_entry_error(call, list);
}

/* Writes the i-th entry: a lease and its object, or an error. `left` names come after it. False if
   the answer has no room for it. */
static bool open_entry(struct gb_call *call, const struct open_params *params,
                       const struct gb_string *name, size_t i, bool all, size_t left,
                       struct gb_segments *segments)
{
    struct gb_writer *list = call->writer;
    unsigned count = segments->count;
    struct gb_lease *lease = NULL;
    size_t before = list->length;

    write_entry(call, params, name, i, all, segments, &lease, list);
    if (list->length + left * ENTRY_ROOM + TAIL_ROOM <= GB_LIMIT(line_bytes))
        return true;
    if (lease)
        gb_lease_end(&call->server->registry, lease);
    gb_segments_forget(call, segments, count);
    list->length = before;
    write_no_room(call, list);
    return false;
}

/* Whether each name has an object, or was declined. */
static bool all_there(struct gb_call *call, const struct gb_string *names, size_t count)
{
    struct gb_object *object;

    for (size_t i = 0; i < count; i++)
        if (gb_call_find(call, &names[i], &object) < 0 && !is_declined(call, i))
            return false;
    return true;
}

static void count_names(struct gb_call *call, const struct gb_string *names, size_t count)
{
    struct gb_object *object;

    for (size_t i = 0; i < count && !call->wait; i++)
        count_name(call, &names[i], gb_call_find(call, &names[i], &object) == 0);
}

/* The object of a name, if its content is not on its device; else NULL. */
static struct gb_object *find_away(struct gb_call *call, const struct gb_string *name)
{
    struct gb_object *object;

    return gb_call_find(call, name, &object) == 0 && !object->storage->resident ? object : NULL;
}

/* Keeps the names' content where it is for this try, on its device or in a tier, so that none of it
   leaves for the rest. If memory is out it may leave. */
static void hold_there(struct gb_call *call, const struct gb_string *names, size_t count)
{
    struct gb_object *object;

    call->there = gb_pool_calloc(call->pool, count, sizeof(struct gb_storage *));
    for (size_t i = 0; call->there && i < count; i++)
        if (gb_call_find(call, &names[i], &object) == 0) {
            gb_recent_hold(&object->storage->recent);
            call->there[call->there_count++] = object->storage;
        }
}

/* Ends hold_there(). A request that waits for a move alone, which ends soon, continues to hold. */
static void let_go(struct gb_call *call, bool moving)
{
    for (size_t i = 0; i < call->there_count; i++) {
        if (moving)
            gb_wait_hold(call->wait, call->there[i]);
        gb_recent_drop_unused(&call->there[i]->recent);
    }
    call->there_count = 0;
}

/* Begins to bring back the content of names that is not on its device. True if the request must
   wait for that; *moving: for moves alone. */
static bool restore_names(struct gb_call *call, const struct open_params *params,
                          const struct gb_string *names, size_t count, bool *moving)
{
    bool waits = false, for_space = false;
    struct gb_object *object, *last = NULL;

    /* A request waits for one thing at a time: for room for the first object that has none, else
       for a move that is under way. */
    for (size_t i = 0; i < count && !for_space; i++) {
        object = find_away(call, &names[i]);
        if (object && !object->storage->in &&
            gb_call_restore(call, object, NULL, params->wait_ms) == GB_WAITS) {
            waits = true;
            for_space = !object->storage->in;
        }
        if (object && object->storage->in)
            last = object;
    }
    if (last && !for_space)
        waits |= gb_call_restore(call, last, NULL, params->wait_ms) == GB_WAITS;
    *moving = waits && !for_space;
    return waits;
}

static void open_entries(struct gb_call *call, const struct open_params *params,
                         const struct gb_string *names, size_t count, bool all,
                         struct gb_segments *segments)
{
    struct gb_writer *list = call->writer;
    bool room = true;

    gb_writer_reset(list);
    if (call->id.text)
        gb_rpc_begin_result(list, call->id, 0);
    GB_WRITE_LITERAL(list, "{\"objects\":[");
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            gb_write_char(list, ',');
        room = room && (i == 0 || list->length < ENOUGH);
        if (room)
            room = open_entry(call, params, &names[i], i, all, count - i - 1, segments);
        else
            write_no_room(call, list); /* not tried: each would fail as well */
    }
}

/* Ends the answer of open_entries(). `fds` comes last, since only now their number is known. */
static int end_answer(struct gb_call *call, const struct gb_segments *segments)
{
    GB_WRITE_LITERAL(call->writer, "],");
    gb_segments_write(call->writer, segments);
    gb_write_char(call->writer, '}');
    if (call->reply_fd_count > 0)
        gb_write_format(call->writer, ",\"fds\":%u", call->reply_fd_count);
    return GB_DONE;
}

/* A name that no object can have is a mistake in the request: it must not wait for that. */
static int check_names(struct gb_call *call, const struct gb_string *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct gb_path path = {.up = GB_PARAM("names"), .index = i};

        if (gb_name_check(names[i].text, names[i].length, &path, &call->error) < 0)
            return call->error.code;
    }
    return 0;
}

static int open_names(struct gb_call *call, const struct open_params *params, bool all)
{
    struct gb_segments segments = {.count = 0};
    struct gb_string *names = NULL;
    size_t count = 0;
    bool waits, moving;
    int r =
        gb_json_strings(params->names, GB_PARAM("names"), call->pool, &names, &count, &call->error);

    if (r == 0)
        r = check_names(call, names, count);
    if (r < 0)
        return r;
    if (params->wait_ms > 0 && !call->last_try && !all_there(call, names, count)) {
        count_names(call, names, count);
        return gb_call_wait_names(call, names, count, params->wait_ms);
    }
    hold_there(call, names, count);
    waits = restore_names(call, params, names, count, &moving);
    call->answers = !waits;
    if (!waits)
        open_entries(call, params, names, count, all, &segments);
    let_go(call, moving);
    return waits ? GB_WAITS : end_answer(call, &segments);
}

static int handle_open(struct gb_call *call, const void *p)
{
    static const char *const segments[] = {"new", "all", NULL};
    static const char *const accesses[] = {"read", "write", NULL};
    const struct open_params *params = p;
    int all = gb_call_choose(call, "segments", &params->segments, 0, segments);

    if (all < 0 || gb_call_choose(call, "access", &params->access, 0, accesses) < 0)
        return call->error.code;
    if (params->exclusive && !writes(params))
        return gb_fail_at(&call->error, GB_PARAM("exclusive"), "goes with access \"write\"");
    if (!params->name.text && writes(params))
        return gb_fail_at(&call->error, GB_PARAM("access"), "\"write\" goes with name");
    if (!!params->name.text + !!params->names.text + (params->lease > 0) != 1)
        return gb_fail_at(&call->error, &gb_params_path, "expected one of name, names and lease");
    call->asks = !params->version && !params->label.text && !params->lease;
    if ((params->version || params->label.text || params->own) && !params->name.text &&
        (params->names.text || !params->own))
        return gb_fail_at(&call->error,
                          GB_PARAM(params->version      ? "version"
                                   : params->label.text ? "label"
                                                        : "own"),
                          "goes with name, not with names");
    if (!params->names.text)
        return open_name(call, params, all);
    return open_names(call, params, all);
}

const struct gb_method gb_method_open = {
    GB_METHOD_ROW("open", GB_METHOD_APART, open_fields, handle_open, struct open_params)};

/* ---- release ---- */

struct release_params {
    uint64_t lease;
    struct gb_json leases;
    bool park;
};

static const struct gb_field release_fields[] = {
    GB_FIELD(struct release_params, lease, GB_FIELD_UINT, 0, 0, 0),
    GB_FIELD(struct release_params, leases, GB_FIELD_ARRAY, 0, 0, GB_LIMIT(ids)),
    GB_FIELD(struct release_params, park, GB_FIELD_BOOL, 0, 0, 0),
};

static int release_one(struct gb_call *call, uint64_t id, bool park)
{
    struct gb_lease *lease;
    int r = gb_call_lease(call, id, &lease);

    if (r < 0)
        return r;
    call->session->holder.silent = false;
    if (park && (lease->write || lease->part))
        return gb_fail(&call->error, GPUBUF_E_BUSY,
                       "lease %" PRIu64 " is for writing or takes part in a stream, and cannot be "
                       "parked",
                       id);
    if (park) {
        gb_lease_park(&call->server->registry, lease, gb_now_ms());
        return 0;
    }
    gb_lease_end(&call->server->registry, lease);
    return 0;
}

static int release_item(struct gb_call *call, struct gb_json item, const struct gb_path *path)
{
    uint64_t id;
    int r = gb_json_uint(item, 0, GB_LIMIT(integer), path, &id, &call->error);

    const struct release_params *params = call->message->params;

    return r < 0 ? r : release_one(call, id, params->park);
}

static int handle_release(struct gb_call *call, const void *p)
{
    const struct release_params *params = p;
    int r;

    if (!(call->message->present & 1) == !params->leases.text)
        return gb_fail_at(&call->error, &gb_params_path, "expected either lease or leases");
    if (params->leases.text)
        return gb_call_each(call, params->leases, "leases", release_item);
    r = release_one(call, params->lease, params->park);
    return r < 0 ? r : gb_call_empty(call);
}

const struct gb_method gb_method_release = {GB_METHOD_ROW(
    "release", GB_METHOD_APART, release_fields, handle_release, struct release_params)};

/* ---- cache ---- */

struct cache_params {
    struct gb_json leases;
    bool used;
};

static const struct gb_field cache_fields[] = {
    GB_FIELD(struct cache_params, leases, GB_FIELD_ARRAY, GB_FIELD_REQUIRED, 0, GB_LIMIT(ids)),
    GB_FIELD(struct cache_params, used, GB_FIELD_BOOL, 0, 0, 0),
};

static int cache_item(struct gb_call *call, struct gb_json item, const struct gb_path *path)
{
    const struct cache_params *params = call->message->params;
    struct gb_registry *registry = &call->server->registry;
    struct gb_lease *lease;
    uint64_t id;
    int r = gb_json_uint(item, 0, GB_LIMIT(integer), path, &id, &call->error);

    if (r == 0)
        r = gb_call_lease(call, id, &lease);
    if (r == 0 && !lease->slot)
        r = gb_fail(&call->error, GPUBUF_E_BUSY,
                    "lease %" PRIu64 " has no slot in the page, and cannot be cached", id);
    if (r < 0)
        return r;
    call->session->holder.silent = false;
    if (params->used)
        gb_lease_used(registry, lease);
    else
        gb_lease_idle(registry, lease, registry->now_ms);
    return 0;
}

static int handle_cache(struct gb_call *call, const void *p)
{
    const struct cache_params *params = p;

    return gb_call_each(call, params->leases, "leases", cache_item);
}

const struct gb_method gb_method_cache = {
    GB_METHOD_ROW("cache", GB_METHOD_APART, cache_fields, handle_cache, struct cache_params)};
