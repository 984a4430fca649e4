#include "client/lib/objects/object.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/wire/progress.h"
#include "client/lib/wire/report.h"

/* The pointer of a buffer of no bytes, for consumers that refuse NULL. */
static _Alignas(64) char nothing[64];

/* ---- making objects ---- */

/* The bytes from an array's first element to the end of its last. */
static uint64_t array_extent(const struct gpubuf_object *object)
{
    const struct gb_dtype *dtype = &object->column->dtype;
    uint64_t span = gb_dtype_item(dtype);

    for (unsigned i = 0; i < object->ndim; i++) {
        if (object->shape[i] == 0)
            return 0;
        span += (gb_dtype_items(dtype, object->shape[i], i + 1 == object->ndim) - 1) *
                (uint64_t)object->strides[i];
    }
    return span;
}

static void set_dtype(struct gpubuf_object *object)
{
    if (object->kind != GPUBUF_KIND_ARRAY && object->kind != GPUBUF_KIND_COLUMN) {
        object->dtype = "";
        return;
    }
    const struct gb_dtype *dtype = &object->column->dtype;
    switch (dtype->type) {
    case GB_TYPE_FIXED_BINARY:
    case GB_TYPE_TIME32:
    case GB_TYPE_TIME64:
    case GB_TYPE_TIMESTAMP:
    case GB_TYPE_DURATION:
    case GB_TYPE_DECIMAL128:
    case GB_TYPE_FIXED_LIST:
        (void)gb_dtype_format(dtype, object->dtype_text, sizeof(object->dtype_text));
        object->dtype = object->dtype_text;
        break;
    default:
        object->dtype = gb_type_info(dtype->type)->name;
        break;
    }
}

static void set_one_axis(struct gpubuf_object *object, int64_t stride)
{
    object->ndim = 1;
    object->shape = &object->length;
    object->stride = stride;
    object->strides = &object->stride;
}

/* Sets what all views of columns have in common. */
static void set_column(struct gpubuf_object *object)
{
    uint64_t bits = gb_dtype_bits(&object->column->dtype);

    object->kind = GPUBUF_KIND_COLUMN;
    set_one_axis(object, bits % 8 == 0 ? (int64_t)(bits / 8) : 0);
    set_dtype(object);
}

void gb_object_init_root(struct gpubuf_object *object, struct gb_client_lease *lease)
{
    struct gb_layout *layout = &lease->layout;

    memset(object, 0, sizeof(*object));
    atomic_init(&object->references, 1);
    object->lease = lease;
    object->column = &layout->column;
    object->whole = true;

    switch (layout->kind) {
    case GB_KIND_BYTES:
    case GB_KIND_BUNDLE:
        object->kind = layout->kind == GB_KIND_BYTES ? GPUBUF_KIND_BYTES : GPUBUF_KIND_BUNDLE;
        object->length = object->extent = layout->bytes;
        set_one_axis(object, 1);
        break;
    case GB_KIND_ARRAY:
        object->kind = GPUBUF_KIND_ARRAY;
        object->ndim = layout->ndim;
        object->shape = layout->shape;
        object->strides = layout->strides;
        object->length = layout->ndim ? layout->shape[0] : 1;
        object->offset = layout->column.offset;
        object->extent = array_extent(object);
        break;
    case GB_KIND_COLUMN:
        object->offset = layout->column.offset;
        object->length = layout->column.length;
        set_column(object);
        return;
    case GB_KIND_TABLE:
        object->kind = GPUBUF_KIND_TABLE;
        object->length = layout->column.length;
        break;
    }
    set_dtype(object);
}

/* A view of the same lease, to be filled in, with room for `ndim` extents of its own. */
static struct gpubuf_object *view_new(struct gb_client_lease *lease, unsigned ndim)
{
    struct gpubuf_object *view = calloc(1, sizeof(*view) + ndim * sizeof(view->own_shape[0]));

    if (!view) {
        (void)gb_report_memory(lease->client);
        return NULL;
    }
    atomic_init(&view->references, 1);
    (void)atomic_fetch_add_explicit(&lease->references, 1, memory_order_relaxed);
    view->lease = lease;
    return view;
}

int gb_object_check(const struct gpubuf_object *object)
{
    if (!object)
        return gb_report_text(NULL, GPUBUF_E_INVALID, "the object is NULL");
    if (gb_is_forked(object->lease->client))
        return gb_report_text(object->lease->client, GPUBUF_E_FORKED,
                              "the object belongs to the parent process; connect anew");
    return 0;
}

/* ---- what an object is ---- */

const char *gpubuf_object_errmsg(const struct gpubuf_object *object)
{
    return gpubuf_errmsg(object ? object->lease->client : NULL);
}

bool gpubuf_is_stale(const struct gpubuf_object *object)
{
    return object && (atomic_load(&object->lease->state) == GB_LEASE_STALE ||
                      atomic_load(&object->lease->client->ended));
}

enum gpubuf_kind gpubuf_kind(const struct gpubuf_object *object)
{
    return object->kind;
}

const char *gpubuf_name(const struct gpubuf_object *object)
{
    return object->lease->name;
}

uint64_t gpubuf_object_version(const struct gpubuf_object *object)
{
    return atomic_load_explicit(&object->lease->version, memory_order_relaxed);
}

const char *gpubuf_label(const struct gpubuf_object *object)
{
    const char *label = object->lease->label;

    return label && *label ? label : NULL;
}

bool gpubuf_is_live(const struct gpubuf_object *object)
{
    return object->lease->access.live;
}

bool gpubuf_is_foreign(const struct gpubuf_object *object)
{
    return object->lease->access.content != GB_CONTENT_OWN;
}

uint64_t gpubuf_generation(const struct gpubuf_object *object)
{
    return object->lease->access.generation;
}

const char *gpubuf_device(const struct gpubuf_object *object)
{
    return object->lease->device;
}

const char *gpubuf_column_name(const struct gpubuf_object *object)
{
    return object->kind == GPUBUF_KIND_COLUMN ? object->column->name : NULL;
}

const char *gpubuf_dtype(const struct gpubuf_object *object)
{
    return object->dtype;
}

uint64_t gpubuf_length(const struct gpubuf_object *object)
{
    return object->length;
}

uint64_t gpubuf_offset(const struct gpubuf_object *object)
{
    return object->kind == GPUBUF_KIND_TABLE ? 0 : object->offset;
}

int64_t gpubuf_null_count(const struct gpubuf_object *object)
{
    if (object->kind != GPUBUF_KIND_ARRAY && object->kind != GPUBUF_KIND_COLUMN)
        return 0;
    if (object->column->dtype.type == GB_TYPE_NULL)
        return (int64_t)object->length;
    return object->whole ? object->column->null_count : object->null_count;
}

unsigned gpubuf_ndim(const struct gpubuf_object *object)
{
    return object->ndim;
}

const uint64_t *gpubuf_shape(const struct gpubuf_object *object)
{
    return object->shape;
}

const int64_t *gpubuf_strides(const struct gpubuf_object *object)
{
    return object->strides;
}

/* ---- memory ---- */

void *gb_buffer_address(const struct gb_client_lease *lease, const struct gb_buffer *buffer)
{
    if (buffer->segment == GB_NO_SEGMENT)
        return nothing;
    return lease->segments[buffer->segment].address + buffer->offset;
}

char *gb_object_data(const struct gpubuf_object *object)
{
    if (object->selection && object->selection->copy)
        return object->selection->copy;
    return gb_buffer_address(object->lease, &object->column->data);
}

int gb_buffer_write(const struct gb_client_lease *lease, const struct gb_buffer *buffer,
                    uint64_t offset, const void *from, uint64_t bytes)
{
    if (bytes == 0)
        return 0;
    if (!buffer->present || offset > buffer->bytes || bytes > buffer->bytes - offset)
        return gb_report_text(lease->client, GPUBUF_E_PROTOCOL,
                              "the daemon gave a smaller buffer than it was asked for");
    struct gb_error error;
    const struct gb_mapped *mapping = lease->segments[buffer->segment].import->mappings[1];
    for (uint64_t done = 0, count; done < bytes; done += count) {
        count = gb_progress_piece(lease->client, bytes - done, GB_PROGRESS_PIECE);
        int r = gb_mapped_write(mapping, buffer->offset + offset + done, (const char *)from + done,
                                count, &error);
        if (r < 0)
            return gb_report(lease->client, &error);
        if ((r = gb_progress(lease->client, count)) < 0)
            return r;
    }
    return 0;
}

int gb_buffer_write_bits(const struct gb_client_lease *lease, const struct gb_buffer *buffer,
                         const unsigned char *bits, uint64_t start, uint64_t length)
{
    uint64_t bytes = length / 8 + (length % 8 != 0);
    unsigned shift = start % 8;
    const unsigned char *from = bits + start / 8;

    if (shift == 0)
        return gb_buffer_write(lease, buffer, 0, from, bytes);

    unsigned char chunk[4096];
    uint64_t available = (shift + length + 7) / 8; /* bytes that the source surely has */
    for (uint64_t done = 0; done < bytes;) {
        size_t count = bytes - done < sizeof(chunk) ? (size_t)(bytes - done) : sizeof(chunk);
        for (size_t i = 0; i < count; i++) {
            unsigned low = from[done + i] >> shift;
            unsigned high = done + i + 1 < available ? from[done + i + 1] : 0;
            chunk[i] = (unsigned char)(low | high << (8 - shift));
        }
        int r = gb_buffer_write(lease, buffer, done, chunk, count);
        if (r < 0)
            return r;
        done += count;
    }
    return 0;
}

int gpubuf_memory(const struct gpubuf_object *object, enum gpubuf_which which,
                  struct gpubuf_memory *memory)
{
    int r = gb_object_check(object);

    if (r < 0)
        return r;
    const struct gb_client_lease *lease = object->lease;
    if (atomic_load(&lease->client->disconnected))
        return gb_report_text(lease->client, GPUBUF_E_CLOSED,
                              "the client has disconnected; the memory is no longer promised");
    if (lease->parked)
        return gb_report_text(lease->client, GPUBUF_E_BUSY,
                              "%s is parked: resume its view before its memory is used",
                              lease->name);

    const struct gb_buffer *buffer = NULL;
    switch (which) {
    case GPUBUF_DATA:
        buffer = &object->column->data;
        break;
    case GPUBUF_MASK:
        buffer = &object->column->mask;
        break;
    case GPUBUF_OFFSETS:
        buffer = &object->column->offsets;
        break;
    }
    if (!buffer)
        return gb_report_text(lease->client, GPUBUF_E_INVALID, "no such buffer: %d", (int)which);
    if (object->kind == GPUBUF_KIND_TABLE || !buffer->present) {
        *memory = (struct gpubuf_memory){NULL, 0, false};
        return 1;
    }

    char *address = gb_buffer_address(lease, buffer);
    uint64_t bytes = buffer->bytes;
    if (which == GPUBUF_DATA && object->kind != GPUBUF_KIND_COLUMN) {
        address = object->extent ? gb_object_data(object) + object->start : nothing;
        bytes = object->extent;
    }
    *memory = (struct gpubuf_memory){
        .pointer = address,
        .bytes = bytes,
        .writable = gb_client_lease_is_writable(lease),
    };
    return 0;
}

static bool bit(const void *bits, uint64_t i)
{
    return ((const unsigned char *)bits)[i / 8] >> (i % 8) & 1;
}

uint64_t gb_count_bits(const unsigned char *bits, uint64_t offset, uint64_t length)
{
    uint64_t count = 0, i = offset, end = offset + length;

    for (; i < end && i % 8; i++)
        count += bit(bits, i);
    for (; end - i >= 64; i += 64) {
        uint64_t word;
        memcpy(&word, bits + i / 8, sizeof(word));
        count += (uint64_t)__builtin_popcountll(word);
    }
    for (; i < end; i++)
        count += bit(bits, i);
    return count;
}

static uint64_t element_count(const struct gpubuf_object *object)
{
    if (object->kind != GPUBUF_KIND_ARRAY)
        return object->length;
    uint64_t count = 1; /* bounded by the buffer's size, which was validated */
    for (unsigned i = 0; i < object->ndim; i++)
        count *= object->shape[i];
    return count;
}

/* An integer of 4 or 8 bytes. */
static uint64_t offset_at(const char *offsets, size_t width, uint64_t i)
{
    int32_t narrow;
    int64_t wide;

    if (width == sizeof(wide)) {
        memcpy(&wide, offsets + i * width, width);
        return (uint64_t)wide;
    }
    memcpy(&narrow, offsets + i * width, width);
    return (uint64_t)(int64_t)narrow;
}

bool gpubuf_is_valid(const struct gpubuf_object *object, uint64_t i)
{
    const struct gb_client_lease *lease = object->lease;

    if (i >= element_count(object) || !gb_is_host(lease->device))
        return false;
    if (object->kind != GPUBUF_KIND_ARRAY && object->kind != GPUBUF_KIND_COLUMN)
        return true;

    const struct gb_column *column = object->column;
    uint64_t at = object->offset + i;
    if (column->dtype.type == GB_TYPE_NULL)
        return false;
    if (column->dtype.type == GB_TYPE_DICTIONARY) { /* the indices have the nulls */
        column = &column->children[0];
        at += column->offset;
    }
    return !column->mask.present || bit(gb_buffer_address(lease, &column->mask), at);
}

const char *gpubuf_string_at(const struct gpubuf_object *column, uint64_t i, uint64_t *length)
{
    static const char empty[1];
    const struct gb_client_lease *lease = column->lease;
    const struct gb_column *made = column->column;
    uint64_t at = column->offset + i, begin, end, ignored = 0;

    length = length ? length : &ignored;
    *length = 0;
    if (column->kind != GPUBUF_KIND_COLUMN || !gpubuf_is_valid(column, i))
        return NULL;
    const struct gb_type_info *info = gb_type_info(made->dtype.type);
    if (!info->has_data || !info->offset_bytes)
        return NULL;
    const char *offsets = gb_buffer_address(lease, &made->offsets);
    const char *data = gb_buffer_address(lease, &made->data);
    begin = offset_at(offsets, info->offset_bytes, at);
    end = offset_at(offsets, info->offset_bytes, at + 1);
    /* A publisher may write anything; a negative offset is large here. */
    if (begin > end || end > made->data.bytes)
        return NULL;
    *length = end - begin;
    return data ? data + begin : empty;
}

/* ---- views ---- */

/* The known number of nulls in a part of a column. */
static int64_t part_null_count(int64_t null_count, uint64_t whole_length, uint64_t length)
{
    if (length == 0 || null_count == 0)
        return 0;
    if (length == whole_length)
        return null_count;
    return null_count == (int64_t)whole_length ? (int64_t)length : -1;
}

static int make_column(struct gpubuf_object *parent, struct gb_column *column, uint64_t offset,
                       uint64_t length, struct gpubuf_object **out)
{
    struct gpubuf_object *view = view_new(parent->lease, 0);

    if (!view)
        return GPUBUF_E_NO_MEMORY;
    view->column = column;
    view->offset = offset;
    view->length = length;
    view->whole = offset == column->offset && length == column->length;
    view->null_count = part_null_count(column->null_count, column->length, length);
    set_column(view);
    *out = view;
    return 0;
}

size_t gpubuf_child_count(const struct gpubuf_object *object)
{
    if (object->kind != GPUBUF_KIND_COLUMN && object->kind != GPUBUF_KIND_TABLE)
        return 0;
    return object->column->child_count;
}

int gpubuf_child(struct gpubuf_object *object, size_t i, struct gpubuf_object **child)
{
    int r = gb_object_check(object);

    if (r < 0)
        return r;
    size_t count = gpubuf_child_count(object);
    if (i >= count)
        return gb_report_text(object->lease->client, GPUBUF_E_INVALID,
                              "no child %zu: the object has %zu", i, count);

    struct gb_column *column =
        object->selection ? object->selection->origins[i] : &object->column->children[i];
    uint64_t offset = column->offset, length = column->length;
    const struct gb_dtype *dtype = &object->column->dtype;
    if (object->kind == GPUBUF_KIND_TABLE || dtype->type == GB_TYPE_STRUCT ||
        (dtype->type == GB_TYPE_DICTIONARY && i == 0)) {
        offset += object->offset;
        length = object->length;
    } else if (dtype->type == GB_TYPE_FIXED_LIST) {
        offset += object->offset * dtype->size;
        length = object->length * dtype->size;
    }
    return make_column(object, column, offset, length, child);
}

int gpubuf_column(struct gpubuf_object *object, const char *name, struct gpubuf_object **column)
{
    int r = gb_object_check(object);

    if (r < 0)
        return r;
    if (!name)
        return gb_report_text(object->lease->client, GPUBUF_E_INVALID, "the name is NULL");
    size_t count = gpubuf_child_count(object);
    for (size_t i = 0; i < count; i++) {
        const char *candidate = object->column->children[i].name;
        if (candidate && strcmp(candidate, name) == 0)
            return gpubuf_child(object, i, column);
    }
    return gb_report_text(object->lease->client, GPUBUF_E_NOT_FOUND, "%s has no column \"%s\"",
                          object->lease->name, name);
}

/* ---- some columns of a table ---- */

static struct gb_selection *selection_retain(struct gb_selection *selection)
{
    if (selection)
        (void)atomic_fetch_add_explicit(&selection->references, 1, memory_order_relaxed);
    return selection;
}

void gb_selection_drop(struct gb_selection *selection)
{
    if (!selection ||
        atomic_fetch_sub_explicit(&selection->references, 1, memory_order_acq_rel) > 1)
        return;
    free(selection->column.children);
    free(selection->origins);
    free(selection->copy);
    free(selection);
}

static struct gb_selection *selection_new(const struct gb_column *column, unsigned ndim)
{
    struct gb_selection *selection =
        calloc(1, sizeof(*selection) + ndim * sizeof(selection->strides[0]));

    if (!selection)
        return NULL;
    atomic_init(&selection->references, 1);
    selection->column = *column;
    return selection;
}

static struct gb_selection *selection_of_columns(const struct gb_column *table, size_t count)
{
    struct gb_selection *selection = selection_new(table, 0);

    if (!selection)
        return NULL;
    selection->column.child_count = 0;
    selection->column.children = calloc(count + 1, sizeof(*selection->column.children));
    selection->origins = calloc(count + 1, sizeof(*selection->origins));
    if (selection->column.children && selection->origins)
        return selection;
    gb_selection_drop(selection);
    return NULL;
}

/* Adds the column of that name. */
static int selection_add(struct gb_selection *selection, const struct gpubuf_object *table,
                         const char *name)
{
    const struct gpubuf_client *client = table->lease->client;
    struct gb_column *origin = NULL;

    for (uint32_t i = 0; name && !origin && i < table->column->child_count; i++) {
        struct gb_column *candidate =
            table->selection ? table->selection->origins[i] : &table->column->children[i];
        if (strcmp(candidate->name, name) == 0)
            origin = candidate;
    }
    if (!origin)
        return gb_report_text(client, GPUBUF_E_NOT_FOUND, "%s has no column \"%s\"",
                              table->lease->name, name ? name : "");
    uint32_t count = selection->column.child_count;
    for (uint32_t i = 0; i < count; i++) {
        if (selection->origins[i] == origin)
            return gb_report_text(client, GPUBUF_E_INVALID, "column \"%s\" is asked for twice",
                                  name);
    }
    selection->origins[count] = origin;
    selection->column.children[count] = *origin;
    selection->column.child_count = count + 1;
    return 0;
}

int gpubuf_select(struct gpubuf_object *table, const char *const *names, size_t count,
                  struct gpubuf_object **view)
{
    int r = gb_object_check(table);

    if (r < 0)
        return r;
    const struct gpubuf_client *client = table->lease->client;
    if (table->kind != GPUBUF_KIND_TABLE)
        return gb_report_text(client, GPUBUF_E_INVALID, "%s is no table", table->lease->name);
    if (atomic_load(&table->lease->state) != GB_LEASE_SEALED)
        return gb_report_text(client, GPUBUF_E_BUSY,
                              "%s is being written; select columns once it is sealed",
                              table->lease->name);
    /* If there are more names than columns, one is unknown or comes twice, which is found before
       the room is full. */
    size_t room = count < table->column->child_count ? count : table->column->child_count;
    struct gb_selection *selection = selection_of_columns(table->column, room);
    if (!selection)
        return gb_report_memory(client);
    for (size_t i = 0; r == 0 && i < count; i++)
        r = selection_add(selection, table, names[i]);
    struct gpubuf_object *made = r < 0 ? NULL : view_new(table->lease, 0);
    if (!made) {
        gb_selection_drop(selection);
        return r < 0 ? r : GPUBUF_E_NO_MEMORY;
    }
    made->kind = GPUBUF_KIND_TABLE;
    made->column = &selection->column;
    made->selection = selection;
    made->offset = table->offset;
    made->length = table->length;
    made->whole = table->whole;
    set_dtype(made);
    *view = made;
    return 0;
}

/* ---- an array of a bundle ---- */

int gb_object_array(struct gb_client_lease *lease, const struct gb_dtype *dtype, unsigned ndim,
                    const uint64_t *shape, uint64_t start, void *copy, struct gpubuf_object **array)
{
    struct gb_selection *selection = selection_new(&lease->layout.column, ndim);

    if (!selection) {
        free(copy);
        return gb_report_memory(lease->client);
    }
    selection->copy = copy;
    struct gpubuf_object *view = view_new(lease, ndim);
    if (!view) {
        gb_selection_drop(selection);
        return GPUBUF_E_NO_MEMORY;
    }
    view->kind = GPUBUF_KIND_ARRAY;
    view->column = &selection->column;
    view->selection = selection;
    view->whole = true;
    view->ndim = ndim;
    view->shape = view->own_shape;
    view->strides = selection->strides;
    view->length = ndim ? shape[0] : 1;
    selection->column.dtype = *dtype;
    uint64_t stride = gb_dtype_item(dtype);
    for (unsigned i = ndim; i-- > 0;) {
        uint64_t items = gb_dtype_items(dtype, shape[i], i + 1 == ndim);
        view->own_shape[i] = shape[i];
        selection->strides[i] = (int64_t)stride;
        stride *= items ? items : 1;
    }
    view->extent = array_extent(view);
    view->start = view->extent ? start : 0;
    set_dtype(view);
    *array = view;
    return 0;
}

/* ---- slices ---- */

static void slice_array(const struct gpubuf_object *array, struct gpubuf_object *slice,
                        uint64_t offset)
{
    uint64_t row = 1; /* elements */

    for (unsigned i = 1; i < array->ndim; i++)
        row *= array->shape[i];
    memcpy(slice->own_shape, array->shape, array->ndim * sizeof(array->shape[0]));
    slice->own_shape[0] = slice->length;
    slice->ndim = array->ndim;
    slice->shape = slice->own_shape;
    slice->strides = array->strides;
    slice->offset = array->offset + offset * row;
    slice->start = array->start + gb_dtype_items(&array->column->dtype, offset, array->ndim == 1) *
                                      (uint64_t)array->strides[0];
    slice->extent = array_extent(slice);
    if (slice->extent == 0) /* they may point past the end */
        slice->start = slice->offset = 0;
}

int gpubuf_slice(struct gpubuf_object *object, uint64_t offset, uint64_t length,
                 struct gpubuf_object **slice)
{
    int r = gb_object_check(object);

    if (r < 0)
        return r;
    struct gpubuf_client *client = object->lease->client;
    if (object->kind == GPUBUF_KIND_ARRAY && object->ndim == 0)
        return gb_report_text(client, GPUBUF_E_INVALID, "an array of 0 axes cannot be sliced");
    if (object->kind == GPUBUF_KIND_BUNDLE)
        return gb_report_text(client, GPUBUF_E_INVALID,
                              "%s is a bundle, which cannot be sliced, but its arrays can",
                              object->lease->name);
    if (offset > object->length || length > object->length - offset)
        return gb_report_text(client, GPUBUF_E_INVALID,
                              "%" PRIu64 " elements from %" PRIu64
                              " on go past the end: there are %" PRIu64,
                              length, offset, object->length);
    if (object->kind == GPUBUF_KIND_ARRAY && object->ndim == 1 &&
        !(gb_dtype_fills(&object->column->dtype, offset) &&
          gb_dtype_fills(&object->column->dtype, length)))
        return gb_report_text(client, GPUBUF_E_INVALID,
                              "elements %" PRIu64 " + %" PRIu64
                              ": those of %s are packed, and a slice of them begins and ends at "
                              "whole bytes",
                              offset, length, object->dtype);

    struct gpubuf_object *view =
        view_new(object->lease, object->kind == GPUBUF_KIND_ARRAY ? object->ndim : 0);
    if (!view)
        return GPUBUF_E_NO_MEMORY;
    view->kind = object->kind;
    view->column = object->column;
    view->selection = selection_retain(object->selection);
    view->length = length;
    view->whole = object->whole && length == object->length;
    view->null_count = part_null_count(gpubuf_null_count(object), object->length, length);
    switch (object->kind) {
    case GPUBUF_KIND_BYTES:
        view->start = object->start + offset;
        view->extent = length;
        set_one_axis(view, 1);
        set_dtype(view);
        break;
    case GPUBUF_KIND_ARRAY:
        slice_array(object, view, offset);
        set_dtype(view);
        break;
    case GPUBUF_KIND_COLUMN:
        view->offset = object->offset + offset;
        set_column(view);
        break;
    case GPUBUF_KIND_TABLE:
        view->offset = object->offset + offset;
        set_dtype(view);
        break;
    case GPUBUF_KIND_BUNDLE: /* refused above */
        break;
    }
    *slice = view;
    return 0;
}

/* ---- metadata ---- */

int gpubuf_metadata_at(const struct gpubuf_object *object, size_t i, const char **key,
                       const char **value)
{
    if (i >= object->column->metadata_count)
        return 1;
    *key = object->column->metadata[i].key;
    *value = object->column->metadata[i].value;
    return 0;
}

const char *gpubuf_metadata(const struct gpubuf_object *object, const char *key)
{
    const char *candidate, *value;

    for (size_t i = 0; gpubuf_metadata_at(object, i, &candidate, &value) == 0; i++) {
        if (strcmp(candidate, key) == 0)
            return value;
    }
    return NULL;
}
