/*
 * The store over a device whose driver is slow: memory is made by a mover, and ahead of those who
 * will want it.
 */
#include <uv.h>

#include "tests/cases.h"

#include "store_world.h"

static uv_loop_t slow_loop;

static void begin_slow(uint64_t capacity)
{
    begin(capacity);
    world.device.can_block = true;
    assert_int_equal(uv_loop_init(&slow_loop), 0);
    assert_int_equal(gb_mover_new(&slow_loop, &world.device.mover), 0);
}

/* Until the mover has done all. */
static void settle(void)
{
    while (world.device.moving > 0)
        uv_run(&slow_loop, UV_RUN_ONCE);
    check();
}

static void end_slow(void)
{
    while (world.count > 0)
        give_up(0);
    for (unsigned i = 0; i < MAPPERS; i++)
        unmap_all(i);
    gb_store_trim(&world.store, &world.device, UINT64_MAX);
    settle();
    gb_mover_end(world.device.mover);
    world.device.mover = NULL;
    uv_run(&slow_loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&slow_loop), 0);
    end();
}

/* Returns what is on its way, after a place was found at once. */
static uint64_t place_now(unsigned key, uint64_t bytes)
{
    uint64_t moving;

    assert_int_equal(place(key, bytes), 0);
    moving = world.device.moving;
    assert_int_equal(world.users[world.keys[key].uid - 1000]->has[GB_QUOTA_SEGMENTS] + (moving > 0),
                     world.device.segments + (moving > 0));
    settle();
    return moving;
}

/* One that has to wait for memory. */
static void place_slowly(unsigned key, uint64_t bytes)
{
    assert_int_equal(place(key, bytes), GB_PLACE_MAKING);
    settle();
    assert_int_equal(place_now(key, bytes), 0);
}

/* Another segment is made as soon as less than half of the largest is free, so that nobody waits
   for it. It counts like any other from the start. */
TEST(test_ahead)
{
    begin_slow(1024 * MIB);
    place_slowly(0, 1);
    assert_int_equal(world.device.allocated, 2 * MIB);
    assert_int_equal(place_now(0, MIB), 4 * MIB);
    assert_int_equal(world.device.allocated, 6 * MIB);
    assert_int_equal(world.users[0]->held[0], 6 * MIB);
    assert_int_equal(gb_device_retained(&world.device), 5 * MIB - GB_ARENA_GRANULE);
    assert_int_equal(place_now(0, MIB / 2), 0); /* there is enough */
    assert_int_equal(place_now(0, 3 * MIB), 8 * MIB);
    assert_int_equal(segment_of(3)->bytes, 4 * MIB);
    end_slow();
}

/* One that is on its way when memory is wanted is given back as soon as it is there. */
TEST(test_ahead_is_not_wanted)
{
    begin_slow(1024 * MIB);
    place_slowly(0, 1);
    assert_int_equal(place(0, MIB), 0);
    assert_int_equal(world.device.moving, 4 * MIB);
    gb_store_trim(&world.store, &world.device, MIB);
    gb_store_trim(&world.store, &world.device, MIB);
    assert_int_equal(world.device.freeing, 4 * MIB);
    settle();
    assert_int_equal(world.device.freeing, 0);
    assert_int_equal(world.device.allocated, 2 * MIB);
    end_slow();
}

/* Not of what a device or a user is short of, and once only. */
TEST(test_not_ahead)
{
    begin_slow(17 * MIB); /* 15 left: 4 are more than a quarter */
    place_slowly(0, 2 * MIB);
    assert_int_equal(world.device.allocated, 2 * MIB);
    end_slow();

    begin_slow(1024 * MIB);
    world.store.users.quotas.standard.bytes[0] = 8 * MIB; /* 6 left */
    place_slowly(0, 2 * MIB);
    assert_int_equal(world.device.allocated, 2 * MIB);
    end_slow();
}

/* Memory beside an object that somebody maps is its domain's at once, without a question, and
   nobody else's: a segment goes as a whole. */
TEST(test_beside_mapped)
{
    begin_slow(64 * MIB);
    place_slowly(0, 16 * MIB);
    assert_int_equal(segment_of(0)->bytes, 16 * MIB);
    place_slowly(0, 16 * MIB);
    assert_int_equal(segment_of(1)->bytes, 32 * MIB);
    assert_int_equal(place_now(0, 16 * MIB), 0);
    place_slowly(0, 16 * MIB);
    map(0, 2, GB_ACCESS_READ);
    give_up(1); /* beside it */
    assert_int_equal(world.device.pinned_by_clients, 0);
    assert_int_equal(gb_device_retained(&world.device), 16 * MIB);
    assert_int_equal(place(2, 1), GB_PLACE_FULL);
    assert_int_equal(world.retired, 0);
    assert_int_equal(place_now(0, 16 * MIB), 0);
    assert_int_equal(world.retired, 0);
    end_slow();
}

RUN_TESTS(NULL, NULL)
