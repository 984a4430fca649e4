/*
 * Allocation that counts, and fails on request. Include this header and then the source of a
 * module: the module's calls of malloc, calloc, realloc and free come here. (Its object in the
 * archive is then not linked.)
 */
#ifndef GB_TEST_FAILING_H
#define GB_TEST_FAILING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

static size_t failing_calls; /* allocations asked for since failing_from */
static size_t failing_first; /* the number of the first that fails, with `failing_count` - 1 after
                                it; 0: none */
static size_t failing_count;
static long failing_blocks; /* allocated and not freed */

/* From now on, the n-th allocation (from 1) and the count - 1 after it fail; with n 0 none
   fails. */
static inline void failing_from(size_t n, size_t count)
{
    failing_calls = 0;
    failing_first = n;
    failing_count = count;
}

static inline bool failing_now(void)
{
    failing_calls++;
    return failing_first && failing_calls >= failing_first &&
           failing_calls - failing_first < failing_count;
}

static inline void *failing_realloc(void *old, size_t size)
{
    void *block = failing_now() ? NULL : realloc(old, size);

    failing_blocks += block && !old;
    return block;
}

static inline void *failing_malloc(size_t size)
{
    return failing_realloc(NULL, size);
}

static inline void *failing_calloc(size_t count, size_t size)
{
    void *block = failing_now() ? NULL : calloc(count, size);

    failing_blocks += block != NULL;
    return block;
}

static inline void failing_free(void *block)
{
    failing_blocks -= block != NULL;
    free(block);
}

#define malloc failing_malloc
#define calloc failing_calloc
#define realloc failing_realloc
#define free failing_free

#endif
