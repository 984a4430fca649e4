/*
 * Every allocation of the daemon fails in turn, for each kind of request: by itself, and with all
 * that come after it. The request then fails or its session ends, other sessions go on, every
 * account is right, and nothing is lost. The Makefile has the linker send the daemon's allocations
 * here (--wrap); those of the libraries are left alone.
 */

#define DEMAND(condition) assert_true(condition)
#include "tests/cases.h"

#include <dirent.h>

#include "inside.h"
#include "is_json.h"

/* Of each thread: movers allocate when they like. */
static _Thread_local struct {
    bool armed;
    unsigned calls, first, count;
} failing;

/* The number of the movers' allocation that fails; 0: none does, or it has failed. */
static _Atomic(unsigned) of_movers;

static bool fails(void)
{
    if (gettid() != getpid())
        return atomic_load(&of_movers) > 0 && atomic_fetch_sub(&of_movers, 1) == 1;
    if (!failing.armed)
        return false;
    failing.calls++;
    return failing.calls >= failing.first && failing.calls - failing.first < failing.count;
}

/* NOLINTBEGIN(bugprone-reserved-identifier): the linker's names */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}

char *__wrap_strdup(const char *text)
{
    return fails() ? NULL : __real_strdup(text);
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* ---- what is tried ---- */

#define CALL(method, params)                                                                       \
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"" method "\",\"params\":{" params "}}\n"
#define BYTES(n) "\"layout\":{\"kind\":\"bytes\",\"bytes\":" #n "}"
#define TABLE                                                                                      \
    "\"layout\":{\"kind\":\"table\",\"length\":4,\"columns\":[{\"name\":\"a\",\"dtype\":"          \
    "\"int32\",\"length\":4,\"mask\":{},\"metadata\":{\"k\":\"v\"}},{\"name\":\"t\",\"dtype\":"    \
    "\"utf8\",\"length\":4,\"data\":{\"bytes\":9}}]}"
#define REGISTER(more)                                                                             \
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"fds\":1,\"method\":\"register\",\"params\":{\"name\":\"r\","  \
    "\"layout\":{\"kind\":\"bytes\",\"bytes\":64,\"data\":{\"handle\":0,\"offset\":0,\"bytes\":"   \
    "64}},\"handles\":[{\"kind\":\"memfd\",\"fd\":0,\"bytes\":65536,\"device\":\"host\"}]" more    \
    "}}\n"
#define LARGE                                                                                      \
    CALL("create", "\"name\":\"p\"," BYTES(4194304)),                                              \
        CALL("seal", "\"lease\":1,\"release\":true"), CALL("unmap", "\"segments\":[1]")
#define SPILLED CALL("move", "\"name\":\"p\"")
#define PUBLISHED CALL("create", "\"name\":\"p\"," TABLE), CALL("seal", "\"lease\":1")

/*
 * `before` is said in peace, each step by the first session, or, with a '2' in front, by the
 * second. Then memory is short while `request` is said, likewise. The first session is owed an
 * answer or event for it, unless it waits or is half a message.
 */
static const struct scenario {
    const char *name;
    const char *request;
    const char *before[6];
} scenarios[] = {
    {"hello", CALL("hello", "\"protocol\":1,\"client\":\"me\""), {NULL}},
    {"create", CALL("create", "\"name\":\"p\"," BYTES(100)), {NULL}},
    {"create a large one", CALL("create", "\"name\":\"p\"," BYTES(4194304)), {NULL}},
    {"create a table", CALL("create", "\"name\":\"p\",\"ttl_ms\":60000," TABLE), {NULL}},
    {"create by evicting",
     CALL("create", "\"name\":\"q\"," BYTES(8388608)),
     {CALL("create", "\"name\":\"p\"," BYTES(8388608)),
      CALL("seal", "\"lease\":1,\"release\":true"), CALL("unmap", "\"segments\":[1]")}},
    {"create that waits",
     CALL("create", "\"name\":\"q\",\"wait_ms\":60000," BYTES(8388608)),
     {"2" CALL("create", "\"name\":\"p\"," BYTES(8388608))}},
    {"create that has waited",
     "2" CALL("release", "\"lease\":1") CALL("unmap", "\"segments\":[1]"),
     {"2" CALL("create", "\"name\":\"p\"," BYTES(8388608)),
      CALL("create", "\"name\":\"q\",\"wait_ms\":60000," BYTES(8388608))}},
    {"seal",
     CALL("seal", "\"lease\":1,\"null_counts\":{\"a\":1}"),
     {CALL("create", "\"name\":\"p\",\"ttl_ms\":60000," TABLE)}},
    {"seal over another",
     CALL("seal", "\"lease\":2,\"release\":true"),
     {PUBLISHED, CALL("create", "\"name\":\"p\",\"replace\":true," TABLE)}},
    {"release of an unsealed object",
     CALL("release", "\"lease\":1"),
     {CALL("create", "\"name\":\"p\"," TABLE)}},
    {"open",
     CALL("open", "\"name\":\"p\""),
     {"2" CALL("create", "\"name\":\"p\"," TABLE), "2" CALL("seal", "\"lease\":1")}},
    {"open many",
     CALL("open", "\"names\":[\"p\",\"none\",\"p\"]"),
     {"2" CALL("create", "\"name\":\"p\"," TABLE), "2" CALL("seal", "\"lease\":1")}},
    {"open that waits", CALL("open", "\"names\":[\"p\",\"q\"],\"wait_ms\":60000"), {NULL}},
    {"open that has waited",
     "2" CALL("seal", "\"lease\":1"),
     {CALL("open", "\"name\":\"p\",\"wait_ms\":60000"),
      "2" CALL("create", "\"name\":\"p\"," TABLE)}},
    {"release", CALL("release", "\"leases\":[1,2]"), {PUBLISHED}},
    {"hello with a page", CALL("hello", "\"protocol\":1,\"cache\":true"), {NULL}},
    {"cache",
     CALL("cache", "\"leases\":[2,1]"),
     {CALL("hello", "\"protocol\":1,\"cache\":true"), PUBLISHED, CALL("open", "\"name\":\"p\"")}},
    {"delete what is kept",
     CALL("delete", "\"name\":\"p\""),
     {CALL("hello", "\"protocol\":1,\"cache\":true"), PUBLISHED, CALL("open", "\"name\":\"p\""),
      CALL("cache", "\"leases\":[2]")}},
    {"register", REGISTER(""), {NULL}},
    {"register that waits",
     REGISTER(",\"wait_ms\":60000"),
     {"2" CALL("create", "\"name\":\"p\"," BYTES(8388608))}},
    {"alias",
     CALL("alias", "\"name\":\"q\",\"of\":\"p\",\"columns\":[\"a\"],\"slice\":{\"offset\":1,"
                   "\"length\":2}"),
     {PUBLISHED}},
    {"delete", CALL("delete", "\"names\":[\"p\",\"q\"]"), {PUBLISHED}},
    {"list", CALL("list", "\"prefix\":\"p\""), {PUBLISHED}},
    {"stat", CALL("stat", "\"name\":\"p\""), {PUBLISHED}},
    {"pin", CALL("set", "\"name\":\"p\",\"pinned\":true"), {PUBLISHED}},
    {"expire", CALL("set", "\"name\":\"p\",\"ttl_ms\":60000"), {PUBLISHED}},
    {"why", CALL("stat", "\"name\":\"p\",\"why\":true"), {PUBLISHED}},
    {"leases", CALL("leases", ""), {PUBLISHED}},
    {"unmap", CALL("unmap", "\"segments\":[1]"), {PUBLISHED}},
    {"trim", CALL("trim", ""), {PUBLISHED}},
    {"watch", CALL("watch", "\"prefix\":\"p\",\"kinds\":[\"sealed\",\"synced\"]"), {PUBLISHED}},
    {"an event",
     "2" CALL("seal", "\"lease\":1"),
     {CALL("watch", ""), "2" CALL("create", "\"name\":\"p\"," TABLE)}},
    {"provide", CALL("provide", "\"prefix\":\"p\""), {NULL}},
    {"open that a provider is asked for",
     CALL("open", "\"name\":\"p\",\"wait_ms\":60000"),
     {"2" CALL("provide", "\"prefix\":\"p\"")}},
    {"decline",
     "2" CALL("decline", "\"request\":1,\"message\":\"no\""),
     {"2" CALL("provide", "\"prefix\":\"p\""), CALL("open", "\"name\":\"p\",\"wait_ms\":60000")}},
    {"unwatch", CALL("unwatch", "\"watch\":1"), {CALL("watch", "")}},
    {"settle", CALL("settle", "\"objects\":[{\"name\":\"p\",\"version\":1}]"), {PUBLISHED}},
    {"stats", CALL("stats", ""), {NULL}},
    {"describe", CALL("describe", ""), {NULL}},
    {"a quota",
     CALL("create", "\"name\":\"q\"," BYTES(8388607)),
     {CALL("create", "\"name\":\"p\"," BYTES(4194304))}},
    {"resume",
     CALL("hello", "\"protocol\":1,\"resume\":{\"instance\":\"0123456789abcdef0123456789abcdef\","
                   "\"objects\":[{\"name\":\"p\",\"version\":1}]}"),
     {NULL}},
    {"a claim",
     CALL("open", "\"name\":\"p\",\"access\":\"write\",\"exclusive\":true"),
     {CALL("create", "\"name\":\"p\",\"live\":true," BYTES(64)), CALL("release", "\"lease\":1")}},
    {"what is no request", "{\"id\":1}\n", {NULL}},
    {"what is no JSON", "}\n", {NULL}},
    {"half a message", "{\"jsonrpc\":", {NULL}},
};

/* With a disk below the device, on which what has to leave is kept; `p` is never lost. */
static const struct scenario tiered[] = {
    {"spill", CALL("move", "\"name\":\"p\""), {LARGE}},
    {"spill that is watched", CALL("move", "\"name\":\"p\""), {LARGE, CALL("watch", "")}},
    {"restore", CALL("move", "\"name\":\"p\",\"tier\":\"device\""), {LARGE, SPILLED}},
    {"open of what was spilled", CALL("open", "\"name\":\"p\""), {LARGE, SPILLED}},
    {"open of much that was spilled",
     CALL("open", "\"names\":[\"p\",\"p\",\"none\"],\"wait_ms\":0"),
     {LARGE, SPILLED}},
    {"create by spilling", CALL("create", "\"name\":\"q\"," BYTES(8388608)), {LARGE}},
    {"alias with a layout",
     CALL("alias", "\"name\":\"q\",\"of\":\"p\",\"layout\":{\"kind\":\"bundle\",\"bytes\":90,"
                   "\"manifest_bytes\":2,\"data\":{\"offset\":8,\"bytes\":90},"
                   "\"parts\":[\"a\",\"\\u0062*\"]}"),
     {"2" CALL("create", "\"name\":\"p\"," BYTES(100)), "2" CALL("seal", "\"lease\":1")}},
    {"alias of what was spilled", CALL("alias", "\"name\":\"q\",\"of\":\"p\""), {LARGE, SPILLED}},
    {"stat of what was spilled", CALL("stat", "\"name\":\"p\""), {LARGE, SPILLED}},
    {"stats of tiers", CALL("stats", ""), {LARGE, SPILLED}},
};

static struct inside inside;
static struct peer peers[2];
static char tier_directory[] = "/tmp/gpubufd-tier-XXXXXX";

static void say(const char *text, int fd)
{
    bool second = *text == '2';

    text += second;
    assert_int_equal(peer_send_bytes(&peers[second], text, strlen(text), &fd, fd >= 0),
                     strlen(text));
}

static bool heard_error;

/* Lines that have come for a peer; each is JSON. */
static unsigned hear(struct peer *peer)
{
    unsigned lines = 0;
    char *line;

    for (; (line = peer_line(peer)); lines++) {
        assert_true(is_json(line, strlen(line)));
        heard_error |= strstr(line, "\"error\"") != NULL;
        free(line);
    }
    return lines;
}

/* A session that is still there is served as ever. */
static void go_on(struct peer *peer, bool half_line)
{
    struct gb_session *session = peer_session(&inside, peer);

    if (!session) {
        peer_receive(peer);
        assert_true(peer->closed);
        return;
    }
    if (half_line)
        peer_send(peer, "\n");
    hear(peer);
    peer_send(peer, CALL("list", ""));
    inside_turn(&inside);
    inside_turn(&inside);
    assert_int_equal(hear(peer), half_line ? 2 : 1);
}

/* Until movers have nothing to do. */
static void settle(void)
{
    inside_turn(&inside);
    while (inside.server.spill.moves > 0)
        inside_turn(&inside);
    inside_turn(&inside);
}

/* Before a turn: what is under way on other threads has its time. */
static void await_movers(void)
{
    if (inside.server.spill.moves + inside.server.spill.tiers[GB_TIER_DISK].going > 0)
        uv_run(&inside.loop, UV_RUN_ONCE);
}

/* Sealed objects are there, and come back if they were away. */
static void not_lost(const char *what)
{
    struct peer peer;
    char *line = NULL;

    assert_true(peer_connect(&inside, &peer));
    peer_send(&peer, CALL("open", "\"name\":\"p\",\"wait_ms\":60000"));
    for (int i = 0; i < 100 && !line; i++) {
        settle();
        line = peer_line(&peer);
    }
    if (!line || !strstr(line, "\"lease\""))
        fail_msg("%s: p is lost: %s", what, line ? line : "no answer");
    free(line);
    peer_close(&peer);
    inside_turn(&inside);
}

/* True if the n-th allocation was reached; with `count` 0, of the movers'. */
static bool try(const struct scenario *scenario, bool tiers, unsigned n, unsigned count)
{
    int fd = strstr(scenario->request, "\"fds\":1") ? sealed_memfd(65536, F_SEAL_SHRINK) : -1;
    bool half_line = !strchr(scenario->request, '\n'), reached;
    bool owed = !half_line && !strstr(scenario->request, "\"wait_ms\":60000");
    char tier[64];
    unsigned answers;

    snprintf(tier, sizeof(tier), "disk:64M:%s", tier_directory);
    inside_begin(&inside, tiers ? (const char *const[]){"--device", "host:8M", "--tier", tier, NULL}
                                : (const char *const[]){"--device", "host:8M", NULL});
    inside.work = tiers ? await_movers : NULL;
    inside.server.missings.providers.last_request = 0; /* the first is 1 */
    for (int i = 0; i < 2; i++)
        assert_true(peer_connect(&inside, &peers[i]));
    for (const char *const *step = scenario->before; *step; step++) {
        say(*step, -1);
        settle();
        hear(&peers[0]);
        hear(&peers[1]);
    }
    say(scenario->request, fd);
    failing.calls = 0;
    failing.first = n;
    failing.count = count;
    failing.armed = true;
    atomic_store(&of_movers, count > 0 ? 0 : n);
    inside_turn(&inside);
    while (inside.server.spill.moves > 0) /* and while content is moved for it */
        inside_turn(&inside);
    failing.armed = false;
    reached = count > 0 ? failing.calls >= n : atomic_exchange(&of_movers, 0) == 0;
    if (tiers)
        settle();
    inside_check(&inside);
    answers = hear(&peers[0]);
    if (*scenario->request == '2') { /* nothing is owed if it did not happen */
        heard_error = false;
        hear(&peers[1]);
        owed = !heard_error && peer_session(&inside, &peers[1]) != NULL;
    }
    if (owed && answers == 0 && peer_session(&inside, &peers[0]))
        fail_msg("%s: no answer after allocation %u failed", scenario->name, n);
    if (!reached && !peer_session(&inside, &peers[0]))
        fail_msg("%s: the session ended without need", scenario->name);
    go_on(&peers[0], half_line);
    go_on(&peers[1], false);
    inside_check(&inside);
    if (tiers) {
        for (int i = 0; i < 2; i++)
            peer_close(&peers[i]);
        settle();
        not_lost(scenario->name);
    }
    if (fd >= 0)
        close(fd);
    for (int i = 0; i < 2; i++)
        peer_close(&peers[i]);
    inside_empty(&inside);
    inside_end(&inside);
    return reached;
}

/* ---- coming back ---- */

#define INSTANCE "0123456789abcdef0123456789abcdef"
#define CLAIM CALL("open", "\"name\":\"p\",\"access\":\"write\",\"exclusive\":true")
#define COME_BACK                                                                                  \
    CALL("hello", "\"protocol\":1,\"resume\":{\"instance\":\"" INSTANCE "\",\"session\":2,"        \
                  "\"objects\":[{\"name\":\"p\",\"version\":1,\"write\":true}]}")

/* Says something to the first session, anew if that has ended; whether its answer has that text. */
static bool answers(const char *request, const char *expected)
{
    bool found = false;
    char *line;

    if (!peer_session(&inside, &peers[0])) {
        peer_close(&peers[0]);
        assert_true(peer_connect(&inside, &peers[0]));
    }
    peer_send(&peers[0], request);
    inside_turn(&inside);
    while ((line = peer_line(&peers[0]))) {
        found |= strstr(line, expected) != NULL;
        free(line);
    }
    return found;
}

/* A process comes back for its claim while memory is short, and again; another lease, which it does
   not ask for, ends. True if the n-th allocation was reached. */
static bool come_back(unsigned n, unsigned count)
{
    const struct gb_lease *claim;
    bool reached;

    inside_begin(&inside, (const char *const[]){"--device", "host:8M", NULL});
    memcpy(inside.server.instance, INSTANCE, sizeof(INSTANCE));
    for (int i = 0; i < 2; i++)
        assert_true(peer_connect(&inside, &peers[i]));
    say("2" CALL("create", "\"name\":\"p\",\"live\":true," BYTES(64)), -1);
    say("2" CALL("release", "\"lease\":1"), -1);
    say("2" CLAIM, -1);
    say("2" CALL("create", "\"name\":\"q\",\"live\":true," BYTES(64)), -1);
    settle();
    peer_close(&peers[1]);
    settle();
    claim = GB_LIST_FIRST(&gb_registry_find(&inside.server.registry, "p", 1)->live->writing,
                          struct gb_lease, of_writing);
    peer_send(&peers[0], COME_BACK);
    failing.calls = 0;
    failing.first = n;
    failing.count = count;
    failing.armed = true;
    inside_turn(&inside);
    failing.armed = false;
    reached = failing.calls >= n;
    inside_check(&inside);
    hear(&peers[0]);
    assert_true(answers(CLAIM, "is claimed by session"));
    if (claim->holder->orphan)
        assert_true(reached && answers(COME_BACK, "\"resumed\":[2]"));
    assert_true(claim->exclusive && !claim->holder->orphan);
    assert_int_equal(gb_registry_find(&inside.server.registry, "q", 1)->live->writers, 0);
    inside_check(&inside);
    peer_close(&peers[0]);
    inside_empty(&inside);
    inside_end(&inside);
    return reached;
}

/* RELIABILITY.md: The daemon ends 11 */
TEST(test_coming_back)
{
    for (unsigned from = 0; from < 2; from++) {
        unsigned n = 1;

        while (come_back(n, from ? UINT32_MAX : 1))
            n++;
        assert_true(n > 3); /* one for the session, at least, and one for what it maps */
    }
}

static void try_each(const struct scenario *all, size_t count, bool tiers)
{
    const unsigned counts[] = {1, UINT32_MAX, 0};
    size_t fds = open_fds();
    unsigned moved = 0;

    for (size_t i = 0; i < count; i++)
        for (unsigned from = 0; from < (tiers ? 3 : 2); from++) {
            unsigned n = 1;

            while (try(&all[i], tiers, n, counts[from]))
                n++;
            moved += counts[from] == 0 ? n - 1 : 0;
            assert_true(n > 1 || counts[from] == 0); /* something was asked for */
            if (open_fds() != fds)
                fail_msg("%s: descriptors are left open", all[i].name);
        }
    assert_true(!tiers || moved > 8); /* copies out and back allocate */
}

/* RELIABILITY.md: Memory is short 1 */
TEST(test_requests)
{
    try_each(scenarios, sizeof(scenarios) / sizeof(scenarios[0]), false);
}

/* RELIABILITY.md: Memory is short 2 */
TEST(test_tiers)
{
    char lock[64];

    assert_non_null(mkdtemp(tier_directory));
    try_each(tiered, sizeof(tiered) / sizeof(tiered[0]), true);
    snprintf(lock, sizeof(lock), "%s/gpubufd.lock", tier_directory);
    assert_int_equal(unlink(lock), 0);
    assert_int_equal(rmdir(tier_directory), 0); /* no other file is left */
}

/* A session that cannot be begun is not there, and its socket is closed. */
/* RELIABILITY.md: Memory is short 1 */
TEST(test_connecting)
{
    bool connected = false;

    for (unsigned n = 1; !connected; n++) {
        struct peer peer;

        inside_begin(&inside, (const char *const[]){"--device", "host:8M", NULL});
        failing.calls = 0;
        failing.first = n;
        failing.count = 1;
        failing.armed = true;
        connected = peer_connect(&inside, &peer);
        failing.armed = false;
        inside_check(&inside);
        peer_close(&peer);
        inside_empty(&inside);
        inside_end(&inside);
    }
}

/* Starting: it starts, or says why not, and leaves nothing behind. */
/* RELIABILITY.md: Memory is short 1 */
TEST(test_starting)
{
    char directory[] = "/tmp/gpubufd-XXXXXX", path[64];
    size_t fds = open_fds();
    int r = -1;

    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/s", directory);
    for (unsigned n = 1; r < 0; n++) {
        char *argv[] = {(char *)"gpubufd",  (char *)"--socket", path,
                        (char *)"--device", (char *)"host:8M",  NULL};
        struct gb_config config;
        struct gb_error error;
        uv_loop_t loop;

        assert_int_equal(gb_config_read(&config, argv, &error), 0);
        assert_int_equal(uv_loop_init(&loop), 0);
        failing.calls = 0;
        failing.first = n;
        failing.count = 1;
        failing.armed = true;
        r = gb_server_init(&inside.server, &config, &gb_methods, &error);
        if (r == 0)
            r = gb_server_listen(&inside.server, &loop, &error);
        failing.armed = false;
        assert_true(r == 0 || (r == GPUBUF_E_NO_MEMORY && error.message[0]));
        assert_true(r == 0 || n <= failing.calls);
        gb_server_end(&inside.server);
        assert_int_equal(uv_loop_close(&loop), 0);
        gb_config_end(&config);
    }
    assert_int_equal(rmdir(directory), 0);
    assert_int_equal(open_fds(), fds);
}

/* ---- starting after another ---- */

/* The journal of an earlier daemon, and its segments' descriptors, as its manager has them. */
static struct {
    void *journal;
    size_t length;
    int segments[4], unread;
    char names[4][24];
    unsigned count;
} left;

static struct gb_notify manager(void)
{
    int ends[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    left.unread = ends[1];
    return (struct gb_notify){.socket = ends[0], .fds = calloc(8, sizeof(struct gb_notify_fd))};
}

static void end_manager(struct gb_notify *notify)
{
    gb_notify_end(notify);
    close(left.unread);
}

/* Whether the manager was asked to drop a descriptor. */
static bool manager_drops(void)
{
    char text[4096];
    bool drops = false;

    for (ssize_t n; (n = recv(left.unread, text, sizeof(text) - 1, MSG_DONTWAIT)) > 0;) {
        text[n] = '\0';
        drops |= strstr(text, "FDSTOREREMOVE") != NULL;
    }
    return drops;
}

/* Two sealed objects, one of them in the tier, and a live one with a claim. */
static void leave(const char *const *options)
{
    struct gb_notify notify = manager();
    struct gb_server *server = &inside.server;
    struct stat status;

    inside_make(&inside, options);
    server->notify = &notify;
    inside_listen(&inside);
    inside.work = await_movers;
    for (int i = 0; i < 2; i++)
        assert_true(peer_connect(&inside, &peers[i]));
    for (const char *const *step = (const char *const[]){LARGE, SPILLED, NULL}; *step; step++) {
        say(*step, -1);
        settle();
    }
    say(CALL("create", "\"name\":\"q\"," BYTES(100)) CALL("seal", "\"lease\":2"), -1);
    say("2" CALL("create", "\"name\":\"w\",\"live\":true," BYTES(64)), -1);
    settle();
    for (int i = 0; i < 2; i++)
        peer_close(&peers[i]);
    settle();
    gb_store_clear(&server->store); /* the segments that are left are of use */
    assert_int_equal(fstat(server->state.journal.fd, &status), 0);
    left.length = (size_t)status.st_size;
    left.journal = malloc(left.length);
    assert_int_equal(pread(server->state.journal.fd, left.journal, left.length, 0), left.length);
    GB_LIST_EACH(&server->devices[0]->segment_list, const struct gb_segment, segment, of_device) {
        assert_true(left.count < 4);
        gb_state_segment_fd_name(segment->id, left.names[left.count]);
        left.segments[left.count++] = fcntl(segment->memory.write_fd, F_DUPFD_CLOEXEC, 3);
    }
    inside_stop(&inside);
    end_manager(&notify);
}

static bool has_all(const struct gb_server *server)
{
    const struct gb_object *objects[3];

    for (int i = 0; i < 3; i++) {
        objects[i] = gb_registry_find(&server->registry, &"pqw"[i], 1);
        if (!objects[i])
            return false;
    }
    return objects[0]->storage->copies[GB_TIER_DISK] && objects[1]->storage->resident &&
           objects[2]->live->writers == 1 && server->registry.writers.count == 1;
}

/* Starts with that journal while the n-th allocation fails. */
static int start_after(int journal, unsigned n)
{
    struct gb_notify notify = manager();
    struct gb_error error;
    int r;

    notify.fds[notify.fd_count++] =
        (struct gb_notify_fd){"journal-1", fcntl(journal, F_DUPFD_CLOEXEC, 3)};
    for (unsigned i = 0; i < left.count; i++)
        notify.fds[notify.fd_count++] =
            (struct gb_notify_fd){left.names[i], fcntl(left.segments[i], F_DUPFD_CLOEXEC, 3)};
    inside.config.spill.follows = true;
    assert_int_equal(uv_loop_init(&inside.loop), 0);
    assert_int_equal(gb_server_init(&inside.server, &inside.config, &gb_methods, &error), 0);
    inside.server.notify = &notify;
    failing.calls = 0;
    failing.first = n;
    failing.count = 1;
    failing.armed = true;
    r = gb_server_listen(&inside.server, &inside.loop, &error);
    failing.armed = false;
    assert_true(r == 0 || error.message[0]);
    if (r == 0 && !has_all(&inside.server))
        fail_msg("something is lost after allocation %u failed", n);
    gb_server_end(&inside.server);
    if (r < 0 && manager_drops())
        fail_msg("something is dropped after allocation %u failed", n);
    assert_int_equal(uv_loop_close(&inside.loop), 0);
    end_manager(&notify);
    return r;
}

static void empty(const char *directory)
{
    DIR *files = opendir(directory);

    assert_non_null(files);
    for (const struct dirent *file; (file = readdir(files));)
        (void)unlinkat(dirfd(files), file->d_name, 0); /* but for . and .. */
    closedir(files);
}

/* Whatever fails, the daemon starts with all that there was, or the next one does. */
/* RELIABILITY.md: Memory is short 2, The kernel says no 6 */
TEST(test_starting_after_another)
{
    char directory[] = "/tmp/gpubufd-tier-XXXXXX", tier[64];
    size_t fds = open_fds();
    unsigned n = 0;

    assert_non_null(mkdtemp(directory));
    snprintf(tier, sizeof(tier), "disk:64M:%s", directory);
    leave((const char *const[]){"--device", "host:8M", "--tier", tier, NULL});
    do {
        int journal = memfd_create("journal", MFD_CLOEXEC);

        assert_int_equal(write(journal, left.journal, left.length), left.length);
        if (start_after(journal, ++n) < 0)
            assert_int_equal(start_after(journal, UINT32_MAX), 0);
        close(journal);
    } while (failing.calls >= n || n == 1);
    assert_true(n > 10);
    for (unsigned i = 0; i < left.count; i++)
        close(left.segments[i]);
    free(left.journal);
    gb_config_end(&inside.config);
    assert_int_equal(rmdir(inside.directory), 0);
    empty(directory);
    assert_int_equal(rmdir(directory), 0);
    assert_int_equal(open_fds(), fds);
}

/* The loop's library keeps a few descriptors for signals once they were asked for. */
static int warm_up(void **state)
{
    inside_begin(&inside, (const char *const[]){NULL});
    inside_end(&inside);
    return 0;
}

RUN_TESTS(warm_up, NULL)
