#include "daemon/survive/record.h"

#include <string.h>

#include "daemon/base/clock.h"
#include "daemon/objects/stream.h"

static void put_u8(struct gb_writer *writer, unsigned value)
{
    char byte = (char)value;

    gb_write(writer, &byte, 1);
}

static void put_u64(struct gb_writer *writer, uint64_t value)
{
    char bytes[8];

    for (int i = 0; i < 8; i++)
        bytes[i] = (char)(value >> 8 * i);
    gb_write(writer, bytes, 8);
}

static void put_text(struct gb_writer *writer, const char *text, size_t length)
{
    put_u64(writer, length);
    gb_write(writer, text, length);
}

static void put_key(struct gb_writer *writer, const struct gb_device *device,
                    const struct gb_domain_key *key)
{
    put_text(writer, device->id, strlen(device->id));
    put_u8(writer, key->share);
    put_u64(writer, key->uid);
    put_u64(writer, key->gid);
    put_u64(writer, key->mode);
    put_u8(writer, key->live);
}

void gb_record_segment(struct gb_writer *writer, const struct gb_segment *segment)
{
    static const struct gb_domain_key none = {0};

    put_u64(writer, segment->bytes);
    put_u8(writer, segment->kind);
    put_u8(writer, segment->memory.kind);
    put_u64(writer, segment->user->uid);
    put_key(writer, segment->device, segment->domain ? &segment->domain->key : &none);
}

/* Whether an object outlives the daemon: not if it ends with its producer's session. */
static bool is_durable(const struct gb_object *object)
{
    return object->version > 0 && !object->ready && !gb_list_linked(&object->produced.link);
}

static void put_lease(struct gb_writer *writer, const struct gb_lease *lease)
{
    const struct gb_part *part = lease->part;
    bool reads = part && part->reader >= 0;

    put_u64(writer, (uint64_t)lease->holder->pid);
    put_u64(writer, lease->holder->started);
    put_u64(writer, lease->holder->session);
    put_u64(writer, lease->holder->user->uid);
    put_u8(writer, lease->write);
    put_u8(writer, lease->exclusive);
    put_u8(writer, part != NULL);
    put_u8(writer, reads ? (unsigned)part->reader : 0);
    put_u64(writer, part ? part->join_number : 0);
    put_u64(writer, reads ? part->page.id : 0);
}

/* The leases of those that write a live object or take part in its stream, or did before a crash
   and may still; and the stream's pages. */
static void put_live(struct gb_writer *writer, const struct gb_object *object)
{
    static const struct gb_stream none = {0};
    const struct gb_stream *stream = object->live->stream ? object->live->stream : &none;

    put_u64(writer, object->live->generation);
    put_u64(writer, stream->roster_page.id);
    put_u64(writer, stream->front_page.id);
    put_u8(writer, stream->torn);
    put_u64(writer, object->live->writers + gb_stream_readers(stream));
    GB_LIST_EACH(&object->live->writing, const struct gb_lease, lease, of_writing)
        put_lease(writer, lease);
    for (unsigned i = 0; i < GB_STREAM_READERS; i++)
        if (stream->readers[i])
            put_lease(writer, stream->readers[i]);
}

/* `whole`: with its layout. */
static void put_object(struct gb_writer *writer, const struct gb_object *object, uint64_t now_ms,
                       bool whole)
{
    uint64_t left =
        object->deadline.place && object->deadline.at > now_ms ? object->deadline.at - now_ms : 0;

    put_u64(writer, object->version);
    put_u64(writer, object->line);
    put_u8(writer, object->named);
    put_u8(writer, object->pinned);
    put_u8(writer, object->evict);
    put_u8(writer, object->by_session);
    put_u64(writer, object->owner->uid);
    put_u64(writer, object->gid);
    put_u64(writer, object->mode);
    put_u64(writer, object->bytes);
    put_u64(writer, (uint64_t)object->created_ms);
    put_u64(writer, (uint64_t)object->ttl_ms);
    put_u64(writer, (uint64_t)gb_wall_ms() + left);
    put_text(writer, object->name, object->name_length);
    put_u64(writer, object->text_ends.brief);
    put_text(writer, object->text, whole ? object->text_length : object->text_ends.brief);
    if (gb_object_is_live(object))
        put_live(writer, object);
}

static void put_places(struct gb_writer *writer, const struct gb_storage *storage)
{
    bool ours = storage->resident && storage->key.share == GB_SHARE_FD;
    unsigned placements = ours ? storage->placement_count : 0;

    put_u8(writer, placements);
    for (unsigned i = 0; i < placements; i++) {
        put_u64(writer, storage->placements[i].segment->id);
        put_u64(writer, gb_placement_offset(&storage->placements[i]));
        put_u64(writer, gb_placement_bytes(&storage->placements[i]));
    }
    for (int i = 0; i < GB_TIERS; i++) {
        bool whole = storage->copies[i] && storage->copies[i]->whole;

        put_u8(writer, whole);
        if (whole) {
            put_u64(writer, storage->copies[i]->bytes);
            put_u64(writer, gb_copy_where(storage->copies[i]));
        }
    }
}

static uint64_t count_durable(const struct gb_storage *storage)
{
    uint64_t count = 0;

    if (storage->key.share == GB_SHARE_IPC && storage->resident)
        return 0;
    GB_LIST_EACH(&storage->objects, struct gb_object, object, of_storage)
        count += is_durable(object);
    return count;
}

static uint64_t count_named(const struct gb_storage *storage)
{
    uint64_t count = 0;

    GB_LIST_EACH(&storage->objects, struct gb_object, object, of_storage)
        count += object->named;
    return count;
}

/* Whether the storage is a range of a shared segment that a producer may be writing to. */
static bool is_written(const struct gb_storage *storage)
{
    const struct gb_link *first = storage->objects.next;

    return !gb_list_empty(&storage->objects) && storage->key.share == GB_SHARE_FD &&
           GB_CONTAINER(first, struct gb_object, of_storage)->version == 0 &&
           storage->placement_count > 0 && storage->placements[0].range;
}

bool gb_record_is_needed(const struct gb_storage *storage)
{
    return count_durable(storage) + count_named(storage) > 0 || is_written(storage);
}

uint32_t gb_record_storage(struct gb_writer *writer, const struct gb_storage *storage,
                           uint64_t now_ms)
{
    uint64_t durable = count_durable(storage);

    put_u64(writer, storage->maker.user->uid);
    put_key(writer, storage->key.device, &storage->key);
    put_u8(writer, storage->adopted + 2u * storage->key.own);
    put_u8(writer, storage->resident);
    put_u64(writer, storage->charged);
    put_u64(writer, storage->size);
    put_places(writer, storage);
    put_u64(writer, durable > 0 ? durable : count_named(storage));
    GB_LIST_EACH(&storage->objects, const struct gb_object, object, of_storage) {
        if (durable > 0 ? is_durable(object) : object->named)
            put_object(writer, object, now_ms, durable > 0);
    }
    return durable > 0 ? GB_RECORD_STORAGE : GB_RECORD_FLEETING;
}
