/*
 * Sixteen subscribers to what a daemon publishes, as NNG has them, in one process: bench_subscribers
 * URL COUNT. Prints a line when all are let in; at the end of standard input, how many events each got
 * on average.
 */
#include <nng/nng.h>
#include <nng/protocol/pubsub0/sub.h>
#include <nng/supplemental/util/platform.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MOST 64

static atomic_ullong received, ready;
static atomic_bool stop;

static void *follow(void *arg)
{
    nng_socket subscriber;
    bool first = true;

    if (nng_sub0_open(&subscriber) != 0 ||
        nng_socket_set(subscriber, NNG_OPT_SUB_SUBSCRIBE, "", 0) != 0 ||
        nng_socket_set_int(subscriber, NNG_OPT_RECVBUF, 8192) != 0 ||
        nng_socket_set_ms(subscriber, NNG_OPT_RECVTIMEO, 200) != 0 ||
        nng_dial(subscriber, arg, NULL, 0) != 0)
        exit(1);
    while (!atomic_load(&stop)) {
        nng_msg *message;

        if (nng_recvmsg(subscriber, &message, 0) != 0)
            continue;
        nng_msg_free(message);
        if (first)
            atomic_fetch_add(&ready, 1);
        first = false;
        atomic_fetch_add_explicit(&received, 1, memory_order_relaxed);
    }
    return NULL; /* sockets end with the process: NNG 1.5.2 may hang when many are closed at once */
}

int main(int argc, char **argv)
{
    pthread_t threads[MOST];
    int count = argc > 2 ? atoi(argv[2]) : 0;

    if (count < 1 || count > MOST) {
        fprintf(stderr, "usage: bench_subscribers URL COUNT\n");
        return 2;
    }
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, follow, argv[1]) != 0)
            return 1;
    while (atomic_load(&ready) < (unsigned)count)
        nng_msleep(10);
    printf("ready\n");
    fflush(stdout);
    while (getchar() != EOF)
        continue;
    atomic_store(&stop, true);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("%.0f\n", (double)atomic_load(&received) / count);
    fflush(stdout);
    _exit(0);
}
