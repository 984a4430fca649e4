#include "proto/base/pool.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The usual size of a chunk, and that of the one chunk that a reset keeps. */
#define CHUNK_BYTES ((size_t)65536)
/* Larger pieces get a chunk of their own, so that the room left in the newest is not lost. */
#define LARGE_BYTES (CHUNK_BYTES / 4)
#define ALIGNMENT ((size_t)16)

struct gb_pool_chunk {
    struct gb_pool_chunk *older;
    size_t bytes; /* this header included */
    char room[] __attribute__((aligned(16)));
};

static struct gb_pool_chunk *chunk_new(size_t room)
{
    if (room > SIZE_MAX - sizeof(struct gb_pool_chunk))
        return NULL;
    struct gb_pool_chunk *chunk = malloc(sizeof(*chunk) + room);
    if (chunk)
        chunk->bytes = sizeof(*chunk) + room;
    return chunk;
}

/* Makes `chunk` the newest, all of it free. */
static void open_chunk(struct gb_pool *pool, struct gb_pool_chunk *chunk)
{
    pool->chunks = chunk;
    pool->next = chunk->room;
    pool->end = (char *)chunk + chunk->bytes;
}

/* A chunk for one large piece, put behind the newest chunk, which keeps its free room. */
static void *alloc_large(struct gb_pool *pool, size_t size)
{
    struct gb_pool_chunk *chunk = chunk_new(size);

    if (!chunk)
        return NULL;
    if (!pool->chunks) {
        chunk->older = NULL;
        open_chunk(pool, chunk);
        pool->next = pool->end;
    } else {
        chunk->older = pool->chunks->older;
        pool->chunks->older = chunk;
    }
    return chunk->room;
}

void gb_pool_lend(struct gb_pool *pool, void *memory, size_t size)
{
    *pool = (struct gb_pool){.next = memory, .end = (char *)memory + (size & ~(ALIGNMENT - 1))};
}

/* A piece of 0 bytes takes room, too, so that every pointer is different. */
static size_t rounded(size_t size)
{
    return size == 0 ? ALIGNMENT : (size + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
}

void *gb_pool_alloc(struct gb_pool *pool, size_t size)
{
    if (size > SIZE_MAX - (ALIGNMENT - 1))
        return NULL;
    size = rounded(size);

    if ((size_t)(pool->end - pool->next) < size) {
        if (size > LARGE_BYTES)
            return alloc_large(pool, size);
        struct gb_pool_chunk *chunk = chunk_new(CHUNK_BYTES - sizeof(*chunk));
        if (!chunk)
            return NULL;
        chunk->older = pool->chunks;
        open_chunk(pool, chunk);
    }
    void *memory = pool->next;
    pool->next += size;
    return memory;
}

void gb_pool_shrink(struct gb_pool *pool, void *memory, size_t had, size_t size)
{
    char *start = memory;

    if (pool->next == start + rounded(had))
        pool->next = start + rounded(size);
}

void *gb_pool_calloc(struct gb_pool *pool, size_t count, size_t size)
{
    size_t bytes;

    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    void *memory = gb_pool_alloc(pool, bytes);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

char *gb_pool_strndup(struct gb_pool *pool, const char *text, size_t length)
{
    if (length == SIZE_MAX)
        return NULL;
    char *copy = gb_pool_alloc(pool, length + 1);
    if (!copy)
        return NULL;
    if (length > 0)
        memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

size_t gb_pool_used(const struct gb_pool *pool)
{
    size_t used = 0;

    for (const struct gb_pool_chunk *chunk = pool->chunks; chunk; chunk = chunk->older)
        used += chunk->bytes;
    return pool->chunks ? used - (size_t)(pool->end - pool->next) : 0;
}

void gb_pool_reset(struct gb_pool *pool)
{
    struct gb_pool_chunk *kept = NULL;

    for (struct gb_pool_chunk *chunk = pool->chunks, *older; chunk; chunk = older) {
        older = chunk->older;
        if (!kept && chunk->bytes == CHUNK_BYTES)
            kept = chunk;
        else
            free(chunk);
    }
    *pool = (struct gb_pool){0};
    if (kept) {
        kept->older = NULL;
        open_chunk(pool, kept);
    }
}

void gb_pool_end(struct gb_pool *pool)
{
    for (struct gb_pool_chunk *chunk = pool->chunks, *older; chunk; chunk = older) {
        older = chunk->older;
        free(chunk);
    }
    *pool = (struct gb_pool){0};
}
