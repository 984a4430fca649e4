/* create: an object that its session writes, and later seals or aborts. */
#include "daemon/base/clock.h"
#include "daemon/methods/live.h"
#include "daemon/methods/reply.h"
#include "daemon/methods/space.h"
#include "daemon/methods/task.h"
#include "daemon/objects/text.h"

static const struct gb_field create_fields[] = {
    GB_FIELD(struct gb_create_params, name, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
    GB_FIELD(struct gb_create_params, layout, GB_FIELD_OBJECT, GB_FIELD_REQUIRED, 0, 0),
    GB_FIELD(struct gb_create_params, device, GB_FIELD_STRING, 0, 0, 64),
    GB_FIELD(struct gb_create_params, share, GB_FIELD_STRING, 0, 0, 0),
    GB_FIELD(struct gb_create_params, mode, GB_FIELD_STRING, 0, 0, 0),
    GB_FIELD(struct gb_create_params, replace, GB_FIELD_BOOL, 0, 0, 0),
    GB_FIELD(struct gb_create_params, ttl_ms, GB_FIELD_UINT, 0, 0, 0),
    GB_FIELD(struct gb_create_params, evict, GB_FIELD_STRING, 0, 0, 0),
    GB_TITLE_FIELDS(struct gb_create_params),
    GB_FIELD(struct gb_create_params, final, GB_FIELD_BOOL, 0, 0, 0),
    GB_FIELD(struct gb_create_params, own, GB_FIELD_BOOL, 0, 0, 0),
    GB_FIELD(struct gb_create_params, live, GB_FIELD_BOOL, 0, 0, 0),
    GB_FIELD(struct gb_create_params, wait_ms, GB_FIELD_UINT, 0, 0, GB_LIMIT(wait_ms)),
    GB_FIELD(struct gb_create_params, brief, GB_FIELD_BOOL, 0, 0, 0),
};

/* Turns a buffer's offset from the storage's start into one in its segment. */
static int put_in_segment(struct gb_buffer *buffer, void *arg)
{
    const struct gb_placement *placement = arg;

    buffer->segment = placement->segment->id;
    buffer->offset += placement->offset;
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

static int answer_create(struct gb_call *call, const struct gb_lease *lease)
{
    const struct gb_create_params *params = call->message->params;
    struct gb_segments segments = {0};
    int r = gb_segments_add(call, &segments, lease->object->storage, GB_ACCESS_WRITE, false);

    return r < 0 ? r : gb_call_grant(call, lease, params->brief, &segments);
}

static int check_unsealed(struct gb_call *call)
{
    const struct gb_limits *limits = call->server->limits;

    if (gb_call_may_lease(call) < 0)
        return call->error.code;
    if (((const struct gb_create_params *)call->message->params)->live)
        return gb_live_may_write(call, NULL);
    if (call->session->unsealed >= limits->session_unsealed)
        return gb_fail_limit(&call->error, "session_unsealed", (long long)limits->session_unsealed,
                             "unsealed objects of a session");
    return 0;
}

/* Makes the object with its write lease. Takes the storage's reference in any case, and `unsealed`
   on success. */
static struct gb_lease *begin_object(struct gb_call *call, const struct gb_creation *creation,
                                     struct gb_storage *storage, struct gb_unsealed *unsealed,
                                     const struct gb_writer *text, struct gb_writer *room)
{
    const struct gb_create_params *params = call->message->params;
    struct gb_registry *registry = &call->server->registry;
    struct gb_lease *lease = NULL;
    struct gb_object *object =
        gb_object_make(call, &params->name, storage, &unsealed->layout, creation->key.mode);

    if (!object)
        return NULL;
    object->evict = creation->evict;
    object->ttl_ms = (int64_t)params->ttl_ms;
    if (check_unsealed(call) == 0 && /* again, since a task took its time */
        gb_object_title(call, object, &params->label, params->keep, &params->scope) == 0 &&
        gb_object_render(object, text, 0, room, &call->error) == 0 &&
        !(lease = gb_lease_new(registry, object, &call->session->holder, true, gb_now_ms())))
        gb_call_no_memory(call);
    if (!lease) {
        gb_object_discard(registry, object);
        return NULL;
    }
    lease->unsealed = unsealed;
    gb_object_charge_unsealed(object, gb_pool_used(&unsealed->pool));
    call->session->unsealed++;
    gb_storage_changed(storage); /* recorded, so that a successor does not hand the range out */
    return lease;
}

/* Makes a live object, which has its name from now on, with a lease for writing it. Takes the
   storage's reference in any case. */
static int make_live(struct gb_call *call, const struct gb_creation *creation,
                     struct gb_storage *storage, struct gb_unsealed **unsealed,
                     const struct gb_writer *text, struct gb_writer *room)
{
    const struct gb_create_params *params = call->message->params;
    struct gb_registry *registry = &call->server->registry;
    struct gb_object *object =
        gb_object_make(call, &params->name, storage, &(*unsealed)->layout, creation->key.mode);
    struct gb_segments segments = {0};
    struct gb_lease *lease = NULL;
    int r;

    if (!object)
        return call->error.code;
    object->evict = creation->evict;
    object->ttl_ms = (int64_t)params->ttl_ms;
    r = check_unsealed(call);
    if (r == 0)
        r = gb_object_render(object, text, registry->next_version, room, &call->error);
    if (r == 0 && !(lease = gb_live_lease(call, object)))
        r = gb_call_no_memory(call);
    if (r < 0) {
        gb_object_discard(registry, object);
        return r;
    }
    r = gb_segments_add(call, &segments, storage, GB_ACCESS_WRITE, false);
    if (r == 0)
        r = gb_registry_publish(registry, object, params->replace, gb_now_ms(), &call->error);
    if (r < 0) {
        gb_segments_forget(call, &segments, 0);
        call->session->unsealed--;
        gb_lease_end(registry, lease);
        return r;
    }
    gb_session_hold_back(call->session); /* until the manager has what a successor needs */
    return gb_call_grant(call, lease, params->brief, &segments);
}

static int make_created(struct gb_call *call, const struct gb_creation *creation,
                        struct gb_storage *storage, struct gb_unsealed **unsealed,
                        const struct gb_writer *text, struct gb_writer *room)
{
    struct gb_lease *lease = begin_object(call, creation, storage, *unsealed, text, room);
    int r;

    if (!lease)
        return call->error.code;
    *unsealed = NULL;
    r = answer_create(call, lease);
    if (r < 0) {
        call->session->unsealed--;
        gb_lease_end(&call->server->registry, lease);
    }
    return r;
}

/* A bundle of this size has a segment of its own without being asked for it. */
#define OWN_BUNDLE (UINT64_C(16) << 20)

static int handle_create(struct gb_call *call, const void *p)
{
    const struct gb_create_params *params = p;
    struct gb_unsealed *unsealed = NULL;
    struct gb_creation creation = {.make = params->live ? make_live : make_created};
    struct gb_placing *placing = &creation.search.placing;
    int r = gb_creation_check(call, params, &creation);

    if (r == 0)
        r = gb_creation_layout(call, GB_LAYOUT_CREATE, &unsealed);
    if (r == 0)
        r = gb_layout_measure(&unsealed->layout, &placing->bytes, &call->error);
    if (r == 0)
        r = check_unsealed(call);
    creation.key.own = params->own || (r == 0 && unsealed->layout.kind == GB_KIND_BUNDLE &&
                                       placing->bytes >= OWN_BUNDLE);
    if (r == 0)
        r = gb_call_place(call, &creation.search);
    if (r == 0)
        place_layout(&unsealed->layout, placing->storage);
    return gb_creation_end(call, &creation, r, unsealed);
}

static int read_create(const struct gb_message *message, struct gb_unsealed **unsealed,
                       struct gb_error *error)
{
    return gb_creation_read(message, GB_LAYOUT_CREATE, unsealed, error);
}

const struct gb_method gb_method_create = {
    GB_METHOD_ROW("create", GB_METHOD_LONG, create_fields, handle_create, struct gb_create_params),
    .read = read_create};
