/*
 * The client against a real daemon: connecting, asynchronous requests and event loops, callbacks,
 * threads, fork, the import cache, and the end of connections.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

/* ---- connecting ---- */

static void connecting(void **state)
{
    (void)state;
    struct gpubuf_client *client = NULL;
    struct gpubuf_connect_options options = {.size = sizeof(options), .path = "/nonexistent/s"};
    assert_int_equal(gpubuf_connect(&client, &options), GPUBUF_E_CONNECT);
    assert_null(client);
    assert_non_null(strstr(gpubuf_errmsg(NULL), "/nonexistent/s"));
    assert_non_null(strstr(gpubuf_errmsg(NULL), strerror(ENOENT)));
    char path[300];
    memset(path, 'x', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    options.path = path;
    assert_int_equal(gpubuf_connect(&client, &options), GPUBUF_E_CONNECT);
    options.size = 0;
    assert_int_equal(gpubuf_connect(&client, &options), GPUBUF_E_INVALID);
    assert_int_equal(gpubuf_connect(NULL, NULL), GPUBUF_E_INVALID);

    /* An older program's shorter struct, and the variable. */
    setenv("GPUBUFD_SOCKET", daemon_socket(), 1);
    options = (struct gpubuf_connect_options){.size = 2 * sizeof(size_t)};
    assert_int_equal(gpubuf_connect(&client, &options), 0);
    unsetenv("GPUBUFD_SOCKET");
    assert_true(gpubuf_session(client) > 0);
    assert_true(strlen(gpubuf_instance(client)) >= 16);
    assert_string_equal(gpubuf_errmsg(client), "");
    gpubuf_disconnect(client);
    gpubuf_disconnect(NULL);
    gpubuf_release(NULL);
    assert_null(gpubuf_retain(NULL));
    assert_string_equal(gpubuf_version(), GPUBUF_VERSION);
    assert_string_equal(gpubuf_errkind(GPUBUF_E_STALE), "stale");
    assert_string_equal(gpubuf_errkind(12345), "unknown");
    assert_non_null(gpubuf_strerror(12345));
}

static void calls(void **state)
{
    (void)state;
    struct gpubuf_client *client = connect_client(), *other = connect_client();
    char *text = NULL;
    ok(client, gpubuf_call(client, "list", "{\n\"prefix\"\r\n:\"none\"}", 5000, &text));
    assert_string_equal(text, "{\"objects\":[]}");
    gpubuf_free(text);
    ok(client, gpubuf_call(client, "stats", NULL, -1, NULL));
    text = NULL;
    fails(client, GPUBUF_E_METHOD, gpubuf_call(client, "no_such", NULL, 5000, &text));
    assert_null(text);
    assert_true(strlen(gpubuf_errmsg(client)) > 0);
    assert_string_equal(gpubuf_errmsg(other), "");
    fails(other, GPUBUF_E_INVALID, gpubuf_call(other, "stat", "{\"name\":1}", 5000, &text));
    assert_non_null(strstr(gpubuf_errmsg(other), "params.name"));
    assert_null(strstr(gpubuf_errmsg(client), "params.name"));
    static const char *const bad[] = {
        "", "[", "[]", "1", "{\"a\":1} x", "{\"a\":\"\xff\"}", "{\"a\":1,}"};
    for (size_t i = 0; i < COUNT(bad); i++)
        fails(client, GPUBUF_E_INVALID, gpubuf_call(client, "stats", bad[i], 5000, &text));
    fails(client, GPUBUF_E_INVALID, gpubuf_call(client, NULL, NULL, 5000, &text));
    fails(client, GPUBUF_E_INVALID, gpubuf_call(client, "\xff", NULL, 5000, &text));
    static const char *const own[] = {"open", "create", "register"};
    for (size_t i = 0; i < COUNT(own); i++)
        fails(client, GPUBUF_E_UNSUPPORTED, gpubuf_call(client, own[i], NULL, 5000, &text));
    fails(NULL, GPUBUF_E_INVALID, gpubuf_call(NULL, "stats", NULL, 5000, &text));
    /* Longer than a message may be. */
    char *large = malloc(2u << 20);
    memset(large, ' ', (2u << 20) - 1);
    large[0] = '{';
    large[(2u << 20) - 2] = '}';
    large[(2u << 20) - 1] = '\0';
    fails(client, GPUBUF_E_LIMIT, gpubuf_call(client, "stats", large, 5000, &text));
    free(large);
    ok(client, gpubuf_call(client, "stats", NULL, 5000, NULL));
    gpubuf_disconnect(client);
    gpubuf_disconnect(other);
}

static int collect(const struct gpubuf_info *info, void *arg)
{
    size_t *count = arg;
    char expected[32];
    snprintf(expected, sizeof(expected), "names/%04zu", *count);
    assert_string_equal(info->name, expected);
    assert_string_equal(info->state, "sealed");
    (*count)++;
    return *count == 2500 ? 42 : 0;
}

static void names(void **state)
{
    (void)state;
    struct gpubuf_client *client = connect_client();
    struct gpubuf_create_options options = {
        .size = sizeof(options), .mode = 0640, .ttl_ms = 3600000, .evict = GPUBUF_EVICT_KEEP};
    struct gpubuf_info info;
    ok(client, gpubuf_put_bytes(client, "info", "hello", 5, &options));
    ok(client, gpubuf_stat(client, "info", &info));
    assert_string_equal(info.name, "info");
    assert_string_equal(info.state, "sealed");
    assert_string_equal(info.tier, "host");
    assert_string_equal(info.device, "host");
    assert_int_equal(info.bytes, 5);
    assert_int_equal(info.mode, 0640);
    assert_int_equal(info.uid, getuid());
    assert_int_equal(info.ttl_ms, 3600000);
    assert_false(info.pinned);
    assert_true(info.created_ms > 1500000000000);
    ok(client, gpubuf_pin(client, "info"));
    ok(client, gpubuf_stat(client, "info", &info));
    assert_true(info.pinned);
    ok(client, gpubuf_unpin(client, "info"));
    ok(client, gpubuf_delete(client, "info"));
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_stat(client, "info", &info));
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_delete(client, "info"));
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_pin(client, "info"));
    fails(client, GPUBUF_E_INVALID, gpubuf_stat(client, NULL, &info));

    char name[32];
    for (int i = 0; i < 2600; i++) {
        snprintf(name, sizeof(name), "names/%04d", i);
        ok(client, gpubuf_put_bytes(client, name, "x", 1, NULL));
    }
    size_t count = 0;
    assert_int_equal(gpubuf_list(client, "names/", collect, &count), 42);
    assert_int_equal(count, 2500);
    count = 0;
    fails(client, GPUBUF_E_INVALID, gpubuf_list(client, "\xff", collect, &count));
    for (int i = 0; i < 2600; i++) {
        snprintf(name, sizeof(name), "names/%04d", i);
        ok(client, gpubuf_delete(client, name));
    }
    ok(client, gpubuf_list(client, "names/", collect, &count));
    assert_int_equal(count, 0);
    gpubuf_disconnect(client);
}

static void registering(void **state)
{
    (void)state;
    struct gpubuf_client *client = connect_client();
    size_t fds = count_fds();
    int fd = fake_memfd(4096, 'm', F_SEAL_SHRINK);
    const char *layout = "{\"kind\":\"array\",\"dtype\":\"uint8\",\"shape\":[100],\n"
                         "\"data\":{\"handle\":0,\"offset\":256,\"bytes\":100}}";
    struct gpubuf_create_options options = {.size = sizeof(options), .wait_ms = 5};
    ok(client, gpubuf_register_memfd(client, "own", fd, 4096, layout, &options));
    fails(client, GPUBUF_E_INVALID,
          gpubuf_register_memfd(client, "own2", fd, 1 << 20, layout, NULL));
    fails(client, GPUBUF_E_INVALID, gpubuf_register_memfd(client, "own2", fd, 4096, "{", NULL));
    fails(client, GPUBUF_E_INVALID, gpubuf_register_memfd(client, "own2", -1, 4096, layout, NULL));
    fails(client, GPUBUF_E_INVALID,
          gpubuf_register_memfd(client, "own2", 9999, 4096, layout, NULL));
    assert_int_equal(count_fds(), fds + 1);
    close(fd);
    struct gpubuf_object *object;
    struct gpubuf_memory memory;
    ok(client, gpubuf_open(client, "own", NULL, &object));
    ok(client, gpubuf_memory(object, GPUBUF_DATA, &memory));
    assert_int_equal(memory.bytes, 100);
    assert_int_equal(*(char *)memory.pointer, 'm');
    gpubuf_release(object);
    ok(client, gpubuf_delete(client, "own"));
    gpubuf_disconnect(client);
}

/* ---- many at once ---- */

static void open_many(void **state)
{
    (void)state;
    enum { TOTAL = 5003 };
    struct gpubuf_client *client = connect_client();
    static char texts[TOTAL][270];
    static const char *list[TOTAL];
    static struct gpubuf_object *objects[TOTAL];
    static int errors[TOTAL];
    for (unsigned i = 0; i < TOTAL; i++) {
        /* Long names, so that neither request nor reply fits into one message. */
        snprintf(texts[i], sizeof(texts[i]), "many/%04u/%0200u", i, i);
        list[i] = texts[i];
        if (i % 1000 != 7)
            ok(client, gpubuf_put_bytes(client, texts[i], &i, sizeof(i), NULL));
    }
    list[100] = "bad//name";
    list[101] = NULL;
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(gpubuf_open_many(client, list, TOTAL, NULL, objects, errors), TOTAL - 7);
        for (unsigned i = 0; i < TOTAL; i++) {
            struct gpubuf_memory memory;
            if (i == 100 || i == 101) {
                assert_int_equal(errors[i], GPUBUF_E_INVALID);
                assert_null(objects[i]);
            } else if (i % 1000 == 7) {
                assert_int_equal(errors[i], GPUBUF_E_NOT_FOUND);
                assert_null(objects[i]);
            } else {
                assert_int_equal(errors[i], 0);
                ok(client, gpubuf_memory(objects[i], GPUBUF_DATA, &memory));
                assert_int_equal(*(unsigned *)memory.pointer, i);
            }
        }
        assert_int_equal(stat_value(client, "leases"), TOTAL - 7);
        if (pass == 0) {
            gpubuf_release_many(objects, TOTAL);
        } else { /* more single messages than a socket holds */
            for (unsigned i = 0; i < TOTAL; i++)
                gpubuf_release(objects[i]);
        }
        assert_int_equal(stat_value(client, "leases"), 0);
    }
    struct gpubuf_open_options options = {.size = sizeof(options), .version = 1};
    fails(client, GPUBUF_E_INVALID, gpubuf_open_many(client, list, 2, &options, objects, NULL));
    assert_int_equal(gpubuf_open_many(client, list, 0, NULL, objects, NULL), 0);
    assert_int_equal(gpubuf_open_many(client, list + 100, 2, NULL, objects, NULL), 0);
    for (unsigned i = 0; i < TOTAL; i++) {
        if (i % 1000 != 7)
            ok(client, gpubuf_delete(client, texts[i]));
    }
    gpubuf_disconnect(client);
}

/* Each object lies in a memfd of its own: one message cannot bring all descriptors. */
static void many_segments(void **state)
{
    (void)state;
    enum { TOTAL = 50 };
    struct gpubuf_client *client = connect_client(), *reader = connect_client();
    static char texts[TOTAL][32];
    const char *list[TOTAL];
    struct gpubuf_object *objects[TOTAL];
    int errors[TOTAL];
    for (int i = 0; i < TOTAL; i++) {
        int fd = fake_memfd(4096, i, F_SEAL_SHRINK);
        snprintf(texts[i], sizeof(texts[i]), "segment/%d", i);
        list[i] = texts[i];
        ok(client, gpubuf_register_memfd(client, texts[i], fd, 4096,
                                         "{\"kind\":\"bytes\",\"bytes\":100,\"data\":{\"handle\":0,"
                                         "\"offset\":0,\"bytes\":100}}",
                                         NULL));
        close(fd);
    }
    size_t fds = count_fds(), mappings = count_mappings();
    assert_int_equal(gpubuf_open_many(reader, list, TOTAL, NULL, objects, errors), TOTAL);
    assert_int_equal(count_fds(), fds);
    assert_int_equal(count_mappings(), mappings + TOTAL);
    for (int i = 0; i < TOTAL; i++) {
        struct gpubuf_memory memory;
        ok(reader, gpubuf_memory(objects[i], GPUBUF_DATA, &memory));
        assert_int_equal(*(char *)memory.pointer, i);
    }
    gpubuf_release_many(objects, TOTAL);
    gpubuf_disconnect(reader);
    assert_int_equal(count_mappings(), mappings);
    for (int i = 0; i < TOTAL; i++)
        ok(client, gpubuf_delete(client, texts[i]));
    gpubuf_disconnect(client);
}

static bool nothing_leased(void *arg)
{
    return stat_value(arg, "leases") == 0;
}

/* Releases in quick succession travel with the next request, or by themselves if none follows. */
static void idle_after_releases(void **state)
{
    (void)state;
    struct gpubuf_client *client = connect_client(), *observer = connect_client();
    struct gpubuf_object *object;
    put_counting(client, "idle", 10, 0);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 100; i++) {
            ok(client, gpubuf_open(client, "idle", NULL, &object));
            gpubuf_release(object);
        }
        wait_until(nothing_leased, observer);
    }
    /* Also where the program disconnects while they wait. */
    for (int i = 0; i < 100; i++) {
        ok(client, gpubuf_open(client, "idle", NULL, &object));
        gpubuf_release(object);
    }
    gpubuf_disconnect(client);
    assert_int_equal(stat_value(observer, "leases"), 0);
    ok(observer, gpubuf_delete(observer, "idle"));
    gpubuf_disconnect(observer);
}

/* ---- asynchronously ---- */

struct outcome {
    bool done;
    int status;
    unsigned calls;
    struct gpubuf_object *object;
    char result[256];
};

static void object_done(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                        void *arg)
{
    struct outcome *outcome = arg;
    (void)client;
    outcome->done = true;
    outcome->status = status;
    outcome->object = object;
    outcome->calls++;
}

static void call_done(struct gpubuf_client *client, int status, const char *result, size_t length,
                      void *arg)
{
    struct outcome *outcome = arg;
    (void)client;
    outcome->done = true;
    outcome->status = status;
    outcome->calls++;
    if (result)
        snprintf(outcome->result, sizeof(outcome->result), "%.*s", (int)length, result);
}

static void event_loop(void **state)
{
    (void)state;
    struct gpubuf_client *client = connect_client();
    struct outcome made = {0}, sealed = {0}, opened = {0}, missing = {0}, called = {0};
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = 10};
    struct gpubuf_memory memory;
    ok(client, gpubuf_create_async(client, "async", &layout, NULL, object_done, &made, NULL));
    dispatch_until(client, &made.done);
    assert_int_equal(made.status, 0);
    ok(client, gpubuf_memory(made.object, GPUBUF_DATA, &memory));
    memcpy(memory.pointer, "0123456789", 10);
    ok(client, gpubuf_seal_async(made.object, NULL, object_done, &sealed, NULL));
    fails(client, GPUBUF_E_BUSY, gpubuf_seal_async(made.object, NULL, object_done, &sealed, NULL));
    dispatch_until(client, &sealed.done);
    assert_int_equal(sealed.status, 0);
    assert_ptr_equal(sealed.object, made.object);
    gpubuf_release(sealed.object);
    gpubuf_release(made.object);
    ok(client, gpubuf_open_async(client, "async", NULL, object_done, &opened, NULL));
    ok(client, gpubuf_open_async(client, "absent", NULL, object_done, &missing, NULL));
    ok(client,
       gpubuf_call_async(client, "delete", "{\"name\":\"async\"}", call_done, &called, NULL));
    dispatch_until(client, &called.done);
    assert_int_equal(opened.status, 0);
    assert_int_equal(missing.status, GPUBUF_E_NOT_FOUND);
    assert_null(missing.object);
    assert_string_equal(called.result, "{}");
    gpubuf_release(opened.object);
    assert_int_equal(gpubuf_events(client), POLLIN);
    assert_int_equal(gpubuf_dispatch(client), 0);
    ok(client, gpubuf_call_async(client, "stats", NULL, NULL, NULL, NULL));
    assert_int_equal(stat_value(client, "leases"), 0);
    gpubuf_disconnect(client);
}

static void canceling(void **state)
{
    (void)state;
    struct gpubuf_client *client = connect_client(), *other = connect_client();
    struct gpubuf_open_options wait = {.size = sizeof(wait), .wait_ms = 60000};
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = 10};
    struct outcome open = {0}, create = {0}, call = {0};
    uint64_t request;
    ok(client, gpubuf_open_async(client, "late", &wait, object_done, &open, &request));
    assert_false(open.done);
    ok(client, gpubuf_cancel(client, request));
    assert_int_equal(open.status, GPUBUF_E_CANCELED);
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_cancel(client, request));
    /* The daemon grants it all the same: it is given back. */
    ok(other, gpubuf_put_bytes(other, "late", "x", 1, NULL));
    ok(client, gpubuf_create_async(client, "never", &layout, NULL, object_done, &create, &request));
    ok(client, gpubuf_cancel(client, request));
    ok(client, gpubuf_call_async(client, "stats", NULL, call_done, &call, &request));
    ok(client, gpubuf_cancel(client, request));
    assert_int_equal(call.status, GPUBUF_E_CANCELED);
    assert_int_equal(create.calls + open.calls + call.calls, 3);
    ok(client, gpubuf_call(client, "stats", NULL, 5000, NULL)); /* the answers have come */
    assert_int_equal(stat_value(client, "leases"), 0);
    assert_int_equal(create.calls + open.calls + call.calls, 3);
    ok(client, gpubuf_delete(client, "late"));

    /* Blocking calls that give up: here the daemon says so. */
    struct gpubuf_object *object = NULL;
    wait.wait_ms = 20;
    fails(client, GPUBUF_E_TIMEOUT, gpubuf_open(client, "late", &wait, &object));
    wait.wait_ms = -1;
    fails(client, GPUBUF_E_INVALID, gpubuf_open(client, "late", &wait, &object));
    assert_null(object);
    gpubuf_disconnect(client);
    gpubuf_disconnect(other);
}

/* A callback may call the library, but must not wait in it. */
struct reentry {
    bool done;
    int blocking;
    struct outcome next;
    uint64_t other;
    struct outcome canceled;
};

static void reenter(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                    void *arg)
{
    struct reentry *reentry = arg;
    struct gpubuf_object *none, *slice;
    struct gpubuf_info info;
    assert_int_equal(status, 0);
    reentry->blocking = gpubuf_open(client, "reentry", NULL, &none);
    assert_int_equal(gpubuf_stat(client, "reentry", &info), GPUBUF_E_BUSY);
    assert_int_equal(gpubuf_seal(object, NULL), GPUBUF_E_BUSY);
    assert_true(gpubuf_dispatch(client) >= 0);
    ok(client, gpubuf_slice(object, 0, 1, &slice));
    gpubuf_release(slice);
    ok(client, gpubuf_open_async(client, "reentry", NULL, object_done, &reentry->next, NULL));
    ok(client, gpubuf_cancel(client, reentry->other));
    gpubuf_release(object);
    reentry->done = true;
}

static void callbacks(void **state)
{
    (void)state;
    struct gpubuf_client *client = connect_client();
    struct gpubuf_open_options wait = {.size = sizeof(wait), .wait_ms = 60000};
    struct reentry reentry = {.blocking = 0};
    put_counting(client, "reentry", 10, 0);
    ok(client,
       gpubuf_open_async(client, "not yet", &wait, object_done, &reentry.canceled, &reentry.other));
    ok(client, gpubuf_open_async(client, "reentry", NULL, reenter, &reentry, NULL));
    dispatch_until(client, &reentry.done);
    assert_int_equal(reentry.blocking, GPUBUF_E_BUSY);
    assert_int_equal(reentry.canceled.status, GPUBUF_E_CANCELED);
    dispatch_until(client, &reentry.next.done);
    assert_int_equal(reentry.next.status, 0);
    /* The callback's own lease went with the end of the callbacks. */
    assert_int_equal(leases_of(client, "reentry"), 1);
    gpubuf_release(reentry.next.object);

    /* Inside a blocking call of the same thread. */
    reentry = (struct reentry){.blocking = 0};
    ok(client,
       gpubuf_open_async(client, "not yet", &wait, object_done, &reentry.canceled, &reentry.other));
    ok(client, gpubuf_open_async(client, "reentry", NULL, reenter, &reentry, NULL));
    struct gpubuf_info info;
    ok(client, gpubuf_stat(client, "reentry", &info));
    assert_true(reentry.done);
    dispatch_until(client, &reentry.next.done);
    gpubuf_release(reentry.next.object);
    gpubuf_disconnect(client);
}

/* ---- many, without waiting ---- */

struct opened {
    bool done;
    int status;
    int errors[3];
    struct gpubuf_object *objects[3];
};

static void note_objects(struct gpubuf_client *client, int status,
                         struct gpubuf_object *const *objects, const int *errors, size_t count,
                         void *arg)
{
    struct opened *opened = arg;
    (void)client;
    assert_false(opened->done);
    opened->done = true;
    opened->status = status;
    assert_int_equal(count, 3);
    if (status < 0) {
        assert_null(objects);
        assert_null(errors);
        return;
    }
    memcpy((void *)opened->objects, (const void *)objects, sizeof(opened->objects));
    memcpy(opened->errors, errors, sizeof(opened->errors));
}

static void open_many_without_waiting(void **state)
{
    (void)state;
    struct gpubuf_client *client = connect_client();
    put_counting(client, "async/a", 3, 1);
    put_counting(client, "async/b", 3, 2);
    struct opened opened = {.done = false};
    char first[] = "async/a"; /* the names are copied */
    const char *names[] = {first, "", "async/b"};
    ok(client, gpubuf_open_many_async(client, names, 3, NULL, note_objects, &opened, NULL));
    memset(first, 'x', sizeof(first) - 1);
    dispatch_until(client, &opened.done);
    assert_int_equal(opened.status, 2);
    assert_int_equal(opened.errors[1], GPUBUF_E_INVALID);
    assert_string_equal(gpubuf_name(opened.objects[0]), "async/a");
    assert_string_equal(gpubuf_name(opened.objects[2]), "async/b");
    gpubuf_release_many(opened.objects, 3);

    /* Canceled while the daemon waits, and before an answer that grants. */
    static const struct gpubuf_open_options wait = {sizeof(wait), .wait_ms = 60000};
    static const char *const missing[] = {"async/a", "async/never", "async/b"};
    static const char *const there[] = {"async/a", "async/a", "async/b"};
    for (int i = 0; i < 2; i++) {
        struct opened canceled = {.done = false};
        uint64_t request;
        ok(client, gpubuf_open_many_async(client, i ? there : missing, 3, i ? NULL : &wait,
                                          note_objects, &canceled, &request));
        ok(client, gpubuf_cancel(client, request));
        assert_int_equal(canceled.status, GPUBUF_E_CANCELED);
    }
    ok(client, gpubuf_delete(client, "async/b"));
    assert_int_equal(leases_of(client, "async/a"), 0);

    static const char *const none[] = {"", NULL, "a//b"};
    fails(client, GPUBUF_E_INVALID,
          gpubuf_open_many_async(client, none, 3, NULL, note_objects, &opened, NULL));
    fails(client, GPUBUF_E_INVALID,
          gpubuf_open_many_async(client, none, 0, NULL, note_objects, &opened, NULL));
    fails(client, GPUBUF_E_INVALID,
          gpubuf_open_many_async(client, there, 3, NULL, NULL, NULL, NULL));
    struct opened lost = {.done = false};
    ok(client, gpubuf_open_many_async(client, there, 3, NULL, note_objects, &lost, NULL));
    ok(client, gpubuf_delete(client, "async/a"));
    gpubuf_disconnect(client);
    assert_true(lost.done);
    if (lost.status >= 0)
        gpubuf_release_many(lost.objects, 3);
}

/* ---- watching ---- */

struct events {
    struct told told;
    bool ended;
    uint64_t watch;
};

static void note_event(struct gpubuf_client *client, const char *kind,
                       const struct gpubuf_info *info, void *arg)
{
    struct events *events = arg;
    note_told(client, kind, info, &events->told);
    if (info && strcmp(info->name, "watched/last") == 0) {
        events->ended = true;
        ok(client, gpubuf_unwatch(client, events->watch));
    }
}

static void watching(void **state)
{
    (void)state;
    struct gpubuf_client *client = connect_client(), *other = connect_client();
    struct events events = {.watch = 0};
    put_counting(other, "watched/a", 1, 0);
    put_counting(other, "unwatched", 1, 0);
    ok(client, gpubuf_watch(client, "watched/", note_event, &events, &events.watch));
    dispatch_until(client, &events.told.synced);
    put_counting(other, "watched/b", 1, 0);
    put_counting(other, "unwatched", 1, 0);
    ok(other, gpubuf_delete(other, "watched/a"));
    put_counting(other, "watched/last", 1, 0);
    put_counting(other, "watched/later", 1, 0);
    dispatch_until(client, &events.ended);
    struct gpubuf_info info;
    ok(client, gpubuf_stat(client, "watched/later", &info));
    assert_string_equal(events.told.text,
                        "sealed:watched/a synced:- sealed:watched/b deleted:watched/a "
                        "sealed:watched/last ");
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_unwatch(client, events.watch));
    fails(client, GPUBUF_E_INVALID, gpubuf_watch(client, NULL, NULL, NULL, NULL));
    static const char *const all[] = {"watched/b", "watched/last", "watched/later", "unwatched"};
    for (size_t i = 0; i < COUNT(all); i++)
        ok(other, gpubuf_delete(other, all[i]));
    gpubuf_disconnect(client);
    gpubuf_disconnect(other);
}

struct answer {
    struct events events; /* first, so that both callbacks find what they want */
    bool done;
    int status;
    uint64_t watch;
};

static void note_watch(struct gpubuf_client *client, int status, uint64_t watch, void *arg)
{
    struct answer *answer = arg;
    (void)client;
    assert_string_equal(answer->events.told.text, ""); /* told before any event */
    assert_false(answer->done);
    answer->done = true;
    answer->status = status;
    answer->watch = answer->events.watch = watch;
}

/* As the daemon counts them. */
static uint64_t watch_count(struct gpubuf_client *client)
{
    struct events events = {.watch = 0};
    uint64_t count = 0;
    uint64_t ids[64];
    while (count < 64 && gpubuf_watch(client, "none/", note_event, &events, &ids[count]) == 0)
        count++;
    for (uint64_t i = 0; i < count; i++)
        ok(client, gpubuf_unwatch(client, ids[i]));
    return 64 - count;
}

static void watching_without_waiting(void **state)
{
    (void)state;
    struct gpubuf_client *client = connect_client(), *other = connect_client();
    struct answer answer = {.done = false}, canceled = {.done = false}, lost = {.done = false};
    put_counting(other, "watched/a", 1, 0);
    ok(client, gpubuf_watch_async(client, "watched/", note_event, note_watch, &answer, NULL));
    dispatch_until(client, &answer.events.told.synced);
    assert_true(answer.done);
    assert_int_equal(answer.status, 0);
    put_counting(other, "watched/last", 1, 0);
    dispatch_until(client, &answer.events.ended);
    assert_string_equal(answer.events.told.text, "sealed:watched/a synced:- sealed:watched/last ");
    assert_int_equal(watch_count(client), 0);

    /* Canceled before the answer: the daemon has no watch all the same. */
    uint64_t request;
    ok(client, gpubuf_watch_async(client, NULL, note_event, note_watch, &canceled, &request));
    ok(client, gpubuf_cancel(client, request));
    assert_int_equal(canceled.status, GPUBUF_E_CANCELED);
    assert_int_equal(watch_count(client), 0);
    assert_string_equal(canceled.events.told.text, "");

    fails(client, GPUBUF_E_INVALID,
          gpubuf_watch_async(client, NULL, NULL, note_watch, &answer, NULL));
    fails(client, GPUBUF_E_INVALID,
          gpubuf_watch_async(client, NULL, note_event, NULL, &answer, NULL));
    ok(client, gpubuf_watch_async(client, NULL, note_event, note_watch, &lost, NULL));
    gpubuf_disconnect(client);
    assert_true(lost.done);
    assert_int_equal(lost.status, GPUBUF_E_CLOSED);
    ok(other, gpubuf_delete(other, "watched/a"));
    ok(other, gpubuf_delete(other, "watched/last"));
    gpubuf_disconnect(other);
}

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

static void threads(void **state)
{
    (void)state;
    enum { THREADS = 8 };
    struct gpubuf_connect_options options = {.size = sizeof(options), .cache_bytes = 1};
    struct gpubuf_client *client = connect_with(&options); /* every idle mapping is dropped */
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
    gpubuf_disconnect(client);
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
    ok(waiting->observer, gpubuf_call(waiting->observer, "stats", NULL, 5000, &text));
    const char *open = strstr(text, "\"open\":{\"calls\":");
    assert_non_null(open);
    bool has = strtoull(open + strlen("\"open\":{\"calls\":"), NULL, 10) >= waiting->count;
    gpubuf_free(text);
    return has;
}

/* Blocking calls in other threads return when the program disconnects. */
static void disconnect_under_waiters(void **state)
{
    (void)state;
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

static void forking(void **state)
{
    (void)state;
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

/* ---- the import cache ---- */

static void one_mapping_for_all(void **state)
{
    (void)state;
    struct gpubuf_client *writer = connect_client();
    put_counting(writer, "cache/a", 100, 1);
    put_counting(writer, "cache/b", 100, 2);
    size_t before = count_mappings(), fds;
    struct gpubuf_client *one = connect_client(), *two = connect_client();
    struct gpubuf_object *objects[4];
    fds = count_fds();
    ok(one, gpubuf_open(one, "cache/a", NULL, &objects[0]));
    ok(one, gpubuf_open(one, "cache/b", NULL, &objects[1]));
    ok(two, gpubuf_open(two, "cache/a", NULL, &objects[2]));
    ok(two, gpubuf_open(two, "cache/b", NULL, &objects[3]));
    assert_int_equal(count_mappings(), before + 1); /* for reading; the writer has one of its own */
    assert_int_equal(count_fds(), fds);
    struct gpubuf_memory first, second;
    ok(one, gpubuf_memory(objects[0], GPUBUF_DATA, &first));
    ok(two, gpubuf_memory(objects[2], GPUBUF_DATA, &second));
    assert_ptr_equal(first.pointer, second.pointer);
    gpubuf_release_many(objects, 4);
    assert_int_equal(count_mappings(), before + 1); /* idle, for later */
    gpubuf_disconnect(one);
    assert_int_equal(count_mappings(), before + 1);
    gpubuf_disconnect(two);
    assert_int_equal(count_mappings(), before);
    ok(writer, gpubuf_delete(writer, "cache/a"));
    ok(writer, gpubuf_delete(writer, "cache/b"));
    gpubuf_disconnect(writer);
}

static void idle_mappings_are_bounded(void **state)
{
    (void)state;
    struct gpubuf_client *writer = connect_client();
    put_counting(writer, "bounded", 100, 1);
    size_t before = count_mappings();
    struct gpubuf_connect_options options = {.size = sizeof(options), .cache_bytes = 1};
    struct gpubuf_client *client = connect_with(&options);
    struct gpubuf_object *object, *again;
    for (int i = 0; i < 3; i++) {
        ok(client, gpubuf_open(client, "bounded", NULL, &object));
        ok(client, gpubuf_open(client, "bounded", NULL, &again));
        assert_int_equal(count_mappings(), before + 1);
        gpubuf_release(object);
        assert_int_equal(count_mappings(), before + 1);
        gpubuf_release(again);
        assert_int_equal(count_mappings(), before);
        /* The daemon knows: `mapped` has the writer's only. */
        char *text = NULL, session[64];
        ok(client, gpubuf_call(client, "leases", "{}", 5000, &text));
        snprintf(session, sizeof(session), "{\"session\":%" PRIu64 ",\"segment\"",
                 gpubuf_session(client));
        assert_null(strstr(text, session));
        gpubuf_free(text);
    }
    gpubuf_disconnect(client);
    ok(writer, gpubuf_delete(writer, "bounded"));
    gpubuf_disconnect(writer);
}

struct retired {
    struct gpubuf_client *client;
    size_t mappings;
};

static bool is_unmapped(void *arg)
{
    struct retired *retired = arg;
    gpubuf_dispatch(retired->client);
    return count_mappings() == retired->mappings;
}

/* The daemon asks for segments back: they go when no object needs them. */
static void retiring(void **state)
{
    (void)state;
    struct gpubuf_client *writer = connect_client();
    struct gpubuf_object *object;
    size_t before = count_mappings();
    struct retired retired = {connect_client(), before};
    int fd = fake_memfd(4096, 1, F_SEAL_SHRINK);
    const char *layout = "{\"kind\":\"bytes\",\"bytes\":10,\"data\":{\"handle\":0,\"offset\":0,"
                         "\"bytes\":10}}";
    ok(writer, gpubuf_register_memfd(writer, "retired", fd, 4096, layout, NULL));
    close(fd);
    before = count_mappings();
    ok(retired.client, gpubuf_open(retired.client, "retired", NULL, &object));
    assert_int_equal(count_mappings(), before + 1);
    gpubuf_release(object);
    assert_int_equal(count_mappings(), before + 1);
    ok(writer, gpubuf_delete(writer, "retired"));
    ok(writer, gpubuf_call(writer, "trim", "{}", 5000, NULL));
    retired.mappings = before;
    wait_until(is_unmapped, &retired);
    gpubuf_disconnect(retired.client);
    gpubuf_disconnect(writer);
}

/* ---- the end ---- */

static void objects_outlive_the_connection(void **state)
{
    (void)state;
    size_t mappings = count_mappings(), fds = count_fds();
    struct gpubuf_client *client = connect_client(), *observer = connect_client();
    struct gpubuf_object *object, *slice;
    struct gpubuf_memory memory;
    struct outcome open = {0};
    struct gpubuf_open_options wait = {.size = sizeof(wait), .wait_ms = 60000};
    put_counting(client, "outlived", 10, 0);
    ok(client, gpubuf_open(client, "outlived", NULL, &object));
    ok(client, gpubuf_slice(object, 3, 3, &slice));
    ok(client, gpubuf_memory(slice, GPUBUF_DATA, &memory));
    ok(client, gpubuf_open_async(client, "not there", &wait, object_done, &open, NULL));
    gpubuf_disconnect(client);
    assert_int_equal(open.status, GPUBUF_E_CLOSED);
    assert_int_equal(*(unsigned char *)memory.pointer, 3);
    assert_int_equal(gpubuf_length(slice), 3);
    assert_int_equal(gpubuf_memory(slice, GPUBUF_DATA, &memory), GPUBUF_E_CLOSED);
    assert_int_equal(leases_of(observer, "outlived"), 0);
    gpubuf_release(object);
    gpubuf_release(slice);
    ok(observer, gpubuf_delete(observer, "outlived"));
    gpubuf_disconnect(observer);
    assert_int_equal(count_mappings(), mappings);
    assert_int_equal(count_fds(), fds);
}

/* Last, since it kills the daemon. */
static void the_daemon_dies(void **state)
{
    (void)state;
    struct gpubuf_connect_options options = {
        .size = sizeof(options), .path = daemon_socket(), .resume_ms = GPUBUF_NO_RESUME};
    struct gpubuf_client *client = connect_with(&options);
    struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = 10};
    struct gpubuf_object *object, *unsealed, *none;
    struct gpubuf_memory memory;
    struct outcome open = {0}, call = {0};
    struct gpubuf_open_options wait = {.size = sizeof(wait), .wait_ms = 60000};
    put_counting(client, "survivor", 10, 5);
    ok(client, gpubuf_open(client, "survivor", NULL, &object));
    ok(client, gpubuf_create(client, "unsealed", &layout, NULL, &unsealed));
    ok(client, gpubuf_open_async(client, "not there", &wait, object_done, &open, NULL));
    kill_daemon();
    ok(client, gpubuf_call_async(client, "stats", NULL, call_done, &call, NULL));
    assert_int_equal(gpubuf_dispatch(client), GPUBUF_E_CLOSED);
    assert_int_equal(open.status, GPUBUF_E_CLOSED);
    assert_int_equal(call.status, GPUBUF_E_CLOSED);
    assert_int_equal(gpubuf_dispatch(client), GPUBUF_E_CLOSED);
    fails(client, GPUBUF_E_CLOSED, gpubuf_open(client, "survivor", NULL, &none));
    fails(client, GPUBUF_E_CLOSED, gpubuf_seal(unsealed, NULL));
    fails(client, GPUBUF_E_CLOSED, gpubuf_put_bytes(client, "x", "y", 1, NULL));
    fails(client, GPUBUF_E_CLOSED, gpubuf_open_async(client, "a", NULL, object_done, &open, NULL));
    assert_true(strlen(gpubuf_errmsg(client)) > 10);
    ok(client, gpubuf_memory(object, GPUBUF_DATA, &memory));
    assert_int_equal(*(unsigned char *)memory.pointer, 5);
    gpubuf_release(object);
    gpubuf_release(unsealed);
    gpubuf_disconnect(client);
    assert_int_equal(open.calls, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        COUNTED(connecting),
        COUNTED(calls),
        COUNTED(names),
        COUNTED(registering),
        COUNTED(open_many),
        COUNTED(open_many_without_waiting),
        COUNTED(many_segments),
        COUNTED(idle_after_releases),
        COUNTED(event_loop),
        COUNTED(canceling),
        COUNTED(callbacks),
        COUNTED(watching),
        COUNTED(watching_without_waiting),
        COUNTED(threads),
        COUNTED(disconnect_under_waiters),
        COUNTED(forking),
        COUNTED(one_mapping_for_all),
        COUNTED(idle_mappings_are_bounded),
        COUNTED(retiring),
        COUNTED(objects_outlive_the_connection),
        COUNTED(the_daemon_dies),
    };
    return cmocka_run_group_tests_name("client", tests, start_daemon, stop_daemon);
}
