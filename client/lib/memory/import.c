#include "client/lib/memory/import.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/lib/memory/gpu_copy.h"
#include "client/lib/memory/import_cuda.h"
#include "client/lib/memory/window.h"

/* A copy of at least this size goes by granules of this size (see memfd_write). */
#define GRANULE_BYTES (UINT64_C(64) << 10)

/* A mapping for reading of at least this size is aligned for a window (window.h). */
#define ALIGNED_BYTES (UINT64_C(32) << 20)

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

static int memfd_identify(const struct gb_segment_info *segment, int fd,
                          struct gb_memory_identity *identity, struct gb_error *error)
{
    struct stat status;

    if (fstat(fd, &status) < 0)
        return gb_fail_errno(error, "segment %" PRIu64 ": fstat", segment->id);
    if (!S_ISREG(status.st_mode) || status.st_size < 0 || segment->bytes == 0 ||
        (uint64_t)status.st_size < segment->bytes || segment->bytes > SIZE_MAX) {
        return gb_fail(error, GPUBUF_E_PROTOCOL,
                       "segment %" PRIu64 ": its descriptor is not a file of %" PRIu64 " bytes",
                       segment->id, segment->bytes);
    }

    /* Without the seal the daemon, or the session that registered the memory, could shrink the
       file, and reading would end in SIGBUS. */
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return gb_fail(error, GPUBUF_E_PROTOCOL,
                       "segment %" PRIu64
                       ": its descriptor is not a memfd sealed against shrinking",
                       segment->id);

    identity->device = (uint64_t)status.st_dev;
    identity->file = (uint64_t)status.st_ino;
    return 0;
}

/* Keeps a descriptor for fast writing, for a second mapping, and for gb_import_finish. Without the
   descriptor writing is slower, and the other two fail. */
static void memfd_prepare_writing(struct gb_imported *imported, int fd)
{
    imported->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (imported->fd >= 0)
        imported->written = calloc((size_t)(imported->bytes / GRANULE_BYTES + 1), 1);
}

static int memfd_map(const struct gb_segment_info *segment, int fd, struct gb_imported *imported,
                     struct gb_error *error)
{
    int protection = segment->writable ? PROT_READ | PROT_WRITE : PROT_READ;
    bool aligned = !segment->writable && segment->bytes >= ALIGNED_BYTES;
    void *at = aligned ? gb_window_reserve(segment->bytes) : NULL;
    void *address =
        mmap(at, (size_t)segment->bytes, protection, MAP_SHARED | (at ? MAP_FIXED : 0), fd, 0);

    if (address == MAP_FAILED) {
        int cause = errno;
        if (at)
            (void)munmap(at, (size_t)segment->bytes);
        errno = cause;
        if (errno == ENOMEM)
            return gb_fail(error, GPUBUF_E_NO_MEMORY,
                           "segment %" PRIu64 ": no room to map %" PRIu64 " bytes", segment->id,
                           segment->bytes);
        if (errno == EACCES || errno == EPERM)
            return gb_fail(error, GPUBUF_E_PROTOCOL,
                           "segment %" PRIu64 ": its descriptor does not allow the access promised",
                           segment->id);
        return gb_fail_errno(error, "segment %" PRIu64 ": mmap of %" PRIu64 " bytes", segment->id,
                             segment->bytes);
    }

    *imported = (struct gb_imported){
        .kind = GB_HANDLE_MEMFD,
        .address = address,
        .bytes = segment->bytes,
        .writable = segment->writable,
        .fd = -1,
    };
    if (segment->writable)
        memfd_prepare_writing(imported, fd);
    return 0;
}

static void memfd_unmap(const struct gb_imported *imported)
{
    (void)munmap(imported->address, (size_t)imported->bytes);
    if (imported->fd >= 0)
        close(imported->fd);
    free(imported->written);
}

static int write_file(int fd, uint64_t offset, const char *from, uint64_t bytes,
                      struct gb_error *error)
{
    while (bytes > 0) {
        ssize_t written = pwrite(fd, from, (size_t)bytes, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            if (written == 0)
                errno = ENOSPC;
            return gb_fail_errno(error, "writing %" PRIu64 " bytes of shared memory", bytes);
        }
        from += written;
        offset += (uint64_t)written;
        bytes -= (uint64_t)written;
    }
    return 0;
}

/* A pwrite past RLIMIT_FSIZE, which is not meant for memory, would end the program with SIGXFSZ. */
static bool may_write_file(uint64_t end)
{
    struct rlimit limit;

    return getrlimit(RLIMIT_FSIZE, &limit) == 0 && end <= limit.rlim_cur;
}

/* Notes that a granule is written, and says how often it was before: never, once, or more. */
static unsigned note_written(const struct gb_imported *imported, uint64_t granule)
{
    _Atomic uint8_t *written = &imported->written[granule];
    uint8_t before = atomic_load_explicit(written, memory_order_relaxed);

    if (before < 2)
        atomic_store_explicit(written, (uint8_t)(before + 1), memory_order_relaxed);
    return before;
}

/* Maps the whole pages of a range at once. If the kernel cannot, each page faults by itself. */
static void map_pages(char *from, char *end)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)from + page - 1) / page * page,
              last = (uintptr_t)end / page * page;

    if (first < last)
        (void)madvise(from + (first - (uintptr_t)from), last - first, MADV_POPULATE_WRITE);
}

/*
 * A store into a page that does not exist yet costs a fault, and clearing the page. pwrite does
 * neither, and takes a third of the time, but leaves the pages unmapped. So the first write to a
 * granule is a pwrite. The second one maps the granule's pages all at once, for a quarter of what
 * their faults would cost, and stores: it is likely to be written again, now at the full speed of
 * memcpy.
 */
static int memfd_write(const struct gb_imported *imported, uint64_t offset, const char *from,
                       uint64_t bytes, struct gb_error *error)
{
    char *to = imported->address;

    if (bytes < GRANULE_BYTES || !imported->written) {
        memcpy(to + offset, from, (size_t)bytes);
        return 0;
    }

    uint64_t end = offset + bytes;
    unsigned before = note_written(imported, offset / GRANULE_BYTES);
    while (offset < end) {
        /* A run of granules in the same state, since memcpy is fastest for long runs. */
        uint64_t stop = offset;
        unsigned next = before;
        while (stop < end && next == before) {
            stop = (stop / GRANULE_BYTES + 1) * GRANULE_BYTES;
            if (stop < end)
                next = note_written(imported, stop / GRANULE_BYTES);
            else
                stop = end;
        }
        if (before == 0 && may_write_file(stop)) {
            int r = write_file(imported->fd, offset, from, stop - offset, error);
            if (r < 0)
                return r;
        } else {
            if (before < 2)
                map_pages(to + offset, to + stop);
            memcpy(to + offset, from, (size_t)(stop - offset));
        }
        from += stop - offset;
        offset = stop;
        before = next;
    }
    return 0;
}

bool gb_import_set_writable(const struct gb_imported *imported, uint64_t from, uint64_t to,
                            bool writable)
{
    if (imported->gpu)
        return from == 0 && to == imported->bytes && gb_cuda_set_writable(imported, writable);
    int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    return mprotect((char *)imported->address + from, (size_t)(to - from), protection) == 0;
}

/*
 * The new mapping takes the old one's address, which the program's pointers have. A private mapping
 * that nobody can write shows the file's own pages. A shared one would count as a mapping for
 * writing, since the descriptor is for writing.
 */
int gb_import_finish(const struct gb_imported *imported, struct gb_error *error)
{
    void *address = imported->address;
    size_t bytes = (size_t)imported->bytes;

    if (imported->fd < 0)
        return gb_fail(error, GPUBUF_E_SYSTEM, "there was no descriptor left to keep it by");
    /* cppcheck-suppress leakReturnValNotUsed ; it is mapped where it was */
    if (mmap(address, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, imported->fd, 0) == MAP_FAILED)
        return gb_fail_errno(error, "mapping it for reading");
    if (fcntl(imported->fd, F_ADD_SEALS, F_SEAL_WRITE) == 0)
        return 0;
    bool busy = errno == EBUSY;
    int r = gb_fail_errno(error, "fcntl(F_ADD_SEALS, F_SEAL_WRITE)");
    if (busy)
        r = gb_fail(
            error, GPUBUF_E_BUSY,
            "its memory is still mapped for writing: by another process (a child of this one?), "
            "by this one itself, or for a device");
    /* cppcheck-suppress leakReturnValNotUsed */
    if (mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, imported->fd, 0) ==
        MAP_FAILED)
        return gb_fail_errno(error, "mapping it for writing again");
    return r;
}

int gb_import_identify(const struct gb_segment_info *segment, int fd,
                       struct gb_memory_identity *identity, struct gb_error *error)
{
    switch (segment->handle.kind) {
    case GB_HANDLE_MEMFD:
        return memfd_identify(segment, fd, identity, error);
    case GB_HANDLE_CUDA_FD:
    case GB_HANDLE_CUDA_IPC:
        break;
    }
    return gb_cuda_identify(segment, identity, error);
}

int gb_import_map(const struct gb_segment_info *segment, int fd, struct gb_imported *imported,
                  struct gb_error *error)
{
    switch (segment->handle.kind) {
    case GB_HANDLE_MEMFD:
        return memfd_map(segment, fd, imported, error);
    case GB_HANDLE_CUDA_FD:
    case GB_HANDLE_CUDA_IPC:
        break;
    }
    return gb_cuda_map(segment, fd, imported, error);
}

void gb_import_unmap(const struct gb_imported *imported)
{
    switch (imported->kind) {
    case GB_HANDLE_MEMFD:
        memfd_unmap(imported);
        break;
    case GB_HANDLE_CUDA_FD:
    case GB_HANDLE_CUDA_IPC:
        gb_cuda_unmap(imported);
        break;
    }
}

int gb_import_write(const struct gb_imported *imported, uint64_t offset, const void *from,
                    uint64_t bytes, struct gb_error *error)
{
    switch (imported->kind) {
    case GB_HANDLE_MEMFD:
        return memfd_write(imported, offset, from, bytes, error);
    case GB_HANDLE_CUDA_FD:
    case GB_HANDLE_CUDA_IPC:
        break;
    }
    return gb_gpu_copy(imported->gpu, (char *)imported->address + offset, from, bytes, NULL, error);
}
