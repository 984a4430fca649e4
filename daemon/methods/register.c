/* register: makes an object of memory that a client has. */
#include <inttypes.h>

#include "daemon/methods/object.h"
#include "daemon/methods/space.h"

static const struct gb_field register_fields[] = {
    GB_CREATION_FIELDS,
    GB_FIELD(struct gb_create_params, handles, GB_FIELD_ARRAY, GB_FIELD_REQUIRED, 1, GB_LIMIT(fds)),
};

/* The descriptor that a handle means; -1: none. Each descriptor may be meant once. */
static int handle_fd(struct gb_call *call, const struct gb_handle *handle,
                     const struct gb_path *path, uint32_t *seen, int *fd)
{
    struct gb_path fd_path = {.up = path, .key = "fd"};

    *fd = -1;
    if (handle->kind == GB_HANDLE_CUDA_IPC)
        return 0;
    if (handle->fd >= call->fd_count)
        return gb_fail_at(&call->error, &fd_path,
                          "the message brings %u descriptors, so there is no index %" PRIu64,
                          call->fd_count, handle->fd);
    if (*seen & 1u << handle->fd)
        return gb_fail_at(&call->error, &fd_path, "descriptor %" PRIu64 " is used twice",
                          handle->fd);
    *seen |= 1u << handle->fd;
    *fd = call->fds[handle->fd];
    return 0;
}

/* Reads the handles, all of one kind and on one device, since they make one object. */
static int read_handles(struct gb_call *call, struct gb_json array, struct gb_device *device,
                        struct gb_adoption *adoptions, uint64_t *bytes, unsigned *count)
{
    struct gb_json_walk walk = gb_json_walk(array);
    uint32_t seen = 0;
    struct gb_json item;

    for (*count = 0; gb_json_next(&walk, NULL, &item); ++*count) {
        struct gb_path path = {.up = GB_PARAM("handles"), .index = *count};
        struct gb_handle *handle = &adoptions[*count].handle;
        int r = gb_handle_read(item, &path, call->pool, handle, &call->error);

        if (r == 0)
            r = handle_fd(call, handle, &path, &seen, &adoptions[*count].fd);
        if (r < 0)
            return r;
        if (gb_device_find(call->server->devices, call->server->device_count, handle->device) !=
            device)
            return gb_fail_at(&call->error, &path, "device: \"%.64s\" is not the object's, %s",
                              handle->device, device->id);
        if (handle->kind != adoptions[0].handle.kind)
            return gb_fail_at(&call->error, &path,
                              "kind: expected that of the first handle; all are of one kind");
        if (handle->bytes == 0)
            return gb_fail_at(&call->error, &path, "bytes: expected at least 1");
        bytes[*count] = handle->bytes;
    }
    if (*count == 0)
        return gb_fail_at(&call->error, GB_PARAM("handles"), "expected at least one handle");
    return 0;
}

static int put_in_handle(struct gb_buffer *buffer, void *arg)
{
    const struct gb_storage *storage = arg;

    buffer->segment = storage->placements[buffer->segment].segment->id;
    return 0;
}

static int make_registered(struct gb_call *call, struct gb_object *object,
                           struct gb_unsealed **unsealed)
{
    const struct gb_create_params *params = call->message->params;

    if (object->storage->key.share == GB_SHARE_IPC)
        gb_object_goes_with(call->session, object);
    return gb_object_publish(call, object, 0, params->replace);
}

static int handle_register(struct gb_call *call, const void *p)
{
    const struct gb_create_params *params = p;
    struct gb_adoption adoptions[GB_LIMIT(fds)];
    uint64_t bytes[GB_LIMIT(fds)];
    struct gb_creation creation = {.make = make_registered, .named = true};
    struct gb_unsealed *unsealed = NULL;
    struct gb_placing *placing = &creation.demand.placing;
    int r = gb_creation_begin(call, &creation, &unsealed);

    if (r == 0)
        r = read_handles(call, params->handles, creation.key.device, adoptions, bytes,
                         &placing->count);
    if (r == 0)
        r = gb_layout_check_handles(&unsealed->layout, bytes, placing->count, GB_PARAM("layout"),
                                    &call->error);
    placing->adoptions = adoptions;
    if (r == 0)
        r = gb_call_place(call, &creation.demand);
    if (r == 0)
        gb_layout_each(&unsealed->layout, put_in_handle, placing->storage);
    return gb_creation_end(call, &creation, r, unsealed);
}

const struct gb_method gb_method_register = {
    GB_METHOD_ROW("register", GB_METHOD_FDS | GB_METHOD_LONG | GB_METHOD_KEEPS, register_fields,
                  handle_register, struct gb_create_params),
    .read = gb_creation_read};
