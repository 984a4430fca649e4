#include "client/peer/link/outbox.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#include "proto/wire/json.h"

struct gb_peer_item {
    struct gb_link link;
    uint64_t request;
    struct gb_peer_source source; /* fill NULL: it is text */
    const void *bytes;
    size_t length;
    bool filled;  /* the chunk is in `bytes` */
    char *failed; /* a text of its own, in the chunk's place */
    unsigned char head[GB_PEER_HEAD_BYTES];
    char text[];
};

/* ---- heads ---- */

_Static_assert(sizeof(struct gb_peer_head) == GB_PEER_HEAD_BYTES, "the struct is the frame's head");

bool gb_peer_head_read(const unsigned char bytes[GB_PEER_HEAD_BYTES], struct gb_peer_head *head)
{
    memcpy(head, bytes, GB_PEER_HEAD_BYTES);
    head->length = le32toh(head->length);
    head->request = le64toh(head->request);
    head->sum = le64toh(head->sum);
    return !head->zeros[0] && !head->zeros[1] && !head->zeros[2];
}

static void write_head(struct gb_peer_item *item, char kind, uint64_t sum)
{
    const struct gb_peer_head head = {.length = htole32((uint32_t)item->length),
                                      .kind = kind,
                                      .request = htole64(item->request),
                                      .sum = htole64(sum)};

    memcpy(item->head, &head, GB_PEER_HEAD_BYTES);
}

/* ---- items ---- */

static struct gb_peer_item *new_text(uint64_t request, const char *text, size_t length)
{
    struct gb_peer_item *item = malloc(sizeof(*item) + length);

    if (!item)
        return NULL;
    *item = (struct gb_peer_item){.request = request, .bytes = item->text, .length = length};
    memcpy(item->text, text, length);
    write_head(item, 'c', 0);
    return item;
}

static void write_error(struct gb_writer *writer, const struct gb_error *error)
{
    gb_writer_init(writer, 0);
    gb_write_pattern(writer, "{'error':{'kind':%s,'message':%s}}", gb_error_kind(error->code),
                     error->message);
}

static bool append(struct gb_peer_outbox *box, struct gb_peer_item *item)
{
    if (!item)
        return false;
    gb_list_append(&box->items, &item->link);
    box->count++;
    return true;
}

bool gb_peer_outbox_text(struct gb_peer_outbox *box, uint64_t request, const char *text,
                         size_t length)
{
    return append(box, new_text(request, text, length));
}

bool gb_peer_outbox_error(struct gb_peer_outbox *box, uint64_t request,
                          const struct gb_error *error)
{
    struct gb_writer writer;

    write_error(&writer, error);
    bool queued = !writer.failed && gb_peer_outbox_text(box, request, writer.data, writer.length);
    gb_writer_end(&writer);
    return queued;
}

bool gb_peer_outbox_chunk(struct gb_peer_outbox *box, uint64_t request,
                          const struct gb_peer_source *source)
{
    struct gb_peer_item *item = calloc(1, sizeof(*item));

    if (!item) {
        source->done(source, false);
        return false;
    }
    item->request = request;
    item->source = *source;
    item->length = source->bytes;
    return append(box, item);
}

static struct gb_peer_item *first_of(const struct gb_peer_outbox *box)
{
    return GB_LIST_FIRST(&box->items, struct gb_peer_item, link);
}

static void free_item(struct gb_peer_item *item)
{
    gb_list_remove(&item->link);
    if (item->source.fill)
        item->source.done(&item->source, item->filled);
    free(item->failed);
    free(item);
}

/* ---- sending ---- */

uint64_t gb_peer_outbox_chunk_bytes(const struct gb_peer_outbox *box)
{
    const struct gb_peer_item *item = first_of(box);

    return item ? item->source.bytes : 0;
}

/* Reads the first item's chunk. If that fails, the sentence takes the chunk's place. */
static bool fill(struct gb_peer_item *item)
{
    struct gb_writer writer;
    struct gb_error error;
    uint64_t sum = 0;

    item->filled = item->source.fill(&item->source, &item->bytes, &sum, &error) == 0;
    if (!item->filled) {
        write_error(&writer, &error);
        item->failed = gb_writer_take(&writer, &item->length);
        gb_writer_end(&writer);
        item->bytes = item->failed;
    }
    write_head(item, item->filled ? 'd' : 'c', sum);
    return item->bytes;
}

bool gb_peer_outbox_next(struct gb_peer_outbox *box, const void **bytes, size_t *length)
{
    struct gb_peer_item *item = first_of(box);

    if (!item->bytes && !fill(item))
        return false;
    if (box->sent < GB_PEER_HEAD_BYTES) {
        *bytes = item->head + box->sent;
        *length = GB_PEER_HEAD_BYTES - box->sent;
    } else {
        *bytes = (const char *)item->bytes + (box->sent - GB_PEER_HEAD_BYTES);
        *length = item->length - (box->sent - GB_PEER_HEAD_BYTES);
    }
    return true;
}

bool gb_peer_outbox_sent(struct gb_peer_outbox *box, size_t count)
{
    box->sent += count;
    return box->sent == GB_PEER_HEAD_BYTES + first_of(box)->length;
}

void gb_peer_outbox_drop(struct gb_peer_outbox *box)
{
    box->count--;
    box->sent = 0;
    free_item(first_of(box));
}

void gb_peer_outbox_end(struct gb_peer_outbox *box)
{
    GB_LIST_EACH(&box->items, struct gb_peer_item, item, link)
        free_item(item);
    *box = (struct gb_peer_outbox){0};
}
