/* Methods on names: delete, list, set. */
#include <inttypes.h>
#include <string.h>

#include "daemon/methods/call.h"
#include "daemon/objects/text.h"

/* ---- delete ---- */

struct delete_params {
    struct gb_string name;
    struct gb_json names;
    struct gb_string label;
    uint64_t version;
};

static const struct gb_field delete_fields[] = {
    GB_FIELD(struct delete_params, name, GB_FIELD_STRING, 0, 0, GB_LIMIT(name_bytes)),
    GB_FIELD(struct delete_params, names, GB_FIELD_ARRAY, 0, 0, GB_LIMIT(names)),
    GB_WHICH_FIELDS(struct delete_params),
};

static int delete_one(struct gb_call *call, const struct gb_string *name,
                      const struct gb_which *which)
{
    struct gb_object *object;
    int r = gb_call_find_changeable(call, name, which, &object);

    if (r < 0)
        return r;
    gb_registry_unname(&call->server->registry, object, GB_EVENT_DELETED);
    return 0;
}

static int delete_item(struct gb_call *call, struct gb_json item, const struct gb_path *path)
{
    struct gb_string name;
    int r = gb_call_name(call, item, path, &name);

    return r < 0 ? r : delete_one(call, &name, NULL);
}

static int handle_delete(struct gb_call *call, const void *p)
{
    const struct delete_params *params = p;
    const struct gb_which which = {params->version, params->label, false};
    int r;

    if (!params->name.text == !params->names.text)
        return gb_fail_at(&call->error, &gb_params_path, "expected either name or names");
    if (params->names.text && (params->version || params->label.text))
        return gb_fail_at(&call->error, GB_PARAM(params->version ? "version" : "label"),
                          "goes with name, not with names");
    if (params->names.text)
        return gb_call_each(call, params->names, "names", delete_item);
    r = delete_one(call, &params->name, &which);
    return r < 0 ? r : gb_call_empty(call);
}

const struct gb_method gb_method_delete = {
    GB_METHOD_ROW("delete", 0, delete_fields, handle_delete, struct delete_params)};

/* ---- list ---- */

struct list_params {
    struct gb_string prefix, cursor;
    uint64_t limit;
    bool placements, versions;
};

static const struct gb_field list_fields[] = {
    GB_FIELD(struct list_params, prefix, GB_FIELD_STRING, 0, 0, GB_LIMIT(name_bytes)),
    GB_FIELD(struct list_params, limit, GB_FIELD_UINT, 0, 1, GB_LIMIT(list)),
    GB_FIELD(struct list_params, cursor, GB_FIELD_STRING, 0, 0, GB_LIMIT(name_bytes)),
    GB_FIELD(struct list_params, placements, GB_FIELD_BOOL, 0, 0, 0),
    GB_FIELD(struct list_params, versions, GB_FIELD_BOOL, 0, 0, 0),
};

/* How many names are looked at for one answer, visible or not, since that takes the loop's time. */
#define LOOK_LIMIT 1024u

/* A walk over names with a prefix. The last name that was looked at is the cursor, after which a
   later request continues, even if that name has no object any more. */
struct name_walk {
    const struct gb_names *names;
    const struct gb_string *prefix;
    struct gb_name *next;
    char last[GB_LIMIT(name_bytes)];
    size_t last_length;
    uint64_t looked;
    bool truncated; /* a name has more versions than were looked at */
};

/* NULL at the end. */
static struct gb_object *next_object(const struct name_walk *walk)
{
    struct gb_object *object;

    if (!walk->next)
        return NULL;
    object = GB_CONTAINER(walk->next, struct gb_object, index);
    if (object->name_length < walk->prefix->length ||
        memcmp(object->name, walk->prefix->text, walk->prefix->length) != 0)
        return NULL;
    return object;
}

static void pass(struct name_walk *walk, const struct gb_object *object)
{
    walk->last_length = object->name_length;
    memcpy(walk->last, object->name, object->name_length);
    walk->next = gb_names_next(walk->next);
    walk->looked++;
}

/* Writes the object, if the session may see it. */
static void write_one(struct gb_call *call, const struct gb_object *object, bool placements,
                      uint64_t *count)
{
    if (!gb_session_may_read(call->session, object))
        return;
    if ((*count)++ > 0)
        gb_write_char(call->writer, ',');
    gb_object_write(call->writer, object,
                    GB_WITH_IDLE | (placements ? GB_WITH_PLACES : 0) |
                        gb_object_note_for(object, call->session->user),
                    call->server->registry.now_ms);
}

/* The most versions of a name that are looked at, since leases may keep any number. The answer has
   room for them. */
#define VERSIONS_LIMIT 64u
#define VERSIONS_ROOM (VERSIONS_LIMIT * 4096)

/* Writes the objects that the session may see, until the answer is full. */
static void write_listed(struct gb_call *call, struct name_walk *walk,
                         const struct list_params *params, uint64_t limit)
{
    size_t room = GB_ANSWER_ROOM - (params->versions ? VERSIONS_ROOM : 0);
    uint64_t count = 0;
    struct gb_object *object;

    while ((object = next_object(walk)) && count < limit && walk->looked <= LOOK_LIMIT &&
           call->writer->length < room) {
        pass(walk, object);
        write_one(call, object, params->placements, &count);
        for (unsigned i = 1; params->versions && (object = gb_object_older(object)); i++) {
            walk->truncated |= i == VERSIONS_LIMIT;
            if (i == VERSIONS_LIMIT)
                break;
            write_one(call, object, params->placements, &count);
            walk->looked++;
        }
    }
}

static int handle_list(struct gb_call *call, const void *p)
{
    const struct list_params *params = p;
    struct gb_string prefix = params->prefix.text ? params->prefix : (struct gb_string){"", 0};
    struct gb_string first = params->cursor.text ? params->cursor : prefix;
    struct name_walk walk = {.names = &call->server->registry.names, .prefix = &prefix};
    uint64_t limit = params->limit ? params->limit : GB_LIMIT(list);

    if (first.length < prefix.length || memcmp(first.text, prefix.text, prefix.length) != 0)
        return gb_fail(&call->error, GPUBUF_E_STALE,
                       "the cursor \"%s\" does not belong to the prefix \"%s\"", first.text,
                       prefix.text);
    walk.next = gb_names_lower(walk.names, first.text, first.length, params->cursor.text != NULL);
    gb_call_begin_result(call);
    GB_WRITE_UINT(call->writer, "{\"seq\":", call->server->seq);
    GB_WRITE_LITERAL(call->writer, ",\"objects\":[");
    write_listed(call, &walk, params, limit);
    gb_write_char(call->writer, ']');
    if (next_object(&walk) && walk.last_length > 0) {
        GB_WRITE_LITERAL(call->writer, ",\"cursor\":");
        gb_write_string(call->writer, walk.last, walk.last_length);
    }
    gb_write_text(call->writer, walk.truncated ? ",\"truncated\":true}" : "}");
    return GB_DONE;
}

const struct gb_method gb_method_list = {
    GB_METHOD_ROW("list", 0, list_fields, handle_list, struct list_params)};

/* ---- set ---- */

struct set_params {
    struct gb_string name, label;
    uint64_t version, ttl_ms;
    bool pinned;
};

#define HAS_TTL 2u /* bits of `present`: places in the table */
#define HAS_PINNED 4u

static const struct gb_field set_fields[] = {
    GB_FIELD(struct set_params, name, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, GB_LIMIT(name_bytes)),
    GB_FIELD(struct set_params, ttl_ms, GB_FIELD_UINT, 0, 0, 0),
    GB_FIELD(struct set_params, pinned, GB_FIELD_BOOL, 0, 0, 0),
    GB_WHICH_FIELDS(struct set_params),
};

static int handle_set(struct gb_call *call, const void *p)
{
    const struct set_params *params = p;
    const struct gb_which which = {params->version, params->label, false};
    struct gb_object *object;
    int r = gb_call_find_changeable(call, &params->name, &which, &object);

    if (r == 0 && (call->message->present & HAS_PINNED) && !object->current)
        r = gb_fail_at(&call->error, GB_PARAM("pinned"), "only the current version has a pin");
    if (r == 0 && (call->message->present & HAS_TTL))
        r = gb_object_expire(&call->server->registry, object, params->ttl_ms, &call->error);
    if (r < 0)
        return r;
    if (call->message->present & HAS_PINNED)
        gb_object_pin(object, params->pinned);
    return gb_call_empty(call);
}

const struct gb_method gb_method_set = {
    GB_METHOD_ROW("set", 0, set_fields, handle_set, struct set_params)};
