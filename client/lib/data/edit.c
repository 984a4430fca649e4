/*
 * gpubuf_edit: a copy of a sealed object on its own device, to be written and sealed in its place.
 * Buffers are copied as they are. An array whose elements lie in another order is put in C order,
 * which is what can be created.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/data/arrow_export.h"
#include "client/lib/objects/copy.h"
#include "client/lib/objects/create.h"
#include "client/lib/objects/object.h"
#include "client/lib/objects/open.h"
#include "client/lib/objects/put.h"
#include "client/lib/wire/call.h"
#include "client/lib/wire/report.h"
#include "client/lib/wire/wait.h"

enum { TRIES = 16 }; /* of opening what is replaced again and again */

/* ---- what the object was created with ---- */

struct origin {
    struct gb_string mode, evict, scope, share;
    uint64_t keep, ttl_ms;
    bool final, own;
};

struct stat_members {
    struct gb_json object;
};

static enum gpubuf_evict evict_of(const struct gb_string *text)
{
    static const char *const names[] = {
        [GPUBUF_EVICT_SPILL] = "spill", [GPUBUF_EVICT_DROP] = "drop", [GPUBUF_EVICT_KEEP] = "keep"};

    for (int i = GPUBUF_EVICT_SPILL; i <= GPUBUF_EVICT_KEEP; i++)
        if (text->text && strcmp(text->text, names[i]) == 0)
            return (enum gpubuf_evict)i;
    return GPUBUF_EVICT_DEFAULT;
}

static int read_origin(struct gb_json result, struct gb_pool *pool, void *out,
                       struct gb_error *error)
{
    static const struct gb_field outer[] = {
        GB_FIELD(struct stat_members, object, GB_FIELD_OBJECT, GB_FIELD_REQUIRED, 0, 0),
    };
    static const struct gb_field fields[] = {
        GB_FIELD(struct origin, mode, GB_FIELD_STRING, GB_FIELD_REQUIRED, 0, 8),
        GB_FIELD(struct origin, evict, GB_FIELD_STRING, 0, 0, 8),
        GB_FIELD(struct origin, scope, GB_FIELD_STRING, 0, 0, 0),
        GB_FIELD(struct origin, share, GB_FIELD_STRING, 0, 0, 8),
        GB_FIELD(struct origin, keep, GB_FIELD_UINT, 0, 0, GB_LIMIT(keep)),
        GB_FIELD(struct origin, ttl_ms, GB_FIELD_UINT, 0, 0, 0),
        GB_FIELD(struct origin, final, GB_FIELD_BOOL, 0, 0, 0),
        GB_FIELD(struct origin, own, GB_FIELD_BOOL, 0, 0, 0),
    };
    struct gpubuf_create_options *options = out;
    struct stat_members members;
    struct origin origin = {.keep = 0};
    struct gb_path path = {.key = "object"};
    int r = gb_json_read(result, outer, 1, GB_UNKNOWN_IGNORE, &path, pool, &members, NULL, error);

    if (r == 0)
        r = gb_json_read(members.object, fields, sizeof(fields) / sizeof(fields[0]),
                         GB_UNKNOWN_IGNORE, &path, pool, &origin, NULL, error);
    if (r < 0)
        return r;
    options->mode = (unsigned)strtoul(origin.mode.text, NULL, 8) & 0777;
    options->evict = evict_of(&origin.evict);
    options->keep = (unsigned)origin.keep;
    options->ttl_ms = (int64_t)origin.ttl_ms;
    options->final = origin.final;
    options->own = origin.own;
    if (origin.scope.text && strcmp(origin.scope.text, "cluster") == 0)
        options->scope = GPUBUF_SCOPE_CLUSTER;
    options->share = origin.share.text && strcmp(origin.share.text, "ipc") == 0 ? "ipc" : "fd";
    return 0;
}

static void write_which(struct gb_writer *writer, const void *arg)
{
    const struct gb_client_lease *lease = arg;

    GB_WRITE_LITERAL(writer, "{\"name\":");
    gb_write_cstring(writer, lease->name);
    gb_write_format(writer, ",\"version\":%" PRIu64 "}", atomic_load(&lease->version));
}

/* ---- opening ---- */

static int check_origin(const struct gpubuf_object *from)
{
    const struct gb_client_lease *lease = from->lease;

    if (!lease->access.live)
        return 0;
    return gb_report_text(lease->client, GPUBUF_E_UNSUPPORTED,
                          "%s is live, and has no next version: open it for writing", lease->name);
}

/* Opens the version and asks what it was created with. GPUBUF_E_STALE: it went in between. */
static int open_once(struct gpubuf_client *client, const char *name,
                     const struct gpubuf_open_options *options, struct gpubuf_create_options *like,
                     struct gpubuf_object **out)
{
    struct gpubuf_object *from;
    int r = gpubuf_open(client, name, options, &from);

    if (r < 0)
        return r;
    r = check_origin(from);
    if (r == 0)
        r = gb_call_read(client, "stat", write_which, from->lease, gb_answer_timeout(client, 0),
                         read_origin, like);
    if (r == 0)
        r = gpubuf_wait_ready(from, NULL);
    if (r < 0)
        gpubuf_release(from);
    else
        *out = from;
    return r;
}

/* ---- the layout to create ---- */

/* A copy of children that may be changed: what is written may have other nulls. */
static int forget_counts(struct gb_pool *pool, struct gb_column *column)
{
    if (column->dtype.type != GB_TYPE_NULL)
        column->null_count = -1;
    if (column->child_count == 0)
        return 0;
    struct gb_column *children = gb_pool_calloc(pool, column->child_count, sizeof(*children));
    if (!children)
        return GPUBUF_E_NO_MEMORY;
    memcpy(children, column->children, column->child_count * sizeof(*children));
    column->children = children;
    for (uint32_t i = 0; i < column->child_count; i++) {
        if (forget_counts(pool, &children[i]) < 0)
            return GPUBUF_E_NO_MEMORY;
    }
    return 0;
}

static void make_dense(struct gb_layout *array)
{
    uint64_t ignored;

    array->c_order = true;
    array->column.offset = 0;
    (void)gb_column_sizes(&array->column, &array->column.data.bytes, &array->column.mask.bytes,
                          &ignored); /* at most what it has */
}

static int create_like(const struct gpubuf_object *from,
                       const struct gpubuf_create_options *options, struct gpubuf_object **object)
{
    const struct gb_client_lease *lease = from->lease;
    struct gb_layout layout = lease->layout;
    struct gb_pool pool = {0};
    int r = 0;

    if (layout.kind == GB_KIND_ARRAY)
        make_dense(&layout);
    else if (forget_counts(&pool, &layout.column) < 0)
        r = gb_report_memory(lease->client);
    if (r == 0)
        r = gb_create_like(lease->client, lease->name, &layout, options, object);
    gb_pool_end(&pool);
    return r;
}

/* ---- the content ---- */

static int copy_buffer(const struct gb_client_lease *to, const struct gb_buffer *target,
                       const struct gb_client_lease *from, const struct gb_buffer *source)
{
    if (!source->present)
        return 0;
    return gb_buffer_write(to, target, 0, gb_buffer_address(from, source), source->bytes);
}

static int copy_column(const struct gb_client_lease *to, const struct gb_column *target,
                       const struct gb_client_lease *from, const struct gb_column *source)
{
    int r = copy_buffer(to, &target->data, from, &source->data);

    if (r == 0)
        r = copy_buffer(to, &target->mask, from, &source->mask);
    if (r == 0)
        r = copy_buffer(to, &target->offsets, from, &source->offsets);
    for (uint32_t i = 0; r == 0 && i < source->child_count; i++)
        r = copy_column(to, &target->children[i], from, &source->children[i]);
    return r;
}

/* The mask of a slice may begin within a byte. */
static int copy_mask(const struct gpubuf_object *to, const struct gpubuf_object *from)
{
    const struct gb_column *source = from->column;
    unsigned char *bits = malloc((size_t)source->mask.bytes + 1);

    if (!bits)
        return gb_report_memory(from->lease->client);
    int r = gpubuf_read(from, GPUBUF_MASK, 0, bits, source->mask.bytes, NULL);
    if (r == 0)
        r = gb_buffer_write_bits(to->lease, &to->column->mask, bits, source->offset,
                                 source->length);
    free(bits);
    return r;
}

static int copy_content(struct gpubuf_object *to, const struct gpubuf_object *from)
{
    int r;

    if (from->kind != GPUBUF_KIND_ARRAY) {
        r = copy_column(to->lease, to->column, from->lease, from->column);
    } else {
        r = from->extent > 0 ? gb_array_write(to, from->strides, gb_object_data(from)) : 0;
        if (r == 0 && from->column->mask.present)
            r = copy_mask(to, from);
    }
    int finished = gb_finish_writing(to->lease);
    r = r < 0 ? r : finished;
    return r == 0 && gpubuf_is_foreign(from) ? gb_check_copied(to) : r;
}

int gpubuf_edit(struct gpubuf_client *client, const char *name,
                const struct gpubuf_open_options *given, struct gpubuf_object **object)
{
    struct gpubuf_create_options like = {.size = sizeof(like), .replace = true};
    struct gpubuf_open_options options;
    struct gpubuf_object *from, *made;
    int r = gb_open_read_options(client, given, &options);

    if (r == 0 && options.write)
        r = gb_report_text(client, GPUBUF_E_INVALID,
                           "options.write: a copy of a sealed object is edited");
    if (r < 0)
        return r;
    r = GPUBUF_E_STALE;
    for (int i = 0; i < TRIES && r == GPUBUF_E_STALE; i++)
        r = open_once(client, name, &options, &like, &from);
    if (r < 0)
        return r;
    like.device = from->lease->device;
    like.wait_ms = options.wait_ms;
    r = create_like(from, &like, &made);
    if (r == 0) {
        r = copy_content(made, from);
        if (r < 0)
            gpubuf_release(made);
        else
            *object = made;
    }
    gpubuf_release(from);
    return r;
}
