#include "daemon/objects/stream.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Wakes readers, and no more than there are: whoever can read the word can have any number of
   threads sleep on it, and to wake them takes the loop's time. */
static void wake(const struct gb_stream *stream, _Atomic uint32_t *word)
{
    int readers = __builtin_popcountll(stream->roster->active);

    (void)syscall(SYS_futex, word, FUTEX_WAKE, readers, NULL, NULL, 0);
}

static struct gb_store *store_of(const struct gb_object *object)
{
    return object->storage->store;
}

/* ---- pages ---- */

/* `memory` NULL: it is not mapped. */
static int make_page(struct gb_store *store, void **memory, struct gb_stream_page *page,
                     struct gb_error *error)
{
    int r = gb_page_memory(GB_STREAM_PAGE_BYTES, false, memory, &page->fd, error);

    if (r < 0)
        return r;
    page->id = store->next_segment++;
    if (store->on_page)
        store->on_page(store->on_change_arg, page->id, page->fd);
    return 0;
}

/* After the record that does not have it any more. */
static void end_page(struct gb_store *store, void *memory, const struct gb_stream_page *page)
{
    if (memory)
        munmap(memory, GB_STREAM_PAGE_BYTES);
    if (page->id && store->on_page)
        store->on_page(store->on_change_arg, page->id, -1);
    if (page->id && page->fd >= 0)
        close(page->fd);
}

static void charge_pages(struct gb_charge *charge, uint64_t count)
{
    gb_charge_set(charge, GB_STOCK_OPEN, count);
    gb_charge_set(charge, GB_STOCK_KEPT, count);
}

static struct gb_stream *new_stream(struct gb_object *object, struct gb_error *error)
{
    struct gb_stream *stream = calloc(1, sizeof(*stream));
    void *roster;
    int r = stream ? make_page(store_of(object), &roster, &stream->roster_page, error)
                   : gb_fail_memory(error);

    if (r < 0) {
        free(stream);
        return NULL;
    }
    stream->roster = roster;
    stream->charge.user = object->owner;
    return stream;
}

void gb_stream_free(struct gb_store *store, struct gb_stream *stream)
{
    if (!stream)
        return;
    assert(!stream->writer);
    gb_charge_end(&stream->charge);
    end_page(store, stream->roster, &stream->roster_page);
    end_page(store, stream->front, &stream->front_page);
    free(stream);
}

unsigned gb_stream_readers(const struct gb_stream *stream)
{
    unsigned count = 0;

    for (unsigned i = 0; stream && i < GB_STREAM_READERS; i++)
        count += stream->readers[i] != NULL;
    return count;
}

/* Until the first writer joins, the stream exists for its readers alone. */
static void end_unused(struct gb_object *object)
{
    struct gb_stream *stream = object->live->stream;

    if (stream->front || stream->torn || gb_stream_readers(stream) > 0)
        return;
    object->live->stream = NULL;
    gb_storage_changed(object->storage);
    gb_stream_free(store_of(object), stream);
}

/* ---- joining ---- */

/* The number that a reader gets. One slot is written, the newest frames are kept for the reader
   that may lag most, and readers hold slots. */
static int find_reader(const struct gb_stream *stream, unsigned slots, unsigned hold, unsigned lag,
                       struct gb_error *error)
{
    unsigned held = hold, kept = lag > 0 ? lag : 1;
    int found = -1;

    for (int i = GB_STREAM_READERS - 1; i >= 0; i--) {
        if (!stream->readers[i]) {
            found = i;
            continue;
        }
        held += stream->roster->hold[i];
        if (stream->roster->lag[i] > kept)
            kept = stream->roster->lag[i];
    }
    if (found < 0)
        return gb_fail_limit(error, "stream_readers", GB_LIMIT(stream_readers),
                             "readers that take part in a stream");
    if (1 + kept + held > slots)
        return gb_fail(error, GPUBUF_E_BUSY,
                       "the stream has %u slots; with this reader 1 is written, the %u newest "
                       "frames are kept, and readers hold %u: create it with more slots",
                       slots, kept, held);
    return found;
}

static void begin_reader(struct gb_stream *stream, struct gb_lease *lease, int reader,
                         const struct gb_stream_page *page)
{
    /* Before there is a writer, any reader may be the one for whom there is a roster. */
    charge_pages(&lease->part->charge, stream->front ? 1 : 2);
    lease->part->reader = reader;
    lease->part->page = *page;
    stream->readers[reader] = lease;
}

/* The front of the former writer stays with those that have mapped it. Readers find the new one
   when its record is there: so a successor has it, too. */
static void begin_writer(struct gb_stream *stream, struct gb_lease *lease, void *front,
                         const struct gb_stream_page *page)
{
    struct gb_stream_page former = stream->front_page;
    void *former_front = stream->front;

    charge_pages(&stream->charge, 2);
    stream->front = front;
    stream->front_page = *page;
    stream->writer = lease;
    lease->part->reader = -1;
    lease->part->join_number = stream->roster->writer + 1;
    gb_storage_changed(lease->object->storage);
    end_page(store_of(lease->object), former_front, &former);
    stream->roster->writer = lease->part->join_number;
    wake(stream, &stream->roster->writer);
}

/* Whether there are descriptors: for the one that joins, with its answer, so that this does not
   fail afterwards; and for the owner, whose object keeps the roster and a front once somebody
   writes. */
static int may_open(const struct gb_lease *lease, struct gb_error *error)
{
    const struct gb_stream *stream = lease->object->live->stream;
    const struct gb_user *user = lease->holder->user, *owner = lease->object->owner;
    unsigned others = lease->write ? gb_stream_readers(stream) : 1;
    bool begins = lease->write && !(stream && stream->front);
    unsigned kept = begins && user == owner ? 2 : 0;
    int r;

    if (others > GB_STREAM_PAGES_AT_ONCE)
        others = GB_STREAM_PAGES_AT_ONCE;
    r = gb_user_may_charge(user, GB_STOCK_OPEN, 4 + others + kept, error);
    if (r < 0 || (lease->write && !begins))
        return r;
    if (begins)
        r = gb_user_may_charge(owner, GB_STOCK_OPEN, 2, error);
    return r < 0 ? r : gb_user_may_charge(lease->write ? owner : user, GB_STOCK_KEPT, 2, error);
}

static struct gb_part *new_part(struct gb_lease *lease)
{
    lease->part = calloc(1, sizeof(*lease->part));
    if (lease->part)
        lease->part->charge.user = lease->holder->user;
    return lease->part;
}

static int take_part(struct gb_lease *lease, unsigned slots, unsigned hold, unsigned lag,
                     struct gb_error *error)
{
    struct gb_stream *stream = lease->object->live->stream;
    struct gb_stream_page page;
    void *front = NULL;
    int r;

    if (stream->torn)
        return gb_fail(error, GPUBUF_E_STALE,
                       "pages of the stream were not handed over when the daemon was started "
                       "anew, so that nobody knows what its readers hold: delete it, and create "
                       "it anew");
    if (lease->write && stream->writer)
        return gb_fail(error, GPUBUF_E_BUSY, "pid %d writes the stream",
                       (int)stream->writer->holder->pid);
    if (lease->write && stream->roster->writer + 1 == GB_STREAM_WRITERS)
        return gb_fail(error, GPUBUF_E_BUSY, "the stream has had %u writers: create it anew",
                       stream->roster->writer);
    r = lease->write ? 0 : find_reader(stream, slots, hold, lag, error);
    if (r < 0)
        return r;
    int reader = r;
    if (!new_part(lease))
        return gb_fail_memory(error);
    r = make_page(store_of(lease->object), lease->write ? &front : NULL, &page, error);
    if (r < 0) {
        free(lease->part);
        lease->part = NULL;
        return r;
    }
    if (lease->write) {
        begin_writer(stream, lease, front, &page);
        return 0;
    }
    begin_reader(stream, lease, reader, &page);
    stream->roster->hold[reader] = (uint8_t)hold;
    stream->roster->lag[reader] = (uint8_t)lag;
    stream->roster->active |= UINT64_C(1) << reader;
    lease->part->join_number = ++stream->roster->epoch; /* the writer asks for the reader's page */
    gb_storage_changed(lease->object->storage);
    return 0;
}

int gb_stream_join(struct gb_lease *lease, unsigned slots, unsigned hold, unsigned lag,
                   struct gb_error *error)
{
    struct gb_object *object = lease->object;
    int r = may_open(lease, error);

    if (r < 0)
        return r;
    if (!object->live->stream && !(object->live->stream = new_stream(object, error)))
        return error->code;
    r = take_part(lease, slots, hold, lag, error);
    if (r < 0)
        end_unused(object);
    return r;
}

/* ---- figures for lists and statistics ---- */

/* How many frames the last writer has published. */
static uint64_t frames_of(const struct gb_stream *stream)
{
    uint64_t head = stream->front ? stream->front->head >> GB_STREAM_SLOT_BITS : 0;

    return head & ((UINT64_C(1) << GB_STREAM_COUNT_BITS) - 1);
}

void gb_stream_write(struct gb_writer *writer, const struct gb_stream *stream)
{
    if (!stream)
        return;
    gb_write_format(writer, ",\"stream\":{\"readers\":%d,\"frames\":%" PRIu64,
                    __builtin_popcountll(stream->roster->active), frames_of(stream));
    if (stream->writer)
        gb_write_format(writer, ",\"writer\":%d", (int)stream->writer->holder->pid);
    gb_write_char(writer, '}');
}

void gb_stream_write_part(struct gb_writer *writer, const struct gb_lease *lease)
{
    const struct gb_part *part = lease->part;
    const struct gb_stream *stream;
    struct gb_stream_claim claim;
    int held = 0;

    if (!part)
        return;
    stream = lease->object->live->stream;
    if (part->reader < 0) {
        gb_write_format(writer, ",\"stream\":{\"frames\":%" PRIu64 "}", frames_of(stream));
        return;
    }
    if (pread(part->page.fd, &claim, sizeof(claim), 0) != (ssize_t)sizeof(claim))
        return;
    for (unsigned i = 0; i < GB_STREAM_WORDS; i++)
        held += __builtin_popcountll(claim.held[i]);
    uint64_t next = (stream->front ? stream->front->head >> GB_STREAM_SLOT_BITS : 0) + 1;
    gb_write_format(
        writer,
        ",\"stream\":{\"reader\":%d,\"hold\":%u,\"lag\":%u,\"held\":%d,\"frames\":%" PRIu64
        ",\"missed\":%" PRIu64,
        part->reader, stream->roster->hold[part->reader], stream->roster->lag[part->reader], held,
        claim.frames & GB_LIMIT(integer), claim.missed & GB_LIMIT(integer));
    /* Only a reader of each frame says which it wants next; and of this writer. */
    if (claim.from >> GB_STREAM_COUNT_BITS == next >> GB_STREAM_COUNT_BITS && claim.from <= next)
        gb_write_format(writer, ",\"behind\":%" PRIu64, next - claim.from);
    gb_write_char(writer, '}');
}

/* Consumers' streams of work may wait for frames whose producer will not get to them. They
   continue, and consumers find that the frame never was complete. */
static void end_waits(struct gb_stream_front *front)
{
    for (unsigned i = 0; i < GB_STREAM_SLOTS; i++) {
        uint32_t frame = (uint32_t)front->slots[i].frame; /* without GB_STREAM_OUT */

        if ((int32_t)(front->slots[i].ready - frame) < 0)
            front->slots[i].ready = frame + 1;
    }
}

static void end_writer(struct gb_stream *stream)
{
    stream->roster->over = stream->roster->writer;
    end_waits(stream->front);
    stream->front->bell++;
    wake(stream, &stream->front->bell);
}

void gb_stream_leave(struct gb_lease *lease)
{
    struct gb_store *store = store_of(lease->object);
    struct gb_part *part = lease->part;
    struct gb_stream *stream;

    if (!part)
        return;
    stream = lease->object->live->stream;
    lease->part = NULL;
    if (part->reader < 0)
        stream->writer = NULL;
    else
        stream->readers[part->reader] = NULL;
    if (!store->handed_over && part->reader < 0)
        end_writer(stream);
    else if (!store->handed_over)
        stream->roster->active &= ~(UINT64_C(1) << part->reader);
    gb_storage_changed(lease->object->storage);
    end_page(store, NULL, &part->page);
    gb_charge_end(&part->charge);
    free(part);
    end_unused(lease->object);
}

/* ---- after a daemon's end ---- */

/* Whether it was handed over: memory of that size that cannot shrink. */
static bool is_page(const struct gb_stream_page *page)
{
    struct stat status;
    int seals = page->fd < 0 ? -1 : fcntl(page->fd, F_GET_SEALS);

    return seals >= 0 && (seals & F_SEAL_SHRINK) && fstat(page->fd, &status) == 0 &&
           status.st_size == (off_t)GB_STREAM_PAGE_BYTES;
}

/* One that was not is memory that nobody else sees. NULL: memory is out. */
static void *map_page(const struct gb_stream_page *page)
{
    bool there = is_page(page);
    void *memory = mmap(NULL, GB_STREAM_PAGE_BYTES, PROT_READ | PROT_WRITE,
                        there ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, there ? page->fd : -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

int gb_stream_restore(struct gb_object *object, const struct gb_stream_page *roster,
                      const struct gb_stream_page *front, bool torn)
{
    struct gb_stream *stream = calloc(1, sizeof(*stream));

    if (!stream)
        return GPUBUF_E_NO_MEMORY;
    object->live->stream = stream;
    stream->roster_page = *roster;
    stream->front_page = *front;
    stream->charge.user = object->owner;
    stream->torn = torn || !is_page(roster) || (front->id && !is_page(front));
    stream->roster = map_page(roster);
    if (!stream->roster || (front->id && !(stream->front = map_page(front))))
        return GPUBUF_E_NO_MEMORY;
    if (front->id)
        charge_pages(&stream->charge, 2);
    return 0;
}

int gb_stream_restore_part(struct gb_lease *lease, const struct gb_live_lease *former, int fd)
{
    const struct gb_stream_page page = {former->page, fd};
    struct gb_stream *stream = lease->object->live->stream;
    int reader = (int)former->reader;

    if (!former->joined)
        return 0;
    stream->torn = !former->write && fd < 0;
    if (stream->torn ||
        (former->write ? stream->writer || !stream->front : stream->readers[reader] != NULL)) {
        end_page(store_of(lease->object), NULL, &page);
        return 0;
    }
    if (!new_part(lease)) {
        end_page(store_of(lease->object), NULL, &page);
        return GPUBUF_E_NO_MEMORY;
    }
    lease->part->join_number = former->join_number;
    if (former->write) {
        lease->part->reader = -1;
        stream->writer = lease;
    } else {
        begin_reader(stream, lease, reader, &page);
    }
    return 0;
}

void gb_stream_restored(struct gb_object *object)
{
    struct gb_stream *stream = object->live ? object->live->stream : NULL;
    uint64_t active = 0;

    if (!stream || stream->torn)
        return;
    for (unsigned i = 0; i < GB_STREAM_READERS; i++)
        active |= (uint64_t)(stream->readers[i] != NULL) << i;
    /* At once, since a writer that survived reads it. */
    stream->roster->active = active;
    if (stream->front && !stream->writer) {
        end_writer(stream);
    } else if (stream->writer) { /* the daemon may have ended after its record, before this */
        stream->roster->writer = stream->writer->part->join_number;
        wake(stream, &stream->roster->writer);
    }
    end_unused(object);
}
