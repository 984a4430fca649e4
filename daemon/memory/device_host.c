/* The device `host`: segments are memfds. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "daemon/base/failure.h"
#include "daemon/memory/device.h"

#define GRANULARITY (2u << 20)

static bool host_can_share(const struct gb_device *device, enum gb_share share)
{
    return share == GB_SHARE_FD;
}

/* Opens the same memory read-only, so that mmap(PROT_WRITE) of the new descriptor fails. Does not
   wait for the holder of a file lease (F_SETLEASE): a peer could keep that for most of a minute. */
static int reopen_read_only(int fd, struct gb_error *error)
{
    char path[48];
    int read_fd;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    read_fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return read_fd < 0 ? gb_fail_call(error, "host: opening a memfd read-only (is /proc mounted?)")
                       : read_fd;
}

/*
 * The mode of the memfd's inode decides who may open it again through /proc. With 0600, readers of
 * other uids have nothing but the read-only descriptor that they were given.
 */
static int make_memfd(uint64_t bytes, int seals, struct gb_memory *memory, struct gb_error *error)
{
    int write_fd, read_fd;

    write_fd = memfd_create("gpubufd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (write_fd < 0)
        return gb_fail_call(error, "host: memfd_create");
    if (fchmod(write_fd, 0600) < 0 || ftruncate(write_fd, (off_t)bytes) < 0 ||
        fcntl(write_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | seals) < 0) {
        int failure = gb_fail_call(error, "host: sizing and sealing a memfd");

        close(write_fd);
        return failure;
    }
    read_fd = reopen_read_only(write_fd, error);
    if (read_fd < 0) {
        close(write_fd);
        return read_fd;
    }
    *memory = (struct gb_memory){GB_HANDLE_MEMFD, .write_fd = write_fd, .read_fd = read_fd};
    return 0;
}

static int host_create(struct gb_device *device, enum gb_share share, uint64_t bytes,
                       struct gb_memory *memory, struct gb_error *error)
{
    return make_memfd(bytes, F_SEAL_SEAL, memory, error);
}

/* The producer adds F_SEAL_WRITE, not the loop: adding it may wait for a process that has pinned
   pages. */
static int host_create_final(struct gb_device *device, uint64_t bytes, struct gb_memory *memory,
                             struct gb_error *error)
{
    return make_memfd(bytes, 0, memory, error);
}

static bool host_is_final(struct gb_memory *memory)
{
    int seals = fcntl(memory->read_fd, F_GET_SEALS);

    memory->final = seals >= 0 && (seals & F_SEAL_WRITE);
    return memory->final;
}

static int host_restore(const struct gb_device *device, enum gb_handle_kind kind, int fd,
                        uint64_t bytes, struct gb_memory *memory, struct gb_error *error)
{
    bool ours;
    int seals, read_fd;
    struct stat st;

    if (kind != GB_HANDLE_MEMFD)
        return gb_fail(error, GPUBUF_E_INVALID, "it is no memory of %s", device->id);
    ours = (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR; /* else the memory was adopted */
    seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &st) < 0 || st.st_size < 0 ||
        (uint64_t)st.st_size < bytes)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "its descriptor is no memfd of %" PRIu64 " bytes that cannot shrink", bytes);
    read_fd = ours ? reopen_read_only(fd, error) : fd;
    if (read_fd < 0)
        return errno == ENOMEM ? gb_fail_memory(error) : read_fd;
    *memory = (struct gb_memory){GB_HANDLE_MEMFD, .write_fd = ours ? fd : -1, .read_fd = read_fd};
    host_is_final(memory);
    return 0;
}

/* Whether the kernel keeps every process from writing that has no writable mapping yet. */
static bool write_sealed(int seals)
{
    return seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE);
}

/*
 * Whether readers are safe with a memfd that its producer keeps. Two things could harm them. If the
 * producer punches a hole into huge pages, others may take these, and a reader dies of SIGBUS
 * although the file cannot shrink. And readers whom the file's mode lets write can open their
 * read-only descriptors again for writing.
 */
static int check_foreign(int fd, const struct stat *st, int seals, struct gb_error *error)
{
    struct statfs fs;

    if (write_sealed(seals))
        return 0;
    if (fstatfs(fd, &fs) < 0)
        return gb_fail_call(error, "host: fstatfs of a memfd");
    if (fs.f_type == HUGETLBFS_MAGIC)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "the memfd has huge pages, which can be taken from under a reader; seal it "
                       "with F_SEAL_WRITE or F_SEAL_FUTURE_WRITE first");
    if (st->st_mode & (S_IWGRP | S_IWOTH))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "others than its owner may write the memfd, whose mode is 0%o, and readers "
                       "could; fchmod it to 0600, or seal it with F_SEAL_WRITE or "
                       "F_SEAL_FUTURE_WRITE first",
                       (unsigned)st->st_mode & 0777);
    return 0;
}

/* A descriptor for reading only. If `fd` is one, a duplicate will do, whatever the file's mode. */
static int adopt_for_reading(int fd, const struct stat *st, struct gb_error *error)
{
    int read_fd;

    if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDONLY) {
        read_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        return read_fd < 0 ? gb_fail_call(error, "host: duplicating a descriptor") : read_fd;
    }
    read_fd = reopen_read_only(fd, NULL);
    if (read_fd >= 0)
        return read_fd;
    if (errno == EWOULDBLOCK)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "a process has a lease on the memfd (F_SETLEASE), so it cannot be opened");
    if (errno != EACCES)
        return reopen_read_only(fd, error);
    return gb_fail(
        error, GPUBUF_E_DENIED,
        "the daemon may not open the memfd for reading only, since its mode is 0%o; send "
        "a descriptor that is (open(\"/proc/self/fd/N\", O_RDONLY)), or fchmod it to 0644",
        (unsigned)st->st_mode & 0777);
}

static int host_adopt(struct gb_device *device, const struct gb_handle *handle, int fd,
                      struct gb_memory *memory, struct gb_error *error)
{
    uint64_t bytes = handle->bytes;
    struct stat st;
    int seals, read_fd, r;

    if (handle->kind != GB_HANDLE_MEMFD)
        return gb_fail(error, GPUBUF_E_UNSUPPORTED, "the device host adopts handles of kind memfd");
    seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0)
        return gb_fail(error, GPUBUF_E_INVALID, "the descriptor is not a memfd");
    if (!(seals & F_SEAL_SHRINK))
        return gb_fail(error, GPUBUF_E_INVALID,
                       "the memfd may still shrink; seal it with F_SEAL_SHRINK first");
    if (fstat(fd, &st) < 0)
        return gb_fail_call(error, "host: fstat of a memfd");
    if (st.st_size < 0 || (uint64_t)st.st_size < bytes)
        return gb_fail(error, GPUBUF_E_INVALID,
                       "the memfd has %jd bytes, fewer than the %" PRIu64 " that were announced",
                       (intmax_t)st.st_size, bytes);
    r = check_foreign(fd, &st, seals, error);
    if (r < 0)
        return r;
    read_fd = adopt_for_reading(fd, &st, error);
    if (read_fd < 0)
        return read_fd;
    *memory = (struct gb_memory){GB_HANDLE_MEMFD, .write_fd = -1, .read_fd = read_fd};
    host_is_final(memory);
    return 0;
}

static void host_destroy(struct gb_device *device, struct gb_memory *memory)
{
    if (memory->write_fd >= 0)
        close(memory->write_fd);
    if (memory->read_fd >= 0)
        close(memory->read_fd);
    memory->write_fd = memory->read_fd = -1;
}

static int host_copy(struct gb_device *device, enum gb_direction direction,
                     const struct gb_memory *memory, uint64_t segment_bytes, uint64_t offset,
                     void *own, uint64_t bytes, struct gb_error *error)
{
    char *at = own;

    while (bytes > 0) {
        ssize_t n = direction == GB_OUT ? pread(memory->read_fd, at, bytes, (off_t)offset)
                                        : pwrite(memory->write_fd, at, bytes, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n == 0 ? EIO : errno;
            return gb_fail_call(error, direction == GB_OUT ? "host: reading a memfd"
                                                           : "host: writing a memfd");
        }
        at += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

static int host_finish_copies(struct gb_device *device, enum gb_direction direction,
                              struct gb_error *error)
{
    return 0;
}

static void host_end(struct gb_device *device)
{
    free(device);
}

uint64_t gb_device_host_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);

    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

static bool host_is_meant(const char *id)
{
    return gb_is_host(id);
}

static int host_open(const struct gb_device_spec *spec, struct gb_device **devices, unsigned *count,
                     struct gb_error *error)
{
    struct gb_device *device;
    uint64_t capacity;
    int r = gb_device_spec_capacity(spec, gb_device_host_memory(), &capacity, error);

    if (r < 0)
        return r;
    device = calloc(1, sizeof(*device));
    if (!device)
        return gb_fail_memory(error);
    device->capacity = capacity;
    device->granularity = GRANULARITY;
    snprintf(device->id, sizeof(device->id), "host");
    snprintf(device->name, sizeof(device->name), "host memory");
    device->ops = &gb_device_host;
    devices[(*count)++] = device;
    return 0;
}

const struct gb_device_ops gb_device_host = {
    .kind = "host",
    .is_host = true,
    .is_meant = host_is_meant,
    .open = host_open,
    .can_share = host_can_share,
    .create = host_create,
    .create_final = host_create_final,
    .is_final = host_is_final,
    .adopt = host_adopt,
    .destroy = host_destroy,
    .restore = host_restore,
    .copy = host_copy,
    .finish_copies = host_finish_copies,
    .end = host_end,
};
