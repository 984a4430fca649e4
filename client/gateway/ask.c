#include "client/gateway/ask.h"

#include <stdlib.h>
#include <time.h>

#define CONNECT_MS 1000
#define ANSWER_MS 5000
#define PAUSE_NS 1000000 /* at most */

struct gb_line {
    struct gpubuf_client *client;
    unsigned users; /* the ask's own, and one for each thread that waits; guarded by the lock */
};

void gb_ask_init(struct gb_ask *ask, const char *socket)
{
    ask->socket = socket;
    ask->line = NULL;
    pthread_mutex_init(&ask->turn, NULL);
    pthread_mutex_init(&ask->lock, NULL);
}

static void line_drop(struct gb_ask *ask, struct gb_line *line)
{
    bool last;

    pthread_mutex_lock(&ask->lock);
    last = --line->users == 0;
    pthread_mutex_unlock(&ask->lock);
    if (!last)
        return;
    gpubuf_disconnect(line->client);
    free(line);
}

void gb_ask_end(struct gb_ask *ask)
{
    if (ask->line)
        line_drop(ask, ask->line);
    pthread_mutex_destroy(&ask->lock);
    pthread_mutex_destroy(&ask->turn);
}

/* With the lock held. */
static int line_new(struct gb_ask *ask, struct gb_error *error)
{
    struct gpubuf_connect_options options = {
        .size = sizeof(options),
        .path = ask->socket,
        .client_name = GB_GATEWAY_NAME,
        .timeout_ms = CONNECT_MS,
        .resume_ms = GPUBUF_NO_RESUME,
    };
    struct gb_line *line = calloc(1, sizeof(*line));
    int r;

    if (!line)
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
    r = gpubuf_connect(&line->client, &options);
    if (r < 0) {
        free(line);
        return gb_fail(error, r, "%s", gpubuf_errmsg(NULL));
    }
    line->users = 1;
    ask->line = line;
    return 0;
}

static struct gb_line *line_take(struct gb_ask *ask, struct gb_error *error)
{
    struct gb_line *line = NULL;

    pthread_mutex_lock(&ask->lock);
    if (ask->line || line_new(ask, error) == 0) {
        line = ask->line;
        line->users++;
    }
    pthread_mutex_unlock(&ask->lock);
    return line;
}

/* It broke: whoever asks next makes another. */
static void line_forget(struct gb_ask *ask, struct gb_line *line)
{
    bool ours;

    pthread_mutex_lock(&ask->lock);
    ours = ask->line == line;
    if (ours)
        ask->line = NULL;
    pthread_mutex_unlock(&ask->lock);
    if (ours)
        line_drop(ask, line);
}

/* With the turn. */
static int ask_now(struct gb_ask *ask, const char *method, const char *params, char **result,
                   struct gb_error *error)
{
    int r = GPUBUF_E_CLOSED;

    /* A line that broke while nobody used it is found out by using it. */
    for (int tries = 0; tries < 2 && (r == GPUBUF_E_CLOSED || r == GPUBUF_E_PROTOCOL); tries++) {
        struct gb_line *line = line_take(ask, error);

        if (!line)
            return error->code;
        r = gpubuf_call(line->client, method, params, ANSWER_MS, result);
        if (r < 0)
            (void)gb_fail(error, r, "%s", gpubuf_errmsg(line->client));
        if (r == GPUBUF_E_CLOSED || r == GPUBUF_E_PROTOCOL)
            line_forget(ask, line);
        line_drop(ask, line);
    }
    return r;
}

static struct timespec clock_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now;
}

/* As long as it took since then. */
static void pause_after(struct timespec begun)
{
    struct timespec now = clock_now(), pause = {0};
    int64_t ns = (now.tv_sec - begun.tv_sec) * 1000000000 + now.tv_nsec - begun.tv_nsec;

    pause.tv_nsec = ns < PAUSE_NS ? (long)ns : PAUSE_NS;
    nanosleep(&pause, NULL);
}

int gb_ask(struct gb_ask *ask, const char *method, const char *params, char **result,
           struct gb_error *error)
{
    struct timespec begun, until = clock_now();
    int r;

    until.tv_sec += ANSWER_MS / 1000;
    if (pthread_mutex_clocklock(&ask->turn, CLOCK_MONOTONIC, &until) != 0)
        return gb_fail(error, GPUBUF_E_TIMEOUT, "others wait for its answer, too");
    begun = clock_now();
    r = ask_now(ask, method, params, result, error);
    pause_after(begun);
    pthread_mutex_unlock(&ask->turn);
    return r;
}
