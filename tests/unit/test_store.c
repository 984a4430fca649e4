/*
 * The store over a device that is made up: it counts what it gave and can be told to fail. Figures
 * are worked out here from what the header says; random operations are followed by a walk over
 * everything there is.
 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <uv.h>

#include <cmocka.h>

#include "failing.h"
#include "random.h"

#include "daemon/base/clock.c"
#include "daemon/memory/domain.c"
#include "daemon/memory/making.c"
#include "daemon/memory/mapper.c"
#include "daemon/memory/store.c"

/* ---- a device ---- */

static struct {
    unsigned live, created; /* memories */
    uint64_t live_bytes;
    unsigned fail_in; /* the so-many-th create or adopt from now fails; 0: none */
} fake;

static bool fails(void)
{
    return fake.fail_in > 0 && --fake.fail_in == 0;
}

static bool fake_can_share(const struct gb_device *device, enum gb_share share)
{
    (void)device;
    return share == GB_SHARE_FD;
}

/* A memory's descriptor is its size in pages: nothing here uses it as one. */
static int give(uint64_t bytes, struct gb_memory *memory, struct gb_error *error)
{
    if (fails())
        return gb_fail(error, GPUBUF_E_DEVICE, "told to fail");
    fake.live++;
    fake.created++;
    fake.live_bytes += bytes;
    *memory = (struct gb_memory){.write_fd = (int)(bytes >> 12), .read_fd = -1};
    return 0;
}

static int fake_create(struct gb_device *device, enum gb_share share, uint64_t bytes,
                       struct gb_memory *memory, struct gb_error *error)
{
    (void)share;
    assert_int_equal(bytes % device->granularity, 0);
    return give(bytes, memory, error);
}

static int fake_adopt(struct gb_device *device, const struct gb_handle *handle, int fd,
                      struct gb_memory *memory, struct gb_error *error)
{
    (void)device;
    (void)fd;
    return give(handle->bytes, memory, error);
}

static void fake_destroy(struct gb_device *device, struct gb_memory *memory)
{
    (void)device;
    assert_true(memory->write_fd > 0);
    fake.live--;
    fake.live_bytes -= (uint64_t)memory->write_fd << 12;
    memory->write_fd = 0;
}

static const struct gb_device_ops fake_ops = {
    .can_share = fake_can_share,
    .create = fake_create,
    .adopt = fake_adopt,
    .destroy = fake_destroy,
};

/* ---- what the tests work on ---- */

enum { MOST = 64, MAPPERS = 4 };

static struct {
    struct gb_device device;
    struct gb_store store;
    struct gb_user *users[2];
    struct gb_domain_key keys[3];
    struct gb_mapper mappers[MAPPERS];
    struct gb_storage *storages[MOST];
    unsigned count;
    unsigned retired; /* times that a mapper was asked */
} world;

static void on_retire(void *arg, struct gb_mapper *mapper, const struct gb_segment *segment)
{
    assert_ptr_equal(arg, &world);
    assert_true(segment->retiring);
    assert_non_null(gb_mapper_find(&world.store, mapper, segment->id));
    world.retired++;
}

static void begin(uint64_t capacity)
{
    memset(&world, 0, sizeof(world));
    memset(&fake, 0, sizeof(fake));
    world.device.ops = &fake_ops;
    world.device.capacity = capacity;
    world.device.granularity = 2 * MIB;
    gb_recency_init(&world.device.recency);
    gb_recency_init(&world.device.stay);
    gb_list_init(&world.device.waits);
    gb_list_init(&world.device.segment_list);
    gb_list_init(&world.device.retiring);
    gb_store_init(&world.store);
    world.store.retire = on_retire;
    world.store.retire_arg = &world;
    for (unsigned i = 0; i < 2; i++) {
        world.users[i] = gb_user_get(&world.store.users, 1000 + i);
        assert_non_null(world.users[i]);
    }
    for (unsigned i = 0; i < 3; i++)
        world.keys[i] = (struct gb_domain_key){&world.device, GB_SHARE_FD, .uid = 1000 + i / 2,
                                               .gid = 0, .mode = i % 2 ? 0640 : 0600};
    for (unsigned i = 0; i < MAPPERS; i++)
        gb_mapper_init(&world.mappers[i], i + 1);
}

/* Everything that the store says of itself, by walking. */
static void check(void)
{
    const struct gb_device *device = &world.device;
    uint64_t used = 0, charged = 0, bytes = 0, retiring = 0, segments = 0, user_bytes = 0,
             user_segments = 0, mapped = 0, held[2] = {0}, retired[2] = {0};
    struct gb_placement all[MOST * 4];
    unsigned placements = 0, mappings = 0;

    for (unsigned i = 0; i < world.count; i++) {
        const struct gb_storage *storage = world.storages[i];
        uint64_t own = 0;

        for (unsigned j = 0; j < storage->placement_count; j++) {
            const struct gb_placement *one = &storage->placements[j];

            assert_false(one->segment->empty || one->segment->retiring);
            assert_true(one->offset + one->bytes <= one->segment->bytes);
            assert_int_equal(one->offset % GB_ARENA_GRANULE, 0);
            for (unsigned k = 0; k < placements; k++) /* no two in one place */
                assert_true(all[k].segment != one->segment ||
                            all[k].offset + all[k].bytes <= one->offset ||
                            one->offset + one->bytes <= all[k].offset);
            all[placements++] = *one;
            own += one->bytes;
        }
        assert_int_equal(storage->bytes, own);
        charged += storage->charged;
        used += own;
    }
    for (uint64_t id = 1; id < world.store.next_segment; id++) {
        const struct gb_segment *segment = gb_store_segment(&world.store, id);
        bool holds = false;

        if (!segment)
            continue;
        for (unsigned k = 0; k < placements; k++)
            holds |= all[k].segment == segment;
        assert_int_equal(segment->empty, !holds);
        assert_int_equal(gb_list_linked(&segment->empties), !holds && !segment->retiring);
        assert_true(!segment->retiring || !gb_list_empty(&segment->mappings));
        segments++;
        bytes += segment->bytes;
        retiring += segment->retiring ? segment->bytes : 0;
        mapped += segment->retiring || gb_list_empty(&segment->mappings) ? 0 : segment->bytes;
        for (unsigned i = 0; i < 2; i++) {
            held[i] += segment->user == world.users[i] ? segment->bytes : 0;
            retired[i] += segment->user == world.users[i] && segment->retiring ? segment->bytes : 0;
        }
    }
    for (unsigned i = 0; i < MAPPERS; i++)
        GB_LIST_EACH(&world.mappers[i].mappings, link) {
            const struct gb_mapping *mapping = GB_CONTAINER(link, struct gb_mapping, of_mapper);

            mappings++;
            assert_ptr_equal(gb_store_segment(&world.store, mapping->segment->id),
                             mapping->segment);
        }
    for (unsigned i = 0; i < 2; i++) {
        user_bytes += world.users[i]->bytes[0];
        user_segments += world.users[i]->segments;
        assert_int_equal(world.users[i]->held[0], held[i]);
        assert_true(held[i] <= world.users[i]->quota->bytes[0]);
        assert_int_equal(world.users[i]->retiring[0], retired[i]);
        assert_int_equal(world.users[i]->freeing[0], 0);
    }
    assert_int_equal(device->used, used);
    assert_int_equal(device->allocated, bytes);
    assert_int_equal(device->pinned_by_clients, retiring);
    assert_int_equal(device->mapped, mapped);
    assert_int_equal(device->segments, segments);
    assert_int_equal(world.store.segments.count, segments);
    assert_int_equal(world.store.mappings.count, mappings);
    assert_int_equal(user_bytes, charged);
    assert_true(charged <= used);
    assert_int_equal(user_segments, segments);
    assert_int_equal(fake.live, segments);
    assert_int_equal(fake.live_bytes, bytes);
    assert_int_equal(device->moving, 0);
    assert_true(device->allocated <= device->capacity);
    assert_int_equal(gb_device_free_bytes(device) + device->used + gb_device_retained(device) +
                         device->pinned_by_clients,
                     device->capacity);
}

/* A storage, kept in the world; or the outcome. */
static int place(unsigned key, uint64_t bytes)
{
    struct gb_making_job *job = NULL;
    struct gb_error error = {0};
    uint64_t shortfall = 0;
    int r = gb_store_place(&world.store, &world.keys[key], world.users[world.keys[key].uid - 1000],
                           bytes, &world.storages[world.count], &shortfall, &job, &error);

    assert_int_equal(r < 0 ? r : r == GB_PLACE_QUOTA ? GPUBUF_E_LIMIT : 0, error.code);
    assert_int_equal(r == GB_PLACE_FULL, shortfall > 0);
    assert_null(job);
    if (r == 0) {
        assert_true(world.storages[world.count]->bytes >= bytes);
        world.count++;
    }
    return r;
}

static int adopt_some(unsigned user, uint64_t bytes, unsigned count)
{
    struct gb_adoption adoptions[16] = {{.fd = 0}};
    const struct gb_domain_key key = {.device = &world.device, .uid = 1000 + user, .mode = 0600};
    struct gb_making_job *job = NULL;
    struct gb_error error = {0};
    uint64_t shortfall = 0;
    int r;

    for (unsigned i = 0; i < count; i++)
        adoptions[i] = (struct gb_adoption){{.kind = GB_HANDLE_MEMFD, .bytes = bytes}, .fd = 0};
    r = gb_store_adopt(&world.store, &key, world.users[user], adoptions, count, NULL,
                       &world.storages[world.count], &shortfall, &job, &error);
    assert_int_equal(r < 0 ? r : r == GB_PLACE_QUOTA ? GPUBUF_E_LIMIT : 0, error.code);
    assert_int_equal(r == GB_PLACE_FULL, shortfall > 0);
    if (r == 0)
        world.count++;
    return r;
}

static void give_up(unsigned i)
{
    gb_storage_unref(&world.store, world.storages[i]);
    world.storages[i] = world.storages[--world.count];
}

static void map(unsigned mapper, unsigned storage, enum gb_access access)
{
    for (unsigned i = 0; i < world.storages[storage]->placement_count; i++)
        assert_int_equal(gb_mapper_add(&world.store, &world.mappers[mapper],
                                       world.storages[storage]->placements[i].segment, access),
                         0);
}

static void unmap_all(uint64_t mapper)
{
    gb_mapper_end_some(&world.store, &world.mappers[mapper], UINT_MAX);
}

static void end(void)
{
    while (world.count > 0)
        give_up(0);
    for (unsigned i = 0; i < MAPPERS; i++)
        unmap_all(i);
    check();
    gb_store_trim(&world.store, &world.device, UINT64_MAX);
    check();
    assert_int_equal(world.device.allocated, 0);
    for (unsigned i = 0; i < 2; i++)
        gb_user_unref(world.users[i]);
    gb_store_end(&world.store);
    assert_int_equal(fake.live, 0);
    assert_int_equal(failing_blocks, 0);
}

static struct gb_segment *segment_of(unsigned storage)
{
    return world.storages[storage]->placements[0].segment;
}

/* ---- small cases ---- */

static void test_sizes(void **state)
{
    static const uint64_t largest[][3] = {
        /* capacity, largest shared segment, and where the driver is slow, in MiB */
        {2, 2, 2},         {5, 4, 4},           {63, 62, 62},
        {64, 64, 64},      {4096, 64, 128},     {8192, 128, 256},
        {16384, 256, 512}, {65536, 1024, 1024}, {1 << 20, 1024, 1024},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(largest) / sizeof(largest[0]); i++) {
        struct gb_device device = {.capacity = largest[i][0] * MIB, .granularity = 2 * MIB};

        assert_int_equal(gb_store_largest_shared(&device), largest[i][1] * MIB);
        device.can_block = true;
        assert_int_equal(gb_store_largest_shared(&device), largest[i][2] * MIB);
    }
}

/* Small objects share segments that double; domains never do; nothing takes nothing. */
static void test_shared(void **state)
{
    (void)state;
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
    end();
}

/* ---- a device whose driver is slow ---- */

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
    struct gb_making_job *job;
    struct gb_error error;
    uint64_t shortfall, moving;
    int r = gb_store_place(&world.store, &world.keys[key], world.users[world.keys[key].uid - 1000],
                           bytes, &world.storages[world.count], &shortfall, &job, &error);

    assert_int_equal(r, 0);
    world.count++;
    moving = world.device.moving;
    assert_int_equal(world.users[world.keys[key].uid - 1000]->segments + (moving > 0),
                     world.device.segments + (moving > 0));
    settle();
    return moving;
}

/* One that has to wait for memory. */
static void place_slowly(unsigned key, uint64_t bytes)
{
    struct gb_making_job *job;
    struct gb_error error;
    uint64_t shortfall;

    assert_int_equal(gb_store_place(&world.store, &world.keys[key],
                                    world.users[world.keys[key].uid - 1000], bytes,
                                    &world.storages[world.count], &shortfall, &job, &error),
                     GB_PLACE_MAKING);
    settle();
    assert_int_equal(place_now(key, bytes), 0);
}

/* Another segment is made as soon as less than half of the largest is free, so that nobody waits for
   it. It counts like any other from the start. */
static void test_ahead(void **state)
{
    (void)state;
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
static void test_ahead_is_not_wanted(void **state)
{
    struct gb_making_job *job;
    struct gb_error error;
    uint64_t shortfall;

    (void)state;
    begin_slow(1024 * MIB);
    place_slowly(0, 1);
    assert_int_equal(gb_store_place(&world.store, &world.keys[0], world.users[0], MIB,
                                    &world.storages[world.count], &shortfall, &job, &error),
                     0);
    world.count++;
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
static void test_not_ahead(void **state)
{
    (void)state;
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

/* What lies beside an object that somebody maps is its domain's at once, without a question, and
   nobody else's: a segment goes as a whole. */
static void test_beside_mapped(void **state)
{
    (void)state;
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

/* Large ones have a segment of their own, which serves the domain's next one of about that size. */
static void test_own(void **state)
{
    struct gb_segment *segment;

    (void)state;
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
    end();
}

/* On a device so small that rounding up to a granule is much of an object, its spare serves too. */
static void test_own_small_device(void **state)
{
    (void)state;
    begin(8 * MIB);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(place(0, 2 * MIB + 1), 0);
        assert_int_equal(segment_of(0)->bytes, 4 * MIB);
        give_up(0);
    }
    assert_int_equal(fake.created, 1);
    end();
}

/* On a full device a spare that is far too large is given back for one that fits, unless somebody
   maps it: then it is used as it is, and nobody has to be asked. */
static void test_large_spares(void **state)
{
    (void)state;
    begin(128 * MIB);
    assert_int_equal(place(0, 60 * MIB), 0);
    assert_int_equal(place(0, 60 * MIB), 0);
    give_up(1);
    assert_int_equal(place(0, 20 * MIB), 0);
    assert_int_equal(segment_of(1)->bytes, 20 * MIB);
    assert_int_equal(world.device.segments_destroyed, 1);
    check();
    map(0, 0, GB_ACCESS_READ);
    give_up(0); /* and the 20 MiB are the first */
    assert_int_equal(place(0, 40 * MIB), 0);
    assert_int_equal(segment_of(1)->bytes, 40 * MIB); /* there was room for it */
    assert_int_equal(place(0, 30 * MIB), 0);
    assert_int_equal(segment_of(2)->bytes, 60 * MIB);
    assert_int_equal(world.retired, 0);
    check();
    end();
}

/* What cannot ever fit, and what does not fit now. */
static void test_full(void **state)
{
    (void)state;
    begin(9 * MIB);
    assert_int_equal(place(0, 9 * MIB), GPUBUF_E_NO_SPACE); /* 9 MiB are 4 granules */
    assert_int_equal(place(0, UINT64_MAX / 2), GPUBUF_E_NO_SPACE);
    assert_int_equal(place(0, 8 * MIB), 0);
    assert_int_equal(place(1, 1), GB_PLACE_FULL);
    assert_int_equal(place(0, 8 * MIB), GB_PLACE_FULL);
    check();
    give_up(0);
    assert_int_equal(place(1, 1), 0); /* the empty one was given back for it */
    assert_int_equal(world.device.segments_destroyed, 1);
    check();
    end();
}

/* Empty segments are kept up to a quarter of the capacity, but 64 MiB at least; the oldest go. */
static void test_retained(void **state)
{
    struct gb_segment *newest;

    (void)state;
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
    end();
}

/* Trimming takes first what nobody maps, asks for the rest, and for no more than is needed. */
static void test_trim(void **state)
{
    (void)state;
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
    end();
}

/* A mapping is counted once, with the widest access; its end is the segment's if that waits. */
static void test_mappings(void **state)
{
    struct gb_mapping *mapping;

    (void)state;
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
    end();
}

static void test_adopt(void **state)
{
    (void)state;
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
    end();
}

static void test_device_fails(void **state)
{
    (void)state;
    begin(64 * MIB);
    fake.fail_in = 1;
    assert_int_equal(place(0, 1), GPUBUF_E_DEVICE);
    fake.fail_in = 1;
    assert_int_equal(place(0, 20 * MIB), GPUBUF_E_DEVICE);
    check();
    assert_int_equal(world.store.domains.count, 0);
    assert_int_equal(place(0, 1), 0);
    end();
}

static void test_user_limit(void **state)
{
    (void)state;
    begin(1024 * MIB);
    world.store.users.quotas.standard.segments = 3;
    assert_int_equal(place(0, 20 * MIB), 0);
    assert_int_equal(adopt_some(0, 4096, 3), GPUBUF_E_LIMIT);
    assert_int_equal(adopt_some(0, 4096, 2), 0);
    assert_int_equal(place(0, 20 * MIB), GPUBUF_E_LIMIT);
    assert_int_equal(place(1, 1), GPUBUF_E_LIMIT);
    assert_int_equal(place(2, 1), 0); /* another user */
    check();
    give_up(0);
    assert_int_equal(place(0, 19 * MIB), 0); /* what is there may be used */
    end();
}

static void test_bytes_of_a_user(void **state)
{
    (void)state;
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
    end();
}

static void test_idle(void **state)
{
    (void)state;
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
    end();
}

/* ---- every allocation that fails ---- */

static int some_work(unsigned which)
{
    switch (which) {
    case 0:
        return place(0, 1);
    case 1:
        return place(1, 20 * MIB);
    case 2:
        return adopt_some(0, 4096, 3);
    default:
        return gb_mapper_add(&world.store, &world.mappers[0], segment_of(0), GB_ACCESS_READ);
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    for (unsigned which = 0; which < 4; which++)
        for (size_t n = 1;; n++) {
            int r;

            begin(64 * MIB);
            if (which == 3)
                assert_int_equal(place(0, 1), 0);
            failing_from(n, 1);
            r = some_work(which);
            failing_from(0, 0);
            check();
            assert_true(r == 0 || r == GPUBUF_E_NO_MEMORY);
            assert_true(r == 0 || fake.live <= 1); /* an empty segment may have been made */
            assert_int_equal(some_work(which), 0);
            end();
            if (r == 0)
                break;
        }
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

static void test_random_operations(void **state)
{
    static const uint64_t capacities[] = {6, 17, 64, 200, 1024};

    (void)state;
    for (unsigned seed = 0; seed < 10; seed++) {
        struct test_random random = {seed};

        begin(capacities[seed % 5] * MIB);
        world.store.users.quotas.standard.segments = seed < 5 ? 65536 : 12;
        world.store.users.quotas.standard.bytes[0] = seed % 2 ? 1024 * MIB : 48 * MIB;
        world.store.retire_after_ms = 100;
        for (unsigned step = 0; step < 1500; step++) {
            random_step(&random, 1 + step);
            check();
        }
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_ahead),
        cmocka_unit_test(test_ahead_is_not_wanted),
        cmocka_unit_test(test_not_ahead),
        cmocka_unit_test(test_beside_mapped),
        cmocka_unit_test(test_own),
        cmocka_unit_test(test_own_small_device),
        cmocka_unit_test(test_large_spares),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_retained),
        cmocka_unit_test(test_trim),
        cmocka_unit_test(test_mappings),
        cmocka_unit_test(test_adopt),
        cmocka_unit_test(test_device_fails),
        cmocka_unit_test(test_user_limit),
        cmocka_unit_test(test_bytes_of_a_user),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_random_operations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
