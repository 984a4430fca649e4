/*
 * The hit rate of the daemon as a cache, against a textbook LRU: a recorded trace is replayed
 * against a daemon whose device holds a part of it, and what an open does not find is created
 * again, as who uses a cache would. Every lease ends before the next operation.
 *
 *     zcat tests/bench/traces/dashboard.txt.gz >TRACE
 *     bench_trace SOCKET TRACE [--quick]
 *
 * The LRU holds as many bytes as the device, counts for an object what it occupies there, and lets
 * the least recently used go until there are bytes enough: as if memory had no holes. A third cache
 * tells the cost of holes apart: one which lets the least recently used go until the daemon's store
 * can place the object (cache.h). The daemon must have just the hits of that one, or its order is
 * not exact: the bench fails.
 */
#include <inttypes.h>

#include "cache.h"
#include "measure.h"
#include "trace.h"

#define GRANULE 256u /* objects occupy multiples of it */

/* ---- the textbook's ---- */

struct object {
    struct gb_link recent; /* linked while it is in the cache */
    uint64_t bytes, occupied;
};

struct lru {
    struct gb_link recency; /* the least recently used first */
    uint64_t capacity, used, hits;
};

static void lru_remove(struct lru *lru, struct object *object)
{
    if (!gb_list_linked(&object->recent))
        return;
    gb_list_remove(&object->recent);
    lru->used -= object->occupied;
}

/* A former version is there until the new one takes its place. */
static void lru_create(struct lru *lru, struct object *object, uint64_t bytes)
{
    uint64_t occupied = (bytes + GRANULE - 1) / GRANULE * GRANULE;

    while (lru->used + occupied > lru->capacity)
        lru_remove(lru, GB_CONTAINER(lru->recency.next, struct object, recent));
    lru_remove(lru, object);
    object->occupied = occupied;
    lru->used += occupied;
    gb_list_append(&lru->recency, &object->recent);
}

static bool lru_open(struct lru *lru, struct object *object)
{
    if (!gb_list_linked(&object->recent))
        return false;
    gb_list_remove(&object->recent);
    gb_list_append(&lru->recency, &object->recent);
    lru->hits++;
    return true;
}

/* ---- the daemon's ---- */

static void ours_create(struct gpubuf_client *client, const char *name, uint64_t bytes)
{
    const struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = bytes};
    const struct gpubuf_create_options options = {
        .size = sizeof(options), .replace = true, .evict = GPUBUF_EVICT_DROP};
    struct gpubuf_object *object = NULL;

    check(client, gpubuf_create(client, name, &layout, &options, &object), "create");
    check(client, gpubuf_seal(object, NULL), "seal");
    gpubuf_release(object);
}

/* Whether it is there. */
static bool found(struct gpubuf_client *client, int r)
{
    if (r != GPUBUF_E_NOT_FOUND)
        check(client, r, "asking for an object");
    return r == 0;
}

static bool ours_open(struct gpubuf_client *client, const char *name)
{
    struct gpubuf_object *object = NULL;
    bool is_there = found(client, gpubuf_open(client, name, NULL, &object));

    gpubuf_release(object);
    return is_there;
}

/* ---- both ---- */

struct bench {
    struct gpubuf_client *client;
    struct lru lru;
    struct object *objects;
    struct cache cache;
    uint64_t opens, hits, cache_hits;
};

static void replay_one(struct bench *bench, const struct trace_operation *operation)
{
    struct object *object = &bench->objects[operation->name];
    char name[32];

    snprintf(name, sizeof(name), "t/%u", operation->name);
    switch (operation->what) {
    case TRACE_CREATE:
        object->bytes = operation->bytes;
        lru_create(&bench->lru, object, object->bytes);
        cache_create(&bench->cache, operation->name, object->bytes);
        ours_create(bench->client, name, object->bytes);
        break;
    case TRACE_OPEN:
        bench->opens++;
        if (!lru_open(&bench->lru, object))
            lru_create(&bench->lru, object, object->bytes);
        if (cache_open(&bench->cache, operation->name))
            bench->cache_hits++;
        else
            cache_create(&bench->cache, operation->name, object->bytes);
        if (ours_open(bench->client, name))
            bench->hits++;
        else
            ours_create(bench->client, name, object->bytes);
        break;
    case TRACE_DELETE:
        lru_remove(&bench->lru, object);
        cache_drop(&bench->cache, operation->name);
        found(bench->client, gpubuf_delete(bench->client, name));
        break;
    case TRACE_RELEASE: /* has been */
        break;
    }
}

/* Replays all of it, and leaves the daemon empty; how many objects are not where they are by the
   exact order. */
static size_t replay(struct bench *bench, const struct trace *trace)
{
    size_t differ = 0;
    char name[32], *stats;

    check(bench->client, gpubuf_call(bench->client, "stats", NULL, -1, &stats), "stats");
    bench->lru.capacity = raw_number(stats, "capacity");
    gpubuf_free(stats);
    bench->objects = allocate(trace->names, sizeof(*bench->objects));
    gb_list_init(&bench->lru.recency);
    cache_begin(&bench->cache, bench->lru.capacity, trace->names);
    for (size_t i = 0; i < trace->count; i++)
        replay_one(bench, &trace->operations[i]);
    for (size_t i = 0; i < trace->names; i++) {
        snprintf(name, sizeof(name), "t/%zu", i);
        differ += found(bench->client, gpubuf_delete(bench->client, name)) !=
                  (bench->cache.objects[i].storage != NULL);
    }
    cache_end(&bench->cache);
    gpubuf_disconnect(bench->client);
    free(bench->objects);
    return differ;
}

static void print_hits(const struct bench *bench, const char *what, uint64_t of, const char *note)
{
    struct compared compared = {0};
    double opens = (double)bench->opens / 100, hits = (double)bench->hits;
    char id[64];

    compared_add(&compared, hits / opens, (double)of / opens, hits / (double)of);
    snprintf(id, sizeof(id), "trace%s.%" PRIu64, what, bench->lru.capacity >> 20);
    print_compared(id, "%", &compared, note);
}

static void replay_exactly(const struct trace *trace, const char *path)
{
    struct bench bench = {.client = connect_uncached(path)};
    size_t differ = replay(&bench, trace);
    char note[160];

    if (differ > 0 || bench.hits != bench.cache_hits)
        die("%" PRIu64 " hits, but %" PRIu64 " by exact LRU; %zu objects are not those that should "
            "be there",
            bench.hits, bench.cache_hits, differ);
    snprintf(note, sizeof(note),
             "%" PRIu64 " hits of %" PRIu64 "; LRU without holes %" PRIu64 ", with holes %" PRIu64,
             bench.hits, bench.opens, bench.lru.hits, bench.cache_hits);
    print_hits(&bench, "", bench.lru.hits, note);
}

static void replay_kept(const struct trace *trace, const char *path)
{
    struct bench bench = {.client = connect_to(path)};
    size_t differ = replay(&bench, trace);
    char note[160];

    snprintf(note, sizeof(note),
             "%" PRIu64 " hits of %" PRIu64 "; exact order %" PRIu64
             "; %zu objects differ at the end",
             bench.hits, bench.opens, bench.cache_hits, differ);
    print_hits(&bench, ".kept", bench.cache_hits, note);
}

int main(int argc, char **argv)
{
    struct trace trace;

    if (argc < 3) {
        fprintf(stderr, "usage: bench_trace SOCKET TRACE [--quick]\n");
        return 2;
    }
    trace_read(&trace, argv[2]);
    replay_exactly(&trace, argv[1]);
    replay_kept(&trace, argv[1]);
    trace_end(&trace);
    return 0;
}
