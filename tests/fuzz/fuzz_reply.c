/*
 * reply: the library, used as programs use it, and a daemon that says anything. Time and threads are by
 * hand: while the library waits the daemon takes its next steps, and when it has none left the
 * connection ends for good.
 *
 * The input is a program, a step a line:
 *   >text   the daemon sends the text as a message; `$` in it: the number of the last request
 *   |text   it sends the text without a newline: a piece of a message
 *   Fkinds  its next sending brings descriptors: s a good memfd, t one of 100 bytes, u unsealed, n none
 *   X  H    it closes the connection; it says that it will send no more
 *   T250    so many milliseconds pass
 *   Cx3     the library does x, with object 3 where it takes one: see do_call()
 *   N       in the first line: it does not make a connection that broke anew
 *   G       in the first line: it connects by itself, greeting and all
 *   E       in the first line: its releases wait for one another
 * What the library sends is checked; what it hands out is touched. Nothing is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/lib/internal.h"
#include "demand.h"
#include "reply_steps.h"

enum { OBJECTS = 6, REQUESTS = 8, WATCHES = 4, STEPS = 256 };

static struct {
    const char *at, *end; /* of the program */
    int steps;
    int socket; /* the daemon's end; -1: there is none */
    struct gb_frame in;
    int fds[GB_LIMIT(fds)];
    unsigned fd_count;
    int64_t now_us;
    bool holds_releases; /* the library has a thread that sends them; it never does */

    struct gpubuf_client *client;
    struct gpubuf_object *objects[OBJECTS];
    uint64_t requests[REQUESTS], watches[WATCHES];
    unsigned request_count, watch_count;
    unsigned callbacks_due;
} stage;

static int listener = -1;
static char socket_path[sizeof(((struct sockaddr_un *)0)->sun_path)];

/* ---- the daemon ---- */

/* Takes in what the library has sent: messages, all of them well-formed. */
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
        while (gb_frame_next(&stage.in, &line, &length) > 0) {
            struct gb_json value;

            DEMAND(gb_json_check(line, length, NULL, &value, NULL) == 0);
        }
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

/* A connection that the library has made since. False if there is none. */
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
            used += (size_t)sprintf(out + used, "%llu",
                                    stage.client ? (unsigned long long)stage.client->last_id : 1);
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

static void take_fds(const char *kinds, size_t length)
{
    static int made[128] = {0};

    for (size_t i = 0; i < length && stage.fd_count < GB_LIMIT(fds); i++) {
        unsigned kind = memchr("stu", kinds[i], 3) ? (unsigned)kinds[i] : 'n';

        if (!made[kind]) { /* out of the way of check_fds() */
            int once = make_fd((char)kind);

            made[kind] = fcntl(once, F_DUPFD_CLOEXEC, 200);
            close(once);
        }
        stage.fds[stage.fd_count] = fcntl(made[kind], F_DUPFD_CLOEXEC, 0);
        DEMAND(stage.fds[stage.fd_count++] >= 0);
    }
}

/* Where the next step ends; NULL if there is none. An unfinished one is none. */
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

/* A step of the daemon's. The text ends with its newline. */
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
    case 'T':
        stage.now_us += 1000 * (int64_t)(strtoul(text + 1, NULL, 10) % 1000000);
        break;
    }
}

/* While the library waits: what the program would do next is passed over. */
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
    (void)clock;
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
    (void)left;
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

    (void)condition;
    (void)mutex;
    daemon_goes_on();
    if (stage.now_us < until_us)
        stage.now_us = until_us;
    return ETIMEDOUT;
}

/* There is nobody else who could wake it. */
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);
int __wrap_pthread_cond_wait(pthread_cond_t *condition, pthread_mutex_t *mutex)
{
    (void)condition;
    (void)mutex;
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

/* There is no GPU, whatever machine this is: a driver opens files of its own. */
void *__real_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlopen(const char *name, int flags)
{
    return name && strcmp(name, "libcuda.so.1") == 0 ? NULL : __real_dlopen(name, flags);
}

/* Where a client receives into is large, and making it takes longer than most programs. */
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

/* In the place of client/lib/flusher.c. */
bool gb_flusher_engage(struct gpubuf_client *client)
{
    (void)client;
    return stage.holds_releases;
}

void gb_flusher_keep(struct gpubuf_client *client)
{
    (void)client;
}

void gb_flusher_forget(struct gpubuf_client *client)
{
    (void)client;
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

/* ---- the program ---- */

/* Touches all that it is given. */
static void touch(struct gpubuf_object *object, int depth)
{
    struct gpubuf_memory memory;
    struct gpubuf_object *view;
    volatile unsigned char sum = 0;
    const char *key, *value;
    uint64_t length = gpubuf_length(object);

    for (unsigned which = GPUBUF_DATA; which <= GPUBUF_OFFSETS; which++)
        if (gpubuf_memory(object, (enum gpubuf_which)which, &memory) == 0 && memory.bytes > 0)
            sum = (unsigned char)(sum + *(unsigned char *)memory.pointer +
                                  ((unsigned char *)memory.pointer)[memory.bytes - 1]);
    for (uint64_t i = 0; i < length && i < 20; i++)
        (void)gpubuf_is_valid(object, i);
    (void)gpubuf_is_valid(object, length ? length - 1 : 0);
    for (unsigned i = 0; i < gpubuf_ndim(object); i++)
        sum = (unsigned char)(sum + gpubuf_shape(object)[i] + (uint64_t)gpubuf_strides(object)[i]);
    for (size_t i = 0; gpubuf_metadata_at(object, i, &key, &value) == 0; i++)
        DEMAND(strcmp(gpubuf_metadata(object, key), value) == 0 || i > 0);
    DEMAND(strlen(gpubuf_dtype(object)) < 64 && gpubuf_name(object) && gpubuf_device(object));
    for (size_t i = 0; depth > 0 && i < gpubuf_child_count(object) && i < 4; i++)
        if (gpubuf_child(object, i, &view) == 0) {
            touch(view, depth - 1);
            gpubuf_release(view);
        }
}

/* Arrow's side reads every buffer from end to end. */
static void touch_arrow(struct gpubuf_object *object)
{
    struct ArrowSchema schema;
    struct ArrowArray array;

    if (gpubuf_export_arrow(object, &schema, &array) != 0)
        return;
    DEMAND(schema.n_children == array.n_children && array.length >= 0 && array.offset >= 0);
    DEMAND(schema.format && strlen(schema.format) > 0);
    schema.release(&schema);
    array.release(&array);
}

static void keep(struct gpubuf_object *object)
{
    for (int i = 0; i < OBJECTS; i++)
        if (!stage.objects[i]) {
            stage.objects[i] = object;
            return;
        }
    gpubuf_release(object);
}

static void on_object(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                      void *arg)
{
    (void)client;
    (void)arg;
    DEMAND(stage.callbacks_due-- > 0);
    DEMAND((status < 0) == (object == NULL));
    if (!object)
        return;
    touch(object, 3);
    keep(object);
}

static void on_objects(struct gpubuf_client *client, int status,
                       struct gpubuf_object *const *objects, const int *errors, size_t count,
                       void *arg)
{
    int opened = 0;

    (void)client;
    (void)arg;
    DEMAND(stage.callbacks_due-- > 0);
    DEMAND((status < 0) == (objects == NULL));
    for (size_t i = 0; objects && i < count; i++) {
        DEMAND((errors[i] < 0) == (objects[i] == NULL));
        if (!objects[i])
            continue;
        opened++;
        touch(objects[i], 3);
        keep(objects[i]);
    }
    DEMAND(status < 0 || status == opened);
}

static void on_text(struct gpubuf_client *client, int status, const char *result, size_t length,
                    void *arg)
{
    (void)client;
    (void)arg;
    DEMAND(stage.callbacks_due-- > 0);
    DEMAND((status < 0) == (result == NULL));
    DEMAND(!result || strnlen(result, length + 1) == length);
}

static void on_event(struct gpubuf_client *client, const char *kind, const struct gpubuf_info *info,
                     void *arg)
{
    (void)arg;
    DEMAND(kind && (!info || memchr(info->name, '\0', sizeof(info->name))));
    if (info && info->name[0] == 'u' && stage.watch_count > 0) /* ends its own watch */
        (void)gpubuf_unwatch(client, stage.watches[0]);
    if (info && info->name[0] == 'r' && stage.objects[0]) {
        gpubuf_release(stage.objects[0]);
        stage.objects[0] = NULL;
    }
}

static void on_watch(struct gpubuf_client *client, int status, uint64_t watch, void *arg)
{
    (void)client;
    (void)arg;
    DEMAND(stage.callbacks_due-- > 0);
    DEMAND((status < 0) == (watch == 0));
    if (watch)
        stage.watches[stage.watch_count++ % WATCHES] = watch;
}

static int each(const struct gpubuf_info *info, void *arg)
{
    int *left = arg;

    DEMAND(memchr(info->name, '\0', sizeof(info->name)) && memchr(info->tier, '\0', 8));
    return (*left)-- == 0;
}

static const char *const names[] = {"p", "q", "r/s"};
static const struct gpubuf_open_options waits = {.size = sizeof(waits), .wait_ms = 1000};
static const struct gpubuf_open_options version = {.size = sizeof(version), .version = 2};

static void open_things(char what)
{
    struct gpubuf_client *client = stage.client;
    struct gpubuf_object *opened[3], *object = NULL;
    uint64_t *request = &stage.requests[stage.request_count % REQUESTS];
    int errors[3], r = -1;

    switch (what) {
    case 'o':
        if (gpubuf_open(client, "p", NULL, &object) == 0)
            touch(object, 3), keep(object);
        return;
    case 'v':
        if (gpubuf_open(client, "p", &version, &object) == 0)
            touch(object, 3), keep(object);
        return;
    case 'm':
        if (gpubuf_open_many(client, names, 3, &waits, opened, errors) >= 0)
            for (int i = 0; i < 3; i++) {
                DEMAND((opened[i] != NULL) == (errors[i] == 0));
                if (opened[i])
                    touch(opened[i], 3), keep(opened[i]);
            }
        return;
    case 'O':
        r = gpubuf_open_async(client, "p", &waits, on_object, NULL, request);
        break;
    case 'M':
        r = gpubuf_open_many_async(client, names, 3, NULL, on_objects, NULL, request);
        break;
    }
    stage.callbacks_due += r == 0;
    stage.request_count += r == 0;
}

static void create_things(char what)
{
    static const uint64_t shape[] = {4, 5};
    static const struct gpubuf_column_spec columns[] = {
        {.name = "x", .dtype = "int32", .length = 3, .mask = true},
        {.name = "s", .dtype = "utf8", .length = 3, .data_bytes = 9}};
    static const struct gpubuf_layout_spec specs[] = {
        {.kind = GPUBUF_KIND_BYTES, .bytes = 100},
        {.kind = GPUBUF_KIND_ARRAY, .dtype = "float64", .ndim = 2, .shape = shape},
        {.kind = GPUBUF_KIND_TABLE,
         .column = {.length = 3, .children = columns, .child_count = 2}}};
    struct gpubuf_client *client = stage.client;
    struct gpubuf_object *object;
    int r = -1;

    switch (what) {
    case 'c':
        if (gpubuf_create(client, "p", &specs[0], NULL, &object) == 0)
            touch(object, 3), keep(object);
        return;
    case 't':
        if (gpubuf_create(client, "p", &specs[2], NULL, &object) == 0)
            touch(object, 3), keep(object);
        return;
    case 'b':
        (void)gpubuf_put_bytes(client, "p", "content", 7, NULL);
        return;
    case 'a':
        (void)gpubuf_put_array(client, "p", "int8", 1, shape, NULL, "abcd", NULL);
        return;
    case 'A':
        r = gpubuf_create_async(client, "p", &specs[1], NULL, on_object, NULL,
                                &stage.requests[stage.request_count % REQUESTS]);
    }
    stage.callbacks_due += r == 0;
    stage.request_count += r == 0;
}

static void register_fd(void)
{
    int fd = make_fd('s');

    (void)gpubuf_register_memfd(
        stage.client, "p", fd, 65536,
        "{\"kind\":\"bytes\",\"bytes\":9,\"data\":{\"handle\":0,\"offset\":0,\"bytes\":9}}", NULL);
    close(fd);
}

static void ask(char what)
{
    struct gpubuf_client *client = stage.client;
    struct gpubuf_info info;
    char *text;
    int left = 3, r = -1;

    switch (what) {
    case 's':
        if (gpubuf_stat(client, "p", &info) == 0)
            DEMAND(memchr(info.name, '\0', sizeof(info.name)) && memchr(info.device, '\0', 64));
        return;
    case 'l':
        (void)gpubuf_list(client, "p", each, &left);
        return;
    case 'd':
        (void)gpubuf_delete(client, "p");
        return;
    case 'p':
        (void)gpubuf_pin(client, "p");
        return;
    case 'i':
        (void)gpubuf_alias(client, "q", "p", NULL);
        return;
    case 'g':
        register_fd();
        return;
    case 'k':
        if (gpubuf_call(client, "stats", NULL, 500, &text) == 0)
            gpubuf_free(text);
        return;
    case 'K':
        r = gpubuf_call_async(client, "stats", "{}", on_text, NULL,
                              &stage.requests[stage.request_count % REQUESTS]);
        break;
    case 'w':
        if (gpubuf_watch(client, "p", on_event, NULL,
                         &stage.watches[stage.watch_count % WATCHES]) == 0)
            stage.watch_count++;
        return;
    case 'W':
        r = gpubuf_watch_async(client, NULL, on_event, on_watch, NULL,
                               &stage.requests[stage.request_count % REQUESTS]);
        break;
    }
    stage.callbacks_due += r == 0;
    stage.request_count += r == 0;
}

static void use(char what, unsigned number)
{
    struct gpubuf_object **slot = &stage.objects[number % OBJECTS], *object = *slot, *view;
    uint64_t length = object ? gpubuf_length(object) : 0;
    static const char *const columns[] = {"s", "x"};
    char bytes[16] = "";
    int r = -1;

    if (!object)
        return;
    switch (what) {
    case 'R':
        gpubuf_release(object);
        *slot = NULL;
        return;
    case 'T':
        touch(object, 3);
        return;
    case 'V':
        if (gpubuf_slice(object, length / 3, length / 3, &view) == 0)
            touch(view, 3), touch_arrow(view), keep(view);
        return;
    case 'E':
        touch_arrow(object);
        return;
    case 'H':
        if (gpubuf_child(object, number / 2, &view) == 0)
            touch(view, 2), keep(view);
        return;
    case 'L':
        if (gpubuf_select(object, columns, 2, &view) == 0)
            touch(view, 2), touch_arrow(view), keep(view);
        return;
    case 'D':
        (void)gpubuf_read(object, GPUBUF_DATA, 0, bytes, sizeof(bytes), NULL);
        return;
    case 'B':
        (void)gpubuf_write(object, GPUBUF_DATA, 0, bytes, sizeof(bytes), NULL);
        return;
    case 'Y':
        (void)gpubuf_wait_ready(object, NULL);
        return;
    case 'S':
        (void)gpubuf_seal(object, NULL);
        return;
    case 'Z':
        r = gpubuf_seal_async(object, NULL, on_object, NULL,
                              &stage.requests[stage.request_count % REQUESTS]);
    }
    stage.callbacks_due += r == 0;
    stage.request_count += r == 0;
}

/* o v m O M open, c t b a A create and put, s l d p i g k K w W ask, R T V E H L D B Y S Z use an
   object; q cancels a request, u ends a watch, . dispatches. */
static void do_call(char what, unsigned number)
{
    if (what == '.')
        (void)gpubuf_dispatch(stage.client);
    else if (what == 'q')
        (void)gpubuf_cancel(stage.client, stage.requests[number % REQUESTS]);
    else if (what == 'u')
        (void)gpubuf_unwatch(stage.client, stage.watches[number % WATCHES]);
    else if (what == 'f')
        (void)(gpubuf_fd(stage.client) + gpubuf_events(stage.client));
    else if (memchr("ovmOM", what, 5))
        open_things(what);
    else if (memchr("ctbaA", what, 5))
        create_things(what);
    else if (memchr("sldpigkKwW", what, 10))
        ask(what);
    else
        use(what, number);
}

/* ---- beginning and ending ---- */

static void remove_socket(void)
{
    unlink(socket_path);
}

static void begin_once(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *base = getenv("TMPDIR");

    if (listener >= 0)
        return;
    snprintf(socket_path, sizeof(socket_path), "%.60s/gpubufd-fuzz-%d", base ? base : "/dev/shm",
             getpid());
    strcpy(address.sun_path, socket_path);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    DEMAND(listener >= 0);
    unlink(socket_path);
    DEMAND(bind(listener, (const struct sockaddr *)&address, sizeof(address)) == 0);
    DEMAND(listen(listener, 16) == 0);
    atexit(remove_socket);
}

/* A client that has been greeted. */
static void make_client(bool resumes)
{
    int ends[2];

    DEMAND(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    stage.socket = ends[1];
    stage.client = gb_client_new(ends[0]);
    DEMAND(stage.client);
    strcpy(stage.client->instance, "f0");
    stage.client->path = strdup(socket_path);
    stage.client->name = strdup("fuzz");
    stage.client->resume_ms = resumes ? 2000 : GPUBUF_NO_RESUME;
    stage.client->answer_timeout_ms = 5000;
}

static void connect_client(void)
{
    const struct gpubuf_connect_options options = {.size = sizeof(options),
                                                   .path = socket_path,
                                                   .client_name = "fuzz",
                                                   .timeout_ms = 1000,
                                                   .resume_ms = 2000,
                                                   .cache_bytes = 65536};

    if (gpubuf_connect(&stage.client, &options) < 0)
        stage.client = NULL;
}

static void begin(const char *text, size_t size)
{
    const char *newline = memchr(text, '\n', size);
    size_t first = newline ? (size_t)(newline - text) : 0;

    memset(&stage, 0, sizeof(stage));
    stage.at = text;
    stage.end = text + size;
    stage.socket = -1;
    stage.now_us = 1000000;
    if (first > 0 && memchr("NGE", text[0], 3))
        stage.at = newline + 1;
    else
        first = 0;
    stage.holds_releases = first && memchr(text, 'E', first);
    if (first && memchr(text, 'G', first))
        connect_client();
    else
        make_client(!(first && memchr(text, 'N', first)));
}

static void play(void)
{
    const char *text;
    size_t length;

    while (stage.client && next_step(&text, &length)) {
        if (length > 1 && text[0] == 'C') {
            do_call(text[1],
                    length > 2 && text[2] >= '0' && text[2] <= '9' ? (unsigned)(text[2] - '0') : 0);
            hear();
        } else {
            daemon_step(text, length);
        }
    }
}

static void end(void)
{
    if (stage.client) {
        (void)gpubuf_dispatch(stage.client);
        hear();
        /* Objects outlive their client, half of them. */
        for (int i = 0; i < OBJECTS; i += 2)
            gpubuf_release(stage.objects[i]);
        gpubuf_disconnect(stage.client);
        for (int i = 1; i < OBJECTS; i += 2)
            gpubuf_release(stage.objects[i]);
    }
    DEMAND(stage.callbacks_due == 0);
    while (take_connection()) /* the next program has connections of its own only */
        ;
    hang_up();
    drop_fds();
    gb_frame_end(&stage.in);
}

/* Which of the first 100 descriptors are open: a leak takes one of those. */
static void note_fds(struct pollfd fds[100])
{
    for (int i = 0; i < 100; i++)
        fds[i] = (struct pollfd){.fd = i};
    __real_poll(fds, 100, 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct pollfd before[100], after[100];

    begin_once();
    note_fds(before);
    begin((const char *)data, size);
    play();
    end();
    note_fds(after);
    for (int i = 0; i < 100; i++)
        DEMAND((before[i].revents & POLLNVAL) == (after[i].revents & POLLNVAL));
    return 0;
}
