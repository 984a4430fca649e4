/* settle: the work on a GPU that fills objects is done, so they outlive the session. */
#include <string.h>

#include "daemon/methods/call.h"

struct settle_params {
    struct gb_json objects;
};

static const struct gb_field settle_fields[] = {
    GB_FIELD(struct settle_params, objects, GB_FIELD_ARRAY, GB_FIELD_REQUIRED, 0, GB_LIMIT(names)),
};

struct settled_object {
    struct gb_string name;
    uint64_t version;
};

/* The most versions without a name, which leases keep, that one request looks at. */
#define LOOK_LIMIT 2048u

/* The object to settle; NULL: it does not exist any more, and needs no settling. */
static struct gb_object *find_produced(struct gb_call *call, const struct settled_object *settled,
                                       unsigned *looked)
{
    struct gb_object *named =
        gb_registry_find(&call->server->registry, settled->name.text, settled->name.length);

    while (named && named->named && named->version != settled->version)
        named = gb_object_older(named);
    if (named && named->named && named->ready && named->produced.session == call->session->id)
        return named;
    GB_LIST_EACH(&call->session->produced, struct gb_object, object, produced.link) {
        if (++*looked > LOOK_LIMIT)
            break;
        if (object->version == settled->version && object->ready &&
            strcmp(object->name, settled->name.text) == 0)
            return object;
    }
    return NULL;
}

static int handle_settle(struct gb_call *call, const void *p)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct settled_object, name, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct settled_object, version, GB_FIELD_UINT, GB_FIELD_REQUIRED, 1, 0),
    };
    const struct settle_params *params = p;
    struct gb_json_walk walk = gb_json_walk(params->objects);
    struct gb_json item;
    unsigned looked = 0;
    uint64_t index = 0;

    for (; gb_json_next(&walk, NULL, &item); index++) {
        struct gb_path path = {.up = GB_PARAM("objects"), .index = index};
        struct settled_object settled = {0};
        struct gb_object *object;
        int r = gb_json_type(item) == GB_JSON_OBJECT
                    ? gb_json_read(item, fields, 2, GB_UNKNOWN_REFUSE, &path, call->pool, &settled,
                                   NULL, &call->error)
                    : gb_fail_at(&call->error, &path, "expected an object");

        if (r == 0) {
            struct gb_path name = {.up = &path, .key = "name"};
            r = gb_name_check(settled.name.text, settled.name.length, &name, &call->error);
        }
        if (r < 0)
            return r;
        object = find_produced(call, &settled, &looked);
        if (object)
            gb_object_settle(object);
    }
    return gb_call_empty(call);
}

const struct gb_method gb_method_settle = {
    GB_METHOD_ROW("settle", GB_METHOD_KEEPS, settle_fields, handle_settle, struct settle_params)};
