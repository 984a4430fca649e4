/*
 * The store over a device that is made up. Figures are worked out here from what the header says;
 * random operations are followed by a walk over everything there is.
 */
#include "tests/cases.h"

#include "random.h"
#include "store_world.h"

/* ---- small cases ---- */

TEST(test_sizes)
{
    static const uint64_t largest[][3] = {
        /* capacity, largest shared segment, and where the driver is slow, in MiB */
        {2, 2, 2},         {5, 4, 4},           {63, 62, 62},
        {64, 64, 64},      {4096, 64, 128},     {8192, 128, 256},
        {16384, 256, 512}, {65536, 1024, 1024}, {1 << 20, 1024, 1024},
    };

    for (size_t i = 0; i < sizeof(largest) / sizeof(largest[0]); i++) {
        struct gb_device device = {.capacity = largest[i][0] * MIB, .granularity = 2 * MIB};

        assert_int_equal(gb_store_largest_shared(&device), largest[i][1] * MIB);
        device.can_block = true;
        assert_int_equal(gb_store_largest_shared(&device), largest[i][2] * MIB);
    }
}

/* Small objects share segments that double; domains never do; nothing takes nothing. */
TEST_WITH(test_shared, NULL, tear_down)
{
    begin(1024 * MIB);
    assert_int_equal(place(0, 1), 0);
    assert_int_equal(segment_of(0)->bytes, 2 * MIB);
    assert_int_equal(world.storages[0]->bytes, GB_ARENA_GRANULE);
    assert_int_equal(place(0, MIB), 0);
    assert_ptr_equal(segment_of(1), segment_of(0));
    assert_int_equal(place(1, 1), 0); /* another mode */
    assert_int_equal(place(2, 1), 0); /* another user */
    assert_ptr_not_equal(segment_of(2), segment_of(0));
    assert_ptr_not_equal(segment_of(3), segment_of(0));
    assert_ptr_not_equal(segment_of(3), segment_of(2));
    assert_int_equal(place(0, 3 * MIB), 0);
    assert_int_equal(segment_of(4)->bytes, 4 * MIB);
    assert_int_equal(place(0, 16 * MIB), 0); /* the largest that shares: a quarter of 64 MiB */
    assert_int_equal(segment_of(5)->kind, GB_SEGMENT_SHARED);
    assert_int_equal(segment_of(5)->bytes, 16 * MIB);
    assert_int_equal(place(0, 0), 0);
    assert_int_equal(world.storages[6]->placement_count, 0);
    check();
}

/* Large ones have a segment of their own, which serves the domain's next one of about that size. */
TEST_WITH(test_own, NULL, tear_down)
{
    struct gb_segment *segment;

    begin(1024 * MIB);
    assert_int_equal(place(0, 16 * MIB + 1), 0);
    segment = segment_of(0);
    assert_int_equal(segment->kind, GB_SEGMENT_OWN);
    assert_int_equal(segment->bytes, 18 * MIB);
    assert_int_equal(world.device.used, 18 * MIB);
    give_up(0);
    assert_int_equal(gb_device_retained(&world.device), 18 * MIB);
    assert_int_equal(place(2, 18 * MIB), 0); /* not this user's */
    assert_ptr_not_equal(segment_of(0), segment);
    assert_int_equal(place(0, 17 * MIB), 0);
    assert_ptr_equal(segment_of(1), segment);
    give_up(1);
    assert_int_equal(place(0, 26 * MIB), 0); /* too large */
    give_up(1);
    assert_int_equal(place(0, 20 * MIB), 0); /* 26 would waste more than an eighth */
    assert_int_equal(segment_of(1)->bytes, 20 * MIB);
    check();
}

/* On a device so small that rounding up to a granule is much of an object, its spare serves too. */
TEST_WITH(test_own_small_device, NULL, tear_down)
{
    begin(8 * MIB);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(place(0, 2 * MIB + 1), 0);
        assert_int_equal(segment_of(0)->bytes, 4 * MIB);
        give_up(0);
    }
    assert_int_equal(fake.created, 1);
}

/* On a full device a spare that is far too large is given back for one that fits, unless somebody
   maps it: then it is used as it is, and nobody has to be asked. */
TEST_WITH(test_large_spares, NULL, tear_down)
{
    begin(128 * MIB);
    assert_int_equal(place(0, 60 * MIB), 0);
    assert_int_equal(place(0, 60 * MIB), 0);
    give_up(1);
    assert_int_equal(place(0, 20 * MIB), 0);
    assert_int_equal(segment_of(1)->bytes, 20 * MIB);
    assert_int_equal(world.device.so_far.segments_destroyed, 1);
    check();
    map(0, 0, GB_ACCESS_READ);
    give_up(0); /* and the 20 MiB are the first */
    assert_int_equal(place(0, 40 * MIB), 0);
    assert_int_equal(segment_of(1)->bytes, 40 * MIB); /* there was room for it */
    assert_int_equal(place(0, 30 * MIB), 0);
    assert_int_equal(segment_of(2)->bytes, 60 * MIB);
    assert_int_equal(world.retired, 0);
    check();
}

/* Sizes that can never fit, and sizes that do not fit now. */
TEST_WITH(test_full, NULL, tear_down)
{
    begin(9 * MIB);
    assert_int_equal(place(0, 9 * MIB), GPUBUF_E_NO_SPACE); /* 9 MiB are 4 granules */
    assert_int_equal(place(0, UINT64_MAX / 2), GPUBUF_E_NO_SPACE);
    assert_int_equal(place(0, 8 * MIB), 0);
    assert_int_equal(place(1, 1), GB_PLACE_FULL);
    assert_int_equal(place(0, 8 * MIB), GB_PLACE_FULL);
    check();
    give_up(0);
    assert_int_equal(place(1, 1), 0); /* the empty one was given back for it */
    assert_int_equal(world.device.so_far.segments_destroyed, 1);
    check();
}

/* A name's next version goes into the memory of the one before the last, however large they are:
   what ran empty last is kept, and everything else is given back for it. */
TEST_WITH(test_versions, NULL, tear_down)
{
    begin(1024 * MIB);
    assert_int_equal(place(1, 200 * MIB), 0); /* what another user has is kept, too, until then */
    give_up(0);
    assert_int_equal(gb_device_retained(&world.device), 200 * MIB);
    assert_int_equal(place(0, 400 * MIB), 0);
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(place(0, 400 * MIB), 0);
        give_up(0);
        check();
        assert_int_equal(gb_device_retained(&world.device), 400 * MIB);
    }
    assert_int_equal(world.device.so_far.segments_created, 3);
    assert_int_equal(place(1, 624 * MIB), 0); /* and whoever needs the room has it */
    assert_int_equal(gb_device_retained(&world.device), 0);
    check();
}

/* Empty segments are kept up to a quarter of the capacity, but 64 MiB at least; the oldest go. */
TEST_WITH(test_retained, NULL, tear_down)
{
    struct gb_segment *newest;

    begin(512 * MIB);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(place(0, 20 * MIB + i * 4 * MIB), 0);
    for (unsigned i = 8; i-- > 0;)
        give_up(i);
    check();
    assert_true(gb_device_retained(&world.device) <= 128 * MIB);
    assert_int_equal(gb_device_retained(&world.device), (20 + 24 + 28 + 32) * MIB);
    newest = GB_CONTAINER(world.store.empties.prev, struct gb_segment, empties);
    assert_int_equal(newest->bytes, 20 * MIB);
}

/* Trimming takes first what nobody maps, asks for the rest, and for no more than is needed. */
TEST_WITH(test_trim, NULL, tear_down)
{
    begin(1024 * MIB);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(place(0, 20 * MIB), 0);
    map(0, 0, GB_ACCESS_READ);
    map(0, 1, GB_ACCESS_READ);
    map(1, 1, GB_ACCESS_WRITE);
    while (world.count > 0)
        give_up(0);
    assert_int_equal(gb_store_trim(&world.store, &world.device, 1), 20 * MIB);
    assert_int_equal(world.retired, 0);
    assert_int_equal(gb_store_trim(&world.store, &world.device, 21 * MIB), 20 * MIB);
    assert_int_equal(world.retired, 1);
    assert_int_equal(world.device.pinned_by_clients, 20 * MIB);
    check();
    assert_int_equal(gb_store_trim(&world.store, &world.device, 1), 0);
    assert_int_equal(world.retired, 3); /* both of its mappers */
    assert_int_equal(gb_store_trim(&world.store, &world.device, UINT64_MAX), 0);
    assert_int_equal(world.retired, 3);      /* nobody is asked twice */
    assert_int_equal(place(0, 20 * MIB), 0); /* and nothing that was asked back is used again */
    assert_int_equal(fake.created, 5);
    unmap_all(0);
    check();
    assert_int_equal(world.device.pinned_by_clients, 20 * MIB);
    unmap_all(1);
    assert_int_equal(world.device.pinned_by_clients, 0);
    assert_int_equal(world.device.segments, 1);
}

/* A mapping is counted once, with the widest access; its end is the segment's if that waits. */
TEST_WITH(test_mappings, NULL, tear_down)
{
    struct gb_mapping *mapping;

    begin(1024 * MIB);
    assert_int_equal(place(0, 1), 0);
    map(0, 0, GB_ACCESS_WRITE);
    map(0, 0, GB_ACCESS_READ);
    assert_int_equal(world.store.mappings.count, 1);
    mapping = gb_mapper_find(&world.store, &world.mappers[0], segment_of(0)->id);
    assert_non_null(mapping);
    assert_int_equal(mapping->access, GB_ACCESS_WRITE);
    assert_null(gb_mapper_find(&world.store, &world.mappers[1], segment_of(0)->id));
    gb_mapping_end(&world.store, mapping);
    assert_int_equal(world.device.segments, 1);
    check();
}

TEST_WITH(test_adopt, NULL, tear_down)
{
    begin(64 * MIB);
    assert_int_equal(adopt_some(1, 4096, 16), 0);
    assert_int_equal(world.storages[0]->placement_count, 16);
    assert_true(world.storages[0]->adopted);
    assert_int_equal(world.users[1]->bytes[0], 16 * 4096);
    map(0, 0, GB_ACCESS_READ);
    check();
    give_up(0); /* never kept: it is nobody's domain */
    assert_int_equal(world.device.pinned_by_clients, 16 * 4096);
    assert_int_equal(world.retired, 16);
    check();
    unmap_all(0);
    assert_int_equal(world.device.allocated, 0);
    assert_int_equal(adopt_some(0, 4 * MIB, 17 - 1), 0);
    assert_int_equal(adopt_some(0, 4096, 1), GB_PLACE_FULL);
    assert_int_equal(adopt_some(0, 33 * MIB, 2), GPUBUF_E_NO_SPACE);
    check();
    for (unsigned n = 1; n <= 3; n++) { /* all or none */
        give_up(0);
        fake.fail_in = n;
        assert_int_equal(adopt_some(0, 4 * MIB, 3), GPUBUF_E_DEVICE);
        check();
        assert_int_equal(adopt_some(0, 4 * MIB, 16), 0);
    }
}

TEST_WITH(test_device_fails, NULL, tear_down)
{
    begin(64 * MIB);
    fake.fail_in = 1;
    assert_int_equal(place(0, 1), GPUBUF_E_DEVICE);
    fake.fail_in = 1;
    assert_int_equal(place(0, 20 * MIB), GPUBUF_E_DEVICE);
    check();
    assert_int_equal(world.store.domains.count, 0);
    assert_int_equal(place(0, 1), 0);
}

TEST_WITH(test_user_limit, NULL, tear_down)
{
    begin(1024 * MIB);
    world.store.users.quotas.standard.most[GB_QUOTA_SEGMENTS] = 3;
    assert_int_equal(place(0, 20 * MIB), 0);
    assert_int_equal(adopt_some(0, 4096, 3), GPUBUF_E_LIMIT);
    assert_int_equal(adopt_some(0, 4096, 2), 0);
    assert_int_equal(place(0, 20 * MIB), GPUBUF_E_LIMIT);
    assert_int_equal(place(1, 1), GPUBUF_E_LIMIT);
    assert_int_equal(place(2, 1), 0); /* another user */
    check();
    give_up(0);
    assert_int_equal(place(0, 19 * MIB), 0); /* what is there may be used */
}

TEST_WITH(test_bytes_of_a_user, NULL, tear_down)
{
    begin(1024 * MIB);
    world.store.users.quotas.standard.bytes[0] = 50 * MIB;
    assert_int_equal(place(0, 1), 0);
    assert_int_equal(place(0, 256), 0);
    assert_int_equal(place(0, 257), 0);
    assert_int_equal(world.users[0]->bytes[0], 4 * 256);
    assert_int_equal(place(0, 29 * MIB), 0); /* a segment of its own: even MiB */
    assert_int_equal(world.users[0]->bytes[0], 4 * 256 + 30 * MIB);
    assert_int_equal(place(1, 20 * MIB), GPUBUF_E_LIMIT);
    assert_int_equal(place(1, 19 * MIB), GPUBUF_E_LIMIT);
    assert_int_equal(adopt_some(0, 5 * MIB, 4), GPUBUF_E_LIMIT);
    assert_int_equal(place(1, 18 * MIB), 0);
    assert_int_equal(place(0, 2 * MIB - 4 * 256), 0); /* to the last byte */
    assert_int_equal(place(0, 1), GPUBUF_E_LIMIT);
    assert_int_equal(place(0, 0), 0); /* nothing is free of charge */
    assert_int_equal(adopt_some(1, 25 * MIB, 2), 0);
    assert_int_equal(place(2, 1), GPUBUF_E_LIMIT);
    check();
    gb_storage_ref(world.storages[3]); /* an alias */
    gb_storage_unref(&world.store, world.storages[3]);
    assert_int_equal(place(0, 1), GPUBUF_E_LIMIT);
    give_up(3);
    assert_int_equal(world.users[0]->bytes[0], 20 * MIB);
    assert_int_equal(place(0, 26 * MIB), 0); /* the segment of 30 MiB would do: 26 count */
    assert_int_equal(world.users[0]->bytes[0], 46 * MIB);
    check();
}

TEST_WITH(test_idle, NULL, tear_down)
{
    begin(1024 * MIB);
    world.store.retire_after_ms = 100;
    assert_int_equal(gb_store_retire_idle(&world.store, 1000), UINT64_MAX);
    assert_int_equal(place(0, 1), 0);
    assert_int_equal(place(0, 20 * MIB), 0);
    assert_int_equal(place(2, 30 * MIB), 0);
    assert_int_equal(gb_store_retire_idle(&world.store, 1000), UINT64_MAX);
    give_up(1);
    assert_int_equal(gb_store_retire_idle(&world.store, 1010), 1110);
    give_up(1);
    assert_int_equal(gb_store_retire_idle(&world.store, 1050), 1110);
    assert_int_equal(gb_store_retire_idle(&world.store, 1109), 1110);
    assert_int_equal(fake.live, 3);
    assert_int_equal(gb_store_retire_idle(&world.store, 1110),
                     1150); /* the first, not the second */
    assert_int_equal(fake.live, 2);
    check();
    assert_int_equal(place(2, 30 * MIB), 0); /* used again: the time begins anew */
    assert_int_equal(fake.created, 3);
    assert_int_equal(gb_store_retire_idle(&world.store, 1200), UINT64_MAX);
    map(0, 1, GB_ACCESS_READ);
    give_up(1);
    assert_int_equal(gb_store_retire_idle(&world.store, 1200), 1300);
    assert_int_equal(gb_store_retire_idle(&world.store, 1300), UINT64_MAX); /* asked back */
    assert_int_equal(world.retired, 1);
    assert_int_equal(fake.live, 2);
    check();
    unmap_all(0);
    assert_int_equal(fake.live, 1);
    world.store.retire_after_ms = 0;
    give_up(0);
    assert_int_equal(gb_store_retire_idle(&world.store, 1300), UINT64_MAX);
    assert_int_equal(fake.live, 0);
    world.store.retire_after_ms = UINT64_MAX;
    assert_int_equal(place(0, 1), 0);
    give_up(0);
    assert_int_equal(gb_store_retire_idle(&world.store, UINT64_MAX - 1), UINT64_MAX);
    assert_int_equal(fake.live, 1);
}

/* ---- thousands of random operations ---- */

static void random_step(struct test_random *random, uint64_t now)
{
    unsigned what = test_random_below(random, 16), some = test_random_below(random, 1 << 16);

    if (what < 5 && world.count < MOST) {
        uint64_t scale = (uint64_t)1 << test_random_below(random, 25);

        fake.fail_in = test_random_below(random, 40) == 0 ? 1 : 0;
        place(some % 3, scale + scale * (some % 7) / 8);
        fake.fail_in = 0;
    } else if (what == 5 && world.count < MOST) {
        fake.fail_in = test_random_below(random, 8) == 0 ? 2 : 0;
        adopt_some(some % 2, 4096u << (some % 12), 1 + some % 4);
        fake.fail_in = 0;
    } else if (what < 10 && world.count > 0) {
        give_up(some % world.count);
    } else if (what < 13 && world.count > 0) {
        map(test_random_below(random, MAPPERS), some % world.count,
            some % 3 ? GB_ACCESS_READ : GB_ACCESS_WRITE);
    } else if (what == 13) {
        struct gb_mapper *mapper = &world.mappers[some % MAPPERS];

        if (!gb_list_empty(&mapper->mappings))
            gb_mapping_end(&world.store,
                           GB_CONTAINER(mapper->mappings.next, struct gb_mapping, of_mapper));
    } else if (what == 14 && some % 8 == 0) {
        unmap_all(some / 8 % MAPPERS);
    } else if (what == 15 && some % 8 == 0) {
        gb_store_trim(&world.store, &world.device, (uint64_t)some << 8);
    } else if (what == 15 && some % 8 == 1) {
        gb_store_retire_idle(&world.store, now);
    }
}

TEST(test_random_operations)
{
    static const uint64_t capacities[] = {6, 17, 64, 200, 1024};

    for (unsigned seed = 0; seed < 10; seed++) {
        struct test_random random = {seed};

        begin(capacities[seed % 5] * MIB);
        world.store.users.quotas.standard.most[GB_QUOTA_SEGMENTS] = seed < 5 ? 65536 : 12;
        world.store.users.quotas.standard.bytes[0] = seed % 2 ? 1024 * MIB : 48 * MIB;
        world.store.retire_after_ms = 100;
        for (unsigned step = 0; step < 1500; step++) {
            random_step(&random, 1 + step);
            check();
        }
        end();
    }
}

RUN_TESTS(NULL, NULL)
