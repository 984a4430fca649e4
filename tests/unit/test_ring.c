/*
 * The frames of a stream, without a daemon: this test is the daemon. Processes write and read, and
 * are killed at each of their steps; whoever is left finds whole frames, in order, and none is
 * lost to a reader that is waited for.
 */
#include "tests/cases.h"

static int steps_left; /* until this process is killed; 0: it is not */
static void step(void)
{
    if (steps_left > 0 && --steps_left == 0)
        (void)raise(SIGKILL);
}
#define GB_RING_STEP() step()
#include "client/lib/base/ring.c"

#define WORDS 64
#define FOR_EVER INT64_MAX

struct world {
    _Alignas(4096) struct gb_stream_roster roster;
    _Alignas(4096) struct gb_stream_front front;
    _Alignas(4096) struct gb_stream_claim claims[GB_STREAM_READERS];
    _Alignas(4096) _Atomic uint64_t content[GB_STREAM_SLOTS][WORDS];
    _Atomic bool dispersed;   /* a crowd sleeps no more */
    _Atomic uint64_t enough;  /* readers that have what they want */
    _Atomic uint64_t torn;    /* frames that were found with another's content */
    _Atomic uint64_t missing; /* frames that a reader that is waited for did not get */
};

static struct world *world;

static void begin(void)
{
    world = mmap(NULL, sizeof(*world), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(world, MAP_FAILED);
}

static void end(void)
{
    munmap(world, sizeof(*world));
}

static int set_up(void **state)
{
    begin();
    return 0;
}

static int tear_down(void **state)
{
    end();
    return 0;
}

/* The daemon's part. */

static uint32_t writer_joins(void)
{
    world->roster.writer++;
    return world->roster.writer;
}

static void writer_ends(void)
{
    world->roster.over = world->roster.writer;
    world->front.bell++;
    wake(&world->front.bell, GB_STREAM_READERS);
}

static void reader_joins(unsigned reader, unsigned hold, unsigned lag)
{
    memset(&world->claims[reader], 0, sizeof(world->claims[reader]));
    world->roster.hold[reader] = (uint8_t)hold;
    world->roster.lag[reader] = (uint8_t)lag;
    world->roster.active |= bit(reader);
    world->roster.epoch++;
}

static void reader_ends(unsigned reader)
{
    world->roster.active &= ~bit(reader);
}

/* The part of the libraries. */

static void join_writer(struct gb_ring_writer *writer, unsigned slots)
{
    gb_ring_write(writer, &world->front, &world->roster, slots, writer_joins());
    for (unsigned i = 0; i < GB_STREAM_READERS; i++)
        writer->claims[i] = &world->claims[i];
    writer->epoch = world->roster.epoch;
}

static void join_reader(struct gb_ring_reader *reader, unsigned i, unsigned slots, bool each,
                        bool waits)
{
    gb_ring_join(reader, &world->claims[i], &world->roster, slots, world->roster.hold[i], each,
                 waits ? 2 : 0);
    if (world->roster.writer)
        gb_ring_follow(reader, &world->front, world->roster.writer);
}

static int take(struct gb_ring_writer *writer)
{
    int slot = gb_ring_acquire_slot(writer);

    while (slot == GB_RING_PAGES) {
        writer->epoch = LOAD(world->roster.epoch);
        slot = gb_ring_acquire_slot(writer);
    }
    return slot;
}

static uint64_t put(struct gb_ring_writer *writer)
{
    int slot = take(writer);

    assert_true(slot >= 0);
    STORE(writer->front->slots[slot].ready, (uint32_t)writer->head + 1);
    return gb_ring_publish(writer, 8, 9);
}

/* ---- in one thread ---- */

static uint64_t random_word(void)
{
    static uint64_t word = 88172645463325252u;

    word ^= word << 13;
    word ^= word >> 7;
    word ^= word << 17;
    return word;
}

static void scribble(void *memory, size_t bytes)
{
    for (size_t i = 0; i < bytes / 8; i++)
        ((uint64_t *)memory)[i] = random_word() >> random_word() % 64;
}

/* A reader that lies costs no more than it may hold and have kept: others read on. */
/* RELIABILITY.md: Hostile clients 17 */
TEST_WITH(test_reader_lies, set_up, tear_down)
{
    struct gb_ring_writer writer;
    struct gb_ring_reader reader;
    struct gb_ring_frame frame;

    reader_joins(0, 1, 0);
    reader_joins(1, 2, 3);
    join_writer(&writer, 7);
    join_reader(&reader, 0, 7, false, false);
    for (unsigned i = 0; i < 20000; i++) {
        scribble(&world->claims[1], sizeof(world->claims[1]));
        writer.on_gpu = i % 2;
        gb_ring_pass_late(&writer);
        put(&writer);
        assert_int_equal(gb_ring_read(&reader, &frame), 0);
        assert_int_equal(frame.number, writer.head);
        gb_ring_done(&reader, frame.slot);
    }
    memset(world->claims[1].held, 0xff, sizeof(world->claims[1].held));
    world->claims[1].from = 1;
    put(&writer);
}

/* A writer that lies is read without harm: slots are there, and calls return. */
/* RELIABILITY.md: Hostile clients 17 */
TEST_WITH(test_writer_lies, set_up, tear_down)
{
    struct gb_ring_reader readers[2];
    struct gb_ring_frame frame;
    unsigned found = 0;

    writer_joins();
    for (unsigned i = 0; i < 2; i++) {
        reader_joins(i, 2, 3);
        join_reader(&readers[i], i, 7, i, true);
    }
    for (unsigned i = 0; i < 20000; i++) {
        struct gb_ring_reader *reader = &readers[i % 2];

        scribble(&world->front, sizeof(world->front));
        unsigned slot = (unsigned)random_word() % GB_STREAM_SLOTS;
        uint64_t number = reader->last + 1 + random_word() % 3;
        world->front.head = number << GB_STREAM_SLOT_BITS | slot;
        world->front.at[number % GB_STREAM_SLOTS] = world->front.head;
        world->front.slots[slot].frame = number;
        int r = gb_ring_read(reader, &frame);
        if (r == 0) {
            found++;
            assert_true(frame.slot < 7);
            assert_true(LOOK(reader->claim->held[frame.slot / 64]) & bit(frame.slot));
        }
        if (r == GB_RING_FULL || random_word() % 2)
            memset(reader->claim->held, 0, sizeof(reader->claim->held));
        gb_ring_wait(reader, 1);
    }
    assert_true(found > 100);
}

/* A writer that rings for no frame, or announces one that is in no slot, keeps no reader busy. */
/* RELIABILITY.md: Hostile clients 17 */
TEST_WITH(test_writer_rings_in_vain, set_up, tear_down)
{
    struct gb_ring_writer writer;
    struct gb_ring_reader reader;
    struct gb_ring_frame frame;

    join_writer(&writer, 4);
    for (unsigned each = 0; each < 2; each++) {
        uint64_t number = put(&writer), head = world->front.head;
        reader_joins(0, 2, 1);
        join_reader(&reader, 0, 4, each, false);
        assert_int_equal(gb_ring_read(&reader, &frame), 0);
        world->front.bell += 7; /* no frame comes with it */
        uint64_t start = now_ns();
        assert_false(gb_ring_wait(&reader, 20000000));
        assert_true(now_ns() - start >= 20000000);
        const uint64_t lies[] = {(number + 1) << GB_STREAM_SLOT_BITS | ((frame.slot + 1) % 4),
                                 (number + 1) << GB_STREAM_SLOT_BITS | frame.slot,
                                 (number + 1) << GB_STREAM_SLOT_BITS | (GB_STREAM_SLOTS - 1)};
        for (unsigned i = 0; i < 3; i++) {
            world->front.head = lies[i];
            assert_int_equal(gb_ring_read(&reader, &frame), GB_RING_LIES);
        }
        world->roster.over = world->roster.writer;
        assert_int_equal(gb_ring_read(&reader, &frame), GB_RING_OVER);
        world->roster.over = 0;
        world->front.head = head;
        gb_ring_done(&reader, frame.slot);
    }
}

/* No frame that a reader holds is written over, nor the newest, which others are about to claim. */
TEST_WITH(test_slots_that_are_not_taken, set_up, tear_down)
{
    struct gb_ring_writer writer;
    struct gb_ring_reader reader;
    struct gb_ring_frame held[2];

    reader_joins(0, 2, 0);
    join_writer(&writer, 3);
    join_reader(&reader, 0, 3, false, false);
    for (unsigned i = 0; i < 2; i++) {
        put(&writer);
        assert_int_equal(gb_ring_read(&reader, &held[i]), 0);
    }
    put(&writer);
    assert_int_equal(take(&writer), GB_RING_NONE);
    gb_ring_done(&reader, held[1].slot);
    assert_int_equal(take(&writer), held[1].slot);
}

/* ---- threads that sleep where readers do ---- */

#define CROWD 100
#define PATIENCE_NS (UINT64_C(60) * 1000000000)

/* Until it is woken. The kernel may end a wait by itself if the word has changed meanwhile. */
static void *sleep_there(void *arg)
{
    _Atomic uint32_t *word = arg;

    while (!atomic_load(&world->dispersed) &&
           syscall(SYS_futex, word, FUTEX_WAIT, atomic_load(word), NULL, NULL, 0) < 0)
        ;
    return NULL;
}

/* How many sleep there: as many as can be moved, to where they are. */
static unsigned count_sleepers(_Atomic uint32_t *word)
{
    return (unsigned)syscall(SYS_futex, word, FUTEX_REQUEUE, 0, CROWD * 2, word, 0);
}

/* Those that are woken do not come back; some that are not may be about to sleep again. */
static void expect_sleepers(_Atomic uint32_t *word, unsigned count)
{
    uint64_t end = now_ns() + PATIENCE_NS;
    unsigned found;

    while ((found = count_sleepers(word)) != count && now_ns() < end)
        sched_yield();
    assert_int_equal(found, count);
}

static void gather(pthread_t crowd[CROWD], _Atomic uint32_t *word)
{
    atomic_store(&world->dispersed, false);
    for (unsigned i = 0; i < CROWD; i++)
        assert_int_equal(pthread_create(&crowd[i], NULL, sleep_there, word), 0);
    expect_sleepers(word, CROWD);
}

static void disperse(pthread_t crowd[CROWD], _Atomic uint32_t *word)
{
    atomic_store(&world->dispersed, true);
    for (unsigned i = 0; i < CROWD; i++)
        while (pthread_tryjoin_np(crowd[i], NULL) != 0) {
            wake(word, CROWD);
            sched_yield();
        }
}

/* A reader's threads sleep on the bell, and where the writer does: neither wakes more than one. */
/* RELIABILITY.md: Hostile clients 17 */
TEST_WITH(test_crowd_costs_one_wake, set_up, tear_down)
{
    struct gb_ring_writer writer;
    struct gb_ring_reader reader;
    struct gb_ring_frame frame;
    pthread_t crowd[CROWD];

    join_writer(&writer, 7);
    reader_joins(0, 1, 2);
    join_reader(&reader, 0, 7, true, true);
    put(&writer);
    gather(crowd, &world->front.bell);
    world->claims[0].asleep = 1;
    put(&writer);
    expect_sleepers(&world->front.bell, CROWD - 1);
    world->claims[0].asleep = 0;
    wake_readers(&writer);
    expect_sleepers(&world->front.bell, CROWD - 1);
    writer.epoch--; /* a reader that has joined since may sleep */
    wake_readers(&writer);
    expect_sleepers(&world->front.bell, CROWD - 2);
    disperse(crowd, &world->front.bell);
    gather(crowd, &world->claims[0].moved);
    world->front.asleep = 1;
    assert_int_equal(gb_ring_read(&reader, &frame), 0);
    expect_sleepers(&world->claims[0].moved, CROWD - 1);
    disperse(crowd, &world->claims[0].moved);
}

static void *read_one(void *arg)
{
    struct gb_ring_reader *reader = arg;
    struct gb_ring_frame frame;

    while (gb_ring_read(reader, &frame) < 0)
        gb_ring_wait(reader, FOR_EVER);
    gb_ring_done(reader, frame.slot);
    return NULL;
}

/* A reader behind a crowd that sleeps on the bell is woken by itself. If it was just awake one of
   the crowd is woken in its place, so it tries more than once. */
/* RELIABILITY.md: Hostile clients 17 */
TEST_WITH(test_reader_behind_a_crowd, set_up, tear_down)
{
    struct gb_ring_writer writer;
    struct gb_ring_reader reader;
    pthread_t crowd[CROWD], thread;
    unsigned left, before = 0;

    if (syscall(FUTEX_WAITV, NULL, 0, 0, NULL, 0) < 0 && errno == ENOSYS)
        skip();
    reader_joins(0, 1, 0);
    join_writer(&writer, 7);
    join_reader(&reader, 0, 7, false, false);
    gather(crowd, &world->front.bell);
    for (left = CROWD; left != before; left = count_sleepers(&world->front.bell)) {
        before = left;
        assert_true(before > CROWD / 2);
        assert_int_equal(pthread_create(&thread, NULL, read_one, &reader), 0);
        while (count_sleepers(&world->front.bell) <= before)
            sched_yield();
        put(&writer);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    disperse(crowd, &world->front.bell);
}

/* ---- processes ---- */

static void write_content(unsigned slot, uint64_t frame)
{
    for (unsigned i = 0; i < WORDS; i++) {
        SET(world->content[slot][i], frame);
        if (i == WORDS / 2)
            step();
    }
}

static void check_content(unsigned slot, uint64_t frame)
{
    for (unsigned i = 0; i < WORDS; i++)
        if (LOOK(world->content[slot][i]) != frame)
            world->torn++;
}

/* Writes until all readers that are to see the end have; then ends. */
static void write_on(unsigned slots, uint64_t wanted)
{
    struct gb_ring_writer writer;

    join_writer(&writer, slots);
    while (LOAD(world->enough) < wanted) {
        gb_ring_wait_late(&writer, FOR_EVER);
        int slot = take(&writer);
        if (slot < 0)
            _exit(3);
        write_content((unsigned)slot, writer.head + 1);
        gb_ring_publish(&writer, WORDS, 0);
    }
    _exit(0);
}

/* Reads that many frames. `always`: it is never killed, and is to get each frame. */
static void read_on(unsigned reader, unsigned slots, bool each, uint64_t frames, bool always)
{
    struct gb_ring_reader ring;
    struct gb_ring_frame frame;
    uint64_t writer = 0;

    join_reader(&ring, reader, slots, each, each);
    while (frames > 0) {
        int r = gb_ring_read(&ring, &frame);

        if (r == GB_RING_PAGES) {
            gb_ring_follow(&ring, &world->front, LOAD(world->roster.writer));
        } else if (r < 0) {
            gb_ring_wait(&ring, FOR_EVER);
        } else {
            check_content(frame.slot, frame.number);
            step();
            check_content(frame.slot, frame.number);
            if (each && always && writer == frame.number >> GB_STREAM_COUNT_BITS)
                world->missing += frame.missed;
            writer = frame.number >> GB_STREAM_COUNT_BITS;
            gb_ring_done(&ring, frame.slot);
            frames--;
        }
    }
    if (always)
        world->enough++;
    _exit(0);
}

enum role { NOBODY, WRITER, NEWEST, EACH };

static pid_t begin_process(enum role role, unsigned reader, unsigned slots, int steps,
                           uint64_t frames, uint64_t wanted)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid)
        return pid;
    steps_left = steps;
    if (role == WRITER)
        write_on(slots, wanted);
    read_on(reader, slots, role == EACH, frames, steps == 0);
    _exit(2);
}

#define SLOTS 12
#define ALWAYS 3 /* readers that are not killed */

/* Processes are killed after more and more of their steps, and others take their places. Those
   that are not killed end when they have read enough. */
static void kill_at_each_step(unsigned kills, uint64_t frames)
{
    static const enum role roles[] = {NEWEST, EACH, EACH, NEWEST, EACH};
    pid_t pids[6] = {0};
    unsigned killed = 0, left = ALWAYS, steps[6] = {0};
    int status;

    begin();
    for (unsigned i = 0; i < 5; i++)
        reader_joins(i, 1, roles[i] == EACH ? 4 : 0);
    for (unsigned i = 0; i < 5; i++)
        pids[i] = begin_process(roles[i], i, SLOTS, i < ALWAYS ? 0 : 1, frames, 0);
    pids[5] = begin_process(WRITER, 0, SLOTS, 1, 0, ALWAYS);
    while (left > 0) {
        pid_t pid = wait(&status);
        unsigned i = 0;

        assert_true(pid > 0);
        while (pids[i] != pid)
            i++;
        if (!WIFSIGNALED(status))
            assert_int_equal(WEXITSTATUS(status), 0);
        if (i < ALWAYS) {
            assert_false(WIFSIGNALED(status));
            reader_ends(i);
            pids[i] = 0;
            left--;
            continue;
        }
        killed += WIFSIGNALED(status);
        steps[i]++;
        /* When there were kills enough the rest ends by itself. */
        int next = killed < kills ? (int)(1 + steps[i] % 90) : 1 << 30;
        if (i == 5) {
            writer_ends();
            memset(&world->front, 0, offsetof(struct gb_stream_front, bell));
            memset(world->front.at, 0, sizeof(world->front.at));
            memset(world->front.slots, 0, sizeof(world->front.slots));
            pids[5] = begin_process(WRITER, 0, SLOTS, next, 0, ALWAYS);
        } else {
            reader_ends(i);
            reader_joins(i, 1, roles[i] == EACH ? 4 : 0);
            pids[i] = begin_process(roles[i], i, SLOTS, next, frames, 0);
        }
    }
    for (unsigned i = ALWAYS; i < 6; i++) {
        kill(pids[i], SIGKILL);
        assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
    }
    assert_true(killed >= kills);
    assert_int_equal(world->torn, 0);
    assert_int_equal(world->missing, 0);
    end();
}

TEST(test_kills)
{
    kill_at_each_step(200, 30000);
}

RUN_TESTS(NULL, NULL)
