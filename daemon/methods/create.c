/* create: an object that its session writes, and later seals or aborts. */
#include "daemon/base/clock.h"
#include "daemon/methods/live.h"
#include "daemon/methods/reply.h"
#include "daemon/methods/space.h"

static const struct gb_field create_fields[] = {
    GB_CREATION_FIELDS,
    GB_FIELD(struct gb_create_params, live, GB_FIELD_BOOL, 0, 0, 0),
    GB_FIELD(struct gb_create_params, final, GB_FIELD_BOOL, 0, 0, 0),
    GB_FIELD(struct gb_create_params, own, GB_FIELD_BOOL, 0, 0, 0),
    GB_FIELD(struct gb_create_params, brief, GB_FIELD_BOOL, 0, 0, 0),
    GB_FIELD(struct gb_create_params, note, GB_FIELD_STRING, 0, 0, GB_LIMIT(label_bytes)),
};

/* Turns a buffer's offset from the storage's start into one in its segment. */
static int put_in_segment(struct gb_buffer *buffer, void *arg)
{
    const struct gb_placement *placement = arg;

    buffer->segment = placement->segment->id;
    buffer->offset += gb_placement_offset(placement);
    return 0;
}

/* An object without bytes lies in no segment: its buffers get segment 0. */
static int put_nowhere(struct gb_buffer *buffer, void *arg)
{
    buffer->segment = 0;
    buffer->offset = 0;
    return 0;
}

static void place_layout(struct gb_layout *layout, struct gb_storage *storage)
{
    if (storage->placement_count > 0)
        gb_layout_each(layout, put_in_segment, &storage->placements[0]);
    else
        gb_layout_each(layout, put_nowhere, NULL);
}

static int check_unsealed(struct gb_call *call)
{
    const struct gb_limits *limits = call->server->limits;

    if (gb_call_may_lease(call) < 0)
        return call->error.code;
    if (((const struct gb_create_params *)call->message->params)->live)
        return gb_live_may_write(call, NULL);
    if (call->session->holder.writes >= limits->session_unsealed)
        return gb_fail_limit(&call->error, "session_unsealed", (long long)limits->session_unsealed,
                             "unsealed objects of a session");
    return 0;
}

/* Gives the session a lease for writing the object. A live one has its name from now on. */
static int make_created(struct gb_call *call, struct gb_object *object,
                        struct gb_unsealed **unsealed)
{
    const struct gb_create_params *params = call->message->params;
    struct gb_registry *registry = &call->server->registry;
    struct gb_segments segments = {0};
    struct gb_lease *lease = NULL;
    int r = check_unsealed(call); /* again, since a task took its time */

    if (r == 0 &&
        !(lease = gb_lease_new(registry, object, &call->session->holder, true, gb_now_ms())))
        r = gb_call_no_memory(call);
    if (r < 0) {
        gb_object_discard(registry, object);
        return r;
    }
    if (!params->live) {
        lease->unsealed = *unsealed;
        *unsealed = NULL;
        gb_object_charge_unsealed(object, gb_pool_used(&lease->unsealed->pool));
        gb_storage_changed(object->storage); /* a successor must not hand the range out */
    }
    r = gb_segments_add(call, &segments, object->storage, GB_ACCESS_WRITE, false);
    if (r == 0 && params->live)
        r = gb_registry_publish(registry, object, params->replace, gb_now_ms(), &call->error);
    if (r < 0) {
        gb_segments_forget(call, &segments, 0);
        gb_lease_end(registry, lease);
        return r;
    }
    if (params->live)
        gb_session_delay_output(call->session); /* until the manager has what a successor needs */
    return gb_call_grant(call, lease, params->brief, &segments);
}

/* A bundle of this size has a segment of its own without being asked for it. */
#define OWN_BUNDLE (UINT64_C(16) << 20)

static int handle_create(struct gb_call *call, const void *p)
{
    const struct gb_create_params *params = p;
    struct gb_unsealed *unsealed = NULL;
    struct gb_creation creation = {.make = make_created, .named = params->live};
    struct gb_placing *placing = &creation.demand.placing;
    int r = gb_creation_begin(call, &creation, &unsealed);

    if (r == 0)
        r = gb_layout_measure(&unsealed->layout, &placing->bytes, &call->error);
    if (r == 0)
        r = check_unsealed(call);
    creation.key.own = params->own || (r == 0 && unsealed->layout.kind == GB_KIND_BUNDLE &&
                                       placing->bytes >= OWN_BUNDLE);
    if (r == 0)
        r = gb_call_place(call, &creation.demand);
    if (r == 0)
        place_layout(&unsealed->layout, placing->storage);
    return gb_creation_end(call, &creation, r, unsealed);
}

const struct gb_method gb_method_create = {
    GB_METHOD_ROW("create", GB_METHOD_LONG, create_fields, handle_create, struct gb_create_params),
    .read = gb_creation_read};
