/*
 * How many opens a second the daemon serves to clients that keep 32 requests in flight, over the
 * raw protocol, of 1000 names drawn at random. A client sends, in one write, 32 brief opens and one
 * release of the leases that the 32 before brought, as libgpubuf would; so each open's release is
 * part of the figure. Once with one connection and once with CONNECTIONS, as redis-benchmark is run
 * beside it.
 *
 * Prints how long a reply is, and for each round the opens a second; scripts/run-bench, which runs
 * Redis' rounds between ours, asks for them by a line on standard input and puts them together.
 */
#include "measure.h"

#define NAMES 1000
#define IN_FLIGHT 32
#define CONNECTIONS 50
#define PREFIX "pipeline"

struct peer {
    struct raw raw;
    uint64_t leases[IN_FLIGHT];
    bool holds;
};

struct bench {
    struct peer peers[CONNECTIONS];
    uint64_t random;
    uint64_t opens;
};

/* One write: the release of what the last batch brought, and the next batch. */
static void send_batch(struct bench *bench, struct peer *peer)
{
    char text[IN_FLIGHT * 176], *at = text;

    if (peer->holds) {
        at += sprintf(at, "{\"jsonrpc\":\"2.0\",\"method\":\"release\",\"params\":{\"leases\":[");
        for (int i = 0; i < IN_FLIGHT; i++)
            at += sprintf(at, i ? ",%llu" : "%llu", (unsigned long long)peer->leases[i]);
        at += sprintf(at, "]}}\n");
    }
    for (int i = 0; i < IN_FLIGHT; i++) {
        static const char head[] =
            "{\"jsonrpc\":\"2.0\",\"id\":1234,\"method\":\"open\",\"params\":"
            "{\"brief\":true,\"name\":\"" PREFIX "/";
        unsigned name = (unsigned)(draw(&bench->random) % NAMES);

        at = (char *)mempcpy(at, head, sizeof(head) - 1);
        for (unsigned digit = 6; digit-- > 0; name /= 10)
            at[digit] = (char)('0' + name % 10);
        at = (char *)mempcpy(at + 6, "\"}}\n", 4);
    }
    raw_send(&peer->raw, text, (size_t)(at - text));
}

/* Reads the replies of a batch. */
static void receive_batch(struct bench *bench, struct peer *peer)
{
    size_t length;

    for (int i = 0; i < IN_FLIGHT; i++) {
        const char *line = raw_line(&peer->raw, &length);
        /* {"jsonrpc":"2.0","id":1234,"fds":1,"result":{"lease":1, … */
        const char *lease = memmem(line, length < 80 ? length : 80, "\"lease\":", 8);

        if (!lease)
            die("expected a lease in %.200s", line);
        peer->leases[i] = strtoull(lease + 8, NULL, 10);
    }
    peer->holds = true;
    bench->opens += IN_FLIGHT;
}

/* Serves whichever connection has its replies, like redis-benchmark does. */
static void run(struct bench *bench, unsigned count, double seconds)
{
    struct pollfd polled[CONNECTIONS];
    double start = now();
    unsigned running = count;

    bench->opens = 0;
    for (unsigned i = 0; i < count; i++) {
        polled[i] = (struct pollfd){.fd = bench->peers[i].raw.fd, .events = POLLIN};
        send_batch(bench, &bench->peers[i]);
    }
    while (running > 0) {
        if (count > 1 && poll(polled, count, -1) < 0)
            continue;
        for (unsigned i = 0; i < count; i++) {
            if (count > 1 && !polled[i].revents)
                continue;
            receive_batch(bench, &bench->peers[i]);
            if (now() - start < seconds) {
                send_batch(bench, &bench->peers[i]);
            } else {
                polled[i].fd = -1;
                polled[i].revents = 0;
                running--;
            }
        }
    }
    printf("%.0f\n", (double)bench->opens / (now() - start));
}

/* The length of an open's reply once the session has the segment's handle. */
static size_t reply_length(struct raw *raw)
{
    size_t length = 0;

    for (int i = 0; i < 2; i++)
        length = strlen(raw_call(raw, "open", "{\"brief\":true,\"name\":\"" PREFIX "/000000\"}"));
    return length + 1;
}

int main(int argc, char **argv)
{
    struct options options = read_options(argc, argv);
    struct bench *bench = allocate(1, sizeof(*bench));
    struct raw control;
    char line[64];

    raw_open(&control, options.socket);
    publish(&control, PREFIX, NAMES, NULL);
    for (unsigned i = 0; i < CONNECTIONS; i++)
        raw_open(&bench->peers[i].raw, options.socket);
    printf("%zu\n", reply_length(&control));
    while (fgets(line, sizeof(line), stdin)) { /* CONNECTIONS SECONDS */
        unsigned count;
        double seconds;

        if (sscanf(line, "%u %lf", &count, &seconds) != 2 || count < 1 || count > CONNECTIONS)
            die("expected CONNECTIONS SECONDS, found %s", line);
        run(bench, count, seconds);
    }
    for (unsigned i = 0; i < CONNECTIONS; i++)
        raw_close(&bench->peers[i].raw);
    raw_close(&control);
    free(bench);
    return 0;
}
