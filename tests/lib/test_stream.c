/* Streams by the library: who writes, who reads, how they end, and what is refused. */
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

#define WORDS 512u

static struct gpubuf_stream *create(struct gpubuf_client *client, unsigned slots)
{
    const struct gpubuf_stream_options options = {
        .size = sizeof(options), .slots = slots, .wait_ms = 60000, .device = "host"};
    const uint64_t shape[] = {WORDS};
    struct gpubuf_stream *stream;

    ok(client, gpubuf_stream_create(client, "cam0", "uint64", 1, shape, &options, &stream));
    return stream;
}

static struct gpubuf_stream *open_with(struct gpubuf_client *client,
                                       struct gpubuf_stream_options options)
{
    struct gpubuf_stream *stream;

    options.size = sizeof(options);
    ok(client, gpubuf_stream_open(client, "cam0", &options, &stream));
    return stream;
}

static void publish(struct gpubuf_client *client, struct gpubuf_stream *stream)
{
    struct gpubuf_frame frame;

    ok(client, gpubuf_stream_next(stream, -1, &frame));
    uint64_t *words = frame.pointer;
    for (unsigned i = 0; i < WORDS; i++)
        words[i] = frame.number;
    ok(client, gpubuf_stream_publish(stream, &frame, NULL));
}

static bool is_whole(const struct gpubuf_frame *frame)
{
    const uint64_t *words = frame->pointer;

    for (unsigned i = 0; i < WORDS; i++)
        if (words[i] != frame->number)
            return false;
    return true;
}

static void read_frame(struct gpubuf_client *client, struct gpubuf_stream *stream,
                       struct gpubuf_frame *frame)
{
    ok(client, gpubuf_stream_read(stream, 60000, frame));
    assert_true(is_whole(frame));
}

static void remove_stream(struct gpubuf_client *client)
{
    ok(client, gpubuf_call(client, "delete", "{\"name\":\"cam0\"}", -1, NULL));
    gpubuf_disconnect(client);
}

TEST(test_newest_and_each)
{
    struct gpubuf_client *client = connect_client(), *other = connect_client();
    struct gpubuf_stream *writer = create(client, 16);
    struct gpubuf_stream *newest = open_with(other, (struct gpubuf_stream_options){.hold = 2});
    struct gpubuf_stream *each = open_with(
        other, (struct gpubuf_stream_options){.each = true, .waits = true, .lag = 8, .hold = 3});
    struct gpubuf_frame frame, held;

    fails(other, GPUBUF_E_AGAIN, gpubuf_stream_read(newest, 0, &frame));
    fails(other, GPUBUF_E_TIMEOUT, gpubuf_stream_read(each, 1, &frame));
    ok(client, gpubuf_stream_next(writer, INT64_MAX, &frame)); /* no timeout is too long */
    publish(client, writer);
    ok(other, gpubuf_stream_read(newest, INT64_MAX, &held));
    assert_true(is_whole(&held));
    for (unsigned i = 0; i < 7; i++)
        publish(client, writer);
    read_frame(other, newest, &frame);
    assert_int_equal(frame.number, held.number + 7);
    assert_int_equal(frame.missed, 6);
    assert_int_equal(frame.bytes, WORDS * 8);
    assert_true(frame.time_ns > held.time_ns);
    fails(other, GPUBUF_E_BUSY, gpubuf_stream_read(newest, 0, &frame));
    assert_true(is_whole(&held));
    ok(other, gpubuf_stream_done(newest, &held, NULL));
    for (unsigned i = 0; i < 8; i++) {
        read_frame(other, each, &frame);
        assert_int_equal(frame.number, held.number + i);
        assert_int_equal(frame.missed, 0);
        ok(other, gpubuf_stream_done(each, &frame, NULL));
    }
    assert_string_equal(gpubuf_dtype(gpubuf_stream_object(each)), "uint64");
    gpubuf_stream_close(newest);
    gpubuf_stream_close(each);
    gpubuf_stream_close(writer);
    gpubuf_stream_close(NULL);
    gpubuf_disconnect(other);
    remove_stream(client);
}

TEST(test_one_writer_after_another)
{
    struct gpubuf_client *client = connect_client(), *other = connect_client();
    struct gpubuf_stream *writer = create(client, 8), *second;
    struct gpubuf_stream *reader = open_with(other, (struct gpubuf_stream_options){.hold = 2});
    const struct gpubuf_stream_options now = {.size = sizeof(now), .slots = 8};
    const uint64_t shape[] = {WORDS}, wrong[] = {WORDS, 2};
    struct gpubuf_frame held, frame;

    publish(client, writer);
    read_frame(other, reader, &held);
    fails(other, GPUBUF_E_BUSY,
          gpubuf_stream_create(other, "cam0", "uint64", 1, shape, &now, &second));
    gpubuf_stream_close(writer);
    fails(other, GPUBUF_E_UNAVAILABLE, gpubuf_stream_read(reader, -1, &frame));
    fails(other, GPUBUF_E_EXISTS,
          gpubuf_stream_create(other, "cam0", "uint64", 2, wrong, &now, &second));
    second = create(client, 8);
    for (unsigned i = 0; i < 20; i++)
        publish(client, second);
    assert_true(is_whole(&held));
    read_frame(other, reader, &frame);
    assert_true(frame.number > held.number);
    gpubuf_stream_close(reader);
    gpubuf_stream_close(second);
    gpubuf_disconnect(other);
    remove_stream(client);
}

TEST(test_what_is_refused)
{
    struct gpubuf_client *client = connect_client();
    struct gpubuf_stream_options options = {.size = sizeof(options), .slots = 129};
    struct gpubuf_stream *stream, *reader;
    struct gpubuf_frame frame = {.slot = 3};

    fails(client, GPUBUF_E_INVALID,
          gpubuf_stream_create(client, "cam0", "uint8", 0, NULL, &options, &stream));
    fails(client, GPUBUF_E_INVALID,
          gpubuf_stream_create(client, "cam0", NULL, 0, NULL, NULL, &stream));
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_stream_open(client, "cam0", NULL, &reader));
    put_counting(client, "bytes", 100, 0);
    fails(client, GPUBUF_E_UNSUPPORTED, gpubuf_stream_open(client, "bytes", NULL, &reader));
    stream = create(client, 4);
    reader = open_with(client, (struct gpubuf_stream_options){.hold = 2});
    fails(client, GPUBUF_E_BUSY, gpubuf_stream_open(client, "cam0", NULL, &reader));
    fails(client, GPUBUF_E_INVALID, gpubuf_stream_publish(stream, &frame, NULL));
    fails(client, GPUBUF_E_INVALID, gpubuf_stream_next(reader, 0, &frame));
    fails(client, GPUBUF_E_INVALID, gpubuf_stream_read(stream, 0, &frame));
    ok(client, gpubuf_stream_next(stream, 0, &frame));
    frame.bytes++;
    fails(client, GPUBUF_E_INVALID, gpubuf_stream_publish(stream, &frame, NULL));
    gpubuf_stream_close(reader);
    gpubuf_stream_close(stream);
    remove_stream(client);
}

/* A process without descriptors is refused, and claims nothing: the claim would stay with it. */
/* RELIABILITY.md: The kernel says no 3 */
TEST(test_no_descriptors)
{
    const struct gpubuf_stream_options options = {.size = sizeof(options)};
    const uint64_t shape[] = {WORDS};
    struct gpubuf_client *client = connect_client(), *other = connect_client();
    struct gpubuf_stream *stream = create(client, 4);
    struct rlimit limit, low;
    int used[64];
    size_t count = 0;

    gpubuf_stream_close(stream);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = COUNT(used);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    while ((used[count] = dup(0)) >= 0)
        count++;
    for (unsigned left = 0; left < 8; left++) {
        const char *name = left == 0 ? "none" : "cam0"; /* cannot be made; cannot be taken over */
        fails(client, GPUBUF_E_SYSTEM,
              gpubuf_stream_create(client, name, "uint64", 1, shape, &options, &stream));
        ok(client, gpubuf_call(client, "stats", NULL, -1, NULL));
        close(used[--count]);
    }
    while (count > 0)
        close(used[--count]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    gpubuf_stream_close(create(other, 4)); /* nobody else has it */
    gpubuf_disconnect(other);
    remove_stream(client);
}

/* Nor does a reader without descriptors take slots, which would stay with its process. */
TEST(test_no_descriptors_to_read)
{
    const struct gpubuf_stream_options options = {.size = sizeof(options), .hold = 2};
    struct gpubuf_client *client = connect_client();
    struct gpubuf_stream *writer = create(client, 4), *stream;
    struct rlimit limit, low;
    int used[64];
    size_t count = 0;

    gpubuf_stream_close(open_with(client, options)); /* its memory is mapped from now on */
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    low = limit;
    low.rlim_cur = COUNT(used);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    while ((used[count] = dup(0)) >= 0)
        count++;
    for (unsigned left = 0; left < 3; left++) {
        fails(client, GPUBUF_E_SYSTEM, gpubuf_stream_open(client, "cam0", &options, &stream));
        close(used[--count]);
    }
    gpubuf_stream_close(open_with(client, options)); /* three are enough, and the slots are there */
    while (count > 0)
        close(used[--count]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    gpubuf_stream_close(writer);
    remove_stream(client);
}

/* A reader that was closed leaves its slots to another, also if its client opens the name again and
   again. */
TEST(test_slots_come_back)
{
    struct gpubuf_client *client = connect_client();
    struct gpubuf_stream *stream = create(client, 3), *reader;
    struct gpubuf_frame frame;

    for (unsigned i = 0; i < 10; i++) {
        reader = open_with(client, (struct gpubuf_stream_options){.hold = 0});
        publish(client, stream);
        read_frame(client, reader, &frame);
        gpubuf_stream_close(reader);
    }
    gpubuf_stream_close(stream);
    remove_stream(client);
}

static void *read_two(void *arg)
{
    struct gpubuf_client *client = connect_client();
    struct gpubuf_stream *stream =
        open_with(client, (struct gpubuf_stream_options){.each = true, .lag = 4});
    struct gpubuf_frame frame;
    _Atomic unsigned *counts = arg;

    counts[0]++;
    for (unsigned i = 0; i < 2; i++) {
        read_frame(client, stream, &frame);
        ok(client, gpubuf_stream_done(stream, &frame, NULL));
        counts[1]++;
    }
    gpubuf_stream_close(stream);
    gpubuf_disconnect(client);
    return NULL;
}

static bool all_wait(void *arg)
{
    const _Atomic unsigned *counts = arg;

    return counts[0] == 64;
}

static bool all_read_one(void *arg)
{
    const _Atomic unsigned *counts = arg;

    return counts[1] == 64;
}

/* 64 readers that hold one each, beside frames that are kept, and one that is written. */
TEST(test_many_readers)
{
    struct gpubuf_client *client = connect_client();
    struct gpubuf_stream *stream = create(client, 128);
    static _Atomic unsigned counts[2];
    pthread_t threads[64];

    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_two, (void *)counts), 0);
    wait_until(all_wait, (void *)counts);
    publish(client, stream); /* it finds the readers' pages, twelve in an answer */
    wait_until(all_read_one, (void *)counts);
    publish(client, stream);
    for (unsigned i = 0; i < 64; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    gpubuf_stream_close(stream);
    remove_stream(client);
}

TEST(test_another_daemon)
{
    CLIENT *client = connect_client();
    struct gpubuf_stream *stream = create(client, 8),
                         *reader = open_with(client, (struct gpubuf_stream_options){.hold = 1});
    struct gpubuf_frame frame, next;

    publish(client, stream);
    kill_daemon();
    publish(client, stream); /* nobody is asked */
    read_frame(client, reader, &frame);
    start_daemon_again();
    ok(client, gpubuf_call(client, "stats", NULL, -1, NULL));
    fails(client, GPUBUF_E_STALE, gpubuf_stream_read(reader, -1, &next));
    fails(client, GPUBUF_E_STALE, gpubuf_stream_next(stream, 0, &next));
    struct gpubuf_stream *anew = create(client, 8);
    for (unsigned i = 0; i < 20; i++)
        publish(client, anew);
    assert_true(is_whole(&frame)); /* as it was held */
    gpubuf_stream_close(anew);
    gpubuf_stream_close(reader);
    gpubuf_stream_close(stream);
}

/* It can neither write nor read; what it closes, and its end, take nothing from the parent. */
TEST(test_child_of_fork)
{
    struct gpubuf_client *client = connect_client();
    struct gpubuf_stream *stream = create(client, 8);
    struct gpubuf_stream *reader =
        open_with(client, (struct gpubuf_stream_options){.each = true, .lag = 2});
    struct gpubuf_frame frame;
    int status;

    publish(client, stream);
    pid_t child = fork();
    if (child == 0) {
        bool refused = gpubuf_stream_next(stream, 0, &frame) == GPUBUF_E_FORKED &&
                       gpubuf_stream_read(reader, 0, &frame) == GPUBUF_E_FORKED;

        gpubuf_stream_close(reader);
        gpubuf_stream_close(stream);
        _exit(refused ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    publish(client, stream);
    for (unsigned i = 0; i < 2; i++) {
        read_frame(client, reader, &frame);
        assert_int_equal(frame.missed, 0);
        ok(client, gpubuf_stream_done(reader, &frame, NULL));
    }
    gpubuf_stream_close(reader);
    gpubuf_stream_close(stream);
    remove_stream(client);
}

static void *wait_for_reader(void *arg)
{
    struct gpubuf_frame frame;
    static int r;

    r = gpubuf_stream_next(arg, -1, &frame);
    return &r;
}

/* ---- a daemon that is followed by another ---- */

struct hands {
    _Atomic uint64_t published;
    _Atomic bool held, enough, torn, done;
};

static struct hands *hands;

static void write_on(void)
{
    struct gpubuf_client *client = connect_client();
    struct gpubuf_stream *stream = create(client, 6);
    const struct timespec pause = {.tv_nsec = 200000};

    while (!hands->done) {
        publish(client, stream);
        hands->published++;
        (void)nanosleep(&pause, NULL);
    }
    gpubuf_stream_close(stream);
    gpubuf_disconnect(client);
}

/* Holds a frame until there is enough, then reads on. */
static void hold_on(void)
{
    struct gpubuf_client *client = connect_client();
    struct gpubuf_stream *stream =
        open_with(client, (struct gpubuf_stream_options){.hold = 2, .wait_ms = 60000});
    struct gpubuf_frame frame, next;

    read_frame(client, stream, &frame);
    hands->held = true;
    while (!hands->enough) {
        const struct timespec pause = {.tv_nsec = 1000000};

        hands->torn |= !is_whole(&frame);
        (void)nanosleep(&pause, NULL);
    }
    hands->torn |= !is_whole(&frame);
    read_frame(client, stream, &next);
    assert_true(next.number > frame.number);
    hands->done = true;
    gpubuf_stream_close(stream);
    gpubuf_disconnect(client);
}

static pid_t begin_process(void (*work)(void))
{
    pid_t pid = fork();

    if (pid > 0)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    work();
    _exit(0);
}

static bool is_held(void *arg)
{
    return hands->held;
}

static bool are_published(void *arg)
{
    return hands->published >= *(const uint64_t *)arg;
}

static void await_successor(pid_t daemon)
{
    while (daemon_child() == daemon)
        sched_yield();
    gpubuf_disconnect(connect_client());
}

/* A frame that a reader holds does not change while the daemon is killed, or replaced, twice in a
   row, and another one serves: the writer goes on, or ends with it and another one comes; the
   reader may be stopped meanwhile. */
static void hold_over(int end, bool another, bool stopped)
{
    hands = mmap(NULL, sizeof(*hands), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(hands, MAP_FAILED);
    pid_t writer = begin_process(write_on), reader = begin_process(hold_on);
    struct gpubuf_stream *second;
    struct gpubuf_frame frame;
    int status;

    wait_until(is_held, NULL);
    if (stopped)
        assert_int_equal(kill(reader, SIGSTOP), 0);
    pid_t daemon = daemon_child();
    assert_int_equal(kill(daemon, end), 0);
    if (another) {
        assert_int_equal(kill(writer, SIGKILL), 0);
        assert_int_equal(waitpid(writer, NULL, 0), writer);
        writer = begin_process(write_on);
    }
    await_successor(daemon);
    daemon = daemon_child();
    assert_int_equal(kill(daemon, end), 0);
    await_successor(daemon);
    uint64_t enough = hands->published + 2;
    wait_until(are_published, &enough);
    /* The writer of these frames has asked the other daemon for this reader's page. */
    struct gpubuf_client *client = connect_client();
    second = open_with(client, (struct gpubuf_stream_options){.each = true, .lag = 1});
    for (unsigned i = 0; i < 4; i++) {
        read_frame(client, second, &frame);
        ok(client, gpubuf_stream_done(second, &frame, NULL));
    }
    enough = hands->published + 50;
    wait_until(are_published, &enough);
    if (stopped)
        assert_int_equal(kill(reader, SIGCONT), 0);
    hands->enough = true;
    assert_int_equal(waitpid(reader, &status, 0), reader);
    assert_int_equal(status, 0);
    assert_int_equal(waitpid(writer, &status, 0), writer);
    assert_int_equal(status, 0);
    assert_false(hands->torn);
    gpubuf_stream_close(second);
    remove_stream(client);
    munmap(hands, sizeof(*hands));
}

/* RELIABILITY.md: The daemon ends 28 */
TEST(test_held_over_a_restart)
{
    static const char *const supervise[] = {"--supervise", NULL};

    assert_int_equal(stop_daemon(state), 0);
    assert_int_equal(start_daemon_with(supervise), 0);
    for (unsigned i = 0; i < 8; i++)
        hold_over(i & 1 ? SIGKILL : SIGHUP, i & 2, i & 4);
    assert_int_equal(stop_daemon(state), 0);
    assert_int_equal(start_daemon(state), 0);
}

/* Nobody clears a reader that dies with the daemon: a writer that waits for it is told. */
TEST(test_waiting_for_the_dead)
{
    struct gpubuf_client *client = connect_client(), *other = connect_client();
    struct gpubuf_stream *stream = create(client, 8);
    struct gpubuf_stream *reader =
        open_with(other, (struct gpubuf_stream_options){.each = true, .waits = true, .lag = 1});
    pthread_t thread;
    void *r;

    publish(client, stream);
    kill_daemon();
    gpubuf_stream_close(reader);
    gpubuf_disconnect(other);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_reader, stream), 0);
    start_daemon_again();
    ok(client, gpubuf_call(client, "stats", NULL, -1, NULL));
    assert_int_equal(pthread_join(thread, &r), 0);
    assert_int_equal(*(int *)r, GPUBUF_E_STALE);
    gpubuf_stream_close(stream);
    gpubuf_disconnect(client);
}

RUN_TESTS(start_daemon, stop_daemon)
