/* The end of the grace period: however many leases it has, a turn ends some of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "registry_world.h"

#include "daemon/survive/state.h"

#define MANY 5000u
#define MOST 256u /* in a turn */

static void test_it_ends_in_pieces(void **unused)
{
    struct gb_state state = {
        .registry = &world.registry, .grace_until = 1000, .next.fd = -1, .journal.fd = -1};
    struct gb_object *object;
    unsigned turns = 0;
    uint64_t before;

    (void)unused;
    begin();
    gb_holder_init(&state.grace);
    state.grace.user = gb_user_ref(world.user);
    object = publish("a", storage_of(8), false);
    for (unsigned i = 0; i < MANY; i++)
        assert_non_null(gb_lease_new(&world.registry, object, &state.grace, false, 0));
    assert_false(gb_state_tend(&state, 999));
    assert_int_equal(state.grace.count, MANY);
    do {
        before = state.grace.count;
        assert_true(gb_state_due(&state) <= 1000); /* the loop does not sleep before the rest */
        turns++;
    } while (!gb_state_tend(&state, 1000) && before - state.grace.count <= MOST);
    assert_true(before - state.grace.count <= MOST);
    assert_int_equal(state.grace.count, 0);
    assert_int_equal(turns, MANY / MOST + 1);
    assert_int_equal(gb_state_due(&state), UINT64_MAX);
    gb_user_unref(state.grace.user);
    gb_registry_unname(&world.registry, object, GB_EVENT_DELETED);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_ends_in_pieces),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
