/*
 * The cost of a small column when a thousand are opened in one call: in a process that has mapped
 * nothing before (a fresh one each round), again in the same session, and of what the client keeps.
 * All on one core. Dies if the process has made more mappings than the objects have segments.
 */
#include "measure.h"

#define COLUMNS 1000
#define PREFIX "many"

struct sample {
    double cold, warm, kept; /* microseconds a column */
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

/* Opened and released before by a client that caches them. */
static double open_kept(const char *path, const char *const *names)
{
    struct gpubuf_client *client = connect_to(path);
    struct gpubuf_object *objects[COLUMNS];
    double taken = 0;

    for (int i = 0; i < 4; i++) { /* the library caches what is opened again */
        taken = open_all(client, names, objects);
        gpubuf_release_many(objects, COLUMNS);
    }
    gpubuf_disconnect(client);
    return taken;
}

static struct sample measure(const char *path, const char *const *names)
{
    struct gpubuf_client *client = connect_uncached(path);
    struct gpubuf_object *objects[COLUMNS];
    struct sample sample;

    sample.cold = open_all(client, names, objects);
    sample.mappings = count_mappings();
    sample.segments = count_segments(client);
    gpubuf_release_many(objects, COLUMNS);
    sample.warm = open_all(client, names, objects);
    gpubuf_release_many(objects, COLUMNS);
    gpubuf_disconnect(client);
    sample.kept = open_kept(path, names);
    return sample;
}

int main(int argc, char **argv)
{
    struct options options = read_options(argc, argv);
    struct series cold = {0}, warm = {0}, kept = {0};
    static char storage[COLUMNS][NAME_BYTES];
    const char *names[COLUMNS];
    char note[80];
    struct sample *sample = allocate_shared(sizeof(*sample));
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
        pid_t fresh = fork_child();

        if (fresh == 0) {
            *sample = measure(options.socket, names);
            _exit(0);
        }
        end_child(fresh, "a process that measured");
        if (sample->mappings != sample->segments)
            die("%u mappings for %u segments", sample->mappings, sample->segments);
        series_add(&cold, sample->cold);
        series_add(&warm, sample->warm);
        series_add(&kept, sample->kept);
    }
    snprintf(note, sizeof(note), "%u mappings, %u segments", sample->mappings, sample->segments);
    print_row(&(struct row){"open_many.fresh", "us", &cold, NULL, NULL, note});
    print_row(&(struct row){"open_many.again", "us", &warm, NULL, NULL, NULL});
    print_row(&(struct row){"open_many.kept", "us", &kept, NULL, NULL, NULL});
    raw_close(&raw);
    return 0;
}
