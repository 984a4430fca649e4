/*
 * The yardstick of other languages' clients: how many opens a second, each with its release, this
 * library gets of one small column. With one in flight by blocking calls, with more by asynchronous
 * ones in a loop around poll(), each beginning the next. For each line "IN_FLIGHT SECONDS" on
 * standard input it prints a figure; scripts/run-bench runs rounds of the other client in between.
 */
#include "measure.h"

#define NAME "client/column"

struct bench {
    struct gpubuf_client *client;
    unsigned under_way;
    uint64_t opened;
    bool stop;
};

static void begin_open(struct bench *bench);

static void on_open(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                    void *arg)
{
    struct bench *bench = arg;

    check(client, status, "open");
    gpubuf_release(object);
    bench->opened++;
    bench->under_way--;
    if (!bench->stop)
        begin_open(bench);
}

static void begin_open(struct bench *bench)
{
    check(bench->client, gpubuf_open_async(bench->client, NAME, NULL, on_open, bench, NULL),
          "open_async");
    bench->under_way++;
}

static void run_blocking(struct bench *bench, double end)
{
    do {
        struct gpubuf_object *object;

        check(bench->client, gpubuf_open(bench->client, NAME, NULL, &object), "open");
        gpubuf_release(object);
        bench->opened++;
    } while (now() < end);
}

static void run_asynchronous(struct bench *bench, unsigned in_flight, double end)
{
    bench->stop = false;
    while (bench->under_way < in_flight)
        begin_open(bench);
    while (bench->under_way > 0) {
        struct pollfd polled = {.fd = gpubuf_fd(bench->client),
                                .events = gpubuf_events(bench->client)};

        poll(&polled, 1, -1);
        check(bench->client, gpubuf_dispatch(bench->client), "dispatch");
        bench->stop = now() >= end;
    }
}

int main(int argc, char **argv)
{
    struct options options = read_options(argc, argv);
    struct bench bench = {.client = connect_uncached(options.socket)};
    struct raw raw;
    char line[64];

    raw_open(&raw, options.socket);
    publish_one(&raw, NAME);
    while (fgets(line, sizeof(line), stdin)) {
        unsigned in_flight;
        double seconds, start = now();

        if (sscanf(line, "%u %lf", &in_flight, &seconds) != 2 || in_flight < 1)
            die("expected IN_FLIGHT SECONDS, found %s", line);
        bench.opened = 0;
        if (in_flight == 1)
            run_blocking(&bench, start + seconds);
        else
            run_asynchronous(&bench, in_flight, start + seconds);
        printf("%.0f\n", (double)bench.opened / (now() - start));
        fflush(stdout);
    }
    gpubuf_disconnect(bench.client);
    raw_close(&raw);
    return 0;
}
