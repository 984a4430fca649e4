/*
 * Sessions inside a server in this process: what goes on between turns of the loop, which a test
 * from outside cannot choose.
 */

#define DEMAND(condition) assert_true(condition)
#include "tests/cases.h"

#include "inside.h"

static struct inside inside;
static size_t fds_before;

/* The loop's library keeps a few descriptors for signals once they were asked for. */
static int warm_up(void **state)
{
    inside_begin(&inside, (const char *const[]){NULL});
    inside_end(&inside);
    return 0;
}

static void begin(const char *const *options)
{
    fds_before = open_fds();
    inside_begin(&inside, options);
}

static void end(void)
{
    inside_empty(&inside);
    inside_end(&inside);
    assert_int_equal(open_fds(), fds_before);
}

static int tear_down(void **state)
{
    end();
    return 0;
}

static const char *const small[] = {"--device", "host:8M", NULL};

/* Turns until `peer` has an answer; no more than a few are ever needed. */
static char *await(struct peer *peer)
{
    char *line = NULL;

    for (int turn = 0; turn < 8 && !line; turn++) {
        inside_turn(&inside);
        line = peer_line(peer);
    }
    inside_check(&inside);
    return line;
}

static void expect(struct peer *peer, const char *request, const char *part)
{
    char *line;

    peer_send(peer, request);
    line = await(peer);
    if (!line || !strstr(line, part))
        fail_msg("%s: expected %s, found %s", request, part, line ? line : "nothing");
    free(line);
}

static void expect_next(struct peer *peer, const char *part)
{
    char *line = await(peer);

    if (!line || !strstr(line, part))
        fail_msg("expected %s, found %s", part, line ? line : "nothing");
    free(line);
}

#define REQUEST(id, method, params)                                                                \
    "{\"jsonrpc\":\"2.0\",\"id\":" #id ",\"method\":\"" method "\",\"params\":{" params "}}\n"
#define CREATE(id, name, bytes, more)                                                              \
    REQUEST(id, "create",                                                                          \
            "\"name\":\"" name "\",\"layout\":{\"kind\":\"bytes\",\"bytes\":" #bytes "}" more)

/* Aliases n/0 and on. The accounts are checked once, at the end. */
static void aliases_of_n(struct peer *peer, int count)
{
    for (int i = 0; i < count; i++) {
        char request[256];

        snprintf(request, sizeof(request), REQUEST(3, "alias", "\"name\":\"n/%d\",\"of\":\"n\""),
                 i);
        peer_send(peer, request);
        inside_turn(&inside);
        free(peer_line(peer));
    }
    inside_check(&inside);
}

/* ---- the tests ---- */

/* Does something in the middle of a turn: after sessions are served, before what is left is sent.
 */
struct meanwhile {
    struct gb_timer timer;
    struct peer *reads, *closes;
};

static void fire(struct gb_timer *timer)
{
    struct meanwhile *meanwhile = GB_CONTAINER(timer, struct meanwhile, timer);

    if (meanwhile->reads)
        peer_receive(meanwhile->reads);
    if (meanwhile->closes) {
        close(meanwhile->closes->fd);
        meanwhile->closes->fd = -1;
    }
}

/* A session is kept waiting since its peer does not read; then the peer reads all, within the same
   turn. The rest of its requests must be served all the same. */
/* RELIABILITY.md: The kernel says no 5 */
TEST_WITH(test_throttled_and_read_at_once, NULL, tear_down)
{
    struct meanwhile meanwhile = {.timer.fire = fire};
    struct gb_session *session;
    struct peer peer;
    unsigned answers = 0;
    int room = 200000; /* doubled by the system: more than what makes it wait */
    char *line;

    begin(small);
    assert_true(peer_connect(&inside, &peer));
    session = peer_session(&inside, &peer);
    setsockopt(session->conn.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    for (int i = 0; i < 40; i++)
        peer_send(&peer, REQUEST(1, "describe", ""));
    meanwhile.reads = &peer;
    assert_true(gb_timer_set(&inside.server.timers, &meanwhile.timer, 0));
    inside_turn(&inside);
    assert_ptr_equal(peer_session(&inside, &peer), session);
    assert_non_null(session->conn.in.partial); /* requests are kept */
    for (int turn = 0; turn < 100 && answers < 40; turn++) {
        inside_check(&inside);
        inside_turn(&inside);
        for (; (line = peer_line(&peer)); answers++)
            free(line);
    }
    assert_int_equal(answers, 40);
    peer_close(&peer);
}

/* Existing objects are told as far as the peer reads: also where the socket takes it all at
   once. */
TEST_WITH(test_watch_goes_on, NULL, tear_down)
{
    static const char *const options[] = {"--device", "host:8M", "--limit", "session_leases=8",
                                          NULL};
    struct peer writer, watcher;
    unsigned told = 0;
    int room = 1 << 20;
    char *line;

    begin(options);
    assert_true(peer_connect(&inside, &writer));
    assert_true(peer_connect(&inside, &watcher));
    setsockopt(peer_session(&inside, &watcher)->conn.fd, SOL_SOCKET, SO_SNDBUF, &room,
               sizeof(room));
    expect(&writer, CREATE(1, "n", 1, ""), "\"lease\":1");
    expect(&writer, REQUEST(2, "seal", "\"lease\":1,\"release\":true"), "version");
    aliases_of_n(&writer, 3000);
    peer_send(&watcher, REQUEST(4, "watch", "\"prefix\":\"n\""));
    for (int turn = 0; turn < 100 && told < 3001; turn++) {
        inside_turn(&inside);
        inside_check(&inside);
        while ((line = peer_line(&watcher))) {
            told += strstr(line, "\"sealed\"") != NULL;
            free(line);
        }
    }
    assert_int_equal(told, 3001);
    peer_close(&writer);
    peer_close(&watcher);
}

/* A `create` that waits is tried again in the turn in which a session that is thrown out gives up
   what is missing. */
TEST_WITH(test_space_from_a_session_thrown_out, NULL, tear_down)
{
    static const char *const options[] = {"--device", "host:4M", "--limit", "output_bytes=300K",
                                          NULL};
    struct peer holder, waiter;

    begin(options);
    assert_true(peer_connect(&inside, &holder));
    assert_true(peer_connect(&inside, &waiter));
    expect(&holder, CREATE(1, "a", 4194304, ""), "\"lease\":1");
    peer_send(&waiter, CREATE(1, "b", 4194304, ",\"wait_ms\":60000"));
    inside_turn(&inside);
    assert_null(peer_line(&waiter));
    for (int i = 0; i < 40; i++) /* its answers pile up until it is too many of them */
        peer_send(&holder, REQUEST(2, "watch", "") REQUEST(3, "describe", ""));
    inside_turn(&inside);
    inside_check(&inside);
    for (int i = 0; i < 400 && peer_session(&inside, &holder); i++) {
        expect(&waiter, REQUEST(4, "list", ""), "objects");
        inside_turn(&inside);
    }
    peer_close(&holder);
    expect_next(&waiter, "\"lease\"");
    peer_close(&waiter);
}

/* A request behind one that gives up is tried then, and not only when its own time is up. */
TEST_WITH(test_next_in_line, NULL, tear_down)
{
    struct peer holder, first, second;
    char *line;

    begin(small);
    assert_true(peer_connect(&inside, &holder));
    assert_true(peer_connect(&inside, &first));
    assert_true(peer_connect(&inside, &second));
    expect(&holder, CREATE(1, "a", 6291456, ""), "\"lease\":1");
    expect(&holder, CREATE(2, "b", 2097152, ""), "\"lease\":2");
    peer_send(&first, CREATE(1, "c", 8388608, ",\"wait_ms\":60000"));
    inside_turn(&inside);
    peer_send(&second, CREATE(1, "d", 2097152, ",\"wait_ms\":60000"));
    inside_turn(&inside);
    expect(&holder, REQUEST(3, "release", "\"lease\":2"), "{}");
    expect(&holder, REQUEST(4, "unmap", "\"segments\":[2]"), "");
    inside_turn(&inside);
    line = peer_line(&second);
    assert_null(line); /* the first one waits for more */
    assert_null(peer_line(&first));
    peer_close(&first);
    line = await(&second);
    assert_non_null(line);
    assert_non_null(strstr(line, "\"lease\":3"));
    free(line);
    peer_close(&holder);
    peer_close(&second);
}

/* A turn that has time for one request only: the round goes on in the next, and leaves nobody
   out. */
TEST_WITH(test_a_round_in_slices, NULL, tear_down)
{
    enum { WAITERS = 20 };
    struct peer holder, waiters[WAITERS];
    uint64_t slice;
    int answered = 0;

    begin(small);
    assert_true(peer_connect(&inside, &holder));
    expect(&holder, CREATE(1, "a", 8388608, ""), "\"lease\":1");
    for (int i = 0; i < WAITERS; i++) {
        assert_true(peer_connect(&inside, &waiters[i]));
        peer_send(&waiters[i], CREATE(1, "b", 65536, ",\"wait_ms\":60000"));
        inside_turn(&inside);
        assert_null(peer_line(&waiters[i]));
    }
    slice = inside.server.turns.slice_ns;
    inside.server.turns.slice_ns = 0;
    peer_send(&holder,
              REQUEST(2, "release", "\"lease\":1") REQUEST(3, "unmap", "\"segments\":[1]"));
    for (int turns = 0; answered < WAITERS && turns < 40 * WAITERS; turns++) {
        char *line = peer_line(&waiters[answered]);

        if (!line) {
            inside_turn(&inside);
            continue;
        }
        assert_non_null(strstr(line, "\"lease\""));
        free(line);
        answered++;
        for (int later = answered + 2; later < WAITERS; later++) /* two at most in a turn */
            assert_null(peer_line(&waiters[later]));
    }
    assert_int_equal(answered, WAITERS);
    inside.server.turns.slice_ns = slice;
    inside_check(&inside);
    for (int i = 0; i < WAITERS; i++)
        peer_close(&waiters[i]);
    peer_close(&holder);
}

/* Requests that wait to write an object that is deleted wait for the next one of that name, in the
   same order, although a turn has time for one of them only. */
TEST_WITH(test_writers_in_slices, NULL, tear_down)
{
    struct peer holder, first, second;
    uint64_t slice;
    char *line;

    begin(small);
    assert_true(peer_connect(&inside, &holder) && peer_connect(&inside, &first) &&
                peer_connect(&inside, &second));
    expect(&holder, CREATE(1, "pool", 64, ",\"live\":true"), "\"lease\":1");
    peer_send(&first, REQUEST(1, "open",
                              "\"name\":\"pool\",\"access\":\"write\",\"exclusive\":true,"
                              "\"wait_ms\":60000"));
    inside_turn(&inside);
    peer_send(&second,
              REQUEST(1, "open", "\"name\":\"pool\",\"access\":\"write\",\"wait_ms\":60000"));
    inside_turn(&inside);
    slice = inside.server.turns.slice_ns;
    inside.server.turns.slice_ns = 0;
    peer_send(&holder, REQUEST(2, "delete", "\"name\":\"pool\""));
    inside_turn(&inside);
    peer_send(&holder, CREATE(3, "pool", 64, ",\"live\":true"));
    for (int turns = 0; turns < 20; turns++)
        inside_turn(&inside);
    assert_null(peer_line(&first));
    assert_null(peer_line(&second)); /* it does not write beside the holder before the claim */
    inside.server.turns.slice_ns = slice;
    peer_send(&holder, REQUEST(4, "release", "\"leases\":[1,2]"));
    line = await(&first);
    assert_non_null(line);
    assert_non_null(strstr(line, "\"generation\""));
    free(line);
    assert_null(peer_line(&second));
    inside_check(&inside);
    peer_close(&first);
    peer_close(&second);
    peer_close(&holder);
}

/* A `register` that waited for space wakes who waits for its name, in the same turn. */
TEST_WITH(test_registered_late_wakes, NULL, tear_down)
{
    struct peer holder, producer, reader;
    int fd = sealed_memfd(4194304, F_SEAL_SHRINK);
    static const char request[] =
        REQUEST(1, "register",
                "\"name\":\"late\",\"layout\":{\"kind\":\"bytes\",\"bytes\":4194304,\"data\":{"
                "\"handle\":0,\"offset\":0,\"bytes\":4194304}},\"handles\":[{\"kind\":\"memfd\","
                "\"fd\":0,\"bytes\":4194304,\"device\":\"host\"}],\"wait_ms\":60000");
    char with_fds[sizeof(request) + 16];

    begin(small);
    snprintf(with_fds, sizeof(with_fds), "{\"fds\":1,%s", request + 1);
    assert_true(peer_connect(&inside, &holder));
    assert_true(peer_connect(&inside, &producer));
    assert_true(peer_connect(&inside, &reader));
    expect(&holder, CREATE(1, "a", 8388608, ""), "\"lease\":1");
    assert_int_equal(peer_send_bytes(&producer, with_fds, strlen(with_fds), &fd, 1),
                     strlen(with_fds));
    close(fd);
    fds_before--;
    peer_send(&reader, REQUEST(1, "open", "\"name\":\"late\",\"wait_ms\":60000"));
    inside_turn(&inside);
    assert_null(peer_line(&reader));
    peer_close(&holder);
    inside_turn(&inside);
    inside_check(&inside); /* nobody is left awake and unserved */
    expect_next(&producer, "\"version\"");
    expect_next(&reader, "\"lease\":2");
    assert_int_equal(reader.fds, 1);
    peer_close(&producer);
    peer_close(&reader);
}

/* Two objects whose descriptions together are longer than a message, opened in one call: the second
   is told to come later, and the session lives on. */
TEST_WITH(test_open_many_too_long, NULL, tear_down)
{
    size_t size = 700000, at;
    char *request = malloc(size + 4096), *line;
    struct peer peer;

    assert_non_null(request);
    begin(small);
    assert_true(peer_connect(&inside, &peer));
    for (int object = 0; object < 2; object++) {
        char seal[128];

        at = (size_t)sprintf(request,
                             "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"create\",\"params\":{"
                             "\"name\":\"o%d\",\"layout\":{\"kind\":\"column\",\"dtype\":\"int8\","
                             "\"length\":8,\"metadata\":{\"k\":\"",
                             object);
        memset(request + at, 'x', size);
        strcpy(request + at + size, "\"}}}}\n");
        for (size_t sent = 0, all = strlen(request); sent < all;) {
            sent += peer_send_bytes(&peer, request + sent, all - sent, NULL, 0);
            inside_turn(&inside);
        }
        line = await(&peer);
        while (!line)
            line = await(&peer);
        assert_non_null(strstr(line, "\"lease\""));
        free(line);
        snprintf(seal, sizeof(seal), REQUEST(2, "seal", "\"lease\":%d,\"release\":true"),
                 object + 1);
        expect(&peer, seal, "version");
    }
    peer_send(&peer, REQUEST(3, "open", "\"names\":[\"o0\",\"o1\",\"o0\"]"));
    for (line = NULL; !line && !peer.closed;)
        line = await(&peer);
    assert_non_null(line);
    assert_non_null(strstr(line, "\"lease\":3"));
    assert_non_null(strstr(line, "\"limit\":\"line_bytes\""));
    free(line);
    expect(&peer, REQUEST(4, "open", "\"names\":[\"none\"]"), "not_found");
    peer_close(&peer);
    free(request);
}

/* Rule 1: what was sent before another session's end is served after it, in whatever order the loop
   hears of them. */
/* RELIABILITY.md: Clients that end 1 */
TEST_WITH(test_the_dead_go_first, NULL, tear_down)
{
    struct peer dead, living;

    begin(small);
    assert_true(peer_connect(&inside, &living));
    assert_true(peer_connect(&inside, &dead));
    for (int round = 0; round < 4; round++) {
        expect(&dead, CREATE(1, "a", 8388608, ""), "\"lease\"");
        /* One turn finds both: the request and the end. */
        peer_close(&dead);
        expect(&living, CREATE(2, "b", 8388608, ""), "\"lease\"");
        peer_close(&living);
        assert_true(peer_connect(&inside, &dead));
        assert_true(peer_connect(&inside, &living));
        expect(&dead, REQUEST(3, "hello", "\"protocol\":1"), "instance");
    }
    peer_close(&dead);
    peer_close(&living);
}

/* ---- slices ---- */

#define PING(id) REQUEST(id, "stat", "\"name\":\"none\"")

/* How many answers have come. */
static unsigned answers(struct peer *peer)
{
    unsigned count = 0;
    char *line;

    for (; (line = peer_line(peer)); count++)
        free(line);
    return count;
}

/* With no time at all a session is served one request a turn: who asks for much goes on behind who
   asks for little, and each gets all of its answers, in order. */
/* RELIABILITY.md: Hostile clients 1 */
TEST_WITH(test_one_request_a_slice, NULL, tear_down)
{
    struct peer flood, modest;
    char expected[64];
    unsigned heard;

    begin(small);
    assert_true(peer_connect(&inside, &flood));
    assert_true(peer_connect(&inside, &modest));
    inside.server.turns.slice_ns = 0;
    for (int i = 0; i < 100; i++) {
        char line[128];

        snprintf(
            line, sizeof(line),
            "{\"jsonrpc\":\"2.0\",\"id\":%d,\"method\":\"stat\",\"params\":{\"name\":\"none\"}}\n",
            i);
        peer_send(&flood, line);
    }
    inside_turn(&inside);
    inside_check(&inside);
    heard = answers(&flood);
    assert_true(heard >= 1 && heard < 5);
    for (int turn = 0; turn < 20; turn++) {
        peer_send(&modest, PING(1));
        inside_turn(&inside);
        inside_turn(&inside); /* the other's turn may come first, once */
        inside_check(&inside);
        assert_int_equal(answers(&modest), 1);
    }
    heard += answers(&flood);
    assert_true(heard < 60);
    for (unsigned i = heard; i < 100; i++) {
        snprintf(expected, sizeof(expected), "\"id\":%u,", i);
        expect_next(&flood, expected);
    }
    assert_int_equal(answers(&flood), 0);
    peer_close(&flood);
    peer_close(&modest);
}

/* Two peers; the first has sealed `p`. */
static void begin_with_p(struct peer *flood, struct peer *modest)
{
    begin(small);
    assert_true(peer_connect(&inside, flood));
    assert_true(peer_connect(&inside, modest));
    expect(flood, CREATE(1, "p", 64, ""), "\"lease\"");
    expect(flood, REQUEST(2, "seal", "\"lease\":1"), "version");
}

/* The loop is woken while lines are kept, and nothing is lost when the peer is gone. */
/* RELIABILITY.md: Clients that end 3 */
TEST_WITH(test_gone_while_behind, NULL, tear_down)
{
    struct peer flood, modest;

    begin_with_p(&flood, &modest);
    inside.server.turns.slice_ns = 0;
    for (int i = 0; i < 8; i++)
        peer_send(&flood, PING(3));
    peer_send(&flood, REQUEST(4, "delete", "\"name\":\"p\""));
    inside_turn(&inside);
    assert_true(peer_session(&inside, &flood)->input == GB_INPUT_KEPT);
    assert_true(uv_loop_alive(&inside.loop));
    peer_close(&flood);
    expect(&modest, REQUEST(1, "list", ""), "\"objects\":[]"); /* it was heard to its end first */
    assert_null(peer_session(&inside, &flood));
    peer_close(&modest);
}

/* `found`: by somebody who is served before it. */
static void gone_with_much_to_do(bool found)
{
    struct peer flood, modest;

    begin_with_p(&flood, &modest);
    expect(&flood, CREATE(3, "q", 64, ""), "\"lease\":2");
    inside.server.turns.slice_ns = inside.server.turns.drain_ns = 0;
    for (int i = 0; i < 50; i++)
        peer_send(&flood, PING(4));
    peer_send(&flood, REQUEST(5, "open", "\"name\":\"p\""));
    for (int i = 0; i < 50; i++)
        peer_send(&flood, PING(4));
    peer_send(&flood, REQUEST(6, "seal", "\"lease\":2"));
    peer_close(&flood);
    if (found)
        gb_sessions_end_hung_up(&inside.server);
    for (int turn = 0; turn < 90; turn++) {
        expect(&modest, REQUEST(1, "stat", "\"name\":\"p\""), "\"leases\":0");
        inside_check(&inside);
    }
    assert_int_equal(inside.server.session_count, 2);
    for (int turn = 0; turn < 100 && inside.server.session_count > 1; turn++)
        inside_turn(&inside);
    assert_int_equal(inside.server.session_count, 1);
    expect(&modest, REQUEST(1, "stat", "\"name\":\"q\""), "\"version\":2");
    expect(&modest, REQUEST(1, "leases", ""), "\"leases\":[]");
    peer_close(&modest);
    end();
}

/* A session that hung up and left much to do is served in slices; nobody sees what it held. */
/* RELIABILITY.md: Clients that end 3 */
TEST(test_gone_with_much_to_do)
{
    gone_with_much_to_do(false);
    gone_with_much_to_do(true);
}

/* Names that a session waited for are left in slices when it has hung up; who publishes one of them
   meanwhile wakes nobody. */
/* RELIABILITY.md: Hostile clients 8 */
TEST_WITH(test_gone_while_waiting_for_many_names, NULL, tear_down)
{
    enum { REQUESTS = 32, NAMES = 64 };
    const struct gb_hash_table *awaited = &inside.server.missings.table;
    struct peer flood, modest;

    begin_with_p(&flood, &modest);
    for (int i = 0; i < REQUESTS; i++) {
        char line[4096];
        int at = sprintf(line, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"open\",\"params\":{"
                               "\"wait_ms\":60000,\"names\":[");

        for (int k = 0; k < NAMES; k++)
            at += sprintf(line + at, "%s\"n/%d/%d\"", k ? "," : "", i, k);
        strcpy(line + at, "]}}\n");
        peer_send(&flood, line);
        inside_turn(&inside);
    }
    assert_int_equal(awaited->count, REQUESTS * NAMES);
    inside.server.turns.slice_ns = 0;
    peer_close(&flood);
    inside_turn(&inside);
    assert_int_equal(inside.server.session_count, 1);
    assert_in_range(awaited->count, 1, REQUESTS * NAMES - 1);
    expect(&modest, CREATE(1, "n/0/0", 64, ""), "\"lease\":2");
    expect(&modest, REQUEST(2, "seal", "\"lease\":2"), "version");
    for (int turn = 0; turn < REQUESTS && awaited->count > 0; turn++) {
        inside_turn(&inside);
        inside_check(&inside);
    }
    assert_int_equal(awaited->count, 0);
    peer_close(&modest);
}

/* Input kept for a user is limited: a session with more of it than a little ends, one with little
   stays. */
/* RELIABILITY.md: Hostile clients 13 */
TEST_WITH(test_held_for_a_user, NULL, tear_down)
{
    static const char *const options[] = {"--device", "host:8M", "--limit", "held_bytes=300K",
                                          NULL};
    static char half[200 * 1024];
    struct peer peers[3];

    begin(options);
    memset(half, ' ', sizeof(half));
    half[0] = '[';
    for (int i = 0; i < 3; i++)
        assert_true(peer_connect(&inside, &peers[i]));
    for (int i = 0; i < 2; i++)
        for (size_t sent = 0; sent < sizeof(half) && peer_session(&inside, &peers[i]);) {
            sent += peer_send_bytes(&peers[i], half + sent, sizeof(half) - sent, NULL, 0);
            inside_turn(&inside);
            inside_check(&inside);
        }
    for (int turn = 0; turn < 8; turn++)
        inside_turn(&inside);
    assert_non_null(peer_session(&inside, &peers[0]));
    assert_null(peer_session(&inside, &peers[1]));
    expect(&peers[2], PING(1), "not_found");
    for (int i = 0; i < 3; i++)
        peer_close(&peers[i]);
}

/* It sends, and is gone, with an answer that it has not read: nobody else is there whose requests
   would show that. */
TEST_WITH(test_gone_without_reading, NULL, tear_down)
{
    struct peer peer;

    begin(small);
    assert_true(peer_connect(&inside, &peer));
    expect(&peer, CREATE(1, "a", 100, ""), "lease");
    peer_send(&peer, REQUEST(2, "stat", "\"name\":\"none\""));
    inside_turn(&inside);
    peer_send(&peer, REQUEST(3, "open", "\"name\":\"none\",\"wait_ms\":60000"));
    peer_close(&peer);
    for (int turn = 0; turn < 3; turn++)
        inside_turn(&inside);
    assert_int_equal(inside.server.session_count, 0);
    assert_int_equal(inside.server.registry.leases.count, 0);
}

/* A session that has just begun is behind one busy session of each other user, not behind a
   crowd. */
/* RELIABILITY.md: Hostile clients 2 */
TEST_WITH(test_users_take_turns, NULL, tear_down)
{
    enum { CROWD = 60, REQUESTS = 20 };
    struct peer crowd[CROWD], newcomer;
    unsigned turns = 0, answers = 0;
    char *line;

    begin(small);
    for (int i = 0; i < CROWD; i++) {
        assert_true(peer_connect(&inside, &crowd[i]));
        peer_become(&inside, &crowd[i], 1234);
        for (int k = 0; k < REQUESTS; k++)
            peer_send(&crowd[i], REQUEST(1, "stats", ""));
    }
    inside.server.turns.slice_ns = 0; /* one busy session a turn, and one request of it */
    for (int i = 0; i < CROWD + 5; i++)
        inside_turn(&inside);
    assert_true(peer_connect(&inside, &newcomer));
    peer_send(&newcomer, REQUEST(2, "stats", ""));
    while (!(line = peer_line(&newcomer)) && turns++ < CROWD)
        inside_turn(&inside);
    assert_non_null(line);
    free(line);
    assert_in_range(turns, 1, 4);
    peer_close(&crowd[0]); /* which waits for its turn */
    for (int i = 0; i < 2 * CROWD * REQUESTS; i++)
        inside_turn(&inside);
    for (int i = 1; i < CROWD; i++)
        for (; (line = peer_line(&crowd[i])); answers++)
            free(line);
    assert_int_equal(answers, (CROWD - 1) * REQUESTS); /* nobody is left out */
    inside.server.turns.slice_ns = INT64_MAX / 4;
    for (int i = 1; i < CROWD; i++)
        peer_close(&crowd[i]);
    peer_close(&newcomer);
}

static void tell_nothing(struct gb_served *user, uint64_t until)
{
}

/* A user whose watches are far behind has no requests served until they are not. */
TEST_WITH(test_watchers_behind_are_not_served, NULL, tear_down)
{
    static const char replace[] =
        REQUEST(3, "alias", "\"name\":\"m\",\"of\":\"n\",\"replace\":true");
    struct peer writer, watcher;
    const struct gb_session *session;
    unsigned turns = 0;
    char *line = NULL;

    begin(small);
    assert_true(peer_connect(&inside, &writer));
    assert_true(peer_connect(&inside, &watcher));
    peer_become(&inside, &watcher, 1234);
    session = peer_session(&inside, &watcher);
    const struct gb_service *service = inside.server.service;
    struct gb_service without_time = *service;
    without_time.send_news = tell_nothing;
    expect(&writer, CREATE(1, "n", 1, ",\"mode\":\"0644\""), "\"lease\":1");
    expect(&writer, REQUEST(2, "seal", "\"lease\":1,\"release\":true"), "version");
    expect(&watcher, REQUEST(3, "watch", "\"existing\":false"), "\"watch\":");
    inside.server.turns.slice_ns = 0;
    inside.server.service = &without_time;
    while (inside.server.seq - session->watching.seq < 1024)
        expect(&writer, replace, "\"version\"");
    expect(&watcher, PING(4), "\"id\":4");
    while (inside.server.seq - session->watching.seq <= 1024)
        expect(&writer, replace, "\"version\"");
    peer_send(&watcher, PING(5));
    for (int turn = 0; turn < 10; turn++)
        inside_turn(&inside);
    assert_null(peer_line(&watcher));
    inside.server.service = service;
    inside.server.turns.slice_ns = INT64_MAX / 4;
    while (!(line && strstr(line, "\"id\":5")) && turns++ < 10000) {
        free(line);
        inside_turn(&inside);
        line = peer_line(&watcher);
    }
    assert_non_null(line);
    free(line);
    peer_close(&writer);
    peer_close(&watcher);
}

/* Nor is it behind those of its own user that have hung up and left much to do. */
/* RELIABILITY.md: Hostile clients 2 */
TEST_WITH(test_the_living_go_before_those_who_drain, NULL, tear_down)
{
    enum { CROWD = 60, REQUESTS = 40 };
    struct peer crowd[CROWD], newcomer;
    unsigned turns = 0;
    char *line;

    begin(small);
    for (int i = 0; i < CROWD; i++) {
        assert_true(peer_connect(&inside, &crowd[i]));
        for (int k = 0; k < REQUESTS; k++)
            peer_send(&crowd[i], REQUEST(1, "stats", ""));
    }
    inside.server.turns.slice_ns = 0; /* one busy session a turn, and one request of it */
    inside.server.turns.drain_ns = 0;
    inside_turn(&inside); /* some wait for their turn when they hang up */
    for (int i = 0; i < CROWD; i++)
        peer_close(&crowd[i]);
    inside_turn(&inside);
    assert_int_equal(inside.server.session_count, CROWD);
    for (uint64_t request = 0; request < 3; request++) {
        turns = 0;
        if (request == 0)
            assert_true(peer_connect(&inside, &newcomer));
        peer_send(&newcomer, REQUEST(2, "stats", ""));
        while (!(line = peer_line(&newcomer)) && turns++ < CROWD)
            inside_turn(&inside);
        assert_non_null(line);
        free(line);
        assert_in_range(turns, 1, 4);
    }
    while (inside.server.session_count > 1 && turns++ < 4 * CROWD * REQUESTS)
        inside_turn(&inside);
    assert_int_equal(inside.server.session_count, 1); /* they are served to their end */
    inside.server.turns.slice_ns = INT64_MAX / 4;
    inside.server.turns.drain_ns = INT64_MAX / 4;
    peer_close(&newcomer);
}

/* A user's waits that end together are answered in its turns, so that they hold up nobody. */
/* RELIABILITY.md: Hostile clients 12 */
TEST_WITH(test_ended_waits_take_turns, NULL, tear_down)
{
    enum { CROWD = 60 };
    struct peer crowd, modest;
    unsigned answers = 0;
    char *line;

    begin(small);
    assert_true(peer_connect(&inside, &crowd));
    assert_true(peer_connect(&inside, &modest));
    peer_become(&inside, &crowd, 1234);
    for (int i = 0; i < CROWD; i++)
        peer_send(&crowd, REQUEST(1, "open", "\"name\":\"none\",\"wait_ms\":1000"));
    inside_turn(&inside);
    peer_send(&modest, REQUEST(2, "open", "\"name\":\"none\",\"wait_ms\":60000"));
    inside_turn(&inside);
    while (gb_timers_fire_next(&inside.server.timers, UINT64_MAX))
        ;
    inside.server.turns.slice_ns = 0; /* a turn answers one of them */
    for (int i = 0; i < 2; i++)
        inside_turn(&inside);
    while ((line = peer_line(&crowd))) {
        free(line);
        answers++;
    }
    assert_in_range(answers, 1, 2);
    line = peer_line(&modest);
    assert_non_null(line);
    assert_non_null(strstr(line, "\"timeout\""));
    free(line);
    for (int i = 0; i < CROWD; i++)
        inside_turn(&inside);
    inside.server.turns.slice_ns = INT64_MAX / 4;
    for (; (line = peer_line(&crowd)); answers++)
        free(line);
    assert_int_equal(answers, CROWD);
    peer_close(&crowd);
    peer_close(&modest);
}

/* ---- pieces of what is much ---- */

/* A peer that has sealed `n`, in all of a device of 4 MiB. */
static struct gb_object *begin_with_n(struct peer *peer)
{
    begin((const char *const[]){"--device", "host:4M", NULL});
    assert_true(peer_connect(&inside, peer));
    expect(peer, REQUEST(1, "hello", "\"protocol\":1,\"cache\":true"), "instance");
    expect(peer, CREATE(2, "n", 4194304, ""), "\"lease\":1");
    expect(peer, REQUEST(3, "seal", "\"lease\":1,\"release\":true"), "version");
    return gb_registry_find(&inside.server.registry, "n", 1);
}

/* The end of the grace period: however many objects it holds, a turn lets some of them go. */
TEST_WITH(test_the_grace_period_ends_in_pieces, NULL, tear_down)
{
    enum { MANY = 5000, MOST = 256 };
    struct gb_registry *registry = &inside.server.registry;
    struct gb_state *kept = &inside.server.state;
    struct peer peer;
    struct gb_storage *storage = begin_with_n(&peer)->storage;
    unsigned turns = 0;
    uint64_t before;

    for (unsigned i = 0; i < MANY; i++) {
        struct gb_object *object = gb_object_new(registry, "", 0, storage, storage->maker.user);

        assert_non_null(object);
        gb_storage_ref(storage);
        assert_int_equal(gb_state_keep_object(kept, object, 0), 0);
    }
    kept->grace_until = 1000;
    assert_false(gb_state_run_due(kept, 999));
    assert_int_equal(registry->grace_count, MANY);
    do {
        before = registry->grace_count;
        assert_true(gb_state_due(kept) <= 1000); /* the loop does not sleep before the rest */
        turns++;
    } while (!gb_state_run_due(kept, 1000) && before - registry->grace_count <= MOST);
    assert_true(before - registry->grace_count <= MOST);
    assert_int_equal(registry->grace_count, 0);
    assert_int_equal(turns, MANY / MOST + 1);
    peer_close(&peer);
}

static unsigned recalled_of(const struct gb_storage *storage)
{
    unsigned recalled = 0;

    GB_LIST_EACH(&storage->idles, const struct gb_lease, lease, of_idle)
        recalled += lease->recalled_ms > 0;
    return recalled;
}

/* However many kept leases a storage has, a try recalls a part of them and the next one goes on, to
   the end. A holder that has not answered in time has all of them in use, a part in each try,
   too. */
/* RELIABILITY.md: Hostile clients 12 */
TEST_WITH(test_recall_in_parts, NULL, tear_down)
{
    enum { MANY = 1300, PART = 512 };
    struct gb_registry *registry = &inside.server.registry;
    const struct gb_device *device;
    struct gb_storage *storage;
    struct peer peer;
    uint64_t changes;

    storage = begin_with_n(&peer)->storage;
    device = storage->key.device;
    registry->recall_ms = 100;
    aliases_of_n(&peer, MANY - 1);
    GB_LIST_EACH(&storage->objects, struct gb_object, object, of_storage) {
        struct gb_holder *holder = &peer_session(&inside, &peer)->holder;
        struct gb_lease *lease = gb_lease_new(registry, object, holder, false, 5);

        gb_lease_slot(registry, lease, 5);
        gb_lease_idle(registry, lease, 5);
    }
    for (unsigned told = 0; told < MANY;) {
        changes = device->changes;
        assert_true(gb_storage_recall(registry, storage, 1000, &(unsigned){0}));
        told = told + PART < MANY ? told + PART : MANY;
        assert_int_equal(recalled_of(storage), told);
        assert_int_equal(device->changes > changes, told < MANY); /* so there is a next try */
    }
    changes = device->changes;
    assert_true(gb_storage_recall(registry, storage, 1050, &(unsigned){0}));
    assert_int_equal(device->changes, changes); /* it waits for answers */
    for (unsigned left = MANY; left > 0;) {
        bool waits = left > PART;

        assert_int_equal(gb_storage_recall(registry, storage, 1100, &(unsigned){0}), waits);
        left = waits ? left - PART : 0;
        assert_int_equal(registry->idle_count, left);
    }
    peer_close(&peer);
}

RUN_TESTS(warm_up, NULL)
