/*
 * Connections that break: cut by the test, by a daemon that is killed and started again, or that
 * stops. Open objects stay readable, answers come, and nobody keeps what is not theirs.
 */
#include <stdatomic.h>
#include <sys/epoll.h>

#include "harness.h"

/* ---- cutting ---- */

static bool is_to_daemon(int fd)
{
    struct sockaddr_un address = {.sun_family = 0};
    socklen_t length = sizeof(address);
    return getpeername(fd, (struct sockaddr *)&address, &length) == 0 &&
           address.sun_family == AF_UNIX && strcmp(address.sun_path, daemon_socket()) == 0;
}

/* Cuts every connection of this process to the daemon, but those up to descriptor `spared`. One
   that broke before may be closed meanwhile by another thread, and its number be another file's. */
static void cut_above(int spared)
{
    for (int fd = spared + 1; fd < 1024; fd++) {
        if (is_to_daemon(fd) && shutdown(fd, SHUT_RDWR) < 0)
            assert_true(errno == EBADF || errno == ENOTSOCK);
    }
}

static int highest_socket(void)
{
    int highest = -1;
    for (int fd = 0; fd < 1024; fd++) {
        if (is_to_daemon(fd))
            highest = fd;
    }
    return highest;
}

/* An observer, whose connection is not cut, and a client, whose is. */
struct pair {
    struct gpubuf_client *observer, *client;
    int spared;
};

static struct pair connect_pair(int resume_ms)
{
    struct gpubuf_connect_options options = {
        .size = sizeof(options), .path = daemon_socket(), .resume_ms = resume_ms};
    struct pair pair = {.observer = connect_client()};
    pair.spared = highest_socket();
    pair.client = connect_with(&options);
    return pair;
}

static void disconnect_pair(struct pair *pair)
{
    gpubuf_disconnect(pair->client);
    gpubuf_disconnect(pair->observer);
}

struct awaited {
    struct gpubuf_client *observer;
    const char *name;
    int64_t leases;
};

static bool has_leases(void *arg)
{
    struct awaited *awaited = arg;
    return leases_of(awaited->observer, awaited->name) == awaited->leases;
}

static void wait_for_leases(struct gpubuf_client *observer, const char *name, int64_t leases)
{
    struct awaited awaited = {observer, name, leases};
    wait_until(has_leases, &awaited);
}

static void check_counting(const struct gpubuf_object *object, size_t bytes, unsigned first)
{
    struct gpubuf_memory memory;
    assert_int_equal(gpubuf_memory(object, GPUBUF_DATA, &memory), 0);
    assert_int_equal(memory.bytes, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (((unsigned char *)memory.pointer)[i] != (unsigned char)(first + i))
            fail_msg("byte %zu of %s is not what it was", i, gpubuf_name(object));
}

/* ---- tests ---- */

/* RELIABILITY.md: The daemon ends 19 */
COUNTED(test_the_next_call)
{
    struct pair pair = connect_pair(0);
    struct gpubuf_object *object, *another;
    struct gpubuf_info info;
    put_counting(pair.client, "next", 100, 1);
    ok(pair.client, gpubuf_open(pair.client, "next", NULL, &object));
    uint64_t session = gpubuf_session(pair.client);
    for (int i = 0; i < 20; i++) {
        cut_above(pair.spared);
        check_counting(object, 100, 1);
        switch (i % 5) {
        case 0:
            ok(pair.client, gpubuf_stat(pair.client, "next", &info));
            break;
        case 1:
            ok(pair.client, gpubuf_open(pair.client, "next", NULL, &another));
            check_counting(another, 100, 1);
            gpubuf_release(another);
            break;
        case 2:
            put_counting(pair.client, "other", 50, 2);
            break;
        case 3:
            ok(pair.client, gpubuf_pin(pair.client, "next"));
            break;
        default:
            ok(pair.client, gpubuf_delete(pair.client, "other"));
        }
        assert_true(gpubuf_session(pair.client) > session);
        session = gpubuf_session(pair.client);
        assert_false(gpubuf_is_stale(object));
        wait_for_leases(pair.observer, "next", 1);
    }
    gpubuf_release(object);
    wait_for_leases(pair.observer, "next", 0);
    ok(pair.observer, gpubuf_delete(pair.observer, "next"));
    disconnect_pair(&pair);
}

static bool is_another_session(void *arg)
{
    void **args = arg;
    struct gpubuf_info info;
    (void)gpubuf_stat(args[1], "idle", &info);
    return gpubuf_session(args[0]) != *(uint64_t *)args[2];
}

/* A program that only reads keeps its lease. */
/* RELIABILITY.md: The daemon ends 19 */
COUNTED(test_without_a_call)
{
    struct pair pair = connect_pair(0);
    struct gpubuf_object *object;
    put_counting(pair.client, "idle", 100, 1);
    ok(pair.client, gpubuf_open(pair.client, "idle", NULL, &object));
    for (int i = 0; i < 5; i++) {
        uint64_t session = gpubuf_session(pair.client);
        void *args[] = {pair.client, pair.observer, &session};
        cut_above(pair.spared);
        wait_until(is_another_session, args);
        wait_for_leases(pair.observer, "idle", 1);
    }
    gpubuf_release(object);
    wait_for_leases(pair.observer, "idle", 0);
    ok(pair.observer, gpubuf_delete(pair.observer, "idle"));
    disconnect_pair(&pair);
}

struct outcome {
    bool done;
    int status;
    struct gpubuf_object *object;
    char message[256];
};

static void note(struct gpubuf_client *client, int status, struct gpubuf_object *object, void *arg)
{
    struct outcome *outcome = arg;
    assert_false(outcome->done);
    *outcome = (struct outcome){.done = true, .status = status, .object = object};
    snprintf(outcome->message, sizeof(outcome->message), "%s", gpubuf_errmsg(client));
}

static void note_call(struct gpubuf_client *client, int status, const char *result, size_t length,
                      void *arg)
{
    (void)result, (void)length;
    note(client, status, NULL, arg);
}

/* The daemon has been sent the requests, and has not looked at them when the connection breaks. */
/* RELIABILITY.md: The daemon ends 19 */
COUNTED(test_requests_under_way)
{
    struct pair pair = connect_pair(0);
    struct gpubuf_client *client = pair.client;
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = 10};
    struct gpubuf_open_options wait = {.size = sizeof(wait), .wait_ms = 60000};
    struct gpubuf_object *unsealed, *other;
    struct outcome open = {0}, waiting = {0}, create = {0}, seal = {0}, stat = {0}, delete = {0};
    struct gpubuf_memory memory;
    put_counting(client, "here", 10, 1);
    ok(client, gpubuf_create(client, "unsealed", &layout, NULL, &unsealed));
    ok(client, gpubuf_create(client, "other", &layout, NULL, &other));
    ok(client, gpubuf_open_async(client, "later", &wait, note, &waiting, NULL));
    ok(client, gpubuf_call(client, "stats", NULL, 60000, NULL));
    assert_int_equal(kill(daemon_process(), SIGSTOP), 0);
    ok(client, gpubuf_open_async(client, "here", NULL, note, &open, NULL));
    ok(client, gpubuf_create_async(client, "made", &layout, NULL, note, &create, NULL));
    ok(client, gpubuf_seal_async(unsealed, NULL, note, &seal, NULL));
    ok(client, gpubuf_call_async(client, "stat", "{\"name\":\"here\"}", note_call, &stat, NULL));
    ok(client,
       gpubuf_call_async(client, "delete", "{\"name\":\"none\"}", note_call, &delete, NULL));
    cut_above(pair.spared);
    dispatch_until(client, &delete.done);
    assert_true(seal.done);
    assert_int_equal(seal.status, GPUBUF_E_CLOSED);
    assert_int_equal(delete.status, GPUBUF_E_CLOSED);
    assert_non_null(strstr(delete.message, "not known"));
    assert_false(open.done || create.done || stat.done || waiting.done);
    assert_int_equal(kill(daemon_process(), SIGCONT), 0);
    dispatch_until(client, &stat.done);
    assert_int_equal(stat.status, 0);
    dispatch_until(client, &open.done);
    assert_int_equal(open.status, 0);
    check_counting(open.object, 10, 1);
    dispatch_until(client, &create.done);
    assert_int_equal(create.status, 0);
    assert_false(waiting.done);
    put_counting(pair.observer, "later", 20, 3);
    dispatch_until(client, &waiting.done);
    assert_int_equal(waiting.status, 0);
    check_counting(waiting.object, 20, 3);

    fails(client, GPUBUF_E_STALE, gpubuf_seal(other, NULL));
    fails(client, GPUBUF_E_STALE, gpubuf_write(other, GPUBUF_DATA, 0, "x", 1, NULL));
    assert_true(gpubuf_is_stale(other) && gpubuf_is_stale(unsealed));
    assert_int_equal(gpubuf_memory(other, GPUBUF_DATA, &memory), 0);
    ok(client, gpubuf_seal(create.object, NULL));
    struct gpubuf_object *objects[] = {open.object, waiting.object, create.object, unsealed, other};
    gpubuf_release_many(objects, COUNT(objects));
    ok(client, gpubuf_delete(client, "here"));
    ok(client, gpubuf_delete(client, "later"));
    ok(client, gpubuf_delete(client, "made"));
    disconnect_pair(&pair);
}

/* Given back while the daemon is being asked for it. */
COUNTED(test_released_meanwhile)
{
    struct pair pair = connect_pair(0);
    struct gpubuf_object *kept, *given;
    struct outcome stat = {0};
    struct gpubuf_info info;
    put_counting(pair.client, "both", 10, 1);
    put_counting(pair.client, "given", 3u << 20, 1); /* has a segment of its own */
    ok(pair.client, gpubuf_open(pair.client, "both", NULL, &kept));
    ok(pair.client, gpubuf_open(pair.client, "given", NULL, &given));
    assert_int_equal(kill(daemon_process(), SIGSTOP), 0);
    cut_above(pair.spared);
    ok(pair.client,
       gpubuf_call_async(pair.client, "stat", "{\"name\":\"both\"}", note_call, &stat, NULL));
    for (int i = 0; i < 10; i++) /* notices, connects, says hello */
        assert_true(gpubuf_dispatch(pair.client) >= 0);
    gpubuf_release(given);
    assert_int_equal(kill(daemon_process(), SIGCONT), 0);
    dispatch_until(pair.client, &stat.done);
    wait_for_leases(pair.observer, "given", 0);
    assert_int_equal(leases_of(pair.observer, "both"), 1);
    ok(pair.client, gpubuf_stat(pair.client, "given", &info));
    gpubuf_release(kept);
    ok(pair.client, gpubuf_delete(pair.client, "both"));
    ok(pair.client, gpubuf_delete(pair.client, "given"));
    disconnect_pair(&pair);
}

COUNTED(test_watches)
{
    struct pair pair = connect_pair(0);
    struct told told = {.synced = false};
    uint64_t watch;
    put_counting(pair.observer, "w/a", 10, 1);
    put_counting(pair.observer, "x", 10, 1);
    ok(pair.client, gpubuf_watch(pair.client, "w/", note_told, &told, &watch));
    dispatch_until(pair.client, &told.synced);
    assert_string_equal(told.text, "sealed:w/a synced:- ");
    for (int i = 0; i < 3; i++) {
        told = (struct told){.synced = false};
        cut_above(pair.spared);
        dispatch_until(pair.client, &told.synced);
        assert_string_equal(told.text, "reconnected:- sealed:w/a synced:- ");
    }
    told = (struct told){.synced = false};
    ok(pair.observer, gpubuf_delete(pair.observer, "w/a"));
    dispatch_until(pair.client, &told.deleted);
    assert_string_equal(told.text, "deleted:w/a ");
    ok(pair.client, gpubuf_unwatch(pair.client, watch));
    fails(pair.client, GPUBUF_E_NOT_FOUND, gpubuf_unwatch(pair.client, watch));
    cut_above(pair.spared);
    ok(pair.client, gpubuf_delete(pair.client, "x"));
    assert_string_equal(told.text, "deleted:w/a ");
    disconnect_pair(&pair);
}

/* More leases than one message holds. */
COUNTED(test_many_leases)
{
    enum { LEASES = 2000 };
    struct pair pair = connect_pair(0);
    struct gpubuf_object **objects = calloc(LEASES, sizeof(*objects));
    const char **names = calloc(LEASES, sizeof(*names));
    char name[201];
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    put_counting(pair.client, name, 10, 1);
    for (size_t i = 0; i < LEASES; i++)
        names[i] = name;
    assert_int_equal(gpubuf_open_many(pair.client, names, LEASES, NULL, objects, NULL), LEASES);
    uint64_t session = gpubuf_session(pair.client);
    cut_above(pair.spared);
    ok(pair.client, gpubuf_call(pair.client, "stats", NULL, 60000, NULL));
    assert_true(gpubuf_session(pair.client) != session);
    assert_int_equal(leases_of(pair.observer, name), LEASES);
    for (size_t i = 0; i < LEASES; i++)
        assert_false(gpubuf_is_stale(objects[i]));
    gpubuf_release_many(objects, LEASES);
    wait_for_leases(pair.observer, name, 0);
    ok(pair.client, gpubuf_delete(pair.client, name));
    free((void *)names);
    free((void *)objects);
    disconnect_pair(&pair);
}

/* A loop that was told of the descriptor once. */
COUNTED(test_event_loop)
{
    struct pair pair = connect_pair(0);
    int set = epoll_create1(EPOLL_CLOEXEC), fd = gpubuf_fd(pair.client);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    struct gpubuf_object *object;
    assert_int_equal(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event), 0);
    put_counting(pair.client, "loop", 10, 1);
    ok(pair.client, gpubuf_open(pair.client, "loop", NULL, &object));
    for (int i = 0; i < 10; i++) {
        struct outcome open = {0};
        cut_above(pair.spared);
        ok(pair.client, gpubuf_open_async(pair.client, "loop", NULL, note, &open, NULL));
        while (!open.done) {
            assert_int_equal(gpubuf_fd(pair.client), fd);
            assert_int_equal(gpubuf_events(pair.client) & POLLIN, POLLIN);
            assert_int_equal(epoll_wait(set, &event, 1, 60000), 1);
            assert_true(gpubuf_dispatch(pair.client) >= 0);
        }
        assert_int_equal(open.status, 0);
        gpubuf_release(open.object);
    }
    gpubuf_release(object);
    ok(pair.client, gpubuf_delete(pair.client, "loop"));
    close(set);
    disconnect_pair(&pair);
}

/* A program that does not know yet that its object went with the connection goes on writing
   there: it must not die of what has been sealed in that memory since. */
COUNTED(test_writing_what_is_gone)
{
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = 1 << 20};
    struct pair pair = connect_pair(0);
    struct gpubuf_object *gone, *object;
    struct gpubuf_memory memory, other;
    struct gpubuf_info info;
    ok(pair.client, gpubuf_create(pair.client, "gone", &layout, NULL, &gone));
    ok(pair.client, gpubuf_memory(gone, GPUBUF_DATA, &memory));
    cut_above(pair.spared);
    fails(pair.client, GPUBUF_E_NOT_FOUND, gpubuf_stat(pair.client, "gone", &info));
    assert_true(gpubuf_is_stale(gone));
    for (int i = 0; i < 3; i++) {
        ok(pair.client, gpubuf_create(pair.client, "new", &layout, NULL, &object));
        ok(pair.client, gpubuf_memory(object, GPUBUF_DATA, &other));
        ok(pair.client, gpubuf_seal(object, NULL));
        memset(memory.pointer, 1, memory.bytes);
        assert_true(i > 0 || other.pointer == memory.pointer); /* or it would prove nothing */
        gpubuf_release(object);
        ok(pair.client, gpubuf_delete(pair.client, "new"));
    }
    gpubuf_release(gone);
    disconnect_pair(&pair);
}

/* A child has nothing of the connection, also of one that was made anew. */
COUNTED(test_forking)
{
    struct pair pair = connect_pair(0);
    struct gpubuf_object *object;
    struct gpubuf_info info;
    int hold[2], status;
    assert_int_equal(pipe(hold), 0);
    put_counting(pair.client, "forked", 10, 1);
    ok(pair.client, gpubuf_open(pair.client, "forked", NULL, &object));
    cut_above(pair.spared);
    ok(pair.client, gpubuf_stat(pair.client, "forked", &info));
    pid_t child = fork();
    if (child == 0) {
        char byte;
        bool good = highest_socket() < 0 && gpubuf_fd(pair.client) == -1 &&
                    gpubuf_stat(pair.client, "forked", &info) == GPUBUF_E_FORKED;
        close(hold[1]);
        _exit(read(hold[0], &byte, 1) == 0 && good ? 0 : 1);
    }
    cut_above(pair.spared);
    ok(pair.client, gpubuf_stat(pair.client, "forked", &info));
    wait_for_leases(pair.observer, "forked", 1);
    gpubuf_disconnect(pair.client);
    wait_for_leases(pair.observer, "forked", 0); /* the child lives */
    close(hold[0]);
    close(hold[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    gpubuf_release(object);
    ok(pair.observer, gpubuf_delete(pair.observer, "forked"));
    gpubuf_disconnect(pair.observer);
}

struct worker {
    pthread_t thread;
    struct gpubuf_client *client;
    _Atomic bool *stop;
    unsigned opened, index;
    char failure[256];
};

static void *work(void *arg)
{
    struct worker *worker = arg;
    char name[32];
    while (!atomic_load(worker->stop) && !worker->failure[0]) {
        unsigned which = worker->opened % 4;
        struct gpubuf_object *object;
        struct gpubuf_memory memory;
        snprintf(name, sizeof(name), "work/%u", which);
        int r = gpubuf_open(worker->client, name, NULL, &object);
        if (r == 0 && (gpubuf_memory(object, GPUBUF_DATA, &memory) != 0 ||
                       *(unsigned char *)memory.pointer != which))
            r = -1;
        if (r < 0)
            snprintf(worker->failure, sizeof(worker->failure), "%s: %s", name,
                     gpubuf_errmsg(worker->client));
        else
            gpubuf_release(object);
        worker->opened++;
    }
    return NULL;
}

COUNTED(test_threads)
{
    struct pair pair = connect_pair(0);
    struct worker workers[4] = {{.opened = 0}};
    _Atomic bool stop = false;
    char name[32];
    for (unsigned i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "work/%u", i);
        put_counting(pair.client, name, 100, i);
    }
    for (unsigned i = 0; i < COUNT(workers); i++) {
        workers[i] = (struct worker){.client = pair.client, .stop = &stop, .index = i};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    struct gpubuf_info info;
    for (int i = 0; i < 200; i++) {
        uint64_t session = gpubuf_session(pair.client);
        cut_above(pair.spared);
        do {
            ok(pair.client, gpubuf_stat(pair.client, "work/0", &info));
        } while (gpubuf_session(pair.client) == session);
    }
    atomic_store(&stop, true);
    for (unsigned i = 0; i < COUNT(workers); i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_string_equal(workers[i].failure, "");
        assert_true(workers[i].opened > 0);
    }
    for (unsigned i = 0; i < 4; i++) {
        snprintf(name, sizeof(name), "work/%u", i);
        wait_for_leases(pair.observer, name, 0);
        ok(pair.client, gpubuf_delete(pair.client, name));
    }
    disconnect_pair(&pair);
}

/* Another daemon knows nothing of what was, and numbers its segments from the start. */
COUNTED(test_another_daemon)
{
    struct pair pair = connect_pair(0);
    struct gpubuf_object *old, *new, *slice;
    char before[64];
    put_counting(pair.client, "name", 100, 7);
    ok(pair.client, gpubuf_open(pair.client, "name", NULL, &old));
    ok(pair.client, gpubuf_slice(old, 10, 5, &slice));
    snprintf(before, sizeof(before), "%s", gpubuf_instance(pair.client));
    kill_daemon();
    check_counting(old, 100, 7);
    start_daemon_again();
    put_counting(pair.observer, "name", 100, 50);
    ok(pair.client, gpubuf_open(pair.client, "name", NULL, &new));
    assert_string_not_equal(gpubuf_instance(pair.client), before);
    assert_true(gpubuf_is_stale(old) && gpubuf_is_stale(slice));
    assert_false(gpubuf_is_stale(new));
    check_counting(old, 100, 7);
    check_counting(slice, 5, 17);
    check_counting(new, 100, 50);
    assert_int_equal(leases_of(pair.observer, "name"), 1);
    gpubuf_release(slice);
    gpubuf_release(old);
    assert_int_equal(leases_of(pair.observer, "name"), 1);
    gpubuf_release(new);
    wait_for_leases(pair.observer, "name", 0);
    ok(pair.client, gpubuf_delete(pair.client, "name"));
    disconnect_pair(&pair);
}

/* A daemon that is killed loses nothing that is sealed: leases are the same objects', through which
   is read meanwhile, and what is asked for is answered by the next one. */
COUNTED(test_the_same_daemon_again)
{
    enum { OBJECTS = 100, ROUNDS = 10 };
    static const char *const supervise[] = {"--supervise", "--grace", "600000", NULL};
    char name[32], instance[64];
    struct gpubuf_object *objects[OBJECTS], *replaced, *unsealed;
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = 10};
    struct gpubuf_create_options replace = {.size = sizeof(replace), .replace = true};
    struct gpubuf_info info;
    assert_int_equal(stop_daemon(state), 0);
    assert_int_equal(start_daemon_with(supervise), 0);
    struct gpubuf_client *client = connect_client();
    for (unsigned i = 0; i < OBJECTS; i++) {
        snprintf(name, sizeof(name), "o/%u", i);
        put_counting(client, name, 1000 + i, i);
        ok(client, gpubuf_open(client, name, NULL, &objects[i]));
    }
    put_counting(client, "r", 100, 9);
    ok(client, gpubuf_open(client, "r", NULL, &replaced));
    ok(client, gpubuf_put_bytes(client, "r", "new", 3, &replace));
    snprintf(instance, sizeof(instance), "%s", gpubuf_instance(client));
    for (unsigned round = 0; round < ROUNDS; round++) {
        snprintf(name, sizeof(name), "o/%u", round);
        ok(client, gpubuf_create(client, "unsealed", &layout, NULL, &unsealed));
        crash_daemon();
        for (unsigned i = 0; i < OBJECTS; i++)
            check_counting(objects[i], 1000 + i, i);
        ok(client, gpubuf_stat(client, name, &info));
        assert_string_equal(gpubuf_instance(client), instance);
        for (unsigned i = 0; i < OBJECTS; i++) {
            assert_false(gpubuf_is_stale(objects[i]));
            check_counting(objects[i], 1000 + i, i);
        }
        assert_false(gpubuf_is_stale(replaced));
        check_counting(replaced, 100, 9);
        fails(client, GPUBUF_E_STALE, gpubuf_seal(unsealed, NULL));
        gpubuf_release(unsealed);
        put_counting(client, "fresh", 5000, round);
        ok(client, gpubuf_delete(client, "fresh"));
    }
    gpubuf_release_many(objects, OBJECTS);
    gpubuf_release(replaced);
    gpubuf_disconnect(client);
    assert_int_equal(stop_daemon(state), 0);
    assert_int_equal(start_daemon(state), 0);
}

struct greeter {
    const char *path;
    _Atomic bool *stop;
    unsigned closed; /* how many it closes before it greets */
};

/* Listens at a path, and greets nobody but the one after those. */
static void *greet_late(void *arg)
{
    const struct greeter *greeter = arg;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char line[4096];
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    strcpy(address.sun_path, greeter->path);
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        listen(listener, 8) < 0) {
        close(listener);
        return NULL;
    }
    atomic_store(greeter->stop, false);
    for (unsigned i = 0; i < greeter->closed; i++) {
        int fd = accept(listener, NULL, NULL);
        (void)fake_read(fd, line, sizeof(line)); /* hello; to be closed is no answer to it */
        close(fd);
    }
    int fd = accept(listener, NULL, NULL);
    if (fake_read(fd, line, sizeof(line)))
        fake_reply(fd, line,
                   "{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{\"protocol\":1,"
                   "\"server\":\"late\",\"instance\":\"ab\",\"session\":1}}\n",
                   NULL, 0);
    (void)fake_read(fd, line, sizeof(line)); /* until it disconnects */
    close(fd);
    close(listener);
    unlink(greeter->path);
    return NULL;
}

static bool has_begun(void *arg)
{
    return !atomic_load((_Atomic bool *)arg);
}

/* A daemon that ends while it greets has a successor: the next attempt finds it, within the time
   for connecting, and only where connections may be made anew. */
COUNTED(test_greeted_by_the_next)
{
    char path[64];
    _Atomic bool waits = true;
    struct gpubuf_client *client = NULL;
    struct greeter greeter = {path, &waits, 4};
    struct gpubuf_connect_options options = {
        .size = sizeof(options), .path = path, .timeout_ms = 60000, .resume_ms = GPUBUF_NO_RESUME};
    pthread_t thread;
    snprintf(path, sizeof(path), "/tmp/gpubuf-late.%d", (int)getpid());
    assert_int_equal(pthread_create(&thread, NULL, greet_late, &greeter), 0);
    wait_until(has_begun, &waits);
    fails(NULL, GPUBUF_E_CLOSED, gpubuf_connect(&client, &options)); /* the first */
    options.resume_ms = 0;
    ok(NULL, gpubuf_connect(&client, &options)); /* three more, and the one that answers */
    assert_string_equal(gpubuf_instance(client), "ab");
    gpubuf_disconnect(client);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static bool is_leased(void *arg)
{
    char *leases;
    ok(arg, gpubuf_call(arg, "leases", "{\"name\":\"held\"}", -1, &leases));
    bool found = strstr(leases, "\"name\":\"held\"") != NULL;
    gpubuf_free(leases);
    return found;
}

/* Whoever says nothing keeps what it has, too, when a daemon hands over: its last words and its end
   come at once, and there is nobody but the library to see them. */
/* RELIABILITY.md: The daemon ends 19 */
COUNTED(test_handed_over_in_silence)
{
    enum { ROUNDS = 20 };
    static const char *const supervise[] = {"--supervise", "--grace", "600000", NULL};
    struct gpubuf_object *object;
    assert_int_equal(stop_daemon(state), 0);
    assert_int_equal(start_daemon_with(supervise), 0);
    struct gpubuf_client *observer = connect_client(), *client = connect_client();
    put_counting(client, "held", 1000, 1);
    ok(client, gpubuf_open(client, "held", NULL, &object));
    for (unsigned round = 0; round < ROUNDS; round++) {
        pid_t before = daemon_child(), now;
        assert_true(before > 0);
        assert_int_equal(kill(daemon_process(), SIGHUP), 0);
        while ((now = daemon_child()) == before || now == 0)
            usleep(1000);
        wait_until(is_leased, observer);
        assert_false(gpubuf_is_stale(object));
    }
    check_counting(object, 1000, 1);
    gpubuf_release(object);
    gpubuf_disconnect(client);
    gpubuf_disconnect(observer);
    assert_int_equal(stop_daemon(state), 0);
    assert_int_equal(start_daemon(state), 0);
}

/* RELIABILITY.md: The daemon ends 19 */
COUNTED(test_nobody_comes_back)
{
    struct pair pair = connect_pair(100), stubborn = connect_pair(-1);
    struct gpubuf_object *object;
    struct gpubuf_info info;
    struct outcome stat = {0};
    put_counting(pair.client, "left", 10, 1);
    ok(pair.client, gpubuf_open(pair.client, "left", NULL, &object));
    kill_daemon();
    fails(pair.client, GPUBUF_E_CLOSED, gpubuf_stat(pair.client, "left", &info));
    assert_non_null(strstr(gpubuf_errmsg(pair.client), "100 ms"));
    assert_int_equal(gpubuf_dispatch(pair.client), GPUBUF_E_CLOSED);
    check_counting(object, 10, 1);
    gpubuf_release(object);

    ok(stubborn.client, gpubuf_call_async(stubborn.client, "stats", NULL, note_call, &stat, NULL));
    fails(stubborn.client, GPUBUF_E_TIMEOUT,
          gpubuf_call(stubborn.client, "stats", NULL, 200, NULL));
    assert_true(gpubuf_dispatch(stubborn.client) >= 0);
    start_daemon_again();
    dispatch_until(stubborn.client, &stat.done);
    assert_int_equal(stat.status, 0);
    disconnect_pair(&pair);
    disconnect_pair(&stubborn);
}

/* The library's own thread gives up first: the callbacks run in the program's next dispatch. */
/* RELIABILITY.md: The daemon ends 19 */
COUNTED(test_nobody_comes_back_to_a_loop)
{
    struct gpubuf_connect_options options = {
        .size = sizeof(options), .path = daemon_socket(), .resume_ms = 100};
    struct gpubuf_client *client = connect_with(&options);
    struct gpubuf_open_options waiting = {.size = sizeof(waiting), .wait_ms = 60000};
    struct gpubuf_object *object;
    struct outcome open = {0};
    put_counting(client, "left", 10, 1);
    ok(client, gpubuf_open(client, "left", NULL, &object)); /* so the thread makes it anew */
    ok(client, gpubuf_open_async(client, "none", &waiting, note, &open, NULL));
    kill_daemon();
    while (gpubuf_cancel(client, UINT64_MAX) == GPUBUF_E_NOT_FOUND)
        usleep(1000);
    assert_false(open.done);
    assert_int_equal(gpubuf_dispatch(client), GPUBUF_E_CLOSED);
    assert_true(open.done);
    assert_int_equal(open.status, GPUBUF_E_CLOSED);
    gpubuf_release(object);
    gpubuf_disconnect(client);
    start_daemon_again();
}

static bool is_stale(void *object)
{
    return gpubuf_is_stale(object);
}

/* Whether the program can write the first byte, and the last. */
static bool can_write(const struct gpubuf_object *object)
{
    struct gpubuf_memory memory;
    int ends[2], written = 0;
    assert_int_equal(gpubuf_memory(object, GPUBUF_DATA, &memory), 0);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "ab", 2), 2);
    written += read(ends[0], memory.pointer, 1) == 1;
    written += read(ends[0], (char *)memory.pointer + memory.bytes - 1, 1) == 1;
    close(ends[0]);
    close(ends[1]);
    assert_int_not_equal(written, 1);
    return written == 2;
}

/* Another connection of the process says that it does not know of the claims. */
static void lose_claims(struct pair *pair)
{
    struct outcome outcome = {.done = false};
    char params[256];
    snprintf(params, sizeof(params),
             "{\"protocol\":1,\"resume\":{\"instance\":\"%s\",\"objects\":[],\"session\":%llu}}",
             gpubuf_instance(pair->client), (unsigned long long)gpubuf_session(pair->client));
    kill(daemon_process(), SIGSTOP); /* so that the client comes back later */
    cut_above(pair->spared);
    ok(pair->observer,
       gpubuf_call_async(pair->observer, "hello", params, note_call, &outcome, NULL));
    kill(daemon_process(), SIGCONT);
    dispatch_until(pair->observer, &outcome.done);
    ok(pair->observer, outcome.status);
}

/* A claim that is lost while the daemon goes on may be another process's: the program can write no
   more by it. Small objects share their pages with what it still writes. */
TEST(test_a_claim_that_is_lost)
{
    static const uint64_t bytes[] = {64, 64, 4 << 20, 64};
    const struct gpubuf_create_options live = {.size = sizeof(live), .live = true};
    const struct gpubuf_open_options claim = {
        .size = sizeof(claim), .write = true, .exclusive = true, .wait_ms = 60000};
    struct pair pair = connect_pair(0);
    struct gpubuf_object *objects[4];
    char name[16];
    for (size_t i = 0; i < COUNT(objects); i++) {
        const struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = bytes[i]};
        snprintf(name, sizeof(name), "claimed/%zu", i);
        ok(pair.client, gpubuf_create(pair.client, name, &layout, &live, &objects[i]));
        gpubuf_release(objects[i]);
        ok(pair.client, gpubuf_open(pair.client, name, &claim, &objects[i]));
        assert_true(can_write(objects[i]));
    }
    lose_claims(&pair);
    for (size_t i = 0; i < COUNT(objects); i++) {
        wait_until(is_stale, objects[i]);
        assert_false(can_write(objects[i]));
    }
    gpubuf_release(objects[0]);
    ok(pair.client, gpubuf_open(pair.client, "claimed/0", &claim, &objects[0]));
    assert_int_equal(gpubuf_generation(objects[0]), 2);
    assert_true(can_write(objects[0]));
    assert_false(can_write(objects[2]));
    for (size_t i = 0; i < COUNT(objects); i++) {
        gpubuf_release(objects[i]);
        snprintf(name, sizeof(name), "claimed/%zu", i);
        ok(pair.observer, gpubuf_delete(pair.observer, name));
    }
    disconnect_pair(&pair);
}

/* A parked view whose lease went with its daemon shows no other lease's content, though the next
   daemon gives its number to one: both count from one. */
/* RELIABILITY.md: The daemon ends 20 */
TEST(test_a_parked_lease_that_is_lost)
{
    enum { OTHERS = 10, BYTES = 100 };
    const struct gpubuf_create_options own = {.size = sizeof(own), .own = true};
    struct gpubuf_object *others[OTHERS];
    struct gpubuf_memory memory;
    struct gpubuf_view *view;
    kill_daemon();
    start_daemon_again();
    CLIENT *client = connect_uncached();
    static const char was[BYTES] = {1}, is[BYTES] = {2}, other[2 * BYTES] = {3};
    ok(client, gpubuf_put_bytes(client, "was", was, BYTES, &own));
    ok(client, gpubuf_follow(client, "was", NULL, &view));
    ok(client, gpubuf_memory(gpubuf_view_object(view), GPUBUF_DATA, &memory));
    ok(client, gpubuf_park(view, NULL, 0));
    kill_daemon();
    start_daemon_again();
    ok(client, gpubuf_put_bytes(client, "other", other, sizeof(other), &own));
    for (int i = 0; i < OTHERS; i++)
        ok(client, gpubuf_open(client, "other", NULL, &others[i]));
    fails(client, GPUBUF_E_STALE, gpubuf_resume(view, 0));
    assert_true(gpubuf_is_parked(view) && gpubuf_is_stale(gpubuf_view_object(view)));
    ok(client, gpubuf_put_bytes(client, "was", is, BYTES, &own));
    ok(client, gpubuf_switch(view, NULL, NULL, 0));
    assert_memory_equal(memory.pointer, is, BYTES);
    for (int i = 0; i < OTHERS; i++)
        gpubuf_release(others[i]);
    gpubuf_unfollow(view);
}

struct opened {
    struct gpubuf_object *objects[10];
    size_t count;
};

static void keep_opened(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                        void *arg)
{
    struct opened *opened = arg;
    ok(client, status);
    opened->objects[opened->count++] = object;
}

/* Nor is another lease parked in place of one that was lost before the daemon was told. */
/* RELIABILITY.md: The daemon ends 20 */
TEST(test_parking_a_lease_that_is_lost)
{
    enum { BYTES = 100 };
    const struct gpubuf_create_options own = {.size = sizeof(own), .own = true};
    static const char content[BYTES] = {1};
    struct opened opened = {.count = 0};
    struct gpubuf_view *view;
    kill_daemon();
    start_daemon_again();
    CLIENT *client = connect_uncached();
    ok(client, gpubuf_put_bytes(client, "was", content, BYTES, &own));
    ok(client, gpubuf_follow(client, "was", NULL, &view));
    kill_daemon();
    start_daemon_again();
    CLIENT *other = connect_client();
    ok(other, gpubuf_put_bytes(other, "other", content, BYTES, &own));
    for (size_t i = 0; i < COUNT(opened.objects); i++)
        ok(client, gpubuf_open_async(client, "other", NULL, keep_opened, &opened, NULL));
    fails(client, GPUBUF_E_STALE, gpubuf_park(view, NULL, 0));
    assert_int_equal(stat_value(other, "parked"), 0);
    assert_true(!gpubuf_is_parked(view) && gpubuf_is_stale(gpubuf_view_object(view)));
    while (opened.count < COUNT(opened.objects))
        assert_true(gpubuf_dispatch(client) >= 0);
    gpubuf_release_many(opened.objects, opened.count);
    gpubuf_unfollow(view);
}

/* Last, since it ends the daemon: one that stops for good is not waited for. */
COUNTED(test_the_daemon_stops)
{
    struct pair pair = connect_pair(-1);
    struct gpubuf_object *object;
    struct gpubuf_info info;
    put_counting(pair.client, "end", 10, 1);
    ok(pair.client, gpubuf_open(pair.client, "end", NULL, &object));
    assert_false(gpubuf_is_stale(object));
    assert_int_equal(stop_daemon(state), 0);
    fails(pair.client, GPUBUF_E_CLOSED, gpubuf_stat(pair.client, "end", &info));
    assert_true(gpubuf_is_stale(object));
    check_counting(object, 10, 1);
    gpubuf_release(object);
    disconnect_pair(&pair);
}

RUN_TESTS(start_daemon, stop_daemon)
