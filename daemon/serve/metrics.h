/*
 * Counters of requests, for operators. Everything is counted when it happens, so that `stats`
 * with `families` takes no longer with a million objects than with none. The loop's thread.
 */
#ifndef GB_METRICS_H
#define GB_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/base/errors.h"
#include "proto/base/limits.h"

enum {
#define GB_METRICS_LIMIT(name, value, text) GB_METRICS_LIMIT_##name,
    GB_LIMIT_MAP(GB_METRICS_LIMIT)
#undef GB_METRICS_LIMIT
        GB_METRICS_LIMITS
};

enum {
#define GB_METRICS_ERROR(name, code, kind, text) GB_METRICS_ERROR_##name,
    GPUBUF_ERROR_MAP(GB_METRICS_ERROR)
#undef GB_METRICS_ERROR
        GB_METRICS_ERRORS
};

#define GB_METRICS_BUCKETS 10 /* of a histogram, without the last, unbounded one */

#define GB_METRICS_PARAMS 24 /* of one method, at most */

/* Of one method: results, and the time from a request's arrival to its answer. */
struct gb_method_metrics {
    uint64_t calls;                     /* also of requests that wait */
    uint64_t params[GB_METRICS_PARAMS]; /* answered requests that gave the parameter */
    uint64_t done, errors[GB_METRICS_ERRORS];
    uint64_t buckets[GB_METRICS_BUCKETS + 1]; /* the last: longer than all bounds */
    uint64_t total_ns;
};

struct gb_metrics {
    uint64_t begun_ns;                 /* when the current request began to be served */
    struct gb_method_metrics *methods; /* one a method, and one for unknown methods */
    uint64_t hits, misses;             /* names in `open` that were there, and that were not */
    uint64_t limits[GB_METRICS_LIMITS];
    uint64_t crashes_survived;
    uint64_t sessions;                      /* that began */
    uint64_t turned_away;                   /* connections for which there was no descriptor */
    uint64_t sessions_ended;                /* since they kept what others lacked */
    uint64_t turns_ns;                      /* time that the loop was at work */
    uint64_t minute;                        /* of the monotonic clock */
    uint64_t longest_ns, longest_before_ns; /* the longest turn of this minute, and the last one */
};

extern const struct gb_metrics_bound {
    uint64_t ns;
    const char *text;                    /* in seconds, as Prometheus writes it */
} gb_metrics_bounds[GB_METRICS_BUCKETS]; /* upper bounds */
extern const struct gb_metrics_error {
    int code;
    const char *kind;
} gb_metrics_errors[GB_METRICS_ERRORS];
extern const char *const gb_metrics_limit_names[GB_METRICS_LIMITS];

/* For that many methods. False if memory is out. */
bool gb_metrics_init(struct gb_metrics *metrics, size_t methods);
void gb_metrics_end(struct gb_metrics *metrics);

/* Counts a request that was answered, with `code` 0 or an error's. `waited_since_ns`: when it was
   first tried, if it had to wait; else 0. `method`: its index; the count of methods if it is
   unknown. Returns the nanoseconds that the request took. */
uint64_t gb_metrics_request(struct gb_metrics *metrics, size_t method, int code,
                            uint64_t waited_since_ns);
/* A turn of the loop lasted from `begun_ns` to `now_ns`. */
void gb_metrics_turn(struct gb_metrics *metrics, uint64_t begun_ns, uint64_t now_ns);
/* The longest turn of this minute and the last one, so that a scrape each minute misses none. */
uint64_t gb_metrics_longest_turn(struct gb_metrics *metrics, uint64_t now_ns);
/* A limit was reached, by its name of limits.h. */
void gb_metrics_limit(struct gb_metrics *metrics, const char *limit);

#endif
