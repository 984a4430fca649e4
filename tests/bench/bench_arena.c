/*
 * How well and how fast the arena places objects. Replays a million operations: half a million
 * objects of 1 KiB to 256 MiB, log-uniform, whose lifetimes follow Zipf's law (the chance to live
 * for more than n further objects is proportional to 1/n, from LIFE_MIN on). Segments are added as
 * the daemon does it, doubling from 2 MiB to 1 GiB, whenever nothing fits, and kept.
 *
 * Prints one line of JSON:
 *   waste          the part of the occupied bytes that nobody asked for (mean over the run)
 *   fragmentation  the part of all segments that was free when most was in use
 *   ns_per_op      processor time of one alloc or free, adding segments included (best of RUNS)
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "daemon/arena.h"

enum { OBJECTS = 500000, OPERATIONS = 2 * OBJECTS, LIFE_MIN = 256, RUNS = 5 };

static const double size_min = 1024.0, size_max = 268435456.0;
static const uint64_t segment_min = UINT64_C(2) << 20, segment_max = UINT64_C(1) << 30;

struct object {
    struct gb_range *range;
    uint64_t bytes;
    uint32_t next; /* of those that die at the same time, plus one */
};

struct mix {
    struct object *objects;
    int32_t *operations; /* i: allocate object i; -1 - i: free it */
};

/* SplitMix64, as a number from 0 to just below 1. */
static double draw(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return (double)(x >> 11) * 0x1p-53;
}

/* Draws sizes and lifetimes, and puts all births and deaths in order. False if memory is out. */
static bool make_mix(struct mix *mix)
{
    uint32_t *dying = calloc(OBJECTS + 1, sizeof *dying); /* heads of lists by time, plus one */
    uint64_t state = 1;
    size_t count = 0;

    mix->objects = calloc(OBJECTS, sizeof *mix->objects);
    mix->operations = calloc(OPERATIONS, sizeof *mix->operations);
    if (!dying || !mix->objects || !mix->operations) {
        free(dying);
        return false;
    }
    for (uint32_t now = 0; now <= OBJECTS; now++) {
        double life, death;

        for (uint32_t i = dying[now]; i; i = mix->objects[i - 1].next)
            mix->operations[count++] = -(int32_t)i;
        if (now == OBJECTS)
            break;
        mix->operations[count++] = (int32_t)now;
        mix->objects[now].bytes = (uint64_t)(size_min * pow(size_max / size_min, draw(&state)));
        life = LIFE_MIN / (1.0 - draw(&state));
        death = fmin(floor(now + life), OBJECTS);
        mix->objects[now].next = dying[(uint32_t)death];
        dying[(uint32_t)death] = now + 1;
    }
    free(dying);
    return count == OPERATIONS;
}

static bool grow(struct gb_arena *arena, uint64_t *segment, uint64_t bytes)
{
    while (*segment < bytes)
        *segment *= 2;
    if (!gb_arena_add(arena, *segment, NULL))
        return false;
    if (*segment < segment_max)
        *segment *= 2;
    return true;
}

struct quality {
    double waste; /* summed up over the objects placed */
    uint64_t most_used, requested;
};

static void observe(struct quality *quality, const struct gb_arena *arena)
{
    struct gb_arena_stats stats;

    gb_arena_stats(arena, &stats);
    if (stats.used > quality->most_used)
        quality->most_used = stats.used;
    quality->waste += 1.0 - (double)quality->requested / (double)stats.used;
}

/* Runs all operations; with `quality`, slower, looks at the arena after each allocation. */
static bool replay(const struct mix *mix, struct gb_arena *arena, struct quality *quality)
{
    uint64_t segment = segment_min;

    for (size_t i = 0; i < OPERATIONS; i++) {
        int32_t operation = mix->operations[i];
        struct object *object = &mix->objects[operation < 0 ? -1 - operation : operation];
        int result;

        if (operation < 0) {
            gb_range_free(arena, object->range);
            if (quality)
                quality->requested -= object->bytes;
            continue;
        }
        while ((result = gb_arena_alloc(arena, object->bytes, &object->range)))
            if (result < 0 || !grow(arena, &segment, object->bytes))
                return false;
        if (quality) {
            quality->requested += object->bytes;
            observe(quality, arena);
        }
    }
    return true;
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool bench(const struct mix *mix)
{
    struct quality quality = {0};
    struct gb_arena_stats stats;
    double best = INFINITY;

    for (int run = 0; run <= RUNS; run++) {
        struct gb_arena *arena = gb_arena_new();
        double start = seconds(), taken;

        if (!arena || !replay(mix, arena, run ? NULL : &quality)) {
            gb_arena_free(arena);
            return false;
        }
        taken = seconds() - start;
        if (run && taken < best)
            best = taken;
        gb_arena_stats(arena, &stats);
        gb_arena_free(arena);
    }
    printf("{\"waste\":%.6f,\"fragmentation\":%.4f,\"ns_per_op\":%.1f}\n", quality.waste / OBJECTS,
           1.0 - (double)quality.most_used / (double)stats.bytes, best * 1e9 / OPERATIONS);
    return true;
}

int main(void)
{
    struct mix mix = {0};
    bool fine = make_mix(&mix) && bench(&mix);

    free(mix.objects);
    free(mix.operations);
    if (!fine)
        fputs("bench_arena: out of memory\n", stderr);
    return fine ? EXIT_SUCCESS : EXIT_FAILURE;
}
