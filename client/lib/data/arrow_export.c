/*
 * Objects as Arrow C Data structs, with no copy. Every node owns what it needs, and each array node
 * holds the object. So a consumer may move a child out and keep it longer than the rest, as the
 * specification allows.
 */
#include "client/lib/data/arrow_export.h"

#include <stdlib.h>
#include <string.h>

#include "client/lib/data/arrow_check.h"
#include "client/lib/wire/report.h"

/* A part of a column: which elements an Arrow node shows. */
struct part {
    const struct gb_column *column;
    uint64_t offset, length;
    int64_t null_count;
};

/* ---- schemas ---- */

struct schema_node {
    char format[64];
    char *name, *metadata;
    struct ArrowSchema *children; /* the dictionary last, if there is one */
    struct ArrowSchema **pointers;
};

static void schema_release(struct ArrowSchema *schema)
{
    struct schema_node *node = schema->private_data;

    for (int64_t i = 0; i < schema->n_children; i++) {
        if (schema->children[i]->release)
            schema->children[i]->release(schema->children[i]);
    }
    if (schema->dictionary && schema->dictionary->release)
        schema->dictionary->release(schema->dictionary);
    free(node->name);
    free(node->metadata);
    free(node->children);
    free(node->pointers);
    free(node);
    schema->release = NULL;
}

static char *put_int32(char *out, size_t value)
{
    int32_t number = (int32_t)value;

    memcpy(out, &number, sizeof(number));
    return out + sizeof(number);
}

/* Arrow's encoding: the number of pairs, then each key and value after its length. */
static char *encode_metadata(const struct gb_column *column)
{
    size_t size = 4;

    for (uint32_t i = 0; i < column->metadata_count; i++)
        size += 8 + strlen(column->metadata[i].key) + strlen(column->metadata[i].value);
    char *text = malloc(size);
    if (!text)
        return NULL;
    char *out = put_int32(text, column->metadata_count);
    for (uint32_t i = 0; i < column->metadata_count; i++) {
        const char *const strings[] = {column->metadata[i].key, column->metadata[i].value};
        for (int j = 0; j < 2; j++) {
            size_t length = strlen(strings[j]);
            out = put_int32(out, length);
            memcpy(out, strings[j], length);
            out += length;
        }
    }
    return text;
}

/* An empty node with room for `children` and, if asked for, a dictionary. */
static int schema_begin(struct ArrowSchema *schema, const char *name, size_t children,
                        bool dictionary)
{
    struct schema_node *node = calloc(1, sizeof(*node));

    if (!node)
        return GPUBUF_E_NO_MEMORY;
    size_t count = children + dictionary;
    node->name = strdup(name);
    node->children = calloc(count + 1, sizeof(*node->children));
    node->pointers = calloc(count + 1, sizeof(struct ArrowSchema *));
    *schema = (struct ArrowSchema){
        .format = node->format,
        .name = node->name,
        .children = node->pointers,
        .release = schema_release,
        .private_data = node,
    };
    if (!node->name || !node->children || !node->pointers) {
        schema_release(schema);
        return GPUBUF_E_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++)
        node->pointers[i] = &node->children[i];
    schema->n_children = (int64_t)children;
    if (dictionary)
        schema->dictionary = node->pointers[children];
    return 0;
}

static int set_format(struct ArrowSchema *schema, const struct gb_dtype *dtype)
{
    struct schema_node *node = schema->private_data;

    return gb_dtype_to_arrow(dtype, node->format, sizeof(node->format)) ? 0 : GPUBUF_E_UNSUPPORTED;
}

static int set_metadata(struct ArrowSchema *schema, const struct gb_column *column)
{
    struct schema_node *node = schema->private_data;

    if (column->metadata_count == 0)
        return 0;
    schema->metadata = node->metadata = encode_metadata(column);
    return node->metadata ? 0 : GPUBUF_E_NO_MEMORY;
}

/* The entries and keys of Arrow's maps cannot be null, and are not marked as nullable. */
static void forbid_nulls(struct ArrowSchema *map)
{
    map->children[0]->flags &= ~ARROW_FLAG_NULLABLE;
    map->children[0]->children[0]->flags &= ~ARROW_FLAG_NULLABLE;
}

static int schema_of_column(struct ArrowSchema *schema, const struct gb_column *column,
                            const char *name)
{
    bool dictionary = column->dtype.type == GB_TYPE_DICTIONARY;
    const struct gb_column *own = dictionary ? &column->children[0] : column;
    int r = schema_begin(schema, name, dictionary ? 0 : column->child_count, dictionary);

    if (r < 0)
        return r;
    /* Most of Arrow's libraries mark every column so, and take types that differ in this alone for
       unequal. The array says whether there are nulls. */
    schema->flags = ARROW_FLAG_NULLABLE;
    r = set_format(schema, &own->dtype);
    if (r == 0)
        r = set_metadata(schema, column);
    bool map = column->dtype.type == GB_TYPE_MAP;
    bool list = gb_type_info(column->dtype.type)->children == 1;
    for (int64_t i = 0; r == 0 && i < schema->n_children; i++) {
        const struct gb_column *child = &column->children[i];
        r = schema_of_column(schema->children[i], child,
                             child->name ? child->name
                             : map       ? "entries"
                             : list      ? "item"
                                         : "");
    }
    if (r == 0 && dictionary)
        r = schema_of_column(schema->dictionary, &column->children[1], "");
    if (r == 0 && map)
        forbid_nulls(schema);
    if (r < 0)
        schema_release(schema);
    return r;
}

static int schema_of_table(struct ArrowSchema *schema, const struct gb_column *table)
{
    static const struct gb_dtype structure = {.type = GB_TYPE_STRUCT};
    int r = schema_begin(schema, "", table->child_count, false);

    if (r < 0)
        return r;
    r = set_format(schema, &structure);
    if (r == 0)
        r = set_metadata(schema, table);
    for (int64_t i = 0; r == 0 && i < schema->n_children; i++)
        r = schema_of_column(schema->children[i], &table->children[i], table->children[i].name);
    if (r < 0)
        schema_release(schema);
    return r;
}

/* ---- arrays ---- */

struct array_node {
    struct gpubuf_object *object; /* a reference of its own */
    const void *buffers[3];
    void *copy;                  /* of buffers that another user may write; or NULL */
    struct ArrowArray *children; /* the dictionary last, if there is one */
    struct ArrowArray **pointers;
};

static void array_release(struct ArrowArray *array)
{
    struct array_node *node = array->private_data;

    for (int64_t i = 0; i < array->n_children; i++) {
        if (array->children[i]->release)
            array->children[i]->release(array->children[i]);
    }
    if (array->dictionary && array->dictionary->release)
        array->dictionary->release(array->dictionary);
    gpubuf_release(node->object);
    free(node->copy);
    free(node->children);
    free(node->pointers);
    free(node);
    array->release = NULL;
}

static int array_begin(struct ArrowArray *array, struct gpubuf_object *object, size_t children,
                       bool dictionary)
{
    struct array_node *node = calloc(1, sizeof(*node));

    if (!node)
        return GPUBUF_E_NO_MEMORY;
    size_t count = children + dictionary;
    node->children = calloc(count + 1, sizeof(*node->children));
    node->pointers = calloc(count + 1, sizeof(struct ArrowArray *));
    node->object = gpubuf_retain(object);
    *array = (struct ArrowArray){
        .buffers = node->buffers,
        .children = node->pointers,
        .release = array_release,
        .private_data = node,
    };
    if (!node->children || !node->pointers) {
        array_release(array);
        return GPUBUF_E_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++)
        node->pointers[i] = &node->children[i];
    array->n_children = (int64_t)children;
    if (dictionary)
        array->dictionary = node->pointers[children];
    return 0;
}

/* Checks what another user made. On failure the node is released. */
static int check(struct ArrowArray *array, const struct gpubuf_object *object,
                 const struct gb_column *column, uint64_t offset, uint64_t length,
                 const struct gb_column *values, struct gb_arrow_checked *checked)
{
    if (!gb_arrow_must_check(object))
        return 0;
    int r = gb_arrow_check(object, column, offset, length, values, checked);
    if (r < 0) {
        array_release(array);
        return r;
    }
    ((struct array_node *)array->private_data)->copy = checked->copy;
    array->null_count = checked->null_count;
    return 0;
}

/* A buffer from element `first` on; an element has `bits`. */
static const void *address(const struct gpubuf_object *object, const struct gb_buffer *buffer,
                           uint64_t first, uint64_t bits)
{
    if (!buffer->present)
        return NULL;
    return (const char *)gb_buffer_address(object->lease, buffer) + first * bits / 8;
}

/* The buffers that Arrow has for the type, in its order, from the element on with which what was
   checked begins. */
static void set_buffers(struct ArrowArray *array, const struct gpubuf_object *object,
                        const struct gb_column *column, const struct gb_arrow_checked *checked)
{
    const struct gb_type_info *info = gb_type_info(column->dtype.type);
    const void **buffers = array->buffers;
    uint64_t first = checked->first;
    int64_t count = 0;

    if (column->dtype.type != GB_TYPE_NULL)
        buffers[count++] = checked->mask ? checked->mask : address(object, &column->mask, first, 1);
    if (info->offset_bytes)
        buffers[count++] = checked->offsets
                               ? checked->offsets
                               : address(object, &column->offsets, first, info->offset_bytes * 8u);
    if (info->has_data)
        buffers[count++] = checked->codes
                               ? checked->codes
                               : address(object, &column->data, first,
                                         info->offset_bytes ? 0 : gb_dtype_bits(&column->dtype));
    array->n_buffers = count;
}

/* A whole child: in Arrow the parent's offset counts for it too. */
static struct part whole(const struct gb_column *column)
{
    return (struct part){column, column->offset, column->length, column->null_count};
}

/* A child, or that part of it which the parent's checked buffers count from. */
static struct part child_of(const struct gb_column *child, const struct gb_arrow_checked *checked)
{
    struct part part = whole(child);

    if (checked->narrows) {
        part.offset += checked->child_first;
        part.length = checked->child_length;
    }
    return part;
}

/* Begins the node of a part whose own buffers are `own`'s, and checks these if they are another
   user's. */
static int array_begin_checked(struct ArrowArray *array, struct gpubuf_object *object,
                               const struct part *part, const struct gb_column *own,
                               struct gb_arrow_checked *checked)
{
    bool dictionary = own != part->column;
    uint64_t offset = part->offset + (dictionary ? own->offset : 0);
    int r = array_begin(array, object, dictionary ? 0 : own->child_count, dictionary);

    if (r < 0)
        return r;
    array->null_count = own->dtype.type == GB_TYPE_NULL ? (int64_t)part->length : part->null_count;
    r = check(array, object, own, offset, part->length,
              dictionary ? &part->column->children[1] : NULL, checked);
    if (r < 0)
        return r;
    array->length = (int64_t)part->length;
    array->offset = (int64_t)(offset - checked->first);
    set_buffers(array, object, own, checked);
    return 0;
}

/* Entries and keys of a map have no nulls: a reader may end the process that sees one. */
static int check_map(const struct ArrowArray *map, const struct gpubuf_object *object)
{
    const struct ArrowArray *entries = map->children[0];

    if (!gb_arrow_must_check(object) ||
        (entries->null_count == 0 && entries->children[0]->null_count == 0))
        return 0;
    return gb_report_text(object->lease->client, GPUBUF_E_INVALID,
                          "%s, which another user wrote, cannot be read: a map in it has null keys",
                          object->lease->name);
}

static int array_of_part(struct ArrowArray *array, struct gpubuf_object *object, struct part part)
{
    const struct gb_column *column = part.column;
    bool dictionary = column->dtype.type == GB_TYPE_DICTIONARY;
    struct gb_arrow_checked checked = {.first = 0};
    int r = array_begin_checked(array, object, &part, dictionary ? &column->children[0] : column,
                                &checked);

    if (r < 0)
        return r;
    if (dictionary)
        r = array_of_part(array->dictionary, object, whole(&column->children[1]));
    for (int64_t i = 0; r == 0 && i < array->n_children; i++)
        r = array_of_part(array->children[i], object, child_of(&column->children[i], &checked));
    if (r == 0 && column->dtype.type == GB_TYPE_MAP)
        r = check_map(array, object);
    if (r < 0)
        array_release(array);
    return r;
}

static int array_of_table(struct ArrowArray *array, struct gpubuf_object *table)
{
    int r = array_begin(array, table, table->column->child_count, false);

    if (r < 0)
        return r;
    array->length = (int64_t)table->length;
    array->n_buffers = 1; /* no mask: a table's rows are all there */
    for (int64_t i = 0; r == 0 && i < array->n_children; i++) {
        struct part part = whole(&table->column->children[i]);
        if (!table->whole && part.null_count != 0)
            part.null_count = -1;
        part.offset += table->offset;
        part.length = table->length;
        r = array_of_part(array->children[i], table, part);
    }
    if (r < 0)
        array_release(array);
    return r;
}

/* An array of one axis, or bytes. */
static int array_of_run(struct ArrowArray *array, struct gpubuf_object *object)
{
    const struct gb_column *column = object->column;
    bool masked = column->mask.present && object->extent > 0;
    struct gb_arrow_checked checked = {.first = 0};
    int r = array_begin(array, object, 0, false);

    if (r < 0)
        return r;
    array->length = (int64_t)object->length;
    array->null_count = object->extent > 0 ? gpubuf_null_count(object) : 0;
    array->n_buffers = 2;
    if (object->extent == 0) { /* its data may have no address that `start` counts from */
        array->buffers[1] =
            gb_buffer_address(object->lease, &(struct gb_buffer){.segment = GB_NO_SEGMENT});
        return 0;
    }
    array->buffers[1] = gb_object_data(object) + object->start;
    if (!masked)
        return 0;
    r = check(array, object, column, object->offset, object->length, NULL, &checked);
    if (r < 0)
        return r;
    /* In Arrow one offset holds for mask and data, so the data has to begin as many elements
       earlier as the mask does. */
    array->offset = (int64_t)(object->offset - checked.first);
    array->buffers[0] =
        checked.mask ? checked.mask : address(object, &column->mask, checked.first, 1);
    array->buffers[1] = (const char *)array->buffers[1] - array->offset * object->strides[0];
    return 0;
}

/* ---- the public side ---- */

static const char *why_not(const struct gpubuf_object *object)
{
    if (object->kind == GPUBUF_KIND_BUNDLE)
        return "Arrow has no bundles; their arrays can be exported";
    if (object->kind != GPUBUF_KIND_ARRAY)
        return NULL;
    if (object->ndim != 1)
        return "only arrays of one axis are Arrow arrays";
    uint64_t size = gb_dtype_item(&object->column->dtype);
    if (object->length > 1 && object->strides[0] != (int64_t)size)
        return "the array's elements do not lie side by side";
    if (object->column->mask.present && object->extent > 0 &&
        object->column->data.offset + object->start < object->offset * size)
        return "the array's mask begins earlier than its memory";
    return NULL;
}

static int make_schema(struct ArrowSchema *schema, struct gpubuf_object *object)
{
    if (object->kind == GPUBUF_KIND_TABLE)
        return schema_of_table(schema, object->column);
    /* The layout of bytes has the dtype uint8. */
    const char *name = gpubuf_column_name(object);
    return schema_of_column(schema, object->column, name ? name : "");
}

static int make_array(struct ArrowArray *array, struct gpubuf_object *object)
{
    struct part part = {object->column, object->offset, object->length, gpubuf_null_count(object)};

    switch (object->kind) {
    case GPUBUF_KIND_TABLE:
        return array_of_table(array, object);
    case GPUBUF_KIND_COLUMN:
        return array_of_part(array, object, part);
    case GPUBUF_KIND_ARRAY:
    case GPUBUF_KIND_BYTES:
    case GPUBUF_KIND_BUNDLE: /* refused */
        break;
    }
    return array_of_run(array, object);
}

static int report(const struct gpubuf_object *object, int r)
{
    const struct gpubuf_client *client = object->lease->client;

    if (r == GPUBUF_E_NO_MEMORY)
        return gb_report_memory(client);
    if (r == GPUBUF_E_INVALID) /* reported */
        return r;
    return gb_report_text(client, r, "%s: Arrow has no type for %s", object->lease->name,
                          object->kind == GPUBUF_KIND_ARRAY ? object->dtype : "all of it");
}

int gb_export_arrow(struct gpubuf_object *object, struct ArrowSchema *schema,
                    struct ArrowArray *array)
{
    int r;
    const char *reason = why_not(object);

    if (reason)
        return gb_report_text(object->lease->client, GPUBUF_E_UNSUPPORTED, "%s: %s",
                              object->lease->name, reason);

    /* Making the schema also finds the types that Arrow does not have. */
    struct ArrowSchema made_schema;
    struct ArrowArray made_array;
    r = make_schema(&made_schema, object);
    if (r < 0)
        return report(object, r);
    if (array) {
        r = make_array(&made_array, object);
        if (r < 0) {
            schema_release(&made_schema);
            return report(object, r);
        }
        *array = made_array;
    }
    if (schema)
        *schema = made_schema;
    else
        schema_release(&made_schema);
    return 0;
}

int gb_check_copied(struct gpubuf_object *object)
{
    struct gb_client_lease_access *access = &object->lease->access;
    struct ArrowArray array;

    if (object->kind != GPUBUF_KIND_COLUMN && object->kind != GPUBUF_KIND_TABLE)
        return 0;
    access->content = GB_CONTENT_FINAL; /* nobody else writes it */
    int r = make_array(&array, object);
    access->content = GB_CONTENT_OWN;
    if (r < 0)
        return report(object, r);
    array.release(&array);
    return 0;
}

int gpubuf_export_arrow(struct gpubuf_object *object, struct ArrowSchema *schema,
                        struct ArrowArray *array)
{
    int r = gb_object_check(object);

    if (r < 0)
        return r;
    if (!gb_is_host(object->lease->device))
        return gb_report_text(object->lease->client, GPUBUF_E_UNSUPPORTED,
                              "%s lies on a GPU, and Arrow's C Data Interface is for host memory; "
                              "use gpubuf_export_arrow_device",
                              object->lease->name);
    return gb_export_arrow(object, schema, array);
}
