/* Counters of the loop's turns: its time at work, and the longest turn of this minute and the one
   before. */
#include "tests/cases.h"

#include "daemon/serve/metrics.h"

#define SECOND ((uint64_t)1000000000)
#define MINUTE (60 * SECOND)

static void turn(struct gb_metrics *metrics, uint64_t begun_ns, uint64_t ns)
{
    gb_metrics_turn(metrics, begun_ns, begun_ns + ns);
}

TEST(test_longest_turn)
{
    struct gb_metrics metrics = {0};
    uint64_t now = 1000 * MINUTE;

    assert_int_equal(gb_metrics_longest_turn(&metrics, now), 0);
    turn(&metrics, now, 70);
    turn(&metrics, now + SECOND, 500);
    turn(&metrics, now + 2 * SECOND, 30);
    assert_int_equal(gb_metrics_longest_turn(&metrics, now + 59 * SECOND), 500);
    /* The next minute remembers it, the one after that does not. */
    turn(&metrics, now + MINUTE, 90);
    assert_int_equal(gb_metrics_longest_turn(&metrics, now + MINUTE + SECOND), 500);
    assert_int_equal(gb_metrics_longest_turn(&metrics, now + 2 * MINUTE), 90);
    /* A turn that goes on past the minute's end counts for the minute in which it ends. */
    turn(&metrics, now + 3 * MINUTE - 10, 700);
    assert_int_equal(gb_metrics_longest_turn(&metrics, now + 4 * MINUTE), 700);
    assert_int_equal(gb_metrics_longest_turn(&metrics, now + 5 * MINUTE), 0);
    /* In minutes in which nothing was done nothing took long. */
    turn(&metrics, now + 6 * MINUTE, 40);
    assert_int_equal(gb_metrics_longest_turn(&metrics, now + 60 * MINUTE), 0);
    assert_int_equal(metrics.turns_ns, 70 + 500 + 30 + 90 + 700 + 40);
}

RUN_TESTS(NULL, NULL)
