/*
 * The daemon's resident memory for an idle session: 10 000 connections that have greeted, and
 * opened and released an object once. One round only: a second would find the first's memory in the
 * daemon's heap and seem to cost nothing. Fewer where descriptors are scarce: one user may have
 * half of the daemon's, and the daemon needs some itself.
 */
#include "measure.h"

#define SESSIONS 10000
#define NAME "sessions/column"

static double resident_kib(pid_t pid)
{
    char path[64], line[256];
    double kib = -1;
    FILE *status;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    status = fopen(path, "re");
    if (!status)
        die("cannot read %s", path);
    while (kib < 0 && fgets(line, sizeof(line), status))
        if (strncmp(line, "VmRSS:", 6) == 0)
            kib = strtod(line + 6, NULL);
    fclose(status);
    if (kib < 0)
        die("%s does not tell VmRSS", path);
    return kib;
}

/* Begins a session that then does nothing more. */
static void begin(struct raw *raw, const char *path)
{
    raw_open(raw, path);
    raw_call(raw, "hello", "{\"protocol\":1,\"client\":\"bench_sessions\"}");
    raw_release(raw, raw_lease(raw, "open", "{\"name\":\"" NAME "\"}"));
    free(raw->buffer);
    raw->buffer = NULL;
    raw->start = raw->end = raw->capacity = 0;
}

int main(int argc, char **argv)
{
    struct options options = read_options(argc, argv);
    struct raw *raws = allocate(SESSIONS, sizeof(*raws)), control;
    struct series each = {0};
    struct rlimit files;
    size_t sessions = SESSIONS;
    double before;
    char note[64];

    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur / 3 < SESSIONS)
        sessions = files.rlim_cur / 3;
    raw_open(&control, options.socket);
    publish_one(&control, NAME);
    before = resident_kib(raw_peer(&control));
    for (size_t i = 0; i < sessions; i++)
        begin(&raws[i], options.socket);
    series_add(&each, (resident_kib(raw_peer(&control)) - before) / (double)sessions);
    for (size_t i = 0; i < sessions; i++)
        raw_close(&raws[i]);
    snprintf(note, sizeof(note), "%zu sessions", sessions);
    print_row(&(struct row){"idle_session", "KiB", &each, NULL, NULL, note});
    raw_close(&control);
    free(raws);
    return 0;
}
