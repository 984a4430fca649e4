/* unmap: a session no longer maps segments that it was given. */
#include <inttypes.h>

#include "daemon/methods/call.h"

struct unmap_params {
    struct gb_json segments;
};

static const struct gb_field unmap_fields[] = {
    GB_FIELD(struct unmap_params, segments, GB_FIELD_ARRAY, GB_FIELD_REQUIRED, 0, GB_LIMIT(ids)),
};

static int unmap_item(struct gb_call *call, struct gb_json item, const struct gb_path *path)
{
    struct gb_store *store = &call->server->store;
    struct gb_mapping *mapping;
    uint64_t id;
    int r = gb_json_uint(item, 0, GB_LIMIT(integer), path, &id, &call->error);

    if (r < 0)
        return r;
    mapping = gb_mapper_find(store, &call->session->mapper, id);
    if (!mapping)
        return gb_fail(&call->error, GPUBUF_E_STALE,
                       "this session was given no handle of segment %" PRIu64, id);
    gb_mapping_end(store, mapping);
    return 0;
}

static int handle_unmap(struct gb_call *call, const void *p)
{
    const struct unmap_params *params = p;

    return gb_call_each(call, params->segments, "segments", unmap_item);
}

const struct gb_method gb_method_unmap = {
    GB_METHOD_ROW("unmap", 0, unmap_fields, handle_unmap, struct unmap_params)};
