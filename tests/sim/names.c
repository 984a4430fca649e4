/*
 * The names of a cluster, and their cost for each machine and for etcd. This program hands view.c
 * the keys of NAMES names that MACHINES machines have, and then removes those of one machine. The
 * memory is malloc's own figure, so it depends on the C library; times are this machine's. The
 * bytes that etcd sends are counted from the sizes of keys and values as the gateway writes them.
 */
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/peer/view.h"

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static size_t memory(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

/* Returns about how many bytes of JSON etcd's gateway makes of it: base64, and numbers as text. */
static uint64_t take(struct gb_peer_view *view, const char *key, const char *value,
                     uint64_t revision)
{
    struct gb_peer_view_key told = {key, value, value ? strlen(value) : 0, revision, 1};
    struct gb_peer_entry *changed = NULL;

    if (gb_peer_view_take(view, &told, &changed) < 0)
        abort();
    if (changed)
        gb_peer_view_tidy(view, changed);
    return (strlen(key) + 9 + told.value_length) * 4 / 3 + (value ? 140 : 80);
}

static uint64_t take_name(struct gb_peer_view *view, uint64_t number, unsigned machine,
                          bool is_there)
{
    char key[128], value[192];

    snprintf(key, sizeof(key), "names/table-%06" PRIu64 "/column-%03" PRIu64, number / 1000,
             number % 1000);
    snprintf(value, sizeof(value),
             "{\"node\":\"m%u\",\"version\":%" PRIu64 ",\"bytes\":1048576,\"serial\":%" PRIu64
             ",\"since\":1767225600000}",
             machine, number + 1, number + 1);
    return take(view, key, is_there ? value : NULL, is_there ? number + 2 : UINT64_MAX);
}

int main(int argc, char **argv)
{
    uint64_t names = argc == 3 ? (uint64_t)strtod(argv[1], NULL) : 0;
    unsigned machines = argc == 3 ? (unsigned)strtod(argv[2], NULL) : 0;
    uint64_t listed = 0, ended = 0, gone = 0;
    struct gb_peer_view view = {0};

    if (!names || !machines) {
        fputs("usage: names NAMES MACHINES\n", stderr);
        return 2;
    }
    for (unsigned i = 0; i < machines; i++) {
        char key[64];
        snprintf(key, sizeof(key), "nodes/m%u", i);
        (void)take(&view, key, "{\"host\":\"10.0.0.1\",\"port\":9470}", 1);
    }
    size_t before = memory();
    double start = seconds();
    for (uint64_t i = 0; i < names; i++)
        listed += take_name(&view, i, (unsigned)(i % machines), true);
    double taken = seconds() - start;
    size_t after = memory();
    start = seconds();
    for (uint64_t i = 0; i < names; i += machines, gone++)
        ended += take_name(&view, i, 0, false);
    double forgotten = seconds() - start;
    printf("{\"names\":%" PRIu64 ",\"machines\":%u,\"left\":%zu,\"view_bytes\":%zu,"
           "\"bytes_a_name\":%.0f,\"listing_bytes\":%" PRIu64 ",\"listing_s\":%.2f,"
           "\"end_events\":%" PRIu64 ",\"end_bytes\":%" PRIu64 ",\"end_s\":%.4f}\n",
           names, machines, view.name_count, after - before,
           (double)(after - before) / (double)names, listed, taken, gone, ended, forgotten);
    gb_peer_view_end(&view);
    return 0;
}
