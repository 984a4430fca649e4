#include "client/gateway/publish.h"

#include <arpa/inet.h>
#include <nng/nng.h>
#include <nng/protocol/pubsub0/pub.h>
#include <nng/protocol/pubsub0/sub.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "client/gateway/say.h"

#define BACKLOG 4096      /* messages for a subscriber that does not keep up */
#define PROBE_MS 1000     /* between two looks at a listener */
#define ANSWER_MS 2500    /* for a listener to let the probe in */
#define COMPLAIN_MS 60000 /* between two lines of the log about refused ones */

struct outlet {
    struct gb_publish *publish;
    const char *url;
    bool ipc;
    enum gb_audience audience;
    nng_socket socket;
    nng_listener listener;
    bool opened;
    atomic_bool listens, probing;
    atomic_uint subscribers;
    atomic_uint_fast64_t sent, refused, renewed;
    atomic_int_fast64_t complained_ms;
};

struct gb_publish {
    struct outlet outlets[8];
    unsigned count, most;
    atomic_int_fast64_t figures_ms; /* when they were published last */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool started, stopped; /* `stopped` is guarded by the lock */
};

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- who comes and goes ---- */

static void refuse(struct outlet *outlet)
{
    int64_t now = now_ms();

    atomic_fetch_add(&outlet->refused, 1);
    if (atomic_load(&outlet->complained_ms) &&
        now - atomic_load(&outlet->complained_ms) < COMPLAIN_MS)
        return;
    atomic_store(&outlet->complained_ms, now);
    gb_say("subscribers are refused, there are too many url=%s subscribers=%u", outlet->url,
           atomic_load(&outlet->subscribers));
}

static void on_pipe(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    struct outlet *outlet = arg;

    switch (event) {
    case NNG_PIPE_EV_ADD_PRE: /* NNG tells of its end whatever becomes of it here */
        if (atomic_fetch_add(&outlet->subscribers, 1) < outlet->publish->most)
            break;
        if (!atomic_exchange(&outlet->probing, false)) /* the probe is no subscriber */
            refuse(outlet);
        nng_pipe_close(pipe);
        break;
    case NNG_PIPE_EV_REM_POST:
        atomic_fetch_sub(&outlet->subscribers, 1);
        break;
    default:
        break;
    }
}

/* ---- listening ---- */

static int listen_at(struct outlet *outlet)
{
    int r = nng_listener_create(&outlet->listener, outlet->socket, outlet->url);

    if (r == 0 && outlet->ipc)
        r = nng_listener_set_int(outlet->listener, NNG_OPT_IPC_PERMISSIONS, 0660);
    if (r == 0)
        r = nng_listener_start(outlet->listener, 0);
    atomic_store(&outlet->listens, r == 0);
    return r;
}

static int outlet_open(struct outlet *outlet, struct gb_error *error)
{
    int r = nng_pub0_open(&outlet->socket);

    if (r == 0) {
        outlet->opened = true;
        r = nng_socket_set_int(outlet->socket, NNG_OPT_SENDBUF, BACKLOG);
    }
    for (int event = NNG_PIPE_EV_ADD_PRE; r == 0 && event <= NNG_PIPE_EV_REM_POST; event++)
        r = nng_pipe_notify(outlet->socket, (nng_pipe_ev)event, on_pipe, outlet);
    if (r == 0)
        r = listen_at(outlet);
    if (r != 0)
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot publish events at %s: %s", outlet->url,
                       nng_strerror(r));
    gb_say("publishing events url=%s", outlet->url);
    return 0;
}

/* ---- is it still there? ---- */

static bool wait_for(pthread_cond_t *changed, pthread_mutex_t *lock, const bool *what, unsigned ms)
{
    struct timespec until;
    bool is;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += ms / 1000;
    pthread_mutex_lock(lock);
    while (!*what && pthread_cond_timedwait(changed, lock, &until) == 0)
        ;
    is = *what;
    pthread_mutex_unlock(lock);
    return is;
}

/* Subscribes, as anybody does, until something is told. A pipe proves nothing: NNG adds it before the
   handshake. */
static bool is_told(const char *url)
{
    nng_msg *message = NULL;
    nng_socket socket;

    if (nng_sub0_open(&socket) != 0)
        return true; /* descriptors or memory are out, which says nothing of the listener */
    if (nng_socket_set_ms(socket, NNG_OPT_RECVTIMEO, ANSWER_MS) == 0 &&
        nng_socket_set(socket, NNG_OPT_SUB_SUBSCRIBE, "stats ", 6) == 0 &&
        nng_dial(socket, url, NULL, NNG_FLAG_NONBLOCK) == 0 &&
        nng_recvmsg(socket, &message, 0) == 0)
        nng_msg_free(message);
    nng_close(socket);
    return message;
}

/* False: figures were published, and a subscriber was not told. */
static bool is_alive(struct outlet *outlet)
{
    int64_t begun = now_ms();
    bool told;

    if (!atomic_load(&outlet->listens))
        return false;
    atomic_store(&outlet->probing, true);
    told = is_told(outlet->url);
    /* It was let go since there are too many: then somebody listens. */
    told |= !atomic_exchange(&outlet->probing, false);
    return told || atomic_load(&outlet->publish->figures_ms) < begun + ANSWER_MS / 4;
}

static void renew(struct outlet *outlet)
{
    if (atomic_load(&outlet->listens)) {
        gb_say("the listener does not answer, listening anew url=%s", outlet->url);
        nng_listener_close(outlet->listener);
    }
    if (listen_at(outlet) == 0)
        atomic_fetch_add(&outlet->renewed, 1);
    else
        nng_listener_close(outlet->listener);
}

static void *watch_over(void *arg)
{
    struct gb_publish *publish = arg;

    while (!wait_for(&publish->changed, &publish->lock, &publish->stopped, PROBE_MS)) {
        for (unsigned i = 0; i < publish->count; i++) {
            struct outlet *outlet = &publish->outlets[i];
            if (!is_alive(outlet))
                renew(outlet);
        }
    }
    return NULL;
}

/* ---- starting and ending ---- */

/* 127.0.0.0/8 or ::1, and a port. */
static bool is_loopback(const char *text)
{
    const char *colon = strrchr(text, ':');
    char host[64];
    struct in_addr four;
    struct in6_addr six;
    size_t length = colon ? (size_t)(colon - text) : 0;
    unsigned long port = colon ? strtoul(colon + 1, NULL, 10) : 0;

    if (length == 0 || length >= sizeof(host) || port == 0 || port > 65535)
        return false;
    if (*text == '[' && text[length - 1] == ']') {
        text++;
        length -= 2;
    }
    memcpy(host, text, length);
    host[length] = '\0';
    if (inet_pton(AF_INET, host, &four) == 1)
        return ntohl(four.s_addr) >> 24 == 127;
    return inet_pton(AF_INET6, host, &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six);
}

static int check_url(const char *url, bool *ipc, struct gb_error *error)
{
    *ipc = strncmp(url, "ipc:///", 7) == 0;
    if (*ipc && strlen(url + 6) < sizeof(((struct sockaddr_un *)0)->sun_path))
        return 0;
    if (strncmp(url, "tcp://", 6) != 0)
        return gb_fail(
            error, GPUBUF_E_INVALID,
            "--events \"%s\" is no URL such as ipc:///run/gpubufd-gateway/events.sock or "
            "tcp://127.0.0.1:9465",
            url);
    if (!is_loopback(url + 6))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "--events %s: expected an address of this machine, such as 127.0.0.1:9465, "
                       "since whoever reaches it is told",
                       url);
    return 0;
}

int gb_publish_new(char *const *urls, unsigned count, unsigned subscribers, struct gb_publish **out,
                   struct gb_error *error)
{
    struct gb_publish *publish = calloc(1, sizeof(*publish));
    int r = 0;

    if (!publish)
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
    pthread_mutex_init(&publish->lock, NULL);
    pthread_cond_init(&publish->changed, NULL);
    publish->most = subscribers;
    for (unsigned i = 0; i < count && r == 0; i++) {
        struct outlet *outlet = &publish->outlets[i];

        outlet->publish = publish;
        outlet->url = urls[i];
        r = check_url(urls[i], &outlet->ipc, error);
        outlet->audience = outlet->ipc ? GB_AUDIENCE_ALL : GB_AUDIENCE_PUBLIC;
        publish->count = i + 1;
        if (r == 0)
            r = outlet_open(outlet, error);
    }
    if (r == 0 && pthread_create(&publish->thread, NULL, watch_over, publish) != 0)
        r = gb_fail(error, GPUBUF_E_SYSTEM, "cannot start a thread");
    if (r < 0) {
        gb_publish_free(publish);
        return r;
    }
    publish->started = true;
    *out = publish;
    return 0;
}

void gb_publish_free(struct gb_publish *publish)
{
    if (!publish)
        return;
    if (publish->started) {
        pthread_mutex_lock(&publish->lock);
        publish->stopped = true;
        pthread_cond_signal(&publish->changed);
        pthread_mutex_unlock(&publish->lock);
        pthread_join(publish->thread, NULL);
    }
    for (unsigned i = 0; i < publish->count; i++)
        if (publish->outlets[i].opened)
            nng_close(publish->outlets[i].socket);
    pthread_cond_destroy(&publish->changed);
    pthread_mutex_destroy(&publish->lock);
    free(publish);
}

/* ---- publishing ---- */

static void send_told(struct outlet *outlet, const struct gb_told *told, const char *topic,
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

void gb_publish(struct gb_publish *publish, const struct gb_told *told, const char *topic,
                size_t topic_length, const char *public_topic)
{
    if (told->stats)
        atomic_store(&publish->figures_ms, now_ms());
    for (unsigned i = 0; i < publish->count; i++) {
        struct outlet *outlet = &publish->outlets[i];

        if (atomic_load(&outlet->subscribers) == 0)
            continue;
        if (outlet->audience == GB_AUDIENCE_PUBLIC && public_topic)
            send_told(outlet, told, public_topic, strlen(public_topic));
        else
            send_told(outlet, told, topic, topic_length);
    }
}

void gb_publish_count(struct gb_publish *publish, struct gb_publish_counts *counts)
{
    *counts = (struct gb_publish_counts){0};
    for (unsigned i = 0; publish && i < publish->count; i++) {
        struct outlet *outlet = &publish->outlets[i];

        counts->subscribers += atomic_load(&outlet->subscribers);
        counts->sent += atomic_load(&outlet->sent);
        counts->refused += atomic_load(&outlet->refused);
        counts->renewed += atomic_load(&outlet->renewed);
    }
}
