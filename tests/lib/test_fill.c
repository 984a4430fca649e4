/* Files read into objects: on the host and on GPUs, whole and in parts, and those that change. */
#include "gpu.h"

static const char *const devices[] = {"host", "cuda:0"};
enum { DEVICES = 2, PIECE = 4 << 20 };

static char path[200];

/* A file with a pattern, on a disk, so that it can be read past the page cache. */
static int make_file(size_t bytes)
{
    unsigned char *data = malloc(bytes + 1);

    CHECK(data);
    for (size_t i = 0; i < bytes; i++)
        data[i] = PATTERN(i);
    snprintf(path, sizeof(path), "/var/tmp/gpubuf-fill-%d", (int)getpid());
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes && unlink(path) == 0);
    free(data);
    return fd;
}

/* Takes the file out of the page cache, as far as the kernel does so. */
static void forget_pages(int fd)
{
    CHECK(fsync(fd) == 0);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static bool says(const char *text)
{
    return strstr(gpubuf_errmsg(NULL), text) != NULL;
}

/* Whether bytes of an unsealed object are those of the file from `offset` on. */
static bool has(struct gpubuf_client *client, struct gpubuf_object *object, uint64_t at,
                uint64_t offset, size_t bytes)
{
    unsigned char *data = malloc(bytes + 1);
    bool same = true;

    CHECK(data);
    WORKS(client, gpubuf_read(object, GPUBUF_DATA, at, data, bytes, NULL));
    for (size_t i = 0; i < bytes && same; i++)
        same = data[i] == PATTERN(offset + i);
    free(data);
    return same;
}

/* ---- whole files ---- */

TEST_IN_CHILD(test_whole)
{
    static const size_t sizes[] = {0, 1, 4095, 4096, PIECE, 2 * PIECE + 12345};

    CLIENT *client = new_client();
    for (unsigned k = 0; k < DEVICES * sizeof(sizes) / sizeof(*sizes); k++) {
        size_t bytes = sizes[k / DEVICES];
        int fd = make_file(bytes);
        struct gpubuf_file_range range = {.fd = fd, .bytes = bytes};
        for (int round = 0; round < 2; round++) {
            struct gpubuf_object *object =
                create_bytes(client, "file", bytes, devices[k % DEVICES]);
            if (round == 1)
                forget_pages(fd);
            WORKS(client, gpubuf_fill_file(object, GPUBUF_DATA, &range, 1, NULL));
            WORKS(client, gpubuf_seal(object, NULL));
            CHECK(has(client, object, 0, 0, bytes));
            RETURNS(GPUBUF_E_BUSY, client, gpubuf_fill_file(object, GPUBUF_DATA, &range, 1, NULL));
            gpubuf_release(object);
        }
        close(fd);
    }
}

/* ---- ranges, of several files, in any order ---- */

TEST_IN_CHILD(test_ranges)
{
    enum { BYTES = 3 * PIECE + 999 };

    CLIENT *client = new_client();
    struct gpubuf_fill_options options = {.size = sizeof(options), .readers = 3};
    int one = make_file(BYTES), other = make_file(BYTES);
    const struct gpubuf_file_range ranges[] = {
        {other, 4095, PIECE + 2, 2 * PIECE}, /* later bytes first */
        {one, 10, 100, 0},
        {one, 110, PIECE, 100}, /* goes on */
        {one, 5, 0, 7},         /* nothing */
        {other, BYTES - 1, 1, 3 * PIECE + 2},
    };
    for (unsigned k = 0; k < DEVICES; k++) {
        struct gpubuf_fill *fill = NULL;
        uint64_t done = 0;
        struct gpubuf_object *object = create_bytes(client, "parts", BYTES, devices[k]);
        forget_pages(one);
        WORKS(client, gpubuf_fill_begin(object, GPUBUF_DATA, ranges, 5, &options, &fill));
        WORKS(client, gpubuf_fill_wait(fill, 2 * PIECE + 5, 1000, -1, NULL));
        CHECK(has(client, object, 2 * PIECE + 5, 4100, 1000));
        WORKS(client, gpubuf_fill_wait(fill, 0, 100, -1, NULL));
        CHECK(has(client, object, 0, 10, 100));
        WORKS(client, gpubuf_fill_wait(fill, 50, 0, 0, NULL)); /* nothing to wait for */
        WORKS(client, gpubuf_fill_wait(fill, 0, UINT64_MAX, -1, &done));
        CHECK(done == 2 * PIECE + 103);
        gpubuf_fill_end(fill);
        CHECK(has(client, object, 100, 110, PIECE));
        CHECK(has(client, object, 2 * PIECE, 4095, PIECE + 2));
        CHECK(has(client, object, 3 * PIECE + 2, BYTES - 1, 1));
        gpubuf_release(object);
    }
    close(one);
    close(other);
}

/* ---- what cannot be read ---- */

TEST_IN_CHILD(test_wrong)
{
    CLIENT *client = new_client();
    int fd = make_file(2 * PIECE), pipes[2];
    CHECK(pipe(pipes) == 0);
    for (unsigned k = 0; k < DEVICES; k++) {
        struct gpubuf_object *object = create_bytes(client, "wrong", 3 * PIECE, devices[k]);
        struct gpubuf_file_range range = {.fd = fd, .bytes = 2 * PIECE + 1};
        struct gpubuf_fill *fill = NULL;
        char sentence[500];

        RETURNS(GPUBUF_E_INVALID, client, gpubuf_fill_file(object, GPUBUF_DATA, &range, 1, NULL));
        snprintf(sentence, sizeof(sentence), "%s", gpubuf_errmsg(client));
        CHECK(strstr(sentence, "/gpubuf-fill-") && strstr(sentence, "it ends at byte 8388608"));
        range.bytes = 3 * PIECE;
        range.at = 1;
        RETURNS(GPUBUF_E_INVALID, client, gpubuf_fill_file(object, GPUBUF_DATA, &range, 1, NULL));
        CHECK(strstr(gpubuf_errmsg(client), "go past the end"));
        range = (struct gpubuf_file_range){.fd = fd, .offset = UINT64_MAX, .bytes = 1};
        RETURNS(GPUBUF_E_INVALID, client, gpubuf_fill_file(object, GPUBUF_DATA, &range, 1, NULL));
        range = (struct gpubuf_file_range){.fd = pipes[0], .bytes = 1};
        RETURNS(GPUBUF_E_INVALID, client, gpubuf_fill_file(object, GPUBUF_DATA, &range, 1, NULL));
        CHECK(strstr(gpubuf_errmsg(client), "no regular file"));
        range = (struct gpubuf_file_range){.fd = 987, .bytes = 1};
        RETURNS(GPUBUF_E_SYSTEM, client, gpubuf_fill_file(object, GPUBUF_DATA, &range, 1, NULL));

        /* It is changed after it was read, and before all of it is waited for. */
        range = (struct gpubuf_file_range){.fd = fd, .bytes = 2 * PIECE};
        WORKS(client, gpubuf_fill_begin(object, GPUBUF_DATA, &range, 1, NULL, &fill));
        WORKS(client, gpubuf_fill_wait(fill, 0, 2 * PIECE, -1, NULL));
        CHECK(futimens(fd, (struct timespec[]){{.tv_sec = 1 + k}, {.tv_sec = 1 + k}}) == 0);
        RETURNS(GPUBUF_E_INVALID, client, gpubuf_fill_wait(fill, 0, UINT64_MAX, -1, NULL));
        CHECK(strstr(gpubuf_errmsg(client), "was changed while it was read"));
        gpubuf_fill_end(fill);

        /* It ends before all is there: nothing is published, and nothing stays. */
        WORKS(client, gpubuf_fill_begin(object, GPUBUF_DATA, &range, 1, NULL, &fill));
        gpubuf_fill_end(fill);
        gpubuf_release(object);
        CHECK(gpubuf_open(client, "wrong", NULL, &object) == GPUBUF_E_NOT_FOUND);
    }
    RETURNS(GPUBUF_E_INVALID, NULL, gpubuf_fill_file(NULL, GPUBUF_DATA, NULL, 0, NULL));
    CHECK(says("NULL"));
    gpubuf_fill_end(NULL);
}

/* ---- a GPU that fails, and one that is slow ---- */

static void fill_failing(int socket)
{
    int fd = make_file(6 * PIECE);
    struct gpubuf_file_range range = {.fd = fd, .bytes = 6 * PIECE};
    struct gpubuf_fill *fill = NULL;
    CLIENT *client = new_client();
    struct gpubuf_object *object = create_bytes(client, "failing", range.bytes, "cuda:0");
    RETURNS(GPUBUF_E_DEVICE, client, gpubuf_fill_file(object, GPUBUF_DATA, &range, 1, NULL));
    CHECK(strstr(gpubuf_errmsg(client), "copying a file"));
    /* The object is as good as before. */
    WORKS(client, gpubuf_fill_begin(object, GPUBUF_DATA, &range, 1, NULL, &fill));
    WORKS(client, gpubuf_fill_wait(fill, 0, UINT64_MAX, -1, NULL));
    gpubuf_fill_end(fill);
    WORKS(client, gpubuf_seal(object, NULL));
    CHECK(has(client, object, 0, 0, range.bytes));
    gpubuf_release(object);
}

TEST(test_failing)
{
    setenv("FAKECUDA_FAIL", "cuMemcpyHtoDAsync:3:999", 1);
    run_gpu(fill_failing);
    unsetenv("FAKECUDA_FAIL");
}

static char gate[40];

static void fill_slowly(int socket)
{
    int fd = make_file(2 * PIECE);
    struct gpubuf_file_range range = {.fd = fd, .bytes = 2 * PIECE};
    struct gpubuf_fill_options options = {.size = sizeof(options), .readers = 1};
    CLIENT *client = new_client();
    struct gpubuf_object *object = create_bytes(client, "slow", range.bytes, "cuda:0");
    struct gpubuf_fill *fill = NULL;
    uint64_t done = 1;
    WORKS(client, gpubuf_fill_begin(object, GPUBUF_DATA, &range, 1, &options, &fill));
    RETURNS(GPUBUF_E_TIMEOUT, client, gpubuf_fill_wait(fill, 0, 1, 20, &done));
    CHECK(done == 0);
    CHECK(unlink(gate) == 0);
    WORKS(client, gpubuf_fill_wait(fill, 0, UINT64_MAX, -1, &done));
    CHECK(done == range.bytes);
    gpubuf_fill_end(fill);
    gpubuf_release(object);
}

TEST(test_slowly)
{
    char rule[100];
    strcpy(gate, "/tmp/gpubuf-gate-XXXXXX");
    int made = mkstemp(gate);
    assert_true(made >= 0 && close(made) == 0);
    /* No event is found to have passed as long as this file is there. */
    snprintf(rule, sizeof(rule), "cuEventSynchronize:60000@%s", gate);
    setenv("FAKECUDA_DELAY", rule, 1);
    run_gpu(fill_slowly);
    unsetenv("FAKECUDA_DELAY");
}

/* ---- what cannot be pinned ---- */

static void fill_unpinned(int socket)
{
    int fd = make_file(6 * PIECE);
    struct gpubuf_file_range range = {.fd = fd, .bytes = 6 * PIECE};
    struct gpubuf_pinned_memory figures = {.size = sizeof(figures)};
    CLIENT *client = new_client();
    struct gpubuf_object *object = create_bytes(client, "unpinned", range.bytes, "cuda:0");
    WORKS(client, gpubuf_fill_file(object, GPUBUF_DATA, &range, 1, NULL));
    CHECK(has(client, object, 0, 0, range.bytes));
    CHECK(gpubuf_pinned_memory(&figures) == 0 && figures.refused > 0 && figures.buffers == 0);
    gpubuf_release(object);
}

TEST(test_unpinned)
{
    setenv("FAKECUDA_FAIL", "cuMemHostAlloc:*:2", 1);
    run_gpu(fill_unpinned);
    unsetenv("FAKECUDA_FAIL");
}

/* ---- locks of fcntl(), which the kernel drops when any descriptor of the file is closed ---- */

static bool is_locked_for_others(int fd)
{
    int status;
    pid_t child = fork();

    if (child == 0) {
        struct flock lock = {.l_type = F_WRLCK, .l_len = 10};
        _exit(fcntl(fd, F_GETLK, &lock) == 0 && lock.l_type == F_UNLCK ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status) == 1;
}

TEST_IN_CHILD(test_locked)
{
    CLIENT *client = new_client();
    int fd = make_file(2 * PIECE);
    struct gpubuf_file_range range = {.fd = fd, .bytes = 2 * PIECE};
    struct flock lock = {.l_type = F_WRLCK, .l_len = 10};
    CHECK(!is_locked_for_others(fd));
    CHECK(fcntl(fd, F_SETLK, &lock) == 0);
    for (unsigned k = 0; k < DEVICES; k++) {
        struct gpubuf_object *object = create_bytes(client, "locked", 2 * PIECE, devices[k]);
        forget_pages(fd);
        WORKS(client, gpubuf_fill_file(object, GPUBUF_DATA, &range, 1, NULL));
        CHECK(has(client, object, 0, 0, 2 * PIECE));
        CHECK(is_locked_for_others(fd));
        gpubuf_release(object);
    }
}

/* ---- a child of fork ---- */

TEST_IN_CHILD(test_fork)
{
    CLIENT *client = new_client();
    int fd = make_file(PIECE), status;
    struct gpubuf_file_range range = {.fd = fd, .bytes = PIECE};
    struct gpubuf_object *object = create_bytes(client, "forked", PIECE, "host");
    struct gpubuf_fill *fill = NULL;
    WORKS(client, gpubuf_fill_begin(object, GPUBUF_DATA, &range, 1, NULL, &fill));
    pid_t child = fork();
    if (child == 0) {
        bool refused = gpubuf_fill_wait(fill, 0, 1, -1, NULL) == GPUBUF_E_FORKED;
        gpubuf_fill_end(fill);
        _exit(refused ? 0 : 1);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    WORKS(client, gpubuf_fill_wait(fill, 0, UINT64_MAX, -1, NULL));
    gpubuf_fill_end(fill);
    gpubuf_release(object);
}

int main(int argc, char **argv)
{
    need_fakecuda(argv);
    return cmocka_run_group_tests(listed_tests, gpu_set_up, gpu_tear_down);
}
