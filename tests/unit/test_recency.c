/* Recency: the place in a long order. Its lists and sums are checked by tests/unit/inside.h, its
   order by tests/integration/test_model.py. */
#include "tests/cases.h"

#include "daemon/memory/recency.c"

/* A place in a long order is found, or not within the bound. */
TEST(test_before_in_a_long_order)
{
    enum { COUNT = 1000, MOST = 100 };
    static struct gb_recent entries[COUNT];
    struct gb_recency recency = {.count = 0};

    memset(entries, 0, sizeof(entries));
    for (unsigned i = 0; i < COUNT; i++) {
        gb_recent_enter(&recency, &entries[i], i + 1);
        gb_recent_set(&entries[i], i * 7 % 3 == 0, false);
    }
    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t count, bytes;
        bool near = i <= MOST;

        assert_int_equal(gb_recent_before(&entries[i], MOST, &count, &bytes), near);
        assert_int_equal(count, near ? i : MOST);
        assert_true(gb_recent_before(&entries[i], COUNT, &count, &bytes));
        assert_int_equal(count, i);
        assert_int_equal(bytes, i * (i + 1) / 2);
    }
}

RUN_TESTS(NULL, NULL)
