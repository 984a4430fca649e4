#include "daemon/serve/metrics.h"

#include <stdlib.h>
#include <string.h>
#include <uv.h>

const struct gb_metrics_bound gb_metrics_bounds[GB_METRICS_BUCKETS] = {
    {2000, "2e-06"},    {5000, "5e-06"},     {10000, "1e-05"},   {50000, "5e-05"},
    {200000, "0.0002"}, {1000000, "0.001"},  {10000000, "0.01"}, {100000000, "0.1"},
    {1000000000, "1"},  {10000000000, "10"},
};

const struct gb_metrics_error gb_metrics_errors[GB_METRICS_ERRORS] = {
#define ERROR_ROW(name, code, kind, text) {(code), (kind)},
    GPUBUF_ERROR_MAP(ERROR_ROW)
#undef ERROR_ROW
};

const char *const gb_metrics_limit_names[GB_METRICS_LIMITS] = {
#define LIMIT_NAME(name, value, text) #name,
    GB_LIMIT_MAP(LIMIT_NAME)
#undef LIMIT_NAME
};

bool gb_metrics_init(struct gb_metrics *metrics, size_t methods)
{
    memset(metrics, 0, sizeof(*metrics));
    metrics->methods = calloc(methods + 1, sizeof(*metrics->methods));
    return metrics->methods;
}

void gb_metrics_end(struct gb_metrics *metrics)
{
    free(metrics->methods);
    metrics->methods = NULL;
}

static void count_result(struct gb_method_metrics *method, int code)
{
    size_t i = 0;

    if (code == 0) {
        method->done++;
        return;
    }
    /* An error without a code on the wire counts as a defect. */
    while (i + 1 < GB_METRICS_ERRORS && gb_metrics_errors[i].code != code)
        i++;
    method->errors[i]++;
}

static void count_time(struct gb_method_metrics *method, uint64_t ns)
{
    unsigned i = 0;

    while (i < GB_METRICS_BUCKETS && ns > gb_metrics_bounds[i].ns)
        i++;
    method->buckets[i]++;
    method->total_ns += ns;
}

uint64_t gb_metrics_request(struct gb_metrics *metrics, size_t method, int code,
                            uint64_t waited_since_ns)
{
    uint64_t begun = waited_since_ns ? waited_since_ns : metrics->begun_ns, ns;

    count_result(&metrics->methods[method], code);
    metrics->begun_ns = uv_hrtime(); /* where the next request begins */
    ns = metrics->begun_ns - begun;
    count_time(&metrics->methods[method], ns);
    return ns;
}

#define MINUTE_NS 60000000000u

static void pass_minutes(struct gb_metrics *metrics, uint64_t now_ns)
{
    uint64_t minute = now_ns / MINUTE_NS;

    if (minute == metrics->minute)
        return;
    metrics->longest_before_ns = minute == metrics->minute + 1 ? metrics->longest_ns : 0;
    metrics->longest_ns = 0;
    metrics->minute = minute;
}

void gb_metrics_turn(struct gb_metrics *metrics, uint64_t begun_ns, uint64_t now_ns)
{
    uint64_t ns = now_ns - begun_ns;

    pass_minutes(metrics, now_ns);
    metrics->turns_ns += ns;
    if (ns > metrics->longest_ns)
        metrics->longest_ns = ns;
}

uint64_t gb_metrics_longest_turn(struct gb_metrics *metrics, uint64_t now_ns)
{
    pass_minutes(metrics, now_ns);
    return metrics->longest_ns > metrics->longest_before_ns ? metrics->longest_ns
                                                            : metrics->longest_before_ns;
}

void gb_metrics_limit(struct gb_metrics *metrics, const char *limit)
{
    for (size_t i = 0; i < GB_METRICS_LIMITS; i++)
        if (strcmp(gb_metrics_limit_names[i], limit) == 0)
            metrics->limits[i]++;
}
