/*
 * restore: a daemon that begins with a journal whose container is whole and whose records say
 * anything, and with descriptors of any kind and size.
 *
 * The input: how many descriptors; each is three bytes, the segment that it is said to be (0: the
 * host tier, 255: something else), what it is, and its size in steps of 64 KiB. Then records, each
 * a byte for its type (1: no record, but the header's numbers), two for its length, and its
 * payload. After them come those of a good storage with two objects, whose numbers (of the storage
 * and its segment) the input cannot have. Whatever it says, the daemon begins and has the good
 * objects; its accounts add up, and do so when the grace period is over; it says nothing that is
 * not JSON; the next one has the same, to the last place and name, and so has the one after it that
 * begins with a journal that was written anew; and nothing is left behind.
 */
#include <inttypes.h>

#include "by_hand.h"
#include "daemon/objects/stream.h"
#include "daemon/objects/text.h"
#include "demand.h"
#include "tests/unit/inside.h"
#include "tests/unit/is_json.h"

#define INSTANCE "00112233445566778899aabbccddeeff"
#define GOOD 4000 /* the number of a storage and of its segment */
#define NUMBERS 1 /* in place of a record's type */

struct input {
    const uint8_t *data;
    size_t size;
};

static unsigned take(struct input *input)
{
    if (input->size == 0)
        return 0;
    input->size--;
    return *input->data++;
}

static int make_descriptor(unsigned kind, size_t bytes)
{
    char path[48];
    int fd, read_only;

    switch (kind % 5) {
    case 1: /* a memfd that may shrink */
        return sealed_memfd(bytes, 0);
    case 2:
        return open("/dev/null", O_RDWR | O_CLOEXEC);
    case 3: /* of a kind as registered memory is kept */
        fd = sealed_memfd(bytes, F_SEAL_SHRINK);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        read_only = open(path, O_RDONLY | O_CLOEXEC);
        close(fd);
        return read_only;
    case 4: /* a page of a stream */
        return sealed_memfd(GB_STREAM_PAGE_BYTES, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    default:
        return sealed_memfd(bytes, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    }
}

static void keep_descriptors(struct input *input, struct gb_notify *manager)
{
    unsigned count = take(input) % 17;

    for (unsigned i = 0; i < count; i++) {
        unsigned segment = take(input), kind = take(input);
        int fd = make_descriptor(kind, (size_t)take(input) * 65536);
        char name[24] = "tier";

        DEMAND(fd >= 0);
        if (segment == 255)
            strcpy(name, "what");
        else if (segment > 0)
            gb_state_segment_fd_name(segment, name);
        DEMAND(gb_notify_store_fd(manager, name, fd) == 0);
        close(fd);
    }
}

/* ---- what must never be lost ---- */

static void put(struct gb_writer *writer, uint64_t value, unsigned octets)
{
    for (unsigned i = 0; i < octets; i++)
        gb_write_char(writer, (char)(value >> 8 * i));
}

static void put_text(struct gb_writer *writer, const char *text)
{
    put(writer, strlen(text), 8);
    gb_write(writer, text, strlen(text));
}

/* Host memory, shared by descriptor, of uid 0, gid 0 and mode 0600. */
static void put_key(struct gb_writer *writer)
{
    put_text(writer, "host");
    put(writer, GB_SHARE_FD, 1);
    put(writer, 0, 8);
    put(writer, 0, 8);
    put(writer, 0600, 8);
    put(writer, 0, 1); /* not live */
}

static void append(struct gb_journal *journal, unsigned type, struct gb_writer *writer)
{
    struct gb_error error;

    DEMAND(!writer->failed);
    DEMAND(gb_journal_append(journal, type, GOOD, writer->data, writer->length, &error) == 0);
    gb_writer_reset(writer);
}

static void put_good_object(struct gb_writer *writer, const char *name, uint64_t version)
{
    char brief[64], text[256];

    snprintf(brief, sizeof(brief), "\"name\":\"%s\",\"version\":%u", name, (unsigned)version);
    snprintf(
        text, sizeof(text),
        "%s,\"layout\":{\"kind\":\"bytes\",\"bytes\":8,\"data\":{\"segment\":%d,\"offset\":256,"
        "\"bytes\":8}}",
        brief, GOOD);
    put(writer, version, 8);
    put(writer, version, 8); /* of its line */
    put(writer, 1, 1);       /* named */
    put(writer, 0, 1);
    put(writer, GB_EVICT_SPILL, 1);
    put(writer, 0, 1);
    put(writer, 0, 8); /* uid, gid, mode, bytes, created, ttl, expires */
    put(writer, 0, 8);
    put(writer, 0600, 8);
    put(writer, 8, 8);
    put(writer, 1, 8);
    put(writer, 0, 8);
    put(writer, 0, 8);
    put_text(writer, name);
    put(writer, strlen(brief), 8);
    put_text(writer, text);
}

static void append_good(struct gb_journal *journal)
{
    struct gb_writer writer;

    gb_writer_init(&writer, 0);
    put(&writer, 65536, 8);
    put(&writer, GB_SEGMENT_SHARED, 1);
    put(&writer, GB_HANDLE_MEMFD, 1);
    put(&writer, 0, 8);
    put_key(&writer);
    append(journal, GB_RECORD_SEGMENT, &writer);

    put(&writer, 0, 8);
    put_key(&writer);
    put(&writer, 0, 1); /* not adopted, but resident */
    put(&writer, 1, 1);
    put(&writer, 256, 8); /* charged; size */
    put(&writer, 8, 8);
    put(&writer, 1, 1);
    put(&writer, GOOD, 8);
    put(&writer, 256, 8);
    put(&writer, 256, 8);
    put(&writer, 0, 1); /* no copies */
    put(&writer, 0, 1);
    put(&writer, 2, 8);
    put_good_object(&writer, "good", 71);
    put_good_object(&writer, "good/alias", 72);
    append(journal, GB_RECORD_STORAGE, &writer);
    gb_writer_end(&writer);
}

static void keep_good_descriptor(struct gb_notify *manager)
{
    int fd = make_descriptor(0, 65536);
    char name[24];

    gb_state_segment_fd_name(GOOD, name);
    DEMAND(fd >= 0 && gb_notify_store_fd(manager, name, fd) == 0);
    close(fd);
}

static void check_good(const struct gb_server *server)
{
    unsigned found = 0;

    for (size_t i = 0; i < server->state.object_count; i++) {
        const struct gb_object *object = server->state.objects[i];
        const struct gb_storage *storage = object->storage;

        if (storage->number != GOOD)
            continue;
        DEMAND(object->version == (strcmp(object->name, "good") == 0 ? 71 : 72));
        DEMAND(storage->placements[0].segment->id == GOOD &&
               gb_placement_offset(&storage->placements[0]) == 256);
        found++;
    }
    DEMAND(found == 2);
}

/* ---- the input's ---- */

/* The number that the input's record begins with; 0 if it is too short. */
static uint64_t number_of(const uint8_t *payload, size_t length)
{
    uint64_t number = 0;

    for (size_t i = 0; i < 8 && length >= 8; i++)
        number |= (uint64_t)payload[i] << 8 * i;
    return number;
}

static void keep_journal(struct input *input, struct gb_notify *manager)
{
    struct gb_journal journal;
    struct gb_error error;

    DEMAND(gb_journal_new(&journal, INSTANCE, 1, &error) == 0);
    while (input->size > 0) {
        unsigned type = take(input);
        size_t length = take(input), skip;
        uint64_t number;

        length |= (size_t)take(input) << 8;
        if (length > input->size)
            length = input->size;
        skip = length >= 8 ? 8 : 0;
        number = number_of(input->data, length);
        if (type == NUMBERS && length >= sizeof(journal.next))
            memcpy(&journal.next, input->data, sizeof(journal.next));
        DEMAND(type == 0 || type == NUMBERS || number == GOOD ||
               gb_journal_append(&journal, type, number, input->data + skip, length - skip,
                                 &error) == 0);
        input->data += length;
        input->size -= length;
    }
    append_good(&journal);
    DEMAND(gb_notify_store_fd(manager, "journal-1", journal.fd) == 0);
    gb_journal_end(&journal);
}

static void check_line(struct gb_writer *writer)
{
    DEMAND(!writer->failed && !memchr(writer->data, '\n', writer->length));
    DEMAND(is_json(writer->data, writer->length));
    gb_writer_reset(writer);
}

/* Checks that its answers about all that it has are JSON. */
static void check_texts(const struct gb_server *server)
{
    struct gb_writer writer;
    const struct gb_withdrawn *withdrawn;
    size_t next = 0;

    gb_writer_init(&writer, 0);
    for (const struct gb_name *name = gb_names_lower(&server->registry.names, "", 0, false); name;
         name = gb_names_next(name)) {
        gb_object_write(&writer, GB_CONTAINER(name, struct gb_object, index), GB_WITH_LAYOUT, 0);
        check_line(&writer);
        gb_object_write(&writer, GB_CONTAINER(name, struct gb_object, index), 0, 0);
        check_line(&writer);
    }
    while ((withdrawn = gb_state_next_withdrawn(&server->state, &next))) {
        gb_withdrawn_write(&writer, withdrawn);
        check_line(&writer);
    }
    gb_writer_end(&writer);
}

/* ---- what there is ---- */

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void describe_object(FILE *text, const struct gb_object *object)
{
    const struct gb_storage *storage = object->storage;
    const struct gb_domain_key *key = &storage->key;

    fprintf(text, "object %.*s %.*s %" PRIu64 " of %u:%u %o, %u%u%u%u, %" PRIu64 " bytes, ",
            (int)object->name_length, object->name, (int)object->text_length, object->text,
            object->version, object->owner->uid, object->gid, object->mode, object->named,
            object->pinned, object->evict, object->by_session, object->bytes);
    fprintf(text, "made %" PRId64 ", for %" PRId64 ", until %" PRIu64 "; ", object->created_ms,
            object->ttl_ms, object->deadline.place ? object->deadline.at : 0);
    fprintf(text, "storage %" PRIu64 " of %u, %u %u:%u %o, %u%u, %" PRIu64 ", %" PRIu64 ":",
            storage->number, storage->maker.user->uid, key->share, key->uid, key->gid, key->mode,
            storage->adopted, storage->resident, storage->charged, storage->size);
    for (unsigned i = 0; i < storage->placement_count; i++)
        fprintf(text, " %" PRIu64 "+%" PRIu64 "+%" PRIu64, storage->placements[i].segment->id,
                gb_placement_offset(&storage->placements[i]),
                gb_placement_bytes(&storage->placements[i]));
    for (int i = 0; i < GB_TIERS; i++)
        if (storage->copies[i])
            fprintf(text, " tier %d+%" PRIu64, i, gb_copy_where(storage->copies[i]));
    if (object->live && object->live->stream)
        fprintf(text, " stream of %" PRIu64 " and %" PRIu64 "%s",
                object->live->stream->roster_page.id, object->live->stream->front_page.id,
                object->live->stream->torn ? ", torn" : "");
    fputc('\n', text);
}

/* Describes all that was restored, one line for each thing, in a fixed order. The caller frees
   it. */
static char *describe(const struct gb_server *server)
{
    const struct gb_state *state = &server->state;
    char *all, *lines[256], *sorted;
    size_t size, count = 0;
    FILE *text = open_memstream(&all, &size);

    DEMAND(text != NULL);
    for (size_t i = 0; i < state->object_count; i++)
        describe_object(text, state->objects[i]);
    for (size_t i = 0; i < state->withdrawn_count; i++)
        fprintf(text, "withdrawn %" PRIu64 " %" PRIu64 " %.*s\n", state->withdrawn[i]->number,
                state->withdrawn[i]->version,
                (int)(state->withdrawn[i]->name_length + state->withdrawn[i]->text_length),
                state->withdrawn[i]->name);
    GB_LIST_EACH(&server->devices[0]->segment_list, const struct gb_segment, segment, of_device) {
        fprintf(text, "segment %" PRIu64 " of %u, %u, %" PRIu64 "\n", segment->id,
                segment->user->uid, segment->kind, segment->bytes);
    }
    DEMAND(fclose(text) == 0 && (sorted = malloc(size + 1)) != NULL);
    for (char *line = strtok(all, "\n"); line && count < 256; line = strtok(NULL, "\n"))
        lines[count++] = line;
    qsort(lines, count, sizeof(*lines), compare_lines);
    *sorted = '\0';
    for (size_t i = 0, length = 0; i < count; i++)
        length += (size_t)sprintf(sorted + length, "%s\n", lines[i]);
    free(all);
    return sorted;
}

static void begin(struct inside *inside, struct gb_notify *notify)
{
    struct gb_server *server = &inside->server;
    static char instance[GB_JOURNAL_INSTANCE_BYTES + 1]; /* the state refers to it */
    struct gb_error error;

    strcpy(instance, INSTANCE);
    DEMAND(gb_state_begin(&server->state, notify, &server->registry, &server->spill,
                          server->devices, server->device_count, 10000, instance, hand_clock_ms,
                          &error) == 0);
    DEMAND(!server->state.failed);
    gb_notify_close_unused(notify);
    inside_check(inside);
    check_texts(server);
    check_good(server);
}

/* Starts the next daemon with what there is, and checks that it has just that. */
static void go_on(struct inside *inside, struct gb_notify *notify)
{
    char *before = describe(&inside->server), *after;

    gb_state_hand_over(&inside->server.state);
    gb_server_end(&inside->server);
    gb_notify_end(notify);
    DEMAND(gb_server_init(&inside->server, &inside->config, &gb_methods,
                          &(struct gb_error){.code = 0}) == 0);
    DEMAND(hand_over(notify));
    begin(inside, notify);
    after = describe(&inside->server);
    if (strcmp(before, after) != 0)
        fprintf(stderr, "before:\n%safter:\n%s", before, after);
    DEMAND(strcmp(before, after) == 0);
    free(before);
    free(after);
}

/* Has the journal written anew. Not while something withdrawn is in the present one only. */
static void write_anew(struct gb_state *state)
{
    uint64_t generation = state->journal.generation;

    state->journal.bytes = UINT64_MAX / 2; /* it will be closed, and nothing else */
    state->journal.base_bytes = 0;
    do
        DEMAND(!gb_state_run_due(state, hand_clock_ms));
    while (state->next.fd >= 0);
    DEMAND(!state->failed && state->journal.generation == generation + 1);
}

/* RELIABILITY.md: The daemon ends 7 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const options[] = {"--device=host:16M", "--tier=host:2M", NULL};
    static struct inside inside;
    struct gb_notify manager = {.socket = 1}, notify;
    struct input input = {data, size};
    size_t fds = open_fds();

    keep_descriptors(&input, &manager);
    keep_good_descriptor(&manager);
    keep_journal(&input, &manager);
    inside_make(&inside, options);
    DEMAND(rmdir(inside.directory) == 0);
    inside.overfull = true;
    gb_log_setup((enum gb_log_level)(GB_LOG_ERROR + 1), false); /* what is lost is told */
    DEMAND(hand_over(&notify));
    begin(&inside, &notify);
    go_on(&inside, &notify);
    if (inside.server.state.withdrawn_count == 0) {
        write_anew(&inside.server.state);
        go_on(&inside, &notify);
    }

    hand_clock_ms += 10000;
    inside.server.registry.now_ms = hand_clock_ms;
    DEMAND(gb_state_run_due(&inside.server.state, hand_clock_ms) ==
           (inside.server.state.grace_ms > 0 && inside.server.state.grace_until == 0));
    inside_check(&inside);
    gb_server_end(&inside.server);
    gb_notify_end(&notify);
    gb_config_end(&inside.config);
    hand_forget();
    DEMAND(open_fds() == fds);
    return 0;
}
