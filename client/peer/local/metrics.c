#include "client/peer/local/metrics.h"

#include <inttypes.h>

static void family(struct gb_writer *writer, const char *name, const char *type, const char *help)
{
    gb_write_format(writer,
                    ",{\"name\":\"gpubufd_peer_%s\",\"type\":\"%s\",\"help\":\"%s\",\"samples\":[",
                    name, type, help);
}

static void single(struct gb_writer *writer, const char *name, const char *type, const char *help,
                   uint64_t value)
{
    family(writer, name, type, help);
    gb_write_format(writer, "{\"value\":%" PRIu64 "}]}", value);
}

static void gauge(struct gb_writer *writer, const char *name, const char *help, uint64_t value)
{
    single(writer, name, "gauge", help, value);
}

static void counter(struct gb_writer *writer, const char *name, const char *help, uint64_t value)
{
    single(writer, name, "counter", help, value);
}

static void write_failures(struct gb_writer *writer, const struct gb_peer_figures *figures)
{
    family(writer, "fetch_failures_total", "counter",
           "Names that could not be fetched, by the kind of the error.");
    for (int i = 0; i < GB_PEER_FAILURE_KINDS && figures->failures[i].code; i++)
        gb_write_format(writer, "%s{\"labels\":{\"kind\":\"%s\"},\"value\":%" PRIu64 "}",
                        i ? "," : "", gb_error_kind(figures->failures[i].code),
                        figures->failures[i].count);
    GB_WRITE_LITERAL(writer, "]}");
}

static void write_etcd(struct gb_writer *writer, const struct gb_peer_figures *figures)
{
    counter(writer, "etcd_requests_total", "Requests to etcd that have ended.",
            figures->etcd_requests);
    counter(writer, "etcd_failures_total", "Of them, those that failed.", figures->etcd_failures);
    family(writer, "etcd_seconds_total", "counter", "Time that they took, together.");
    GB_WRITE_LITERAL(writer, "{\"value\":");
    gb_write_double(writer, (double)figures->etcd_ns / 1e9);
    GB_WRITE_LITERAL(writer, "}]}");
}

void gb_peer_metrics_write(struct gb_writer *writer, const struct gb_peer_state *state)
{
    const struct gb_peer_figures *figures = state->figures;
    const struct gb_peer_publish_figures *published = &state->published;

    GB_WRITE_LITERAL(writer, "{\"name\":\"gpubufd_peer_up\",\"type\":\"gauge\",\"help\":\"1 if "
                             "gpubufd-peer answers.\",\"samples\":[{\"value\":1}]}");
    counter(writer, "fetched_total", "Objects of other machines that became copies here.",
            figures->fetched);
    counter(writer, "fetched_bytes_total", "Bytes of them.", figures->fetched_bytes);
    write_failures(writer, figures);
    counter(writer, "served_bytes_total", "Bytes of content that other machines were sent.",
            figures->served_bytes);
    gauge(writer, "copies", "Copies that are here.", state->copies);
    gauge(writer, "machines_reading", "Machines that are connected to this one.", state->clients);
    gauge(writer, "machines_read", "Machines that this one is connected to.", state->servers);
    counter(writer, "lane_failures_total",
            "Times that UCX failed between two machines, and TLS took its place.",
            figures->lane_failures);
    gauge(writer, "directory_up", "1 if the names of other machines are known.", state->directory);
    counter(writer, "joined_total", "Times that they became known: epochs of the lease in etcd.",
            figures->joined);
    gauge(writer, "names_shared", "Objects here that other machines may have.", published->shared);
    gauge(writer, "names_published", "Of them, those that etcd has.", published->published);
    gauge(writer, "names_refused", "Of them, those whose name another machine has.",
          published->refused);
    counter(writer, "names_over_total",
            "Times that an object was not published, as its owner had user-names names; no gauge "
            "counts it.",
            published->over);
    counter(writer, "names_taken_total",
            "Names that became this machine's after they had been another's.", published->taken);
    counter(writer, "publish_failures_total", "Requests to publish that failed.",
            published->failures);
    write_etcd(writer, figures);
}
