#include "flusher.h"

#include <signal.h>
#include <time.h>

#include "gpu_order.h"

#define TICK_NS 1000000
#define QUIET_TICKS_MAX 32 /* after so many without anything to send a client is let go */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static struct gpubuf_client *engaged; /* linked by flusher_next; each is counted */
static pthread_t thread;
static bool running, sleeping, stopping;

/* Sends what has waited for a tick. Returns whether the client is still to be looked after. */
static bool tick(struct gpubuf_client *client)
{
    pthread_mutex_lock(&client->lock);
    bool working = gb_order_poll(client);
    bool waiting = client->released_count > 0 || client->imports.unmap_count > 0 ||
                   (gb_conn_has_output(&client->conn) && !client->write_failed);
    if (waiting && client->overdue) {
        gb_queue_releases(client);
        gb_flush(client);
    } else {
        client->overdue = waiting;
    }
    client->quiet_ticks = waiting || working ? 0 : client->quiet_ticks + 1;
    bool keep = (!client->lost.code || working) && client->quiet_ticks < QUIET_TICKS_MAX;
    client->engaged = keep;
    pthread_mutex_unlock(&client->lock);
    return keep;
}

static void tick_all(struct gpubuf_client *client)
{
    while (client) {
        struct gpubuf_client *next = client->flusher_next;
        if (tick(client)) {
            pthread_mutex_lock(&lock);
            client->flusher_next = engaged;
            engaged = client;
            pthread_mutex_unlock(&lock);
        } else {
            gb_client_release(client);
        }
        client = next;
    }
}

static void *run(void *arg)
{
    const struct timespec pause = {.tv_nsec = TICK_NS};
    (void)arg;
    pthread_mutex_lock(&lock);
    while (!stopping) {
        if (!engaged) {
            sleeping = true;
            pthread_cond_wait(&wake, &lock);
            sleeping = false;
            continue;
        }
        pthread_mutex_unlock(&lock);
        (void)nanosleep(&pause, NULL);
        pthread_mutex_lock(&lock);
        struct gpubuf_client *clients = engaged;
        engaged = NULL;
        pthread_mutex_unlock(&lock);
        tick_all(clients);
        pthread_mutex_lock(&lock);
    }
    struct gpubuf_client *clients = engaged;
    engaged = NULL;
    pthread_mutex_unlock(&lock);
    while (clients) {
        struct gpubuf_client *next = clients->flusher_next;
        gb_client_release(clients);
        clients = next;
    }
    return NULL;
}

/* Signals are the program's business, and none of its threads' that it does not know of. */
static bool start(void)
{
    sigset_t all, before;
    (void)sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return false;
    running = pthread_create(&thread, NULL, run, NULL) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return running;
}

bool gb_flusher_engage(struct gpubuf_client *client)
{
    if (client->engaged)
        return true;
    pthread_mutex_lock(&lock);
    bool can = !stopping && (running || start());
    if (can) {
        gb_client_retain(client);
        client->engaged = true;
        client->overdue = false;
        client->quiet_ticks = 0;
        client->flusher_next = engaged;
        engaged = client;
        if (sleeping)
            pthread_cond_signal(&wake);
    }
    pthread_mutex_unlock(&lock);
    return can;
}

void gb_flusher_stop(void)
{
    pthread_mutex_lock(&lock);
    stopping = true;
    bool join = running;
    running = false;
    pthread_cond_signal(&wake);
    pthread_mutex_unlock(&lock);
    if (join)
        (void)pthread_join(thread, NULL);
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
    engaged = NULL;
    running = sleeping = false;
    (void)pthread_cond_init(&wake, NULL); /* it may have had a waiter */
    pthread_mutex_unlock(&lock);
}
