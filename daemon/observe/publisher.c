#include "daemon/observe/publisher.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/base/address.h"
#include "daemon/base/listener.h"
#include "daemon/base/log.h"
#include "daemon/config.h"
#include "daemon/observe/http_request.h"
#include "daemon/observe/subscriber.h"

#define NICENESS 10 /* of the thread: serving requests comes first */
#define OUTLET_BYTES (64u << 20)
#define SOCKET_MODE 0660
#define BACKLOG 64
#define ACCEPT_BATCH 64
#define CLOCK_MS 250

/* One URL. */
struct door {
    struct gb_publisher *publisher;
    enum gb_framing framing;
    enum gb_audience audience;
    struct gb_listener file; /* of ipc */
    int fd;                  /* of the others; owned */
    uv_poll_t poll;
};

struct gb_publisher {
    struct door doors[GB_CONFIG_NAMES];
    unsigned door_count;
    struct gb_outlet outlet;
    struct gb_subscribers subscribers;
    uv_loop_t loop;
    bool loop_made, started;
    uv_async_t wake;
    uv_timer_t clock;
    uv_pipe_t
        first; /* of the loop's streams: it takes a descriptor in reserve, now rather than later */
    uv_thread_t thread;
    atomic_bool stop;
};

/* ---- the thread ---- */

static int door_fd(const struct door *door)
{
    return door->framing == GB_FRAMING_IPC ? door->file.fd : door->fd;
}

static void on_door(uv_poll_t *poll, int status, int events)
{
    struct door *door = poll->data;

    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        /* cppcheck-suppress nullPointer ; accept4 takes NULL */
        int fd = accept4(door_fd(door), NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0) {
            gb_subscriber_new(&door->publisher->subscribers, fd, door->framing, door->audience);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
            uv_poll_stop(poll); /* until the clock: there may be room then */
        if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

static void on_clock(uv_timer_t *timer)
{
    struct gb_publisher *publisher = timer->data;

    gb_subscribers_check(&publisher->subscribers, uv_now(&publisher->loop));
    for (unsigned i = 0; i < publisher->door_count; i++)
        if (!uv_is_active((uv_handle_t *)&publisher->doors[i].poll))
            uv_poll_start(&publisher->doors[i].poll, UV_READABLE, on_door);
}

static void on_wake(uv_async_t *handle)
{
    struct gb_publisher *publisher = handle->data;
    struct gb_batch *batch;

    while ((batch = gb_outlet_take(&publisher->outlet))) {
        gb_subscribers_tell(&publisher->subscribers, batch);
        gb_batch_unref(batch);
    }
    if (atomic_load(&publisher->stop))
        uv_stop(&publisher->loop);
}

static void run(void *arg)
{
    struct gb_publisher *publisher = arg;

    setpriority(PRIO_PROCESS, 0, NICENESS); /* on Linux, of this thread alone */
    uv_run(&publisher->loop, UV_RUN_DEFAULT);
}

static void wake(void *arg)
{
    struct gb_publisher *publisher = arg;

    uv_async_send(&publisher->wake);
}

/* ---- starting ---- */

static int parse_address(const char *url, struct sockaddr_storage *address, struct gb_error *error)
{
    const char *rest = strstr(url, "://") + 3;
    char place[96], host[64];
    size_t length = strcspn(rest, "/");
    bool loopback = false;
    unsigned port;

    if (length < sizeof(place)) {
        memcpy(place, rest, length);
        place[length] = '\0';
    }
    if (length >= sizeof(place) || !gb_address_split(place, host, sizeof(host), &port))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "--events %s: expected an address and a port, such as 127.0.0.1:9465", url);
    if (strcmp(host, "localhost") == 0)
        memcpy(host, "127.0.0.1", sizeof("127.0.0.1"));
    if (uv_ip4_addr(host, (int)port, (struct sockaddr_in *)address) == 0)
        loopback = ntohl(((struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    else if (uv_ip6_addr(host, (int)port, (struct sockaddr_in6 *)address) == 0)
        loopback = IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)address)->sin6_addr);
    return loopback ? 0
                    : gb_fail(error, GPUBUF_E_INVALID,
                              "--events %s: expected an address of this machine, such as "
                              "127.0.0.1; events have no password",
                              url);
}

static int listen_tcp(struct door *door, const char *url, struct gb_error *error)
{
    struct sockaddr_storage address = {0};
    socklen_t length;
    int one = 1, r = parse_address(url, &address, error);

    if (r < 0)
        return r;
    length =
        address.ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    door->fd = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (door->fd < 0 || setsockopt(door->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        bind(door->fd, (struct sockaddr *)&address, length) < 0 || listen(door->fd, BACKLOG) < 0)
        return gb_fail_errno(error, "cannot publish events at %s", url);
    return 0;
}

static int open_door(struct gb_publisher *publisher, const char *url, struct gb_error *error)
{
    struct door *door = &publisher->doors[publisher->door_count++];
    bool is_ipc = strncmp(url, "ipc://", 6) == 0;
    struct gb_error inner;
    int r;

    *door = (struct door){.publisher = publisher, .fd = -1, .file.fd = -1};
    door->framing = is_ipc                          ? GB_FRAMING_IPC
                    : strncmp(url, "ws://", 5) == 0 ? GB_FRAMING_WS
                                                    : GB_FRAMING_TCP;
    door->audience = is_ipc ? GB_AUDIENCE_ALL : GB_AUDIENCE_PUBLIC;
    if (is_ipc) {
        r = gb_listener_open(&door->file, url + 6, SOCKET_MODE, &inner);
        if (r < 0)
            return gb_fail(error, r, "cannot publish events at %s: %s", url, inner.message);
    } else {
        r = listen_tcp(door, url, error);
        if (r < 0)
            return r;
    }
    if (uv_poll_init(&publisher->loop, &door->poll, door_fd(door)) < 0)
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot publish events at %s", url);
    door->poll.data = door;
    uv_poll_start(&door->poll, UV_READABLE, on_door);
    gb_log(GB_LOG_INFO, "publishing events", GB_LOG_TEXT("url", url));
    return 0;
}

static int make_loop(struct gb_publisher *publisher, struct gb_error *error)
{
    if (uv_loop_init(&publisher->loop) < 0)
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot make an event loop");
    publisher->loop_made = true;
    uv_timer_init(&publisher->loop, &publisher->clock);
    publisher->clock.data = publisher;
    uv_timer_start(&publisher->clock, on_clock, CLOCK_MS, CLOCK_MS);
    uv_pipe_init(&publisher->loop, &publisher->first, 0);
    publisher->wake.data = publisher;
    if (uv_async_init(&publisher->loop, &publisher->wake, on_wake) < 0)
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot make an event loop");
    gb_subscribers_init(&publisher->subscribers, &publisher->loop, &publisher->outlet);
    return 0;
}

int gb_publisher_new(char *const *urls, unsigned count, struct gb_publisher **out,
                     struct gb_error *error)
{
    struct gb_publisher *publisher = calloc(1, sizeof(*publisher));
    int r;

    if (!publisher || gb_outlet_init(&publisher->outlet, OUTLET_BYTES, wake, publisher) < 0) {
        free(publisher);
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
    }
    *out = publisher;
    r = make_loop(publisher, error);
    for (unsigned i = 0; r == 0 && i < count; i++)
        r = open_door(publisher, urls[i], error);
    if (r == 0 && uv_thread_create(&publisher->thread, run, publisher) < 0)
        r = gb_fail(error, GPUBUF_E_SYSTEM, "cannot start a thread for events");
    publisher->started = r == 0;
    return r;
}

/* ---- ending ---- */

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

void gb_publisher_end(struct gb_publisher *publisher)
{
    if (!publisher)
        return;
    if (publisher->started) {
        atomic_store(&publisher->stop, true);
        uv_async_send(&publisher->wake);
        uv_thread_join(&publisher->thread);
    }
    if (publisher->loop_made) {
        gb_subscribers_end(&publisher->subscribers);
        uv_walk(&publisher->loop, close_handle, NULL);
        uv_run(&publisher->loop, UV_RUN_DEFAULT);
        uv_loop_close(&publisher->loop);
    }
    for (unsigned i = 0; i < publisher->door_count; i++) {
        if (publisher->doors[i].framing == GB_FRAMING_IPC)
            gb_listener_close(&publisher->doors[i].file);
        else if (publisher->doors[i].fd >= 0)
            close(publisher->doors[i].fd);
    }
    gb_outlet_end(&publisher->outlet);
    free(publisher);
}

/* ---- */

struct gb_outlet *gb_publisher_outlet(struct gb_publisher *publisher)
{
    return &publisher->outlet;
}

void gb_publisher_counts(struct gb_publisher *publisher, struct gb_publisher_counts *counts)
{
    counts->subscribers = atomic_load(&publisher->outlet.takers);
    counts->sent = atomic_load(&publisher->subscribers.sent);
    counts->dropped =
        atomic_load(&publisher->subscribers.dropped) + gb_outlet_dropped(&publisher->outlet);
}
