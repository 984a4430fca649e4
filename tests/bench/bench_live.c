/*
 * How long live memory on the host has no writer: from the SIGKILL of a process that writes it
 * again and again to the first write of the next one, which waits for its claim. In each round many
 * are killed, one after the other; the rows are the median and the 99th percentile of rounds, and
 * the note has the distribution of all. A writer that wrote after its successor's claim, or a
 * generation that does not follow, ends the program.
 */
#include <stdatomic.h>

#include "measure.h"

#define NAME "live/pool"
#define WORDS 64 /* one for each writer, by its generation */
#define ROUNDS 5
#define KILLS 240
#define PATIENCE 30.0

/* Told by a writer, in memory that it shares with the bench. */
struct told {
    _Atomic bool asks;
    _Atomic uint64_t generation; /* 0: it waits */
    double first;                /* when it had written for the first time */
    uint64_t found;              /* in the word of the writer before it */
};

struct writer {
    pid_t pid;
    struct told *told;
};

static struct options options;

static _Atomic uint64_t *words_of(struct gpubuf_object *object)
{
    struct gpubuf_memory memory;

    check(NULL, gpubuf_memory(object, GPUBUF_DATA, &memory), "memory");
    return memory.pointer;
}

/* Claims, and writes until it is killed, with pauses: other processes are to run as well. */
static void write_always(struct told *told)
{
    const struct gpubuf_open_options claim = {
        .size = sizeof(claim), .write = true, .exclusive = true, .wait_ms = 60000};
    struct gpubuf_client *client = connect_to(options.socket);
    struct gpubuf_object *object;

    atomic_store(&told->asks, true);
    check(client, gpubuf_open(client, NAME, &claim, &object), "claim");
    _Atomic uint64_t *words = words_of(object);
    uint64_t generation = gpubuf_generation(object);
    atomic_store(&words[generation % WORDS], 1);
    told->first = now();
    told->found = atomic_load(&words[(generation - 1) % WORDS]);
    atomic_store(&told->generation, generation);
    for (;; nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL))
        atomic_fetch_add(&words[generation % WORDS], 1);
}

static struct writer start(void)
{
    struct writer writer = {.told = allocate_shared(sizeof(*writer.told))};
    const struct timespec breath = {.tv_nsec = 3000000};

    writer.pid = fork_child();
    if (writer.pid == 0) {
        write_always(writer.told);
        _exit(1);
    }
    while (!atomic_load(&writer.told->asks))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    nanosleep(&breath, NULL); /* its request is with the daemon */
    return writer;
}

static void wait_for(const struct writer *writer)
{
    double end = now() + PATIENCE;

    while (!atomic_load(&writer->told->generation)) {
        if (now() > end)
            die("nobody has got the claim");
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

static void end(struct writer *writer)
{
    (void)kill(writer->pid, SIGKILL);
    (void)waitpid(writer->pid, NULL, 0);
    munmap(writer->told, sizeof(*writer->told));
}

/* Kills the holder; the milliseconds until the next one has written. */
static double take_over(struct writer *holder, const _Atomic uint64_t *words)
{
    struct writer next = start();
    uint64_t generation = atomic_load(&holder->told->generation);
    double begun = now();

    (void)kill(holder->pid, SIGKILL);
    wait_for(&next);
    if (atomic_load(&next.told->generation) != generation + 1)
        die("generation %llu follows %llu", (unsigned long long)atomic_load(&next.told->generation),
            (unsigned long long)generation);
    end(holder);
    if (atomic_load(&words[generation % WORDS]) != next.told->found)
        die("a writer wrote after its successor's claim");
    *holder = next;
    return 1e3 * (next.told->first - begun);
}

int main(int argc, char **argv)
{
    static double all[ROUNDS * KILLS];
    const struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = WORDS * 8};
    const struct gpubuf_create_options live = {
        .size = sizeof(live), .device = "host", .replace = true, .live = true};
    struct series median = {0}, late = {0};
    struct gpubuf_object *object;
    char note[160];
    size_t kills, count = 0;

    options = read_options(argc, argv);
    kills = options.quick ? KILLS / 6 : KILLS;
    struct gpubuf_client *client = connect_to(options.socket);
    check(client, gpubuf_create(client, NAME, &layout, &live, &object), "create");
    gpubuf_release(object);
    check(client, gpubuf_open(client, NAME, NULL, &object), "open");
    struct writer holder = start();
    wait_for(&holder);
    for (unsigned i = 0; i < ROUNDS; i++) {
        double *times = all + count;
        for (size_t k = 0; k < kills; k++)
            all[count++] = take_over(&holder, words_of(object));
        series_add(&median, percentile(times, kills, 0.5));
        series_add(&late, percentile(times, kills, 0.99));
    }
    end(&holder);
    double p50 = percentile(all, count, 0.5), p99 = percentile(all, count, 0.99);
    (void)snprintf(note, sizeof(note),
                   "%zu kills: p50 %.2f, p90 %.2f, p99 %.2f, p99.9 %.2f, max %.2f", count, p50,
                   percentile(all, count, 0.9), p99, percentile(all, count, 0.999), all[count - 1]);
    print_row(&(struct row){"live.takeover", "ms", &median, NULL, NULL, note});
    print_row(&(struct row){"live.takeover_p99", "ms", &late, NULL, NULL, NULL});
    gpubuf_release(object);
    gpubuf_disconnect(client);
    return 0;
}
