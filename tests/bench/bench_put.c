/*
 * How fast bytes are published: gpubuf_put_bytes of 1, 16 and 256 MiB against a plain memcpy of as
 * many. Cold: into a segment that was never touched, against memory fresh from malloc; the pages
 * come from the kernel, zeroed, while it copies. Warm: into a segment that an object which has
 * since been deleted used before, against memory that was written before.
 */
#include <malloc.h>

#include "measure.h"

#define NAME "put/bytes"
#define COLD_ROUNDS 7
#define WARM_ROUNDS 15

static const unsigned sizes[] = {1, 16, 256}; /* MiB */

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

static double put(struct bench *bench, size_t bytes)
{
    double start = now();
    int r = gpubuf_put_bytes(bench->client, NAME, bench->source, bytes, NULL);
    double taken = now() - start;

    check(bench->client, r, "put");
    check(bench->client, gpubuf_delete(bench->client, NAME), "delete");
    return taken;
}

/* A barrier for the compiler, lest it drops a copy that nobody reads. */
static double copy(void *to, const void *from, size_t bytes)
{
    double start = now();

    memcpy(to, from, bytes);
    __asm__ volatile("" : : "r"(to) : "memory");
    return now() - start;
}

static double copy_fresh(const struct bench *bench, size_t bytes)
{
    char *memory = malloc(bytes);
    double taken;

    if (!memory)
        die("out of memory");
    taken = copy(memory, bench->source, bytes);
    free(memory);
    return taken;
}

static void measure(struct bench *bench, unsigned mib, bool cold, unsigned rounds)
{
    struct series speed = {0}, floors = {0}, ratios = {0};
    size_t bytes = (size_t)mib << 20;
    char *touched = cold ? NULL : allocate(1, bytes);
    char id[NAME_BYTES];

    if (touched)
        memset(touched, 1, bytes);
    put(bench, bytes);
    for (unsigned round = 0; round < rounds; round++) {
        double copied, done;

        if (cold)
            forget_segments(bench);
        copied = cold ? copy_fresh(bench, bytes) : copy(touched, bench->source, bytes);
        done = put(bench, bytes);
        series_add(&speed, (double)bytes / done * 1e-9);
        series_add(&floors, (double)bytes / copied * 1e-9);
        series_add(&ratios, copied / done);
    }
    free(touched);
    snprintf(id, sizeof(id), "put.%s.%umib", cold ? "cold" : "warm", mib);
    print_row(&(struct row){id, "GB/s", &speed, &floors, &ratios, NULL});
}

int main(int argc, char **argv)
{
    struct options options = read_options(argc, argv);
    /* No idle mappings are kept but the one under measurement. */
    struct gpubuf_connect_options connect = {.size = sizeof(connect), .path = options.socket};
    struct bench bench = {.source = NULL};
    size_t most = (size_t)256 << 20;

    mallopt(M_MMAP_THRESHOLD, 64 << 10); /* what malloc gives is fresh from the kernel */
    bench.source = allocate(1, most);
    memset(bench.source, 7, most);
    raw_open(&bench.raw, options.socket);
    check(NULL, gpubuf_connect(&bench.client, &connect), "connect");
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        unsigned faster = sizes[i] < 256 ? 4 : 1;

        measure(&bench, sizes[i], true, (options.quick ? 3 : COLD_ROUNDS) * faster);
        measure(&bench, sizes[i], false, (options.quick ? 5 : WARM_ROUNDS) * faster);
    }
    gpubuf_disconnect(bench.client);
    raw_close(&bench.raw);
    free(bench.source);
    return 0;
}
