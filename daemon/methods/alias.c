/* alias: another name for all or a part of an object. */
#include <stdlib.h>
#include <string.h>

#include "daemon/methods/object.h"

struct alias_params {
    struct gb_string name, of, mode;
    struct gb_json slice, columns;
    bool replace;
};

static const struct gb_field alias_fields[] = {
    GB_FIELD(struct alias_params, name, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 0),
    GB_FIELD(struct alias_params, of, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, GB_LIMIT(name_bytes)),
    GB_FIELD(struct alias_params, slice, GB_FIELD_OBJECT, 0, 0, 0),
    GB_FIELD(struct alias_params, columns, GB_FIELD_ARRAY, 0, 0, GB_LIMIT(columns)),
    GB_FIELD(struct alias_params, mode, GB_FIELD_STRING, 0, 0, 0),
    GB_FIELD(struct alias_params, replace, GB_FIELD_BOOL, 0, 0, 0),
};

struct slice_params {
    uint64_t offset, length;
};

static int narrow_rows(struct gb_call *call, struct gb_json value, struct gb_layout *layout)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct slice_params, offset, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct slice_params, length, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
    };
    struct slice_params slice = {0};
    int r = gb_json_read(value, fields, 2, GB_UNKNOWN_REFUSE, GB_PARAM("slice"), call->pool, &slice,
                         NULL, &call->error);

    if (r < 0)
        return r;
    return gb_layout_slice(layout, slice.offset, slice.length, GB_PARAM("slice"), &call->error);
}

static int narrow_columns(struct gb_call *call, struct gb_json array, struct gb_layout *layout)
{
    struct gb_string *names = NULL;
    size_t count = 0;
    int r = gb_call_strings(call, array, "columns", &names, &count);

    if (r < 0)
        return r;
    return gb_layout_select(layout, names, count, GB_PARAM("columns"), call->pool, &call->error);
}

/* What an alias is made of: its source, the text of that one's layout, and of its own. */
struct aliased {
    struct gb_object *source;
    struct gb_layout layout;
    struct gb_writer writer;
    unsigned mode;
};

static int find_source(struct gb_call *call, const struct alias_params *params,
                       struct aliased *aliased)
{
    int r = gb_name_check(params->of.text, params->of.length, GB_PARAM("of"), &call->error);

    if (r == 0)
        r = gb_call_find(call, &params->of, &aliased->source);
    if (r < 0)
        return r;
    r = gb_call_mode(call, &params->mode, aliased->source->mode, &aliased->mode);
    /* Who opens the alias is given the source's segments, which others of its domain share: nobody
       may get there who could not open the source. */
    if (r == 0 && (aliased->mode & ~aliased->source->mode))
        r = gb_call_fail_name(call, GPUBUF_E_DENIED, &params->of,
                              "mode %04o gives more than the %04o of \"%s\"; an alias may only "
                              "narrow it",
                              aliased->mode, aliased->source->mode, params->of.text);
    return r;
}

static int narrow(struct gb_call *call, const struct alias_params *params, struct aliased *aliased)
{
    int r = gb_object_layout(aliased->source, GB_PARAM("of"), call->pool, &aliased->layout,
                             &call->error);

    if (r == 0 && params->columns.text)
        r = narrow_columns(call, params->columns, &aliased->layout);
    if (r == 0 && params->slice.text)
        r = narrow_rows(call, params->slice, &aliased->layout);
    gb_writer_reset(&aliased->writer);
    if (r == 0)
        gb_layout_write(&aliased->writer, &aliased->layout, GB_LAYOUT_REPLY, call->pool);
    return r;
}

/* The object, not rendered. */
static struct gb_object *make_alias(struct gb_call *call, const struct alias_params *params,
                                    struct aliased *aliased)
{
    struct gb_object *source = aliased->source;
    struct gb_object *object = gb_object_make(call, &params->name, gb_storage_ref(source->storage),
                                              &aliased->layout, aliased->mode);

    if (!object)
        return NULL;
    object->gid = source->gid; /* its mode speaks of that group */
    if (source->ready && !(object->ready = strdup(source->ready))) {
        gb_object_discard(&call->server->registry, object);
        gb_call_no_memory(call);
        return NULL;
    }
    if (gb_list_linked(&source->of_producer)) { /* it ends with the same session */
        gb_list_append(&source->of_producer, &object->of_producer);
        object->producer = source->producer;
    }
    object->by_session = source->by_session;
    /* Who may only read the source cannot keep its memory from being evicted. */
    object->evict = source->evict == GB_EVICT_KEEP && !gb_session_may_change(call->session, source)
                        ? GB_EVICT_SPILL
                        : source->evict;
    return object;
}

/* They are one record of the journal, written with each change of one of them. */
static int check_text(struct gb_call *call, const struct gb_object *object)
{
    uint64_t total = 0;

    GB_LIST_EACH(&object->storage->objects, link) {
        const struct gb_object *other = GB_CONTAINER(link, struct gb_object, of_storage);

        total += other->text_length + other->name_length;
    }
    if (total <= GB_LIMIT(alias_text))
        return 0;
    return gb_fail_limit(&call->error, "alias_text", GB_LIMIT(alias_text),
                         "bytes of what is told of an object and all its aliases");
}

static int handle_alias(struct gb_call *call, const void *p, uint64_t present)
{
    const struct alias_params *params = p;
    struct aliased aliased = {.mode = 0};
    struct gb_object *object = NULL;
    int r = gb_object_check_name(call, &params->name, params->replace);

    (void)present;
    gb_writer_init(&aliased.writer, 0);
    if (r == 0)
        r = find_source(call, params, &aliased);
    if (r == 0)
        r = narrow(call, params, &aliased);
    if (r == 0 && !(object = make_alias(call, params, &aliased)))
        r = call->error.code;
    if (r == 0) {
        r = gb_object_render(object, &aliased.writer, call->server->registry.next_version,
                             &call->error);
        if (r == 0)
            r = check_text(call, object);
        r = gb_object_publish(call, object, r, params->replace);
    }
    gb_writer_end(&aliased.writer);
    return r;
}

const struct gb_method gb_method_alias = {
    GB_METHOD_ROW("alias", 0, alias_fields, handle_alias, struct alias_params)};
