/* How often a line that a user causes is written. */
#include "tests/cases.h"

#include "daemon/base/log.h"

static void says(const char *event, uid_t uid, uint64_t now, bool may, uint64_t expected)
{
    uint64_t left_out;

    assert_int_equal(gb_log_may(event, uid, now, &left_out), may);
    if (may)
        assert_int_equal(left_out, expected);
}

/* RELIABILITY.md: Hostile clients 10 */
TEST(test_one_a_minute_with_a_count)
{
    uint64_t now = 1000;

    says("one", 7, now, true, 0);
    for (unsigned i = 0; i < 500; i++)
        says("one", 7, now + i, false, 0);
    says("one", 7, now + GB_LOG_PAUSE_MS - 1, false, 0);
    says("one", 7, now + GB_LOG_PAUSE_MS, true, 501);
    says("one", 7, now + GB_LOG_PAUSE_MS + 1, false, 0);
    says("one", 7, now + 3 * GB_LOG_PAUSE_MS, true, 1);
    says("one", 7, now + 5 * GB_LOG_PAUSE_MS, true, 0);
}

/* A user's lines leave room for those of others, and for its own of another kind. */
/* RELIABILITY.md: Hostile clients 10 */
TEST(test_by_user_and_kind)
{
    says("kind", 1, 1000000, true, 0);
    says("kind", 1, 1000000, false, 0);
    says("kind", 2, 1000000, true, 0);
    says("other kind", 1, 1000000, true, 0);
    says("kind", GB_NOBODY, 1000000, true, 0);
    says("kind", 1, 1000001, false, 0);
}

/* More users than there is room for share one line a minute; each user's count is kept. */
TEST(test_very_many_users)
{
    const uint64_t now = 5000000;
    unsigned written = 0;
    uint64_t left_out;

    says("first", 0, now, true, 0);
    says("first", 0, now, false, 0);
    for (unsigned uid = 0; uid < 5000; uid++)
        written += gb_log_may("many", uid, now, &left_out);
    assert_in_range(written, 200, 256);
    says("first", 0, now + GB_LOG_PAUSE_MS, true, 1);
    says("many", 100000, now + 2 * GB_LOG_PAUSE_MS, true, 0); /* those that are over give way */
}

/* Counts of users who do not come back leave room for others, later. */
TEST(test_users_who_are_gone)
{
    const uint64_t now = 9000000, later = now + GB_LOG_PAUSE_MS;
    uint64_t left_out;

    for (unsigned uid = 0; uid < 2 * 300; uid++)
        gb_log_may("gone", uid / 2, now, &left_out);
    for (unsigned uid = 0; uid < 100; uid++)
        says("new", uid, later, true, 0);
    says("new", 0, later, false, 0);
}

RUN_TESTS(NULL, NULL)
