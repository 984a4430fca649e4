#include "daemon/survive/notify.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "daemon/base/clock.h"
#include "daemon/base/failpoint.h"

/* The number of the first descriptor that a manager hands over (sd_listen_fds(3)). */
#define FIRST_FD 3

#define MESSAGE_BYTES 512

#define LATE_MS 1000   /* without a notice taken, to be late */
#define PAUSE_MIN_MS 1 /* before the queue is tried again; doubled while nothing is taken */
#define PAUSE_MAX_MS 100
#define FLUSH_NOTICES 64 /* in one go */
#define STEPS 64         /* of long work, after which the clock is read */
#define EXTEND_MS 10000  /* at most, before the manager is asked to wait on */

struct gb_notice {
    struct gb_notice *next;
    uint64_t number;
    int fd; /* not owned; -1: none */
    char text[];
};

/* ---- the environment ---- */

/* Reads a variable's number: 1 and *value; 0 if the variable is not set; GPUBUF_E_INVALID. */
static int read_number(const char *variable, uint64_t *value, struct gb_error *error)
{
    const char *text = getenv(variable);

    if (!text)
        return 0;
    if (*text && strspn(text, "0123456789") == strlen(text)) {
        errno = 0;
        *value = strtoull(text, NULL, 10);
        if (errno == 0)
            return 1;
    }
    return gb_fail(error, GPUBUF_E_INVALID, "%s is \"%.64s\", which is no number", variable, text);
}

/* ---- descriptors handed over ---- */

/* 1 and how many descriptors were handed over to us; 0: none; GPUBUF_E_INVALID. */
static int count_fds(uint64_t *count, struct gb_error *error)
{
    uint64_t pid;
    int r = read_number("LISTEN_PID", &pid, error);

    if (r <= 0 || pid != (uint64_t)getpid())
        return r < 0 ? r : 0;
    r = read_number("LISTEN_FDS", count, error);
    if (r > 0 && *count > INT_MAX - FIRST_FD)
        return gb_fail(error, GPUBUF_E_INVALID, "LISTEN_FDS is %" PRIu64 ", which is too many",
                       *count);
    return r > 0 && *count == 0 ? 0 : r;
}

/* Gives each descriptor its name, by cutting up `notify->names`. */
static int name_fds(struct gb_notify *notify, struct gb_error *error)
{
    unsigned colons = 0;
    char *rest = notify->names;

    for (const char *at = notify->names; at && *at; at++)
        colons += *at == ':';
    if (notify->names && colons + 1 != notify->fd_count)
        return gb_fail(error, GPUBUF_E_INVALID, "LISTEN_FDNAMES has %u names for %u descriptors",
                       colons + 1, notify->fd_count);
    for (unsigned i = 0; i < notify->fd_count; i++)
        notify->fds[i].name = rest ? strsep(&rest, ":") : GB_NOTIFY_SOCKET;
    if (!notify->names && notify->fd_count > 1)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "LISTEN_FDS is %u, and LISTEN_FDNAMES does not say which is the socket",
                       notify->fd_count);
    return 0;
}

static int mark_fds(struct gb_notify *notify, struct gb_error *error)
{
    for (unsigned i = 0; i < notify->fd_count; i++) {
        int fd = FIRST_FD + (int)i, flags = fcntl(fd, F_GETFD);

        if (flags < 0 || fcntl(fd, F_SETFD, flags | FD_CLOEXEC) < 0)
            return gb_fail_errno(error, "LISTEN_FDS is %u, but descriptor %d cannot be used",
                                 notify->fd_count, fd);
        notify->fds[i].fd = fd;
    }
    return 0;
}

static int read_fds(struct gb_notify *notify, struct gb_error *error)
{
    const char *names = getenv("LISTEN_FDNAMES");
    uint64_t count;
    int r = count_fds(&count, error);

    if (r <= 0)
        return r;
    notify->fds = calloc(count, sizeof(*notify->fds));
    notify->names = names ? strdup(names) : NULL;
    if (!notify->fds || (names && !notify->names))
        return gb_fail_memory(error);
    notify->fd_count = (unsigned)count;
    r = name_fds(notify, error);
    return r == 0 ? mark_fds(notify, error) : r;
}

/* ---- the watchdog ---- */

static int read_watchdog(struct gb_notify *notify, struct gb_error *error)
{
    uint64_t usec, pid = (uint64_t)getpid();
    int r = read_number("WATCHDOG_USEC", &usec, error);

    if (r <= 0)
        return r;
    r = read_number("WATCHDOG_PID", &pid, error);
    if (r >= 0 && pid == (uint64_t)getpid() && usec > 0)
        notify->watchdog_ms = usec < 1000 ? 1 : usec / 1000;
    return r < 0 ? r : 0;
}

/* ---- beginning and ending ---- */

static int connect_manager(struct gb_notify *notify)
{
    return connect(notify->socket, (const struct sockaddr *)&notify->address,
                   notify->address_length);
}

static int open_socket(struct gb_notify *notify, struct gb_error *error)
{
    const char *path = getenv("NOTIFY_SOCKET");
    size_t length = path ? strlen(path) : 0;

    notify->socket = gb_notify_acquire_fd(notify, GB_NOTIFY_CHANNEL);
    if (length == 0 || notify->socket >= 0)
        return 0;
    if (*path != '/' && *path != '@')
        return gb_fail(error, GPUBUF_E_INVALID,
                       "NOTIFY_SOCKET is \"%.200s\"; expected a path, or @ and an abstract name",
                       path);
    if (length < 2 || length >= sizeof(notify->address.sun_path))
        return gb_fail(error, GPUBUF_E_INVALID, "NOTIFY_SOCKET has %zu bytes; expected 2 to %zu",
                       length, sizeof(notify->address.sun_path) - 1);
    notify->address.sun_family = AF_UNIX;
    memcpy(notify->address.sun_path, path, length + 1);
    notify->address_length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + 1);
    if (*path == '@') { /* an abstract name has no NUL at its end */
        notify->address.sun_path[0] = '\0';
        notify->address_length--;
    }
    notify->socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (notify->socket < 0)
        return gb_fail_errno(error, "cannot make a socket");
    if (connect_manager(notify) < 0)
        return gb_fail_errno(error, "cannot reach the service manager at NOTIFY_SOCKET, %s", path);
    return 0;
}

static void clear_environment(void)
{
    static const char *const variables[] = {"NOTIFY_SOCKET", "LISTEN_PID",     "LISTEN_PIDFDID",
                                            "LISTEN_FDS",    "LISTEN_FDNAMES", "WATCHDOG_USEC",
                                            "WATCHDOG_PID",  "FDSTORE"};

    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
}

int gb_notify_begin(struct gb_notify *notify, struct gb_error *error)
{
    int r;

    *notify = GB_NOTIFY_NONE;
    r = read_fds(notify, error); /* first, before anything else opens one of their numbers */
    if (r >= 0)
        r = read_watchdog(notify, error);
    if (r >= 0)
        r = read_number("FDSTORE", &notify->most_fds, error);
    if (r >= 0)
        r = open_socket(notify, error);
    if (r < 0) {
        for (unsigned i = 0; i < notify->fd_count; i++)
            notify->fds[i].fd = -1;
        gb_notify_end(notify);
    }
    clear_environment();
    return r;
}

static void drop_first(struct gb_notify *notify)
{
    struct gb_notice *notice = notify->queue;

    notify->queue = notice->next;
    free(notice);
}

void gb_notify_end(struct gb_notify *notify)
{
    for (unsigned i = 0; i < notify->fd_count; i++)
        if (notify->fds[i].fd >= 0)
            close(notify->fds[i].fd);
    if (notify->socket >= 0)
        close(notify->socket);
    while (notify->queue)
        drop_first(notify);
    free(notify->fds);
    free(notify->names);
    *notify = GB_NOTIFY_NONE;
}

/* ---- sending ---- */

static ssize_t send_once(const struct gb_notify *notify, const char *text, int fd)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec vector = {(void *)(uintptr_t)text, strlen(text)};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    ssize_t sent;

    if (fd >= 0) {
        struct cmsghdr *rights = (struct cmsghdr *)control;

        message.msg_control = control;
        message.msg_controllen = sizeof(control);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &fd, sizeof(int));
    }
    do {
        sent = sendmsg(notify->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (sent < 0 && errno == EINTR);
    return sent;
}

/* False if the manager takes nothing now: its queue is full, too many descriptors of ours are in
   flight, or it is not there. */
static bool send_message(struct gb_notify *notify, const char *text, int fd)
{
    if (send_once(notify, text, fd) >= 0)
        return true;
    /* A manager that was restarted listens at the same address with another socket. */
    if ((errno == ECONNREFUSED || errno == ENOTCONN || errno == ECONNRESET) &&
        notify->address_length > 0 && connect_manager(notify) == 0 &&
        send_once(notify, text, fd) >= 0)
        return true;
    notify->error = errno;
    return false;
}

static int enqueue(struct gb_notify *notify, const char *text, int fd)
{
    struct gb_notice *notice = malloc(sizeof(*notice) + strlen(text) + 1);

    if (!notice)
        return GPUBUF_E_NO_MEMORY;
    *notice = (struct gb_notice){.number = ++notify->queued, .fd = fd};
    strcpy(notice->text, text);
    if (notify->queue) {
        notify->last->next = notice;
    } else {
        notify->queue = notice;
        notify->taken_ms = gb_now_ms();
        notify->pause_ms = PAUSE_MIN_MS;
        notify->try_at = notify->taken_ms + PAUSE_MIN_MS;
    }
    notify->last = notice;
    return 0;
}

static int send_or_queue(struct gb_notify *notify, const char *text, int fd)
{
    if (notify->socket < 0 || (!notify->queue && send_message(notify, text, fd)))
        return 0;
    if (!notify->queue && notify->error == EBADF)
        return GPUBUF_E_SYSTEM;
    return enqueue(notify, text, fd);
}

/* Sends some of the queue; whether any was taken. */
static bool send_queue(struct gb_notify *notify)
{
    unsigned sent = 0;

    if (notify->beat)
        notify->beat = !send_message(notify, "WATCHDOG=1", -1);
    for (; !notify->beat && notify->queue && sent < FLUSH_NOTICES; sent++) {
        const struct gb_notice *notice = notify->queue;

        if (!send_message(notify, notice->text, notice->fd))
            break;
        drop_first(notify);
    }
    return sent > 0;
}

void gb_notify_flush(struct gb_notify *notify)
{
    uint64_t now = gb_now_ms();

    notify->late = notify->late && notify->queue;
    if ((!notify->queue && !notify->beat) || now < notify->try_at)
        return;
    if (send_queue(notify)) {
        notify->taken_ms = now;
        notify->pause_ms = 0;
    }
    notify->pause_ms = notify->pause_ms ? 2 * notify->pause_ms : PAUSE_MIN_MS;
    if (notify->pause_ms > PAUSE_MAX_MS)
        notify->pause_ms = PAUSE_MAX_MS;
    notify->try_at = now + notify->pause_ms;
    notify->late = notify->queue && (notify->late || now - notify->taken_ms >= LATE_MS);
}

uint64_t gb_notify_due(const struct gb_notify *notify)
{
    return notify->queue || notify->beat ? notify->try_at : UINT64_MAX;
}

bool gb_notify_wait_sent(struct gb_notify *notify, uint64_t timeout_ms)
{
    struct timespec pause = {.tv_nsec = 1000000};
    uint64_t until = gb_now_ms() + timeout_ms;

    while (notify->queue && gb_now_ms() < until) {
        notify->try_at = 0;
        gb_notify_flush(notify);
        if (notify->queue)
            nanosleep(&pause, NULL);
    }
    return !notify->queue;
}

bool gb_notify_has_sent(const struct gb_notify *notify, uint64_t number)
{
    return !notify->queue || notify->queue->number > number;
}

int gb_notify_send_ready(struct gb_notify *notify)
{
    return send_or_queue(notify, "READY=1", -1);
}

int gb_notify_send_stopping(struct gb_notify *notify, bool for_good)
{
    return send_or_queue(notify, for_good ? "STOPPING=1\nX_FOR_GOOD=1" : "STOPPING=1", -1);
}

int gb_notify_send_watchdog(struct gb_notify *notify)
{
    notify->beat = notify->socket >= 0;
    gb_notify_flush(notify);
    return 0;
}

/* A sign of life before READY=1 would have systemd expect more of them in time. */
void gb_notify_extend(struct gb_notify *notify)
{
    uint64_t now, third = notify->watchdog_ms / 3;

    if (notify->socket < 0 || notify->steps++ % STEPS != 0 ||
        (now = gb_now_ms()) < notify->extend_at)
        return;
    notify->extend_at = now + (notify->watchdog_ms && third < EXTEND_MS ? third : EXTEND_MS);
    (void)send_message(notify, "EXTEND_TIMEOUT_USEC=60000000", -1);
}

int gb_notify_send_status(struct gb_notify *notify, const char *format, ...)
{
    char text[MESSAGE_BYTES] = "STATUS=";
    size_t length = strlen(text);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text + length, sizeof(text) - length, format, arguments);
    va_end(arguments);
    text[strcspn(text, "\r\n")] = '\0'; /* or it would be another assignment */
    return send_or_queue(notify, text, -1);
}

static bool is_name(const char *name)
{
    size_t length = strlen(name);

    if (length == 0 || length > GB_NOTIFY_NAME_BYTES)
        return false;
    for (size_t i = 0; i < length; i++)
        if (name[i] < ' ' || name[i] > '~' || name[i] == ':')
            return false;
    return true;
}

static void store_text(char text[MESSAGE_BYTES], const char *name)
{
    snprintf(text, MESSAGE_BYTES, "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
}

int gb_notify_store_fd(struct gb_notify *notify, const char *name, int fd)
{
    char text[MESSAGE_BYTES];
    int r;

    if (!is_name(name))
        return GPUBUF_E_INVALID;
    store_text(text, name);
    GB_FAILPOINT(STORE_BEGIN);
    r = send_or_queue(notify, text, fd);
    GB_FAILPOINT(STORE_DONE);
    return r;
}

/* Takes a notice out of the queue; false if it is not there. */
static bool strike_out(struct gb_notify *notify, const char *text)
{
    struct gb_notice *before = NULL, *notice = notify->queue;

    for (; notice && strcmp(notice->text, text) != 0; notice = notice->next)
        before = notice;
    if (!notice)
        return false;
    if (before)
        before->next = notice->next;
    else
        notify->queue = notice->next;
    if (notify->last == notice)
        notify->last = before;
    free(notice);
    return true;
}

int gb_notify_unstore_fd(struct gb_notify *notify, const char *name)
{
    char text[MESSAGE_BYTES];
    int r;

    if (!is_name(name))
        return GPUBUF_E_INVALID;
    store_text(text, name);
    if (strike_out(notify, text))
        return 0;
    snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", name);
    GB_FAILPOINT(UNSTORE_BEGIN);
    r = send_or_queue(notify, text, -1);
    GB_FAILPOINT(UNSTORE_DONE);
    return r;
}
