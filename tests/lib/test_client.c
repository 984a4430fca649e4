/*
 * The client against a real daemon: connecting, methods by name, registering, many objects at
 * once, and the import cache.
 */
#include <inttypes.h>

#include "harness.h"

/* ---- connecting ---- */

COUNTED(test_connecting)
{
    struct gpubuf_client *client = NULL;
    struct gpubuf_connect_options options = {.size = sizeof(options), .path = "/nonexistent/s"};
    assert_int_equal(gpubuf_connect(&client, &options), GPUBUF_E_CONNECT);
    assert_null(client);
    assert_string_equal(gpubuf_errmsg(NULL),
                        "no daemon listens at /nonexistent/s: start one (gpubufd --supervise, or "
                        "systemctl start gpubufd), or set GPUBUFD_SOCKET to where one listens");
    options.path = "localhost:6379";
    assert_int_equal(gpubuf_connect(&client, &options), GPUBUF_E_CONNECT);
    assert_string_equal(gpubuf_errmsg(NULL),
                        "localhost:6379 is no address: gpubufd listens at a path of this machine, "
                        "such as /run/gpubufd/gpubufd.sock");
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

COUNTED(test_calls)
{
    CLIENT *client = connect_client(), *other = connect_client();
    char *text = NULL;
    ok(client, gpubuf_call(client, "list", "{\n\"prefix\"\r\n:\"none\"}", 60000, &text));
    assert_non_null(strstr(text, "\"objects\":[]"));
    gpubuf_free(text);
    ok(client, gpubuf_call(client, "stats", NULL, -1, NULL));
    text = NULL;
    fails(client, GPUBUF_E_METHOD, gpubuf_call(client, "no_such", NULL, 60000, &text));
    assert_null(text);
    assert_true(strlen(gpubuf_errmsg(client)) > 0);
    assert_string_equal(gpubuf_errmsg(other), "");
    fails(other, GPUBUF_E_INVALID, gpubuf_call(other, "stat", "{\"name\":1}", 60000, &text));
    assert_non_null(strstr(gpubuf_errmsg(other), "params.name"));
    assert_null(strstr(gpubuf_errmsg(client), "params.name"));
    static const char *const bad[] = {
        "", "[", "[]", "1", "{\"a\":1} x", "{\"a\":\"\xff\"}", "{\"a\":1,}"};
    for (size_t i = 0; i < COUNT(bad); i++)
        fails(client, GPUBUF_E_INVALID, gpubuf_call(client, "stats", bad[i], 60000, &text));
    fails(client, GPUBUF_E_INVALID, gpubuf_call(client, NULL, NULL, 60000, &text));
    fails(client, GPUBUF_E_INVALID, gpubuf_call(client, "\xff", NULL, 60000, &text));
    static const char *const own[] = {"open", "create", "register"};
    for (size_t i = 0; i < COUNT(own); i++)
        fails(client, GPUBUF_E_UNSUPPORTED, gpubuf_call(client, own[i], NULL, 60000, &text));
    fails(NULL, GPUBUF_E_INVALID, gpubuf_call(NULL, "stats", NULL, 60000, &text));
    /* Longer than a message may be. */
    char *large = malloc(2u << 20);
    memset(large, ' ', (2u << 20) - 1);
    large[0] = '{';
    large[(2u << 20) - 2] = '}';
    large[(2u << 20) - 1] = '\0';
    fails(client, GPUBUF_E_LIMIT, gpubuf_call(client, "stats", large, 60000, &text));
    free(large);
    ok(client, gpubuf_call(client, "stats", NULL, 60000, NULL));
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

COUNTED(test_names)
{
    CLIENT *client = connect_client();
    struct gpubuf_create_options options = {
        .size = sizeof(options), .mode = 0640, .ttl_ms = 3600000, .evict = GPUBUF_EVICT_KEEP};
    struct gpubuf_info info;
    ok(client, gpubuf_put_bytes(client, "info", "hello", 5, &options));
    ok(client, gpubuf_stat(client, "info", &info));
    assert_string_equal(info.name, "info");
    assert_string_equal(info.state, "sealed");
    assert_string_equal(info.tier, "device");
    assert_string_equal(info.device, "host");
    assert_int_equal(info.bytes, 5);
    assert_int_equal(info.mode, 0640);
    assert_int_equal(info.uid, getuid());
    assert_int_equal(info.ttl_ms, 3600000);
    ok(client, gpubuf_expire(client, info.name, 0));
    ok(client, gpubuf_stat(client, info.name, &info));
    assert_int_equal(info.ttl_ms, 0);
    fails(client, GPUBUF_E_INVALID, gpubuf_expire(client, info.name, -1));
    fails(client, GPUBUF_E_INVALID, gpubuf_expire(client, NULL, 1));
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_expire(client, "nobody's", 1));
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
}

COUNTED(test_registering)
{
    CLIENT *client = connect_client();
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
}

/* ---- many at once ---- */

COUNTED(test_open_many)
{
    enum { TOTAL = 5003 };
    CLIENT *client = connect_client();
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
}

/* Each object lies in a memfd of its own: one message cannot bring all descriptors. */
COUNTED(test_many_segments)
{
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
COUNTED(test_idle_after_releases)
{
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

/* ---- the import cache ---- */

COUNTED(test_one_mapping_for_all)
{
    CLIENT *writer = connect_client();
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
}

COUNTED(test_idle_mappings_are_bounded)
{
    CLIENT *writer = connect_client();
    put_counting(writer, "bounded", 100, 1);
    size_t before = count_mappings();
    struct gpubuf_connect_options options = {
        .size = sizeof(options), .cache_bytes = 1, .cache_leases = GPUBUF_NO_CACHE};
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
        ok(client, gpubuf_call(client, "leases", "{}", 60000, &text));
        snprintf(session, sizeof(session), "{\"session\":%" PRIu64 ",\"segment\"",
                 gpubuf_session(client));
        assert_null(strstr(text, session));
        gpubuf_free(text);
    }
    gpubuf_disconnect(client);
    ok(writer, gpubuf_delete(writer, "bounded"));
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
COUNTED(test_retiring)
{
    CLIENT *writer = connect_client();
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
    ok(writer, gpubuf_call(writer, "trim", "{}", 60000, NULL));
    retired.mappings = before;
    wait_until(is_unmapped, &retired);
    gpubuf_disconnect(retired.client);
}

static bool has_mappings(void *arg)
{
    return count_mappings() == *(size_t *)arg;
}

/* The same for a program that holds something and calls nothing: the library's thread answers. */
COUNTED(test_retiring_while_busy)
{
    CLIENT *writer = connect_client(), *client = connect_client();
    struct gpubuf_object *object, *held;
    const char *layout = "{\"kind\":\"bytes\",\"bytes\":10,\"data\":{\"handle\":0,\"offset\":0,"
                         "\"bytes\":10}}";
    const char *const names[] = {"retired", "held"};
    for (int i = 0; i < 2; i++) {
        int fd = fake_memfd(4096, 1, F_SEAL_SHRINK);
        ok(writer, gpubuf_register_memfd(writer, names[i], fd, 4096, layout, NULL));
        close(fd);
    }
    ok(client, gpubuf_open(client, "held", NULL, &held));
    size_t before = count_mappings();
    ok(client, gpubuf_open(client, "retired", NULL, &object));
    gpubuf_release(object);
    assert_int_equal(count_mappings(), before + 1);
    ok(writer, gpubuf_delete(writer, "retired"));
    ok(writer, gpubuf_call(writer, "trim", "{}", 60000, NULL));
    wait_until(has_mappings, &before);
    gpubuf_release(held);
    ok(writer, gpubuf_delete(writer, "held"));
}

RUN_TESTS(start_daemon, stop_daemon)
