#include "daemon/methods/object.h"

#include <stdio.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/methods/live.h"
#include "daemon/methods/space.h"
#include "daemon/methods/task.h"
#include "daemon/objects/text.h"

int gb_object_check_name(struct gb_call *call, const struct gb_string *name, bool replace)
{
    const struct gb_object *former;
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
                                 "\"%s\" exists; set replace to take its name", name->text);
    return 0;
}

static int check_share(struct gb_call *call, const struct gb_string *share,
                       struct gb_domain_key *key)
{
    static const char *const names[] = {"fd", "ipc", NULL};
    int r = gb_call_choose(call, "share", share, 0, names);

    if (r < 0)
        return r;
    key->share = r ? GB_SHARE_IPC : GB_SHARE_FD;
    if (gb_call_check_lost(call, key->device) < 0)
        return call->error.code;
    if (!key->device->ops->can_share(key->device, key->share))
        return gb_fail(&call->error, GPUBUF_E_UNSUPPORTED,
                       "device %s cannot share by \"%s\"; hello says what it can", key->device->id,
                       key->share == GB_SHARE_IPC ? "ipc" : "fd");
    return 0;
}

/* Memory of a GPU cannot be final: whoever has its descriptor can write it for ever. */
static int check_final(struct gb_call *call, bool final, struct gb_domain_key *key)
{
    key->final = final;
    if (!final || key->device->ops->create_final)
        return 0;
    return gb_fail(&call->error, GPUBUF_E_UNSUPPORTED,
                   "memory of %s cannot be final: whoever has its descriptor can write it, and "
                   "nothing can take that away",
                   key->device->id);
}

static int read_evict(struct gb_call *call, const struct gb_string *text, enum gb_evict *evict)
{
    int r = gb_call_choose(call, "evict", text, (int)call->server->evict, gb_evict_names);

    if (r >= 0)
        *evict = (enum gb_evict)r;
    return r < 0 ? r : 0;
}

static int check_params(struct gb_call *call, const struct gb_create_params *params,
                        struct gb_creation *creation)
{
    int r = gb_object_check_name(call, &params->name, params->replace);

    if (r == 0)
        r = gb_call_device(call, &params->device, &creation->key.device);
    if (r == 0)
        r = check_share(call, &params->share, &creation->key);
    if (r == 0)
        r = check_final(call, params->final, &creation->key);
    if (r == 0)
        r = gb_live_check(call, params);
    if (r == 0)
        r = gb_call_mode(call, &params->mode, 0600, &creation->key.mode);
    if (r == 0)
        r = read_evict(call, &params->evict, &creation->evict);
    if (r == 0)
        r = gb_call_check_label(call, &params->label);
    creation->key.live = params->live;
    creation->key.uid = call->session->user->uid;
    creation->key.gid = call->session->gid;
    creation->demand.placing.key = &creation->key;
    return r;
}

int gb_creation_read(const struct gb_message *message, struct gb_unsealed **out,
                     struct gb_error *error)
{
    const struct gb_create_params *params = message->params;
    struct gb_unsealed *unsealed = gb_unsealed_new(params->replace);
    int r;

    if (!unsealed)
        return gb_fail_memory(error);
    r = gb_layout_read(params->layout, params->handles.text ? GB_LAYOUT_REGISTER : GB_LAYOUT_CREATE,
                       GB_PARAM("layout"), &unsealed->pool, &unsealed->layout, error);
    if (r < 0)
        gb_unsealed_free(unsealed);
    else
        *out = unsealed;
    return r;
}

int gb_creation_begin(struct gb_call *call, struct gb_creation *creation,
                      struct gb_unsealed **unsealed)
{
    const struct gb_task *task = call->task;
    int r = check_params(call, call->message->params, creation);

    if (r < 0)
        return r;
    if (!task)
        return gb_creation_read(call->message, unsealed, &call->error);
    *unsealed = task->unsealed;
    if (task->r < 0)
        call->error = task->error;
    return task->r;
}

/* Writes the layout of a task, on the worker's thread. */
static void write_layout(struct gb_task *task)
{
    gb_writer_reset(&task->layout);
    gb_layout_write(&task->layout, &task->unsealed->layout, GB_LAYOUT_REPLY);
    gb_task_make_room(task);
}

/* Makes the object of the storage, whose reference it takes in any case. Its layout is written. */
static int make(struct gb_call *call, const struct gb_creation *creation,
                struct gb_storage *storage, struct gb_unsealed **unsealed)
{
    const struct gb_create_params *params = call->message->params;
    struct gb_registry *registry = &call->server->registry;
    struct gb_object *object =
        gb_object_make(call, &params->name, storage, &(*unsealed)->layout, creation->key.mode);
    int r;

    if (!object)
        return call->error.code;
    object->evict = creation->evict;
    object->ttl_ms = (int64_t)params->ttl_ms;
    object->by_session = creation->demand.placing.adoptions != NULL;
    r = gb_object_set_note(object, &params->note, &call->error);
    if (r == 0)
        r = gb_object_title(call, object, &params->label, params->keep, &params->scope);
    if (r == 0)
        r = gb_object_render(object, call->layout, creation->named ? registry->next_version : 0,
                             call->text, &call->error);
    if (r == 0)
        return creation->make(call, object, unsealed);
    gb_object_discard(registry, object);
    return r;
}

/* Goes on with a task when the worker has written the layout. */
static int end_creation(struct gb_call *call, void *state)
{
    const struct gb_create_params *params = call->message->params;
    const struct gb_creation *creation = state;
    struct gb_task *task = call->task;
    struct gb_storage *storage = task->storage;
    int r = gb_object_check_name(call, &params->name, params->replace);

    if (r == 0)
        r = gb_call_check_lost(call, creation->key.device);
    if (r < 0)
        return r;
    task->storage = NULL;
    return make(call, creation, storage, &task->unsealed);
}

static int finish_layout(struct gb_call *call, const struct gb_creation *creation,
                         struct gb_unsealed **unsealed)
{
    struct gb_storage *storage = creation->demand.placing.storage;
    struct gb_creation *kept;

    if (!call->task) {
        gb_writer_reset(call->layout);
        gb_layout_write(call->layout, &(*unsealed)->layout, GB_LAYOUT_REPLY);
        return make(call, creation, storage, unsealed);
    }
    call->task->storage = storage;
    kept = gb_pool_alloc(call->pool, sizeof(*kept));
    if (!kept)
        return gb_call_no_memory(call);
    *kept = *creation;
    return gb_call_continue(call, write_layout, end_creation, kept);
}

int gb_creation_end(struct gb_call *call, const struct gb_creation *creation, int placed,
                    struct gb_unsealed *unsealed)
{
    const struct gb_create_params *params = call->message->params;
    int r = placed;

    if (r == 0)
        r = finish_layout(call, creation, &unsealed);
    else if (r > 0)
        r = gb_call_wait_space(call, &creation->demand, r, params->wait_ms);
    if (!call->task)
        gb_unsealed_free(unsealed);
    return r;
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
        gb_user_may_have(user, GB_QUOTA_TEXT, NULL, name->length, &call->error) == 0 &&
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
    gb_object_note_place(object, layout);
    return object;
}

int gb_object_title(struct gb_call *call, struct gb_object *object, const struct gb_string *label,
                    uint64_t keep, const struct gb_string *scope)
{
    static const char *const scopes[] = {"local", "cluster", NULL};
    struct gb_string json;
    int r = gb_call_label(call, label, &json);

    if (r == 0)
        r = gb_call_choose(call, "scope", scope, 0, scopes);
    if (r >= 0) {
        object->label = json;
        object->keep = (unsigned)keep;
        object->cluster = r;
    }
    return r < 0 ? r : 0;
}

void gb_object_goes_with(struct gb_session *session, struct gb_object *object)
{
    gb_list_append(&session->produced, &object->produced.link);
    object->produced.session = session->id;
}

int gb_object_publish(struct gb_call *call, struct gb_object *object, int r, bool replace)
{
    struct gb_registry *registry = &call->server->registry;

    if (r == 0)
        r = gb_registry_publish(registry, object, replace, gb_now_ms(), &call->error);
    if (r < 0) {
        gb_object_discard(registry, object);
        return r;
    }
    return gb_call_version(call, object->version);
}
