#include "client/lib/data/arrow_check.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/lib/wire/report.h"

#define ALIGNMENT 64u /* of a copy, which Arrow recommends; and of `first` */

/* The elements that are checked: `skipped` ones from `first` on, then `length`. */
struct range {
    const struct gpubuf_object *object;
    const struct gb_column *column;
    uint64_t first, skipped, length;
};

bool gb_arrow_must_check(const struct gpubuf_object *object)
{
    return object->lease->access.content != GB_CONTENT_OWN && gb_is_host(object->lease->device);
}

/* The column is told by its type: its name is the other user's, too, and may be any text. */
static int fail(const struct range *range, const char *what, uint64_t i, int64_t value,
                const char *expected, uint64_t limit)
{
    const struct gb_client_lease *lease = range->object->lease;

    return gb_report_text(lease->client, GPUBUF_E_INVALID,
                          "%s, which another user wrote, cannot be read: in a column of %s %s "
                          "%" PRIu64 " is %" PRId64 ", expected %s %" PRIu64,
                          lease->name, gb_type_info(range->column->dtype.type)->name, what,
                          range->first + i, value, expected, limit);
}

/* ---- offsets ---- */

/* For each width: whether the offsets ascend from 0 to at most `limit`. If they were copied
   (`own`), those before the part become equal to its first, and those of items count from there. */
#define OFFSETS(name, type)                                                                        \
    static int name##_offsets(const struct range *range, type *offsets, bool own, uint64_t limit,  \
                              bool items)                                                          \
    {                                                                                              \
        uint64_t count = range->skipped + range->length;                                           \
        bool falls = false;                                                                        \
                                                                                                   \
        for (uint64_t i = 0; own && i < range->skipped; i++)                                       \
            offsets[i] = offsets[range->skipped];                                                  \
        for (uint64_t i = 0; i < count; i++)                                                       \
            falls |= offsets[i] > offsets[i + 1];                                                  \
        type begin = offsets[0];                                                                   \
        if (begin < 0 || (uint64_t)offsets[count] > limit || falls) {                              \
            uint64_t i = 0;                                                                        \
            while (offsets[i] >= 0 && (uint64_t)offsets[i] <= limit &&                             \
                   (i == 0 || offsets[i - 1] <= offsets[i]))                                       \
                i++;                                                                               \
            return fail(range, "offset", i, offsets[i], "ascending ones up to", limit);            \
        }                                                                                          \
        for (uint64_t i = 0; own && items && i <= count; i++)                                      \
            offsets[i] = (type)(offsets[i] - begin);                                               \
        return 0;                                                                                  \
    }

OFFSETS(narrow, int32_t)
OFFSETS(wide, int64_t)

static uint64_t offset_at(const void *offsets, unsigned width, uint64_t i)
{
    return width == 8 ? (uint64_t)((const int64_t *)offsets)[i]
                      : (uint64_t)((const int32_t *)offsets)[i];
}

static int check_offsets(const struct range *range, void *offsets, bool own,
                         struct gb_arrow_checked *checked)
{
    const struct gb_type_info *info = gb_type_info(range->column->dtype.type);
    uint64_t limit = info->has_data ? range->column->data.bytes : range->column->children[0].length;
    uint64_t last = range->skipped + range->length;
    uint64_t begin = offset_at(offsets, info->offset_bytes, range->skipped);
    int r = info->offset_bytes == 8 ? wide_offsets(range, offsets, own, limit, !info->has_data)
                                    : narrow_offsets(range, offsets, own, limit, !info->has_data);

    if (r == 0 && own && !info->has_data) {
        checked->narrows = true;
        checked->child_first = begin;
        checked->child_length = offset_at(offsets, info->offset_bytes, last);
    }
    return r;
}

/* ---- codes ---- */

static int64_t code_at(const void *codes, enum gb_type type, uint64_t i)
{
    switch (type) {
    case GB_TYPE_INT8:
        return ((const int8_t *)codes)[i];
    case GB_TYPE_UINT8:
        return ((const uint8_t *)codes)[i];
    case GB_TYPE_INT16:
        return ((const int16_t *)codes)[i];
    case GB_TYPE_UINT16:
        return ((const uint16_t *)codes)[i];
    case GB_TYPE_INT32:
        return ((const int32_t *)codes)[i];
    case GB_TYPE_UINT32:
        return ((const uint32_t *)codes)[i];
    default: /* of 64 bits; one that is too large is negative here */
        return ((const int64_t *)codes)[i];
    }
}

/* The first code that is no number of a value, from number `i` on. */
static uint64_t next_wild(const struct range *range, const void *codes, uint64_t values, uint64_t i)
{
    enum gb_type type = range->column->dtype.type;
    uint64_t count = range->skipped + range->length;

    while (i < count && (uint64_t)code_at(codes, type, i) < values)
        i++;
    return i;
}

/* A null's code may be anything, and becomes 0 in the copy; so does that of a skipped element. */
static int check_codes(const struct range *range, void *codes, const unsigned char *mask,
                       uint64_t values)
{
    uint64_t width = gb_dtype_bits(&range->column->dtype) / 8;
    uint64_t count = range->skipped + range->length;

    for (uint64_t i = 0; (i = next_wild(range, codes, values, i)) < count; i++) {
        if (i >= range->skipped && (!mask || mask[i / 8] >> (i % 8) & 1))
            return fail(range, "code", i, code_at(codes, range->column->dtype.type, i), "one below",
                        values);
        memset((char *)codes + i * width, 0, width);
    }
    return 0;
}

/* ---- a part ---- */

static const char *source_of(const struct range *range, const struct gb_buffer *buffer,
                             uint64_t bits)
{
    return (const char *)gb_buffer_address(range->object->lease, buffer) + range->first * bits / 8;
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Copies mask and offsets or codes into one piece. */
static int copy(const struct range *range, const char *mask, const char *numbers, uint64_t width,
                uint64_t count, struct gb_arrow_checked *checked)
{
    uint64_t bits = mask ? (range->skipped + range->length + 7) / 8 : 0;

    checked->copy = aligned_alloc(ALIGNMENT, aligned(bits) + aligned(count * width) + ALIGNMENT);
    if (!checked->copy)
        return GPUBUF_E_NO_MEMORY;
    if (mask)
        checked->mask = memcpy(checked->copy, mask, bits);
    if (numbers)
        numbers = memcpy((char *)checked->copy + aligned(bits), numbers, count * width);
    if (checked->offsets)
        checked->offsets = numbers;
    if (checked->codes)
        checked->codes = numbers;
    return 0;
}

int gb_arrow_check(const struct gpubuf_object *object, const struct gb_column *column,
                   uint64_t offset, uint64_t length, const struct gb_column *values,
                   struct gb_arrow_checked *checked)
{
    const struct gb_type_info *info = gb_type_info(column->dtype.type);
    struct range range = {object, column, offset - offset % ALIGNMENT, offset % ALIGNMENT, length};
    uint64_t width = values ? gb_dtype_bits(&column->dtype) / 8 : info->offset_bytes;
    uint64_t count = range.skipped + length + (info->offset_bytes > 0);
    bool own = object->lease->access.content != GB_CONTENT_FINAL;
    int r = 0;

    *checked = (struct gb_arrow_checked){.first = range.first};
    if (column->mask.present)
        checked->mask = source_of(&range, &column->mask, 1);
    if (info->offset_bytes)
        checked->offsets = source_of(&range, &column->offsets, width * 8);
    if (values)
        checked->codes = source_of(&range, &column->data, width * 8);
    /* Codes of nulls can be made right in a copy alone. */
    own = own || (values && next_wild(&range, checked->codes, values->length, 0) < count);
    if (own && (checked->mask || width))
        r = copy(&range, checked->mask, checked->offsets ? checked->offsets : checked->codes, width,
                 count, checked);
    if (r == 0 && checked->offsets)
        r = check_offsets(&range, (void *)(uintptr_t)checked->offsets, own, checked);
    if (r == 0 && values)
        r = check_codes(&range, (void *)(uintptr_t)checked->codes, checked->mask, values->length);
    if (r < 0) {
        free(checked->copy);
        return r;
    }
    if (column->dtype.type == GB_TYPE_STRUCT || column->dtype.type == GB_TYPE_FIXED_LIST) {
        uint64_t each = column->dtype.type == GB_TYPE_STRUCT ? 1 : column->dtype.size;
        checked->narrows = true;
        checked->child_first = range.first * each;
        checked->child_length = (range.skipped + length) * each;
    }
    checked->null_count = (int64_t)length;
    if (checked->mask)
        checked->null_count -= (int64_t)gb_count_bits(checked->mask, range.skipped, length);
    else if (column->dtype.type != GB_TYPE_NULL)
        checked->null_count = 0;
    return 0;
}
