#include "daemon/base/lock.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define MOST_MOMENTS 5000

static bool holder_has_ended(int fd)
{
    char text[16] = "";
    int pid = pread(fd, text, sizeof(text) - 1, 0) > 0 ? atoi(text) : 0;

    return pid > 0 && kill(pid, 0) < 0 && errno == ESRCH;
}

static void note_holder(int fd)
{
    char text[16];
    int length = snprintf(text, sizeof(text), "%d\n", (int)getpid());

    if (ftruncate(fd, 0) < 0 || pwrite(fd, text, (size_t)length, 0) < 0)
        return; /* a daemon can serve while the disk is full */
}

bool gb_lock_acquire(int fd)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    int why = 0;

    for (int i = 0; i < MOST_MOMENTS; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            note_holder(fd);
            return true;
        }
        why = errno;
        if (why != EWOULDBLOCK || !holder_has_ended(fd))
            break;
        nanosleep(&moment, NULL);
    }
    errno = why;
    return false;
}
