/*
 * Cached leases, which the library keeps: an open without a round trip finds what the name means,
 * and nothing else; the daemon gets back what it wants; a page that lies costs nobody a wrong
 * object.
 */
#include <stdatomic.h>
#include <sys/prctl.h>

#include "harness.h"

#define MIB ((size_t)1 << 20)

static struct gpubuf_client *keeper(int leases)
{
    struct gpubuf_connect_options options = {.size = sizeof(options), .cache_leases = leases};
    return connect_with(&options);
}

static struct gpubuf_object *open_one(struct gpubuf_client *client, const char *name)
{
    struct gpubuf_object *object = NULL;
    ok(client, gpubuf_open(client, name, NULL, &object));
    return object;
}

/* Opens and releases so often that the lease is cached: the first time the version is noted, the
   second time the library asks for the page, the third time the lease has a slot in it. */
static void warm(struct gpubuf_client *client, const char *name)
{
    for (int i = 0; i < 3; i++)
        gpubuf_release(open_one(client, name));
}

static unsigned first_byte(const struct gpubuf_object *object)
{
    struct gpubuf_memory memory;
    assert_int_equal(gpubuf_memory(object, GPUBUF_DATA, &memory), 0);
    return *(const unsigned char *)memory.pointer;
}

/* How often the daemon was asked for `method`, by whomever. */
static uint64_t calls(struct gpubuf_client *client, const char *method)
{
    char key[64], *result, *at;
    uint64_t count;
    snprintf(key, sizeof(key), "\"%s\":{\"calls\":", method);
    ok(client, gpubuf_call(client, "stats", NULL, -1, &result));
    at = strstr(result, key);
    count = at ? strtoull(at + strlen(key), NULL, 10) : 0;
    gpubuf_free(result);
    return count;
}

static uint64_t opens(struct gpubuf_client *client)
{
    return calls(client, "open");
}

struct expected {
    struct gpubuf_client *client;
    const char *key;
    uint64_t value;
};

static bool is_so(void *arg)
{
    const struct expected *expected = arg;
    return stat_value(expected->client, expected->key) == expected->value;
}

static void wait_for(struct gpubuf_client *client, const char *key, uint64_t value)
{
    struct expected expected = {client, key, value};
    wait_until(is_so, &expected);
}

/* ---- finding ---- */

COUNTED(test_opened_again)
{
    struct gpubuf_client *client = connect_client(), *other = connect_client();
    struct gpubuf_object *object, *slice, *again;
    put_counting(other, "a", 16, 5);
    warm(client, "a");
    object = open_one(client, "a");
    uint64_t before = opens(other);
    again = open_one(client, "a"); /* while it is open: one object, two references */
    assert_ptr_equal(again, object);
    ok(client, gpubuf_slice(object, 3, 4, &slice));
    gpubuf_release(again);
    gpubuf_release(object);
    again = open_one(client, "a"); /* a slice holds it */
    assert_ptr_equal(again, object);
    gpubuf_release(slice);
    gpubuf_release(again);
    for (int i = 0; i < 1000; i++) {
        again = open_one(client, "a");
        assert_int_equal(first_byte(again), 5);
        gpubuf_release(again);
    }
    assert_int_equal(opens(other), before);
    wait_for(other, "cached", 1);
    assert_int_equal(leases_of(other, "a"), 0);
    gpubuf_disconnect(client);
    wait_for(other, "cached", 0);
    gpubuf_disconnect(other);
}

/* The answer of `stat` with `why` has that part. */
static bool is_told(struct gpubuf_client *client, const char *name, const char *part)
{
    char params[64], *result;
    snprintf(params, sizeof(params), "{\"name\":\"%s\",\"why\":true}", name);
    ok(client, gpubuf_call(client, "stat", params, -1, &result));
    bool found = strstr(result, part);
    gpubuf_free(result);
    return found;
}

/* A cached lease in use is told as such soon after the open, and is a hold; as cached when it is
   unused again. Of each the daemon is told once. */
COUNTED(test_what_is_in_use_is_told)
{
    struct gpubuf_create_options options = {
        .size = sizeof(options), .evict = GPUBUF_EVICT_DROP, .replace = true};
    CLIENT *other = connect_client(), *client = connect_client();
    ok(other, gpubuf_put_bytes(other, "a", "content", 7, &options));
    warm(client, "a");
    wait_for(other, "cached", 1);
    uint64_t before = opens(other), told = calls(other, "cache");
    for (unsigned i = 1; i <= 2; i++) { /* nobody else does anything meanwhile */
        struct gpubuf_object *object = open_one(client, "a");
        wait_for(other, "cached", 0);
        assert_int_equal(leases_of(other, "a"), 1);
        assert_true(is_told(other, "a", "\"evictable\":false,\"reasons\":[{\"kind\":\"leased\""));
        gpubuf_release(object);
        wait_for(other, "cached", 1);
        assert_true(is_told(other, "a", "\"evictable\":true,\"reasons\":[{\"kind\":\"cached\""));
        assert_int_equal(calls(other, "cache"), told + 2 * i);
    }
    assert_int_equal(opens(other), before);
}

/* A version that is opened once costs what it did without a cache: no page, no message,
   nothing kept. */
COUNTED(test_opened_once)
{
    CLIENT *other = connect_client(), *client = connect_client();
    struct gpubuf_object *objects[100];
    char texts[100][16];
    const char *names[100];
    uint64_t hellos = calls(other, "hello"), keeps = calls(other, "cache");
    for (unsigned i = 0; i < 100; i++) {
        names[i] = texts[i];
        snprintf(texts[i], sizeof(texts[i]), "once/%u", i);
        put_counting(other, names[i], 16, i);
        if (i < 50)
            gpubuf_release(open_one(client, names[i]));
        put_counting(other, "again", 16, i); /* each version once */
        gpubuf_release(open_one(client, "again"));
    }
    assert_int_equal(gpubuf_open_many(client, names + 50, 50, NULL, objects, NULL), 50);
    gpubuf_release_many(objects, 50);
    wait_for(other, "leases", 0);
    assert_int_equal(calls(other, "hello"), hellos);
    /* Nor once there is a page. */
    warm(client, names[0]);
    assert_int_equal(calls(other, "hello"), hellos + 1);
    wait_for(other, "cached", 1);
    assert_int_equal(calls(other, "cache"), keeps + 1);
    for (unsigned i = 0; i < 100; i++) {
        put_counting(other, "again", 16, i);
        gpubuf_release(open_one(client, "again"));
    }
    wait_for(other, "leases", 0);
    assert_int_equal(calls(other, "cache"), keeps + 1);
    assert_int_equal(stat_value(other, "cached"), 1);
}

COUNTED(test_none_if_one_likes)
{
    CLIENT *client = keeper(GPUBUF_NO_CACHE);
    put_counting(client, "a", 16, 5);
    uint64_t before = opens(client), hellos = calls(client, "hello");
    warm(client, "a");
    gpubuf_release(open_one(client, "a"));
    wait_for(client, "leases", 0);
    assert_int_equal(stat_value(client, "cached"), 0);
    assert_int_equal(opens(client), before + 4);
    assert_int_equal(calls(client, "hello"), hellos);
}

COUNTED(test_changes_are_seen)
{
    CLIENT *client = connect_client(), *other = connect_client();
    struct gpubuf_open_options version = {.size = sizeof(version)};
    struct gpubuf_object *object, *old;
    put_counting(other, "a", 16, 1);
    warm(client, "a");
    old = open_one(client, "a");
    gpubuf_release(open_one(client, "a"));
    put_counting(other, "a", 16, 2);
    object = open_one(client, "a");
    assert_int_equal(first_byte(object), 2);
    assert_int_equal(first_byte(old), 1);
    warm(client, "a");
    version.version = gpubuf_object_version(old);
    fails(client, GPUBUF_E_STALE, gpubuf_open(client, "a", &version, &(struct gpubuf_object *){0}));
    gpubuf_release(old);
    gpubuf_release(object);
    version.version = gpubuf_object_version(object); /* it is kept */
    ok(client, gpubuf_open(client, "a", &version, &object));
    gpubuf_release(object);
    ok(other, gpubuf_call(other, "delete", "{\"name\":\"a\"}", -1, NULL));
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_open(client, "a", NULL, &object));
    wait_for(other, "cached", 0);     /* the nameless are given back */
    put_counting(client, "a", 16, 3); /* by the client itself, too */
    object = open_one(client, "a");
    gpubuf_release(object);
    put_counting(client, "a", 16, 4);
    object = open_one(client, "a");
    assert_int_equal(first_byte(object), 4);
    gpubuf_release(object);
}

/* A version that was replaced counts for whoever keeps it: before it asks for memory it gives that
   back, and is not refused because the daemon's question came to it too late. */
COUNTED(test_what_is_stale_is_given_back_before_a_create)
{
    CLIENT *client = connect_client(), *other = connect_client();

    put_counting(other, "a", 16, 1);
    warm(client, "a");
    wait_for(other, "cached", 1);
    put_counting(other, "a", 16, 2);
    put_counting(client, "b", 16, 3);
    assert_int_equal(stat_value(other, "cached"), 0);
}

struct outcome {
    int status;
    bool done;
    size_t count;
};

static void opened(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                   void *arg)
{
    struct outcome *outcome = arg;
    *outcome = (struct outcome){status, true, object != NULL};
    gpubuf_release(object);
}

static void opened_many(struct gpubuf_client *client, int status,
                        struct gpubuf_object *const *objects, const int *errors, size_t count,
                        void *arg)
{
    struct outcome *outcome = arg;
    *outcome = (struct outcome){status, true, count};
    gpubuf_release_many(objects, count);
}

COUNTED(test_many_and_async)
{
    enum { COUNT_OF = 200 };
    CLIENT *client = connect_client();
    struct gpubuf_object *objects[COUNT_OF + 2];
    struct outcome outcome = {0};
    const char *names[COUNT_OF + 2];
    char texts[COUNT_OF][16];
    int errors[COUNT_OF + 2];
    uint64_t request, before;
    for (unsigned i = 0; i < COUNT_OF; i++) {
        snprintf(texts[i], sizeof(texts[i]), "many/%u", i);
        names[i] = texts[i];
        if (i % 2 == 0)
            put_counting(client, names[i], 16, i);
    }
    names[COUNT_OF] = "none";
    names[COUNT_OF + 1] = "/bad";
    for (unsigned i = 0; i < 3; i++) { /* see warm() */
        assert_int_equal(gpubuf_open_many(client, names, COUNT_OF, NULL, objects, errors),
                         COUNT_OF / 2);
        gpubuf_release_many(objects, COUNT_OF);
    }
    for (unsigned i = 1; i < COUNT_OF; i += 2)
        put_counting(client, names[i], 16, i);
    /* Half of them are kept. */
    assert_int_equal(gpubuf_open_many(client, names, COUNT_OF + 2, NULL, objects, errors),
                     COUNT_OF);
    assert_int_equal(errors[COUNT_OF], GPUBUF_E_NOT_FOUND);
    assert_int_equal(errors[COUNT_OF + 1], GPUBUF_E_INVALID);
    for (unsigned i = 0; i < COUNT_OF; i++)
        assert_int_equal(first_byte(objects[i]), i);
    gpubuf_release_many(objects, COUNT_OF + 2);
    assert_int_equal(gpubuf_open_many(client, names, COUNT_OF, NULL, objects, NULL), COUNT_OF);
    gpubuf_release_many(objects, COUNT_OF);
    before = opens(client);
    assert_int_equal(gpubuf_open_many(client, names, COUNT_OF, NULL, objects, NULL), COUNT_OF);
    gpubuf_release_many(objects, COUNT_OF);
    ok(client, gpubuf_open_many_async(client, names, COUNT_OF, NULL, opened_many, &outcome, NULL));
    assert_false(outcome.done); /* not from within the call */
    dispatch_until(client, &outcome.done);
    assert_int_equal(outcome.status, COUNT_OF);
    outcome.done = false;
    ok(client, gpubuf_open_async(client, names[3], NULL, opened, &outcome, &request));
    assert_false(outcome.done);
    dispatch_until(client, &outcome.done);
    assert_int_equal(outcome.status, 0);
    outcome.done = false;
    ok(client, gpubuf_open_async(client, names[3], NULL, opened, &outcome, &request));
    ok(client, gpubuf_cancel(client, request));
    assert_int_equal(outcome.status, GPUBUF_E_CANCELED);
    assert_int_equal(opens(client), before);
    wait_for(client, "cached", COUNT_OF);
    assert_int_equal(stat_value(client, "leases"), 0);
}

struct reopening {
    unsigned count;
    bool done;
};

static void reopen(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                   void *arg)
{
    struct reopening *reopening = arg;
    assert_int_equal(status, 0);
    gpubuf_release(object);
    if (++reopening->count < 1000)
        ok(client, gpubuf_open_async(client, "again", NULL, reopen, arg, NULL));
    else
        reopening->done = true;
}

/* A dispatch returns although its callback opens what is answered at once, and the descriptor tells
   of the rest. */
COUNTED(test_opened_in_callbacks)
{
    CLIENT *client = connect_client();
    struct reopening reopening = {0};
    put_counting(client, "again", 16, 1);
    warm(client, "again");
    ok(client, gpubuf_open_async(client, "again", NULL, reopen, &reopening, NULL));
    assert_true(gpubuf_fd(client) >= 0);
    assert_true(gpubuf_dispatch(client) >= 0);
    assert_int_equal(reopening.count, 1);
    dispatch_until(client, &reopening.done);
}

/* ---- bounds ---- */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

#define NAMES 9u
#define ROOM 6

/* Opens all in turn. Returns how many of them the daemon was asked for. */
static uint64_t open_all(struct gpubuf_client *client)
{
    uint64_t before = opens(client);
    char name[16];
    for (unsigned i = 0; i < NAMES; i++) {
        snprintf(name, sizeof(name), "bound/%u", i);
        gpubuf_release(open_one(client, name));
    }
    return opens(client) - before;
}

/* More names in turn than are cached: the surplus misses, and not all of them. */
COUNTED(test_bounds)
{
    CLIENT *client = keeper(ROOM);
    char name[16];
    uint64_t asked;
    double start;
    for (unsigned i = 0; i < NAMES; i++) {
        snprintf(name, sizeof(name), "bound/%u", i);
        put_counting(client, name, 400, i);
        warm(client, name);
    }
    do { /* a machine that stood still for a second has another try */
        start = now();
        open_all(client);
        asked = open_all(client);
    } while (now() - start > 0.5);
    assert_in_range(asked, NAMES - ROOM, NAMES - ROOM + 1); /* one may have been let in */
    wait_for(client, "cached", ROOM);
    wait_for(client, "leases", 0);
}

static bool finds(void *arg)
{
    struct gpubuf_client *client = arg;
    uint64_t before = opens(client);
    gpubuf_release(open_one(client, "bound/newest"));
    return opens(client) == before;
}

/* A name that is opened again and again is cached in the end, though all others are, too. */
COUNTED(test_the_most_used_is_let_in)
{
    CLIENT *client = keeper(ROOM);
    char name[16];
    for (unsigned i = 0; i < ROOM; i++) {
        snprintf(name, sizeof(name), "bound/%u", i);
        put_counting(client, name, 400, i);
        warm(client, name);
    }
    put_counting(client, "bound/newest", 400, ROOM);
    wait_until(finds, client);
    wait_for(client, "cached", ROOM);
}

COUNTED(test_unused_for_long)
{
    struct gpubuf_connect_options options = {.size = sizeof(options), .cache_lease_ms = 400};
    CLIENT *client = connect_with(&options), *other = connect_client();
    uint64_t before;
    put_counting(client, "bound/0", 400, 0);
    do { /* a machine that stood still for so long has another try */
        warm(client, "bound/0");
        before = opens(other);
        gpubuf_release(open_one(client, "bound/0"));
    } while (opens(other) > before);
    wait_for(other, "leases", 0);
    wait_for(other, "cached", 0); /* by a thread of the library's, after a moment */
}

/* ---- giving back ---- */

/* Fills the daemon with objects that only `client` keeps, and returns how many. */
static unsigned fill(struct gpubuf_client *client, struct gpubuf_client *other)
{
    struct gpubuf_create_options options = {
        .size = sizeof(options), .evict = GPUBUF_EVICT_DROP, .replace = true};
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = 30 * MIB};
    char name[16];
    for (unsigned i = 0; i < 8; i++) {
        struct gpubuf_object *object;
        snprintf(name, sizeof(name), "fill/%u", i);
        ok(other, gpubuf_create(other, name, &layout, &options, &object));
        ok(other, gpubuf_seal(object, NULL));
        gpubuf_release(object);
        warm(client, name);
    }
    return 8;
}

/* Room may come when a client has unmapped what it gave back, which takes a busy machine time. */
#define PATIENTLY 30000
/* Less than the two seconds after which a library that does not listen looks. */
#define BRIEFLY 1500

static int create_large(struct gpubuf_client *client, size_t bytes, int wait_ms)
{
    struct gpubuf_create_options options = {.size = sizeof(options), .wait_ms = wait_ms};
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = bytes};
    struct gpubuf_object *object;
    int r = gpubuf_create(client, "wanted", &layout, &options, &object);
    if (r == 0)
        gpubuf_release(object);
    return r;
}

/* Also of a program that sleeps: the library's thread sees to it. */
/* RELIABILITY.md: Memory is short 6 */
COUNTED(test_what_is_kept_is_given_back)
{
    CLIENT *client = connect_client(), *other = connect_client();
    struct timespec pause = {.tv_nsec = 200 * 1000000}; /* until the library's thread sleeps, too */
    unsigned count = fill(client, other);
    wait_for(other, "cached", count);
    nanosleep(&pause, NULL);
    ok(other, create_large(other, 200 * MIB, PATIENTLY));
    /* Seven of eight had to go. The last one may be asked for, too, if the unmapping of the others
       took long. */
    assert_true(stat_value(other, "cached") <= 1);
    ok(other, create_large(other, 250 * MIB, PATIENTLY));
    wait_for(other, "cached", 0);
}

/* The library's thread looks at sixteen clients at a time, and then at the others. */
COUNTED(test_of_many_clients_the_oldest_is_looked_at)
{
    enum { OTHERS = 20 };
    struct gpubuf_connect_options options = {.size = sizeof(options)};
    struct gpubuf_client *clients[1 + OTHERS], *other = connect_client();
    put_counting(other, "old", 8, 1);
    put_counting(other, "new", 8, 1);
    for (int i = 0; i < 1 + OTHERS; i++) {
        options.cache_lease_ms =
            i == 0 ? 3000 : 600000; /* so long that the others are there by then */
        clients[i] = connect_with(&options);
        warm(clients[i], i == 0 ? "old" : "new");
    }
    wait_for(other, "cached", OTHERS); /* what the first one kept is given back */
    for (int i = 0; i < 1 + OTHERS; i++)
        gpubuf_disconnect(clients[i]);
    gpubuf_disconnect(other);
}

COUNTED(test_what_is_used_stays)
{
    CLIENT *client = connect_client(), *other = connect_client();
    (void)fill(client, other);
    wait_for(other, "cached", 8);
    struct gpubuf_object *used = open_one(client, "fill/0");
    fails(other, GPUBUF_E_NO_SPACE, create_large(other, 250 * MIB, 0));
    ok(other, create_large(other, 200 * MIB, PATIENTLY));
    assert_int_equal(leases_of(other, "fill/0"), 1);
    gpubuf_release(used);
    wait_for(other, "leases", 0); /* it is told anew that it is kept */
    ok(other, create_large(other, 250 * MIB, PATIENTLY));
}

/* This program started as `test_keep SOCKET MS`: it opens and releases all that there is, each MS
   milliseconds after the one before, says on its output that it keeps it, and sleeps until it is
   killed. */
static int hoard(const char *path, long pause_ms)
{
    const struct timespec before_each = {.tv_nsec = pause_ms * 1000000};
    struct gpubuf_connect_options options = {
        .size = sizeof(options), .path = path, .timeout_ms = 60000, .cache_lease_ms = 60000};
    struct gpubuf_client *client;
    struct gpubuf_object *object;
    char name[16];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (gpubuf_connect(&client, &options) < 0)
        return 1;
    for (unsigned i = 0; i < 8; i++) {
        snprintf(name, sizeof(name), "fill/%u", i);
        nanosleep(&before_each, NULL);
        for (int times = 0; times < 3; times++) { /* see warm() */
            if (gpubuf_open(client, name, NULL, &object) < 0)
                return 2;
            gpubuf_release(object);
        }
    }
    (void)!write(STDOUT_FILENO, "x", 1);
    for (;;)
        pause();
}

static pid_t start_hoarder(const char *pause_ms)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(ready[1], STDOUT_FILENO);
        execl("/proc/self/exe", "test_keep", daemon_socket(), pause_ms, (char *)NULL);
        _exit(127);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    struct gpubuf_client *other = connect_client();
    wait_for(other, "cached", 8);
    gpubuf_disconnect(other);
    return pid;
}

static void end_hoarder(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* However seldom it does something, the library hears what it is asked for. */
/* RELIABILITY.md: Memory is short 6 */
COUNTED(test_one_that_is_slow)
{
    CLIENT *other = connect_client();
    unsigned tries = 0;
    for (int i = 0; i < 3;) {
        struct gpubuf_client *client = connect_client();
        unsigned count = fill(client, other);
        gpubuf_disconnect(client);
        wait_for(other, "cached", 0);
        pid_t pid = start_hoarder(i == 0 ? "0" : i == 1 ? "2" : "50");
        int r = create_large(other, 30 * MIB, BRIEFLY); /* one of eight leaves */
        if (r == 0 || ++tries == 5) { /* a machine that stood still for so long has another try */
            ok(other, r);
            assert_int_equal(stat_value(other, "cached"), count - 1);
            assert_int_equal(stat_value(other, "leases"), 0);
            i++;
        }
        end_hoarder(pid);
        wait_for(other, "cached", 0);
    }
}

/* ---- a connection that breaks, and a child ---- */

COUNTED(test_a_child_has_nothing)
{
    CLIENT *client = connect_client();
    struct gpubuf_object *object;
    int status;
    put_counting(client, "a", 16, 5);
    warm(client, "a");
    pid_t pid = fork();
    if (pid == 0)
        _exit(gpubuf_open(client, "a", NULL, &object) == GPUBUF_E_FORKED ? 0 : 1);
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    uint64_t before = opens(client);
    gpubuf_release(open_one(client, "a"));
    assert_int_equal(opens(client), before);
}

static bool has_resumed(void *arg)
{
    struct gpubuf_client *client = arg;
    return gpubuf_call(client, "stat", "{\"name\":\"a\"}", -1, NULL) == 0;
}

/* From the daemon's death on, whoever hears of that when, nothing is found any more. */
/* RELIABILITY.md: The daemon ends 3 */
COUNTED(test_no_daemon)
{
    struct gpubuf_connect_options options = {.size = sizeof(options),
                                             .resume_ms = GPUBUF_NO_RESUME};
    for (int i = 0; i < 5; i++) {
        struct gpubuf_client *client = connect_with(&options);
        struct gpubuf_object *object;
        put_counting(client, "a", 16, 1);
        warm(client, "a");
        gpubuf_release(open_one(client, "a"));
        kill_daemon();
        fails(client, GPUBUF_E_CLOSED, gpubuf_open(client, "a", NULL, &object));
        gpubuf_disconnect(client);
        start_daemon_again();
    }
}

COUNTED(test_another_daemon)
{
    struct gpubuf_client *client = connect_client(), *other;
    struct gpubuf_object *used, *object;
    put_counting(client, "a", 16, 1);
    put_counting(client, "used", 16, 7);
    warm(client, "a");
    warm(client, "used");
    used = open_one(client, "used");
    kill_daemon();
    start_daemon_again();
    other = connect_client();
    put_counting(other, "a", 16, 2);
    put_counting(other, "used", 16, 8);
    object = open_one(client, "a");
    assert_int_equal(first_byte(object), 2);
    gpubuf_release(object);
    object = open_one(client, "used");
    assert_int_equal(first_byte(object), 8);
    assert_int_equal(first_byte(used), 7); /* as without keeping */
    gpubuf_release(used);
    gpubuf_release(object);
    wait_until(has_resumed, client);
    warm(client, "a");
    uint64_t before = opens(other); /* it keeps anew */
    gpubuf_release(open_one(client, "a"));
    assert_int_equal(opens(other), before);
    gpubuf_disconnect(client);
    gpubuf_disconnect(other);
}

/* ---- a daemon that lies ---- */

#define CACHE "{\"fd\":0,\"slots\":512,\"pulse\":1}"

struct page_lie {
    const char *cache;                  /* in the answer to hello, with two descriptors */
    int page_seals, pulse_seals, pulse; /* the pulse's octets */
    const char *slot;                   /* of the lease; slot 0 has it, slot 1 has 0 */
    const char *after;                  /* said after the first open; NULL: nothing */
    int again; /* what the next open brings: a version (1 is the kept one), or a code */
};

static const struct page_lie lies[] = {
    {CACHE, F_SEAL_SHRINK, F_SEAL_SHRINK, 1, "0", NULL, 1},
    /* A page that could shrink or is too small is not used. */
    {CACHE, 0, F_SEAL_SHRINK, 1, "0", NULL, 2},
    {CACHE, F_SEAL_SHRINK, 0, 1, "0", NULL, 2},
    {"{\"fd\":0,\"slots\":513,\"pulse\":1}", F_SEAL_SHRINK, F_SEAL_SHRINK, 1, "0", NULL, 2},
    {"{\"fd\":0,\"slots\":0,\"pulse\":1}", F_SEAL_SHRINK, F_SEAL_SHRINK, 1, "0", NULL, 2},
    {"{\"fd\":0,\"slots\":4503599627370495,\"pulse\":1}", F_SEAL_SHRINK, F_SEAL_SHRINK, 1, "0",
     NULL, 2},
    /* Nor a daemon that is dead; nor what is not there. */
    {CACHE, F_SEAL_SHRINK, F_SEAL_SHRINK, 0x41, "0", NULL, 2},
    {CACHE, F_SEAL_SHRINK, F_SEAL_SHRINK, 0, "0", NULL, 2},
    {CACHE, F_SEAL_SHRINK, F_SEAL_SHRINK, 1, "1", NULL, 2},
    {CACHE, F_SEAL_SHRINK, F_SEAL_SHRINK, 1, "512", NULL, 2},
    {CACHE, F_SEAL_SHRINK, F_SEAL_SHRINK, 1, "4503599627370495", NULL, 2},
    {CACHE, F_SEAL_SHRINK, F_SEAL_SHRINK, 1, "-1", NULL, GPUBUF_E_PROTOCOL},
    {"{\"fd\":2,\"slots\":512,\"pulse\":1}", 0, 0, 1, "0", NULL, GPUBUF_E_PROTOCOL},
    {"{\"fd\":0,\"slots\":512,\"pulse\":2}", 0, 0, 1, "0", NULL, GPUBUF_E_PROTOCOL},
    {"{\"fd\":0,\"slots\":512}", 0, 0, 1, "0", NULL, GPUBUF_E_PROTOCOL},
    {"[]", 0, 0, 1, "0", NULL, GPUBUF_E_PROTOCOL},
    /* A recalled lease is given back; a lease that never was is told to be in use by nobody. */
    {CACHE, F_SEAL_SHRINK, F_SEAL_SHRINK, 1, "0", "{\"leases\":[9,3,0]}", 1},
    {CACHE, F_SEAL_SHRINK, F_SEAL_SHRINK, 1, "0", "{\"leases\":[1,1,1]}", 2},
    {CACHE, F_SEAL_SHRINK, F_SEAL_SHRINK, 1, "0", "{\"leases\":[\"1\",null,-1]}", 1},
    {CACHE, F_SEAL_SHRINK, F_SEAL_SHRINK, 1, "0", "{\"leases\":1}", GPUBUF_E_PROTOCOL},
    {CACHE, F_SEAL_SHRINK, F_SEAL_SHRINK, 1, "0", "{}", GPUBUF_E_PROTOCOL},
};

static void grant(int fd, const char *line, int lease, const char *slot, int version)
{
    char text[512];
    snprintf(text, sizeof(text),
             "{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"lease\":%d%s%s,\"object\":{"
             "\"name\":\"x\",\"version\":%d,\"device\":\"host\",\"layout\":{\"kind\":\"bytes\","
             "\"bytes\":0,\"data\":{\"segment\":0,\"offset\":0,\"bytes\":0}}},\"segments\":[]}}",
             lease, slot ? ",\"slot\":" : "", slot ? slot : "", version);
    fake_reply(fd, line, text, NULL, 0);
}

static void welcome(int fd, const char *line, const struct page_lie *lie)
{
    char text[512];
    uint64_t first = 1;
    int fds[2] = {fake_memfd(4096, 0, lie->page_seals),
                  fake_memfd(4096, lie->pulse, lie->pulse_seals)};
    (void)!pwrite(fds[0], &first, sizeof(first), 0);
    snprintf(text, sizeof(text),
             "{\"jsonrpc\":\"2.0\",\"id\":ID,\"fds\":2,\"result\":{\"protocol\":1,\"session\":1,"
             "\"instance\":\"ab\",\"cache\":%s}}",
             lie->cache);
    fake_reply(fd, line, text, fds, 2);
}

/* Greets, and grants version 1 twice; then, as lease 1, with a slot, for which it was asked. To
   whoever asks anew it grants version 2. A `stat` is answered by {}. */
static void lie(int fd, const void *arg)
{
    const struct page_lie *lie = arg;
    char line[65536], text[512];
    int opened = 0;
    while (fake_read(fd, line, sizeof(line))) {
        if (strstr(line, "\"cache\":true"))
            welcome(fd, line, lie);
        else if (strstr(line, "\"method\":\"hello\""))
            fake_reply(fd, line,
                       "{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"protocol\":1,\"session\":1,"
                       "\"instance\":\"ab\"}}",
                       NULL, 0);
        if (strstr(line, "\"method\":\"open\"")) {
            opened++;
            if (opened < 3)
                grant(fd, line, 10 + opened, NULL, 1);
            else
                grant(fd, line, opened - 2, opened == 3 ? lie->slot : "1", opened - 2);
        }
        if (!strstr(line, "\"method\":\"stat\""))
            continue;
        if (lie->after) {
            snprintf(text, sizeof(text),
                     "{\"jsonrpc\":\"2.0\",\"method\":\"leases.recall\",\"params\":%s}\n",
                     lie->after);
            fake_send(fd, text, NULL, 0);
        }
        fake_reply(fd, line, "{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{}}", NULL, 0);
    }
}

static int open_again(struct gpubuf_client *client)
{
    struct gpubuf_object *object;
    int r = 0;
    for (int i = 0; r == 0 && i < 3; i++) {
        r = gpubuf_open(client, "x", NULL, &object);
        if (r == 0)
            gpubuf_release(object);
    }
    if (r == 0)
        r = gpubuf_call(client, "stat", "{\"name\":\"x\"}", -1, NULL);
    if (r == 0)
        r = gpubuf_open(client, "x", NULL, &object);
    if (r < 0)
        return r;
    r = (int)gpubuf_object_version(object);
    gpubuf_release(object);
    return r;
}

/* An error, or the name is asked for again: never something else than what was opened by it. */
/* RELIABILITY.md: Hostile clients 20 */
COUNTED(test_lies)
{
    for (size_t i = 0; i < COUNT(lies); i++) {
        struct fake fake;
        struct gpubuf_client *client = NULL;
        fake_start(&fake, false, lie, &lies[i]);
        struct gpubuf_connect_options options = {.size = sizeof(options),
                                                 .path = fake.path,
                                                 .timeout_ms = 60000,
                                                 .answer_timeout_ms = 60000,
                                                 .resume_ms = GPUBUF_NO_RESUME,
                                                 .cache_lease_ms = 60000};
        ok(NULL, gpubuf_connect(&client, &options));
        assert_int_equal(open_again(client), lies[i].again);
        gpubuf_disconnect(client);
        fake_stop(&fake);
    }
}

/* ---- against a replacer ---- */

static struct {
    _Atomic uint64_t acknowledged; /* the version */
    _Atomic unsigned replaced;     /* times */
    _Atomic bool stop;
    _Atomic uint64_t stale;
} race;

static void *replace(void *arg)
{
    struct gpubuf_client *client = arg;
    struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = 8};
    while (!atomic_load(&race.stop)) {
        struct gpubuf_object *object;
        if (gpubuf_create(client, "raced", &layout, &options, &object) < 0)
            break;
        if (gpubuf_seal(object, NULL) < 0)
            break;
        atomic_store_explicit(&race.acknowledged, gpubuf_object_version(object),
                              memory_order_release);
        atomic_fetch_add(&race.replaced, 1);
        gpubuf_release(object);
    }
    atomic_fetch_add(&race.stale, !atomic_load(&race.stop)); /* it has failed */
    return NULL;
}

struct opener {
    struct gpubuf_client *client;
    unsigned long count;
};

static void *open_again_and_again(void *arg)
{
    const struct opener *opener = arg;
    for (unsigned long i = 0; i < opener->count || atomic_load(&race.replaced) < 10; i++) {
        if (atomic_load(&race.stale))
            break;
        uint64_t least = atomic_load_explicit(&race.acknowledged, memory_order_acquire);
        struct gpubuf_object *object;
        if (gpubuf_open(opener->client, "raced", NULL, &object) < 0) {
            atomic_fetch_add(&race.stale, 1);
            break;
        }
        if (gpubuf_object_version(object) < least)
            atomic_fetch_add(&race.stale, 1);
        gpubuf_release(object);
    }
    return NULL;
}

/* A million opens, by two threads of one client, of a name that is replaced all the time: none
   finds a version older than one whose seal had been answered when it began. */
/* RELIABILITY.md: Clients that end 4 */
COUNTED(test_a_million_opens)
{
    struct gpubuf_client *client = connect_client(), *other = connect_client();
    struct opener opener = {client, 500000};
    pthread_t openers[2], replacer;
    put_counting(other, "raced", 8, 1);
    warm(client, "raced");
    atomic_store(&race.stale, 0);
    atomic_store(&race.stop, false);
    assert_int_equal(pthread_create(&replacer, NULL, replace, other), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&openers[i], NULL, open_again_and_again, &opener), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(openers[i], NULL);
    atomic_store(&race.stop, true);
    pthread_join(replacer, NULL);
    assert_int_equal(atomic_load(&race.stale), 0);
    assert_true(opens(other) < 900000); /* and not all of them asked */
    gpubuf_disconnect(client);
    wait_for(other, "cached", 0);
    gpubuf_disconnect(other);
}

/* A daemon that waits long for an answer, since its machine is busy. */
static int start_patient(void **state)
{
    const char *const arguments[] = {"--limit", "recall_ms=1500", NULL};

    if (start_daemon_with(arguments) < 0)
        return -1;
    start_thread();
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 2)
        return hoard(argv[1], strtol(argv[2], NULL, 10));
    return cmocka_run_group_tests(listed_tests, start_patient, stop_daemon);
}
