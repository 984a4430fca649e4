/*
 * How well and how fast memory is placed: the daemon's store, with its arenas, its doubling shared
 * segments, its segments for large objects, and its spares, over a device that makes nothing.
 *
 *     bench_arena [TRACE]
 *
 * The mix is a million operations: half a million objects of 1 KiB to 256 MiB, log-uniform, whose
 * lifetimes follow Zipf's law (the chance to live for more than n further objects is proportional
 * to 1/n, from LIFE_MIN on), on a device of 80 GiB, where all of it fits, and on one of 16 GiB,
 * where it does not: then the least recently used objects go until there is room, as in the daemon.
 * The latter once more with the larger segments that a GPU has.
 * A trace (trace.h) is replayed on a device that holds a good part of it.
 *
 * Prints a line of JSON for each:
 *   waste          bytes that objects occupy and nobody asked for, of those asked for (mean of all
 *                  moments after a creation)
 *   ns_per_op      processor time of one creation or deletion, with evictions (best of RUNS)
 */
#include <math.h>

#include "cache.h"
#include "measure.h"
#include "trace.h"

enum { OBJECTS = 500000, LIFE_MIN = 256, RUNS = 5 };

#define GIB ((uint64_t)1 << 30)
#define TRACE_CAPACITY ((uint64_t)64 << 20)

static const double size_min = 1024.0, size_max = 268435456.0;

/* ---- workloads ---- */

enum what { CREATE, OPEN, DELETE };

struct operation {
    uint32_t what, object;
    uint64_t bytes; /* CREATE */
};

struct workload {
    const char *name;
    uint64_t capacity; /* of the device */
    bool gpu;
    struct operation *operations;
    size_t count, room, objects;
};

static void add(struct workload *workload, enum what what, uint32_t object, uint64_t bytes)
{
    if (workload->count == workload->room) {
        workload->room = workload->room ? workload->room * 2 : 4096;
        workload->operations =
            realloc(workload->operations, workload->room * sizeof(*workload->operations));
        if (!workload->operations)
            die("out of memory");
    }
    workload->operations[workload->count++] = (struct operation){what, object, bytes};
    if (object >= workload->objects)
        workload->objects = object + 1;
}

/* From 0 to just below 1. */
static double draw_part(uint64_t *state)
{
    return (double)(draw(state) >> 11) * 0x1p-53;
}

/* Draws sizes and lifetimes, and puts all births and deaths in order. */
static void make_mix(struct workload *mix)
{
    uint32_t *dying = allocate(OBJECTS + 1, sizeof *dying); /* heads of lists by time, plus one */
    uint32_t *next = allocate(OBJECTS, sizeof *next);       /* of those that die at the same time */
    uint64_t state = 1;

    for (uint32_t now = 0; now <= OBJECTS; now++) {
        double life, death;
        uint64_t bytes;

        for (uint32_t i = dying[now]; i; i = next[i - 1])
            add(mix, DELETE, i - 1, 0);
        if (now == OBJECTS)
            break;
        bytes = (uint64_t)(size_min * pow(size_max / size_min, draw_part(&state)));
        add(mix, CREATE, now, bytes);
        life = LIFE_MIN / (1.0 - draw_part(&state));
        death = fmin(floor(now + life), OBJECTS);
        next[now] = dying[(uint32_t)death];
        dying[(uint32_t)death] = now + 1;
    }
    free(dying);
    free(next);
}

/* The leases in it make no difference here. */
static void take_trace(struct workload *workload, const char *path)
{
    struct trace trace;

    trace_read(&trace, path);
    for (size_t i = 0; i < trace.count; i++) {
        const struct trace_operation *operation = &trace.operations[i];

        if (operation->what == TRACE_CREATE)
            add(workload, CREATE, operation->name, operation->bytes);
        if (operation->what == TRACE_OPEN)
            add(workload, OPEN, operation->name, 0);
        if (operation->what == TRACE_DELETE)
            add(workload, DELETE, operation->name, 0);
    }
    trace_end(&trace);
}

/* ---- running ---- */

struct waste {
    double sum; /* over the creations */
    size_t creations;
};

static void observe(struct waste *waste, const struct cache *cache)
{
    if (!cache->asked)
        return;
    waste->sum += (double)(cache->device.used - cache->asked) / (double)cache->asked;
    waste->creations++;
}

/* Runs all operations; with `waste`, slower, looks at the store after each creation. */
static void replay(const struct workload *workload, struct cache *cache, struct waste *waste)
{
    for (size_t i = 0; i < workload->count; i++) {
        const struct operation *operation = &workload->operations[i];

        if (operation->what == DELETE) {
            cache_drop(cache, operation->object);
            continue;
        }
        if (operation->what == OPEN && cache_open(cache, operation->object))
            continue;
        cache_create(cache, operation->object,
                     operation->what == CREATE ? operation->bytes
                                               : cache->objects[operation->object].bytes);
        if (waste)
            observe(waste, cache);
    }
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void bench(const struct workload *workload)
{
    struct waste waste = {0};
    struct cache cache;
    double best = INFINITY;

    for (int run = 0; run <= RUNS; run++) {
        double start, taken;

        cache_begin(&cache, workload->capacity, workload->objects);
        cache.device.can_block = workload->gpu;
        start = seconds();
        replay(workload, &cache, run ? NULL : &waste);
        taken = (seconds() - start) / (double)cache.changes;
        if (run && taken < best)
            best = taken;
        cache_end(&cache);
    }
    printf("{\"workload\":\"%s\",\"waste\":%.6f,\"ns_per_op\":%.1f}\n", workload->name,
           waste.sum / (double)waste.creations, best * 1e9);
}

int main(int argc, char **argv)
{
    struct workload mix = {.name = "mix", .capacity = 80 * GIB};
    struct workload trace = {.name = "trace", .capacity = TRACE_CAPACITY};

    make_mix(&mix);
    bench(&mix);
    mix.name = "mix_full";
    mix.capacity = 16 * GIB;
    bench(&mix);
    mix.name = "mix_gpu";
    mix.gpu = true;
    bench(&mix);
    free(mix.operations);
    if (argc > 1) {
        take_trace(&trace, argv[1]);
        bench(&trace);
        free(trace.operations);
    }
    return EXIT_SUCCESS;
}
