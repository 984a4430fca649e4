/* Quotas: how they are written, what several of them come to, and what a user is told past one. */
#include "tests/cases.h"

#include "failing.h"

#include "daemon/store/quota.c"
#include "daemon/store/user.c"

#define MIB ((uint64_t)1 << 20)

/* ---- what the tests work on ---- */

static struct gb_device host = {.id = "host", .granularity = 2 * MIB};
static struct gb_device gpu = {
    .id = "GPU-1", .alias = "cuda:0", .index = 1, .granularity = 4 * MIB};
static struct gb_device *const devices[] = {&host, &gpu};

static struct {
    struct gb_limits limits;
    struct gb_quota_rule *rules;
    unsigned count;
    struct gb_quotas quotas;
    struct gb_error error;
} world;

static int begin(void **state)
{
    memset(&world, 0, sizeof(world));
    gb_quotas_init(&world.quotas);
    world.limits = (struct gb_limits){
        .user_sessions = 10, .user_objects = 20, .user_segments = 30, .user_bytes = 40 * MIB};
    return 0;
}

static int end(void **state)
{
    free(world.rules);
    gb_quotas_end(&world.quotas);
    return 0;
}

static int read_one(const char *text)
{
    return gb_quota_read(text, &world.limits, &world.rules, &world.count, &world.error);
}

static int set(void)
{
    return gb_quotas_set(&world.quotas, &world.limits, world.rules, world.count, devices, 2,
                         &world.error);
}

static void expect_quota(uid_t uid, uint64_t sessions, uint64_t objects, uint64_t segments,
                         uint64_t on_host, uint64_t on_gpu)
{
    const struct gb_quota *quota = gb_quotas_of(&world.quotas, uid);

    assert_int_equal(quota->most[GB_QUOTA_SESSIONS], sessions);
    assert_int_equal(quota->most[GB_QUOTA_OBJECTS], objects);
    assert_int_equal(quota->most[GB_QUOTA_SEGMENTS], segments);
    assert_int_equal(quota->bytes[0], on_host);
    assert_int_equal(quota->bytes[1], on_gpu);
}

/* ---- the tests ---- */

TEST_WITH(test_standard, begin, end)
{
    expect_quota(7, GB_LIMIT(user_sessions), GB_LIMIT(user_objects), GB_LIMIT(user_segments),
                 (uint64_t)GB_LIMIT(user_bytes), (uint64_t)GB_LIMIT(user_bytes));
    assert_int_equal(set(), 0);
    expect_quota(7, 10, 20, 30, 40 * MIB, 40 * MIB);
}

TEST_WITH(test_everybodys_are_limits, begin, end)
{
    assert_int_equal(read_one("default:objects=1K,bytes=1G,sessions=3,segments=4"), 0);
    assert_int_equal(world.count, 0);
    assert_int_equal(world.limits.user_objects, 1024);
    assert_int_equal(world.limits.user_bytes, 1024 * MIB);
    assert_int_equal(world.limits.user_sessions, 3);
    assert_int_equal(world.limits.user_segments, 4);
}

/* Somebody's own before everybody's, a device before all, and what comes later before the
   earlier. */
TEST_WITH(test_which_holds, begin, end)
{
    assert_int_equal(read_one("1000:bytes=8M@cuda:0,bytes=9M,objects=5"), 0);
    assert_int_equal(read_one("1001:segments=6"), 0);
    assert_int_equal(read_one("1002:bytes=12M"), 0);
    assert_int_equal(read_one("default:bytes=20M@GPU-1,sessions=11"), 0);
    assert_int_equal(read_one("1000:objects=7"), 0);
    assert_int_equal(read_one("root:sessions=1"), 0);
    assert_int_equal(set(), 0);
    expect_quota(1000, 11, 7, 30, 9 * MIB, 8 * MIB);
    expect_quota(1001, 11, 20, 6, 40 * MIB, 20 * MIB);
    expect_quota(1002, 11, 20, 30, 12 * MIB, 12 * MIB);
    expect_quota(1003, 11, 20, 30, 40 * MIB, 20 * MIB);
    expect_quota(0, 1, 20, 30, 40 * MIB, 20 * MIB);
}

TEST_WITH(test_bad_ones, begin, end)
{
    static const char *const bad[][2] = {
        {"", "WHO:NAME=VALUE"},
        {"objects=5", "WHO:NAME=VALUE"},
        {"default:", "WHO:NAME=VALUE"},
        {"default:objects", "expected NAME=VALUE"},
        {"default:cakes=3",
         "no quota \"cakes\"; expected bytes, leases, objects, segments, sessions or text_bytes"},
        {"default:object=3", "no quota \"object\""},
        {"default:=3", "no quota \"\""},
        {"default:objects=0", "above 0"},
        {"default:objects=-1", "above 0"},
        {"default:objects=", "above 0"},
        {"default:objects=3x", "above 0"},
        {"default:bytes=4503599627370496", "above 0"},
        {"default:bytes=99999999999999999999999999999999999999999", "above 0"},
        {"default:objects=3@host", "only bytes"},
        {"default:bytes=3M@", "only bytes"},
        {":objects=3", "no user \"\""},
        {"no such user:objects=3", "no user \"no such user\""},
        {"4294967295:objects=3", "no uid"},
        {"99999999999999999999999:objects=3", "no uid"},
        {"-1:objects=3", "no user \"-1\""},
    };
    char text[1024];

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(read_one(bad[i][0]), GPUBUF_E_INVALID);
        if (!strstr(world.error.message, bad[i][1]))
            fail_msg("%s: %s", bad[i][0], world.error.message);
    }
    memset(text, 'x', sizeof(text) - 1);
    text[3] = ':';
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(read_one(text), GPUBUF_E_INVALID);
    strcpy(text, "default:bytes=3M@");
    memset(text + strlen(text), 'x', 100);
    text[110] = '\0';
    assert_int_equal(read_one(text), GPUBUF_E_INVALID);
    assert_int_equal(world.count, 0);
}

static void refuses(const char *text, const char *part)
{
    assert_int_equal(read_one(text), 0);
    assert_int_equal(set(), GPUBUF_E_INVALID);
    if (!strstr(world.error.message, part))
        fail_msg("%s: %s", text, world.error.message);
    free(world.rules);
    world.rules = NULL;
    world.count = 0;
}

TEST_WITH(test_less_than_a_segment, begin, end)
{
    refuses("1000:bytes=2097151@host",
            "uid 1000, 2097151 bytes on host, is less than one segment, 2097152");
    refuses("1000:bytes=3M", "uid 1000, 3145728 bytes on GPU-1, is less than one segment, 4194304");
    refuses("default:bytes=1M@cuda:0", "every user, 1048576 bytes on GPU-1");
    refuses("1000:bytes=3M@cuda:1", "--quota bytes=3145728@cuda:1: that is none of the devices");
    assert_int_equal(read_one("1000:bytes=2M@host"), 0);
    assert_int_equal(read_one("1000:bytes=4M@GPU-1"), 0);
    assert_int_equal(set(), 0);
    refuses("default:bytes=2M", "every user, 2097152 bytes on GPU-1"); /* stays: a limit */
}

/* However many users take all they can, there is some for the next; what is refused leaves a
   quarter of what is left. */
/* RELIABILITY.md: Hostile clients 6 */
TEST_WITH(test_stocks, begin, end)
{
    enum { USERS = 5 };
    struct gb_charge charges[USERS] = {{NULL}};
    struct gb_user *all[USERS];
    struct gb_users users;
    const struct gb_stock *stock = &users.stocks[GB_STOCK_OPEN];

    gb_users_init(&users);
    gb_users_stock(&users, 1024, 100, 0);
    assert_int_equal(stock->most, 1024 - 128);
    for (int i = 0; i < USERS; i++) {
        uint64_t left = stock->most - stock->used, taken = 0;

        all[i] = gb_user_get(&users, 1000 + (uid_t)i);
        assert_non_null(all[i]);
        charges[i].user = all[i];
        while (gb_user_may_charge(all[i], GB_STOCK_OPEN, 1, &world.error) == 0) {
            uint64_t room = gb_user_room(all[i], GB_STOCK_OPEN);

            assert_int_equal(gb_user_may_charge(all[i], GB_STOCK_OPEN, room, &world.error), 0);
            assert_int_equal(gb_user_may_charge(all[i], GB_STOCK_OPEN, room + 1, &world.error),
                             GPUBUF_E_LIMIT);
            gb_charge_set(&charges[i], GB_STOCK_OPEN, ++taken);
        }
        assert_string_equal(world.error.limit, "open_files");
        assert_in_range(taken, left / 2 - 1, left / 2);
    }
    assert_true(stock->used < stock->most);
    assert_int_equal(gb_user_may_have(all[0], GB_QUOTA_SESSIONS, NULL, 1, &world.error), 0);
    assert_int_equal(gb_user_may_have(all[0], GB_QUOTA_SEGMENTS, NULL, 1, &world.error),
                     GPUBUF_E_LIMIT);
    assert_true(gb_user_room(all[0], GB_STOCK_FLIGHT) == UINT64_MAX);
    for (int i = 0; i < USERS; i++) {
        gb_charge_end(&charges[i]);
        gb_user_unref(all[i]);
    }
    gb_users_reserve(&users, 30); /* of 128 that are reserved */
    assert_int_equal(stock->most, 1024 - 128);
    gb_users_reserve(&users, 824);
    assert_int_equal(stock->most, 184);
    users.stocks[GB_STOCK_OPEN].used = 184 + 8;
    assert_false(gb_users_are_short(&users));
    users.stocks[GB_STOCK_OPEN].used = 184 + 9;
    assert_true(gb_users_are_short(&users));
    gb_users_end(&users);
}

/* The store is the narrower: the sentence says what to raise. */
TEST_WITH(test_stored, begin, end)
{
    struct gb_limits limits = {.sessions = GB_LIMIT(sessions),
                               .user_sessions = 5000, /* as it was set */
                               .user_segments = GB_LIMIT(user_segments),
                               .held_fds = GB_LIMIT(held_fds)};
    struct gb_users users;
    struct gb_user *user;

    gb_users_init(&users);
    gb_users_stock(&users, 4096, 108, 4096);
    user = gb_user_get(&users, 1000);
    assert_non_null(user);
    assert_int_equal(gb_user_may_have(user, GB_QUOTA_SEGMENTS, NULL, 50, &world.error), 0);
    assert_int_equal(gb_user_may_have(user, GB_QUOTA_SEGMENTS, NULL, 51, &world.error),
                     GPUBUF_E_LIMIT);
    assert_string_equal(world.error.limit, "stored_files");
    assert_non_null(strstr(world.error.message, "FileDescriptorStoreMax"));
    gb_user_unref(user);
    gb_users_end(&users);
    gb_limits_fit(&limits, 0, 0);
    assert_int_equal(limits.sessions, GB_LIMIT(sessions));
    gb_limits_fit(&limits, 4096, 108);
    assert_int_equal(limits.sessions, 4096 - 64 - 256);
    assert_int_equal(limits.user_sessions, 5000);
    assert_int_equal(limits.user_segments, 50);
    assert_int_equal(limits.held_fds, 256);
}

/* To the last one, and not one more; and the sentence. */
TEST_WITH(test_users, begin, end)
{
    struct gb_users users;
    struct gb_user *user;

    gb_users_init(&users);
    assert_int_equal(read_one("1000:objects=5,segments=2,sessions=1,bytes=4M@cuda:0"), 0);
    assert_int_equal(gb_quotas_set(&users.quotas, &world.limits, world.rules, world.count, devices,
                                   2, &world.error),
                     0);
    user = gb_user_get(&users, 1000);
    assert_non_null(user);
    user->has[GB_QUOTA_OBJECTS] = 3;
    user->bytes[1] = 1;
    assert_int_equal(gb_user_may_have(user, GB_QUOTA_OBJECTS, NULL, 2, &world.error), 0);
    assert_int_equal(gb_user_may_have(user, GB_QUOTA_OBJECTS, NULL, 3, &world.error),
                     GPUBUF_E_LIMIT);
    assert_string_equal(world.error.message,
                        "uid 1000 uses 3 of its 5 objects: 2 are left, and 3 more would be needed "
                        "(the limit user_objects is 5)");
    assert_string_equal(world.error.limit, "user_objects");
    assert_int_equal(gb_user_may_have(user, GB_QUOTA_SEGMENTS, NULL, 3, &world.error),
                     GPUBUF_E_LIMIT);
    assert_int_equal(gb_user_may_have(user, GB_QUOTA_SESSIONS, NULL, 2, &world.error),
                     GPUBUF_E_LIMIT);
    assert_int_equal(gb_user_may_have(user, GB_QUOTA_BYTES, &host, 40 * MIB, &world.error), 0);
    assert_int_equal(gb_user_may_have(user, GB_QUOTA_BYTES, &gpu, 4 * MIB - 1, &world.error), 0);
    assert_int_equal(gb_user_may_have(user, GB_QUOTA_BYTES, &gpu, UINT64_MAX, &world.error),
                     GPUBUF_E_LIMIT);
    assert_int_equal(gb_user_may_have(user, GB_QUOTA_BYTES, &gpu, 4 * MIB, &world.error),
                     GPUBUF_E_LIMIT);
    assert_string_equal(
        world.error.message,
        "uid 1000 uses 1 of its 4194304 bytes on GPU-1: 4194303 are left, and 4194304 more would "
        "be needed (the limit user_bytes is 4194304)");
    user->has[GB_QUOTA_OBJECTS] = 6; /* a quota may have been lowered under what there is */
    assert_int_equal(gb_user_may_have(user, GB_QUOTA_OBJECTS, NULL, 1, &world.error),
                     GPUBUF_E_LIMIT);
    user->has[GB_QUOTA_OBJECTS] = 0;
    user->bytes[1] = 0;
    assert_ptr_equal(gb_user_get(&users, 1000), user);
    gb_user_unref(user);
    gb_user_unref(user);
    gb_users_end(&users);
}

TEST_WITH(test_no_memory, begin, end)
{
    failing_from(1, 1);
    assert_int_equal(read_one("1000:objects=5"), GPUBUF_E_NO_MEMORY);
    failing_from(0, 0);
    assert_int_equal(read_one("1000:objects=5"), 0);
    failing_from(1, 1);
    assert_int_equal(set(), GPUBUF_E_NO_MEMORY);
    failing_from(0, 0);
    assert_int_equal(set(), 0);
    expect_quota(1000, 10, 5, 30, 40 * MIB, 40 * MIB);
}

RUN_TESTS(NULL, NULL)
