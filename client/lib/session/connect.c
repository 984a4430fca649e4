#include "client/lib/session/connect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "client/lib/base/clock.h"
#include "client/lib/memory/gpu_own.h"
#include "client/lib/objects/cached.h"
#include "client/lib/objects/order.h"
#include "client/lib/objects/provide.h"
#include "client/lib/objects/watch.h"
#include "client/lib/session/due.h"
#include "client/lib/session/hello.h"
#include "client/lib/session/resume.h"
#include "client/lib/wire/call.h"
#include "client/lib/wire/callback.h"
#include "client/lib/wire/flusher.h"
#include "client/lib/wire/fork.h"
#include "client/lib/wire/link.h"
#include "client/lib/wire/release.h"
#include "client/lib/wire/report.h"
#include "proto/base/place.h"

#define CONNECT_TIMEOUT_MS 5000
#define RESUME_MS 10000
#define CACHE_LEASES 1024
#define CACHE_LEASES_MAX 2048 /* no page has more slots */
#define CACHE_LEASE_MS 10000

/* ---- what happens below ---- */

static void lost(struct gpubuf_client *client)
{
    gb_cached_forget(client);
    gb_resume_end(client);
    gb_watcher_end_all(client);
    gb_provide_end_all(client);
}

static void end(struct gpubuf_client *client)
{
    gb_order_end(client->order);
    gb_cached_end(client);
    gb_resume_end(client);
}

static const struct gb_client_hooks hooks = {
    .event = gb_watcher_event,
    .wanted = gb_provide_wanted,
    .recall = gb_cached_recall,
    .retire = gb_cached_clear_segment,
    .broken = gb_resume_break,
    .mend = gb_resume_mend,
    .lost = lost,
    .poll = gb_order_poll,
    .run_due = gb_client_run_due,
    .end = end,
};

struct gpubuf_client *gb_connect_over(int fd)
{
    struct gpubuf_client *client = gb_client_new(fd, &hooks);

    if (!client || gb_fork_watch(client) == 0)
        return client;
    gb_client_release(client);
    return NULL;
}

/* ---- connecting ---- */

/* A non-blocking socket gets EAGAIN if the daemon's queue of connections is full. */
static bool is_transient(int error)
{
    return error == EAGAIN || error == EINTR;
}

/* Why nobody can be connected to at `path`, and what to do. */
static int tell_unreachable(const char *path, int error)
{
    struct statx file; /* stat() is no function of older C libraries */
    char reason[128];

    if (error == ENOENT && strchr(path, ':'))
        return gb_report_text(
            NULL, GPUBUF_E_CONNECT,
            "%s is no address: gpubufd listens at a path of this machine, such as "
            "/run/gpubufd/gpubufd.sock",
            path);
    if (statx(AT_FDCWD, path, 0, STATX_TYPE, &file) == 0 && !S_ISSOCK(file.stx_mode))
        return gb_report_text(NULL, GPUBUF_E_CONNECT,
                              "cannot connect to the daemon at %s: it is no socket", path);
    if (error == ENOENT || error == ECONNREFUSED)
        return gb_report_text(
            NULL, GPUBUF_E_CONNECT,
            "no daemon listens at %s: start one (gpubufd --supervise, or systemctl "
            "start gpubufd), or set GPUBUFD_SOCKET to where one listens",
            path);
    return gb_report_text(NULL, GPUBUF_E_CONNECT, "cannot connect to the daemon at %s: %s", path,
                          strerror_r(error, reason, sizeof(reason)));
}

static int connect_socket(const char *path, int64_t deadline, int *out)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(path);

    if (length == 0 || length >= sizeof(address.sun_path))
        return gb_report_text(NULL, GPUBUF_E_CONNECT,
                              "%s: a socket's path has 1 to %zu bytes, this one has %zu", path,
                              sizeof(address.sun_path) - 1, length);
    memcpy(address.sun_path, path, length + 1);

    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        struct gb_error error;
        (void)gb_fail_errno(&error, "socket");
        return gb_report(NULL, &error);
    }
    struct timespec pause = {.tv_nsec = 1000000};
    while (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
        int error = errno;
        if (is_transient(error) && gb_left_ms(deadline) != 0) {
            (void)nanosleep(&pause, NULL); /* the kernel does not tell when the queue has room */
            continue;
        }
        close(fd);
        if (is_transient(error))
            return gb_report_text(NULL, GPUBUF_E_TIMEOUT,
                                  "%s: the daemon has not accepted the connection in time", path);
        return tell_unreachable(path, error);
    }
    *out = fd;
    return 0;
}

/* ---- greeting ---- */

static void write_hello(struct gb_writer *writer, const void *arg)
{
    const struct gpubuf_client *client = arg;

    gb_write_hello(writer, client->name);
    gb_write_char(writer, '}');
}

static int read_welcome(struct gb_json result, struct gb_pool *pool, void *client,
                        struct gb_error *error)
{
    return gb_read_welcome(client, result, NULL, error);
}

static int greet(struct gpubuf_client *client, int64_t deadline)
{
    int r = gb_call_read(client, "hello", write_hello, client, gb_left_ms(deadline), read_welcome,
                         client);

    return r < 0 ? gb_report_text(NULL, r, "%s", gpubuf_errmsg(client)) : 0;
}

static int read_options(const struct gpubuf_connect_options *given,
                        struct gpubuf_connect_options *options)
{
    int r = gb_read_options(NULL, given, options, sizeof(*options));

    if (r < 0)
        return r;
    if (options->timeout_ms == 0)
        options->timeout_ms = CONNECT_TIMEOUT_MS;
    if (options->answer_timeout_ms == 0)
        options->answer_timeout_ms = GB_ANSWER_TIMEOUT_MS;
    if (options->cache_bytes == 0)
        options->cache_bytes = GB_CACHE_BYTES;
    if (options->resume_ms == 0)
        options->resume_ms = RESUME_MS;
    if (!options->client_name)
        options->client_name = program_invocation_short_name;
    if (strlen(options->client_name) > GB_LIMIT(name_bytes) ||
        !gb_utf8_valid(options->client_name, strlen(options->client_name)))
        options->client_name = "";
    return 0;
}

static int cache_leases(struct gpubuf_client *client, const struct gpubuf_connect_options *options)
{
    if (options->cache_leases < 0)
        return 0;
    size_t most = options->cache_leases ? (size_t)options->cache_leases : CACHE_LEASES;
    if (most > CACHE_LEASES_MAX)
        most = CACHE_LEASES_MAX;
    int ms = options->cache_lease_ms > 0 ? options->cache_lease_ms : CACHE_LEASE_MS;
    return gb_cached_prepare(client, most, ms) < 0 ? gb_report_memory(NULL) : 0;
}

/* One attempt: a connection, and a greeting over it. */
static int connect_once(const char *path, const struct gpubuf_connect_options *options,
                        int64_t deadline, struct gpubuf_client **out)
{
    int fd = -1;
    int r = connect_socket(path, deadline, &fd);

    if (r == 0 && options->own_daemon && gb_socket_uid(fd) != geteuid()) {
        r = gb_report_text(NULL, GPUBUF_E_DENIED,
                           "%s: user %u runs the daemon there, and one of your own is asked for",
                           path, (unsigned)gb_socket_uid(fd));
        close(fd);
    }
    if (r < 0)
        return r;
    struct gpubuf_client *client = gb_connect_over(fd);
    if (!client) {
        close(fd);
        return gb_report_memory(NULL);
    }
    client->daemon.own_daemon = options->own_daemon;
    client->daemon.while_listening = options->while_listening && gb_socket_uid(fd) == geteuid();
    client->requests.timeout_ms = options->answer_timeout_ms < 0 ? -1 : options->answer_timeout_ms;
    client->imports.idle_bytes_max = options->cache_bytes;
    client->progress.report = options->progress;
    client->progress.arg = options->progress_arg;
    client->path = strdup(path);
    client->name = strdup(options->client_name);
    r = client->path && client->name ? cache_leases(client, options) : gb_report_memory(NULL);
    if (r == 0)
        r = greet(client, deadline);
    if (r < 0) {
        gpubuf_disconnect(client);
        return r;
    }
    client->daemon.resume_ms = options->resume_ms < GPUBUF_NO_RESUME ? -1 : options->resume_ms;
    if (client->daemon.resume_ms != GPUBUF_NO_RESUME && gb_resume_prepare(client) < 0) {
        gpubuf_disconnect(client);
        return gb_report_memory(NULL);
    }
    *out = client;
    return 0;
}

/* Connects again after a daemon that ended during the greeting, as long as a daemon listens. */
static int connect_again(const char *path, const struct gpubuf_connect_options *options,
                         int64_t deadline, struct gpubuf_client **out)
{
    struct gb_error why;
    int r = GPUBUF_E_CLOSED;

    (void)gb_fail(&why, r, "%s", gpubuf_errmsg(NULL));
    for (int pause_ms = 1; r == GPUBUF_E_CLOSED; pause_ms = pause_ms < 50 ? pause_ms * 2 : 100) {
        int64_t left = gb_left_ms(deadline);
        if (left >= 0 && left <= pause_ms)
            return gb_report(NULL, &why);
        struct timespec pause = {.tv_nsec = pause_ms * INT64_C(1000000)};
        (void)nanosleep(&pause, NULL);
        r = connect_once(path, options, deadline, out);
    }
    return r == GPUBUF_E_CONNECT ? gb_report(NULL, &why) : r;
}

int gpubuf_connect(struct gpubuf_client **out, const struct gpubuf_connect_options *given)
{
    struct gpubuf_connect_options options;

    if (!out)
        return gb_report_text(NULL, GPUBUF_E_INVALID, "`client` is NULL");
    int r = read_options(given, &options);
    if (r < 0)
        return r;

    char buffer[sizeof(((struct sockaddr_un *)0)->sun_path) * 2];
    const char *path = gb_place_of_client(options.path, buffer, sizeof(buffer), NULL);
    int64_t deadline = gb_deadline_ms(options.timeout_ms);
    r = connect_once(path, &options, deadline, out);
    if (r == GPUBUF_E_CLOSED && options.resume_ms != GPUBUF_NO_RESUME)
        r = connect_again(path, &options, deadline, out);
    return r;
}

/* ---- disconnecting ---- */

void gpubuf_disconnect(struct gpubuf_client *client)
{
    /* A child of fork has no part in the connection: its descriptor is closed, and another thread
       may have been changing the client when it forked. */
    if (!client || gb_is_forked(client))
        return;

    pthread_mutex_lock(&client->lock);
    gb_order_drain(client);
    if (client->lingers &&
        client->link == GB_LINK_UP) /* a lease that is lost is still this process's */
        gb_flush_releases(client);
    atomic_store(&client->disconnected, true);
    struct gb_error why;
    (void)gb_fail(&why, GPUBUF_E_CLOSED, "the program has disconnected");
    gb_client_lose(client, &why);
    gb_deliver(client, true);
    bool in_callback = gb_in_callback(client);
    while (client->polling.pollers > 0 || (client->deliveries.under_way && !in_callback)) {
        client->polling.waiters++;
        pthread_cond_wait(&client->changed, &client->lock);
        client->polling.waiters--;
    }
    gb_flusher_forget(client); /* which polls the connection's descriptor */
    gb_fork_unwatch(client);
    pthread_mutex_unlock(&client->lock);
    gb_gpu_own_forget(client->serial);
    gb_client_release(client);
}
