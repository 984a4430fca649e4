#include "client/peer/content.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "client/common/remake.h"

/* A part of a buffer, as it is to be sent. */
struct gb_part {
    struct gpubuf_object *object; /* a reference */
    enum gpubuf_which which;
    uint64_t at;          /* in the content */
    uint64_t from, bytes; /* of the buffer */
    unsigned shift;       /* bits of its first byte that are left out */
    unsigned width;       /* of its integers, from which `base` is subtracted */
    uint64_t base;        /* 0: they stay */
    char *memory;         /* its first byte, on the host; else NULL */
    uint64_t has;         /* bytes of the buffer from there on */
};

uint64_t gb_content_sum(const void *bytes, size_t length)
{
    return XXH3_64bits(bytes, length);
}

void gb_content_end(struct gb_content *content)
{
    for (size_t i = 0; i < content->count; i++)
        gpubuf_release(content->parts[i].object);
    free(content->parts);
    *content = (struct gb_content){0};
}

/* ---- the parts of an object ---- */

static int add(struct gb_content *content, const struct gb_part *part, struct gb_error *error)
{
    struct gpubuf_memory memory = {0};
    struct gb_part *added;

    if (part->bytes == 0)
        return 0;
    int code = gpubuf_memory(part->object, part->which, &memory);
    if (code < 0)
        return gb_fail_library(part->object, code, error);
    if (part->from > memory.bytes || part->bytes > memory.bytes - part->from)
        return gb_fail(error, GPUBUF_E_INVALID, "its layout is larger than its memory");
    if (content->count == content->room) {
        size_t room = content->room ? 2 * content->room : 8;
        added = realloc(content->parts, room * sizeof(*added));
        if (!added)
            return gb_fail_memory(error);
        content->parts = added;
        content->room = room;
    }
    added = &content->parts[content->count++];
    *added = *part;
    gpubuf_retain(part->object);
    added->at = content->bytes;
    added->has = memory.bytes - part->from;
    if (strcmp(gpubuf_device(part->object), "host") == 0)
        added->memory = (char *)memory.pointer + part->from;
    content->bytes += part->bytes;
    return 0;
}

static int add_column(struct gb_content *content, struct gpubuf_object *object,
                      struct gb_column *column, bool narrows, struct gb_error *error)
{
    static const enum gpubuf_which order[] = {GPUBUF_MASK, GPUBUF_OFFSETS, GPUBUF_DATA};
    const struct gb_buffer *buffers[] = {&column->data, &column->mask, &column->offsets};
    struct gb_stretch stretches[3];
    struct gb_part parts[3];
    int r = 0;

    for (int i = 0; i < 3; i++)
        parts[i] = (struct gb_part){object, (enum gpubuf_which)i, .bytes = buffers[i]->bytes};
    if (narrows)
        r = gb_narrow(object, column, stretches, error);
    for (int i = 0; i < 3 && narrows; i++) {
        parts[i].from = stretches[i].from;
        parts[i].bytes = stretches[i].bytes;
        parts[i].width = stretches[i].width;
        parts[i].base = stretches[i].base;
    }
    for (int i = 0; i < 3 && r == 0; i++)
        if (buffers[order[i]]->present)
            r = add(content, &parts[order[i]], error);
    for (uint32_t i = 0; i < column->child_count && r == 0; i++) {
        struct gpubuf_object *child = NULL;
        int code = gpubuf_child(object, i, &child);
        r = code < 0 ? gb_fail_library(object, code, error)
                     : add_column(content, child, &column->children[i], narrows, error);
        gpubuf_release(child);
    }
    return r;
}

static int add_array(struct gb_content *content, struct gpubuf_object *object,
                     struct gb_layout *layout, struct gb_error *error)
{
    struct gb_part data = {object, GPUBUF_DATA, .bytes = 0}, mask = {object, GPUBUF_MASK, .at = 0};
    struct gb_column *column = &layout->column;
    uint64_t none;
    int r = 0;

    if (!layout->c_order)
        return gb_fail(error, GPUBUF_E_UNSUPPORTED, "its elements are not in C order");
    mask.from = column->offset / 8;
    mask.shift = (unsigned)(column->offset % 8);
    column->offset = 0;
    if (!gb_column_sizes(column, &data.bytes, &mask.bytes, &none))
        return gb_fail(error, GPUBUF_E_INVALID, "its layout makes no sense");
    mask.bytes = (column->length + 7) / 8;
    column->data.bytes = data.bytes;
    column->mask.bytes = mask.bytes;
    if (column->mask.present)
        r = add(content, &mask, error);
    return r == 0 ? add(content, &data, error) : r;
}

int gb_content_of(struct gb_content *content, struct gpubuf_object *object,
                  struct gb_layout *layout, struct gb_error *error)
{
    *content = (struct gb_content){0};
    int r = layout->kind == GB_KIND_ARRAY
                ? add_array(content, object, layout, error)
                : add_column(content, object, &layout->column, true, error);
    if (r < 0)
        gb_content_end(content);
    return r;
}

int gb_content_for(struct gb_content *content, struct gpubuf_object *object,
                   const struct gb_layout *layout, struct gb_error *error)
{
    struct gb_column column = layout->column;

    *content = (struct gb_content){0};
    int r = add_column(content, object, &column, false, error);
    if (r < 0)
        gb_content_end(content);
    return r;
}

static int add_bytes(struct gb_buffer *buffer, void *arg)
{
    uint64_t *bytes = arg;

    *bytes += buffer->bytes; /* each is below 2^52, and there are no more than 3 * 4096 of them */
    return *bytes > (uint64_t)GB_LIMIT(integer);
}

bool gb_content_bytes(const struct gb_layout *layout, uint64_t *bytes)
{
    struct gb_layout copy = *layout;

    *bytes = 0;
    return gb_layout_each(&copy, add_bytes, bytes) == 0;
}

/* ---- chunks ---- */

/* The part that has the byte. */
static const struct gb_part *part_at(const struct gb_content *content, uint64_t at)
{
    size_t low = 0, high = content->count;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        *(content->parts[middle].at <= at ? &low : &high) = middle;
    }
    return &content->parts[low];
}

void *gb_content_direct(const struct gb_content *content, uint64_t chunk)
{
    uint64_t at = chunk * GB_CHUNK, bytes = gb_content_chunk_bytes(content->bytes, chunk);
    const struct gb_part *part = part_at(content, at);

    if (!part->memory || part->shift || part->base || at - part->at + bytes > part->bytes)
        return NULL;
    return part->memory + (at - part->at);
}

/* Moves the bits down by `shift`, into `length` bytes; there is one more. */
static void shift_bits(unsigned char *bytes, uint64_t length, unsigned shift)
{
    for (uint64_t i = 0; i < length && shift > 0; i++)
        bytes[i] = (unsigned char)(bytes[i] >> shift | bytes[i + 1] << (8 - shift));
}

/* Takes `base` from the integers. `head`: bytes of the first one that come before `bytes`. */
static void rebase(char *bytes, uint64_t length, unsigned width, uint64_t base)
{
    for (uint64_t i = 0; i + width <= length; i += width) {
        uint64_t value = 0; /* what a publisher wrote may be anything: it wraps round */
        memcpy(&value, bytes + i, width);
        value -= base;
        memcpy(bytes + i, &value, width);
    }
}

/* Bytes `done` to `done + count` of a part. */
static int read_part(const struct gb_part *part, uint64_t done, unsigned char *buffer,
                     uint64_t count, struct gb_error *error)
{
    /* Integers are read whole, and the last bits may be in one byte more. */
    unsigned head = part->base ? (unsigned)(done % part->width) : 0;
    uint64_t tail = part->base ? (part->width - (head + count) % part->width) % part->width
                               : part->shift > 0 && done + count < part->has;
    uint64_t from = done - head, length = head + count + tail;
    unsigned char few[16];

    if (head) { /* an integer that the chunk before began */
        uint64_t rest = part->width - head < count ? part->width - head : count;
        int code =
            gpubuf_read(part->object, part->which, part->from + from, few, part->width, NULL);
        if (code < 0)
            return gb_fail_library(part->object, code, error);
        rebase((char *)few, part->width, part->width, part->base);
        memcpy(buffer, few + head, rest);
        return rest == count ? 0 : read_part(part, done + rest, buffer + rest, count - rest, error);
    }
    buffer[count] = 0;
    int code = gpubuf_read(part->object, part->which, part->from + from, buffer, length, NULL);
    if (code < 0)
        return gb_fail_library(part->object, code, error);
    if (part->base)
        rebase((char *)buffer, length, part->width, part->base);
    shift_bits(buffer, count, part->shift);
    return 0;
}

/* Goes through the parts that have bytes of the chunk. */
static int move(const struct gb_content *content, uint64_t chunk, unsigned char *buffer,
                bool writes, struct gb_error *error)
{
    uint64_t at = chunk * GB_CHUNK, end = at + gb_content_chunk_bytes(content->bytes, chunk);

    for (const struct gb_part *part = part_at(content, at); at < end; part++) {
        uint64_t done = at - part->at, count = part->bytes - done;
        count = count < end - at ? count : end - at;
        int r = 0;
        if (!writes) {
            r = read_part(part, done, buffer, count, error);
        } else {
            int code =
                gpubuf_write(part->object, part->which, part->from + done, buffer, count, NULL);
            r = code < 0 ? gb_fail_library(part->object, code, error) : 0;
        }
        if (r < 0)
            return r;
        at += count;
        buffer += count;
    }
    return 0;
}

int gb_content_read(const struct gb_content *content, uint64_t chunk, void *buffer,
                    struct gb_error *error)
{
    return move(content, chunk, buffer, false, error);
}

int gb_content_write(const struct gb_content *content, uint64_t chunk, const void *buffer,
                     struct gb_error *error)
{
    return move(content, chunk, (unsigned char *)(uintptr_t)buffer, true, error);
}
