/* seal: ends the writing of an object. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/methods/object.h"
#include "daemon/methods/task.h"
#include "daemon/objects/text.h"

/* ---- seal ---- */

struct seal_params {
    uint64_t lease;
    struct gb_json null_counts;
    struct gb_string ready, label;
    uint64_t keep;
    bool release;
};

static const struct gb_field seal_fields[] = {
    GB_FIELD(struct seal_params, lease, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
    GB_FIELD(struct seal_params, null_counts, GB_FIELD_OBJECT, 0, 0, 0),
    GB_FIELD(struct seal_params, release, GB_FIELD_BOOL, 0, 0, 0),
    GB_FIELD(struct seal_params, ready, GB_FIELD_STRING, 0, 0, 0),
    GB_TITLE_FIELDS(struct seal_params),
};
enum { HAS_KEEP = 1 << 5 }; /* among the fields that are present */

/* Reads the handle of the event that the writer's work on the GPU passes. It is kept for readers;
   the daemon does not open it. */
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

/* A table's columns in the order of their names; empty for other layouts. */
struct named_columns {
    struct gb_column **sorted;
    size_t count;
};

static int compare_names(const void *a, const void *b)
{
    const struct gb_column *const *left = a, *const *right = b;

    return strcmp((*left)->name, (*right)->name);
}

static int sort_columns(struct gb_layout *layout, struct gb_pool *pool,
                        struct named_columns *columns, struct gb_error *error)
{
    struct gb_column *table = &layout->column;

    columns->count = layout->kind == GB_KIND_TABLE ? table->child_count : 0;
    columns->sorted = gb_pool_alloc(pool, columns->count * sizeof(struct gb_column *));
    if (!columns->sorted)
        return gb_fail_memory(error);
    for (size_t i = 0; i < columns->count; i++)
        columns->sorted[i] = &table->children[i];
    qsort(columns->sorted, columns->count, sizeof(struct gb_column *), compare_names);
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

/* Checks the null counts, and sets them if `set`. All are checked before one is set, so that a seal
   that fails can be tried again. */
static int read_null_counts(struct gb_json object, struct gb_pool *pool, struct gb_layout *layout,
                            const struct named_columns *columns, bool set, struct gb_error *error)
{
    struct gb_json_walk walk = gb_json_walk(object);
    struct gb_json key, item;

    while (gb_json_next(&walk, &key, &item)) {
        struct gb_path path = {.up = GB_PARAM("null_counts")};
        struct gb_column *column;
        struct gb_string name;
        int64_t count, former;
        int r = gb_json_string(key, 0, &path, pool, &name, error);

        if (r < 0)
            return r;
        path.key = name.text;
        column = find_column(layout, columns, &name);
        if (!column)
            return gb_fail_at(error, &path, "there is no such column");
        former = column->null_count;
        r = gb_json_int(item, -1, GB_LIMIT(integer), &path, &count, error);
        if (r == 0)
            r = gb_column_count_nulls(column, count, &path, error);
        if (r < 0)
            return r;
        if (!set)
            column->null_count = former;
    }
    return 0;
}

static int set_null_counts(struct gb_json object, struct gb_pool *pool, struct gb_layout *layout,
                           struct gb_error *error)
{
    struct named_columns columns;
    int r = sort_columns(layout, pool, &columns, error);

    for (int set = 0; r == 0 && set < 2; set++)
        r = read_null_counts(object, pool, layout, &columns, set, error);
    return r;
}

/* Whether the producer has sealed a final object's memory. The kernel refuses F_SEAL_WRITE as long
   as any process maps the memory for writing. */
static int check_final(struct gb_call *call, const struct gb_object *object)
{
    const struct gb_storage *storage = object->storage;

    if (!storage->key.final || storage->size == 0 || gb_storage_is_final(storage))
        return 0;
    return gb_fail(&call->error, GPUBUF_E_BUSY,
                   "\"%s\" is to be final, and its memory can still be written: unmap it, then "
                   "fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE)",
                   object->name);
}

/* Finds the lease, and checks everything but the null counts. */
static int find_sealable(struct gb_call *call, const struct seal_params *params,
                         struct gb_lease **lease)
{
    struct gb_object *object;
    struct gb_string name;
    int r = gb_call_lease(call, params->lease, lease);

    if (r == 0 && (*lease)->object->version > 0)
        r = gb_fail(&call->error, GPUBUF_E_BUSY, "lease %" PRIu64 " is on a %s object",
                    params->lease, gb_object_is_live((*lease)->object) ? "live" : "sealed");
    if (r < 0)
        return r;
    object = (*lease)->object;
    if (gb_call_check_lost(call, object->storage->key.device) < 0)
        return call->error.code;
    if (params->ready.text && object->storage->key.device->ops->is_host)
        return gb_fail_at(&call->error, GB_PARAM("ready"), "host memory has no events");
    r = check_final(call, object);
    name = (struct gb_string){object->name, object->name_length};
    return r < 0 ? r : gb_object_check_name(call, &name, (*lease)->unsealed->replace);
}

/* Sets the title that the request gives, in place of that of `create`. */
static int retitle(struct gb_call *call, const struct seal_params *params, struct gb_object *object)
{
    struct gb_string label = object->label;
    int r = params->label.text ? gb_call_label(call, &params->label, &label) : 0;

    if (r == 0)
        object->label = label;
    if (r == 0 && (call->message->present & HAS_KEEP))
        object->keep = (unsigned)params->keep;
    return r;
}

/* Gives the object, which is rendered, its name. */
static int publish(struct gb_call *call, const struct seal_params *params, struct gb_lease *lease)
{
    struct gb_registry *registry = &call->server->registry;
    struct gb_object *object = lease->object;
    uint64_t version;
    char *ready = NULL;
    int r = read_ready(call, &params->ready, &ready);

    if (r < 0)
        return r;
    object->ready = ready;
    r = gb_registry_publish(registry, object, lease->unsealed->replace, gb_now_ms(), &call->error);
    if (r < 0) {
        free(ready);
        object->ready = NULL;
        return r;
    }
    if (ready) /* until it is settled, only this session can say that the work is done */
        gb_object_goes_with(call->session, object);
    gb_lease_sealed(registry, lease);
    version = object->version;
    if (params->release)
        gb_lease_end(registry, lease);
    return gb_call_version(call, version);
}

/* Sets the null counts and writes the layout; on the loop's thread or the worker's. */
static int count_and_write(struct gb_json counts, struct gb_pool *pool, struct gb_layout *layout,
                           struct gb_writer *text, struct gb_error *error)
{
    int r = set_null_counts(counts, pool, layout, error);

    gb_writer_reset(text);
    if (r == 0)
        gb_layout_write(text, layout, GB_LAYOUT_REPLY);
    return r;
}

static void work(struct gb_task *task)
{
    const struct seal_params *params = task->message.params;

    task->r = count_and_write(params->null_counts, &task->pool, &task->unsealed->layout,
                              &task->layout, &task->error);
    gb_task_make_room(task);
}

/* Publishes the object, whose layout with the counts is written. */
static int end_counted(struct gb_call *call, const struct seal_params *params,
                       struct gb_lease *lease)
{
    int r = retitle(call, params, lease->object);

    if (r == 0)
        r = gb_object_render(lease->object, call->layout, call->server->registry.next_version,
                             call->text, &call->error);
    return r < 0 ? r : publish(call, params, lease);
}

/* Goes on with a task when the worker has written the layout with the counts. */
static int end_seal(struct gb_call *call, void *state)
{
    const struct seal_params *params = call->message->params;
    struct gb_task *task = call->task;
    struct gb_lease *lease = state;
    int r;

    lease->unsealed = task->unsealed; /* the lease exists: its session has served nothing else */
    task->unsealed = NULL;
    if (task->r < 0) {
        call->error = task->error;
        return task->r;
    }
    r = find_sealable(call, params, &lease);
    return r < 0 ? r : end_counted(call, params, lease);
}

/* Seals with null counts, for which the layout is written anew. */
static int seal_with_counts(struct gb_call *call, const struct seal_params *params,
                            struct gb_lease *lease)
{
    int r;

    if (call->task) {
        call->task->unsealed = lease->unsealed; /* the worker's, even if the session ends */
        lease->unsealed = NULL;
        return gb_call_continue(call, work, end_seal, lease);
    }
    if (lease->object->text_length > GB_TASK_BYTES)
        return gb_call_as_task(call);
    r = count_and_write(params->null_counts, call->pool, &lease->unsealed->layout, call->layout,
                        &call->error);
    return r < 0 ? r : end_counted(call, params, lease);
}

static int handle_seal(struct gb_call *call, const void *p)
{
    const struct seal_params *params = p;
    struct gb_lease *lease;
    int r = find_sealable(call, params, &lease);

    if (r < 0)
        return r;
    if (params->null_counts.text)
        return seal_with_counts(call, params, lease);
    r = retitle(call, params, lease->object);
    if (r == 0)
        r = gb_object_set_version(lease->object, call->server->registry.next_version,
                                  params->label.text || (call->message->present & HAS_KEEP),
                                  &call->error);
    return r < 0 ? r : publish(call, params, lease);
}

const struct gb_method gb_method_seal = {GB_METHOD_ROW(
    "seal", GB_METHOD_LONG | GB_METHOD_KEEPS, seal_fields, handle_seal, struct seal_params)};
