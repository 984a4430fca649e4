/* XXH3 as in content.c, for processors with AVX2. It is a file of its own since xxhash.h chooses
   its code by the compiler's target. */
#include "client/peer/content/sum_avx2.h"

#ifdef GB_PEER_SUM_AVX2
#pragma GCC target("avx2")
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t gb_peer_sum_avx2(const void *bytes, size_t length)
{
    return XXH3_64bits(bytes, length);
}
#endif
