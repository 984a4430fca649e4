/*
 * A stream whose readers and writers are killed: bench_stream_kills SOCKET FRAMES READERS.
 *
 * Two readers of each frame ask to be waited for, and live. The other readers, one in four of each
 * frame and the rest of the newest, and the writer are killed at any moment, and others take their
 * places, until that many frames were published and the two have had them. One reader in sixteen
 * sleeps until a frame comes, and costs a switch of processes for it; the others look now and then,
 * so that ten million frames take minutes. Prints what was counted. Status 1: a frame was torn, or
 * one of the two has missed a frame of a writer, or it took longer than 25 minutes.
 */
#include <stdatomic.h>

#include "measure.h"

#define WORDS 32u
#define LIVING 2u /* readers that are not killed */
#define SLOTS 128u
#define MOST 64u
#define LAG (SLOTS - 1 - MOST) /* the slots that are not written, nor held by readers */
#define MOST_SECONDS 1500
#define NAME "streams/kills"
#define KILL_EVERY_NS 25000000
#define NAP_NS 20000000 /* at most, of a reader of the newest; a twentieth where nothing was new */

/* One for all processes. */
struct shared {
    _Atomic uint64_t published, torn, missed, read[LIVING];
    _Atomic uint32_t joined, enough;
};

static struct shared *shared;
static const char *socket_path;
static uint64_t frames_wanted;

static void nap(uint64_t ns)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

/* The daemon may be killed, too, and then takes its time. */
static int patience_ms(void)
{
    const char *seconds = getenv("GPUBUF_TEST_DEADLINE");

    return 1000 * (seconds ? atoi(seconds) : 60);
}

static struct gpubuf_client *connect_patiently(void)
{
    const struct gpubuf_connect_options options = {.size = sizeof(options),
                                                   .path = socket_path,
                                                   .timeout_ms = patience_ms(),
                                                   .answer_timeout_ms = patience_ms(),
                                                   .resume_ms = patience_ms()};
    struct gpubuf_client *client;

    check(NULL, gpubuf_connect(&client, &options), "connect");
    return client;
}

static void write_frames(void)
{
    const struct gpubuf_stream_options options = {
        .size = sizeof(options), .slots = SLOTS, .wait_ms = patience_ms(), .device = "host"};
    const uint64_t shape[] = {WORDS};
    struct gpubuf_client *client = connect_patiently();
    struct gpubuf_stream *stream;
    struct gpubuf_frame frame;

    check(client, gpubuf_stream_create(client, NAME, "uint64", 1, shape, &options, &stream),
          "stream_create");
    atomic_fetch_add(&shared->joined, 1);
    while (!atomic_load(&shared->enough)) {
        check(client, gpubuf_stream_next(stream, -1, &frame), "stream_next");
        for (unsigned i = 0; i < WORDS; i++)
            ((volatile uint64_t *)frame.pointer)[i] = frame.number;
        check(client, gpubuf_stream_publish(stream, &frame, NULL), "stream_publish");
        atomic_fetch_add(&shared->published, 1);
    }
    gpubuf_stream_close(stream);
    gpubuf_disconnect(client);
}

static void look_at(const struct gpubuf_frame *frame)
{
    for (unsigned i = 0; i < WORDS; i++)
        if (((const volatile uint64_t *)frame->pointer)[i] != frame->number) {
            atomic_fetch_add(&shared->torn, 1);
            return;
        }
}

/* The writer's number is in the high bits of a frame's. */
static bool same_writer(uint64_t a, uint64_t b)
{
    return a >> 40 == b >> 40;
}

static void read_frames(unsigned reader)
{
    bool lives = reader < LIVING, each = lives || reader % 4 == 0, sleeps = reader % 16 == 4;
    const struct gpubuf_stream_options options = {.size = sizeof(options),
                                                  .wait_ms = patience_ms(),
                                                  .each = each,
                                                  .waits = lives,
                                                  .lag = each ? LAG : 0};
    struct gpubuf_client *client = connect_patiently();
    struct gpubuf_stream *stream;
    struct gpubuf_frame frame;
    uint64_t last = 0, random = (uint64_t)getpid();
    int r;

    /* A reader that was just killed may hold its place a little longer. */
    while ((r = gpubuf_stream_open(client, NAME, &options, &stream)) == GPUBUF_E_BUSY ||
           r == GPUBUF_E_LIMIT)
        nap(1000000);
    check(client, r, "stream_open");
    while (!atomic_load(&shared->enough)) {
        r = gpubuf_stream_read(stream, sleeps ? 100 : 0, &frame);
        if (r == GPUBUF_E_TIMEOUT || r == GPUBUF_E_UNAVAILABLE || r == GPUBUF_E_AGAIN) {
            if (!sleeps)
                nap(draw(&random) % NAP_NS / 20);
            continue;
        }
        check(client, r, "stream_read");
        look_at(&frame);
        if (lives && last && same_writer(last, frame.number))
            atomic_fetch_add(&shared->missed, frame.missed);
        if (lives)
            atomic_fetch_add(&shared->read[reader], 1);
        last = frame.number;
        check(client, gpubuf_stream_done(stream, &frame, NULL), "stream_done");
        if (lives && atomic_load(&shared->read[reader]) >= frames_wanted)
            break;
        if (!each)
            nap(draw(&random) % NAP_NS);
    }
    gpubuf_stream_close(stream);
    gpubuf_disconnect(client);
}

/* Process 0 writes, the others read. */
static pid_t begin(unsigned i)
{
    pid_t pid = fork_child();

    if (pid > 0)
        return pid;
    if (i == 0)
        write_frames();
    else
        read_frames(i - 1);
    _exit(0);
}

/* Kills one after the other, and begins another in its place, until the readers that live have all
   frames. Returns how many it has killed. */
static unsigned kill_on(pid_t *pids, unsigned readers, double end)
{
    unsigned kills = 0, left = LIVING;
    uint64_t random = 1;
    int status;

    while (left > 0) {
        nap(KILL_EVERY_NS);
        if (now() > end)
            die("time is over: %llu frames were published",
                (unsigned long long)atomic_load(&shared->published));
        for (unsigned i = 1; i <= LIVING; i++)
            if (pids[i] && waitpid(pids[i], &status, WNOHANG) == pids[i]) {
                if (status != 0)
                    die("reader %u has failed", i);
                pids[i] = 0;
                left--;
            }
        uint64_t drawn = draw(&random) % (readers - LIVING + 1);
        unsigned i = drawn == 0 ? 0 : LIVING + (unsigned)drawn;
        kill(pids[i], SIGKILL);
        if (waitpid(pids[i], &status, 0) != pids[i] || !WIFSIGNALED(status))
            die("process %u has failed", i);
        pids[i] = begin(i);
        kills++;
    }
    return kills;
}

int main(int argc, char **argv)
{
    pid_t pids[1 + MOST] = {0};
    unsigned readers = argc == 4 ? (unsigned)atoi(argv[3]) : 0;

    if (argc != 4 || readers <= LIVING || readers > MOST) {
        fprintf(stderr, "usage: bench_stream_kills SOCKET FRAMES READERS (%u to %u)\n", LIVING + 1,
                MOST);
        return 2;
    }
    socket_path = argv[1];
    frames_wanted = strtoull(argv[2], NULL, 10);
    shared = allocate_shared(sizeof(*shared));
    double start = now();
    for (unsigned i = 0; i <= readers; i++)
        pids[i] = begin(i);
    unsigned kills = kill_on(pids, readers, start + MOST_SECONDS);
    atomic_store(&shared->enough, 1);
    for (unsigned i = 0; i <= readers; i++)
        if (pids[i] && waitpid(pids[i], NULL, 0) != pids[i])
            die("%s", strerror(errno));
    printf("{\"frames\":%llu,\"readers\":%u,\"writers\":%u,\"kills\":%u,\"torn\":%llu,"
           "\"missed\":%llu,\"seconds\":%.1f}\n",
           (unsigned long long)atomic_load(&shared->published), readers,
           atomic_load(&shared->joined), kills, (unsigned long long)atomic_load(&shared->torn),
           (unsigned long long)atomic_load(&shared->missed), now() - start);
    return atomic_load(&shared->torn) || atomic_load(&shared->missed);
}
