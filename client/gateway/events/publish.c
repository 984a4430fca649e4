#include "client/gateway/events/publish.h"

#include <arpa/inet.h>
#include <errno.h>
#include <nng/nng.h>
#include <nng/protocol/pubsub0/pub.h>
#include <nng/supplemental/util/platform.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/gateway/base/clock.h"
#include "client/gateway/base/options.h"

#define BACKLOG 4096       /* messages kept for a subscriber that does not keep up */
#define PROBE_MS 1000      /* between two looks at a listener */
#define ANSWER_MS 2000     /* for a listener to let the probe in */
#define GREET_MS 50        /* for a listener to accept */
#define STALLED_MS 60000   /* for a subscriber to take a message */
#define COMPLAIN_MS 60000  /* between two log lines about refused subscribers */
#define SHORT_OF_FDS 3 / 4 /* of the limit of descriptors is in use */
#define LINGER_MS 100      /* for NNG's own threads, after a listener was closed */

/* A pipe of NNG's. */
struct subscriber {
    uint32_t id;      /* 0: the slot is free */
    uint64_t taken;   /* messages taken, when we last looked */
    uint64_t offered; /* messages offered by the outlet, at that time */
    int64_t since_ms; /* when it last took a message */
};

struct outlet {
    struct gb_gateway_publish *publish;
    const char *url;
    bool ipc;
    union {
        struct sockaddr_un path;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } address; /* of the URL */
    socklen_t address_length;
    enum gb_gateway_audience audience;
    nng_socket socket;
    nng_listener listener;
    bool opened, listens;
    atomic_uint subscribers;
    atomic_uint_fast64_t offered, sent, refused, renewed, ended;

    /* Guarded by the publisher's lock. */
    struct subscriber *all; /* `most` of them */
    bool probing, arrived;  /* the probe is out; a peer was let in since */
    int64_t complained_ms;
};

struct gb_gateway_publish {
    struct outlet outlets[GB_GATEWAY_OPTIONS_MANY];
    unsigned count, most;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a peer arrived, or we stop */
    bool started, stopped;
};

/* ---- subscribers that come and go ---- */

static struct subscriber *find(struct outlet *outlet, uint32_t id)
{
    for (unsigned i = 0; i < outlet->publish->most; i++)
        if (outlet->all[i].id == id)
            return &outlet->all[i];
    return NULL;
}

static void refuse(struct outlet *outlet)
{
    int64_t now = gb_gateway_clock_ms();

    atomic_fetch_add(&outlet->refused, 1);
    if (outlet->complained_ms && now - outlet->complained_ms < COMPLAIN_MS)
        return;
    outlet->complained_ms = now;
    gb_log(GB_LOG_WARNING, "subscriber refused, there are too many",
           GB_LOG_TEXT("url", outlet->url),
           GB_LOG_NUMBER("subscribers", atomic_load(&outlet->subscribers)));
}

/* False: there are too many. */
static bool let_in(struct outlet *outlet, uint32_t id)
{
    struct subscriber *one = find(outlet, 0);

    outlet->arrived = true;
    pthread_cond_broadcast(&outlet->publish->changed);
    if (one) {
        *one = (struct subscriber){id, 0, atomic_load(&outlet->offered), gb_gateway_clock_ms()};
        atomic_fetch_add(&outlet->subscribers, 1);
    } else if (outlet->probing) {
        outlet->probing = false; /* the probe is no subscriber */
    } else {
        refuse(outlet);
    }
    return one;
}

static void on_pipe(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    struct outlet *outlet = arg;
    uint32_t id = (uint32_t)nng_pipe_id(pipe);
    struct subscriber *one;
    bool refused = false;

    pthread_mutex_lock(&outlet->publish->lock);
    if (event == NNG_PIPE_EV_ADD_PRE) {
        refused = !let_in(outlet, id);
    } else if (event == NNG_PIPE_EV_REM_POST && (one = find(outlet, id))) {
        one->id = 0;
        atomic_fetch_sub(&outlet->subscribers, 1);
    }
    pthread_mutex_unlock(&outlet->publish->lock);
    if (refused)
        nng_pipe_close(pipe);
}

/* ---- subscribers that do not read ---- */

/* True: the subscriber has taken nothing for too long, though messages were offered. */
static bool has_stalled(struct outlet *outlet, struct subscriber *one, uint64_t taken)
{
    uint64_t offered = atomic_load(&outlet->offered);

    if (taken == one->taken && offered > one->offered + 1)
        return gb_gateway_clock_ms() - one->since_ms >= gb_gateway_deadline_ms(STALLED_MS);
    if (taken == one->taken)
        return false;
    one->taken = taken;
    one->offered = offered;
    one->since_ms = gb_gateway_clock_ms();
    return false;
}

static void check_pipe(struct gb_gateway_publish *publish, uint32_t id, uint64_t taken)
{
    struct outlet *stalled = NULL;

    pthread_mutex_lock(&publish->lock);
    for (unsigned i = 0; i < publish->count && !stalled; i++) {
        struct subscriber *one = find(&publish->outlets[i], id);

        if (one && has_stalled(&publish->outlets[i], one, taken))
            stalled = &publish->outlets[i];
    }
    pthread_mutex_unlock(&publish->lock);
    if (!stalled)
        return;
    atomic_fetch_add(&stalled->ended, 1);
    nng_pipe_close((nng_pipe){id});
}

/* Ends subscribers that do not read: NNG would drop their messages for ever, and their places would
   stay taken. NNG's statistics tell how many messages each has taken. */
static void end_stalled(struct gb_gateway_publish *publish)
{
    nng_stat *all;

    if (nng_stats_get(&all) != 0)
        return;
    for (nng_stat *stat = nng_stat_child(all); stat; stat = nng_stat_next(stat)) {
        nng_stat *id = nng_stat_find(stat, "id"), *taken = nng_stat_find(stat, "tx_msgs");

        if (strcmp(nng_stat_name(stat), "pipe") == 0 && id && taken)
            check_pipe(publish, (uint32_t)nng_stat_value(id), nng_stat_value(taken));
    }
    nng_stats_free(all);
}

/* ---- listening ---- */

static int listen_at(struct outlet *outlet)
{
    int r = nng_listener_create(&outlet->listener, outlet->socket, outlet->url);

    if (r == 0 && outlet->ipc)
        r = nng_listener_set_int(outlet->listener, NNG_OPT_IPC_PERMISSIONS, 0660);
    if (r == 0)
        r = nng_listener_start(outlet->listener, 0);
    outlet->listens = r == 0;
    return r;
}

static int outlet_open(struct outlet *outlet, struct gb_error *error)
{
    int r;

    outlet->all = calloc(outlet->publish->most, sizeof(*outlet->all));
    if (!outlet->all)
        return gb_fail_memory(error);
    r = nng_pub0_open(&outlet->socket);
    if (r == 0) {
        outlet->opened = true;
        r = nng_socket_set_int(outlet->socket, NNG_OPT_SENDBUF, BACKLOG);
    }
    if (r == 0) /* without this NNG allocates whatever length a peer announces */
        r = nng_socket_set_size(outlet->socket, NNG_OPT_RECVMAXSZ, 1);
    for (int event = NNG_PIPE_EV_ADD_PRE; r == 0 && event <= NNG_PIPE_EV_REM_POST; event++)
        r = nng_pipe_notify(outlet->socket, (nng_pipe_ev)event, on_pipe, outlet);
    if (r == 0)
        r = listen_at(outlet);
    if (r != 0)
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot publish events at %s: %s", outlet->url,
                       nng_strerror(r));
    gb_log(GB_LOG_INFO, "publishing events", GB_LOG_TEXT("url", outlet->url));
    return 0;
}

static void renew(struct outlet *outlet, const char *why)
{
    if (outlet->listens) {
        gb_log(GB_LOG_WARNING, "listening again", GB_LOG_TEXT("why", why),
               GB_LOG_TEXT("url", outlet->url));
        nng_listener_close(outlet->listener);
    }
    if (listen_at(outlet) == 0)
        atomic_fetch_add(&outlet->renewed, 1);
    else
        nng_listener_close(outlet->listener);
}

/* ---- is the listener alive? ---- */

/* Waits for `*done`, up to `ms`. With the lock held. */
static bool wait_for(struct gb_gateway_publish *publish, const bool *done, int64_t ms)
{
    int64_t until = gb_gateway_clock_ms() + ms;

    while (!*done && gb_gateway_condition_wait(&publish->changed, &publish->lock, until))
        ;
    return *done;
}

/* Connects and greets as a subscriber does, with a socket of our own: NNG 1.5.2 may hang when it
   closes a socket of its own that has just connected. -1: the listener does not accept now. */
static int greet(const struct outlet *outlet)
{
    static const char greeting[8] = {0, 'S', 'P', 0, 0, 0x21, 0, 0};
    struct timeval most = {.tv_usec = GREET_MS * 1000};
    const struct sockaddr *address = (const struct sockaddr *)&outlet->address;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most)) == 0 &&
        connect(fd, address, outlet->address_length) == 0 &&
        send(fd, greeting, sizeof(greeting), MSG_NOSIGNAL) == sizeof(greeting))
        return fd;
    close(fd);
    return -1;
}

/* Subscribes, and waits until any peer is let in: NNG tells of a peer after its handshake. We wait
   even if we are to stop: NNG 1.5.2 may end the process if a socket is closed meanwhile. */
static bool is_alive(struct outlet *outlet)
{
    struct gb_gateway_publish *publish = outlet->publish;
    int64_t until = gb_gateway_clock_ms() + gb_gateway_deadline_ms(ANSWER_MS);
    bool alive;
    int fd = -1;

    if (!outlet->listens)
        return false;
    pthread_mutex_lock(&publish->lock);
    outlet->arrived = publish->stopped; /* no probe is sent then */
    outlet->probing = true;
    while (!outlet->arrived && gb_gateway_clock_ms() < until) {
        pthread_mutex_unlock(&publish->lock);
        if (fd < 0)
            fd = greet(outlet);
        pthread_mutex_lock(&publish->lock);
        wait_for(publish, &outlet->arrived, GREET_MS);
    }
    alive = outlet->arrived;
    outlet->probing = false;
    pthread_mutex_unlock(&publish->lock);
    if (fd >= 0)
        close(fd);
    return alive;
}

static bool is_short_of_fds(void)
{
    struct rlimit limit;
    int fd = dup(STDERR_FILENO); /* the lowest free descriptor */

    if (fd < 0)
        return errno == EMFILE;
    close(fd);
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && (rlim_t)fd > limit.rlim_cur * SHORT_OF_FDS;
}

/*
 * NNG has no limit for peers that have not greeted yet, and a listener for ipc:// that has died
 * never closes the peers that came afterwards. Listening anew hangs up on the former. Against the
 * latter only a restart helps, which the service manager does.
 */
static void relieve(struct gb_gateway_publish *publish)
{
    for (int ipc = 0; ipc <= 1 && is_short_of_fds(); ipc++) {
        for (unsigned i = 0; i < publish->count; i++)
            if (publish->outlets[i].ipc == ipc)
                renew(&publish->outlets[i], "descriptors run short");
        nng_msleep(LINGER_MS);
    }
    if (!is_short_of_fds())
        return;
    gb_log(GB_LOG_ERROR, "descriptors used up, exiting");
    _exit(EXIT_FAILURE);
}

static void *watch_over(void *arg)
{
    struct gb_gateway_publish *publish = arg;
    bool stop = false;

    while (!stop) {
        relieve(publish);
        for (unsigned i = 0; i < publish->count; i++)
            if (!is_alive(&publish->outlets[i]))
                renew(&publish->outlets[i], "the listener does not answer");
        end_stalled(publish);
        pthread_mutex_lock(&publish->lock);
        stop = wait_for(publish, &publish->stopped, gb_gateway_deadline_ms(PROBE_MS));
        pthread_mutex_unlock(&publish->lock);
    }
    return NULL;
}

/* ---- starting and ending ---- */

/* 127.0.0.0/8 or ::1, and a port. */
static bool read_loopback(const char *text, struct outlet *outlet)
{
    struct sockaddr_in *four = &outlet->address.four;
    struct sockaddr_in6 *six = &outlet->address.six;
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    unsigned long port = colon ? strtoul(colon + 1, NULL, 10) : 0;
    char host[64];

    if (length == 0 || length >= sizeof(host) || port == 0 || port > 65535)
        return false;
    if (*text == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    }
    memcpy(host, text, length);
    host[length] = '\0';
    if (inet_pton(AF_INET, host, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)port);
        outlet->address_length = sizeof(*four);
        return ntohl(four->sin_addr.s_addr) >> 24 == 127;
    }
    six->sin6_family = AF_INET6;
    six->sin6_port = htons((uint16_t)port);
    outlet->address_length = sizeof(*six);
    return inet_pton(AF_INET6, host, &six->sin6_addr) == 1 && IN6_IS_ADDR_LOOPBACK(&six->sin6_addr);
}

static int read_url(struct outlet *outlet, struct gb_error *error)
{
    const char *url = outlet->url;
    struct sockaddr_un *path = &outlet->address.path;

    outlet->ipc = strncmp(url, "ipc:///", 7) == 0;
    if (outlet->ipc && strlen(url + 6) < sizeof(path->sun_path)) {
        path->sun_family = AF_UNIX;
        strcpy(path->sun_path, url + 6);
        outlet->address_length = sizeof(*path);
        return 0;
    }
    if (strncmp(url, "tcp://", 6) != 0)
        return gb_fail(
            error, GPUBUF_E_INVALID,
            "--events \"%s\" is no URL such as ipc:///run/gpubufd-gateway/events.sock or "
            "tcp://127.0.0.1:9465",
            url);
    if (!read_loopback(url + 6, outlet))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "--events %s: expected an address of this machine, such as 127.0.0.1:9465, "
                       "since everybody who reaches it gets the events",
                       url);
    return 0;
}

int gb_gateway_publish_new(char *const *urls, unsigned subscribers, struct gb_gateway_publish **out,
                           struct gb_error *error)
{
    struct gb_gateway_publish *publish = calloc(1, sizeof(*publish));
    int r = 0;

    if (!publish)
        return gb_fail_memory(error);
    pthread_mutex_init(&publish->lock, NULL);
    gb_gateway_condition_init(&publish->changed);
    publish->most = subscribers;
    for (unsigned i = 0; urls[i] && r == 0; i++) {
        struct outlet *outlet = &publish->outlets[i];

        outlet->publish = publish;
        outlet->url = urls[i];
        r = read_url(outlet, error);
        outlet->audience = outlet->ipc ? GB_GATEWAY_AUDIENCE_ALL : GB_GATEWAY_AUDIENCE_PUBLIC;
        publish->count = i + 1;
        if (r == 0)
            r = outlet_open(outlet, error);
    }
    if (r == 0 && pthread_create(&publish->thread, NULL, watch_over, publish) != 0)
        r = gb_fail(error, GPUBUF_E_SYSTEM, "cannot start a thread");
    if (r < 0) {
        gb_gateway_publish_free(publish);
        return r;
    }
    publish->started = true;
    *out = publish;
    return 0;
}

void gb_gateway_publish_free(struct gb_gateway_publish *publish)
{
    if (!publish)
        return;
    if (publish->started) {
        pthread_mutex_lock(&publish->lock);
        publish->stopped = true;
        pthread_cond_broadcast(&publish->changed);
        pthread_mutex_unlock(&publish->lock);
        pthread_join(publish->thread, NULL);
    }
    for (unsigned i = 0; i < publish->count; i++) {
        if (publish->outlets[i].opened)
            nng_close(publish->outlets[i].socket);
    }
    nng_fini(); /* until then NNG's threads may still call on_pipe */
    for (unsigned i = 0; i < publish->count; i++)
        free(publish->outlets[i].all);
    pthread_cond_destroy(&publish->changed);
    pthread_mutex_destroy(&publish->lock);
    free(publish);
}

/* ---- publishing ---- */

static void send_told(struct outlet *outlet, const struct gb_gateway_told *told, const char *topic,
                      size_t length)
{
    size_t bytes = told->length[outlet->audience];
    nng_msg *message;
    char *body;

    if (nng_msg_alloc(&message, length + 1 + bytes) != 0)
        return;
    body = nng_msg_body(message);
    memcpy(body, topic, length);
    body[length] = '\n';
    memcpy(body + length + 1, told->text[outlet->audience], bytes);
    if (nng_sendmsg(outlet->socket, message, NNG_FLAG_NONBLOCK) != 0)
        nng_msg_free(message);
    else
        atomic_fetch_add(&outlet->sent, atomic_load(&outlet->subscribers));
}

void gb_gateway_publish(struct gb_gateway_publish *publish, const struct gb_gateway_told *told,
                        const char *topic, size_t topic_length, const char *public_topic)
{
    for (unsigned i = 0; i < publish->count; i++) {
        struct outlet *outlet = &publish->outlets[i];

        if (atomic_load(&outlet->subscribers) == 0)
            continue;
        atomic_fetch_add(&outlet->offered, 1);
        if (outlet->audience == GB_GATEWAY_AUDIENCE_PUBLIC && public_topic)
            send_told(outlet, told, public_topic, strlen(public_topic));
        else
            send_told(outlet, told, topic, topic_length);
    }
}

void gb_gateway_publish_count(struct gb_gateway_publish *publish,
                              struct gb_gateway_publish_counts *counts)
{
    *counts = (struct gb_gateway_publish_counts){0};
    for (unsigned i = 0; publish && i < publish->count; i++) {
        struct outlet *outlet = &publish->outlets[i];

        counts->subscribers += atomic_load(&outlet->subscribers);
        counts->sent += atomic_load(&outlet->sent);
        counts->refused += atomic_load(&outlet->refused);
        counts->renewed += atomic_load(&outlet->renewed);
        counts->ended += atomic_load(&outlet->ended);
    }
}
