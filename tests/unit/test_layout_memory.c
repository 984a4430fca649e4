/*
 * Layouts when memory is short: every allocation that reading makes fails in turn. The pool here is
 * the test's own: one block of the heap for each allocation, so that reads and writes past one's
 * end are found too.
 */
#include "tests/cases.h"

#include "proto/layout/layout.h"

/* ---- the pool ---- */

struct gb_pool_chunk {
    struct gb_pool_chunk *older;
    char room[] __attribute__((aligned(16)));
};

static unsigned asked, failing; /* which allocation fails, from 1 */

void *gb_pool_alloc(struct gb_pool *pool, size_t size)
{
    struct gb_pool_chunk *chunk;

    if (++asked == failing)
        return NULL;
    chunk = malloc(sizeof(*chunk) + size);
    assert_non_null(chunk);
    memset(chunk->room, 0x5a, size);
    chunk->older = pool->chunks;
    pool->chunks = chunk;
    return chunk->room;
}

void *gb_pool_calloc(struct gb_pool *pool, size_t count, size_t size)
{
    void *memory = gb_pool_alloc(pool, count * size);

    return memory ? memset(memory, 0, count * size) : NULL;
}

void gb_pool_shrink(struct gb_pool *pool, void *memory, size_t had, size_t size)
{
}

char *gb_pool_strndup(struct gb_pool *pool, const char *text, size_t length)
{
    char *copy = gb_pool_alloc(pool, length + 1);

    if (!copy)
        return NULL;
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

void gb_pool_end(struct gb_pool *pool)
{
    while (pool->chunks) {
        struct gb_pool_chunk *chunk = pool->chunks;
        pool->chunks = chunk->older;
        free(chunk);
    }
}

void gb_pool_reset(struct gb_pool *pool)
{
    gb_pool_end(pool);
}

/* ---- the tests ---- */

/* Reads with the n-th allocation failing for every n, until none does. Returns how many failed. */
static unsigned read_with_failures(const char *text, enum gb_layout_form form)
{
    struct gb_pool tape = {.chunks = NULL};
    struct gb_json value;
    struct gb_layout layout, before;

    assert_int_equal(gb_json_check(text, strlen(text), &tape, &value, NULL), 0);

    memset(&layout, 0x5a, sizeof(layout));
    before = layout;
    for (unsigned n = 1;; n++) {
        struct gb_pool pool = {.chunks = NULL};
        struct gb_error error = {.code = 0};

        asked = 0;
        failing = n;
        int r = gb_layout_read(value, form, NULL, &pool, &layout, &error);
        failing = 0;
        gb_pool_end(&pool);
        if (asked < n) {
            assert_int_equal(r, 0);
            gb_pool_end(&tape);
            return n - 1;
        }
        assert_int_equal(r, GPUBUF_E_NO_MEMORY);
        assert_int_equal(error.code, GPUBUF_E_NO_MEMORY);
        assert_string_equal(error.message, gb_error_text(GPUBUF_E_NO_MEMORY));
        assert_memory_equal(&layout, &before, sizeof(layout));
    }
}

TEST(test_failures)
{
    static const struct {
        const char *text;
        unsigned allocations;
    } rows[] = {
        {"{\"kind\":\"bytes\",\"bytes\":1}", 0},
        {"{\"kind\":\"bundle\",\"bytes\":10,\"manifest_bytes\":2}", 0},
        {"{\"kind\":\"column\",\"dtype\":\"int8\",\"length\":1}", 0},
        {"{\"kind\":\"column\",\"dtype\":\"\\u0069nt8\",\"length\":1}", 1},
        {"{\"kind\":\"array\",\"dtype\":\"int8\",\"shape\":[1,2,3],\"strides\":[6,3,1]}", 2},
        {"{\"kind\":\"column\",\"dtype\":\"list\",\"length\":1,\"children\":"
         "[{\"dtype\":\"int8\",\"length\":1,\"metadata\":{\"a\":\"b\"}}]}",
         4},
        /* the columns, nine names, and two to find equal ones among more than eight */
        {"{\"kind\":\"table\",\"length\":0,\"columns\":["
         "{\"name\":\"1\",\"dtype\":\"null\",\"length\":0},"
         "{\"name\":\"2\",\"dtype\":\"null\",\"length\":0},"
         "{\"name\":\"3\",\"dtype\":\"null\",\"length\":0},"
         "{\"name\":\"4\",\"dtype\":\"null\",\"length\":0},"
         "{\"name\":\"5\",\"dtype\":\"null\",\"length\":0},"
         "{\"name\":\"6\",\"dtype\":\"null\",\"length\":0},"
         "{\"name\":\"7\",\"dtype\":\"null\",\"length\":0},"
         "{\"name\":\"8\",\"dtype\":\"null\",\"length\":0},"
         "{\"name\":\"9\",\"dtype\":\"null\",\"length\":0}]}",
         12},
        {"{\"kind\":\"table\",\"length\":1,\"metadata\":{\"a\":\"b\"},\"columns\":["
         "{\"name\":\"s\",\"dtype\":\"struct\",\"length\":1,\"children\":["
         "{\"name\":\"f\",\"dtype\":\"int8\",\"length\":1,\"mask\":{}}]},"
         "{\"name\":\"d\",\"dtype\":\"dictionary\",\"length\":1,\"children\":["
         "{\"dtype\":\"int8\",\"length\":1},"
         "{\"dtype\":\"utf8\",\"length\":1,\"data\":{\"bytes\":1}}]}]}",
         9},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(read_with_failures(rows[i].text, GB_LAYOUT_CREATE), rows[i].allocations);
}

TEST(test_select_fails)
{
    static const char text[] = "{\"kind\":\"table\",\"length\":0,\"columns\":["
                               "{\"name\":\"1\",\"dtype\":\"null\",\"length\":0},"
                               "{\"name\":\"2\",\"dtype\":\"null\",\"length\":0}]}";
    struct gb_json value;
    struct gb_string names[] = {{"2", 1}, {"1", 1}};
    struct gb_pool pool = {.chunks = NULL};
    struct gb_layout layout;
    struct gb_error error;

    assert_int_equal(gb_json_check(text, sizeof(text) - 1, &pool, &value, &error), 0);
    assert_int_equal(gb_layout_read(value, GB_LAYOUT_CREATE, NULL, &pool, &layout, &error), 0);
    for (unsigned n = 1; n <= 2; n++) {
        struct gb_layout same = layout;

        asked = 0;
        failing = n;
        assert_int_equal(gb_layout_select(&layout, names, 2, NULL, &pool, &error),
                         GPUBUF_E_NO_MEMORY);
        assert_memory_equal(&layout, &same, sizeof(layout));
    }
    failing = 0;
    assert_int_equal(gb_layout_select(&layout, names, 2, NULL, &pool, &error), 0);
    assert_string_equal(layout.column.children[0].name, "2");
    gb_pool_end(&pool);
}

RUN_TESTS(NULL, NULL)
