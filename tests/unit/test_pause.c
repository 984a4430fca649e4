/*
 * Requests that let others have their turn, inside a server in this process: whatever somebody else
 * does, and at whichever moment of the request, the answer is one that could be given, and the
 * accounts are right.
 *
 * The moments are when the server looks at the clock: that is what it does before it pauses. Each
 * test is played with the deed at the first of them, at the second, and so on, until there is no more.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#define DEMAND(condition) assert_true(condition)
#include "inside.h"

#define OBJECTS 100
#define REQUEST(id, method, params)                                                                \
    "{\"jsonrpc\":\"2.0\",\"id\":" #id ",\"method\":\"" method "\",\"params\":{" params "}}\n"

static struct inside inside;
static struct peer asker, other, third;

/* ---- moments ---- */

static unsigned moment, deed_at; /* counted from when the request is sent */
static void (*deed)(void);
static bool done;

uint64_t __wrap_uv_hrtime(void);
uint64_t __wrap_uv_hrtime(void)
{
    static _Atomic uint64_t now_ns = 1000000000; /* movers look at the clock, too */

    if (gettid() == getpid() && deed && ++moment == deed_at) {
        deed();
        done = true;
    }
    return atomic_fetch_add(&now_ns, 1000) + 1000;
}

/* ---- the world ---- */

static char *await_line(struct peer *peer)
{
    struct timespec rest = {0, 1000000};
    char *line = NULL;

    for (int turn = 0; turn < 10000 && !line; turn++) {
        inside_turn(&inside);
        line = peer_line(peer);
        if (!line && turn > 8)
            nanosleep(&rest, NULL); /* the work of a mover */
    }
    assert_non_null(line);
    return line;
}

static void expect(struct peer *peer, const char *request, const char *part)
{
    char *line;

    peer_send(peer, request);
    line = await_line(peer);
    if (!strstr(line, part))
        fail_msg("%s: expected %s, found %s", request, part, line);
    free(line);
}

static void make(struct peer *peer, const char *name)
{
    char line[256];
    char *answer;

    snprintf(line, sizeof(line),
             "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"create\",\"params\":{\"name\":\"%s\","
             "\"layout\":{\"kind\":\"bytes\",\"bytes\":4096}}}\n",
             name);
    peer_send(peer, line);
    answer = await_line(peer);
    assert_non_null(strstr(answer, "\"lease\":"));
    snprintf(line, sizeof(line),
             "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"seal\",\"params\":{\"lease\":%d,"
             "\"release\":true}}\n",
             atoi(strstr(answer, "\"lease\":") + 8));
    free(answer);
    expect(peer, line, "version");
}

/* {"names":["m/000",…]} */
static void ask_for_all(struct peer *peer, const char *more)
{
    static char line[OBJECTS * 16 + 256];
    int at =
        sprintf(line, "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"open\",\"params\":{\"names\":[");

    for (int i = 0; i < OBJECTS; i++)
        at += sprintf(line + at, "%s\"m/%03d\"", i ? "," : "", i);
    sprintf(line + at, "]%s}}\n", more);
    peer_send(peer, line);
}

static unsigned count(const char *text, const char *part)
{
    unsigned found = 0;

    while ((text = strstr(text, part)) != NULL) {
        text += strlen(part);
        found++;
    }
    return found;
}

static char directory[] = "/tmp/gpubufd-XXXXXX";
static char tier[64];

static void begin(void)
{
    const char *const options[] = {"--device", "host:8M", "--tier", tier, NULL};
    char name[16];

    assert_non_null(mkdtemp(strcpy(directory, "/tmp/gpubufd-XXXXXX")));
    snprintf(tier, sizeof(tier), "disk:64M:%s", directory);
    inside_begin(&inside, options);
    inside.server.pause_ns = 0;
    assert_true(peer_connect(&inside, &asker));
    assert_true(peer_connect(&inside, &other));
    assert_true(peer_connect(&inside, &third));
    for (int i = 0; i < OBJECTS; i++) {
        snprintf(name, sizeof(name), "m/%03d", i);
        make(&other, name);
    }
    /* All have been served, and are known to ask for little. */
    expect(&asker, REQUEST(1, "stat", "\"name\":\"none\""), "not_found");
    expect(&third, REQUEST(1, "stat", "\"name\":\"none\""), "not_found");
}

static void end(void)
{
    const struct gb_spill *spill = &inside.server.spill;

    deed = NULL;
    peer_close(&asker);
    peer_close(&other);
    /* Those that may be on disk. */
    peer_send(&third, REQUEST(8, "delete", "\"names\":[\"m/099\",\"w\",\"v\"]"));
    for (int turn = 0; turn < 4; turn++)
        inside_turn(&inside);
    while (spill->moves > 0 || spill->tiers[GB_TIER_DISK].going > 0)
        uv_run(&inside.loop, UV_RUN_ONCE);
    peer_close(&third);
    inside_turn(&inside);
    assert_int_equal(inside.server.registry.leases.count, 0);
    assert_int_equal(inside.server.store.mappings.count, 0);
    inside_check(&inside);
    inside_empty(&inside);
    inside_end(&inside);
    rmdir(directory);
}

/* Plays `play`, which begins and ends a world, with the deed at every moment there is. Some of them
   must have been in the middle of the request. */
static void at_every_moment(void (*deed_)(void), void (*play)(void))
{
    unsigned in_pauses = 0;

    for (deed_at = 1, done = true; done; deed_at++) {
        uint64_t before;

        begin();
        before = inside.server.pauses;
        moment = 0;
        done = false;
        deed = deed_;
        play();
        in_pauses += inside.server.pauses > before;
        end();
    }
    assert_true(deed_at > 5);
    assert_true(in_pauses > 3);
}

/* ---- many names ---- */

static void deletes_the_last(void)
{
    peer_send(&other, REQUEST(8, "delete", "\"name\":\"m/099\""));
}

/* It was still there, or it was not. */
static void opens_all(void)
{
    char *line;

    ask_for_all(&asker, "");
    line = await_line(&asker);
    assert_int_equal(count(line, "\"lease\":") + count(line, "not_found"), OBJECTS);
    assert_true(count(line, "\"lease\":") >= OBJECTS - 1);
    free(line);
    assert_int_equal(
        inside.server.registry.leases.count,
        GB_CONTAINER(inside.server.sessions.next, struct gb_session, of_server)->holder.count);
    inside_turn(&inside);
    inside_check(&inside);
}

static void test_deleted_meanwhile(void **state)
{
    (void)state;
    at_every_moment(deletes_the_last, opens_all);
}

/* It waits for the name, or has opened it before it went. */
static void opens_or_waits(void)
{
    uint64_t hits = inside.server.metrics.hits;
    char *line = NULL;

    ask_for_all(&asker, ",\"wait_ms\":60000");
    for (int turn = 0; turn < 8 && !line; turn++) {
        inside_turn(&inside);
        line = peer_line(&asker);
    }
    inside_check(&inside);
    if (!line) {
        deed = NULL; /* which was to delete it, and is done */
        assert_true(done);
        assert_int_equal(inside.server.registry.leases.count, 0);
        assert_int_equal(inside.server.metrics.hits, hits);
        free(peer_line(&other));
        make(&other, "m/099");
        line = await_line(&asker);
    }
    assert_int_equal(count(line, "\"lease\":"), OBJECTS);
    assert_int_equal(count(line, "error"), 0);
    free(line);
}

static void test_deleted_while_waited_for(void **state)
{
    (void)state;
    at_every_moment(deletes_the_last, opens_or_waits);
}

static void spills_the_last(void)
{
    peer_send(&other, REQUEST(8, "spill", "\"name\":\"m/099\""));
}

/* It comes back first. */
static void opens_what_comes_back(void)
{
    uint64_t hits = inside.server.metrics.hits;
    char *line;

    ask_for_all(&asker, "");
    line = await_line(&asker);
    inside_check(&inside);
    assert_int_equal(count(line, "\"lease\":"), OBJECTS);
    assert_true(inside.server.metrics.hits <= hits + OBJECTS);
    free(line);
    deed = NULL;
    if (!done)
        return;
    line = await_line(&other); /* whatever it is: content may not leave while somebody reads it */
    free(line);
}

static void test_spilled_meanwhile(void **state)
{
    (void)state;
    at_every_moment(spills_the_last, opens_what_comes_back);
}

/* ---- wide tables ---- */

#define COLUMNS 300

static char *wide(const char *before, const char *after)
{
    size_t bytes = strlen(before) + strlen(after) + COLUMNS * 64;
    char *line = malloc(bytes), *at = line;

    assert_non_null(line);
    at += sprintf(at, "%s{\"kind\":\"table\",\"length\":7,\"columns\":[", before);
    for (int i = 0; i < COLUMNS; i++)
        at += sprintf(at, "%s{\"name\":\"c%03d\",\"dtype\":\"int64\",\"length\":7}", i ? "," : "",
                      COLUMNS - i);
    sprintf(at, "]}%s", after);
    return line;
}

static char *ask(struct peer *peer, const char *request)
{
    peer_send(peer, request);
    return await_line(peer);
}

static uint64_t number(const char *text, const char *member)
{
    const char *at = strstr(text, member);

    return at ? strtoull(at + strlen(member), NULL, 10) : 0;
}

static uint64_t create_wide(const char *name)
{
    char before[128];
    char *request, *answer;
    uint64_t lease;

    snprintf(before, sizeof(before),
             "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"create\",\"params\":{\"name\":\"%s\","
             "\"layout\":",
             name);
    request = wide(before, "}}\n");
    answer = ask(&asker, request);
    assert_int_equal(count(answer, "\"dtype\""), COLUMNS);
    lease = number(answer, "\"lease\":");
    free(request);
    free(answer);
    return lease;
}

static char *seal(uint64_t lease)
{
    char request[128];

    snprintf(request, sizeof(request),
             "{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"seal\",\"params\":{\"lease\":%llu,"
             "\"release\":true}}\n",
             (unsigned long long)lease);
    return ask(&asker, request);
}

/* The part of an answer from its layout on. */
static const char *layout_of(const char *answer)
{
    const char *layout = strstr(answer, "\"layout\":");

    assert_non_null(layout);
    return layout;
}

static int lies_in(struct gb_buffer *buffer, void *arg)
{
    const struct gb_storage *storage = arg;
    const struct gb_placement *place = &storage->placements[0];

    if (!storage->resident)
        return buffer->segment != 0;
    return buffer->segment != place->segment->id || buffer->offset < place->offset ||
           buffer->offset + buffer->bytes > place->offset + storage->size;
}

/* Its layout says where its content is. */
static void check_place(const char *name)
{
    const struct gb_path path = {.key = "layout"};
    const struct gb_object *object = gb_registry_find(&inside.server.registry, name, strlen(name));
    struct gb_layout layout;
    struct gb_pool pool = {0};

    if (!object)
        return;
    assert_int_equal(gb_object_layout(object, &path, &pool, &layout, NULL), 0);
    assert_int_equal(gb_layout_each(&layout, lies_in, object->storage), 0);
    gb_pool_end(&pool);
}

/* One alias of what was `w` in some moment: where that lies, and nowhere else. */
static void aliases(void)
{
    void (*later)(void) = deed;
    char *answer, *alias, *source;
    bool gone;

    deed = NULL;
    answer = seal(create_wide("w"));
    assert_true(number(answer, "\"version\":") > 0);
    free(answer);
    moment = 0;
    deed = later;
    answer = ask(&asker, REQUEST(4, "alias", "\"name\":\"v\",\"of\":\"w\""));
    deed = NULL;
    if (done) {
        alias = await_line(&other);
        free(alias);
    }
    inside_check(&inside);
    check_place("w");
    check_place("v");
    source = ask(&asker, REQUEST(5, "open", "\"name\":\"w\""));
    gone = strstr(source, "not_found") != NULL;
    alias = ask(&asker, REQUEST(5, "open", "\"name\":\"v\""));
    if (!strstr(answer, "\"version\":")) {
        assert_true(gone);
        assert_non_null(strstr(answer, "not_found"));
        assert_non_null(strstr(alias, "not_found"));
    } else if (count(alias, "\"dtype\"") == COLUMNS && count(source, "\"dtype\"") == COLUMNS) {
        const char *end = strstr(layout_of(alias), ",\"segments\"");

        assert_non_null(end);
        assert_int_equal(
            strncmp(layout_of(alias), layout_of(source), (size_t)(end - layout_of(alias))), 0);
    } else if (!gone) { /* of what took its place, or of what was there before */
        assert_int_equal(count(source, "\"kind\":\"bytes\""), 1);
        assert_int_equal(count(alias, "\"kind\":\"bytes\"") * COLUMNS + count(alias, "\"dtype\""),
                         COLUMNS);
    } else {
        assert_int_equal(count(alias, "\"dtype\""), COLUMNS);
    }
    free(answer);
    free(alias);
    free(source);
    inside_check(&inside);
}

static void deletes_the_source(void)
{
    peer_send(&other, REQUEST(8, "delete", "\"name\":\"w\""));
}

static void replaces_the_source(void)
{
    peer_send(&other, REQUEST(8, "alias", "\"name\":\"w\",\"of\":\"m/000\",\"replace\":true"));
}

static void moves_the_source(void)
{
    peer_send(&other, REQUEST(8, "spill", "\"name\":\"w\""));
}

static void test_alias_meanwhile(void **state)
{
    (void)state;
    at_every_moment(deletes_the_source, aliases);
    at_every_moment(replaces_the_source, aliases);
    at_every_moment(moves_the_source, aliases);
}

/* Somebody else takes the name: one of the two has it, and versions are nobody's twice. */
static void takes_the_name(void)
{
    peer_send(&other, REQUEST(8, "alias", "\"name\":\"w\",\"of\":\"m/000\""));
}

static void creates_and_seals(void)
{
    char *request = wide("{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"create\",\"params\":{\"name\":"
                         "\"w\",\"layout\":",
                         "}}\n");
    char *answer = ask(&asker, request), *theirs = NULL;
    uint64_t lease = number(answer, "\"lease\":"), version = 0, their_version = 0;

    free(request);
    if (lease) {
        free(answer);
        answer = seal(lease);
        version = number(answer, "\"version\":");
    }
    deed = NULL;
    if (done) {
        theirs = await_line(&other);
        their_version = number(theirs, "\"version\":");
        assert_int_equal(!their_version, strstr(theirs, "exists") != NULL);
    }
    assert_int_equal(!version, strstr(answer, "exists") != NULL);
    assert_true(!version != !their_version);
    assert_true(version != their_version);
    free(answer);
    free(theirs);
    inside_check(&inside);
}

static void test_name_taken_meanwhile(void **state)
{
    (void)state;
    at_every_moment(takes_the_name, creates_and_seals);
}

/* ---- sessions that end ---- */

static void asker_goes(void)
{
    close(asker.fd);
    asker.fd = -1;
}

static void opens_and_goes(void)
{
    ask_for_all(&asker, "");
    peer_send(&other, REQUEST(8, "stat", "\"name\":\"m/000\""));
    for (int turn = 0; turn < 8; turn++) {
        inside_turn(&inside);
        if (turn == 4)
            deed = NULL; /* in time for its end to be seen */
    }
    free(peer_line(&other));
    inside_check(&inside);
    if (done)
        assert_null(peer_session(&inside, &asker));
    expect(&other, REQUEST(9, "leases", ""), done ? "\"leases\":[]" : "m/000");
}

static void test_gone_meanwhile(void **state)
{
    (void)state;
    at_every_moment(asker_goes, opens_and_goes);
}

/* It holds more than goes back at once. Whoever asks next sees none of it. */
static void other_goes(void)
{
    close(other.fd);
    other.fd = -1;
    peer_send(&third, REQUEST(8, "stats", ""));
}

static void opens_while_another_goes(void)
{
    char *line, *answer;

    deed = NULL;
    ask_for_all(&other, "");
    line = await_line(&other);
    free(line);
    peer_send(&third, REQUEST(7, "stat", "\"name\":\"none\""));
    line = await_line(&third);
    free(line);
    moment = 0;
    deed = other_goes;
    ask_for_all(&asker, "");
    line = await_line(&asker);
    assert_int_equal(count(line, "\"lease\":"), OBJECTS);
    free(line);
    if (done) {
        answer = await_line(&third);
        if (number(answer, "\"leases\":") > OBJECTS || !strstr(answer, "\"sessions\":2"))
            fail_msg("one who is gone is seen: %s", answer);
        free(answer);
        assert_null(peer_session(&inside, &other));
    }
    inside_check(&inside);
}

static void test_another_gone_meanwhile(void **state)
{
    unsigned played = 0;

    (void)state;
    for (deed_at = 1, done = true; done; deed_at++, played++) {
        begin();
        done = false;
        opens_while_another_goes();
        end();
    }
    assert_true(played > 5);
}

/* ---- long texts ---- */

static char *long_text(const char *before, const char *item, const char *after)
{
    size_t step = strlen(item), length = 20000 / step * step;
    char *text = malloc(strlen(before) + length + strlen(after) + 1), *at = text;

    assert_non_null(text);
    at = stpcpy(at, before);
    for (size_t i = 0; i < length; i += step)
        at = stpcpy(at, item);
    strcpy(at, after);
    return text;
}

static void pings(void)
{
    peer_send(&other, REQUEST(8, "stat", "\"name\":\"m/000\""));
}

static const char *text_before, *text_item, *text_after, *text_answer;

static void reads_a_long_text(void)
{
    char *text = long_text(text_before, text_item, text_after), *line;
    size_t sent = 0, length = strlen(text);

    while (sent < length) {
        size_t n = peer_send_bytes(&asker, text + sent, length - sent, NULL, 0);

        sent += n;
        if (sent < length)
            inside_turn(&inside);
    }
    free(text);
    line = await_line(&asker);
    if (!strstr(line, text_answer))
        fail_msg("expected %s, found %.300s", text_answer, line);
    free(line);
    deed = NULL;
    if (done) {
        line = await_line(&other);
        assert_non_null(strstr(line, "m/000"));
        free(line);
    }
}

static void play_text(const char *before, const char *item, const char *after, const char *answer)
{
    text_before = before;
    text_item = item;
    text_after = after;
    text_answer = answer;
    at_every_moment(pings, reads_a_long_text);
}

#define HEAD(method) "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"" method "\",\"params\":{"

static void test_long_texts(void **state)
{
    (void)state;
    play_text(HEAD("list") "\"none\":[0", ",[]", "]}}\n", "unknown member");
    play_text(HEAD("list") "\"prefix\":\"", "\\n\\\"", "\"}}\n", "at most");
    play_text("[0", ",[[],{\"a\":1}]", "]\n", "batches");
    play_text(
        HEAD("create") "\"name\":\"t\",\"layout\":{\"kind\":\"table\",\"length\":1,\"columns\":["
                       "{\"name\":\"a\",\"dtype\":\"int8\",\"length\":1}",
        ",{\"name\":\"a\",\"dtype\":\"int8\",\"length\":1,\"metadata\":{\"key\":\"value\"}}",
        "]}}}\n", "there is a column");
    play_text(HEAD("release") "\"leases\":[1", ",123456789", "]}}\n", "stale");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_deleted_meanwhile),
        cmocka_unit_test(test_deleted_while_waited_for),
        cmocka_unit_test(test_spilled_meanwhile),
        cmocka_unit_test(test_alias_meanwhile),
        cmocka_unit_test(test_name_taken_meanwhile),
        cmocka_unit_test(test_gone_meanwhile),
        cmocka_unit_test(test_another_gone_meanwhile),
        cmocka_unit_test(test_long_texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
