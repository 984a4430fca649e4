#include "pinned.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uv.h>

#include "log.h"

#define CHUNK ((uint64_t)64 << 20)

struct gb_pinned {
    uv_mutex_t lock; /* over `by` */
    int fd;
    char *base;
    uint64_t bytes;
    bool warned;
    struct gb_device *by[]; /* for each chunk: who has pinned it; NULL: nobody has */
};

int gb_pinned_new(uint64_t bytes, struct gb_pinned **out, struct gb_error *error)
{
    uint64_t chunks = (bytes + CHUNK - 1) / CHUNK;
    struct gb_pinned *pinned = calloc(1, sizeof(*pinned) + chunks * sizeof(pinned->by[0]));

    if (!pinned || uv_mutex_init(&pinned->lock) < 0) {
        free(pinned);
        return gb_fail(error, GPUBUF_E_NO_MEMORY, "out of memory");
    }
    pinned->bytes = bytes;
    pinned->base = MAP_FAILED;
    pinned->fd = memfd_create("gpubufd-tier", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (pinned->fd >= 0 && ftruncate(pinned->fd, (off_t)bytes) == 0)
        pinned->base =
            mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, pinned->fd, 0);
    if (pinned->base == MAP_FAILED) {
        int r = gb_fail_errno(error, "cannot map %llu bytes for the host tier",
                              (unsigned long long)bytes);

        gb_pinned_free(pinned);
        return r;
    }
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
    for (uint64_t i = 0; i * CHUNK < pinned->bytes; i++)
        if (pinned->by[i])
            pinned->by[i]->ops->unpin(pinned->by[i], pinned->base + i * CHUNK);
    if (pinned->base != MAP_FAILED)
        munmap(pinned->base, pinned->bytes);
    if (pinned->fd >= 0)
        close(pinned->fd);
    uv_mutex_destroy(&pinned->lock);
    free(pinned);
}

/* The lock is held. */
static void pin_chunk(struct gb_pinned *pinned, struct gb_device *device, uint64_t chunk)
{
    uint64_t start = chunk * CHUNK, rest = pinned->bytes - start;
    struct gb_error error = {0};

    if (device->ops->pin(device, pinned->base + start, rest < CHUNK ? rest : CHUNK, &error) == 0)
        pinned->by[chunk] = device;
    else if (!pinned->warned) {
        pinned->warned = true;
        gb_log(GB_LOG_WARNING, "memory of the host tier not pinned",
               GB_LOG_TEXT("why", error.message));
    }
}

uint64_t gb_pinned_span(struct gb_pinned *pinned, struct gb_device *device, uint64_t offset,
                        uint64_t bytes)
{
    uint64_t chunk = offset / CHUNK, room = (chunk + 1) * CHUNK - offset;

    uv_mutex_lock(&pinned->lock);
    if (!pinned->by[chunk] && device->ops->pin)
        pin_chunk(pinned, device, chunk);
    uv_mutex_unlock(&pinned->lock);
    return bytes < room ? bytes : room;
}

void *gb_pinned_at(const struct gb_pinned *pinned, uint64_t offset)
{
    return pinned->base + offset;
}
