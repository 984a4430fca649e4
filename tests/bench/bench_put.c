/*
 * How fast bytes are published: gpubuf_put_bytes of 256 MiB against a plain memcpy of as many.
 * Cold: into a segment that was never touched, against memory fresh from malloc; the pages come
 * from the kernel, zeroed, while it copies. Warm: into a segment that an object which has since
 * been deleted used before, against memory that was written before.
 */
#include <malloc.h>

#include "measure.h"

#define NAME "put/bytes"
#define COLD_ROUNDS 7
#define WARM_ROUNDS 15

static const size_t bytes = (size_t)256 << 20;

struct bench {
    struct gpubuf_client *client;
    struct raw raw;
    char *source;
};

/* Gives every unused segment back, so that the next object gets a fresh one. */
static void forget_segments(struct bench *bench)
{
    raw_call(&bench->raw, "trim", "{}");
}

static double put(struct bench *bench)
{
    double start = now();
    int r = gpubuf_put_bytes(bench->client, NAME, bench->source, bytes, NULL);
    double taken = now() - start;

    check(bench->client, r, "put");
    check(bench->client, gpubuf_delete(bench->client, NAME), "delete");
    return taken;
}

/* A barrier for the compiler, lest it drops a copy that nobody reads. */
static double copy(void *to, const void *from)
{
    double start = now();

    memcpy(to, from, bytes);
    __asm__ volatile("" : : "r"(to) : "memory");
    return now() - start;
}

static double copy_fresh(const struct bench *bench)
{
    char *memory = malloc(bytes);
    double taken;

    if (!memory)
        die("out of memory");
    taken = copy(memory, bench->source);
    free(memory);
    return taken;
}

static void measure(struct bench *bench, bool cold, unsigned rounds)
{
    struct compared compared = {0};
    char *touched = cold ? NULL : allocate(1, bytes);

    if (touched)
        memset(touched, 1, bytes);
    put(bench);
    for (unsigned round = 0; round < rounds; round++) {
        double copied, done;

        if (cold)
            forget_segments(bench);
        copied = cold ? copy_fresh(bench) : copy(touched, bench->source);
        done = put(bench);
        compared_add(&compared, (double)bytes / done * 1e-9, (double)bytes / copied * 1e-9,
                     copied / done);
    }
    free(touched);
    print_compared(cold ? "put.cold.256mib" : "put.warm.256mib", "GB/s", &compared, NULL);
}

int main(int argc, char **argv)
{
    struct options options = read_options(argc, argv);
    struct bench bench = {.client = connect_to(options.socket)};

    mallopt(M_MMAP_THRESHOLD, 64 << 10); /* what malloc gives is fresh from the kernel */
    bench.source = allocate(1, bytes);
    memset(bench.source, 7, bytes);
    raw_open(&bench.raw, options.socket);
    measure(&bench, true, options.quick ? 3 : COLD_ROUNDS);
    measure(&bench, false, options.quick ? 5 : WARM_ROUNDS);
    gpubuf_disconnect(bench.client);
    raw_close(&bench.raw);
    free(bench.source);
    return 0;
}
