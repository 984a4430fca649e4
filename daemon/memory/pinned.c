#include "daemon/memory/pinned.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "daemon/base/log.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

#define CHUNK ((uint64_t)64 << 20)
#define PART ((uint64_t)4 << 20) /* of a chunk; its pages are made in one go */
/* How many chunks ahead of use get their pages, and how many threads make these at most. */
#define AHEAD 16
#define MOST_THREADS 8

struct chunk {
    struct gb_device *by; /* that has pinned it; NULL: none has */
    unsigned taken, made; /* parts, from the first on: a thread makes or has made their pages */
};

struct gb_pinned {
    uv_mutex_t lock; /* over `chunks`, `next`, `wanted`, `stop` */
    uv_cond_t wake;  /* something is wanted, or was made */
    uv_thread_t threads[MOST_THREADS];
    unsigned thread_count;
    uint64_t next, wanted; /* chunks whose pages the threads make */
    bool stop;
    int fd;
    char *base;
    uint64_t bytes;
    bool warned;
    struct chunk chunks[];
};

static uint64_t chunk_bytes(const struct gb_pinned *pinned, uint64_t chunk)
{
    uint64_t rest = pinned->bytes - chunk * CHUNK;

    return rest < CHUNK ? rest : CHUNK;
}

static unsigned parts_of(const struct gb_pinned *pinned, uint64_t chunk)
{
    return (unsigned)((chunk_bytes(pinned, chunk) + PART - 1) / PART);
}

/* Makes the pages of the chunk's next part. The lock is held, but not meanwhile. If the kernel
   lacks MADV_POPULATE_WRITE they are made when they are pinned. */
static void make_part(struct gb_pinned *pinned, uint64_t chunk)
{
    uint64_t at = PART * pinned->chunks[chunk].taken++, rest = chunk_bytes(pinned, chunk) - at;

    uv_mutex_unlock(&pinned->lock);
    madvise(pinned->base + chunk * CHUNK + at, rest < PART ? rest : PART, MADV_POPULATE_WRITE);
    uv_mutex_lock(&pinned->lock);
    if (++pinned->chunks[chunk].made == parts_of(pinned, chunk))
        uv_cond_broadcast(&pinned->wake);
}

/* All threads make the same chunk, the one that is needed first. */
static void make_pages(void *arg)
{
    struct gb_pinned *pinned = arg;

    uv_mutex_lock(&pinned->lock);
    while (!pinned->stop) {
        if (pinned->next >= pinned->wanted)
            uv_cond_wait(&pinned->wake, &pinned->lock);
        else if (pinned->chunks[pinned->next].taken < parts_of(pinned, pinned->next))
            make_part(pinned, pinned->next);
        else
            pinned->next++;
    }
    uv_mutex_unlock(&pinned->lock);
}

/* Starts at most one thread for two processors. Without any the tier still works, slower. */
static void start_threads(struct gb_pinned *pinned)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);

    while (pinned->thread_count < MOST_THREADS &&
           (long)pinned->thread_count < (processors > 1 ? processors / 2 : 1) &&
           uv_thread_create(&pinned->threads[pinned->thread_count], make_pages, pinned) == 0)
        pinned->thread_count++;
}

static int map(struct gb_pinned *pinned, struct gb_error *error)
{
    pinned->fd = memfd_create("gpubufd-tier", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (pinned->fd >= 0 && ftruncate(pinned->fd, (off_t)pinned->bytes) == 0)
        pinned->base = mmap(NULL, pinned->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                            pinned->fd, 0);
    if (pinned->base != MAP_FAILED)
        return 0;
    return gb_fail_errno(error, "cannot map %llu bytes for the host tier",
                         (unsigned long long)pinned->bytes);
}

int gb_pinned_new(uint64_t bytes, struct gb_pinned **out, struct gb_error *error)
{
    uint64_t chunks = (bytes + CHUNK - 1) / CHUNK;
    struct gb_pinned *pinned = calloc(1, sizeof(*pinned) + chunks * sizeof(pinned->chunks[0]));
    int r;

    if (!pinned || uv_mutex_init(&pinned->lock) < 0) {
        free(pinned);
        return gb_fail_memory(error);
    }
    if (uv_cond_init(&pinned->wake) < 0) {
        uv_mutex_destroy(&pinned->lock);
        free(pinned);
        return gb_fail_memory(error);
    }
    pinned->bytes = bytes;
    pinned->base = MAP_FAILED;
    r = map(pinned, error);
    if (r < 0) {
        gb_pinned_free(pinned);
        return r;
    }
    start_threads(pinned);
    *out = pinned;
    return 0;
}

int gb_pinned_restore(struct gb_pinned *pinned, int fd, struct gb_error *error)
{
    struct stat status;
    void *base;

    if (fstat(fd, &status) < 0 ||
        ((uint64_t)status.st_size < pinned->bytes && ftruncate(fd, (off_t)pinned->bytes) < 0))
        return gb_fail_errno(error, "the host tier's memory cannot be used");
    base = mmap(NULL, pinned->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED && errno == ENOMEM)
        return gb_fail_memory(error);
    if (base == MAP_FAILED)
        return gb_fail_errno(error, "cannot map the host tier's memory");
    munmap(pinned->base, pinned->bytes);
    close(pinned->fd);
    pinned->base = base;
    pinned->fd = fd;
    return 0;
}

int gb_pinned_fd(const struct gb_pinned *pinned)
{
    return pinned->fd;
}

void gb_pinned_free(struct gb_pinned *pinned)
{
    if (!pinned)
        return;
    uv_mutex_lock(&pinned->lock);
    pinned->stop = true;
    uv_cond_broadcast(&pinned->wake);
    uv_mutex_unlock(&pinned->lock);
    for (unsigned i = 0; i < pinned->thread_count; i++)
        uv_thread_join(&pinned->threads[i]);
    for (uint64_t i = 0; i * CHUNK < pinned->bytes; i++)
        if (pinned->chunks[i].by)
            pinned->chunks[i].by->ops->unpin(pinned->chunks[i].by, pinned->base + i * CHUNK);
    if (pinned->base != MAP_FAILED)
        munmap(pinned->base, pinned->bytes);
    if (pinned->fd >= 0)
        close(pinned->fd);
    uv_cond_destroy(&pinned->wake);
    uv_mutex_destroy(&pinned->lock);
    free(pinned);
}

/* The lock is held. */
static void pin_chunk(struct gb_pinned *pinned, struct gb_device *device, uint64_t chunk)
{
    struct gb_error error = {0};

    if (device->ops->pin(device, pinned->base + chunk * CHUNK, chunk_bytes(pinned, chunk),
                         &error) == 0)
        pinned->chunks[chunk].by = device;
    else if (!pinned->warned) {
        pinned->warned = true;
        gb_log(GB_LOG_WARNING, "memory of the host tier not pinned",
               GB_LOG_TEXT("why", error.message));
    }
}

/* Has the pages of the next chunks made, and those of this one: this thread helps. The lock is
   held. */
static void make_chunk(struct gb_pinned *pinned, uint64_t chunk)
{
    uint64_t chunks = (pinned->bytes + CHUNK - 1) / CHUNK, wanted = chunk + AHEAD;

    wanted = wanted < chunks ? wanted : chunks;
    if (pinned->chunks[chunk].taken < parts_of(pinned, chunk)) {
        pinned->next = chunk;
        pinned->wanted = wanted;
        uv_cond_broadcast(&pinned->wake);
    } else if (wanted > pinned->wanted) {
        pinned->wanted = wanted;
        uv_cond_broadcast(&pinned->wake);
    }
    while (pinned->chunks[chunk].taken < parts_of(pinned, chunk))
        make_part(pinned, chunk);
    while (pinned->chunks[chunk].made < parts_of(pinned, chunk))
        uv_cond_wait(&pinned->wake, &pinned->lock);
}

uint64_t gb_pinned_span(struct gb_pinned *pinned, struct gb_device *device, uint64_t offset,
                        uint64_t bytes)
{
    uint64_t chunk = offset / CHUNK, room = (chunk + 1) * CHUNK - offset;

    uv_mutex_lock(&pinned->lock);
    make_chunk(pinned, chunk);
    if (!pinned->chunks[chunk].by && device->ops->pin)
        pin_chunk(pinned, device, chunk);
    uv_mutex_unlock(&pinned->lock);
    return bytes < room ? bytes : room;
}

void *gb_pinned_at(const struct gb_pinned *pinned, uint64_t offset)
{
    return pinned->base + offset;
}
