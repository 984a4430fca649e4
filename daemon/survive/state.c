#include "daemon/survive/state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/failpoint.h"
#include "daemon/base/log.h"

#define JOURNAL_PREFIX "journal-"
#define ANEW_MS 1000      /* after the journal was given up, before another is begun */
#define HAND_OVER_MS 1000 /* for the manager to take what is queued */
#define GRACE_OBJECTS 256 /* that a turn lets go when the grace period is over */
#ifdef GB_FAILPOINTS
#define SLICE_US 0 /* a record in a turn: tests see much happen meanwhile */
#else
#define SLICE_US 50 /* of a turn, for writing the journal anew */
#endif

/* ---- descriptors that the manager keeps ---- */

void gb_state_segment_fd_name(uint64_t id, char name[24])
{
    /* Short, since all names together have to fit an environment variable. */
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    char reversed[16];
    size_t count = 0, length = 0;

    do {
        reversed[count++] = digits[id % 36];
        id /= 36;
    } while (id > 0);
    name[length++] = 's';
    while (count > 0)
        name[length++] = reversed[--count];
    name[length] = '\0';
}

static void journal_name(uint64_t generation, char name[48])
{
    snprintf(name, 48, JOURNAL_PREFIX "%" PRIu64, generation);
}

/* False, with a line in the log, if memory is out. */
static bool store_fd(struct gb_state *state, const char *name, int fd)
{
    if (gb_notify_store_fd(state->notify, name, fd) == 0)
        return true;
    gb_log(GB_LOG_ERROR, "descriptor not stored", GB_LOG_TEXT("name", name),
           GB_LOG_TEXT("why", "out of memory"));
    return false;
}

void gb_state_unstore_fd(struct gb_state *state, const char *name)
{
    gb_notify_unstore_fd(state->notify, name);
}

static void unstore_journal(struct gb_state *state, struct gb_journal *journal)
{
    char name[48];

    journal_name(journal->generation, name);
    /* Closed first: the process that closes it last frees its pages, which takes time. */
    gb_journal_end(journal);
    gb_state_unstore_fd(state, name);
}

/* Ends the new journal, which was never used or has become the present one. */
static void drop_next(struct gb_state *state)
{
    gb_journal_end(&state->next);
    state->offered = 0;
    gb_walk_end(&state->segments);
    gb_list_move(&state->written, &state->storages);
}

/* Spoils a journal, which the manager may still have, and has the manager forget it: a successor
   must not believe one that lacks records. */
static void spoil_journal(struct gb_state *state, struct gb_journal *journal)
{
    if (journal->fd < 0)
        return;
    gb_journal_spoil(journal);
    unstore_journal(state, journal);
}

/* Gives the journals up. After a while a new one is begun. */
static void give_up(struct gb_state *state, const char *why)
{
    if (!state->failed)
        gb_log(GB_LOG_ERROR, "journal discarded: a crash would lose every object",
               GB_LOG_TEXT("why", why));
    state->failed = true;
    state->anew_at = gb_now_ms() + ANEW_MS;
    spoil_journal(state, &state->journal);
    spoil_journal(state, &state->next);
    drop_next(state);
}

void gb_state_abandon(struct gb_state *state, const char *why)
{
    give_up(state, why);
    state->abandoned = true;
}

/* ---- records ---- */

static void raise_numbers(const struct gb_state *state, struct gb_journal *journal)
{
    gb_raise_to(&journal->next.segment, state->registry->store->next_segment);
    gb_raise_to(&journal->next.version, state->registry->next_version);
    gb_raise_to(&journal->next.storage, state->next_number);
}

static void append(struct gb_state *state, struct gb_journal *journal, uint32_t type,
                   uint64_t number)
{
    const struct gb_writer *writer = &state->writer;
    struct gb_error error = {.message = "out of memory"};

    raise_numbers(state, journal);
    if (writer->failed ||
        (journal->fd >= 0 &&
         gb_journal_append(journal, type, number, writer->data, writer->length, &error) < 0)) {
        give_up(state, error.message);
        return;
    }
    if (journal != &state->next && state->next.fd >= 0)
        append(state, &state->next, type, number);
}

static void write_number(struct gb_state *state, struct gb_journal *journal, uint32_t type,
                         uint64_t number)
{
    gb_writer_reset(&state->writer);
    append(state, journal, type, number);
}

static void write_numbers(struct gb_state *state, struct gb_journal *journal)
{
    struct gb_error error;

    raise_numbers(state, journal);
    if (journal->fd >= 0 && gb_journal_count(journal, &error) < 0)
        give_up(state, error.message);
}

static void write_segment(struct gb_state *state, struct gb_journal *journal,
                          const struct gb_segment *segment)
{
    gb_writer_reset(&state->writer);
    gb_record_segment(&state->writer, segment);
    append(state, journal, GB_RECORD_SEGMENT, segment->id);
}

static void write_storage(struct gb_state *state, struct gb_journal *journal,
                          const struct gb_storage *storage)
{
    uint32_t type;

    gb_writer_reset(&state->writer);
    type = gb_record_storage(&state->writer, storage, state->registry->now_ms);
    append(state, journal, type, storage->number);
}

int gb_state_add_away(struct gb_state *state, uint64_t number, const void *record, size_t length)
{
    struct gb_away *away = malloc(sizeof(*away) + length);

    if (!away)
        return GPUBUF_E_NO_MEMORY;
    *away = (struct gb_away){.next = state->away, .number = number, .length = length};
    memcpy(away->record, record, length);
    state->away = away;
    return 0;
}

static void write_away(struct gb_state *state, struct gb_journal *journal)
{
    for (const struct gb_away *away = state->away; away; away = away->next) {
        gb_writer_reset(&state->writer);
        gb_write(&state->writer, (const char *)away->record, away->length);
        append(state, journal, GB_RECORD_STORAGE, away->number);
    }
}

/* ---- changes ---- */

void gb_state_record_segment_freed(struct gb_state *state, uint64_t id)
{
    char name[24];

    write_number(state, &state->journal, GB_RECORD_SEGMENT_FREED, id);
    GB_FAILPOINT(SEGMENT_GONE);
    gb_state_segment_fd_name(id, name);
    gb_state_unstore_fd(state, name);
}

void gb_state_record_storage_freed(struct gb_state *state, uint64_t number)
{
    write_number(state, &state->journal, GB_RECORD_STORAGE_FREED, number);
}

static bool is_kept_memory(const struct gb_memory *memory)
{
    return memory->kind != GB_HANDLE_CUDA_IPC;
}

static void on_segment(void *arg, struct gb_segment *segment, bool made)
{
    struct gb_state *state = arg;
    const struct gb_memory *memory = &segment->memory;
    char name[24];

    if (!is_kept_memory(memory)) {
        if (made) { /* so that a successor does not give its number again */
            write_numbers(state, &state->journal);
            write_numbers(state, &state->next);
        }
        return;
    }
    if (!made) {
        gb_state_record_segment_freed(state, segment->id);
        return;
    }
    gb_state_segment_fd_name(segment->id, name);
    store_fd(state, name, memory->write_fd >= 0 ? memory->write_fd : memory->read_fd);
    write_segment(state, &state->journal, segment);
}

static void on_storage(void *arg, struct gb_storage *storage)
{
    struct gb_state *state = arg;

    if (!gb_record_is_needed(storage)) {
        if (storage->number)
            gb_state_record_storage_freed(state, storage->number);
        storage->number = 0;
        gb_list_remove(&storage->of_state);
        return;
    }
    if (!storage->number) {
        storage->number = state->next_number++;
        gb_list_append(&state->storages, &storage->of_state);
    }
    write_storage(state, &state->journal, storage);
}

static void on_page(void *arg, uint64_t id, int fd)
{
    struct gb_state *state = arg;
    char name[24];

    gb_state_segment_fd_name(id, name);
    if (fd >= 0)
        store_fd(state, name, fd);
    else
        gb_state_unstore_fd(state, name);
}

void gb_state_record_changes(struct gb_state *state)
{
    struct gb_store *store = state->registry->store;

    store->on_segment = on_segment;
    store->on_storage = on_storage;
    store->on_page = on_page;
    store->handed_over = false;
    store->on_change_arg = state;
}

/* ---- a new journal ---- */

/* Begins to write the present state to a new journal. */
static void begin_anew(struct gb_state *state)
{
    struct gb_error error;

    GB_FAILPOINT(COMPACT_BEGIN);
    state->disbelieved = false;
    if (gb_journal_new(&state->next, state->instance, ++state->generation, &error) < 0) {
        state->next = GB_JOURNAL_NONE;
        give_up(state, error.message);
        return;
    }
    state->walked = 0;
    state->segments = (struct gb_walk){0};
    write_numbers(state, &state->next);
    write_away(state, &state->next);
}

/* The next segment for the new journal; NULL: none is left. A segment that was made meanwhile is
   recorded twice. */
static struct gb_segment *next_segment(struct gb_state *state)
{
    struct gb_walk *walk = &state->segments;

    for (; state->walked < state->device_count; state->walked++) {
        struct gb_link *head = &state->devices[state->walked]->segment_list;

        if (!walk->at)
            gb_walk_begin(&state->registry->store->walks, walk, head);
        if (walk->at != head) {
            struct gb_segment *segment = GB_CONTAINER(walk->at, struct gb_segment, of_device);

            walk->at = walk->at->next;
            return segment;
        }
        gb_walk_end(walk);
        walk->at = NULL;
    }
    return NULL;
}

/* Writes one segment or storage to the new journal; false: none is left. */
static bool write_one(struct gb_state *state)
{
    const struct gb_segment *segment = next_segment(state);
    struct gb_storage *storage;

    if (segment && is_kept_memory(&segment->memory))
        write_segment(state, &state->next, segment);
    if (segment)
        return true;
    if (gb_list_empty(&state->storages))
        return false;
    storage = GB_CONTAINER(state->storages.next, struct gb_storage, of_state);
    gb_list_remove(&storage->of_state);
    gb_list_append(&state->written, &storage->of_state);
    write_storage(state, &state->next, storage);
    return true;
}

/* Has the manager keep the new journal. It takes the place of the present one when the manager has
   got it: until then changes go into both, so that a successor can believe either. */
static void end_anew(struct gb_state *state)
{
    struct gb_journal former = state->journal;
    char name[48];

    if (!state->offered) {
        GB_FAILPOINT(COMPACT_WRITTEN);
        journal_name(state->next.generation, name);
        if (!store_fd(state, name, state->next.fd)) {
            give_up(state, "the manager cannot be given another");
            return;
        }
        state->offered = 1 + state->notify->queued;
    }
    if (former.fd >= 0 && !gb_notify_has_sent(state->notify, state->offered - 1))
        return;
    GB_FAILPOINT(COMPACT_KEPT);
    state->journal = state->next;
    state->next = GB_JOURNAL_NONE;
    gb_journal_mark_whole(&state->journal);
    drop_next(state);
    if (former.fd >= 0)
        unstore_journal(state, &former);
    if (state->failed)
        gb_log(GB_LOG_INFO, "journal rewritten");
    state->failed = false;
    GB_FAILPOINT(COMPACT_DONE);
}

/* Goes on writing the new journal until `until_us`. */
static void continue_anew(struct gb_state *state, uint64_t until_us)
{
    bool more = true;

    while (state->next.fd >= 0 && (more = write_one(state)) && gb_now_us() < until_us)
        ;
    if (state->next.fd >= 0 && !more)
        end_anew(state);
}

/* ---- beginning ---- */

static void log_unusable(const struct gb_error *why)
{
    gb_log(GB_LOG_ERROR, "state of the earlier daemon unusable: its objects are lost",
           GB_LOG_TEXT("why", why->message));
}

static bool is_journal(const struct gb_notify *notify, unsigned i)
{
    return notify->fds[i].fd >= 0 &&
           strncmp(notify->fds[i].name, JOURNAL_PREFIX, strlen(JOURNAL_PREFIX)) == 0;
}

bool gb_state_has_predecessor(const struct gb_notify *notify)
{
    for (unsigned i = 0; i < notify->fd_count; i++)
        if (is_journal(notify, i))
            return true;
    return false;
}

/* Sets *found to the journal of the highest generation among what was handed over; -1: none. Fails
   if one may be of use to another daemon. */
static int find_journal(struct gb_notify *notify, int *found, struct gb_error *error)
{
    uint64_t highest = 0, generation;

    *found = -1;
    for (unsigned i = 0; i < notify->fd_count; i++) {
        int r;

        if (!is_journal(notify, i))
            continue;
        r = gb_journal_peek(notify->fds[i].fd, &generation, error);
        if (r == GPUBUF_E_UNSUPPORTED || r == GPUBUF_E_NO_MEMORY)
            return r;
        if (r < 0)
            log_unusable(error);
        if (r == 0 && (*found < 0 || generation > highest)) {
            *found = (int)i;
            highest = generation;
        }
    }
    return 0;
}

/* Raises the counters past the names of all descriptors that were handed over, even if they are not
   used: the manager tells descriptors apart by their names alone. Returns the highest generation of
   a journal. */
static uint64_t skip_used_names(struct gb_state *state)
{
    struct gb_notify *notify = state->notify;
    struct gb_store *store = state->registry->store;
    uint64_t generation = 0, number;
    char name[24], *end;

    for (unsigned i = 0; i < notify->fd_count; i++) {
        if (is_journal(notify, i)) {
            number = strtoull(notify->fds[i].name + strlen(JOURNAL_PREFIX), NULL, 10);
            if (number > generation && number < GB_LIMIT(integer))
                generation = number;
        }
        if (notify->fds[i].fd < 0 || *notify->fds[i].name != 's')
            continue;
        number = strtoull(notify->fds[i].name + 1, &end, 36);
        if (*end || number == 0 || number >= GB_LIMIT(integer))
            continue;
        gb_state_segment_fd_name(number, name);
        if (strcmp(name, notify->fds[i].name) == 0 && number >= store->next_segment)
            store->next_segment = number + 1;
    }
    return generation;
}

static void store_tier_fd(struct gb_state *state, bool handed_over)
{
    const struct gb_tier *tier = &state->spill->tiers[GB_TIER_HOST];

    if (tier->pinned && !handed_over)
        store_fd(state, GB_STATE_TIER_NAME, gb_pinned_fd(tier->pinned));
}

/* Files of tiers are this daemon's from now on, to remove when it ends. */
static void own_tier_files(struct gb_state *state)
{
    for (int i = 0; i < GB_TIERS; i++)
        state->spill->tiers[i].handed_over = false;
}

int gb_state_begin(struct gb_state *state, struct gb_notify *notify, struct gb_registry *registry,
                   struct gb_spill *spill, struct gb_device **devices, unsigned device_count,
                   uint64_t grace_ms, char instance[GB_JOURNAL_INSTANCE_BYTES + 1], uint64_t now_ms,
                   struct gb_error *error)
{
    struct gb_error why;
    int found, r;

    *state = (struct gb_state){.registry = registry,
                               .spill = spill,
                               .devices = devices,
                               .device_count = device_count,
                               .grace_ms = grace_ms,
                               .journal = GB_JOURNAL_NONE,
                               .next = GB_JOURNAL_NONE,
                               .instance = instance,
                               .next_number = 1};
    registry->now_ms = now_ms; /* records need it, and there was no turn yet */
    gb_writer_init(&state->writer, GB_JOURNAL_RECORD_MAX);
    if (!notify || notify->socket < 0)
        return 0;
    state->notify = notify;
    registry->store->handed_over = true; /* until it is this daemon's */
    r = find_journal(notify, &found, error);
    if (r < 0)
        return r;
    state->generation = skip_used_names(state);
    if (found >= 0) {
        int fd = gb_notify_acquire_fd_at(notify, (unsigned)found);

        r = gb_state_restore(state, fd, now_ms, &why);
        if (r == 0) {
            own_tier_files(state);
            if (!state->failed) /* else changes made while restoring could not be recorded */
                memcpy(instance, state->journal.instance, GB_JOURNAL_INSTANCE_BYTES + 1);
            store_tier_fd(state, state->tier_restored);
            return 0;
        }
        if (state->journal.fd < 0 && !state->failed)
            close(fd);
        gb_journal_end(&state->journal);
        if (r != GPUBUF_E_INVALID) /* what is kept stays for the next daemon */
            return gb_fail(error, r, "objects of an earlier daemon: %s", why.message);
        log_unusable(&why);
        gb_state_unstore_fd(state, notify->fds[found].name);
    }
    own_tier_files(state);
    gb_notify_close_unused(notify); /* before new descriptors get the same names */
    store_tier_fd(state, false);
    begin_anew(state);
    continue_anew(state, UINT64_MAX);
    gb_state_record_changes(state);
    return 0;
}

int gb_state_remove_stale_files(struct gb_state *state, struct gb_error *error)
{
    struct gb_tier *disk = &state->spill->tiers[GB_TIER_DISK];
    uint64_t *kept = calloc(disk->copies + 1, sizeof(*kept));
    size_t count = 0;
    int r;

    if (!kept)
        return gb_fail_memory(error);
    gb_spill_dir_set_instance(disk->dir, state->instance);
    GB_LIST_EACH(&state->storages, struct gb_storage, storage, of_state)
        if (storage->copies[GB_TIER_DISK] && count < disk->copies)
            kept[count++] = gb_copy_where(storage->copies[GB_TIER_DISK]);
    r = gb_tier_clean(disk, kept, count, error);
    free(kept);
    if (gb_arena_block_empty(disk->block))
        gb_spill_pack_remove(disk->dir);
    return r;
}

/* ---- going on ---- */

int gb_state_keep_object(struct gb_state *state, struct gb_object *object, uint64_t now_ms)
{
    if (state->object_count == state->object_room) {
        size_t room = state->object_room ? state->object_room * 2 : 1024;
        struct gb_object **objects = realloc((void *)state->objects, room * sizeof(*objects));

        if (!objects)
            return GPUBUF_E_NO_MEMORY;
        state->objects = objects;
        state->object_room = room;
    }
    gb_object_keep(state->registry, object, now_ms);
    state->objects[state->object_count++] = object;
    return 0;
}

/* Ends the grace period's hold on at most `most` objects; true: none is left. */
static bool unkeep(struct gb_state *state, size_t most)
{
    for (; most > 0 && state->object_count > 0; most--)
        gb_object_unkeep(state->registry, state->objects[--state->object_count]);
    return state->object_count == 0;
}

static void end_grace(struct gb_state *state)
{
    GB_FAILPOINT(GRACE_BEGIN);
    for (unsigned i = 0; i < state->device_count; i++)
        gb_device_changed(state->devices[i]);
    state->grace_until = 0;
    for (size_t i = 0; i < state->withdrawn_count; i++)
        free(state->withdrawn[i]);
    free((void *)state->withdrawn);
    state->withdrawn = NULL;
    state->withdrawn_count = 0;
    (void)unkeep(state, SIZE_MAX);
    free((void *)state->objects);
    state->objects = NULL;
    state->object_room = 0;
    GB_FAILPOINT(GRACE_DONE);
}

/* Frees the records of withdrawn objects: a successor need not tell clients of them. */
static void record_withdrawn_freed(struct gb_state *state)
{
    uint64_t last = 0;

    for (size_t i = 0; i < state->withdrawn_count; i++) {
        uint64_t number = state->withdrawn[i]->number;

        if (number != last)
            gb_state_record_storage_freed(state, number);
        last = number;
    }
}

/* Sends the manager what it does not have yet, and logs when it is late, and when it is not any
   more. */
static void update_manager(struct gb_state *state)
{
    struct gb_notify *notify = state->notify;

    gb_notify_flush(notify);
    if (notify->late == state->late)
        return;
    state->late = notify->late;
    if (state->late)
        gb_log(GB_LOG_ERROR,
               "service manager does not respond: a crash would lose objects made meanwhile",
               GB_LOG_TEXT("why", strerror(notify->error)));
    else
        gb_log(GB_LOG_INFO, "service manager responds again");
}

/* Whether to write the journal anew now. Not while there are withdrawn objects, which a new one
   would not have. */
static bool is_anew_due(const struct gb_state *state, uint64_t now_ms)
{
    if (state->next.fd >= 0 || state->abandoned || state->withdrawn_count > 0)
        return false;
    return state->failed ? now_ms >= state->anew_at
                         : state->disbelieved || gb_journal_is_large(&state->journal);
}

bool gb_state_run_due(struct gb_state *state, uint64_t now_ms)
{
    bool over = state->grace_until && (now_ms >= state->grace_until || gb_failpoint_ends_grace());

    if (over && !unkeep(state, GRACE_OBJECTS)) /* the rest in further turns */
        over = false;
    if (over) {
        record_withdrawn_freed(state);
        end_grace(state);
    }
    if (!state->notify)
        return over;
    update_manager(state);
    if (is_anew_due(state, now_ms))
        begin_anew(state);
    else if (state->next.fd >= 0)
        continue_anew(state, gb_now_us() + SLICE_US);
    return over;
}

uint64_t gb_state_due(const struct gb_state *state)
{
    uint64_t at = state->grace_until ? state->grace_until : UINT64_MAX, due;

    if (state->next.fd >= 0 && !state->offered)
        return 0;
    due = state->notify ? gb_notify_due(state->notify) : UINT64_MAX;
    if (due < at)
        at = due;
    return state->failed && !state->abandoned && state->anew_at < at ? state->anew_at : at;
}

uint64_t gb_state_unsent_notice(const struct gb_state *state)
{
    return state->notify && state->notify->queue ? state->notify->queued : 0;
}

bool gb_state_has_sent(const struct gb_state *state, uint64_t notice)
{
    return state->late || gb_notify_has_sent(state->notify, notice);
}

struct gb_object *gb_state_find_nameless(const struct gb_state *state, const char *name,
                                         size_t length, uint64_t version)
{
    size_t low = 0, high = state->object_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        struct gb_object *object = state->objects[middle];

        if (object->version == version)
            return !object->named && object->name_length == length &&
                           memcmp(object->name, name, length) == 0
                       ? object
                       : NULL;
        if (object->version < version)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

const struct gb_withdrawn *gb_state_next_withdrawn(const struct gb_state *state, size_t *next)
{
    while (*next < state->withdrawn_count) {
        const struct gb_withdrawn *withdrawn = state->withdrawn[(*next)++];

        if (!gb_registry_find(state->registry, withdrawn->name, withdrawn->name_length))
            return withdrawn;
    }
    return NULL;
}

void gb_withdrawn_write(struct gb_writer *writer, const struct gb_withdrawn *withdrawn)
{
    gb_write_char(writer, '{');
    gb_write(writer, withdrawn->name + withdrawn->name_length, withdrawn->text_length);
    GB_WRITE_LITERAL(writer, ",\"state\":\"sealed\",\"tier\":\"device\",\"leases\":0,"
                             "\"pinned\":false,\"ttl_ms\":0}");
}

void gb_state_hand_over(struct gb_state *state)
{
    struct gb_store *store = state->registry->store;

    if (state->notify && !state->abandoned)
        (void)gb_notify_wait_sent(state->notify, HAND_OVER_MS);
    store->on_segment = NULL;
    store->on_storage = NULL;
    store->on_page = NULL;
    store->handed_over = state->notify && !state->failed;
    for (int i = 0; i < GB_TIERS; i++)
        state->spill->tiers[i].handed_over = store->handed_over;
}

bool gb_state_is_kept(const struct gb_state *state)
{
    return state->notify && !state->failed && !state->late;
}

const char *gb_state_handover_status(const struct gb_state *state)
{
    return gb_state_is_kept(state) ? "kept" : state->notify ? "lost" : "none";
}

void gb_state_end(struct gb_state *state)
{
    if (!state->registry) /* gb_state_begin() was never called */
        return;
    gb_state_hand_over(state);
    end_grace(state);
    drop_next(state);
    gb_journal_end(&state->journal);
    gb_writer_end(&state->writer);
    for (struct gb_away *away; (away = state->away); free(away))
        state->away = away->next;
}
