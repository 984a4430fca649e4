/* `stats` with `families`: counters, gauges and histograms, as families of samples. */
#include "daemon/methods/families.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <uv.h>

#include "daemon/base/clock.h"
#include "daemon/memory/figures.h"
#include "daemon/spill/evict.h"

/* ---- families ---- */

struct metrics {
    struct gb_writer *writer;
    const char *name; /* of the current family; NULL: none yet */
    bool sampled;     /* the family has a sample */
};

static void end_family(struct metrics *metrics)
{
    if (metrics->name)
        GB_WRITE_LITERAL(metrics->writer, "]}");
}

static void family(struct metrics *metrics, const char *name, const char *type, const char *help)
{
    end_family(metrics);
    gb_write_format(metrics->writer,
                    "%s{\"name\":\"%s\",\"type\":\"%s\",\"help\":\"%s\",\"samples\":[",
                    metrics->name ? "," : "", name, type, help);
    metrics->name = name;
    metrics->sampled = false;
}

/* A label of a sample; a name of NULL: none. */
struct label {
    const char *name, *value;
};

static const struct label none = {NULL, NULL};

/* Writes a value that is in microseconds in seconds. */
static void write_seconds(struct gb_writer *writer, uint64_t us)
{
    gb_write_format(writer, "%" PRIu64 ".%06" PRIu64, us / 1000000, us % 1000000);
}

static void sample(struct metrics *metrics, struct label one, struct label two, uint64_t value)
{
    struct gb_writer *writer = metrics->writer;

    gb_write_text(writer, metrics->sampled ? ",{" : "{");
    metrics->sampled = true;
    if (one.name) {
        gb_write_format(writer, "\"labels\":{\"%s\":", one.name);
        gb_write_cstring(writer, one.value);
    }
    if (two.name)
        gb_write_format(writer, ",\"%s\":\"%s\"", two.name, two.value);
    gb_write_text(writer, one.name ? "},\"value\":" : "\"value\":");
    if (strstr(metrics->name, "_seconds"))
        write_seconds(writer, value);
    else
        gb_write_uint(writer, value);
    gb_write_char(writer, '}');
}

/* The figures of a thing. */
struct figures {
    struct label label;
    struct gb_figure all[GB_FIGURES];
    size_t count;
};

/* Writes a family for each figure of the first thing, with a sample for each of the things, which
   have the same figures. */
static void write_figures(struct metrics *metrics, const struct figures *things, size_t count)
{
    for (size_t i = 0; i < things[0].count; i++) {
        const struct gb_figure *figure = &things[0].all[i];
        size_t length = figure->family ? strlen(figure->family) : 0;

        if (!figure->family)
            continue;
        family(metrics, figure->family,
               strcmp(figure->family + length - 6, "_total") == 0 ? "counter" : "gauge",
               figure->help);
        for (size_t t = 0; t < count; t++)
            sample(metrics, things[t].label, none, things[t].all[i].value);
    }
}

static void write_devices(const struct gb_server *server, struct metrics *metrics)
{
    struct figures things[GB_DEVICES];

    for (unsigned d = 0; d < server->device_count; d++) {
        things[d].label = (struct label){"device", server->devices[d]->id};
        things[d].count = gb_device_figures(
            server->devices[d], gb_evict_most(&server->spill, server->devices[d]), things[d].all);
    }
    write_figures(metrics, things, server->device_count);
}

/* There is a family also where no tier has a sample. */
static void write_tiers(const struct gb_server *server, struct metrics *metrics)
{
    struct figures things[GB_TIERS];
    size_t count = 0;

    for (int t = 0; t < GB_TIERS; t++) {
        const struct gb_tier *tier = &server->spill.tiers[t];

        things[count].label = (struct label){"tier", gb_tier_name(tier->kind)};
        things[count].count = gb_tier_figures(tier, things[count].all);
        if (tier->capacity > 0)
            count++;
    }
    write_figures(metrics, things, count);
}

size_t gb_server_figures(struct gb_server *server, struct gb_figure *figures)
{
    const struct gb_registry *registry = &server->registry;
    const struct gb_providers *providers = &server->missings.providers;
    struct gb_metrics *counted = &server->metrics;
    int64_t started_ms = gb_wall_ms() - (int64_t)(gb_now_ms() - server->started_ms);
    const struct gb_figure all[] = {
        {"sessions", "gpubufd_sessions", "Sessions.", server->session_count},
        {"sessions_total", "gpubufd_sessions_started_total", "Sessions that began.",
         server->metrics.sessions},
        {"names", "gpubufd_objects", "Objects that have a name.", gb_names_count(&registry->names)},
        {"objects", NULL, NULL, registry->objects},
        {"leases", "gpubufd_leases", "Leases that sessions use.",
         gb_registry_lease_count(registry)},
        {"cached", "gpubufd_cached_leases", "Leases that sessions cache without using them.",
         registry->idle_count},
        {"parked", "gpubufd_parked_leases", "Leases that sessions have parked.",
         registry->parked_count},
        {"mappings", "gpubufd_mappings", "Segments that sessions were given.",
         server->store.mappings.count},
        {"segments", NULL, NULL, server->store.segments.count},
        {"seq", "gpubufd_events_total", "Events: objects that came, went or moved.", server->seq},
        {"private_names", NULL, NULL, registry->private_names},
        {"wanted", "gpubufd_names_wanted_total", "Absent names that providers were asked for.",
         providers->wanted},
        {"provided", "gpubufd_names_provided_total",
         "Of the names asked for, those that were published.", providers->provided},
        {NULL, "gpubufd_names_provided_seconds_total",
         "Time from asking the provider until they were published.", providers->provided_ms * 1000},
        {"declined", "gpubufd_names_declined_total",
         "Of the names asked for, those that their providers declined.", providers->declined},
        {NULL, "gpubufd_start_time_seconds", "When the daemon began, in Unix time.",
         (uint64_t)started_ms * 1000},
        {NULL, "gpubufd_crashes_survived_total",
         "1 after a start that found what an earlier daemon had left, as after a crash.",
         counted->crashes_survived},
        {NULL, "gpubufd_tiers_out_of_order",
         "1 while the daemon serves without the disk tier, whose directory cannot be used.",
         server->spill.outage.lasts},
        {NULL, "gpubufd_sessions_turned_away_total",
         "Connections refused for want of descriptors or memory.", counted->turned_away},
        {NULL, "gpubufd_sessions_ended_total",
         "Sessions ended because they kept memory that others lacked.", counted->sessions_ended},
        {NULL, "gpubufd_loop_busy_seconds_total",
         "Time for which the thread that answers requests was busy.", counted->turns_ns / 1000},
        {NULL, "gpubufd_loop_longest_turn_seconds",
         "Longest turn of the loop in the last minute or two.",
         gb_metrics_longest_turn(counted, uv_hrtime()) / 1000},
    };

    memcpy(figures, all, sizeof(all));
    return sizeof(all) / sizeof(all[0]);
}

static void single(struct metrics *metrics, const char *name, const char *help, uint64_t value)
{
    family(metrics, name, "gauge", help);
    sample(metrics, none, none, value);
}

/* Writes what the daemon counts as a whole, and the descriptors of its process. */
static void write_totals(struct gb_server *server, struct metrics *metrics)
{
    const struct gb_metrics *counted = &server->metrics;
    struct figures whole = {.label = none};
    struct rlimit limit = {0};
    struct stat table;
    uint64_t open_fds;

    family(metrics, "gpubufd_build_info", "gauge", "1, labelled with the daemon's version.");
    sample(metrics, (struct label){"version", GPUBUF_VERSION}, none, 1);
    whole.count = gb_server_figures(server, whole.all);
    write_figures(metrics, &whole, 1);
    getrlimit(RLIMIT_NOFILE, &limit);
    /* Before Linux 6.2 the size is 0, and counting the entries would take too long. */
    open_fds = stat("/proc/self/fd", &table) == 0 ? (uint64_t)table.st_size : 0;
    single(metrics, "gpubufd_open_fds", "Descriptors that are open (before Linux 6.2: for users).",
           open_fds > 0 ? open_fds : server->store.users.stocks[GB_STOCK_OPEN].used);
    single(metrics, "gpubufd_max_fds", "Descriptors that may be open.", limit.rlim_cur);
    family(metrics, "gpubufd_opened_names_total", "counter",
           "Names that were asked for by open: there (hit) or not (miss).");
    sample(metrics, (struct label){"result", "hit"}, none, counted->hits);
    sample(metrics, (struct label){"result", "miss"}, none, counted->misses);
    family(metrics, "gpubufd_limits_reached_total", "counter",
           "Times that a limit was reached, by its name.");
    for (size_t i = 0; i < GB_METRICS_LIMITS; i++)
        sample(metrics, (struct label){"limit", gb_metrics_limit_names[i]}, none,
               counted->limits[i]);
}

#define USER_SAMPLES 256 /* the most: with thousands of users the request would take too long */

/* Writes the bytes of each user. Every client may know these, as it may know the segments. */
static void write_users(const struct gb_server *server, struct metrics *metrics)
{
    unsigned told = 0;

    family(metrics, "gpubufd_user_bytes", "gauge",
           "In objects of a user; of 256 users at most, if there is one device.");
    GB_LIST_EACH(&server->store.users.all, const struct gb_user, user, of_users) {
        char uid[16];

        snprintf(uid, sizeof(uid), "%u", user->uid);
        for (unsigned d = 0; d < server->device_count; d++) {
            if (user->bytes[d] == 0)
                continue;
            if (told++ == USER_SAMPLES)
                return;
            sample(metrics, (struct label){"uid", uid},
                   (struct label){"device", server->devices[d]->id}, user->bytes[d]);
        }
    }
}

/* Writes what providers bring, by prefix. */
static void write_loads(const struct gb_server *server, struct metrics *metrics)
{
    const struct gb_loads *loads = &server->missings.providers.loads;

    family(metrics, "gpubufd_provider_opened_names_total", "counter",
           "Names with a prefix that is provided that were asked for by open: there (hit) or not "
           "(miss); of 32 prefixes at most.");
    for (unsigned i = 0; i < loads->count; i++) {
        const struct gb_load *load = &loads->all[i];
        struct label prefix = {"prefix", load->prefix};

        sample(metrics, prefix, (struct label){"result", "hit"}, load->hits);
        sample(metrics, prefix, (struct label){"result", "miss"}, load->misses);
    }
    family(metrics, "gpubufd_provider_names_total", "counter",
           "Names that a provider of the prefix made.");
    for (unsigned i = 0; i < loads->count; i++)
        sample(metrics, (struct label){"prefix", loads->all[i].prefix}, none,
               loads->all[i].provided);
    family(metrics, "gpubufd_provider_seconds_total", "counter",
           "Time from asking the provider until they were published.");
    for (unsigned i = 0; i < loads->count; i++)
        sample(metrics, (struct label){"prefix", loads->all[i].prefix}, none,
               loads->all[i].provided_ms * 1000);
}

static const char *method_name(const struct gb_service *service, size_t i)
{
    return i < service->count ? service->name(i) : "unknown";
}

/* Of errors that alerts are about there is a sample before the first one: else a rate would not see
   that. */
static void write_results(const struct gb_server *server, struct metrics *metrics)
{
    const struct gb_service *service = server->service;

    family(metrics, "gpubufd_requests_total", "counter",
           "Requests that were answered, by method and result.");
    for (size_t i = 0; i <= service->count; i++) {
        const struct gb_method_metrics *method = &server->metrics.methods[i];
        struct label name = {"method", method_name(service, i)};

        sample(metrics, name, (struct label){"result", "ok"}, method->done);
        for (size_t e = 0; e < GB_METRICS_ERRORS; e++) {
            int code = gb_metrics_errors[e].code;
            if (method->errors[e] > 0 || code == GPUBUF_E_NO_SPACE || code == GPUBUF_E_INTERNAL)
                sample(metrics, name, (struct label){"result", gb_metrics_errors[e].kind},
                       method->errors[e]);
        }
    }
}

/* Writes the times of one method; each bucket includes those below it. */
static void write_histogram(struct metrics *metrics, const char *label,
                            const struct gb_method_metrics *method)
{
    struct gb_writer *writer = metrics->writer;
    uint64_t count = 0;

    gb_write_format(writer, "%s{\"labels\":{\"method\":\"%s\"},\"buckets\":{",
                    metrics->sampled ? "," : "", label);
    metrics->sampled = true;
    for (size_t b = 0; b <= GB_METRICS_BUCKETS; b++) {
        const char *bound = b < GB_METRICS_BUCKETS ? gb_metrics_bounds[b].text : "+Inf";

        count += method->buckets[b];
        gb_write_format(writer, "%s\"%s\":%" PRIu64, b > 0 ? "," : "", bound, count);
    }
    GB_WRITE_LITERAL(writer, "},\"sum\":");
    write_seconds(writer, method->total_ns / 1000);
    gb_write_format(writer, ",\"count\":%" PRIu64 "}", count);
}

static void write_times(const struct gb_server *server, struct metrics *metrics)
{
    const struct gb_service *service = server->service;

    family(metrics, "gpubufd_request_duration_seconds", "histogram",
           "From when a request was read, or first tried, to its answer.");
    for (size_t i = 0; i <= service->count; i++)
        write_histogram(metrics, method_name(service, i), &server->metrics.methods[i]);
}

void gb_server_write_families(struct gb_server *server, struct gb_writer *writer)
{
    struct metrics metrics = {.writer = writer};

    write_totals(server, &metrics);
    write_loads(server, &metrics);
    write_users(server, &metrics);
    write_devices(server, &metrics);
    write_tiers(server, &metrics);
    write_results(server, &metrics);
    write_times(server, &metrics);
    end_family(&metrics);
}
