/*
 * The world of the store's tests: a pretended device, which counts what it gave and can be told to
 * fail, users, domains and mappers, and a walk over everything there is. The store's sources are
 * included, so that their allocations can be made to fail. Each test program includes it once,
 * after cmocka.h.
 */
#ifndef GB_TEST_STORE_WORLD_H
#define GB_TEST_STORE_WORLD_H

#include <limits.h>
#include <string.h>

#include "failing.h"

#include "daemon/base/clock.c"
#include "daemon/store/domain.c"
#include "daemon/store/making.c"
#include "daemon/store/mapper.c"
#include "daemon/store/store.c"

/* ---- a device ---- */

static struct {
    unsigned live, created; /* memories */
    uint64_t live_bytes;
    unsigned fail_in; /* counts down; the create or adopt that makes it 0 fails; 0: none */
} fake;

static inline bool fails(void)
{
    return fake.fail_in > 0 && --fake.fail_in == 0;
}

static inline bool fake_can_share(const struct gb_device *device, enum gb_share share)
{
    return share == GB_SHARE_FD;
}

/* A memory's descriptor is its size in pages: nothing here uses it as a descriptor. */
static inline int give(uint64_t bytes, struct gb_memory *memory, struct gb_error *error)
{
    if (fails())
        return gb_fail(error, GPUBUF_E_DEVICE, "told to fail");
    fake.live++;
    fake.created++;
    fake.live_bytes += bytes;
    *memory = (struct gb_memory){.write_fd = (int)(bytes >> 12), .read_fd = -1};
    return 0;
}

static inline int fake_create(struct gb_device *device, enum gb_share share, uint64_t bytes,
                              struct gb_memory *memory, struct gb_error *error)
{
    assert_int_equal(bytes % device->granularity, 0);
    return give(bytes, memory, error);
}

static inline int fake_adopt(struct gb_device *device, const struct gb_handle *handle, int fd,
                             struct gb_memory *memory, struct gb_error *error)
{
    return give(handle->bytes, memory, error);
}

static inline void fake_destroy(struct gb_device *device, struct gb_memory *memory)
{
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
    unsigned retired; /* how often a mapper was asked to retire a segment */
} world;

static inline void on_retire(void *arg, struct gb_mapper *mapper, const struct gb_segment *segment)
{
    assert_ptr_equal(arg, &world);
    assert_true(segment->retiring);
    assert_non_null(gb_mapper_find(&world.store, mapper, segment->id));
    world.retired++;
}

static inline void begin(uint64_t capacity)
{
    memset(&world, 0, sizeof(world));
    memset(&fake, 0, sizeof(fake));
    world.device.capacity = capacity;
    world.device.granularity = 2 * MIB;
    world.device.ops = &fake_ops;
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
        world.mappers[i].id = i + 1;
}

/* Checks all that the store says of itself against a walk over it. */
static inline void check(void)
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
            uint64_t from = gb_placement_offset(one), end = from + gb_placement_bytes(one);

            assert_false(one->segment->empty || one->segment->retiring);
            assert_true(end <= one->segment->bytes);
            assert_int_equal(from % GB_ARENA_GRANULE, 0);
            for (unsigned k = 0; k < placements; k++) /* no two placements overlap */
                assert_true(all[k].segment != one->segment ||
                            gb_placement_offset(&all[k]) + gb_placement_bytes(&all[k]) <= from ||
                            end <= gb_placement_offset(&all[k]));
            all[placements++] = *one;
            own += end - from;
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
        GB_LIST_EACH(&world.mappers[i].mappings, const struct gb_mapping, mapping, of_mapper) {
            mappings++;
            assert_ptr_equal(gb_store_segment(&world.store, mapping->segment->id),
                             mapping->segment);
        }
    for (unsigned i = 0; i < 2; i++) {
        user_bytes += world.users[i]->bytes[0];
        user_segments += world.users[i]->has[GB_QUOTA_SEGMENTS];
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

/* Places a storage and, if that succeeds, keeps it in the world. Returns what gb_store_place
   returned. */
static inline int place(unsigned key, uint64_t bytes)
{
    struct gb_error error = {0};
    struct gb_placing placing = {.store = &world.store,
                                 .key = &world.keys[key],
                                 .user = world.users[world.keys[key].uid - 1000],
                                 .bytes = bytes,
                                 .error = &error};
    int r = gb_store_place(&placing);

    assert_int_equal(r < 0 ? r : r == GB_PLACE_QUOTA ? GPUBUF_E_LIMIT : 0, error.code);
    assert_int_equal(r == GB_PLACE_FULL, placing.shortfall > 0);
    assert_int_equal(r == GB_PLACE_OK, placing.storage != NULL);
    if (r != 0)
        return r;
    if (!world.device.mover)
        assert_null(placing.job);
    assert_true(placing.storage->bytes >= bytes);
    world.storages[world.count++] = placing.storage;
    return 0;
}

static inline int adopt_some(unsigned user, uint64_t bytes, unsigned count)
{
    struct gb_adoption adoptions[16] = {{.fd = 0}};
    const struct gb_domain_key key = {.device = &world.device, .uid = 1000 + user, .mode = 0600};
    struct gb_error error = {0};
    struct gb_placing placing = {.store = &world.store,
                                 .key = &key,
                                 .user = world.users[user],
                                 .adoptions = adoptions,
                                 .count = count,
                                 .error = &error};
    int r;

    for (unsigned i = 0; i < count; i++)
        adoptions[i] = (struct gb_adoption){{.kind = GB_HANDLE_MEMFD, .bytes = bytes}, .fd = 0};
    r = gb_store_place(&placing);
    assert_int_equal(r < 0 ? r : r == GB_PLACE_QUOTA ? GPUBUF_E_LIMIT : 0, error.code);
    assert_int_equal(r == GB_PLACE_FULL, placing.shortfall > 0);
    if (r == 0)
        world.storages[world.count++] = placing.storage;
    return r;
}

static inline void give_up(unsigned i)
{
    gb_storage_unref(&world.store, world.storages[i]);
    world.storages[i] = world.storages[--world.count];
}

static inline void map(unsigned mapper, unsigned storage, enum gb_access access)
{
    for (unsigned i = 0; i < world.storages[storage]->placement_count; i++)
        assert_int_equal(gb_mapper_add(&world.store, &world.mappers[mapper],
                                       world.storages[storage]->placements[i].segment, access),
                         0);
}

static inline void unmap_all(uint64_t mapper)
{
    gb_mapper_end_some(&world.store, &world.mappers[mapper], UINT_MAX);
}

static inline void end(void)
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

static inline int tear_down(void **state)
{
    end();
    return 0;
}

static inline struct gb_segment *segment_of(unsigned storage)
{
    return world.storages[storage]->placements[0].segment;
}

#endif
