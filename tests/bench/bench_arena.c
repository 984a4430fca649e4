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
 * A trace (record_trace.py) is replayed on a device that holds a good part of it.
 *
 * Prints a line of JSON for each:
 *   waste          bytes that objects occupy and nobody asked for, of those asked for (mean of all
 *                  moments after a creation)
 *   fragmentation  bytes of segments that were in no object, of all bytes in segments: when most was
 *                  in use, or, where something had to go, whenever it had to (mean)
 *   ns_per_op      processor time of one creation or deletion, with evictions (best of RUNS)
 *   evicted        objects that had to go
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "daemon/store.h"

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
    struct operation *operations;
    size_t count, room, objects;
};

static void die(const char *why)
{
    fprintf(stderr, "bench_arena: %s\n", why);
    exit(EXIT_FAILURE);
}

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);

    if (!memory)
        die("out of memory");
    return memory;
}

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

/* SplitMix64, as a number from 0 to just below 1. */
static double draw(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return (double)(x >> 11) * 0x1p-53;
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
        bytes = (uint64_t)(size_min * pow(size_max / size_min, draw(&state)));
        add(mix, CREATE, now, bytes);
        life = LIFE_MIN / (1.0 - draw(&state));
        death = fmin(floor(now + life), OBJECTS);
        next[now] = dying[(uint32_t)death];
        dying[(uint32_t)death] = now + 1;
    }
    free(dying);
    free(next);
}

/* Lines `MS OP NAME [BYTES]`. */
static void read_trace(struct workload *trace, const char *path)
{
    FILE *file = fopen(path, "re");
    char line[128];

    if (!file)
        die("cannot read the trace");
    while (fgets(line, sizeof(line), file)) {
        unsigned long long bytes = 0;
        unsigned name;
        char what;

        if (*line == '#' || sscanf(line, "%*u %c %u %llu", &what, &name, &bytes) < 2)
            continue;
        if (what == 'c' || what == 'd')
            add(trace, what == 'c' ? CREATE : DELETE, name, bytes);
        if (what == 'o')
            add(trace, OPEN, name, 0);
    }
    fclose(file);
}

/* ---- a device that makes nothing ---- */

static int create_nothing(struct gb_device *device, enum gb_share share, uint64_t bytes,
                          struct gb_memory *memory, struct gb_error *error)
{
    (void)device;
    (void)share;
    (void)bytes;
    (void)error;
    *memory = (struct gb_memory){.write_fd = -1, .read_fd = -1};
    return 0;
}

static void destroy_nothing(struct gb_device *device, struct gb_memory *memory)
{
    (void)device;
    (void)memory;
}

static const struct gb_device_ops nothing = {.create = create_nothing, .destroy = destroy_nothing};

/* ---- running ---- */

struct object {
    struct gb_link recent; /* the least recently used first */
    struct gb_storage *storage;
    uint64_t bytes; /* asked for, the last time */
};

struct world {
    struct gb_device device;
    struct gb_store store;
    struct gb_user *user;
    struct gb_domain_key key;
    struct gb_link recency;
    struct object *objects;
    uint64_t asked; /* bytes of the objects that there are */
    size_t evicted, changes;
};

struct quality {
    double waste; /* summed up over the creations */
    size_t creations;
    double fragmentation; /* at the peak, or summed up over what had to go */
    uint64_t most_used;
    size_t full;
};

static void begin(struct world *world, const struct workload *workload)
{
    memset(world, 0, sizeof(*world));
    world->device = (struct gb_device){.ops = &nothing,
                                       .capacity = workload->capacity,
                                       .granularity = (uint64_t)2 << 20,
                                       .id = "nothing"};
    gb_store_init(&world->store);
    world->user = gb_user_get(&world->store.users, 0);
    world->key = (struct gb_domain_key){.device = &world->device, .mode = 0600};
    world->objects = allocate(workload->objects, sizeof(*world->objects));
    gb_list_init(&world->recency);
    if (!world->user)
        die("out of memory");
}

static void drop(struct world *world, struct object *object)
{
    if (!object->storage)
        return;
    gb_storage_unref(&world->store, object->storage);
    object->storage = NULL;
    gb_list_remove(&object->recent);
    world->asked -= object->bytes;
    world->changes++;
}

static void end(struct world *world, const struct workload *workload)
{
    for (size_t i = 0; i < workload->objects; i++)
        drop(world, &world->objects[i]);
    gb_store_clear(&world->store);
    gb_user_unref(world->user);
    gb_store_end(&world->store);
    free(world->objects);
}

static double share_in_no_object(const struct gb_device *device)
{
    return 1.0 - (double)device->used / (double)device->allocated;
}

static void create(struct world *world, struct object *object, struct quality *quality)
{
    struct gb_making_job *job;
    struct gb_error error;
    uint64_t shortfall;
    int r;

    while ((r = gb_store_place(&world->store, &world->key, world->user, object->bytes,
                               &object->storage, &shortfall, &job, &error)) == GB_PLACE_FULL) {
        if (quality) {
            quality->fragmentation += share_in_no_object(&world->device);
            quality->full++;
        }
        if (gb_list_empty(&world->recency))
            die("the store is full of nothing");
        drop(world, GB_CONTAINER(world->recency.next, struct object, recent));
        world->evicted++;
    }
    if (r < 0)
        die(error.message);
    gb_list_append(&world->recency, &object->recent);
    world->asked += object->bytes;
    world->changes++;
}

static void observe(struct quality *quality, const struct world *world)
{
    const struct gb_device *device = &world->device;

    if (world->asked) {
        quality->waste += (double)(device->used - world->asked) / (double)world->asked;
        quality->creations++;
    }
    if (device->used > quality->most_used) {
        quality->most_used = device->used;
        if (!quality->full)
            quality->fragmentation = share_in_no_object(device);
    }
}

/* Runs all operations; with `quality`, slower, looks at the store after each creation. */
static void replay(const struct workload *workload, struct world *world, struct quality *quality)
{
    for (size_t i = 0; i < workload->count; i++) {
        const struct operation *operation = &workload->operations[i];
        struct object *object = &world->objects[operation->object];

        if (operation->what == CREATE) {
            drop(world, object); /* replaced */
            object->bytes = operation->bytes;
        }
        if (operation->what == DELETE) {
            drop(world, object);
        } else if (object->storage) {
            gb_list_remove(&object->recent);
            gb_list_append(&world->recency, &object->recent);
        } else {
            create(world, object, quality);
            if (quality)
                observe(quality, world);
        }
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
    struct quality quality = {0};
    struct world world;
    double best = INFINITY;
    size_t evicted = 0;

    for (int run = 0; run <= RUNS; run++) {
        double start, taken;

        begin(&world, workload);
        start = seconds();
        replay(workload, &world, run ? NULL : &quality);
        taken = (seconds() - start) / (double)world.changes;
        if (run && taken < best)
            best = taken;
        evicted = world.evicted;
        end(&world, workload);
    }
    if (quality.full)
        quality.fragmentation /= (double)quality.full;
    printf("{\"workload\":\"%s\",\"waste\":%.6f,\"fragmentation\":%.4f,\"ns_per_op\":%.1f,"
           "\"evicted\":%zu}\n",
           workload->name, quality.waste / (double)quality.creations, quality.fragmentation,
           best * 1e9, evicted);
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
    free(mix.operations);
    if (argc > 1) {
        read_trace(&trace, argv[1]);
        bench(&trace);
        free(trace.operations);
    }
    return EXIT_SUCCESS;
}
