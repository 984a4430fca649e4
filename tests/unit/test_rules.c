/*
 * Rules of the heart that hang on one line each, in a server within this process. `tests/mutants`
 * has the lines: each of these tests fails without one of them.
 */

#define DEMAND(condition) assert_true(condition)
#include "tests/cases.h"

#include "inside.h"

#define MIB (1u << 20)
#define CALL(method, params)                                                                       \
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"" method "\",\"params\":{" params "}}\n"
#define HELLO CALL("hello", "\"protocol\":1,\"cache\":true")
#define CREATE(name, bytes)                                                                        \
    CALL("create", "\"name\":\"" name "\",\"wait_ms\":600000,"                                     \
                   "\"layout\":{\"kind\":\"bytes\",\"bytes\":" bytes "}")
#define OPEN(name) CALL("open", "\"name\":\"" name "\"")
#define CLAIM(name) CALL("open", "\"name\":\"" name "\",\"access\":\"write\",\"exclusive\":true")

static struct inside inside;
static char directory[] = "/tmp/gpubufd-rules-XXXXXX";
static struct peer peers[GB_OBJECT_SLOTS + 8];
static unsigned peer_count;

/* ---- a server, its peers, and what they are answered ---- */

/* Before a turn: what is under way on other threads has its time. */
static void await_movers(void)
{
    if (inside.server.spill.moves + inside.server.spill.tiers[GB_TIER_DISK].going > 0)
        uv_run(&inside.loop, UV_RUN_ONCE);
}

static void begin(const char *device, const char *more)
{
    char tier[64];

    assert_non_null(strcpy(directory, "/tmp/gpubufd-rules-XXXXXX"));
    assert_non_null(mkdtemp(directory));
    snprintf(tier, sizeof(tier), "disk:64M:%s", directory);
    inside_begin(&inside, (const char *const[]){"--device", device, "--watermarks", "100:100",
                                                more ? "--quota" : "--tier", more ? more : tier,
                                                more ? "--tier" : NULL, tier, NULL});
    inside.work = await_movers;
    peer_count = 0;
}

static int end(void **state)
{
    char lock[64];

    while (peer_count > 0)
        peer_close(&peers[--peer_count]);
    inside_turn(&inside);
    inside_empty(&inside);
    inside_end(&inside);
    snprintf(lock, sizeof(lock), "%s/gpubufd.lock", directory);
    (void)unlink(lock);
    return rmdir(directory); /* no other file is left */
}

static struct peer *connect_as(uid_t uid)
{
    struct peer *peer = &peers[peer_count++];

    assert_true(peer_connect(&inside, peer));
    peer_become(&inside, peer, uid);
    return peer;
}

static char *answer(struct peer *peer)
{
    char *line = NULL;

    for (int turn = 0; turn < 64 && !line; turn++) {
        inside_turn(&inside);
        line = peer_line(peer);
    }
    if (!line)
        fail_msg("no answer");
    return line;
}

static void expect_answer(struct peer *peer, const char *part)
{
    char *line = answer(peer);

    if (!strstr(line, part))
        fail_msg("expected %s, found %s", part, line);
    free(line);
}

static void expect(struct peer *peer, const char *request, const char *part)
{
    peer_send(peer, request);
    expect_answer(peer, part);
}

/* The number after `key` in an answer. */
static unsigned long long number_in(const char *line, const char *key)
{
    const char *found = strstr(line, key);

    if (!found)
        fail_msg("expected %s, found %s", key, line);
    return strtoull(found + strlen(key), NULL, 10);
}

/* Publishes an object, and unmaps its segment. */
static void publish(struct peer *peer, const char *name, size_t bytes, const char *mode,
                    const char *evict)
{
    char request[512];
    unsigned long long lease, segment;
    char *line;

    snprintf(request, sizeof(request),
             CALL("create", "\"name\":\"%s\",\"layout\":{\"kind\":\"bytes\",\"bytes\":%zu},"
                            "\"mode\":\"%s\",\"evict\":\"%s\",\"replace\":true"),
             name, bytes, mode, evict);
    peer_send(peer, request);
    line = answer(peer);
    lease = number_in(line, "\"lease\":");
    segment = number_in(line, "\"segment\":");
    free(line);
    snprintf(request, sizeof(request), CALL("seal", "\"lease\":%llu,\"release\":true"), lease);
    expect(peer, request, "\"version\":");
    snprintf(request, sizeof(request), CALL("unmap", "\"segments\":[%llu]"), segment);
    peer_send(peer, request);
    free(answer(peer)); /* or it was unmapped before */
}

/* ---- the rules ---- */

/* Every session that caches a lease on a name sees that the name has changed: not the first alone.
   inside_check() compares each page with what is current. */
TEST_WITH(test_all_cached_leases_are_outdated, NULL, end)
{
    struct peer *owner;

    begin("host:8M", NULL);
    owner = connect_as(1001);
    publish(owner, "a", 100, "0644", "spill");
    for (uid_t uid = 1002; uid < 1006; uid++) {
        struct peer *reader = connect_as(uid);

        expect(reader, HELLO, "\"cache\"");
        expect(reader, OPEN("a"), "\"slot\"");
    }
    inside_check(&inside);
    expect(owner, CALL("delete", "\"name\":\"a\""), "\"result\":{}");
    inside_check(&inside);
}

/* A session caches a lease on an object although all slots are taken, if another user has at least
   two more. A difference of one would change places for ever. */
TEST_WITH(test_slots_change_hands_at_a_difference_of_two, NULL, end)
{
    struct peer *owner;

    begin("host:8M", NULL);
    owner = connect_as(1001);
    publish(owner, "a", 100, "0644", "spill");
    for (unsigned i = 0; i < GB_OBJECT_SLOTS; i++) { /* 64 of one, 63 of another, 1 of a third */
        struct peer *reader = connect_as(i < 64 ? 1002 : i < 127 ? 1003 : 1004);

        expect(reader, HELLO, "\"cache\"");
        expect(reader, OPEN("a"), "\"slot\"");
    }
    for (unsigned i = 0; i < 2; i++) {
        struct peer *reader = connect_as(i == 0 ? 1003 : 1004);
        char *line;

        expect(reader, HELLO, "\"cache\"");
        peer_send(reader, OPEN("a"));
        line = answer(reader);
        assert_int_equal(strstr(line, "\"slot\"") != NULL, i == 1);
        free(line);
    }
    inside_check(&inside);
}

/* Content that comes back to its device was charged before, and another user may want it: its
   owner's quota does not keep it below. */
TEST_WITH(test_a_quota_is_not_for_what_comes_back, NULL, end)
{
    struct peer *owner, *reader;

    begin("host:16M", "1001:bytes=8M");
    owner = connect_as(1001);
    reader = connect_as(1002);
    publish(owner, "away", 4 * MIB, "0644", "spill");
    expect(owner, CALL("move", "\"name\":\"away\""), "\"result\":{}");
    /* Each has a mode of its own, and so a segment. */
    publish(owner, "b", 100, "0640", "keep");
    publish(owner, "c", 100, "0660", "keep");
    publish(owner, "d", 100, "0666", "keep");
    expect(reader, OPEN("away"), "\"lease\":");
}

/* A name keeps as many older versions as it says, no more and no fewer. */
TEST_WITH(test_a_name_keeps_what_it_says, NULL, end)
{
    struct peer *owner;

    begin("host:8M", NULL);
    owner = connect_as(1001);
    for (unsigned lease = 1; lease <= 4; lease++) {
        char request[128];

        expect(owner,
               CALL("create", "\"name\":\"a\",\"keep\":2,\"replace\":true,"
                              "\"layout\":{\"kind\":\"bytes\",\"bytes\":8}"),
               "\"lease\":");
        snprintf(request, sizeof(request), CALL("seal", "\"lease\":%u,\"release\":true"), lease);
        expect(owner, request, "\"version\":");
    }
    expect(owner, CALL("stat", "\"name\":\"a\",\"version\":1"), "stale");
    expect(owner, CALL("stat", "\"name\":\"a\",\"version\":2"), "\"older\":true");
    expect(owner, CALL("stat", "\"name\":\"a\",\"version\":3"), "\"older\":true");
    expect(owner, CALL("stat", "\"name\":\"a\""), "\"version\":4");
}

/* A look at the objects counts nothing that an earlier one has found. */
TEST_WITH(test_each_look_begins_anew, NULL, end)
{
    static const size_t sizes[] = {MIB, MIB, MIB / 2, MIB * 3 / 2}; /* two in each segment */
    struct peer *owner, *other;
    char request[256];
    unsigned long long lease;
    char *line;

    begin("host:8M", NULL);
    owner = connect_as(1001);
    other = connect_as(1002);
    for (unsigned i = 0; i < 4; i++) {
        snprintf(request, sizeof(request), "a/%u", i);
        publish(owner, request, sizes[i], "0600", "drop");
    }
    peer_send(owner, OPEN("a/3"));
    line = answer(owner);
    lease = number_in(line, "\"lease\":");
    free(line);
    expect(other,
           CALL("create", "\"name\":\"b\",\"layout\":{\"kind\":\"bytes\",\"bytes\":6291456}"),
           "no_space");
    expect(owner, CALL("stat", "\"name\":\"a/0\""), "\"state\":\"sealed\""); /* not in vain */
    snprintf(request, sizeof(request), CALL("release", "\"lease\":%llu"), lease);
    expect(owner, request, "\"result\":{}");
    for (uint64_t id = 1; id < inside.server.store.next_segment; id++) {
        snprintf(request, sizeof(request), CALL("unmap", "\"segments\":[%d]"), (int)id);
        peer_send(owner, request);
        free(answer(owner));
    }
    expect(other,
           CALL("create", "\"name\":\"b\",\"layout\":{\"kind\":\"bytes\",\"bytes\":6291456}"),
           "\"lease\":");
}

static unsigned vacated;
static void (*record)(void *arg, struct gb_storage *storage);

/* A successor must not look for content in memory that may be somebody else's by then. */
static void on_storage(void *arg, struct gb_storage *storage)
{
    if (!storage->resident && storage->copies[GB_TIER_DISK] && vacated++ == 0)
        assert_true(storage->placement_count > 0);
    if (record)
        record(arg, storage);
}

TEST_WITH(test_it_is_recorded_before_its_memory_is_free, NULL, end)
{
    struct peer *owner;

    begin("host:8M", NULL);
    owner = connect_as(1001);
    publish(owner, "a", 4 * MIB, "0600", "spill");
    vacated = 0;
    record = inside.server.store.on_storage;
    inside.server.store.on_storage = on_storage;
    expect(owner, CALL("move", "\"name\":\"a\""), "\"result\":{}");
    inside.server.store.on_storage = record;
    assert_true(vacated > 0);
}

/* An object that is opened while it is copied below stays where its reader has it. */
TEST_WITH(test_what_is_leased_meanwhile_stays, NULL, end)
{
    struct peer *owner, *reader;

    begin("host:8M", NULL);
    owner = connect_as(1001);
    reader = connect_as(1002);
    publish(owner, "a", 4 * MIB, "0644", "spill");
    peer_send(owner, CALL("move", "\"name\":\"a\""));
    peer_send(reader, OPEN("a"));
    inside.work = NULL; /* both are served before the copy is done */
    while (inside.server.registry.leases.count == 0)
        inside_turn(&inside);
    inside.work = await_movers;
    expect_answer(reader, "\"lease\":");
    free(answer(owner));
    expect(owner, CALL("stat", "\"name\":\"a\""), "\"tier\":\"device\"");
    inside_check(&inside);
}

/* A request behind an older one whose room is arriving is answered when no room has come: the older
   one waits for a lease to end, and must not be overtaken. */
TEST_WITH(test_a_request_behind_another_is_answered, NULL, end)
{
    struct peer *owner, *first, *second, *reader;

    begin("host:8M", NULL);
    owner = connect_as(1001);
    first = connect_as(1002);
    second = connect_as(1003);
    reader = connect_as(1004);
    publish(owner, "a", 4 * MIB, "0644", "spill");
    peer_send(first, CREATE("b", "8388608"));
    inside.work = NULL; /* all are served before the copy is done */
    while (inside.server.waits.made == 0)
        inside_turn(&inside);
    peer_send(second, CALL("create", "\"name\":\"c\","
                                     "\"layout\":{\"kind\":\"bytes\",\"bytes\":1048576}"));
    while (inside.server.waits.made == 1)
        inside_turn(&inside);
    peer_send(reader, OPEN("a"));
    while (inside.server.registry.leases.count == 0)
        inside_turn(&inside);
    inside.work = await_movers;
    expect_answer(reader, "\"lease\":");
    expect_answer(second, "older requests wait for it");
    assert_null(peer_line(first));
    inside_check(&inside);
}

/* An object without bytes takes no room from those that wait, even if nothing may overtake them. */
TEST_WITH(test_no_bytes_wait_for_nobody, NULL, end)
{
    struct peer *holder, *waiting, *other;

    begin("host:8M", NULL);
    holder = connect_as(1001);
    waiting = connect_as(1002);
    other = connect_as(1003);
    expect(holder, CREATE("a", "5242880"), "\"lease\":1");
    peer_send(waiting, CREATE("b", "4194304"));
    inside_turn(&inside);
    expect(other, CREATE("c", "2097152"), "\"lease\":2"); /* overtakes */
    expect(holder, CALL("release", "\"lease\":1"), "\"result\":{}");
    expect_answer(holder, "segments.retire");
    expect(holder, CALL("unmap", "\"segments\":[1]"), "\"result\":{}");
    expect_answer(waiting, "\"lease\":3");
    peer_send(waiting, CREATE("d", "8388608"));
    inside_turn(&inside);
    expect(other, CREATE("e", "0"), "\"lease\":4");
    assert_null(peer_line(waiting));
}

/* A file occupies its header too, so one of just the bytes that are free has no room. */
TEST_WITH(test_a_tier_gives_no_more_than_it_has, NULL, end)
{
    const struct gb_tier *tier = &inside.server.spill.tiers[GB_TIER_DISK];
    struct peer *owner;

    begin("host:128M", NULL);
    owner = connect_as(1001);
    publish(owner, "a", 32 * MIB, "0600", "spill");
    expect(owner, CALL("move", "\"name\":\"a\""), "\"result\":{}");
    publish(owner, "b", gb_tier_free_bytes(tier), "0600", "spill");
    expect(owner, CALL("move", "\"name\":\"b\""), "no_space");
}

/* A claim does not end with its connection: its process may go on writing. */
TEST_WITH(test_a_claim_outlasts_its_connection, NULL, end)
{
    struct peer *writer, *other;

    begin("host:8M", NULL);
    writer = connect_as(1001);
    other = connect_as(1001);
    expect(writer,
           CALL("create", "\"name\":\"a\",\"live\":true,"
                          "\"layout\":{\"kind\":\"bytes\",\"bytes\":64}"),
           "\"lease\":1");
    expect(writer, CALL("release", "\"lease\":1"), "\"result\":{}");
    expect(writer, CLAIM("a"), "\"generation\":1");
    close(writer->fd);
    writer->fd = -1;
    inside_turn(&inside);
    expect(other, CLAIM("a"), "busy");
    expect(other, CALL("stat", "\"name\":\"a\",\"why\":true"), "\"left\":true");
}

/* A claim that is refused, since its segment cannot be sent, leaves the generation as it was. */
TEST_WITH(test_a_refused_claim_has_no_generation, NULL, end)
{
    struct peer *writer, *other;
    struct gb_stock *stock;
    uint64_t most;

    begin("host:8M", NULL);
    writer = connect_as(1001);
    other = connect_as(1001);
    expect(writer,
           CALL("create", "\"name\":\"a\",\"live\":true,"
                          "\"layout\":{\"kind\":\"bytes\",\"bytes\":64}"),
           "\"lease\":1");
    expect(writer, CALL("release", "\"lease\":1"), "\"result\":{}");
    expect(other, CLAIM("a"), "\"generation\":1");
    expect(other, CALL("release", "\"lease\":2"), "\"result\":{}");
    expect(other, CALL("unmap", "\"segments\":[1]"), "\"result\":{}");
    stock = &inside.server.store.users.stocks[GB_STOCK_OPEN];
    most = stock->most;
    stock->most = stock->used;
    expect(other, CLAIM("a"), "\"limit\"");
    stock->most = most;
    expect(other, CLAIM("a"), "\"generation\":2");
}

RUN_TESTS(NULL, NULL)
