#include "client/gateway/base/ask.h"

#include <stdio.h>
#include <time.h>

#include "client/gateway/base/clock.h"

#define CONNECT_MS 1000
#define ANSWER_MS 5000
#define PAUSE_NS 1000000 /* at most */

void gb_gateway_ask_init(struct gb_gateway_ask *ask, const char *socket)
{
    *ask = (struct gb_gateway_ask){.socket = socket};
    pthread_mutex_init(&ask->lock, NULL);
    gb_gateway_condition_init(&ask->freed);
}

void gb_gateway_ask_end(struct gb_gateway_ask *ask)
{
    gpubuf_disconnect(ask->client);
    pthread_cond_destroy(&ask->freed);
    pthread_mutex_destroy(&ask->lock);
}

static int connect_to(struct gb_gateway_ask *ask, struct gb_error *error)
{
    struct gpubuf_connect_options options = {
        .size = sizeof(options),
        .path = ask->socket,
        .client_name = GB_GATEWAY_NAME,
        .timeout_ms = (int)gb_gateway_deadline_ms(CONNECT_MS),
        .resume_ms = GPUBUF_NO_RESUME,
    };
    int r = gpubuf_connect(&ask->client, &options);

    if (r < 0)
        return gb_fail(error, r, "%s", gpubuf_errmsg(NULL));
    atomic_store(&ask->session, gpubuf_session(ask->client));
    return 0;
}

/* To be called by the thread that has begun to ask. */
static int ask_now(struct gb_gateway_ask *ask, const char *method, const char *params,
                   char **result, struct gb_error *error)
{
    int r = GPUBUF_E_CLOSED;

    /* Only its next use shows that an idle connection has broken: hence a second try. */
    for (int tries = 0; tries < 2 && (r == GPUBUF_E_CLOSED || r == GPUBUF_E_PROTOCOL); tries++) {
        if (!ask->client && connect_to(ask, error) < 0)
            return error->code;
        r = gpubuf_call(ask->client, method, params, (int)gb_gateway_deadline_ms(ANSWER_MS),
                        result);
        if (r < 0)
            (void)gb_fail(error, r, "%s", gpubuf_errmsg(ask->client));
        if (r == GPUBUF_E_CLOSED || r == GPUBUF_E_PROTOCOL) {
            gpubuf_disconnect(ask->client);
            ask->client = NULL;
        }
    }
    return r;
}

/* Waits for other threads' questions. */
static int begin(struct gb_gateway_ask *ask, struct gb_error *error)
{
    int64_t until = gb_gateway_clock_ms() + gb_gateway_deadline_ms(ANSWER_MS);
    uint64_t answers;
    bool ours, silent;

    pthread_mutex_lock(&ask->lock);
    answers = ask->answers;
    while (ask->busy && gb_gateway_condition_wait(&ask->freed, &ask->lock, until))
        ;
    ours = !ask->busy;
    silent = ask->answers == answers;
    ask->busy = true;
    pthread_mutex_unlock(&ask->lock);
    if (ours)
        return 0;
    return gb_fail(error, GPUBUF_E_TIMEOUT,
                   silent ? "the daemon has not answered in time"
                          : "too many requests wait for the daemon's answer");
}

static void end(struct gb_gateway_ask *ask, bool answered)
{
    pthread_mutex_lock(&ask->lock);
    ask->busy = false;
    ask->answers += answered;
    pthread_cond_signal(&ask->freed);
    pthread_mutex_unlock(&ask->lock);
}

static struct timespec clock_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now;
}

/* Sleeps for the time that has passed since `begun`, up to PAUSE_NS. */
static void pause_after(struct timespec begun)
{
    struct timespec now = clock_now(), pause = {0};
    int64_t ns = (now.tv_sec - begun.tv_sec) * 1000000000 + now.tv_nsec - begun.tv_nsec;

    pause.tv_nsec = ns < PAUSE_NS ? (long)ns : PAUSE_NS;
    nanosleep(&pause, NULL);
}

int gb_gateway_ask(struct gb_gateway_ask *ask, const char *method, const char *params,
                   char **result, struct gb_error *error)
{
    char instance[GB_INSTANCE_BYTES];

    return gb_gateway_ask_which(ask, method, params, result, instance, error);
}

int gb_gateway_ask_which(struct gb_gateway_ask *ask, const char *method, const char *params,
                         char **result, char instance[GB_INSTANCE_BYTES], struct gb_error *error)
{
    struct timespec begun;
    int r;

    r = begin(ask, error);
    if (r < 0)
        return r;
    begun = clock_now();
    r = ask_now(ask, method, params, result, error);
    (void)snprintf(instance, GB_INSTANCE_BYTES, "%s",
                   ask->client ? gpubuf_instance(ask->client) : "");
    pause_after(begun);
    end(ask, r != GPUBUF_E_TIMEOUT);
    return r;
}
