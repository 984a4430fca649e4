/*
 * Counts of the peer's work since its start. The parts count themselves; query.h tells the figures.
 * On the loop's thread.
 */
#ifndef GB_FIGURES_H
#define GB_FIGURES_H

#include <stdint.h>

enum { GB_FAILURE_KINDS = 16 };

struct gb_figures {
    uint64_t fetched, fetched_bytes, served_bytes;
    struct {
        int code; /* of proto/errors.h; 0: the end */
        uint64_t count;
    } failures[GB_FAILURE_KINDS]; /* of fetches */
    uint64_t joined;              /* times that the directory became available */
    uint64_t lane_failures;       /* lanes given up; their chunks came over the link */
    uint64_t etcd_requests, etcd_failures, etcd_ns;
};

static inline void gb_figures_fail(struct gb_figures *figures, int code)
{
    int i = 0;

    while (i < GB_FAILURE_KINDS - 1 && figures->failures[i].code &&
           figures->failures[i].code != code)
        i++;
    figures->failures[i].code = code;
    figures->failures[i].count++;
}

#endif
