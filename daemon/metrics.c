#include "metrics.h"

#include <inttypes.h>

#include "server.h"

void gb_metrics_write(struct gb_server *server, struct gb_writer *writer)
{
    struct gb_http_counts counts;
    gb_http_counts(server->http, &counts);
    gb_write_format(writer, "gpubufd_sessions %d\n", (int)server->session_count);
    gb_write_format(writer, "gpubufd_http_events_dropped_total %" PRIu64 "\n", counts.dropped);
}
