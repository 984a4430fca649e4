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

/* A request and its reply; segments that are asked back meanwhile are given back. */
static char *ask(struct raw *raw, const char *method, const char *params)
{
    char text[512], *line;
    size_t length;
    int written = snprintf(text, sizeof(text),
                           "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":%s}\n",
                           method, params);

    raw_send(raw, text, (size_t)written);
    for (;;) {
        line = raw_line(raw, &length);
        if (strstr(line, "\"id\":1,"))
            return line;
        if (strstr(line, "\"segments.retire\"")) {
            written = snprintf(text, sizeof(text),
                               "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"unmap\",\"params\":%s\n",
                               strstr(line, "{\"segments\""));
            raw_send(raw, text, (size_t)written);
        }
    }
}

/* The same, which has to succeed. */
static char *demand(struct raw *raw, const char *method, const char *params)
{
    char *line = ask(raw, method, params);

    if (strstr(line, "\"error\":{"))
        die("%s: %s", method, line);
    return line;
}

static void daemon_create(struct raw *raw, uint32_t name, uint64_t bytes)
{
    char params[256];

    snprintf(params, sizeof(params),
             "{\"name\":\"t/%u\",\"layout\":{\"kind\":\"bytes\",\"bytes\":%" PRIu64
             "},\"replace\":true,\"evict\":\"drop\"}",
             name, bytes);
    snprintf(params, sizeof(params), "{\"lease\":%" PRIu64 ",\"release\":true}",
             raw_number(demand(raw, "create", params), "lease"));
    demand(raw, "seal", params);
}

static bool found(const char *line)
{
    if (!strstr(line, "\"error\":{"))
        return true;
    if (!strstr(line, "\"not_found\""))
        die("%s", line);
    return false;
}

static bool daemon_has(struct raw *raw, const char *method, uint32_t name, char **line)
{
    char params[64];

    snprintf(params, sizeof(params), "{\"name\":\"t/%u\"}", name);
    *line = ask(raw, method, params);
    return found(*line);
}

static bool daemon_open(struct raw *raw, uint32_t name)
{
    char params[64], *line;

    if (!daemon_has(raw, "open", name, &line))
        return false;
    snprintf(params, sizeof(params), "{\"lease\":%" PRIu64 "}", raw_number(line, "lease"));
    demand(raw, "release", params);
    return true;
}

/* ---- a client that keeps leases ---- */

static void kept_create(struct gpubuf_client *client, const char *name, uint64_t bytes)
{
    const struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = bytes};
    const struct gpubuf_create_options options = {
        .size = sizeof(options), .replace = true, .evict = GPUBUF_EVICT_DROP};
    struct gpubuf_object *object = NULL;

    check(client, gpubuf_create(client, name, &layout, &options, &object), "create");
    check(client, gpubuf_seal(object, NULL), "seal");
    gpubuf_release(object);
}

static bool kept_open(struct gpubuf_client *client, const char *name)
{
    struct gpubuf_object *object = NULL;
    int r = gpubuf_open(client, name, NULL, &object);

    if (r != GPUBUF_E_NOT_FOUND)
        check(client, r, "open");
    gpubuf_release(object);
    return r == 0;
}

/* ---- both ---- */

struct bench {
    struct raw raw;
    struct gpubuf_client *client; /* in place of it, if it is to keep leases; else NULL */
    struct lru lru;
    struct object *objects;
    struct cache cache;
    uint64_t opens, hits, cache_hits;
};

static void ours_create(struct bench *bench, uint32_t number, uint64_t bytes)
{
    char name[32];

    snprintf(name, sizeof(name), "t/%u", number);
    if (bench->client)
        kept_create(bench->client, name, bytes);
    else
        daemon_create(&bench->raw, number, bytes);
}

static bool ours_open(struct bench *bench, uint32_t number)
{
    char name[32];

    snprintf(name, sizeof(name), "t/%u", number);
    return bench->client ? kept_open(bench->client, name) : daemon_open(&bench->raw, number);
}

static void replay_one(struct bench *bench, const struct trace_operation *operation)
{
    struct object *object = &bench->objects[operation->name];
    char params[64];

    switch (operation->what) {
    case TRACE_CREATE:
        object->bytes = operation->bytes;
        lru_create(&bench->lru, object, object->bytes);
        cache_create(&bench->cache, operation->name, object->bytes);
        ours_create(bench, operation->name, object->bytes);
        break;
    case TRACE_OPEN:
        bench->opens++;
        if (!lru_open(&bench->lru, object))
            lru_create(&bench->lru, object, object->bytes);
        if (cache_open(&bench->cache, operation->name))
            bench->cache_hits++;
        else
            cache_create(&bench->cache, operation->name, object->bytes);
        if (ours_open(bench, operation->name))
            bench->hits++;
        else
            ours_create(bench, operation->name, object->bytes);
        break;
    case TRACE_DELETE:
        lru_remove(&bench->lru, object);
        cache_drop(&bench->cache, operation->name);
        snprintf(params, sizeof(params), "{\"name\":\"t/%u\"}", operation->name);
        found(ask(&bench->raw, "delete", params));
        break;
    case TRACE_RELEASE: /* has been */
        break;
    }
}

static void begin(struct bench *bench, const struct trace *trace, const char *path)
{
    memset(bench, 0, sizeof(*bench));
    raw_open(&bench->raw, path);
    bench->objects = allocate(trace->names, sizeof(*bench->objects));
    gb_list_init(&bench->lru.recency);
    bench->lru.capacity = raw_number(demand(&bench->raw, "stats", "{}"), "capacity");
    cache_begin(&bench->cache, bench->lru.capacity, trace->names);
}

/* Leaves the daemon empty. */
static void end(struct bench *bench, const struct trace *trace)
{
    char params[64];

    for (size_t i = 0; i < trace->names; i++) {
        snprintf(params, sizeof(params), "{\"name\":\"t/%zu\"}", i);
        found(ask(&bench->raw, "delete", params));
    }
    cache_end(&bench->cache);
    raw_close(&bench->raw);
    free(bench->objects);
}

/* How many objects are not where they are by the exact order. */
static size_t count_different(struct bench *bench, const struct trace *trace)
{
    size_t differ = 0;
    char *line;

    for (size_t i = 0; i < trace->names; i++)
        differ += daemon_has(&bench->raw, "stat", (uint32_t)i, &line) !=
                  (bench->cache.objects[i].storage != NULL);
    return differ;
}

static void print_hits(const struct bench *bench, const char *what, uint64_t of, const char *note)
{
    struct series ours = {0}, theirs = {0}, ratio = {0};
    char id[64];

    series_add(&ours, 100.0 * (double)bench->hits / (double)bench->opens);
    series_add(&theirs, 100.0 * (double)of / (double)bench->opens);
    series_add(&ratio, (double)bench->hits / (double)of);
    snprintf(id, sizeof(id), "trace%s.%" PRIu64, what, bench->lru.capacity >> 20);
    print_row(&(struct row){id, "%", &ours, &theirs, &ratio, note});
}

static void replay_exactly(const struct trace *trace, const char *path)
{
    struct bench bench;
    size_t differ;
    char note[160];

    begin(&bench, trace, path);
    for (size_t i = 0; i < trace->count; i++)
        replay_one(&bench, &trace->operations[i]);
    differ = count_different(&bench, trace);
    if (differ > 0 || bench.hits != bench.cache_hits)
        die("%" PRIu64 " hits, but %" PRIu64 " by exact LRU; %zu objects are not those that should "
            "be there",
            bench.hits, bench.cache_hits, differ);
    snprintf(note, sizeof(note),
             "%" PRIu64 " hits of %" PRIu64 "; LRU without holes %" PRIu64 ", with holes %" PRIu64,
             bench.hits, bench.opens, bench.lru.hits, bench.cache_hits);
    print_hits(&bench, "", bench.lru.hits, note);
    end(&bench, trace);
}

static void replay_kept(const struct trace *trace, const char *path)
{
    const struct gpubuf_connect_options options = {.size = sizeof(options), .path = path};
    struct bench bench;
    double begun = now();
    char note[160];

    begin(&bench, trace, path);
    check(NULL, gpubuf_connect(&bench.client, &options), "connect");
    for (size_t i = 0; i < trace->count; i++)
        replay_one(&bench, &trace->operations[i]);
    snprintf(note, sizeof(note),
             "%" PRIu64 " hits of %" PRIu64 "; exact order %" PRIu64
             "; %zu objects differ at the end; %.1f s",
             bench.hits, bench.opens, bench.cache_hits, count_different(&bench, trace),
             now() - begun);
    print_hits(&bench, ".kept", bench.cache_hits, note);
    gpubuf_disconnect(bench.client);
    end(&bench, trace);
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
