/*
 * How long requests hold the loop. Each method is asked for the most that its limits allow:
 * bounds.h says how that is measured. The table is printed.
 */
#include "tests/cases.h"

#include "bounds.h"

#include "daemon/methods/watch.h"

static struct peer holder;

#define MANY (SANITIZED ? 2000 : 20000) /* small objects */
#define HOLDERS (SANITIZED ? 1000 : 12288)
#define OTHERS (SANITIZED ? 1000 : 40000) /* leases of other objects */
#define USERS (SANITIZED ? 100 : 2000)

/* ---- the requests ---- */

static uint64_t last_lease; /* what the last preparation was given */

static void ask_create(void)
{
    create_line("made", false);
}

static void ask_create_with_metadata(void)
{
    create_line("made", true);
}

static void prepare_unsealed(void)
{
    last_lease = create_wide(&asker, "made", false);
}

static void ask_seal(void)
{
    begin_line("seal");
    gb_write_format(&line, "\"lease\":%llu,\"release\":true", (unsigned long long)last_lease);
    end_line();
}

static void ask_seal_with_counts(void)
{
    char lease[64];

    snprintf(lease, sizeof(lease), "},\"release\":true,\"lease\":%llu",
             (unsigned long long)last_lease);
    items_line("seal", "\"null_counts\":{", "\"column %04d\":1", COLUMNS, lease);
}

static void ask_abort(void)
{
    begin_line("release");
    gb_write_format(&line, "\"lease\":%llu", (unsigned long long)last_lease);
    end_line();
}

ASK_ITEMS(
    ask_register, "register",
    "\"name\":\"made\",\"replace\":true,\"device\":\"host\",\"handles\":[{\"kind\":\"memfd\","
    "\"fd\":0,\"bytes\":4096,\"device\":\"host\"}],\"layout\":{\"kind\":\"table\",\"length\":1,"
    "\"columns\":[",
    "{\"name\":\"c%04d\",\"dtype\":\"int8\",\"length\":1,\"data\":{\"handle\":0,\"offset\":0,"
    "\"bytes\":1},\"mask\":{\"handle\":0,\"offset\":0,\"bytes\":64}}",
    COLUMNS, "]}")

ASK(ask_alias, "alias",
    "\"name\":\"made\",\"of\":\"wide\",\"replace\":true,\"slice\":{\"offset\":"
    "0,\"length\":1}")

ASK_ITEMS(ask_alias_of_columns, "alias",
          "\"name\":\"made\",\"of\":\"wide\",\"replace\":true,\"columns\":[", "\"column %04d\"",
          COLUMNS, "]")

ASK(ask_open, "open", "\"name\":\"wide\"")

#define ASK_NAMES(function, method, name)                                                          \
    ASK_ITEMS(function, method, "\"names\":[", name, GB_LIMIT(names), "]")
ASK_NAMES(ask_open_names, "open", "\"m/%05d\"")

ASK_NAMES(ask_open_nothing, "open", "\"none/%0240d\"")

/* As many of the widest as one message holds come back, each a copy. */
ASK_ITEMS(ask_open_wide, "open", "\"names\":[", "\"wide\"", GB_LIMIT(names), "]")

ASK_ITEMS(ask_release_nothing, "release", "\"leases\":[", "4%06d", GB_LIMIT(ids), "]")

ASK_ITEMS(ask_unmap_nothing, "unmap", "\"segments\":[", "4%06d", GB_LIMIT(ids), "]")

/* A session of its own opens names and is asked to give them back. */
static uint64_t first_lease;
static size_t lease_count;

static void prepare_leases(void)
{
    struct gb_session *session = peer_session(&inside, &asker);
    uint64_t held = session->holder.count;

    first_lease = inside.server.registry.next_lease;
    ask_open_names();
    prepare(&asker, "objects");
    lease_count = session->holder.count - held;
}

static void ask_release(void)
{
    begin_line("release");
    gb_write_text(&line, "\"leases\":[");
    for (size_t i = 0; i < lease_count; i++)
        gb_write_format(&line, "%s%llu", i ? "," : "", (unsigned long long)first_lease + i);
    gb_write_char(&line, ']');
    end_line();
}

static void prepare_victims(void)
{
    char name[32];

    for (int i = 0; i < GB_LIMIT(names); i++) {
        snprintf(name, sizeof(name), "victim/%05d", i);
        make_small(&asker, name);
    }
}

ASK_NAMES(ask_delete, "delete", "\"victim/%05d\"")

/* Each with as many older versions as it may keep. */
static void prepare_versions(void)
{
    for (int i = 0; i <= GB_LIMIT(keep); i++)
        for (int j = 0; j < GB_LIMIT(names); j++) {
            bool measured = measuring;
            uint64_t lease;
            char *answer;

            measuring = false;
            begin_line("create");
            gb_write_format(&line,
                            "\"name\":\"victim/%05d\",\"replace\":true,\"keep\":%d,\"layout\":{"
                            "\"kind\":\"bytes\",\"bytes\":1}",
                            j, GB_LIMIT(keep));
            end_line();
            answer = ask_with(&asker, line.data, line.length, NULL, 0);
            lease = number_after(answer, "\"lease\":");
            free(answer);
            seal(&asker, lease);
            measuring = measured;
        }
}

/* As many as may be keep leases on each of them. */
enum { KEEPERS = 4 };
static struct peer keepers[KEEPERS];

static void prepare_kept(void)
{
    bool measured = measuring;
    static const char hello[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"hello\",\"params\":{"
                                "\"protocol\":1,\"cache\":true}}\n";

    prepare_victims();
    measuring = false;
    for (int i = 0; i < KEEPERS; i++) {
        assert_true(peer_connect(&inside, &keepers[i]));
        free(ask_with(&keepers[i], hello, sizeof(hello) - 1, NULL, 0));
        for (int again = 0; again < GB_OBJECT_SLOTS / KEEPERS; again++) {
            items_line("open", "\"names\":[", "\"victim/%05d\"", GB_LIMIT(names), "]");
            free(ask_with(&keepers[i], line.data, line.length, NULL, 0));
        }
    }
    measuring = measured;
}

static void end_kept(void)
{
    for (int i = 0; i < KEEPERS; i++)
        peer_close(&keepers[i]);
}

ASK_NAMES(ask_delete_nothing, "delete", "\"none/%0240d\"")

ASK(ask_list, "list", "\"prefix\":\"m/\"")

/* As somebody who may see none of it. */
static struct gb_user *stranger, *self, *users[USERS];

static void prepare_stranger(void)
{
    struct gb_session *session = peer_session(&inside, &asker);

    self = session->user;
    session->user = stranger;
}

static void end_stranger(void)
{
    peer_session(&inside, &asker)->user = self;
}

ASK(ask_stat, "stat", "\"name\":\"wide\"")
ASK(ask_pin, "set", "\"name\":\"m/00000\",\"pinned\":true")

ASK(ask_why, "stat", "\"why\":true,\"name\":\"m/00000\"")

static void ask_why_last(void)
{
    begin_line("stat");
    gb_write_format(&line, "\"why\":true,\"name\":\"m/%05d\"", MANY / 2);
    end_line();
}

ASK(ask_leases, "leases", "")
ASK(ask_leases_of_none, "leases", "\"name\":\"none\"")

ASK(ask_stats, "stats", "")

static void give_users(uint64_t bytes)
{
    GB_LIST_EACH(&inside.server.store.users.all, struct gb_user, user, of_users) {
        if (user->uid >= 100000)
            user->bytes[0] = bytes;
    }
}

static void prepare_users(void)
{
    give_users(12345678901234);
}

static void end_users(void)
{
    give_users(0);
}

ASK(ask_families, "stats", "\"families\":true")

/* Somebody who had as many leases dies just before. */
static void prepare_death(void)
{
    struct peer dying;

    assert_true(peer_connect(&inside, &dying));
    ask_open_names();
    for (int held = 0; held < OTHERS; held += GB_LIMIT(names))
        prepare(&dying, "objects");
    peer_close(&dying);
}

ASK(ask_describe, "describe", "")
ASK(ask_watch, "watch", "\"prefix\":\"m/\"")

static void end_watch(void)
{
    bool measured = measuring;

    measuring = false;
    gb_watches_end_session(peer_session(&inside, &asker));
    for (int i = 0; i < 50; i++) {
        inside_turn(&inside);
        peer_receive(&asker);
    }
    free(asker.in);
    asker.in = NULL;
    asker.length = 0;
    measuring = measured;
}

/* As many watches as a user may have, all told of what is sealed. */
#define WATCHERS (GB_LIMIT(user_watches) / GB_LIMIT(session_watches))
static struct peer watchers[WATCHERS];

static void prepare_watchers(void)
{
    begin_line("watch");
    gb_write_text(&line, "\"existing\":false");
    end_line();
    for (size_t i = 0; i < WATCHERS; i++) {
        assert_true(peer_connect(&inside, &watchers[i]));
        for (int k = 0; k < GB_LIMIT(session_watches); k++)
            prepare(&watchers[i], "\"watch\":");
    }
}

static void prepare_watched(void)
{
    prepare_watchers();
    prepare_unsealed();
}

static void prepare_watched_victims(void)
{
    prepare_victims();
    prepare_watchers();
}

static void end_watched(void)
{
    for (size_t i = 0; i < WATCHERS; i++)
        peer_close(&watchers[i]);
    for (int i = 0; i < 50; i++)
        inside_turn(&inside);
}

/* The turns in which they are told count, too. */
static void end_told(void)
{
    measuring = true;
    for (int i = 0; i < 20000 && !gb_list_empty(&inside.server.turns.busy); i++)
        turn();
    measuring = false;
    assert_true(gb_list_empty(&inside.server.turns.busy));
    end_watched();
}

/* As many requests as a user may have wait for a name, and for 63 others that never come. */
static void prepare_awaited(void)
{
    items_line("open", "\"wait_ms\":600000,\"names\":[\"made\",", "\"never/%d\"",
               GB_LIMIT(names) - 1, "]");
    for (size_t i = 0; i < WAITERS; i++) {
        assert_true(peer_connect(&inside, &waiters[i]));
        send_waits(&waiters[i], SANITIZED ? 20 : GB_LIMIT(session_waits));
    }
    prepare_unsealed();
}

/* One of their sessions ends, with all that it waits for. */
static void prepare_waits_end(void)
{
    prepare_awaited();
    peer_close(&waiters[WAITERS / 2]);
}

/* As many names as a user's requests may wait for, each for others. */
static void prepare_missing(void)
{
    for (size_t i = 0; i < WAITERS; i++) {
        assert_true(peer_connect(&inside, &waiters[i]));
        for (int k = 0; k < (SANITIZED ? 20 : GB_LIMIT(session_waits)); k++) {
            begin_line("open");
            gb_write_text(&line, "\"wait_ms\":600000,\"names\":[");
            for (int n = 0; n < GB_LIMIT(names); n++)
                gb_write_format(&line, "%s\"%d/%zu/%d\"", n ? "," : "", n, i, k);
            gb_write_char(&line, ']');
            end_line();
            send_waits(&waiters[i], 1);
        }
    }
}

/* The time of all of them is up at once. */
static void prepare_late(void)
{
    prepare_missing();
    for (size_t i = 0; i < WAITERS; i++)
        GB_LIST_EACH(&peer_session(&inside, &waiters[i])->waits, struct gb_wait, wait, of_session)
            gb_wait_until(wait, 1);
}

/* The turns in which they end count, too. */
static void end_late(void)
{
    const struct gb_user *user = peer_session(&inside, &asker)->user;

    measuring = true;
    for (int i = 0; i < 100000 && user->charges[GB_HELD_WAITS] > 0; i++)
        turn();
    measuring = false;
    assert_int_equal(user->charges[GB_HELD_WAITS], 0);
    end_awaited();
}

#define EXPIRING (SANITIZED ? 100 : 4000)

static void prepare_expiring(void)
{
    char name[32];

    for (int i = 0; i < EXPIRING; i++) {
        snprintf(name, sizeof(name), "expiring/%05d", i);
        make_small(&asker, name);
    }
    for (int i = 0; i < EXPIRING; i++) {
        snprintf(name, sizeof(name), "expiring/%05d", i);
        assert_int_equal(gb_object_expire(&inside.server.registry,
                                          gb_registry_find(&inside.server.registry, name, 14), 1,
                                          NULL),
                         0);
    }
    usleep(5000); /* their time is over */
}

static void end_expiring(void)
{
    measuring = true;
    for (int i = 0; i < 100000 && gb_deadlines_first(&inside.server.registry.deadlines); i++)
        turn();
    measuring = false;
    assert_null(gb_deadlines_first(&inside.server.registry.deadlines));
}

ASK(ask_provide, "provide", "\"prefix\":\"\"")

static void prepare_wanted(void)
{
    ask_provide();
    prepare(&asker, "\"result\":{}");
    prepare_missing();
    while (gb_waits_have_more(&inside.server) ||
           gb_provider_lags(&peer_session(&inside, &asker)->provider)) {
        inside_turn(&inside);
        peer_receive(&asker);
    }
}

static void end_provide(void)
{
    end_awaited();
    gb_provider_end(&peer_session(&inside, &asker)->provider);
}

ASK(ask_provide_end, "provide", "\"prefix\":\"\",\"end\":true")

static void ask_decline(void)
{
    begin_line("decline");
    gb_write_format(&line, "\"request\":%llu",
                    (unsigned long long)inside.server.missings.providers.last_request);
    end_line();
}

/* As many prefixes as a user may provide, of as many bytes, each written as six. */
static void prepare_providers(void)
{
    for (int i = 0; i < GB_LIMIT(user_provides); i++) {
        struct peer *peer = &waiters[(size_t)i % WAITERS];

        if ((size_t)i < WAITERS)
            assert_true(peer_connect(&inside, peer));
        begin_line("provide");
        gb_write_format(&line, "\"prefix\":\"%03d", i);
        for (int k = 3; k < GB_LIMIT(name_bytes); k++)
            gb_write_text(&line, "\\u0001");
        gb_write_char(&line, '"');
        end_line();
        prepare(peer, "\"result\":{}");
    }
}

ASK(ask_sessions, "sessions", "")

ASK_ITEMS(ask_open_missing, "open", "\"wait_ms\":1,\"names\":[", "\"%0255d\"", GB_LIMIT(names), "]")

ASK(ask_trim, "trim", "")

ASK_ITEMS(ask_settle, "settle", "\"objects\":[", "{\"name\":\"n/%0200d\",\"version\":1%d}",
          GB_LIMIT(names), "]")

static void ask_resume(void)
{
    struct gb_object *object = gb_registry_find(&inside.server.registry, "m/00000", 7);

    begin_line("hello");
    gb_write_format(&line, "\"protocol\":1,\"resume\":{\"instance\":\"%s\",\"objects\":[",
                    inside.server.instance);
    for (int i = 0; i < GB_LIMIT(names); i++)
        gb_write_format(&line,
                        "%s{\"name\":\"m/%05d\",\"version\":%llu,\"segment\":1,\"offset\":1}",
                        i ? "," : "", i, (unsigned long long)object->version + (unsigned)i);
    gb_write_text(&line, "]}");
    end_line();
}

static void ask_resume_wide(void)
{
    begin_line("hello");
    gb_write_format(&line, "\"protocol\":1,\"resume\":{\"instance\":\"%s\",\"objects\":[",
                    inside.server.instance);
    for (int i = 0; i < 16; i++)
        gb_write_format(
            &line, "%s{\"name\":\"wide\",\"version\":%llu,\"segment\":1,\"offset\":1}",
            i ? "," : "",
            (unsigned long long)gb_registry_find(&inside.server.registry, "wide", 4)->version);
    gb_write_text(&line, "]}");
    end_line();
}

/* Lines that no method has any use for. */
static void ask_wide(void)
{
    begin_line("list");
    gb_write_text(&line, "\"none\":[0");
    while (line.length < LINE_ROOM - 8)
        gb_write_text(&line, ",[]");
    gb_write_char(&line, ']');
    end_line();
}

static void ask_deep(void)
{
    gb_writer_reset(&line);
    while (line.length < LINE_ROOM)
        gb_write_text(&line, "{\"a\":[");
    gb_write_char(&line, '\n');
}

static void ask_long_text(void)
{
    begin_line("stat");
    gb_write_text(&line, "\"name\":\"");
    while (line.length < LINE_ROOM - 16)
        gb_write_text(&line, "\\u00e4\xc3\xa4");
    gb_write_char(&line, '"');
    end_line();
}

static void ask_many_members(void)
{
    begin_line("stat");
    for (int i = 0; line.length < LINE_ROOM - 64; i++)
        gb_write_format(&line, "%s\"%d\":%d", i ? "," : "", i, i);
    end_line();
}

static const struct ask asks[] = {
    {"create, 4096 columns", NULL, ask_create, NULL, "\"lease\":"},
    {"create, metadata", NULL, ask_create_with_metadata, NULL, "\"lease\":"},
    {"seal, 4096 columns", prepare_unsealed, ask_seal, NULL, "\"version\":"},
    {"seal, 4096 null_counts", prepare_unsealed, ask_seal_with_counts, NULL, "\"version\":"},
    {"abort, 4096 columns", prepare_unsealed, ask_abort, NULL, "\"result\":{}"},
    {"register, 4096 columns", NULL, ask_register, NULL, "\"version\":"},
    {"alias of 4096 columns", NULL, ask_alias, NULL, "\"version\":"},
    {"alias, 4096 names", NULL, ask_alias_of_columns, NULL, "\"version\":"},
    {"open, 4096 columns", NULL, ask_open, NULL, "\"lease\":"},
    {"open, names", NULL, ask_open_names, NULL, "\"objects\":"},
    {"open, names of nothing", NULL, ask_open_nothing, NULL, "\"objects\":"},
    {"open, wide ones", NULL, ask_open_wide, NULL, "\"objects\":"},
    {"release", prepare_leases, ask_release, NULL, "\"result\":{}"},
    {"release, of nothing", NULL, ask_release_nothing, NULL, "\"error\":"},
    {"unmap, of nothing", NULL, ask_unmap_nothing, NULL, "\"error\":"},
    {"delete, names", prepare_victims, ask_delete, NULL, "\"result\":{}"},
    {"delete, names with versions", prepare_versions, ask_delete, NULL, "\"result\":{}"},
    {"delete, watched by many", prepare_watched_victims, ask_delete, end_told, "\"result\":{}"},
    {"delete, names that are kept", prepare_kept, ask_delete, end_kept, "\"result\":{}"},
    {"delete, of nothing", NULL, ask_delete_nothing, NULL, "\"error\":"},
    {"list, 256", NULL, ask_list, NULL, "\"cursor\":"},
    {"list, none to be seen", prepare_stranger, ask_list, end_stranger, "\"objects\":["},
    {"stat, 4096 columns", NULL, ask_stat, NULL, "\"object\":"},
    {"pin", NULL, ask_pin, NULL, "\"result\":{}"},
    {"why, many holders", NULL, ask_why, NULL, "\"reasons\":"},
    {"why, in the middle", NULL, ask_why_last, NULL, "\"reasons\":"},
    {"leases", NULL, ask_leases, NULL, "\"leases\":"},
    {"leases, of nothing", NULL, ask_leases_of_none, NULL, "\"leases\":"},
    {"stats, many users", NULL, ask_stats, NULL, "\"users\":"},
    {"stats, after a death", prepare_death, ask_stats, NULL, "\"users\":"},
    {"families, many users", prepare_users, ask_families, end_users, "\"uid\":\"100050\""},
    {"describe", NULL, ask_describe, NULL, "\"methods\":"},
    {"watch, all there is", NULL, ask_watch, end_watch, "\"watch\":"},
    {"seal, watched by many", prepare_watched, ask_seal, end_watched, "\"version\":"},
    {"seal, waited for by many", prepare_awaited, ask_seal, end_awaited, "\"version\":"},
    {"seal, after waits ended", prepare_waits_end, ask_seal, end_awaited, "\"version\":"},
    {"stat, waits end together", prepare_late, ask_stat, end_late, "\"object\":"},
    {"stat, objects expire together", prepare_expiring, ask_stat, end_expiring, "\"object\":"},
    {"provide, much is missing", prepare_missing, ask_provide, end_provide, "\"result\":{}"},
    {"provide, end of much", prepare_wanted, ask_provide_end, end_provide, "\"result\":{}"},
    {"decline, one of many", prepare_wanted, ask_decline, end_provide, "\"result\":{}"},
    {"open, many providers", prepare_providers, ask_open_missing, end_awaited, "\"objects\":"},
    {"sessions, many providers", prepare_providers, ask_sessions, end_awaited, "\"sessions\":"},
    {"trim", NULL, ask_trim, NULL, "\"freed\":"},
    {"settle", NULL, ask_settle, NULL, "\"id\":1"},
    {"hello, resume", NULL, ask_resume, NULL, "\"id\":1"},
    {"hello, resume wide ones", NULL, ask_resume_wide, NULL, "\"id\":1"},
    {"a line of arrays", NULL, ask_wide, NULL, "\"error\":"},
    {"a line of depth", NULL, ask_deep, NULL, "\"error\":"},
    {"a line of text", NULL, ask_long_text, NULL, "\"error\":"},
    {"a line of members", NULL, ask_many_members, NULL, "\"error\":"},
};

/* ---- the world ---- */

static void begin(void)
{
    static const char *const options[] = {"--device", "host:512M", "--limit",
                                          "output_bytes=67108864", NULL};
    char name[32];

    begin_world(options, NULL);
    assert_true(peer_connect(&inside, &holder));
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof(name), "m/%05d", i);
        make_small(&holder, name);
    }
    seal(&holder, create_wide(&holder, "wide", false));
    for (int i = 0; i < HOLDERS; i++) {
        begin_line("open");
        gb_write_text(&line, "\"name\":\"m/00000\"");
        end_line();
        prepare(&holder, "lease");
    }
    for (int i = 0; i < OTHERS; i++) {
        begin_line("open");
        gb_write_format(&line, "\"name\":\"m/%05d\"", 1 + i % (MANY / 3));
        end_line();
        prepare(&holder, "lease");
    }
    stranger = gb_user_get(&inside.server.store.users, 54321);
    for (int i = 0; i < USERS; i++) {
        users[i] = gb_user_get(&inside.server.store.users, (uid_t)(100000 + i));
        assert_non_null(users[i]);
    }
}

/* RELIABILITY.md: Hostile clients 12 */
TEST(test_bounds)
{
    begin();
    play_all(asks, sizeof(asks) / sizeof(asks[0]), FACTOR * BOUND_US);
    peer_close(&holder);
    for (int i = 0; i < USERS; i++)
        gb_user_unref(users[i]);
    gb_user_unref(stranger);
    end_world();
}

RUN_TESTS(NULL, NULL)
