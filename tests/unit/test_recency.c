/* Recency against arrays, by random calls. */
#include "tests/cases.h"

#include "failing.h"
#include "random.h"

#include "daemon/memory/recency.c"

enum { LISTS = 2, ENTRIES = 3, ACTIONS = 9 };

enum action { ENTER_0, ENTER_1, LEAVE, HOLD, DROP, DROP_UNUSED, TOUCH, CLEAN, SOIL };

/* The slow, obvious version: the time of the last use of each. */
struct entry_model {
    int list; /* -1: none */
    uint64_t bytes, holds, used;
    bool clean, needed;
};

struct world {
    struct gb_recency lists[LISTS];
    struct gb_recent entries[ENTRIES];
    struct entry_model model[ENTRIES];
    uint64_t now;
};

static void begin(struct world *world)
{
    memset(world, 0, sizeof *world);
    for (int i = 0; i < ENTRIES; i++)
        world->model[i].list = -1;
}

static void act(struct world *world, int at, enum action action)
{
    struct gb_recent *entry = &world->entries[at];
    struct entry_model *model = &world->model[at];

    world->now++;
    switch (action) {
    case ENTER_0:
    case ENTER_1:
        model->list = action == ENTER_1;
        model->bytes = world->now * 1000 + (unsigned)at;
        model->used = world->now;
        gb_recent_enter(&world->lists[model->list], entry, model->bytes);
        break;
    case LEAVE:
        model->list = -1;
        gb_recent_leave(entry);
        break;
    case HOLD:
        model->holds++;
        gb_recent_hold(entry);
        break;
    case DROP:
        if (!model->holds)
            return;
        if (!--model->holds)
            model->used = world->now;
        gb_recent_drop(entry);
        break;
    case DROP_UNUSED:
        if (!model->holds)
            return;
        model->holds--;
        gb_recent_drop_unused(entry);
        break;
    case CLEAN:
    case SOIL:
        model->clean = action == CLEAN;
        model->needed = !model->needed;
        gb_recent_set(entry, model->clean, model->needed);
        break;
    case TOUCH:
        if (model->list < 0 || model->holds)
            break; /* no use */
        model->used = world->now;
        gb_recent_touch(entry);
        break;
    }
}

/* The model's least recently used of a list and kind after `last`; -1: none. */
static int next_oldest(const struct world *world, int list, bool clean, uint64_t last)
{
    int oldest = -1;

    for (int i = 0; i < ENTRIES; i++) {
        const struct entry_model *model = &world->model[i];

        if (model->list == list && !model->holds && model->clean == clean && model->used > last &&
            (oldest < 0 || model->used < world->model[oldest].used))
            oldest = i;
    }
    return oldest;
}

static const struct gb_recent *oldest_entry(const struct world *world, int list, bool clean)
{
    int oldest = next_oldest(world, list, clean, 0);

    return oldest < 0 ? NULL : &world->entries[oldest];
}

/* Walks one kind of a list from the oldest on, beside the model. */
static void check_kind(const struct world *world, int list, bool clean, uint64_t *count,
                       uint64_t *bytes)
{
    const struct gb_recency *recency = &world->lists[list];
    const struct gb_link *head = clean ? &recency->clean : &recency->dirty;
    const struct gb_link *link = gb_list_first(head);
    uint64_t last = 0;
    int oldest;

    while ((oldest = next_oldest(world, list, clean, last)) >= 0) {
        assert_ptr_equal(link, &world->entries[oldest].link);
        link = link->next;
        ++*count;
        *bytes += world->model[oldest].bytes;
        last = world->model[oldest].used;
    }
    assert_ptr_equal(link, head);
}

static uint64_t needed_bytes(const struct world *world, int list)
{
    uint64_t bytes = 0;

    for (int i = 0; i < ENTRIES; i++)
        if (world->model[i].list == list && !world->model[i].holds && world->model[i].needed)
            bytes += world->model[i].bytes;
    return bytes;
}

static void check_list(const struct world *world, int list)
{
    const struct gb_recency *recency = &world->lists[list];
    const struct gb_recent *clean = oldest_entry(world, list, true);
    const struct gb_recent *dirty = oldest_entry(world, list, false);
    uint64_t count = 0, bytes = 0;

    check_kind(world, list, true, &count, &bytes);
    assert_int_equal(recency->clean_bytes, bytes);
    check_kind(world, list, false, &count, &bytes);
    assert_int_equal(recency->count, count);
    assert_int_equal(recency->bytes, bytes);
    assert_int_equal(recency->needed_bytes, needed_bytes(world, list));
    assert_ptr_equal(gb_recency_oldest_clean(recency), clean);
    assert_ptr_equal(gb_recency_oldest_dirty(recency), dirty);
    if (clean && dirty)
        assert_ptr_equal(gb_recency_oldest(recency),
                         world->model[clean - world->entries].used <
                                 world->model[dirty - world->entries].used
                             ? clean
                             : dirty);
    else
        assert_ptr_equal(gb_recency_oldest(recency), clean ? clean : dirty);
}

/* The entries used before each one that is in a list. */
static void check_before(const struct world *world, int at)
{
    const struct entry_model *model = &world->model[at];
    uint64_t count = 0, bytes = 0, told_count, told_bytes;

    if (model->list < 0 || model->holds)
        return;
    for (int i = 0; i < ENTRIES; i++) {
        const struct entry_model *other = &world->model[i];

        if (other->list != model->list || other->holds || other->used >= model->used)
            continue;
        count++;
        bytes += other->bytes;
    }
    assert_true(gb_recent_before(&world->entries[at], ENTRIES, &told_count, &told_bytes));
    assert_int_equal(told_count, count);
    assert_int_equal(told_bytes, bytes);
}

static void check_world(const struct world *world)
{
    for (int i = 0; i < LISTS; i++)
        check_list(world, i);
    for (int i = 0; i < ENTRIES; i++) {
        const struct entry_model *model = &world->model[i];

        assert_int_equal(world->entries[i].holds, model->holds);
        assert_ptr_equal(world->entries[i].in, model->list < 0 ? NULL : &world->lists[model->list]);
        check_before(world, i);
    }
}

TEST(test_random_calls)
{
    struct test_random random = {3};
    struct world world;

    begin(&world);
    for (unsigned i = 0; i < 200000; i++) {
        act(&world, (int)test_random_below(&random, ENTRIES),
            (enum action)test_random_below(&random, ACTIONS));
        check_world(&world);
    }
}

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
