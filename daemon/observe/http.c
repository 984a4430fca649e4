#include "daemon/observe/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/base/address.h"
#include "daemon/base/log.h"
#include "daemon/config.h"
#include "daemon/observe/http_server.h"
#include "daemon/observe/publisher.h"
#include "daemon/serve/server.h"

#define BACKLOG 64
#define CLOCK_MS 500
#define BEAT_MS 20
#define OUTLET_BYTES (32u << 20)
#define NICENESS 5 /* of the thread: serving requests comes first */
#define TOKEN_LEAST 16

/* ---- between the loops ---- */

static struct gb_query *take(struct gb_http *http, struct gb_link *list, bool *more)
{
    struct gb_link *link = NULL;

    uv_mutex_lock(&http->lock);
    if (!gb_list_empty(list)) {
        link = list->next;
        gb_list_remove(link);
    }
    *more = !gb_list_empty(list);
    uv_mutex_unlock(&http->lock);
    return link ? GB_CONTAINER(link, struct gb_query, link) : NULL;
}

void gb_http_ask(struct gb_http *http, struct gb_query *query)
{
    uv_mutex_lock(&http->lock);
    gb_list_append(&http->queries, &query->link);
    uv_mutex_unlock(&http->lock);
    uv_async_send(http->wanted);
}

/* On the daemon's loop: one slice each turn, so that requests come in between. */
static void on_wanted(uv_async_t *handle)
{
    struct gb_http *http = handle->data;
    struct gb_observe_counts counts = {0};
    bool more;
    struct gb_query *query = take(http, &http->queries, &more);

    if (!query)
        return;
    gb_http_counts(http, &counts.http);
    if (http->publisher)
        gb_publisher_counts(http->publisher, &counts.publisher);
    gb_query_step(http->server, query, &counts);
    uv_mutex_lock(&http->lock);
    gb_list_append(&http->answers, &query->link);
    uv_mutex_unlock(&http->lock);
    uv_async_send(&http->wake);
    if (more)
        uv_async_send(handle);
}

static void wake(void *arg)
{
    struct gb_http *http = arg;

    uv_async_send(&http->wake);
}

/* ---- the thread ---- */

static void on_beat(uv_timer_t *timer)
{
    struct gb_http *http = timer->data;

    if (!gb_peers_beat(http, uv_now(&http->loop)))
        uv_timer_stop(timer);
}

static void on_clock(uv_timer_t *timer)
{
    struct gb_http *http = timer->data;

    gb_peers_check(http, uv_now(&http->loop));
}

/* The loop ends when nothing is left open. Queries that are out stay where they are. */
static void end_thread(struct gb_http *http)
{
    if (http->ending)
        return;
    http->ending = true;
    gb_peers_close(http);
    uv_close((uv_handle_t *)&http->listener, NULL);
    uv_close((uv_handle_t *)&http->clock, NULL);
    uv_close((uv_handle_t *)&http->beat, NULL);
    uv_close((uv_handle_t *)&http->wake, NULL);
}

static void on_wake(uv_async_t *handle)
{
    struct gb_http *http = handle->data;
    struct gb_query *query;
    struct gb_batch *batch;
    bool more, stop;

    while ((query = take(http, &http->answers, &more)))
        gb_peer_answer(query);
    while ((batch = gb_outlet_take(&http->outlet))) {
        gb_peers_tell(http, batch);
        gb_batch_unref(batch);
    }
    if (!http->ending && gb_peers_beat(http, uv_now(&http->loop)) &&
        !uv_is_active((uv_handle_t *)&http->beat))
        uv_timer_start(&http->beat, on_beat, BEAT_MS, BEAT_MS);
    uv_mutex_lock(&http->lock);
    stop = http->stop;
    uv_mutex_unlock(&http->lock);
    if (stop)
        end_thread(http);
}

static void on_connection(uv_stream_t *listener, int status)
{
    if (status >= 0)
        gb_peer_accept(listener->data);
}

static void run(void *arg)
{
    struct gb_http *http = arg;

    setpriority(PRIO_PROCESS, 0, NICENESS); /* on Linux, of this thread alone */
    uv_run(&http->loop, UV_RUN_DEFAULT);
}

/* ---- starting ---- */

static int parse(const char *text, struct sockaddr_storage *address, bool *loopback,
                 struct gb_error *error)
{
    struct sockaddr_in *four = (struct sockaddr_in *)address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
    char host[64];
    unsigned port;

    if (!gb_address_split(text, host, sizeof(host), &port))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "--http %s: expected an address and a port, such as 127.0.0.1:9464", text);
    if (strcmp(host, "localhost") == 0)
        memcpy(host, "127.0.0.1", sizeof("127.0.0.1"));
    if (uv_ip4_addr(host, (int)port, four) == 0) {
        *loopback = ntohl(four->sin_addr.s_addr) >> 24 == 127;
        return 0;
    }
    if (uv_ip6_addr(host, (int)port, six) == 0) {
        *loopback = IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
        return 0;
    }
    return gb_fail(error, GPUBUF_E_INVALID, "--http %s: \"%s\" is no IP address", text, host);
}

static int read_token(struct gb_http *http, const char *path, struct gb_error *error)
{
    char buffer[513];
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = -1;

    if (fd < 0)
        return gb_fail_errno(error, "cannot read the token file %s", path);
    if (fstat(fd, &status) == 0)
        n = read(fd, buffer, sizeof(buffer) - 1);
    close(fd);
    if (n < 0)
        return gb_fail_errno(error, "cannot read the token file %s", path);
    if (status.st_mode & 077)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "%s can be read by others than its owner; say chmod 600", path);
    buffer[n] = '\0';
    buffer[strcspn(buffer, "\r\n")] = '\0';
    http->token_length = strlen(buffer);
    if (http->token_length < TOKEN_LEAST)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "%s: expected a token of at least %d characters in the first line", path,
                       TOKEN_LEAST);
    for (const char *c = buffer; *c; c++)
        if (*c <= ' ' || *c > '~')
            return gb_fail(error, GPUBUF_E_INVALID,
                           "%s: the token may only have letters, digits and signs", path);
    http->token = strdup(buffer);
    return http->token ? 0 : gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
}

static int draw_cookie(struct gb_http *http, struct gb_error *error)
{
    unsigned char random[16];

    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return gb_fail_errno(error, "cannot draw a random cookie");
    for (size_t i = 0; i < sizeof(random); i++)
        snprintf(http->cookie + 2 * i, 3, "%02x", random[i]);
    return 0;
}

static int listen_at(struct gb_http *http, const struct sockaddr_storage *address, const char *text,
                     struct gb_error *error)
{
    struct sockaddr_storage bound;
    int length = sizeof(bound);
    int r = uv_tcp_bind(&http->listener, (const struct sockaddr *)address, 0);

    if (r == 0)
        r = uv_listen((uv_stream_t *)&http->listener, BACKLOG, on_connection);
    if (r == 0)
        r = uv_tcp_getsockname(&http->listener, (struct sockaddr *)&bound, &length);
    if (r < 0)
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot listen at --http %s: %s", text,
                       uv_strerror(r));
    http->port = ntohs(bound.ss_family == AF_INET ? ((struct sockaddr_in *)&bound)->sin_port
                                                  : ((struct sockaddr_in6 *)&bound)->sin6_port);
    return 0;
}

static int make_loop(struct gb_http *http, struct gb_error *error)
{
    if (uv_loop_init(&http->loop) < 0)
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot make an event loop");
    http->loop_made = true;
    uv_tcp_init(&http->loop, &http->listener);
    http->listener.data = http;
    uv_timer_init(&http->loop, &http->clock);
    http->clock.data = http;
    uv_timer_init(&http->loop, &http->beat);
    http->beat.data = http;
    uv_timer_start(&http->clock, on_clock, CLOCK_MS, CLOCK_MS);
    http->wake.data = http;
    if (uv_async_init(&http->loop, &http->wake, on_wake) < 0)
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot make an event loop");
    return 0;
}

static void say_where(const struct gb_http *http, const struct sockaddr_storage *address)
{
    char host[INET6_ADDRSTRLEN] = "", url[INET6_ADDRSTRLEN + 24];
    bool six = address->ss_family == AF_INET6;

    if (six)
        uv_ip6_name((const struct sockaddr_in6 *)address, host, sizeof(host));
    else
        uv_ip4_name((const struct sockaddr_in *)address, host, sizeof(host));
    snprintf(url, sizeof(url), "http://%s%s%s:%u/", six ? "[" : "", host, six ? "]" : "",
             http->port);
    gb_log(GB_LOG_INFO, "serving http", GB_LOG_TEXT("url", url),
           GB_LOG_TEXT("token", http->token ? "asked for" : "none"));
}

static int start(struct gb_http *http, struct gb_error *error)
{
    const struct gb_config *config = http->server->config;
    struct sockaddr_storage address = {0};
    bool loopback = false;
    int r = parse(config->http, &address, &loopback, error);

    if (r == 0 && config->http_token_file)
        r = read_token(http, config->http_token_file, error);
    else if (r == 0 && !loopback)
        r = gb_fail(error, GPUBUF_E_INVALID,
                    "--http %s can be reached from other machines: give --http-token-file too",
                    config->http);
    if (r == 0)
        r = draw_cookie(http, error);
    if (r == 0)
        r = make_loop(http, error);
    if (r == 0)
        r = listen_at(http, &address, config->http, error);
    if (r < 0)
        return r;
    http->wanted = calloc(1, sizeof(*http->wanted));
    if (!http->wanted || uv_async_init(http->server->loop, http->wanted, on_wanted) < 0) {
        free(http->wanted);
        http->wanted = NULL;
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
    }
    http->wanted->data = http;
    if (uv_thread_create(&http->thread, run, http) < 0)
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot start a thread for --http");
    http->started = true;
    say_where(http, &address);
    return 0;
}

int gb_http_new(struct gb_server *server, struct gb_publisher *publisher, struct gb_http **out,
                struct gb_error *error)
{
    struct gb_http *http = calloc(1, sizeof(*http));

    if (!http || gb_outlet_init(&http->outlet, OUTLET_BYTES, wake, http) < 0) {
        free(http);
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
    }
    if (uv_mutex_init(&http->lock) < 0) {
        gb_outlet_end(&http->outlet);
        free(http);
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
    }
    http->server = server;
    http->publisher = publisher;
    http->names = (const char *const *)server->config->http_names;
    http->most_peers = server->limits->http_connections;
    gb_list_init(&http->queries);
    gb_list_init(&http->answers);
    gb_list_init(&http->peers);
    *out = http; /* to be stopped and freed also where it did not start */
    return start(http, error);
}

/* ---- ending ---- */

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

void gb_http_stop(struct gb_http *http)
{
    if (!http || !http->started)
        return;
    uv_mutex_lock(&http->lock);
    http->stop = true;
    uv_mutex_unlock(&http->lock);
    uv_async_send(&http->wake);
    uv_thread_join(&http->thread);
    http->started = false;
    gb_list_init(&http->queries); /* they are their peers' */
    gb_list_init(&http->answers);
    gb_peers_free(http);
}

void gb_http_free(struct gb_http *http)
{
    if (!http)
        return;
    if (http->loop_made) {
        uv_walk(&http->loop, close_handle, NULL);
        uv_run(&http->loop, UV_RUN_DEFAULT);
        uv_loop_close(&http->loop);
    }
    gb_outlet_end(&http->outlet);
    uv_mutex_destroy(&http->lock);
    free(http->wanted);
    free(http->token);
    free(http);
}

/* ---- */

struct gb_outlet *gb_http_outlet(struct gb_http *http)
{
    return &http->outlet;
}

void gb_http_counts(struct gb_http *http, struct gb_http_counts *counts)
{
    counts->connections = atomic_load(&http->counts.connections);
    counts->live = atomic_load(&http->counts.live);
    counts->connections_total = atomic_load(&http->counts.connections_total);
    counts->refused_total = atomic_load(&http->counts.refused);
    for (unsigned i = 0; i < 4; i++)
        counts->requests[i] = atomic_load(&http->counts.requests[i]);
    counts->dropped = atomic_load(&http->counts.dropped) + gb_outlet_dropped(&http->outlet);
}
