/* client/peer/content/sum_avx2.c: the same sums as without AVX2, or machines of a cluster would
   differ. */
#include "tests/cases.h"

#include "client/peer/content/sum_avx2.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { MOST = (1 << 20) + 9 };

static uint64_t sum(const void *bytes, size_t length)
{
#ifdef GB_PEER_SUM_AVX2
    if (__builtin_cpu_supports("avx2"))
        return gb_peer_sum_avx2(bytes, length);
#endif
    return XXH3_64bits(bytes, length);
}

TEST(test_sums_are_those_of_xxh3)
{
    static unsigned char bytes[MOST];
    uint32_t number = 1;

    for (size_t i = 0; i < MOST; i++) {
        number = number * 1664525 + 1013904223;
        bytes[i] = (unsigned char)(number >> 24);
    }
    for (size_t length = 0; length < 4096; length++)
        for (size_t from = 0; from < 3; from++)
            assert_int_equal(sum(bytes + from, length), XXH3_64bits(bytes + from, length));
    for (size_t length = MOST - 70; length <= MOST; length++)
        assert_int_equal(sum(bytes, length), XXH3_64bits(bytes, length));
    /* Of no bytes, as the algorithm's own specification has it. */
    assert_int_equal(sum(bytes, 0), UINT64_C(0x2d06800538d394c2));
}

RUN_TESTS(NULL, NULL)
