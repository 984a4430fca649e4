#include "daemon/base/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/base/lock.h"
#include "proto/base/place.h"

static char *default_path(struct gb_error *error)
{
    bool nowhere;
    char *path = gb_place_of_daemon(&nowhere);

    if (nowhere)
        gb_fail(error, GPUBUF_E_INVALID,
                "no place for the socket: %s is not there or cannot be written, "
                "XDG_RUNTIME_DIR is not set, and /tmp/gpubufd-%u is no directory of this user "
                "alone; give --socket PATH",
                GB_SYSTEM_DIRECTORY, (unsigned)geteuid());
    else if (!path)
        gb_fail_memory(error);
    return path;
}

/* Says that the path is in use. `fd` is a connection to it, which tells the daemon's pid; or -1. */
static int in_use(const char *path, int fd, struct gb_error *error)
{
    struct ucred peer = {0};
    socklen_t length = sizeof(peer);

    if (fd < 0 || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0 || peer.pid == 0)
        return gb_fail(error, GPUBUF_E_BUSY, "%s is in use: another daemon listens there", path);
    return gb_fail(error, GPUBUF_E_BUSY,
                   "%s is in use: another daemon listens there, pid %d; SIGTERM ends it", path,
                   (int)peer.pid);
}

/* Room for "PATH.lock". */
#define LOCK_PATH_BYTES (sizeof(((struct sockaddr_un *)0)->sun_path) + 8)

/* Whether `path` still leads to the file that we hold the lock of. */
static bool is_ours(int lock_fd, const char *path)
{
    struct stat ours, there;

    return fstat(lock_fd, &ours) == 0 && lstat(path, &there) == 0 && ours.st_ino == there.st_ino &&
           ours.st_dev == there.st_dev;
}

/* A socket belongs to the daemon that holds the lock of PATH.lock. The former holder may remove
   that file while we wait for its lock; then we lock the new file instead. */
static int acquire_lock(struct gb_listener *listener, struct gb_error *error)
{
    char path[LOCK_PATH_BYTES];

    snprintf(path, sizeof(path), "%s.lock", listener->path);
    for (;;) {
        listener->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (listener->lock_fd < 0)
            return gb_fail_errno(error, "cannot create %s", path);
        if (!gb_lock_acquire(listener->lock_fd)) {
            int r = errno == EWOULDBLOCK ? in_use(listener->path, -1, error)
                                         : gb_fail_errno(error, "cannot lock %s", path);

            close(listener->lock_fd); /* not ours to remove */
            listener->lock_fd = -1;
            return r;
        }
        if (is_ours(listener->lock_fd, path))
            return 0;
        close(listener->lock_fd);
    }
}

/* Removes the files before the lock is released. Somebody may have cleared the directory, and
   another daemon may listen there since: its files stay. */
static void drop_lock(struct gb_listener *listener, bool listening)
{
    char path[LOCK_PATH_BYTES];

    if (listener->lock_fd < 0)
        return;
    snprintf(path, sizeof(path), "%s.lock", listener->path);
    if (is_ours(listener->lock_fd, path)) {
        if (listening)
            unlink(listener->path);
        unlink(path);
    }
    close(listener->lock_fd);
}

/* Removes the socket file of a daemon that has ended; fails if there is anything else. */
static int clear_path(const struct sockaddr_un *address, struct gb_error *error)
{
    struct stat st;
    bool refused;
    int fd, connected;

    if (lstat(address->sun_path, &st) < 0)
        return errno == ENOENT ? 0 : gb_fail_errno(error, "cannot look at %s", address->sun_path);
    if (!S_ISSOCK(st.st_mode))
        return gb_fail(error, GPUBUF_E_BUSY, "%s is there and is not a socket", address->sun_path);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return gb_fail_errno(error, "cannot make a socket");
    connected = connect(fd, (const struct sockaddr *)address, sizeof(*address));
    refused = connected < 0 && errno == ECONNREFUSED;
    if (!refused)
        in_use(address->sun_path, connected == 0 ? fd : -1, error);
    close(fd);
    if (!refused)
        return GPUBUF_E_BUSY;
    if (unlink(address->sun_path) < 0 && errno != ENOENT)
        return gb_fail_errno(error, "cannot remove the stale socket %s", address->sun_path);
    return 0;
}

static int bind_and_listen(struct gb_listener *listener, const struct sockaddr_un *address,
                           unsigned mode, bool *bound, struct gb_error *error)
{
    mode_t mask;
    int r;

    listener->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener->fd < 0)
        return gb_fail_errno(error, "cannot make a socket");
    mask = umask(0177); /* other users cannot connect before the mode is set */
    r = bind(listener->fd, (const struct sockaddr *)address, sizeof(*address));
    umask(mask);
    if (r < 0)
        return gb_fail_errno(error, "cannot bind %s", address->sun_path);
    *bound = true;
    if (chmod(address->sun_path, mode) < 0)
        return gb_fail_errno(error, "cannot set the mode of %s", address->sun_path);
    if (listen(listener->fd, GB_LISTENER_BACKLOG) < 0)
        return gb_fail_errno(error, "cannot listen on %s", address->sun_path);
    return 0;
}

int gb_listener_open(struct gb_listener *listener, const char *path, unsigned mode,
                     struct gb_error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    bool bound = false;
    int r = 0;

    listener->fd = listener->lock_fd = -1;
    listener->path = path ? strdup(path) : default_path(error);
    if (!listener->path)
        return path ? gb_fail_memory(error) : GPUBUF_E_INVALID;
    if (strlen(listener->path) >= sizeof(address.sun_path))
        r = gb_fail(error, GPUBUF_E_INVALID,
                    "the path of the socket has %zu bytes, and %zu is the most: %s",
                    strlen(listener->path), sizeof(address.sun_path) - 1, listener->path);
    if (r == 0) {
        memcpy(address.sun_path, listener->path, strlen(listener->path) + 1);
        r = acquire_lock(listener, error);
    }
    if (r == 0)
        r = clear_path(&address, error);
    if (r == 0)
        r = bind_and_listen(listener, &address, mode, &bound, error);
    if (r < 0) {
        if (listener->fd >= 0)
            close(listener->fd);
        drop_lock(listener, bound);
        free(listener->path);
        *listener = (struct gb_listener){.fd = -1, .lock_fd = -1};
    }
    return r;
}

/* Whether a socket's option has that value. */
static bool has_option(int fd, int option, int expected)
{
    socklen_t length = sizeof(int);
    int value;

    return getsockopt(fd, SOL_SOCKET, option, &value, &length) == 0 && value == expected;
}

static int check_handed_over(int fd, const char *path, struct sockaddr_un *address,
                             struct gb_error *error)
{
    socklen_t length = sizeof(*address) - 1; /* a path may fill sun_path, without a NUL */
    int flags;

    if (!has_option(fd, SO_DOMAIN, AF_UNIX) || !has_option(fd, SO_TYPE, SOCK_STREAM) ||
        !has_option(fd, SO_ACCEPTCONN, 1))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "the service manager handed over a descriptor to listen on that is no "
                       "listening unix stream socket");
    if (getsockname(fd, (struct sockaddr *)address, &length) < 0)
        return gb_fail_errno(error, "cannot ask for the socket's address");
    if (path && strcmp(path, address->sun_path) != 0)
        return gb_fail(
            error, GPUBUF_E_INVALID,
            "the service manager listens on %s, but the socket is to be %s; give it once",
            address->sun_path, path);
    flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
        return gb_fail_errno(error, "cannot make the socket non-blocking");
    return 0;
}

int gb_listener_adopt(struct gb_listener *listener, int fd, const char *path,
                      struct gb_error *error)
{
    struct sockaddr_un address = {0};
    int r = check_handed_over(fd, path, &address, error);

    *listener = (struct gb_listener){.fd = -1, .lock_fd = -1};
    if (r == 0) {
        listener->path = strdup(address.sun_path[0] ? address.sun_path : "(abstract)");
        if (!listener->path)
            r = gb_fail_memory(error);
    }
    if (r < 0)
        close(fd);
    else
        listener->fd = fd;
    return r;
}

void gb_listener_take_over(struct gb_listener *listener)
{
    listen(listener->fd, GB_LISTENER_BACKLOG);
    listener->taken_over = true;
}

void gb_listener_close(struct gb_listener *listener)
{
    struct gb_error error;

    if (!listener->path)
        return;
    if (listener->taken_over)
        (void)acquire_lock(listener, &error); /* fails if another daemon has it by now */
    close(listener->fd);
    drop_lock(listener, true);
    free(listener->path);
    *listener = (struct gb_listener){.fd = -1, .lock_fd = -1};
}
