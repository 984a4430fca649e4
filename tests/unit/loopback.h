/* TCP sockets of the loopback, for tests. Include it after <cmocka.h>. */
#ifndef LOOPBACK_H
#define LOOPBACK_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

/* A socket at a free port, which does not listen. */
static inline int loopback_bound(void)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static inline struct sockaddr_in loopback_address(int fd)
{
    struct sockaddr_in address = {0};
    socklen_t length = sizeof(address);

    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    return address;
}

static inline uint16_t loopback_port(int fd)
{
    return ntohs(loopback_address(fd).sin_port);
}

#endif
