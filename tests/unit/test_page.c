/*
 * The page of kept leases: its slots, and what daemon, library and others may do around it in every
 * order. Each party is a list of steps; all interleavings of the lists are played with a page of
 * the daemon's, and after each step it is asked whether somebody was told of a change and then
 * found what was before, or took what was not his any more.
 */
#include "tests/cases.h"

#include "daemon/objects/page.c"

static struct gb_page *page;
static const _Atomic uint64_t *seen; /* as the peer has it */

static void begin(void)
{
    int fd;

    assert_int_equal(gb_page_new(&page, &fd, NULL), 0);
    seen = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(seen, MAP_FAILED);
    assert_ptr_equal(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    close(fd);
}

static void end(void)
{
    munmap((void *)(uintptr_t)seen, BYTES);
    gb_page_free(page);
}

/* ---- slots ---- */

TEST(test_slots)
{
    begin();
    for (unsigned i = 0; i < GB_PAGE_SLOTS; i++) {
        assert_int_equal(gb_page_fill_slot(page, 1000 + i), i + 1);
        assert_int_equal(seen[i], 1000 + i);
    }
    assert_int_equal(gb_page_fill_slot(page, 1), 0);
    gb_page_clear(page, 70); /* it stays taken */
    assert_int_equal(seen[69], 0);
    assert_int_equal(gb_page_fill_slot(page, 1), 0);
    gb_page_drop(page, 1500);
    gb_page_drop(page, 70);
    gb_page_drop(page, 0);
    assert_int_equal(gb_page_fill_slot(page, 2), 70); /* the lowest */
    assert_int_equal(gb_page_fill_slot(page, 3), 1500);
    assert_int_equal(gb_page_fill_slot(page, 4), 0);
    assert_int_equal(gb_page_fill_slot(NULL, 4), 0);
    end();
}

/* ---- every order ---- */

enum { OLD = 7, NEXT = 8 };

static struct {
    unsigned slot;                 /* of OLD */
    bool told;                     /* that the name means something else */
    bool leased;                   /* OLD, as the daemon knows */
    bool reused;                   /* its memory is another object's */
    bool in_table;                 /* of the library, with `references` */
    unsigned references, released; /* and releases that are on their way */
    bool after;                    /* the open began when that was told */
    bool hit, wrong;
} world;

/* The library, with its client's lock held: finds the lease, loads the slot, takes a reference. */
static void open_begins(void)
{
    world.after = world.told;
}

static void open_looks(void)
{
    if (world.in_table && seen[world.slot - 1] == OLD) {
        world.references++;
        world.hit = true;
    }
}

static void open_uses(void)
{
    if (world.hit)
        world.wrong |= world.after || !world.leased || world.reused;
}

static void open_ends(void)
{
    if (world.hit)
        world.references--;
}

/* The library is asked for what it keeps: with the lock held, too. */
static void recall_comes(void)
{
    if (world.in_table && world.references == 0) {
        world.in_table = false;
        world.released++;
    }
}

/* The daemon is told of a release; its memory may be another's, and its slot another lease's. */
static void release_comes(void)
{
    if (world.released == 0)
        return;
    world.released--;
    world.leased = false;
    gb_page_drop(page, world.slot);
}

static void memory_is_reused(void)
{
    world.reused = !world.leased;
}

static void slot_is_reused(void)
{
    (void)gb_page_fill_slot(page, NEXT);
}

/* The daemon does what somebody has asked for, and answers. */
static void change_clears(void)
{
    if (world.leased)
        gb_page_clear(page, world.slot);
}

static void change_is_answered(void)
{
    world.told = true;
}

#define STEPS 4
typedef void (*step)(void);

static const step opener[STEPS] = {open_begins, open_looks, open_uses, open_ends};
static const step recalled[STEPS] = {recall_comes, NULL};
static const step releases[STEPS] = {release_comes, memory_is_reused, slot_is_reused, NULL};
static const step changes[STEPS] = {change_clears, change_is_answered, NULL};

/* Plays one order: which party takes the next step. */
static bool play(const step *const *parties, const unsigned char *order, unsigned length)
{
    unsigned at[4] = {0};
    unsigned slot;

    memset(&world, 0, sizeof(world));
    world.slot = gb_page_fill_slot(page, OLD);
    world.leased = world.in_table = true;
    for (unsigned i = 0; i < length; i++)
        parties[order[i]][at[order[i]]++]();
    assert_true(world.hit || !world.wrong);
    slot = world.slot;
    for (unsigned i = 1; i <= 2; i++) /* as it was */
        gb_page_drop(page, slot + i - 1);
    return !world.wrong;
}

struct tally {
    unsigned orders, wrong, hits;
};

/* All orders of the parties' steps that are left. */
static void play_all(const step *const *parties, unsigned count, unsigned char *order,
                     unsigned length, unsigned *at, struct tally *tally)
{
    bool left = false;

    for (unsigned i = 0; i < count; i++) {
        if (at[i] == STEPS || !parties[i][at[i]])
            continue;
        left = true;
        order[length] = (unsigned char)i;
        at[i]++;
        play_all(parties, count, order, length + 1, at, tally);
        at[i]--;
    }
    if (left)
        return;
    tally->orders++;
    tally->wrong += !play(parties, order, length);
    tally->hits += world.hit;
}

/* RELIABILITY.md: Clients that end 4 */
TEST(test_every_order)
{
    const step *const parties[] = {opener, recalled, releases, changes};
    unsigned char order[4 * STEPS];
    unsigned at[4] = {0};
    struct tally tally = {0};

    begin();
    play_all(parties, 4, order, 0, at, &tally);
    end();
    assert_int_equal(tally.orders, 12600); /* 10! / (4! 1! 3! 2!) */
    assert_int_equal(tally.wrong, 0);
    assert_in_range(tally.hits, 1, tally.orders - 1);
}

RUN_TESTS(NULL, NULL)
