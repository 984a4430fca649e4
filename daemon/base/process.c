#include "daemon/base/process.h"

#include <dirent.h>
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
/* Of /proc/PID/stat, counted as proc(5) does; and a bit of the flags. */
#define FLAGS_FIELD 9
#define STARTED_FIELD 22
#define FLAG_EXITING 4u
/* The most threads that are looked at, since that takes time. */
#define LOOK_LIMIT 256

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

/* The numbers of a file like /proc/PID/stat that stand at two places; false: there is none. */
static bool read_stat(const char *path, uint64_t *flags, uint64_t *started)
{
    char text[1024], *at;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    at = strrchr(text, ')'); /* the second field may have any characters */
    for (int field = 2; at && field < STARTED_FIELD; at = strchr(at + 1, ' ')) {
        field++;
        if (field == FLAGS_FIELD + 1)
            *flags = strtoull(at, NULL, 10);
    }
    *started = at ? strtoull(at, NULL, 10) : 0;
    return at != NULL;
}

uint64_t gb_process_started(pid_t pid)
{
    uint64_t flags, started;
    char path[48];

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    return read_stat(path, &flags, &started) ? started : 0;
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

static bool has_ended(int fd)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

    return poll(&poll_fd, 1, 0) == 1;
}

/* Whether each thread that is listed has begun to exit, which none of them undoes. */
static bool exits(pid_t pid)
{
    uint64_t flags = 0, started;
    const struct dirent *entry;
    bool exiting = false;
    char path[320];
    DIR *threads;

    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    threads = opendir(path);
    for (int i = 0; threads && i < LOOK_LIMIT && (entry = readdir(threads)); i++) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", (int)pid, entry->d_name);
        exiting = read_stat(path, &flags, &started) && (flags & FLAG_EXITING);
        if (!exiting)
            break;
    }
    exiting = exiting && !readdir(threads);
    if (threads)
        closedir(threads);
    return exiting;
}

bool gb_process_is_over(int fd, pid_t pid)
{
    /* The second look sees a thread that one of the first look's had just made before it exited.
       The pid is the process's own as long as that has not ended, which is asked last. */
    return (pid > 0 && exits(pid) && exits(pid)) || has_ended(fd);
}
