#include "daemon/base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
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
    if (errno == EINVAL) /* so some kernels say that it has ended */
        errno = ESRCH;
    if (errno != ENOPROTOOPT)
        return -1;
    if (pid <= 0) {
        errno = ESRCH;
        return -1;
    }
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

int gb_process_started(pid_t pid, uint64_t *started)
{
    char text[1024], path[48], *at;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, text, sizeof(text) - 1);
    int error = errno;
    close(fd);
    text[n < 0 ? 0 : n] = '\0';
    at = strrchr(text, ')'); /* the second field may have any characters */
    for (int field = 2; at && field < STARTED_FIELD; field++)
        at = strchr(at + 1, ' ');
    errno = n < 0 ? error : EIO;
    if (at)
        *started = strtoull(at, NULL, 10);
    return at ? 0 : -1;
}

/* The pid may be another process's by now; or a thread's, or the number of a process group: then
   there is no descriptor of it, for other reasons than that too few are left. */
int gb_process_find(pid_t pid, uint64_t started)
{
    uint64_t found;
    int fd, error;

    if (kill(pid, 0) < 0 && errno == ESRCH)
        return -1;
    fd = (int)syscall(SYS_pidfd_open, pid, 0);
    error = errno;
    if (gb_process_started(pid, &found) == 0) {
        if (fd >= 0 && found == started)
            return fd;
        if (found != started)
            error = ESRCH;
    } else if (fd >= 0) {
        error = errno;
    }
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}

bool gb_process_has_exited(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    return poll(&poll_fd, 1, 0) == 1;
}
