#include "client/lib/objects/pinned.h"

#include <pthread.h>
#include <stdlib.h>

#include "client/lib/memory/gpu.h"
#include "client/lib/memory/import_cuda.h"
#include "client/lib/objects/object.h"
#include "client/lib/wire/report.h"

#define UNIT ((uint64_t)64 << 10)
#define ALL_MAX ((uint64_t)2 << 30)    /* bytes pinned at a time */
#define IDLE_MAX ((uint64_t)256 << 20) /* of these, kept for the next */

struct gb_staging {
    struct gb_staging *next; /* of the idle ones, the last given back first */
    struct gb_gpu *gpu;      /* retained; NULL: from malloc */
    void *memory;
    uint64_t capacity, bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gb_staging *idle;
static uint64_t idle_bytes, all_bytes, refused;

static void block_free(struct gb_staging *block)
{
    if (block->gpu) {
        if (gb_gpu_enter(block->gpu, NULL) == 0) {
            (void)block->gpu->cuda->cuMemFreeHost(block->memory);
            gb_gpu_leave(block->gpu);
        }
        gb_gpu_release(block->gpu);
    } else {
        free(block->memory);
    }
    free(block);
}

/* The smallest idle block of that GPU that is large enough, if at most half of it is wasted. */
static struct gb_staging *take_idle(const struct gb_gpu *gpu, uint64_t capacity)
{
    struct gb_staging **best = NULL;

    for (struct gb_staging **link = &idle; *link; link = &(*link)->next) {
        const struct gb_staging *block = *link;
        if (block->gpu == gpu && block->capacity >= capacity && block->capacity <= 2 * capacity &&
            (!best || block->capacity < (*best)->capacity))
            best = link;
    }
    if (!best)
        return NULL;
    struct gb_staging *block = *best;
    *best = block->next;
    idle_bytes -= block->capacity;
    return block;
}

/* Takes idle blocks off, the oldest first, until at most `left` bytes remain. */
static struct gb_staging *shrink_idle(uint64_t left)
{
    struct gb_staging **link = &idle, *taken;
    uint64_t kept = 0;

    while (*link && kept + (*link)->capacity <= left) {
        kept += (*link)->capacity;
        link = &(*link)->next;
    }
    taken = *link;
    *link = NULL;
    for (const struct gb_staging *block = taken; block; block = block->next)
        all_bytes -= block->capacity;
    idle_bytes = kept;
    return taken;
}

static void free_all(struct gb_staging *blocks)
{
    while (blocks) {
        struct gb_staging *next = blocks->next;
        block_free(blocks);
        blocks = next;
    }
}

/* False if it cannot be pinned. */
static bool pin(struct gb_staging *block, struct gb_gpu *gpu)
{
    if (gb_gpu_retain(gpu, NULL) < 0)
        return false;
    CUresult result = CUDA_ERROR_UNKNOWN;
    if (gb_gpu_enter(gpu, NULL) == 0) {
        result = gpu->cuda->cuMemHostAlloc(&block->memory, (size_t)block->capacity,
                                           CU_MEMHOSTALLOC_PORTABLE);
        gb_gpu_leave(gpu);
    }
    if (result != CUDA_SUCCESS) {
        gb_gpu_release(gpu);
        return false;
    }
    block->gpu = gpu;
    return true;
}

/* Reserves pinned bytes; idle blocks are freed to make room. */
static bool reserve(uint64_t capacity)
{
    pthread_mutex_lock(&lock);
    struct gb_staging *extra = NULL;
    if (capacity <= ALL_MAX && all_bytes + capacity > ALL_MAX)
        extra = shrink_idle(0);
    bool good = capacity <= ALL_MAX && all_bytes + capacity <= ALL_MAX;
    if (good)
        all_bytes += capacity;
    pthread_mutex_unlock(&lock);
    free_all(extra);
    return good;
}

static void unreserve(uint64_t capacity)
{
    pthread_mutex_lock(&lock);
    all_bytes -= capacity;
    pthread_mutex_unlock(&lock);
}

static void count_refused(void)
{
    pthread_mutex_lock(&lock);
    refused++;
    pthread_mutex_unlock(&lock);
}

int gpubuf_pinned_memory(struct gpubuf_pinned_memory *figures)
{
    if (!figures || figures->size < sizeof(*figures))
        return GPUBUF_E_INVALID;
    pthread_mutex_lock(&lock);
    *figures = (struct gpubuf_pinned_memory){.size = figures->size,
                                             .objects = gb_cuda_registered(),
                                             .buffers = all_bytes,
                                             .buffers_max = ALL_MAX,
                                             .refused = refused};
    pthread_mutex_unlock(&lock);
    return 0;
}

int gb_staging_acquire(const struct gpubuf_object *object, uint64_t bytes, struct gb_staging **out)
{
    struct gb_gpu *gpu;
    uint64_t capacity = (bytes + UNIT - 1) / UNIT * UNIT;

    if (gb_client_lease_gpu(object->lease, &gpu, &(struct gb_error){.code = 0}) < 0)
        gpu = NULL;
    struct gb_staging *block = NULL;
    if (gpu) {
        pthread_mutex_lock(&lock);
        block = take_idle(gpu, capacity);
        pthread_mutex_unlock(&lock);
    }
    if (!block) {
        block = calloc(1, sizeof(*block));
        if (!block)
            return gb_report_memory(object->lease->client);
        block->capacity = capacity;
        bool pinned = gpu && reserve(capacity);
        if (pinned && !pin(block, gpu)) {
            unreserve(capacity);
            pinned = false;
        }
        if (gpu && !pinned)
            count_refused();
        if (!pinned && !(block->memory = malloc((size_t)capacity))) {
            free(block);
            return gb_report_memory(object->lease->client);
        }
    }
    block->bytes = bytes;
    *out = block;
    return 0;
}

void gb_staging_release(struct gb_staging *block)
{
    if (!block)
        return;
    if (!block->gpu) {
        block_free(block);
        return;
    }
    pthread_mutex_lock(&lock);
    block->next = idle;
    idle = block;
    idle_bytes += block->capacity;
    struct gb_staging *extra = idle_bytes > IDLE_MAX ? shrink_idle(IDLE_MAX) : NULL;
    pthread_mutex_unlock(&lock);
    free_all(extra);
}

void *gb_staging_memory(struct gb_staging *block)
{
    return block->memory;
}

uint64_t gb_staging_bytes(const struct gb_staging *block)
{
    return block->bytes;
}

void gb_staging_trim(void)
{
    pthread_mutex_lock(&lock);
    struct gb_staging *all = shrink_idle(0);
    pthread_mutex_unlock(&lock);
    free_all(all);
}
