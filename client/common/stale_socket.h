/* The unix socket that a killed program has left at its path. */
#ifndef GB_STALE_SOCKET_H
#define GB_STALE_SOCKET_H

#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Removes the socket at an address if nobody listens on it. A file that is no socket stays, though
   connect() is refused there, too. */
static inline void gb_remove_stale_socket(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct stat found;

    if (fd >= 0 && lstat(address->sun_path, &found) == 0 && S_ISSOCK(found.st_mode) &&
        connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 &&
        errno == ECONNREFUSED)
        (void)unlink(address->sun_path);
    if (fd >= 0)
        close(fd);
}

#endif
