/*
 * Layouts from any bytes, in all three forms: reading stays inside its input, what was read is
 * written and read again as the same, placing does not overflow, and slices stay inside what they
 * were cut from.
 *
 * The first two bytes choose the slice, the rest is text.
 */
#include "demand.h"
#include "tests/unit/layouts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BOUND (UINT64_C(1) << 52)

/* Writes, reads again, compares. */
static void check_round_trip(const struct gb_layout *layout, enum gb_layout_form form,
                             struct gb_pool *pool)
{
    struct gb_writer writer;
    struct gb_json value;
    struct gb_layout back;
    size_t length;

    gb_writer_init(&writer, 0);
    gb_layout_write(&writer, layout, form);
    char *text = gb_writer_take(&writer, &length);
    DEMAND(text);
    DEMAND(gb_json_check(text, length, pool, &value, NULL) == 0);
    DEMAND(gb_layout_read(value, form, NULL, pool, &back, NULL) == 0);
    DEMAND(layouts_equal(layout, &back));
    free(text);
}

/* Buffers lie one after the other, with no gap of a whole unit. `arg`: where the last one ends. */
static int check_placed(struct gb_buffer *buffer, void *arg)
{
    uint64_t *end = arg;

    DEMAND(buffer->offset % GB_BUFFER_ALIGN == 0);
    if (buffer->bytes == 0)
        return 0;
    DEMAND(buffer->offset >= *end && buffer->offset - *end < GB_BUFFER_ALIGN);
    *end = buffer->offset + buffer->bytes;
    return 0;
}

struct ranges {
    struct gb_buffer items[3 * 4096];
    size_t count, next;
};

static int remember(struct gb_buffer *buffer, void *arg)
{
    struct ranges *ranges = arg;

    DEMAND(ranges->count < sizeof(ranges->items) / sizeof(ranges->items[0]));
    ranges->items[ranges->count++] = *buffer;
    return 0;
}

static int check_inside(struct gb_buffer *buffer, void *arg)
{
    struct ranges *ranges = arg;
    const struct gb_buffer *whole = &ranges->items[ranges->next++];

    DEMAND(buffer->segment == whole->segment);
    DEMAND(buffer->offset >= whole->offset && buffer->offset < BOUND);
    DEMAND(buffer->offset + buffer->bytes <= whole->offset + whole->bytes);
    return 0;
}

/* Whether slices of this layout are refused although they lie inside. */
static bool cannot_be_sliced(const struct gb_layout *layout, uint64_t offset, uint64_t length)
{
    const struct gb_dtype *dtype = &layout->column.dtype;

    if (layout->kind == GB_KIND_BUNDLE)
        return length != layout->bytes;
    if (layout->kind != GB_KIND_ARRAY || layout->ndim > 1)
        return false;
    return layout->ndim == 0 || !gb_dtype_fills(dtype, offset) || !gb_dtype_fills(dtype, length);
}

static void check_slice(struct gb_layout *layout, enum gb_layout_form form, uint8_t from,
                        uint8_t count, struct gb_pool *pool)
{
    static struct ranges ranges;
    uint64_t length = gb_layout_length(layout);
    uint64_t offset = from < 128 ? from : length - (length < from - 128u ? length : from - 128u);
    uint64_t wanted =
        count < 128 ? count : length - (length < count - 128u ? length : count - 128u);

    ranges.count = ranges.next = 0;
    gb_layout_each(layout, remember, &ranges);
    bool inside = offset <= length && wanted <= length - offset;
    bool refused = cannot_be_sliced(layout, offset, wanted);
    int r = gb_layout_slice(layout, offset, wanted, NULL, NULL);
    DEMAND((r == 0) == (inside && !refused));
    if (r < 0)
        return;
    DEMAND(gb_layout_length(layout) == wanted);
    gb_layout_each(layout, check_inside, &ranges);
    DEMAND(ranges.next == ranges.count);
    if (form != GB_LAYOUT_CREATE)
        check_round_trip(layout, form, pool);
}

static void check_form(struct gb_json value, enum gb_layout_form form, const uint8_t *choice,
                       struct gb_pool *pool)
{
    struct gb_path path = {.key = "layout"};
    struct gb_layout layout;
    struct gb_error error = {.code = 0};
    uint64_t total;

    if (gb_layout_read(value, form, &path, pool, &layout, &error) < 0) {
        DEMAND(error.code < 0 && error.message[0]);
        DEMAND(gb_utf8_valid(error.message, strlen(error.message)));
        return;
    }
    check_round_trip(&layout, form, pool);
    if (form == GB_LAYOUT_CREATE && gb_layout_measure(&layout, &total, &error) == 0) {
        uint64_t end = 0;

        gb_layout_each(&layout, check_placed, &end);
        DEMAND(end == total && total < BOUND);
    }
    check_slice(&layout, form, choice[0], choice[1], pool);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gb_json value;
    struct gb_pool tape = {.chunks = NULL}, pool = {.chunks = NULL};

    if (size < 3)
        return 0;
    /* A copy of the exact size, so that a byte read past the end is found. */
    char *text = malloc(size - 2);
    DEMAND(text);
    memcpy(text, data + 2, size - 2);
    if (gb_json_check(text, size - 2, &tape, &value, NULL) == 0) {
        for (enum gb_layout_form form = GB_LAYOUT_CREATE; form <= GB_LAYOUT_REPLY; form++) {
            check_form(value, form, data, &pool);
            gb_pool_reset(&pool);
        }
    }
    gb_pool_end(&pool);
    gb_pool_end(&tape);
    free(text);
    return 0;
}
