#include "daemon/objects/text.h"
#include "daemon/objects/stream.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *const gb_evict_names[] = {
    [GB_EVICT_SPILL] = "spill", [GB_EVICT_DROP] = "drop", [GB_EVICT_KEEP] = "keep", NULL};

/* Members that are searched for in the text. In a string their quotes would be escaped. */
#define LABEL ",\"label\":"
#define KEEP ",\"keep\":"
#define CLUSTER ",\"scope\":\"cluster\"" /* after all others but the layout */
#define NOTE "\"note\":"                 /* before all others */

void gb_traits_write(struct gb_writer *writer, const struct gb_traits *traits)
{
    gb_write_text(writer, traits->share == GB_SHARE_FD ? ",\"share\":\"fd\",\"bytes\":"
                                                       : ",\"share\":\"ipc\",\"bytes\":");
    gb_write_uint(writer, traits->bytes);
    GB_WRITE_LITERAL(writer, ",\"mode\":\"");
    for (int shift = 9; shift >= 0; shift -= 3) /* printf would take a tenth of create and seal */
        gb_write_char(writer, (char)('0' + (traits->mode >> shift & 7)));
    GB_WRITE_LITERAL(writer, "\",\"uid\":");
    gb_write_uint(writer, traits->uid);
    GB_WRITE_UINT(writer, ",\"gid\":", traits->gid);
    GB_WRITE_LITERAL(writer, ",\"created_ms\":");
    gb_write_int(writer, traits->created_ms);
    GB_WRITE_LITERAL(writer, ",\"evict\":\"");
    gb_write_text(writer, gb_evict_names[traits->evict]);
    gb_write_text(writer, traits->by_session ? "\",\"producer\":\"session\""
                                             : "\",\"producer\":\"daemon\"");
}

static void write_title(struct gb_writer *writer, const struct gb_object *object, uint64_t version)
{
    if (object->text_ends.note)
        gb_write(writer, object->text, object->text_ends.note);
    GB_WRITE_LITERAL(writer, "\"name\":");
    gb_write_string(writer, object->name, object->name_length);
    GB_WRITE_UINT(writer, ",\"version\":", version);
    if (object->label.text) {
        GB_WRITE_LITERAL(writer, LABEL);
        gb_write(writer, object->label.text, object->label.length);
    }
    if (object->keep > 0)
        gb_write_format(writer, KEEP "%u", object->keep);
    if (gb_object_is_live(object))
        GB_WRITE_LITERAL(writer, ",\"live\":true");
    GB_WRITE_LITERAL(writer, ",\"device\":\"");
    gb_write_text(writer, object->storage->key.device->id);
    gb_write_char(writer, '"');
    if (object->cluster)
        GB_WRITE_LITERAL(writer, CLUSTER);
}

/* A rendered text, before the object has it. */
struct text {
    char *text;
    size_t length, brief;
    struct gb_buffer first; /* of a text that was relocated */
};

/* Copies the text out of the writer, which is empty then and keeps its memory: a million texts
   would waste what it grows by. */
static int take_text(struct gb_writer *writer, struct text *text, struct gb_error *error)
{
    size_t length = writer->length;

    text->text = NULL;
    if (!writer->failed && length > GB_OBJECT_TEXT_MAX) {
        gb_writer_reset(writer);
        return gb_fail_limit(error, "line_bytes", GB_LIMIT(line_bytes),
                             "names, dtypes and metadata of the columns do not fit one message");
    }
    if (!writer->failed)
        text->text = malloc(length + 1);
    if (text->text) {
        memcpy(text->text, writer->data, length);
        text->text[length] = '\0';
        text->length = length;
    }
    gb_writer_reset(writer);
    return text->text ? 0 : gb_fail_memory(error);
}

/* `writer` is empty, before and after, and keeps its memory. */
static int write_whole(const struct gb_object *object, const char *layout, size_t length,
                       uint64_t version, struct gb_writer *writer, struct text *text,
                       struct gb_error *error)
{
    write_title(writer, object, version);
    text->brief = writer->length;
    GB_WRITE_LITERAL(writer, ",\"layout\":");
    gb_write(writer, layout, length);
    writer->failed |= !layout;
    return take_text(writer, text, error);
}

/* The value of `member` in the head of its text; NULL: it has none. */
static const char *find_member(const struct gb_object *object, const char *member)
{
    size_t length = strlen(member);
    const char *found =
        object->text ? memmem(object->text, object->text_ends.head, member, length) : NULL;

    return found ? found + length : NULL;
}

/* Reads label, `keep` and scope from the object's text. */
static void read_title(struct gb_object *object)
{
    const char *keep = find_member(object, KEEP), *end;
    unsigned long long count = keep ? strtoull(keep, NULL, 10) : 0;

    object->cluster = object->text_ends.head < object->text_ends.brief;
    object->keep = count < GB_LIMIT(keep) ? (unsigned)count : GB_LIMIT(keep);
    object->label.text = find_member(object, LABEL);
    if (!object->label.text || *object->label.text != '"') {
        object->label.text = NULL;
        return;
    }
    for (end = object->label.text + 1; *end != '"'; end++)
        end += *end == '\\';
    object->label.length = (size_t)(end + 1 - object->label.text);
}

size_t gb_text_note(const char *text, size_t length)
{
    size_t at = strlen(NOTE);

    if (length <= at || memcmp(text, NOTE, at) != 0)
        return 0;
    for (at++; at < length && text[at] != '"'; at++)
        at += text[at] == '\\';
    return at + 2 < length ? at + 2 : length; /* with its quote, and a comma */
}

int gb_object_set_note(struct gb_object *object, const struct gb_string *note,
                       struct gb_error *error)
{
    struct gb_writer writer;
    size_t length;

    if (!note->length)
        return 0;
    gb_writer_init(&writer, 0);
    GB_WRITE_LITERAL(&writer, NOTE);
    gb_write_string(&writer, note->text, note->length);
    gb_write_char(&writer, ',');
    char *text = gb_writer_take(&writer, &length);
    gb_writer_end(&writer);
    if (!text)
        return gb_fail_memory(error);
    gb_object_set_text(object, text, length, length);
    return 0;
}

void gb_object_set_text(struct gb_object *object, char *text, size_t length, size_t brief)
{
    size_t note = gb_text_note(text, brief), scope = strlen(CLUSTER);

    object->owner->has[GB_QUOTA_TEXT] += length - object->text_length;
    object->storage->text += length - object->text_length;
    free(object->text);
    object->text = text;
    object->text_length = (uint32_t)length;
    object->text_ends.note = (uint32_t)note;
    object->text_ends.brief = (uint32_t)brief;
    bool cluster = brief > scope && memcmp(text + brief - scope, CLUSTER, scope) == 0;
    object->text_ends.head = (uint32_t)(cluster ? brief - scope : brief);
    read_title(object);
}

static void set_text(struct gb_object *object, const struct text *text)
{
    gb_object_set_text(object, text->text, text->length, text->brief);
}

/* Whether its owner may have this text in place of the object's present one. Frees it if not. */
static int check_text(const struct gb_object *object, struct text *text, struct gb_error *error)
{
    uint64_t more = text->length > object->text_length ? text->length - object->text_length : 0;
    int r = gb_user_may_have(object->owner, GB_QUOTA_TEXT, NULL, more, error);

    if (r < 0)
        free(text->text);
    return r;
}

int gb_object_render(struct gb_object *object, const struct gb_writer *layout, uint64_t version,
                     struct gb_writer *room, struct gb_error *error)
{
    struct text text;
    int r = write_whole(object, layout->failed ? NULL : layout->data, layout->length, version, room,
                        &text, error);

    if (r == 0)
        r = check_text(object, &text, error);
    if (r == 0)
        set_text(object, &text);
    else
        read_title(object);
    return r;
}

static int take_first(struct gb_buffer *buffer, void *arg)
{
    struct gb_buffer *first = arg;

    if (buffer->bytes == 0)
        return 0;
    *first = *buffer;
    return 1;
}

void gb_object_note_place(struct gb_object *object, struct gb_layout *layout)
{
    struct gb_buffer first = {.segment = 0};

    gb_layout_each(layout, take_first, &first);
    object->first = (struct gb_first){first.segment, first.offset};
}

static struct gb_string layout_text(const struct gb_object *object)
{
    size_t skip = object->text_ends.brief + strlen(",\"layout\":");

    return (struct gb_string){object->text + skip, object->text_length - skip};
}

int gb_object_set_version(struct gb_object *object, uint64_t version, bool entitled,
                          struct gb_error *error)
{
    struct gb_string layout = layout_text(object);
    size_t room = object->text_length + 64; /* for longer numbers, and most labels */
    struct gb_writer writer = {.data = malloc(room), .capacity = room};
    struct text text;
    int r = write_whole(object, layout.text, layout.length, version, &writer, &text, error);

    gb_writer_end(&writer);
    if (r == 0 && entitled)
        r = check_text(object, &text, error);
    if (r == 0)
        set_text(object, &text);
    else
        read_title(object);
    return r;
}

char *gb_object_copy_layout(const struct gb_object *object, struct gb_pool *pool, size_t *length)
{
    struct gb_string text = layout_text(object);

    *length = text.length;
    return gb_pool_strndup(pool, text.text, text.length);
}

bool gb_object_has_layout(const struct gb_object *object, const char *text, size_t length)
{
    struct gb_string has = layout_text(object);

    return has.length == length && memcmp(has.text, text, length) == 0;
}

static const char *tier_of(const struct gb_object *object)
{
    const struct gb_storage *storage = object->storage;

    if (storage->resident)
        return "device";
    for (int i = 0; i < GB_TIERS; i++)
        if (storage->copies[i] && storage->copies[i]->whole)
            return gb_tier_name((enum gb_tier_kind)i);
    return "device"; /* it is being restored from a copy that proved bad */
}

static void write_idle(struct gb_writer *writer, const struct gb_storage *storage, uint64_t now_ms)
{
    bool idle = storage->leases == 0 && now_ms >= storage->used_ms;

    GB_WRITE_UINT(writer, ",\"idle_ms\":", idle ? now_ms - storage->used_ms : 0);
}

static void write_ready(struct gb_writer *writer, const struct gb_object *object)
{
    if (object->ready)
        gb_write_format(writer, ",\"ready\":\"%s\"", object->ready);
}

/* Whether another user made the layout or the content, or may write the content. */
static bool is_foreign(const struct gb_object *object, const struct gb_user *reader)
{
    return object->owner != reader || object->storage->maker.user != reader ||
           (gb_object_is_live(object) && object->mode & 0022);
}

void gb_object_write_essence(struct gb_writer *writer, const struct gb_object *object,
                             const struct gb_user *reader)
{
    gb_write_char(writer, '{');
    gb_write(writer, object->text + object->text_ends.note,
             object->text_ends.head - object->text_ends.note);
    gb_write(writer, object->text + object->text_ends.brief,
             object->text_length - object->text_ends.brief);
    if (is_foreign(object, reader))
        GB_WRITE_LITERAL(writer, ",\"foreign\":true");
    if (gb_storage_is_final(object->storage))
        GB_WRITE_LITERAL(writer, ",\"final\":true");
    write_ready(writer, object);
    gb_write_char(writer, '}');
}

static void write_live(struct gb_writer *writer, const struct gb_live *live)
{
    gb_write_format(writer, ",\"generation\":%" PRIu64 ",\"writers\":%" PRIu64, live->generation,
                    live->writers);
    gb_stream_write(writer, live->stream);
}

void gb_object_write(struct gb_writer *writer, const struct gb_object *object, unsigned parts,
                     uint64_t now_ms)
{
    const struct gb_traits traits = {.share = object->storage->key.share,
                                     .bytes = object->bytes,
                                     .mode = object->mode,
                                     .uid = object->owner->uid,
                                     .gid = object->gid,
                                     .created_ms = object->created_ms,
                                     .evict = object->evict,
                                     .by_session = object->by_session};
    size_t skip = parts & GB_WITH_NOTE ? 0 : object->text_ends.note;
    size_t brief = object->text_ends.brief;

    gb_write_char(writer, '{');
    gb_write(writer, object->text + skip, brief - skip);
    gb_traits_write(writer, &traits);
    if (parts & GB_WITH_LAYOUT)
        gb_write(writer, object->text + brief, object->text_length - brief);
    gb_write_text(writer, !object->version            ? ",\"state\":\"open\""
                          : gb_object_is_live(object) ? ",\"state\":\"live\""
                                                      : ",\"state\":\"sealed\"");
    GB_WRITE_LITERAL(writer, ",\"tier\":\"");
    gb_write_text(writer, tier_of(object));
    GB_WRITE_LITERAL(writer, "\",\"when_short\":\"");
    gb_write_text(writer, gb_object_prospect(object));
    GB_WRITE_UINT(writer, "\",\"leases\":", gb_object_lease_count(object));
    if (object->idle_count)
        gb_write_format(writer, ",\"cached\":%" PRIu32, object->idle_count);
    if (object->parked_count)
        gb_write_format(writer, ",\"parked\":%" PRIu32, object->parked_count);
    gb_write_text(writer, object->pinned ? ",\"pinned\":true" : ",\"pinned\":false");
    if (object->version && !object->current)
        gb_write_text(writer, object->named ? ",\"older\":true" : ",\"gone\":true");
    GB_WRITE_LITERAL(writer, ",\"ttl_ms\":");
    gb_write_int(writer, object->ttl_ms);
    if (gb_object_is_live(object))
        write_live(writer, object->live);
    if (gb_storage_is_final(object->storage))
        GB_WRITE_LITERAL(writer, ",\"final\":true");
    if (object->storage->key.own)
        GB_WRITE_LITERAL(writer, ",\"own\":true");
    write_ready(writer, object);
    if (parts & GB_WITH_IDLE)
        write_idle(writer, object->storage, now_ms);
    if (parts & GB_WITH_PLACES) {
        GB_WRITE_LITERAL(writer, ",\"placements\":");
        gb_placements_write(writer, object);
    }
    gb_write_char(writer, '}');
}

void gb_placements_write(struct gb_writer *writer, const struct gb_object *object)
{
    const struct gb_storage *storage = object->storage;

    gb_write_char(writer, '[');
    for (unsigned i = 0; i < storage->placement_count; i++) {
        gb_write_text(writer, i > 0 ? ",[" : "[");
        gb_write_uint(writer, storage->placements[i].segment->id);
        gb_write_char(writer, ',');
        gb_write_uint(writer, gb_placement_offset(&storage->placements[i]));
        gb_write_char(writer, ',');
        gb_write_uint(writer, gb_placement_bytes(&storage->placements[i]));
        gb_write_char(writer, ']');
    }
    gb_write_char(writer, ']');
}

/* ---- moving ---- */

/* A change of the places of a storage's buffers: from its placements to one piece in segment 0
   (`leaves`), or from that to its placement. */
struct relocation {
    const struct gb_storage *storage;
    bool leaves;
};

static void relocate_buffer(struct gb_buffer *buffer, const struct relocation *relocation)
{
    const struct gb_storage *storage = relocation->storage;
    uint64_t before = 0;

    if (!relocation->leaves) {
        buffer->segment = storage->placements[0].segment->id;
        buffer->offset += gb_placement_offset(&storage->placements[0]);
        return;
    }
    for (unsigned i = 0; i < storage->placement_count; i++) {
        const struct gb_placement *placement = &storage->placements[i];

        uint64_t offset = gb_placement_offset(placement);

        if (placement->segment->id == buffer->segment && buffer->offset >= offset) {
            buffer->offset = before + buffer->offset - offset;
            buffer->segment = 0;
            return;
        }
        before = gb_content_next(before + placement->segment->bytes);
    }
}

/* In a text of gb_layout_write() every buffer begins like this, and nothing else does: in a string
   the quotes would be escaped, and values of metadata are strings. */
#define PLACE "{\"segment\":"
#define OFFSET ",\"offset\":"
#define BYTES ",\"bytes\":"

struct scan {
    const char *at, *end;
};

/* Reads a number, and moves past it; false: there is none. */
static bool scan_number(struct scan *scan, uint64_t *number)
{
    const char *from = scan->at;

    for (*number = 0; scan->at < scan->end && *scan->at >= '0' && *scan->at <= '9'; scan->at++)
        *number = *number * 10 + (uint64_t)(*scan->at - '0');
    return scan->at > from;
}

static bool scan_literal(struct scan *scan, const char *literal, size_t length)
{
    if ((size_t)(scan->end - scan->at) < length || memcmp(scan->at, literal, length) != 0)
        return false;
    scan->at += length;
    return true;
}

#define SCAN(scan, literal) scan_literal((scan), literal, sizeof(literal) - 1)

/* Finds the next place of a buffer and returns where its numbers begin; the scan is then after its
   offset. NULL: there is none. */
static const char *next_place(struct scan *scan, struct gb_buffer *place)
{
    const char *from = scan->at;

    for (; (from = memchr(from, '{', (size_t)(scan->end - from))); from++) {
        scan->at = from;
        if (SCAN(scan, PLACE) && scan_number(scan, &place->segment) && SCAN(scan, OFFSET) &&
            scan_number(scan, &place->offset))
            return from + strlen(PLACE);
    }
    return NULL;
}

size_t gb_text_count_places(const char *text, size_t length)
{
    struct scan scan = {text, text + length};
    struct gb_buffer place;
    size_t count = 0;

    while (next_place(&scan, &place))
        count++;
    return count;
}

/* Makes the object's text with its buffers in their new places. */
static int relocated_text(const struct gb_object *object, const struct relocation *relocation,
                          struct text *text, struct gb_error *error)
{
    struct scan scan = {object->text + object->text_ends.brief, object->text + object->text_length};
    struct gb_buffer place,
        first = {.segment = object->first.segment, .offset = object->first.offset};
    size_t room = object->text_length + object->text_length / 8 + 64; /* for longer numbers */
    struct gb_writer writer = {.data = malloc(room), .capacity = room};
    const char *done = object->text, *end = scan.end, *begin;
    bool has_bytes = false;

    while ((begin = next_place(&scan, &place))) {
        gb_write(&writer, done, (size_t)(begin - done));
        done = scan.at;
        has_bytes |= !(SCAN(&scan, BYTES "0}"));
        relocate_buffer(&place, relocation);
        gb_write_uint(&writer, place.segment);
        GB_WRITE_LITERAL(&writer, OFFSET);
        gb_write_uint(&writer, place.offset);
    }
    gb_write(&writer, done, (size_t)(end - done));
    if (has_bytes)
        relocate_buffer(&first, relocation);
    text->first = first;
    text->brief = object->text_ends.brief;
    int r = take_text(&writer, text, error);
    gb_writer_end(&writer);
    return r;
}

int gb_storage_relocate(struct gb_storage *storage, bool leaves, struct gb_error *error)
{
    const struct relocation relocation = {storage, leaves};
    size_t count = 0, done = 0;
    struct text *texts;
    int r = 0;

    GB_LIST_EACH(&storage->objects, struct gb_object, object, of_storage)
        count++;
    texts = calloc(count ? count : 1, sizeof(*texts));
    if (!texts)
        return gb_fail_memory(error);
    GB_LIST_EACH(&storage->objects, struct gb_object, object, of_storage)
        if (r == 0)
            r = relocated_text(object, &relocation, &texts[done++], error);
    count = done;
    done = 0;
    /* All of them, or none. */
    GB_LIST_EACH(&storage->objects, struct gb_object, object, of_storage) {
        if (r == 0) {
            set_text(object, &texts[done]);
            object->first = (struct gb_first){texts[done].first.segment, texts[done].first.offset};
        } else if (done < count) {
            free(texts[done].text);
        }
        done++;
    }
    free(texts);
    return r;
}
