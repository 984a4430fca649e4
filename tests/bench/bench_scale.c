/*
 * Whether opening gets slower with the number of objects: random names out of a million (a hundred
 * thousand with --quick) against random names out of a thousand, in the same daemon. The thousand
 * are measured before the others are published and again after they have been deleted, and count
 * with both. Each as blocking open + release through libgpubuf, and as what the daemon serves to a
 * client that sends 32 opens at once, where the caches' misses are not hidden behind waking up. All
 * on one core, since where the scheduler moves the processes makes more difference than what is
 * asked.
 */
#include "measure.h"

#define PREFIX "scale"
#define FEW 1000
#define MANY 1000000
#define MANY_QUICK 100000
#define ROUNDS 41
#define ROUND_SECONDS 0.02
#define IN_FLIGHT 32
#define DELETE_BATCH 64

static const uint64_t seed = 42;

struct bench {
    struct gpubuf_client *client;
    struct raw raw;
    uint64_t *drawn; /* of the names, in order */
    uint64_t random;
    unsigned rounds;
};

struct result {
    struct series blocking, pipelined; /* microseconds */
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

/* Sends 32 opens, reads the replies, releases the leases with the next 32. */
static void batch(struct bench *bench, size_t count)
{
    char text[IN_FLIGHT * 192], name[NAME_BYTES];
    uint64_t leases[IN_FLIGHT];
    size_t length = 0, ignored;

    for (int i = 0; i < IN_FLIGHT; i++) {
        any_name(bench, name, count);
        length += (size_t)snprintf(text + length, sizeof(text) - length,
                                   "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"open\",\"params\":"
                                   "{\"name\":\"%s\"}}\n",
                                   name);
    }
    raw_send(&bench->raw, text, length);
    for (int i = 0; i < IN_FLIGHT; i++)
        leases[i] = raw_number(raw_line(&bench->raw, &ignored), "lease");
    length = (size_t)snprintf(
        text, sizeof(text), "{\"jsonrpc\":\"2.0\",\"method\":\"release\",\"params\":{\"leases\":[");
    for (int i = 0; i < IN_FLIGHT; i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, i ? ",%llu" : "%llu",
                                   (unsigned long long)leases[i]);
    length += (size_t)snprintf(text + length, sizeof(text) - length, "]}}\n");
    raw_send(&bench->raw, text, length);
}

static double round_pipelined(struct bench *bench, size_t count)
{
    double start = now(), taken;
    unsigned opens = 0;

    do {
        batch(bench, count);
        opens += IN_FLIGHT;
        taken = now() - start;
    } while (taken < ROUND_SECONDS);
    return taken / opens * 1e6;
}

static void measure(struct bench *bench, size_t count, struct result *result)
{
    round_blocking(bench, count);
    round_pipelined(bench, count);
    for (unsigned round = 0; round < bench->rounds; round++) {
        series_add(&result->blocking, round_blocking(bench, count));
        series_add(&result->pipelined, round_pipelined(bench, count));
    }
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

static void print(const char *kind, size_t count, const struct series *many,
                  const struct series *few)
{
    struct series ratios = {0};
    char id[NAME_BYTES], note[NAME_BYTES];
    double floor = series_median(few);

    for (size_t i = 0; i < many->count; i++)
        series_add(&ratios, many->values[i] / floor);
    snprintf(id, sizeof(id), "scale.%s", kind);
    snprintf(note, sizeof(note), "%zu objects against %d", count, FEW);
    print_row(&(struct row){id, "us", many, few, &ratios, note});
}

int main(int argc, char **argv)
{
    struct options options = read_options(argc, argv);
    struct gpubuf_connect_options connect = {.size = sizeof(connect), .path = options.socket};
    struct bench bench = {.rounds = options.quick ? 11 : ROUNDS};
    size_t count = options.quick ? MANY_QUICK : MANY;
    struct result *few = allocate(1, sizeof(*few)), *many = allocate(1, sizeof(*many));
    uint64_t state = seed, rest;
    pid_t daemon;

    bench.drawn = allocate(count, sizeof(*bench.drawn));
    for (size_t i = 0; i < count; i++)
        bench.drawn[i] = draw(&state);
    raw_open(&bench.raw, options.socket);
    check(NULL, gpubuf_connect(&bench.client, &connect), "connect");
    daemon = raw_peer(&bench.raw);
    place(PLACE_ONE_CORE, &daemon, 1);

    publish(&bench.raw, PREFIX, FEW, &seed);
    measure(&bench, FEW, few);
    rest = seed;
    for (int i = 0; i < FEW; i++)
        draw(&rest);
    publish(&bench.raw, PREFIX, count - FEW, &rest);
    measure(&bench, count, many);
    delete_rest(&bench, count);
    measure(&bench, FEW, few);
    print("blocking", count, &many->blocking, &few->blocking);
    print("pipelined", count, &many->pipelined, &few->pipelined);

    gpubuf_disconnect(bench.client);
    raw_close(&bench.raw);
    free(bench.drawn);
    free(few);
    free(many);
    return 0;
}
