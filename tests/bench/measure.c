#include "measure.h"

#include <sched.h>
#include <stdarg.h>

#define BATCH 256 /* requests in flight while objects are published */

/* ---- the program ---- */

void die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fprintf(stderr, "%s: ", program_invocation_short_name);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    exit(EXIT_FAILURE);
}

struct options read_options(int argc, char **argv)
{
    struct options options = {NULL, false};

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--quick") == 0) {
            options.quick = true;
        } else if (!options.socket && argv[i][0] != '-') {
            options.socket = argv[i];
        } else {
            options.socket = NULL;
            break;
        }
    }
    if (!options.socket) {
        fprintf(stderr, "usage: %s SOCKET [--quick]\n", program_invocation_short_name);
        exit(2);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    return options;
}

int check(struct gpubuf_client *client, int result, const char *what)
{
    if (result < 0)
        die("%s: %s: %s", what, gpubuf_strerror(result), gpubuf_errmsg(client));
    return result;
}

static struct gpubuf_client *connect_with(const char *path, int cache_leases)
{
    const struct gpubuf_connect_options options = {
        .size = sizeof(options), .path = path, .cache_leases = cache_leases};
    struct gpubuf_client *client;

    check(NULL, gpubuf_connect(&client, &options), "connect");
    return client;
}

struct gpubuf_client *connect_to(const char *path)
{
    return connect_with(path, 0);
}

struct gpubuf_client *connect_uncached(const char *path)
{
    return connect_with(path, GPUBUF_NO_CACHE);
}

void *allocate_shared(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        die("out of memory");
    return memory;
}

pid_t fork_child(void)
{
    pid_t parent = getpid(), pid;

    fflush(NULL);
    pid = fork();
    if (pid < 0)
        die("cannot start a process: %s", strerror(errno));
    if (pid > 0)
        return pid;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    return 0;
}

void end_child(pid_t pid, const char *what)
{
    int status;

    if (waitpid(pid, &status, 0) != pid || status != 0)
        die("%s has failed", what);
}

void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count, size);

    if (!memory)
        die("out of memory");
    return memory;
}

double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

uint64_t draw(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* ---- series ---- */

void series_add(struct series *series, double value)
{
    if (series->count < SERIES_MAX)
        series->values[series->count++] = value;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double series_median(const struct series *series)
{
    struct series sorted = *series;
    size_t middle = sorted.count / 2;

    if (sorted.count == 0)
        die("nothing was measured");
    qsort(sorted.values, sorted.count, sizeof(sorted.values[0]), compare);
    if (sorted.count % 2)
        return sorted.values[middle];
    return (sorted.values[middle - 1] + sorted.values[middle]) / 2;
}

double percentile(double *values, size_t count, double part)
{
    size_t at = (size_t)((double)count * part);

    qsort(values, count, sizeof(*values), compare);
    return values[at < count ? at : count - 1];
}

static void print_series(const char *name, const struct series *series)
{
    double least = series->values[0], greatest = least;

    for (size_t i = 1; i < series->count; i++) {
        if (series->values[i] < least)
            least = series->values[i];
        if (series->values[i] > greatest)
            greatest = series->values[i];
    }
    printf(",\"%s\":{\"median\":%.6g,\"min\":%.6g,\"max\":%.6g,\"rounds\":%zu}", name,
           series_median(series), least, greatest, series->count);
}

void print_row(const struct row *row)
{
    printf("{\"id\":\"%s\",\"unit\":\"%s\"", row->id, row->unit);
    print_series("measured", row->measured);
    if (row->floor)
        print_series("floor", row->floor);
    if (row->ratio)
        print_series("ratio", row->ratio);
    if (row->note)
        printf(",\"note\":\"%s\"", row->note);
    printf("}\n");
}

void compared_add(struct compared *compared, double measured, double floor, double ratio)
{
    series_add(&compared->measured, measured);
    series_add(&compared->floor, floor);
    series_add(&compared->ratio, ratio);
}

void print_compared(const char *id, const char *unit, const struct compared *compared,
                    const char *note)
{
    print_row(
        &(struct row){id, unit, &compared->measured, &compared->floor, &compared->ratio, note});
}

/* ---- where processes run ---- */

const char *placement_name(enum placement placement)
{
    static const char *const names[] = {"free", "one_core", "two_cores"};

    return names[placement];
}

static void set_cores(pid_t pid, const cpu_set_t *cores)
{
    if (sched_setaffinity(pid, sizeof(*cores), cores) < 0)
        die("cannot pin process %d: %s", (int)pid, strerror(errno));
}

bool place(enum placement placement, const pid_t *others, size_t count)
{
    static cpu_set_t all;
    cpu_set_t mine = all, theirs = all;
    int found = 0;

    if (CPU_COUNT(&all) == 0 && sched_getaffinity(0, sizeof(all), &all) < 0)
        die("cannot tell the cores: %s", strerror(errno));
    if (placement == PLACE_TWO_CORES && CPU_COUNT(&all) < 2)
        return false;
    if (placement == PLACE_FREE)
        mine = theirs = all;
    for (size_t core = 0; placement != PLACE_FREE && core < CPU_SETSIZE && found < 2; core++) {
        if (!CPU_ISSET(core, &all))
            continue;
        if (found++ == 0) {
            CPU_ZERO(&mine);
            CPU_SET(core, &mine);
            theirs = mine;
        } else if (placement == PLACE_TWO_CORES) {
            CPU_ZERO(&theirs);
            CPU_SET(core, &theirs);
        }
    }
    set_cores(0, &mine);
    for (size_t i = 0; i < count; i++)
        set_cores(others[i], &theirs);
    return true;
}

/* ---- a raw connection ---- */

void raw_open(struct raw *raw, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (strlen(path) >= sizeof(address.sun_path))
        die("%s is too long for a socket's path", path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    *raw = (struct raw){.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (raw->fd < 0 || connect(raw->fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        die("cannot connect to %s: %s", path, strerror(errno));
}

void raw_close(struct raw *raw)
{
    close(raw->fd);
    free(raw->buffer);
    *raw = (struct raw){.fd = -1};
}

pid_t raw_peer(const struct raw *raw)
{
    struct ucred credentials;
    socklen_t length = sizeof(credentials);

    if (getsockopt(raw->fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) < 0)
        die("cannot tell the daemon's process: %s", strerror(errno));
    return credentials.pid;
}

void raw_send(struct raw *raw, const char *text, size_t length)
{
    while (length > 0) {
        ssize_t sent = send(raw->fd, text, length, MSG_NOSIGNAL);

        if (sent < 0 && errno != EINTR)
            die("cannot send: %s", strerror(errno));
        if (sent > 0) {
            text += sent;
            length -= (size_t)sent;
        }
    }
}

static void close_received(struct msghdr *header)
{
    for (struct cmsghdr *control = CMSG_FIRSTHDR(header); control;
         control = CMSG_NXTHDR(header, control)) {
        size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(control) + i * sizeof(int), sizeof(int));
            close(fd);
        }
    }
}

static void raw_receive(struct raw *raw)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(64 * sizeof(int))];
    } control;
    struct iovec vector;
    struct msghdr header = {.msg_iov = &vector, .msg_iovlen = 1};
    ssize_t received;

    if (raw->start > 0) {
        memmove(raw->buffer, raw->buffer + raw->start, raw->end - raw->start);
        raw->end -= raw->start;
        raw->start = 0;
    }
    if (raw->end == raw->capacity) {
        raw->capacity = raw->capacity ? raw->capacity * 2 : 65536;
        raw->buffer = realloc(raw->buffer, raw->capacity);
        if (!raw->buffer)
            die("out of memory");
    }
    vector = (struct iovec){raw->buffer + raw->end, raw->capacity - raw->end};
    do {
        header.msg_control = control.bytes;
        header.msg_controllen = sizeof(control.bytes);
        received = recvmsg(raw->fd, &header, MSG_CMSG_CLOEXEC);
    } while (received < 0 && errno == EINTR);
    if (received <= 0)
        die("the daemon hung up");
    close_received(&header);
    raw->end += (size_t)received;
}

char *raw_line(struct raw *raw, size_t *length)
{
    size_t looked_at = 0;
    char *newline = NULL, *line;

    for (;;) {
        if (raw->end > raw->start + looked_at)
            newline = memchr(raw->buffer + raw->start + looked_at, '\n',
                             raw->end - raw->start - looked_at);
        if (newline)
            break;
        looked_at = raw->end - raw->start;
        raw_receive(raw);
    }
    line = raw->buffer + raw->start;
    *newline = '\0';
    *length = (size_t)(newline - line);
    raw->start += *length + 1;
    return line;
}

char *raw_call(struct raw *raw, const char *method, const char *params)
{
    char *text, *line;
    size_t length;
    int written = asprintf(
        &text, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":%s}\n", method, params);

    if (written < 0)
        die("out of memory");
    raw_send(raw, text, (size_t)written);
    free(text);
    line = raw_line(raw, &length);
    if (strstr(line, "\"error\":{"))
        die("%s: %s", method, line);
    return line;
}

uint64_t raw_number(const char *line, const char *key)
{
    char quoted[NAME_BYTES];
    const char *found;

    snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    found = strstr(line, quoted);
    if (!found)
        die("expected %s in %.200s", quoted, line);
    return strtoull(found + strlen(quoted), NULL, 10);
}

uint64_t raw_lease(struct raw *raw, const char *method, const char *params)
{
    return raw_number(raw_call(raw, method, params), "lease");
}

static void call_with(struct raw *raw, const char *method, uint64_t lease, const char *more)
{
    char params[64];

    snprintf(params, sizeof(params), "{\"lease\":%llu%s}", (unsigned long long)lease, more);
    raw_call(raw, method, params);
}

void raw_release(struct raw *raw, uint64_t lease)
{
    call_with(raw, "release", lease, "");
}

void raw_seal(struct raw *raw, uint64_t lease)
{
    call_with(raw, "seal", lease, ",\"release\":true");
}

/* ---- the floor ---- */

static bool transfer(int fd, char *buffer, size_t length, bool sending)
{
    while (length > 0) {
        ssize_t done =
            sending ? send(fd, buffer, length, MSG_NOSIGNAL) : recv(fd, buffer, length, 0);

        if (done == 0 || (done < 0 && errno != EINTR))
            return false;
        if (done > 0)
            length -= (size_t)done;
    }
    return true;
}

void echo_start(struct echo *echo, size_t request, size_t reply)
{
    int sockets[2];

    *echo = (struct echo){.request = request, .reply = reply};
    echo->buffer = allocate(1, request > reply ? request : reply);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) < 0)
        die("socketpair: %s", strerror(errno));
    echo->server = fork_child();
    if (echo->server == 0) {
        close(sockets[0]);
        while (transfer(sockets[1], echo->buffer, request, false) &&
               transfer(sockets[1], echo->buffer, reply, true))
            ;
        _exit(0);
    }
    close(sockets[1]);
    echo->fd = sockets[0];
}

void echo_once(struct echo *echo)
{
    if (!transfer(echo->fd, echo->buffer, echo->request, true) ||
        !transfer(echo->fd, echo->buffer, echo->reply, false))
        die("the echo's process is gone");
}

void echo_stop(struct echo *echo)
{
    close(echo->fd);
    waitpid(echo->server, NULL, 0);
    free(echo->buffer);
}

/* ---- objects ---- */

void object_name(char *name, const char *prefix, size_t i)
{
    snprintf(name, NAME_BYTES, "%s/%06zu", prefix, i);
}

void random_name(char *name, const char *prefix, uint64_t drawn)
{
    snprintf(name, NAME_BYTES, "%s/%016llx", prefix, (unsigned long long)drawn);
}

void publish_one(struct raw *raw, const char *name)
{
    char params[512];

    snprintf(params, sizeof(params), "{\"name\":\"%s\",\"layout\":" SMALL_COLUMN "}", name);
    raw_seal(raw, raw_lease(raw, "create", params));
}

/* Creates and seals `count` objects, names being drawn from *state if it is not NULL. */
static void publish_batch(struct raw *raw, const char *prefix, size_t first, size_t count,
                          uint64_t *state)
{
    static char text[BATCH * 512];
    char name[NAME_BYTES];
    size_t length = 0, ignored;

    for (size_t i = 0; i < count; i++) {
        if (state)
            random_name(name, prefix, draw(state));
        else
            object_name(name, prefix, first + i);
        length += (size_t)snprintf(text + length, sizeof(text) - length,
                                   "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"create\",\"params\":"
                                   "{\"name\":\"%s\",\"layout\":" SMALL_COLUMN "}}\n",
                                   name);
    }
    raw_send(raw, text, length);
    length = 0;
    for (size_t i = 0; i < count; i++)
        length +=
            (size_t)snprintf(text + length, sizeof(text) - length,
                             "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"seal\",\"params\":"
                             "{\"lease\":%llu,\"release\":true}}\n",
                             (unsigned long long)raw_number(raw_line(raw, &ignored), "lease"));
    raw_send(raw, text, length);
    for (size_t i = 0; i < count; i++)
        raw_number(raw_line(raw, &ignored), "version");
}

void publish(struct raw *raw, const char *prefix, size_t count, const uint64_t *seed)
{
    uint64_t state = seed ? *seed : 0;

    for (size_t done = 0; done < count; done += BATCH)
        publish_batch(raw, prefix, done, count - done < BATCH ? count - done : BATCH,
                      seed ? &state : NULL);
}
