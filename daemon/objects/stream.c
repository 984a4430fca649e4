#include "daemon/objects/stream.h"

#include <assert.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Wakes readers, and no more than there are: whoever can read the word can have any number of
   threads sleep on it, and to wake them takes the loop's time. */
static void wake(const struct gb_stream *stream, _Atomic uint32_t *word)
{
    int readers = __builtin_popcountll(stream->roster->active);

    (void)syscall(SYS_futex, word, FUTEX_WAKE, readers, NULL, NULL, 0);
}

static struct gb_stream *new_stream(struct gb_object *object, struct gb_error *error)
{
    struct gb_stream *stream = calloc(1, sizeof(*stream));
    void *roster;
    int r = stream ? gb_page_memory(GB_STREAM_PAGE_BYTES, true, &roster, &stream->roster_fd, error)
                   : gb_fail_memory(error);

    if (r < 0) {
        free(stream);
        return NULL;
    }
    stream->roster = roster;
    stream->front_fd = -1;
    stream->charge.user = object->owner;
    return stream;
}

void gb_stream_free(struct gb_stream *stream)
{
    if (!stream)
        return;
    assert(!stream->writer && !stream->roster->active);
    gb_charge_end(&stream->charge);
    munmap(stream->roster, GB_STREAM_PAGE_BYTES);
    close(stream->roster_fd);
    if (stream->front) {
        munmap(stream->front, GB_STREAM_PAGE_BYTES);
        close(stream->front_fd);
    }
    free(stream);
}

/* Until somebody has written, a stream is there for its readers alone. */
static void end_unused(struct gb_object *object)
{
    struct gb_stream *stream = object->live.stream;

    if (stream->roster->writer || stream->roster->active)
        return;
    gb_stream_free(stream);
    object->live.stream = NULL;
}

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
                         unsigned hold, unsigned lag)
{
    struct gb_stream_roster *roster = stream->roster;

    lease->part->reader = reader;
    stream->readers[reader] = lease;
    roster->hold[reader] = (uint8_t)hold;
    roster->lag[reader] = (uint8_t)lag;
    roster->active |= UINT64_C(1) << reader;
    lease->part->since = ++roster->epoch;
}

/* The front of the former writer stays with those that have mapped it. */
static void begin_writer(struct gb_stream *stream, struct gb_lease *lease, int fd, void *front)
{
    if (stream->front) {
        munmap(stream->front, GB_STREAM_PAGE_BYTES);
        close(stream->front_fd);
    }
    gb_charge_set(&stream->charge, GB_STOCK_OPEN, 2);
    stream->front = front;
    stream->front_fd = fd;
    stream->writer = lease;
    lease->part->reader = -1;
    lease->part->since = ++stream->roster->writer;
    wake(stream, &stream->roster->writer);
}

/* Whether there are descriptors: for who joins, and for the owner, whose object keeps the roster
   and a front once somebody writes. */
static int may_open(const struct gb_lease *lease, struct gb_error *error)
{
    const struct gb_stream *stream = lease->object->live.stream;
    int r = gb_user_may_take(lease->holder->user, GB_STOCK_OPEN, 3, error);

    if (r == 0 && lease->write && !(stream && stream->front))
        r = gb_user_may_take(lease->object->owner, GB_STOCK_OPEN, 2, error);
    return r;
}

static int take_part(struct gb_lease *lease, unsigned slots, unsigned hold, unsigned lag,
                     struct gb_error *error)
{
    struct gb_stream *stream = lease->object->live.stream;
    void *front = NULL;
    int fd, r;

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
    r = gb_page_memory(GB_STREAM_PAGE_BYTES, false, lease->write ? &front : NULL, &fd, error);
    if (r < 0)
        return r;
    if (!(lease->part = calloc(1, sizeof(*lease->part)))) {
        if (front)
            munmap(front, GB_STREAM_PAGE_BYTES);
        close(fd);
        return gb_fail_memory(error);
    }
    lease->part->charge.user = lease->holder->user;
    lease->part->fd = fd;
    if (lease->write) {
        begin_writer(stream, lease, fd, front);
    } else {
        /* Before there is a writer, any reader may be the one for whom there is a roster. */
        gb_charge_set(&lease->part->charge, GB_STOCK_OPEN, stream->front ? 1 : 2);
        begin_reader(stream, lease, reader, hold, lag);
    }
    return 0;
}

int gb_stream_join(struct gb_lease *lease, unsigned slots, unsigned hold, unsigned lag,
                   struct gb_error *error)
{
    struct gb_object *object = lease->object;
    int r = may_open(lease, error);

    if (r < 0)
        return r;
    if (!object->live.stream && !(object->live.stream = new_stream(object, error)))
        return error->code;
    r = take_part(lease, slots, hold, lag, error);
    if (r < 0)
        end_unused(object);
    return r;
}

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
    const struct gb_stream *stream = lease->object->live.stream;
    const struct gb_part *part = lease->part;
    struct gb_stream_claim claim;
    int held = 0;

    if (!part)
        return;
    if (part->reader < 0) {
        gb_write_format(writer, ",\"stream\":{\"frames\":%" PRIu64 "}", frames_of(stream));
        return;
    }
    if (pread(part->fd, &claim, sizeof(claim), 0) != (ssize_t)sizeof(claim))
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

/* Consumers' streams of work may wait for frames whose producer will not get to them. They go on,
   and consumers find that the frame never was complete. */
static void end_waits(struct gb_stream_front *front)
{
    for (unsigned i = 0; i < GB_STREAM_SLOTS; i++) {
        uint32_t frame = (uint32_t)front->slots[i].frame; /* without GB_STREAM_OUT */

        if ((int32_t)(front->slots[i].ready - frame) < 0)
            front->slots[i].ready = frame + 1;
    }
}

void gb_stream_leave(struct gb_lease *lease)
{
    struct gb_stream *stream = lease->object->live.stream;
    struct gb_part *part = lease->part;

    if (!part)
        return;
    if (part->reader < 0) {
        stream->writer = NULL;
        stream->roster->over = part->since;
        end_waits(stream->front);
        stream->front->bell++;
        wake(stream, &stream->front->bell);
    } else {
        stream->readers[part->reader] = NULL;
        stream->roster->active &= ~(UINT64_C(1) << part->reader);
        close(part->fd);
    }
    gb_charge_end(&part->charge);
    free(part);
    lease->part = NULL;
    end_unused(lease->object);
}
