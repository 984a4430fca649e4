/*
 * Whether opening gets slower with the number of objects: random names out of a million (a hundred
 * thousand with --quick) against random names out of a thousand, in the same daemon. The thousand
 * are measured before the others are published and again after they have been deleted, and count
 * with both. As blocking open + release through libgpubuf, and all on one core, since where the
 * scheduler moves the processes makes more difference than what is asked.
 */
#include "measure.h"

#define PREFIX "scale"
#define FEW 1000
#define MANY 1000000
#define MANY_QUICK 100000
#define ROUNDS 41
#define ROUND_SECONDS 0.02
#define DELETE_BATCH 64

static const uint64_t seed = 42;

struct bench {
    struct gpubuf_client *client;
    struct raw raw;
    uint64_t *drawn; /* of the names, in order */
    uint64_t random;
    unsigned rounds;
};

static void any_name(struct bench *bench, char *name, size_t count)
{
    random_name(name, PREFIX, bench->drawn[draw(&bench->random) % count]);
}

static double round_blocking(struct bench *bench, size_t count)
{
    double start = now(), taken;
    unsigned calls = 0;

    do {
        struct gpubuf_object *object;
        char name[NAME_BYTES];

        any_name(bench, name, count);
        check(bench->client, gpubuf_open(bench->client, name, NULL, &object), "open");
        gpubuf_release(object);
        calls++;
        taken = now() - start;
    } while (taken < ROUND_SECONDS);
    return taken / calls * 1e6;
}

static void measure(struct bench *bench, size_t count, struct series *times)
{
    round_blocking(bench, count);
    for (unsigned round = 0; round < bench->rounds; round++)
        series_add(times, round_blocking(bench, count));
}

/* Deletes all but the first FEW. */
static void delete_rest(struct bench *bench, size_t count)
{
    char *params = allocate(DELETE_BATCH, NAME_BYTES + 4), name[NAME_BYTES];

    for (size_t done = FEW; done < count;) {
        size_t end = done + DELETE_BATCH < count ? done + DELETE_BATCH : count;
        char *at = params + sprintf(params, "{\"names\":[");

        for (; done < end; done++) {
            random_name(name, PREFIX, bench->drawn[done]);
            at += sprintf(at, "\"%s\"%s", name, done + 1 < end ? "," : "]}");
        }
        raw_call(&bench->raw, "delete", params);
    }
    free(params);
}

static void print(size_t count, const struct series *many, const struct series *few)
{
    struct series ratios = {0};
    char note[NAME_BYTES];
    double floor = series_median(few);

    for (size_t i = 0; i < many->count; i++)
        series_add(&ratios, many->values[i] / floor);
    snprintf(note, sizeof(note), "%zu objects against %d", count, FEW);
    print_row(&(struct row){"scale.blocking", "us", many, few, &ratios, note});
}

int main(int argc, char **argv)
{
    struct options options = read_options(argc, argv);
    struct bench bench = {.client = connect_to(options.socket),
                          .rounds = options.quick ? 11 : ROUNDS};
    size_t count = options.quick ? MANY_QUICK : MANY;
    struct series few = {0}, many = {0};
    uint64_t state = seed, rest;
    pid_t daemon;

    bench.drawn = allocate(count, sizeof(*bench.drawn));
    for (size_t i = 0; i < count; i++)
        bench.drawn[i] = draw(&state);
    raw_open(&bench.raw, options.socket);
    daemon = raw_peer(&bench.raw);
    place(PLACE_ONE_CORE, &daemon, 1);

    publish(&bench.raw, PREFIX, FEW, &seed);
    measure(&bench, FEW, &few);
    rest = seed;
    for (int i = 0; i < FEW; i++)
        draw(&rest);
    publish(&bench.raw, PREFIX, count - FEW, &rest);
    measure(&bench, count, &many);
    delete_rest(&bench, count);
    measure(&bench, FEW, &few);
    print(count, &many, &few);

    gpubuf_disconnect(bench.client);
    raw_close(&bench.raw);
    free(bench.drawn);
    return 0;
}
