/*
 * Memory that runs out: each operation is repeated with its first allocation failing, then its
 * second, and so on until it succeeds. Whatever fails must leave outputs alone, leak neither memory
 * nor descriptors nor leases, and either leave the client fit for use or have lost the connection.
 *
 * malloc and its kin are replaced in this program, and by that in the library.
 */
#include <dlfcn.h>
#include <stdatomic.h>

#include "harness.h"

/* ---- allocation that fails ---- */

/* Sanitizers allocate before they are ready for code that they watch. */
#define UNWATCHED __attribute__((no_sanitize("address", "undefined", "thread")))

static _Atomic bool armed;
/* In no other thread, since what a sanitizer allocates at its start must not fail; unless all that
   there will be run. */
static pthread_t tester;
static bool everywhere;
static _Atomic size_t calls;
static size_t first, last; /* calls `first` to `last` fail */

UNWATCHED static bool fails_now(void)
{
    if (!atomic_load(&armed) || (!everywhere && !pthread_equal(pthread_self(), tester)))
        return false;
    size_t call = atomic_fetch_add(&calls, 1) + 1;
    return call >= first && call <= last;
}

/* The functions that stand behind ours: the C library's, or a sanitizer's. */
static struct {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void (*free)(void *);
} next;

static bool found, finding;

/* Memory allocated while they are looked for, which is never given back. */
static _Alignas(16) char early[65536];
static size_t early_used;

UNWATCHED static void *early_alloc(size_t size)
{
    size = (size + 15) & ~(size_t)15;
    if (size > sizeof(early) - early_used)
        abort();
    early_used += size;
    return early + early_used - size;
}

UNWATCHED static bool is_early(const void *block)
{
    return (const char *)block >= early && (const char *)block < early + sizeof(early);
}

UNWATCHED static void find(void *place, const char *name)
{
    void *function = dlsym(RTLD_NEXT, name);
    if (!function)
        abort();
    memcpy(place, &function, sizeof(function));
}

UNWATCHED static void find_all(void)
{
    if (found)
        return;
    finding = true;
    find(&next.malloc, "malloc");
    find(&next.calloc, "calloc");
    find(&next.realloc, "realloc");
    find(&next.free, "free");
    finding = false;
    found = true;
}

UNWATCHED static bool refused(void)
{
    if (!fails_now())
        return false;
    errno = ENOMEM;
    return true;
}

/* The library is to find these although everything else here is hidden. */
#define SHOWN UNWATCHED __attribute__((visibility("default")))

SHOWN void *malloc(size_t size)
{
    if (finding)
        return early_alloc(size);
    find_all();
    return refused() ? NULL : next.malloc(size);
}

SHOWN void *calloc(size_t count, size_t size)
{
    if (finding) /* the room is zeroed and used once */
        return early_alloc(count * size);
    find_all();
    return refused() ? NULL : next.calloc(count, size);
}

SHOWN void *realloc(void *block, size_t size)
{
    if (finding || is_early(block))
        abort();
    find_all();
    return refused() ? NULL : next.realloc(block, size);
}

SHOWN void free(void *block)
{
    if (finding || !block || is_early(block))
        return;
    find_all();
    next.free(block);
}

/* ---- operations ---- */

static struct gpubuf_client *client, *observer;

#define UNTOUCHED ((void *)(uintptr_t)0x5a5a5a5a)

static int do_connect(void)
{
    struct gpubuf_client *connected = UNTOUCHED;
    struct gpubuf_connect_options options = {
        .size = sizeof(options), .path = daemon_socket(), .timeout_ms = 60000};
    int r = gpubuf_connect(&connected, &options);
    if (r < 0)
        assert_ptr_equal(connected, UNTOUCHED);
    else
        gpubuf_disconnect(connected);
    return r;
}

static int do_open(void)
{
    struct gpubuf_object *object = UNTOUCHED;
    int r = gpubuf_open(client, "memory/table", NULL, &object);
    if (r < 0)
        assert_ptr_equal(object, UNTOUCHED);
    else
        gpubuf_release(object);
    return r;
}

static int do_open_many(void)
{
    static const char *const names[] = {"memory/table", "memory/a", "memory/b", "absent"};
    struct gpubuf_object *objects[4] = {UNTOUCHED, UNTOUCHED, UNTOUCHED, UNTOUCHED};
    int errors[4] = {1, 1, 1, 1};
    int r = gpubuf_open_many(client, names, 4, NULL, objects, errors);
    if (r < 0) {
        for (int i = 0; i < 4; i++) {
            assert_ptr_equal(objects[i], UNTOUCHED);
            assert_int_equal(errors[i], 1);
        }
        return r;
    }
    /* Each for itself may fail. */
    bool failed = false;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(objects[i] == NULL, errors[i] != 0);
        assert_true(errors[i] == 0 || errors[i] == GPUBUF_E_NO_MEMORY);
        failed |= errors[i] != 0;
    }
    assert_null(objects[3]);
    assert_int_equal(errors[3], GPUBUF_E_NOT_FOUND);
    gpubuf_release_many(objects, 4);
    return failed ? GPUBUF_E_NO_MEMORY : 0;
}

static int do_create(void)
{
    const struct gpubuf_column_spec columns[] = {
        {.name = "a", .dtype = "int32", .length = 10, .mask = true, .null_count = -1},
        {.name = "b", .dtype = "timestamp[us,UTC]", .length = 10},
    };
    const struct gpubuf_layout_spec layout = {
        .kind = GPUBUF_KIND_TABLE, .column = {.length = 10, .children = columns, .child_count = 2}};
    const int64_t nulls[] = {10, -1}; /* its mask is zero */
    struct gpubuf_object *object = UNTOUCHED;
    struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
    int r = gpubuf_create(client, "memory/created", &layout, &options, &object);
    if (r < 0) {
        assert_ptr_equal(object, UNTOUCHED);
        return r;
    }
    r = gpubuf_seal(object, nulls);
    gpubuf_release(object);
    return r;
}

static int do_put(void)
{
    static const char data[9u << 20];
    struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
    return gpubuf_put_bytes(client, "memory/put", data, sizeof(data), &options);
}

static void no_event(struct gpubuf_client *of, const char *kind, const struct gpubuf_info *info,
                     void *arg)
{
}

static int do_watch(void)
{
    uint64_t watch = 77;
    int r = gpubuf_watch(client, "memory/", no_event, NULL, &watch);
    if (r < 0) {
        assert_int_equal(watch, 77);
        return r;
    }
    r = gpubuf_unwatch(client, watch);
    return r == GPUBUF_E_NOT_FOUND || r == GPUBUF_E_CLOSED ? GPUBUF_E_NO_MEMORY : r;
}

static int no_object(const struct gpubuf_info *info, void *arg)
{
    return 0;
}

static int do_names(void)
{
    struct gpubuf_info info = {.version = 99};
    int r = gpubuf_stat(client, "memory/a", &info);
    if (r < 0) {
        assert_int_equal(info.version, 99);
        return r;
    }
    r = gpubuf_list(client, "memory/", no_object, NULL);
    if (r == 0)
        r = gpubuf_pin(client, "memory/a");
    if (r == 0)
        r = gpubuf_unpin(client, "memory/a");
    return r < 0 ? r : gpubuf_restore(client, "memory/a", 0);
}

static struct gpubuf_object *held;

static int do_views(void)
{
    struct gpubuf_object *slice, *column = NULL;
    int r = gpubuf_slice(held, 1, 5, &slice);
    if (r < 0)
        return r;
    r = gpubuf_column(slice, "b", &column);
    gpubuf_release(slice);
    if (r == 0)
        r = gpubuf_child(held, 0, &slice);
    if (r == 0)
        gpubuf_release(slice);
    gpubuf_release(column);
    if (r < 0)
        return r;
    r = gpubuf_select(held, (const char *const[]){"b"}, 1, &slice);
    if (r == 0)
        gpubuf_release(slice);
    return r;
}

static int do_arrow(void)
{
    struct ArrowSchema schema = {.name = "untouched"};
    struct ArrowArray array = {.length = -5};
    struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
    int r = gpubuf_export_arrow(held, &schema, &array);
    if (r < 0) {
        assert_string_equal(schema.name, "untouched");
        assert_int_equal(array.length, -5);
        return r;
    }
    r = gpubuf_put_arrow(client, "memory/arrow", &schema, &array, true, &options);
    schema.release(&schema);
    array.release(&array);
    return r;
}

static unsigned async_calls;
static int async_status;

static void async_done(struct gpubuf_client *of, int status, struct gpubuf_object *object,
                       void *arg)
{
    async_calls++;
    async_status = status;
    gpubuf_release(object);
}

static int do_async(void)
{
    async_calls = 0;
    int r = gpubuf_open_async(client, "memory/a", NULL, async_done, NULL, NULL);
    if (r < 0) {
        assert_int_equal(async_calls, 0);
        return r;
    }
    r = gpubuf_call(client, "stats", NULL, 60000, NULL);
    bool was = armed;
    armed = false;
    if (r < 0) /* the answer to the first has come all the same, or the connection is lost */
        (void)gpubuf_call(client, "stats", NULL, 60000, NULL);
    armed = was;
    assert_int_equal(async_calls, 1);
    return r < 0 ? r : async_status;
}

/* ---- the runs ---- */

static void renew_client(void)
{
    gpubuf_release(held);
    gpubuf_disconnect(client);
    client = connect_client();
    ok(client, gpubuf_open(client, "memory/table", NULL, &held));
}

static bool only_held(void *arg)
{
    return stat_value(observer, "leases") == 1;
}

static void after_each(int r)
{
    if (r < 0 && r != GPUBUF_E_NO_MEMORY && r != GPUBUF_E_CLOSED)
        fail_msg("failed with %s: %s", gpubuf_errkind(r), gpubuf_errmsg(client));
    if (gpubuf_call(client, "stats", NULL, 60000, NULL) < 0) {
        /* Lost for want of memory, and it says so. */
        assert_int_equal(gpubuf_dispatch(client), GPUBUF_E_NO_MEMORY);
        renew_client();
    }
    wait_until(only_held, NULL);
}

/* With one allocation failing, and with all from one on. */
static void run(int (*operation)(void))
{
    for (int all = 0; all < 2; all++) {
        for (int fresh = 0; fresh < 2; fresh++) { /* a new client has caches to fill */
            int r = -1;
            size_t n;
            for (n = 1; r != 0 || calls >= n; n++) {
                assert_true(n < 1000);
                if (fresh)
                    renew_client();
                size_t fds = count_fds();
                calls = 0;
                first = n;
                last = all ? SIZE_MAX : n;
                armed = true;
                r = operation();
                armed = false;
                after_each(r);
                if (fresh) /* caches may have grown, but not the number of descriptors */
                    assert_true(count_fds() <= fds + 1);
            }
            assert_true(n > 2); /* else nothing has failed, and nothing is proved */
            print_message("    %s, %s client: %zu allocations\n", all ? "all from one on" : "one",
                          fresh ? "new" : "same", n - 2);
        }
    }
}

/* ---- a connection that is made anew ---- */

static unsigned events;

static void count_event(struct gpubuf_client *of, const char *kind, const struct gpubuf_info *info,
                        void *arg)
{
    events += strcmp(kind, "sealed") == 0;
}

static void check_readable(const struct gpubuf_object *object)
{
    struct gpubuf_memory memory;
    ok(NULL, gpubuf_memory(object, GPUBUF_DATA, &memory));
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(((const unsigned char *)memory.pointer)[i], i);
}

static void connect_resuming(int resume_ms, struct gpubuf_object **object)
{
    struct gpubuf_connect_options options = {
        .size = sizeof(options), .path = daemon_socket(), .resume_ms = resume_ms};
    uint64_t watch;
    client = connect_with(&options);
    ok(client, gpubuf_open(client, "memory/a", NULL, object));
    ok(client, gpubuf_watch(client, "memory/told", count_event, NULL, &watch));
}

static bool is_told(void *arg)
{
    ok(client, gpubuf_dispatch(client) < 0 ? -1 : 0);
    return events > 0;
}

static bool has_one_lease(void *arg)
{
    return leases_of(observer, "memory/a") == 1;
}

/* All that the client had goes on: leases, watches, and it can be asked. */
static void check_resumed(const struct gpubuf_object *object)
{
    struct gpubuf_create_options options = {.size = sizeof(options), .replace = true};
    ok(client, gpubuf_call(client, "stats", NULL, 60000, NULL));
    assert_false(gpubuf_is_stale(object));
    wait_until(has_one_lease, NULL); /* the daemon's own has ended with the grace period */
    events = 0;
    ok(observer, gpubuf_put_bytes(observer, "memory/told", "x", 1, &options));
    wait_until(is_told, NULL);
}

/* Kills the daemon with allocations `first` to `last` failing from then on until a call has
   ended. */
static int crash_short_of_memory(struct gpubuf_object *object)
{
    struct gpubuf_info info = {.version = 99};
    crash_daemon();
    atomic_store(&calls, 0);
    atomic_store(&armed, true);
    int r = gpubuf_stat(client, "memory/b", &info);
    atomic_store(&armed, false);
    check_readable(object);
    if (r < 0)
        assert_int_equal(info.version, 99);
    return r;
}

/* Each allocation fails once: another attempt is made, or the call fails and the next one goes
   on. */
/* RELIABILITY.md: Memory is short 3 */
static void test_resume_fails_once(void **state)
{
    struct gpubuf_object *object;
    size_t n = 0;
    int r = -1;
    everywhere = true;
    connect_resuming(0, &object);
    while (r != 0 || atomic_load(&calls) >= n) {
        assert_true(n < 1000);
        first = last = ++n;
        size_t fds = count_fds();
        r = crash_short_of_memory(object);
        if (r < 0)
            assert_int_equal(r, GPUBUF_E_NO_MEMORY);
        check_resumed(object);
        assert_int_equal(count_fds(), fds);
    }
    assert_true(n > 4);
    print_message("    %zu allocations\n", n - 1);
    gpubuf_release(object);
    gpubuf_disconnect(client);
    everywhere = false;
}

/* All fail, as long as connections may be made anew: that is what the client says then. */
/* RELIABILITY.md: Memory is short 3 */
static void test_resume_fails_always(void **state)
{
    struct gpubuf_object *object;
    size_t lost = 0, n = 0;
    int r = -1;
    everywhere = true;
    while (r != 0 || atomic_load(&calls) >= n) {
        assert_true(n < 1000);
        connect_resuming(200, &object);
        first = ++n;
        last = SIZE_MAX;
        r = crash_short_of_memory(object);
        int dispatched = gpubuf_dispatch(client);
        lost += dispatched == GPUBUF_E_NO_MEMORY;
        /* Closed: on a machine that is busy the daemon may not be there again in time. */
        assert_true(r == 0 || r == GPUBUF_E_NO_MEMORY || r == GPUBUF_E_CLOSED);
        assert_true(dispatched >= 0 || dispatched == GPUBUF_E_NO_MEMORY ||
                    dispatched == GPUBUF_E_CLOSED);
        check_readable(object);
        gpubuf_release(object);
        gpubuf_disconnect(client);
        gpubuf_call(observer, "stats", NULL, 60000, NULL);
    }
    assert_true(lost > 0 && n > 4);
    print_message("    %zu allocations, %zu times lost\n", n - 1, lost);
    everywhere = false;
}

static int start_with(const char *const *arguments)
{
    if (start_daemon_with(arguments) < 0)
        return -1;
    observer = connect_client();
    tester = pthread_self();
    const struct gpubuf_column_spec columns[] = {
        {.name = "a", .dtype = "int32", .length = 10},
        {.name = "b", .dtype = "utf8", .length = 10, .data_bytes = 5},
    };
    const struct gpubuf_layout_spec layout = {
        .kind = GPUBUF_KIND_TABLE, .column = {.length = 10, .children = columns, .child_count = 2}};
    struct gpubuf_object *object;
    ok(observer, gpubuf_create(observer, "memory/table", &layout, NULL, &object));
    ok(observer, gpubuf_seal(object, NULL));
    gpubuf_release(object);
    put_counting(observer, "memory/a", 10, 0);
    put_counting(observer, "memory/b", 10, 0);
    return 0;
}

static int start(void **state)
{
    if (start_with(NULL) < 0)
        return -1;
    client = connect_client();
    ok(client, gpubuf_open(client, "memory/table", NULL, &held));
    return 0;
}

static int start_supervised(void **state)
{
    static const char *const supervise[] = {"--supervise", "--grace", "1", NULL};
    return start_with(supervise);
}

static int stop_supervised(void **state)
{
    gpubuf_disconnect(observer);
    return stop_daemon(state);
}

static int stop(void **state)
{
    gpubuf_release(held);
    gpubuf_disconnect(client);
    return stop_supervised(state);
}

#define OPERATION(name)                                                                            \
    static void test_##name##_fails(void **state)                                                  \
    {                                                                                              \
        (void)state;                                                                               \
        run(do_##name);                                                                            \
    }

OPERATION(connect)
/* RELIABILITY.md: Memory is short 3 */
OPERATION(open)
OPERATION(open_many)
OPERATION(create)
/* RELIABILITY.md: Memory is short 3 */
OPERATION(put)
/* RELIABILITY.md: Memory is short 3 */
OPERATION(watch)
OPERATION(names)
OPERATION(views)
OPERATION(arrow)
OPERATION(async)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_connect_fails),   cmocka_unit_test(test_open_fails),
        cmocka_unit_test(test_open_many_fails), cmocka_unit_test(test_create_fails),
        cmocka_unit_test(test_put_fails),       cmocka_unit_test(test_watch_fails),
        cmocka_unit_test(test_names_fails),     cmocka_unit_test(test_views_fails),
        cmocka_unit_test(test_arrow_fails),     cmocka_unit_test(test_async_fails),
    };
    const struct CMUnitTest resuming[] = {
        cmocka_unit_test(test_resume_fails_once),
        cmocka_unit_test(test_resume_fails_always),
    };
    int failed = cmocka_run_group_tests_name("memory", tests, start, stop);
    return failed + cmocka_run_group_tests_name("memory-resume", resuming, start_supervised,
                                                stop_supervised);
}
