/*
 * Counts of the peer's work since its start. The parts count themselves; query.h tells the figures.
 * On the loop's thread.
 */
#ifndef GB_PEER_FIGURES_H
#define GB_PEER_FIGURES_H

#include <stdint.h>

enum { GB_PEER_FAILURE_KINDS = 16 };

struct gb_peer_figures {
    uint64_t fetched, fetched_bytes, served_bytes;
    uint64_t leases; /* granted to other machines; their numbers are those of leases */
    unsigned waits;  /* requests that wait in a thread for work on a GPU */
    struct {
        int code; /* of proto/base/errors.h; 0: the end */
        uint64_t count;
    } failures[GB_PEER_FAILURE_KINDS]; /* of fetches */
    uint64_t joined;                   /* times that the directory became available */
    uint64_t lane_failures;            /* lanes given up; their chunks came over the link */
    uint64_t etcd_requests, etcd_failures, etcd_ns;
};

static inline void gb_peer_figures_fail(struct gb_peer_figures *figures, int code)
{
    int i = 0;

    while (i < GB_PEER_FAILURE_KINDS - 1 && figures->failures[i].code &&
           figures->failures[i].code != code)
        i++;
    figures->failures[i].code = code;
    figures->failures[i].count++;
}

#endif
