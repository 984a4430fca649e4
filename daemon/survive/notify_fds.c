/* Taking and dropping descriptors that were handed over. Apart from notify.c, so that a test can
   play the service manager and link this. */
#include "daemon/survive/notify.h"

#include <string.h>
#include <unistd.h>

int gb_notify_acquire_fd_at(struct gb_notify *notify, unsigned i)
{
    int fd = notify->fds[i].fd;

    notify->fds[i].fd = -1;
    return fd;
}

int gb_notify_acquire_fd(struct gb_notify *notify, const char *name)
{
    for (unsigned i = 0; i < notify->fd_count; i++)
        if (notify->fds[i].fd >= 0 && strcmp(notify->fds[i].name, name) == 0)
            return gb_notify_acquire_fd_at(notify, i);
    return -1;
}

static bool is_taken(const struct gb_notify *notify, const char *name)
{
    for (unsigned i = 0; i < notify->fd_count; i++)
        if (notify->fds[i].fd < 0 && strcmp(notify->fds[i].name, name) == 0)
            return true;
    return false;
}

void gb_notify_close_unused(struct gb_notify *notify)
{
    for (unsigned i = 0; i < notify->fd_count; i++) {
        const char *name = notify->fds[i].name;

        if (notify->fds[i].fd < 0)
            continue;
        close(notify->fds[i].fd);
        if (!is_taken(notify, name))
            gb_notify_unstore_fd(notify, name);
        notify->fds[i].fd = -1;
    }
}
