#include "daemon/memory/spill_file.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "daemon/base/failpoint.h"
#include "daemon/base/lock.h"
#include "daemon/base/log.h"

#define VERSION 2
#define INSTANCE_BYTES 32
#define SUFFIX ".spill"
#define LOCK "gpubufd.lock"
#define PACK "gpubufd.pack"
#define NAME_BYTES (16 + sizeof(SUFFIX))

struct gb_spill_dir {
    int fd, lock_fd;
    bool is_new; /* its lock was made now */
    char instance[INSTANCE_BYTES];
    char path[];
};

struct gb_spill_file {
    struct gb_spill_dir *dir;
    uint64_t id, storage;
    int fd;
    uint64_t begin, content; /* offsets of the header and of the content */
    bool writing;            /* not finished yet */
    uint64_t bytes, done;
    uint64_t expected; /* checksum */
    XXH3_state_t *state;
};

struct header {
    char magic[8];
    uint32_t version, zero;
    uint64_t bytes, content, storage, file;
    char instance[INSTANCE_BYTES];
    uint64_t self;
};

_Static_assert(sizeof(struct header) == 88, "the header is 88 octets, then zeros");
_Static_assert(sizeof(struct header) <= GB_PACK_HEADER_BYTES, "the content of the pack follows it");

static const char magic[8] = "gpubufsp";

/* ---- the directory ---- */

/* Whether a name is that of a spill file. Places in the pack have no files of their own. */
static bool is_ours(const char *name)
{
    return strspn(name, "0123456789abcdef") == 16 && strcmp(name + 16, SUFFIX) == 0 &&
           strtoull(name, NULL, 16) < GB_PACK_BASE;
}

void gb_spill_dir_set_instance(struct gb_spill_dir *dir, const char *instance)
{
    memcpy(dir->instance, instance, INSTANCE_BYTES);
}

/* NULL: memory is out. */
static uint64_t *read_ids(DIR *stream, size_t *count)
{
    size_t room = 1024;
    uint64_t *ids = malloc(room * sizeof(*ids));
    const struct dirent *entry;

    *count = 0;
    rewinddir(stream);
    while (ids && (entry = readdir(stream))) {
        uint64_t *more = ids;

        if (!is_ours(entry->d_name))
            continue;
        if (*count == room)
            more = realloc(ids, (room *= 2) * sizeof(*ids));
        if (!more)
            free(ids);
        ids = more;
        if (ids)
            ids[(*count)++] = strtoull(entry->d_name, NULL, 16);
    }
    return ids;
}

int gb_spill_dir_list(const struct gb_spill_dir *dir, uint64_t **ids, size_t *count,
                      struct gb_error *error)
{
    int copy = fcntl(dir->fd, F_DUPFD_CLOEXEC, 3);
    DIR *stream = copy >= 0 ? fdopendir(copy) : NULL;

    if (!stream) {
        if (copy >= 0)
            close(copy);
        return gb_fail_errno(error, "cannot read the directory %s", dir->path);
    }
    *ids = read_ids(stream, count);
    closedir(stream);
    if (!*ids)
        return gb_fail_memory(error);
    return 0;
}

static int lock_directory(struct gb_spill_dir *dir, bool anew, struct gb_error *error)
{
    dir->fd = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir->fd < 0)
        return gb_fail_errno(error, "cannot open the directory %s", dir->path);
    dir->lock_fd = openat(dir->fd, LOCK, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    dir->is_new = dir->lock_fd < 0 && errno == ENOENT;
    if (dir->is_new && anew)
        dir->lock_fd = openat(dir->fd, LOCK, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (dir->lock_fd < 0)
        return gb_fail_errno(error, "cannot write in the directory %s", dir->path);
    if (gb_lock_acquire(dir->lock_fd))
        return 0;
    if (errno == EWOULDBLOCK)
        return gb_fail(error, GPUBUF_E_BUSY,
                       "another daemon spills into the directory %s; give each one of its own",
                       dir->path);
    return gb_fail_errno(error, "cannot lock %s/" LOCK, dir->path);
}

static int open_directory(const char *path, bool anew, struct gb_spill_dir **out,
                          struct gb_error *error)
{
    struct gb_spill_dir *dir = calloc(1, sizeof(*dir) + strlen(path) + 1);
    int r;

    if (!dir)
        return gb_fail_memory(error);
    strcpy(dir->path, path);
    dir->lock_fd = -1;
    r = lock_directory(dir, anew, error);
    if (r < 0) {
        gb_spill_dir_close(dir);
        return r;
    }
    *out = dir;
    return 0;
}

int gb_spill_dir_open(const char *path, struct gb_spill_dir **out, struct gb_error *error)
{
    return open_directory(path, true, out, error);
}

int gb_spill_dir_try(const char *path, bool anew, struct gb_error *error)
{
    struct gb_spill_dir *dir = NULL;
    int r = open_directory(path, anew, &dir, error);

    gb_spill_dir_close(dir);
    return r;
}

bool gb_spill_dir_is_new(const struct gb_spill_dir *dir)
{
    return dir->is_new;
}

void gb_spill_dir_leave(const struct gb_spill_dir *dir)
{
    unlinkat(dir->fd, LOCK, 0);
}

void gb_spill_dir_close(struct gb_spill_dir *dir)
{
    if (!dir)
        return;
    if (dir->lock_fd >= 0)
        close(dir->lock_fd);
    if (dir->fd >= 0)
        close(dir->fd);
    free(dir);
}

int gb_spill_dir_lock(const struct gb_spill_dir *dir)
{
    return dir->lock_fd;
}

/* ---- files ---- */

static bool is_packed(uint64_t id)
{
    return id >= GB_PACK_BASE;
}

static const char *file_name(uint64_t id, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, is_packed(id) ? PACK : "%016" PRIx64 SUFFIX, id);
    return name;
}

/* A failed call: GPUBUF_E_NO_MEMORY or GPUBUF_E_LIMIT if memory or descriptors are out. */
static int file_failure(struct gb_error *error, const struct gb_spill_file *file, const char *what)
{
    char name[NAME_BYTES];
    int why = errno;

    gb_fail_errno(error, "%s %s/%s", what, file->dir->path, file_name(file->id, name));
    if (why == ENOMEM)
        error->code = GPUBUF_E_NO_MEMORY;
    if (why == EMFILE || why == ENFILE)
        error->code = GPUBUF_E_LIMIT;
    return error->code;
}

static int damaged(struct gb_error *error, const struct gb_spill_file *file, const char *how)
{
    char name[NAME_BYTES];

    return gb_fail(error, GPUBUF_E_SYSTEM, "%s/%s %s", file->dir->path, file_name(file->id, name),
                   how);
}

static int file_new(struct gb_spill_dir *dir, uint64_t id, uint64_t storage, int flags,
                    struct gb_spill_file **out, struct gb_error *error)
{
    struct gb_spill_file *file = calloc(1, sizeof(*file));
    char name[NAME_BYTES];
    int r = 0;

    if (file)
        file->state = XXH3_createState();
    if (!file || !file->state) {
        free(file);
        return gb_fail_memory(error);
    }
    XXH3_64bits_reset(file->state);
    file->dir = dir;
    file->id = id;
    file->storage = storage;
    file->begin = is_packed(id) ? id - GB_PACK_BASE : 0;
    file->content = file->begin + (is_packed(id) ? GB_PACK_HEADER_BYTES : GB_SPILL_HEADER_BYTES);
    /* Another process may have put a pipe there, which must not block us. */
    file->fd =
        openat(dir->fd, file_name(id, name), flags | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file->fd < 0) {
        r = file_failure(error, file, "cannot open");
        gb_spill_file_close(file);
        return r;
    }
    *out = file;
    return 0;
}

/* Refuses anything but a regular file: reading a pipe, say, might never end. */
static int check_kind(const struct gb_spill_file *file, struct gb_error *error)
{
    struct stat status;

    if (fstat(file->fd, &status) < 0)
        return file_failure(error, file, "fstat of");
    return S_ISREG(status.st_mode) ? 0 : damaged(error, file, "is no file any more");
}

int gb_spill_file_create(struct gb_spill_dir *dir, uint64_t id, uint64_t storage,
                         struct gb_spill_file **out, struct gb_error *error)
{
    int r = file_new(dir, id, storage, O_RDWR | O_CREAT | (is_packed(id) ? 0 : O_EXCL), out, error);

    if (r == 0)
        (*out)->writing = true;
    if (r == 0 && (r = check_kind(*out, error)) < 0)
        gb_spill_file_close(*out);
    GB_FAILPOINT(FILE_CREATED);
    return r;
}

static int write_at(struct gb_spill_file *file, const char *data, uint64_t bytes, uint64_t offset,
                    struct gb_error *error)
{
    while (bytes > 0) {
        ssize_t n = pwrite(file->fd, data, bytes, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n == 0 ? ENOSPC : errno;
            return file_failure(error, file, "cannot write");
        }
        data += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

int gb_spill_file_write(struct gb_spill_file *file, const void *data, uint64_t bytes,
                        struct gb_error *error)
{
    int r = write_at(file, data, bytes, file->content + file->done, error);

    if (r < 0)
        return r;
    XXH3_64bits_update(file->state, data, bytes);
    /* Begins to write the pages to the disk, so that the kernel can soon reuse them. Pages of the
       pack will be written to again. */
    if (!is_packed(file->id))
        sync_file_range(file->fd, (off_t)(file->content + file->done), (off_t)bytes,
                        SYNC_FILE_RANGE_WRITE);
    file->done += bytes;
    return 0;
}

static uint64_t header_checksum(const struct header *header)
{
    return XXH3_64bits(header, offsetof(struct header, self));
}

int gb_spill_file_finish(struct gb_spill_file *file, struct gb_error *error)
{
    struct header header = {
        .version = htole32(VERSION),
        .bytes = htole64(file->done),
        .content = htole64(XXH3_64bits_digest(file->state)),
        .storage = htole64(file->storage),
        .file = htole64(file->id),
    };
    int r;

    memcpy(header.magic, magic, sizeof(magic));
    memcpy(header.instance, file->dir->instance, INSTANCE_BYTES);
    header.self = htole64(header_checksum(&header));
    r = write_at(file, (const char *)&header, sizeof(header), file->begin, error);
    if (r == 0)
        file->writing = false;
    GB_FAILPOINT(FILE_FINISHED);
    return r;
}

static int read_at(struct gb_spill_file *file, char *data, uint64_t bytes, uint64_t offset,
                   struct gb_error *error)
{
    while (bytes > 0) {
        ssize_t n = pread(file->fd, data, bytes, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            return damaged(error, file, "is shorter than it was");
        if (n < 0)
            return file_failure(error, file, "cannot read");
        data += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

static int check_header(struct gb_spill_file *file, uint64_t bytes, struct gb_error *error)
{
    struct header header;
    int r = read_at(file, (char *)&header, sizeof(header), file->begin, error);

    if (r < 0)
        return r;
    if (memcmp(header.magic, magic, sizeof(magic)) != 0 ||
        le64toh(header.self) != header_checksum(&header))
        return damaged(error, file, "has no valid header");
    if (le32toh(header.version) != VERSION)
        return damaged(error, file, "is of another version");
    if (memcmp(header.instance, file->dir->instance, INSTANCE_BYTES) != 0 ||
        le64toh(header.storage) != file->storage || le64toh(header.file) != file->id)
        return damaged(error, file, "is another object's, or of an earlier time");
    if (le64toh(header.bytes) != bytes)
        return damaged(error, file, "does not hold the bytes that it should");
    file->expected = le64toh(header.content);
    return 0;
}

int gb_spill_file_open(struct gb_spill_dir *dir, uint64_t id, uint64_t storage, uint64_t bytes,
                       struct gb_spill_file **out, struct gb_error *error)
{
    struct gb_spill_file *file;
    int r = file_new(dir, id, storage, O_RDONLY | O_NONBLOCK, &file, error);

    if (r < 0)
        return r;
    file->bytes = bytes;
    r = check_kind(file, error);
    if (r == 0)
        r = check_header(file, bytes, error);
    if (r < 0) {
        gb_spill_file_close(file);
        return r;
    }
    if (!is_packed(id))
        posix_fadvise(file->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    *out = file;
    return 0;
}

int gb_spill_file_read(struct gb_spill_file *file, void *data, uint64_t bytes,
                       struct gb_error *error)
{
    int r = read_at(file, data, bytes, file->content + file->done, error);

    if (r < 0)
        return r;
    XXH3_64bits_update(file->state, data, bytes);
    file->done += bytes;
    return 0;
}

int gb_spill_file_verify(struct gb_spill_file *file, struct gb_error *error)
{
    if (file->done == file->bytes && XXH3_64bits_digest(file->state) == file->expected)
        return 0;
    return damaged(error, file, "is damaged: its checksum is another");
}

void gb_spill_file_close(struct gb_spill_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    if (file->fd >= 0 && file->writing && !is_packed(file->id))
        gb_spill_file_remove(file->dir, file->id);
    XXH3_freeState(file->state);
    free(file);
}

void gb_spill_file_remove(struct gb_spill_dir *dir, uint64_t id)
{
    char name[NAME_BYTES];

    GB_FAILPOINT(FILE_REMOVE);
    if (unlinkat(dir->fd, file_name(id, name), 0) < 0 && errno != ENOENT)
        gb_log(GB_LOG_WARNING, "spill file not removed", GB_LOG_TEXT("name", name),
               GB_LOG_TEXT("why", strerror(errno)));
    GB_FAILPOINT(FILE_REMOVED);
}

void gb_spill_pack_free(const struct gb_spill_dir *dir, uint64_t id, uint64_t bytes)
{
    uint64_t begin =
        (id - GB_PACK_BASE + GB_PACK_PAGE_BYTES - 1) / GB_PACK_PAGE_BYTES * GB_PACK_PAGE_BYTES;
    uint64_t end = (id - GB_PACK_BASE + bytes) / GB_PACK_PAGE_BYTES * GB_PACK_PAGE_BYTES;
    int fd =
        begin < end ? openat(dir->fd, PACK, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW) : -1;

    if (fd < 0)
        return;
    /* If the file system cannot punch holes the pages stay until a new copy is placed there. */
    fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)begin, (off_t)(end - begin));
    close(fd);
}

void gb_spill_pack_remove(const struct gb_spill_dir *dir)
{
    unlinkat(dir->fd, PACK, 0);
}
