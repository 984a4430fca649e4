#include "daemon/base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* of all machines but alpha, parisc and sparc */
#endif
/* Of /proc/PID/stat, counted as proc(5) does. */
#define STARTED_FIELD 22

int gb_process_of(int socket, pid_t pid)
{
    socklen_t length = sizeof(int);
    int fd;

    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &length) == 0)
        return fd;
    if (errno != ENOPROTOOPT)
        return -1;
    if (pid <= 0) {
        errno = ESRCH;
        return -1;
    }
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

uint64_t gb_process_started(pid_t pid)
{
    char text[1024], path[48], *at;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    at = strrchr(text, ')'); /* the second field may have any characters */
    for (int field = 2; at && field < STARTED_FIELD; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

int gb_process_find(pid_t pid, uint64_t started)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    if (fd >= 0 && gb_process_started(pid) == started)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

bool gb_process_is_over(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    return poll(&poll_fd, 1, 0) == 1;
}
