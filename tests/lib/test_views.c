/* Views: one version after another at the same addresses, and claims without memory. */
#include "objects.h"

#define BYTES 10000u

static struct gpubuf_open_options labeled(const char *label)
{
    return (struct gpubuf_open_options){.size = sizeof(struct gpubuf_open_options), .label = label};
}

/* Publishes bytes that all have one value. */
static void put_filled(const char *name, size_t bytes, int value,
                       const struct gpubuf_create_options *options)
{
    unsigned char *data = malloc(bytes);
    assert_non_null(data);
    memset(data, value, bytes);
    ok(client, gpubuf_put_bytes(client, name, data, bytes, options));
    free(data);
}

static void publish(const char *name, int value, const char *label)
{
    const struct gpubuf_create_options options = {
        .size = sizeof(options), .replace = true, .label = label, .keep = 2, .own = true};
    put_filled(name, BYTES, value, &options);
}

static bool is_filled(const unsigned char *at, int value)
{
    for (size_t i = 0; i < BYTES; i++) {
        if (at[i] != value)
            return false;
    }
    return true;
}

static struct gpubuf_view *follow(const char *name, const unsigned char **at)
{
    struct gpubuf_view *view;
    ok(client, gpubuf_follow(client, name, NULL, &view));
    *at = memory_of(gpubuf_view_object(view), GPUBUF_DATA, BYTES);
    return view;
}

/* Whether reading there is a fault, by the word of a child. */
static bool is_fault(const unsigned char *at)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL);
        _exit(*(const volatile unsigned char *)at < 255 ? 42 : 43);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return !WIFEXITED(status) || WEXITSTATUS(status) < 42;
}

TEST(test_switch)
{
    client = connect_uncached();
    const unsigned char *at;
    publish("policy", 1, "first");
    struct gpubuf_view *view = follow("policy", &at);
    struct gpubuf_object *object = gpubuf_view_object(view), *slice;
    uint64_t first = gpubuf_object_version(object);
    ok(client, gpubuf_slice(object, 100, 50, &slice));
    assert_true(is_filled(at, 1));
    check_result(client, gpubuf_switch(view, NULL, NULL, 0), 1, __FILE__, __LINE__);

    publish("policy", 2, "second");
    assert_true(is_filled(at, 1));
    ok(client, gpubuf_switch(view, NULL, NULL, 0));
    assert_true(is_filled(at, 2));
    assert_ptr_equal(memory_of(object, GPUBUF_DATA, BYTES), at);
    assert_ptr_equal(memory_of(slice, GPUBUF_DATA, 50), at + 100);
    assert_true(gpubuf_object_version(object) > first);
    assert_true(gpubuf_object_version(slice) > first);
    assert_string_equal(gpubuf_label(object), "second");

    struct gpubuf_open_options options = labeled("first");
    ok(client, gpubuf_switch(view, &options, NULL, 0));
    assert_true(is_filled(at, 1) && gpubuf_object_version(object) == first);
    assert_string_equal(gpubuf_label(object), "first");
    /* An object that is opened beside it lies elsewhere, and stays what it was. */
    struct gpubuf_object *other;
    ok(client, gpubuf_open(client, "policy", NULL, &other));
    const unsigned char *there = memory_of(other, GPUBUF_DATA, BYTES);
    assert_true(there != at && is_filled(there, 2));
    ok(client, gpubuf_switch(view, NULL, NULL, 0));
    assert_true(is_filled(at, 2) && is_filled(there, 2));
    options = labeled("first");
    ok(client, gpubuf_switch(view, &options, NULL, 0));
    assert_true(is_filled(at, 1) && is_filled(there, 2));
    gpubuf_release(other);
    gpubuf_unfollow(view);
    assert_true(at[100] == 1);
    gpubuf_release(slice);
    ok(client, gpubuf_delete(client, "policy"));
    gpubuf_disconnect(client);
}

/* Without a thread of the library's, whose allocator's locks a child could inherit. */
TEST(test_fork)
{
    const struct gpubuf_connect_options lone = {
        .size = sizeof(lone), .resume_ms = GPUBUF_NO_RESUME, .cache_leases = GPUBUF_NO_CACHE};
    const unsigned char *at;
    client = connect_with(&lone);
    publish("policy", 1, NULL);
    struct gpubuf_view *view = follow("policy", &at);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(gpubuf_switch(view, NULL, NULL, 0) == GPUBUF_E_FORKED &&
                      gpubuf_park(view, NULL, 0) == GPUBUF_E_FORKED && is_filled(at, 1)
                  ? 0
                  : 1);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    gpubuf_unfollow(view);
    ok(client, gpubuf_delete(client, "policy"));
    gpubuf_disconnect(client);
}

COUNTED(test_refused)
{
    client = connect_uncached();
    const unsigned char *at;
    struct gpubuf_view *view, *none;
    publish("policy", 1, "first");
    view = follow("policy", &at);
    const struct gpubuf_create_options own = {.size = sizeof(own), .replace = true, .own = true};

    put_filled("policy", BYTES + 8, 2, &own);
    fails(client, GPUBUF_E_UNSUPPORTED, gpubuf_switch(view, NULL, NULL, 0));
    assert_non_null(strstr(gpubuf_errmsg(client), "another layout: the length"));
    assert_true(is_filled(at, 1));
    const uint64_t shape[] = {100, 100};
    unsigned char *data = calloc(1, BYTES);
    ok(client, gpubuf_put_array(client, "policy", "uint8", 2, shape, NULL, data, &own));
    free(data);
    fails(client, GPUBUF_E_UNSUPPORTED, gpubuf_switch(view, NULL, NULL, 0));
    assert_non_null(strstr(gpubuf_errmsg(client), "the kind"));
    const struct gpubuf_create_options shared = {.size = sizeof(shared), .replace = true};
    put_filled("policy", BYTES, 3, &shared);
    fails(client, GPUBUF_E_UNSUPPORTED, gpubuf_switch(view, NULL, NULL, 0));
    assert_non_null(strstr(gpubuf_errmsg(client), "shares its segment"));
    fails(client, GPUBUF_E_UNSUPPORTED, gpubuf_follow(client, "policy", NULL, &none));
    struct gpubuf_open_options options = labeled("never");
    assert_true(gpubuf_switch(view, &options, NULL, 0) < 0);
    assert_true(is_filled(at, 1));
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_follow(client, "nobody", NULL, &none));

    publish("policy", 4, NULL);
    ok(client, gpubuf_switch(view, NULL, NULL, 0));
    assert_true(is_filled(at, 4));
    gpubuf_unfollow(view);
    gpubuf_unfollow(NULL);
    ok(client, gpubuf_delete(client, "policy"));
    gpubuf_disconnect(client);
}

COUNTED(test_park)
{
    client = connect_uncached();
    const unsigned char *at;
    publish("policy", 7, "first");
    struct gpubuf_view *view = follow("policy", &at);
    struct gpubuf_object *object = gpubuf_view_object(view);
    struct gpubuf_memory memory;
    uint64_t version = gpubuf_object_version(object);

    assert_int_equal(leases_of(client, "policy"), 1);
    ok(client, gpubuf_park(view, NULL, 0));
    assert_true(gpubuf_is_parked(view));
    check_result(client, gpubuf_park(view, NULL, 0), 1, __FILE__, __LINE__);
    assert_int_equal(leases_of(client, "policy"), 0);
    assert_int_equal(stat_value(client, "parked"), 1);
    assert_true(is_fault(at) && is_fault(at + BYTES - 1));
    fails(client, GPUBUF_E_BUSY, gpubuf_memory(object, GPUBUF_DATA, &memory));
    /* Its name goes, its content stays. */
    ok(client, gpubuf_delete(client, "policy"));
    ok(client, gpubuf_resume(view, 0));
    check_result(client, gpubuf_resume(view, 0), 1, __FILE__, __LINE__);
    assert_true(!gpubuf_is_parked(view) && is_filled(at, 7));
    assert_true(gpubuf_object_version(object) == version);
    assert_int_equal(stat_value(client, "parked"), 0);
    /* A switch wakes it, too; then what was parked is free. */
    ok(client, gpubuf_park(view, NULL, 0));
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_switch(view, NULL, NULL, 0));
    assert_true(gpubuf_is_parked(view));
    publish("policy", 8, NULL);
    ok(client, gpubuf_switch(view, NULL, NULL, 0));
    assert_true(is_filled(at, 8));
    ok(client, gpubuf_park(view, NULL, 0));
    gpubuf_unfollow(view);
    ok(client, gpubuf_delete(client, "policy"));
    assert_int_equal(stat_value(client, "parked"), 0);
    gpubuf_disconnect(client);
}

/* A daemon that does not answer in time may still park the lease, and give the memory to others:
   the view is parked, too. */
COUNTED(test_park_without_an_answer)
{
    const struct gpubuf_connect_options hasty = {
        .size = sizeof(hasty), .answer_timeout_ms = 300, .cache_leases = GPUBUF_NO_CACHE};
    struct gpubuf_client *other = client = connect_uncached();
    const unsigned char *at;
    siginfo_t info;
    int r;

    publish("policy", 7, NULL);
    client = connect_with(&hasty);
    struct gpubuf_view *view = follow("policy", &at);
    assert_int_equal(kill(daemon_process(), SIGSTOP), 0);
    assert_int_equal(waitid(P_PID, (id_t)daemon_process(), &info, WSTOPPED | WNOWAIT), 0);
    fails(client, GPUBUF_E_TIMEOUT, gpubuf_park(view, NULL, 0));
    assert_int_equal(kill(daemon_process(), SIGCONT), 0);
    assert_true(gpubuf_is_parked(view) && is_fault(at));
    assert_int_equal(stat_value(other, "parked"), 1);
    while ((r = gpubuf_resume(view, 0)) == GPUBUF_E_TIMEOUT)
        ; /* a slow machine's daemon */
    ok(client, r);
    assert_true(is_filled(at, 7));
    gpubuf_unfollow(view);
    gpubuf_disconnect(client);
    ok(other, gpubuf_delete(other, "policy"));
    gpubuf_disconnect(other);
}

/* Parked content leaves the device for others, and is not lost, whatever its evict is. */
COUNTED(test_room)
{
    client = connect_uncached();
    enum { LARGE = 150 << 20 };
    const struct gpubuf_create_options own = {
        .size = sizeof(own), .replace = true, .own = true, .evict = GPUBUF_EVICT_DROP};
    const unsigned char *at;
    put_filled("one", LARGE, 1, &own);
    struct gpubuf_view *view = follow("one", &at);
    fails(client, GPUBUF_E_NO_SPACE, gpubuf_put_bytes(client, "two", at, LARGE, &own));
    ok(client, gpubuf_park(view, NULL, 0));
    put_filled("two", LARGE, 2, &own);
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_delete(client, "three"));
    ok(client, gpubuf_resume(view, 0)); /* "two" may be dropped */
    assert_true(at[0] == 1 && at[LARGE - 1] == 1);
    fails(client, GPUBUF_E_NOT_FOUND, gpubuf_delete(client, "two"));
    gpubuf_unfollow(view);
    ok(client, gpubuf_delete(client, "one"));
    gpubuf_disconnect(client);
}

/* The old and the new content in turn, by many switches; each time all of it is of one version. */
COUNTED(test_many)
{
    client = connect_uncached();
    const unsigned char *at;
    publish("policy", 1, "1");
    publish("policy", 2, "2");
    struct gpubuf_view *view = follow("policy", &at);
    const struct gpubuf_open_options options[2] = {labeled("1"), labeled("2")};
    for (int i = 0; i < 10000; i++) {
        ok(client, gpubuf_switch(view, &options[i % 2], NULL, 0));
        assert_true(is_filled(at, i % 2 + 1));
    }
    gpubuf_unfollow(view);
    ok(client, gpubuf_delete(client, "policy"));
    gpubuf_disconnect(client);
}

static char tier[] = "/tmp/gpubuf-views.XXXXXX";

static int setup(void **state)
{
    char option[64];
    if (!mkdtemp(tier))
        return -1;
    (void)snprintf(option, sizeof(option), "disk:1G:%s", tier);
    const char *const arguments[] = {"--tier", option, NULL};
    return start_daemon_with(arguments);
}

static int teardown(void **state)
{
    char command[64];
    (void)snprintf(command, sizeof(command), "rm -r %s", tier);
    int r = stop_daemon(state);
    return system(command) == 0 ? r : -1;
}

RUN_TESTS(setup, teardown)
