/*
 * The cost of a small column when a thousand are opened in one call: in a process that has mapped
 * nothing before (a fresh one each round), again in the same session, of what the client keeps, and
 * to give back, one by one and in one call. All on one core. Dies if the process has made more
 * mappings than the objects have segments.
 */
#include "measure.h"

#define COLUMNS 1000
#define PREFIX "many"

struct sample {
    double cold, warm, kept, release_each, release_many; /* microseconds a column */
    unsigned mappings, segments;
};

/* How many segments of the daemon's this process has mapped. */
static unsigned count_mappings(void)
{
    char line[512];
    unsigned count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");

    if (!maps)
        die("cannot read /proc/self/maps");
    while (fgets(line, sizeof(line), maps))
        count += strstr(line, "memfd:gpubufd") != NULL;
    fclose(maps);
    return count;
}

/* How many segments the daemon says this session has. */
static unsigned count_segments(struct gpubuf_client *client)
{
    char session[64], *text;
    unsigned count = 0;

    check(client, gpubuf_call(client, "leases", "{\"name\":\"" PREFIX "/000000\"}", -1, &text),
          "leases");
    snprintf(session, sizeof(session), "{\"session\":%llu,",
             (unsigned long long)gpubuf_session(client));
    for (const char *at = strstr(text, "\"mapped\":["); at && (at = strstr(at, session)); at++)
        count++;
    gpubuf_free(text);
    return count;
}

static double open_all(struct gpubuf_client *client, const char *const *names,
                       struct gpubuf_object **objects)
{
    double start = now();
    int opened = gpubuf_open_many(client, names, COLUMNS, NULL, objects, NULL);
    double taken = now() - start;

    if (check(client, opened, "open_many") != COLUMNS)
        die("only %d of %d columns were opened", opened, COLUMNS);
    return taken / COLUMNS * 1e6;
}

static double release_each(struct gpubuf_object **objects)
{
    double start = now();

    for (size_t i = 0; i < COLUMNS; i++)
        gpubuf_release(objects[i]);
    return (now() - start) / COLUMNS * 1e6;
}

static double release_many(struct gpubuf_object **objects)
{
    double start = now();

    gpubuf_release_many(objects, COLUMNS);
    return (now() - start) / COLUMNS * 1e6;
}

/* Opened and released before by a client that caches them. */
static double open_kept(const char *path, const char *const *names)
{
    struct gpubuf_connect_options connect = {.size = sizeof(connect), .path = path};
    struct gpubuf_object *objects[COLUMNS];
    struct gpubuf_client *client;
    double taken;

    check(NULL, gpubuf_connect(&client, &connect), "connect");
    for (int i = 0; i < 3; i++) { /* the library caches what is opened again */
        open_all(client, names, objects);
        release_many(objects);
    }
    taken = open_all(client, names, objects);
    release_many(objects);
    gpubuf_disconnect(client);
    return taken;
}

static struct sample measure(const char *path, const char *const *names)
{
    struct gpubuf_connect_options connect = {
        .size = sizeof(connect), .path = path, .cache_leases = GPUBUF_NO_CACHE};
    struct gpubuf_object *objects[COLUMNS];
    struct gpubuf_client *client;
    struct sample sample;

    check(NULL, gpubuf_connect(&client, &connect), "connect");
    sample.cold = open_all(client, names, objects);
    sample.mappings = count_mappings();
    sample.segments = count_segments(client);
    sample.release_each = release_each(objects);
    sample.warm = open_all(client, names, objects);
    sample.release_many = release_many(objects);
    gpubuf_disconnect(client);
    sample.kept = open_kept(path, names);
    return sample;
}

/* In a process of its own. */
static struct sample measure_fresh(const char *path, const char *const *names)
{
    struct sample sample;
    int ends[2], status;
    pid_t child;

    fflush(NULL);
    if (pipe(ends) < 0 || (child = fork()) < 0)
        die("cannot start a process");
    if (child == 0) {
        sample = measure(path, names);
        _exit(write(ends[1], &sample, sizeof(sample)) == sizeof(sample) ? 0 : 1);
    }
    close(ends[1]);
    if (read(ends[0], &sample, sizeof(sample)) != sizeof(sample) ||
        waitpid(child, &status, 0) != child || status != 0)
        die("a process that measured has failed");
    close(ends[0]);
    return sample;
}

int main(int argc, char **argv)
{
    struct options options = read_options(argc, argv);
    struct series cold = {0}, warm = {0}, kept = {0}, each = {0}, many = {0};
    static char storage[COLUMNS][NAME_BYTES];
    const char *names[COLUMNS];
    char note[80];
    struct sample sample = {0};
    struct raw raw;
    pid_t daemon;

    raw_open(&raw, options.socket);
    daemon = raw_peer(&raw);
    place(PLACE_ONE_CORE, &daemon, 1);
    publish(&raw, PREFIX, COLUMNS, NULL);
    for (size_t i = 0; i < COLUMNS; i++) {
        object_name(storage[i], PREFIX, i);
        names[i] = storage[i];
    }
    for (int round = 0; round < (options.quick ? 21 : 101); round++) {
        sample = measure_fresh(options.socket, names);
        if (sample.mappings != sample.segments)
            die("%u mappings for %u segments", sample.mappings, sample.segments);
        series_add(&cold, sample.cold);
        series_add(&warm, sample.warm);
        series_add(&kept, sample.kept);
        series_add(&each, sample.release_each);
        series_add(&many, sample.release_many);
    }
    snprintf(note, sizeof(note), "%u mappings, %u segments", sample.mappings, sample.segments);
    print_row(&(struct row){"open_many.fresh", "us", &cold, NULL, NULL, note});
    print_row(&(struct row){"open_many.again", "us", &warm, NULL, NULL, NULL});
    print_row(&(struct row){"open_many.kept", "us", &kept, NULL, NULL, NULL});
    print_row(&(struct row){"open_many.release_each", "us", &each, NULL, NULL, NULL});
    print_row(&(struct row){"open_many.release_many", "us", &many, NULL, NULL, NULL});
    raw_close(&raw);
    return 0;
}
