/*
 * A client that several threads use at once, one that is disconnected while they wait, and one
 * that a child of fork has inherited.
 */
#include "harness.h"

/* ---- threads ---- */

struct worker {
    struct gpubuf_client *client;
    unsigned number;
    unsigned failures;
};

static void *open_and_release(void *arg)
{
    struct worker *worker = arg;
    char name[32];
    for (unsigned i = 0; i < 300; i++) {
        struct gpubuf_object *object, *slice;
        struct gpubuf_memory memory;
        struct gpubuf_open_options wait = {.size = sizeof(wait), .wait_ms = 3};
        unsigned which = (worker->number * 7 + i) % 16;
        snprintf(name, sizeof(name), "thread/%u", which);
        if (i % 50 == 49) {
            worker->failures +=
                gpubuf_open(worker->client, "nobody", &wait, &object) != GPUBUF_E_TIMEOUT;
        } else if (gpubuf_open(worker->client, name, NULL, &object) < 0) {
            worker->failures++;
        } else {
            worker->failures += gpubuf_slice(object, 1, 2, &slice) < 0;
            gpubuf_release(object);
            worker->failures += gpubuf_memory(slice, GPUBUF_DATA, &memory) < 0 ||
                                *(unsigned char *)memory.pointer != which + 1;
            gpubuf_release(slice);
        }
        if (i % 20 == 0) {
            snprintf(name, sizeof(name), "own/%u", worker->number);
            struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
            worker->failures += gpubuf_put_bytes(worker->client, name, name, 5, &options) < 0;
        }
    }
    return NULL;
}

COUNTED(test_threads)
{
    enum { THREADS = 8 };
    struct gpubuf_connect_options options = {.size = sizeof(options), .cache_bytes = 1};
    CLIENT *client = connect_with(&options); /* every idle mapping is dropped */
    struct worker workers[THREADS];
    pthread_t ids[THREADS];
    char name[32];
    for (unsigned i = 0; i < 16; i++) {
        snprintf(name, sizeof(name), "thread/%u", i);
        put_counting(client, name, 16, i);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){client, i, 0};
        assert_int_equal(pthread_create(&ids[i], NULL, open_and_release, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) /* all, before one of them is found wanting */
        pthread_join(ids[i], NULL);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(workers[i].failures, 0);
    assert_int_equal(stat_value(client, "leases"), 0);
}

static void *wait_for_ever(void *arg)
{
    struct worker *worker = arg;
    struct gpubuf_open_options wait = {.size = sizeof(wait), .wait_ms = 60000};
    struct gpubuf_object *object;
    worker->failures =
        gpubuf_open(worker->client, "never there", &wait, &object) != GPUBUF_E_CLOSED;
    return NULL;
}

struct waiting {
    struct gpubuf_client *observer;
    uint64_t count;
};

static bool has_calls(void *arg)
{
    struct waiting *waiting = arg;
    char *text = NULL;
    ok(waiting->observer, gpubuf_call(waiting->observer, "stats", NULL, 60000, &text));
    const char *open = strstr(text, "\"open\":{\"calls\":");
    assert_non_null(open);
    bool has = strtoull(open + strlen("\"open\":{\"calls\":"), NULL, 10) >= waiting->count;
    gpubuf_free(text);
    return has;
}

/* Blocking calls in other threads return when the program disconnects. */
COUNTED(test_disconnect_under_waiters)
{
    struct gpubuf_client *client = connect_client(), *observer = connect_client();
    struct worker workers[3];
    pthread_t ids[3];
    struct waiting waiting = {observer, 0};
    while (has_calls(&waiting)) /* how many there have been: one less */
        waiting.count++;
    waiting.count += 2;
    for (unsigned i = 0; i < 3; i++) {
        workers[i] = (struct worker){client, i, 0};
        pthread_create(&ids[i], NULL, wait_for_ever, &workers[i]);
    }
    wait_until(has_calls, &waiting);
    gpubuf_disconnect(client);
    for (unsigned i = 0; i < 3; i++)
        pthread_join(ids[i], NULL);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(workers[i].failures, 0);
    gpubuf_disconnect(observer);
}

/* ---- fork ---- */

static int in_child(struct gpubuf_client *client, struct gpubuf_object *object,
                    struct gpubuf_object *slice, const unsigned char *data)
{
    struct gpubuf_object *other;
    struct gpubuf_memory memory;
    struct gpubuf_info info;
    if (data[5] != 9 || gpubuf_length(object) != 100)
        return 1;
    if (gpubuf_stat(client, "forked", &info) != GPUBUF_E_FORKED)
        return 2;
    if (gpubuf_memory(object, GPUBUF_DATA, &memory) != GPUBUF_E_FORKED ||
        gpubuf_slice(object, 0, 1, &other) != GPUBUF_E_FORKED)
        return 3;
    if (gpubuf_dispatch(client) != GPUBUF_E_FORKED || gpubuf_fd(client) != -1 ||
        gpubuf_events(client) != 0 || gpubuf_cancel(client, 1) != GPUBUF_E_FORKED)
        return 4;
    if (strlen(gpubuf_errmsg(client)) == 0)
        return 5;
    gpubuf_release(slice);
    gpubuf_release(object);
    gpubuf_disconnect(client);
    client = connect_client();
    if (gpubuf_open(client, "forked", NULL, &object) < 0 ||
        gpubuf_memory(object, GPUBUF_DATA, &memory) < 0 || *(unsigned char *)memory.pointer != 4)
        return 6;
    gpubuf_release(object);
    gpubuf_disconnect(client);
    return 0;
}

COUNTED(test_forking)
{
    struct gpubuf_client *client = connect_client(), *observer = connect_client();
    struct gpubuf_object *object, *slice;
    struct gpubuf_memory memory;
    put_counting(client, "forked", 100, 4);
    ok(client, gpubuf_open(client, "forked", NULL, &object));
    ok(client, gpubuf_slice(object, 0, 10, &slice));
    ok(client, gpubuf_memory(object, GPUBUF_DATA, &memory));
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(in_child(client, object, slice, memory.pointer));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    /* The parent noticed nothing. */
    assert_int_equal(leases_of(client, "forked"), 1);

    /* A child that lives on does not keep its parent's leases alive. */
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        char byte;
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
    }
    gpubuf_disconnect(client);
    assert_int_equal(leases_of(observer, "forked"), 0);
    close(ends[0]);
    close(ends[1]);
    waitpid(child, &status, 0);
    assert_int_equal(status, 0);
    assert_int_equal(gpubuf_memory(object, GPUBUF_DATA, &memory), GPUBUF_E_CLOSED);
    gpubuf_release(slice);
    gpubuf_release(object);
    gpubuf_disconnect(observer);
}

RUN_TESTS(start_daemon, stop_daemon)
