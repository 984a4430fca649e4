/*
 * The arena against bitmaps, by long random sequences of calls.
 */
#include "tests/cases.h"

#include "failing.h"
#include "random.h"

#include "daemon/memory/arena.c"

/* ---- the slow, obvious version ---- */

enum { BLOCKS = 8, GRANULES = 2048, RANGES = 4096 };

struct block_model {
    struct gb_arena_block *block; /* NULL: none */
    unsigned granules, used;
    bool closed;
    uint8_t map[GRANULES]; /* 1: in a range */
};

struct range_model {
    struct gb_range *range;
    struct block_model *block;
    unsigned at, granules;
};

struct world {
    struct gb_arena *arena;
    struct block_model blocks[BLOCKS];
    struct range_model ranges[RANGES]; /* in order of allocation */
    unsigned count;
};

/* The free run that starts at granule `at`; 0: none starts there. */
static unsigned run_at(const struct block_model *block, unsigned at)
{
    unsigned length = 0;

    if (at > 0 && !block->map[at - 1])
        return 0;
    while (at + length < block->granules && !block->map[at + length])
        length++;
    return length;
}

/* The free runs of open blocks: how many, the longest, and the shortest that is at least
   `wanted`. */
struct runs {
    unsigned count, longest, fitting;
};

static struct runs find_runs(const struct world *world, uint64_t wanted)
{
    struct runs runs = {0, 0, 0};

    for (const struct block_model *block = world->blocks; block < world->blocks + BLOCKS; block++) {
        if (!block->block || block->closed)
            continue;
        for (unsigned at = 0; at < block->granules; at++) {
            unsigned length = run_at(block, at);

            if (!length)
                continue;
            runs.count++;
            if (length > runs.longest)
                runs.longest = length;
            if (length >= wanted && (!runs.fitting || length < runs.fitting))
                runs.fitting = length;
            at += length;
        }
    }
    return runs;
}

static void check_world(const struct world *world)
{
    struct runs runs = find_runs(world, 1);
    struct gb_arena_stats stats, expected = {.ranges = world->count, .free_ranges = runs.count};

    expected.largest_free = (uint64_t)runs.longest * GB_ARENA_GRANULE;
    for (const struct block_model *block = world->blocks; block < world->blocks + BLOCKS; block++) {
        if (!block->block)
            continue;
        expected.blocks++;
        expected.bytes += (uint64_t)block->granules * GB_ARENA_GRANULE;
        expected.used += (uint64_t)block->used * GB_ARENA_GRANULE;
        assert_int_equal(gb_arena_block_used(block->block), block->used * GB_ARENA_GRANULE);
        assert_int_equal(gb_arena_block_empty(block->block), block->used == 0);
    }
    gb_arena_stats(world->arena, &stats);
    assert_memory_equal(&stats, &expected, sizeof stats);
}

static void begin(struct world *world)
{
    for (unsigned i = 0; i < BLOCKS; i++)
        world->blocks[i].block = NULL;
    world->count = 0;
    world->arena = gb_arena_new();
    assert_non_null(world->arena);
}

/* Does nothing if there is no room for one more block in the model. */
static void add_block(struct world *world, unsigned granules)
{
    for (struct block_model *block = world->blocks; block < world->blocks + BLOCKS; block++) {
        if (block->block)
            continue;
        block->block = gb_arena_add(world->arena, (uint64_t)granules * GB_ARENA_GRANULE, block);
        assert_non_null(block->block);
        block->granules = granules;
        block->used = 0;
        block->closed = false;
        memset(block->map, 0, granules);
        return;
    }
}

static void allocate(struct world *world, uint64_t bytes)
{
    uint64_t wanted = (bytes + GB_ARENA_GRANULE - 1) / GB_ARENA_GRANULE;
    struct runs runs = find_runs(world, wanted);
    struct range_model *model = &world->ranges[world->count];
    struct gb_range *range = NULL;
    unsigned run;

    if (gb_arena_alloc(world->arena, bytes, &range)) {
        assert_int_equal(runs.fitting, 0); /* 1 is the truth, */
        assert_null(range);                /* and the output is untouched */
        return;
    }
    assert_true(world->count < RANGES);
    world->count++;
    model->range = range;
    model->block = gb_range_owner(range);
    assert_ptr_equal(range->block, model->block->block);
    assert_false(model->block->closed);
    assert_int_equal(gb_range_bytes(range), wanted * GB_ARENA_GRANULE);
    assert_int_equal(gb_range_offset(range) % GB_ARENA_GRANULE, 0);
    model->at = (unsigned)(gb_range_offset(range) / GB_ARENA_GRANULE);
    model->granules = (unsigned)wanted;
    assert_true(model->at + model->granules <= model->block->granules);
    /* At the start of a free run that is at most a quarter longer than the best. */
    run = run_at(model->block, model->at);
    assert_true(run >= wanted);
    assert_true(run == runs.fitting || run * 4 < runs.fitting * 5);
    memset(model->block->map + model->at, 1, model->granules);
    model->block->used += model->granules;
}

static void release(struct world *world, unsigned at)
{
    struct range_model model = world->ranges[at];

    assert_int_equal(gb_range_offset(model.range), model.at * GB_ARENA_GRANULE);
    assert_int_equal(gb_range_bytes(model.range), model.granules * GB_ARENA_GRANULE);
    gb_range_free(world->arena, model.range);
    memset(model.block->map + model.at, 0, model.granules);
    model.block->used -= model.granules;
    world->count--;
    memmove(&world->ranges[at], &world->ranges[at + 1], (world->count - at) * sizeof model);
}

/* A range takes what is free in the units that it touches, and has it until it is released. */
static void widen(struct world *world, struct range_model *range, unsigned granules)
{
    const struct block_model *block = range->block;
    unsigned begin = range->at, end = range->at + range->granules;

    while (begin % granules && !block->map[begin - 1])
        begin--;
    while (end % granules && end < block->granules && !block->map[end])
        end++;
    gb_range_widen(world->arena, range->range, granules * GB_ARENA_GRANULE);
    range->block->used += end - begin - range->granules;
    range->at = begin;
    range->granules = end - begin;
    memset(range->block->map + begin, 1, end - begin);
    assert_int_equal(gb_range_offset(range->range), begin * GB_ARENA_GRANULE);
    assert_int_equal(gb_range_bytes(range->range), (end - begin) * GB_ARENA_GRANULE);
}

static void close_block(struct world *world, struct block_model *block)
{
    if (!block->block)
        return;
    gb_arena_close(world->arena, block->block);
    block->closed = true;
}

static void remove_if_empty(struct world *world, struct block_model *block)
{
    if (!block->block || block->used)
        return;
    gb_arena_remove(world->arena, block->block);
    block->block = NULL;
}

static void end(struct world *world)
{
    gb_arena_free(world->arena);
    assert_int_equal(failing_blocks, 0);
}

static struct world world; /* too large for the stack */

/* ---- against the model ---- */

/* Sizes as they come: small ones often, large ones at times, about log-uniform. */
static uint64_t some_bytes(struct test_random *random, unsigned bits)
{
    uint64_t top = UINT64_C(1) << test_random_below(random, bits + 1);

    return top + test_random_next(random) % top;
}

TEST(test_long_random_sequences)
{
    struct test_random random = {5};

    begin(&world);
    for (unsigned i = 0; i < 60000; i++) {
        struct block_model *block = &world.blocks[test_random_below(&random, BLOCKS)];
        bool filling = i / 3000 % 2 == 0;
        unsigned choice = test_random_below(&random, 100);

        if (choice == 0)
            add_block(&world, 1 + test_random_below(&random, GRANULES));
        else if (choice == 1)
            remove_if_empty(&world, block);
        else if (choice == 2)
            close_block(&world, block);
        else if (choice < (filling ? 70 : 40))
            allocate(&world, some_bytes(&random, 17));
        else if (world.count) {
            unsigned at = test_random_below(&random, world.count);

            if (choice % 2)
                widen(&world, &world.ranges[at], 1u << test_random_below(&random, 6));
            release(&world, at);
        }
        if (i % 16 == 0)
            check_world(&world);
    }
    check_world(&world);
    while (world.count)
        release(&world, test_random_below(&random, world.count));
    check_world(&world);
    end(&world);
}

/* ---- placement ---- */

static struct gb_range *must_alloc(struct gb_arena *arena, uint64_t bytes)
{
    struct gb_range *range = NULL;

    assert_int_equal(gb_arena_alloc(arena, bytes, &range), 0);
    assert_non_null(range);
    return range;
}

TEST(test_no_room)
{
    struct gb_arena *arena = gb_arena_new();
    struct gb_range *range = NULL;

    assert_int_equal(gb_arena_alloc(arena, 1, &range), 1);
    gb_arena_add(arena, BYTES_MAX, NULL);
    assert_int_equal(gb_arena_alloc(arena, BYTES_MAX + 1, &range), 1);
    assert_int_equal(gb_arena_alloc(arena, UINT64_MAX, &range), 1);
    assert_null(range);
    range = must_alloc(arena, BYTES_MAX);
    assert_int_equal(gb_range_bytes(range), BYTES_MAX);
    gb_range_free(arena, range);
    range = must_alloc(arena, 1);
    assert_int_equal(gb_range_bytes(range), GB_ARENA_GRANULE);
    gb_arena_free(arena);
    gb_arena_free(NULL);
    assert_int_equal(failing_blocks, 0);
}

/* A segment of one object's size takes that object, whatever the size, whatever else there is. */
TEST(test_own_segments)
{
    struct gb_arena *arena = gb_arena_new();
    struct test_random random = {6};
    uint64_t blocks = 0;

    for (unsigned i = 0; i < 3000; i++) {
        uint64_t bytes = i < 1000 ? i + 1 : some_bytes(&random, 38);
        struct gb_arena_block *less = NULL, *block;
        struct gb_range *range;

        bytes *= GB_ARENA_GRANULE;
        if (i % 3 && bytes > GB_ARENA_GRANULE) /* of the same class, but too small */
            less = gb_arena_add(arena, bytes - GB_ARENA_GRANULE, NULL);
        block = gb_arena_add(arena, bytes, &random);
        range = must_alloc(arena, bytes - i % GB_ARENA_GRANULE);
        assert_ptr_equal(range->block, block);
        assert_ptr_equal(gb_range_owner(range), &random);
        assert_int_equal(gb_range_offset(range), 0);
        assert_int_equal(gb_arena_block_used(block), bytes);
        if (less && i % 2)
            gb_arena_remove(arena, less);
        else if (less)
            gb_arena_close(arena, less);
        blocks += less && i % 2 == 0;
        if (i % 5) {
            gb_range_free(arena, range);
            gb_arena_remove(arena, block);
        } else {
            blocks++;
        }
    }
    assert_int_equal(arena->stats.blocks, blocks);
    gb_arena_free(arena);
    assert_int_equal(failing_blocks, 0);
}

/* When most of what is stored goes, most of the free memory is in segments that are empty. */
TEST(test_segments_run_empty)
{
    enum { LIVE = 2000, SEGMENT = 1 << 24 };
    static struct gb_range *live[LIVE];
    struct gb_arena *arena = gb_arena_new();
    struct test_random random = {7};
    struct gb_arena_stats stats;
    uint64_t empty = 0;

    memset(live, 0, sizeof live);
    for (unsigned i = 0; i < 100000; i++) {
        /* First LIVE objects of 256 bytes to 4 MiB at a time, later a tenth as many. */
        unsigned at = test_random_below(&random, i < 50000 ? LIVE : LIVE / 10);

        for (unsigned j = LIVE / 10; i == 50000 && j < LIVE; j++)
            if (live[j])
                gb_range_free(arena, live[j]);
        if (live[at])
            gb_range_free(arena, live[at]);
        while (gb_arena_alloc(arena, some_bytes(&random, 21), &live[at]) == 1)
            assert_non_null(gb_arena_add(arena, SEGMENT, NULL));
    }
    GB_LIST_EACH(&arena->blocks, const struct gb_arena_block, block, link) {
        empty += gb_arena_block_empty(block) ? block->bytes : 0;
    }
    gb_arena_stats(arena, &stats);
    assert_true(stats.bytes > 4 * stats.used);
    assert_true(empty * 4 > (stats.bytes - stats.used) * 3);
    gb_arena_free(arena);
    assert_int_equal(failing_blocks, 0);
}

/* ---- memory ---- */

/* Once there are enough records, allocating and freeing ask nobody for memory. */
TEST(test_records_are_reused)
{
    struct gb_range *ranges[100];
    struct gb_arena *arena = gb_arena_new();

    assert_non_null(gb_arena_add(arena, 1 << 20, NULL));
    for (unsigned round = 0; round < 50; round++) {
        if (round == 1)
            failing_from(1, SIZE_MAX);
        for (unsigned i = 0; i < 100; i++)
            ranges[i] = must_alloc(arena, 256 + 13 * i);
        for (unsigned i = 0; i < 100; i++) /* in another order */
            gb_range_free(arena, ranges[i * 37 % 100]);
    }
    assert_int_equal(failing_calls, 0);
    failing_from(0, 0);
    gb_arena_free(arena);
    assert_int_equal(failing_blocks, 0);
}

/* Ranges of an arena, taken at the same places in another, in any order or with a hint in order. */
TEST(test_taking_places)
{
    enum { BYTES = 1 << 20, MOST = 300 };
    struct test_random random = {7};

    for (int round = 0; round < 200; round++) {
        struct gb_arena *first = gb_arena_new(), *second = gb_arena_new();
        struct gb_arena_block *here, *there;
        struct gb_range *ranges[MOST], *taken[MOST], *after = NULL, *none = NULL;
        unsigned count = 0, kept = 0;

        assert_non_null(gb_arena_add(first, BYTES, NULL));
        there = gb_arena_add(second, BYTES, NULL);
        here = NULL;
        while (count < MOST &&
               gb_arena_alloc(first, 1 + test_random_below(&random, 20000), &ranges[count]) == 0)
            count++;
        for (unsigned i = 0; i < count; i++) { /* holes */
            if (test_random_below(&random, 3) == 0)
                gb_range_free(first, ranges[i]);
            else
                ranges[kept++] = ranges[i];
        }
        for (unsigned i = 0; i < kept; i++) {
            unsigned j = round % 2 ? i : kept - 1 - i; /* they were placed from the start on */
            uint64_t offset = gb_range_offset(ranges[j]), bytes = gb_range_bytes(ranges[j]);

            assert_int_equal(gb_arena_alloc_at(second, there, round % 2 ? after : NULL, offset,
                                               bytes, &taken[j]),
                             0);
            after = taken[j];
            assert_int_equal(gb_range_offset(taken[j]), offset);
            assert_int_equal(gb_range_bytes(taken[j]), bytes);
            assert_int_equal(gb_arena_alloc_at(second, there, NULL, offset, bytes, &none), 1);
        }
        here = kept ? ranges[0]->block : NULL;
        assert_true(!here || gb_arena_block_used(here) == gb_arena_block_used(there));
        assert_int_equal(gb_arena_alloc_at(second, there, NULL, BYTES - 256, 512, &none), 1);
        assert_int_equal(gb_arena_alloc_at(second, there, NULL, BYTES, 256, &none), 1);
        assert_int_equal(gb_arena_alloc_at(second, there, NULL, 100, 256, &none), 1);
        assert_null(none);
        for (unsigned i = 0; i < kept; i++)
            gb_range_free(second, taken[i]);
        assert_true(gb_arena_block_empty(there));
        gb_arena_close(second, there);
        assert_int_equal(gb_arena_alloc_at(second, there, NULL, 0, 256, &none), 1);
        gb_arena_free(first);
        gb_arena_free(second);
    }
}

/* The bytes of the free range in which an offset lies. */
static uint64_t hole_at(const struct gb_arena_block *block, uint64_t offset)
{
    const struct gb_range *range = block->first;

    while (offset - range->offset >= range->bytes)
        range = range->next;
    assert_true(range->free);
    return range->bytes;
}

/* The hole that ranges would leave is the one that they leave, in each look anew. */
/* RELIABILITY.md: Memory is short 4 */
TEST(test_what_leaving_would_bring)
{
    struct test_random random = {11};

    for (unsigned round = 0; round < 500; round++) {
        enum { PLACED = 32 };
        struct gb_arena *arena = gb_arena_new();
        struct gb_arena_block *block = gb_arena_add(arena, PLACED * 4 * GB_ARENA_GRANULE, NULL);
        struct gb_range *ranges[PLACED], *gone[PLACED];
        uint64_t holes[PLACED];
        unsigned count = 0, going = 0;

        for (unsigned i = 0; i < PLACED; i++)
            ranges[i] = must_alloc(arena, (1 + test_random_next(&random) % 4) * GB_ARENA_GRANULE);
        for (unsigned i = 0; i < PLACED; i++)
            if (test_random_next(&random) % 4)
                ranges[count++] = ranges[i];
            else
                gb_range_free(arena, ranges[i]);
        for (unsigned i = 0; i < count; i++) /* of a look before */
            if (test_random_next(&random) % 2)
                gb_range_leave(ranges[i], 1);
        while (count > 0 && test_random_next(&random) % 16) {
            unsigned i = (unsigned)(test_random_next(&random) % count);

            gone[going] = ranges[i];
            holes[going++] = gb_range_leave(ranges[i], 2);
            ranges[i] = ranges[--count];
        }
        for (unsigned i = 0; i < going; i++) {
            uint64_t offset = gb_range_offset(gone[i]);

            gb_range_free(arena, gone[i]);
            assert_int_equal(hole_at(block, offset), holes[i]);
        }
        gb_arena_free(arena);
    }
}

RUN_TESTS(NULL, NULL)
