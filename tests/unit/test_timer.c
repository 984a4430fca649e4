/* Deadlines against a plain search; timers by the order in which they are called. */
#include "tests/cases.h"

#include "failing.h"
#include "random.h"

#include "daemon/base/timer.c"

static void check_heap(const struct gb_deadlines *deadlines)
{
    for (size_t i = 1; i <= deadlines->count; i++) {
        assert_int_equal(deadlines->heap[i - 1]->place, i);
        if (i > 1)
            assert_true(deadlines->heap[i / 2 - 1]->at <= deadlines->heap[i - 1]->at);
    }
    assert_true(deadlines->count <= deadlines->capacity);
}

TEST(test_deadlines_against_a_search)
{
    enum { COUNT = 300 };
    static struct gb_deadline all[COUNT];
    struct gb_deadlines deadlines = {0};
    struct test_random random = {4};
    size_t most = 0;

    for (unsigned i = 0; i < 200000; i++) {
        bool filling = i / 5000 % 2 == 0;
        struct gb_deadline *one = &all[test_random_below(&random, COUNT)];
        uint64_t earliest = UINT64_MAX;
        size_t count = 0;

        if (test_random_below(&random, filling ? 8 : 2) == 0)
            gb_deadlines_remove(&deadlines, one);
        else if (filling || one->place)
            assert_true(gb_deadlines_add(&deadlines, one, test_random_below(&random, 1000)));
        for (size_t j = 0; j < COUNT; j++) {
            count += all[j].place != 0;
            if (all[j].place && all[j].at < earliest)
                earliest = all[j].at;
        }
        assert_int_equal(deadlines.count, count);
        if (count)
            assert_int_equal(gb_deadlines_first(&deadlines)->at, earliest);
        else
            assert_null(gb_deadlines_first(&deadlines));
        if (i % 64 == 0)
            check_heap(&deadlines);
        if (deadlines.capacity > most)
            most = deadlines.capacity;
        assert_true(deadlines.capacity <= CAPACITY_MIN || deadlines.capacity <= 4 * (count + 1));
    }
    assert_int_equal(most, 512);
    gb_deadlines_end(&deadlines);
    assert_int_equal(failing_blocks, 0);
}

/* Each allocation fails once: the add that needed it fails and changes nothing, the next works.
   A heap that cannot be made smaller stays as it is. */
TEST(test_deadlines_failing)
{
    enum { COUNT = 200 };
    static struct gb_deadline all[COUNT];
    size_t allocations = 1;

    for (size_t n = 1; n <= allocations; n++) {
        struct gb_deadlines deadlines = {0};
        unsigned failures = 0;

        failing_from(n, 1);
        for (size_t i = 0; i < COUNT; i++) {
            bool added = gb_deadlines_add(&deadlines, &all[i], i * 7 % 10);

            if (!added) {
                failures++;
                assert_int_equal(deadlines.count, i);
                assert_int_equal(all[i].place, 0);
                check_heap(&deadlines);
                assert_true(gb_deadlines_add(&deadlines, &all[i], i * 7 % 10));
            }
            /* Moving one needs no memory. */
            assert_true(gb_deadlines_add(&deadlines, &all[0], i));
        }
        for (size_t i = 0; i < COUNT; i++) {
            gb_deadlines_remove(&deadlines, &all[i]);
            check_heap(&deadlines);
        }
        if (n == 1)
            allocations = failing_calls;
        assert_int_equal(failures, n <= 5); /* 16, 32, 64, 128, 256 */
        failing_from(0, 0);
        gb_deadlines_end(&deadlines);
        assert_int_equal(failing_blocks, 0);
    }
    assert_true(allocations > 5);
}

/* A timer, and what it does when it is called: sets `other` to `at`, 0: nothing. */
struct alarm {
    struct gb_timer timer;
    struct gb_deadlines *timers;
    struct alarm *other;
    uint64_t at;
    char letter;
    char *called;
};

static void ring(struct gb_timer *timer)
{
    struct alarm *alarm = GB_CONTAINER(timer, struct alarm, timer);

    assert_int_equal(timer->deadline.place, 0);
    *strchr(alarm->called, '\0') = alarm->letter;
    if (alarm->at)
        assert_true(gb_timer_set(alarm->timers, &alarm->other->timer, alarm->at));
}

/* Those that are due are called in order, one that is set meanwhile too; the others are not. */
TEST(test_timers)
{
    struct gb_deadlines timers = {0};
    char called[16] = "";
    struct alarm a = {{{0, 0}, ring}, &timers, NULL, 0, 'a', called};
    struct alarm b = {{{0, 0}, ring}, &timers, &a, 25, 'b', called};
    struct alarm c = {{{0, 0}, ring}, &timers, &b, 50, 'c', called};

    assert_true(gb_timer_set(&timers, &a.timer, 10));
    assert_true(gb_timer_set(&timers, &b.timer, 20));
    assert_true(gb_timer_set(&timers, &c.timer, 30));
    assert_false(gb_timers_fire_next(&timers, 9));
    assert_string_equal(called, "");
    while (gb_timers_fire_next(&timers, 30))
        ;
    assert_string_equal(called, "abac");
    assert_int_equal(gb_deadlines_first(&timers)->at, 50);
    gb_timer_cancel(&timers, &b.timer);
    gb_timer_cancel(&timers, &b.timer);
    assert_false(gb_timers_fire_next(&timers, UINT64_MAX));
    assert_string_equal(called, "abac");
    gb_deadlines_end(&timers);
    assert_int_equal(failing_blocks, 0);
}

RUN_TESTS(NULL, NULL)
