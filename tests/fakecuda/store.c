/*
 * An allocation is a file of the shared directory, named by what it is:
 *
 *     KIND-DEVICE-BYTES-ID     v: cuMemCreate, l: cuMemAlloc, c: a context, e: an event
 *
 * It is alive as long as its first byte is locked, for reading, through the open file description
 * that its creator made. A descriptor that is passed to another process, and a mapping made from
 * it, hold that same description; the kernel drops the lock when the last of them is gone, whatever
 * became of the processes. So what is used is the sum over the files that somebody still locks, and
 * it is exact after any kill -9. A file that nobody locks is removed by whoever notices it.
 * Creation and that removal exclude each other by a lock on the directory's own file.
 *
 * The second byte is locked for writing by the description of the process that may hand out legacy
 * handles: they open only while it is.
 */
#include "fake.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { ALIVE_BYTE, EXPORTER_BYTE };

static char directory[PATH_MAX];
static int directory_fd = -1, lock_fd = -1;

/* Shared memory where it is large enough (a container's may be 64 MiB), else an ordinary disk. All
   processes must come to the same answer, so only the size counts. */
static const char *default_root(void)
{
    struct statvfs space;
    if (statvfs("/dev/shm", &space) == 0 &&
        (uint64_t)space.f_blocks * space.f_frsize / (size_t)fc_settings.devices >=
            fc_settings.memory)
        return "/dev/shm";
    return "/tmp";
}

CUresult fc_store_init(void)
{
    if (directory_fd >= 0)
        return CUDA_SUCCESS;
    char path[PATH_MAX];
    const char *given = getenv("FAKECUDA_DIR");
    int length = given && *given ? snprintf(path, sizeof(path), "%s", given)
                                 : snprintf(path, sizeof(path), "%s/fakecuda-0", default_root());
    if (length < 0 || (size_t)length >= sizeof(path))
        return CUDA_ERROR_OPERATING_SYSTEM;
    /* Other users' processes have the same devices. */
    if (mkdir(path, 0777) == 0 && chmod(path, 0777) < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (!realpath(path, directory))
        return CUDA_ERROR_OPERATING_SYSTEM;
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    lock_fd = openat(fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock_fd < 0) {
        close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    fchmod(lock_fd,
           0666); /* whatever the umask is; fails for another user's file, which has this mode
                     already */
    directory_fd = fd;
    return CUDA_SUCCESS;
}

static bool lock_store(void)
{
    int result;
    while ((result = flock(lock_fd, LOCK_EX)) < 0 && errno == EINTR)
        continue;
    return result == 0;
}

static void unlock_store(void)
{
    flock(lock_fd, LOCK_UN);
}

static bool lock_byte(int fd, int byte, short type)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

/* Does any other description hold a lock on this byte? */
static bool locked_byte(int fd, int byte)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

struct file_name {
    char kind;
    int device;
    size_t bytes;
    uint64_t id;
};

static void print_name(char text[64], const struct file_name *name)
{
    snprintf(text, 64, "%c-%d-%zu-%016" PRIx64, name->kind, name->device, name->bytes, name->id);
}

static bool scan_name(const char *text, struct file_name *name)
{
    char again[64];
    if (sscanf(text, "%c-%d-%zu-%" SCNx64, &name->kind, &name->device, &name->bytes, &name->id) !=
        4)
        return false;
    print_name(again, name);
    return !strcmp(text, again);
}

/* Legacy memory comes in blocks of 2 MiB too; small allocations share them, or nearly so. */
static size_t cost(const struct file_name *name)
{
    size_t unit = name->kind != 'l' || name->bytes > FC_GRANULE / 2 ? FC_GRANULE : FC_GRANULE / 32;
    return (name->bytes + unit - 1) / unit * unit;
}

/* Adds up what a device has in use; the store is locked. Removes dead files on the way. */
static CUresult sum_up(int device, size_t *used)
{
    int fd = openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list) {
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *used = 0;
    /* cppcheck-suppress readdirCalled ; no other thread has this list */
    for (struct dirent *entry; (entry = readdir(list));) {
        struct file_name name;
        if (!scan_name(entry->d_name, &name))
            continue;
        int file = openat(directory_fd, entry->d_name, O_RDWR | O_CLOEXEC);
        if (file < 0)
            continue;
        if (!locked_byte(file, ALIVE_BYTE))
            unlinkat(directory_fd, entry->d_name, 0);
        else if (name.device == device && name.kind != 'e')
            *used += cost(&name);
        close(file);
    }
    closedir(list);
    return CUDA_SUCCESS;
}

CUresult fc_store_used(int device, size_t *used)
{
    if (!lock_store())
        return CUDA_ERROR_OPERATING_SYSTEM;
    CUresult result = sum_up(device, used);
    unlock_store();
    return result;
}

static int make_file(const struct file_name *name, bool exporter)
{
    char text[64];
    print_name(text, name);
    int fd = openat(directory_fd, text, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return -1;
    off_t length = name->kind == 'c' ? 0 : name->kind == 'e' ? 4096 : (off_t)name->bytes;
    if (fchmod(fd, 0666) == 0 && lock_byte(fd, ALIVE_BYTE, F_RDLCK) &&
        (!exporter || lock_byte(fd, EXPORTER_BYTE, F_WRLCK)) && ftruncate(fd, length) == 0)
        return fd;
    unlinkat(directory_fd, text, 0);
    close(fd);
    return -1;
}

CUresult fc_store_create(char kind, int device, size_t bytes, bool exporter, uint64_t *id, int *fd)
{
    struct file_name name = {.kind = kind, .device = device, .bytes = bytes};
    if (bytes > fc_settings.memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (getrandom(&name.id, sizeof(name.id), 0) != sizeof(name.id) || !lock_store())
        return CUDA_ERROR_OPERATING_SYSTEM;
    size_t used = 0;
    CUresult result = kind == 'e' ? CUDA_SUCCESS : sum_up(device, &used);
    if (result == CUDA_SUCCESS && used + cost(&name) > fc_settings.memory)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    int made = result == CUDA_SUCCESS ? make_file(&name, exporter) : -1;
    unlock_store();
    if (result == CUDA_SUCCESS && made < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    if (result == CUDA_SUCCESS) {
        *id = name.id;
        *fd = made;
    }
    return result;
}

CUresult fc_store_open(char kind, int device, size_t bytes, uint64_t id, int *fd)
{
    struct file_name name = {.kind = kind, .device = device, .bytes = bytes, .id = id};
    char text[64];
    print_name(text, &name);
    if (!lock_store())
        return CUDA_ERROR_OPERATING_SYSTEM;
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    int opened = openat(directory_fd, text, O_RDWR | O_CLOEXEC);
    if (opened >= 0 && locked_byte(opened, ALIVE_BYTE) &&
        (kind == 'e' || locked_byte(opened, EXPORTER_BYTE)) &&
        lock_byte(opened, ALIVE_BYTE, F_RDLCK)) {
        *fd = opened;
        result = CUDA_SUCCESS;
    } else if (opened >= 0) {
        close(opened);
    } else if (errno == EMFILE || errno == ENFILE) {
        result = CUDA_ERROR_OPERATING_SYSTEM;
    }
    unlock_store();
    return result;
}

CUresult fc_store_adopt(int fd, int *device, size_t *bytes, uint64_t *id, int *out)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof(path) - 1);
    size_t parent = strlen(directory);
    if (length <= (ssize_t)parent + 1)
        return CUDA_ERROR_UNKNOWN;
    path[length] = '\0';
    struct file_name name;
    struct stat given, ours;
    if (strncmp(path, directory, parent) || path[parent] != '/' ||
        !scan_name(path + parent + 1, &name) || name.kind != 'v' || fstat(fd, &given) < 0 ||
        fstatat(directory_fd, path + parent + 1, &ours, AT_SYMLINK_NOFOLLOW) < 0 ||
        given.st_dev != ours.st_dev || given.st_ino != ours.st_ino)
        return CUDA_ERROR_UNKNOWN;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (copy < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    *device = name.device;
    *bytes = name.bytes;
    *id = name.id;
    *out = copy;
    return CUDA_SUCCESS;
}
