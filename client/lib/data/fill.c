/*
 * Files read into objects, by several threads. Each takes the next piece that nobody has, reads it,
 * and on a GPU has it copied while it reads another, by two pinned buffers of its own. Pieces are
 * taken in the order of the ranges, and waited for by their place in the object.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/lib/base/process.h"
#include "client/lib/memory/gpu.h"
#include "client/lib/objects/copy.h"
#include "client/lib/objects/object.h"
#include "client/lib/objects/pinned.h"
#include "client/lib/wire/report.h"

#define PIECE ((uint64_t)4 << 20) /* pieces end at multiples of it in the file */
#define PAGE ((uint64_t)4096)     /* what reading past the page cache is aligned to */
#define SIP ((uint64_t)256 << 10) /* of the page cache, to the host: it stays in a core's cache */

enum { READERS = 8, READERS_MAX = 64, STAGES = 2, SAMPLES = 4, NAME_MAX_SHOWN = 300 };

struct file {
    int fd;           /* the caller's */
    int direct;       /* the same file, opened to read past the page cache; -1: not so */
    const char *map;  /* what mincore() is asked about, never read; NULL: none */
    struct stat then; /* as it was at the beginning */
};

struct piece {
    const struct file *file;
    uint64_t offset, at, bytes; /* in the file, in the object */
    bool done;                  /* under the lock */
};

struct gpubuf_fill {
    unsigned generation;
    struct gpubuf_object *object;    /* a reference */
    char *memory;                    /* of its buffer */
    struct gb_gpu *gpu;              /* NULL: it is on the host … */
    const struct gb_mapped *mapping; /* … and the buffer begins there */
    uint64_t start;
    struct file *files;
    size_t file_count;
    struct piece *pieces; /* in the order of reading */
    struct piece **by_at; /* in the order of the object */
    size_t count;
    pthread_t threads[READERS_MAX];
    unsigned readers;

    pthread_mutex_t lock;   /* for what follows */
    pthread_cond_t changed; /* a piece is done, or a reader has ended */
    size_t next;            /* the piece to be taken */
    size_t done;
    uint64_t done_bytes;
    bool stopped;
    struct gb_error error; /* the first failure; its code is 0 as long as there is none */
};

/* ---- one file ------------------------------------------------------------------------------- */

/* The file's path, for sentences. */
static const char *name_of(const struct file *file, char name[NAME_MAX_SHOWN])
{
    char link[40];

    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", file->fd);
    ssize_t length = readlink(link, name, NAME_MAX_SHOWN - 1);
    if (length < 0)
        return "the file";
    name[length] = '\0';
    return name;
}

static void file_close(struct file *file)
{
    if (file->map)
        munmap((void *)(uintptr_t)file->map, (size_t)file->then.st_size);
    if (file->direct >= 0)
        close(file->direct);
}

/* Whether this process has locks of fcntl() on the file: to close any descriptor of it would drop
   them all. True also if that cannot be told. */
static bool is_locked(int fd)
{
    char path[40], line[256];
    bool locked = false;

    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
    FILE *facts = fopen(path, "re");
    if (!facts)
        return true;
    while (!locked && fgets(line, sizeof(line), facts))
        locked = strncmp(line, "lock:", 5) == 0 && strstr(line, "POSIX");
    (void)fclose(facts);
    return locked;
}

static int file_open(struct file *file, int fd, struct gb_error *error)
{
    char link[40], name[NAME_MAX_SHOWN];

    *file = (struct file){.fd = fd, .direct = -1};
    if (fstat(fd, &file->then) != 0)
        return gb_fail_errno(error, "cannot read the file of descriptor %d", fd);
    if (!S_ISREG(file->then.st_mode))
        return gb_fail(error, GPUBUF_E_INVALID, "%s is no regular file", name_of(file, name));
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (!is_locked(fd))
        file->direct = open(link, O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (file->direct >= 0 && file->then.st_size > 0) {
        void *map = mmap(NULL, (size_t)file->then.st_size, PROT_READ, MAP_SHARED, fd, 0);
        file->map = map != MAP_FAILED ? map : NULL;
    }
    return 0;
}

static int check_unchanged(const struct file *file, struct gb_error *error)
{
    char name[NAME_MAX_SHOWN];
    struct stat now;

    if (fstat(file->fd, &now) != 0)
        return gb_fail_errno(error, "cannot read %s", name_of(file, name));
    if (now.st_size == file->then.st_size && now.st_mtim.tv_sec == file->then.st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == file->then.st_mtim.tv_nsec)
        return 0;
    return gb_fail(error, GPUBUF_E_INVALID, "%s: was changed while it was read",
                   name_of(file, name));
}

/* Whether some pages of a piece, and so probably all, are in the page cache. The kernel says so of
   other users' files in any case. */
static bool is_cached(const struct file *file, uint64_t offset, uint64_t bytes)
{
    unsigned char there = 1;

    if (!file->map)
        return true;
    for (unsigned i = 0; i < SAMPLES && (there & 1); i++) {
        uint64_t at = (offset + (bytes - 1) * i / (SAMPLES - 1)) / PAGE * PAGE;
        if (at >= (uint64_t)file->then.st_size ||
            mincore((void *)(uintptr_t)(file->map + at), 1, &there) != 0)
            return true;
    }
    return there & 1;
}

/* Reads until all is there. `to` past the page cache is aligned as `offset` is. */
static int read_all(const struct file *file, char *to, uint64_t offset, uint64_t bytes,
                    struct gb_error *error)
{
    char name[NAME_MAX_SHOWN];

    for (uint64_t done = 0; done < bytes;) {
        ssize_t got = pread(file->fd, to + done, (size_t)(bytes - done), (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return gb_fail_errno(error, "cannot read %s at byte %" PRIu64, name_of(file, name),
                                 offset + done);
        if (got == 0)
            return gb_fail(error, GPUBUF_E_INVALID,
                           "%s: was cut short while it was read: it ends at byte %" PRIu64
                           ", before byte %" PRIu64,
                           name_of(file, name), offset + done, offset + bytes);
        done += (uint64_t)got;
    }
    return 0;
}

/* Reads the whole pages of a piece past the page cache, and tells how many bytes from `*first` on
   it has read. The rest is left to read_all. */
static uint64_t read_direct(const struct file *file, char *to, uint64_t offset, uint64_t bytes,
                            uint64_t *first)
{
    uint64_t skip = (PAGE - offset % PAGE) % PAGE, done = 0;

    *first = skip < bytes ? skip : bytes;
    bytes = (bytes - *first) / PAGE * PAGE;
    while (done < bytes) {
        ssize_t got = pread(file->direct, to + *first + done, (size_t)(bytes - done),
                            (off_t)(offset + *first + done));
        if (got <= 0 || (uint64_t)got % PAGE != 0)
            break;
        done += (uint64_t)got;
    }
    return done;
}

/* Reads a stretch, past the page cache unless it is `cached`. */
static int read_stretch(const struct file *file, char *to, uint64_t offset, uint64_t bytes,
                        bool cached, struct gb_error *error)
{
    uint64_t first = 0, direct = cached ? 0 : read_direct(file, to, offset, bytes, &first);

    if (direct == 0)
        first = 0;
    int r = read_all(file, to, offset, first, error);
    first += direct;
    return r < 0 ? r : read_all(file, to + first, offset + first, bytes - first, error);
}

/* ---- the readers ---------------------------------------------------------------------------- */

/* The next piece that nobody has; NULL: there is none, or it is over. */
static struct piece *next_piece(struct gpubuf_fill *fill)
{
    pthread_mutex_lock(&fill->lock);
    bool more = !fill->stopped && fill->next < fill->count;
    struct piece *piece = more ? &fill->pieces[fill->next++] : NULL;
    pthread_mutex_unlock(&fill->lock);
    return piece;
}

static void finish(struct gpubuf_fill *fill, struct piece *piece)
{
    pthread_mutex_lock(&fill->lock);
    piece->done = true;
    fill->done++;
    fill->done_bytes += piece->bytes;
    pthread_cond_broadcast(&fill->changed);
    pthread_mutex_unlock(&fill->lock);
}

static void fail(struct gpubuf_fill *fill, const struct gb_error *error)
{
    pthread_mutex_lock(&fill->lock);
    if (fill->error.code == 0)
        fill->error = *error;
    fill->stopped = true;
    pthread_cond_broadcast(&fill->changed);
    pthread_mutex_unlock(&fill->lock);
}

/* One half of a reader's ring. */
struct stage {
    struct gb_staging *block;
    CUevent event;
    struct piece *piece; /* whose copy is under way; or NULL */
};

static int stage_begin(struct stage *stage, const struct gpubuf_fill *fill, struct gb_error *error)
{
    const struct gb_cuda *cuda = fill->gpu->cuda;
    int r = gb_staging_acquire(fill->object, PIECE + PAGE, &stage->block);

    if (r < 0)
        return gb_fail_memory(error);
    CUresult result = cuda->cuEventCreate(&stage->event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        return 0;
    stage->event = NULL;
    return gb_cuda_fail(error, cuda, result, "making an event on %s", fill->gpu->id);
}

/* Waits for the copy from this buffer. */
static int stage_wait(struct stage *stage, struct gpubuf_fill *fill, struct gb_error *error)
{
    const struct gb_cuda *cuda = fill->gpu->cuda;
    struct piece *piece = stage->piece;

    stage->piece = NULL;
    if (!piece)
        return 0;
    CUresult result = cuda->cuEventSynchronize(stage->event);
    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, cuda, result, "copying a file to %s", fill->gpu->id);
    finish(fill, piece);
    return 0;
}

static int stage_copy(struct stage *stage, struct gpubuf_fill *fill, struct piece *piece,
                      CUstream stream, struct gb_error *error)
{
    const struct gb_cuda *cuda = fill->gpu->cuda;
    char *to = gb_staging_memory(stage->block);

    to += (piece->offset - (uint64_t)(uintptr_t)to) % PAGE;
    bool cached = is_cached(piece->file, piece->offset, piece->bytes);
    int r = read_stretch(piece->file, to, piece->offset, piece->bytes, cached, error);
    if (r < 0)
        return r;
    CUresult result = cuda->cuMemcpyHtoDAsync((CUdeviceptr)(uintptr_t)(fill->memory + piece->at),
                                              to, (size_t)piece->bytes, stream);
    if (result == CUDA_SUCCESS)
        result = cuda->cuEventRecord(stage->event, stream);
    if (result != CUDA_SUCCESS)
        return gb_cuda_fail(error, cuda, result, "copying a file to %s", fill->gpu->id);
    stage->piece = piece;
    return 0;
}

/* The pieces one after the other, in the GPU's context. */
static int copy_pieces(struct gpubuf_fill *fill, CUstream stream, struct stage *stages,
                       struct gb_error *error)
{
    struct piece *piece;
    int r = 0;

    for (unsigned i = 0; r == 0; i = (i + 1) % STAGES) {
        struct stage *stage = &stages[i];
        r = stage_wait(stage, fill, error);
        if (r < 0 || !(piece = next_piece(fill)))
            break;
        if (!stage->block)
            r = stage_begin(stage, fill, error);
        if (r == 0)
            r = stage_copy(stage, fill, piece, stream, error);
    }
    for (unsigned i = 0; i < STAGES && r == 0; i++)
        r = stage_wait(&stages[i], fill, error);
    return r;
}

static int read_to_gpu(struct gpubuf_fill *fill, struct gb_error *error)
{
    struct stage stages[STAGES] = {{0}};
    const struct gb_cuda *cuda = fill->gpu->cuda;
    CUstream stream;
    int r = gb_gpu_enter(fill->gpu, error);

    if (r < 0)
        return r;
    CUresult result = cuda->cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS) {
        r = copy_pieces(fill, stream, stages, error);
        (void)cuda->cuStreamSynchronize(stream); /* before its buffers and its target go */
        (void)cuda->cuStreamDestroy(stream);
    } else {
        r = gb_cuda_fail(error, cuda, result, "making a stream on %s", fill->gpu->id);
    }
    for (unsigned i = 0; i < STAGES; i++) {
        if (stages[i].event)
            (void)cuda->cuEventDestroy(stages[i].event);
        gb_staging_release(stages[i].block);
    }
    gb_gpu_leave(fill->gpu);
    return r;
}

/* Writes memory as the library does elsewhere. That spares the faults, and the clearing,
   of pages that do not exist yet; these cost more than the second copy. */
static int copy_to_host(const struct gpubuf_fill *fill, const struct piece *piece, char *buffer,
                        struct gb_error *error)
{
    bool cached = is_cached(piece->file, piece->offset, piece->bytes);
    uint64_t step = cached ? SIP : PIECE, start = fill->start + piece->at;
    int r = 0;

    for (uint64_t done = 0, count; done < piece->bytes && r == 0; done += count) {
        uint64_t offset = piece->offset + done;
        char *to = buffer + offset % PAGE;
        count = piece->bytes - done < step ? piece->bytes - done : step;
        r = read_stretch(piece->file, to, offset, count, cached, error);
        if (r == 0)
            r = gb_mapped_write(fill->mapping, start + done, to, count, error);
    }
    return r;
}

static int read_to_host(struct gpubuf_fill *fill, struct gb_error *error)
{
    char *buffer = aligned_alloc(PAGE, PIECE + PAGE);
    struct piece *piece;
    int r = buffer ? 0 : gb_fail_memory(error);

    while (r == 0 && (piece = next_piece(fill))) {
        r = copy_to_host(fill, piece, buffer, error);
        if (r == 0)
            finish(fill, piece);
    }
    free(buffer);
    return r;
}

static void *run(void *argument)
{
    struct gpubuf_fill *fill = argument;
    struct gb_error error;

    if ((fill->gpu ? read_to_gpu(fill, &error) : read_to_host(fill, &error)) < 0)
        fail(fill, &error);
    return NULL;
}

/* ---- beginning ------------------------------------------------------------------------------ */

/* Whether a range begins where another ends, in the file and in the object. */
static bool adjoins(const struct gpubuf_file_range *range, const struct gpubuf_file_range *next)
{
    return range->fd == next->fd && range->offset + range->bytes == next->offset &&
           range->at + range->bytes == next->at;
}

/* Cuts ranges into pieces, as if adjacent ranges were one. Only counts them if there is no room
   yet. */
static void cut(struct gpubuf_fill *fill, const struct gpubuf_file_range *ranges, size_t count)
{
    size_t made = 0;

    for (size_t i = 0, end; i < count; i = end) {
        struct gpubuf_file_range all = ranges[i];
        for (end = i + 1; end < count && adjoins(&all, &ranges[end]); end++)
            all.bytes += ranges[end].bytes;
        const struct file *file = fill->files;
        while (file->fd != all.fd)
            file++;
        for (uint64_t bytes; all.bytes > 0; all.bytes -= bytes, made++) {
            bytes = PIECE - all.offset % PIECE;
            bytes = bytes < all.bytes ? bytes : all.bytes;
            if (fill->pieces)
                fill->pieces[made] = (struct piece){file, all.offset, all.at, bytes, false};
            all.offset += bytes;
            all.at += bytes;
        }
    }
    fill->count = made;
}

static int compare_at(const void *a, const void *b)
{
    const struct piece *left = *(struct piece *const *)a, *right = *(struct piece *const *)b;

    return (left->at > right->at) - (left->at < right->at);
}

static int add_file(struct gpubuf_fill *fill, int fd, struct gb_error *error)
{
    for (size_t i = fill->file_count; i-- > 0;)
        if (fill->files[i].fd == fd)
            return 0;
    struct file *files = realloc(fill->files, (fill->file_count + 1) * sizeof(*files));
    if (!files)
        return gb_fail_memory(error);
    fill->files = files;
    int r = file_open(&files[fill->file_count], fd, error);
    fill->file_count += r == 0;
    return r;
}

/* Finds the mapping of the host that the buffer lies in. */
static void find_mapping(struct gpubuf_fill *fill)
{
    const struct gb_client_lease *lease = fill->object->lease;

    for (size_t i = 0; i < lease->segment_count && !fill->mapping; i++) {
        const struct gb_mapped *mapping = lease->segments[i].import->mappings[1];
        if (!mapping)
            continue;
        fill->start = (uint64_t)(fill->memory - (char *)gb_mapped_address(mapping));
        if (fill->start < gb_mapped_bytes(mapping))
            fill->mapping = mapping;
    }
}

static int plan(struct gpubuf_fill *fill, const struct gpubuf_file_range *ranges, size_t count,
                struct gb_error *error)
{
    int r = 0;

    for (size_t i = 0; i < count && r == 0; i++)
        r = add_file(fill, ranges[i].fd, error);
    if (r < 0)
        return r;
    cut(fill, ranges, count);
    fill->by_at = calloc(fill->count + 1, sizeof(*fill->by_at));
    fill->pieces = calloc(fill->count + 1, sizeof(*fill->pieces));
    if (!fill->pieces || !fill->by_at)
        return gb_fail_memory(error);
    cut(fill, ranges, count);
    for (size_t i = 0; i < fill->count; i++)
        fill->by_at[i] = &fill->pieces[i];
    qsort(fill->by_at, fill->count, sizeof(*fill->by_at), compare_at);
    return 0;
}

static int start(struct gpubuf_fill *fill, unsigned readers, struct gb_error *error)
{
    cpu_set_t cpus;
    sigset_t all, before;

    if (readers == 0) {
        bool known = sched_getaffinity(0, sizeof(cpus), &cpus) == 0;
        readers = known && CPU_COUNT(&cpus) < READERS ? (unsigned)CPU_COUNT(&cpus) : READERS;
    }
    readers = readers < fill->count ? readers : (unsigned)fill->count;
    (void)sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return gb_fail_errno(error, "cannot start a thread");
    while (fill->readers < readers &&
           pthread_create(&fill->threads[fill->readers], NULL, run, fill) == 0)
        fill->readers++;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return fill->readers > 0 || readers == 0
               ? 0
               : gb_fail(error, GPUBUF_E_SYSTEM, "cannot start a thread");
}

/* Whether all ranges lie in the buffer, which can be written. Reports why not. */
static int check_ranges(struct gpubuf_object *object, enum gpubuf_which which,
                        const struct gpubuf_file_range *ranges, size_t count, char **memory)
{
    int r = gb_writable(object, which, 0, 0, memory);

    for (size_t i = 0; i < count && r == 0; i++) {
        char *place;
        if (ranges[i].offset > INT64_MAX || ranges[i].bytes > INT64_MAX - ranges[i].offset)
            return gb_report_text(object->lease->client, GPUBUF_E_INVALID,
                                  "range %zu goes past the end of any file", i);
        r = gb_writable(object, which, ranges[i].at, ranges[i].bytes, &place);
    }
    return r;
}

int gpubuf_fill_begin(struct gpubuf_object *object, enum gpubuf_which which,
                      const struct gpubuf_file_range *ranges, size_t count,
                      const struct gpubuf_fill_options *given, struct gpubuf_fill **out)
{
    struct gpubuf_fill_options options;
    char *memory;
    struct gb_error error;
    int r = gb_object_check(object);

    if (r < 0)
        return r;
    const struct gpubuf_client *client = object->lease->client;
    r = gb_read_options(client, given, &options, sizeof(options));
    if (r < 0)
        return r;
    if ((count > 0 && !ranges) || options.readers > READERS_MAX)
        return gb_report_text(client, GPUBUF_E_INVALID,
                              ranges || !count ? "at most %d threads can read a file"
                                               : "the ranges are NULL",
                              READERS_MAX);
    r = check_ranges(object, which, ranges, count, &memory);
    if (r < 0)
        return r;
    struct gpubuf_fill *fill = calloc(1, sizeof(*fill));
    if (!fill)
        return gb_report_memory(client);
    fill->generation = gb_generation();
    fill->object = gpubuf_retain(object);
    fill->memory = memory;
    (void)pthread_mutex_init(&fill->lock, NULL);
    pthread_condattr_t clock;
    (void)pthread_condattr_init(&clock);
    (void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&fill->changed, &clock);
    (void)pthread_condattr_destroy(&clock);
    r = gb_client_lease_gpu(object->lease, &fill->gpu, &error);
    find_mapping(fill);
    if (r == 0)
        r = plan(fill, ranges, count, &error);
    if (r == 0)
        r = start(fill, options.readers, &error);
    if (r < 0) {
        gpubuf_fill_end(fill);
        return gb_report(client, &error);
    }
    *out = fill;
    return 0;
}

/* ---- waiting, and the end ------------------------------------------------------------------- */

/* Whether the pieces that have these bytes of the object are done. With the lock held. */
static bool is_there(const struct gpubuf_fill *fill, uint64_t at, uint64_t bytes)
{
    size_t low = 0, high = fill->count;

    if (fill->done == fill->count)
        return true;
    while (low < high) { /* the first piece that ends behind `at` */
        size_t middle = low + (high - low) / 2;
        if (fill->by_at[middle]->at + fill->by_at[middle]->bytes > at)
            high = middle;
        else
            low = middle + 1;
    }
    uint64_t end = bytes < UINT64_MAX - at ? at + bytes : UINT64_MAX;
    for (; low < fill->count && fill->by_at[low]->at < end; low++)
        if (!fill->by_at[low]->done)
            return false;
    return true;
}

static struct timespec deadline_in(int timeout_ms)
{
    struct timespec end;

    (void)clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += timeout_ms / 1000;
    end.tv_nsec += timeout_ms % 1000 * 1000000L;
    if (end.tv_nsec >= 1000000000) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000;
    }
    return end;
}

int gpubuf_fill_wait(struct gpubuf_fill *fill, uint64_t at, uint64_t bytes, int timeout_ms,
                     uint64_t *done)
{
    const struct gpubuf_client *client = fill->object->lease->client;
    struct gb_error error = {.code = 0};
    int waited = 0;

    if (fill->generation != gb_generation())
        return gb_report_text(client, GPUBUF_E_FORKED, "the parent process reads the file");
    struct timespec deadline = deadline_in(timeout_ms < 0 ? 0 : timeout_ms);
    pthread_mutex_lock(&fill->lock);
    while (!is_there(fill, at, bytes) && fill->error.code == 0 && waited == 0)
        waited = timeout_ms < 0 ? pthread_cond_wait(&fill->changed, &fill->lock)
                                : pthread_cond_timedwait(&fill->changed, &fill->lock, &deadline);
    bool there = is_there(fill, at, bytes), all = fill->done == fill->count;
    if (done)
        *done = fill->done_bytes;
    error = fill->error;
    pthread_mutex_unlock(&fill->lock);
    bool check = all && bytes == UINT64_MAX;
    for (size_t i = 0; check && i < fill->file_count && error.code == 0; i++)
        (void)check_unchanged(&fill->files[i], &error);
    if (error.code != 0)
        return gb_report(client, &error);
    return there ? 0 : gb_report_text(client, GPUBUF_E_TIMEOUT, "the file is still being read");
}

void gpubuf_fill_end(struct gpubuf_fill *fill)
{
    if (!fill)
        return;
    if (fill->generation == gb_generation()) {
        pthread_mutex_lock(&fill->lock);
        fill->stopped = true;
        pthread_mutex_unlock(&fill->lock);
        for (unsigned i = 0; i < fill->readers; i++)
            (void)pthread_join(fill->threads[i], NULL);
        (void)pthread_cond_destroy(&fill->changed);
        (void)pthread_mutex_destroy(&fill->lock);
    }
    for (size_t i = 0; i < fill->file_count; i++)
        file_close(&fill->files[i]);
    free(fill->files);
    free(fill->pieces);
    free(fill->by_at);
    gpubuf_release(fill->object);
    free(fill);
}

int gpubuf_fill_file(struct gpubuf_object *object, enum gpubuf_which which,
                     const struct gpubuf_file_range *ranges, size_t count,
                     const struct gpubuf_fill_options *options)
{
    struct gpubuf_fill *fill;
    int r = gpubuf_fill_begin(object, which, ranges, count, options, &fill);

    if (r < 0)
        return r;
    r = gpubuf_fill_wait(fill, 0, UINT64_MAX, -1, NULL);
    gpubuf_fill_end(fill);
    return r;
}
