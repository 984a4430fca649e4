#include "client/lib/objects/create.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/base/process.h"
#include "client/lib/objects/cached.h"
#include "client/lib/objects/create_options.h"
#include "client/lib/objects/grants.h"
#include "client/lib/objects/object.h"
#include "client/lib/objects/references.h"
#include "client/lib/wire/enter.h"
#include "client/lib/wire/release.h"
#include "client/lib/wire/report.h"
#include "client/lib/wire/wait.h"

/* ---- layouts: from what the program asks for to the request ---- */

/*
 * The layout granted must be the one asked for, but for the places of its buffers: a program writes
 * as much as it asked for. Both are compared by a digest, since an asynchronous create cannot keep
 * the program's structs, and a copy of them would be a second layout.
 */
struct digest {
    uint64_t value;
};

static void digest_number(struct digest *digest, uint64_t number)
{
    digest->value = (digest->value ^ number) * UINT64_C(0x9e3779b97f4a7c15);
    digest->value ^= digest->value >> 29;
}

static void digest_bytes(struct digest *digest, const void *bytes, size_t length)
{
    const unsigned char *byte = bytes;

    digest_number(digest, length);
    for (size_t i = 0; i < length; i++)
        digest_number(digest, byte[i]);
}

/* The type fixes the size of the data, except for strings. */
static void digest_shape_of_column(struct digest *digest, const char *name,
                                   const struct gb_dtype *dtype, uint64_t length, uint64_t offset,
                                   bool mask, uint64_t data_bytes, uint64_t children)
{
    digest_bytes(digest, name ? name : "", name ? strlen(name) : 0);
    digest_number(digest, dtype->type);
    digest_number(digest, dtype->unit);
    digest_number(digest, dtype->size);
    digest_number(digest, dtype->precision);
    digest_number(digest, (uint64_t)(int64_t)dtype->scale);
    digest_bytes(digest, dtype->zone, strlen(dtype->zone));
    digest_number(digest, length);
    digest_number(digest, offset);
    digest_number(digest, mask);
    if (gb_type_info(dtype->type)->has_data && gb_dtype_bits(dtype) == 0)
        digest_number(digest, data_bytes);
    digest_number(digest, children);
}

static void digest_column(struct digest *digest, const struct gb_column *column)
{
    digest_shape_of_column(digest, column->name, &column->dtype, column->length, column->offset,
                           column->mask.present, column->data.bytes, column->child_count);
    for (uint32_t i = 0; i < column->child_count; i++)
        digest_column(digest, &column->children[i]);
}

static uint64_t digest_layout(const struct gb_layout *layout)
{
    struct digest digest = {(uint64_t)layout->kind};

    switch (layout->kind) {
    case GB_KIND_BYTES:
        digest_number(&digest, layout->bytes);
        break;
    case GB_KIND_BUNDLE:
        digest_number(&digest, layout->bytes);
        digest_number(&digest, layout->manifest_bytes);
        break;
    case GB_KIND_ARRAY:
        digest_shape_of_column(&digest, NULL, &layout->column.dtype, 0, 0,
                               layout->column.mask.present, 0, layout->ndim);
        for (unsigned i = 0; i < layout->ndim; i++)
            digest_number(&digest, layout->shape[i]);
        digest_number(&digest, layout->c_order);
        break;
    case GB_KIND_COLUMN:
        digest_column(&digest, &layout->column);
        break;
    case GB_KIND_TABLE:
        digest_number(&digest, layout->column.length);
        digest_number(&digest, layout->column.child_count);
        for (uint32_t i = 0; i < layout->column.child_count; i++)
            digest_column(&digest, &layout->column.children[i]);
        break;
    }
    return digest.value;
}

struct layout_writing {
    struct gb_writer *writer;
    struct digest digest;
    struct gb_error *error;
};

static int read_dtype(struct layout_writing *writing, const char *text, struct gb_dtype *dtype)
{
    if (!text)
        return gb_fail(writing->error, GPUBUF_E_INVALID, "a dtype is NULL");
    if (!gb_dtype_parse(text, strlen(text), dtype))
        return gb_fail(writing->error, GPUBUF_E_INVALID, "unknown dtype \"%s\"", text);
    return 0;
}

static int write_metadata(struct layout_writing *writing, const struct gpubuf_column_spec *spec)
{
    struct gb_writer *writer = writing->writer;

    if (!spec->metadata || !spec->metadata[0])
        return 0;
    for (size_t i = 0; spec->metadata[i]; i += 2) {
        const char *key = spec->metadata[i], *value = spec->metadata[i + 1];
        if (!value || !gb_utf8_valid(key, strlen(key)) || !gb_utf8_valid(value, strlen(value)))
            return gb_fail(writing->error, GPUBUF_E_INVALID,
                           "metadata are not pairs of UTF-8 strings");
        gb_write_text(writer, i ? "," : ",\"metadata\":{");
        gb_write_cstring(writer, key);
        gb_write_char(writer, ':');
        gb_write_cstring(writer, value);
    }
    gb_write_char(writer, '}');
    return 0;
}

static int write_texts(struct layout_writing *writing, const struct gpubuf_column_spec *spec,
                       bool named)
{
    struct gb_writer *writer = writing->writer;

    if (named) {
        if (!spec->name || !gb_utf8_valid(spec->name, strlen(spec->name)))
            return gb_fail(writing->error, GPUBUF_E_INVALID,
                           "a column's name is missing or not UTF-8");
        GB_WRITE_LITERAL(writer, ",\"name\":");
        gb_write_cstring(writer, spec->name);
    }
    return write_metadata(writing, spec);
}

static int write_children(struct layout_writing *writing, const struct gpubuf_column_spec *spec,
                          const char *member, bool named, unsigned depth);

/* Writes the members of a column, each with a comma before it. */
static int write_column(struct layout_writing *writing, const struct gpubuf_column_spec *spec,
                        bool named, unsigned depth)
{
    struct gb_writer *writer = writing->writer;
    struct gb_dtype dtype;
    int r = read_dtype(writing, spec->dtype, &dtype);

    if (r < 0)
        return r;
    if (depth > GB_LIMIT(layout_depth))
        return gb_fail(writing->error, GPUBUF_E_INVALID, "columns nested over %d deep",
                       (int)GB_LIMIT(layout_depth));
    if (spec->child_count && !spec->children)
        return gb_fail(writing->error, GPUBUF_E_INVALID, "a column's children are NULL");
    digest_shape_of_column(&writing->digest, named ? spec->name : NULL, &dtype, spec->length,
                           spec->offset, spec->mask, spec->data_bytes, spec->child_count);

    GB_WRITE_LITERAL(writer, ",\"dtype\":");
    gb_write_cstring(writer, spec->dtype);
    GB_WRITE_LITERAL(writer, ",\"length\":");
    gb_write_uint(writer, spec->length);
    if (spec->offset) {
        GB_WRITE_LITERAL(writer, ",\"offset\":");
        gb_write_uint(writer, spec->offset);
    }
    if (spec->null_count) {
        GB_WRITE_LITERAL(writer, ",\"null_count\":");
        gb_write_int(writer, spec->null_count);
    }
    if (spec->mask)
        GB_WRITE_LITERAL(writer, ",\"mask\":{}");
    if (gb_type_info(dtype.type)->has_data && gb_dtype_bits(&dtype) == 0) {
        GB_WRITE_LITERAL(writer, ",\"data\":{\"bytes\":");
        gb_write_uint(writer, spec->data_bytes);
        gb_write_char(writer, '}');
    }
    r = write_texts(writing, spec, named);
    if (r == 0 && spec->child_count)
        r = write_children(writing, spec, "children", dtype.type == GB_TYPE_STRUCT, depth);
    return r;
}

static int write_children(struct layout_writing *writing, const struct gpubuf_column_spec *spec,
                          const char *member, bool named, unsigned depth)
{
    struct gb_writer *writer = writing->writer;

    gb_write_format(writer, ",\"%s\":[", member);
    for (size_t i = 0; i < spec->child_count; i++) {
        GB_WRITE_LITERAL(writer, "{");
        size_t start = writer->length;
        int r = write_column(writing, &spec->children[i], named, depth + 1);
        if (r < 0)
            return r;
        if (!writer->failed)
            writer->data[start] = ' '; /* the comma before the first member */
        gb_write_text(writer, i + 1 < spec->child_count ? "}," : "}");
    }
    gb_write_char(writer, ']');
    return 0;
}

static int write_array(struct layout_writing *writing, const struct gpubuf_layout_spec *spec)
{
    struct gb_writer *writer = writing->writer;
    struct gb_dtype dtype;
    int r = read_dtype(writing, spec->dtype, &dtype);

    if (r < 0)
        return r;
    if (spec->ndim > GB_LIMIT(ndim) || (spec->ndim && !spec->shape))
        return gb_fail(writing->error, GPUBUF_E_INVALID, "an array has a shape of at most %d axes",
                       (int)GB_LIMIT(ndim));
    digest_shape_of_column(&writing->digest, NULL, &dtype, 0, 0, spec->mask, 0, spec->ndim);
    GB_WRITE_LITERAL(writer, ",\"dtype\":");
    gb_write_cstring(writer, spec->dtype);
    GB_WRITE_LITERAL(writer, ",\"shape\":[");
    for (unsigned i = 0; i < spec->ndim; i++) {
        if (i)
            gb_write_char(writer, ',');
        gb_write_uint(writer, spec->shape[i]);
        digest_number(&writing->digest, spec->shape[i]);
    }
    gb_write_char(writer, ']');
    if (spec->mask)
        GB_WRITE_LITERAL(writer, ",\"mask\":{}");
    digest_number(&writing->digest, true); /* C order */
    return 0;
}

static int write_layout(struct layout_writing *writing, const struct gpubuf_layout_spec *spec)
{
    static const char *const kinds[] = {"bytes", "array", "column", "table", "bundle"};
    struct gb_writer *writer = writing->writer;
    int r = 0;
    if ((unsigned)spec->kind > GPUBUF_KIND_BUNDLE)
        return gb_fail(writing->error, GPUBUF_E_INVALID, "unknown kind %d", (int)spec->kind);
    writing->digest.value = (uint64_t)spec->kind;
    gb_write_format(writer, "{\"kind\":\"%s\"", kinds[spec->kind]);
    switch (spec->kind) {
    case GPUBUF_KIND_BYTES:
        GB_WRITE_LITERAL(writer, ",\"bytes\":");
        gb_write_uint(writer, spec->bytes);
        digest_number(&writing->digest, spec->bytes);
        r = write_metadata(writing, &spec->column);
        break;
    case GPUBUF_KIND_BUNDLE:
        GB_WRITE_LITERAL(writer, ",\"bytes\":");
        gb_write_uint(writer, spec->bytes);
        GB_WRITE_LITERAL(writer, ",\"manifest_bytes\":");
        gb_write_uint(writer, spec->manifest_bytes);
        digest_number(&writing->digest, spec->bytes);
        digest_number(&writing->digest, spec->manifest_bytes);
        break;
    case GPUBUF_KIND_ARRAY:
        r = write_array(writing, spec);
        if (r == 0)
            r = write_metadata(writing, &spec->column);
        break;
    case GPUBUF_KIND_COLUMN:
        r = write_column(writing, &spec->column, false, 1);
        break;
    case GPUBUF_KIND_TABLE:
        if (spec->column.child_count && !spec->column.children)
            return gb_fail(writing->error, GPUBUF_E_INVALID, "a table's columns are NULL");
        GB_WRITE_LITERAL(writer, ",\"length\":");
        gb_write_uint(writer, spec->column.length);
        digest_number(&writing->digest, spec->column.length);
        digest_number(&writing->digest, spec->column.child_count);
        r = write_children(writing, &spec->column, "columns", true, 0);
        if (r == 0)
            r = write_metadata(writing, &spec->column);
        break;
    }
    gb_write_char(writer, '}');
    return r;
}

/* ---- the request ---- */

struct create {
    struct gb_request base;
    gpubuf_object_cb callback;
    void *arg;
    int64_t wait_ms;
    bool final;
    uint64_t digest;
    uint64_t drops;
    struct gpubuf_object *object;
    struct gb_writer params;
};

static int create_send(struct gpubuf_client *client, struct create *create, struct gb_error *error)
{
    gb_cached_drop_stale(client);
    if (gb_reserve_releases(client, 1) < 0 ||
        gb_imports_reserve(&client->imports, GB_LIMIT(fds)) < 0)
        return gb_fail_memory(error);
    struct gb_writer *writer = gb_request_begin(client, &create->base, "create", 0);
    gb_write(writer, create->params.data, create->params.length);
    create->drops = client->imports.drops;
    return gb_request_send(client, &create->base, NULL, 0, GB_RELEASES_FIRST, error);
}

/* The useless lease ends before the new request: there may be room for one object only. */
static int create_again(struct gb_request *request, struct gb_error *error)
{
    struct create *create = (struct create *)request;

    gb_request_hold_imports(request);
    gb_request_remove(request);
    int r = create_send(request->client, create, error);
    if (r < 0)
        gb_request_restore(request);
    else
        request->again = true;
    return r;
}

struct create_members {
    uint64_t lease;
    struct gb_json object, segments;
};

static int create_reply(struct gb_request *request, const struct gb_reply *reply,
                        struct gb_error *error)
{
    static const struct gb_field fields[] = {
        GB_FIELD(struct create_members, lease, GB_FIELD_UINT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct create_members, object, GB_FIELD_OBJECT, GB_FIELD_REQUIRED, 0, 0),
        GB_FIELD(struct create_members, segments, GB_FIELD_ARRAY, 0, 0, 0),
    };
    struct create *create = (struct create *)request;
    struct gpubuf_client *client = request->client;

    if (reply->refused)
        return reply->refused->code;
    struct create_members members = {.lease = 0};
    struct gb_path path = {.key = "result"};
    if (gb_json_read(reply->result, fields, 3, GB_UNKNOWN_IGNORE, &path, &client->pool, &members,
                     NULL, error) < 0) {
        struct gb_error cause = *error;
        return gb_fail(error, GPUBUF_E_PROTOCOL, "the daemon's answer to create is malformed: %s",
                       cause.message);
    }

    struct gb_grants grants;
    int r =
        gb_grants_begin(&grants, client, reply, members.segments, 1, true, create->drops, error);
    if (r < 0)
        return r;
    r = gb_grants_make_lease(&grants, members.lease, members.object, &create->object, error);
    if (r == 0 && digest_layout(&create->object->lease->layout) != create->digest) {
        gb_object_drop(create->object);
        create->object = NULL;
        r = gb_fail(error, GPUBUF_E_PROTOCOL,
                    "the daemon has created something else than was asked for");
    } else if (r == 0) {
        create->object->lease->final = create->final;
        gb_client_lease_made(create->object->lease);
    } else if (r == GB_AGAIN) {
        r = request->canceled ? 0 : create_again(request, error);
    }
    gb_grants_end(&grants);
    return r;
}

static int clear_buffer(struct gb_buffer *buffer, void *arg)
{
    const struct gb_client_lease *lease = arg;

    if (buffer->bytes == 0)
        return 0;
    char *end = (char *)gb_buffer_address(lease, buffer) + buffer->bytes;
    memset(end, 0, (size_t)(-(uintptr_t)end % GB_MASK_PAD)); /* it lies in the same page */
    return 0;
}

static void clear_masks(const struct gb_client_lease *lease, const struct gb_column *column)
{
    if (column->mask.present && column->mask.bytes > 0)
        memset(gb_buffer_address(lease, &column->mask), 0, (size_t)column->mask.bytes);
    for (uint32_t i = 0; i < column->child_count; i++)
        clear_masks(lease, &column->children[i]);
}

/* Clears masks, since a program may only set bits in them, and the padding behind buffers, which it
   need not write. Both are zero in new objects in host memory. No lock is held. */
static void clear(struct gpubuf_object *object)
{
    struct gb_client_lease *lease = object->lease;

    if (!gb_is_host(lease->device))
        return;
    (void)gb_layout_each(&lease->layout, clear_buffer, lease);
    clear_masks(lease, &lease->layout.column);
}

static void create_deliver(struct gb_request *request, int status)
{
    struct create *create = (struct create *)request;
    struct gpubuf_object *object = NULL;

    if (status >= 0) {
        object = create->object;
        create->object = NULL;
    }
    if (object && create->callback)
        clear(object);
    if (create->callback)
        create->callback(request->client, status < 0 ? status : 0, object, create->arg);
    else
        gpubuf_release(object);
}

static void create_discard(struct gb_request *request)
{
    struct create *create = (struct create *)request;

    gb_object_drop(create->object);
    create->object = NULL;
    gb_flush_releases(request->client);
}

static void create_free(struct gb_request *request)
{
    struct create *create = (struct create *)request;

    gb_writer_end(&create->params);
    free(create);
}

/* Also if the daemon had received the request: what it created was lost with the connection. */
static int create_resend(struct gb_request *request, struct gb_error *error)
{
    return create_send(request->client, (struct create *)request, error);
}

static const struct gb_request_type create_type = {
    .reply = create_reply,
    .resend = create_resend,
    .deliver = create_deliver,
    .discard = create_discard,
    .free = create_free,
};

/* The layout is the program's description of it, or one that an object has. */
struct wanted {
    const struct gpubuf_layout_spec *spec;
    const struct gb_layout *like; /* NULL: `spec` */
};

static int write_params(struct create *create, const char *name, const struct wanted *wanted,
                        const struct gpubuf_create_options *options, struct gb_error *error)
{
    struct gb_path path = {.key = "name"};
    int r = gb_name_check(name ? name : "", name ? strlen(name) : 0, &path, error);

    if (r < 0)
        return r;
    if (!wanted->spec && !wanted->like)
        return gb_fail(error, GPUBUF_E_INVALID, "the layout is NULL");
    struct gb_writer *writer = &create->params;
    struct layout_writing writing = {.writer = writer, .error = error};
    GB_WRITE_LITERAL(writer, "{\"name\":");
    gb_write_cstring(writer, name);
    GB_WRITE_LITERAL(writer, ",\"layout\":");
    if (wanted->like)
        gb_layout_write(writer, wanted->like, GB_LAYOUT_CREATE);
    else
        r = write_layout(&writing, wanted->spec);
    if (r < 0)
        return r;
    gb_write_create_options(writer, options);
    GB_WRITE_LITERAL(writer, ",\"brief\":true}");
    create->digest = wanted->like ? digest_layout(wanted->like) : writing.digest.value;
    return writer->failed ? gb_fail_memory(error) : 0;
}

static int create_start(struct gpubuf_client *client, const char *name, const struct wanted *wanted,
                        const struct gpubuf_create_options *given, struct create **out)
{
    struct gpubuf_create_options options;
    int r = gb_read_create_options(client, given, &options);

    if (r < 0)
        return r;
    struct create *create = calloc(1, sizeof(*create));
    if (!create)
        return gb_report_memory(client);
    struct gb_error error;
    create->base.type = &create_type;
    create->base.waited = true;
    create->wait_ms = options.wait_ms;
    create->final = options.final;
    create->base.once = options.live; /* it has its name, whether the answer comes or not */
    client->lingers |= options.live;
    gb_writer_init(&create->params, 0);
    r = write_params(create, name, wanted, &options, &error);
    if (r == 0 && options.live && !gb_process_has_room(1))
        r = gb_fail_errno(&error, "a descriptor for the memory of \"%s\"", name);
    if (r == 0)
        r = create_send(client, create, &error);
    if (r < 0) {
        create_free(&create->base);
        return gb_report(client, &error);
    }
    *out = create;
    return 0;
}

static int create_and_wait(struct gpubuf_client *client, const char *name,
                           const struct wanted *wanted, const struct gpubuf_create_options *options,
                           struct gpubuf_object **object)
{
    int r = gb_enter_blocking(client);

    if (r < 0)
        return r;
    struct create *create;
    r = create_start(client, name, wanted, options, &create);
    if (r == 0) {
        struct gb_request *request = &create->base;
        r = gb_request_wait(client, &request, gb_answer_timeout(client, create->wait_ms));
        if (r == 0)
            *object = create->object;
        if (request)
            create_free(request);
    }
    gb_leave(client);
    if (r == 0)
        clear(*object);
    return r;
}

int gpubuf_create(struct gpubuf_client *client, const char *name,
                  const struct gpubuf_layout_spec *layout,
                  const struct gpubuf_create_options *options, struct gpubuf_object **object)
{
    return create_and_wait(client, name, &(struct wanted){.spec = layout}, options, object);
}

int gb_create_like(struct gpubuf_client *client, const char *name, const struct gb_layout *like,
                   const struct gpubuf_create_options *options, struct gpubuf_object **object)
{
    return create_and_wait(client, name, &(struct wanted){.like = like}, options, object);
}

int gpubuf_create_async(struct gpubuf_client *client, const char *name,
                        const struct gpubuf_layout_spec *layout,
                        const struct gpubuf_create_options *options, gpubuf_object_cb callback,
                        void *arg, uint64_t *request)
{
    int r = gb_enter(client);

    if (r < 0)
        return r;
    struct create *create;
    r = create_start(client, name, &(struct wanted){.spec = layout}, options, &create);
    if (r == 0) {
        create->base.waited = false; /* nothing is received before the lock is let go */
        create->callback = callback;
        create->arg = arg;
        if (request)
            *request = create->base.id;
    }
    gb_leave(client);
    return r;
}
