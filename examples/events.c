/*
 * Events of a gpubufd, by NNG:
 *
 *     gpubufd-gateway --events ipc:///run/gpubufd-gateway/events.sock
 *     events ipc:///run/gpubufd-gateway/events.sock 'sealed sales/'
 *
 * A subscription is the beginning of a message: "sealed sales/" for new objects below sales/, ""
 * for everything. Events have consecutive numbers, so that a subscriber to everything knows by a
 * gap that it was too slow.
 *
 *     cc events.c -lnng -o events
 */
#include <nng/nng.h>
#include <nng/protocol/pubsub0/sub.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void demand(int r, const char *what)
{
    if (r == 0)
        return;
    fprintf(stderr, "events: %s: %s\n", what, nng_strerror(r));
    exit(1);
}

int main(int argc, char **argv)
{
    const char *topic = argc > 2 ? argv[2] : "";
    nng_socket subscriber;

    if (argc < 2) {
        fprintf(stderr, "usage: events URL [TOPIC]\n");
        return 2;
    }
    demand(nng_sub0_open(&subscriber), "cannot make a socket");
    demand(nng_socket_set(subscriber, NNG_OPT_SUB_SUBSCRIBE, topic, strlen(topic)),
           "cannot subscribe");
    demand(nng_dial(subscriber, argv[1], NULL, 0), argv[1]);
    for (;;) {
        nng_msg *message;

        demand(nng_recvmsg(subscriber, &message, 0), "cannot receive");
        fwrite(nng_msg_body(message), 1, nng_msg_len(message), stdout);
        putchar('\n');
        fflush(stdout);
        nng_msg_free(message);
    }
}
