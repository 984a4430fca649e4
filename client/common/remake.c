#include "client/common/remake.h"

#include <inttypes.h>
#include <string.h>

int gb_fail_library(const struct gpubuf_object *object, int code, struct gb_error *error)
{
    const char *sentence = gpubuf_object_errmsg(object);

    return gb_fail(error, code, "%s", sentence[0] ? sentence : gpubuf_strerror(code));
}

/* ---- what a column shows ---- */

/* Reads the offsets at both ends of a range of elements: their bytes lie between these. */
static int read_ends(struct gpubuf_object *object, const uint64_t at[2], unsigned width,
                     uint64_t limit, uint64_t ends[2], struct gb_error *error)
{
    ends[0] = ends[1] = 0;
    for (int i = 0; i < 2; i++) {
        int code = gpubuf_read(object, GPUBUF_OFFSETS, at[i] * width, &ends[i], width, NULL);
        if (code < 0)
            return gb_fail_library(object, code, error);
    }
    if (ends[0] <= ends[1] && ends[1] <= limit)
        return 0;
    return gb_fail(error, GPUBUF_E_INVALID,
                   "its offsets %" PRIu64 " to %" PRIu64 " are not within 0 to %" PRIu64, ends[0],
                   ends[1], limit);
}

static int narrow(struct gpubuf_object *object, struct gb_column *column,
                  struct gb_stretch stretches[3], struct gb_error *error)
{
    const struct gb_type_info *info = gb_type_info(column->dtype.type);
    struct gb_buffer *buffers[] = {&column->data, &column->mask, &column->offsets};
    uint64_t first = column->child_count ? 0 : column->offset / 8 * 8;
    uint64_t last = column->offset + column->length;
    uint64_t sizes[3], ends[2];

    column->offset -= first;
    if (!gb_column_sizes(column, &sizes[GPUBUF_DATA], &sizes[GPUBUF_MASK], &sizes[GPUBUF_OFFSETS]))
        return gb_fail(error, GPUBUF_E_INVALID, "its layout makes no sense");
    stretches[GPUBUF_DATA].from = first / 8 * gb_dtype_bits(&column->dtype);
    stretches[GPUBUF_MASK].from = first / 8;
    stretches[GPUBUF_OFFSETS].from = first * info->offset_bytes;
    if (info->offset_bytes > 0 && info->has_data) {
        int r = read_ends(object, (uint64_t[]){first, last}, info->offset_bytes, column->data.bytes,
                          ends, error);
        if (r != 0)
            return r;
        stretches[GPUBUF_DATA].from = ends[0];
        sizes[GPUBUF_DATA] = ends[1] - ends[0];
        stretches[GPUBUF_OFFSETS].width = info->offset_bytes;
        stretches[GPUBUF_OFFSETS].base = ends[0];
    }
    for (int i = 0; i < 3; i++) {
        uint64_t has = buffers[i]->present ? buffers[i]->bytes : 0;
        uint64_t left = has > stretches[i].from ? has - stretches[i].from : 0;
        stretches[i].bytes = sizes[i] < left ? sizes[i] : left;
        buffers[i]->bytes = stretches[i].bytes;
    }
    return 0;
}

int gb_column_stretches(struct gpubuf_object *object, struct gb_column *column, bool narrows,
                        gb_each_stretch *each, void *user, struct gb_error *error)
{
    static const enum gpubuf_which order[] = {GPUBUF_MASK, GPUBUF_OFFSETS, GPUBUF_DATA};
    const struct gb_buffer *buffers[] = {&column->data, &column->mask, &column->offsets};
    struct gb_stretch stretches[3];
    int r = 0;

    for (int i = 0; i < 3; i++)
        stretches[i] =
            (struct gb_stretch){object, (enum gpubuf_which)i, .bytes = buffers[i]->bytes};
    if (narrows)
        r = narrow(object, column, stretches, error);
    for (int i = 0; i < 3 && r == 0; i++)
        if (buffers[order[i]]->present)
            r = each(user, &stretches[order[i]], error);
    for (uint32_t i = 0; i < column->child_count && r == 0; i++) {
        struct gpubuf_object *child = NULL;
        int code = gpubuf_child(object, i, &child);
        r = code < 0 ? gb_fail_library(object, code, error)
                     : gb_column_stretches(child, &column->children[i], narrows, each, user, error);
        gpubuf_release(child);
    }
    return r;
}

int gb_array_stretches(struct gpubuf_object *object, struct gb_column *column,
                       struct gb_stretch *mask, struct gb_stretch *data, struct gb_error *error)
{
    uint64_t none;

    *data = (struct gb_stretch){object, GPUBUF_DATA, .from = 0};
    *mask = (struct gb_stretch){object, GPUBUF_MASK, .from = column->offset / 8,
                                .shift = (unsigned)(column->offset % 8)};
    column->offset = 0;
    if (!gb_column_sizes(column, &data->bytes, &mask->bytes, &none))
        return gb_fail(error, GPUBUF_E_INVALID, "its layout makes no sense");
    mask->bytes = (column->length + 7) / 8;
    column->data.bytes = data->bytes;
    column->mask.bytes = mask->bytes;
    return 0;
}

void gb_shift_bits(unsigned char *bytes, uint64_t length, unsigned shift)
{
    for (uint64_t i = 0; i < length && shift > 0; i++)
        bytes[i] = (unsigned char)(bytes[i] >> shift | bytes[i + 1] << (8 - shift));
}

void gb_rebase(void *bytes, uint64_t length, unsigned width, uint64_t base)
{
    char *at = bytes;

    for (uint64_t i = 0; i + width <= length && base > 0; i += width) {
        uint64_t value = 0; /* a publisher may have written anything: it may wrap round */
        memcpy(&value, at + i, width);
        value -= base;
        memcpy(at + i, &value, width);
    }
}

/* ---- what `create` takes ---- */

static bool spec_column(const struct gb_column *column, struct gb_pool *pool,
                        struct gpubuf_column_spec *spec)
{
    enum { DTYPE = 64 };
    uint32_t pairs = column->metadata_count;
    struct gpubuf_column_spec *children =
        gb_pool_calloc(pool, column->child_count + 1, sizeof(*children));
    const char **metadata = gb_pool_calloc(pool, 2 * (size_t)pairs + 1, sizeof(*metadata));
    char *dtype = gb_pool_alloc(pool, DTYPE);

    if (!children || !metadata || !dtype)
        return false;
    gb_dtype_format(&column->dtype, dtype, DTYPE);
    for (uint32_t i = 0; i < pairs; i++) {
        metadata[2 * i] = column->metadata[i].key;
        metadata[2 * i + 1] = column->metadata[i].value;
    }
    *spec = (struct gpubuf_column_spec){
        .name = column->name,
        .dtype = dtype,
        .length = column->length,
        .offset = column->offset,
        .null_count = column->null_count,
        .mask = column->mask.present,
        .data_bytes = gb_dtype_bits(&column->dtype) ? 0 : column->data.bytes,
        .children = children,
        .child_count = column->child_count,
        .metadata = pairs ? metadata : NULL,
    };
    for (uint32_t i = 0; i < column->child_count; i++)
        if (!spec_column(&column->children[i], pool, &children[i]))
            return false;
    return true;
}

bool gb_layout_spec(const struct gb_layout *layout, struct gb_pool *pool,
                    struct gpubuf_layout_spec *spec)
{
    static const enum gpubuf_kind kinds[] = {
        [GB_KIND_BYTES] = GPUBUF_KIND_BYTES,   [GB_KIND_ARRAY] = GPUBUF_KIND_ARRAY,
        [GB_KIND_COLUMN] = GPUBUF_KIND_COLUMN, [GB_KIND_TABLE] = GPUBUF_KIND_TABLE,
        [GB_KIND_BUNDLE] = GPUBUF_KIND_BUNDLE,
    };

    *spec = (struct gpubuf_layout_spec){
        .kind = kinds[layout->kind],
        .bytes = layout->bytes,
        .manifest_bytes = layout->manifest_bytes,
        .ndim = layout->ndim,
        .shape = layout->shape,
        .mask = layout->column.mask.present,
    };
    if (!spec_column(&layout->column, pool, &spec->column))
        return false;
    spec->dtype = spec->column.dtype;
    return true;
}
