/*
 * The time from a frame's publication until a reader has it, between processes on two cores: ours,
 * beside a bare ring in shared memory (the floor), a pipe, and NNG. The reader looks all the time,
 * or sleeps. Each frame begins with the time at which it was published; the next one is made when
 * the reader has had this one, and a pause is over.
 *
 * Rows: streams.{busy,asleep}.SIZE and streams.p99.SIZE with the ring as the floor, then
 * streams.{pipe,nng}.SIZE with a busy reader.
 */
#include <linux/futex.h>
#include <nng/nng.h>
#include <nng/protocol/pair0/pair.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "measure.h"

#define SLOTS 8u
#define FRAMES 2048u /* most in a round */
#define BUSY_GAP_NS 3000u
#define SLEEP_GAP_NS 300000u /* longer than readers look before they sleep */

static const struct size {
    const char *name;
    uint64_t bytes;
} sizes[] = {{"1k", 1024}, {"64k", 65536}, {"4m", 4194304}};

/* One for both processes. */
struct shared {
    _Alignas(64) _Atomic uint64_t newest; /* of the bare ring; its slot is this modulo SLOTS */
    _Atomic uint32_t bell, asleep;
    _Alignas(64) _Atomic uint32_t ready, seen; /* by the reader */
    _Alignas(64) uint32_t ns[FRAMES];
};

/* The state of one end of a way. */
struct end {
    const struct way *way;
    struct shared *shared;
    const struct options *options;
    struct gpubuf_client *client;
    struct gpubuf_stream *stream;
    char *slots; /* of the bare ring */
    char *frame; /* a frame of the process's own */
    uint64_t bytes, count;
    int pipe[2];
    nng_socket nng;
    char url[128];
    bool sleeps;
};

struct way {
    const char *name;
    void (*begin)(struct end *end, bool writes);
    void (*write)(struct end *end);
    uint64_t (*read)(struct end *end); /* returns when the frame was published */
    void (*finish)(struct end *end);
};

static uint64_t clock_ns(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void stamp(void *frame)
{
    uint64_t ns = clock_ns();

    memcpy(frame, &ns, sizeof(ns));
}

static uint64_t stamp_of(const void *frame)
{
    uint64_t ns;

    memcpy(&ns, frame, sizeof(ns));
    return ns;
}

/* ---- the floor: a ring that trusts everybody, and keeps nothing ---- */

static void ring_begin(struct end *end, bool writes)
{
}

static void ring_write(struct end *end)
{
    struct shared *shared = end->shared;

    stamp(end->slots + (end->count + 1) % SLOTS * end->bytes);
    atomic_store_explicit(&shared->newest, end->count + 1, memory_order_release);
    if (!end->sleeps)
        return;
    atomic_fetch_add(&shared->bell, 1);
    if (atomic_load(&shared->asleep))
        syscall(SYS_futex, &shared->bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static uint64_t ring_read(struct end *end)
{
    struct shared *shared = end->shared;

    while (atomic_load_explicit(&shared->newest, memory_order_acquire) <= end->count) {
        uint32_t bell = atomic_load(&shared->bell);

        if (!end->sleeps)
            continue;
        atomic_store(&shared->asleep, 1);
        if (atomic_load(&shared->newest) <= end->count)
            syscall(SYS_futex, &shared->bell, FUTEX_WAIT, bell, NULL, NULL, 0);
        atomic_store(&shared->asleep, 0);
    }
    return stamp_of(end->slots + (end->count + 1) % SLOTS * end->bytes);
}

static void ring_finish(struct end *end)
{
}

/* ---- ours ---- */

static void ours_begin(struct end *end, bool writes)
{
    const struct gpubuf_stream_options options = {
        .size = sizeof(options), .slots = SLOTS, .wait_ms = 10000, .device = "host"};

    end->client = connect_to(end->options->socket);
    if (writes)
        check(end->client,
              gpubuf_stream_create(end->client, "streams/frames", "uint8", 1, &end->bytes, &options,
                                   &end->stream),
              "stream_create");
    else
        check(end->client,
              gpubuf_stream_open(end->client, "streams/frames", &options, &end->stream),
              "stream_open");
}

static void ours_write(struct end *end)
{
    struct gpubuf_frame frame;

    check(end->client, gpubuf_stream_next(end->stream, 0, &frame), "stream_next");
    stamp(frame.pointer);
    check(end->client, gpubuf_stream_publish(end->stream, &frame, NULL), "stream_publish");
}

static uint64_t ours_read(struct end *end)
{
    struct gpubuf_frame frame;

    check(end->client, gpubuf_stream_read(end->stream, -1, &frame), "stream_read");
    uint64_t ns = stamp_of(frame.pointer);
    check(end->client, gpubuf_stream_done(end->stream, &frame, NULL), "stream_done");
    return ns;
}

static void ours_finish(struct end *end)
{
    gpubuf_stream_close(end->stream);
    if (!end->frame) /* the writer */
        check(end->client,
              gpubuf_call(end->client, "delete", "{\"name\":\"streams/frames\"}", -1, NULL),
              "delete");
    gpubuf_disconnect(end->client);
}

/* ---- a pipe ---- */

static void pipe_begin(struct end *end, bool writes)
{
    close(end->pipe[writes ? 0 : 1]);
}

static void pipe_write(struct end *end)
{
    stamp(end->frame);
    for (uint64_t done = 0; done < end->bytes;) {
        ssize_t n = write(end->pipe[1], end->frame + done, end->bytes - done);

        if (n < 0)
            die("a pipe failed: %s", strerror(errno));
        done += (uint64_t)n;
    }
}

static uint64_t pipe_read(struct end *end)
{
    for (uint64_t done = 0; done < end->bytes;) {
        ssize_t n = read(end->pipe[0], end->frame + done, end->bytes - done);

        if (n <= 0)
            die("a pipe failed");
        done += (uint64_t)n;
    }
    return stamp_of(end->frame);
}

static void pipe_finish(struct end *end)
{
}

/* ---- NNG: a pair, by a socket of this machine ---- */

static void nng_check(int r)
{
    if (r != 0)
        die("NNG: %s", nng_strerror(r));
}

static void nng_begin(struct end *end, bool writes)
{
    nng_check(nng_pair0_open(&end->nng));
    nng_check(nng_socket_set_size(end->nng, NNG_OPT_RECVMAXSZ, 0));
    nng_check(writes ? nng_listen(end->nng, end->url, NULL, 0)
                     : nng_dial(end->nng, end->url, NULL, NNG_FLAG_NONBLOCK));
}

static void nng_write(struct end *end)
{
    nng_msg *message;

    nng_check(nng_msg_alloc(&message, end->bytes));
    stamp(nng_msg_body(message));
    nng_check(nng_sendmsg(end->nng, message, 0));
}

static uint64_t nng_read(struct end *end)
{
    nng_msg *message;

    nng_check(nng_recvmsg(end->nng, &message, 0));
    uint64_t ns = stamp_of(nng_msg_body(message));
    nng_msg_free(message);
    return ns;
}

static void nng_finish(struct end *end)
{
    nng_close(end->nng);
}

static const struct way ways[] = {
    {"ring", ring_begin, ring_write, ring_read, ring_finish},
    {"ours", ours_begin, ours_write, ours_read, ours_finish},
    {"pipe", pipe_begin, pipe_write, pipe_read, pipe_finish},
    {"nng", nng_begin, nng_write, nng_read, nng_finish},
};
enum { RING, OURS, PIPE, NNG, WAYS };

/* ---- a round ---- */

static void pass(uint64_t ns)
{
    uint64_t until = clock_ns() + ns;

    while (clock_ns() < until)
        continue;
}

static void read_frames(struct end *end, unsigned frames)
{
    struct shared *shared = end->shared;

    end->frame = allocate(1, end->bytes);
    end->way->begin(end, false);
    atomic_store(&shared->ready, 1);
    for (; end->count < frames; end->count++) {
        uint64_t published = end->way->read(end);

        shared->ns[end->count] = (uint32_t)(clock_ns() - published);
        atomic_store(&shared->seen, (uint32_t)end->count + 1);
    }
    end->way->finish(end);
    _exit(0);
}

static void write_frames(struct end *end, pid_t reader, unsigned frames)
{
    struct shared *shared = end->shared;

    while (!atomic_load(&shared->ready))
        if (waitpid(reader, NULL, WNOHANG) != 0)
            die("the reader has failed");
    for (; end->count < frames; end->count++) {
        pass(end->sleeps ? SLEEP_GAP_NS : BUSY_GAP_NS);
        end->way->write(end);
        for (unsigned looks = 1; atomic_load(&shared->seen) <= end->count; looks++)
            if (looks % 65536 == 0 && waitpid(reader, NULL, WNOHANG) != 0 &&
                atomic_load(&shared->seen) <= end->count)
                die("the reader has failed");
    }
}

static int compare(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

struct figures {
    double p50, p99; /* us */
};

/* One process writes, another reads, each on a core of its own; for a process that then ends. */
static struct figures measure(const struct way *way, const struct options *options, uint64_t bytes,
                              bool sleeps)
{
    unsigned frames = sleeps ? 100 : way < &ways[PIPE] ? FRAMES : bytes > 1u << 20 ? 16 : 256;
    struct end end = {
        .way = way, .options = options, .bytes = bytes, .sleeps = sleeps, .pipe = {-1, -1}};

    end.shared = allocate_shared(sizeof(*end.shared));
    end.slots = allocate_shared(SLOTS * bytes);
    if (way == &ways[PIPE] && pipe(end.pipe) < 0)
        die("%s", strerror(errno));
    memset(end.slots, 1, SLOTS * bytes);
    snprintf(end.url, sizeof(end.url), "ipc://%s.nng", options->socket);
    if (way == &ways[OURS])
        ours_begin(&end, true);
    pid_t reader = fork_child(); /* before NNG has threads */
    if (reader == 0) {
        end.client = NULL;
        end.stream = NULL;
        read_frames(&end, frames);
    }
    if (!place(PLACE_TWO_CORES, &reader, 1))
        die("there is only one core");
    if (way != &ways[OURS])
        way->begin(&end, true);
    if (way == &ways[PIPE])
        end.frame = allocate(1, bytes);
    write_frames(&end, reader, frames);
    end_child(reader, "the reader");
    way->finish(&end);
    qsort(end.shared->ns, frames, sizeof(end.shared->ns[0]), compare);
    return (struct figures){end.shared->ns[frames / 2] / 1e3,
                            end.shared->ns[frames * 99 / 100] / 1e3};
}

/* A round in a process of its own, since NNG cannot be used by a child of one that has used it. */
static struct figures run_round(const struct way *way, const struct options *options,
                                uint64_t bytes, bool sleeps)
{
    struct figures *figures = allocate_shared(sizeof(*figures));
    pid_t pid = fork_child();

    if (pid == 0) {
        *figures = measure(way, options, bytes, sleeps);
        _exit(0);
    }
    end_child(pid, way->name);
    struct figures found = *figures;
    munmap(figures, sizeof(*figures));
    return found;
}

/* ---- rows ---- */

static void print(const char *kind, const char *size, const struct compared *compared)
{
    char id[64];

    snprintf(id, sizeof(id), "streams.%s.%s", kind, size);
    print_compared(id, "us", compared, NULL);
}

static void compare_with(const struct way *other, const struct options *options, const char *kind,
                         const struct size *size, bool sleeps)
{
    struct compared p50 = {0}, p99 = {0};

    for (unsigned i = 0, rounds = options->quick ? 3 : 9; i <= rounds; i++) {
        struct figures floor = run_round(other, options, size->bytes, sleeps),
                       mine = run_round(&ways[OURS], options, size->bytes, sleeps);

        if (i == 0)
            continue; /* it warms up */
        compared_add(&p50, mine.p50, floor.p50, mine.p50 / floor.p50);
        compared_add(&p99, mine.p99, floor.p99, mine.p99 / floor.p99);
    }
    print(kind, size->name, &p50);
    if (other == &ways[RING] && !sleeps)
        print("p99", size->name, &p99);
}

int main(int argc, char **argv)
{
    struct options options = read_options(argc, argv);

    for (unsigned i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        compare_with(&ways[RING], &options, "busy", &sizes[i], false);
        compare_with(&ways[RING], &options, "asleep", &sizes[i], true);
        compare_with(&ways[PIPE], &options, "pipe", &sizes[i], false);
        compare_with(&ways[NNG], &options, "nng", &sizes[i], false);
    }
    return 0;
}
