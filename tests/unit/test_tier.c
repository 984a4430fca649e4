/* Bids on tiers, by random calls against a plain search: the oldest that bids for a tier comes
   first. */
#include "tests/cases.h"

#include "daemon/memory/tier.h"
#include "random.h"

enum { BIDS = 5 };

struct world {
    struct gb_tier tiers[GB_TIERS];
    struct gb_bid bids[BIDS];
    enum gb_tier_kind from[BIDS]; /* of the model */
};

static void begin(struct world *world)
{
    memset(world, 0, sizeof *world);
    for (unsigned kind = 0; kind < GB_TIERS; kind++)
        world->tiers[kind].kind = (enum gb_tier_kind)kind;
    for (unsigned i = 0; i < BIDS; i++) {
        world->bids[i].serial = 10 * (i + 1);
        world->from[i] = GB_TIERS;
    }
}

static bool has_before(const struct world *world, unsigned kind, uint64_t serial)
{
    for (unsigned i = 0; i < BIDS; i++)
        if (world->from[i] <= kind && world->bids[i].serial < serial)
            return true;
    return false;
}

static void check(const struct world *world)
{
    for (unsigned kind = 0; kind < GB_TIERS; kind++) {
        for (uint64_t serial = 0; serial <= 10 * (BIDS + 1); serial += 5)
            assert_int_equal(gb_tier_has_older_bid(&world->tiers[kind], serial),
                             has_before(world, kind, serial));
        assert_int_equal(gb_tier_has_older_bid(&world->tiers[kind], UINT64_MAX),
                         has_before(world, kind, UINT64_MAX));
    }
}

/* RELIABILITY.md: Memory is short 7 */
TEST(test_by_random_calls)
{
    struct test_random random = {7};
    struct world world;

    begin(&world);
    check(&world);
    for (unsigned i = 0; i < 20000; i++) {
        unsigned which = test_random_below(&random, BIDS);
        enum gb_tier_kind from = (enum gb_tier_kind)test_random_below(&random, GB_TIERS + 1);

        assert_int_equal(gb_bid_set(&world.bids[which], world.tiers, from),
                         from > world.from[which]);
        world.from[which] = from;
        check(&world);
    }
}

RUN_TESTS(NULL, NULL)
