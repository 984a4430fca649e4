/*
 * The cost of events for requests: 60 requests at a time, every tenth gives a name to another
 * object, which is an event. scripts/run-bench runs it against a daemon with a gateway that
 * publishes to sixteen subscribers, and against one without, in turn.
 *
 * Prints, for each line "EVENTS SECONDS" on standard input, the requests a second: with EVENTS
 * events a second, or, for 0, as many as there can be.
 */
#include "measure.h"

#define IN_FLIGHT 60
#define EVERY 10 /* every tenth request is an event */

struct bench {
    struct raw raw;
    char text[IN_FLIGHT * 160];
    size_t length;
};

static void prepare(struct bench *bench)
{
    char *at = bench->text;

    for (int i = 0; i < IN_FLIGHT; i++)
        at += i % EVERY ? sprintf(at, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"stat\","
                                      "\"params\":{\"name\":\"events/base\"}}\n")
                        : sprintf(at,
                                  "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"alias\","
                                  "\"params\":{\"name\":\"events/%02d\",\"of\":\"events/base\","
                                  "\"mode\":\"0604\",\"replace\":true}}\n",
                                  i);
    bench->length = (size_t)(at - bench->text);
}

static void wait_until(double when)
{
    double left = when - now();
    struct timespec time = {.tv_nsec = (long)(left * 1e9)};

    if (left > 0 && left < 1)
        nanosleep(&time, NULL);
}

static double round_of(struct bench *bench, unsigned events, double seconds)
{
    double start = now(), end = start;
    uint64_t count = 0;

    while (end - start < seconds) {
        if (events)
            wait_until(start + (double)count / EVERY / events);
        raw_send(&bench->raw, bench->text, bench->length);
        for (int left = IN_FLIGHT; left > 0; left--) {
            size_t length;
            const char *line = raw_line(&bench->raw, &length);

            if (memmem(line, length, "\"error\"", 7))
                die("the daemon refused: %.*s", (int)length, line);
        }
        count += IN_FLIGHT;
        end = now();
    }
    return (double)count / (end - start);
}

int main(int argc, char **argv)
{
    static struct bench bench;
    struct options options = read_options(argc, argv);
    unsigned events;
    double seconds;

    raw_open(&bench.raw, options.socket);
    /* The object that all names are for; it stays for the length of the bench. */
    raw_seal(&bench.raw, raw_lease(&bench.raw, "create",
                                   "{\"name\":\"events/base\",\"replace\":true,\"mode\":\"0604\","
                                   "\"layout\":{\"kind\":\"bytes\",\"bytes\":8}}"));
    prepare(&bench);
    while (scanf("%u %lf", &events, &seconds) == 2) {
        printf("%.0f\n", round_of(&bench, events, seconds));
        fflush(stdout);
    }
    return 0;
}
