/*
 * The stage of fuzz_reply.c: a daemon that says what the program tells it to, and replacements of
 * all functions by which the library waits, in which the daemon takes its next steps. Include it in
 * one file; tests/build.mk wraps what WRAP_fuzz_reply names. The functions at the end take the
 * place of client/lib/wire/flusher.c.
 */
#ifndef GB_FUZZ_REPLY_STAGE_H
#define GB_FUZZ_REPLY_STAGE_H

#include "client/lib/wire/flusher.h"
#include "demand.h"
#include "tests/unit/is_json.h"

enum { OBJECTS = 6, REQUESTS = 8, WATCHES = 4, STEPS = 256 };

static struct {
    const char *at, *end; /* the rest of the program */
    int steps;
    int socket; /* the daemon's end; -1: there is none */
    struct gb_frame in;
    int fds[GB_LIMIT(fds)];
    unsigned fd_count;
    int64_t now_us;
    bool holds_releases; /* the library believes that a thread sends releases; none is ever sent */
    bool keeps;          /* the client keeps leases … */
    int page_fd;         /* … by this page: see page_anew() */

    struct gpubuf_client *client;
    struct gpubuf_object *objects[OBJECTS];
    uint64_t requests[REQUESTS], watches[WATCHES];
    uint64_t wanted; /* the id of the last request that a provider got */
    unsigned request_count, watch_count;
    unsigned callbacks_due;
} stage;

static int listener = -1;
static char socket_path[sizeof(((struct sockaddr_un *)0)->sun_path)];

/* ---- the daemon ---- */

/* Receives what the library has sent and checks that every message is well-formed. */
static void hear(void)
{
    static char buffer[65536];
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(GB_LIMIT(fds) * sizeof(int))];
    } control;
    const char *line;
    size_t length;

    while (stage.socket >= 0) {
        struct iovec vector = {buffer, sizeof(buffer)};
        struct msghdr header = {.msg_iov = &vector,
                                .msg_iovlen = 1,
                                .msg_control = control.bytes,
                                .msg_controllen = sizeof(control.bytes)};
        ssize_t n = recvmsg(stage.socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

        if (n <= 0)
            return;
        for (struct cmsghdr *part = CMSG_FIRSTHDR(&header); part; part = CMSG_NXTHDR(&header, part))
            for (size_t i = 0; i < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
                int fd;

                memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
                close(fd);
            }
        gb_frame_begin(&stage.in, buffer, (size_t)n);
        while (gb_frame_next(&stage.in, &line, &length) > 0)
            DEMAND(is_json(line, length));
        DEMAND(gb_frame_finish(&stage.in) == 0);
    }
}

static void hang_up(void)
{
    if (stage.socket < 0)
        return;
    hear();
    close(stage.socket);
    stage.socket = -1;
    gb_frame_end(&stage.in);
}

/* Accepts a connection that the library has made since. False if there is none. */
static bool take_connection(void)
{
    /* cppcheck-suppress nullPointer ; accept4 takes NULL */
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return false;
    hang_up();
    stage.socket = fd;
    return true;
}

static void drop_fds(void)
{
    while (stage.fd_count > 0)
        close(stage.fds[--stage.fd_count]);
}

static void send_bytes(const char *data, size_t size)
{
    struct iovec vector = {(void *)(uintptr_t)data, size};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(GB_LIMIT(fds) * sizeof(int))];
    } control = {0};

    if (stage.fd_count > 0) {
        struct cmsghdr *header = &control.align;

        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(stage.fd_count * sizeof(int));
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(stage.fd_count * sizeof(int));
        memcpy(CMSG_DATA(header), stage.fds, stage.fd_count * sizeof(int));
    }
    if (size > 0 && stage.socket >= 0)
        (void)sendmsg(stage.socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    drop_fds();
}

static void say(const char *text, size_t length)
{
    char *out = malloc(length * 20 + 1);
    size_t used = 0;

    DEMAND(out);
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '$')
            used += (size_t)sprintf(
                out + used, "%llu",
                stage.client ? (unsigned long long)stage.client->requests.last_id : 1);
        else
            out[used++] = text[i];
    }
    send_bytes(out, used);
    free(out);
}

static int make_fd(char kind)
{
    int fd = kind == 'n' ? open("/dev/null", O_RDWR | O_CLOEXEC)
                         : memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    DEMAND(fd >= 0 && (kind == 'n' || ftruncate(fd, kind == 't' ? 100 : 65536) == 0));
    DEMAND(kind == 'n' || kind == 'u' || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    return fd;
}

/* The client's page and the pulse share memory: slot 0 is never that of a lease. */
enum { SLOTS = 8 };
static _Atomic uint64_t *page;

static bool is_dead(void)
{
    return page[0] != 1;
}

/* Resets the page to its initial state; returns its descriptor, which stays open. */
static int page_anew(void)
{
    static int fd = -1;

    if (fd < 0) {
        int once = make_fd('s');

        fd = fcntl(once, F_DUPFD_CLOEXEC, 200); /* out of the way of check_fds() */
        close(once);
        page = mmap(NULL, SLOTS * sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        DEMAND(page != MAP_FAILED);
    }
    for (unsigned i = 0; i < SLOTS; i++)
        page[i] = i ? i : 1;
    return fd;
}

static void take_fds(const char *kinds, size_t length)
{
    static int made[128] = {0};

    for (size_t i = 0; i < length && stage.fd_count < GB_LIMIT(fds); i++) {
        unsigned kind = memchr("stup", kinds[i], 4) ? (unsigned)kinds[i] : 'n';

        if (!made[kind]) { /* out of the way of check_fds() */
            int once = kind == 'p' ? dup(stage.page_fd) : make_fd((char)kind);

            made[kind] = fcntl(once, F_DUPFD_CLOEXEC, 200);
            close(once);
        }
        stage.fds[stage.fd_count] = fcntl(made[kind], F_DUPFD_CLOEXEC, 0);
        DEMAND(stage.fds[stage.fd_count++] >= 0);
    }
}

/* Where the next step ends; NULL if there is none. A step without its newline does not count. */
static const char *step_end(void)
{
    return stage.at < stage.end && stage.steps < STEPS
               ? memchr(stage.at, '\n', (size_t)(stage.end - stage.at))
               : NULL;
}

/* The next step's text without its newline. False at the end. */
static bool next_step(const char **text, size_t *length)
{
    const char *newline = step_end();

    if (!newline)
        return false;
    *text = stage.at;
    *length = (size_t)(newline - stage.at);
    stage.at = newline + 1;
    stage.steps++;
    return true;
}

/* Takes a step of the daemon. The text ends with its newline. */
static void daemon_step(const char *text, size_t length)
{
    (void)take_connection();
    hear();
    switch (length > 0 ? text[0] : 0) {
    case '>':
        say(text + 1, length);
        break;
    case '|':
        say(text + 1, length - 1);
        break;
    case 'F':
        take_fds(text + 1, length - 1);
        break;
    case 'X':
        hang_up();
        break;
    case 'H':
        if (stage.socket >= 0)
            shutdown(stage.socket, SHUT_WR);
        break;
    case 'P':
        page[length > 1 && text[1] > '0' && text[1] < '0' + SLOTS ? text[1] - '0' : 0] = 0;
        break;
    case 'T':
        stage.now_us += 1000 * (int64_t)(strtoul(text + 1, NULL, 10) % 1000000);
        break;
    }
}

/* Called while the library waits: takes the daemon's next step; calls of the program before it are
   skipped. */
static void daemon_goes_on(void)
{
    const char *text;
    size_t length;

    (void)take_connection();
    while (next_step(&text, &length)) {
        if (length > 0 && text[0] == 'C')
            continue;
        daemon_step(text, length);
        return;
    }
    hang_up(); /* and nobody listens any more: see __wrap_connect */
}

/* ---- what the library waits by ---- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    stage.now_us += 3;
    now->tv_sec = (time_t)(stage.now_us / 1000000);
    now->tv_nsec = (long)(stage.now_us % 1000000 * 1000);
    return 0;
}

int __real_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    int ready = __real_poll(fds, count, 0);

    if (ready != 0 || timeout_ms == 0)
        return ready;
    daemon_goes_on();
    ready = __real_poll(fds, count, 0);
    if (ready == 0 && !step_end())
        stage.now_us += 1000 * (int64_t)(timeout_ms < 0 ? 1000 : timeout_ms);
    return ready;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    stage.now_us += time->tv_sec * 1000000 + time->tv_nsec / 1000;
    daemon_goes_on();
    return 0;
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                  const struct timespec *until);
int __wrap_pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex,
                                  const struct timespec *until)
{
    int64_t until_us = until->tv_sec * 1000000 + until->tv_nsec / 1000;

    daemon_goes_on();
    if (stage.now_us < until_us)
        stage.now_us = until_us;
    return ETIMEDOUT;
}

/* Traps: this is the only thread, and nobody could wake it. */
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    fprintf(stderr, "the only thread waits for another one\n");
    __builtin_trap();
}

int __real_connect(int fd, const struct sockaddr *address, socklen_t length);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length)
{
    if (!step_end()) {
        errno = ECONNREFUSED;
        return -1;
    }
    return __real_connect(fd, address, length);
}

/* Pretends that there is no GPU: a driver opens files of its own. */
void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags)
{
    return name && strcmp(name, "libcuda.so.1") == 0 ? NULL : __real_dlopen(name, flags);
}

/* The client's buffer for received data: it is large, and allocating it takes longer than most
   programs. */
static char input[GB_INPUT_BYTES];
static bool input_used;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size)
{
    if (size != GB_INPUT_BYTES || input_used)
        return __real_malloc(size);
    input_used = true;
    return input;
}

void __real_free(void *pointer);
void __wrap_free(void *pointer);
void __wrap_free(void *pointer)
{
    if (pointer == input)
        input_used = false;
    else
        __real_free(pointer);
}

/* In the place of client/lib/wire/flusher.c. */
bool gb_flusher_engage(struct gpubuf_client *client)
{
    return stage.holds_releases;
}

void gb_flusher_watch(struct gpubuf_client *client)
{
}

void gb_flusher_forget(struct gpubuf_client *client)
{
}

void gb_flusher_listen(struct gpubuf_client *client)
{
}

void gb_flusher_stop(void)
{
}

void gb_flusher_before_fork(void)
{
}

void gb_flusher_in_parent(void)
{
}

void gb_flusher_in_child(void)
{
}

#endif
