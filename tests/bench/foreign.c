#include "attacks.h"

#include <netinet/in.h>

#include "measure.h"

const char *attacked;

int join_blocking(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    memcpy(address.sun_path, attacked, strlen(attacked) + 1);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    return fd;
}

int join(void)
{
    int fd = join_blocking();

    if (fd >= 0)
        fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

bool send_all(int fd, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t n = send(fd, text, length, MSG_NOSIGNAL);

        if (n <= 0)
            return false;
        text += n;
        length -= (size_t)n;
    }
    return true;
}

/* A TCP socket with data that nobody takes, whose last close lasts a second. *peer: its other end.
   The data is little: megabytes of it would be the kernel's work on this core, and not the
   daemon's. */
static int lingering(int listener, const struct sockaddr_in *address, int *peer)
{
    static const char data[65536];
    struct linger linger = {1, 1};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 4096;

    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    if (fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0)
        die("cannot connect to myself");
    *peer = accept(listener, NULL, NULL);
    while (send(fd, data, sizeof(data), MSG_DONTWAIT) > 0)
        ;
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
    return fd;
}

/* Sends a text with descriptors, sixteen at most. */
static bool send_fds(int to, const char *text, size_t length, const int *fds, size_t count)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(16 * sizeof(int))];
    } control = {0};
    struct iovec vector = {(void *)(uintptr_t)text, length};
    struct msghdr header = {.msg_iov = &vector,
                            .msg_iovlen = 1,
                            .msg_control = &control,
                            .msg_controllen = CMSG_SPACE(count * sizeof(int))};

    control.align.cmsg_level = SOL_SOCKET;
    control.align.cmsg_type = SCM_RIGHTS;
    control.align.cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(&control.align), fds, count * sizeof(int));
    return sendmsg(to, &header, MSG_NOSIGNAL) >= 0;
}

/* Passes sockets that linger, and closes its own copies at once, so that the daemon's is the last
   close: some with a method that takes none, some on a connection that ends. */
void lingers(void)
{
    static const char line[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"none\",\"fds\":1}\n";
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 4096;
    char answer[4096];

    setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    if (bind(listener, (struct sockaddr *)&address, length) < 0 || listen(listener, 16) < 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) < 0)
        die("cannot listen");
    for (unsigned i = 0;; i++) {
        int peer, fd = lingering(listener, &address, &peer), to = join_blocking();

        if (to >= 0) {
            send_fds(to, line, 1, &fd, 1);
            if (i % 2 && send(to, line + 1, sizeof(line) - 2, MSG_NOSIGNAL) > 0)
                recv(to, answer, sizeof(answer), 0);
            close(to);
        }
        close(fd);
        close(peer);
    }
}

/* Sixteen descriptors of the wrong kind with each message. */
void descriptors(void)
{
    char *line = allocate(1, 4096);
    int at = sprintf(line, "{\"jsonrpc\":\"2.0\",\"id\":1,\"fds\":16,\"method\":\"register\","
                           "\"params\":{\"name\":\"hostile/r\",\"layout\":{\"kind\":\"bytes\","
                           "\"bytes\":1,\"data\":{\"handle\":0,\"offset\":0,\"bytes\":1}},"
                           "\"handles\":[");
    int fds[16], fd = -1;
    char *buffer = allocate(1, 65536);

    for (int i = 0; i < 16; i++) {
        fds[i] = open("/dev/null", O_RDWR | O_CLOEXEC);
        at += sprintf(line + at,
                      "%s{\"kind\":\"memfd\",\"fd\":%d,\"bytes\":4096,\"device\":\"host\"}",
                      i ? "," : "", i);
    }
    at += sprintf(line + at, "]}}\n");
    for (;;) {
        if (fd < 0)
            fd = join_blocking();
        if (!send_fds(fd, line, (size_t)at, fds, 16) || recv(fd, buffer, 65536, 0) <= 0) {
            close(fd);
            fd = -1;
        }
    }
}
