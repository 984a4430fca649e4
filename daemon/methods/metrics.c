/* metrics: counters, gauges and histograms, as families of samples. */
#include <inttypes.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <uv.h>

#include "daemon/base/clock.h"
#include "daemon/methods/call.h"

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

static void write_labels(struct metrics *metrics, struct label one, struct label two)
{
    if (!one.name)
        return;
    gb_write_format(metrics->writer, "\"labels\":{\"%s\":\"%s\"", one.name, one.value);
    if (two.name)
        gb_write_format(metrics->writer, ",\"%s\":\"%s\"", two.name, two.value);
    GB_WRITE_LITERAL(metrics->writer, "},");
}

/* Writes a sample up to its value. The caller writes that, and calls end_sample(). */
static void begin_sample(struct metrics *metrics, struct label one, struct label two)
{
    gb_write_text(metrics->writer, metrics->sampled ? ",{" : "{");
    metrics->sampled = true;
    write_labels(metrics, one, two);
    GB_WRITE_LITERAL(metrics->writer, "\"value\":");
}

static void end_sample(struct metrics *metrics)
{
    gb_write_char(metrics->writer, '}');
}

static void sample(struct metrics *metrics, struct label one, struct label two, uint64_t value)
{
    begin_sample(metrics, one, two);
    gb_write_uint(metrics->writer, value);
    end_sample(metrics);
}

static const struct label none = {NULL, NULL};

static void single(struct metrics *metrics, const char *name, const char *type, const char *help,
                   uint64_t value)
{
    family(metrics, name, type, help);
    sample(metrics, none, none, value);
}

/* ---- devices ---- */

static uint64_t used_bytes(const struct gb_device *device)
{
    return device->used;
}

static uint64_t pinned_by_clients(const struct gb_device *device)
{
    return device->pinned_by_clients;
}

static uint64_t capacity(const struct gb_device *device)
{
    return device->capacity;
}

static uint64_t leased(const struct gb_device *device)
{
    return device->leased;
}

static uint64_t pinned(const struct gb_device *device)
{
    return device->pinned;
}

static uint64_t stays(const struct gb_device *device)
{
    return device->stay.bytes;
}

static uint64_t evictable(const struct gb_device *device)
{
    return device->recency.bytes;
}

static uint64_t objects(const struct gb_device *device)
{
    return device->objects;
}

static uint64_t segments(const struct gb_device *device)
{
    return device->segments;
}

static uint64_t segments_created(const struct gb_device *device)
{
    return device->segments_created;
}

static uint64_t segments_destroyed(const struct gb_device *device)
{
    return device->segments_destroyed;
}

static uint64_t evictions(const struct gb_device *device)
{
    return device->evictions;
}

static uint64_t evicted_bytes(const struct gb_device *device)
{
    return device->evicted_bytes;
}

static uint64_t leaving(const struct gb_device *device)
{
    return device->leaving;
}

static uint64_t only_spilled(const struct gb_device *device)
{
    return device->spilled_bytes;
}

static uint64_t spills(const struct gb_device *device)
{
    return device->spills;
}

static uint64_t spills_bytes(const struct gb_device *device)
{
    return device->spills_bytes;
}

static uint64_t restores(const struct gb_device *device)
{
    return device->restores;
}

static uint64_t restores_bytes(const struct gb_device *device)
{
    return device->restores_bytes;
}

static uint64_t lost(const struct gb_device *device)
{
    return device->lost;
}

/* Writes the families of devices: their memory, and content that left it. */
static void write_devices(const struct gb_server *server, struct metrics *metrics)
{
    static const struct {
        const char *name, *type, *help;
        uint64_t (*value)(const struct gb_device *device);
    } families[] = {
        {"gpubufd_device_capacity_bytes", "gauge", "The bytes that the daemon may allocate.",
         capacity},
        {"gpubufd_device_free_bytes", "gauge", "Not allocated.", gb_device_free_bytes},
        {"gpubufd_device_used_bytes", "gauge", "In objects.", used_bytes},
        {"gpubufd_device_retained_bytes", "gauge", "Allocated, and in no object.",
         gb_device_retained},
        {"gpubufd_device_pinned_by_clients_bytes", "gauge",
         "Of no object any more, and still mapped by sessions.", pinned_by_clients},
        {"gpubufd_device_leased_bytes", "gauge", "In objects under a lease.", leased},
        {"gpubufd_device_pinned_bytes", "gauge", "In objects that are pinned or to be kept.",
         pinned},
        {"gpubufd_device_stays_bytes", "gauge", "In objects that stay for want of a tier.", stays},
        {"gpubufd_device_evictable_bytes", "gauge", "In objects that may go.", evictable},
        {"gpubufd_device_objects", "gauge", "Objects, unsealed and unnamed ones included.",
         objects},
        {"gpubufd_device_segments", "gauge", "Segments.", segments},
        {"gpubufd_device_segments_created_total", "counter", "Segments made or adopted.",
         segments_created},
        {"gpubufd_device_segments_destroyed_total", "counter", "Segments given back.",
         segments_destroyed},
        {"gpubufd_evictions_total", "counter", "Times that content was dropped.", evictions},
        {"gpubufd_evicted_bytes_total", "counter", "Bytes of it.", evicted_bytes},
        {"gpubufd_device_leaving_bytes", "gauge", "In objects that are being copied to a tier.",
         leaving},
        {"gpubufd_device_spilled_bytes", "gauge", "Content of objects that is in tiers only.",
         only_spilled},
        {"gpubufd_spills_total", "counter", "Times that content left for a tier.", spills},
        {"gpubufd_spilled_bytes_total", "counter", "Bytes that left for a tier.", spills_bytes},
        {"gpubufd_restores_total", "counter", "Times that content came back.", restores},
        {"gpubufd_restored_bytes_total", "counter", "Bytes that came back.", restores_bytes},
        {"gpubufd_device_lost", "gauge", "1 if the driver has lost the device.", lost},
    };

    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        family(metrics, families[i].name, families[i].type, families[i].help);
        for (unsigned d = 0; d < server->device_count; d++) {
            const struct gb_device *device = server->devices[d];

            sample(metrics, (struct label){"device", device->id}, none, families[i].value(device));
        }
    }
}

/* Writes the families of tiers; their times are in microseconds. */
static void write_tiers(const struct gb_server *server, struct metrics *metrics)
{
    static const struct {
        const char *name, *type, *help;
        size_t offset;
        bool seconds;
    } families[] = {
        {"gpubufd_tier_capacity_bytes", "gauge", "The bytes that the tier may hold.",
         offsetof(struct gb_tier, capacity), false},
        {"gpubufd_tier_used_bytes", "gauge", "In copies.", offsetof(struct gb_tier, used), false},
        {"gpubufd_tier_clean_bytes", "gauge", "In copies that may go at once.",
         offsetof(struct gb_tier, recency.clean_bytes), false},
        {"gpubufd_tier_copies", "gauge", "Copies.", offsetof(struct gb_tier, copies), false},
        {"gpubufd_tier_writes_total", "counter", "Copies that were written.",
         offsetof(struct gb_tier, writes), false},
        {"gpubufd_tier_written_bytes_total", "counter", "Bytes that were written.",
         offsetof(struct gb_tier, written_bytes), false},
        {"gpubufd_tier_write_seconds_total", "counter", "Time that writing took.",
         offsetof(struct gb_tier, write_us), true},
        {"gpubufd_tier_reads_total", "counter", "Copies that were read.",
         offsetof(struct gb_tier, reads), false},
        {"gpubufd_tier_read_bytes_total", "counter", "Bytes that were read.",
         offsetof(struct gb_tier, read_bytes), false},
        {"gpubufd_tier_read_seconds_total", "counter", "Time that reading took.",
         offsetof(struct gb_tier, read_us), true},
        {"gpubufd_tier_failures_total", "counter", "Writes and reads that failed.",
         offsetof(struct gb_tier, failures), false},
    };

    for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
        family(metrics, families[i].name, families[i].type, families[i].help);
        for (int t = 0; t < GB_TIERS; t++) {
            const struct gb_tier *tier = &server->spill.tiers[t];
            uint64_t value;

            if (tier->capacity == 0)
                continue;
            memcpy(&value, (const char *)tier + families[i].offset, sizeof(value));
            begin_sample(metrics, (struct label){"tier", gb_tier_name(tier->kind)}, none);
            if (families[i].seconds)
                gb_write_format(metrics->writer, "%" PRIu64 ".%06" PRIu64, value / 1000000,
                                value % 1000000);
            else
                gb_write_uint(metrics->writer, value);
            end_sample(metrics);
        }
    }
}

static void write_seconds(struct gb_writer *writer, uint64_t ns)
{
    gb_write_format(writer, "%" PRIu64 ".%09" PRIu64, ns / 1000000000, ns % 1000000000);
}

static void single_seconds(struct metrics *metrics, const char *name, const char *type,
                           const char *help, uint64_t ns)
{
    family(metrics, name, type, help);
    begin_sample(metrics, none, none);
    write_seconds(metrics->writer, ns);
    end_sample(metrics);
}

/* Writes the scarce resources of the process: descriptors, and the time of the loop's thread. */
static void write_process(struct gb_server *server, struct metrics *metrics)
{
    const struct gb_stock *users = &server->store.users.stocks[GB_STOCK_OPEN];
    struct gb_metrics *counted = &server->metrics;
    struct rlimit limit = {0};
    struct stat table;
    uint64_t open_fds;

    getrlimit(RLIMIT_NOFILE, &limit);
    family(metrics, "gpubufd_open_fds", "gauge",
           "Descriptors that are open (before Linux 6.2: for users).");
    /* Before Linux 6.2 the size is 0, and counting the entries would take too long. */
    open_fds = stat("/proc/self/fd", &table) == 0 ? (uint64_t)table.st_size : 0;
    sample(metrics, none, none, open_fds > 0 ? open_fds : users->used);
    single(metrics, "gpubufd_max_fds", "gauge", "Descriptors that may be open.", limit.rlim_cur);
    single(metrics, "gpubufd_sessions_turned_away_total", "counter",
           "Connections that no descriptor or no memory was left for.", counted->turned_away);
    single(metrics, "gpubufd_sessions_ended_total", "counter",
           "Sessions that the daemon ended since they kept memory that others lacked.",
           counted->sessions_ended);
    single_seconds(metrics, "gpubufd_loop_busy_seconds_total", "counter",
                   "Time that the thread which answers requests was at work.", counted->turns_ns);
    single_seconds(metrics, "gpubufd_loop_longest_turn_seconds", "gauge",
                   "The longest that it did not look for requests, in the last minute or two.",
                   gb_metrics_longest_turn(counted, uv_hrtime()));
}

#define USER_SAMPLES 256 /* the most: with thousands of users the request would take too long */

/* Writes the bytes of each user. Every client may know these, as it may know the segments. */
static void write_users(const struct gb_server *server, struct metrics *metrics)
{
    unsigned told = 0;

    family(metrics, "gpubufd_user_bytes", "gauge",
           "In objects of a user; of 256 users at most, if there is one device.");
    GB_LIST_EACH(&server->store.users.all, link) {
        const struct gb_user *user = GB_CONTAINER(link, struct gb_user, of_users);
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

static void write_totals(const struct gb_server *server, struct metrics *metrics)
{
    const struct gb_metrics *counted = &server->metrics;
    int64_t started_ms = gb_wall_ms() - (int64_t)(gb_now_ms() - server->started_ms);

    family(metrics, "gpubufd_build_info", "gauge", "1, labelled with the daemon's version.");
    sample(metrics, (struct label){"version", GPUBUF_VERSION}, none, 1);
    single(metrics, "gpubufd_start_time_seconds", "gauge", "When the daemon began, in Unix time.",
           (uint64_t)started_ms / 1000);
    single(metrics, "gpubufd_objects", "gauge", "Objects that have a name.",
           gb_names_count(&server->registry.names));
    single(metrics, "gpubufd_leases", "gauge", "Leases that sessions use.",
           gb_registry_lease_count(&server->registry));
    single(metrics, "gpubufd_kept_leases", "gauge", "Leases that sessions keep without using them.",
           server->registry.idle_count);
    single(metrics, "gpubufd_sessions", "gauge", "Sessions.", server->session_count);
    single(metrics, "gpubufd_sessions_started_total", "counter", "Sessions that began.",
           server->sessions_total);
    single(metrics, "gpubufd_mappings", "gauge", "Segments that sessions were given.",
           server->store.mappings.count);
    family(metrics, "gpubufd_opened_names_total", "counter",
           "Names that were asked for by open: there (hit) or not (miss).");
    sample(metrics, (struct label){"result", "hit"}, none, counted->hits);
    sample(metrics, (struct label){"result", "miss"}, none, counted->misses);
    single(metrics, "gpubufd_names_wanted_total", "counter",
           "Absent names that providers were asked for.", server->missings.providers.wanted);
    single(metrics, "gpubufd_names_provided_total", "counter",
           "Of those, names that were published then.", server->missings.providers.provided);
    single_seconds(metrics, "gpubufd_names_provided_seconds_total", "counter",
                   "Time until they were, from when their providers were asked.",
                   server->missings.providers.provided_ms * 1000000);
    single(metrics, "gpubufd_names_declined_total", "counter",
           "Of those that were asked for, names that their providers declined.",
           server->missings.providers.declined);
    single(metrics, "gpubufd_crashes_survived_total", "counter",
           "1 after a start that found what an earlier daemon had left, as after a crash.",
           counted->crashes_survived);
    family(metrics, "gpubufd_limits_reached_total", "counter",
           "Times that a limit was in the way, by its name.");
    for (size_t i = 0; i < GB_METRICS_LIMITS; i++)
        sample(metrics, (struct label){"limit", gb_metrics_limit_names[i]}, none,
               counted->limits[i]);
}

static const char *method_name(const struct gb_service *service, size_t i)
{
    return i < service->count ? service->name(i) : "unknown";
}

static void write_results(const struct gb_server *server, struct metrics *metrics)
{
    const struct gb_service *service = server->service;

    family(metrics, "gpubufd_requests_total", "counter",
           "Requests that were answered, by method and result.");
    for (size_t i = 0; i <= service->count; i++) {
        const struct gb_method_metrics *method = &server->metrics.methods[i];
        struct label name = {"method", method_name(service, i)};

        sample(metrics, name, (struct label){"result", "ok"}, method->done);
        for (size_t e = 0; e < GB_METRICS_ERRORS; e++)
            if (method->errors[e] > 0)
                sample(metrics, name, (struct label){"result", gb_metrics_errors[e].kind},
                       method->errors[e]);
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
    write_seconds(writer, method->total_ns);
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

static void write_all(struct gb_server *server, struct metrics *metrics)
{
    write_totals(server, metrics);
    write_process(server, metrics);
    write_users(server, metrics);
    write_devices(server, metrics);
    write_tiers(server, metrics);
    write_results(server, metrics);
    write_times(server, metrics);
    single(metrics, "gpubufd_events_total", "counter", "Events: objects that came, went or moved.",
           server->seq);
}

/* ---- the method ---- */

struct no_params {
    char nothing;
};

static int handle_metrics(struct gb_call *call, const void *p, uint64_t present)
{
    struct metrics metrics = {.writer = call->writer};

    (void)p;
    (void)present;
    gb_call_begin_result(call);
    GB_WRITE_LITERAL(call->writer, "{\"families\":[");
    write_all(call->server, &metrics);
    end_family(&metrics);
    GB_WRITE_LITERAL(call->writer, "]}");
    return GB_DONE;
}

const struct gb_method gb_method_metrics = {
    .name = "metrics", .handle = handle_metrics, .params_size = sizeof(struct no_params)};
