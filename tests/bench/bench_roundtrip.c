/*
 * The cost of one blocking call above the floor: open + release of one object, create + seal +
 * release of one, and a put of 4 KiB, through libgpubuf, against a bare echo of as many bytes as
 * the open's request and its reply have. Each with the processes wherever the scheduler puts them,
 * on one core, and on two. And open + release of what the client keeps, which is no round trip at
 * all.
 */
#include "measure.h"

#define NAME "roundtrip/column"
#define REQUEST                                                                                    \
    "{\"jsonrpc\":\"2.0\",\"id\":12345,\"method\":\"open\",\"params\":{\"name\":\"" NAME "\"}}\n"
#define ROUND_SECONDS 0.012
#define CHUNK 16 /* calls between looks at the clock */

struct bench {
    struct gpubuf_client *client, *keeper;
    struct raw raw;
    struct echo echo;
    pid_t others[2]; /* the daemon, the echo's process */
    unsigned rounds;
};

static void open_release(struct bench *bench)
{
    struct gpubuf_object *object;

    check(bench->client, gpubuf_open(bench->client, NAME, NULL, &object), "open");
    gpubuf_release(object);
}

static void open_release_kept(struct bench *bench)
{
    struct gpubuf_object *object;

    for (int i = 0; i < 100; i++) { /* the clock is looked at all the same */
        check(bench->keeper, gpubuf_open(bench->keeper, NAME, NULL, &object), "open");
        gpubuf_release(object);
    }
}

static void create_seal_release(struct bench *bench)
{
    static const struct gpubuf_layout_spec layout = {
        .kind = GPUBUF_KIND_COLUMN,
        .column = {.dtype = "float64", .length = 100, .mask = true},
    };
    static const struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
    struct gpubuf_object *object;
    struct gpubuf_memory mask;

    check(bench->client, gpubuf_create(bench->client, "roundtrip/made", &layout, &options, &object),
          "create");
    check(bench->client, gpubuf_memory(object, GPUBUF_MASK, &mask), "memory");
    memset(mask.pointer, 0xff, 100 / 8 + 1); /* no nulls, as the column says */
    check(bench->client, gpubuf_seal(object, NULL), "seal");
    gpubuf_release(object);
}

static void put_small(struct bench *bench)
{
    static const struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
    static const char data[4096];

    check(bench->client,
          gpubuf_put_bytes(bench->client, "roundtrip/put", data, sizeof(data), &options), "put");
}

static void echo(struct bench *bench)
{
    echo_once(&bench->echo);
}

/* Microseconds of one call, as the mean of a short round. */
static double measure_round(struct bench *bench, void (*call)(struct bench *))
{
    double start = now(), taken;
    unsigned calls = 0;

    do {
        for (int i = 0; i < CHUNK; i++)
            call(bench);
        calls += CHUNK;
        taken = now() - start;
    } while (taken < ROUND_SECONDS);
    return taken / calls * 1e6;
}

static void measure(struct bench *bench, const char *what, enum placement placement,
                    void (*call)(struct bench *))
{
    struct compared compared = {0};
    char id[NAME_BYTES];

    if (!place(placement, bench->others, 2))
        return;
    measure_round(bench, echo);
    measure_round(bench, call);
    for (unsigned round = 0; round < bench->rounds; round++) {
        double before = measure_round(bench, echo), value = measure_round(bench, call);
        double lowest = (before + measure_round(bench, echo)) / 2;

        compared_add(&compared, value, lowest, value / lowest);
    }
    snprintf(id, sizeof(id), "%s.%s", what, placement_name(placement));
    print_compared(id, "us", &compared, NULL);
}

static void measure_kept(struct bench *bench)
{
    struct series measured = {0};

    measure_round(bench, open_release_kept);
    for (unsigned round = 0; round < bench->rounds; round++)
        series_add(&measured, measure_round(bench, open_release_kept) / 100);
    print_row(&(struct row){"open_release.kept", "us", &measured, NULL, NULL, NULL});
}

/* How many bytes the library's request and the daemon's reply to it have. */
static void start_echo(struct bench *bench)
{
    size_t length;

    for (int i = 0; i < 2; i++) { /* the first brings the segment's handle as well */
        raw_send(&bench->raw, REQUEST, sizeof(REQUEST) - 1);
        raw_line(&bench->raw, &length);
    }
    echo_start(&bench->echo, sizeof(REQUEST) - 1, length + 1);
}

int main(int argc, char **argv)
{
    struct options options = read_options(argc, argv);
    struct bench bench = {.client = connect_uncached(options.socket),
                          .keeper = connect_to(options.socket),
                          .rounds = options.quick ? 21 : 101};

    raw_open(&bench.raw, options.socket);
    publish_one(&bench.raw, NAME);
    start_echo(&bench);
    bench.others[0] = raw_peer(&bench.raw);
    bench.others[1] = bench.echo.server;
    measure_kept(&bench);
    for (enum placement placement = PLACE_FREE; placement < PLACEMENTS; placement++) {
        measure(&bench, "open_release", placement, open_release);
        measure(&bench, "create_seal_release", placement, create_seal_release);
        measure(&bench, "put_small", placement, put_small);
    }
    place(PLACE_FREE, bench.others, 2);
    raw_call(&bench.raw, "delete",
             "{\"names\":[\"" NAME "\",\"roundtrip/made\",\"roundtrip/put\"]}");
    gpubuf_disconnect(bench.client);
    gpubuf_disconnect(bench.keeper);
    echo_stop(&bench.echo);
    raw_close(&bench.raw);
    return 0;
}
