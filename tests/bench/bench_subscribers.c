/*
 * Subscribers to what a gateway publishes, NNG's own, all in one process: bench_subscribers URL
 * COUNT. Prints a line when each has been told something; at the end of standard input, how many
 * messages each got on average.
 */
#include <nng/nng.h>
#include <nng/protocol/pubsub0/sub.h>
#include <nng/supplemental/util/platform.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST 64

struct subscriber {
    nng_socket socket;
    nng_aio *aio;
    atomic_uint_fast64_t count; /* messages */
};

static struct subscriber subscribers[MOST];

static void check(int r, const char *what)
{
    if (r == 0)
        return;
    fprintf(stderr, "bench_subscribers: %s: %s\n", what, nng_strerror(r));
    exit(1);
}

static void on_message(void *arg)
{
    struct subscriber *one = arg;

    if (nng_aio_result(one->aio) != 0)
        return; /* the end */
    nng_msg_free(nng_aio_get_msg(one->aio));
    atomic_fetch_add(&one->count, 1);
    nng_recv_aio(one->socket, one->aio);
}

static void subscribe(struct subscriber *one, const char *url)
{
    check(nng_sub0_open(&one->socket), "cannot open a socket");
    check(nng_aio_alloc(&one->aio, on_message, one), "cannot wait for messages");
    check(nng_socket_set(one->socket, NNG_OPT_SUB_SUBSCRIBE, "", 0), "cannot subscribe");
    check(nng_dial(one->socket, url, NULL, 0), url);
    nng_recv_aio(one->socket, one->aio);
}

int main(int argc, char **argv)
{
    unsigned count = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    uint64_t total = 0;

    if (count < 1 || count > MOST) {
        fprintf(stderr, "usage: bench_subscribers URL COUNT\n");
        return 2;
    }
    for (unsigned i = 0; i < count; i++)
        subscribe(&subscribers[i], argv[1]);
    for (unsigned i = 0; i < count; i++)
        while (atomic_load(&subscribers[i].count) == 0)
            nng_msleep(10); /* the figures come every second */
    printf("ready\n");
    fflush(stdout);
    while (getchar() != EOF)
        ;
    for (unsigned i = 0; i < count; i++)
        total += atomic_load(&subscribers[i].count);
    printf("%.0f\n", (double)total / count);
    return 0;
}
