#include "daemon/survive/replay.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/base/log.h"
#include "daemon/objects/text.h"
#include "daemon/survive/state.h"
#include "proto/wire/stream.h"

#define MODE_BITS 0777u
#define OBJECT_OCTETS 100u /* the least that an object takes in a record */
#define LEASE_OCTETS 52u   /* that a lease on a live object does */

/* The last record of a segment or a storage. */
struct record {
    struct gb_hash_link link; /* by its number */
    struct gb_link of_all;
    uint32_t type;
    size_t length;
    const unsigned char *bytes; /* NULL: they are lost */
};

/* ---- reading ---- */

struct cursor {
    const unsigned char *at;
    size_t left;
    bool failed; /* it ended too early, or a value was out of range: later reads give 0 */
};

static const unsigned char *read_bytes(struct cursor *cursor, uint64_t length)
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

/* A number of `octets` octets, which is at most `max`. */
static uint64_t read_number(struct cursor *cursor, unsigned octets, uint64_t max)
{
    const unsigned char *bytes = read_bytes(cursor, octets);
    uint64_t value = 0;

    for (unsigned i = octets; bytes && i > 0; i--)
        value = value << 8 | bytes[i - 1];
    if (value <= max)
        return value;
    cursor->failed = true;
    return 0;
}

static bool read_bool(struct cursor *cursor)
{
    return read_number(cursor, 1, 1);
}

static uint64_t read_integer(struct cursor *cursor)
{
    return read_number(cursor, 8, GB_LIMIT(integer));
}

/* A number that can be counted up once more. */
static uint64_t read_ordinal(struct cursor *cursor)
{
    return read_number(cursor, 8, (uint64_t)GB_LIMIT(integer) - 1);
}

static uint32_t read_id(struct cursor *cursor)
{
    return (uint32_t)read_number(cursor, 8, UINT32_MAX - 1);
}

static const char *read_text(struct cursor *cursor, size_t *length)
{
    uint64_t said = read_number(cursor, 8, SIZE_MAX / 2);
    const unsigned char *text = read_bytes(cursor, said);

    *length = text ? (size_t)said : 0;
    return (const char *)text;
}

/* NULL if no device of that id is served any more. */
static struct gb_device *read_device(struct cursor *cursor, const struct gb_replay *replay)
{
    size_t length;
    const char *id = read_text(cursor, &length);

    for (unsigned i = 0; id && i < replay->device_count; i++)
        if (strlen(replay->devices[i]->id) == length &&
            memcmp(replay->devices[i]->id, id, length) == 0)
            return replay->devices[i];
    return NULL;
}

static struct gb_domain_key read_key(struct cursor *cursor, const struct gb_replay *replay)
{
    struct gb_domain_key key = {.device = read_device(cursor, replay)};

    key.share = (enum gb_share)read_number(cursor, 1, GB_SHARE_IPC);
    key.uid = read_id(cursor);
    key.gid = read_id(cursor);
    key.mode = (unsigned)read_number(cursor, 8, MODE_BITS);
    key.live = read_bool(cursor);
    return key;
}

/* ---- records by number ---- */

/* A number is its own hash: numbers follow each other, and so do the slots that are used. */
static uint64_t number_of(const struct record *record)
{
    return record->link.hash;
}

static struct record *find(const struct gb_hash_table *table, uint64_t number)
{
    struct gb_hash_link *link = gb_hash_first(table, number);

    return link ? GB_CONTAINER(link, struct record, link) : NULL;
}

static void drop(struct gb_hash_table *table, struct record *record)
{
    if (!record)
        return;
    gb_hash_remove(table, &record->link);
    gb_list_remove(&record->of_all);
}

static struct record *new_record(struct gb_replay *replay, struct gb_hash_table *table,
                                 uint64_t number)
{
    struct record *record = gb_pool_calloc(&replay->pool, 1, sizeof(*record));

    return record && gb_hash_insert(table, &record->link, number) ? record : NULL;
}

static int enter(struct gb_replay *replay, struct gb_hash_table *table, struct gb_link *all,
                 const struct gb_journal_record *from, struct gb_error *error)
{
    struct record *record = find(table, from->number);

    if (record)
        gb_list_remove(&record->of_all);
    else if (!(record = new_record(replay, table, from->number)))
        return gb_fail_memory(error);
    record->type = from->type;
    record->bytes = from->data;
    record->length = from->length;
    gb_list_append(all, &record->of_all);
    return 0;
}

/* ---- records that are ignored ---- */

/* Counts and logs one; with the object's name, if it can be read. */
static void disbelieve(struct gb_replay *replay, const char *what, uint64_t number,
                       const struct gb_replayed_object *object, const char *why)
{
    char name[GB_LIMIT(name_bytes) + 1] = "";

    if (object && object->name && object->name_length <= GB_LIMIT(name_bytes)) {
        memcpy(name, object->name, object->name_length);
        name[object->name_length] = '\0';
    }
    replay->disbelieved++;
    gb_log(GB_LOG_ERROR, "journal record ignored", GB_LOG_TEXT("of", what),
           GB_LOG_NUMBER("number", number), GB_LOG_TEXT("name", name), GB_LOG_TEXT("why", why));
}

/* ---- records into tables ---- */

static bool is_of_storage(uint32_t type)
{
    return type == GB_RECORD_STORAGE || type == GB_RECORD_FLEETING;
}

/* Raises the counters past the number of a record, which a daemon that was killed may have written
   without the header, and even if a later one says that it is freed: no number is given twice. */
static void pass_number(struct gb_replay *replay, const struct gb_journal_record *record)
{
    if (record->type == GB_RECORD_SEGMENT)
        gb_raise_to(&replay->next_segment, record->number + 1);
    if (is_of_storage(record->type))
        gb_raise_to(&replay->next_number, record->number + 1);
}

/*
 * Notes that a record, or more than one, was lost. An earlier record of the same storage is not
 * used, since the memory may have become another's. If it is not known what was lost all
 * storages may have changed, and only later records count.
 */
static void note_lost(struct gb_replay *replay, const struct gb_journal_record *record)
{
    disbelieve(replay, record->type ? "record" : "records", record->number, NULL,
               record->type ? "it is damaged" : "more than one is damaged or missing");
    replay->torn |= record->type == 0 || is_of_storage(record->type);
    if (record->type != 0)
        return;
    replay->lost += replay->storage_records.count;
    GB_LIST_EACH(&replay->records, struct record, one, of_all)
        drop(&replay->storage_records, one);
}

static int read_record(const struct gb_journal_record *record, void *arg, struct gb_error *error)
{
    struct gb_replay *replay = arg;

    gb_notify_extend(replay->notify);
    if (!record->data)
        note_lost(replay, record);
    else if (record->number == 0 || record->number >= (uint64_t)GB_LIMIT(integer)) {
        disbelieve(replay, "something", record->number, NULL, "it has no number");
        return 0;
    } else
        pass_number(replay, record);
    switch (record->type) {
    case GB_RECORD_SEGMENT: /* it never changes: an earlier one is as good as one that was lost */
        return record->data
                   ? enter(replay, &replay->segment_records, &replay->segment_list, record, error)
                   : 0;
    case GB_RECORD_SEGMENT_FREED:
        drop(&replay->segment_records, find(&replay->segment_records, record->number));
        return 0;
    case GB_RECORD_STORAGE:
    case GB_RECORD_FLEETING:
        return enter(replay, &replay->storage_records, &replay->records, record, error);
    case GB_RECORD_STORAGE_FREED:
        drop(&replay->storage_records, find(&replay->storage_records, record->number));
        return 0;
    default:
        if (record->data)
            disbelieve(replay, "something", record->number, NULL, "its type is unknown");
        return 0;
    }
}

/* ---- segments ---- */

static bool read_segment(struct gb_replay *replay, struct gb_replayed_segment *segment,
                         const struct record *record)
{
    struct cursor cursor = {record->bytes, record->length, false};

    segment->id = number_of(record);
    segment->bytes = read_integer(&cursor);
    segment->kind = (enum gb_segment_kind)read_number(&cursor, 1, GB_SEGMENT_ADOPTED);
    segment->handle = (enum gb_handle_kind)read_number(&cursor, 1, GB_HANDLE_CUDA_FD);
    segment->uid = read_id(&cursor);
    segment->key = read_key(&cursor, replay);
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

static int read_segments(struct gb_replay *replay, struct gb_error *error)
{
    replay->segments = calloc(replay->segment_records.count + 1, sizeof(*replay->segments));
    if (!replay->segments)
        return gb_fail_memory(error);
    GB_LIST_EACH(&replay->segment_list, const struct record, record, of_all) {
        struct gb_replayed_segment *segment = &replay->segments[replay->segment_count++];

        segment->disbelieved = !read_segment(replay, segment, record);
        if (segment->disbelieved)
            disbelieve(replay, "segment", segment->id, NULL, "it is none");
    }
    qsort(replay->segments, replay->segment_count, sizeof(*replay->segments), compare_segments);
    return 0;
}

/* ---- objects ---- */

/* A check of where an object's buffers lie. */
struct ground {
    const struct gb_replayed_storage *storage;
    size_t buffers;
    bool left; /* a buffer lies outside the storage */
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
    ground->buffers++;
    return 0;
}

static int set_first(struct gb_buffer *buffer, void *arg)
{
    struct gb_replayed_object *object = arg;

    if (buffer->bytes == 0)
        return 0;
    object->first_segment = buffer->segment;
    object->first_offset = buffer->offset;
    return 1;
}

/* Texts are sent as they are, so each must be one line of JSON. */
static int check_brief(const char *text, size_t length, struct gb_pool *pool, struct gb_error *why)
{
    struct gb_json value;
    int r = memchr(text, '\n', length) ? GPUBUF_E_PARSE
                                       : gb_json_check(text, length, pool, &value, NULL);

    return r == GPUBUF_E_PARSE ? gb_fail(why, GPUBUF_E_INVALID, "its text is no JSON") : r;
}

static int check_layout(const struct gb_replayed_storage *storage,
                        struct gb_replayed_object *object, const char *text, size_t length,
                        struct gb_pool *pool, struct gb_error *why)
{
    struct ground ground = {.storage = storage};
    struct gb_layout layout;
    struct gb_path path = {.key = "layout"};
    int r;

    if (memchr(text, '\n', length))
        return gb_fail(why, GPUBUF_E_INVALID, "its text is no JSON");
    r = gb_layout_parse(text, length, &path, pool, &layout, why);
    if (r < 0)
        return r;
    gb_layout_each(&layout, check_buffer, &ground);
    gb_layout_each(&layout, set_first, object);
    if (gb_text_count_places(text, length) != ground.buffers)
        return gb_fail_at(why, &path, "its layout is not in the form that a daemon writes");
    return ground.left ? gb_fail_at(why, &path, "a buffer lies outside its storage") : 0;
}

static int check_text(const struct gb_replayed_storage *storage, struct gb_replayed_object *object,
                      struct gb_writer *writer, struct gb_error *why)
{
    static const char key[] = ",\"layout\":";
    const char *rest = object->text + object->brief_length;
    size_t left = object->text_length - object->brief_length, skip = sizeof(key) - 1;
    bool has_layout = left >= skip && memcmp(rest, key, skip) == 0;
    struct gb_pool pool = {0};
    int r;

    if (storage->fleeting ? left > 0 : !has_layout)
        return gb_fail(why, GPUBUF_E_INVALID,
                       storage->fleeting ? "it has a layout" : "it has no layout");
    gb_writer_reset(writer);
    gb_write_char(writer, '{');
    gb_write(writer, object->text, object->brief_length);
    gb_write_char(writer, '}');
    if (writer->failed)
        return GPUBUF_E_NO_MEMORY;
    r = check_brief(writer->data, writer->length, &pool, why);
    if (r == 0 && has_layout)
        r = check_layout(storage, object, rest + skip, left - skip, &pool, why);
    gb_pool_end(&pool);
    return r < 0 && r != GPUBUF_E_NO_MEMORY ? GPUBUF_E_INVALID : r;
}

static struct gb_live_lease read_lease(struct cursor *cursor)
{
    struct gb_live_lease lease = {.pid = (pid_t)read_number(cursor, 8, INT_MAX)};

    lease.started = read_number(cursor, 8, UINT64_MAX);
    lease.session = read_integer(cursor);
    lease.uid = read_id(cursor);
    lease.write = read_bool(cursor);
    lease.exclusive = read_bool(cursor);
    lease.joined = read_bool(cursor);
    lease.reader = (unsigned)read_number(cursor, 1, GB_STREAM_READERS - 1);
    lease.join_number = (unsigned)read_number(cursor, 8, UINT32_MAX);
    lease.page = read_ordinal(cursor);
    return lease;
}

struct gb_live_lease gb_replay_lease(const struct gb_replayed_object *object, uint64_t i)
{
    struct cursor cursor = {object->leases + i * LEASE_OCTETS, LEASE_OCTETS, false};

    return read_lease(&cursor);
}

static void read_live(struct gb_replay *replay, struct gb_replayed_object *object,
                      struct cursor *cursor)
{
    object->generation = read_integer(cursor);
    object->roster = read_ordinal(cursor);
    object->front = read_ordinal(cursor);
    object->torn = read_bool(cursor);
    cursor->failed |= object->front && !object->roster;
    object->lease_count = read_integer(cursor);
    object->leases = cursor->at;
    /* The daemon may have died before the header had them. */
    gb_raise_to(&replay->next_segment, object->roster + 1);
    gb_raise_to(&replay->next_segment, object->front + 1);
    for (uint64_t i = 0; i < object->lease_count && !cursor->failed; i++) {
        struct gb_live_lease lease = read_lease(cursor);

        /* Readers are recorded for their part in the stream alone. */
        cursor->failed |= lease.pid <= 0 || (!lease.write && (!lease.joined || lease.exclusive)) ||
                          (lease.joined && (!object->roster || lease.join_number == 0));
        gb_raise_to(&replay->next_segment, lease.page + 1);
    }
}

static void read_object(struct gb_replay *replay, struct gb_replayed_object *object,
                        struct cursor *cursor, bool live)
{
    object->version = read_ordinal(cursor);
    object->line = read_ordinal(cursor);
    object->named = read_bool(cursor);
    object->pinned = read_bool(cursor);
    object->evict = (enum gb_evict)read_number(cursor, 1, GB_EVICT_KEEP);
    object->by_session = read_bool(cursor);
    object->uid = read_id(cursor);
    object->gid = read_id(cursor);
    object->mode = (unsigned)read_number(cursor, 8, MODE_BITS);
    object->bytes = read_integer(cursor);
    object->created_ms = (int64_t)read_integer(cursor);
    object->ttl_ms = (int64_t)read_integer(cursor);
    object->expires_ms = (int64_t)read_number(cursor, 8, INT64_MAX / 2);
    object->name = read_text(cursor, &object->name_length);
    object->brief_length = (size_t)read_number(cursor, 8, GB_OBJECT_TEXT_MAX);
    object->text = read_text(cursor, &object->text_length);
    if (live)
        read_live(replay, object, cursor);
}

static int check_object(const struct gb_replayed_storage *storage,
                        struct gb_replayed_object *object, struct gb_writer *writer,
                        struct gb_error *why)
{
    const struct gb_path path = {.key = "name"};
    int r;

    if (object->version == 0 || object->line > object->version ||
        object->brief_length > object->text_length || object->text_length > GB_OBJECT_TEXT_MAX)
        return gb_fail(why, GPUBUF_E_INVALID, "it has no version, or too long a text");
    r = gb_name_check(object->name, object->name_length, &path, why);
    return r < 0 ? r : check_text(storage, object, writer, why);
}

/* Reads the storage's objects. One that is wrong is left out; the others stay. */
static int read_objects(struct gb_replay *replay, struct gb_replayed_storage *storage,
                        struct cursor *cursor, struct gb_writer *writer, struct gb_error *why)
{
    uint64_t count = read_integer(cursor);

    if (cursor->failed || (count == 0 && !storage->fleeting) ||
        count > cursor->left / OBJECT_OCTETS)
        return gb_fail(why, GPUBUF_E_INVALID, "it has no objects");
    storage->objects = gb_pool_calloc(&replay->pool, count, sizeof(*storage->objects));
    if (!storage->objects)
        return GPUBUF_E_NO_MEMORY;
    while (count-- > 0) {
        struct gb_replayed_object *object = &storage->objects[storage->object_count];
        int r;

        read_object(replay, object, cursor, storage->key.live);
        if (cursor->failed)
            return gb_fail(why, GPUBUF_E_INVALID, "one of its objects is malformed");
        gb_raise_to(&replay->next_version, object->version + 1);
        r = check_object(storage, object, writer, why);
        if (r == GPUBUF_E_NO_MEMORY)
            return r;
        if (r == 0) {
            storage->object_count++;
            continue;
        }
        disbelieve(replay, "object", object->version, object, why->message);
        replay->lost += object->named;
        storage->amended = true;
    }
    return cursor->left == 0 ? 0 : gb_fail(why, GPUBUF_E_INVALID, "octets follow its end");
}

/* ---- storages ---- */

static bool read_placements(struct gb_replay *replay, struct gb_replayed_storage *storage,
                            struct cursor *cursor)
{
    for (unsigned i = 0; i < storage->placement_count; i++) {
        struct gb_replayed_placement *place = &storage->placements[i];
        const struct gb_replayed_segment *segment;

        place->segment = read_integer(cursor);
        place->offset = read_integer(cursor);
        place->bytes = read_integer(cursor);
        segment = gb_replay_segment(replay, place->segment);
        if (cursor->failed)
            return false;
        storage->lost |= !segment || segment->disbelieved;
        if (segment && !segment->disbelieved &&
            (place->offset > segment->bytes || place->bytes > segment->bytes - place->offset ||
             storage->adopted != (segment->kind == GB_SEGMENT_ADOPTED) ||
             segment->key.device != storage->key.device ||
             (segment->kind != GB_SEGMENT_SHARED && place->offset > 0) ||
             (!storage->adopted && !gb_domain_key_same(&segment->key, &storage->key))))
            return false;
    }
    return true;
}

/* Reads the storage's copies. One that is wrong is left out. */
static bool read_copies(struct gb_replay *replay, struct gb_replayed_storage *storage,
                        struct cursor *cursor)
{
    for (int i = 0; i < GB_TIERS; i++) {
        struct gb_replayed_copy *copy = &storage->copies[i];

        copy->there = read_bool(cursor);
        if (!copy->there)
            continue;
        copy->bytes = read_integer(cursor);
        copy->where = read_integer(cursor);
        if (cursor->failed || (copy->bytes == storage->size && copy->bytes > 0))
            continue;
        disbelieve(replay, "copy", storage->number, NULL, "it is not as large as its storage");
        copy->there = false;
        storage->amended = true;
    }
    return !cursor->failed;
}

static int read_places(struct gb_replay *replay, struct gb_replayed_storage *storage,
                       struct cursor *cursor, struct gb_error *why)
{
    storage->uid = read_id(cursor);
    storage->key = read_key(cursor, replay);
    unsigned flags = (unsigned)read_number(cursor, 1, 3);
    storage->adopted = flags & 1;
    storage->key.own = flags & 2;
    storage->resident = read_bool(cursor);
    storage->charged = read_integer(cursor);
    storage->size = read_integer(cursor);
    storage->placement_count = (unsigned)read_number(cursor, 1, GB_LIMIT(fds));
    storage->placements =
        gb_pool_calloc(&replay->pool, storage->placement_count, sizeof(*storage->placements));
    if (!storage->placements)
        return GPUBUF_E_NO_MEMORY;
    storage->lost = !storage->key.device;
    if (!read_placements(replay, storage, cursor))
        return gb_fail(why, GPUBUF_E_INVALID, "its place is outside its segment");
    if (!read_copies(replay, storage, cursor))
        return gb_fail(why, GPUBUF_E_INVALID, "it ends too early");
    /* Memory that ended with the daemon has no place. A storage that is in a tier only has none
       either, and is not adopted: it will be restored to the daemon's own memory. */
    if (storage->resident ? storage->key.share == GB_SHARE_IPC &&
                                (!storage->fleeting || storage->placement_count > 0)
                          : storage->adopted || storage->placement_count > 0)
        return gb_fail(why, GPUBUF_E_INVALID,
                       "it has a place where it can have none, or none where it needs one");
    return 0;
}

static int read_storage(struct gb_replay *replay, struct gb_replayed_storage *storage,
                        const struct record *record, struct gb_writer *writer, struct gb_error *why)
{
    struct cursor cursor = {record->bytes, record->length, false};
    int r;

    storage->number = number_of(record);
    storage->fleeting = record->type == GB_RECORD_FLEETING;
    r = read_places(replay, storage, &cursor, why);
    return r < 0 ? r : read_objects(replay, storage, &cursor, writer, why);
}

/* Disbelieves a storage and all its objects, since it is not known where they lie. `why` NULL: it
   was logged. */
static void give_up(struct gb_replay *replay, struct gb_replayed_storage *storage, const char *why)
{
    if (why)
        disbelieve(replay, "storage", storage->number,
                   storage->object_count > 0 ? storage->objects : NULL, why);
    replay->lost += storage->object_count > 0 ? storage->object_count : 1;
    storage->object_count = 0;
}

static int read_storages(struct gb_replay *replay, struct gb_error *error)
{
    struct gb_writer writer;
    int r = 0;

    replay->storages = calloc(replay->storage_records.count + 1, sizeof(*replay->storages));
    if (!replay->storages)
        return gb_fail_memory(error);
    gb_writer_init(&writer, 0);
    GB_LIST_EACH(&replay->records, const struct record, record, of_all) {
        struct gb_replayed_storage *storage = &replay->storages[replay->storage_count++];
        struct gb_error why = {.code = 0};

        gb_notify_extend(replay->notify);
        r = read_storage(replay, storage, record, &writer, &why);
        if (r == GPUBUF_E_NO_MEMORY)
            break;
        if (r < 0)
            give_up(replay, storage, record->bytes ? why.message : NULL);
        storage->disbelieved =
            r < 0 || (storage->object_count == 0 && (!storage->fleeting || storage->amended));
        storage->lost |= storage->disbelieved;
    }
    gb_writer_end(&writer);
    return r == GPUBUF_E_NO_MEMORY ? gb_fail_memory(error) : 0;
}

const void *gb_replay_record(const struct gb_replay *replay, uint64_t number, size_t *length)
{
    const struct record *record = find(&replay->storage_records, number);

    *length = record->length;
    return record->bytes;
}

/* ---- all of it ---- */

static void read_numbers(struct gb_replay *replay, const struct gb_journal_numbers *next)
{
    uint64_t most = GB_LIMIT(integer);

    if (next->segment > most || next->version > most || next->storage > most) {
        disbelieve(replay, "numbers", 0, NULL, "no daemon counts that far");
        return;
    }
    gb_raise_to(&replay->next_segment, next->segment);
    gb_raise_to(&replay->next_version, next->version);
    gb_raise_to(&replay->next_number, next->storage);
}

int gb_replay_read(struct gb_replay *replay, struct gb_journal *journal, int fd,
                   struct gb_notify *notify, struct gb_device **devices, unsigned device_count,
                   struct gb_error *error)
{
    int r;

    *replay =
        (struct gb_replay){.notify = notify, .devices = devices, .device_count = device_count};
    *error = (struct gb_error){.code = 0};
    r = gb_journal_open(journal, fd, read_record, replay, error);
    if (r == 0) {
        replay->read = journal->read;
        journal->read = (struct gb_journal_map){0};
        read_numbers(replay, &journal->next);
        r = read_segments(replay, error);
    }
    if (r == 0)
        r = read_storages(replay, error);
    return r;
}

void gb_replay_end(struct gb_replay *replay)
{
    free(replay->storages);
    free(replay->segments);
    gb_hash_end(&replay->segment_records);
    gb_hash_end(&replay->storage_records);
    gb_pool_end(&replay->pool);
    gb_journal_unmap(&replay->read);
}
