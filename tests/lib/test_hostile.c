/*
 * The library against a daemon that lies: whatever it says, calls end with an error, nothing leaks,
 * and nothing crashes.
 */
#include "harness.h"

#define RESULT "{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":"
#define RESULT_FD "{\"jsonrpc\":\"2.0\",\"id\":ID,\"fds\":1,\"result\":"
#define OBJECT(layout) "{\"name\":\"x\",\"version\":1,\"device\":\"host\",\"layout\":" layout "}"
#define BYTES(segment, offset, bytes)                                                              \
    "{\"kind\":\"bytes\",\"bytes\":" #bytes ",\"data\":{\"segment\":" #segment                     \
    ",\"offset\":" #offset ",\"bytes\":" #bytes "}}"
#define SEGMENT(id, bytes, fd)                                                                     \
    "{\"id\":" #id ",\"device\":\"host\",\"bytes\":" #bytes ",\"access\":\"r\",\"handle\":{"       \
    "\"kind\":\"memfd\",\"fd\":" #fd "}}"
#define GRANT(object, segments) "{\"lease\":1,\"object\":" object ",\"segments\":[" segments "]}}"
#define FINE RESULT_FD GRANT(OBJECT(BYTES(1, 0, 100)), SEGMENT(1, 4096, 0))

enum fd_kind { FD_NONE, FD_GOOD, FD_SMALL, FD_UNSEALED, FD_PIPE, FD_TWO, FD_MANY };

struct lie {
    const char *reply;
    enum fd_kind fds;
    int expected; /* of an open */
};

static void tell(int fd, const char *line, const struct lie *lie)
{
    int fds[40], ends[2];
    unsigned count = 0;
    switch (lie->fds) {
    case FD_NONE:
        break;
    case FD_GOOD:
        fds[count++] = fake_memfd(4096, 7, F_SEAL_SHRINK);
        break;
    case FD_SMALL:
        fds[count++] = fake_memfd(100, 7, F_SEAL_SHRINK);
        break;
    case FD_UNSEALED:
        fds[count++] = fake_memfd(4096, 7, 0);
        break;
    case FD_PIPE:
        if (pipe(ends) == 0)
            fds[count++] = ends[0];
        break;
    case FD_TWO:
        while (count < 2)
            fds[count++] = fake_memfd(4096, 7, F_SEAL_SHRINK);
        break;
    case FD_MANY:
        while (count < 40)
            fds[count++] = fake_memfd(4096, 7, F_SEAL_SHRINK);
        break;
    }
    fake_reply(fd, line, lie->reply, fds, count);
}

/* Tells one lie, and then reads until the client has gone. */
static void lie_once(int fd, const void *arg)
{
    char line[65536];
    if (!fake_read(fd, line, sizeof(line)))
        return;
    tell(fd, line, arg);
    while (fake_read(fd, line, sizeof(line)))
        ;
}

static const struct lie lies[] = {
    {FINE, FD_GOOD, 0},
    /* not messages */
    {"", FD_NONE, GPUBUF_E_PROTOCOL},
    {"garbage", FD_NONE, GPUBUF_E_PROTOCOL},
    {"[]", FD_NONE, GPUBUF_E_PROTOCOL},
    {"{}", FD_NONE, GPUBUF_E_PROTOCOL},
    {"{\"jsonrpc\":\"2.0\",\"id\":ID}", FD_NONE, GPUBUF_E_PROTOCOL},
    {"{\"jsonrpc\":\"1.0\",\"id\":ID,\"result\":{}}", FD_NONE, GPUBUF_E_PROTOCOL},
    {"{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":{},\"error\":{}}", FD_NONE, GPUBUF_E_PROTOCOL},
    {"{\"jsonrpc\":\"2.0\",\"id\":999999,\"result\":{}}", FD_NONE, GPUBUF_E_PROTOCOL},
    {"{\"jsonrpc\":\"2.0\",\"id\":-1,\"result\":{}}", FD_NONE, GPUBUF_E_PROTOCOL},
    {"{\"jsonrpc\":\"2.0\",\"id\":\"ID\",\"result\":{}}", FD_NONE, GPUBUF_E_PROTOCOL},
    /* errors */
    {"{\"jsonrpc\":\"2.0\",\"id\":ID,\"error\":{\"code\":-32001,\"message\":\"no\"}}", FD_NONE,
     GPUBUF_E_NOT_FOUND},
    {"{\"jsonrpc\":\"2.0\",\"id\":ID,\"error\":{\"code\":-1,\"message\":\"no\"}}", FD_NONE,
     GPUBUF_E_INTERNAL},
    {"{\"jsonrpc\":\"2.0\",\"id\":ID,\"error\":{\"code\":5,\"message\":\"no\"}}", FD_NONE,
     GPUBUF_E_INTERNAL},
    {"{\"jsonrpc\":\"2.0\",\"id\":ID,\"error\":{\"message\":\"no\"}}", FD_NONE, GPUBUF_E_PROTOCOL},
    {"{\"jsonrpc\":\"2.0\",\"id\":ID,\"error\":[]}", FD_NONE, GPUBUF_E_PROTOCOL},
    /* grants */
    {RESULT "{}}", FD_NONE, GPUBUF_E_PROTOCOL},
    {RESULT "[]}", FD_NONE, GPUBUF_E_PROTOCOL},
    {RESULT "null}", FD_NONE, GPUBUF_E_PROTOCOL},
    {RESULT "{\"lease\":1}}", FD_NONE, GPUBUF_E_PROTOCOL},
    {RESULT "{\"lease\":-1,\"object\":{}}}", FD_NONE, GPUBUF_E_PROTOCOL},
    {RESULT "{\"lease\":1,\"object\":{}}}", FD_NONE, GPUBUF_E_PROTOCOL},
    {RESULT "{\"lease\":1,\"object\":{\"name\":\"x\",\"device\":\"host\",\"layout\":{}}}}", FD_NONE,
     GPUBUF_E_PROTOCOL},
    {RESULT GRANT(OBJECT("{\"kind\":\"odd\"}"), ""), FD_NONE, GPUBUF_E_PROTOCOL},
    {RESULT GRANT(OBJECT(BYTES(1, 0, 0)), ""), FD_NONE, 0},
    /* segments that were not sent, or lie */
    {RESULT GRANT(OBJECT(BYTES(1, 0, 100)), ""), FD_NONE, GPUBUF_E_PROTOCOL},
    {RESULT GRANT(OBJECT(BYTES(1, 0, 100)), SEGMENT(1, 4096, 0)), FD_NONE, GPUBUF_E_PROTOCOL},
    {RESULT_FD GRANT(OBJECT(BYTES(1, 0, 100)), SEGMENT(1, 4096, 0)), FD_NONE, GPUBUF_E_PROTOCOL},
    {RESULT_FD GRANT(OBJECT(BYTES(1, 0, 100)), SEGMENT(1, 4096, 1)), FD_GOOD, GPUBUF_E_PROTOCOL},
    {RESULT_FD GRANT(OBJECT(BYTES(2, 0, 100)), SEGMENT(1, 4096, 0)), FD_GOOD, GPUBUF_E_PROTOCOL},
    {RESULT_FD GRANT(OBJECT(BYTES(1, 0, 100)), SEGMENT(1, 8192, 0)), FD_GOOD, GPUBUF_E_PROTOCOL},
    {RESULT_FD GRANT(OBJECT(BYTES(1, 0, 100)), SEGMENT(1, 0, 0)), FD_GOOD, GPUBUF_E_PROTOCOL},
    {RESULT_FD GRANT(OBJECT(BYTES(1, 0, 100)), SEGMENT(1, 4503599627370495, 0)), FD_GOOD,
     GPUBUF_E_PROTOCOL},
    {RESULT_FD GRANT(OBJECT(BYTES(1, 0, 100)), SEGMENT(1, 4096, 0)), FD_SMALL, GPUBUF_E_PROTOCOL},
    {RESULT_FD GRANT(OBJECT(BYTES(1, 0, 100)), SEGMENT(1, 4096, 0)), FD_UNSEALED,
     GPUBUF_E_PROTOCOL},
    {RESULT_FD GRANT(OBJECT(BYTES(1, 0, 100)), SEGMENT(1, 4096, 0)), FD_PIPE, GPUBUF_E_PROTOCOL},
    {RESULT_FD GRANT(OBJECT(BYTES(1, 0, 100)), SEGMENT(1, 4096, 0) "," SEGMENT(1, 4096, 0)),
     FD_GOOD, 0},
    {RESULT_FD GRANT(OBJECT(BYTES(1, 0, 100)), "7"), FD_GOOD, GPUBUF_E_PROTOCOL},
    /* buffers outside */
    {RESULT_FD GRANT(OBJECT(BYTES(1, 4000, 100)), SEGMENT(1, 4096, 0)), FD_GOOD, GPUBUF_E_PROTOCOL},
    {RESULT_FD GRANT(OBJECT(BYTES(1, 4503599627370495, 100)), SEGMENT(1, 4096, 0)), FD_GOOD,
     GPUBUF_E_PROTOCOL},
    {RESULT_FD GRANT(OBJECT("{\"kind\":\"column\",\"dtype\":\"utf8\",\"length\":3,\"offsets\":{"
                            "\"segment\":1,\"offset\":0,\"bytes\":16},\"data\":{\"segment\":1,"
                            "\"offset\":4095,\"bytes\":2}}"),
                     SEGMENT(1, 4096, 0)),
     FD_GOOD, GPUBUF_E_PROTOCOL},
    {RESULT_FD GRANT(OBJECT("{\"kind\":\"column\",\"dtype\":\"int64\",\"length\":3,\"data\":{"
                            "\"segment\":1,\"offset\":1,\"bytes\":24}}"),
                     SEGMENT(1, 4096, 0)),
     FD_GOOD, GPUBUF_E_PROTOCOL},
    {RESULT_FD GRANT(OBJECT("{\"kind\":\"column\",\"dtype\":\"int64\",\"length\":3,\"data\":{"
                            "\"segment\":1,\"offset\":0,\"bytes\":23}}"),
                     SEGMENT(1, 4096, 0)),
     FD_GOOD, GPUBUF_E_PROTOCOL},
    /* descriptors that do not add up: the surplus would be taken for another message's */
    {FINE, FD_MANY, 0},
    {FINE, FD_TWO, 0},
    {"{\"jsonrpc\":\"2.0\",\"id\":ID,\"fds\":17,\"result\":{}}", FD_NONE, GPUBUF_E_PROTOCOL},
    {"{\"jsonrpc\":\"2.0\",\"id\":ID,\"fds\":-1,\"result\":{}}", FD_NONE, GPUBUF_E_PROTOCOL},
    /* devices that this build cannot map fail that object alone */
    {RESULT GRANT(OBJECT(BYTES(1, 0, 100)),
                  "{\"id\":1,\"device\":\"GPU-1\",\"bytes\":4096,\"access\":\"r\",\"handle\":{"
                  "\"kind\":\"cuda_ipc\",\"uuid\":\"GPU-1\",\"ipc\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
                  "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA==\"}}"),
     FD_NONE, GPUBUF_E_UNSUPPORTED},
    {RESULT_FD GRANT(OBJECT(BYTES(1, 0, 100)),
                     "{\"id\":1,\"device\":\"GPU-1\",\"bytes\":4096,\"access\":\"r\",\"handle\":{"
                     "\"kind\":\"cuda_fd\",\"fd\":0}}"),
     FD_GOOD, GPUBUF_E_UNSUPPORTED},
    /* notifications that are nonsense */
    {"{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{}}", FD_NONE, GPUBUF_E_PROTOCOL},
    {"{\"jsonrpc\":\"2.0\",\"method\":\"segments.retire\",\"params\":{}}", FD_NONE,
     GPUBUF_E_PROTOCOL},
    {"{\"jsonrpc\":\"2.0\",\"method\":\"segments.retire\",\"params\":{\"segments\":[1,\"a\",{}]}}"
     "\n" FINE,
     FD_GOOD, 0},
    {"{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{\"watch\":5,\"kind\":\"sealed\"}}"
     "\n" FINE,
     FD_GOOD, 0},
    {"{\"jsonrpc\":\"2.0\",\"method\":\"of.later\",\"params\":{}}\n" FINE, FD_GOOD, 0},
    {"{\"jsonrpc\":\"2.0\",\"method\":\"shutdown\",\"params\":{\"reason\":5}}\n" FINE, FD_GOOD, 0},
};

/* RELIABILITY.md: Hostile clients 20 */
TEST(test_lies_about_open)
{
    for (size_t i = 0; i < COUNT(lies); i++) {
        size_t fds = count_fds(), mappings = count_mappings();
        struct fake fake;
        fake_start(&fake, true, lie_once, &lies[i]);
        struct gpubuf_client *client = fake_connect(&fake);
        struct gpubuf_object *object = NULL;
        int r = gpubuf_open(client, "x", NULL, &object);
        if (r != lies[i].expected)
            fail_msg("lie %zu (%s): expected %d, got %d (%s)", i, lies[i].reply, lies[i].expected,
                     r, r < 0 ? gpubuf_errmsg(client) : "");
        assert_int_equal(object != NULL, r == 0);
        if (object && gpubuf_length(object) > 0) {
            struct gpubuf_memory memory;
            ok(client, gpubuf_memory(object, GPUBUF_DATA, &memory));
            assert_int_equal(((char *)memory.pointer)[99], 7);
        }
        gpubuf_release(object);
        if (r == GPUBUF_E_PROTOCOL || lies[i].fds == FD_TWO || lies[i].fds == FD_MANY)
            assert_int_equal(gpubuf_dispatch(client), GPUBUF_E_PROTOCOL);
        gpubuf_disconnect(client);
        fake_stop(&fake);
        assert_int_equal(count_fds(), fds);
        assert_int_equal(count_mappings(), mappings);
    }
}

/* The same lies where an answer to something else was due. */
/* RELIABILITY.md: Hostile clients 20 */
TEST(test_lies_elsewhere)
{
    static const char *const names[] = {"a", "b"};
    const struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = 100};
    for (size_t i = 0; i < COUNT(lies); i++) {
        for (int method = 0; method < 4; method++) {
            size_t fds = count_fds(), mappings = count_mappings();
            struct fake fake;
            struct gpubuf_object *objects[2] = {NULL, NULL};
            struct gpubuf_info info;
            uint64_t watch;
            fake_start(&fake, true, lie_once, &lies[i]);
            struct gpubuf_client *client = fake_connect(&fake);
            int r = 0;
            switch (method) {
            case 0:
                r = gpubuf_open_many(client, names, 2, NULL, objects, NULL);
                break;
            case 1:
                r = gpubuf_create(client, "x", &layout, NULL, &objects[0]);
                break;
            case 2:
                r = gpubuf_stat(client, "x", &info);
                break;
            case 3:
                r = gpubuf_watch(client, NULL, (gpubuf_event_cb)(uintptr_t)1, NULL, &watch);
                break;
            }
            if (r >= 0 && method != 2) /* what describes an object is not a lie there */
                fail_msg("lie %zu about method %d was believed", i, method);
            gpubuf_release_many(objects, 2);
            gpubuf_disconnect(client);
            fake_stop(&fake);
            assert_int_equal(count_fds(), fds);
            assert_int_equal(count_mappings(), mappings);
        }
    }
}

/* ---- greetings ---- */

TEST(test_bad_greetings)
{
    static const struct lie greetings[] = {
        {RESULT "{}}", FD_NONE, GPUBUF_E_PROTOCOL},
        {RESULT "[]}", FD_NONE, GPUBUF_E_PROTOCOL},
        {RESULT "{\"protocol\":2,\"instance\":\"ab\",\"session\":1}}", FD_NONE,
         GPUBUF_E_UNSUPPORTED},
        {RESULT "{\"protocol\":1,\"instance\":\"XY\",\"session\":1}}", FD_NONE, GPUBUF_E_PROTOCOL},
        {RESULT "{\"protocol\":1,\"instance\":5,\"session\":1}}", FD_NONE, GPUBUF_E_PROTOCOL},
        {RESULT "{\"protocol\":1,\"instance\":\"ab\",\"session\":1,\"limits\":{\"names\":0}}}",
         FD_NONE, GPUBUF_E_PROTOCOL},
        {"{\"jsonrpc\":\"2.0\",\"id\":ID,\"error\":{\"code\":-32010,\"message\":\"protocol 2\"}}",
         FD_NONE, GPUBUF_E_UNSUPPORTED},
        {"HTTP/1.1 400 Bad Request", FD_NONE, GPUBUF_E_PROTOCOL},
    };
    for (size_t i = 0; i < COUNT(greetings); i++) {
        size_t fds = count_fds();
        struct fake fake;
        fake_start(&fake, false, lie_once, &greetings[i]);
        struct gpubuf_connect_options options = {.size = sizeof(options),
                                                 .path = fake.path,
                                                 .timeout_ms = 60000,
                                                 .resume_ms = GPUBUF_NO_RESUME};
        struct gpubuf_client *client = NULL;
        int r = gpubuf_connect(&client, &options);
        if (r != greetings[i].expected)
            fail_msg("greeting %zu: got %d (%s)", i, r, gpubuf_errmsg(NULL));
        assert_null(client);
        fake_stop(&fake);
        assert_int_equal(count_fds(), fds);
    }
}

static void be_silent(int fd, const void *arg)
{
    char line[65536];
    while (fake_read(fd, line, sizeof(line)))
        ;
}

/* A daemon that accepts and says nothing. */
/* RELIABILITY.md: Time 3 */
TEST(test_silence)
{
    size_t fds = count_fds();
    struct fake fake;
    fake_start(&fake, false, be_silent, NULL);
    struct gpubuf_connect_options options = {
        .size = sizeof(options), .path = fake.path, .timeout_ms = 50};
    struct gpubuf_client *client = NULL;
    assert_int_equal(gpubuf_connect(&client, &options), GPUBUF_E_TIMEOUT);
    assert_null(client);
    fake_stop(&fake);

    fake_start(&fake, true, be_silent, NULL);
    options.path = fake.path;
    options.timeout_ms = 60000;
    options.answer_timeout_ms = 30;
    assert_int_equal(gpubuf_connect(&client, &options), 0);
    struct gpubuf_object *object = NULL;
    const char *const names[] = {"a", "b"};
    const struct gpubuf_layout_spec layout = {.kind = GPUBUF_KIND_BYTES, .bytes = 100};
    fails(client, GPUBUF_E_TIMEOUT, gpubuf_open(client, "a", NULL, &object));
    fails(client, GPUBUF_E_TIMEOUT, gpubuf_open_many(client, names, 2, NULL, &object, NULL));
    fails(client, GPUBUF_E_TIMEOUT, gpubuf_create(client, "a", &layout, NULL, &object));
    fails(client, GPUBUF_E_TIMEOUT, gpubuf_call(client, "stats", NULL, 10, NULL));
    fails(client, GPUBUF_E_TIMEOUT, gpubuf_delete(client, "a"));
    gpubuf_disconnect(client);
    fake_stop(&fake);
    assert_int_equal(count_fds(), fds);
}

/* ---- pieces ---- */

/* Cuts a good reply off after `bytes`. */
static void cut_off(int fd, const void *arg)
{
    char line[65536], text[2048];
    if (!fake_read(fd, line, sizeof(line)))
        return;
    int memory = fake_memfd(4096, 7, F_SEAL_SHRINK);
    const char *place = strstr(FINE, "ID");
    snprintf(text, sizeof(text), "%.*s%llu%s", (int)(place - FINE), FINE,
             strtoull(strstr(line, "\"id\":") + 5, NULL, 10), place + 2);
    text[*(const size_t *)arg] = '\0';
    fake_send(fd, text, &memory, 1);
}

/* RELIABILITY.md: The kernel says no 4 */
TEST(test_cut_anywhere)
{
    size_t fds = count_fds();
    for (size_t at = 1; at < strlen(FINE) - 2; at += 7) {
        struct fake fake;
        struct gpubuf_object *object = NULL;
        fake_start(&fake, true, cut_off, &at);
        struct gpubuf_client *client = fake_connect(&fake);
        fails(client, GPUBUF_E_CLOSED, gpubuf_open(client, "x", NULL, &object));
        assert_null(object);
        gpubuf_disconnect(client);
        fake_stop(&fake);
    }
    assert_int_equal(count_fds(), fds);
}

/* ---- grants after the fact ---- */

struct record {
    char lines[16][256];
    unsigned count;
};

/* Answers the first request only when it has seen the second, and notes what comes. */
static void answer_late(int fd, const void *arg)
{
    static const struct lie fine = {FINE, FD_GOOD, 0};
    struct record *record = *(struct record *const *)arg;
    char line[65536], first[65536];
    if (!fake_read(fd, first, sizeof(first)) || !fake_read(fd, line, sizeof(line)))
        return;
    tell(fd, first, &fine);
    fake_reply(fd, line, RESULT "{}}", NULL, 0);
    while (fake_read(fd, line, sizeof(line)) && record->count < COUNT(record->lines)) {
        snprintf(record->lines[record->count], sizeof(record->lines[0]), "%.255s", line);
        record->count++;
        if (strstr(line, "\"id\""))
            fake_reply(fd, line, RESULT "{}}", NULL, 0);
    }
}

/* The answer to an open that gave up is given back. */
TEST(test_late_grants)
{
    struct record *record =
        mmap(NULL, sizeof(*record), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct fake fake;
    fake_start(&fake, true, answer_late, &record);
    struct gpubuf_connect_options options = {
        .size = sizeof(options), .path = fake.path, .timeout_ms = 60000, .answer_timeout_ms = 20};
    struct gpubuf_client *client;
    struct gpubuf_object *object = NULL;
    assert_int_equal(gpubuf_connect(&client, &options), 0);
    fails(client, GPUBUF_E_TIMEOUT, gpubuf_open(client, "x", NULL, &object));
    ok(client, gpubuf_call(client, "stats", NULL, 60000, NULL));
    ok(client, gpubuf_call(client, "stats", NULL, 60000, NULL));
    assert_true(record->count >= 2);
    assert_string_equal(record->lines[0],
                        "{\"jsonrpc\":\"2.0\",\"method\":\"release\",\"params\":{\"leases\":[1]}}");
    assert_non_null(strstr(record->lines[1], "stats"));
    gpubuf_disconnect(client);
    fake_stop(&fake);
    munmap(record, sizeof(*record));
}

/* ---- the other session's segment ---- */

static void claim(int fd, const void *arg)
{
    static const struct lie fine = {FINE, FD_GOOD, 0};
    char line[65536];
    while (fake_read(fd, line, sizeof(line))) {
        if (strstr(line, "\"open\""))
            tell(fd, line, &fine);
    }
}

/* Two daemons that claim to be the same: the second's segment is not taken for the first's. */
TEST(test_stolen_identity)
{
    struct fake first, second;
    fake_start(&first, true, claim, NULL);
    fake_start(&second, true, claim, NULL);
    struct gpubuf_client *one = fake_connect(&first), *two = fake_connect(&second);
    struct gpubuf_object *object, *other = NULL;
    ok(one, gpubuf_open(one, "x", NULL, &object));
    fails(two, GPUBUF_E_PROTOCOL, gpubuf_open(two, "x", NULL, &other));
    assert_null(other);
    gpubuf_release(object);
    gpubuf_disconnect(one);
    gpubuf_disconnect(two);
    fake_stop(&first);
    fake_stop(&second);
}

/* ---- asking again ---- */

/* The first reply leaves out most of the names for want of room in the message; the next too. */
static void ration(int fd, const void *arg)
{
    char line[65536], text[8192];
    const char *limit = arg;
    for (unsigned round = 0; fake_read(fd, line, sizeof(line)); round++) {
        int memory = fake_memfd(4096, 7, F_SEAL_SHRINK);
        const char *names = strstr(line, "\"names\":[");
        if (!names)
            continue;
        size_t count = 0;
        for (const char *p = names + 9; *p != ']'; p++)
            count += *p == '"';
        count /= 2;
        size_t length = (size_t)snprintf(text, sizeof(text), "%s{\"objects\":[",
                                         round == 0 ? RESULT_FD : RESULT);
        for (size_t i = 0; i < count; i++)
            length +=
                (size_t)snprintf(text + length, sizeof(text) - length,
                                 i == 0 && strcmp(limit, "never") != 0
                                     ? "{\"lease\":1,\"object\":" OBJECT(BYTES(1, 0, 100)) "}%s"
                                     : "{\"error\":{\"code\":-32008,\"message\":\"full\",\"data\":{"
                                       "\"kind\":\"limit\","
                                       "\"limit\":\"fds\"}}}%s",
                                 i + 1 < count ? "," : "");
        snprintf(text + length, sizeof(text) - length, "],\"segments\":[%s]}}",
                 round == 0 ? SEGMENT(1, 4096, 0) : "");
        fake_reply(fd, line, text, &memory, round == 0);
        close(memory);
    }
}

TEST(test_asking_again)
{
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    struct gpubuf_object *objects[5];
    int errors[5];
    struct fake fake;
    fake_start(&fake, true, ration, "fds");
    struct gpubuf_client *client = fake_connect(&fake);
    assert_int_equal(gpubuf_open_many(client, names, 5, NULL, objects, errors), 5);
    gpubuf_release_many(objects, 5);
    gpubuf_disconnect(client);
    fake_stop(&fake);

    /* One that never finds room does not keep us for ever. */
    fake_start(&fake, true, ration, "never");
    client = fake_connect(&fake);
    assert_int_equal(gpubuf_open_many(client, names, 5, NULL, objects, errors), 0);
    for (int i = 0; i < 5; i++)
        assert_int_equal(errors[i], GPUBUF_E_LIMIT);
    gpubuf_disconnect(client);
    fake_stop(&fake);
}

RUN_TESTS(NULL, NULL)
