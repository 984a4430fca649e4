/* create, seal, abort, register: how objects come to be. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/methods/create.h"

#include "daemon/base/clock.h"

/* ---- what create, register and alias have in common ---- */

struct create_params {
    struct gb_string name;
    struct gb_json layout, handles;
    struct gb_string device, share, mode, evict;
    bool replace;
    uint64_t ttl_ms, wait_ms;
};

/* The checked parameters. */
struct creation {
    struct gb_domain_key key;
    enum gb_evict evict;
    uint64_t total; /* bytes to place */
};

int gb_object_check_name(struct gb_call *call, const struct gb_string *name, bool replace)
{
    struct gb_object *former;
    int r = gb_name_check(name->text, name->length, GB_PARAM("name"), &call->error);

    if (r < 0)
        return r;
    former = gb_registry_find(&call->server->registry, name->text, name->length);
    if (!former)
        return 0;
    if (!gb_session_may_change(call->session, former))
        return gb_call_fail_name(call, GPUBUF_E_DENIED, name,
                                 "\"%s\" is taken by an object of uid %u that you may not replace",
                                 name->text, former->owner->uid);
    if (!replace)
        return gb_call_fail_name(call, GPUBUF_E_EXISTS, name,
                                 "\"%s\" exists; say replace to take its name", name->text);
    return 0;
}

static int check_share(struct gb_call *call, const struct gb_string *share,
                       struct gb_domain_key *key)
{
    key->share = GB_SHARE_FD;
    if (share->text && strcmp(share->text, "ipc") == 0)
        key->share = GB_SHARE_IPC;
    else if (share->text && strcmp(share->text, "fd") != 0)
        return gb_fail_at(&call->error, GB_PARAM("share"),
                          "expected \"fd\" or \"ipc\", found \"%.32s\"", share->text);
    if (gb_call_check_lost(call, key->device) < 0)
        return call->error.code;
    if (!key->device->ops->can_share(key->device, key->share))
        return gb_fail(&call->error, GPUBUF_E_UNSUPPORTED,
                       "device %s cannot share by \"%s\"; hello says what it can", key->device->id,
                       key->share == GB_SHARE_IPC ? "ipc" : "fd");
    return 0;
}

static int check_creation(struct gb_call *call, const struct create_params *params,
                          struct creation *creation)
{
    int r = gb_object_check_name(call, &params->name, params->replace);

    if (r == 0)
        r = gb_call_device(call, &params->device, &creation->key.device);
    if (r == 0)
        r = check_share(call, &params->share, &creation->key);
    if (r == 0)
        r = gb_call_mode(call, &params->mode, 0600, &creation->key.mode);
    if (r == 0)
        r = gb_call_evict(call, &params->evict, &creation->evict);
    creation->key.uid = call->session->user->uid;
    creation->key.gid = call->session->gid;
    return r;
}

/* It may be long: the name may have been taken since it was checked. */
static int read_layout(struct gb_call *call, const struct create_params *params,
                       enum gb_layout_form form, struct gb_pool *pool, struct gb_layout *layout)
{
    int r;

    gb_call_share(call, pool);
    r = gb_layout_read(params->layout, form, GB_PARAM("layout"), pool, layout, &call->error);
    gb_call_alone(pool);
    return r < 0 ? r : gb_object_check_name(call, &params->name, params->replace);
}

static int add_bytes(struct gb_buffer *buffer, void *arg)
{
    *(uint64_t *)arg += buffer->bytes;
    return 0;
}

struct gb_object *gb_object_make(struct gb_call *call, const struct gb_string *name,
                                 struct gb_storage *storage, struct gb_layout *layout,
                                 unsigned mode)
{
    struct gb_server *server = call->server;
    struct gb_user *user = call->session->user;
    struct gb_object *object = NULL;

    if (gb_user_may_have(user, GB_QUOTA_OBJECTS, NULL, 1, &call->error) == 0 &&
        !(object = gb_object_new(&server->registry, name->text, name->length, storage, user)))
        gb_call_no_memory(call);
    if (!object) {
        gb_storage_unref(&server->store, storage);
        return NULL;
    }
    object->gid = call->session->gid;
    object->mode = mode;
    object->created_ms = gb_wall_ms();
    gb_layout_each(layout, add_bytes, &object->bytes);
    return object;
}

/* The object is withdrawn when the session ends, unless it is settled before. */
static void goes_with(struct gb_session *session, struct gb_object *object)
{
    gb_list_append(&session->produced, &object->of_producer);
    object->producer = session->id;
}

/* Renders the object. A long layout takes long: names may have been taken, and got new versions, since.
   It is to be nobody's but this session's until then. */
static int render(struct gb_call *call, struct gb_object *object, const struct gb_layout *layout,
                  const uint64_t *version)
{
    struct gb_writer writer;
    int r;

    gb_writer_init(&writer, 0);
    gb_call_share(call, call->pool);
    gb_layout_write(&writer, layout, GB_LAYOUT_REPLY, call->pool);
    gb_call_alone(call->pool);
    r = gb_object_render(object, &writer, *version, &call->error);
    gb_writer_end(&writer);
    return r;
}

int gb_object_publish(struct gb_call *call, struct gb_object *object, int r, bool replace)
{
    struct gb_registry *registry = &call->server->registry;
    struct gb_string name = {object->name, object->name_length};

    if (r == 0)
        r = gb_object_check_name(call, &name, replace);
    if (r == 0)
        r = gb_registry_publish(registry, object, replace, gb_now_ms(), &call->error);
    if (r < 0) {
        gb_object_discard(registry, object);
        return r;
    }
    gb_call_begin_result(call);
    GB_WRITE_LITERAL(call->writer, "{\"version\":");
    gb_write_uint(call->writer, object->version);
    gb_write_char(call->writer, '}');
    return GB_DONE;
}

/* ---- create ---- */

static const struct gb_field create_fields[] = {
    GB_FIELD(struct create_params, name, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
    GB_FIELD(struct create_params, layout, GB_FIELD_OBJECT, GB_FIELD_REQUIRED, 0, 0),
    GB_FIELD(struct create_params, device, GB_FIELD_STRING, 0, 0, 64),
    GB_FIELD(struct create_params, share, GB_FIELD_STRING, 0, 0, 0),
    GB_FIELD(struct create_params, mode, GB_FIELD_STRING, 0, 0, 0),
    GB_FIELD(struct create_params, replace, GB_FIELD_BOOL, 0, 0, 0),
    GB_FIELD(struct create_params, ttl_ms, GB_FIELD_UINT, 0, 0, 0),
    GB_FIELD(struct create_params, evict, GB_FIELD_STRING, 0, 0, 0),
    GB_FIELD(struct create_params, wait_ms, GB_FIELD_UINT, 0, 0, GB_LIMIT(wait_ms)),
};

/* Where a buffer of the object is to be found: its offset so far counts from the storage's start.
 */
static int put_in_segment(struct gb_buffer *buffer, void *arg)
{
    const struct gb_placement *placement = arg;

    buffer->segment = placement->segment->id;
    buffer->offset += placement->offset;
    return 0;
}

/* Buffers without a byte lie in no segment: they are said to be in segment 0. */
static int put_nowhere(struct gb_buffer *buffer, void *arg)
{
    (void)arg;
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
    struct gb_segments segments = {0};
    int r = gb_segments_add(call, &segments, lease->object->storage, GB_ACCESS_WRITE, false);

    return r < 0 ? r : gb_call_grant(call, lease, &segments);
}

static int check_unsealed(struct gb_call *call)
{
    const struct gb_limits *limits = &call->server->config->limits;

    if (call->session->holder.count >= limits->session_leases)
        return gb_fail_limit(&call->error, "session_leases", (long long)limits->session_leases,
                             "leases of a session");
    if (call->session->unsealed >= limits->session_unsealed)
        return gb_fail_limit(&call->error, "session_unsealed", (long long)limits->session_unsealed,
                             "unsealed objects of a session");
    return 0;
}

/* The object with its write lease, over storage whose reference it takes in any case; the lease
   takes `unsealed` on success. */
static struct gb_lease *begin_object(struct gb_call *call, const struct create_params *params,
                                     const struct creation *creation, struct gb_storage *storage,
                                     struct gb_unsealed *unsealed)
{
    struct gb_registry *registry = &call->server->registry;
    const uint64_t no_version = 0;
    struct gb_object *object;
    struct gb_lease *lease = NULL;

    place_layout(&unsealed->layout, storage);
    object = gb_object_make(call, &params->name, storage, &unsealed->layout, creation->key.mode);
    if (!object)
        return NULL;
    object->evict = creation->evict;
    object->ttl_ms = (int64_t)params->ttl_ms;
    if (render(call, object, &unsealed->layout, &no_version) == 0 &&
        !(lease = gb_lease_new(registry, object, &call->session->holder, true, gb_now_ms())))
        gb_call_no_memory(call);
    if (!lease) {
        gb_object_discard(registry, object);
        return NULL;
    }
    lease->unsealed = unsealed;
    call->session->unsealed++;
    return lease;
}

static int create(struct gb_call *call, const struct create_params *params,
                  struct gb_unsealed **unsealed)
{
    struct creation creation;
    struct gb_storage *storage;
    struct gb_lease *lease;
    int r = check_creation(call, params, &creation);

    if (r == 0)
        r = read_layout(call, params, GB_LAYOUT_CREATE, &(*unsealed)->pool, &(*unsealed)->layout);
    if (r == 0)
        r = gb_layout_measure(&(*unsealed)->layout, &creation.total, &call->error);
    if (r == 0)
        r = check_unsealed(call);
    if (r == 0)
        r = gb_call_place(call, &creation.key, creation.total, &storage);
    if (r > 0)
        return gb_call_wait_space(call, creation.key.device, r, params->wait_ms);
    if (r < 0)
        return r;
    lease = begin_object(call, params, &creation, storage, *unsealed);
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

static int handle_create(struct gb_call *call, const void *p, uint64_t present)
{
    const struct create_params *params = p;
    struct gb_unsealed *unsealed = gb_unsealed_new(params->replace);
    int r;

    (void)present;
    if (!unsealed)
        return gb_call_no_memory(call);
    r = create(call, params, &unsealed);
    gb_unsealed_free(unsealed);
    return r;
}

const struct gb_method gb_method_create = {
    GB_METHOD_ROW("create", 0, create_fields, handle_create, struct create_params)};

/* ---- seal ---- */

struct seal_params {
    uint64_t lease;
    struct gb_json null_counts;
    struct gb_string ready;
    bool release;
};

static const struct gb_field seal_fields[] = {
    GB_FIELD(struct seal_params, lease, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
    GB_FIELD(struct seal_params, null_counts, GB_FIELD_OBJECT, 0, 0, 0),
    GB_FIELD(struct seal_params, release, GB_FIELD_BOOL, 0, 0, 0),
    GB_FIELD(struct seal_params, ready, GB_FIELD_STRING, 0, 0, 0),
};

/* The event that the writer's work passes: kept for readers, not looked into. */
static int read_ready(struct gb_call *call, const struct gb_string *text, char **ready)
{
    unsigned char handle[GB_IPC_BYTES];

    if (!text->text)
        return 0;
    if (gb_base64_decode(text->text, text->length, handle, sizeof(handle)) != GB_IPC_BYTES)
        return gb_fail_at(&call->error, GB_PARAM("ready"), "expected base64 of %d octets",
                          GB_IPC_BYTES);
    *ready = strdup(text->text);
    return *ready ? 0 : gb_call_no_memory(call);
}

/* A table's columns in the order of their names; a column's own, which has none. */
struct named_columns {
    struct gb_column **sorted;
    size_t count;
};

static int compare_names(const void *a, const void *b)
{
    const struct gb_column *const *left = a, *const *right = b;

    return strcmp((*left)->name, (*right)->name);
}

static int sort_names(const void *a, const void *b, void *pool)
{
    gb_pool_compared(pool);
    return compare_names(a, b);
}

static int sort_columns(struct gb_call *call, struct gb_layout *layout,
                        struct named_columns *columns)
{
    struct gb_column *table = &layout->column;

    columns->count = layout->kind == GB_KIND_TABLE ? table->child_count : 0;
    columns->sorted = gb_pool_alloc(call->pool, columns->count * sizeof(struct gb_column *));
    if (!columns->sorted)
        return gb_call_no_memory(call);
    for (size_t i = 0; i < columns->count; i++)
        columns->sorted[i] = &table->children[i];
    qsort_r(columns->sorted, columns->count, sizeof(struct gb_column *), sort_names, call->pool);
    return 0;
}

/* The column of a table by its name, or the column itself by "". */
static struct gb_column *find_column(struct gb_layout *layout, const struct named_columns *columns,
                                     const struct gb_string *name)
{
    const struct gb_column wanted = {.name = name->text}, *key = &wanted;
    struct gb_column **found;

    if (layout->kind == GB_KIND_COLUMN)
        return name->length == 0 ? &layout->column : NULL;
    found =
        bsearch(&key, columns->sorted, columns->count, sizeof(struct gb_column *), compare_names);
    return found ? *found : NULL;
}

/* Checks every count before it sets one: a seal that fails can be tried again. */
static int read_null_counts(struct gb_call *call, struct gb_json object, struct gb_layout *layout,
                            const struct named_columns *columns, bool set)
{
    struct gb_json_walk walk = gb_json_walk(object, call->pool);
    struct gb_json key, item;

    while (gb_json_next(&walk, &key, &item)) {
        /* The key with its quotes is a JSON string of its own. */
        struct gb_json quoted = {key.text - 1, key.length + 2};
        struct gb_path path = {.up = GB_PARAM("null_counts")};
        struct gb_column *column;
        struct gb_string name;
        int64_t count;

        if (gb_json_string(quoted, 0, &path, call->pool, &name, &call->error) < 0)
            return call->error.code;
        path.key = name.text;
        column = find_column(layout, columns, &name);
        if (!column)
            return gb_fail_at(&call->error, &path, "there is no such column");
        if (gb_json_int(item, -1, (int64_t)column->length, &path, &count, &call->error) < 0)
            return call->error.code;
        if (count > 0 && !column->mask.present && column->dtype.type != GB_TYPE_NULL &&
            column->dtype.type != GB_TYPE_DICTIONARY)
            return gb_fail_at(&call->error, &path, "the column has no mask, so no nulls");
        if (set)
            column->null_count = count;
    }
    return 0;
}

static int set_null_counts(struct gb_call *call, struct gb_json object, struct gb_layout *layout)
{
    struct named_columns columns;
    int r;

    gb_call_share(call, call->pool);
    r = sort_columns(call, layout, &columns);
    for (int set = 0; r == 0 && set < 2; set++)
        r = read_null_counts(call, object, layout, &columns, set);
    gb_call_alone(call->pool);
    return r;
}

static int find_write_lease(struct gb_call *call, uint64_t id, struct gb_lease **lease)
{
    int r = gb_call_lease(call, id, lease);

    if (r == 0 && !(*lease)->write)
        return gb_fail(&call->error, GPUBUF_E_BUSY, "lease %" PRIu64 " is on a sealed object", id);
    return r;
}

static int handle_seal(struct gb_call *call, const void *p, uint64_t present)
{
    const struct seal_params *params = p;
    struct gb_registry *registry = &call->server->registry;
    struct gb_unsealed *unsealed;
    struct gb_object *object;
    struct gb_lease *lease;
    struct gb_string name;
    uint64_t version;
    char *ready = NULL;
    int r = find_write_lease(call, params->lease, &lease);

    (void)present;
    if (r < 0)
        return r;
    object = lease->object;
    if (gb_call_check_lost(call, object->storage->device) < 0)
        return call->error.code;
    if (params->ready.text && object->storage->device->ops->is_host)
        return gb_fail_at(&call->error, GB_PARAM("ready"), "host memory has no events");
    unsealed = lease->unsealed;
    name = (struct gb_string){object->name, object->name_length};
    r = gb_object_check_name(call, &name, unsealed->replace);
    if (r == 0 && params->null_counts.text)
        r = set_null_counts(call, params->null_counts, &unsealed->layout);
    if (r == 0)
        r = render(call, object, &unsealed->layout, &registry->next_version);
    if (r == 0)
        r = gb_object_check_name(call, &name, unsealed->replace);
    if (r == 0)
        r = read_ready(call, &params->ready, &ready);
    if (r < 0)
        return r;
    object->ready = ready;
    r = gb_registry_publish(registry, object, unsealed->replace, gb_now_ms(), &call->error);
    if (r < 0) {
        free(ready);
        object->ready = NULL;
        return r;
    }
    if (ready) /* until it is settled nobody but this session can say that the work was done */
        goes_with(call->session, object);
    gb_lease_sealed(lease);
    call->session->unsealed--;
    version = object->version;
    if (params->release)
        gb_lease_end(registry, lease);
    gb_call_begin_result(call);
    GB_WRITE_LITERAL(call->writer, "{\"version\":");
    gb_write_uint(call->writer, version);
    gb_write_char(call->writer, '}');
    return GB_DONE;
}

const struct gb_method gb_method_seal = {
    GB_METHOD_ROW("seal", 0, seal_fields, handle_seal, struct seal_params)};

/* ---- settle ---- */

struct settle_params {
    struct gb_json objects;
};

static const struct gb_field settle_fields[] = {
    GB_FIELD(struct settle_params, objects, GB_FIELD_ARRAY, GB_FIELD_REQUIRED, 0, 0),
};

struct settled_object {
    struct gb_string name;
    uint64_t version;
};

/* What is no more, or was replaced, needs no settling any more. */
static struct gb_object *find_produced(struct gb_call *call, const struct settled_object *settled)
{
    struct gb_object *current =
        gb_registry_find(&call->server->registry, settled->name.text, settled->name.length);

    if (current && current->version == settled->version && current->ready &&
        current->producer == call->session->id)
        return current;
    GB_LIST_EACH(&call->session->produced, link) {
        struct gb_object *object = GB_CONTAINER(link, struct gb_object, of_producer);

        if (object->version == settled->version && object->ready &&
            strcmp(object->name, settled->name.text) == 0)
            return object;
    }
    return NULL;
}

static int handle_settle(struct gb_call *call, const void *p, uint64_t present)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct settled_object, name, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct settled_object, version, GB_FIELD_UINT, GB_FIELD_REQUIRED, 1, 0),
    };
    const struct settle_params *params = p;
    struct gb_json_walk walk = gb_json_walk(params->objects, call->pool);
    struct gb_json item;
    uint64_t index = 0;

    (void)present;
    for (; gb_json_next(&walk, NULL, &item); index++) {
        struct gb_path path = {.up = GB_PARAM("objects"), .index = index};
        struct settled_object settled = {0};
        struct gb_object *object;
        int r = gb_json_type(item) == GB_JSON_OBJECT
                    ? gb_json_read(item, fields, 2, GB_UNKNOWN_REFUSE, &path, call->pool, &settled,
                                   NULL, &call->error)
                    : gb_fail_at(&call->error, &path, "expected an object");

        if (r < 0)
            return r;
        object = find_produced(call, &settled);
        if (object)
            gb_object_settle(object);
    }
    return gb_call_empty(call);
}

const struct gb_method gb_method_settle = {
    GB_METHOD_ROW("settle", 0, settle_fields, handle_settle, struct settle_params)};

/* ---- abort ---- */

struct abort_params {
    uint64_t lease;
};

static const struct gb_field abort_fields[] = {
    GB_FIELD(struct abort_params, lease, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
};

static int handle_abort(struct gb_call *call, const void *p, uint64_t present)
{
    const struct abort_params *params = p;
    struct gb_lease *lease;
    int r = find_write_lease(call, params->lease, &lease);

    (void)present;
    if (r < 0)
        return r;
    gb_lease_end(&call->server->registry, lease);
    call->session->unsealed--;
    return gb_call_empty(call);
}

const struct gb_method gb_method_abort = {
    GB_METHOD_ROW("abort", 0, abort_fields, handle_abort, struct abort_params)};

/* ---- register ---- */

static const struct gb_field register_fields[] = {
    GB_FIELD(struct create_params, name, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
    GB_FIELD(struct create_params, layout, GB_FIELD_OBJECT, GB_FIELD_REQUIRED, 0, 0),
    GB_FIELD(struct create_params, handles, GB_FIELD_ARRAY, GB_FIELD_REQUIRED, 1, GB_LIMIT(fds)),
    GB_FIELD(struct create_params, device, GB_FIELD_STRING, 0, 0, 64),
    GB_FIELD(struct create_params, share, GB_FIELD_STRING, 0, 0, 0),
    GB_FIELD(struct create_params, mode, GB_FIELD_STRING, 0, 0, 0),
    GB_FIELD(struct create_params, replace, GB_FIELD_BOOL, 0, 0, 0),
    GB_FIELD(struct create_params, ttl_ms, GB_FIELD_UINT, 0, 0, 0),
    GB_FIELD(struct create_params, evict, GB_FIELD_STRING, 0, 0, 0),
    GB_FIELD(struct create_params, wait_ms, GB_FIELD_UINT, 0, 0, GB_LIMIT(wait_ms)),
};

/* The descriptor that a handle means; each of the message is to be meant once. -1: none. */
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

/* One kind for all, on one device: they make one object. */
static int read_handles(struct gb_call *call, struct gb_json array, struct gb_device *device,
                        struct gb_adoption *adoptions, uint64_t *bytes, unsigned *count)
{
    struct gb_json_walk walk = gb_json_walk(array, call->pool);
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
        if (gb_server_device(call->server, handle->device) != device)
            return gb_fail_at(&call->error, &path, "device: \"%.64s\" is not the object's, %s",
                              handle->device, device->id);
        if (handle->kind != adoptions[0].handle.kind)
            return gb_fail_at(&call->error, &path, "kind: the handles are to be of one kind");
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

static int handle_register(struct gb_call *call, const void *p, uint64_t present)
{
    const struct create_params *params = p;
    struct gb_adoption adoptions[GB_LIMIT(fds)];
    uint64_t bytes[GB_LIMIT(fds)];
    unsigned count;
    struct creation creation;
    struct gb_layout layout;
    struct gb_storage *storage;
    struct gb_object *object;
    int r = check_creation(call, params, &creation);

    (void)present;
    if (r == 0)
        r = read_layout(call, params, GB_LAYOUT_REGISTER, call->pool, &layout);
    if (r == 0)
        r = read_handles(call, params->handles, creation.key.device, adoptions, bytes, &count);
    if (r == 0)
        r = gb_layout_check_handles(&layout, bytes, count, GB_PARAM("layout"), &call->error);
    if (r == 0)
        r = gb_call_adopt(call, &creation.key, adoptions, count, &storage);
    if (r > 0)
        return gb_call_wait_space(call, creation.key.device, r, params->wait_ms);
    if (r < 0)
        return r;
    gb_layout_each(&layout, put_in_handle, storage);
    object = gb_object_make(call, &params->name, storage, &layout, creation.key.mode);
    if (!object)
        return call->error.code;
    object->by_session = true;
    if (storage->share == GB_SHARE_IPC)
        goes_with(call->session, object);
    object->evict = creation.evict;
    object->ttl_ms = (int64_t)params->ttl_ms;
    r = render(call, object, &layout, &call->server->registry.next_version);
    return gb_object_publish(call, object, r, params->replace);
}

const struct gb_method gb_method_register = {GB_METHOD_ROW(
    "register", GB_METHOD_FDS, register_fields, handle_register, struct create_params)};
