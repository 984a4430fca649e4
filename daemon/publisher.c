#include "publisher.h"

#include <nng/nng.h>
#include <nng/protocol/pubsub0/pub.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "log.h"

#define NICENESS 10 /* of the thread and of NNG's: serving requests comes first */
#define OUTLET_BYTES (64u << 20)
#define SEND_MESSAGES 2048 /* that NNG keeps for a subscriber who is behind */
#define SUBSCRIBERS 256    /* of each socket */
#define SOCKET_MODE 0660

/* A socket for each audience. */
struct audience {
    struct gb_publisher *publisher;
    unsigned bit; /* enum gb_audience */
    nng_socket socket;
    bool open;
};

struct gb_publisher {
    struct audience audiences[2];
    struct gb_outlet outlet;
    atomic_uint_fast64_t sent;
    char *const *urls;
    unsigned url_count;
    struct gb_error *error; /* of the start */
    int started;            /* its outcome */
    uv_sem_t start;
    uv_thread_t thread;
    uv_sem_t wake;
    atomic_bool stop;
};

/* ---- who subscribes: on NNG's threads ---- */

/* A browser says from which page it comes; pages have the HTTP server for that. */
static bool is_a_page(nng_pipe pipe)
{
    char *origin = NULL;
    bool is = nng_pipe_get_string(pipe, NNG_OPT_WS_REQUEST_HEADER "Origin", &origin) == 0 &&
              origin && *origin;

    nng_strfree(origin);
    return is;
}

/* Every pipe that is told to come is told to go, also one that is turned away in between. */
static void on_pipe(nng_pipe pipe, nng_pipe_ev event, void *arg)
{
    struct audience *audience = arg;
    atomic_uint *takers = &audience->publisher->outlet.takers;

    if (event == NNG_PIPE_EV_REM_POST)
        atomic_fetch_sub(takers, 1);
    else if (atomic_fetch_add(takers, 1) >= SUBSCRIBERS || is_a_page(pipe))
        nng_pipe_close(pipe);
}

/* ---- starting, on the thread: NNG's own threads are born here, and as nice as it is ---- */

static bool is_loopback(const char *url)
{
    nng_url *parts;
    bool is;

    if (nng_url_parse(&parts, url) != 0)
        return false;
    is = strncmp(parts->u_hostname, "127.", 4) == 0 || strcmp(parts->u_hostname, "::1") == 0 ||
         strcmp(parts->u_hostname, "localhost") == 0;
    nng_url_free(parts);
    return is;
}

static int open_socket(struct audience *audience, struct gb_error *error)
{
    int r;

    if (audience->open)
        return 0;
    r = nng_pub0_open(&audience->socket);
    if (r == 0) {
        audience->open = true;
        nng_socket_set_int(audience->socket, NNG_OPT_SENDBUF, SEND_MESSAGES);
        nng_socket_set_size(audience->socket, NNG_OPT_RECVMAXSZ, 64); /* they have nothing to say */
        nng_pipe_notify(audience->socket, NNG_PIPE_EV_ADD_PRE, on_pipe, audience);
        r = nng_pipe_notify(audience->socket, NNG_PIPE_EV_REM_POST, on_pipe, audience);
    }
    return r == 0 ? 0
                  : gb_fail(error, GPUBUF_E_SYSTEM, "cannot publish events: %s", nng_strerror(r));
}

static int listen_at(struct gb_publisher *publisher, const char *url, struct gb_error *error)
{
    bool is_ipc = strncmp(url, "ipc://", 6) == 0;
    struct audience *audience = &publisher->audiences[is_ipc ? 0 : 1];
    nng_listener listener;
    mode_t mask;
    int r;

    if (!is_ipc && !is_loopback(url))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "--events %s: expected an address of this machine, such as 127.0.0.1; "
                       "events have no password",
                       url);
    r = open_socket(audience, error);
    if (r < 0)
        return r;
    r = nng_listener_create(&listener, audience->socket, url);
    if (r == 0 && is_ipc)
        r = nng_listener_set_int(listener, NNG_OPT_IPC_PERMISSIONS, SOCKET_MODE);
    mask = umask(0777 & ~SOCKET_MODE); /* at no moment is it open to more */
    if (r == 0)
        r = nng_listener_start(listener, 0);
    umask(mask);
    if (r != 0)
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot publish events at %s: %s", url,
                       nng_strerror(r));
    gb_log(GB_LOG_INFO, "publishing events", GB_LOG_TEXT("url", url));
    return 0;
}

static int start(struct gb_publisher *publisher)
{
    int r = 0;

    for (unsigned i = 0; r == 0 && i < publisher->url_count; i++)
        r = listen_at(publisher, publisher->urls[i], publisher->error);
    return r;
}

/* ---- the thread ---- */

static void send_to(struct audience *audience, const struct gb_record *record)
{
    size_t length = (size_t)record->topic_bytes + 1 + record->json_bytes;
    nng_msg *message;

    if (!audience->open || !(record->audience & audience->bit) ||
        nng_msg_alloc(&message, length) != 0)
        return;
    memcpy(nng_msg_body(message), record->text, length);
    /* A PUB socket never makes its sender wait. */
    if (nng_sendmsg(audience->socket, message, NNG_FLAG_NONBLOCK) != 0)
        nng_msg_free(message);
    else
        atomic_fetch_add_explicit(&audience->publisher->sent, 1, memory_order_relaxed);
}

static void send_batch(struct gb_publisher *publisher, const struct gb_batch *batch)
{
    const struct gb_record *record = NULL;

    while ((record = gb_batch_next(batch, record)))
        for (unsigned i = 0; i < 2; i++)
            send_to(&publisher->audiences[i], record);
}

static void run(void *arg)
{
    struct gb_publisher *publisher = arg;
    struct gb_batch *batch;

    setpriority(PRIO_PROCESS, 0, NICENESS); /* on Linux, of this thread and those it starts */
    publisher->started = start(publisher);
    uv_sem_post(&publisher->start);
    while (!atomic_load(&publisher->stop)) {
        uv_sem_wait(&publisher->wake);
        while ((batch = gb_outlet_take(&publisher->outlet))) {
            send_batch(publisher, batch);
            gb_batch_unref(batch);
        }
    }
    for (unsigned i = 0; i < 2; i++)
        if (publisher->audiences[i].open)
            nng_close(publisher->audiences[i].socket);
    nng_fini();
}

static void wake(void *arg)
{
    struct gb_publisher *publisher = arg;

    uv_sem_post(&publisher->wake);
}

/* ---- the loop's side ---- */

int gb_publisher_new(char *const *urls, unsigned count, struct gb_publisher **out,
                     struct gb_error *error)
{
    struct gb_publisher *publisher = calloc(1, sizeof(*publisher));

    if (!publisher || gb_outlet_init(&publisher->outlet, OUTLET_BYTES, wake, publisher) < 0) {
        free(publisher);
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
    }
    publisher->urls = urls;
    publisher->url_count = count;
    publisher->error = error;
    publisher->audiences[0] = (struct audience){.publisher = publisher, .bit = GB_AUDIENCE_ALL};
    publisher->audiences[1] = (struct audience){.publisher = publisher, .bit = GB_AUDIENCE_PUBLIC};
    if (uv_sem_init(&publisher->start, 0) < 0 || uv_sem_init(&publisher->wake, 0) < 0 ||
        uv_thread_create(&publisher->thread, run, publisher) < 0) {
        gb_outlet_end(&publisher->outlet);
        free(publisher);
        return gb_fail(error, GPUBUF_E_SYSTEM, "cannot start a thread for events");
    }
    uv_sem_wait(&publisher->start);
    publisher->error = NULL; /* it is the caller's again */
    *out = publisher;
    return publisher->started;
}

void gb_publisher_end(struct gb_publisher *publisher)
{
    if (!publisher)
        return;
    atomic_store(&publisher->stop, true);
    uv_sem_post(&publisher->wake);
    uv_thread_join(&publisher->thread);
    uv_sem_destroy(&publisher->start);
    uv_sem_destroy(&publisher->wake);
    gb_outlet_end(&publisher->outlet);
    free(publisher);
}

struct gb_outlet *gb_publisher_outlet(struct gb_publisher *publisher)
{
    return &publisher->outlet;
}

void gb_publisher_counts(struct gb_publisher *publisher, struct gb_publisher_counts *counts)
{
    counts->subscribers = atomic_load(&publisher->outlet.takers);
    counts->sent = atomic_load(&publisher->sent);
    counts->dropped = gb_outlet_dropped(&publisher->outlet);
}
