/* pool: alignment, growth, what reset keeps, every allocation failed. */
#include "tests/cases.h"

#include "failing.h"
#include "random.h"

#include "proto/base/pool.c"

/* Pieces of all sizes: aligned, apart from each other, and unchanged to the end. */
TEST(test_pieces)
{
    enum { PIECES = 500 };
    struct gb_pool pool = {0};
    struct test_random random = {.state = 5};
    for (int round = 0; round < 3; round++) {
        unsigned char *pieces[PIECES];
        size_t sizes[PIECES];
        for (size_t i = 0; i < PIECES; i++) {
            unsigned kind = test_random_below(&random, 20);
            sizes[i] = test_random_below(&random, kind == 0 ? 200000 : kind < 4 ? 17000 : 100);
            pieces[i] = gb_pool_alloc(&pool, sizes[i]);
            assert_non_null(pieces[i]);
            assert_int_equal((uintptr_t)pieces[i] % 16, 0);
            assert_true(i == 0 || pieces[i] != pieces[i - 1]);
            memset(pieces[i], (int)i, sizes[i]);
        }
        for (size_t i = 0; i < PIECES; i++) {
            for (size_t k = 0; k < sizes[i]; k++)
                if (pieces[i][k] != (unsigned char)i)
                    fail_msg("byte %zu of piece %zu is %u", k, i, pieces[i][k]);
        }
        gb_pool_reset(&pool);
        assert_in_range(failing_blocks, 0, 1);
    }
    gb_pool_end(&pool);
    assert_int_equal(failing_blocks, 0);
}

TEST(test_reset_keeps_a_chunk)
{
    struct gb_pool pool = {0};
    assert_non_null(gb_pool_alloc(&pool, 1));
    for (int i = 0; i < 100; i++)
        assert_non_null(gb_pool_alloc(&pool, 10000));
    assert_true(failing_blocks > 10);
    gb_pool_reset(&pool);
    assert_int_equal(failing_blocks, 1);
    failing_from(1, SIZE_MAX);
    void *first = gb_pool_alloc(&pool, 60000 / 4); /* from what was kept */
    failing_from(0, 0);
    assert_non_null(first);
    /* A large piece alone is not kept. */
    gb_pool_end(&pool);
    assert_non_null(gb_pool_alloc(&pool, 100000));
    gb_pool_reset(&pool);
    assert_int_equal(failing_blocks, 0);
    gb_pool_end(&pool);
}

/* Large pieces do not waste what is left in the newest chunk. */
TEST(test_large_pieces_keep_room)
{
    struct gb_pool pool = {0};
    char *first = gb_pool_alloc(&pool, 16);
    assert_non_null(gb_pool_alloc(&pool, 100000));
    assert_ptr_equal(gb_pool_alloc(&pool, 16), first + 16);
    gb_pool_end(&pool);
}

/* Room that is given back is handed out again; what came later keeps its own. */
TEST(test_shrink)
{
    struct gb_pool pool = {0};
    char *first = gb_pool_alloc(&pool, 1000);
    gb_pool_shrink(&pool, first, 1000, 17);
    char *second = gb_pool_alloc(&pool, 500);
    assert_ptr_equal(second, first + 32);
    gb_pool_shrink(&pool, first, 1000, 1); /* not the last any more */
    assert_ptr_equal(gb_pool_alloc(&pool, 16), second + 512);
    char *large = gb_pool_alloc(&pool, 100000);
    gb_pool_shrink(&pool, large, 100000, 10); /* never the newest: nothing to give back */
    assert_ptr_equal(gb_pool_alloc(&pool, 16), second + 528);
    gb_pool_end(&pool);

    char *only = gb_pool_alloc(&pool, 100000); /* where it is the newest after all */
    gb_pool_shrink(&pool, only, 100000, 16);
    assert_ptr_equal(gb_pool_alloc(&pool, 80000), only + 16);
    gb_pool_end(&pool);
}

TEST(test_calloc_and_strndup)
{
    struct gb_pool pool = {0};
    memset(gb_pool_alloc(&pool, 1000), 0xff, 1000);
    gb_pool_reset(&pool);
    const unsigned char *zeroed = gb_pool_calloc(&pool, 10, 100);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(zeroed[i], 0);
    assert_non_null(gb_pool_calloc(&pool, 0, 8));
    assert_null(gb_pool_calloc(&pool, SIZE_MAX / 2, 3));
    assert_null(gb_pool_alloc(&pool, SIZE_MAX));
    assert_null(gb_pool_alloc(&pool, SIZE_MAX - 20));
    assert_null(gb_pool_strndup(&pool, "", SIZE_MAX));
    assert_string_equal(gb_pool_strndup(&pool, "abcdef", 3), "abc");
    assert_string_equal(gb_pool_strndup(&pool, NULL, 0), "");
    gb_pool_end(&pool);
    gb_pool_end(&pool);
}

TEST(test_no_memory)
{
    static const size_t sizes[] = {100, 40000, 15000, 15000, 15000, 15000, 15000, 100000, 8};
    enum { COUNT = sizeof(sizes) / sizeof(sizes[0]) };
    for (size_t n = 1, failures = 1; failures > 0; n++) {
        struct gb_pool pool = {0};
        failing_from(n, 1);
        failures = 0;
        for (size_t i = 0; i < COUNT; i++) {
            void *piece = gb_pool_alloc(&pool, sizes[i]);
            failures += piece == NULL;
            if (piece == NULL)
                piece = gb_pool_alloc(&pool, sizes[i]); /* the next one succeeds */
            assert_non_null(piece);
            memset(piece, 1, sizes[i]);
        }
        failing_from(0, 0);
        assert_true(failures <= 1);
        assert_true(failures == 1 || n > 3);
        gb_pool_end(&pool);
        assert_int_equal(failing_blocks, 0);
    }
}

RUN_TESTS(NULL, NULL)
