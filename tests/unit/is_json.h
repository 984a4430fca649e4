/*
 * Whether a text is JSON, for tests that look no further.
 */
#ifndef GB_TEST_IS_JSON_H
#define GB_TEST_IS_JSON_H

#include "proto/wire/json.h"

static inline bool is_json(const char *text, size_t length)
{
    struct gb_pool pool = {.chunks = NULL};
    struct gb_json value;
    int r = gb_json_check(text, length, &pool, &value, NULL);

    gb_pool_end(&pool);
    return r == 0;
}

#endif
