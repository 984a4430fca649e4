#include "daemon/survive/replay.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/survive/state.h"

#define MODE_BITS 0777u
#define BYTES_MAX (UINT64_C(1) << 47) /* of a segment, and of all that lies in one */

#define OBJECT_OCTETS 92u /* that an object takes at least */

/* The last record of a segment or a storage. */
struct record {
    struct gb_hash_link link;
    struct gb_link of_all;
    uint64_t number;
    uint32_t type;
    size_t length;
    unsigned char bytes[]; /* what follows the number */
};

/* ---- reading ---- */

struct cursor {
    const unsigned char *at;
    size_t left;
    bool failed; /* it ended too early, or a value cannot be: what was read is 0 */
};

static const unsigned char *take(struct cursor *cursor, uint64_t length)
{
    const unsigned char *at = cursor->at;

    if (cursor->failed || length > cursor->left) {
        cursor->failed = true;
        return NULL;
    }
    cursor->at += length;
    cursor->left -= (size_t)length;
    return at;
}

/* Of at most `max`. */
static uint64_t take_number(struct cursor *cursor, unsigned octets, uint64_t max)
{
    const unsigned char *bytes = take(cursor, octets);
    uint64_t value = 0;

    for (unsigned i = octets; bytes && i > 0; i--)
        value = value << 8 | bytes[i - 1];
    if (value <= max)
        return value;
    cursor->failed = true;
    return 0;
}

static bool take_bool(struct cursor *cursor)
{
    return take_number(cursor, 1, 1);
}

static uint64_t take_integer(struct cursor *cursor)
{
    return take_number(cursor, 8, GB_LIMIT(integer));
}

/* A number that others are to follow. */
static uint64_t take_ordinal(struct cursor *cursor)
{
    return take_number(cursor, 8, (uint64_t)GB_LIMIT(integer) - 1);
}

static uint64_t take_bytes(struct cursor *cursor)
{
    return take_number(cursor, 8, BYTES_MAX);
}

static uint32_t take_id(struct cursor *cursor)
{
    return (uint32_t)take_number(cursor, 8, UINT32_MAX - 1);
}

static const char *take_text(struct cursor *cursor, size_t *length)
{
    uint64_t said = take_number(cursor, 8, SIZE_MAX / 2);
    const unsigned char *text = take(cursor, said);

    *length = text ? (size_t)said : 0;
    return (const char *)text;
}

/* NULL if there is none of that name any more. */
static struct gb_device *take_device(struct cursor *cursor, const struct gb_replay *replay)
{
    size_t length;
    const char *id = take_text(cursor, &length);

    for (unsigned i = 0; id && i < replay->device_count; i++)
        if (strlen(replay->devices[i]->id) == length &&
            memcmp(replay->devices[i]->id, id, length) == 0)
            return replay->devices[i];
    return NULL;
}

static struct gb_domain_key take_key(struct cursor *cursor, const struct gb_replay *replay)
{
    struct gb_domain_key key = {.device = take_device(cursor, replay)};

    key.share = (enum gb_share)take_number(cursor, 1, GB_SHARE_IPC);
    key.uid = take_id(cursor);
    key.gid = take_id(cursor);
    key.mode = (unsigned)take_number(cursor, 8, MODE_BITS);
    return key;
}

/* ---- records into tables ---- */

static struct record *find(const struct gb_hash_table *table, uint64_t number)
{
    for (struct gb_hash_link *link = gb_hash_first(table, gb_hash_id(number)); link;
         link = gb_hash_next(link)) {
        struct record *record = GB_CONTAINER(link, struct record, link);

        if (record->number == number)
            return record;
    }
    return NULL;
}

static void drop(struct gb_hash_table *table, struct record *record)
{
    if (!record)
        return;
    gb_hash_remove(table, &record->link);
    gb_list_remove(&record->of_all);
    free(record);
}

static int enter(struct gb_hash_table *table, struct gb_link *all, uint32_t type, uint64_t number,
                 const struct cursor *rest, struct gb_error *error)
{
    struct record *record;

    drop(table, find(table, number));
    record = malloc(sizeof(*record) + rest->left);
    if (!record)
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
    *record = (struct record){.number = number, .type = type, .length = rest->left};
    memcpy(record->bytes, rest->at, rest->left);
    if (gb_hash_insert(table, &record->link, gb_hash_id(number))) {
        gb_list_append(all, &record->of_all);
        return 0;
    }
    free(record);
    return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
}

static void raise_to(uint64_t *counter, uint64_t to)
{
    if (to > *counter)
        *counter = to;
}

static void read_counters(struct gb_replay *replay, struct cursor *cursor)
{
    raise_to(&replay->next_segment, take_integer(cursor));
    raise_to(&replay->next_version, take_integer(cursor));
    raise_to(&replay->next_number, take_integer(cursor));
}

static int read_record(const struct gb_journal_record *record, void *arg, struct gb_error *error)
{
    struct gb_replay *replay = arg;
    struct cursor cursor = {record->data, record->length, false}, rest = cursor;
    uint64_t number = take_ordinal(&rest);

    if (record->type == GB_RECORD_COUNTERS)
        read_counters(replay, &cursor);
    if (rest.failed || cursor.failed || (number == 0 && record->type != GB_RECORD_COUNTERS))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "a record of type %" PRIu32 " and %zu octets is none", record->type,
                       record->length);
    switch (record->type) {
    case GB_RECORD_COUNTERS:
        return 0;
    case GB_RECORD_SEGMENT:
        raise_to(&replay->next_segment, number + 1);
        return enter(&replay->segment_records, &replay->segment_list, record->type, number, &rest,
                     error);
    case GB_RECORD_SEGMENT_GONE:
        drop(&replay->segment_records, find(&replay->segment_records, number));
        return 0;
    case GB_RECORD_STORAGE:
    case GB_RECORD_FLEETING:
        raise_to(&replay->next_number, number + 1);
        return enter(&replay->storage_records, &replay->records, record->type, number, &rest,
                     error);
    case GB_RECORD_STORAGE_GONE:
        drop(&replay->storage_records, find(&replay->storage_records, number));
        return 0;
    default:
        return gb_fail(error, GPUBUF_E_INVALID, "a record of the unknown type %" PRIu32,
                       record->type);
    }
}

/* ---- segments ---- */

static bool read_segment(struct gb_replay *replay, const struct record *record)
{
    struct gb_replayed_segment *segment = &replay->segments[replay->segment_count++];
    struct cursor cursor = {record->bytes, record->length, false};

    segment->id = record->number;
    segment->bytes = take_bytes(&cursor);
    segment->kind = (enum gb_segment_kind)take_number(&cursor, 1, GB_SEGMENT_ADOPTED);
    segment->handle = (enum gb_handle_kind)take_number(&cursor, 1, GB_HANDLE_CUDA_FD);
    segment->uid = take_id(&cursor);
    segment->key = take_key(&cursor, replay);
    return !cursor.failed && cursor.left == 0 && segment->bytes > 0 &&
           (segment->kind == GB_SEGMENT_ADOPTED || segment->bytes % GB_ARENA_GRANULE == 0);
}

static int compare_segments(const void *a, const void *b)
{
    const struct gb_replayed_segment *left = a, *right = b;

    return (left->id > right->id) - (left->id < right->id);
}

struct gb_replayed_segment *gb_replay_segment(const struct gb_replay *replay, uint64_t id)
{
    const struct gb_replayed_segment wanted = {.id = id};

    return replay->segment_count == 0 ? NULL
                                      : bsearch(&wanted, replay->segments, replay->segment_count,
                                                sizeof(wanted), compare_segments);
}

static int refuse(const char *what, uint64_t number, struct gb_error *error)
{
    return gb_fail(error, GPUBUF_E_INVALID, "what it says of %s %" PRIu64 " cannot be", what,
                   number);
}

static int read_segments(struct gb_replay *replay, struct gb_error *error)
{
    replay->segments = calloc(replay->segment_records.count + 1, sizeof(*replay->segments));
    if (!replay->segments)
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
    GB_LIST_EACH(&replay->segment_list, link) {
        const struct record *record = GB_CONTAINER(link, struct record, of_all);

        if (!read_segment(replay, record))
            return refuse("segment", record->number, error);
    }
    qsort(replay->segments, replay->segment_count, sizeof(*replay->segments), compare_segments);
    return 0;
}

/* ---- objects ---- */

/* Where the buffers of an object may lie. */
struct ground {
    const struct gb_replayed_storage *storage;
    bool left; /* one lies elsewhere */
};

static bool lies_in(const struct gb_replayed_placement *place, const struct gb_buffer *buffer)
{
    return place->segment == buffer->segment && buffer->offset >= place->offset &&
           buffer->offset - place->offset <= place->bytes &&
           buffer->bytes <= place->bytes - (buffer->offset - place->offset);
}

static int check_buffer(struct gb_buffer *buffer, void *arg)
{
    struct ground *ground = arg;
    const struct gb_replayed_storage *storage = ground->storage;
    const struct gb_replayed_placement away = {.bytes = storage->size};
    bool found = buffer->bytes == 0 || (!storage->resident && lies_in(&away, buffer));

    for (unsigned i = 0; !found && i < storage->placement_count; i++)
        found = lies_in(&storage->placements[i], buffer);
    ground->left |= !found;
    return 0;
}

/* Texts are sent as they are, so each has to be what it looks like: one line of JSON. */
static int check_brief(const char *text, size_t length, struct gb_pool *pool)
{
    struct gb_json value;

    if (memchr(text, '\n', length))
        return GPUBUF_E_INVALID;
    return gb_json_check(text, length, pool, &value, NULL);
}

/* 0; 1: it lies where its storage does not; a code. */
static int check_layout(const struct gb_replayed_storage *storage, const char *text, size_t length,
                        struct gb_pool *pool)
{
    struct ground ground = {.storage = storage};
    struct gb_layout layout;
    struct gb_path path = {.key = "layout"};
    int r;

    if (memchr(text, '\n', length))
        return GPUBUF_E_INVALID;
    r = gb_layout_parse(text, length, &path, pool, &layout, NULL);
    if (r < 0)
        return r;
    gb_layout_each(&layout, check_buffer, &ground);
    return ground.left;
}

/* 0; 1: its layout lies where its storage does not; GPUBUF_E_INVALID; GPUBUF_E_NO_MEMORY. */
static int check_text(const struct gb_replayed_storage *storage,
                      const struct gb_replayed_object *object, struct gb_writer *writer)
{
    static const char key[] = ",\"layout\":";
    const char *rest = object->text + object->brief_length;
    size_t left = object->text_length - object->brief_length, skip = sizeof(key) - 1;
    bool has_layout = left >= skip && memcmp(rest, key, skip) == 0;
    struct gb_pool pool = {0};
    int r;

    if (storage->fleeting ? left > 0 : !has_layout)
        return GPUBUF_E_INVALID;
    gb_writer_reset(writer);
    gb_write_char(writer, '{');
    gb_write(writer, object->text, object->brief_length);
    gb_write_char(writer, '}');
    if (writer->failed)
        return GPUBUF_E_NO_MEMORY;
    r = check_brief(writer->data, writer->length, &pool);
    if (r == 0 && has_layout)
        r = check_layout(storage, rest + skip, left - skip, &pool);
    gb_pool_end(&pool);
    return r < 0 && r != GPUBUF_E_NO_MEMORY ? GPUBUF_E_INVALID : r;
}

static void read_object(struct gb_replayed_object *object, struct cursor *cursor)
{
    object->version = take_ordinal(cursor);
    object->named = take_bool(cursor);
    object->pinned = take_bool(cursor);
    object->evict = (enum gb_evict)take_number(cursor, 1, GB_EVICT_KEEP);
    object->by_session = take_bool(cursor);
    object->uid = take_id(cursor);
    object->gid = take_id(cursor);
    object->mode = (unsigned)take_number(cursor, 8, MODE_BITS);
    object->bytes = take_integer(cursor);
    object->created_ms = (int64_t)take_integer(cursor);
    object->ttl_ms = (int64_t)take_integer(cursor);
    object->expires_ms = (int64_t)take_number(cursor, 8, INT64_MAX / 2);
    object->name = take_text(cursor, &object->name_length);
    object->brief_length = (size_t)take_number(cursor, 8, GB_OBJECT_TEXT_MAX);
    object->text = take_text(cursor, &object->text_length);
}

static int read_objects(struct gb_replay *replay, struct gb_replayed_storage *storage,
                        struct cursor *cursor, struct gb_writer *writer)
{
    const struct gb_path path = {.key = "name"};

    storage->object_count = take_integer(cursor);
    if (cursor->failed || storage->object_count == 0 ||
        storage->object_count > cursor->left / OBJECT_OCTETS)
        return GPUBUF_E_INVALID;
    storage->objects = calloc(storage->object_count, sizeof(*storage->objects));
    if (!storage->objects)
        return GPUBUF_E_NO_MEMORY;
    for (uint64_t i = 0; i < storage->object_count; i++) {
        struct gb_replayed_object *object = &storage->objects[i];
        int r;

        read_object(object, cursor);
        if (cursor->failed || object->version == 0 || object->brief_length > object->text_length ||
            object->text_length > GB_OBJECT_TEXT_MAX ||
            gb_name_check(object->name, object->name_length, &path, NULL) < 0)
            return GPUBUF_E_INVALID;
        raise_to(&replay->next_version, object->version + 1);
        r = check_text(storage, object, writer);
        if (r < 0)
            return r;
        storage->lost |= r > 0;
    }
    return cursor->left == 0 ? 0 : GPUBUF_E_INVALID;
}

/* ---- storages ---- */

static bool read_placements(struct gb_replay *replay, struct gb_replayed_storage *storage,
                            struct cursor *cursor)
{
    for (unsigned i = 0; i < storage->placement_count; i++) {
        struct gb_replayed_placement *place = &storage->placements[i];
        const struct gb_replayed_segment *segment;

        place->segment = take_integer(cursor);
        place->offset = take_bytes(cursor);
        place->bytes = take_bytes(cursor);
        segment = gb_replay_segment(replay, place->segment);
        if (cursor->failed)
            return false;
        storage->lost |= !segment;
        if (segment &&
            (place->offset > segment->bytes || place->bytes > segment->bytes - place->offset ||
             storage->adopted != (segment->kind == GB_SEGMENT_ADOPTED) ||
             segment->key.device != storage->key.device ||
             (segment->kind != GB_SEGMENT_SHARED && place->offset > 0) ||
             (!storage->adopted && !gb_domain_key_same(&segment->key, &storage->key))))
            return false;
    }
    return true;
}

static bool read_copies(struct gb_replayed_storage *storage, struct cursor *cursor)
{
    for (int i = 0; i < GB_TIERS; i++) {
        struct gb_replayed_copy *copy = &storage->copies[i];

        copy->there = take_bool(cursor);
        if (!copy->there)
            continue;
        copy->bytes = take_bytes(cursor);
        copy->where = take_integer(cursor);
        if (copy->bytes != storage->size || copy->bytes == 0)
            return false;
    }
    return !cursor->failed;
}

static int read_durable(struct gb_replay *replay, struct gb_replayed_storage *storage,
                        struct cursor *cursor)
{
    storage->uid = take_id(cursor);
    storage->key = take_key(cursor, replay);
    storage->adopted = take_bool(cursor);
    storage->resident = take_bool(cursor);
    storage->charged = take_bytes(cursor);
    storage->size = take_bytes(cursor);
    storage->placement_count = (unsigned)take_number(cursor, 1, GB_LIMIT(fds));
    storage->placements = calloc(storage->placement_count + 1u, sizeof(*storage->placements));
    if (!storage->placements)
        return GPUBUF_E_NO_MEMORY;
    storage->lost = !storage->key.device;
    /* What goes with the daemon has no such record; what is brought back is the daemon's own. */
    if (!read_placements(replay, storage, cursor) || !read_copies(storage, cursor) ||
        (storage->resident ? storage->key.share == GB_SHARE_IPC
                           : storage->adopted || storage->placement_count > 0))
        return GPUBUF_E_INVALID;
    return 0;
}

static int read_storage(struct gb_replay *replay, const struct record *record,
                        struct gb_writer *writer)
{
    struct gb_replayed_storage *storage = &replay->storages[replay->storage_count++];
    struct cursor cursor = {record->bytes, record->length, false};
    int r = 0;

    storage->number = record->number;
    storage->fleeting = record->type == GB_RECORD_FLEETING;
    if (!storage->fleeting)
        r = read_durable(replay, storage, &cursor);
    return r < 0 ? r : read_objects(replay, storage, &cursor, writer);
}

static int read_storages(struct gb_replay *replay, struct gb_error *error)
{
    struct gb_writer writer;
    int r = 0;

    replay->storages = calloc(replay->storage_records.count + 1, sizeof(*replay->storages));
    if (!replay->storages)
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
    gb_writer_init(&writer, 0);
    GB_LIST_EACH(&replay->records, link) {
        const struct record *record = GB_CONTAINER(link, struct record, of_all);

        if (r == 0)
            r = read_storage(replay, record, &writer);
        if (r == GPUBUF_E_INVALID && !*error->message)
            (void)refuse("storage", record->number, error);
    }
    gb_writer_end(&writer);
    return r == GPUBUF_E_NO_MEMORY ? gb_fail(error, r, "out of memory") : r;
}

/* ---- all of it ---- */

int gb_replay_read(struct gb_replay *replay, struct gb_journal *journal, int fd,
                   struct gb_device **devices, unsigned device_count, struct gb_error *error)
{
    int r;

    *replay = (struct gb_replay){.devices = devices, .device_count = device_count};
    gb_list_init(&replay->records);
    gb_list_init(&replay->segment_list);
    *error = (struct gb_error){.code = 0};
    r = gb_journal_open(journal, fd, read_record, replay, error);
    if (r == 0)
        r = read_segments(replay, error);
    if (r == 0)
        r = read_storages(replay, error);
    return r;
}

static void free_records(struct gb_hash_table *table, struct gb_link *all)
{
    GB_LIST_EACH(all, link)
        free(GB_CONTAINER(link, struct record, of_all));
    gb_hash_end(table);
}

void gb_replay_end(struct gb_replay *replay)
{
    for (size_t i = 0; i < replay->storage_count; i++) {
        free(replay->storages[i].placements);
        free(replay->storages[i].objects);
    }
    free(replay->storages);
    free(replay->segments);
    free_records(&replay->segment_records, &replay->segment_list);
    free_records(&replay->storage_records, &replay->records);
}
