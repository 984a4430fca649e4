#include "client/peer/content/content.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "client/common/remake.h"
#include "client/peer/content/sum_avx2.h"
#include "proto/wire/handle.h"

struct gb_peer_part {
    struct gb_stretch stretch; /* its object is a reference */
    uint64_t at;               /* in the content */
    char *memory;              /* its first byte, on the host; else NULL */
    uint64_t has;              /* bytes of the buffer from there on */
};

uint64_t gb_peer_content_sum(const void *bytes, size_t length)
{
#ifdef GB_PEER_SUM_AVX2
    if (__builtin_cpu_supports("avx2"))
        return gb_peer_sum_avx2(bytes, length);
#endif
    return XXH3_64bits(bytes, length);
}

void gb_peer_content_end(struct gb_peer_content *content)
{
    for (size_t i = 0; i < content->count; i++)
        gpubuf_release(content->parts[i].stretch.object);
    free(content->parts);
    *content = (struct gb_peer_content){0};
}

/* ---- the parts of an object ---- */

static int add(void *user, const struct gb_stretch *stretch, struct gb_error *error)
{
    struct gb_peer_content *content = user;
    struct gpubuf_memory memory = {0};
    struct gb_peer_part *added;

    if (stretch->bytes == 0)
        return 0;
    int code = gpubuf_memory(stretch->object, stretch->which, &memory);
    if (code < 0)
        return gb_fail_library(stretch->object, code, error);
    if (stretch->from > memory.bytes || stretch->bytes > memory.bytes - stretch->from)
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
    *added = (struct gb_peer_part){
        .stretch = *stretch, .at = content->bytes, .has = memory.bytes - stretch->from};
    gpubuf_retain(stretch->object);
    if (gb_is_host(gpubuf_device(stretch->object)))
        added->memory = (char *)memory.pointer + stretch->from;
    content->bytes += stretch->bytes;
    return 0;
}

static int add_array(struct gb_peer_content *content, struct gpubuf_object *object,
                     struct gb_layout *layout, struct gb_error *error)
{
    struct gb_stretch data, mask;
    int r;

    if (!layout->c_order)
        return gb_fail(error, GPUBUF_E_UNSUPPORTED, "its elements are not in C order");
    r = gb_array_stretches(object, &layout->column, &mask, &data, error);
    if (r == 0 && layout->column.mask.present)
        r = add(content, &mask, error);
    return r == 0 ? add(content, &data, error) : r;
}

int gb_peer_content_of(struct gb_peer_content *content, struct gpubuf_object *object,
                       struct gb_layout *layout, struct gb_error *error)
{
    *content = (struct gb_peer_content){0};
    int r = layout->kind == GB_KIND_ARRAY
                ? add_array(content, object, layout, error)
                : gb_column_stretches(object, &layout->column, true, add, content, error);
    if (r < 0)
        gb_peer_content_end(content);
    return r;
}

int gb_peer_content_for(struct gb_peer_content *content, struct gpubuf_object *object,
                        const struct gb_layout *layout, struct gb_error *error)
{
    struct gb_column column = layout->column;

    *content = (struct gb_peer_content){0};
    int r = gb_column_stretches(object, &column, false, add, content, error);
    if (r < 0)
        gb_peer_content_end(content);
    return r;
}

static int add_bytes(struct gb_buffer *buffer, void *arg)
{
    uint64_t *bytes = arg;

    *bytes += buffer->bytes; /* each is below 2^52, and there are no more than 3 * 4096 of them */
    return *bytes > (uint64_t)GB_LIMIT(integer);
}

bool gb_peer_content_bytes(const struct gb_layout *layout, uint64_t *bytes)
{
    struct gb_layout copy = *layout;

    *bytes = 0;
    return gb_layout_each(&copy, add_bytes, bytes) == 0;
}

/* ---- chunks ---- */

/* The part that has byte `at`. */
static const struct gb_peer_part *part_at(const struct gb_peer_content *content, uint64_t at)
{
    size_t low = 0, high = content->count;

    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        *(content->parts[middle].at <= at ? &low : &high) = middle;
    }
    return &content->parts[low];
}

void *gb_peer_content_direct(const struct gb_peer_content *content, uint64_t chunk)
{
    uint64_t at = chunk * GB_PEER_CHUNK, bytes = gb_peer_content_chunk_bytes(content->bytes, chunk);
    const struct gb_peer_part *part = part_at(content, at);

    if (!part->memory || part->stretch.shift || part->stretch.base ||
        at - part->at + bytes > part->stretch.bytes)
        return NULL;
    return part->memory + (at - part->at);
}

int gb_peer_content_stage(const struct gb_peer_content *content, uint64_t chunk,
                          struct gb_staging **block, struct gb_error *error)
{
    const struct gb_peer_part *part = part_at(content, chunk * GB_PEER_CHUNK);
    int code = gb_staging_acquire(part->stretch.object, GB_PEER_CHUNK + 8, block);

    return code < 0 ? gb_fail_library(part->stretch.object, code, error) : 0;
}

/* Reads bytes `done` to `done + count` of a part. */
static int read_part(const struct gb_peer_part *part, uint64_t done, unsigned char *buffer,
                     uint64_t count, struct gb_error *error)
{
    const struct gb_stretch *stretch = &part->stretch;
    /* Whole integers are read. The last bits of a shifted mask may be in one byte more. */
    unsigned head = stretch->base ? (unsigned)(done % stretch->width) : 0;
    uint64_t tail = stretch->base
                        ? (stretch->width - (head + count) % stretch->width) % stretch->width
                        : stretch->shift > 0 && done + count < part->has;
    uint64_t from = done - head, length = head + count + tail;
    unsigned char few[16];

    if (head) { /* an integer that the chunk before began */
        uint64_t rest = stretch->width - head < count ? stretch->width - head : count;
        int code = gpubuf_read(stretch->object, stretch->which, stretch->from + from, few,
                               stretch->width, NULL);
        if (code < 0)
            return gb_fail_library(stretch->object, code, error);
        gb_rebase(few, stretch->width, stretch->width, stretch->base);
        memcpy(buffer, few + head, rest);
        return rest == count ? 0 : read_part(part, done + rest, buffer + rest, count - rest, error);
    }
    buffer[count] = 0;
    int code =
        gpubuf_read(stretch->object, stretch->which, stretch->from + from, buffer, length, NULL);
    if (code < 0)
        return gb_fail_library(stretch->object, code, error);
    gb_rebase(buffer, length, stretch->width, stretch->base);
    gb_shift_bits(buffer, count, stretch->shift);
    return 0;
}

/* Reads or writes a chunk, part by part. */
static int move(const struct gb_peer_content *content, uint64_t chunk, unsigned char *buffer,
                bool writes, struct gb_error *error)
{
    uint64_t at = chunk * GB_PEER_CHUNK,
             end = at + gb_peer_content_chunk_bytes(content->bytes, chunk);

    for (const struct gb_peer_part *part = part_at(content, at); at < end; part++) {
        const struct gb_stretch *stretch = &part->stretch;
        uint64_t done = at - part->at, count = stretch->bytes - done;
        count = count < end - at ? count : end - at;
        int r = 0;
        if (!writes) {
            r = read_part(part, done, buffer, count, error);
        } else {
            int code = gpubuf_write(stretch->object, stretch->which, stretch->from + done, buffer,
                                    count, NULL);
            r = code < 0 ? gb_fail_library(stretch->object, code, error) : 0;
        }
        if (r < 0)
            return r;
        at += count;
        buffer += count;
    }
    return 0;
}

int gb_peer_content_read(const struct gb_peer_content *content, uint64_t chunk,
                         struct gb_staging **block, const void **bytes, struct gb_error *error)
{
    int r = 0;

    *block = NULL;
    *bytes = gb_peer_content_direct(content, chunk);
    if (*bytes)
        return 0;
    r = gb_peer_content_stage(content, chunk, block, error);
    if (r < 0)
        return r;
    *bytes = gb_staging_memory(*block);
    r = move(content, chunk, gb_staging_memory(*block), false, error);
    if (r < 0) {
        gb_staging_release(*block);
        *block = NULL;
    }
    return r;
}

int gb_peer_content_write(const struct gb_peer_content *content, uint64_t chunk, const void *buffer,
                          struct gb_error *error)
{
    return move(content, chunk, (unsigned char *)(uintptr_t)buffer, true, error);
}
