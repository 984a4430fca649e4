#include "client/lib/base/ring.h"

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPIN_LEAST_NS 1000
#define SPIN_MOST_NS 50000
/* Nobody sleeps for longer without looking: another reader can move sleepers to a futex of its own,
   or have its threads woken in their place, and a reader that died wakes nobody. */
#define READER_NAP_NS 100000000
#define WRITER_NAP_NS 5000000
/* For futex_waitv(2), which older headers do not have. */
#define FUTEX_WAITV 449 /* of all machines but alpha */
#define FUTEX_U32 2
#define TRIES 1000 /* times that the newest frame may be another one by the time it is claimed */

/* Tests kill a process, or let another one continue, at these points. */
#ifndef GB_RING_STEP
#define GB_RING_STEP() ((void)0)
#endif

struct waitv {
    uint64_t value, address;
    uint32_t flags, unused;
};

#define LOAD(word_) atomic_load_explicit(&(word_), memory_order_acquire)
#define LOOK(word_) atomic_load_explicit(&(word_), memory_order_relaxed)
#define STORE(word_, value_) atomic_store_explicit(&(word_), (value_), memory_order_release)
#define SET(word_, value_) atomic_store_explicit(&(word_), (value_), memory_order_relaxed)
#define FENCE() atomic_thread_fence(memory_order_seq_cst)

static uint64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* The word may be in memory that this process can only read. */
static void nap(const _Atomic uint32_t *word, uint32_t value, int64_t ns)
{
    const struct timespec time = {ns / 1000000000, ns % 1000000000};

    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &time, NULL, 0);
}

/* No more than may sleep there honestly: whoever can read the word can have any number of threads
   sleep on it, and to wake them costs the caller time. */
static bool wake(const _Atomic uint32_t *word, unsigned most)
{
    return syscall(SYS_futex, word, FUTEX_WAKE, most, NULL, NULL, 0) > 0;
}

static uint64_t bit(unsigned i)
{
    return UINT64_C(1) << i % 64;
}

/* ---- the writer ---- */

void gb_ring_write(struct gb_ring_writer *writer, struct gb_stream_front *front,
                   const struct gb_stream_roster *roster, unsigned slots, uint32_t number)
{
    memset(writer, 0, sizeof(*writer));
    writer->front = front;
    writer->roster = roster;
    writer->slots = slots;
    writer->head = (uint64_t)number << GB_STREAM_COUNT_BITS;
    writer->newest = writer->taken = writer->victim = -1;
}

/* Notes the slots that a reader holds: no more than it may, whatever it says. */
static void scan_held(struct gb_ring_writer *writer, unsigned reader)
{
    const struct gb_stream_claim *claim = writer->claims[reader];
    unsigned may = LOOK(writer->roster->hold[reader]);

    for (unsigned word = 0; word < GB_STREAM_WORDS; word++)
        for (uint64_t left = LOAD(claim->held[word]); left && may > 0; left &= left - 1) {
            unsigned slot = word * 64 + (unsigned)__builtin_ctzll(left);

            if (writer->on_gpu && writer->frames[slot] &&
                LOAD(claim->done[slot]) == (uint32_t)writer->frames[slot])
                continue;
            writer->busy[word] |= bit(slot);
            may--;
        }
}

/* Looks at all claims. Returns the oldest frame that is kept for readers of each frame, and notes
   which slots are held. */
static uint64_t scan_claims(struct gb_ring_writer *writer)
{
    uint64_t kept = UINT64_MAX, next = writer->head + 1;

    memset(writer->busy, 0, sizeof(writer->busy));
    for (uint64_t left = LOAD(writer->roster->active); left; left &= left - 1) {
        unsigned reader = (unsigned)__builtin_ctzll(left);

        if (!writer->claims[reader])
            continue;
        scan_held(writer, reader);
        uint64_t from = LOAD(writer->claims[reader]->from);
        uint64_t oldest = next - LOOK(writer->roster->lag[reader]);
        if (from && from < oldest)
            from = oldest;
        if (from && from < kept)
            kept = from;
    }
    return kept;
}

static bool is_busy(const struct gb_ring_writer *writer, unsigned slot)
{
    return writer->busy[slot / 64] & bit(slot);
}

/* Whether the writer's work on the frame in that slot, on a GPU, is under way. */
static bool works_on(const struct gb_ring_writer *writer, unsigned slot)
{
    return writer->on_gpu && writer->frames[slot] &&
           LOAD(writer->front->slots[slot].ready) != (uint32_t)writer->frames[slot];
}

bool gb_ring_works(const struct gb_ring_writer *writer)
{
    for (unsigned i = 0; i < writer->slots; i++)
        if (works_on(writer, i))
            return true;
    return false;
}

/* The slot with the oldest frame that is not held; -1: none. */
static int oldest_free(const struct gb_ring_writer *writer, uint64_t kept)
{
    int found = -1;

    for (int i = 0; i < (int)writer->slots; i++) {
        if (i == writer->newest || is_busy(writer, (unsigned)i) || writer->frames[i] >= kept ||
            works_on(writer, (unsigned)i))
            continue;
        if (found < 0 || writer->frames[i] < writer->frames[found])
            found = i;
    }
    return found;
}

int gb_ring_acquire_slot(struct gb_ring_writer *writer)
{
    struct gb_stream_slot *slots = writer->front->slots;

    if (writer->taken >= 0)
        return writer->taken;
    if (writer->victim < 0)
        writer->victim = oldest_free(writer, UINT64_MAX);
    for (unsigned tries = 0; tries < GB_STREAM_SLOTS + 2; tries++) {
        int victim = writer->victim;

        if (victim >= 0)
            SET(slots[victim].frame, writer->frames[victim] | GB_STREAM_OUT);
        GB_RING_STEP();
        FENCE(); /* before: the frame is out; after: who claims it? */
        GB_RING_STEP();
        if (LOAD(writer->roster->epoch) != writer->epoch)
            return GB_RING_PAGES;
        uint64_t kept = scan_claims(writer);
        GB_RING_STEP();
        if (victim >= 0 && !is_busy(writer, (unsigned)victim) && writer->frames[victim] < kept) {
            writer->taken = victim;
            writer->victim = -1;
            writer->frames[victim] = 0;
            return victim;
        }
        if (victim >= 0)
            STORE(slots[victim].frame, writer->frames[victim]); /* it never was away */
        writer->victim = oldest_free(writer, kept);
        if (writer->victim < 0)
            return GB_RING_NONE;
        GB_RING_STEP();
    }
    return GB_RING_NONE;
}

/* Wakes each reader that sleeps by its own page, where no other reader's threads can sleep, or else
   by the bell. */
static void wake_readers(const struct gb_ring_writer *writer)
{
    bool joined = LOAD(writer->roster->epoch) != writer->epoch; /* some whose pages are not there */
    unsigned on_bell = 0;

    for (uint64_t left = LOAD(writer->roster->active); left; left &= left - 1) {
        const struct gb_stream_claim *claim = writer->claims[__builtin_ctzll(left)];

        if (joined || (claim && LOOK(claim->asleep)))
            on_bell += !claim || !wake(&claim->asleep, 1);
    }
    if (on_bell > 0)
        wake(&writer->front->bell, on_bell);
}

uint64_t gb_ring_publish(struct gb_ring_writer *writer, uint64_t bytes, uint64_t time_ns)
{
    struct gb_stream_front *front = writer->front;
    unsigned slot = (unsigned)writer->taken;
    uint64_t frame = ++writer->head, both = frame << GB_STREAM_SLOT_BITS | slot;

    SET(front->slots[slot].bytes, bytes);
    SET(front->slots[slot].time_ns, time_ns);
    GB_RING_STEP();
    STORE(front->slots[slot].frame, frame); /* after its content */
    GB_RING_STEP();
    STORE(front->at[frame % GB_STREAM_SLOTS], both);
    GB_RING_STEP();
    STORE(front->head, both); /* after its slot and its place */
    GB_RING_STEP();
    STORE(front->bell, (uint32_t)frame);
    writer->frames[slot] = frame;
    writer->newest = (int)slot;
    writer->taken = -1;
    FENCE(); /* before: the bell; after: who sleeps? */
    GB_RING_STEP();
    wake_readers(writer);
    return frame;
}

/* Whether it is, where it wants that frame and later ones. */
static bool is_late(const struct gb_ring_writer *writer, unsigned reader, uint64_t from)
{
    uint64_t next = writer->head + 1;
    uint64_t first = (next >> GB_STREAM_COUNT_BITS << GB_STREAM_COUNT_BITS) + 1;
    uint64_t wants = from < first ? first : from;

    return LOOK(writer->claims[reader]->waits) && from && wants < next &&
           next - wants >= LOOK(writer->roster->lag[reader]) && from != writer->late[reader];
}

int gb_ring_late(const struct gb_ring_writer *writer)
{
    for (uint64_t left = LOAD(writer->roster->active); left; left &= left - 1) {
        unsigned reader = (unsigned)__builtin_ctzll(left);

        if (writer->claims[reader] && is_late(writer, reader, LOAD(writer->claims[reader]->from)))
            return (int)reader;
    }
    return -1;
}

void gb_ring_pass_late(struct gb_ring_writer *writer)
{
    for (uint64_t left = LOAD(writer->roster->active); left; left &= left - 1) {
        unsigned reader = (unsigned)__builtin_ctzll(left);
        uint64_t from = writer->claims[reader] ? LOAD(writer->claims[reader]->from) : 0;

        if (from && is_late(writer, reader, from))
            writer->late[reader] = from;
    }
}

void gb_ring_wait_late(struct gb_ring_writer *writer, int64_t timeout_ns)
{
    uint64_t end = now_ns() + (uint64_t)timeout_ns, now;
    int reader;

    while ((reader = gb_ring_late(writer)) >= 0 && (now = now_ns()) < end) {
        const struct gb_stream_claim *claim = writer->claims[reader];
        uint32_t moved = LOAD(claim->moved);

        SET(writer->front->asleep, 1);
        FENCE(); /* before: it sleeps; after: has the reader moved? */
        if (gb_ring_late(writer) == reader)
            nap(&claim->moved, moved,
                end - now < WRITER_NAP_NS ? (int64_t)(end - now) : WRITER_NAP_NS);
        SET(writer->front->asleep, 0);
    }
}

/* ---- a reader ---- */

void gb_ring_join(struct gb_ring_reader *reader, struct gb_stream_claim *claim,
                  const struct gb_stream_roster *roster, unsigned slots, unsigned hold, bool each,
                  unsigned run)
{
    memset(reader, 0, sizeof(*reader));
    reader->claim = claim;
    reader->roster = roster;
    reader->slots = slots;
    reader->hold = hold;
    reader->each = each;
    reader->spin_ns = SPIN_MOST_NS / 2;
    reader->run = run;
    SET(claim->waits, run > 0);
    if (each)
        STORE(claim->from, 1); /* the first frame of whoever writes */
}

void gb_ring_follow(struct gb_ring_reader *reader, const struct gb_stream_front *front,
                    uint32_t writer)
{
    uint64_t first = ((uint64_t)writer << GB_STREAM_COUNT_BITS) + 1;
    uint64_t head = LOAD(front->head) >> GB_STREAM_SLOT_BITS;

    reader->front = front;
    reader->writer = writer;
    /* Of a writer that was there before it the reader wants the newest frame; of one that came
       later each. */
    if (reader->last == 0 && head > first)
        first = head;
    reader->last = first - 1;
    if (reader->each)
        STORE(reader->claim->from, first);
}

/* Lets the writer know that the reader has moved, if it waits for that. Not at each frame: to wake
   one another for one frame costs both more than the frame. */
static void tell_moved(struct gb_ring_reader *reader)
{
    struct gb_stream_claim *claim = reader->claim;

    if (reader->run == 0 || (reader->last - reader->reported < reader->run &&
                             LOOK(reader->front->head) >> GB_STREAM_SLOT_BITS != reader->last))
        return;
    reader->reported = reader->last;
    STORE(claim->moved, LOOK(claim->moved) + 1);
    FENCE(); /* before: it has moved; after: does the writer sleep? */
    if (LOOK(reader->front->asleep))
        wake(&claim->moved, 1);
}

/* Claims the slot, if that frame is in it. */
static bool claim_slot(struct gb_ring_reader *reader, uint64_t frame, unsigned slot)
{
    if (slot >= reader->slots)
        return false; /* a writer that lies */
    _Atomic uint64_t *word = &reader->claim->held[slot / 64];
    uint64_t held = LOOK(*word);
    if (held & bit(slot))
        return false; /* likewise */
    SET(*word, held | bit(slot));
    GB_RING_STEP();
    FENCE(); /* before: it is claimed; after: is the frame still there? */
    GB_RING_STEP();
    if (LOAD(reader->front->slots[slot].frame) == frame &&
        LOAD(reader->roster->writer) == reader->writer)
        return true;
    GB_RING_STEP();
    STORE(*word, held);
    return false;
}

static void describe(struct gb_ring_reader *reader, uint64_t number, unsigned slot,
                     struct gb_ring_frame *frame)
{
    const struct gb_stream_slot *from = &reader->front->slots[slot];
    struct gb_stream_claim *claim = reader->claim;

    frame->number = number;
    frame->slot = slot;
    frame->bytes = LOOK(from->bytes);
    frame->time_ns = LOOK(from->time_ns);
    frame->missed = number - reader->last - 1;
    reader->last = number;
    GB_RING_STEP();
    if (reader->each)
        STORE(claim->from, number + 1); /* after the claim of its slot */
    GB_RING_STEP();
    SET(claim->frames, LOOK(claim->frames) + 1);
    SET(claim->missed, LOOK(claim->missed) + frame->missed);
    tell_moved(reader);
}

static unsigned count_held(const struct gb_stream_claim *claim)
{
    unsigned count = 0;

    for (unsigned word = 0; word < GB_STREAM_WORDS; word++)
        count += (unsigned)__builtin_popcountll(LOOK(claim->held[word]));
    return count;
}

/* Says why there is no frame. A writer's last frames are read before its end is reported. */
static int none(const struct gb_ring_reader *reader, uint64_t head)
{
    uint32_t writer = LOAD(reader->roster->writer);

    if (!reader->front || writer != reader->writer)
        return writer && LOAD(reader->roster->over) != writer ? GB_RING_PAGES : GB_RING_NONE;
    if (LOAD(reader->roster->over) != writer || LOAD(reader->front->head) != head)
        return GB_RING_NONE;
    return GB_RING_OVER;
}

/* Says why the newest frame cannot be claimed, which no writer takes out of its slot. */
static int unreadable(const struct gb_ring_reader *reader)
{
    int why = none(reader, LOAD(reader->front->head));

    return why == GB_RING_NONE ? GB_RING_LIES : why;
}

int gb_ring_read(struct gb_ring_reader *reader, struct gb_ring_frame *frame)
{
    if (!reader->front)
        return none(reader, 0);
    if (count_held(reader->claim) >= reader->hold)
        return GB_RING_FULL;
    for (unsigned tries = 0; tries < TRIES; tries++) {
        uint64_t both = LOAD(reader->front->head), newest = both >> GB_STREAM_SLOT_BITS;
        uint64_t next = reader->each ? reader->last + 1 : newest;

        if (newest <= reader->last || LOAD(reader->roster->writer) != reader->writer)
            return none(reader, both);
        /* Older frames have no place any more. */
        if (newest - next >= GB_STREAM_SLOTS)
            next = newest - GB_STREAM_SLOTS + 1;
        for (;; next++) {
            if (next != newest)
                both = LOAD(reader->front->at[next % GB_STREAM_SLOTS]);
            else
                both = LOAD(reader->front->head);
            unsigned slot = (unsigned)(both % (1u << GB_STREAM_SLOT_BITS));
            if (both >> GB_STREAM_SLOT_BITS == next && claim_slot(reader, next, slot)) {
                describe(reader, next, slot, frame);
                return 0;
            }
            if (next == newest)
                break; /* it is not the newest any more */
        }
        if (LOAD(reader->front->head) >> GB_STREAM_SLOT_BITS == newest)
            return unreadable(reader);
    }
    return GB_RING_NONE;
}

int gb_ring_ready(const struct gb_ring_reader *reader, unsigned slot, uint64_t number)
{
    const struct gb_stream_slot *in = &reader->front->slots[slot];
    uint32_t ready = LOAD(in->ready);

    if (ready == (uint32_t)number)
        return 0;
    if ((int32_t)(ready - (uint32_t)number) < 0)
        return GB_RING_NONE;
    /* If the slot has a later frame, or was to have one, this one was complete. */
    return LOAD(in->frame) == number ? GB_RING_OVER : 0;
}

void gb_ring_done(struct gb_ring_reader *reader, unsigned slot)
{
    _Atomic uint64_t *word = &reader->claim->held[slot / 64];

    STORE(*word, LOOK(*word) & ~bit(slot)); /* after its content was read */
    GB_RING_STEP();
}

/* Whether there may be something new. */
static bool is_news(const struct gb_ring_reader *reader, uint32_t bell)
{
    uint32_t writer = LOAD(reader->roster->writer);

    return writer != reader->writer || LOAD(reader->roster->over) == writer ||
           LOAD(reader->front->bell) != bell;
}

/* Looks for at most that long. Returns whether there is news. */
static bool spin_for_news(const struct gb_ring_reader *reader, uint32_t bell, uint64_t begin,
                          uint64_t most)
{
    for (unsigned looks = 1;; looks++) {
        if (is_news(reader, bell))
            return true;
        pause_briefly();
        if (looks % 32 == 0 && now_ns() - begin >= most)
            return false;
    }
}

/* Sleeps where the writer wakes this reader alone, unless the bell has rung. The kernel compares
   the bell last, so that no ring is missed. Before Linux 5.16 it sleeps on the bell alone. */
static void nap_on_bell(const struct gb_ring_reader *reader, uint32_t bell, int64_t ns)
{
    const struct waitv words[] = {{1, (uintptr_t)&reader->claim->asleep, FUTEX_U32, 0},
                                  {bell, (uintptr_t)&reader->front->bell, FUTEX_U32, 0}};
    uint64_t until = now_ns() + (uint64_t)ns;
    const struct timespec time = {(time_t)(until / 1000000000), (long)(until % 1000000000)};

    if (syscall(FUTEX_WAITV, words, 2, 0, &time, CLOCK_MONOTONIC) < 0 &&
        (errno == ENOSYS || errno == EPERM))
        nap(&reader->front->bell, bell, ns);
}

static void sleep_on_bell(struct gb_ring_reader *reader, uint32_t bell, int64_t ns)
{
    struct gb_stream_claim *claim = reader->claim;

    SET(claim->asleep, 1);
    FENCE(); /* before: it sleeps; after: has the bell rung? */
    GB_RING_STEP();
    if (!is_news(reader, bell))
        nap_on_bell(reader, bell, ns < READER_NAP_NS ? ns : READER_NAP_NS);
    SET(claim->asleep, 0);
}

bool gb_ring_wait(struct gb_ring_reader *reader, int64_t timeout_ns)
{
    uint64_t begin = now_ns(), most = (uint64_t)timeout_ns;

    uint32_t over = LOAD(reader->roster->over), last = LOAD(reader->roster->writer);
    if (!reader->front || (over == last && last == reader->writer)) {
        if (over == last)
            nap(&reader->roster->writer, last,
                timeout_ns < READER_NAP_NS ? timeout_ns : READER_NAP_NS);
        /* The writer may have ended since gb_ring_read() looked. */
        return reader->front || over != last || LOAD(reader->roster->writer) != last;
    }
    uint32_t bell = LOAD(reader->front->bell);
    if (LOAD(reader->front->head) >> GB_STREAM_SLOT_BITS > reader->last)
        return true; /* it came in between */
    if (!spin_for_news(reader, bell, begin, most < reader->spin_ns ? most : reader->spin_ns) &&
        most > reader->spin_ns)
        sleep_on_bell(reader, bell, timeout_ns - (int64_t)reader->spin_ns);
    /* It looks longer where that would have spared it the sleep. */
    bool soon = now_ns() - begin < SPIN_MOST_NS;
    uint64_t spin_ns = soon ? reader->spin_ns * 2 : reader->spin_ns / 2;
    reader->spin_ns = spin_ns > SPIN_MOST_NS    ? SPIN_MOST_NS
                      : spin_ns < SPIN_LEAST_NS ? SPIN_LEAST_NS
                                                : spin_ns;
    return is_news(reader, bell);
}
