#include "daemon/observe/prometheus.h"

#include <inttypes.h>

#include "daemon/base/clock.h"
#include "daemon/observe/counts.h"
#include "daemon/serve/server.h"

static void family(struct gb_writer *writer, const char *name, const char *type, const char *help)
{
    gb_write_format(writer, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void single(struct gb_writer *writer, const char *name, const char *type, const char *help,
                   uint64_t value)
{
    family(writer, name, type, help);
    gb_write_format(writer, "%s %" PRIu64 "\n", name, value);
}

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

/* What each device has in its own memory, and what left it. */
static void write_devices(const struct gb_server *server, struct gb_writer *writer)
{
    static const struct {
        const char *name, *type, *help;
        uint64_t (*value)(const struct gb_device *device);
    } families[] = {
        {"gpubufd_device_capacity_bytes", "gauge", "What the daemon may allocate.", capacity},
        {"gpubufd_device_free_bytes", "gauge", "Not allocated.", gb_device_free_bytes},
        {"gpubufd_device_used_bytes", "gauge", "In objects.", used_bytes},
        {"gpubufd_device_retained_bytes", "gauge", "Allocated, and in no object.",
         gb_device_retained},
        {"gpubufd_device_pinned_by_clients_bytes", "gauge",
         "Of no object any more, and still mapped by sessions.", pinned_by_clients},
        {"gpubufd_device_leased_bytes", "gauge", "In objects under a lease.", leased},
        {"gpubufd_device_pinned_bytes", "gauge", "In objects that are pinned or to be kept.",
         pinned},
        {"gpubufd_device_evictable_bytes", "gauge", "In objects that may go.", evictable},
        {"gpubufd_device_objects", "gauge", "Objects, unsealed and unnamed ones included.",
         objects},
        {"gpubufd_device_segments", "gauge", "Segments.", segments},
        {"gpubufd_device_segments_created_total", "counter", "Segments made or adopted.",
         segments_created},
        {"gpubufd_device_segments_destroyed_total", "counter", "Segments given back.",
         segments_destroyed},
        {"gpubufd_evictions_total", "counter", "Times that memory was taken from objects.",
         evictions},
        {"gpubufd_evicted_bytes_total", "counter", "Bytes that evictions freed.", evicted_bytes},
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
        family(writer, families[i].name, families[i].type, families[i].help);
        for (unsigned d = 0; d < server->device_count; d++) {
            const struct gb_device *device = server->devices[d];

            gb_write_format(writer, "%s{device=\"%s\"} %" PRIu64 "\n", families[i].name, device->id,
                            families[i].value(device));
        }
    }
}

/* The tiers below the devices; times are kept in microseconds. */
static void write_tiers(const struct gb_server *server, struct gb_writer *writer)
{
    static const struct {
        const char *name, *type, *help;
        size_t offset;
        bool seconds;
    } families[] = {
        {"gpubufd_tier_capacity_bytes", "gauge", "What the tier may hold.",
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
        family(writer, families[i].name, families[i].type, families[i].help);
        for (int t = 0; t < GB_TIERS; t++) {
            const struct gb_tier *tier = &server->spill.tiers[t];
            uint64_t value;

            if (tier->capacity == 0)
                continue;
            memcpy(&value, (const char *)tier + families[i].offset, sizeof(value));
            gb_write_format(writer, "%s{tier=\"%s\"} ", families[i].name, gb_tier_name(tier->kind));
            if (families[i].seconds)
                gb_write_format(writer, "%" PRIu64 ".%06" PRIu64 "\n", value / 1000000,
                                value % 1000000);
            else
                gb_write_format(writer, "%" PRIu64 "\n", value);
        }
    }
}

static void write_totals(const struct gb_server *server, struct gb_writer *writer)
{
    const struct gb_metrics *metrics = &server->metrics;

    family(writer, "gpubufd_build_info", "gauge", "1, labelled with the daemon's version.");
    gb_write_format(writer, "gpubufd_build_info{version=\"%s\"} 1\n", GPUBUF_VERSION);
    family(writer, "gpubufd_start_time_seconds", "gauge", "When the daemon began, in Unix time.");
    gb_write_format(writer, "gpubufd_start_time_seconds %" PRIi64 "\n",
                    (gb_wall_ms() - (int64_t)(gb_now_ms() - server->started_ms)) / 1000);
    single(writer, "gpubufd_objects", "gauge", "Objects that have a name.",
           gb_names_count(&server->registry.names));
    single(writer, "gpubufd_leases", "gauge", "Leases of all sessions.",
           gb_registry_lease_count(&server->registry));
    single(writer, "gpubufd_sessions", "gauge", "Sessions.", server->session_count);
    single(writer, "gpubufd_sessions_started_total", "counter", "Sessions that began.",
           server->sessions_total);
    single(writer, "gpubufd_mappings", "gauge", "Segments that sessions were given.",
           server->store.mappings.count);
    family(writer, "gpubufd_opened_names_total", "counter",
           "Names that were asked for by open: there (hit) or not (miss).");
    gb_write_format(writer,
                    "gpubufd_opened_names_total{result=\"hit\"} %" PRIu64
                    "\ngpubufd_opened_names_total{result=\"miss\"} %" PRIu64 "\n",
                    metrics->hits, metrics->misses);
    single(writer, "gpubufd_crashes_survived_total", "counter",
           "1 after a start that found what an earlier daemon had left, as after a crash.",
           metrics->crashes_survived);
    family(writer, "gpubufd_limits_reached_total", "counter",
           "Times that a limit was in the way, by its name.");
    for (size_t i = 0; i < GB_METRICS_LIMITS; i++)
        gb_write_format(writer, "gpubufd_limits_reached_total{limit=\"%s\"} %" PRIu64 "\n",
                        gb_metrics_limit_names[i], metrics->limits[i]);
}

static const char *method_name(const struct gb_service *service, size_t i)
{
    return i < service->count ? service->name(i) : "unknown";
}

static void write_results(const struct gb_server *server, struct gb_writer *writer)
{
    const struct gb_service *service = server->service;
    static const char name[] = "gpubufd_requests_total";

    family(writer, name, "counter", "Requests that were answered, by method and result.");
    for (size_t i = 0; i <= service->count; i++) {
        const struct gb_method_metrics *method = &server->metrics.methods[i];

        gb_write_format(writer, "%s{method=\"%s\",result=\"ok\"} %" PRIu64 "\n", name,
                        method_name(service, i), method->done);
        for (size_t e = 0; e < GB_METRICS_ERRORS; e++)
            if (method->errors[e] > 0)
                gb_write_format(writer, "%s{method=\"%s\",result=\"%s\"} %" PRIu64 "\n", name,
                                method_name(service, i), gb_metrics_errors[e].kind,
                                method->errors[e]);
    }
}

static void write_times(const struct gb_server *server, struct gb_writer *writer)
{
    const struct gb_service *service = server->service;
    static const char name[] = "gpubufd_request_duration_seconds";

    family(writer, name, "histogram",
           "From when a request was read, or first tried, to its answer.");
    for (size_t i = 0; i <= service->count; i++) {
        const struct gb_method_metrics *method = &server->metrics.methods[i];
        const char *label = method_name(service, i);
        uint64_t count = 0;

        for (size_t b = 0; b <= GB_METRICS_BUCKETS; b++) {
            count += method->buckets[b];
            gb_write_format(writer, "%s_bucket{method=\"%s\",le=\"%s\"} %" PRIu64 "\n", name, label,
                            b < GB_METRICS_BUCKETS ? gb_metrics_bounds[b].text : "+Inf", count);
        }
        gb_write_format(writer,
                        "%s_sum{method=\"%s\"} %" PRIu64 ".%09" PRIu64
                        "\n%s_count{method=\"%s\"} %" PRIu64 "\n",
                        name, label, method->total_ns / 1000000000, method->total_ns % 1000000000,
                        name, label, count);
    }
}

static void write_observers(const struct gb_server *server, const struct gb_observe_counts *counts,
                            struct gb_writer *writer)
{
    static const char *const classes[] = {"2xx", "3xx", "4xx", "5xx"};
    const struct gb_http_counts *http = &counts->http;
    const struct gb_publisher_counts *publisher = &counts->publisher;

    single(writer, "gpubufd_events_total", "counter", "Events: objects that came, went or moved.",
           server->seq);
    family(writer, "gpubufd_events_dropped_total", "counter",
           "Events that were not sent since a reader was too slow.");
    gb_write_format(writer,
                    "gpubufd_events_dropped_total{outlet=\"http\"} %" PRIu64
                    "\ngpubufd_events_dropped_total{outlet=\"nng\"} %" PRIu64 "\n",
                    http->dropped, publisher->dropped);
    single(writer, "gpubufd_event_subscribers", "gauge", "Subscribers to events by NNG.",
           publisher->subscribers);
    single(writer, "gpubufd_events_published_total", "counter",
           "Messages sent, counted for each subscriber.", publisher->sent);
    single(writer, "gpubufd_http_connections", "gauge", "Connections to the HTTP server.",
           http->connections);
    single(writer, "gpubufd_http_live_connections", "gauge", "Of them, those that get events.",
           http->live);
    single(writer, "gpubufd_http_connections_accepted_total", "counter",
           "Connections to the HTTP server that began.", http->connections_total);
    single(writer, "gpubufd_http_connections_refused_total", "counter",
           "Connections that were refused since there were too many.", http->refused_total);
    family(writer, "gpubufd_http_responses_total", "counter",
           "Replies of the HTTP server, by the class of their status.");
    for (unsigned i = 0; i < 4; i++)
        gb_write_format(writer, "gpubufd_http_responses_total{code=\"%s\"} %" PRIu64 "\n",
                        classes[i], http->requests[i]);
}

void gb_prometheus_write(struct gb_server *server, const struct gb_observe_counts *counts,
                         struct gb_writer *writer)
{
    write_totals(server, writer);
    write_devices(server, writer);
    write_tiers(server, writer);
    write_results(server, writer);
    write_times(server, writer);
    write_observers(server, counts, writer);
}
