/*
 * Subscribers to what a daemon publishes, all in one process: bench_subscribers PATH COUNT, with the path
 * of an ipc:// URL. They speak NNG's wire protocol by themselves and only count what comes, since it is
 * the daemon that is measured: sixteen of NNG's own would use more CPU than the daemon has on a machine
 * with few cores. Prints a line when all are let in; at the end of standard input, how many messages each
 * got on average.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MOST 64
#define HEAD 9 /* a 1, and the length of the message */

struct subscriber {
    int fd;
    uint64_t count; /* messages */
    uint64_t skip;  /* bytes until the next head */
    unsigned char head[HEAD];
    unsigned head_length;
};

static struct subscriber subscribers[MOST];
static unsigned char buffer[1 << 20];

static void subscribe(struct subscriber *one, const char *path)
{
    static const char greeting[8] = {0, 'S', 'P', 0, 0, 0x21, 0, 0};
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    one->skip = 8; /* its greeting */
    one->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    if (one->fd < 0 || connect(one->fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        send(one->fd, greeting, sizeof(greeting), 0) != sizeof(greeting)) {
        perror("bench_subscribers: cannot subscribe");
        exit(1);
    }
}

static void take(struct subscriber *one, const unsigned char *at, size_t left)
{
    while (left > 0) {
        size_t n = one->skip < left ? (size_t)one->skip : left;

        one->skip -= n;
        at += n;
        left -= n;
        while (left > 0 && one->skip == 0 && one->head_length < HEAD) {
            one->head[one->head_length++] = *at++;
            left--;
        }
        if (one->head_length < HEAD)
            continue;
        for (unsigned i = 1; i < HEAD; i++)
            one->skip = one->skip << 8 | one->head[i];
        one->head_length = 0;
        one->count++;
    }
}

/* Once through all of them; false when standard input has ended. */
static bool turn(struct pollfd *polled, unsigned count)
{
    if (poll(polled, count + 1, -1) < 0 && errno != EINTR)
        exit(1);
    for (unsigned i = 0; i < count; i++) {
        ssize_t n = polled[i].revents ? recv(polled[i].fd, buffer, sizeof(buffer), 0) : 0;

        if (polled[i].revents && n <= 0) {
            fprintf(stderr, "bench_subscribers: the daemon hung up\n");
            exit(1);
        }
        take(&subscribers[i], buffer, (size_t)n);
    }
    return !polled[count].revents || getchar() != EOF;
}

int main(int argc, char **argv)
{
    struct pollfd polled[MOST + 1];
    unsigned count = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
    bool ready = false;
    uint64_t total = 0;

    if (count < 1 || count > MOST) {
        fprintf(stderr, "usage: bench_subscribers PATH COUNT\n");
        return 2;
    }
    for (unsigned i = 0; i < count; i++) {
        subscribe(&subscribers[i], argv[1]);
        polled[i] = (struct pollfd){.fd = subscribers[i].fd, .events = POLLIN};
    }
    polled[count] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
    while (turn(polled, count)) {
        bool all = true;

        for (unsigned i = 0; i < count; i++)
            all &= subscribers[i].count > 0; /* the daemon's figures come every second */
        if (all && !ready) {
            printf("ready\n");
            fflush(stdout);
        }
        ready |= all;
    }
    for (unsigned i = 0; i < count; i++)
        total += subscribers[i].count;
    printf("%.0f\n", (double)total / count);
    return 0;
}
