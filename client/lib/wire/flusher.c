#include "client/lib/wire/flusher.h"

#include "client/lib/base/clock.h"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define TICK_MS 1
#define DOWN_TICK_MS 10 /* while all that clients need is to connect anew */
#define EVENTS_MAX 16
/* How long a message of the daemon may lie unread while the program is busy elsewhere. It may ask
   to unmap a segment, and other sessions wait for that. */
#define UNREAD_MS 2000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpubuf_client *engaged; /* linked by flusher_next; each is counted */
static struct gpubuf_client *watched; /* linked by watched_next; not counted */
static int sockets = -1;              /* an epoll set: the sockets of the watched clients, and
                                         `waker` */
static int waker = -1;
static pthread_t thread;
static int64_t swept_ms; /* when the thread last looked at all watched clients */
static bool running, sleeping, stopping;

/* Does the work of each client in the list. Returns the time until the next tick. */
static int tick_all(struct gpubuf_client *client)
{
    bool down = true;

    while (client) {
        struct gpubuf_client *next = client->flush.next;
        if (client->hooks->run_due(client, &down)) {
            pthread_mutex_lock(&lock);
            client->flush.next = engaged;
            engaged = client;
            pthread_mutex_unlock(&lock);
        } else {
            gb_client_release(client);
        }
        client = next;
    }
    return down ? DOWN_TICK_MS : TICK_MS;
}

/* Has the epoll set look out for the end of a client's connection and, with `listens`, for
   messages. */
static void set_listening(struct gpubuf_client *client, bool listens)
{
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET | (listens ? EPOLLIN : 0),
                                .data.u64 = client->serial};

    if (client->flush.listens == listens || !client->flush.link_watched)
        return;
    client->flush.listens = listens;
    (void)epoll_ctl(sockets, EPOLL_CTL_MOD, client->conn.fd, &event);
}

/* A connection has ended, which epoll tells once, or has something to read: its client is run
   until there is nothing more to do. Or (`sweeps`) it is time to look at its cached leases. */
static void run_client(uint64_t serial, bool sweeps)
{
    pthread_mutex_lock(&lock);
    struct gpubuf_client *client = watched;
    while (client && client->serial != serial)
        client = client->flush.watched_next;
    if (client)
        gb_client_retain(client);
    pthread_mutex_unlock(&lock);
    if (!client)
        return;
    pthread_mutex_lock(&client->lock);
    bool brief = sweeps && !client->flush.engaged;
    client->end.hung_up |= !sweeps;
    if (!sweeps)
        set_listening(client, false);
    (void)gb_flusher_engage(client);
    client->flush.brief |= brief;
    pthread_mutex_unlock(&client->lock);
    gb_client_release(client);
}

/* Looks at the watched clients from the `first` on that have something to read, or that keep
   leases, which are swept now and then: as many as there is room for. Returns the place of the
   next one. */
static unsigned run_some(unsigned first)
{
    uint64_t serials[EVENTS_MAX];
    bool sweeps[EVENTS_MAX];
    unsigned count = 0, place = 0;

    pthread_mutex_lock(&lock);
    for (struct gpubuf_client *client = watched; client && count < EVENTS_MAX;
         client = client->flush.watched_next) {
        struct pollfd socket = {.fd = client->flush.fd, .events = POLLIN};
        if (place++ < first)
            continue;
        bool unread = poll(&socket, 1, 0) > 0;
        if (!unread && !atomic_load(&client->caches))
            continue;
        sweeps[count] = !unread;
        serials[count++] = client->serial;
    }
    pthread_mutex_unlock(&lock);
    first = count == EVENTS_MAX ? place : 0;
    while (count-- > 0)
        run_client(serials[count], sweeps[count]);
    return first;
}

static void run_unread(void)
{
    unsigned next = 0;

    do
        next = run_some(next);
    while (next > 0);
}

static void sleep_on(int timeout_ms)
{
    struct epoll_event events[EVENTS_MAX];
    uint64_t count;
    int ready = epoll_wait(sockets, events, EVENTS_MAX, timeout_ms);

    if (gb_coarse_ms() - swept_ms >= GB_FLUSHER_SWEEP_MS) {
        swept_ms = gb_coarse_ms();
        run_unread();
    }
    for (int i = 0; i < ready; i++) {
        if (events[i].data.u64 == 0)
            (void)!read(waker, &count, sizeof(count));
        else
            run_client(events[i].data.u64, false);
    }
}

/* How long the thread may sleep if nothing happens; -1: for ever. */
static int longest_sleep(void)
{
    for (const struct gpubuf_client *client = watched; client; client = client->flush.watched_next)
        if (atomic_load(&client->caches))
            return GB_FLUSHER_SWEEP_MS;
    return watched ? UNREAD_MS : -1;
}

static void wake_up(void)
{
    uint64_t one = 1;

    (void)!write(waker, &one, sizeof(one));
}

static void *run(void *arg)
{
    int pause = TICK_MS;

    pthread_mutex_lock(&lock);
    while (!stopping) {
        sleeping = !engaged;
        int timeout = sleeping ? longest_sleep() : pause;
        pthread_mutex_unlock(&lock);
        sleep_on(timeout);
        pthread_mutex_lock(&lock);
        sleeping = false;
        struct gpubuf_client *clients = engaged;
        engaged = NULL;
        pthread_mutex_unlock(&lock);
        pause = clients ? tick_all(clients) : TICK_MS;
        pthread_mutex_lock(&lock);
    }
    struct gpubuf_client *clients = engaged;
    engaged = NULL;
    pthread_mutex_unlock(&lock);
    while (clients) {
        struct gpubuf_client *next = clients->flush.next;
        gb_client_release(clients);
        clients = next;
    }
    return NULL;
}

static void close_sockets(void)
{
    if (sockets >= 0)
        close(sockets);
    if (waker >= 0)
        close(waker);
    sockets = waker = -1;
}

static bool open_sockets(void)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0};

    sockets = epoll_create1(EPOLL_CLOEXEC);
    waker = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (sockets >= 0 && waker >= 0 && epoll_ctl(sockets, EPOLL_CTL_ADD, waker, &event) == 0)
        return true;
    close_sockets();
    return false;
}

/* Starts the thread with all signals blocked: they are for the program's own threads. */
static bool start(void)
{
    sigset_t all, before;

    (void)sigfillset(&all);
    if (!open_sockets())
        return false;
    if (pthread_sigmask(SIG_SETMASK, &all, &before) == 0) {
        running = pthread_create(&thread, NULL, run, NULL) == 0;
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    if (!running)
        close_sockets();
    return running;
}

bool gb_flusher_engage(struct gpubuf_client *client)
{
    client->flush.brief = false;
    if (client->flush.engaged)
        return true;
    pthread_mutex_lock(&lock);
    bool can = !stopping && (running || start());
    if (can) {
        gb_client_retain(client);
        client->flush.engaged = true;
        client->flush.overdue = false;
        client->flush.quiet_ticks = 0;
        client->flush.next = engaged;
        engaged = client;
        if (sleeping)
            wake_up();
    }
    pthread_mutex_unlock(&lock);
    return can;
}

void gb_flusher_watch(struct gpubuf_client *client)
{
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.u64 = client->serial};

    if (client->flush.link_watched)
        return;
    pthread_mutex_lock(&lock);
    if (!stopping && (running || start()) &&
        epoll_ctl(sockets, EPOLL_CTL_ADD, client->conn.fd, &event) == 0) {
        client->flush.link_watched = true;
        client->flush.listens = false;
        if (!client->flush.is_watched) {
            if (sleeping && !watched)
                wake_up(); /* without watched clients it sleeps without a timeout */
            client->flush.is_watched = true;
            client->flush.fd = client->conn.fd;
            client->flush.watched_next = watched;
            watched = client;
        }
    }
    pthread_mutex_unlock(&lock);
}

void gb_flusher_listen(struct gpubuf_client *client)
{
    set_listening(client, true);
}

void gb_flusher_forget(struct gpubuf_client *client)
{
    pthread_mutex_lock(&lock);
    struct gpubuf_client **link = &watched;
    while (*link && *link != client)
        link = &(*link)->flush.watched_next;
    if (*link)
        *link = client->flush.watched_next;
    pthread_mutex_unlock(&lock);
}

void gb_flusher_stop(void)
{
    pthread_mutex_lock(&lock);
    stopping = true;
    bool join = running;
    running = false;
    if (join)
        wake_up();
    pthread_mutex_unlock(&lock);
    if (!join)
        return;
    (void)pthread_join(thread, NULL);
    close_sockets();
}

/* The library may be unloaded, and the thread must not outlive its code. */
__attribute__((destructor)) static void stop_at_unloading(void)
{
    gb_flusher_stop();
}

void gb_flusher_before_fork(void)
{
    pthread_mutex_lock(&lock);
}

void gb_flusher_in_parent(void)
{
    pthread_mutex_unlock(&lock);
}

void gb_flusher_in_child(void)
{
    engaged = watched = NULL;
    running = sleeping = false;
    close_sockets();
    pthread_mutex_unlock(&lock);
}
