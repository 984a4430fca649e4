/* What the outlets of events count of themselves, for the metrics. */
#ifndef GB_OBSERVE_COUNTS_H
#define GB_OBSERVE_COUNTS_H

#include <stdint.h>

struct gb_http_counts {
    uint64_t connections, live; /* now */
    uint64_t connections_total, refused_total;
    uint64_t requests[4]; /* by the status' first digit: 2xx … 5xx */
    uint64_t dropped;     /* events for the page that were not sent */
};

struct gb_publisher_counts {
    uint64_t subscribers;   /* now */
    uint64_t sent, dropped; /* messages, counted for each subscriber */
};

struct gb_observe_counts {
    struct gb_http_counts http;
    struct gb_publisher_counts publisher;
};

#endif
