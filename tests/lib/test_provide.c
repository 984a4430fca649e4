/*
 * gpubuf_provide: programs that make names for others, in a loop of their own, inside callbacks,
 * and over a daemon that is killed and started again while opens wait.
 */
#include <stdatomic.h>

#include "harness.h"

enum { LONG_MS = 600000, MOST = 64 };

/* Requests that a provider was told of, and how it answers. */
struct loader {
    struct gpubuf_client *client, *maker; /* that provides; by which it makes objects */
    char names[MOST][64];
    uint64_t requests[MOST];
    unsigned count, ended, all_ended; /* names wanted; requests over; connections made anew */
    uint32_t uid;
    bool makes, declines;
    bool answered; /* gpubuf_provide_async has been, with: */
    int status;
};

static void on_wanted(struct gpubuf_client *client, const struct gpubuf_wanted *wanted, void *arg)
{
    struct loader *loader = arg;
    assert_ptr_equal(client, loader->client);
    if (wanted->ended) {
        assert_null(wanted->name);
        loader->ended += wanted->request != 0;
        loader->all_ended += wanted->request == 0;
        return;
    }
    assert_true(loader->count < MOST);
    snprintf(loader->names[loader->count], sizeof(loader->names[0]), "%s", wanted->name);
    loader->requests[loader->count++] = wanted->request;
    loader->uid = wanted->uid;
    if (loader->makes)
        ok(loader->maker, gpubuf_put_bytes(loader->maker, wanted->name, "made", 4, NULL));
    if (loader->declines)
        ok(client, gpubuf_decline(client, wanted->request, GPUBUF_E_UNAVAILABLE, "no such file"));
}

static void loader_begin(struct loader *loader, const char *prefix)
{
    *loader = (struct loader){.client = connect_client(), .maker = connect_client()};
    ok(loader->client, gpubuf_provide(loader->client, prefix, on_wanted, loader));
}

static void loader_end(struct loader *loader)
{
    gpubuf_disconnect(loader->client);
    gpubuf_disconnect(loader->maker);
}

/* Dispatches until `count` things were told. */
static void hear(struct loader *loader, const unsigned *told, unsigned count)
{
    while (*told < count) {
        struct pollfd fd = {.fd = gpubuf_fd(loader->client),
                            .events = gpubuf_events(loader->client)};
        assert_true(poll(&fd, 1, 30000) > 0);
        assert_true(gpubuf_dispatch(loader->client) >= 0);
    }
}

/* ---- opens that wait, each in a thread ---- */

struct opening {
    pthread_t thread;
    const char *name;
    int status;
    char message[1024];
};

static void *open_name(void *arg)
{
    struct opening *opening = arg;
    struct gpubuf_open_options options = {.size = sizeof(options), .wait_ms = LONG_MS};
    struct gpubuf_client *client = connect_client();
    struct gpubuf_object *object;
    opening->status = gpubuf_open(client, opening->name, &options, &object);
    snprintf(opening->message, sizeof(opening->message), "%s", gpubuf_errmsg(client));
    if (opening->status == 0)
        gpubuf_release(object);
    gpubuf_disconnect(client);
    return NULL;
}

static void begin_open(struct opening *opening, const char *name)
{
    opening->name = name;
    assert_int_equal(pthread_create(&opening->thread, NULL, open_name, opening), 0);
}

static int end_open(struct opening *opening)
{
    assert_int_equal(pthread_join(opening->thread, NULL), 0);
    return opening->status;
}

/* ---- the tests ---- */

COUNTED(test_made_in_a_loop)
{
    struct opening openings[4];
    struct loader loader;
    loader_begin(&loader, "cols/");
    for (unsigned i = 0; i < 4; i++)
        begin_open(&openings[i], "cols/a");
    hear(&loader, &loader.count, 1);
    assert_string_equal(loader.names[0], "cols/a");
    ok(loader.client, gpubuf_put_bytes(loader.client, "cols/a", "made", 4, NULL));
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(end_open(&openings[i]), 0);
    assert_int_equal(loader.count, 1);
    ok(loader.client, gpubuf_delete(loader.client, "cols/a"));
    loader_end(&loader);
}

COUNTED(test_made_in_the_callback)
{
    struct opening opening;
    struct loader loader;
    loader_begin(&loader, "");
    loader.makes = true;
    begin_open(&opening, "any");
    hear(&loader, &loader.count, 1);
    assert_int_equal(end_open(&opening), 0);
    hear(&loader, &loader.ended, 1); /* another session has sealed it */
    ok(loader.client, gpubuf_delete(loader.client, "any"));
    loader_end(&loader);
}

COUNTED(test_declined)
{
    struct opening opening;
    struct loader loader;
    char message[700];
    loader_begin(&loader, "cols/");
    loader.declines = true;
    begin_open(&opening, "cols/a");
    hear(&loader, &loader.count, 1);
    assert_int_equal(end_open(&opening), GPUBUF_E_UNAVAILABLE);
    assert_string_equal(opening.message, "\"cols/a\": no such file");
    loader.declines = false;
    begin_open(&opening, "cols/a");
    hear(&loader, &loader.count, 2);
    fails(loader.client, GPUBUF_E_INVALID,
          gpubuf_decline(loader.client, loader.requests[1], GPUBUF_E_BUSY, NULL));
    fails(loader.client, GPUBUF_E_INVALID,
          gpubuf_decline(loader.client, loader.requests[1], 0, "\xff"));
    ok(loader.client, gpubuf_decline(loader.client, loader.requests[0], 0, NULL)); /* it is over */
    ok(loader.client, gpubuf_decline(loader.client, loader.requests[1], 0, NULL));
    assert_int_equal(end_open(&opening), GPUBUF_E_NOT_FOUND);
    begin_open(&opening, "cols/a");
    hear(&loader, &loader.count, 3);
    memset(message, 'm', sizeof(message));
    memcpy(message + 499, "é", sizeof("é")); /* cut before a character that does not fit */
    ok(loader.client, gpubuf_decline(loader.client, loader.requests[2], 0, message));
    assert_int_equal(end_open(&opening), GPUBUF_E_NOT_FOUND);
    assert_int_equal(strlen(opening.message), strlen("\"cols/a\": ") + 499);
    loader_end(&loader);
}

static void note_end(struct gpubuf_client *client, int status, struct gpubuf_object *object,
                     void *arg)
{
}

COUNTED(test_nobody_waits_any_more)
{
    struct gpubuf_open_options options = {.size = sizeof(options), .wait_ms = LONG_MS};
    struct gpubuf_client *reader = connect_client();
    struct loader loader;
    loader_begin(&loader, "cols/");
    ok(reader, gpubuf_open_async(reader, "cols/a", &options, note_end, NULL, NULL));
    hear(&loader, &loader.count, 1);
    gpubuf_disconnect(reader);
    hear(&loader, &loader.ended, 1);
    loader_end(&loader);
}

static void note_provided(struct gpubuf_client *client, int status, const char *result,
                          size_t length, void *arg)
{
    struct loader *loader = arg;
    loader->status = status;
    loader->answered = true;
}

COUNTED(test_beginning_and_ending)
{
    struct opening opening;
    struct loader loader;
    char prefix[300];
    uint64_t request;
    loader_begin(&loader, "cols/");
    struct gpubuf_client *client = loader.client;
    fails(client, GPUBUF_E_EXISTS, gpubuf_provide(client, "cols/", on_wanted, &loader));
    fails(client, GPUBUF_E_INVALID, gpubuf_provide(client, NULL, on_wanted, &loader));
    fails(client, GPUBUF_E_INVALID, gpubuf_provide(client, "x", NULL, &loader));
    fails(client, GPUBUF_E_INVALID, gpubuf_provide_async(client, "x", on_wanted, NULL, NULL, NULL));
    memset(prefix, 'p', sizeof(prefix) - 1);
    prefix[sizeof(prefix) - 1] = '\0';
    fails(client, GPUBUF_E_INVALID, gpubuf_provide(client, prefix, on_wanted, &loader));
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_provide_end(client, "col"));
    begin_open(&opening, "cols/a");
    hear(&loader, &loader.count, 1);
    ok(client, gpubuf_provide_end(client, "cols/"));
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_provide_end(client, "cols/"));
    ok(client, gpubuf_decline(client, loader.requests[0], 0, "too late"));
    ok(client, gpubuf_provide_async(client, "c", on_wanted, note_provided, &loader, &request));
    dispatch_until(client, &loader.answered);
    assert_int_equal(loader.status, 0);
    hear(&loader, &loader.count, 2);
    assert_true(loader.requests[1] > loader.requests[0]);
    ok(client, gpubuf_decline(client, loader.requests[1], 0, "in time"));
    assert_int_equal(end_open(&opening), GPUBUF_E_NOT_FOUND);
    assert_string_equal(opening.message, "\"cols/a\": in time");
    loader_end(&loader);
}

/* One prefix more than a session may have: the client has it no more, either. */
COUNTED(test_one_too_many)
{
    CLIENT *client = connect_client();
    struct loader loader = {.client = client};
    char prefix[16];
    for (unsigned i = 0; i < 64; i++) {
        snprintf(prefix, sizeof(prefix), "p%u/", i);
        ok(client, gpubuf_provide(client, prefix, on_wanted, &loader));
    }
    fails(client, GPUBUF_E_LIMIT, gpubuf_provide(client, "more/", on_wanted, &loader));
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_provide_end(client, "more/"));
    ok(client, gpubuf_provide_async(client, "more/", on_wanted, note_provided, &loader, NULL));
    dispatch_until(client, &loader.answered);
    assert_int_equal(loader.status, GPUBUF_E_LIMIT);
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_provide_end(client, "more/"));
}

/* A daemon that is killed while opens wait: they ask again, and the provider provides again. */
/* RELIABILITY.md: A provider 2 */
TEST(test_the_daemon_is_killed)
{
    static const char *const supervise[] = {"--supervise", "--grace", "600000", NULL};
    enum { ROUNDS = 3, OPENS = 4 };
    struct opening openings[OPENS];
    struct loader loader;
    char name[32];
    assert_int_equal(stop_daemon(state), 0);
    assert_int_equal(start_daemon_with(supervise), 0);
    loader_begin(&loader, "cols/");
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned before = loader.count;
        snprintf(name, sizeof(name), "cols/%u", round);
        for (unsigned i = 0; i < OPENS; i++)
            begin_open(&openings[i], name);
        hear(&loader, &loader.count, before + 1);
        crash_daemon();
        hear(&loader, &loader.all_ended, round + 1);
        hear(&loader, &loader.count, before + 2);
        assert_string_equal(loader.names[before + 1], name);
        assert_true(loader.requests[before + 1] > loader.requests[before]);
        ok(loader.client, gpubuf_decline(loader.client, loader.requests[before], 0, "old"));
        ok(loader.client, gpubuf_put_bytes(loader.client, name, "made", 4, NULL));
        for (unsigned i = 0; i < OPENS; i++)
            assert_int_equal(end_open(&openings[i]), 0);
    }
    loader_end(&loader);
    assert_int_equal(stop_daemon(state), 0);
    assert_int_equal(start_daemon(state), 0);
}

static void want_nonsense(int fd, const void *arg)
{
    char line[4096];
    assert_true(fake_read(fd, line, sizeof(line)));
    fake_reply(fd, line, "{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{}}\n", NULL, 0);
    fake_send(fd, arg, NULL, 0);
    while (fake_read(fd, line, sizeof(line)))
        ;
}

COUNTED(test_what_no_daemon_says)
{
    static const char *const nonsense[] = {
        "{\"jsonrpc\":\"2.0\",\"method\":\"wanted\",\"params\":{\"prefix\":\"p\",\"name\":\"pq\"}}"
        "\n",
        "{\"jsonrpc\":\"2.0\",\"method\":\"wanted\",\"params\":{\"request\":1,\"prefix\":\"p\"}}\n",
        "{\"jsonrpc\":\"2.0\",\"method\":\"wanted\",\"params\":{\"request\":0,\"prefix\":\"p\","
        "\"name\":\"p\",\"uid\":1,\"gid\":1}}\n",
        "{\"jsonrpc\":\"2.0\",\"method\":\"unwanted\",\"params\":{\"request\":1}}\n",
    };
    for (size_t i = 0; i < COUNT(nonsense); i++) {
        struct fake fake;
        fake_start(&fake, true, want_nonsense, nonsense[i]);
        struct gpubuf_client *client = fake_connect(&fake);
        struct loader loader = {.client = client};
        int r = gpubuf_provide(client, "p", on_wanted, &loader);
        while (r >= 0) {
            struct pollfd fd = {.fd = gpubuf_fd(client), .events = gpubuf_events(client)};
            (void)poll(&fd, 1, 30000);
            r = gpubuf_dispatch(client);
        }
        assert_int_equal(r, GPUBUF_E_PROTOCOL);
        assert_int_equal(loader.count + loader.ended, 0);
        gpubuf_disconnect(client);
        fake_stop(&fake);
    }
}

RUN_TESTS(start_daemon, stop_daemon)
