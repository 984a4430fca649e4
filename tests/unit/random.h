/*
 * A seeded generator (SplitMix64), so that a test gets the same numbers in every run.
 */
#ifndef GB_TEST_RANDOM_H
#define GB_TEST_RANDOM_H

#include <stdint.h>

struct test_random {
    uint64_t state;
};

static inline uint64_t test_random_next(struct test_random *random)
{
    uint64_t x = random->state += UINT64_C(0x9e3779b97f4a7c15);

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* One of 0 to count - 1. */
static inline unsigned test_random_below(struct test_random *random, unsigned count)
{
    return (unsigned)((test_random_next(random) >> 32) * count >> 32);
}

#endif
