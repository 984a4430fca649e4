/* The hash table against an array, through growing and shrinking; SipHash against its reference. */
#include "tests/cases.h"

#include "failing.h"
#include "random.h"

#include "daemon/base/hash.c"

/* ---- hashing ---- */

struct vector {
    size_t length;
    uint64_t sip24, sip13;
};

/* Of the bytes 0, 1, 2 … under the key 00 01 … 0f. 2-4: vectors.h of the reference implementation
   (github.com/veorq/SipHash; length 15 is also in the paper's appendix A). 1-3: the vectors of
   Rust's core::hash tests. */
static const struct vector vectors[] = {
    {0, 0x726fdb47dd0e0e31, 0xabac0158050fc4dc},  {1, 0x74f839c593dc67fd, 0xc9f49bf37d57ca93},
    {2, 0x0d6c8009d9a94f5a, 0x82cb9b024dc7d44d},  {3, 0x85676696d7fb7e2d, 0x8bf80ab8e7ddf7fb},
    {4, 0xcf2794e0277187b7, 0xcf75576088d38328},  {5, 0x18765564cd99a68d, 0xdef9d52f49533b67},
    {6, 0xcbc9466e58fee3ce, 0xc50d2b50c59f22a7},  {7, 0xab0200f58b01d137, 0xd3927d989bb11140},
    {8, 0x93f5f5799a932462, 0x369095118d299a8e},  {9, 0x9e0082df0ba9e4b0, 0x25a48eb36c063de4},
    {15, 0xa129ca6149be45e5, 0xd320d86d2a519956}, {63, 0x958a324ceb064572, 0x9d199062b7bbb3a8},
};

TEST(test_sip_reference)
{
    const uint64_t key[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
    unsigned char message[64 + 1];

    for (unsigned shift = 0; shift < 2; shift++) { /* aligned or not makes no difference */
        for (unsigned i = 0; i < 64; i++)
            message[i + shift] = (unsigned char)i;
        for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
            const struct vector *v = &vectors[i];

            assert_int_equal(gb_hash_sip(2, 4, key, message + shift, v->length), v->sip24);
            assert_int_equal(gb_hash_sip(1, 3, key, message + shift, v->length), v->sip13);
        }
    }
}

TEST(test_bytes_have_a_secret)
{
    const uint64_t zero[2] = {0, 0};
    uint64_t hash = gb_hash_bytes("sales/price", 11);

    assert_int_equal(gb_hash_bytes("sales/price", 11), hash);
    assert_int_equal(gb_hash_sip(1, 3, secret, "sales/price", 11), hash);
    assert_int_not_equal(gb_hash_bytes("sales/price", 10), hash);
    assert_int_not_equal(gb_hash_sip(1, 3, zero, "sales/price", 11), hash);
    /* Python's hash(b"sales/price") with PYTHONHASHSEED=0, which is SipHash-1-3 since 3.11. */
    assert_int_equal(gb_hash_sip(1, 3, zero, "sales/price", 11), 0xb423cf72f012a510);
}

TEST(test_ids_spread)
{
    unsigned low[256] = {0}, high[256] = {0};

    for (uint64_t id = 0; id < 65536; id++) {
        low[gb_hash_id(id) & 255]++;
        high[gb_hash_id(id) >> 56]++;
    }
    for (unsigned i = 0; i < 256; i++) { /* 256 each, give or take 6 standard deviations */
        assert_in_range(low[i], 160, 352);
        assert_in_range(high[i], 160, 352);
    }
}

/* ---- the table ---- */

struct item {
    struct gb_hash_link link;
    uint64_t hash;
    bool present;
};

static bool found(const struct gb_hash_table *table, const struct item *item)
{
    bool seen = false;

    for (struct gb_hash_link *link = gb_hash_first(table, item->hash); link;
         link = gb_hash_next(link)) {
        assert_int_equal(link->hash, item->hash);
        if (link == &item->link) {
            assert_false(seen);
            seen = true;
        }
    }
    return seen;
}

static void check_all(const struct gb_hash_table *table, const struct item *items, size_t count)
{
    size_t present = 0;

    for (size_t i = 0; i < count; i++) {
        assert_int_equal(found(table, &items[i]), items[i].present);
        present += items[i].present;
    }
    assert_int_equal(table->count, present);
}

/* Inserts or removes, and checks that it took a bounded number of steps. */
static void toggle(struct gb_hash_table *table, struct item *item)
{
    bool moving = table->old_slots != NULL;
    size_t next = table->old_next;

    if (item->present)
        gb_hash_remove(table, &item->link);
    else
        assert_true(gb_hash_insert(table, &item->link, item->hash));
    item->present = !item->present;
    if (table->old_slots)
        assert_true(table->old_next - (moving ? next : 0) <= STEP);
    /* Slots follow the entries, both ways. */
    assert_true(table->count <= (table->mask + 1) * 2);
    assert_true(table->mask + 1 <= SLOTS_MIN || table->mask + 1 <= 16 * (table->count + 1));
}

/* A million random operations whose drift fills and empties the table again and again. Sixteen
   items share each hash. */
TEST(test_against_a_model)
{
    enum { COUNT = 16384, OPERATIONS = 1000000 };
    struct item *items = calloc(COUNT, sizeof *items);
    struct test_random random = {1};
    struct gb_hash_table table = {0};
    unsigned grown = 0, shrunk = 0;

    assert_non_null(items);
    for (unsigned i = 0; i < COUNT; i++)
        items[i].hash = gb_hash_id(i / 16);
    for (unsigned i = 0; i < OPERATIONS; i++) {
        bool filling = i / 60000 % 2 == 0;
        struct item *item = &items[test_random_below(&random, COUNT)];
        size_t mask = table.mask;

        if (item->present != filling || test_random_below(&random, 200) == 0)
            toggle(&table, item);
        grown += table.mask > mask;
        shrunk += table.mask < mask;
        item = &items[test_random_below(&random, COUNT)];
        assert_int_equal(found(&table, item), item->present);
        if (i % 10000 == 0)
            check_all(&table, items, COUNT);
    }
    assert_true(grown > 20 && shrunk > 20);
    gb_hash_end(&table);
    free(items);
    assert_int_equal(failing_blocks, 0);
}

/* Growing and shrinking that fail cost time, not correctness, and are made up for later. */
TEST(test_failing_resize)
{
    static struct item items[1000];
    struct gb_hash_table table = {0};

    for (size_t i = 0; i < 1000; i++)
        items[i] = (struct item){.hash = gb_hash_id(i)};
    failing_from(2, SIZE_MAX);
    for (size_t i = 0; i < 500; i++) {
        assert_true(gb_hash_insert(&table, &items[i].link, items[i].hash));
        items[i].present = true;
    }
    assert_int_equal(table.mask + 1, SLOTS_MIN);
    assert_true(failing_calls > 100);
    check_all(&table, items, 1000);
    failing_from(0, 0);
    for (size_t i = 500; i < 1000; i++) {
        assert_true(gb_hash_insert(&table, &items[i].link, items[i].hash));
        items[i].present = true;
        check_all(&table, items, 1000);
    }
    assert_true(table.mask + 1 >= 512);
    failing_from(1, SIZE_MAX);
    for (size_t i = 0; i < 990; i++) {
        gb_hash_remove(&table, &items[i].link);
        items[i].present = false;
    }
    assert_true(table.mask + 1 >= 512);
    failing_from(0, 0);
    for (unsigned i = 0; i < 1000; i++) {
        gb_hash_remove(&table, &items[999].link);
        assert_true(gb_hash_insert(&table, &items[999].link, items[999].hash));
        check_all(&table, items + 990, 10);
    }
    assert_int_equal(table.mask + 1, 64); /* the fewest that ten entries are not an eighth of */
    gb_hash_end(&table);
    assert_int_equal(failing_blocks, 0);
}

RUN_TESTS(NULL, NULL)
