/*
 * Descriptors for tests: makes some that can be told apart, and counts the open ones.
 */
#ifndef GB_TEST_DESCRIPTORS_H
#define GB_TEST_DESCRIPTORS_H

#include <dirent.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A memfd whose size is `mark`; -1 on failure. */
static inline int marked_fd(unsigned mark)
{
    int fd = memfd_create("mark", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)mark) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* The mark of such a descriptor; -1 if it is none. */
static inline long mark_of(int fd)
{
    struct stat status;
    return fstat(fd, &status) < 0 ? -1 : (long)status.st_size;
}

static inline size_t open_fds(void)
{
    size_t count = 0;
    DIR *directory = opendir("/proc/self/fd");
    if (directory == NULL)
        return 0;
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

#endif
