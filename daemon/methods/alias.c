/* alias: another name for all or a part of an object. */
#include <stdlib.h>
#include <string.h>

#include "daemon/methods/object.h"
#include "daemon/methods/space.h"
#include "daemon/methods/task.h"
#include "daemon/objects/text.h"

struct alias_params {
    struct gb_string name, of, mode, label, scope;
    struct gb_json slice, columns;
    uint64_t keep;
    bool replace;
};

static const struct gb_field alias_fields[] = {
    GB_FIELD(struct alias_params, name, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
    GB_FIELD(struct alias_params, of, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, GB_LIMIT(name_bytes)),
    GB_FIELD(struct alias_params, slice, GB_FIELD_OBJECT, 0, 0, 0),
    GB_FIELD(struct alias_params, columns, GB_FIELD_ARRAY, 0, 0, GB_LIMIT(columns)),
    GB_FIELD(struct alias_params, mode, GB_FIELD_STRING, 0, 0, 0),
    GB_FIELD(struct alias_params, replace, GB_FIELD_BOOL, 0, 0, 0),
    GB_TITLE_FIELDS(struct alias_params),
    GB_FIELD(struct alias_params, scope, GB_FIELD_STRING, 0, 0, 0),
};

struct slice_params {
    uint64_t offset, length;
};

static int narrow_rows(struct gb_json value, struct gb_pool *pool, struct gb_layout *layout,
                       struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct slice_params, offset, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct slice_params, length, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
    };
    struct slice_params slice = {0};
    int r = gb_json_read(value, fields, 2, GB_UNKNOWN_REFUSE, GB_PARAM("slice"), pool, &slice, NULL,
                         error);

    if (r < 0)
        return r;
    return gb_layout_slice(layout, slice.offset, slice.length, GB_PARAM("slice"), error);
}

static int narrow_columns(struct gb_json array, struct gb_pool *pool, struct gb_layout *layout,
                          struct gb_error *error)
{
    struct gb_string *names = NULL;
    size_t count = 0;
    int r = gb_json_strings(array, GB_PARAM("columns"), pool, &names, &count, error);

    if (r < 0)
        return r;
    return gb_layout_select(layout, names, count, GB_PARAM("columns"), pool, error);
}

/* The state of making an alias. */
struct aliasing {
    uint64_t version; /* of the source */
    char *text;       /* of the source's layout, in the pool */
    size_t length;
    struct gb_layout layout; /* of the alias */
};

static int find_source(struct gb_call *call, const struct alias_params *params,
                       struct gb_object **source, unsigned *mode)
{
    int r = gb_name_check(params->of.text, params->of.length, GB_PARAM("of"), &call->error);

    if (r == 0)
        r = gb_call_find(call, &params->of, source);
    if (r == 0 && gb_object_is_live(*source))
        r = gb_call_fail_name(call, GPUBUF_E_UNSUPPORTED, &params->of,
                              "\"%s\" is live, and an alias is of content that does not change",
                              params->of.text);
    if (r < 0)
        return r;
    r = gb_call_mode(call, &params->mode, (*source)->mode, mode);
    /* Opening the alias gives out the source's segments, with other objects of the source's domain
       in them. So only clients that may open the source may open the alias. */
    if (r == 0 && (*mode & ~(*source)->mode))
        r = gb_call_fail_name(call, GPUBUF_E_DENIED, &params->of,
                              "mode %04o gives more than the %04o of \"%s\"; an alias may only "
                              "narrow it",
                              *mode, (*source)->mode, params->of.text);
    return r;
}

/* Reads the source's layout, narrows and writes it; on the loop's thread or the worker's. */
static int narrow(const struct alias_params *params, struct aliasing *aliasing,
                  struct gb_pool *pool, struct gb_writer *text, struct gb_error *error)
{
    struct gb_layout *layout = &aliasing->layout;
    int r = gb_layout_parse(aliasing->text, aliasing->length, GB_PARAM("of"), pool, layout, error);

    if (r == 0 && params->columns.text)
        r = narrow_columns(params->columns, pool, layout, error);
    if (r == 0 && params->slice.text)
        r = narrow_rows(params->slice, pool, layout, error);
    gb_writer_reset(text);
    if (r == 0)
        gb_layout_write(text, layout, GB_LAYOUT_REPLY);
    return r;
}

/* Makes the object, which is not rendered yet. */
static struct gb_object *make_alias(struct gb_call *call, const struct alias_params *params,
                                    struct gb_object *source, unsigned mode,
                                    struct gb_layout *layout)
{
    struct gb_object *object;

    if (gb_stake_may_name(source->storage, call->session->user, &call->error) < 0)
        return NULL;
    object = gb_object_make(call, &params->name, gb_storage_ref(source->storage), layout, mode);
    if (!object)
        return NULL;
    object->gid = source->gid; /* the mode is about that group */
    if (source->ready && !(object->ready = strdup(source->ready))) {
        gb_object_discard(&call->server->registry, object);
        gb_call_no_memory(call);
        return NULL;
    }
    if (gb_list_linked(&source->produced.link)) { /* it ends with the same session */
        gb_list_append(&source->produced.link, &object->produced.link);
        object->produced.session = source->produced.session;
    }
    object->by_session = source->by_session;
    /* A user who may only read an object with evict=keep must not make its memory stay longer than
       that object. */
    object->evict = source->evict == GB_EVICT_KEEP && !gb_session_may_change(call->session, source)
                        ? GB_EVICT_DROP
                        : source->evict;
    return object;
}

/* Bounds the text of an object and its aliases: every change of one rewrites the journal record of
   all. */
static int check_text(struct gb_call *call, const struct gb_object *object)
{
    if (object->storage->text <= GB_LIMIT(alias_text))
        return 0;
    return gb_fail_limit(&call->error, "alias_text", GB_LIMIT(alias_text),
                         "bytes of text of an object and all its aliases");
}

static int finish(struct gb_call *call, const struct alias_params *params, struct gb_object *source,
                  unsigned mode, struct aliasing *aliasing)
{
    struct gb_object *object = make_alias(call, params, source, mode, &aliasing->layout);
    int r;

    if (!object)
        return call->error.code;
    r = gb_object_title(call, object, &params->label, params->keep, &params->scope);
    if (r == 0)
        r = gb_object_render(object, call->layout, call->server->registry.next_version, call->text,
                             &call->error);
    if (r == 0)
        r = check_text(call, object);
    return gb_object_publish(call, object, r, params->replace);
}

static int copy_source(struct gb_call *call, const struct gb_object *source,
                       struct aliasing *aliasing)
{
    aliasing->version = source->version;
    aliasing->text = gb_object_copy_layout(source, call->pool, &aliasing->length);
    return aliasing->text ? 0 : gb_call_no_memory(call);
}

static void work(struct gb_task *task)
{
    task->r = narrow(task->message.params, task->state, &task->pool, &task->layout, &task->error);
    gb_task_make_room(task);
}

/* Whether the source is still the version that was read, in the same place. */
static bool is_same(const struct gb_object *source, const struct aliasing *aliasing)
{
    return source->version == aliasing->version &&
           gb_object_has_layout(source, aliasing->text, aliasing->length);
}

/* The worker has read and written the layouts. */
static int end_alias(struct gb_call *call, void *state)
{
    const struct alias_params *params = call->message->params;
    struct gb_task *task = call->task;
    struct aliasing *aliasing = state;
    struct gb_object *source;
    unsigned mode;
    int r = gb_object_check_name(call, &params->name, params->replace);

    if (r == 0)
        r = find_source(call, params, &source, &mode);
    if (r < 0)
        return r;
    if (!is_same(source, aliasing)) {
        r = copy_source(call, source, aliasing);
        return r < 0 ? r : gb_call_continue(call, work, end_alias, aliasing);
    }
    if (task->r < 0) {
        call->error = task->error;
        return task->r;
    }
    return finish(call, params, source, mode, aliasing);
}

static int handle_alias(struct gb_call *call, const void *p)
{
    const struct alias_params *params = p;
    struct aliasing *aliasing;
    struct gb_object *source = NULL;
    struct gb_demand demand = {.device = NULL};
    unsigned mode = 0;
    int r = gb_object_check_name(call, &params->name, params->replace);

    if (r == 0)
        r = find_source(call, params, &source, &mode);
    if (r < 0)
        return r;
    demand.device = source->storage->key.device;
    r = gb_call_quota_outcome(
        call, demand.device, gb_stake_may_name(source->storage, call->session->user, &call->error));
    if (r != 0)
        return r < 0 ? r : gb_call_wait_space(call, &demand, r, 0);
    if (!call->task && source->text_length > GB_TASK_BYTES)
        return gb_call_as_task(call);
    aliasing = gb_pool_calloc(call->pool, 1, sizeof(*aliasing));
    if (!aliasing)
        return gb_call_no_memory(call);
    r = copy_source(call, source, aliasing);
    if (r < 0)
        return r;
    if (call->task)
        return gb_call_continue(call, work, end_alias, aliasing);
    r = narrow(params, aliasing, call->pool, call->layout, &call->error);
    return r < 0 ? r : finish(call, params, source, mode, aliasing);
}

const struct gb_method gb_method_alias = {
    GB_METHOD_ROW("alias", GB_METHOD_LONG, alias_fields, handle_alias, struct alias_params)};
