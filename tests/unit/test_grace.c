/* The end of the grace period: however many leases it has, a turn ends some of them. */
#include "tests/cases.h"

#include "registry_world.h"

#include "daemon/survive/state.h"

#define MANY 5000u
#define MOST 256u /* in a turn */

TEST(test_it_ends_in_pieces)
{
    struct gb_state after = {
        .registry = &world.registry, .grace_until = 1000, .next.fd = -1, .journal.fd = -1};
    struct gb_object *object;
    unsigned turns = 0;
    uint64_t before;

    begin();
    gb_holder_init(&after.grace);
    after.grace.user = gb_user_ref(world.user);
    object = publish("a", storage_of(8), false);
    for (unsigned i = 0; i < MANY; i++)
        assert_non_null(gb_lease_new(&world.registry, object, &after.grace, false, 0));
    assert_false(gb_state_tend(&after, 999));
    assert_int_equal(after.grace.count, MANY);
    do {
        before = after.grace.count;
        assert_true(gb_state_due(&after) <= 1000); /* the loop does not sleep before the rest */
        turns++;
    } while (!gb_state_tend(&after, 1000) && before - after.grace.count <= MOST);
    assert_true(before - after.grace.count <= MOST);
    assert_int_equal(after.grace.count, 0);
    assert_int_equal(turns, MANY / MOST + 1);
    assert_int_equal(gb_state_due(&after), UINT64_MAX);
    gb_user_unref(after.grace.user);
    gb_registry_unname(&world.registry, object, GB_EVENT_DELETED);
    end();
}

RUN_TESTS(NULL, NULL)
