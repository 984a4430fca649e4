/*
 * How long nobody is served when the daemon dies: from its kill -9 to the first answer on a new
 * connection. `bench_restart SOCKET OWN SHARING` publishes OWN objects that have a segment each (it
 * is memory that is registered) and SHARING that share segments, at a daemon with a supervisor.
 * scripts/run-bench runs it against two daemons in turn, with objects and without.
 *
 * Prints, for each line "COUNT SECONDS" on standard input, the milliseconds of one such kill, once
 * it has seen that every object is there with its content.
 */
#include "measure.h"

#define WORDS 8
#define OWN_BYTES 4096 /* of a segment; the object is its end */
#define BATCH 1000
#define PATIENCE 30.0 /* seconds for another daemon to answer */

struct bench {
    const char *path;
    pid_t supervisor;
    size_t own, sharing;
};

static void name_of(char *name, size_t i, const struct bench *bench)
{
    snprintf(name, NAME_BYTES, "restart/%s/%06zu", i < bench->own ? "own" : "sharing", i);
}

/* ---- objects ---- */

static void fill(uint64_t words[WORDS], size_t i)
{
    for (size_t k = 0; k < WORDS; k++) {
        uint64_t state = i * WORDS + k;

        words[k] = draw(&state);
    }
}

static void publish_own(struct gpubuf_client *client, const char *name, const uint64_t *words)
{
    static const char layout[] = "{\"kind\":\"bytes\",\"bytes\":64,"
                                 "\"data\":{\"handle\":0,\"offset\":4032,\"bytes\":64}}";
    int fd = memfd_create("restart", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || ftruncate(fd, OWN_BYTES) < 0 || pwrite(fd, words, 64, OWN_BYTES - 64) != 64 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
        die("cannot make memory: %s", strerror(errno));
    check(client, gpubuf_register_memfd(client, name, fd, OWN_BYTES, layout, NULL), "register");
    close(fd);
}

static void publish_all(struct gpubuf_client *client, const struct bench *bench)
{
    for (size_t i = 0; i < bench->own + bench->sharing; i++) {
        char name[NAME_BYTES];
        uint64_t words[WORDS];

        name_of(name, i, bench);
        fill(words, i);
        if (i < bench->own)
            publish_own(client, name, words);
        else
            check(client, gpubuf_put_bytes(client, name, words, sizeof(words), NULL), "put");
    }
}

static void check_content(size_t i, const struct gpubuf_object *object)
{
    struct gpubuf_memory memory;
    uint64_t words[WORDS];

    check(NULL, gpubuf_memory(object, GPUBUF_DATA, &memory), "memory");
    fill(words, i);
    if (memory.bytes != sizeof(words) || memcmp(memory.pointer, words, sizeof(words)) != 0)
        die("object %zu has not the content that it had", i);
}

/* Each of them, and no other. */
static void check_all(const struct bench *bench)
{
    static char names[BATCH][NAME_BYTES];
    size_t all = bench->own + bench->sharing;
    struct gpubuf_client *client = connect_to(bench->path);
    struct raw raw;

    raw_open(&raw, bench->path);
    if (raw_number(raw_call(&raw, "stats", "{}"), "objects") != all)
        die("there are not %zu objects", all);
    raw_close(&raw);
    for (size_t first = 0; first < all; first += BATCH) {
        const char *asked[BATCH];
        struct gpubuf_object *objects[BATCH];
        size_t count = all - first < BATCH ? all - first : BATCH;

        for (size_t i = 0; i < count; i++) {
            name_of(names[i], first + i, bench);
            asked[i] = names[i];
        }
        check(client, gpubuf_open_many(client, asked, count, NULL, objects, NULL), "open");
        for (size_t i = 0; i < count; i++)
            check_content(first + i, objects[i]);
        gpubuf_release_many(objects, count);
    }
    gpubuf_disconnect(client);
}

/* ---- the kill ---- */

/* The supervisor's child, or 0 while it has none. */
static pid_t daemon_of(pid_t supervisor)
{
    char path[64], text[64] = "";
    FILE *file;

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)supervisor, (int)supervisor);
    file = fopen(path, "r");
    if (!file)
        die("the daemon has no supervisor: %s", strerror(errno));
    if (!fgets(text, sizeof(text), file))
        text[0] = '\0';
    (void)fclose(file);
    return (pid_t)atoi(text);
}

/* True if a new connection is answered; false if it ends first, as one does that the dying daemon
   has just accepted. */
static bool is_answered(const char *path)
{
    static const char request[] =
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"hello\",\"params\":{\"protocol\":1}}\n";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char reply[4096] = "";
    size_t got = 0;
    ssize_t n = 1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        die("cannot connect: %s", strerror(errno));
    if (send(fd, request, sizeof(request) - 1, MSG_NOSIGNAL) == (ssize_t)sizeof(request) - 1) {
        while (n > 0 && !memchr(reply, '\n', got)) {
            n = recv(fd, reply + got, sizeof(reply) - got, 0);
            got += n > 0 ? (size_t)n : 0;
        }
    }
    close(fd);
    if (n > 0 && memmem(reply, got, "\"error\"", 7))
        die("the daemon refused: %.*s", (int)got, reply);
    return n > 0 && got > 0;
}

static double kill_once(const struct bench *bench)
{
    pid_t child = daemon_of(bench->supervisor);
    double start = now();

    if (child == 0 || kill(child, SIGKILL) < 0)
        die("there is no daemon to kill");
    while (!is_answered(bench->path)) {
        if (now() - start > PATIENCE)
            die("no other daemon answers");
    }
    return now() - start;
}

/* The supervisor has what it is to keep only once it has read it, which it does when it is not
   busy. */
static void let_the_supervisor_read(const struct bench *bench)
{
    char path[64], text[512] = "";

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)bench->supervisor);
    for (double end = now() + PATIENCE; now() < end; usleep(1000)) {
        FILE *file = fopen(path, "r");
        const char *state = file && fgets(text, sizeof(text), file) ? strrchr(text, ')') : NULL;

        if (file)
            (void)fclose(file);
        if (state && state[2] == 'S')
            return;
    }
    die("the supervisor is busy");
}

int main(int argc, char **argv)
{
    struct bench bench;
    struct gpubuf_client *client;
    struct raw raw;
    unsigned count;
    double seconds;

    if (argc != 4)
        die("usage: %s SOCKET OWN SHARING", argv[0]);
    bench = (struct bench){.path = argv[1],
                           .own = strtoull(argv[2], NULL, 10),
                           .sharing = strtoull(argv[3], NULL, 10)};
    raw_open(&raw, bench.path);
    bench.supervisor = raw_peer(&raw); /* it is who listens */
    raw_close(&raw);
    client = connect_to(bench.path);
    publish_all(client, &bench);
    gpubuf_disconnect(client);
    while (scanf("%u %lf", &count, &seconds) == 2) {
        double took;

        let_the_supervisor_read(&bench);
        took = kill_once(&bench);
        check_all(&bench);
        printf("%.3f\n", took * 1e3);
        fflush(stdout);
    }
    return 0;
}
